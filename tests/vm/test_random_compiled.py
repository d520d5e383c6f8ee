"""Random functions compiled at their first call do what Python and NumPy do; so do mistakes found that way.

`RANDOM_COMPILED=first:last` runs other seeds, as many as wanted.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiercel
from tests.frontend.test_corpus import COMPREHENSIONS
from tests.vm.generate import Generated, generate
from tests.vm.inline import InlineBuilder, compiled_work, same_but_for_strides
from tiercel.testing import Arguments, copy_arguments, differences, observe
from tiercel.vm.dispatch import INTERNAL

AT_ONCE = tiercel.Policy(warmup_calls=0, hot_count=1, hot_time_ms=0.0, hot_total_ms=0.0)
FIRST, LAST = (int(n) for n in os.environ.get("RANDOM_COMPILED", "0:200").split(":"))
BATCH = 25


@functools.cache
def builder() -> InlineBuilder:
    return InlineBuilder()


def jitted(function: Callable[..., Any]) -> Any:
    made = tiercel.jit(function, policy=AT_ONCE)
    made.__tiercel__.tiers.builder = builder
    return made


def largest(value: Any) -> float:
    """The largest finite number in a result: what rounding is relative to."""
    if isinstance(value, tuple | list):
        return max(map(largest, value), default=1.0)
    array = np.asarray(value) if isinstance(value, np.ndarray | np.generic | float) else np.zeros(0)
    if array.dtype.kind != "f":
        return 1.0
    finite = array[np.isfinite(array)].astype(np.float64)
    return float(np.abs(finite).max(initial=1.0))


def compare(function: Callable[..., Any], compiled: Any, sets: list[tuple[Any, ...]], made: Generated | None) -> int:
    """Compare on all argument sets, thrice each; returns how many calls were compiled."""
    tiers = compiled.__tiercel__.tiers
    total = 0
    for number, given in enumerate(sets):
        arguments = Arguments(given)
        for mode in ("default", "errstate raise") if number in (1, 2) or made is None else ("default",):
            expected = observe(function, copy_arguments(arguments), mode=mode)
            expected.traceback = [e for e in expected.traceback if e[2] not in COMPREHENSIONS]
            tolerance = 0.0
            if made is not None and not made.exact:
                tolerance = 64.0 * scale_of(function, made, arguments)
            for _ in range(3):
                before = compiled_work(compiled)
                actual = observe(compiled, copy_arguments(arguments), mode=mode)
                native = compiled_work(compiled) > before
                total += native
                actual.traceback = [e for e in actual.traceback if e[2] not in COMPREHENSIONS]
                found = differences(expected, actual, tolerance=tolerance if native else 0.0)
                found = [d for d in found if not (native and same_but_for_strides(d, expected.result))]
                if native and made is not None and not made.exact:
                    # what was computed in float32 and then widened is as far off as float32 is
                    wide = differences(expected, actual, tolerance=tolerance * 2.0**29)
                    found = [d for d in found if "np.float64(" not in d or d in wide]
                    # a sum in another order overflows and underflows elsewhere
                    found = [d for d in found if "overflow encountered" not in d and "underflow encountered" not in d]
                text = made.source.partition("\n\n\n")[0] if made is not None else function.__name__
                assert not found, f"{text}\n{arguments} in mode {mode!r}, compiled: {native}\n" + "\n".join(found)
        variants = [v for s in tiers.signatures.values() for v in s.variants]
        assert not any(v.reason.startswith(INTERNAL) for v in variants), [v.reason for v in variants]
        if not total and any(v.reason for v in variants):
            break  # nothing is compiled for it, and Python run by the interpreter is tested elsewhere
    return total


def scale_of(function: Callable[..., Any], made: Generated, arguments: Arguments) -> float:
    """The largest number that occurs on the way."""
    every = function.__globals__[f"{made.name}_all"]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return largest(every(*copy_arguments(arguments).args))
        except Exception:  # noqa: BLE001 - then the function has no result to compare either
            return 1.0


@pytest.mark.parametrize("first", range(FIRST, LAST, BATCH))
def test_random_functions(first: int, tmp_path: Path) -> None:
    made = [generate(seed) for seed in range(first, min(first + BATCH, LAST))]
    path = tmp_path / f"random_{first}.py"
    path.write_text("import numpy as np\n\n\n" + "".join(g.source for g in made))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    native = 0
    for generated in made:
        function = getattr(module, generated.name)
        native += compare(function, jitted(function), generated.sets, generated) > 0
    assert native >= len(made) // 8, "hardly anything is compiled"


# ---- found by random functions ---------------------------------------------------------------------------------------


def unused_division(x, y):
    x / y
    return x + 1


def unused_reduction(x, y):
    (x / y).sum()
    return x + y


def unused_scalar(x, y):
    x[0] / y[0]
    return x + y


def part_of_division(x, y):
    return (x / y)[:1] + 1


def mean_of_nothing(x):
    return x.mean(axis=-1), x.var(axis=0), x.std(axis=-1, keepdims=True)


def centred(x):
    return x - x.mean(axis=-1, keepdims=True)


def unknown_size(x):
    return x.reshape(-1, x.shape[-1]) + 1


def overflowing_literal(x):
    return np.where(x > 0, x, 1e300)


def literal_out_of_range(x):
    return np.clip(x, -1, 1)


def spread_of_one(x):
    return x.std(), x * 2


def sign_bit(x):
    return np.signbit(x)


def small_integers(x):
    return x.astype(np.int32), x.astype(np.uint8), x.astype(np.int16)


def unsigned(x):
    return x.astype(np.uint32), x.astype(np.uint64)


def nothing_by_nothing(x):
    np.true_divide(x.shape[0] - x.shape[0], 0)
    return x + 1


def shifted(x, k):
    return x + k


def more_than(x, k):
    return x > k


def longer(x):
    return x + x.shape[0]


def guarded_in_one_arm(x, y):
    if y.sum() > 0:
        total = y + x.mean(axis=-1).sum()
    else:
        total = y * 1.0
    return total, x.mean(axis=-1)


def turned(x):
    return x.T + 1


def single(*values: float, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.array(values, dtype)


BLOCK = np.arange(24, dtype=np.float32).reshape(6, 4)
FOUND: list[tuple[Callable[..., Any], list[tuple[Any, ...]]]] = [
    (unused_division, [(single(1, 2), single(1, 2)), (single(1, 2), single(1, 0)), (single(0), single(0))]),
    (unused_reduction, [(single(1, 2), single(1, 2)), (single(1, 2), single(1, 0)), (single(0), single(0))]),
    (unused_scalar, [(single(1, 2), single(1, 2)), (single(1, 2), single(0, 1)), (single(0), single(0))]),
    (part_of_division, [(single(1, 2), single(1, 2)), (single(1, 2), single(1, 0))]),
    (mean_of_nothing, [(np.ones((2, 3)),), (np.ones((2, 0)),), (np.ones((0, 3)),), (np.ones((0, 0)),)]),
    (centred, [(np.ones((2, 3)),), (np.ones((2, 0)),), (np.ones((0, 3)),), (np.ones((0, 0)),)]),
    (unknown_size, [(np.ones((2, 3)),), (np.ones((2, 0)),), (np.ones((0, 3)),), (np.ones((0, 0)),)]),
    (overflowing_literal, [(single(1, -1),)]),
    (literal_out_of_range, [(single(1, 0, 3, dtype=np.uint8),)]),
    (spread_of_one, [(np.array(2.0, np.float32),)]),
    *((sign_bit, [(single(1, 0, dtype=d),)]) for d in (np.int8, np.uint8, bool, np.float32)),
    *(
        (function, [(single(1.5, 2, dtype=d),), (single(v, 1, dtype=d),)])
        for function in (small_integers, unsigned)
        for d in (np.float32, np.float64)
        for v in (-5.0, 300.0, 2.0**31, 2.0**32, 2.0**63, 2.0**64, -(2.0**40), 1e30, np.nan, np.inf)
    ),
    (nothing_by_nothing, [(single(1),)]),
    *(
        (function, [(single(1, 2, dtype=d), k) for k in (3, 127, 128, 300, -128, -129, -1, 2**32, 2**62)])
        for function in (shifted, more_than)
        for d in (np.int8, np.uint8, np.int32, np.uint64)
    ),
    (longer, [(np.ones(n, np.int8),) for n in (5, 127, 128, 300)]),
    (guarded_in_one_arm, [(np.ones(xs), np.array([y])) for xs in ((2, 3), (0, 0)) for y in (1.0, -1)]),
    (turned, [(BLOCK.T,), (BLOCK[::2],), (BLOCK[:, ::2],), (BLOCK,)]),
    (turned, [(BLOCK[::2],), (BLOCK.T,)]),
]


@pytest.mark.parametrize(
    ("function", "sets"), FOUND, ids=[f"{n}-{function.__name__}" for n, (function, _) in enumerate(FOUND)]
)
def test_found(function: Callable[..., Any], sets: list[tuple[Any, ...]]) -> None:
    compare(function, jitted(function), sets, None)


def test_a_mistake_of_the_compiler_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(region: Any) -> Any:
        raise AssertionError("made for the test")

    monkeypatch.setattr("tiercel.vm.dispatch.lower_region", broken)
    function = jitted(centred)
    assert function(np.ones((2, 3))).shape == (2, 3)
    (state,) = function.__tiercel__.tiers.signatures.values()
    assert state.variants[0].reason == f"{INTERNAL}: AssertionError: made for the test"

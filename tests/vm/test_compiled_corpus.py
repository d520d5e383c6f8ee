"""The corpus of Python functions, compiled at their first call where they can be: as in Python."""

from __future__ import annotations

import types

import pytest

import tiercel
from tests.frontend.corpus.support import CASES, Case
from tests.frontend.test_corpus import COMPREHENSIONS, cold
from tests.vm.inline import InlineBuilder, compiled_work, same_but_for_strides
from tiercel.testing import MODES, _fresh, differences, observe

AT_ONCE = tiercel.Policy(warmup_calls=0, hot_count=1, hot_time_ms=0.0, hot_total_ms=0.0)
BUILDER = InlineBuilder()


@pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
def test_compiled_like_python(case: Case) -> None:
    function = tiercel.jit(case.function, policy=AT_ONCE)
    state = getattr(function, "__tiercel__", None)
    if not isinstance(case.function, types.FunctionType) or state is None or state.tiers is None:
        pytest.skip("runs as Python")
    state.tiers.builder = lambda: BUILDER
    compiled = 0
    for given in case.sets:
        for mode in MODES:
            expected = observe(cold(case.function), _fresh(given), mode=mode)
            expected.traceback = [e for e in expected.traceback if e[2] not in COMPREHENSIONS]
            for _ in range(3):
                before = compiled_work(function)
                actual = observe(function, _fresh(given), mode=mode)
                actual.traceback = [e for e in actual.traceback if e[0] != __file__]
                was_compiled = compiled_work(function) > before
                compiled += was_compiled
                found = differences(expected, actual, tolerance=16.0 if was_compiled else 0.0)
                found = [d for d in found if not (was_compiled and same_but_for_strides(d, expected.result))]
                assert not found, f"{_fresh(given)} in mode {mode!r}, compiled: {was_compiled}\n" + "\n".join(found)
    COMPILED[case.name] = compiled


COMPILED: dict[str, int] = {}


def test_enough_of_the_corpus_compiles() -> None:
    """A region that is silently refused everywhere would make the test above pass for nothing."""
    if len(COMPILED) < len(CASES) // 2:
        pytest.skip("only a part of the corpus ran here")
    names = sorted(name for name, count in COMPILED.items() if count)
    assert len(names) * len(CASES) >= 40 * len(COMPILED), names

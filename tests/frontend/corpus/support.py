"""How a corpus function is registered, the arguments it is run on, and objects that record what is done to them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tiercel.testing import Arguments, arguments


@dataclass
class Case:
    function: Any
    sets: tuple[Any, ...]
    native: bool
    name: str


CASES: list[Case] = []


def case(*sets: Any, native: bool = True, function: Any = None) -> Callable[[Any], Any]:
    """Register a function. `native`: none of its lines runs as outlined code or CallPy."""

    def register(made: Any) -> Any:
        target = made if function is None else function
        module = getattr(target, "__module__", "").rpartition(".")[2]
        CASES.append(Case(target, sets or ((),), native, f"{module}.{getattr(target, '__qualname__', repr(target))}"))
        return made

    return register


def add(function: Any, *sets: Any, native: bool = True) -> None:
    """Register something that cannot be decorated: a lambda, a method."""
    case(*sets, native=native)(function)


def ramp(*shape: int, dtype: Any = np.float64) -> np.ndarray[Any, Any]:
    """Values around zero, all different, exact in every dtype."""
    size = int(np.prod(shape, dtype=int))
    values = np.arange(size, dtype=np.float64).reshape(shape) - size // 2
    kind = np.dtype(dtype).kind
    if kind == "u":
        values = values + size
    if kind == "f":
        values = values / 4
    return values.astype(dtype)


def layouts(*shape: int, dtype: Any = np.float64) -> Iterator[np.ndarray[Any, Any]]:
    """The same shape in C order, Fortran order, with gaps, reversed, and not writeable."""
    base = ramp(*shape, dtype=dtype)
    yield base.copy()
    yield np.asfortranarray(base)
    wide = np.zeros((*shape[:-1], 2 * shape[-1]), dtype)
    wide[..., ::2] = base
    yield wide[..., ::2]
    yield base[..., ::-1]
    fixed = base.copy()
    fixed.flags.writeable = False
    yield fixed


def unary(*shapes: tuple[int, ...], dtypes: str = "f8 f4 i4", extra: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Argument sets of one array over shapes, dtypes and layouts, followed by `extra`."""
    sets: list[tuple[Any, ...]] = []
    for number, shape in enumerate(shapes or ((3, 4), (0, 4), (1, 1))):
        for dtype in dtypes.split():
            forms = (
                list(layouts(*shape, dtype=dtype))
                if number == 0 and dtype == dtypes.split()[0]
                else [ramp(*shape, dtype=dtype)]
            )
            sets += [(form, *copy.deepcopy(extra)) for form in forms]
    return sets


def binary(
    *shapes: tuple[tuple[int, ...], tuple[int, ...]], dtypes: str = "f8,f8 f4,f4 f4,i8 u1,i1"
) -> list[tuple[Any, ...]]:
    """Argument sets of two arrays over shapes and pairs of dtypes; the first pair also in other layouts."""
    sets: list[tuple[Any, ...]] = []
    for a, b in shapes or (((3, 4), (3, 4)), ((3, 4), (4,)), ((1, 4), (3, 1)), ((0, 4), (4,))):
        for pair in dtypes.split():
            left, right = pair.split(",")
            sets.append((ramp(*a, dtype=left), ramp(*b, dtype=right) + 1))
    sets += [(x, y) for x, y in zip(layouts(3, 4), layouts(3, 4), strict=True)]
    return sets


class Loud:
    """A value that records every operation on it in `log`, in order."""

    def __init__(self, name: str, log: list[str], value: Any = 1, fails: str = "") -> None:
        self.name = name
        self.log = log
        self.value = value
        self.fails = fails

    def _do(self, what: str) -> None:
        self.log.append(f"{self.name}.{what}")
        if what == self.fails:
            raise RuntimeError(f"{self.name} fails in {what}")

    def _made(self, what: str, value: Any) -> Loud:
        self._do(what)
        return Loud(f"({self.name} {what})", self.log, value)

    def __bool__(self) -> bool:
        self._do("bool")
        return bool(self.value)

    def __add__(self, other: Any) -> Loud:
        return self._made("add", self.value)

    def __radd__(self, other: Any) -> Loud:
        return self._made("radd", self.value)

    def __iadd__(self, other: Any) -> Loud:
        self._do("iadd")
        return self

    def __mul__(self, other: Any) -> Loud:
        return self._made("mul", self.value)

    def __matmul__(self, other: Any) -> Loud:
        return self._made("matmul", self.value)

    def __neg__(self) -> Loud:
        return self._made("neg", self.value)

    def __lt__(self, other: Any) -> Loud:
        return self._made("lt", self.value)

    def __eq__(self, other: object) -> Any:
        return self._made("eq", self.value)

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, item: Any) -> bool:
        self._do("contains")
        return bool(self.value)

    def __getitem__(self, key: Any) -> Loud:
        return self._made(f"getitem {key!r}" if not isinstance(key, Loud) else f"getitem {key.name}", self.value)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._do(f"setitem {key!r}" if not isinstance(key, Loud) else f"setitem {key.name}")

    def __delitem__(self, key: Any) -> None:
        self._do(f"delitem {key!r}")

    def __iter__(self) -> Iterator[Any]:
        self._do("iter")
        for i in range(self.value if isinstance(self.value, int) else 2):
            self._do(f"next {i}")
            yield i

    def __len__(self) -> int:
        self._do("len")
        return int(self.value)

    def __format__(self, spec: str) -> str:
        self._do(f"format {spec}")
        return f"<{self.name}>"

    def __repr__(self) -> str:
        self._do("repr")
        return f"Loud({self.name})"

    def __str__(self) -> str:
        self._do("str")
        return self.name

    def __call__(self, *args: Any, **kwargs: Any) -> Loud:
        return self._made(f"call {len(args)} {sorted(kwargs)}", self.value)

    def __enter__(self) -> Any:
        self._do("enter")
        return self.value

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> Any:
        self._do(f"exit {kind.__name__ if kind else None} {value} {traceback is not None}")
        return self.name.startswith("swallow")


def loud(*specs: Any) -> Callable[[], tuple[Any, ...]]:
    """An argument set made afresh: the log, then a `Loud` per spec (a name, or name and value, or name, value, fails)."""

    def make() -> tuple[Any, ...]:
        log: list[str] = []
        made = []
        for spec in specs:
            name, *rest = (spec,) if isinstance(spec, str) else spec
            made.append(Loud(name, log, *rest))
        return (log, *made)

    return make


@dataclass
class Point:
    x: Any
    y: Any = 0
    tags: list[Any] = field(default_factory=list)

    def norm(self) -> Any:
        return (self.x * self.x + self.y * self.y) ** 0.5

    def moved(self, dx: Any) -> Point:
        return Point(self.x + dx, self.y, self.tags)


__all__ = [
    "CASES",
    "Arguments",
    "Case",
    "Loud",
    "Point",
    "add",
    "arguments",
    "binary",
    "case",
    "layouts",
    "loud",
    "ramp",
    "unary",
]

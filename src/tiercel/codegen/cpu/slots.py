"""Which arena buffers share memory: those that are never in use at the same time.

In: the body of a function, products expanded. Out: `Slots`: a slot for each buffer, and for what each parallel axis
takes for its threads. A slot is as large as the largest of its members when the function runs.

Two buffers may share a slot when the last statement that mentions one comes before the `Allocate` of the other.
Statements are numbered in order; a loop counts as one statement for what is allocated outside of it, so what passes
hand to one another stays. A parallel axis has ended before the next statement begins, so its threads need their memory
for that statement only. What a function keeps for its second call (phase 1) is allocated before both phases and used in
both, so it is in use throughout.

That intermediates of a long function take the same few pieces of memory is what keeps them in the caches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tiercel.loops.form import (
    Allocate,
    Binary,
    Block,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    If,
    Select,
    Stmt,
    Unary,
    Var,
    While,
)

__all__ = ["Interval", "Slots", "intervals", "plan_slots"]

_SAMPLE = 64
"""What a size is taken for where two buffers are compared; only how well they fit depends on it."""


@dataclass(slots=True)
class Interval:
    """When a buffer, or the threads' memory of a parallel axis, is in use: statements `first` to `last`."""

    name: str
    first: int
    last: int
    size: int  # in bytes, for sample sizes


@dataclass(frozen=True, slots=True)
class Slots:
    """Where everything goes.

    Attributes:
        of: slot by buffer name, or `parallel_key` of a parallel axis.
        count: how many slots there are.
    """

    of: Mapping[str, int] = field(default_factory=dict)
    count: int = 0


def parallel_key(stmt: For) -> str:
    """The name by which the threads' memory of a parallel axis is known."""
    return f".{stmt.index}"


def plan_slots(body: Block, roots: Callable[[Iterable[Stmt]], set[str]]) -> Slots:
    """Share slots.

    Args:
        body: the body of a function.
        roots: the buffers that statements mention, views by the buffer they look into.
    """
    order = sorted(intervals(body, roots), key=lambda i: (i.first, i.last))
    of: dict[str, int] = {}
    free_from: list[int] = []  # per slot: the statement from which on nothing in it is in use
    sizes: list[int] = []
    for interval in order:
        free = [s for s, at in enumerate(free_from) if at <= interval.first]
        if free:
            fitting = [s for s in free if sizes[s] >= interval.size]
            slot = min(fitting, key=lambda s: sizes[s]) if fitting else max(free, key=lambda s: sizes[s])
        else:
            slot = len(sizes)
            sizes.append(0)
            free_from.append(0)
        of[interval.name] = slot
        sizes[slot] = max(sizes[slot], interval.size)
        free_from[slot] = interval.last + 1
    return Slots(of, len(sizes))


def intervals(body: Block, roots: Callable[[Iterable[Stmt]], set[str]]) -> list[Interval]:
    """When each buffer that is allocated outside of parallel axes is in use."""
    found: dict[str, Interval] = {}
    at = 0

    def begin(name: str, size: int) -> None:
        """A name may stand in several places, as in two variants of a loop: it is in use from the first of them on."""
        if name in found:
            found[name].size = max(found[name].size, size)
            found[name].last = at
        else:
            found[name] = Interval(name, at, at, size)

    def mention(names: set[str], where: int) -> None:
        for name in names:
            if name in found:
                found[name].last = max(found[name].last, where)

    def walk(stmts: Sequence[Stmt]) -> None:
        nonlocal at
        for stmt in stmts:
            at += 1
            match stmt:
                case Allocate() if stmt.buffer.root is None:
                    begin(stmt.buffer.name, sample_bytes(stmt.buffer))
                case For(axis="parallel"):
                    begin(parallel_key(stmt), 0)
                    mention(roots((stmt,)), at)
                case For(axis="serial") | While():
                    outside = set(found)
                    for inner in (stmt.header, stmt.body) if isinstance(stmt, While) else (stmt.body,):
                        walk(inner.body)
                    at += 1
                    mention(roots((stmt,)) & outside, at)
                case If():
                    walk(stmt.then.body)
                    walk(stmt.orelse.body)
                    at += 1
                    mention(_in_condition(stmt, roots), at)
                case Block():
                    walk(stmt.body)
                case _:
                    mention(roots((stmt,)), at)

    walk(body.body)
    return list(found.values())


def _in_condition(stmt: If, roots: Callable[[Iterable[Stmt]], set[str]]) -> set[str]:
    return roots((If(stmt.condition, Block(()), Block(())),))


def sample_bytes(buffer: Buffer) -> int:
    """Bytes of a buffer for sample sizes."""
    size = buffer.dtype.itemsize
    for extent in buffer.shape:
        size *= max(0, int(_sample(extent)))
    return size


def _sample(node: Expr) -> float:
    match node:
        case Const():
            return float(node.value.real)
        case Var():
            return _SAMPLE
        case Cast() | Unary():
            return _sample(node.x)
        case Select():
            return max(_sample(node.a), _sample(node.b))
        case Binary():
            a, b = _sample(node.a), _sample(node.b)
            match node.op:
                case "add":
                    return a + b
                case "sub":
                    return a - b
                case "mul":
                    return a * b
                case "max":
                    return max(a, b)
                case "min":
                    return min(a, b)
                case "floordiv" | "div":
                    return a // b if b else a
            return a
    return _SAMPLE

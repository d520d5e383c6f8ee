"""Where array values live while they are lowered: a root buffer seen through sizes, strides and an offset.

In: roots (arguments, results, arena buffers) and view operations. Out: `Memory`, whose strides and offset are sizes of
the shape algebra, so that two ways to compute the same stride compare equal; a stride known only at run time is a
symbol that stands for a variable of the function. Index variables of loops are symbols too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tiercel.compiler.dims import dim_expression
from tiercel.loops.form import Buffer
from tiercel.operators.types import Shape
from tiercel.shapes import DimLike, product


def c_strides(shape: Shape) -> Shape:
    """Strides in elements of a C-contiguous array."""
    strides: list[DimLike] = []
    step: DimLike = 1
    for dim in reversed(shape):
        strides.append(step)
        step = step * dim
    return tuple(reversed(strides))


def f_strides(shape: Shape) -> Shape:
    """Strides in elements of an array that is contiguous in Fortran's order."""
    return tuple(reversed(c_strides(tuple(reversed(shape)))))


def dense_strides(shape: Shape, order: Sequence[int]) -> Shape:
    """Strides in elements of one block of memory whose axes, outermost first, are `order`."""
    inner = c_strides(tuple(shape[axis] for axis in order))
    return tuple(inner[order.index(axis)] for axis in range(len(shape)))


@dataclass(frozen=True, slots=True)
class Memory:
    """Elements of `root`: the one at index i is number `offset + sum(i * strides)`."""

    root: Buffer
    shape: Shape
    strides: Shape
    offset: DimLike = 0

    @classmethod
    def whole(cls, root: Buffer, shape: Shape, strides: Shape | None = None) -> Memory:
        """All of a root buffer, in C order unless strides are given."""
        return cls(root, shape, c_strides(shape) if strides is None else strides)

    @property
    def contiguous(self) -> bool:
        """Is it one block in C order (for every size)?"""
        return self.strides == c_strides(self.shape)

    def element(self, index: Sequence[DimLike]) -> DimLike:
        """The number of an element in the root."""
        place = self.offset
        for i, stride in zip(index, self.strides, strict=True):
            place = place + i * stride
        return place

    def permuted(self, order: Sequence[int]) -> Memory:
        """Axes in another order."""
        return replace(self, shape=tuple(self.shape[a] for a in order), strides=tuple(self.strides[a] for a in order))

    def reshaped(self, shape: Shape) -> Memory | None:
        """The same elements in C order as another shape, None where that needs a copy."""
        if self.contiguous:
            return replace(self, shape=shape, strides=c_strides(shape))
        kept = [(d, s) for d, s in zip(self.shape, self.strides, strict=True) if d != 1]
        if [d for d in shape if d != 1] == [d for d, _ in kept]:
            strides = iter([s for _, s in kept])
            return replace(self, shape=shape, strides=tuple(0 if d == 1 else next(strides) for d in shape))
        # leading axes that merge: (a, b, rest) -> (a * b, rest)
        for cut in range(len(self.shape) + 1):
            head, tail = self.shape[:cut], self.shape[cut:]
            if len(shape) == 1 + len(tail) and shape[1:] == tail and shape[0] == product(head) and head:
                inner = self.strides[cut - 1]
                if self.strides[:cut] == tuple(s * inner for s in c_strides(head)):
                    return replace(self, shape=shape, strides=(inner, *self.strides[cut:]))
        return None

    def broadcast(self, domain: Shape) -> Shape | None:
        """Strides over `domain`, 0 where this has size 1; None when a size may be 1 or not."""
        missing = len(domain) - len(self.shape)
        strides: list[DimLike] = [0] * missing
        for dim, size, stride in zip(self.shape, domain[missing:], self.strides, strict=True):
            if dim == size:
                strides.append(stride)
            elif dim == 1:
                strides.append(0)
            else:
                return None
        return tuple(strides)


def view_buffer(name: str, memory: Memory, shape: Shape, strides: Shape) -> Buffer:
    """A view of the root as a buffer of the loop form (to be declared by `Allocate`)."""
    return Buffer(
        name,
        memory.root.dtype,
        tuple(dim_expression(d) for d in shape),
        tuple(dim_expression(s) for s in strides),
        "arena",
        memory.root.name,
        dim_expression(memory.offset),
    )

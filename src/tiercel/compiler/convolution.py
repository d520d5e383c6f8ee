"""Convolution: sums over windows, block by block of positions, and what follows them.

In: the group of a convolution and the elementwise nodes after it. Out: loops.

* A block is a part of one image, the outputs of one group (or some of them), and a rectangle of positions. Its part of
  the image, padding included, is laid out in a buffer of the second-level cache so that every tap is a shift
  (`Unfold`), and `Convolve` sums in registers. Blocks are what the threads share. No image is padded or copied whole,
  and there is no matrix of columns.
* A bias and a lower bound (`maximum` with a number) that follow are part of the sum's last step, which then stores
  straight into the result. Whatever else follows is done a block at a time, from a tile of sums in the cache.
* A convolution of few taps that only another one uses (`Lowerer.convolutions`) is not computed by itself: each block
  of the second computes the part it needs. A sum over all positions, likewise, is taken of each row of a block as it is
  made.
* With 1 x 1 filters, a stride of 1 and no padding the image is a matrix: a product for each image.
* With one channel a group (depthwise) a block is one channel, and its tiles are one output and many positions.

The filters are used as they lie: their rows are the order in which they are read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tiercel.compiler.convolution_blocks import Blocks, Ending
from tiercel.compiler.dims import dim_expression
from tiercel.compiler.elementwise import NotLowered
from tiercel.compiler.fuse import Group
from tiercel.compiler.graph import Node, Value
from tiercel.compiler.maker import reduced_axes
from tiercel.compiler.memory import Memory
from tiercel.compiler.nests import Access
from tiercel.compiler.pointwise import element_statements, needed_outside, outside_operands
from tiercel.compiler.windows import taps_of, windows_of
from tiercel.loops.form import (
    INDEX,
    THREAD_COUNT,
    Binary,
    Block,
    Buffer,
    Compare,
    Const,
    Contract,
    Expr,
    For,
    If,
    Let,
    Load,
    Stmt,
    Store,
    Var,
)
from tiercel.loops.index import index_add
from tiercel.operators.reference.windows import per_axis
from tiercel.operators.types import ArrayType, PyFloatType, PyIntType, Shape
from tiercel.shapes import DimLike, Symbol, product

if TYPE_CHECKING:
    from tiercel.compiler.lower import Lowerer

CHAIN_TAPS: Final = 64
"""Most taps of a convolution that is computed within another one: where blocks meet it is computed twice, which costs
less than writing it to memory and reading it back."""


def lower_convolution(state: Lowerer, group: Group, node: Node) -> None:
    """conv1d, conv2d and the elementwise members that follow."""
    convolution = Convolution(state, group, node)
    value = convolution.awaited()
    if value is None:
        convolution.run()
    else:
        state.convolutions[value] = convolution


def lower_summed(state: Lowerer, node: Node) -> bool:
    """The sum of a convolution over its positions, if that has been left to it."""
    convolution = state.convolutions.pop(node.inputs[0], None)
    if convolution is None:
        return False
    convolution.run(node)
    return True


def _is_sum_of_positions(node: Node) -> bool:
    value, output = node.inputs[0].type, node.outputs[0].type
    if node.operator != "sum" or not isinstance(value, ArrayType) or not isinstance(output, ArrayType):
        return False
    return value.rank == 4 and reduced_axes(node, 4) == (2, 3) and output.dtype is value.dtype


class Convolution:
    """One convolution, and what follows it in its group."""

    def __init__(self, state: Lowerer, group: Group, node: Node) -> None:
        self.state, self.group, self.node = state, group, node
        given = node.inputs[0].type
        self.inside: Convolution | None = state.convolutions.pop(node.inputs[0], None)
        self.filters = w = state.place(node.inputs[1])
        output = node.outputs[0].type
        assert isinstance(output, ArrayType)
        assert isinstance(given, ArrayType)
        self.dtype, shape = given.dtype, given.shape
        if not (self.dtype is w.root.dtype is output.dtype) or self.dtype.name not in ("float32", "float64"):
            raise NotLowered(f"a convolution of {self.dtype.name} and {w.root.dtype.name}", node.origin)
        attributes, rank = node.attributes, len(shape) - 2
        kernel = tuple(k for k in w.shape[2:] if isinstance(k, int))
        groups = attributes.get("groups", 1)
        if len(kernel) != rank or not isinstance(groups, int):
            raise NotLowered("a convolution with a kernel or groups of unknown size", node.origin)
        self.groups, self.kernel, self.domain = groups, kernel, output.shape
        self.inner: DimLike = w.shape[1]  # channels of a group
        self.outer = output.shape[1] // groups  # outputs of a group
        strides, dilations = (per_axis(attributes.get(n, 1), rank, n) for n in ("stride", "dilation"))
        padding = attributes.get("padding", 0)
        self.windows = windows_of(state, node, shape[2:], output.shape[2:], kernel, strides, dilations, padding)
        state.require_equal(shape[1], self.inner * groups, node.origin)
        if groups > 1:
            state.require_equal(output.shape[1] % groups, 0, node.origin)
        bias = node.inputs[2] if len(node.inputs) > 2 and isinstance(node.inputs[2].type, ArrayType) else None
        self.bias: Memory | None = None
        if bias is not None:
            self.bias = state.place(bias)
            state.require_equal(self.bias.shape[0], output.shape[1], node.origin)
            if self.bias.root.dtype is not self.dtype:
                raise NotLowered(f"a convolution with a bias of {self.bias.root.dtype.name}", node.origin)
        self.reads = {
            v: Access(state.place(v), state.nests.strides_over(state.place(v), self.domain, node.origin))
            for v in outside_operands(state, group)
        }
        self.writes: dict[Value, list[Access]] = {}
        self.ending = self._ending()
        if self.inside is not None and not self._takes(self.inside):
            self.inside.run()
            self.inside = None

    @property
    def image(self) -> Memory:
        """Where the image is; one that is computed block by block is nowhere."""
        return self.state.place(self.node.inputs[0])

    def run(self, summed: Node | None = None) -> None:
        """Make the loops; with `summed` those of that sum over all positions instead."""
        state, group = self.state, self.group
        if summed is not None:
            Blocks(self, summed).run()
            return
        outputs = [n.outputs[0] for n in group.nodes if needed_outside(state, group, n.outputs[0])]
        self.writes = {v: [Access(m, m.strides) for m in state.destinations(v)] for v in outputs}
        if self.inside is None and self._is_product():
            self._products()
        else:
            Blocks(self).run()

    # -- with others ------------------------------------------------------------------------------------------

    def awaited(self) -> Value | None:
        """The value of this group, if only a later convolution or sum over positions uses it, which can make it."""
        state, ending = self.state, self.ending
        if ending is None or len(self.windows) != 2:
            return None
        value = ending.value
        users = state.uses.get(value, [])
        others = value in state.wanted or any(value is r for r in state.returned)
        if len(users) != 1 or others or id(users[0]) not in state.here or not isinstance(users[0], Node):
            return None
        written = {*state.storages, *state.storages.values()}
        if any(v in written for node in (*self.group.nodes, users[0]) for v in (*node.inputs, *node.outputs)):
            return None
        user = users[0]
        if _is_sum_of_positions(user):
            return None if self.inside is None and self._is_product() else value
        one = user.operator == "conv2d" and user.inputs[0] is value and value not in user.inputs[1:]
        few = isinstance(self.inner, int) and self.inner * taps_of(self.kernel) <= CHAIN_TAPS
        return value if one and few and self.groups == 1 and self.inside is None and not self._is_product() else None

    def _takes(self, other: Convolution) -> bool:
        """Can the blocks of this convolution compute `other`, their image?"""
        return (
            self.ending is not None and self.groups == 1 and isinstance(other.outer, int) and self.dtype is other.dtype
        )

    # -- what follows -----------------------------------------------------------------------------------------

    def _ending(self) -> Ending | None:
        """What follows, if `Convolve` can do all of it."""
        state, output = self.state, self.node.outputs[0]
        bias = None if self.bias is None else (self.bias, self.bias.strides[0])
        low: float | None = None
        for node in self.group.nodes:
            if node is self.node:
                continue
            last = output
            if needed_outside(state, self.group, last) or low is not None or len(node.inputs) != 2:
                return None
            if last not in node.inputs:
                return None
            other = node.inputs[1] if node.inputs[0] is last else node.inputs[0]
            output = node.outputs[0]
            if not isinstance(output.type, ArrayType) or output.type.dtype is not self.dtype or other is last:
                return None
            if node.operator == "maximum" and isinstance(other.type, PyFloatType | PyIntType):
                value = other.type.value
                if not isinstance(value, int | float) or value != value:
                    return None
                low = float(self.dtype.numpy.type(value))
            elif node.operator == "add" and bias is None and other in self.reads:
                access = self.reads[other]
                steps = access.strides
                if access.memory.root.dtype is not self.dtype or any(s != 0 for i, s in enumerate(steps) if i != 1):
                    return None
                bias = (access.memory, steps[1])
            else:
                return None
        return Ending(output, bias, low)

    def declare(self, dims: Shape) -> None:
        """Make buffers of what is read and written at the elements of the result."""
        for value, access in self.reads.items():
            self.state.nests.declare(access, dims, value.name or "x")
        for value, many in self.writes.items():
            for access in many:
                self.state.nests.declare(access, dims, value.name or "y")

    def declare_bias(self) -> Buffer | None:
        """The bias as a buffer."""
        if self.bias is None:
            return None
        return self.state.nests.declare(Access(self.bias, self.bias.strides), self.bias.shape, "bias")

    def element(self, bias: Buffer | None, total: Expr, output: Expr, index: tuple[Expr, ...]) -> list[Stmt]:
        """The statements after the sum of one element has been made."""
        state, node = self.state, self.node
        stmts: list[Stmt] = []
        if bias is not None:
            name = state.fresh("biased")
            stmts.append(Let(name, Binary("add", total, Load(bias, (output,)))))
            total = Var(name, self.dtype)
        known: dict[Value, Expr] = {node.outputs[0]: total}
        for access in self.writes.get(node.outputs[0], ()):
            assert access.buffer is not None
            stmts.append(Store(access.buffer, index, total))
        others = [n for n in self.group.nodes if n is not node]
        return stmts + element_statements(state, others, self.reads, self.writes, index, known)

    # -- kinds ------------------------------------------------------------------------------------------------

    def _is_product(self) -> bool:
        """Is an image, as it lies, the matrix that the filters are multiplied with?"""
        plain = all(w.kernel == w.stride == 1 and w.low == 0 and w.high == 0 for w in self.windows)
        steps, sizes = self.image.strides[2:], self.image.shape[2:]
        inside = zip(steps, steps[1:], sizes[1:], strict=False)
        return plain and all(outer == size * inner for outer, inner, size in inside)

    def _products(self) -> None:
        state, image, spatial = self.state, self.image, self.domain[2:]
        accesses = [*self.reads.values(), *(a for many in self.writes.values() for a in many)]
        heads = [a.strides[:2] for a in accesses]
        for access in accesses:
            access.strides = access.strides[2:]
        flat = state.nests.merge(spatial, accesses)
        for access, head in zip(accesses, heads, strict=True):
            access.strides = (*head, *access.strides)
        bias = self.declare_bias()
        self.declare((*self.domain[:2], *flat))
        filters, positions = self.filter_rows(self.inner), product(spatial)
        n, g = state.fresh("image_number"), state.fresh("group")
        number, group = Symbol(n, "scalar"), Symbol(g, "scalar")
        with state.collecting() as each:
            some = replace(
                filters,
                shape=(self.outer, self.inner),
                offset=filters.offset + group * self.outer * filters.strides[0],
            )
            offset = image.offset + number * image.strides[0] + group * self.inner * image.strides[1]
            matrix = Memory(image.root, (self.inner, positions), (image.strides[1], image.strides[-1]), offset)
            a = state.nests.declare(Access(some, some.strides), some.shape, "filters")
            b = state.nests.declare(Access(matrix, matrix.strides), matrix.shape, "matrix")
            row, column, total = (state.fresh(k) for k in ("row", "column", "total"))
            output = index_add(dim_expression(group * self.outer), Var(row))
            places = _unflattened(Var(column), flat)
            stmts = self.element(bias, Var(total, self.dtype), output, (Var(n), output, *places))
            m, n_, k = (dim_expression(d) for d in (self.outer, positions, self.inner))
            state.emit(Contract(a, b, row, column, total, Block(tuple(stmts)), m, n_, k))
        inside: Stmt = For(g, Const(self.groups, INDEX), Block(tuple(each)))
        batch = self.domain[0]
        serial = For(n, dim_expression(batch), Block((inside,)))
        if batch == 1:
            state.emit(serial)
            return
        # enough images: one at a time for each thread; few: all threads at each
        enough = Compare("ge", dim_expression(batch), THREAD_COUNT)
        state.emit(If(enough, Block((replace(serial, axis="parallel"),)), Block((serial,))))

    def filter_rows(self, taps: DimLike) -> Memory:
        """The filters as a matrix, one contiguous row an output."""
        found = self.filters.reshaped((self.domain[1], taps))
        if found is None or found.strides[1] != 1:
            compact = self.state.arena("filters", self.dtype, self.filters.shape)
            self.state.nests.copy(self.filters, compact)
            found = compact.reshaped((self.domain[1], taps))
            assert found is not None
        return found


def _unflattened(position: Expr, dims: Shape) -> tuple[Expr, ...]:
    found: list[Expr] = []
    for dim in reversed(dims[1:]):
        extent = Binary("max", dim_expression(dim), Const(1, INDEX))
        found.append(Binary("mod", position, extent))
        position = Binary("floordiv", position, extent)
    return tuple(reversed([*found, position]))

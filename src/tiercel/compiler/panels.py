"""Products whose column blocks are what follows them: the gates of a recurrent cell, gated units.

In: the items of a graph. Out: some products are put off until the nest that reads them, and become one `Contract` with
panels, whose epilogue is that nest:

    t = x @ w                                         for rows, for j in range(n):
    for i, j: y[i, j] = f(t[i, j], t[i, n + j])  ->       y[i, j] = f(sum of column j, sum of column n + j)

The array between them is not made. It may be (`why_not`) where the matrix is frozen, so that it can be packed with the
columns in question side by side, and where the nest reads every column exactly once, in the product's own row.

What is put off is computed, as it stands, as soon as anything else looks at it (`Postponed.catch_up`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.codegen.cpu.names import MAX_PANELS
from tiercel.compiler.dims import dim_expression
from tiercel.compiler.fuse import Group, Item, is_contraction, is_view
from tiercel.compiler.graph import Branch, Loop, Node, Value
from tiercel.compiler.interface import PackSpec
from tiercel.compiler.memory import c_strides
from tiercel.compiler.nests import Access
from tiercel.compiler.pointwise import element_statements, unflatten
from tiercel.loops.form import Allocate, Block, Buffer, Const, Contract, Expr, If, Let, Panel, Stmt, Store, Var, blocks
from tiercel.operators.types import Shape
from tiercel.shapes import DimLike, product

if TYPE_CHECKING:
    from tiercel.compiler.lower import Lowerer


def products_to_postpone(state: Lowerer, items: Sequence[Item]) -> set[int]:
    """The groups (by id) that are a product whose only use is one nest of elements behind it, seen through views."""
    groups = {id(node): group for group in items if isinstance(group, Group) for node in group.nodes}
    views = {id(item) for item in items if isinstance(item, Node) and is_view(item)}
    views |= {id(item) for item in items if isinstance(item, Node) and item.operator == "reshape"}
    place = {id(item): at for at, item in enumerate(items)}
    barriers = [
        at
        for at, item in enumerate(items)
        if isinstance(item, Loop | Branch) or (isinstance(item, Node) and item.writes is not None)
    ]
    found: set[int] = set()
    for at, group in enumerate(items):
        if not isinstance(group, Group) or group.contraction is None or len(group.nodes) != 1:
            continue
        if not is_contraction(group.contraction) or group.contraction.outputs[0] in state.wanted:
            continue
        readers = _readers(state, group.contraction.outputs[0], groups, views)
        if readers is None or len(readers) != 1:
            continue
        reader = readers.pop()
        if reader.row or reader.contraction is not None:
            continue
        if not any(at < barrier < place[id(reader)] for barrier in barriers):
            found.add(id(group))
    return found


def _readers(state: Lowerer, output: Value, groups: dict[int, Group], views: set[int]) -> set[Group] | None:
    """The groups that read a value or a view of it; None if anything else does."""
    readers: set[Group] = set()
    waiting, seen = [output], {output}
    while waiting:
        value = waiting.pop()
        if any(value is r for r in state.returned) or not state.uses.get(value):
            return None
        for step in state.uses[value]:
            if id(step) in groups:
                readers.add(groups[id(step)])
            elif id(step) in views:
                assert isinstance(step, Node)
                new = [v for v in step.outputs if v not in seen]
                seen.update(new)
                waiting += new
            else:
                return None
    return readers


class Postponed:
    """Products that have been lowered and not emitted, by the buffer that they are stored in."""

    def __init__(self, state: Lowerer) -> None:
        self.state = state
        self.waiting: dict[str, Contract] = {}
        self.replaced: set[str] = set()  # packed matrices in whose place others were taken

    def put_off(self, group: Group, statements: list[Stmt]) -> None:
        """Emit the statements of a product, all but the product itself if it may wait."""
        last = statements[-1] if statements else None
        waits = isinstance(last, Contract) and last.packed and last.b.space == "constant" and not last.panels
        if waits and isinstance(last, Contract) and all(isinstance(s, Allocate | Let | If) for s in statements[:-1]):
            memory = self.state.place(group.nodes[0].outputs[0])
            stores = last.epilogue.body
            if len(stores) == 1 and isinstance(stores[0], Store) and memory.contiguous and memory.offset == 0:
                self.waiting[memory.root.name] = last
                statements = statements[:-1]
        for stmt in statements:
            self.state.emit(stmt)

    def catch_up(self, root: str) -> None:
        """Emit the product that is stored in a buffer, if it waits: somebody is going to read it."""
        contract = self.waiting.pop(root, None)
        if contract is not None:
            self.state.emit(contract)

    def lower(self, group: Group, reads: dict[Value, Access], writes: dict[Value, list[Access]]) -> bool:
        """Lower a group of elementwise nodes as the epilogue of a product that it reads, if there is one that waits."""
        names = list(dict.fromkeys(a.memory.root.name for a in reads.values() if a.memory.root.name in self.waiting))
        for name in reversed(names):
            if why_not(self.waiting[name], name, group.domain, reads) is None:
                self._lower(self.waiting.pop(name), name, group, reads, writes)
                return True
        return False

    def _lower(
        self,
        contract: Contract,
        name: str,
        group: Group,
        reads: dict[Value, Access],
        writes: dict[Value, list[Access]],
    ) -> None:
        state, domain = self.state, group.domain
        state.statements[:] = [
            s for s in state.statements if not (isinstance(s, Allocate) and name in (s.buffer.name, s.buffer.root))
        ]
        mine = {v: _first(a) for v, a in reads.items() if a.memory.root.name == name}
        firsts = sorted(set(mine.values()))
        sums = {first: state.fresh("total") for first in firsts}
        known: dict[Value, Expr] = {v: Var(sums[first], contract.a.dtype) for v, first in mine.items()}
        others = {v: a for v, a in reads.items() if v not in mine}
        everything = [*others.values(), *(a for many in writes.values() for a in many)]
        lasts = [a.strides[-1] for a in everything]
        for access in everything:
            access.strides = access.strides[:-1]
        lead = state.nests.merge(domain[:-1], everything)
        for access, last in zip(everything, lasts, strict=True):
            access.strides = (*access.strides, last)
        dims = (*lead, domain[-1])
        for value, access in others.items():
            state.nests.declare(access, dims, value.name or "x")
        for value, many in writes.items():
            for access in many:
                state.nests.declare(access, dims, value.name or "y")
        row, column = (state.fresh(n) for n in ("row", "column"))
        index = (*unflatten(Var(row), lead), Var(column))
        body = Block(tuple(element_statements(state, group.nodes, others, writes, index, known)))
        panels = tuple(Panel(sums[first], first) for first in firsts)
        b = self.packed(contract.b, tuple(firsts), domain[-1])
        state.emit(
            replace(
                contract, b=b, row=row, column=column, accumulator=panels[0].accumulator, epilogue=body,
                n=dim_expression(domain[-1]), panels=panels,
            )
        )  # fmt: skip

    def packed(self, given: Buffer, firsts: tuple[int, ...], columns: DimLike) -> Buffer:
        """The same frozen matrix as a packed one, with columns from each of `firsts` on side by side."""
        state = self.state
        self.replaced.add(given.name)
        spec = next(spec for spec in state.packs if spec.buffer == given.name)
        for other in state.packs:
            if replace(other, buffer=spec.buffer) == replace(spec, n=columns, panels=firsts):
                return next(b for b in state.packed.values() if b.name == other.buffer)
        name = state.fresh(f"{given.name.removesuffix('_packed')}_panels")
        memory = next(memory for (_, memory), buffer in state.packed.items() if buffer is given)
        state.packed[name, memory] = buffer = replace(given, name=name)
        state.packs.append(PackSpec(name, spec.input, spec.k, columns, spec.strides, spec.offset, firsts))
        return buffer

    def drop_unused_packs(self, body: Block) -> None:
        """Forget packed matrices that no product uses any more."""
        if self.replaced:
            state = self.state
            unused = self.replaced - {contract.b.name for contract in _products(body)}
            state.packs = [spec for spec in state.packs if spec.buffer not in unused]
            state.packed = {key: buffer for key, buffer in state.packed.items() if buffer.name not in unused}


def why_not(contract: Contract, name: str, domain: Shape, reads: dict[Value, Access]) -> str | None:
    """Why a nest over `domain` cannot be the epilogue of a product stored in buffer `name`; None if it can."""
    mine = [a for a in reads.values() if a.memory.root.name == name]
    whole, part = contract.n, domain[-1]
    if not isinstance(whole, Const) or not isinstance(part, int) or part < 1:
        return "the columns are not known before running"
    width = int(whole.value.real)
    firsts = sorted({_first(a) for a in mine})
    if firsts != list(range(0, width, part)) or len(firsts) * part != width:
        return "its columns are not those of the product, each once"
    if not 2 <= len(firsts) <= MAX_PANELS:
        return "there are too many blocks of columns"
    if contract.a.dtype is not contract.b.dtype or contract.a.dtype.name not in ("float32", "float64"):
        return "it is of another dtype than the product"
    rows = tuple(stride * width for stride in c_strides(domain[:-1]))
    if any(a.strides[-1] != 1 or a.strides[:-1] != rows for a in mine):
        return "its rows are not those of the product"
    if contract.m != dim_expression(product(domain[:-1])):
        return "it has other rows than the product"
    return None


def _first(access: Access) -> int:
    """The first column, -1 where it is not known."""
    offset = access.memory.offset
    return offset if isinstance(offset, int) else -1


def _products(stmt: Stmt) -> Iterator[Contract]:
    """The products in a statement."""
    if isinstance(stmt, Contract):
        yield stmt
    for block in blocks(stmt):
        for inner in block.body:
            yield from _products(inner)

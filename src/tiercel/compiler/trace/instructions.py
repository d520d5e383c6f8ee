"""Instructions without control flow: one handler per opcode.

In: an instruction. Out: what it leaves in the registers. Structure (tuples, lists, dicts, slices) is followed,
operators and numbers go to the table and the builtins; an opcode without a handler is refused with its reason.
"""

from __future__ import annotations

from collections.abc import Callable

from tiercel.bytecode.instructions import Instruction
from tiercel.compiler.abstract import (
    Abstract,
    Known,
    ListRef,
    Mapping,
    Method,
    RaggedRef,
    Slice,
    Tuple,
    Unknown,
    Untraceable,
    is_array,
)
from tiercel.compiler.graph import Value
from tiercel.compiler.trace.objects import Cell, operator_of
from tiercel.compiler.trace.peel import Peeling
from tiercel.compiler.trace.ragged import ragged_attribute
from tiercel.operators import Operator, find_property, get
from tiercel.operators.types import ArrayType, NpScalarType
from tiercel.shapes import product


class Instructions(Peeling):
    """Adds the instructions."""

    def _load_const(self, ins: Instruction) -> None:
        self.registers[ins.dst] = self.operand(ins.value)

    def _load_param(self, ins: Instruction) -> None:
        if ins.dst != ins.index:
            self.registers[ins.dst] = self.registers[ins.index]

    def _move(self, ins: Instruction) -> None:
        self.registers[ins.dst] = self.operand(ins.src)

    def _anchor(self, ins: Instruction) -> None:
        self.registers[ins.dst] = self.operand(ins.x)

    def _depend(self, ins: Instruction) -> None:
        self.registers[ins.dst] = self.operand(ins.x)

    def _check(self, ins: Instruction) -> None:
        self.operand(ins.x)

    def _try(self, ins: Instruction) -> None:
        """An exception in the block leaves for the interpreter, which runs the handler."""
        del ins

    def _end_try(self, ins: Instruction) -> None:
        del ins

    def _load_global(self, ins: Instruction) -> None:
        self.registers[ins.dst] = self.sampled(*self.environment.read_global(ins.name))

    def _load_cell(self, ins: Instruction) -> None:
        self.registers[ins.dst] = self.load_cell(self.operand(ins.cell))

    def _store_cell(self, ins: Instruction) -> None:
        self.store_cell(self.operand(ins.cell), self.operand(ins.value))

    def _make_function(self, ins: Instruction) -> None:
        self.registers[ins.dst] = self.make_function(ins)

    def _load_attr(self, ins: Instruction) -> None:
        owner, name = self.operand(ins.object), ins.name
        if isinstance(owner, Known):
            self.registers[ins.dst] = self.attribute_of(owner, name)
        elif isinstance(owner, Value):
            self.registers[ins.dst] = self.array_attribute(owner, name)
        elif isinstance(owner, RaggedRef):
            self.registers[ins.dst] = ragged_attribute(self, owner, name)
        elif isinstance(owner, Tuple) and owner.cls is not None and name in owner.cls._fields:  # type: ignore[attr-defined]
            self.registers[ins.dst] = owner.items[owner.cls._fields.index(name)]  # type: ignore[attr-defined]
        elif isinstance(owner, Mapping | Tuple | ListRef):
            self.registers[ins.dst] = Method(owner, name)
        else:
            raise Untraceable(f"the attribute {name}")

    def array_attribute(self, owner: Value, name: str) -> Abstract:
        """An attribute of an array or scalar."""
        type_ = owner.type
        shape = type_.shape if isinstance(type_, ArrayType) else ()
        match name:
            case "shape" if isinstance(type_, ArrayType | NpScalarType):
                return Tuple(tuple(self.size_value(d) for d in shape))
            case "ndim" if isinstance(type_, ArrayType | NpScalarType):
                return self.number(len(shape))
            case "size" if isinstance(type_, ArrayType | NpScalarType):
                return self.size_value(product(shape))
            case "dtype" if isinstance(type_, ArrayType) and type_.wrapper == "Tensor":
                return Known(type_.dtype)
            case "dtype" if isinstance(type_, ArrayType | NpScalarType):
                return Known(type_.dtype.numpy)
        found = find_property(name) if isinstance(type_, ArrayType) else None
        if found is not None:  # where the frontend could not know that this is an array
            return self.apply(*found, [owner], {})
        return Method(owner, name)

    def _dim(self, ins: Instruction) -> None:
        x = self.operand(ins.x)
        if isinstance(x, RaggedRef):
            sizes = ragged_attribute(self, x, "shape")
            assert isinstance(sizes, Tuple)
            if not -len(sizes.items) <= ins.axis < len(sizes.items):
                raise Untraceable(f"dimension {ins.axis} of a Ragged of rank {len(sizes.items)}")
            self.registers[ins.dst] = sizes.items[ins.axis]
            return
        if not is_array(x):
            raise Untraceable("the shape of something that is no array")
        shape = x.type.shape  # type: ignore[union-attr]
        if not -len(shape) <= ins.axis < len(shape):
            raise Untraceable(f"dimension {ins.axis} of an array of rank {len(shape)}")
        self.registers[ins.dst] = self.size_value(shape[ins.axis])

    def _call_op(self, ins: Instruction) -> None:
        row = get(ins.operator)
        if ins.via is not None:
            self.check_via(ins, row)
        names = ins.keywords or ("",) * len(ins.args)
        args = [self.operand(a) for a, n in zip(ins.args, names, strict=True) if not n]
        keywords = {n: self.operand(a) for a, n in zip(ins.args, names, strict=True) if n}
        self.registers[ins.dst] = self.apply(row, ins.spelling, args, keywords)

    def check_via(self, ins: Instruction, row: Operator) -> None:
        """The name in the source still means the operator."""
        root, *path = ins.via.split(".")
        if ":" in root:
            position, _, root = root.partition(":")
            cell = self.operand(int(position))
            if not (isinstance(cell, Known) and isinstance(cell.value, Cell)):
                raise Untraceable("a function found through a variable of its own")
            value, source = self.environment.read_cell(cell.value.position)
        else:
            value, source = self.environment.read_global(root)
        found: Abstract = self.sampled(value, source)
        for name in path:
            if not isinstance(found, Known):
                raise Untraceable(f"{ins.via} is no function")
            found = self.attribute_of(found, name)
        if not isinstance(found, Known):
            raise Untraceable(f"{ins.via} is no function")
        claimed = operator_of(found.value)
        if claimed is None or claimed[0].name != row.name:
            raise Untraceable(f"{ins.via} no longer means {row.name}")

    def _build(self, ins: Instruction) -> None:
        what = ins.what
        if what in ("tuple", "list"):
            items = [self.operand(i) for i in ins.items]
            self.registers[ins.dst] = Tuple(tuple(items)) if what == "tuple" else self.new_list(items)
        elif what == "cell":
            self.registers[ins.dst] = self.new_cell([self.operand(i) for i in ins.items])
        elif what == "slice":
            parts = [self.operand(i) for i in ins.items]
            parts += [Known(None)] * (3 - len(parts))
            self.registers[ins.dst] = Slice(*parts)
        elif what == "dict":
            items = [self.operand(i) for i in ins.items]
            pairs = zip(items[::2], items[1::2], strict=True)
            self.registers[ins.dst] = Mapping(tuple((self.static(k), v) for k, v in pairs))
        elif what in ("tuple_star", "list_star"):
            joined = [item for i in ins.items for item in self.items(self.operand(i))]
            self.registers[ins.dst] = Tuple(tuple(joined)) if what == "tuple_star" else self.new_list(joined)
        else:
            # harmless unless used: a string for a message, a set
            self.registers[ins.dst] = Unknown(f"a {what}")

    def _unpack(self, ins: Instruction) -> None:
        source = self.operand(ins.src)
        items = self.rows(source) if isinstance(source, Value) else self.items(source)
        targets = list(ins.dsts)
        if ins.star:
            before = ins.star - 1
            after = len(targets) - before - 1
            middle = items[before : len(items) - after]
            items = [*items[:before], self.new_list(list(middle)), *items[len(items) - after :]]
        if len(items) != len(targets):
            raise Untraceable(f"{len(items)} values for {len(targets)} names")
        self.registers.update(zip(targets, items, strict=True))

    def _index(self, ins: Instruction) -> None:
        x, key = self.operand(ins.x), self.operand(ins.key)
        if isinstance(x, Value):
            parts = key.items if isinstance(key, Tuple) else (key,)
            arrays = self.array_key(parts, x)
            if arrays is not None:
                self.registers[ins.dst] = self.index_by_arrays(x, arrays)
            else:
                self.registers[ins.dst] = self.index_array(x, tuple(self.key_part(p) for p in parts))
            return
        if isinstance(x, Mapping):
            wanted = self.static(key)
            for name, value in x.items:
                if name == wanted:
                    self.registers[ins.dst] = value
                    return
            raise Untraceable(f"no key {wanted!r}")
        items = self.items(x)
        where = self.static(key)
        if isinstance(where, slice):
            chosen = items[where]
            self.registers[ins.dst] = Tuple(tuple(chosen)) if isinstance(x, Tuple) else self.new_list(chosen)
            return
        if not isinstance(where, int):
            raise Untraceable("an index that is only known when the code runs")
        self.registers[ins.dst] = items[where]

    def _set_item(self, ins: Instruction) -> None:
        x, key, value = self.operand(ins.x), self.operand(ins.key), self.operand(ins.value)
        if isinstance(x, Value):
            self.set_item(x, key, value)
            return
        if not isinstance(x, ListRef):
            raise Untraceable("an element is written")
        state, where = self.state.heap[x.key], self.static(key)
        if state.outside:
            raise Untraceable("an element of a list is written that is an argument")
        if not isinstance(where, int):
            raise Untraceable("a slice of a list is written")
        self.items(x)[where] = value

    def _store_tensor(self, ins: Instruction) -> None:
        x, value = self.operand(ins.x), self.operand(ins.value)
        if not isinstance(x, Value):
            raise Untraceable("all of something is written that is no array")
        self.set_item(x, Known(Ellipsis), value)

    def _append(self, ins: Instruction) -> None:
        target, value = self.operand(ins.list), self.operand(ins.value)
        if not isinstance(target, ListRef):
            raise Untraceable("append to something that is no list")
        state = self.state.heap[target.key]
        if state.outside:
            raise Untraceable("append to a list that is an argument")
        if state.lost:
            raise Untraceable(state.lost)
        if state.collected is not None:
            raise Untraceable("append to a list that a loop has filled")
        (state.items if state.collecting is None else state.collecting).append(value)

    def _item(self, ins: Instruction) -> None:
        self.registers[ins.dst] = self.python_number(self.operand(ins.x))

    def _iter(self, ins: Instruction) -> None:
        self.registers[ins.dst] = self.iterable(self.operand(ins.x))

    def _scalar(self, ins: Instruction) -> None:
        args = [self.operand(a) for a in ins.args]
        self.registers[ins.dst] = self.scalar(ins.function, args)

    def _call(self, ins: Instruction) -> None:
        names = ins.keywords or ("",) * len(ins.args)
        args: list[Abstract] = []
        keywords: dict[str, Abstract] = {}
        for operand, name in zip(ins.args, names, strict=True):
            value = self.operand(operand)
            if name == "*":
                args += self.items(value)
            elif name == "**":
                if not isinstance(value, Mapping):
                    raise Untraceable("keyword arguments from a mapping that is not known")
                keywords.update(value.items)
            elif name:
                keywords[name] = value
            else:
                args.append(value)
        self.registers[ins.dst] = self.call(self.operand(ins.callee), args, keywords)

    def _call_py(self, ins: Instruction) -> None:
        callee = self.operand(ins.callee)
        if isinstance(callee, Known) and not any(ins.keywords or ()):
            known = self.known_call(callee.value, [self.operand(a) for a in ins.args])
            if known is not None:
                self.registers[ins.dst] = known
                return
        if isinstance(callee, Known) and not set(ins.keywords or ()) & {"*", "**"}:
            names = ins.keywords or ("",) * len(ins.args)
            args = [self.operand(a) for a, n in zip(ins.args, names, strict=True) if not n]
            written = self.call_into(
                callee.value, args, {n: self.operand(a) for a, n in zip(ins.args, names, strict=True) if n}
            )
            if written is not None:
                self.registers[ins.dst] = written
                return
        raise Untraceable(f"a Python call: {ins.reason}")

    def step(self, ins: Instruction) -> None:
        """An instruction without control flow."""
        handler = _HANDLERS.get(ins.opcode)
        if handler is None:
            raise Untraceable(_REFUSED.get(ins.opcode, f"{ins.opcode} has no compiled form"))
        handler(self, ins)


_HANDLERS: dict[str, Callable[[Instructions, Instruction], None]] = {
    "Anchor": Instructions._anchor,
    "Append": Instructions._append,
    "Build": Instructions._build,
    "Call": Instructions._call,
    "CallOp": Instructions._call_op,
    "CallPy": Instructions._call_py,
    "Check": Instructions._check,
    "Depend": Instructions._depend,
    "Dim": Instructions._dim,
    "EndTry": Instructions._end_try,
    "Index": Instructions._index,
    "Item": Instructions._item,
    "Iter": Instructions._iter,
    "LoadAttr": Instructions._load_attr,
    "LoadCell": Instructions._load_cell,
    "LoadConst": Instructions._load_const,
    "LoadGlobal": Instructions._load_global,
    "LoadParam": Instructions._load_param,
    "MakeFunction": Instructions._make_function,
    "Move": Instructions._move,
    "SetItem": Instructions._set_item,
    "StoreCell": Instructions._store_cell,
    "StoreTensor": Instructions._store_tensor,
    "Scalar": Instructions._scalar,
    "Try": Instructions._try,
    "Unpack": Instructions._unpack,
}


_REFUSED = {
    "StoreAttr": "an attribute is written",
}

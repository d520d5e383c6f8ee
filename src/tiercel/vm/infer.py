"""What each instruction of a function writes, for the listing: learned tokens carried through the operators' rules.

In: a decoded function and a Signature that came by, with its samples. Out: per instruction a text such as
`float32[88..832, 1024]{C}`, where one can be said. Operators' own rules (`bind`, `infer`) do the work; this is a
forward dataflow over the bytecode around them. Where two paths meet, sizes that differ become a size of their own.

Sizes come out as expressions over those of the parameters. What is shown of an expression is what it was in the
samples, not what interval arithmetic allows: `x.reshape(B, -1)` has one width if it had one in every call.

It is tolerant: what has no rule, or depends on data, is not shown, and nothing else suffers. Typing for compiling
(`compiler`) refuses instead, and proves more. Invariant: no code of the user's runs; attributes are read from instance
dictionaries, globals from the module's.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tiercel import operators
from tiercel.bytecode.constants import UNBOUND, ObjectRef
from tiercel.bytecode.instructions import Instruction
from tiercel.errors import ShapeError
from tiercel.interp import Decoded
from tiercel.interp.flow import successors
from tiercel.operators.layout import Layout
from tiercel.operators.types import (
    ArrayType,
    DTypeType,
    ListType,
    NpScalarType,
    ObjectType,
    PyBoolType,
    PyFloatType,
    PyIntType,
    SliceType,
    TupleType,
    Type,
    static_value,
    type_of,
)
from tiercel.shapes import Dim, DimLike, Facts, Range, Symbol, TensorDescriptor, evaluate, product, symbols_of
from tiercel.vm.profile import SignatureRecord, Typed, believed_multiple, declared_tokens
from tiercel.vm.scan import key_type, scan

__all__ = ["learned_results"]

# A dataflow of structured code settles in as many passes as loops are nested, and one more.
_MAX_PASSES: Final = 12
_MAX_TEXT: Final = 100
# What is shown; the other opcodes move values about, or write what the line says already.
_SHOWN: Final = frozenset(
    {"CallOp", "Index", "LoadAttr", "LoadGlobal", "LoadTensor", "LoadParam", "LoopStart", "Unpack", "Dim", "Item"}
)

_State = dict[int, Type]


def learned_results(decoded: Decoded, record: SignatureRecord, typed: Typed) -> dict[int, str]:
    """Return per instruction what it wrote, as text.

    Args:
        decoded: the function.
        record: the Signature.
        typed: the Signature's types and what is known of their symbols.
    """
    flow = _Flow(decoded, record, typed)
    flow.run()
    show = _Sizes(record, typed, flow.hulls, declared_tokens(decoded.program, decoded.function))
    out = {}
    for index, written in flow.written.items():
        if decoded.function.instructions[index].opcode in _SHOWN:
            text = _result_text(written, show)
            if text:
                out[index] = text
    return out


class _Flow:
    """The dataflow: types of registers before each instruction."""

    def __init__(self, decoded: Decoded, record: SignatureRecord, typed: Typed) -> None:
        self.decoded = decoded
        self.program = decoded.program
        self.instructions = decoded.function.instructions
        self.facts = typed.facts
        first: _State = {}
        for live, type_ in zip(record.live_ins, typed.types, strict=True):
            sample = record.sample(live.register)
            first[live.register] = ObjectType(sample) if sample is not None else type_
        self.before: list[_State | None] = [None] * len(self.instructions)
        self.before[0] = first
        for row in decoded.flow.tries:
            # What raised, and how far it had come, is not known.
            self.before[row.handler] = {}
        self.predecessors = Counter(t for i in range(len(self.instructions)) for t in successors(self.instructions, i))
        self.predecessors.update(row.handler for row in decoded.flow.tries)
        self.predecessors[0] += 1
        self.written: dict[int, list[Type | None]] = {}
        # Of sizes made where paths meet: the sizes they may be, those made the same way aside.
        self.hulls: dict[Symbol, set[DimLike]] = {}

    def run(self) -> None:
        for _ in range(_MAX_PASSES):
            changed = False
            for index, ins in enumerate(self.instructions):
                state = self.before[index]
                if state is None:
                    continue
                after = dict(state)
                for register in ins.registers_written():
                    after.pop(register, None)
                results = self._apply(ins, state)
                self.written[index] = results
                written = zip(ins.registers_written(), results, strict=False)
                after.update({register: type_ for register, type_ in written if type_ is not None})
                self._side_effects(ins, after)
                for target in successors(self.instructions, index):
                    changed |= self._flow_into(target, after)
            if not changed:
                return
        # Not settled: what was written may be wrong.
        self.written.clear()

    def _flow_into(self, target: int, state: _State) -> bool:
        known = self.before[target]
        if known is None or self.predecessors[target] == 1:
            self.before[target] = state
            return known != state
        merged = {}
        for register, type_ in known.items():
            other = state.get(register)
            if other is not None:
                joined = self._join(type_, other, f"at{target}.r{register}")
                if joined is not None:
                    merged[register] = joined
        if merged == known:
            return False
        self.before[target] = merged
        return True

    def _join(self, a: Type, b: Type, path: str) -> Type | None:
        """A type for either; None where nothing is common."""
        if a == b:
            return a
        if type(a) is not type(b):
            return None
        if isinstance(a, ArrayType) and isinstance(b, ArrayType):
            if (a.dtype, a.rank, a.wrapper, a.device) != (b.dtype, b.rank, b.wrapper, b.device):
                return None
            pairs = enumerate(zip(a.shape, b.shape, strict=True))
            shape = tuple(self._meet(x, y, f"{path}.d{i}") for i, (x, y) in pairs)
            layout = a.layout if a.layout == b.layout else Layout.unknown()
            return ArrayType(a.dtype, shape, layout, a.device, a.wrapper)
        if isinstance(a, TupleType) and isinstance(b, TupleType) and len(a.items) == len(b.items):
            pairs_of = enumerate(zip(a.items, b.items, strict=True))
            items = [self._join(x, y, f"{path}.i{i}") for i, (x, y) in pairs_of]
            return TupleType(tuple(i for i in items if i is not None)) if all(i is not None for i in items) else None
        if isinstance(a, ListType) and isinstance(b, ListType):
            if a.items is not None and b.items is not None and len(a.items) == len(b.items):
                pairs_of = enumerate(zip(a.items, b.items, strict=True))
                items = [self._join(x, y, f"{path}.i{i}") for i, (x, y) in pairs_of]
                if all(i is not None for i in items):
                    return ListType(tuple(i for i in items if i is not None))
            x, y = _element(a), _element(b)
            element = y if x is None else x if y is None else self._join(x, y, f"{path}.item")
            if element is None and (x is not None or y is not None):
                return None
            return ListType(None, element, None)
        if isinstance(a, PyIntType | PyFloatType | PyBoolType):
            return type(a)()
        return None

    def _meet(self, a: DimLike, b: DimLike, name: str) -> DimLike:
        """A size for either."""
        if a == b:
            return a
        symbol = Symbol(name, "data")
        self.hulls.setdefault(symbol, set()).update({a, b} - {symbol})
        return symbol

    # ---- instructions ------------------------------------------------------------------------------------------------

    def _apply(self, ins: Instruction, state: _State) -> list[Type | None]:
        """The types that an instruction writes, in the order of its registers."""
        rule = getattr(self, f"_{ins.opcode.lower()}", None)
        if rule is None:
            return []
        try:
            result = rule(ins, state)
        except Exception:  # noqa: BLE001 - no rule, wrong operands, sizes beyond the algebra: not shown, no more
            return []
        return result if isinstance(result, list) else [result]

    def _operand(self, operand: int, state: _State) -> Type:
        if operand >= 0:
            return state[operand]
        value = self.program.constant(operand)
        if value is UNBOUND:
            raise KeyError(operand)
        return self._value(value.value if isinstance(value, ObjectRef) else value)

    def _value(self, value: Any) -> Type:
        """The type of a value that is at hand; of an object, the object itself."""
        if isinstance(value, slice | tuple):
            return type_of(value)
        sizes: list[int] = []
        found = key_type(scan(value, sizes), iter(sizes))
        return ObjectType(value) if isinstance(found, ObjectType) else found

    def _loadconst(self, ins: Instruction, state: _State) -> Type:
        return self._operand(ins.value, state)

    def _loadtensor(self, ins: Instruction, state: _State) -> Type:
        return self._operand(ins.tensor, state)

    def _loadparam(self, ins: Instruction, state: _State) -> Type:
        return state[ins.index]

    def _move(self, ins: Instruction, state: _State) -> Type:
        return self._operand(ins.src, state)

    def _anchor(self, ins: Instruction, state: _State) -> Type:
        return self._operand(ins.x, state)

    _depend = _anchor

    def _loadglobal(self, ins: Instruction, state: _State) -> Type:
        return self._value(self.decoded.environment.globals[ins.name])

    def _loadattr(self, ins: Instruction, state: _State) -> Type:
        owner = self._operand(ins.object, state)
        if isinstance(owner, ArrayType):
            attributes: dict[str, Type] = {
                "shape": TupleType(tuple(map(PyIntType, owner.shape))),
                "ndim": PyIntType(owner.rank),
                "size": PyIntType(product(owner.shape)),
                "dtype": DTypeType(owner.dtype),
            }
            return attributes[ins.name]
        if isinstance(owner, ObjectType) and owner.value is not None:
            return self._value(object.__getattribute__(owner.value, "__dict__")[ins.name])
        raise KeyError(ins.name)

    def _callop(self, ins: Instruction, state: _State) -> Any:
        row = operators.get(ins.operator)
        args = [self._operand(a, state) for a in ins.args]
        names = ins.keywords or ("",) * len(args)
        positional = [a for a, n in zip(args, names, strict=True) if not n]
        named = {n: a for a, n in zip(args, names, strict=True) if n}
        bound = row.bind(ins.spelling, positional, named)
        (items, *_) = bound.operands
        if isinstance(items, ListType) and items.items is None and ins.operator in ("stack", "concat"):
            return self._joined(row, bound, items)
        return row.infer(bound, self.facts)

    def _joined(self, row: operators.Operator, bound: Any, items: ListType) -> Type:
        """The result for a list of unknown length: that of two elements, with an axis of unknown size."""
        assert items.element is not None
        pair = dataclasses.replace(bound, operands=(ListType((items.element, items.element)), *bound.operands[1:]))
        found = row.infer(pair, self.facts)
        assert isinstance(found, ArrayType)
        axis = static_value(bound.attributes["axis"]) % found.rank
        shape = (*found.shape[:axis], Symbol("list.len", "data"), *found.shape[axis + 1 :])
        return dataclasses.replace(found, shape=shape)

    def _dim(self, ins: Instruction, state: _State) -> Type:
        x = self._operand(ins.x, state)
        assert isinstance(x, ArrayType)
        return PyIntType(x.shape[ins.axis])

    def _item(self, ins: Instruction, state: _State) -> Type:
        x = self._operand(ins.x, state)
        assert isinstance(x, ArrayType | NpScalarType)
        return {"b": PyBoolType, "i": PyIntType, "u": PyIntType, "f": PyFloatType}[x.dtype.kind]()

    def _scalar(self, ins: Instruction, state: _State) -> Type:
        args = [self._operand(a, state) for a in ins.args]
        if ins.function == "len" and isinstance(args[0], ArrayType):
            return PyIntType(args[0].shape[0])
        if ins.function == "len" and isinstance(args[0], TupleType):
            return PyIntType(len(args[0].items))
        if ins.function == "range":
            # The elements; where they begin and end is no matter here.
            return ListType(None, PyIntType(), None)
        if ins.function in ("int", "float", "bool", "len"):
            return {"float": PyFloatType, "bool": PyBoolType}.get(ins.function, PyIntType)()
        raise KeyError(ins.function)

    def _build(self, ins: Instruction, state: _State) -> Type:
        items = tuple(self._operand(i, state) for i in ins.items)
        if ins.what == "tuple":
            return TupleType(items)
        if ins.what == "list":
            return ListType(items)
        if ins.what == "slice":
            return SliceType(*items)
        raise KeyError(ins.what)

    def _unpack(self, ins: Instruction, state: _State) -> list[Type | None]:
        source = self._operand(ins.src, state)
        if isinstance(source, TupleType | ListType) and source.items is not None and not ins.star:
            return list(source.items)
        if isinstance(source, ListType) and source.element is not None and not ins.star:
            return [source.element] * len(ins.dsts)
        raise KeyError(ins.src)

    def _index(self, ins: Instruction, state: _State) -> Any:
        x, key = self._operand(ins.x, state), self._operand(ins.key, state)
        if isinstance(x, TupleType | ListType):
            if isinstance(x, ListType) and isinstance(key, PyIntType) and x.items is None:
                assert x.element is not None
                return x.element
            assert isinstance(key, PyIntType)
            assert isinstance(key.value, int)
            assert x.items is not None
            return x.items[key.value]
        row = operators.get("index")
        return row.infer(row.bind(0, (x, key)), self.facts)

    def _iter(self, ins: Instruction, state: _State) -> Type:
        return self._operand(ins.x, state)

    def _loopstart(self, ins: Instruction, state: _State) -> Type:
        source = self._operand(ins.iterator, state)
        if isinstance(source, ArrayType) and source.rank > 1:
            layout = Layout.c(source.rank - 1) if source.layout.is_c else Layout.unknown()
            return ArrayType(source.dtype, source.shape[1:], layout, wrapper=source.wrapper)
        element = _element(source) if isinstance(source, ListType) else None
        if isinstance(source, TupleType) and len(set(source.items)) == 1:
            element = source.items[0]
        assert element is not None
        return element

    def _side_effects(self, ins: Instruction, state: _State) -> None:
        """Lists that grow, and what may have changed behind our back."""
        if ins.opcode == "Append":
            known, value = state.get(ins.list), self._maybe(ins.value, state)
            if isinstance(known, ListType) and value is not None:
                element = _element(known)
                joined = value if element is None else self._join(element, value, f"list{ins.list}")
                if joined is not None:
                    state[ins.list] = ListType(None, joined, None)
                    return
            state.pop(ins.list, None)
        elif ins.opcode in ("Call", "CallPy", "SetItem"):
            # A list that somebody else has may have got other things.
            for register in [r for r, t in state.items() if isinstance(t, ListType)]:
                del state[register]

    def _maybe(self, operand: int, state: _State) -> Type | None:
        try:
            return self._operand(operand, state)
        except KeyError:
            return None


def _element(t: ListType) -> Type | None:
    """The one type of a list's elements; None for an empty or a mixed one."""
    if t.items is not None:
        return t.items[0] if t.items and all(i == t.items[0] for i in t.items) else None
    return t.element


# ---- text ------------------------------------------------------------------------------------------------------------


class _Sizes:
    """What is shown of a size: a number, a range, or an expression of declared names."""

    def __init__(
        self,
        record: SignatureRecord,
        typed: Typed,
        hulls: Mapping[Symbol, set[DimLike]],
        declared: Sequence[TensorDescriptor | None],
    ) -> None:
        self.declared = {s for t in declared if t is not None for s in t.token.symbols}
        self.own = {d: typed.facts.range(d) for d in typed.dims if isinstance(d, Symbol)}
        self.samples = [
            {d.name: size for d, size in zip(typed.dims, sample, strict=True) if isinstance(d, Symbol)}
            for sample in record.recent()
        ]
        self.met: dict[Symbol, Range] = {}
        self.met = self._settle(hulls)

    def text(self, dim: DimLike) -> str:
        """Return the text for a size or an int."""
        if isinstance(dim, Dim) and not isinstance(dim, Symbol) and symbols_of(dim) <= self.declared:
            return str(dim)
        within = self._range(dim)
        return "?" if within is None else str(within)

    def _settle(self, hulls: Mapping[Symbol, set[DimLike]]) -> dict[Symbol, Range]:
        """Ranges of the sizes made where paths meet: a least fixpoint; what grows from pass to pass is left out.

        Begins with nothing known, so that what leads back to a size does not count before there is a size.
        """
        grown: set[Symbol] = set()
        for round_ in range(2 * _MAX_PASSES):
            changed = False
            for symbol, dims in hulls.items():
                if symbol in grown:
                    continue
                known = [r for r in map(self._range, dims) if r is not None]
                if not known:
                    continue
                hull = known[0]
                for other in known[1:]:
                    hull = hull.union(other)
                hull = Range(hull.lo, hull.hi)
                if self.met.get(symbol) != hull:
                    changed = True
                    self.met[symbol] = hull
                    if round_ >= _MAX_PASSES:
                        grown.add(symbol)
            if not changed:
                break
        # What depends on a size that grows may be anything too.
        unknown = grown | (hulls.keys() - self.met.keys())
        while True:
            more = {s for s, dims in hulls.items() if s not in unknown and any(symbols_of(d) & unknown for d in dims)}
            if not more:
                return {s: r for s, r in self.met.items() if s not in unknown}
            unknown |= more

    def _range(self, dim: DimLike) -> Range | None:
        """The range of a size; None if nothing is known."""
        if isinstance(dim, int):
            return Range.single(dim)
        symbols = symbols_of(dim)
        try:
            if isinstance(dim, Symbol) or not symbols <= self.own.keys():
                ranges = {s: self.own.get(s) or self.met.get(s) for s in symbols}
                facts = Facts()
                for symbol, within in ranges.items():
                    if within is None:
                        return None
                    facts.set_range(symbol, within)
                return facts.range(dim)
            values = [evaluate(dim, sample) for sample in self.samples]
        except (ShapeError, ArithmeticError):
            return None  # on a path that these samples did not take
        multiple = believed_multiple(math.gcd(*values), len(set(values)))
        return Range(min(values), max(values), multiple)


def _result_text(written: Sequence[Type | None], sizes: _Sizes) -> str:
    types = [t for t in written if t is not None]
    if not types or len(types) != len(written) or not any(_tells(t) for t in types):
        return ""
    texts = [_type_text(t, sizes) for t in types]
    text = f"{len(texts)} of {texts[0]}" if len(texts) > 1 and len(set(texts)) == 1 else ", ".join(texts)
    return text if len(text) <= _MAX_TEXT else ""


def _tells(t: Type) -> bool:
    """Whether a type says something that the line does not."""
    if isinstance(t, TupleType):
        return any(map(_tells, t.items))
    if isinstance(t, ListType):
        return any(map(_tells, t.items or ())) or (t.element is not None and _tells(t.element))
    return isinstance(t, ArrayType | NpScalarType) or (isinstance(t, PyIntType) and t.value is not None)


def _type_text(t: Type, sizes: _Sizes) -> str:
    match t:
        case ArrayType():
            prefix = "" if t.wrapper == "ndarray" else f"{t.wrapper} "
            layout = "C" if t.layout.is_c else "F" if t.layout.is_f else "strided"
            return f"{prefix}{t.dtype.name}[{', '.join(map(sizes.text, t.shape))}]{{{layout}}}"
        case NpScalarType():
            return f"np.{t.dtype.name}"
        case PyIntType():
            return "int" if t.value is None else f"int {sizes.text(t.value)}"
        case TupleType():
            return f"({', '.join(_type_text(i, sizes) for i in t.items)})"
        case ListType():
            element = _element(t)
            return "list" if element is None else f"list of {_type_text(element, sizes)}"
        case ObjectType():
            return type(t.value).__name__ if t.value is not None else "object"
    return type(t).__name__.removeprefix("Py").removesuffix("Type").lower()

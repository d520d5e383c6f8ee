"""Expressions of the loop form as LLVM instructions, scalar or a vector of lanes.

In: a node, and an environment that says which SSA value each name has. Out: a `Value`. Invariants:

* An instruction is written at the outermost nesting level at which all its operands are defined, so uniform work leaves
  vector loops. Loads and integer divisions never leave a branch they stand in; loads of buffers that the function
  writes stay where they are.
* No fast-math flag is ever set here: one rounding per node (float16 and bfloat16 nodes round their float32 result).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tiercel.codegen.cpu.mathematics import MATHEMATICS
from tiercel.codegen.cpu.nans import NaNs
from tiercel.codegen.cpu.text import REGISTER_TYPE, Lines, Value, Writer, literal, memory_type
from tiercel.dtypes import DType, as_dtype
from tiercel.loops.form import (
    BOOL,
    INDEX,
    Binary,
    Buffer,
    Cast,
    Compare,
    Const,
    Expr,
    Fma,
    IllFormed,
    Load,
    Select,
    Unary,
    Var,
    walk,
)
from tiercel.loops.index import index_add, index_mul, strides_of

FLOAT32 = as_dtype("float32")
INT32 = as_dtype("int32")
HALVES = ("float16", "bfloat16")


@dataclass(slots=True)
class VectorAxis:
    """The vector loop being emitted: lane l of the group works on index `base + l`, if its bit of `mask` is set.

    A mask of None means all of them.
    """

    index: str
    lanes: int
    base: Value
    mask: Value | None
    full: Value | None = None  # i1: the whole group is inside; None where masked memory is as fast as plain


@dataclass(slots=True)
class Environment:
    """What names mean at the current position."""

    names: dict[str, Value] = field(default_factory=dict)
    pointers: dict[str, Value] = field(default_factory=dict)
    axis: VectorAxis | None = None


def splat_text(text: str, element: str, lanes: int) -> str:
    """A constant vector."""
    return f"splat ({element} {text})" if lanes > 1 else text


def linear_in(node: Expr, name: str, varies: Callable[[Expr], bool]) -> tuple[Expr, Expr] | None:
    """Write `node` as `coefficient * name + rest` with both parts uniform, or None when it is not of that form."""
    if isinstance(node, Var) and node.name == name:
        return Const(1, INDEX), Const(0, INDEX)
    if not varies(node):
        return Const(0, INDEX), node
    if isinstance(node, Binary) and node.op in ("add", "sub", "mul"):
        a, b = linear_in(node.a, name, varies), linear_in(node.b, name, varies)
        if a is None or b is None:
            return None
        zero = Const(0, INDEX)
        if node.op == "add":
            return index_add(a[0], b[0]), index_add(a[1], b[1])
        if node.op == "sub":
            minus = Const(-1, INDEX)
            return index_add(a[0], index_mul(minus, b[0])), index_add(a[1], index_mul(minus, b[1]))
        if a[0] == zero:
            return index_mul(a[1], b[0]), index_mul(a[1], b[1])
        if b[0] == zero:
            return index_mul(b[1], a[0]), index_mul(b[1], a[1])
    return None


_FLOAT_COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_SIGNED_COMPARE = {"eq": "eq", "ne": "ne", "lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge"}
_UNSIGNED_COMPARE = {"eq": "eq", "ne": "ne", "lt": "ult", "le": "ule", "gt": "ugt", "ge": "uge"}
_FLOAT_BINARY = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INTEGER_BINARY = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor", "shl": "shl"}
_INTRINSIC_UNARY = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "rint": "rint", "trunc": "trunc", "abs": "fabs"}

# Between these, both excluded, a float can be converted: (bytes of the integer, bytes of the float) -> range. The lower
# ones are the next float below the least integer, or -2**31 - 1.
_SIGNED_RANGE = {
    (4, 4): (-(2.0**31) - 2.0**8, 2.0**31),
    (4, 8): (-(2.0**31) - 1.0, 2.0**31),
    (8, 4): (-(2.0**63) - 2.0**40, 2.0**63),
    (8, 8): (-(2.0**63) - 2.0**11, 2.0**63),
}
_UINT64_RANGE = (-1.0, 2.0**64)


class Expressions:
    """Emits expressions at the current position of a writer."""

    def __init__(
        self,
        writer: Writer,
        environment: Environment,
        written: frozenset[str],
        declare: Callable[[str], object],
        *,
        avx512: bool = False,
    ):
        self.writer = writer
        self.environment = environment
        self.written = written
        self.declare = declare  # called with the text of an external declaration the module needs
        self.avx512 = avx512  # whether instructions of AVX-512 may be named
        self.known: list[dict[str, Value]] = [{}]  # per level: instruction text -> the value it already has
        self.pinned = 0  # the innermost level that loads and divisions may not leave
        self.entry: Lines | None = None  # where stack memory is taken: the beginning of the function
        self._scratch: dict[str, str] = {}
        self._nans = NaNs()

    # -- plumbing ---------------------------------------------------------------------------------------------

    def scratch(self, hint: str, size_bytes: int) -> str:
        """A pointer to stack memory for one element of `size_bytes`, the same for the same hint and size."""
        key = f"{hint}.{size_bytes}"
        if key not in self._scratch:
            if self.entry is None:
                raise IllFormed(f"no place for the stack memory of {hint}")
            self._scratch[key] = self.writer.fresh(hint)
            self.entry.append(f"  {self._scratch[key]} = alloca [{size_bytes} x i8], align 16")
        return self._scratch[key]

    def enter(self, place: Lines, *, branch: bool) -> int:
        """Begin a nesting level whose outer-level code goes to `place`, a placeholder that dominates it.

        With `branch` the level may not run: loads and divisions do not move out of it. Returns what `leave` needs.
        """
        self.writer.levels.append(place)
        self.known.append({})
        before = self.pinned
        if branch:
            self.pinned = self.writer.level
        return before

    def leave(self, before: int) -> None:
        """End the level."""
        self.writer.levels.pop()
        self.known.pop()
        self.pinned = before

    def instruction(
        self, hint: str, text: str, dtype: DType, lanes: int, *operands: Value, level: int = 0, pure: bool = True
    ) -> Value:
        """`%hint = text`, written as far out as the operands allow (not further out than `level`), or the value that
        the same text already has; `pure` is false for loads of memory that may have changed since.
        """
        level = min(max([level, *(o.level for o in operands)]), self.writer.level)
        if pure:
            for known in self.known[: self.writer.level + 1]:
                if text in known:
                    return known[text]
        name = self.writer.fresh(hint)
        self.writer.place(f"{name} = {text}", level)
        value = Value(name, dtype, lanes, level)
        if pure:
            self.known[level][text] = value
        return value

    def constant(self, value: complex, dtype: DType, lanes: int = 1) -> Value:
        """A literal, splatted over the lanes."""
        return Value(splat_text(literal(value, dtype), REGISTER_TYPE[dtype.name], lanes), dtype, lanes)

    def spread(self, value: Value, lanes: int) -> Value:
        """`value` in every lane."""
        if value.lanes == lanes:
            return value
        if value.lanes != 1:
            raise IllFormed(f"{value.lanes} lanes where {lanes} are needed")
        if not value.text.startswith("%"):
            return Value(splat_text(value.text, value.type, lanes), value.dtype, lanes, value.level)
        vector = f"<{lanes} x {value.type}>"
        first = self.instruction("one", f"insertelement {vector} poison, {value}, i64 0", value.dtype, lanes, value)
        text = f"shufflevector {first}, {vector} poison, <{lanes} x i32> zeroinitializer"
        return self.instruction("splat", text, value.dtype, lanes, first)

    def align(self, *values: Value) -> tuple[Value, ...]:
        """All values with the same number of lanes."""
        lanes = max(v.lanes for v in values)
        return tuple(self.spread(v, lanes) for v in values)

    def intrinsic(self, name: str, hint: str, dtype: DType, *operands: Value, level: int = 0) -> Value:
        """Call an LLVM intrinsic overloaded on its first operand's type."""
        first = operands[0]
        suffix = {"float": "f32", "double": "f64", "half": "f16"}.get(REGISTER_TYPE[first.dtype.name])
        suffix = suffix or REGISTER_TYPE[first.dtype.name]
        full = f"llvm.{name}." + (suffix if first.lanes == 1 else f"v{first.lanes}{suffix}")
        result = Value("", dtype, first.lanes).type
        self.declare(f"declare {result} @{full}({', '.join(o.type for o in operands)})")
        text = f"call {result} @{full}({', '.join(map(str, operands))})"
        return self.instruction(hint, text, dtype, first.lanes, *operands, level=level)

    def varies(self, node: Expr) -> bool:
        """Does the node differ between lanes of the current vector axis?"""
        axis = self.environment.axis
        if axis is None:
            return False
        for part in walk(node):
            if isinstance(part, Var):
                if part.name == axis.index or self.environment.names[part.name].lanes > 1:
                    return True
        return False

    # -- nodes ------------------------------------------------------------------------------------------------

    def emit(self, node: Expr) -> Value:
        """The value of an expression at the current position."""
        match node:
            case Const():
                return self.constant(node.value, node.dtype)
            case Var():
                axis = self.environment.axis
                if axis is not None and node.name == axis.index:
                    return self._lane_indices(axis)
                return self.environment.names[node.name]
            case Load():
                return self.load(node)
            case Unary():
                return self.unary(node.op, self.emit(node.x))
            case Cast():
                return self.cast(self.emit(node.x), node.dtype)
            case Binary():
                a, b = self.align(self.emit(node.a), self.emit(node.b))
                return self.binary(node.op, a, b)
            case Fma():
                a, b, c = self.align(self.emit(node.a), self.emit(node.b), self.emit(node.c))
                return self.intrinsic("fma", "fma", node.dtype, a, b, c)
            case Compare():
                a, b = self.align(self.emit(node.a), self.emit(node.b))
                return self.compare(node.op, a, b)
            case Select():
                condition, a, b = self.emit(node.condition), self.emit(node.a), self.emit(node.b)
                a, b = self.align(a, b)
                if condition.lanes > 1:
                    condition, a, b = self.align(condition, a, b)
                text = f"select {condition}, {a}, {b}"
                return self.instruction("choice", text, a.dtype, a.lanes, condition, a, b)
        raise IllFormed(f"unknown expression {type(node).__name__}")

    def _lane_indices(self, axis: VectorAxis) -> Value:
        base = self.spread(axis.base, axis.lanes)
        lanes = ", ".join(f"i64 {i}" for i in range(axis.lanes))
        text = f"add {base}, <{lanes}>"
        return self.instruction(axis.index, text, INDEX, axis.lanes, base)

    def unary(self, op: str, x: Value) -> Value:
        """`op(x)`."""
        dtype = x.dtype
        if dtype.name in HALVES and op != "signbit":
            wide = self.unary(op, self.cast(x, FLOAT32))
            return wide if wide.dtype is BOOL else self.cast(wide, dtype)
        if op == "not":
            return self.instruction("not", f"xor {x}, {splat_text('true', 'i1', x.lanes)}", dtype, x.lanes, x)
        if op == "invert":
            return self.instruction(
                "inverse",
                f"xor {x}, {splat_text('-1', x.type if x.lanes == 1 else REGISTER_TYPE[dtype.name], x.lanes)}",
                dtype,
                x.lanes,
                x,
            )
        if dtype.kind in "iu":
            return self._integer_unary(op, x)
        if op == "neg":
            return self.instruction("minus", f"fneg {x}", dtype, x.lanes, x)
        if op in _INTRINSIC_UNARY:
            return self.intrinsic(_INTRINSIC_UNARY[op], op, dtype, x)
        if op == "rsqrt":
            return self.binary("div", self.constant(1.0, dtype, x.lanes), self.intrinsic("sqrt", "root", dtype, x))
        if op == "isnan":
            return self.instruction("isnan", f"fcmp uno {x}, {x.text}", BOOL, x.lanes, x)
        if op in ("isinf", "isfinite"):
            size = self.intrinsic("fabs", "size", dtype, x)
            infinity = self.constant(float("inf"), dtype, x.lanes)
            predicate = "oeq" if op == "isinf" else "one"
            return self.instruction(op, f"fcmp {predicate} {size}, {infinity.text}", BOOL, x.lanes, size)
        if op == "sign":
            zero, one = self.constant(0.0, dtype, x.lanes), self.constant(1.0, dtype, x.lanes)
            size = self.intrinsic("copysign", "size", dtype, one, x)
            # zero and NaN are their own sign (NumPy gives 0.0 for -0.0: x - x would give NaN for infinity)
            positive_zero = self.binary("add", x, zero)
            ordinary = self.instruction("nonzero", f"fcmp one {x}, {zero.text}", BOOL, x.lanes, x)
            return self.instruction(
                "sign", f"select {ordinary}, {size}, {positive_zero}", dtype, x.lanes, ordinary, size, positive_zero
            )
        if op == "signbit":
            bits = as_dtype(f"int{8 * dtype.itemsize}")
            raw = x if dtype.name == "bfloat16" else self.bitcast(x, bits)
            kind = Value("", bits, x.lanes).type
            return self.instruction("signbit", f"icmp slt {kind} {raw.text}, zeroinitializer" if x.lanes > 1 else
                                    f"icmp slt {kind} {raw.text}, 0", BOOL, x.lanes, raw)  # fmt: skip
        return self._mathematics(op, x)

    def _mathematics(self, op: str, *operands: Value) -> Value:
        """A function of several instructions, or the value that the same call already has."""
        if op not in MATHEMATICS:
            raise IllFormed(f"{op} of {operands[0].dtype.name} has no code on this target")
        text = f"{op} {', '.join(map(str, operands))}"
        for known in self.known[: self.writer.level + 1]:
            if text in known:
                return known[text]
        value = MATHEMATICS[op](self, *operands)
        self.known[value.level][text] = value
        return value

    def _integer_unary(self, op: str, x: Value) -> Value:
        zero = self.constant(0, x.dtype, x.lanes)
        if op == "neg":
            return self.instruction("minus", f"sub {zero}, {x.text}", x.dtype, x.lanes, x)
        if op == "abs":
            if x.dtype.kind == "u":
                return x
            minus = self._integer_unary("neg", x)
            negative = self.compare("lt", x, zero)
            return self.instruction("abs", f"select {negative}, {minus}, {x}", x.dtype, x.lanes, negative, minus, x)
        if op == "sign":
            one = self.constant(1, x.dtype, x.lanes)
            positive = self.cast(self.compare("gt", x, zero), x.dtype)
            if x.dtype.kind == "u":
                return positive
            negative = self.cast(self.compare("lt", x, zero), x.dtype)
            del one
            return self.binary("sub", positive, negative)
        raise IllFormed(f"{op} of {x.dtype.name}")

    def bitcast(self, x: Value, dtype: DType) -> Value:
        """The same bits as another dtype of the same width."""
        target = Value("", dtype, x.lanes).type
        if target == x.type:
            return replace(x, dtype=dtype)
        return self.instruction("bits", f"bitcast {x} to {target}", dtype, x.lanes, x)

    def binary(self, op: str, a: Value, b: Value) -> Value:
        """`op(a, b)` on values of one dtype and lane count."""
        dtype = a.dtype
        if dtype.name in HALVES:
            wide = self.binary(op, self.cast(a, FLOAT32), self.cast(b, FLOAT32))
            return self.cast(wide, dtype)
        if op in ("min", "max") and dtype.kind == "f":
            if self._nans.implies(a, b):
                result = self.extreme_of_numbers(op, a, b)
            elif self._nans.implies(b, a):
                result = self.extreme_of_numbers(op, b, a)
            else:
                result = self._extreme(op, a, b)
            self._nans.note(op, result, a, b)
            return result
        if op in ("min", "max", "fmin", "fmax"):
            return self._extreme(op, a, b)
        if dtype.kind == "f":
            if op in _FLOAT_BINARY:
                result = self.instruction(op, f"{_FLOAT_BINARY[op]} {a}, {b.text}", dtype, a.lanes, a, b)
                self._nans.note(op, result, a, b)
                return result
            if op == "copysign":
                return self.intrinsic("copysign", "copysign", dtype, a, b)
            return self._mathematics(op, a, b)
        if op in _INTEGER_BINARY:
            return self.instruction(op, f"{_INTEGER_BINARY[op]} {a}, {b.text}", dtype, a.lanes, a, b)
        if op == "shr":
            kind = "lshr" if dtype.kind == "u" else "ashr"
            return self.instruction("shr", f"{kind} {a}, {b.text}", dtype, a.lanes, a, b)
        if op in ("floordiv", "mod"):
            return self._integer_division(op, a, b)
        raise IllFormed(f"{op} of {dtype.name}")

    def part(self, x: Value, first: int, lanes: int) -> Value:
        """Lanes `first` to `first + lanes` of a vector."""
        if x.lanes == lanes:
            return x
        if lanes == 1:
            return self.instruction("lane", f"extractelement {x}, i32 {first}", x.dtype, 1, x)
        places = ", ".join(f"i32 {first + i}" for i in range(lanes))
        text = f"shufflevector {x}, {x.type} poison, <{lanes} x i32> <{places}>"
        return self.instruction("part", text, x.dtype, lanes, x)

    def joined(self, parts: Sequence[Value]) -> Value:
        """The lanes of all parts, a power of two of them, one after the other."""
        while len(parts) > 1:
            lanes = 2 * parts[0].lanes
            places = ", ".join(f"i32 {i}" for i in range(lanes))
            parts = [
                self.instruction("joined", f"shufflevector {a}, {b}, <{lanes} x i32> <{places}>", a.dtype, lanes, a, b)
                for a, b in zip(parts[::2], parts[1::2], strict=True)
            ]
        return parts[0]

    def extreme_of_numbers(self, op: str, a: Value, b: Value) -> Value:
        """The smaller or larger of two floats, b where one of them is NaN; raises no flag for a quiet NaN.

        One instruction on whole vectors of AVX-512, which can be told to raise nothing.
        """
        width = 8 * a.dtype.itemsize
        if not self.avx512 or a.dtype.itemsize < 4 or a.lanes * width % 512:
            first = self.compare("lt" if op == "min" else "gt", a, b)
            return self.instruction(op, f"select {first}, {a}, {b}", a.dtype, a.lanes, first, a, b)
        lanes, element = 512 // width, "float" if width == 32 else "double"
        name = f"llvm.x86.avx512.{op}.{'ps' if width == 32 else 'pd'}.512"
        part = f"<{lanes} x {element}>"
        self.declare(f"declare {part} @{name}({part}, {part}, i32)")
        parts = []
        for start in range(0, a.lanes, lanes):
            x, y = self.part(a, start, lanes), self.part(b, start, lanes)
            parts.append(self.instruction(op, f"call {part} @{name}({x}, {y}, i32 8)", a.dtype, lanes, x, y))
        return self.joined(parts)

    def _extreme(self, op: str, a: Value, b: Value) -> Value:
        dtype = a.dtype
        if dtype.kind == "b":
            return self.instruction(op, f"{'and' if op == 'min' else 'or'} {a}, {b.text}", dtype, a.lanes, a, b)
        if dtype.kind == "f" and self.avx512 and a.lanes * 8 * dtype.itemsize % 512 == 0:
            # the instruction gives its second operand where one is NaN
            number = self.extreme_of_numbers(op[-3:], a, b)
            odd, other = (a, a) if op in ("min", "max") else (b, a)
            nan = self.unary("isnan", odd)
            text = f"select {nan}, {other}, {number}"
            return self.instruction(op, text, dtype, a.lanes, nan, other, number)
        first = self.compare("lt" if op.endswith("min") else "gt", a, b)
        if dtype.kind in "iu":
            return self.instruction(op, f"select {first}, {a}, {b}", dtype, a.lanes, first, a, b)
        # keep a where it wins or, by the rule of the operation, where NaN decides; else b
        if op in ("min", "max"):
            nan = self.unary("isnan", a)
        else:
            nan = self.unary("isnan", b)
        keep = self.instruction("keep", f"or {first}, {nan.text}", BOOL, a.lanes, first, nan)
        return self.instruction(op, f"select {keep}, {a}, {b}", dtype, a.lanes, keep, a, b)

    def _integer_division(self, op: str, a: Value, b: Value) -> Value:
        dtype, pinned, axis = a.dtype, self.pinned, self.environment.axis
        if axis is not None and axis.mask is not None and b.lanes > 1:
            # lanes that are switched off hold anything: they must not divide by zero
            one = self.constant(1, dtype, b.lanes)
            b = self.instruction("divisor", f"select {axis.mask}, {b}, {one}", dtype, b.lanes, axis.mask, b)
        if dtype.kind == "u":
            kind = "udiv" if op == "floordiv" else "urem"
            return self.instruction(op, f"{kind} {a}, {b.text}", dtype, a.lanes, a, b, level=pinned)
        remainder = self.instruction("rest", f"srem {a}, {b.text}", dtype, a.lanes, a, b, level=pinned)
        zero = self.constant(0, dtype, a.lanes)
        inexact = self.compare("ne", remainder, zero)
        opposite = self.compare("lt", self.binary("xor", remainder, b), zero)
        adjust = self.instruction("adjust", f"and {inexact}, {opposite.text}", BOOL, a.lanes, inexact, opposite)
        if op == "mod":
            shifted = self.binary("add", remainder, b)
            return self.instruction(
                "mod", f"select {adjust}, {shifted}, {remainder}", dtype, a.lanes, adjust, shifted, remainder
            )
        quotient = self.instruction("quotient", f"sdiv {a}, {b.text}", dtype, a.lanes, a, b, level=pinned)
        return self.binary("sub", quotient, self.cast(adjust, dtype))

    def compare(self, op: str, a: Value, b: Value) -> Value:
        """`a op b` as bool."""
        if a.dtype.name in HALVES:
            a, b = self.cast(a, FLOAT32), self.cast(b, FLOAT32)
        if a.dtype.kind == "f":
            text = self._float_compare(_FLOAT_COMPARE[op], a, b)
        else:
            table = _SIGNED_COMPARE if a.dtype.kind == "i" else _UNSIGNED_COMPARE
            text = f"icmp {table[op]} {a}, {b.text}"
        return self.instruction(op, text, BOOL, a.lanes, a, b)

    def _float_compare(self, predicate: str, a: Value, b: Value) -> str:
        """An instruction that compares and raises no flag for NaN, as NumPy.

        LLVM takes the signalling instruction for `fcmp olt` and its like. The constrained intrinsic gives the quiet one
        of the same speed; "ignore" lets it be moved like any other instruction.
        """
        if predicate in ("oeq", "une"):
            return f"fcmp {predicate} {a}, {b.text}"
        suffix = "f32" if a.dtype is FLOAT32 else "f64"
        name = f"llvm.experimental.constrained.fcmp.{suffix if a.lanes == 1 else f'v{a.lanes}{suffix}'}"
        result = Value("", BOOL, a.lanes).type
        self.declare(f"declare {result} @{name}({a.type}, {a.type}, metadata, metadata)")
        return f'call {result} @{name}({a}, {b}, metadata !"{predicate}", metadata !"fpexcept.ignore")'

    def cast(self, x: Value, dtype: DType) -> Value:
        """C conversion."""
        source = x.dtype
        if source is dtype:
            return x
        target = Value("", dtype, x.lanes).type
        if dtype is BOOL:
            if source.name in HALVES:
                x = self.cast(x, FLOAT32)
            return self.compare("ne", x, self.constant(0, x.dtype, x.lanes))
        if source.name == "bfloat16":
            wide = self.instruction("wide", f"zext {x} to {Value('', INT32, x.lanes).type}", INT32, x.lanes, x)
            shifted = self.binary("shl", wide, self.constant(16, INT32, x.lanes))
            return self.cast(self.bitcast(shifted, FLOAT32), dtype)
        if dtype.name == "bfloat16":
            return self._to_bfloat16(self.cast(x, FLOAT32))
        if source.name == "float16" and dtype.kind in "iu":
            return self.cast(self.cast(x, FLOAT32), dtype)
        if source.name == "float64" and dtype.name == "float16":
            x, target = self._round_to_odd(x), Value("", dtype, x.lanes).type
        if source.kind == "f" and dtype.kind == "f":
            kind = "fpext" if dtype.itemsize > source.itemsize else "fptrunc"
        elif source.kind == "f":
            return self._float_to_integer(x, dtype)
        elif dtype.kind == "f":
            if dtype.name == "float16":
                return self.cast(self.cast(x, FLOAT32), dtype) if source.itemsize < 4 else self._via_double(x, dtype)
            kind = "sitofp" if source.kind == "i" else "uitofp"
        elif source is BOOL:
            kind = "zext"
        elif dtype.itemsize == source.itemsize:
            return replace(x, dtype=dtype)
        elif dtype.itemsize < source.itemsize:
            kind = "trunc"
        else:
            kind = "sext" if source.kind == "i" else "zext"
        return self.instruction(dtype.name, f"{kind} {x} to {target}", dtype, x.lanes, x)

    def _round_to_odd(self, x: Value) -> Value:
        """float64 to float32 so that a second rounding to float16 equals one: cut off, and set the last bit if inexact.

        Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd",
        2008.
        """
        lanes, float64 = x.lanes, x.dtype
        near = self.instruction("near", f"fptrunc {x} to {Value('', FLOAT32, lanes).type}", FLOAT32, lanes, x)
        back = self.cast(near, float64)
        beyond = self.compare("gt", self.unary("abs", back), self.unary("abs", x))
        inexact = self.compare("ne", back, x)
        bits = self.bitcast(near, INT32)
        bits = self.binary("sub", bits, self.cast(beyond, INT32))  # one step towards zero
        finite = self.unary("isfinite", x)
        odd = self.binary("and", finite, inexact)
        return self.bitcast(self.binary("or", bits, self.cast(odd, INT32)), FLOAT32)

    def _via_double(self, x: Value, dtype: DType) -> Value:
        # an int32 or wider rounds once: double holds every int32, and float16 overflows far below 2**53
        return self.cast(self.cast(x, as_dtype("float64")), dtype)

    def _float_to_integer(self, x: Value, dtype: DType) -> Value:
        """Truncation, through int32 or int64 as in NumPy. Beyond those it never traps and raises the flag `invalid`.

        The result is then unspecified in NumPy too, but NumPy says so.
        """
        wide = as_dtype("int64") if dtype.itemsize > 4 or dtype.name == "uint32" else INT32
        name = "fptosi" if dtype.name != "uint64" else "fptoui"
        source = {"float": "f32", "double": "f64"}[REGISTER_TYPE[x.dtype.name]]
        x = self._spoiled(x, *(_UINT64_RANGE if name == "fptoui" else _SIGNED_RANGE[wide.itemsize, x.dtype.itemsize]))
        lanes = "" if x.lanes == 1 else f"v{x.lanes}"
        full = f"llvm.{name}.sat.{lanes}{REGISTER_TYPE[wide.name]}.{lanes}{source}"
        result = Value("", wide, x.lanes).type
        self.declare(f"declare {result} @{full}({x.type})")
        integer = self.instruction("int", f"call {result} @{full}({x})", wide, x.lanes, x)
        return self.cast(integer, dtype)

    def _spoiled(self, x: Value, low: float, high: float) -> Value:
        """x where low < x < high, elsewhere NaN and the flag `invalid`: a saturating conversion does not raise it."""
        floor, ceiling = self.constant(low, x.dtype, x.lanes), self.constant(high, x.dtype, x.lanes)
        inside = self.binary("and", self.compare("gt", x, floor), self.compare("lt", x, ceiling))
        zero, infinity = self.constant(0.0, x.dtype, x.lanes), self.constant(math.inf, x.dtype, x.lanes)
        stray = self.instruction("stray", f"select {inside}, {zero}, {infinity}", x.dtype, x.lanes, inside)
        return self.binary("add", x, self.binary("sub", stray, stray))

    def _to_bfloat16(self, x: Value) -> Value:
        """Round to nearest even on the bits; NaN stays NaN (quiet)."""
        bits = self.bitcast(x, INT32)
        lanes = x.lanes
        odd = self.binary("and", replace(self.shift_right(bits, 16), dtype=INT32), self.constant(1, INT32, lanes))
        rounded = self.binary("add", bits, self.binary("add", odd, self.constant(0x7FFF, INT32, lanes)))
        quiet = self.binary("or", bits, self.constant(0x400000, INT32, lanes))
        nan = self.unary("isnan", x)
        chosen = self.instruction("chosen", f"select {nan}, {quiet}, {rounded}", INT32, lanes, nan, quiet, rounded)
        high = self.shift_right(chosen, 16)
        bfloat16 = as_dtype("bfloat16")
        return self.instruction("bfloat16", f"trunc {high} to {Value('', bfloat16, lanes).type}", bfloat16, lanes, high)

    def shift_right(self, x: Value, count: int) -> Value:
        """Logical shift of an integer value."""
        amount = self.constant(count, x.dtype, x.lanes)
        return self.instruction("high", f"lshr {x}, {amount.text}", x.dtype, x.lanes, x)

    # -- memory -----------------------------------------------------------------------------------------------

    def address(self, buffer: Buffer, index: tuple[Expr, ...]) -> tuple[Value, Expr | None, Expr]:
        """Where an element is: (pointer, stride of the vector axis or None when not linear, uniform or flat offset)."""
        flat: Expr = Const(0, INDEX)
        for position, stride in zip(index, strides_of(buffer), strict=True):
            flat = index_add(flat, index_mul(position, stride))
        if buffer.offset is not None:
            flat = index_add(flat, buffer.offset)
        pointer = self.environment.pointers[buffer.root or buffer.name]
        axis = self.environment.axis
        if axis is None or not self.varies(flat):
            return self._element(pointer, buffer, flat), Const(0, INDEX), flat
        parts = linear_in(flat, axis.index, self.varies)
        if parts is None:
            if self.emit(flat).lanes == 1:  # it holds an element that is the same in all lanes
                return self._element(pointer, buffer, flat), Const(0, INDEX), flat
            return pointer, None, flat
        return self._element(pointer, buffer, parts[1]), parts[0], parts[1]

    def _element(self, pointer: Value, buffer: Buffer, offset: Expr) -> Value:
        if isinstance(offset, Const) and offset.value == 0:
            return pointer
        at = self.emit(offset)
        text = f"getelementptr {memory_type(buffer.dtype)}, ptr {pointer.text}, {at}"
        return self.instruction(f"{buffer.name}.at", text, INDEX, 1, pointer, at)

    def vector_pointers(self, buffer: Buffer, pointer: Value, stride: Expr | None, flat: Expr) -> Value:
        """A pointer per lane, for gather and scatter. (Typed `ptr`; the dtype field of the value has no meaning.)."""
        axis = self.environment.axis
        assert axis is not None
        if stride is None:
            offsets = self.emit(flat)
        else:
            offsets = self.binary("mul", self._lane_indices(axis), self.spread(self.emit(stride), axis.lanes))
        text = f"getelementptr {memory_type(buffer.dtype)}, ptr {pointer.text}, {offsets}"
        return self.instruction(f"{buffer.name}.lanes", text, INDEX, axis.lanes, pointer, offsets)

    def load(self, node: Load) -> Value:
        """`buffer[index]`."""
        buffer, axis = node.buffer, self.environment.axis
        pointer, stride, flat = self.address(buffer, node.index)
        here = self.writer.level if (buffer.root or buffer.name) in self.written else self.pinned
        element, size = memory_type(buffer.dtype), buffer.dtype.itemsize
        if axis is not None and axis.mask is None and isinstance(stride, Const) and stride.value == 1:
            return self._from_memory(self._load_whole(buffer, axis, pointer), buffer.dtype)
        if axis is None or (isinstance(stride, Const) and stride.value == 0):
            text = f"load {element}, ptr {pointer.text}, align {size}"
            return self._from_memory(self._raw(buffer, text, 1, pointer, level=here), buffer.dtype)
        # lanes beyond the end repeat the first element: they raise no floating-point flag that it would not raise
        first = self._raw(buffer, f"load {element}, ptr {pointer.text}, align {size}", 1, pointer, level=here)
        neutral = self.spread(first, axis.lanes)
        if isinstance(stride, Const):
            if stride.value == 1:
                raw = self._load_contiguous(buffer, axis, pointer, neutral)
            elif stride.value == 2 and (axis.mask is None or axis.full is None):
                raw = self._load_every_second(buffer, axis, pointer, neutral)
            else:
                raw = self._gather(buffer, axis, self.vector_pointers(buffer, pointer, stride, flat), neutral)
        elif stride is None:
            raw = self._gather(buffer, axis, self.vector_pointers(buffer, pointer, stride, flat), neutral)
        else:
            raw = self._load_by_stride(buffer, axis, pointer, stride, neutral)
        return self._from_memory(raw, buffer.dtype)

    def _load_whole(self, buffer: Buffer, axis: VectorAxis, pointer: Value) -> Value:
        """A vector whose lanes are all inside."""
        element, size = memory_type(buffer.dtype), buffer.dtype.itemsize
        text = f"getelementptr {element}, ptr {pointer.text}, {axis.base}"
        at = self.instruction(f"{buffer.name}.at", text, INDEX, 1, pointer, axis.base)
        plain = f"load <{axis.lanes} x {element}>, ptr {at.text}, align {size}"
        return self._raw(buffer, plain, axis.lanes, at, level=self.writer.level)

    def _load_every_second(self, buffer: Buffer, axis: VectorAxis, pointer: Value, neutral: Value) -> Value:
        """Elements 0, 2, 4, ... of a vector of twice as many, which is a fraction of a gather.

        The last one is not touched: it may lie beyond the memory.
        """
        element, size, lanes = memory_type(buffer.dtype), buffer.dtype.itemsize, axis.lanes
        twice = self.instruction("twice", f"shl {axis.base}, 1", INDEX, 1, axis.base)
        text = f"getelementptr {element}, ptr {pointer.text}, {twice}"
        at = self.instruction(f"{buffer.name}.at", text, INDEX, 1, pointer, twice)
        here = self.writer.level
        if axis.mask is None:
            # two overlapping vectors: lanes 0 to n - 1, and n - 1 to 2 n - 2
            second = f"getelementptr {element}, ptr {at.text}, i64 {lanes - 1}"
            next_at = self.instruction(f"{buffer.name}.at", second, INDEX, 1, at)
            vector = f"<{lanes} x {element}>"
            a, b = (
                self._raw(buffer, f"load {vector}, ptr {p.text}, align {size}", lanes, p, level=here)
                for p in (at, next_at)
            )
            places = [2 * i if 2 * i < lanes else 2 * i + 1 for i in range(lanes)]
        else:
            vector, suffix = f"<{2 * lanes} x {element}>", f"v{2 * lanes}{_SUFFIX[element]}"
            order = ", ".join(f"i32 {i}, i32 {lanes}" for i in range(lanes))
            text = f"shufflevector {axis.mask}, <{lanes} x i1> zeroinitializer, <{2 * lanes} x i32> <{order}>"
            mask = self.instruction("apart", text, BOOL, 2 * lanes, axis.mask)
            name = f"llvm.masked.load.{suffix}.p0"
            self.declare(f"declare {vector} @{name}(ptr, i32, <{2 * lanes} x i1>, {vector})")
            wide = self.spread(self.part(neutral, 0, 1), 2 * lanes)
            text = f"call {vector} @{name}(ptr {at.text}, i32 {size}, {mask}, {vector} {wide.text})"
            a = b = self._raw(buffer, text, 2 * lanes, at, mask, wide, level=here)
            places = [2 * i for i in range(lanes)]
        chosen = ", ".join(f"i32 {i}" for i in places)
        text = f"shufflevector {a}, {b}, <{lanes} x i32> <{chosen}>"
        return self.instruction(buffer.name, text, a.dtype, lanes, a, b)

    def _load_contiguous(self, buffer: Buffer, axis: VectorAxis, pointer: Value, neutral: Value) -> Value:
        if axis.mask is None:
            return self._load_whole(buffer, axis, pointer)
        element, size = memory_type(buffer.dtype), buffer.dtype.itemsize
        vector, suffix = f"<{axis.lanes} x {element}>", f"v{axis.lanes}{_SUFFIX[element]}"
        text = f"getelementptr {element}, ptr {pointer.text}, {axis.base}"
        at = self.instruction(f"{buffer.name}.at", text, INDEX, 1, pointer, axis.base)
        name = f"llvm.masked.load.{suffix}.p0"
        self.declare(f"declare {vector} @{name}(ptr, i32, <{axis.lanes} x i1>, {vector})")
        masked = f"call {vector} @{name}(ptr {at.text}, i32 {size}, {axis.mask}, {vector} {neutral.text})"
        if axis.full is None:
            return self._raw(buffer, masked, axis.lanes, at, axis.mask, neutral, level=self.writer.level)
        plain = f"load {vector}, ptr {at.text}, align {size}"
        return self._either(buffer.name, axis.full, plain, masked, buffer.dtype, axis.lanes)

    def _gather(self, buffer: Buffer, axis: VectorAxis, pointers: Value, neutral: Value) -> Value:
        element, size = memory_type(buffer.dtype), buffer.dtype.itemsize
        vector, suffix = f"<{axis.lanes} x {element}>", f"v{axis.lanes}{_SUFFIX[element]}"
        name, kind = f"llvm.masked.gather.{suffix}.v{axis.lanes}p0", f"<{axis.lanes} x ptr>"
        self.declare(f"declare {vector} @{name}({kind}, i32, <{axis.lanes} x i1>, {vector})")
        mask = axis.mask or self.constant(True, BOOL, axis.lanes)
        given = f"{kind} {pointers.text}, i32 {size}, {mask}, {vector} {neutral.text}"
        text = f"call {vector} @{name}({given})"
        return self._raw(buffer, text, axis.lanes, pointers, neutral, level=self.writer.level)

    def _load_by_stride(self, buffer: Buffer, axis: VectorAxis, pointer: Value, stride: Expr, neutral: Value) -> Value:
        """A stride known at run time: contiguous where it is 1, one element for all lanes where 0, else a gather."""
        writer = self.writer
        step = self.emit(stride)
        one = self.compare("eq", step, self.constant(1, INDEX))
        zero = self.compare("eq", step, self.constant(0, INDEX))
        labels = [writer.label(n) for n in ("unit", "other", "uniform", "spread", "loaded")]
        place = writer.placeholder()
        writer.branch(one.text, labels[0], labels[1])
        edges: list[tuple[Value, str]] = []

        def arm(label: str, make: Callable[[], Value]) -> None:
            writer.start(label)
            before = self.enter(place, branch=True)
            value = make()
            self.leave(before)
            edges.append((value, writer.block))
            writer.jump(labels[4])

        arm(labels[0], lambda: self._load_contiguous(buffer, axis, pointer, neutral))
        writer.start(labels[1])
        writer.branch(zero.text, labels[2], labels[3])
        arm(labels[2], lambda: neutral)

        def gathered() -> Value:
            lanes = self.binary("mul", self._lane_indices(axis), self.spread(step, axis.lanes))
            text = f"getelementptr {memory_type(buffer.dtype)}, ptr {pointer.text}, {lanes}"
            pointers = self.instruction(f"{buffer.name}.lanes", text, INDEX, axis.lanes, pointer, lanes)
            return self._gather(buffer, axis, pointers, neutral)

        arm(labels[3], gathered)
        writer.start(labels[4])
        result = Value(writer.fresh(buffer.name), edges[0][0].dtype, axis.lanes, writer.level)
        phi = ", ".join(f"[ {value.text}, %{block} ]" for value, block in edges)
        writer.write(f"{result.text} = phi {result.type} {phi}")
        return result

    def _raw(self, buffer: Buffer, text: str, lanes: int, *operands: Value, level: int) -> Value:
        dtype = as_dtype("uint8") if buffer.dtype is BOOL else buffer.dtype
        pure = (buffer.root or buffer.name) not in self.written
        return self.instruction(buffer.name, text, dtype, lanes, *operands, level=level, pure=pure)

    def _either(self, hint: str, full: Value, plain: str, masked: str, dtype: DType, lanes: int) -> Value:
        writer = self.writer
        inside, tail, after = writer.label("whole"), writer.label("tail"), writer.label("loaded")
        raw = as_dtype("uint8") if dtype is BOOL else dtype
        writer.branch(full.text, inside, tail)
        writer.start(inside)
        a = writer.fresh(hint)
        writer.write(f"{a} = {plain}")
        writer.jump(after)
        writer.start(tail)
        b = writer.fresh(hint)
        writer.write(f"{b} = {masked}")
        writer.jump(after)
        writer.start(after)
        value = Value(writer.fresh(hint), raw, lanes, writer.level)
        writer.write(f"{value.text} = phi {value.type} [ {a}, %{inside} ], [ {b}, %{tail} ]")
        return value

    def _from_memory(self, raw: Value, dtype: DType) -> Value:
        if dtype is not BOOL:
            return raw
        zero = self.constant(0, raw.dtype, raw.lanes)
        return self.instruction("flag", f"icmp ne {raw}, {zero.text}", BOOL, raw.lanes, raw)

    def to_memory(self, value: Value) -> Value:
        """The form in which a value is stored: bool as a byte 0 or 1."""
        return self.cast(value, as_dtype("uint8")) if value.dtype is BOOL else value


_SUFFIX = {"i8": "i8", "i16": "i16", "i32": "i32", "i64": "i64", "half": "f16", "float": "f32", "double": "f64"}

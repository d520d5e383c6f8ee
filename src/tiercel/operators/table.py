"""The schema of the operator table: what a row says, and how its columns are put together into an answer.

In: rows (`rows/*.py`), one `Operator` each. Out: `bind` (a call's arguments to the row's parameters), `infer` (types of
the results), `alias` (what the results share with the operands), `effects` (what is written), `evaluate` (run it).

A column is a small named function from `rules.py`; all take one `Call`, the bound operands and attributes of one call:

| column | returns |
|---|---|
| `shape(call)` | the result's shape; a list of shapes for several results |
| `dtype(call)` | the result's dtype; a list where several results differ |
| `layout(call, shape)` | the `Layout` of a result of that shape |
| `kind(call, dtype, shape, layout)` | the `Type` that NumPy gives: array, NumPy scalar, ... |
| `result(call)` | an `Alias` (fresh, view, same object), or a list of them |
| `effect(call)` | an `Effect` |

Columns that never depend on the call hold the value itself in place of a function (`result=FRESH`).

Invariant: for every call that the reference accepts, `infer` gives what the reference returns or raises `NotStatic`; it
raises `DTypeError` exactly where the reference raises TypeError (or OverflowError for a Python int out of range), and
`ShapeError` only where the reference raises for these sizes. The test harness checks this for every row.

A spelling is one way users write the operator (function, method, infix, property, `tiercel.ops` function or class).
Its index in `Operator.spellings` is what bytecode stores. Two spellings of a row differ in how arguments bind, and in
two points of meaning handled here for all rows: infix forms of Python scalars are Python's own arithmetic (`python`
column), and in-place forms on arrays write operand 0 and return it.
"""

from __future__ import annotations

import importlib
import itertools
import operator as python_operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from tiercel.dtypes import DType
from tiercel.errors import DTypeError, ShapeError
from tiercel.operators.layout import Layout
from tiercel.operators.types import (
    ArrayType,
    ListType,
    NoneType,
    NotStatic,
    NpScalarType,
    Shape,
    TupleType,
    Type,
    as_array,
    static_value,
)
from tiercel.shapes import Dim, DimLike, Facts, Symbol, broadcast_shapes, symbols_of

__all__ = [
    "EXACT",
    "FAILURES",
    "FRESH",
    "PURE",
    "REQUIRED",
    "Alias",
    "Bound",
    "Call",
    "Effect",
    "Exactness",
    "Lowering",
    "Operator",
    "OutOfRangeError",
    "Parameter",
    "Role",
    "Spelling",
    "SpellingKind",
    "bounded",
    "function",
    "inplace",
    "method",
    "ops_class",
    "parameters",
    "property_",
    "random_state",
    "reordered",
    "same",
    "same_if",
    "syntax",
    "view",
    "view_if",
    "writes",
]

Role: TypeAlias = Literal["operand", "operands", "attribute"]
SpellingKind: TypeAlias = Literal["function", "method", "syntax", "inplace", "property", "ops", "class"]


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()


class OutOfRangeError(DTypeError, OverflowError):
    """A Python int does not fit the dtype that the operation has; NumPy raises OverflowError."""


# ---- parameters and spellings ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a row.

    `operand` takes a tensor or scalar, `operands` a sequence of them (one argument that is a list or tuple),
    `attribute` a value that is part of the operation (axis, shape, dtype). Optional operands have the default None.
    """

    name: str
    role: Role
    default: object = REQUIRED

    @property
    def required(self) -> bool:
        """Whether a call must give it."""
        return self.default is REQUIRED


def parameters(operands: str, attributes: Mapping[str, object] | None = None) -> tuple[Parameter, ...]:
    """Build a parameter list: `parameters("x weight? arrays*", {"axis": None})`.

    `name?` is an optional operand, `name*` takes a sequence of operands. An attribute whose value is `REQUIRED` has no
    default.
    """
    out = []
    for word in operands.split():
        if word.endswith("*"):
            out.append(Parameter(word[:-1], "operands"))
        elif word.endswith("?"):
            out.append(Parameter(word[:-1], "operand", None))
        else:
            out.append(Parameter(word, "operand"))
    out.extend(Parameter(name, "attribute", default) for name, default in (attributes or {}).items())
    return tuple(out)


@dataclass(frozen=True, slots=True)
class Spelling:
    """One way to write an operator.

    Attributes:
        kind: "function" (`path` "numpy.sum"), "method" ("sum", the receiver is the first argument), "syntax" ("+",
            "-x", "=="), "inplace" ("+="), "property" ("T"), "ops" ("sum" for tiercel.ops.sum), "class" ("Split" for
            tiercel.ops.Split: keywords are constructor arguments, positionals call operands).
        parameters: row parameter of each positional argument, in the callable's own order. `!name` is a parameter of
            the callable that the row does not have: giving it does not bind. `*name` collects the remaining
            positionals; a single one stands for itself (`x.reshape(2, 3)` and `x.reshape((2, 3))`).
        keywords: the callable's keyword names to row parameters.
        fixed: attributes this spelling implies.
        constructor: for "class": row parameter of each positional constructor argument.
    """

    kind: SpellingKind
    path: str
    parameters: tuple[str, ...]
    keywords: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, object] = field(default_factory=dict)
    constructor: tuple[str, ...] = ()

    @property
    def callable(self) -> Callable[..., Any]:
        """What is called when no Python environment gives a meaning to the name.

        For "class" this is the class: construct it with the keywords, call the instance with the positionals.
        """
        return _resolve_callable(self.kind, self.path)

    def __str__(self) -> str:
        match self.kind:
            case "syntax":
                if "x" in self.path:
                    return self.path
                return f"x {self.path} y"
            case "inplace":
                return f"x {self.path} y"
            case "method":
                return f"x.{self.path}()"
            case "property":
                return f"x.{self.path}"
            case "function":
                return self.path.replace("numpy.", "np.", 1).removeprefix("builtins.")
            case _:
                return f"ops.{self.path}"


_SYNTAX_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType(
    {
        "+": python_operator.add,
        "-": python_operator.sub,
        "*": python_operator.mul,
        "/": python_operator.truediv,
        "//": python_operator.floordiv,
        "%": python_operator.mod,
        "**": python_operator.pow,
        "@": python_operator.matmul,
        "&": python_operator.and_,
        "|": python_operator.or_,
        "^": python_operator.xor,
        "<<": python_operator.lshift,
        ">>": python_operator.rshift,
        "==": python_operator.eq,
        "!=": python_operator.ne,
        "<": python_operator.lt,
        "<=": python_operator.le,
        ">": python_operator.gt,
        ">=": python_operator.ge,
        "-x": python_operator.neg,
        "+x": python_operator.pos,
        "~x": python_operator.invert,
        "x[k]": python_operator.getitem,
        "x[k]=v": python_operator.setitem,
    }
)
_INPLACE_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType(
    {
        "+=": python_operator.iadd,
        "-=": python_operator.isub,
        "*=": python_operator.imul,
        "/=": python_operator.itruediv,
        "//=": python_operator.ifloordiv,
        "%=": python_operator.imod,
        "**=": python_operator.ipow,
        "@=": python_operator.imatmul,
        "&=": python_operator.iand,
        "|=": python_operator.ior,
        "^=": python_operator.ixor,
        "<<=": python_operator.ilshift,
        ">>=": python_operator.irshift,
    }
)


def _resolve_callable(kind: SpellingKind, path: str) -> Callable[..., Any]:
    if kind == "syntax":
        return _SYNTAX_FUNCTIONS[path]
    if kind == "inplace":
        return _INPLACE_FUNCTIONS[path]
    if kind == "method":
        return _MethodCall(path)
    if kind == "property":
        return python_operator.attrgetter(path)
    if kind == "function":
        module_name, _, rest = path.partition(".")
        found: Any = importlib.import_module(module_name)
        for part in rest.split("."):
            found = getattr(found, part)
        return found  # type: ignore[no-any-return]
    # By name: `ops` is built from this table and lies above it.
    return getattr(importlib.import_module("tiercel.ops"), path)  # type: ignore[no-any-return]


class _MethodCall:
    """`call(x, *args, **keywords)` is `x.name(*args, **keywords)`."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, x: Any, /, *args: Any, **keywords: Any) -> Any:
        return getattr(x, self.name)(*args, **keywords)

    def __repr__(self) -> str:
        return f"<method {self.name}>"


def _read_signature(text: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """Read "a=x axis dtype !out * keepdims": see `function`."""
    positional: list[str] = []
    keywords: dict[str, str] = {}
    keyword_only = False
    for word in text.split():
        if word == "/":
            keywords.clear()
        elif word == "*":
            keyword_only = True
        else:
            own, _, row = word.partition("=")
            row = row or own
            if not keyword_only:
                positional.append(row)
            if row[0] not in "!*":
                keywords[own] = row
    return tuple(positional), keywords


def function(path: str, signature: str, **fixed: object) -> Spelling:
    """A function by its dotted path, with its signature in its own order.

    `own=row` where the callable names a parameter differently from the row; `!name` for a parameter the row does not
    have; `/` and `*` as in Python.
    """
    positional, keywords = _read_signature(signature)
    return Spelling("function", path, positional, keywords, fixed)


def method(name: str, signature: str, **fixed: object) -> Spelling:
    """A method of ndarray; the first word of the signature is the receiver."""
    positional, keywords = _read_signature(signature)
    keywords.pop(signature.split(maxsplit=1)[0].partition("=")[0], None)
    return Spelling("method", name, positional, keywords, fixed)


def syntax(symbol: str, signature: str, **fixed: object) -> Spelling:
    """An infix or prefix form: "+", "-x", "==", "@"."""
    return Spelling("syntax", symbol, tuple(signature.split()), {}, fixed)


def inplace(symbol: str, signature: str = "x y", **fixed: object) -> Spelling:
    """An augmented assignment: "+="."""
    return Spelling("inplace", symbol, tuple(signature.split()), {}, fixed)


def property_(name: str, signature: str = "x", **fixed: object) -> Spelling:
    """An attribute read of an array: "T"."""
    return Spelling("property", name, tuple(signature.split()), {}, fixed)


def ops_class(name: str, call: str, constructor: str = "", **fixed: object) -> Spelling:
    """A class of `tiercel.ops`: `Split(axis=1, output_num=4)(x)`; both signatures as in `function`."""
    positional, _ = _read_signature(call)
    constructed, keywords = _read_signature(constructor)
    return Spelling("class", name, positional, keywords, fixed, constructed)


# ---- what columns return ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Alias:
    """What a result is to the operands.

    "fresh" memory, the "same" object as an operand, a "view" of it; "view_if" or "same_if" the operand's memory layout
    allows it, and fresh otherwise. `operand` is a position in `Bound.operands`.
    """

    kind: Literal["fresh", "view", "view_if", "same", "same_if"]
    operand: int | None = None

    def __str__(self) -> str:
        return self.kind if self.operand is None else f"{self.kind}({self.operand})"


FRESH: Final = Alias("fresh")


def view(operand: int) -> Alias:
    """A view of operand i."""
    return Alias("view", operand)


def view_if(operand: int) -> Alias:
    """A view of operand i where its strides allow, else fresh."""
    return Alias("view_if", operand)


def same(operand: int) -> Alias:
    """The very object that operand i is."""
    return Alias("same", operand)


def same_if(operand: int) -> Alias:
    """The very object that operand i is where its memory layout fits, else fresh."""
    return Alias("same_if", operand)


@dataclass(frozen=True, slots=True)
class Effect:
    """What a call does besides returning: "pure" nothing, "writes" the elements of these operands, "random" advances a
    hidden random state (no row of ours does; numpy.random functions).
    """

    kind: Literal["pure", "writes", "random"]
    operands: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(map(str, self.operands))})" if self.operands else self.kind


PURE: Final = Effect("pure")


def writes(*operands: int) -> Effect:
    """Writes elements of these operands."""
    return Effect("writes", operands)


def random_state() -> Effect:
    """Advances a hidden random state."""
    return Effect("random")


@dataclass(frozen=True, slots=True)
class Exactness:
    """How far a compiled form may be from the reference.

    "exact": equal bits. "bounded": `ulp` units in the last place of the result's dtype (integers and bools: equal), at
    the result, or with `of` "operand" at the larger of the result and the operands (where the result comes from a
    cancellation). "reordered": a sum or product whose terms may be added in another order; |error| <= c * eps * n * sum
    of
    |terms| with n the number of terms, in the accumulator's dtype.
    """

    kind: Literal["exact", "bounded", "reordered"]
    ulp: float | None = None
    of: Literal["result", "operand"] = "result"

    def __str__(self) -> str:
        text = f"{self.kind} {self.ulp:g} ULP" if self.ulp is not None else self.kind
        return text if self.of == "result" else f"{text} of the operand"


EXACT: Final = Exactness("exact")


def bounded(ulp: float, of: Literal["result", "operand"] = "result") -> Exactness:
    """Within `ulp` units in the last place."""
    return Exactness("bounded", ulp, of)


def reordered() -> Exactness:
    """Within the bound of a reordered sum."""
    return Exactness("reordered")


@dataclass(frozen=True, slots=True)
class Lowering:
    """Which loop shape implements the row, and the name of the expression or algorithm in it.

    `key` is one of `lowering.KEYS` for elementwise and reduction rows; for the others the row's own name.
    """

    cls: Literal[
        "elementwise", "reduction", "scan", "contraction", "movement", "gather", "creation", "random", "opaque"
    ]
    key: str

    def __str__(self) -> str:
        return f"{self.cls}:{self.key}"


# Ways a call can still raise after its types have been accepted.
FAILURES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "broadcast": "sizes that differ and are not 1",
        "empty": "a zero-size array has no such element (ValueError)",
        "negative_power": "an integer to a negative integer power (ValueError)",
        "index": "an index out of range (IndexError)",
        "size": "sizes that do not fit (ValueError)",
        "value": "an operand's value is not accepted (ValueError)",
        "range": "a Python int beyond the dtype's range (OverflowError)",
        "memory": "the result may not fit in memory (MemoryError)",
    }
)


# ---- a call ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bound:
    """A call's arguments by row parameter.

    Attributes:
        operands: in the row's order; an "operands" parameter contributes its sequence as one entry; an optional operand
            that was not given is None (or NoneType()).
        attributes: every attribute of the row, defaults filled in.
    """

    operator: Operator
    spelling: int
    operands: tuple[Any, ...]
    attributes: Mapping[str, Any]


class Call:
    """The bound operands and attributes of one call, as rules read them.

    `call["axis"]` is an attribute, as a Python value in which a size may be a `Dim`; `call.operand(0)` is the type of
    an operand after NumPy's conversion of lists; `call.types` are the operands' types as given.
    """

    __slots__ = ("_arrays", "_attributes", "_fresh", "facts", "operator", "spelling", "types")

    def __init__(
        self, bound: Bound, facts: Facts | None = None, fresh: Callable[[DimLike], Dim | int] | None = None
    ) -> None:
        self.operator = bound.operator
        self.spelling: Spelling = bound.operator.spellings[bound.spelling]
        self.types: tuple[Any, ...] = tuple(NoneType() if t is None else t for t in bound.operands)
        self.facts = facts
        self._attributes = bound.attributes
        self._fresh = fresh
        self._arrays: dict[int, Any] = {}

    def __getitem__(self, attribute: str) -> Any:
        return static_value(self._attributes[attribute])

    def given(self, position: int) -> bool:
        """Whether an operand was given: only an optional one can be None."""
        return not isinstance(self.types[position], NoneType) or self.operator.parameters[position].required

    def operand(self, position: int) -> Any:
        """The operand as an array or scalar type; NotStatic if NumPy would not take it as one."""
        found = self._arrays.get(position)
        if found is None:
            found = self._arrays[position] = as_array(self.types[position])
        return found

    @property
    def operands(self) -> tuple[Any, ...]:
        """All given operands as array or scalar types; sequences are spread, an array in place of one is not."""
        out: list[Any] = []
        for position, t in enumerate(self.types):
            if self.operator.parameters[position].role == "operands" and not isinstance(t, ArrayType | NpScalarType):
                out.extend(as_array(item) for item in self.sequence(position))
            elif self.given(position):
                out.append(self.operand(position))
        return tuple(out)

    def sequence(self, position: int) -> tuple[Any, ...]:
        """The item types of an "operands" parameter."""
        t = self.types[position]
        if isinstance(t, tuple | list):
            return tuple(t)
        items = getattr(t, "items", None)
        if not isinstance(items, tuple):
            raise NotStatic(f"the items of {self.operator.parameters[position].name} are not known")
        return items

    def shape(self, position: int) -> Shape:
        """The shape of an operand; () for scalars."""
        return shape_of(self.operand(position))

    def layout(self, position: int) -> Layout:
        """The layout of an operand; C for scalars."""
        t = self.operand(position)
        return t.layout if isinstance(t, ArrayType) else Layout.c(0)

    def data_symbol(self, upper: DimLike) -> DimLike:
        """A new size that only the data decides, in 0..upper."""
        if self._fresh is not None:
            return self._fresh(upper)
        taken = {s.name for t in self.types for s in _symbols(t)}
        number = next(n for n in itertools.count() if f"u{n}" not in taken)
        return Symbol(f"u{number}", "data")


def _symbols(t: Any) -> frozenset[Any]:
    if isinstance(t, ArrayType):
        return frozenset().union(*(symbols_of(d) for d in t.shape))
    items = t if isinstance(t, tuple | list) else getattr(t, "items", None)
    return frozenset().union(*(_symbols(item) for item in items)) if isinstance(items, tuple | list) else frozenset()


def shape_of(t: Any) -> Shape:
    """The shape of an array or scalar type."""
    return t.shape if isinstance(t, ArrayType) else ()


DTypeRule: TypeAlias = Callable[[Call], "DType | list[DType]"]
ShapeRule: TypeAlias = Callable[[Call], "Shape | list[Shape]"]
LayoutRule: TypeAlias = Callable[[Call, Shape], Layout]
KindRule: TypeAlias = Callable[[Call, DType, Shape, Layout], Type]
ResultRule: TypeAlias = Callable[[Call], "Alias | list[Alias]"]
EffectRule: TypeAlias = Callable[[Call], Effect]
# The result of a form on Python values only: rule(symbol or path, types, facts).
PythonRule: TypeAlias = Callable[[Spelling, tuple[Type, ...], "Facts | None"], Type]
# How several results are packed.
Container: TypeAlias = Literal["tuple", "list"]


@dataclass(frozen=True, slots=True)
class Operator:
    """A row of the table. See the module docstring for the columns."""

    name: str
    parameters: tuple[Parameter, ...]
    spellings: tuple[Spelling, ...]
    dtype: DTypeRule
    shape: ShapeRule
    layout: LayoutRule
    kind: KindRule
    result: Alias | ResultRule
    effect: Effect | EffectRule
    exactness: Exactness
    may_fail: tuple[str, ...]
    reference: Callable[..., Any]
    lowering: Lowering
    doc: str
    python: PythonRule | None = None
    container: Container | None = None
    derivative: Callable[..., Any] | None = None
    # How many of `parameters` are operands; they come first.
    arity: int = field(init=False)

    def __post_init__(self) -> None:
        roles = [p.role for p in self.parameters]
        arity = sum(role != "attribute" for role in roles)
        if "attribute" in roles[:arity]:
            raise ValueError(f"operator {self.name}: attributes must come after operands")
        names = {p.name for p in self.parameters}
        for spelling in self.spellings:
            used = {*spelling.parameters, *spelling.keywords.values(), *spelling.fixed, *spelling.constructor}
            unknown = {w for w in used if not w.startswith("!") and w.removeprefix("*") not in names}
            if unknown:
                raise ValueError(f"operator {self.name}, spelling {spelling}: no parameter {sorted(unknown)}")
        unknown_failures = set(self.may_fail) - FAILURES.keys()
        if unknown_failures:
            raise ValueError(f"operator {self.name}: unknown failures {sorted(unknown_failures)}")
        object.__setattr__(self, "arity", arity)

    def __repr__(self) -> str:
        return f"<operator {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _operator_by_name, (self.name,)

    def spelling_index(self, kind: SpellingKind, path: str | None = None) -> int:
        """The index of the first spelling of this kind (and path).

        Raises:
            KeyError: there is none.
        """
        for index, spelling in enumerate(self.spellings):
            if spelling.kind == kind and (path is None or spelling.path == path):
                return index
        raise KeyError(f"operator {self.name} has no {kind} spelling {path or ''}")

    def bind(self, spelling: int, args: Sequence[Any], keywords: Mapping[str, Any] | None = None) -> Bound:
        """Give each argument of a call in this spelling its row parameter.

        Args:
            spelling: index into `spellings`.
            args: positional arguments, the receiver of a method first. Types, values or anything else: they are only
                moved.
            keywords: keyword arguments (for "class" the constructor's; its positional ones come before the operands).

        Raises:
            TypeError: the call does not fit, or uses something of the callable that the row does not have (`out=`).
        """
        form = self.spellings[spelling]
        values: dict[str, Any] = dict(form.fixed)
        layout = form.parameters
        if form.kind == "class" and form.constructor:
            split = max(0, len(args) - sum(not w.startswith("!") for w in form.parameters))
            layout = form.constructor[:split] + form.parameters
        for position, value in enumerate(args):
            word = layout[position] if position < len(layout) else None
            if word is None or word[0] == "!":
                what = f"{len(layout)} arguments at most" if word is None else f"no argument {word[1:]}"
                raise TypeError(f"{form} takes {what} here, got {len(args)}")
            if word[0] == "*":
                rest = args[position:]
                values[word[1:]] = rest[0] if len(rest) == 1 else tuple(rest)
                break
            values[word] = value
        for keyword, value in (keywords or {}).items():
            row = form.keywords.get(keyword)
            if row is None:
                raise TypeError(f"{form} takes no keyword {keyword!r} here")
            if row in values and row not in form.fixed:
                raise TypeError(f"{form} got {keyword!r} twice")
            values[row] = value
        for parameter in self.parameters:
            if parameter.name not in values:
                if parameter.required:
                    raise TypeError(f"{form} misses the argument {parameter.name!r}")
                values[parameter.name] = parameter.default
        names = [p.name for p in self.parameters]
        return Bound(
            self,
            spelling,
            tuple(values[n] for n in names[: self.arity]),
            {n: values[n] for n in names[self.arity :]},
        )

    def infer(
        self, bound: Bound, facts: Facts | None = None, fresh: Callable[[DimLike], Dim | int] | None = None
    ) -> Type | tuple[Type, ...] | Any:
        """The type of the result of a call whose operands (and possibly attributes) are types.

        Args:
            bound: from `bind`.
            facts: what is known about the symbols.
            fresh: called with an upper bound, names a size that only the data decides; default: `u0`, `u1`, ... not yet
                in the operands' shapes.

        Returns:
            A `Type`; for several results what NumPy returns them in: a `TupleType` or `ListType`.

        Raises:
            ShapeError, DTypeError: the reference would refuse these operands.
            NotStatic: the result depends on values that are not known.
        """
        form = self.spellings[bound.spelling]
        if _is_python_form(form) and self.python is not None and not any(_is_tensor(t) for t in bound.operands):
            return self.python(form, bound.operands, facts)
        call = Call(bound, facts, fresh)
        try:
            dtype = self.dtype(call)
            shape = self.shape(call)
        except OverflowError as error:
            raise OutOfRangeError(*error.args) from error
        if form.kind == "inplace" and isinstance(call.types[0], ArrayType):
            return _infer_in_place(self, call, dtype, shape)
        if isinstance(shape, list):
            dtypes = dtype if isinstance(dtype, list) else [dtype] * len(shape)
            types = tuple(self.kind(call, d, s, self.layout(call, s)) for d, s in zip(dtypes, shape, strict=True))
            return _pack(self.container, types)
        if isinstance(dtype, list):
            types = tuple(self.kind(call, d, shape, self.layout(call, shape)) for d in dtype)
            return _pack(self.container, types)
        return self.kind(call, dtype, shape, self.layout(call, shape))

    def alias(self, bound: Bound, facts: Facts | None = None) -> Alias | list[Alias]:
        """What each result is to the operands; of an immutable scalar "fresh" says nothing."""
        form = self.spellings[bound.spelling]
        if form.kind == "inplace" and isinstance(bound.operands[0], ArrayType):
            return same(0)
        return self.result if isinstance(self.result, Alias) else self.result(Call(bound, facts))

    def effects(self, bound: Bound, facts: Facts | None = None) -> Effect:
        """What the call writes."""
        form = self.spellings[bound.spelling]
        if form.kind == "inplace" and isinstance(bound.operands[0], ArrayType):
            return writes(0)
        return self.effect if isinstance(self.effect, Effect) else self.effect(Call(bound, facts))

    def evaluate(self, *operands: Any, **attributes: Any) -> Any:
        """Run the reference: operands by position, attributes by name."""
        return self.reference(*operands, **attributes)


def _operator_by_name(name: str) -> Operator:
    from tiercel.operators import get

    return get(name)


def _is_python_form(form: Spelling) -> bool:
    return form.kind in ("syntax", "inplace") or form.path.startswith("builtins.")


def _is_tensor(t: Any) -> bool:
    return isinstance(t, ArrayType | NpScalarType)


def _pack(container: Container | None, types: tuple[Type, ...]) -> Type:
    return ListType(types) if container == "list" else TupleType(types)


def _infer_in_place(row: Operator, call: Call, dtype: Any, shape: Any) -> Type:
    target: ArrayType = call.types[0]
    if isinstance(dtype, list) or isinstance(shape, list):
        raise DTypeError(f"{row.name} has several results and no in-place form")
    if not can_cast_in_place(dtype, target.dtype):
        raise DTypeError(
            f"in-place {row.name}: the result has dtype {dtype.name}, which NumPy does not cast to {target.dtype.name} "
            "under the rule 'same_kind'"
        )
    if shape != target.shape:
        widened = broadcast_shapes(shape, target.shape, facts=call.facts)
        if widened != target.shape and all(isinstance(d, int) for d in (*widened, *target.shape)):
            raise ShapeError(f"in-place {row.name}: the result {shape} does not fit into {target.shape}")
    return target


def can_cast_in_place(source: DType, target: DType) -> bool:
    """Whether a ufunc may write `source` into an array of `target` (casting='same_kind')."""
    return bool(np.can_cast(source.numpy, target.numpy, casting="same_kind"))

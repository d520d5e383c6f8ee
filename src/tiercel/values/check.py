"""Checking arguments against hints: once compiled to a predicate, and once written out to say what is wrong.

In: a tree of hints for each parameter. Out: `Checker.check(arguments)`, which returns if all hints hold and raises a
`ShapeError` or `DTypeError` naming argument, dimension, expected and got if not; and the tokens and facts that a
program may declare for its parameters.

Two forms of one check: `_compile` makes a predicate that may only say yes when every hint holds; anything else, odd
values included, is settled by `_Walk`, which is complete and slow. So the fast form may give up freely, and tests
compare the two. A symbol is one size over all arguments of a call; expressions are compared after all names are bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeAlias

import numpy as np

from tiercel.dtypes import DType, as_dtype, is_dtype
from tiercel.errors import DTypeError, ShapeError, TiercelError
from tiercel.shapes import (
    Dim,
    DimLike,
    Facts,
    Range,
    ShapeToken,
    Symbol,
    TensorDescriptor,
    evaluate,
    substitute,
    symbols_of,
)
from tiercel.values.spec import ANY_SIZE, DimSpec, TensorSpec

__all__ = [
    "AnyOf",
    "Checker",
    "Each",
    "Fields",
    "IntHint",
    "Items",
    "Keys",
    "Node",
    "OptionalHint",
    "TensorHint",
    "Values",
]


_PYTHON_SCALARS: Final = (bool, int, float, complex)


# ---- the tree --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TensorHint:
    """An array of this shape and dtype."""

    spec: TensorSpec


@dataclass(frozen=True, slots=True)
class IntHint:
    """An int in a range, which binds a name as a dimension does."""

    dim: DimSpec


@dataclass(frozen=True, slots=True)
class OptionalHint:
    """None, or what the item says."""

    item: Node


@dataclass(frozen=True, slots=True)
class AnyOf:
    """One of several hints, or an instance of one of the other types of the union."""

    items: tuple[Node, ...]
    others: tuple[type, ...]


@dataclass(frozen=True, slots=True)
class Each:
    """A list, tuple or other sequence, every element as the item says."""

    item: Node


@dataclass(frozen=True, slots=True)
class Items:
    """A tuple or list with these elements; None where an element has no hint."""

    items: tuple[Node | None, ...]


@dataclass(frozen=True, slots=True)
class Keys:
    """A mapping with at least these keys."""

    items: tuple[tuple[Any, Node], ...]


@dataclass(frozen=True, slots=True)
class Values:
    """A mapping, every value as the item says."""

    item: Node


@dataclass(frozen=True, slots=True)
class Fields:
    """An object with these attributes: a NamedTuple or a dataclass."""

    name: str
    items: tuple[tuple[str, Node], ...]


Node: TypeAlias = "TensorHint | IntHint | OptionalHint | AnyOf | Each | Items | Keys | Values | Fields"


def _children(node: Node) -> Iterator[Node]:
    match node:
        case TensorHint() | IntHint():
            return
        case OptionalHint(item) | Each(item) | Values(item):
            yield item
        case AnyOf(items):
            yield from items
        case Items(elements):
            yield from (item for item in elements if item is not None)
        case Keys(pairs) | Fields(items=pairs):
            yield from (item for _, item in pairs)


def _leaves(node: Node) -> Iterator[TensorHint | IntHint]:
    if isinstance(node, TensorHint | IntHint):
        yield node
    for child in _children(node):
        yield from _leaves(child)


# ---- the checker -----------------------------------------------------------------------------------------------------


class Checker:
    """The hints of one function. False as a condition if there are none.

    Args:
        parameters: names of the function's parameters, in order.
        nodes: the hint of each parameter that has one.
        reasons: parameters whose annotation could not be read, and why.

    Attributes:
        facts: ranges of the named sizes, from all hints together.

    Raises:
        ShapeError: hints that contradict each other, or an expression over a name that no dimension binds.
    """

    def __init__(
        self, parameters: Sequence[str], nodes: Mapping[str, Node], reasons: Sequence[tuple[str, str]] = ()
    ) -> None:
        self.parameters = tuple(parameters)
        self.nodes = dict(nodes)
        self.reasons = tuple(reasons)
        self.ranges = _named_ranges(self.nodes)
        self._positions = tuple((i, name, self.nodes[name]) for i, name in enumerate(parameters) if name in self.nodes)
        self._holds = _compile(self._positions, self.ranges)
        self._tokens: dict[str, ShapeToken] | None = None
        self.facts = Facts()
        for name, within in self.ranges.items():
            if within != ANY_SIZE:
                self.facts.set_range(Symbol(name), within)

    def __bool__(self) -> bool:
        return bool(self.nodes)

    def check(self, arguments: Sequence[Any] | Mapping[str, Any]) -> None:
        """Raise if an argument breaks its hint.

        Args:
            arguments: the values of all parameters in order (`*args` as a tuple, `**kwargs` as a dict), or by name.

        Raises:
            ShapeError: a rank, size, range, divisor, layout or kind of value differs from the hint.
            DTypeError: a dtype differs.
        """
        if isinstance(arguments, Mapping):
            arguments = [arguments.get(name) for name in self.parameters]
        if self._holds is None or not self._holds(arguments):
            walk = _Walk(self.ranges)
            for position, name, node in self._positions:
                walk.visit(node, arguments[position], name)
            walk.finish()

    def tokens(self) -> dict[str, ShapeToken]:
        """Return the declared shapes of the arrays among the arguments, by path: "x", "state['h']", "pair[0]".

        Left out are arrays that need not be there (behind None or a union, or in a list of any length). Sizes without a
        name get symbols of their own; `facts` holds the ranges, those of the unnamed sizes too.
        """
        if self._tokens is None:
            self._tokens = {path: self._token(spec) for path, spec in self._arrays()}
        return dict(self._tokens)

    def descriptors(self) -> dict[str, TensorDescriptor]:
        """Return token, dtype and layout of those arrays of `tokens` whose hint names a single dtype."""
        tokens = self.tokens()
        return {
            path: TensorDescriptor(tokens[path], spec.dtype.name, spec.layout or "strided")
            for path, spec in self._arrays()
            if spec.dtype is not None
        }

    def _arrays(self) -> Iterator[tuple[str, TensorSpec]]:
        for _, name, node in self._positions:
            yield from _arrays_in(node, name)

    def _token(self, spec: TensorSpec) -> ShapeToken:
        return ShapeToken(None if spec.rank is None else tuple(map(self._size, spec.dims)))

    def _size(self, entry: Any) -> DimLike:
        if not isinstance(entry, DimSpec):
            return entry  # type: ignore[no-any-return]
        if entry.name is not None:
            return Symbol(entry.name)
        symbol = self.facts.fresh_symbol()
        if entry.range != ANY_SIZE:
            self.facts.set_range(symbol, entry.range)
        return symbol


def _arrays_in(node: Node, path: str) -> Iterator[tuple[str, TensorSpec]]:
    """The arrays that are there in every call, with their paths."""
    match node:
        case TensorHint(spec):
            yield path, spec
        case Items(elements):
            for i, item in enumerate(elements):
                if item is not None:
                    yield from _arrays_in(item, f"{path}[{i}]")
        case Keys(pairs):
            for key, item in pairs:
                yield from _arrays_in(item, f"{path}[{key!r}]")
        case Fields(items=fields):
            for name, item in fields:
                yield from _arrays_in(item, f"{path}.{name}")


def _named_ranges(nodes: Mapping[str, Node]) -> dict[str, Range]:
    """The range of every name: what all its mentions have in common."""
    ranges: dict[str, Range] = {}
    used: dict[str, tuple[str, Dim]] = {}
    for parameter, node in nodes.items():
        for leaf in _leaves(node):
            for entry in leaf.spec.dims if isinstance(leaf, TensorHint) else (leaf.dim,):
                if isinstance(entry, Dim):
                    for symbol in symbols_of(entry):
                        used.setdefault(symbol.name, (parameter, entry))
                elif isinstance(entry, DimSpec) and entry.name is not None:
                    known = ranges.get(entry.name, ANY_SIZE)
                    both = known.intersect(entry.range)
                    if both is None:
                        raise ShapeError(
                            f"{parameter}: {entry.name} is declared as {entry.range} here and as {known} elsewhere; "
                            "no size is both"
                        )
                    ranges[entry.name] = both
    for name, (parameter, entry) in used.items():
        if name not in ranges:
            raise ShapeError(
                f"{parameter}: dimension {entry} uses {name}, which is the size of no dimension; "
                f"give {name!r} as a dimension of some argument"
            )
    return ranges


# ---- the complete check ----------------------------------------------------------------------------------------------


class _Walk:
    """One call's arguments against the hints; keeps what the names are bound to, and where."""

    def __init__(self, ranges: Mapping[str, Range]) -> None:
        self.ranges = ranges
        self.bound: dict[str, tuple[int, str]] = {}
        self.later: list[tuple[str, TensorSpec, tuple[int, ...], int, Dim]] = []

    def visit(self, node: Node, value: Any, path: str) -> None:
        match node:
            case TensorHint(spec):
                self._tensor(spec, value, path)
            case IntHint(entry):
                self._int(entry, value, path)
            case OptionalHint(item):
                if value is not None:
                    self.visit(item, value, path)
            case AnyOf():
                self._any_of(node, value, path)
            case Each(item):
                for i, element in enumerate(_sequence(value, path, None)):
                    self.visit(item, element, f"{path}[{i}]")
            case Items(items):
                for i, (child, element) in enumerate(zip(items, _sequence(value, path, len(items)), strict=True)):
                    if child is not None:
                        self.visit(child, element, f"{path}[{i}]")
            case Keys(pairs):
                mapping = _mapping(value, path)
                for key, item in pairs:
                    if key not in mapping:
                        have = ", ".join(map(repr, mapping)) or "none"
                        raise ShapeError(f"{path}: expected the key {key!r}, got the keys {have}")
                    self.visit(item, mapping[key], f"{path}[{key!r}]")
            case Values(item):
                for key, element in _mapping(value, path).items():
                    self.visit(item, element, f"{path}[{key!r}]")
            case Fields(type_name, fields):
                for name, item in fields:
                    if not hasattr(value, name):
                        raise ShapeError(f"{path}: expected {type_name} with a field {name!r}, got {_describe(value)}")
                    self.visit(item, getattr(value, name), f"{path}.{name}")

    def finish(self) -> None:
        """Check the sizes that are expressions."""
        env = {name: size for name, (size, _) in self.bound.items()}
        for path, spec, shape, axis, entry in self.later:
            names = sorted(symbol.name for symbol in symbols_of(entry))
            if not all(name in env for name in names):
                # A name that only an argument left out (None) binds says nothing about this call.
                continue
            wanted = evaluate(entry, env)
            if shape[axis] != wanted:
                given = ", ".join(f"{name} = {env[name]} from {self.bound[name][1]}" for name in names)
                _refuse(path, spec, shape, f"dimension {axis} must be {entry} = {wanted} ({given})")

    def _tensor(self, spec: TensorSpec, value: Any, path: str) -> None:
        # np.float64 is a float as well.
        if isinstance(value, _PYTHON_SCALARS) and not isinstance(value, np.generic):
            shape: tuple[int, ...] = ()
        else:
            found = getattr(value, "shape", None)
            if found is None:
                raise ShapeError(
                    f"{path}: expected {_text(spec)}, got {_describe(value)}, which has no shape; "
                    f"pass np.asarray({path}) if it is meant as an array"
                )
            shape = tuple(int(size) for size in found)
            self._dtype(spec, value, shape, path)
        self._shape(spec, shape, path)
        if spec.layout is not None and not _has_layout(value, spec.layout):
            fix = "np.ascontiguousarray" if spec.layout == "C" else "np.asfortranarray"
            raise ShapeError(
                f"{path}: expected {_text(spec)} contiguous in {spec.layout} order, "
                f"got strides {getattr(value, 'strides', None)}; convert it with {fix}({path})"
            )

    def _dtype(self, spec: TensorSpec, value: Any, shape: tuple[int, ...], path: str) -> None:
        if spec.dtypes is None:
            return
        dtype = getattr(value, "dtype", None)
        if is_dtype(dtype) and as_dtype(dtype) in spec.dtypes:
            return
        wanted = " or ".join(d.name for d in spec.dtypes)
        got = as_dtype(dtype).name if is_dtype(dtype) else str(dtype)
        raise DTypeError(
            f"{path}: expected {spec}, got {got}[{', '.join(map(str, shape))}]: the dtype must be {wanted}"
            + (f"; convert it with {path}.astype({spec.dtype.name!r})" if spec.dtype is not None else "")
        )

    def _shape(self, spec: TensorSpec, shape: tuple[int, ...], path: str) -> None:
        dims = spec.dims
        if spec.rank is None:
            front = dims.index(Ellipsis)
            back = len(dims) - front - 1
            if len(shape) < front + back:
                _refuse(path, spec, shape, f"at least {front + back} dimensions are needed, {len(shape)} are there")
            pairs = [*range(front), *range(len(shape) - back, len(shape))]
            entries = [*dims[:front], *dims[front + 1 :]]
        else:
            if len(shape) != len(dims):
                _refuse(path, spec, shape, f"{_count(len(dims), 'dimension')} expected, {len(shape)} are there")
            pairs, entries = list(range(len(dims))), list(dims)
        for axis, entry in zip(pairs, entries, strict=True):
            size = shape[axis]
            if isinstance(entry, int):
                if size != entry:
                    _refuse(path, spec, shape, f"dimension {axis} must be {entry}")
            elif isinstance(entry, DimSpec):
                reason = self._bind(entry, size, f"{path} dimension {axis}")
                if reason:
                    _refuse(path, spec, shape, f"dimension {axis} must be {reason}")
            elif isinstance(entry, Dim):
                self.later.append((path, spec, shape, axis, entry))

    def _bind(self, entry: DimSpec, size: int, where: str) -> str | None:
        """Bind a name; what the size must be if it cannot be this one."""
        name = entry.name
        within = entry.range if name is None else self.ranges[name]
        if name is not None:
            known = self.bound.setdefault(name, (size, where))
            if known[0] != size:
                return f"{name} = {known[0]}, as {known[1]} has it"
        if not within.contains(size):
            return f"{name or 'a size'} in {_say_range(within)}"
        return None

    def _int(self, entry: DimSpec, value: Any, path: str) -> None:
        if isinstance(value, bool | np.bool) or not isinstance(value, int | np.integer):
            raise ShapeError(f"{path}: expected an int ({entry}), got {_describe(value)}")
        reason = self._bind(entry, int(value), path)
        if reason:
            raise ShapeError(f"{path}: expected an int ({entry}), got {value}: it must be {reason}")

    def _any_of(self, node: AnyOf, value: Any, path: str) -> None:
        if _is_one_of(value, node.others):
            return
        first: TiercelError | None = None
        for item in node.items:
            trial = _Walk(self.ranges)
            trial.bound = dict(self.bound)
            try:
                trial.visit(item, value, path)
                trial.finish()
            except TiercelError as error:
                first = first or error
                continue
            self.bound = trial.bound
            self.later += trial.later
            return
        assert first is not None
        if len(node.items) > 1:
            raise type(first)(f"{first} (nor does one of the other {len(node.items) - 1} forms of the hint fit)")
        raise first


def _refuse(path: str, spec: TensorSpec, shape: tuple[int, ...], reason: str) -> NoReturn:
    raise ShapeError(f"{path}: expected {_text(spec)}, got {shape}: {reason}")


def _text(spec: TensorSpec) -> str:
    return str(TensorSpec(spec.dims))


def _say_range(within: Range) -> str:
    if within.multiple == 1:
        return str(within)
    bounds = str(Range(within.lo, within.hi))
    rest = f"a multiple of {within.multiple}"
    return rest if bounds == "?" else f"{bounds} and {rest}"


def _is_one_of(value: Any, types: tuple[type, ...]) -> bool:
    try:
        return isinstance(value, types)
    except TypeError:
        # A type that cannot be asked, such as a protocol: it may be one.
        return True


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _describe(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _has_layout(value: Any, layout: str) -> bool:
    flags = getattr(value, "flags", None)
    if flags is None:
        return bool(value.is_contiguous()) if layout == "C" and hasattr(value, "is_contiguous") else False
    return bool(flags.c_contiguous if layout == "C" else flags.f_contiguous)


def _sequence(value: Any, path: str, length: int | None) -> Sequence[Any]:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise ShapeError(f"{path}: expected a list or tuple of hinted values, got {_describe(value)}")
    if length is not None and len(value) != length:
        raise ShapeError(f"{path}: expected {_count(length, 'element')}, got {len(value)}")
    return value


def _mapping(value: Any, path: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise ShapeError(f"{path}: expected a mapping of hinted values, got {_describe(value)}")
    return value


# ---- the compiled check ----------------------------------------------------------------------------------------------


class _NoFastFormError(Exception):
    """The tree has a node whose check is not worth compiling."""


def _compile(
    positions: tuple[tuple[int, str, Node], ...], ranges: Mapping[str, Range]
) -> Callable[[Sequence[Any]], bool] | None:
    """Return a predicate over the arguments that is true only if every hint holds; None if there is no fast form."""
    if not positions:
        return lambda arguments: True
    emitter = _Emitter(ranges)
    try:
        for position, _, node in positions:
            emitter.emit(node, f"a[{position}]", 2)
        emitter.emit_expressions()
    except _NoFastFormError:
        return None
    lines = [
        "def holds(a):",
        *(f"    {variable} = None" for variable in emitter.preset),
        "    try:",
        *emitter.lines,
        "    except Exception:",  # a value that is no array: the complete check says what it is instead
        "        return False",
        "    return True",
    ]
    exec(compile("\n".join(lines), "<tiercel hint check>", "exec"), emitter.names)
    return emitter.names["holds"]  # type: ignore[no-any-return]


def _broadcast(*sizes: int) -> int:
    return next((size for size in sizes if size != 1), 1)


class _Emitter:
    """Lines of the predicate. `names` holds the objects that the code refers to."""

    def __init__(self, ranges: Mapping[str, Range]) -> None:
        self.ranges = ranges
        self.lines: list[str] = []
        self.names: dict[str, Any] = {"bcast": _broadcast}
        self.preset: list[str] = []
        self.certain: set[str] = set()
        self.later: list[tuple[str, Dim]] = []
        self.conditional = False
        self._fresh = 0

    def fresh(self, prefix: str) -> str:
        self._fresh += 1
        return f"{prefix}{self._fresh}"

    def add(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)

    def constant(self, value: Any) -> str:
        name = self.fresh("K")
        self.names[name] = value
        return name

    def emit(self, node: Node, value: str, depth: int) -> None:
        match node:
            case TensorHint(spec):
                self._tensor(spec, value, depth)
            case IntHint(entry):
                variable = self.fresh("n")
                self.add(depth, f"{variable} = {value}")
                # Other integers than int itself are left to the complete check.
                self.add(depth, f"if {variable}.__class__ is not int: return False")
                self._bind(entry, variable, depth)
            case OptionalHint(item):
                variable = self.fresh("o")
                self.add(depth, f"{variable} = {value}")
                self.add(depth, f"if {variable} is not None:")
                self._emit_conditional(item, variable, depth + 1)
            case Each(item):
                variable, element = self.fresh("t"), self.fresh("e")
                self.add(depth, f"{variable} = {value}")
                self.add(depth, f"if not isinstance({variable}, (tuple, list)): return False")
                self.add(depth, f"for {element} in {variable}:")
                self._emit_conditional(item, element, depth + 1)
            case Values(item):
                variable, element = self.fresh("m"), self.fresh("e")
                self.add(depth, f"{variable} = {value}")
                self.add(depth, f"if {variable}.__class__ is not dict: return False")
                self.add(depth, f"for {element} in {variable}.values():")
                self._emit_conditional(item, element, depth + 1)
            case Items(items):
                variable = self.fresh("t")
                self.add(depth, f"{variable} = {value}")
                self.add(depth, f"if not isinstance({variable}, (tuple, list)) or len({variable}) != {len(items)}:")
                self.add(depth + 1, "return False")
                for i, child in enumerate(items):
                    if child is not None:
                        self.emit(child, f"{variable}[{i}]", depth)
            case Keys(pairs):
                variable = self.fresh("m")
                self.add(depth, f"{variable} = {value}")
                self.add(depth, f"if {variable}.__class__ is not dict: return False")
                for key, item in pairs:
                    self.emit(item, f"{variable}[{self.constant(key)}]", depth)
            case Fields(items=fields):
                variable = self.fresh("f")
                self.add(depth, f"{variable} = {value}")
                for name, item in fields:
                    self.emit(item, f"{variable}.{name}", depth)
            case AnyOf():
                raise _NoFastFormError

    def _emit_conditional(self, item: Node, value: str, depth: int) -> None:
        """Emit what may run any number of times, so that the names it binds may stay unbound."""
        was, self.conditional = self.conditional, True
        self.emit(item, value, depth)
        self.conditional = was

    def emit_expressions(self) -> None:
        for variable, entry in self.later:
            symbols = symbols_of(entry)
            if any(f"s_{symbol.name}" in self.preset for symbol in symbols):
                raise _NoFastFormError
            text = str(substitute(entry, {symbol.name: Symbol(f"s_{symbol.name}") for symbol in symbols}))
            self.add(2, f"if {variable} != {text}: return False")

    def _tensor(self, spec: TensorSpec, value: str, depth: int) -> None:
        variable, shape = self.fresh("x"), self.fresh("d")
        self.add(depth, f"{variable} = {value}")
        self.add(depth, f"{shape} = {variable}.shape")
        dims = spec.dims
        if spec.rank is None:
            front = dims.index(Ellipsis)
            self.add(depth, f"if len({shape}) < {len(dims) - 1}: return False")
            axes = [i if i < front else i - len(dims) for i in range(len(dims))]
        else:
            self.add(depth, f"if len({shape}) != {len(dims)}: return False")
            axes = list(range(len(dims)))
        for axis, entry in zip(axes, dims, strict=True):
            size = f"{shape}[{axis}]"
            if isinstance(entry, int):
                self.add(depth, f"if {size} != {entry}: return False")
            elif isinstance(entry, DimSpec):
                self._bind(entry, size, depth)
            elif isinstance(entry, Dim):
                if self.conditional:
                    raise _NoFastFormError
                self.later.append((size, entry))
        self._dtype(spec.dtypes, variable, depth)
        if spec.layout is not None:
            self.add(depth, f"if not {variable}.flags.{'c' if spec.layout == 'C' else 'f'}_contiguous: return False")

    def _dtype(self, dtypes: tuple[DType, ...] | None, variable: str, depth: int) -> None:
        if dtypes is None:
            return
        found = self.fresh("k")
        self.add(depth, f"{found} = {variable}.dtype")
        if len(dtypes) == 1:
            numpy = self.constant(dtypes[0].numpy)
            self.add(depth, f"if {found} is not {numpy} and {found} != {numpy}: return False")
        else:
            self.add(depth, f"if {found} not in {self.constant(frozenset(dtypes))}: return False")

    def _bind(self, entry: DimSpec, size: str, depth: int) -> None:
        name = entry.name
        if name is None:
            self._range(entry.range, size, depth)
            return
        variable = f"s_{name}"
        if name in self.certain:
            self.add(depth, f"if {size} != {variable}: return False")
        elif self.conditional or variable in self.preset:
            # Bound on some paths only.
            if variable not in self.preset:
                self.preset.append(variable)
            self.add(depth, f"if {variable} is None:")
            self.add(depth + 1, f"{variable} = {size}")
            self._range(self.ranges[name], variable, depth + 1)
            self.add(depth, f"elif {variable} != {size}: return False")
        else:
            self.certain.add(name)
            self.add(depth, f"{variable} = {size}")
            self._range(self.ranges[name], variable, depth)

    def _range(self, within: Range, size: str, depth: int) -> None:
        tests = []
        if within.hi is not None:
            tests.append(f"not {within.lo} <= {size} <= {within.hi}")
        elif within.lo:
            tests.append(f"{size} < {within.lo}")
        if within.multiple > 1:
            tests.append(f"{size} % {within.multiple} != {within.remainder}")
        if tests:
            self.add(depth, f"if {' or '.join(tests)}: return False")

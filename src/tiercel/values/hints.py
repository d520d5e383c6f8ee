"""Reading hints out of annotations and `specs=`.

In: a function, and what `jit(specs={...})` was given. Out: a `Checker`. Read are `Annotated[..., tc.spec(...)]`,
`Annotated[int, tc.dim(...)]`, `tc.Tensor[None, "T", 128]`, `tc.Tensor(shape=[...])`, `Float32[Array, "b t"]` of
jaxtyping (by its attributes: the package is not needed), and any of these inside `Optional`, unions, lists, tuples,
dicts, NamedTuples, dataclasses and TypedDicts.

Invariant: an annotation can do no harm. One that cannot be evaluated (a forward reference, a name imported only for
type checkers) is ignored with a reason; only a hint that contradicts another raises. `specs=` is an instruction, so
there everything not understood raises.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Union, get_args, get_origin

from tiercel.dtypes import DTYPES, DType, as_dtype, is_dtype
from tiercel.errors import DTypeError, ShapeError, suggest
from tiercel.values.check import (
    AnyOf,
    Checker,
    Each,
    Fields,
    IntHint,
    Items,
    Keys,
    Node,
    OptionalHint,
    TensorHint,
    Values,
)
from tiercel.values.spec import DimSpec, TensorSpec, spec

__all__ = ["specs_of"]

_NONE_TYPE: Final = type(None)
_UNIONS: Final = (Union, types.UnionType)
_MAX_NESTING: Final = 16

# Not Iterable: looking at the elements of an iterator would use them up.
_EACH: Final = (list, collections.abc.Sequence, collections.abc.MutableSequence)
_VALUES: Final = (dict, collections.abc.Mapping, collections.abc.MutableMapping, collections.OrderedDict)


def specs_of(function: Callable[..., Any], specs: Mapping[str, Any] | None = None) -> Checker:
    """Return the checks that the hints of a function ask for.

    Names in string annotations are looked up now, in the function's module and closure; what is not defined yet is
    ignored with a reason (`Checker.reasons`).

    Args:
        function: a Python function (wrappers are looked through).
        specs: hints by parameter name, which replace annotations: a `tc.spec(...)`, `tc.dim(...)` or any annotated
            form; a dict of hints by key; a tuple of hints; a list of one hint for a sequence of any length.

    Raises:
        TypeError: `specs` names no parameter, or holds something that is no hint.
        ShapeError, DTypeError: hints that contradict each other or are malformed.
    """
    function = inspect.unwrap(function)
    annotations = _annotations(function)
    if not annotations and not specs:
        return _no_hints(function)
    parameters = inspect.signature(function).parameters
    nodes: dict[str, Node] = {}
    reasons: list[tuple[str, str]] = []
    for name, parameter in parameters.items():
        if (specs and name in specs) or name not in annotations:
            continue
        try:
            node = _Reader(function).read(annotations[name])
        except (ShapeError, DTypeError):
            raise
        except Exception as error:  # noqa: BLE001  an annotation is the user's expression
            reasons.append((name, f"annotation {annotations[name]!r} ignored: {type(error).__name__}: {error}"))
            continue
        if node is not None:
            nodes[name] = _collected(node, parameter.kind)
    for name, value in (specs or {}).items():
        if name not in parameters:
            near = suggest(name, list(parameters)) or f"; it has {', '.join(parameters) or 'none'}"
            raise TypeError(f"specs: {function.__name__}() has no parameter {name!r}{near}")
        nodes[name] = _collected(_read_spec(value, name, function), parameters[name].kind)
    ordered = {name: nodes[name] for name in parameters if name in nodes}
    return Checker(tuple(parameters), ordered, reasons)


def _no_hints(function: Callable[..., Any]) -> Checker:
    code = getattr(function, "__code__", None)
    if code is None:
        return Checker((), {})
    stars = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return Checker(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + stars], {})


def _annotations(function: Callable[..., Any]) -> dict[str, Any]:
    if sys.version_info >= (3, 14):
        import annotationlib

        return annotationlib.get_annotations(function, format=annotationlib.Format.FORWARDREF)
    found = getattr(function, "__annotations__", None)
    return dict(found) if isinstance(found, Mapping) else {}


def _collected(node: Node, kind: Any) -> Node:
    """`*args: hint` and `**kwargs: hint` mean every element."""
    if kind is inspect.Parameter.VAR_POSITIONAL:
        return Each(node)
    if kind is inspect.Parameter.VAR_KEYWORD:
        return Values(node)
    return node


# ---- annotations -----------------------------------------------------------------------------------------------------


class _Reader:
    """Reads one annotation, evaluating its strings where the function was written."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.globals: dict[str, Any] = getattr(function, "__globals__", {})
        self.locals = _visible_names(function)
        self.seen: list[type] = []

    def read(self, annotation: Any, depth: int = 0) -> Node | None:
        """Return the hint in an annotation, or None if there is none."""
        if depth > _MAX_NESTING:
            return None
        if isinstance(annotation, typing.ForwardRef):
            annotation = annotation.__forward_arg__
        if isinstance(annotation, str):
            return self.read(eval(annotation, self.globals, self.locals), depth + 1)
        if isinstance(annotation, TensorSpec):
            return TensorHint(annotation)
        if isinstance(annotation, DimSpec):
            return IntHint(annotation)
        if isinstance(annotation, type):
            found = _read_jaxtyping(annotation)
            return found if found is not None else self._fields(annotation, depth)
        origin = get_origin(annotation)
        if origin is None:
            # `type X = ...` of Python 3.12
            value = getattr(annotation, "__value__", None)
            return None if value is None else self.read(value, depth + 1)
        return self._generic(annotation, origin, get_args(annotation), depth + 1)

    def _generic(self, annotation: Any, origin: Any, args: tuple[Any, ...], depth: int) -> Node | None:
        if origin is Annotated:
            for extra in annotation.__metadata__:
                if isinstance(extra, TensorSpec | DimSpec):
                    return self.read(extra, depth)
            return self.read(args[0], depth)
        if origin in _UNIONS:
            return self._union(args, depth)
        if origin is tuple:
            if len(args) == 2 and args[1] is Ellipsis:
                item = self.read(args[0], depth)
                return None if item is None else Each(item)
            items = tuple(self.read(arg, depth) for arg in args)
            return None if all(item is None for item in items) else Items(items)
        if origin in _EACH and args:
            item = self.read(args[0], depth)
            return None if item is None else Each(item)
        if origin in _VALUES and len(args) == 2:
            item = self.read(args[1], depth)
            return None if item is None else Values(item)
        if origin in (typing.Required, typing.NotRequired, typing.Final, typing.ClassVar) and args:
            return self.read(args[0], depth)
        return self._fields(origin, depth) if isinstance(origin, type) else None

    def _union(self, args: tuple[Any, ...], depth: int) -> Node | None:
        members = [(arg, self.read(arg, depth)) for arg in args if arg is not _NONE_TYPE and arg is not None]
        hinted = tuple(node for _, node in members if node is not None)
        if not hinted:
            return None
        others = [arg if isinstance(arg, type) else get_origin(arg) for arg, node in members if node is None]
        if not all(isinstance(other, type) and other is not Any for other in others):
            # A member we know nothing about may take any value.
            return None
        # As type checkers have it, an int may stand for a float, and both for a complex.
        others += [int] if float in others else [int, float] if complex in others else []
        node: Node = hinted[0] if len(hinted) == 1 and not others else AnyOf(hinted, tuple(others))
        return OptionalHint(node) if len(members) < len(args) else node

    def _fields(self, cls: type, depth: int) -> Node | None:
        """The hints in the fields of a NamedTuple, dataclass or TypedDict."""
        if cls in self.seen:
            return None
        keyed = typing.is_typeddict(cls)
        if not (keyed or dataclasses.is_dataclass(cls) or (issubclass(cls, tuple) and hasattr(cls, "_fields"))):
            return None
        here = _Reader.__new__(_Reader)
        here.globals = vars(sys.modules.get(cls.__module__, types.ModuleType("none")))
        here.locals = {**self.locals, **vars(cls)}
        here.seen = [*self.seen, cls]
        found: list[tuple[str, Node]] = []
        for name, annotation in _class_annotations(cls).items():
            try:
                node = here.read(annotation, depth + 1)
            except NameError:
                # A field that nobody can resolve here says nothing; the others still count.
                continue
            if node is not None:
                found.append((name, node))
        if not found:
            return None
        return Keys(tuple(found)) if keyed else Fields(cls.__name__, tuple(found))


def _class_annotations(cls: type) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if sys.version_info >= (3, 14):
            import annotationlib

            out.update(annotationlib.get_annotations(base, format=annotationlib.Format.FORWARDREF))
        else:
            out.update(inspect.get_annotations(base))
    return out


def _visible_names(function: Callable[..., Any]) -> dict[str, Any]:
    names = {p.__name__: p for p in getattr(function, "__type_params__", ())}
    code = getattr(function, "__code__", None)
    for name, cell in zip(getattr(code, "co_freevars", ()), getattr(function, "__closure__", None) or (), strict=False):
        try:
            names[name] = cell.cell_contents
        except ValueError:
            continue
    return names


# ---- jaxtyping -------------------------------------------------------------------------------------------------------


def _read_jaxtyping(annotation: type) -> Node | None:
    """`Float32[Array, "batch time 128"]` is a class with the attributes `dim_str` and `dtypes`."""
    text = getattr(annotation, "dim_str", None)
    if not isinstance(text, str) or not hasattr(annotation, "dtypes"):
        return None
    dtypes = _jaxtyping_dtypes(annotation.dtypes)
    return TensorHint(_jaxtyping_spec(text, dtypes))


@functools.cache
def _jaxtyping_spec(text: str, dtypes: tuple[DType, ...] | None) -> TensorSpec:
    dims = [_jaxtyping_dim(word) for word in text.split()]
    return spec(*dims, dtype=dtypes)


def _jaxtyping_dim(word: str) -> Any:
    if "=" in word:
        # A documented size: "rows=4".
        word = word.split("=", 1)[1]
    if word == "..." or word.startswith(("*", "#*")):
        return ...
    if word[0] in "_#?" or not re.fullmatch(r"[\w+\-*/%() ]+", word):
        # Any size; a size that may be 1 as well; one that differs by leaf; an expression over Python values.
        return None
    return word


def _jaxtyping_dtypes(names: Any) -> tuple[DType, ...] | None:
    if not isinstance(names, list | tuple):
        return None  # `Shaped`: any
    known = {d.name for d in DTYPES}
    found = tuple(as_dtype(name) for name in names if name in known)
    return found or None


# ---- specs= ----------------------------------------------------------------------------------------------------------


def _read_spec(value: Any, path: str, function: Callable[..., Any]) -> Node:
    if isinstance(value, Mapping):
        return Keys(tuple((key, _read_spec(item, f"{path}[{key!r}]", function)) for key, item in value.items()))
    if isinstance(value, list | tuple) and value and not any(_is_size(item) for item in value):
        if isinstance(value, list) and len(value) == 1:
            return Each(_read_spec(value[0], f"{path}[0]", function))
        items = [None if v is None else _read_spec(v, f"{path}[{i}]", function) for i, v in enumerate(value)]
        if any(item is not None for item in items):
            return Items(tuple(items))
    if not isinstance(value, str | list | tuple) and value is not None:
        node = _Reader(function).read(value)
        if node is not None:
            return node
    shown = ", ".join(map(repr, value)) if isinstance(value, list | tuple) else repr(value)
    raise TypeError(
        f"specs[{path!r}]: expected tc.spec(...), a dict, tuple or list of them, or an annotation with a hint, got "
        f"{value!r}" + ("" if is_dtype(value) else f"; for an array of such dimensions write tc.spec({shown})")
    )


def _is_size(x: Any) -> bool:
    return isinstance(x, int | str) or x is Ellipsis

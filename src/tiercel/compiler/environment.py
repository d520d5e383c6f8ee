"""What a trace may assume about the world around a function, and the guards that keep it true.

In: the function object whose bytecode is traced, and the sampled values of its globals, cells and attributes. Out:
known objects and constants, each with a `Condition` that the entry checks again at every call. Attributes of the
modules numpy and tiercel, and of their submodules, count as constants. Tensors found in the environment become hidden
inputs.
"""

from __future__ import annotations

import builtins
import inspect
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tiercel.bytecode.program import Function
from tiercel.compiler.abstract import Source, Untraceable

CONSTANT_PACKAGES = ("numpy", "tiercel", "math")
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))


@dataclass(frozen=True, slots=True)
class Condition:
    """`source` still gives what it gave.

    The same object ("identity"), an equal value of the same type ("value"), a method of the same function ("function"),
    a tuple or list of so many items ("tuple", "list"), anything of that length ("length"), an object of exactly this
    class ("class"), or a dict with these keys in this order ("dict").
    """

    source: Source
    what: Literal["identity", "value", "function", "tuple", "dict", "list", "class", "length"]
    expected: Any


class Environment:
    """The surroundings of one function.

    Args:
        function: the Python function object.
        program_of: gives the bytecode and constants of a Python function that may be traced through, or None.
    """

    def __init__(
        self,
        function: types.FunctionType,
        program_of: Callable[[types.FunctionType], tuple[Function, Sequence[Any]] | None],
    ) -> None:
        self.function = function
        self.program_of = program_of
        self.conditions: dict[tuple[Source, str], Condition] = {}
        self.classes: list[type] = []  # named tuples that results are made of
        self.functions: list[types.FunctionType] = [function]  # whose globals and cells conditions speak of

    def child(self, function: types.FunctionType) -> Environment:
        """The surroundings of a function called from here; conditions are shared."""
        inner = Environment(function, self.program_of)
        inner.conditions, inner.functions, inner.classes = self.conditions, self.functions, self.classes
        self.functions.append(function)
        return inner

    def require(
        self,
        source: Source,
        what: Literal["identity", "value", "function", "tuple", "dict", "list", "class", "length"],
        expected: Any,
    ) -> None:
        """Note a condition."""
        if source[0] != "constant":
            self.conditions.setdefault((source, what), Condition(source, what, expected))

    def read_global(self, name: str) -> tuple[Any, Source]:
        """A name of the function's module, or a builtin."""
        source: Source = ("global", (id(self.function.__globals__), name))
        values = self.function.__globals__
        if name in values:
            return values[name], source
        if hasattr(builtins, name):
            return getattr(builtins, name), source
        raise Untraceable(f"the name {name} is not defined")

    def read_cell(self, position: int) -> tuple[Any, Source]:
        """The content of a captured cell."""
        closure = self.function.__closure__ or ()
        try:
            return closure[position].cell_contents, ("cell", (id(self.function), position))
        except (IndexError, ValueError):
            raise Untraceable("a variable of the enclosing function that has no value yet") from None

    def read_attribute(self, owner: Any, source: Source, name: str) -> tuple[Any, Source]:
        """An attribute of a known object, read without running user code.

        Raises:
            Untraceable: the attribute is computed (a property, `__getattr__`), or missing.
        """
        if isinstance(owner, types.ModuleType):
            value = getattr(owner, name, _MISSING)
            if value is _MISSING:
                raise Untraceable(f"module {owner.__name__} has no attribute {name}")
            if owner.__name__.partition(".")[0] in CONSTANT_PACKAGES:
                return value, ("constant", None)
            return value, ("attribute", (source, name))
        found = inspect.getattr_static(owner, name, _MISSING)
        if found is _MISSING:
            raise Untraceable(f"{type(owner).__name__} has no plain attribute {name}")
        where: Source = ("attribute", (source, name))
        if isinstance(owner, type):
            if isinstance(found, staticmethod | classmethod | types.FunctionType) or not hasattr(found, "__get__"):
                return getattr(owner, name), where
            raise Untraceable(f"the attribute {name} of class {owner.__name__} is computed")
        in_instance = name in getattr(owner, "__dict__", {})
        if in_instance or isinstance(found, types.FunctionType | staticmethod | classmethod):
            return getattr(owner, name), where
        if isinstance(found, types.MemberDescriptorType) or not hasattr(found, "__get__"):
            return getattr(owner, name), where
        raise Untraceable(f"the attribute {name} of {type(owner).__name__} is computed by Python code")


_MISSING = object()


def is_plain(value: Any) -> bool:
    """An immutable constant that may be written into code."""
    if type(value) is tuple:
        return all(is_plain(item) for item in value)
    return type(value) in _PLAIN


def read(
    source: Source, arguments: tuple[Any, ...], globals_: dict[int, dict[str, Any]], functions: dict[int, Any]
) -> Any:
    """Read a source again at a call.

    Args:
        source: as a condition or hidden input has it.
        arguments: the arguments of this call, by register.
        globals_: the globals dictionaries by id.
        functions: function objects by id, for cells.

    Raises:
        Any error of the read; the caller treats it as a miss.
    """
    kind, detail = source
    if kind == "register":
        return arguments[detail]
    if kind == "global":
        where, name = detail
        values = globals_[where]
        return values[name] if name in values else getattr(builtins, name)
    if kind == "cell":
        where, position = detail
        return functions[where].__closure__[position].cell_contents
    if kind == "attribute":
        return getattr(read(detail[0], arguments, globals_, functions), detail[1])
    if kind == "item":
        return read(detail[0], arguments, globals_, functions)[detail[1]]
    raise LookupError(f"no value at {source}")

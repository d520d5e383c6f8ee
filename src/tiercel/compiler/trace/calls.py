"""Calls: operators as objects, methods of arrays, known classes, and Python functions walked in place.

In: an abstract callee with abstract arguments. Out: the abstract result. A Python function whose bytecode is known is
walked in a frame of its own whose nodes carry the instruction of the call; its parameters are bound as Python binds
them.

Invariant: a function that is walked is guarded by identity, so its code, defaults and closure are what they were.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tiercel.compiler.abstract import Abstract, Known, Mapping, Method, RaggedRef, Tuple, Unknown, Untraceable
from tiercel.compiler.graph import Value
from tiercel.compiler.trace.objects import Cell, is_named_tuple, object_condition, operator_of, owner_of, unwrapped
from tiercel.compiler.trace.ragged import call_ragged
from tiercel.compiler.trace.scalars import Scalars
from tiercel.compiler.trace.state import MAX_DEPTH, Raised, Returned
from tiercel.dtypes import as_dtype, is_dtype
from tiercel.operators import find_method
from tiercel.operators.types import ArrayType, NpScalarType, PyFloatType
from tiercel.shapes import Dim


class Calls(Scalars):
    """Adds calls."""

    def attribute_of(self, owner: Known, name: str) -> Abstract:
        """An attribute of a known object."""
        value, source = self.environment.read_attribute(owner.value, owner.source, name)
        if isinstance(value, types.MethodType):
            if value.__self__ is type(owner.value):
                self.trace.classes_at[source] = ("attribute", (owner.source, "__class__"))
            elif value.__self__ is not owner.value:
                raise Untraceable(f"{name}, a method of another object")
            elif isinstance(owner.value, type):
                self.trace.classes_at[source] = owner.source
        if source[0] != "constant" and owner.source[0] == "constant":
            raise Untraceable(f"{name}, an attribute of a constant")
        if source[0] == "constant":
            return self.constant(value)
        return self.sampled(value, source)

    def call(self, callee: Abstract, args: list[Abstract], keywords: dict[str, Abstract]) -> Abstract:
        """Call something."""
        if isinstance(callee, Method):
            return self.call_method(callee, args, keywords)
        if not isinstance(callee, Known):
            raise Untraceable("a call of something that is not known")
        target = callee.value
        found = operator_of(target)
        if found is not None:
            row, spelling = found
            if isinstance(target, type):
                return Known(
                    target(*(self.static(a) for a in args), **{k: self.static(v) for k, v in keywords.items()})
                )
            form = row.spellings[spelling]
            if form.kind == "class":
                given = {n: getattr(target, n) for n in type(target).__slots__}
                constructed = {n: self.constant(v) for n, v in given.items()}
                return self.apply(row, spelling, args, {**constructed, **keywords})
            return self.apply(row, spelling, args, keywords)
        if isinstance(target, types.MethodType):
            if isinstance(target.__self__, type):
                found_at = self.trace.classes_at.get(callee.source)
                if found_at is None:
                    raise Untraceable("a class method whose class is not known")
                receiver = Known(target.__self__, found_at)
            else:
                receiver = Known(target.__self__, owner_of(callee.source))
                self.environment.require(owner_of(callee.source), *object_condition(target.__self__))
            if isinstance(target.__func__, types.FunctionType):
                return self.call_function(target.__func__, [receiver, *args], keywords)
            raise Untraceable(f"a call of {target.__func__!r}, which is Python")
        if isinstance(target, types.FunctionType):
            return self.call_function(target, args, keywords)
        construct = getattr(type(target), "__tiercel_cell__", None)
        if construct is not None:
            method = inspect.getattr_static(type(target), "construct", None)
            if method is not None:
                return self.call(self.attribute_of(callee, "construct"), args, keywords)
        if not isinstance(target, type):
            # as Python looks it up: on the class
            called = next((vars(c)["__call__"] for c in type(target).__mro__ if "__call__" in vars(c)), None)
            if isinstance(called, types.FunctionType) and "__call__" not in getattr(target, "__dict__", {}):
                return self.call(self.attribute_of(callee, "__call__"), args, keywords)
        known = None if keywords else self.known_call(target, args)
        if known is not None:
            return known
        builtin = getattr(target, "__name__", type(target).__name__)
        raise Untraceable(f"a call of {builtin}, which is Python")

    def known_call(self, target: Any, args: list[Abstract]) -> Abstract | None:
        """Calls of classes and C functions that are understood: `np.float32(x)`, `math.sqrt(n)`, named tuples."""
        if isinstance(target, type) and is_dtype(target) and issubclass(target, np.generic) and len(args) == 1:
            given = args[0]
            dtype = as_dtype(target)
            if isinstance(given, Value) and isinstance(given.type, NpScalarType) and given.type.dtype.kind in "biuf":
                # floats round; what may wrap or raise is left to Python
                if dtype.kind == "f" or np.can_cast(given.type.dtype.numpy, dtype.numpy):
                    return self.node("astype", (given,), {"dtype": dtype}, NpScalarType(dtype))
            if isinstance(given, Value) and not isinstance(given.type, ArrayType | NpScalarType):
                return self.node("astype", (given,), {"dtype": as_dtype(target)}, NpScalarType(as_dtype(target)))
        if isinstance(target, type) and issubclass(target, BaseException) and target.__module__ == "builtins":
            return Unknown("an exception that is made and not raised")
        if isinstance(target, type) and issubclass(target, tuple) and hasattr(target, "_fields"):
            if len(args) == len(target._fields) and is_named_tuple(target):
                return Tuple(tuple(args), target)
        if getattr(target, "__module__", None) == "math" and callable(target):
            return self.math_call(target.__name__, target, args)
        return None

    def math_call(self, name: str, target: Any, args: list[Abstract]) -> Abstract | None:
        """A function of `math`: computed now on numbers that are known; a square root of a size otherwise."""
        try:
            values = [self.static(a) for a in args]
        except Untraceable:
            return None
        if not any(isinstance(v, Dim) for v in values):
            if not all(isinstance(v, int | float) for v in values):
                return None
            return self.constant(target(*values))
        if name == "sqrt" and isinstance(args[0], Value):
            return self.node("sqrt", args[:1], {}, PyFloatType())  # type: ignore[arg-type]
        return None

    def call_method(self, method: Method, args: list[Abstract], keywords: dict[str, Abstract]) -> Abstract:
        """A method of an array."""
        if isinstance(method.receiver, RaggedRef):
            return call_ragged(self, method, args, keywords)
        if isinstance(method.receiver, Value):
            found = find_method(method.name)
            if found is not None:
                row, spelling = found
                return self.apply(row, spelling, [method.receiver, *args], keywords)
            if method.name == "fill" and len(args) == 1 and not keywords:
                self.write_number(method.receiver, args[0])
                return Known(None)
        if isinstance(method.receiver, Mapping) and method.name in ("items", "values", "keys", "get"):
            pairs = method.receiver.items
            if method.name == "get":
                wanted = self.static(args[0])
                return next((v for k, v in pairs if k == wanted), args[1] if len(args) > 1 else Known(None))
            chosen: dict[str, list[Abstract]] = {
                "items": [Tuple((self.constant(k), v)) for k, v in pairs],
                "values": [v for _, v in pairs],
                "keys": [self.constant(k) for k, _ in pairs],
            }
            return Tuple(tuple(chosen[method.name]))
        raise Untraceable(f"the method {method.name}")

    def write_number(self, x: Value, value: Abstract) -> None:
        """`x.fill(value)`."""
        if isinstance(value, Value) and isinstance(value.type, ArrayType):
            raise Untraceable("an array is filled with an array")
        self.write_all(x, value)

    def call_into(self, target: Any, args: list[Abstract], keywords: dict[str, Abstract]) -> Abstract | None:
        """`np.add(a, b, out=x)`, `np.add(a, b, x)`, `np.copyto(x, a)`; None for other calls.

        A ufunc decides by its inputs in which dtype it computes, and casts what it stores within its kind.
        """
        if target is np.copyto and len(args) == 2 and not keywords and isinstance(args[0], Value):
            if any(getattr(getattr(a, "type", None), "wrapper", "ndarray") != "ndarray" for a in args):
                raise Untraceable("np.copyto of a Tensor")
            self.set_item(args[0], Known(Ellipsis), args[1])
            return Known(None)
        found = operator_of(target) if isinstance(target, np.ufunc) else None
        if found is None:
            return None
        if set(keywords) == {"out"} and len(args) == target.nin:
            out = keywords["out"]
        elif not keywords and len(args) == target.nin + 1 and target.nout == 1:
            *args, out = args
        else:
            return None
        if isinstance(out, Tuple) and len(out.items) == 1:
            out = out.items[0]
        if not isinstance(out, Value):
            return None
        return self.write_all(out, self.apply(*found, args, {}))

    def call_function(
        self, target: types.FunctionType, args: list[Abstract], keywords: dict[str, Abstract]
    ) -> Abstract:
        """Walk a Python function in place."""
        inner = getattr(target, "__wrapped__", None)
        function = inner if hasattr(target, "__tiercel__") and isinstance(inner, types.FunctionType) else target
        program = self.environment.program_of(function)
        if program is None:
            raise Untraceable(f"a call of {target.__qualname__}, which is Python")
        cells = [Known(Cell(position)) for position in range(len(program[0].free))]
        return self.walk_function(function, program, args, keywords, cells, None)

    def walk_function(
        self,
        function: types.FunctionType,
        program: tuple[Any, Any],
        args: list[Abstract],
        keywords: dict[str, Abstract],
        cells: Sequence[Abstract],
        default: Callable[[inspect.Parameter], Abstract] | None,
    ) -> Abstract:
        """Walk bytecode in a frame of its own.

        Args:
            function: whose signature and globals it has.
            program: its bytecode and constants.
            args, keywords: as it is called.
            cells: its captured variables.
            default: gives what parameters are by default; None: the function's own defaults, as constants.
        """
        trace = self.trace
        if trace.depth >= MAX_DEPTH:
            raise Untraceable(f"calls nested deeper than {MAX_DEPTH}")
        signature = inspect.signature(function, follow_wrapped=False)
        try:
            bound = signature.bind(*args, **keywords)
        except TypeError as error:
            raise Untraceable(f"{function.__qualname__}: {error}") from None
        code, constants = program
        frame = type(self)(trace, code, constants, self.environment.child(function), self.site())
        frame.state.heap = self.state.heap
        for register, parameter in enumerate(signature.parameters.values()):
            given: Any
            if parameter.name in bound.arguments:
                given = bound.arguments[parameter.name]
                if parameter.kind is parameter.VAR_POSITIONAL:
                    given = Tuple(tuple(given))
                elif parameter.kind is parameter.VAR_KEYWORD:
                    given = Mapping(tuple(given.items()))
            elif parameter.kind is parameter.VAR_POSITIONAL:
                given = Tuple(())
            elif parameter.kind is parameter.VAR_KEYWORD:
                given = Mapping(())
            else:
                given = (default or frame.default)(parameter)
            frame.registers[register] = given
        for position, cell in enumerate(cells):
            frame.registers[len(code.parameters) + position] = cell
        trace.depth += 1
        trace.frames.append(frame)
        outcome = frame.walk(0, frozenset())
        trace.depth -= 1
        trace.frames.pop()
        self.state.heap = frame.state.heap
        if isinstance(outcome, Raised):
            raise Untraceable("a call that always raises")
        assert isinstance(outcome, Returned)
        return outcome.value

    def default(self, parameter: inspect.Parameter) -> Abstract:
        """A default value; it is part of the function object, which is guarded by identity."""
        if unwrapped(parameter.default) is not None:
            raise Untraceable(f"an array as default of {parameter.name}")
        return self.constant(parameter.default)

"""Calls: of operators, of Python's scalar builtins, of everything else.

A call is planned first (`_plan`, without emitting anything) and emitted then. Plans:

- an operator of the table, by NumPy function, `tiercel.ops` function or class, array method or builtin: `CallOp`;
- a scalar builtin: `Scalar`; `x.item()`: `Item`;
- a builtin that consumes a generator expression at once: a loop in place (see `comprehensions`);
- a callee that cannot be captured (known now to be a class or compiled code): `CallPy`, with the reason;
- anything else: `Call`; what it calls shows when it runs.

`CallOp` of a method looks the attribute up after the arguments, Python before. It is used only where nobody can tell:
the arguments do nothing but compute. Names of functions are looked up after the arguments too; they would have to be
rebound by an argument of their own call for that to show.
"""

from __future__ import annotations

import ast
import inspect
import sys
import traceback
import types
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tiercel import operators
from tiercel.bytecode import SCALAR_FUNCTIONS
from tiercel.frontend.python.lower.access import load_name
from tiercel.frontend.python.lower.comprehensions import consume_in_place, consumer_of
from tiercel.frontend.python.lower.positions import call_position
from tiercel.frontend.python.lower.state import Lowering, expression
from tiercel.frontend.python.resolve import OperatorForm, Resolution, operator_of

__all__ = ["arguments", "emit_append", "is_computation"]

# Builtins that read or write the variables of their caller.
_FRAME_BUILTINS: Final = frozenset({"locals", "exec", "eval", "breakpoint"})
_FRAME_BUILTINS_WITHOUT_ARGUMENTS: Final = frozenset({"vars", "dir"})
# Functions that look at the stack they are called on, where our frames would show. By identity.
_FRAME_FUNCTIONS: Final[tuple[Callable[..., Any], ...]] = (
    sys._getframe,
    inspect.currentframe,
    inspect.stack,
    traceback.print_stack,
    traceback.format_stack,
    traceback.extract_stack,
)
_TRACER_NAMES: Final = frozenset({"set_trace", "breakpoint", "_getframe", "currentframe"})
# Words of SCALAR_FUNCTIONS that are syntax, not names.
_SYNTAX_WORDS: Final = frozenset(
    [
        "not",
        "is",
        "is_not",
        "in",
        "not_in",
        "format",
        "format_str",
        "format_repr",
        "format_ascii",
        "exception_matches",
        "with_enter",
        "with_exit",
        "exc_info",
    ]
)
_SCALAR_BUILTINS: Final = frozenset(SCALAR_FUNCTIONS) - _SYNTAX_WORDS
_COMPILED_CALLABLES: Final = (
    types.BuiltinFunctionType,
    types.MethodWrapperType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    np.ufunc,
    type(np.sum),
)


@dataclass(frozen=True, slots=True)
class _Operator:
    """A CallOp: its arguments in order of evaluation, each with its keyword or ''."""

    form: OperatorForm
    arguments: tuple[tuple[str, ast.expr], ...]
    resolution: Resolution | None = None


@dataclass(frozen=True, slots=True)
class _Scalar:
    name: str
    arguments: tuple[ast.expr, ...]


@dataclass(frozen=True, slots=True)
class _Item:
    receiver: ast.expr


@dataclass(frozen=True, slots=True)
class _General:
    """A Call, or with a reason a CallPy."""

    reason: str | None = None
    imported: bool = False


_Plan = _Operator | _Scalar | _Item | _General


@expression(ast.Call)
def _call(lo: Lowering, node: ast.Call, dst: int | None) -> int:
    _refuse_frame_functions(lo, node)
    consumer = consumer_of(lo, node)
    if consumer is not None:
        return consume_in_place(lo, node, consumer)
    if lo.resolver.is_builtin(node.func, lo.scope, "super") and not node.args and not node.keywords:
        return _zero_argument_super(lo, node, dst)
    plan = _plan(lo, node)
    if isinstance(plan, _Operator):
        return _emit_operator(lo, node, plan, dst)
    if isinstance(plan, _Scalar):
        return lo.emit(node, "Scalar", dst, plan.name, lo.operands(plan.arguments))
    if isinstance(plan, _Item):
        return lo.emit(call_position(node, imported=False), "Item", dst, lo.expression(plan.receiver))
    return _emit_general(lo, node, plan, dst)


# ---- planning --------------------------------------------------------------------------------------------------------


def _plan(lo: Lowering, node: ast.Call) -> _Plan:
    starred = any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords)
    given = tuple([("", a) for a in node.args] + [(k.arg or "**", k.value) for k in node.keywords])
    resolved = lo.resolver.resolve(node.func, lo.scope)
    reason = None
    if resolved is not None:
        form = operator_of(resolved.value)
        if form is not None and form.kind != "class":
            reason = "it is called with * or **" if starred else _unbound_reason(form, given)
            if reason is None:
                return _Operator(form, given, resolved)
            reason = f"{resolved.path}: {reason}"
        builtin = lo.resolver.builtin_name(node.func, lo.scope)
        if builtin in _SCALAR_BUILTINS and not starred and not node.keywords:
            assert builtin is not None
            return _Scalar(builtin, tuple(node.args))
        return _General(reason or _opaque_reason(resolved), "." in resolved.path)
    if isinstance(node.func, ast.Call) and not starred:
        constructed = _plan_class(lo, node.func, node)
        if constructed is not None:
            return constructed
    if isinstance(node.func, ast.Attribute) and not starred:
        method = _plan_method(lo, node.func, given)
        if method is not None:
            return method
    return _General()


def _plan_class(lo: Lowering, made: ast.Call, node: ast.Call) -> _Operator | None:
    """`ops.Split(axis=1, output_num=4)(x)`: constructor arguments become keywords, call arguments stay positional."""
    if any(isinstance(a, ast.Starred) for a in made.args) or any(k.arg is None for k in made.keywords) or node.keywords:
        return None
    resolved = lo.resolver.resolve(made.func, lo.scope)
    form = None if resolved is None else operator_of(resolved.value)
    if form is None or form.kind != "class":
        return None
    spelling = form.operator.spellings[form.spelling]
    names = {row: keyword for keyword, row in spelling.keywords.items()}
    if len(made.args) > len(spelling.constructor):
        return None
    given: list[tuple[str, ast.expr]] = []
    for row, value in zip(spelling.constructor, made.args, strict=False):
        if row not in names:
            return None
        given.append((names[row], value))
    given += [(k.arg or "", k.value) for k in made.keywords]
    if not all(is_computation(lo, value) for _, value in given):
        return None
    given += [("", a) for a in node.args]
    return _Operator(form, tuple(given), resolved) if _unbound_reason(form, given) is None else None


def _plan_method(lo: Lowering, function: ast.Attribute, given: Sequence[tuple[str, ast.expr]]) -> _Plan | None:
    receiver = lo.resolver.resolve(function.value, lo.scope)
    if receiver is not None and not _may_be_array(receiver.value):
        return None
    if isinstance(function.value, ast.Name) and function.value.id in ("self", "cls"):
        return None
    name = lo.mangle(function.attr)
    if name == "item" and not given:
        return _Item(function.value)
    found = operators.find_method(name)
    if found is None:
        return None
    form = OperatorForm(*found)
    arguments_ = (("", function.value), *given)
    if _unbound_reason(form, arguments_) is not None or not all(is_computation(lo, value) for _, value in given):
        return None
    return _Operator(form, arguments_)


def _may_be_array(value: object) -> bool:
    # Asked of the type: asking the object may run the user's `__getattr__`, which capturing must not.
    cls = type(value)
    return isinstance(value, np.ndarray | np.generic) or (hasattr(cls, "dtype") and hasattr(cls, "shape"))


def _unbound_reason(form: OperatorForm, given: Sequence[tuple[str, ast.expr]]) -> str | None:
    """Why the arguments do not fit the operator, or None."""
    keywords = {name: value for name, value in given if name}
    if len(keywords) + sum(not name for name, _ in given) != len(given):
        return "a keyword is repeated"
    try:
        form.operator.bind(form.spelling, [value for name, value in given if not name], keywords)
    except TypeError as error:
        return str(error)
    return None


def _opaque_reason(resolved: Resolution) -> str | None:
    """Why a callee that is known now cannot be captured; None if it may be."""
    value = resolved.value
    if isinstance(value, type):
        if issubclass(value, BaseException):
            return None  # on its way to be raised; nothing to be gained by saying so
        return f"{resolved.path} is a class" if getattr(value, "__tiercel_cell__", None) is None else None
    if isinstance(value, _COMPILED_CALLABLES):
        return f"{resolved.path} is compiled code and no operator of the table"
    return None


def is_computation(lo: Lowering, node: ast.AST) -> bool:
    """Whether an expression only computes: no branch, no captured call, nothing stored, no variable to be checked."""
    match node:
        case ast.Constant():
            return True
        case ast.Name(id=name):
            variable = lo.scope.resolve(lo.mangle(name))
            return variable is None or variable.kind != "local" or (lo.bound is not None and variable in lo.bound)
        case ast.Attribute(value=value) | ast.UnaryOp(operand=value):
            return is_computation(lo, value)
        case ast.BinOp(left=left, right=right) | ast.Subscript(value=left, slice=right):
            return is_computation(lo, left) and is_computation(lo, right)
        case ast.Compare(left=left, comparators=[right]):
            return is_computation(lo, left) and is_computation(lo, right)
        case ast.Slice():
            return all(is_computation(lo, p) for p in (node.lower, node.upper, node.step) if p is not None)
        case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
            return all(is_computation(lo, item) for item in items)
        case ast.Call():
            if consumer_of(lo, node) is not None:
                return False
            plan = _plan(lo, node)
            match plan:
                case _Operator():
                    return all(is_computation(lo, value) for _, value in plan.arguments)
                case _Scalar():
                    return all(is_computation(lo, value) for value in plan.arguments)
                case _Item():
                    return is_computation(lo, plan.receiver)
    return False


# ---- emitting --------------------------------------------------------------------------------------------------------


def _emit_operator(lo: Lowering, node: ast.Call, plan: _Operator, dst: int | None) -> int:
    operands = lo.operands([value for _, value in plan.arguments])
    via = None
    if plan.resolution is not None:
        via = plan.resolution.path
        if plan.resolution.free:
            variable = lo.scope.resolve(plan.resolution.root)
            assert variable is not None
            via = f"{lo.home(variable)}:{via}"
    keywords = tuple(name for name, _ in plan.arguments)
    where = call_position(node, imported=plan.resolution is not None)
    return lo.emit(where, "CallOp", dst, plan.form.operator.name, plan.form.spelling, operands, keywords, via)


def _emit_general(lo: Lowering, node: ast.Call, plan: _General, dst: int | None) -> int:
    callee = lo.expression(node.func)
    callee = lo.keep(node.func, callee, [*node.args, *(k.value for k in node.keywords)])
    args, keywords = arguments(lo, node.args, node.keywords)
    where = call_position(node, imported=plan.imported)
    if plan.reason is not None:
        lo.note(node, "callpy", plan.reason)
        return lo.emit(where, "CallPy", dst, callee, args, keywords, plan.reason)
    return lo.emit(where, "Call", dst, callee, args, keywords)


def arguments(lo: Lowering, args: Sequence[ast.expr], keywords: Sequence[ast.keyword]) -> tuple[list[int], list[str]]:
    """Lower the arguments of a call in Python's order and return operands and keywords as `Call` takes them."""
    nodes: list[ast.AST] = [a.value if isinstance(a, ast.Starred) else a for a in args]
    nodes += [k.value for k in keywords]
    words = ["*" if isinstance(a, ast.Starred) else "" for a in args]
    words += ["**" if k.arg is None else k.arg for k in keywords]
    operands: list[int] = []
    for index, (node, word) in enumerate(zip(nodes, words, strict=True)):
        later = nodes[index + 1 :]
        operand = lo.keep(node, lo.expression(node), later)
        # Python unpacks before it evaluates what follows; visible if that does anything.
        if word in ("*", "**") and not all(is_computation(lo, n) for n in later):
            operand = lo.emit(node, "Build", None, "list_star" if word == "*" else "dict_star", (operand,))
        operands.append(operand)
    return operands, words


def emit_append(lo: Lowering, node: ast.Call) -> bool:
    """Lower `x.append(value)` whose result nobody wants as an Append, if nobody can tell the difference."""
    function = node.func
    if not (
        isinstance(function, ast.Attribute)
        and function.attr == "append"
        and len(node.args) == 1
        and not node.keywords
        and not isinstance(node.args[0], ast.Starred)
    ):
        return False
    receiver = lo.resolver.resolve(function.value, lo.scope)
    if receiver is not None and not isinstance(receiver.value, list):
        return False
    surely_list = isinstance(function.value, ast.Name) and _is_list(lo, function.value)
    if not surely_list and not is_computation(lo, node.args[0]):
        return False
    operands = lo.operands([function.value, node.args[0]])
    lo.emit(call_position(node, imported=False), "Append", *operands)
    return True


def _is_list(lo: Lowering, node: ast.Name) -> bool:
    variable = lo.scope.resolve(lo.mangle(node.id))
    return variable is not None and variable in lo.lists and lo.bound is not None and variable in lo.bound


# ---- callees that see our frames -------------------------------------------------------------------------------------


def _refuse_frame_functions(lo: Lowering, node: ast.Call) -> None:
    builtin = lo.resolver.builtin_name(node.func, lo.scope)
    if builtin in _FRAME_BUILTINS or (
        builtin in _FRAME_BUILTINS_WITHOUT_ARGUMENTS and not node.args and not node.keywords
    ):
        lo.fail(node, f"it calls {builtin}(), which needs a Python frame")
    resolved = lo.resolver.resolve(node.func, lo.scope)
    value = None if resolved is None else resolved.value
    name = getattr(node.func, "attr", getattr(node.func, "id", None))
    if any(value is f for f in _FRAME_FUNCTIONS) or (name in _TRACER_NAMES and lo.scope.resolve(name) is None):
        lo.fail(node, f"it calls {name}(), which looks at the frames of its callers")
    if value is warnings.warn and (len(node.args) > 2 or any(k.arg in ("stacklevel", None) for k in node.keywords)):
        lo.fail(node, "it warns with a stacklevel, which counts the frames of its callers")


def _zero_argument_super(lo: Lowering, node: ast.Call, dst: int | None) -> int:
    args = lo.source.node.args
    first = next(iter([*args.posonlyargs, *args.args]), None)
    if lo.scope is not lo.scopes.root or "__class__" not in lo.source.code.co_freevars or first is None:
        lo.fail(node, "it calls super() where Python finds no class or no first argument")
    callee = lo.expression(node.func)
    operands = [load_name(lo, node, "__class__"), load_name(lo, node, first.arg)]
    return lo.emit(node, "Call", dst, callee, operands)

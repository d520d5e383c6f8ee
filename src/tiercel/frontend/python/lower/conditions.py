"""Conditions: `and`, `or`, `not`, comparisons and conditional expressions.

Truth is tested as often as CPython's jumps test it: a condition `(a and b) or c` tests each operand once, and a false
`a` goes straight to `c`. Where a construct is a condition (`if`, `while`, `assert`, comprehension filters) no value is
made at all.
"""

from __future__ import annotations

import ast
import sys
from typing import Final

from tiercel.frontend.python.lower.operations import constant_value, syntax
from tiercel.frontend.python.lower.state import Lowering, Target, expression

__all__ = ["constant_truth", "jump_if"]

_COMPARE: Final[dict[type[ast.cmpop], str]] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
_SCALAR_COMPARE: Final[dict[type[ast.cmpop], str]] = {
    ast.Is: "is",
    ast.IsNot: "is_not",
    ast.In: "in",
    ast.NotIn: "not_in",
}

# From 3.13 on testing the truth is an instruction of its own.
TRUTH_HAS_OWN_POSITION: Final = sys.version_info >= (3, 13)
# Until 3.11 `(a and b) or c` tests a false `a` once; later versions test the value of `a and b` again.
_INNER_TRUTH_IS_KNOWN: Final = sys.version_info < (3, 12)


def constant_truth(node: ast.AST) -> bool | None:
    """Return the truth of a constant condition, which CPython does not test; None for any other."""
    known = constant_value(node)
    if known is not None:
        return bool(known[0])
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = constant_truth(node.operand)
        return None if inner is None else not inner
    return None


def jump_if(lo: Lowering, node: ast.AST, then: Target, else_: Target, where: ast.AST) -> None:
    """Evaluate a condition and go to one of two targets.

    Args:
        where: the construct whose condition it is; until 3.12 an error in testing the truth has its position.
    """
    known = constant_truth(node)
    if known is not None:
        lo.jump(node, then if known else else_)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        jump_if(lo, node.operand, else_, then, where)
    elif isinstance(node, ast.BoolOp):
        both = isinstance(node.op, ast.And)
        for value in node.values[:-1]:
            middle = lo.target()
            jump_if(lo, value, middle if both else then, else_ if both else middle, where)
            lo.place(middle)
        jump_if(lo, node.values[-1], then, else_, where)
    elif isinstance(node, ast.IfExp):
        first, second = lo.target(), lo.target()
        jump_if(lo, node.test, first, second, where)
        lo.place(first)
        jump_if(lo, node.body, then, else_, where)
        lo.place(second)
        jump_if(lo, node.orelse, then, else_, where)
    elif isinstance(node, ast.Compare) and len(node.ops) > 1:
        left = _first(lo, node)
        for index, op in enumerate(node.ops):
            right = _next(lo, node, index)
            holds = _compare(lo, node, op, left, right, None)
            middle = then if index == len(node.ops) - 1 else lo.target()
            lo.branch(node, holds, middle, else_)
            if middle is not then:
                lo.place(middle)
            left = right
    else:
        lo.branch(node if TRUTH_HAS_OWN_POSITION else where, lo.expression(node), then, else_)


# ---- as values -------------------------------------------------------------------------------------------------------


@expression(ast.BoolOp)
def _bool_op(lo: Lowering, node: ast.BoolOp, dst: int | None) -> int:
    result, end = lo.f.register(), lo.target("end")
    _value_and_jump(lo, node, result, end, end, node)
    lo.place(end)
    return result


def _value_and_jump(lo: Lowering, node: ast.AST, result: int, then: Target, else_: Target, where: ast.AST) -> None:
    """Put the value of an expression into a register and go to a target by its truth; untested where both are one."""
    if isinstance(node, ast.BoolOp) and (then is else_ or _INNER_TRUTH_IS_KNOWN):
        both = isinstance(node.op, ast.And)
        for value in node.values[:-1]:
            middle = lo.target()
            _value_and_jump(lo, value, result, middle if both else then, else_ if both else middle, node)
            lo.place(middle)
        _value_and_jump(lo, node.values[-1], result, then, else_, node)
        return
    lo.into(node, result)
    known = constant_truth(node)
    if known is not None:
        lo.jump(node, then if known else else_)
    else:
        lo.branch(where, result, then, else_)


@expression(ast.IfExp)
def _if_exp(lo: Lowering, node: ast.IfExp, dst: int | None) -> int:
    result = lo.f.register() if dst is None else dst
    first, second, end = lo.target("then"), lo.target("else"), lo.target("end")
    jump_if(lo, node.test, first, second, node)
    lo.place(first)
    lo.into(node.body, result)
    lo.jump(node.body, end)
    lo.place(second)
    lo.into(node.orelse, result)
    lo.place(end)
    return result


@expression(ast.Compare)
def _comparison(lo: Lowering, node: ast.Compare, dst: int | None) -> int:
    left = _first(lo, node)
    right = _next(lo, node, 0)
    if len(node.ops) == 1:
        return _compare(lo, node, node.ops[0], left, right, dst)
    result, end = lo.f.register(), lo.target("end")
    for index, op in enumerate(node.ops):
        if index:
            right = _next(lo, node, index)
        _compare(lo, node, op, left, right, result)
        if index < len(node.ops) - 1:
            middle = lo.target()
            lo.branch(node, result, middle, end)
            lo.place(middle)
        left = right
    lo.place(end)
    return result


def _first(lo: Lowering, node: ast.Compare) -> int:
    return lo.keep(node.left, lo.expression(node.left), node.comparators[:1])


def _next(lo: Lowering, node: ast.Compare, index: int) -> int:
    # In a chain this operand is the next comparison's left side, and must outlive its right side.
    operand = node.comparators[index]
    return lo.keep(operand, lo.expression(operand), node.comparators[index + 1 : index + 2])


def _compare(lo: Lowering, node: ast.Compare, op: ast.cmpop, left: int, right: int, dst: int | None) -> int:
    scalar = _SCALAR_COMPARE.get(type(op))
    if scalar is not None:
        return lo.emit(node, "Scalar", dst, scalar, (left, right))
    return syntax(lo, node, _COMPARE[type(op)], (left, right), dst)

"""Operators of the syntax: arithmetic, bits, signs, and the in-place forms of augmented assignment."""

from __future__ import annotations

import ast
from types import CodeType
from typing import Final

from tiercel import operators
from tiercel.errors import InternalError
from tiercel.frontend.python.lower.state import Lowering, expression

__all__ = ["constant_value", "in_place", "syntax"]

_BINARY: Final[dict[type[ast.operator], str]] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.MatMult: "@",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}
_UNARY: Final[dict[type[ast.unaryop], str]] = {ast.USub: "-x", ast.UAdd: "+x", ast.Invert: "~x"}


def syntax(lo: Lowering, node: ast.AST, symbol: str, args: tuple[int, ...], dst: int | None) -> int:
    """Emit the operator that a symbol stands for."""
    found = operators.find_syntax(symbol)
    if found is None:
        raise InternalError(f"the operator table has no row for the syntax {symbol!r}", stage="frontend")
    return lo.emit(node, "CallOp", dst, found[0].name, found[1], args)


def in_place(lo: Lowering, node: ast.AST, op: ast.operator, args: tuple[int, int], dst: int | None) -> int:
    """Emit the in-place form of a binary operator: `target op= value`, giving what is to be stored in the target."""
    symbol = _BINARY[type(op)] + "="
    found = operators.find_inplace(symbol)
    if found is None:
        raise InternalError(f"the operator table has no row for the syntax {symbol!r}", stage="frontend")
    return lo.emit(node, "CallOp", dst, found[0].name, found[1], args)


def constant_value(node: ast.AST) -> tuple[object] | None:
    """Return (value,) if CPython's compiler makes the expression one constant, else None."""
    if isinstance(node, ast.Constant):
        return (node.value,)
    if isinstance(node, ast.Name):
        return (__debug__,) if node.id == "__debug__" else None
    if not isinstance(node, ast.BinOp | ast.UnaryOp | ast.Tuple) or not _all_constant(node):
        return None
    code: CodeType = compile(ast.Expression(node), "<constant>", "eval", dont_inherit=True)
    # Nothing but loading and returning it?
    return (code.co_consts[0],) if len(code.co_code) <= 2 * 3 and len(code.co_consts) == 1 else None


def _all_constant(node: ast.AST) -> bool:
    match node:
        case ast.Constant():
            return True
        case ast.BinOp(left=left, right=right):
            return _all_constant(left) and _all_constant(right)
        case ast.UnaryOp(operand=operand):
            return _all_constant(operand)
        case ast.Tuple(elts=elts, ctx=ast.Load()):
            return all(_all_constant(e) for e in elts)
    return False


@expression(ast.BinOp)
def _binary(lo: Lowering, node: ast.BinOp, dst: int | None) -> int:
    folded = constant_value(node)
    if folded is not None:
        return lo.constant(folded[0])
    # Long chains lean to the left: a loop instead of recursion as deep as the chain.
    chain: list[ast.BinOp] = [node]
    while isinstance(chain[-1].left, ast.BinOp) and constant_value(chain[-1].left) is None:
        chain.append(chain[-1].left)
    innermost = chain[-1]
    left = lo.keep(innermost.left, lo.expression(innermost.left), [innermost.right])
    for part in reversed(chain):
        right = lo.expression(part.right)
        left = syntax(lo, part, _BINARY[type(part.op)], (left, right), dst if part is node else None)
    return left


@expression(ast.UnaryOp)
def _unary(lo: Lowering, node: ast.UnaryOp, dst: int | None) -> int:
    folded = constant_value(node)
    if folded is not None:
        return lo.constant(folded[0])
    operand = lo.expression(node.operand)
    if isinstance(node.op, ast.Not):
        return lo.emit(node, "Scalar", dst, "not", (operand,))
    return syntax(lo, node, _UNARY[type(node.op)], (operand,), dst)

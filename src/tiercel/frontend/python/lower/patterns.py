"""`match`: constants, names, alternatives and captures as comparisons; sequence, mapping and class patterns by CPython.

A pattern of the latter kinds becomes an outlined function of the subject and of the names it reads, which returns None
or the tuple of what it captured. Python binds captures when the whole pattern has matched and before the guard is
evaluated; so does this.
"""

from __future__ import annotations

import ast

from tiercel.frontend.python.lower.access import assign_name, load_name
from tiercel.frontend.python.lower.conditions import jump_if
from tiercel.frontend.python.lower.operations import syntax
from tiercel.frontend.python.lower.state import Lowering, Target, statement
from tiercel.frontend.python.scopes import names_bound


@statement(ast.Match)
def _match(lo: Lowering, node: ast.Match) -> None:
    subject = lo.expression(node.subject)
    if subject >= 0 and isinstance(node.subject, ast.Name | ast.NamedExpr):
        # A capture may assign the variable that the next pattern still looks at.
        subject = lo.emit(node.subject, "Move", None, subject)
    end = lo.target("end")
    for case in node.cases:
        if not lo.reachable:
            break
        matched, next_ = lo.target("case"), lo.target("next")
        _pattern(lo, case.pattern, subject, matched, next_)
        lo.place(matched)
        if case.guard is not None:
            body = lo.target("body")
            jump_if(lo, case.guard, body, next_, case.guard)
            lo.place(body)
        lo.statements(case.body)
        lo.jump(node, end)
        lo.place(next_)
    lo.place(end)


def _pattern(lo: Lowering, pattern: ast.pattern, subject: int, matched: Target, failed: Target) -> None:
    """Test a pattern, bind its captures, and go to one of two targets."""
    match pattern:
        case ast.MatchValue(value=value):
            equal = syntax(lo, pattern, "==", (subject, lo.expression(value)), None)
            lo.branch(pattern, equal, matched, failed)
        case ast.MatchSingleton(value=value):
            lo.branch(pattern, lo.emit(pattern, "Scalar", None, "is", (subject, lo.constant(value))), matched, failed)
        case ast.MatchAs(pattern=None, name=name):
            if name is not None:
                assign_name(lo, pattern, name, subject)
            lo.jump(pattern, matched)
        case ast.MatchAs(pattern=inner, name=str(name)) if _is_simple(inner):
            assert inner is not None
            found = lo.target("found")
            _pattern(lo, inner, subject, found, failed)
            lo.place(found)
            assign_name(lo, pattern, name, subject)
            lo.jump(pattern, matched)
        case ast.MatchOr(patterns=patterns) if all(map(_is_simple, patterns)):
            for alternative in patterns[:-1]:
                next_ = lo.target("or")
                _pattern(lo, alternative, subject, matched, next_)
                lo.place(next_)
            _pattern(lo, patterns[-1], subject, matched, failed)
        case _:
            _outlined_pattern(lo, pattern, subject, matched, failed)


def _is_simple(pattern: ast.pattern | None) -> bool:
    # Alternatives with captures bind in one go; left to CPython.
    match pattern:
        case ast.MatchValue() | ast.MatchSingleton():
            return True
        case ast.MatchOr(patterns=patterns):
            return all(map(_is_simple, patterns))
        case ast.MatchAs(pattern=None, name=None):
            return True
    return False


def _outlined_pattern(lo: Lowering, pattern: ast.pattern, subject: int, matched: Target, failed: Target) -> None:
    captured = list(dict.fromkeys(names_bound(pattern)))
    read = [
        name
        for name in dict.fromkeys(n.id for n in ast.walk(pattern) if isinstance(n, ast.Name))
        if lo.scope.resolve(lo.mangle(name)) is not None
    ]
    # A name that is read and captured means the old value where it is read: CPython sees both in one function too.
    parameter = "__tiercel_subject"
    result = ast.Tuple([ast.Name(name, ast.Load()) for name in captured], ast.Load())
    body: list[ast.stmt] = [
        ast.Match(
            subject=ast.Name(parameter, ast.Load()),
            cases=[ast.match_case(pattern=pattern, guard=None, body=[ast.Return(result)])],
        )
    ]
    ref, _ = lo.outliner.function(pattern, "pattern", (parameter, *read), body)
    values = [load_name(lo, pattern, name) for name in read]
    found = lo.call_outlined(pattern, "a pattern has no bytecode form", ref, (subject, *values))
    bind = lo.target("bind")
    lo.branch(pattern, lo.emit(pattern, "Scalar", None, "is", (found, lo.none)), failed, bind)
    lo.place(bind)
    registers = [lo.f.register() for _ in captured]
    lo.emit(pattern, "Unpack", registers, found, 0)
    for name, register in zip(captured, registers, strict=True):
        assign_name(lo, pattern, name, register)
    lo.jump(pattern, matched)

"""Print the loop form as text that reads like Python. For people: `tiercel explain`, golden tests, errors."""

from __future__ import annotations

from tiercel.loops.form import (
    Allocate,
    Ask,
    Assign,
    Binary,
    Block,
    Buffer,
    Cast,
    Compare,
    Const,
    Contract,
    Convolve,
    Exit,
    Expr,
    Fma,
    For,
    Function,
    If,
    IllFormed,
    Let,
    Load,
    Local,
    Multiply,
    Output,
    Pack,
    Reduce,
    Select,
    Stmt,
    Store,
    Turn,
    Unary,
    Unfold,
    Var,
    While,
)

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "pow": "**", "and": "&", "or": "|",
    "xor": "^", "shl": "<<", "shr": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip


def expression_text(node: Expr) -> str:
    """One line for an expression; infix operations are fully parenthesised."""
    match node:
        case Const():
            return repr(node.value)
        case Var():
            return node.name
        case Load():
            return f"{node.buffer.name}[{', '.join(map(expression_text, node.index))}]"
        case Unary():
            return f"{node.op}({expression_text(node.x)})"
        case Cast():
            return f"{node.dtype.name}({expression_text(node.x)})"
        case Binary() | Compare():
            a, b = expression_text(node.a), expression_text(node.b)
            return f"({a} {_INFIX[node.op]} {b})" if node.op in _INFIX else f"{node.op}({a}, {b})"
        case Fma():
            return f"fma({', '.join(map(expression_text, (node.a, node.b, node.c)))})"
        case Select():
            return f"select({', '.join(map(expression_text, (node.condition, node.a, node.b)))})"
    raise IllFormed(f"unknown expression {type(node).__name__}")


def buffer_text(buffer: Buffer) -> str:
    """`arena h: float32[B, 256]`, with strides, root and offset where they are not the plain ones."""
    text = f"{buffer.space} {buffer.name}: {buffer.dtype.name}[{', '.join(map(expression_text, buffer.shape))}]"
    if buffer.strides is not None:
        text += f" strides ({', '.join(map(expression_text, buffer.strides))})"
    if buffer.root is not None:
        text += f" in {buffer.root}"
    if buffer.offset is not None:
        text += f" at {expression_text(buffer.offset)}"
    return text


def _lines(stmt: Stmt, indent: str) -> list[str]:
    inner = indent + "    "

    def nested(block: Block) -> list[str]:
        return [line for s in block.body for line in _lines(s, inner)] or [inner + "pass"]

    match stmt:
        case Block():
            return [line for s in stmt.body for line in _lines(s, indent)]
        case For():
            head = f"{indent}for {stmt.index} in range({expression_text(stmt.extent)}):"
            return [
                head + ("" if stmt.axis == "serial" else f"  # {stmt.axis}"),
                *nested(stmt.body),
            ]
        case While():
            leave = f"{inner}if not {expression_text(stmt.condition)}: break"
            return [f"{indent}while True:", *[x for s in stmt.header.body for x in _lines(s, inner)], leave,
                    *nested(stmt.body)]  # fmt: skip
        case If():
            lines = [
                f"{indent}if {expression_text(stmt.condition)}:",
                *nested(stmt.then),
            ]
            return [*lines, f"{indent}else:", *nested(stmt.orelse)] if stmt.orelse.body else lines
        case Let():
            bound = "" if stmt.most is None else f"  # at most {expression_text(stmt.most)}"
            return [f"{indent}{stmt.name} = {expression_text(stmt.value)}{bound}"]
        case Local():
            return [f"{indent}var {stmt.name}: {stmt.value.dtype.name} = {expression_text(stmt.value)}"]
        case Assign():
            return [f"{indent}{stmt.name} := {expression_text(stmt.value)}"]
        case Reduce():
            return [f"{indent}{stmt.name} {stmt.op}= {expression_text(stmt.value)}"]
        case Store():
            target = f"{stmt.buffer.name}[{', '.join(map(expression_text, stmt.index))}]"
            return [f"{indent}{target} = {expression_text(stmt.value)}"]
        case Allocate():
            return [f"{indent}{buffer_text(stmt.buffer)}"]
        case Contract():
            sizes = ", ".join(map(expression_text, (stmt.m, stmt.n, stmt.k)))
            packed = " packed" if stmt.packed else ""
            sums = ", ".join(f"{p.accumulator} at {p.first}" for p in stmt.panels) or stmt.accumulator
            head = f"{indent}contract {stmt.a.name} @ {stmt.b.name}{packed} ({sizes}) -> {sums}"
            return [f"{head} for {stmt.row}, {stmt.column}:", *nested(stmt.epilogue)]
        case Multiply():
            sizes = ", ".join(map(expression_text, (stmt.m, stmt.n, stmt.k)))
            packed = " packed" if stmt.packed else ""
            sign = "+=" if stmt.accumulate else "="
            if stmt.start is not None:
                packed += f" columns {', '.join(map(str, stmt.firsts))} + {expression_text(stmt.start)}"
            chosen = f" by {stmt.vectors} vectors" if stmt.vectors else ""
            chosen += "" if stmt.rows is None else f", rows {expression_text(stmt.rows)}"
            chosen += "" if stmt.how is None else f", how {expression_text(stmt.how)}"
            return [f"{indent}{stmt.c.name} {sign} {stmt.a.name} @ {stmt.b.name}{packed} ({sizes}){chosen}"]
        case Pack():
            chosen = f" by {stmt.vectors} vectors" if stmt.vectors else ""
            return [f"{indent}{stmt.panels.name} = pack {stmt.b.name}{chosen}"]
        case Ask():
            return [f"{indent}ask for {stmt.buffer.name}[{', '.join(map(expression_text, stmt.index))}]"]
        case Turn():
            sizes = ", ".join(map(expression_text, (stmt.m, stmt.n)))
            return [f"{indent}{stmt.target.name} = turn {stmt.source.name} ({sizes})"]
        case Unfold():
            sizes = ", ".join(map(expression_text, (stmt.top, stmt.left, stmt.rows, stmt.pitch)))
            head = f"{indent}{stmt.target.name} = unfold {stmt.source.name} ({sizes})"
            return [head if stmt.down == stmt.across == 1 else f"{head} by {stmt.down}, {stmt.across}"]
        case Convolve():
            total = f"{stmt.weights.name} * {stmt.image.name}[{stmt.offsets.name}] ({expression_text(stmt.pitch)})"
            total = total if stmt.bias is None else f"{total} + {stmt.bias.name}"
            return [f"{indent}{stmt.c.name} = {total if stmt.low is None else f'max({stmt.low}, {total})'}"]
        case Exit():
            return [f"{indent}exit {stmt.site}"]
        case Output():
            return [f"{indent}output {stmt.name} = {expression_text(stmt.value)}"]
    raise IllFormed(f"unknown statement {type(stmt).__name__}")


def to_text(function: Function) -> str:
    """The whole function as text."""
    names = ", ".join(v.name if v in function.sizes else f"{v.name}: {v.dtype.name}" for v in
                      (*function.sizes, *function.scalars))  # fmt: skip
    lines = [f"def {function.name}({names}):"]
    lines += [f"    {buffer_text(b)}" for b in function.buffers]
    lines += [f"    output {v.name}: {v.dtype.name}" for v in function.outputs]
    return "\n".join([*lines, *_lines(function.body, "    ")]) + "\n"

"""`docs/operators.md`, written from the table.

In: the rows, the lowering keys and the words of the schema. Out: one Markdown page (`render`). Nothing about an
operator is written here; a test compares the page in the repository with what the table gives.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from tiercel.operators.lowering import KEYS
from tiercel.operators.registry import ALL
from tiercel.operators.rows import MODULES
from tiercel.operators.table import FAILURES, PURE, Alias, Effect, Operator, Spelling

__all__ = ["render"]

_HEAD: Final = """\
# Operators

Written from the operator table by `tiercel.operators.docs`; edit the rows, not this page.

A row says everything the other parts need to know of a tensor operator. `x, y` are operands (tensors, NumPy scalars or
Python scalars), `x?` may be left out, `xs*` is a sequence of tensors, `name=value` is an attribute with its default.

## How to read a row

**dtype** names the rule: `ufunc(add)` is what NumPy's ufunc of this name gives for the operands' dtypes, Python scalars
being weak (NEP 50); `reduce(add)` what its reduction gives. Where NumPy raises TypeError, the rule refuses with
`DTypeError`.

**shape** is computed on symbolic sizes: `broadcast` is NumPy's broadcasting, `reduce` leaves the reduced axes out.

**layout** is the order of the result's axes in memory. `k`: the order of the operands, as NumPy's iterator sorts it
(order="K"); `c`: C order; `like`: the strides of the operand; `reduce`: the kept axes in the operand's order.

**kind** is the Python type of the result. `numpy`: an array, or a NumPy scalar for rank 0; `array`: an array of any
rank; `like`: an array or a scalar as the operand is. Infix forms of Python scalars only are Python's own arithmetic.

**result** is `fresh` memory, a `view(i)` of operand i (`view_if`: where its strides allow), or the `same(i)` object.
In-place forms (`x += y`) on an array write operand 0, return it, and refuse a result that does not cast to it
("same_kind").

**exactness** says how far compiled code may be from the reference: `exact` equal bits; `bounded` by units in the last
place (ULP); `reordered` by the error of a sum in another order.

**compiled** says what an operator becomes in machine code: a part of a fused loop, loops of its own, others it is
written out in; or why it always runs interpreted. In a dtype, with an attribute or at a size that has no code (complex
numbers, to begin with) the others do as well; `explain()` names the operator, the line and the reason.

**may fail** lists what a call can still raise when its types are right:

{failures}

Operators that NumPy has no function for (`sigmoid`, `gelu`, `softmax`, `layer_norm`, ...) are NumPy expressions, given
in the docstrings of `tiercel.operators.reference`; their floating-point warnings are those of the expression (`fma`,
`erf`, `erfc` and the exact `gelu` never warn). They compute integers as float64, half types in float32 with one
rounding at the end, and refuse complex numbers. Sums, products and means of half types also accumulate in float32 and
round once, where NumPy rounds bfloat16 after every addition.
"""

_COLUMNS: Final = (
    "operator",
    "spellings",
    "what it computes",
    "dtype",
    "shape",
    "layout",
    "kind",
    "result",
    "exactness",
    "may fail",
    "lowering",
    "compiled",
)


def render(compiled: Mapping[str, str] | None = None) -> str:
    """Return the page as Markdown text, ending with a newline.

    Args:
        compiled: for each operator what it is compiled to, or why it is interpreted (the compiler, which knows, stands
            above this package).
    """
    failures = "\n".join(f"- `{name}`: {text}" for name, text in FAILURES.items())
    parts = [_HEAD.format(failures=failures)]
    for module_name in MODULES:
        module = importlib.import_module(f"tiercel.operators.rows.{module_name}")
        names = [row.name for row in getattr(module, "ROWS", ())]
        if names:
            parts.append(_family(module_name, module.__doc__ or "", names, compiled or {}))
    parts.append(_lowering())
    return "\n".join(parts)


def _family(name: str, doc: str, rows: list[str], compiled: Mapping[str, str]) -> str:
    lines = [f"## {name.capitalize()}", "", " ".join(doc.partition("\n\n")[0].split()), ""]
    lines.append(f"| {' | '.join(_COLUMNS)} |")
    lines.append(f"|{'---|' * len(_COLUMNS)}")
    cells = [(*_cells(ALL[row]), compiled.get(row, "")) for row in rows]
    lines.extend(f"| {' | '.join(map(_escape, row))} |" for row in cells)
    return "\n".join(lines) + "\n"


def _cells(row: Operator) -> tuple[str, ...]:
    result = str(row.result) if isinstance(row.result, Alias) else f"by {_rule_name(row.result)}"
    if row.effect is not PURE:
        result += f"; {row.effect}" if isinstance(row.effect, Effect) else f"; by {_rule_name(row.effect)}"
    return (
        f"`{row.name}({_parameters(row)})`",
        ", ".join(f"`{_spelling(s)}`" for s in row.spellings),
        row.doc,
        _rule_name(row.dtype),
        _rule_name(row.shape),
        _rule_name(row.layout),
        _rule_name(row.kind),
        result,
        str(row.exactness),
        ", ".join(row.may_fail),
        str(row.lowering),
    )


def _parameters(row: Operator) -> str:
    words = []
    for parameter in row.parameters:
        if parameter.role == "operands":
            words.append(f"{parameter.name}*")
        elif parameter.role == "operand":
            words.append(parameter.name if parameter.required else f"{parameter.name}?")
        else:
            words.append(parameter.name if parameter.required else f"{parameter.name}={parameter.default!r}")
    return ", ".join(words)


def _spelling(spelling: Spelling) -> str:
    return f"{spelling}()" if spelling.kind == "class" else str(spelling)


_PREFIXES: Final = (
    "_dtype_",
    "dtype_",
    "_shape_",
    "shape_",
    "_layout_",
    "layout_",
    "_kind_",
    "kind_",
    "_result_",
    "_alias_",
    "alias_",
    "_effect_",
)


def _rule_name(rule: Callable[..., Any]) -> str:
    name = getattr(rule, "rule_name", None)
    if name is None:
        # A rule made by a factory carries the factory's name in its own.
        name = rule.__qualname__.split(".<locals>", 1)[0] if hasattr(rule, "__qualname__") else type(rule).__name__
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return str(name)


def _lowering() -> str:
    lines = ["## Lowering keys", "", "What code generation implements, by lowering class.", ""]
    for cls, keys in KEYS.items():
        lines += [f"### {cls}", "", "| key | computes |", "|---|---|"]
        lines += [f"| `{key}` | {_escape(text)} |" for key, text in keys.items()]
        lines.append("")
    return "\n".join(lines)


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*") if "`" not in text else text.replace("|", "\\|")

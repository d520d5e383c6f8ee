"""The stub file of `tiercel.ops`, for type checkers and editors, written from the operator table.

In: the table. Out: the text of `ops/__init__.pyi`. A test compares the file with this text;
`python -m tiercel.ops.stubs` writes it anew.

Results are `Any`: whether they are ndarrays, NumPy scalars, Tensors or torch tensors follows the operands, and their
rank, and there is no way to say so that would not be wrong somewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tiercel.operators.table import Parameter
from tiercel.ops.generate import CLASSES, FUNCTIONS, call_arguments, constructor_arguments

__all__ = ["STUB", "render"]

STUB: Final = Path(__file__).with_name("__init__.pyi")

_HEAD: Final = '''\
# Generated from the operator table by `python -m tiercel.ops.stubs`. Edit the table, not this file.
# ruff: noqa: E501
# fmt: off

from collections.abc import Sequence
from typing import Any

class Operation:
    """Base of the operator classes."""

    def __call__(self, *operands: Any) -> Any: ...

'''


def render() -> str:
    """Return the text of the stub file."""
    lines = [_HEAD]
    for name, (row, index) in sorted(FUNCTIONS.items()):
        arguments = ", ".join(_arguments(call_arguments(row, row.spellings[index])))
        lines.append(f'def {name}({arguments}) -> Any:\n    """{_summary(row.doc)}"""\n\n')
    for name, (row, index) in sorted(CLASSES.items()):
        spelling = row.spellings[index]
        constructed = constructor_arguments(row, spelling)
        called = call_arguments(row, spelling)
        lines.append(f'class {name}(Operation):\n    """{_summary(row.doc)}"""\n\n')
        lines += [f"    {own}: {_type(own, p)}\n" for own, p in constructed]
        arguments = ", ".join(["self", *_arguments(constructed)])
        lines.append(f"    def __init__({arguments}) -> None: ...\n")
        arguments = ", ".join(["self", *_arguments(called)])
        lines.append(f"    def __call__({arguments}) -> Any: ...\n\n")
    return "".join(lines).rstrip("\n") + "\n"


def _arguments(pairs: list[tuple[str, Parameter]]) -> list[str]:
    return [
        f"{own}: Any" if own.startswith("*") else _argument(own, p, [q for _, q in pairs[:i]])
        for i, (own, p) in enumerate(pairs)
    ]


def _argument(own: str, parameter: Parameter, before: Sequence[Parameter]) -> str:
    optional = not parameter.required or any(not p.required for p in before)
    return f"{own}: {_type(own, parameter)}" + (" = ..." if optional else "")


def _type(own: str, parameter: Parameter) -> str:
    if parameter.role == "operands":
        return "Sequence[Any]"
    if isinstance(parameter.default, bool):
        return "bool"
    return "Any"


def _summary(doc: str) -> str:
    text = doc.replace("\\", "\\\\").replace('"', "'")
    return text if text.endswith(".") else text + "."


if __name__ == "__main__":
    STUB.write_text(render(), encoding="utf-8")

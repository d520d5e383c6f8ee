"""Declared tokens and facts as text: the part of the text form that belongs to `tiercel.shapes`.

In: a `TensorDescriptor`, or a place in a text. Out: the other. The text written here is exact and says no more than
the descriptor does (`float32[B*T, 128]{C}@cpu where 'dim0 <= 512'`), so writing needs no reasoning about sizes; what
is read may be any form that `shapes.parse_token` takes, whose ranges become facts of the program.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from tiercel.bytecode.literals import Scanner, parse_string
from tiercel.dtypes import as_dtype
from tiercel.errors import BytecodeError, DTypeError, ShapeError
from tiercel.shapes import Constraint, Facts, Symbol, TensorDescriptor, parse_token

__all__ = [
    "MAX_CONSTRAINTS",
    "MAX_FACTS",
    "MAX_TOKEN_CONSTRAINTS",
    "make_facts",
    "parse_descriptor",
    "print_descriptor",
    "settle",
]

# Facts about expressions are combined with one another, at a cost that grows with the third power of their number:
# 64 take a second at worst. The range of a single size costs next to nothing.
MAX_RELATIONS: Final = 64
MAX_FACTS: Final = 4096
# Constraints of one token, and of all tokens of a program, for the same reason.
MAX_TOKEN_CONSTRAINTS: Final = 16
MAX_CONSTRAINTS: Final = 4096
_DTYPE: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_DIMS: Final = re.compile(r"\[[^\[\]'\"]*\]")
_LAYOUT: Final = re.compile(r"\{(\w+)\}", re.ASCII)
# Each rewriting that changes anything fixes a size or narrows a range; a few suffice.
_MAX_SETTLING: Final = 8
_DEVICE: Final = re.compile(r"@(\w+(?::\d+)?)", re.ASCII)


def print_descriptor(descriptor: TensorDescriptor) -> str:
    """Return the text of a descriptor: layout C and device cpu are left out."""
    dims = descriptor.token.dims
    text = f"{descriptor.dtype_name}[{'...' if dims is None else ', '.join(map(str, dims))}]"
    if descriptor.layout != "C":
        text += f"{{{descriptor.layout}}}"
    if descriptor.device != "cpu":
        text += f"@{descriptor.device}"
    if descriptor.shape_constraint:
        text += f" where {' and '.join(map(repr, descriptor.shape_constraint))}"
    return text


def parse_descriptor(scanner: Scanner, facts: Facts) -> TensorDescriptor:
    """Read a descriptor.

    Args:
        scanner: in front of it.
        facts: gets the ranges that stand in the text; sizes without a name are symbols new to these facts.

    Raises:
        BytecodeError: there is none.
    """
    scanner.skip()
    start = scanner.pos
    dtype = scanner.try_match(_DTYPE)
    dims = scanner.try_match(_DIMS) if dtype is not None else None
    if dtype is None or dims is None:
        scanner.fail("expected a declared token such as float32[B, 128]", start)
    layout = scanner.try_match(_LAYOUT)
    device = scanner.try_match(_DEVICE)
    constraints = []
    if scanner.try_text("where"):
        constraints.append(parse_string(scanner, "a constraint"))
        while scanner.try_text("and"):
            constraints.append(parse_string(scanner, "a constraint"))
    if len(constraints) > MAX_TOKEN_CONSTRAINTS:
        scanner.fail(f"a token has at most {MAX_TOKEN_CONSTRAINTS} constraints", start)
    try:
        found = TensorDescriptor(
            token=parse_token(dims.group(), facts),
            dtype=as_dtype(dtype.group()).name,
            layout=layout.group(1) if layout is not None else "C",
            device=device.group(1) if device is not None else "cpu",
            shape_constraint=tuple(constraints),
        )
        return settle(found)
    except (ShapeError, DTypeError) as e:
        scanner.fail(str(e), start)


def settle(descriptor: TensorDescriptor) -> TensorDescriptor:
    """Return the descriptor with its constraints in the form that making it again does not change.

    A descriptor rewrites its constraints when it is made; what one rewriting concludes can give the next one more to
    say. Programs hold descriptors that have come to rest, so that files hold them as they are.

    Raises:
        ShapeError: it does not come to rest.
    """
    for _ in range(_MAX_SETTLING):
        again = replace(descriptor, shape_constraint=descriptor.shape_constraint)
        if again.shape_constraint == descriptor.shape_constraint:
            return descriptor
        descriptor = again
    raise ShapeError(f"the constraints {descriptor.shape_constraint} on {descriptor.token} have no fixed form")


def make_facts(constraints: Iterable[str]) -> Facts:
    """Return facts with these constraints.

    Raises:
        BytecodeError: one is none, contradicts those before it, or there are too many to reason about.
    """
    facts = Facts()
    relations = 0
    for number, text in enumerate(constraints):
        if number == MAX_FACTS:
            raise BytecodeError(f"more than {MAX_FACTS} facts about sizes")
        try:
            constraint = Constraint.parse(text)
            if constraint.within is None or not isinstance(constraint.operands[0], Symbol):
                relations += 1
            if relations > MAX_RELATIONS:
                raise BytecodeError(f"more than {MAX_RELATIONS} facts that are no ranges of single sizes")
            facts.constrain(constraint)
        except (ShapeError, ZeroDivisionError) as e:
            raise BytecodeError(str(e)) from e
    return facts

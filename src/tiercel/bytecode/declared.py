"""Declared tokens against the operators' rules.

In: a function whose fields are in range. Out: reports. Two things are checked:

- a CallOp with a declared token, all of whose operands have one (or are constants), must be able to give it: the
  operator's rules, applied to the operands' tokens, may not contradict dtype, rank or any size;
- a register that a loop carries has a token that holds on entry and after every pass: a size that provably differs on
  the back edge must be declared as a data symbol, which stands for both.

The token of a register is what all its writes have in common; where their sizes differ it is a data symbol, where
their ranks or dtypes differ it is unknown. So it holds wherever the register is read.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, Final

import numpy as np

from tiercel.bytecode.instructions import Instruction
from tiercel.bytecode.program import Function, Program
from tiercel.bytecode.structure import Structures, successors
from tiercel.dtypes import as_dtype
from tiercel.errors import DTypeError
from tiercel.shapes import NO_FACTS, DimLike, Facts, ShapeToken, Symbol, TensorDescriptor, format_shape

__all__ = ["check_declared", "register_tokens"]

Report = Callable[[int, str], None]

_COPIES: Final = {"Move": "src", "Anchor": "x", "Depend": "x"}
# Copies of copies converge in as many passes as the longest chain against program order; beyond that: unknown.
_MAX_PASSES: Final = 8
# Instructions looked at for loop-carried registers of one function; what is left then is not looked at.
_MAX_STEPS: Final = 1_000_000


def check_declared(program: Program, function: Function, structures: Structures | None, report: Report) -> None:
    """Report declared tokens that cannot be.

    Args:
        program: of the function.
        function: whose operands, constants and tokens are in range.
        structures: of the function; None if it is not structured, then loops are not looked at.
        report: called with instruction and reason.
    """
    if not program.tokens:
        return
    facts = program.facts or NO_FACTS
    tokens = register_tokens(program, function, facts)
    for index, ins in enumerate(function.instructions):
        if ins.opcode == "CallOp" and ins.token is not None:
            reason = _contradiction(program, ins, tokens, facts)
            if reason is not None:
                report(index, reason)
        elif ins.opcode == "LoadTensor" and ins.token is not None:
            reason = _wrong_tensor(program.constant(ins.tensor), program.tokens[ins.token], facts)
            if reason is not None:
                report(index, reason)
    if structures is not None:
        _check_loops(program, function, structures, facts, report)


def register_tokens(program: Program, function: Function, facts: Facts) -> dict[int, TensorDescriptor]:
    """Return the token of every register that has one wherever it is read."""
    tokens: dict[int, TensorDescriptor | None] = {}
    for i, p in enumerate(function.parameters):
        tokens[i] = None if p.token is None else program.tokens[p.token]
    for i in range(len(function.free)):
        tokens[len(function.parameters) + i] = None
    declares = {
        ins.index: program.tokens[ins.token]
        for ins in function.instructions
        if ins.opcode == "LoadParam" and ins.token is not None and ins.dst == ins.index
    }
    tokens.update(declares)
    for number in range(_MAX_PASSES + 1):
        changed = False
        for ins in function.instructions:
            for register in ins.registers_written():
                if register in declares and ins.opcode == "LoadParam":
                    continue
                written = _written_token(program, ins, tokens)
                if number == _MAX_PASSES and ins.opcode in _COPIES:
                    written = None
                before = tokens.get(register, written)
                joined = _join(register, before, written, facts)
                if register not in tokens or joined != before:
                    tokens[register] = joined
                    changed = True
        if not changed:
            break
    return {r: t for r, t in tokens.items() if t is not None}


def _written_token(
    program: Program, ins: Instruction, tokens: dict[int, TensorDescriptor | None]
) -> TensorDescriptor | None:
    source = _COPIES.get(ins.opcode)
    if source is not None:
        operand: int = ins[source]
        return tokens.get(operand) if operand >= 0 else None
    if ins.opcode in ("CallOp", "LoadTensor", "LoadParam") and ins.token is not None:
        declared: TensorDescriptor = program.tokens[ins.token]
        return declared
    return None


def _join(
    register: int, a: TensorDescriptor | None, b: TensorDescriptor | None, facts: Facts
) -> TensorDescriptor | None:
    if a is None or b is None or a is b or a == b:
        return a if b is not None else None
    if a.dtype_name != b.dtype_name or a.token.dims is None or b.token.dims is None:
        return None
    if len(a.token.dims) != len(b.token.dims):
        return None
    dims: list[DimLike] = []
    for axis, (x, y) in enumerate(zip(a.token.dims, b.token.dims, strict=True)):
        # The name depends on the place only, so joining once more changes nothing.
        same = x == y or facts.equal(x, y) is True
        dims.append(x if same else Symbol(f"join.r{register}.d{axis}", "data"))
    return TensorDescriptor(ShapeToken(tuple(dims)), a.dtype, a.layout if a.layout == b.layout else "strided", a.device)


def _contradiction(program: Program, ins: Instruction, tokens: dict[int, TensorDescriptor], facts: Facts) -> str | None:
    """Why the declared token of a CallOp cannot be, or None."""
    # Upstream, but heavy, and needed only where tokens are declared.
    from tiercel import operators

    types: list[Any] = []
    for operand in ins.args:
        if operand < 0:
            types.append(operators.type_of(program.constant(operand)))
            continue
        token = tokens.get(operand)
        if token is None or token.token.dims is None:
            return None
        layout = operators.Layout.c(len(token.token.dims))
        types.append(operators.ArrayType(as_dtype(token.dtype_name), token.token.dims, layout, token.device))
    try:
        row = operators.get(ins.operator)
    except KeyError:
        # Reported where names are checked.
        return None
    if ins.spelling >= len(row.spellings):
        return None
    names = ins.keywords or ("",) * len(types)
    if len(names) != len(types):
        return None
    positional = [t for name, t in zip(names, types, strict=True) if not name]
    keywords = {name: t for name, t in zip(names, types, strict=True) if name}
    declared = program.tokens[ins.token]
    try:
        result = row.infer(row.bind(ins.spelling, positional, keywords), facts)
    except operators.NotStatic:
        return None
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as e:
        shown = ", ".join(str(t) for t in types)
        return f"{ins.operator} refuses its operands ({shown}): {e}"
    return _mismatch(ins.operator, result, declared, facts)


def _mismatch(operator: str, result: Any, declared: TensorDescriptor, facts: Facts) -> str | None:
    from tiercel import operators

    if isinstance(result, operators.ArrayType):
        dtype, shape = result.dtype, result.shape
    elif isinstance(result, operators.NpScalarType):
        dtype, shape = result.dtype, ()
    else:
        return None
    text = f"{dtype.name}{format_shape(shape)}"
    try:
        same = as_dtype(declared.dtype_name) is dtype
    except DTypeError:
        same = False
    if not same:
        return f"{operator} gives {text}, the declared token is {declared.text(symbols=True)}: the dtypes differ"
    if declared.token.dims is None:
        return None
    if len(declared.token.dims) != len(shape):
        return f"{operator} gives {text}, the declared token is {declared.text(symbols=True)}: the ranks differ"
    for axis, (want, got) in enumerate(zip(declared.token.dims, shape, strict=True)):
        if facts.equal(want, got) is False:
            return f"{operator} gives {text}: dimension {axis} is {got}, the declared token says {want}"
    return None


def _wrong_tensor(value: object, declared: TensorDescriptor, facts: Facts) -> str | None:
    if not isinstance(value, np.ndarray):
        return None
    if as_dtype(value.dtype).name != declared.dtype_name:
        return f"the tensor is {value.dtype}, the declared token says {declared.dtype_name}"
    dims = declared.token.dims
    if dims is None:
        return None
    if len(dims) != value.ndim or any(facts.equal(d, n) is False for d, n in zip(dims, value.shape, strict=False)):
        return f"the tensor has shape {value.shape}, the declared token says {declared.token}"
    return None


def _check_loops(program: Program, function: Function, structures: Structures, facts: Facts, report: Report) -> None:
    """Report loop-carried registers whose token on entry provably differs from that on the back edge."""
    writes: dict[int, list[tuple[int, TensorDescriptor]]] = {}
    for i, p in enumerate(function.parameters):
        if p.token is not None:
            writes.setdefault(i, []).append((-1, program.tokens[p.token]))
    for index, ins in enumerate(function.instructions):
        token = _written_token(program, ins, {})
        if token is not None:
            for register in ins.registers_written():
                writes.setdefault(register, []).append((index, token))
    several = {r: w for r, w in writes.items() if any(t is not w[0][1] for _, t in w)}
    search = _Search(function)
    for loop in structures.all:
        if loop.kind != "loop":
            continue
        for register, of_register in several.items():
            if not search.allowed():
                return
            inside = [w for w in of_register if loop.start <= w[0] < loop.end]
            before = [w for w in of_register if w[0] < loop.head] if inside else []
            for (at, token), (origin, first) in product(inside, before):
                if not search.allowed():
                    return
                difference = _provable_difference(first, token, facts)
                if (
                    difference is not None
                    and search.reaches(origin, loop.head, register)
                    and search.reaches(at, loop.end - 1, register)
                    and search.is_live(loop.head, register)
                ):
                    report(at, f"%{register} is carried by the loop at {loop.head}: {difference}")
                    break


def _provable_difference(a: TensorDescriptor, b: TensorDescriptor, facts: Facts) -> str | None:
    if a.token.dims is None or b.token.dims is None or len(a.token.dims) != len(b.token.dims):
        return None
    for axis, (x, y) in enumerate(zip(a.token.dims, b.token.dims, strict=True)):
        if facts.equal(x, y) is False:
            return (
                f"dimension {axis} is {x} on entry and {y} after a pass; declare it by one data symbol, such as @u0, "
                "which stands for both"
            )
    return None


class _Search:
    """Walks along control flow, within a budget: a program can be made to have too many pairs of writes to look at."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.left = _MAX_STEPS

    def allowed(self) -> bool:
        """Whether anything of the budget is left; takes one step of it."""
        self.left -= 1
        return self.left > 0

    def reaches(self, start: int, goal: int, register: int) -> bool:
        """Whether control can pass from behind a write (-1: from the beginning) to `goal` without another write."""
        return self._walk(start, lambda index, ins: index == goal, register)

    def is_live(self, start: int, register: int) -> bool:
        """Whether what the register holds at `start` may be read."""
        return self._walk(start - 1, lambda index, ins: register in ins.registers_read(), register)

    def _walk(self, start: int, found: Callable[[int, Instruction], bool], register: int) -> bool:
        instructions = self.function.instructions
        todo = [start + 1]
        seen: set[int] = set()
        while todo and self.allowed():
            index = todo.pop()
            if index in seen or index >= len(instructions):
                continue
            seen.add(index)
            ins = instructions[index]
            if found(index, ins):
                return True
            if register in ins.registers_written():
                continue
            todo += successors(instructions, index)
            if ins.opcode == "Try":
                todo.append(ins.handler)
        return False

"""The verifier: what every program that is run, compiled, listed or saved satisfies.

In: a program. Out: nothing, or a `BytecodeError` with section (the function), offset (the pc), reason, and the
instructions around. `find_defects` gives all of them.

What holds afterwards: fields agree with one another (each opcode's rules are in `_RULES`); registers, constants,
tokens, loop ids and targets are in range; control is structured (`structure`) and never falls off the end; every
register is defined on every path to its use (`find_undefined`); operator names and spellings exist; declared tokens
agree with the operators' shape rules and are invariants of loops (`declared`); variable locations and spans belong to
instructions. What does not hold: that the program does something sensible, or terminates.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tiercel.bytecode.constants import ObjectRef, is_plain, own_constant
from tiercel.bytecode.declared import check_declared
from tiercel.bytecode.instructions import Instruction
from tiercel.bytecode.program import MAX_SPAN, OPTIMISED_AWAY, PARAMETER_KINDS, Function, Program
from tiercel.bytecode.structure import Structures, find_structures
from tiercel.bytecode.text import neighbourhood
from tiercel.bytecode.wire import MAX_NUMBER
from tiercel.errors import BytecodeError

__all__ = ["find_defects", "verify"]

# More are not reported: a file can be made to have millions.
_MAX_DEFECTS: Final = 20
# Registers that nothing writes may be left over from building.
_SPARE_REGISTERS: Final = 1024
# What the sets of defined registers at open branches may take, in bytes.
_MAX_PENDING_BYTES: Final = 1 << 24
_MAX_FUNCTIONS: Final = 1 << 16


def verify(program: Program) -> None:
    """Check a program.

    Raises:
        BytecodeError: the first defect; its notes name the others, if there are any.
    """
    defects = find_defects(program)
    if not defects:
        return
    first, *others = defects
    if others:
        count = f"{len(others)} more" if len(defects) < _MAX_DEFECTS else f"at least {len(others)} more"
        first.add_note("\n".join([f"{count}:", *map(str, others)]))
    raise first


def find_defects(program: Program) -> tuple[BytecodeError, ...]:
    """Return what is wrong with a program: errors that were not raised, at most 20."""
    defects: list[BytecodeError] = []
    if not program.functions or len(program.functions) > _MAX_FUNCTIONS:
        found = f"{len(program.functions)} functions"
        return (BytecodeError(f"a program has 1 to {_MAX_FUNCTIONS} functions, got {found}", section="program"),)
    for index, value in enumerate(program.constants):
        try:
            own_constant(value)
        except BytecodeError as e:
            defects.append(BytecodeError(f"constant {index}: {e.reason}", section="constants"))
    for number, function in enumerate(program.functions):
        if len(defects) >= _MAX_DEFECTS:
            break
        _FunctionCheck(program, number, function, defects).run()
    if not defects and program.profile is not None:
        _check_profile(program, defects)
    return tuple(defects[:_MAX_DEFECTS])


class _Enough(Exception):
    """As many defects as are reported."""


@dataclass(slots=True)
class _FunctionCheck:
    """Checks one function. A step that relies on an earlier one runs only if that one found nothing."""

    program: Program
    number: int
    function: Function
    defects: list[BytecodeError]

    def run(self) -> None:
        before = len(self.defects)
        try:
            self._check_header()
            if len(self.defects) > before:
                return
            for index, ins in enumerate(self.function.instructions):
                for reason in self._check_instruction(ins):
                    self.report(index, reason)
            self._check_loop_ids()
            fields_fine = len(self.defects) == before
            self._check_constant_conditions()
            structures = find_structures(self.function, self.report)
            if structures is not None and fields_fine:
                self._check_defined(structures)
            if fields_fine:
                check_declared(self.program, self.function, structures, self.report)
        except _Enough:
            return

    def report(self, index: int, reason: str) -> None:
        section = f"function {self.number}, {self.function.name}"
        around = neighbourhood(self.program, self.function, index)
        offset = self.function.pcs[min(index, len(self.function.instructions))]
        self.defects.append(BytecodeError(reason, section=section, offset=offset, neighbourhood=around))
        if len(self.defects) >= _MAX_DEFECTS:
            raise _Enough

    def report_function(self, reason: str) -> None:
        section = f"function {self.number}, {self.function.name}"
        self.defects.append(BytecodeError(reason, section=section))
        if len(self.defects) >= _MAX_DEFECTS:
            raise _Enough

    def _check_header(self) -> None:
        f = self.function
        size = len(f.instructions)
        if not size:
            self.report_function("the function has no instructions; every path ends in Return or Raise")
        if len(f.spans) != size:
            self.report_function(f"{size} instructions have {len(f.spans)} spans")
        written = sum(len(ins.registers_written()) for ins in f.instructions)
        first = len(f.parameters) + len(f.free)
        if not first <= f.registers <= first + written + _SPARE_REGISTERS:
            self.report_function(
                f"{f.registers} registers: expected at least {first}, for parameters and cells, and at most "
                f"{first + written + _SPARE_REGISTERS}, for what is written"
            )
        if not 0 <= f.first_line < MAX_SPAN:
            self.report_function(f"first line {f.first_line}: lines are 0 to {MAX_SPAN - 1}")
        for reason in _parameter_defects(self.program, f):
            self.report_function(reason)
        for span in f.spans:
            if span is not None and not (0 <= span[0] <= span[2] < MAX_SPAN and 0 <= min(span) <= max(span) < MAX_SPAN):
                self.report_function(
                    f"the span {span} is none: lines and columns are 0 to {MAX_SPAN - 1}, lines ascend"
                )
                break
        for v in f.variables:
            if not 0 <= v.start < v.end <= size:
                self.report_function(f"variable {v.name!r}: instructions {v.start} to {v.end}, there are {size}")
            elif not self._is_location(v.where):
                self.report_function(f"variable {v.name!r} is at {v.where!r}, which is no register, constant or cell")

    def _is_location(self, where: int | str) -> bool:
        if isinstance(where, int):
            return -len(self.program.constants) <= where < self.function.registers
        if where == OPTIMISED_AWAY:
            return True
        prefix, _, number = where.partition(":")

        return prefix == "cell" and _is_number(number) and int(number) < self.function.registers

    def _check_instruction(self, ins: Instruction) -> Iterator[str]:
        program, f = self.program, self.function
        for register in (*ins.registers_read(), *ins.registers_written()):
            if register >= f.registers:
                yield f"register {register}: the function has {f.registers}"
        for constant in ins.constants_read():
            if constant >= len(program.constants):
                yield f"constant {constant}: the program has {len(program.constants)}"
                return
        token = ins.token if ins.opcode in _WITH_TOKEN else None
        if token is not None and token >= len(program.tokens):
            yield f"token {token}: the program has {len(program.tokens)}"
        for name in _IDENTIFIERS.get(ins.opcode, ()):
            # `free:x` words the error of an empty cell as for a variable of an enclosing function.
            prefix = "free:" if ins.opcode == "LoadCell" else ""
            if not _is_identifier(ins[name].removeprefix(prefix)):
                yield f"{name} must be an identifier, got {ins[name]!r}"
        rule = _RULES.get(ins.opcode)
        if rule is not None:
            yield from rule(self, ins)

    def _check_loop_ids(self) -> None:
        seen: set[int] = set()
        for index, ins in enumerate(self.function.instructions):
            if ins.opcode == "LoopStart":
                if ins.loop in seen:
                    self.report(index, f"loop {ins.loop} starts a second time")
                seen.add(ins.loop)

    def _check_constant_conditions(self) -> None:
        """A branch on a constant is a mistake of whoever made the program: one arm is dead."""
        constant_of: dict[int, int | None] = {}
        for ins in self.function.instructions:
            for register in ins.registers_written():
                only = ins.value if ins.opcode == "LoadConst" and register not in constant_of else None
                constant_of[register] = only
        for register in range(len(self.function.parameters) + len(self.function.free)):
            constant_of[register] = None
        for index, ins in enumerate(self.function.instructions):
            if ins.opcode != "BranchIf":
                continue
            operand = ins.condition if ins.condition < 0 else constant_of.get(ins.condition)
            if operand is None or ~operand >= len(self.program.constants):
                continue
            value = self.program.constants[~operand]
            if is_plain(value):
                arm = "else arm" if value else "then arm"
                self.report(
                    index, f"the branch tests the constant {value!r:.40}, so its {arm} is dead; test a value, or Jump"
                )

    def _check_defined(self, structures: Structures) -> None:
        for index, register in find_undefined(self.function, structures):
            if index < 0:
                self.report_function(
                    f"too complex to verify: {self.function.registers} registers at {register} open branches"
                )
            else:
                self.report(
                    index,
                    f"%{register} is not defined on every path to here; a variable that may be unbound begins as "
                    "UNBOUND and has a Check bound before its use",
                )


def find_undefined(function: Function, structures: Structures) -> Iterator[tuple[int, int]]:
    """Yield (instruction, register) for every use of a register that some path reaches without a definition.

    One walk suffices: registers only ever become defined, so the set at a loop's head is the one on entry, and every
    other jump goes forward. Yields (-1, number of branches) and stops if the sets would take too much memory.

    Args:
        function: whose registers and targets are in range.
        structures: of the function.
    """
    instructions = function.instructions
    state: int | None = (1 << (len(function.parameters) + len(function.free))) - 1
    pending: dict[int, int] = {}
    most = _MAX_PENDING_BYTES // (function.registers // 8 + 64)

    def flow(target: int, value: int) -> None:
        known = pending.get(target)
        pending[target] = value if known is None else known & value

    for index, ins in enumerate(instructions):
        arriving = pending.pop(index, None)
        if arriving is not None:
            state = arriving if state is None else state & arriving
        if state is None:
            # Nothing reaches this instruction.
            continue
        for register in ins.registers_read():
            if not state >> register & 1:
                yield index, register
                # Said once.
                state |= 1 << register
        after = state
        opcode = ins.opcode
        if opcode == "Try":
            flow(ins.handler, state | 1 << ins.exception)
        else:
            for register in ins.registers_written():
                after |= 1 << register
        if opcode == "BranchIf":
            flow(ins.then, after)
            flow(ins.else_, after)
        elif opcode == "Jump":
            flow(ins.target, after)
        elif opcode == "LoopStart" and ins.iterator is not None:
            flow(ins.exit, state)
        state = None if opcode in _NO_FALL_THROUGH else after
        if len(pending) > most:
            yield -1, len(pending)
            return


_NO_FALL_THROUGH: Final = frozenset({"BranchIf", "Jump", "LoopEnd", "Raise", "Return"})
_WITH_TOKEN: Final = frozenset({"LoadTensor", "LoadParam", "CallOp"})
# Fields that become identifiers of Python source when blocks are decoded.
_IDENTIFIERS: Final[Mapping[str, tuple[str, ...]]] = {
    "LoadGlobal": ("name",),
    "LoadAttr": ("name",),
    "StoreAttr": ("name",),
    "LoadCell": ("name",),
}
_NOT_NAMES: Final = frozenset({"None", "True", "False"})


def _is_number(text: str) -> bool:
    """Whether this is the one way to write a number below 10**9."""
    return text.isascii() and text.isdecimal() and len(text) < 10 and (text == "0" or text[0] != "0")


def _is_identifier(name: str) -> bool:
    return name.isidentifier() and name not in _NOT_NAMES


def _parameter_defects(program: Program, f: Function) -> Iterator[str]:
    names = [p.name for p in f.parameters]
    if len(set(names)) != len(names):
        yield "two parameters have the same name"
    for name in (*names, *f.free):
        # A `.0` is what CPython calls the iterable of a comprehension.
        if not _is_identifier(name) or keyword.iskeyword(name):
            yield f"{name!r} is no name of a variable"
    order = -1
    for p in f.parameters:
        if p.kind not in PARAMETER_KINDS:
            yield f"parameter {p.name!r} has the kind {p.kind!r}; kinds are {', '.join(PARAMETER_KINDS)}"
            return
        rank = PARAMETER_KINDS.index(p.kind)
        if rank < order or (rank == order and p.kind.startswith("var_")):
            yield f"parameter {p.name!r}, {p.kind}, stands behind a {PARAMETER_KINDS[order]} one"
        order = rank
        if p.default is not None and not -len(program.constants) <= p.default < 0:
            yield f"the default of parameter {p.name!r} is no constant of the program"
        if p.token is not None and not 0 <= p.token < len(program.tokens):
            yield f"parameter {p.name!r} has token {p.token}, the program has {len(program.tokens)}"


def _check_param(check: _FunctionCheck, ins: Instruction) -> Iterator[str]:
    count = len(check.function.parameters)
    if ins.index >= count:
        yield f"argument {ins.index}: the function has {count} parameters"


def _check_tensor(check: _FunctionCheck, ins: Instruction) -> Iterator[str]:
    value = check.program.constant(ins.tensor)
    if not isinstance(value, np.ndarray):
        yield f"LoadTensor loads arrays; constant {~ins.tensor} is a {type(value).__name__}"


def _check_code(check: _FunctionCheck, ins: Instruction) -> Iterator[str]:
    value = check.program.constant(ins.code)
    if not isinstance(value, ObjectRef):
        yield f"the code of a function is an object known by name; constant {~ins.code} is a {type(value).__name__}"


def _check_callop(check: _FunctionCheck, ins: Instruction) -> Iterator[str]:
    yield from _keyword_defects(ins, starred=False)
    if ins.via is not None:
        yield from _via_defects(check, ins.via)
    # Upstream, but heavy, and needed only where there is a CallOp to check.
    from tiercel import operators

    try:
        row = operators.get(ins.operator)
    except KeyError as e:
        yield str(e.args[0])
        return
    if ins.spelling >= len(row.spellings):
        yield f"operator {ins.operator} has {len(row.spellings)} spellings, got number {ins.spelling}"


def _via_defects(check: _FunctionCheck, via: str) -> Iterator[str]:
    root, colon, path = via.partition(":")
    if not colon:
        path = via
    elif not _is_number(root):
        yield f"via {via!r}: the register of a cell stands before the colon"
    if not all(map(_is_identifier, path.split("."))):
        yield f"via {via!r} is no dotted path of names"


def _check_call(check: _FunctionCheck, ins: Instruction) -> Iterator[str]:
    yield from _keyword_defects(ins, starred=True)


def _keyword_defects(ins: Instruction, *, starred: bool) -> Iterator[str]:
    keywords = ins.keywords
    if not keywords:
        return
    if len(keywords) != len(ins.args):
        yield f"{len(ins.args)} arguments have {len(keywords)} keywords; there is one for each, or none"
        return
    if not any(keywords):
        yield "all arguments are positional, so keywords must be empty"
    seen: set[str] = set()
    for name in keywords:
        if name in ("*", "**"):
            if not starred:
                yield f"{name} does not occur in {ins.opcode}"
        elif name:
            if not _is_identifier(name):
                yield f"the keyword {name!r} is no identifier"
            elif name in seen:
                yield f"the keyword {name!r} is given twice"
            seen.add(name)


_SCALAR_ARITY: Final[Mapping[str, tuple[int, int]]] = {
    "not": (1, 1),
    "is": (2, 2),
    "is_not": (2, 2),
    "in": (2, 2),
    "not_in": (2, 2),
    "format": (1, 2),
    "format_str": (1, 2),
    "format_repr": (1, 2),
    "format_ascii": (1, 2),
}


def _check_scalar(check: _FunctionCheck, ins: Instruction) -> Iterator[str]:
    low, high = _SCALAR_ARITY.get(ins.function, (0, len(ins.args)))
    if not low <= len(ins.args) <= high:
        expected = f"{low}" if low == high else f"{low} to {high}"
        yield f"{ins.function} takes {expected} operands, got {len(ins.args)}"


def _check_build(check: _FunctionCheck, ins: Instruction) -> Iterator[str]:
    count = len(ins.items)
    if ins.what == "slice" and count != 3:
        yield f"a slice is built of start, stop and step, got {count} items"
    if ins.what == "dict" and count % 2:
        yield f"a dict is built of keys and values alternating, got {count} items"
    if ins.what == "cell" and count > 1:
        yield f"a cell is built empty or of one item, got {count}"


def _check_unpack(check: _FunctionCheck, ins: Instruction) -> Iterator[str]:
    if ins.star > len(ins.dsts):
        yield f"target {ins.star} is starred, there are {len(ins.dsts)}"


def _check_loop(check: _FunctionCheck, ins: Instruction) -> Iterator[str]:
    if (ins.iterator is None) != (ins.target is None):
        yield "a loop has an iterator and a target, or neither"
    if ins.loop >= check.function.loops:
        yield f"loop {ins.loop}: the function has {check.function.loops} loop ids"


def _check_raise(check: _FunctionCheck, ins: Instruction) -> Iterator[str]:
    if ins.cause is not None and ins.exception is None:
        yield "a cause needs an exception"


def _check_check(check: _FunctionCheck, ins: Instruction) -> Iterator[str]:
    if ins.kind in ("bound", "bound_free") and not ins.name:
        yield "a Check bound names its variable"


_RULES: Final[Mapping[str, Callable[[_FunctionCheck, Instruction], Iterator[str]]]] = {
    "LoadTensor": _check_tensor,
    "LoadParam": _check_param,
    "CallOp": _check_callop,
    "Scalar": _check_scalar,
    "Build": _check_build,
    "Unpack": _check_unpack,
    "LoopStart": _check_loop,
    "Raise": _check_raise,
    "Call": _check_call,
    "CallPy": _check_call,
    "MakeFunction": _check_code,
    "Check": _check_check,
}


def _check_profile(program: Program, defects: list[BytecodeError]) -> None:
    def report(reason: str) -> None:
        defects.append(BytecodeError(reason, section="profile"))

    assert program.profile is not None
    for index, profile in program.profile.functions.items():
        if not 0 <= index < len(program.functions):
            report(f"function {index}: the program has {len(program.functions)}")
            continue
        function = program.functions[index]
        kinds: list[tuple[str, Mapping[int, Any], int]] = [("loop", profile.loops, function.loops)]
        for s in profile.signatures:
            kinds.append(("register", s.live_ins, function.registers))
            kinds.append(("instruction", s.results, len(function.instructions)))
        counts = [profile.entries, *(n for pair in profile.loops.values() for n in pair)]
        counts += [s.count for s in profile.signatures]
        if not all(0 <= n < MAX_NUMBER for n in counts):
            report(f"function {index}: counts are 0 to {MAX_NUMBER - 1}")
        for what, entries, limit in kinds:
            wrong = [key for key in entries if not 0 <= key < limit]
            if wrong:
                report(f"function {index}: there is no {what} {wrong[0]}")

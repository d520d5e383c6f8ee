"""Instructions to bytes and back, from the table of instructions.

In: the instructions of one function, or their bytes and its list of names. Out: the other. One instruction is its
opcode byte and then its fields: numbers as LEB128, operands zigzag-coded, names as indexes into the function's own list
of names, optional numbers plus one (0 is absent), jump targets as four-byte offsets into the function's code, so that
an instruction has one size wherever it lies.

Invariant: `decode_instructions` accepts exactly the bytes that `encode_instructions` gives for its result.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tiercel.bytecode.instructions import OPCODES, OPCODES_BY_CODE, Field, Instruction
from tiercel.bytecode.wire import Reader, leb, unzigzag, zigzag

__all__ = ["decode_instructions", "encode_instructions", "function_names", "instruction_offsets"]

_TARGET_BYTES: Final = 4
_NAME_KINDS: Final = ("name", "names")


def function_names(instructions: Sequence[Instruction]) -> tuple[str, ...]:
    """Return the strings of the instructions' fields, each once, in order of first use."""
    names: dict[str, None] = {}
    for ins in instructions:
        for position, is_list in _NAMES[ins.opcode]:
            value = ins.fields[position]
            if is_list:
                names.update(dict.fromkeys(value))
            elif value is not None:
                names[value] = None
    return tuple(names)


def instruction_offsets(instructions: Sequence[Instruction], names: Sequence[str]) -> Sequence[int]:
    """Return the byte offset of each instruction, and that of the end."""
    index = {name: i for i, name in enumerate(names)}
    # An array: there is one for every function that is listed, and a file can hold many instructions.
    offsets = array("Q", [0])
    at = 0
    for ins in instructions:
        at += len(_encode_one(ins, index))
        offsets.append(at)
    return offsets


def encode_instructions(instructions: Sequence[Instruction], names: Sequence[str], offsets: Sequence[int]) -> bytes:
    """Return the code bytes of a function.

    Args:
        instructions: with targets as indexes.
        names: `function_names(instructions)`.
        offsets: `instruction_offsets(instructions, names)`.
    """
    index = {name: i for i, name in enumerate(names)}
    code = bytearray()
    for ins in instructions:
        code += _encode_one(ins.map_targets(offsets.__getitem__), index)
    return bytes(code)


def decode_instructions(reader: Reader, names: Sequence[str], constants: int, tokens: int) -> tuple[Instruction, ...]:
    """Read the instructions of one function, to the end of the reader's section.

    Equal instructions become one object: a file of a million equal bytes must not become a million objects.

    Args:
        reader: over the function's code.
        names: the function's names.
        constants, tokens: how many of them the program has.

    Raises:
        BytecodeError: the code is none that `encode_instructions` writes for these names.
    """
    limits = _Limits(reader, names, constants, tokens)
    offsets = array("Q")
    # Instructions with targets are made last, when all offsets are known.
    raw: list[tuple[str, tuple[Any, ...]] | Instruction] = []
    seen: dict[bytes, Instruction] = {}
    while reader.pos < reader.end:
        start = reader.pos
        offsets.append(start)
        row = OPCODES_BY_CODE.get(reader.u8("an opcode"))
        if row is None:
            reader.fail(f"0x{reader.data[start]:02X} is no opcode", start)
        fields = tuple([_DECODERS[f.kind](limits, f) for f in row.fields])
        if not _HAS_TARGETS[row.name]:
            key = bytes(reader.data[start : reader.pos])
            known = seen.get(key)
            if known is None:
                known = seen[key] = Instruction(row.name, fields)
            raw.append(known)
        else:
            raw.append((row.name, fields))
    # The end is a place to go to for loops that are never left.
    offsets.append(reader.end)
    if limits.next_name != len(names):
        reader.fail(f"the function lists {len(names)} names, its code uses {limits.next_name}")
    return tuple([i if isinstance(i, Instruction) else _with_targets(i, offsets, reader) for i in raw])


def _with_targets(raw: tuple[str, tuple[Any, ...]], offsets: Sequence[int], reader: Reader) -> Instruction:
    def resolve(pc: int) -> int:
        index = bisect_left(offsets, pc)
        if index == len(offsets) or offsets[index] != pc:
            where = "outside the code" if pc >= reader.end else "inside an instruction"
            reader.fail(f"{raw[0]} goes to 0x{pc:02X}, which is {where}", min(pc, reader.end))
        return index

    return Instruction(*raw).map_targets(resolve)


class _Limits:
    """What the fields of one function may name, and the reader they come from."""

    __slots__ = ("constants", "names", "next_name", "reader", "tokens")

    def __init__(self, reader: Reader, names: Sequence[str], constants: int, tokens: int) -> None:
        self.reader = reader
        self.names = names
        self.constants = constants
        self.tokens = tokens
        # Names are numbered in order of first use, so a name is known or the next one.
        self.next_name = 0

    def name(self, index: int, at: int, what: str) -> str:
        if index >= len(self.names):
            self.reader.fail(f"{what} is name {index}, the function has {len(self.names)}", at)
        if index > self.next_name:
            self.reader.fail(f"{what} is name {index} before name {self.next_name} was used", at)
        if index == self.next_name:
            self.next_name += 1
        return self.names[index]

    def operand(self, value: int, at: int, what: str) -> int:
        if value < 0 and ~value >= self.constants:
            self.reader.fail(f"{what} is constant {~value}, the program has {self.constants}", at)
        return value


def _encode_one(ins: Instruction, names: Mapping[str, int]) -> bytes:
    row = OPCODES[ins.opcode]
    parts = [leb(row.code)]
    for field, value in zip(row.fields, ins.fields, strict=True):
        parts.append(_ENCODERS[field.kind](field, value, names))
    return b"".join(parts)


def _encode_count(field: Field, value: int | None, names: Mapping[str, int]) -> bytes:
    if field.optional:
        return leb(0 if value is None else value + 1)
    assert value is not None
    return leb(value)


def _encode_use(field: Field, value: int | None, names: Mapping[str, int]) -> bytes:
    return _encode_count(field, None if value is None else zigzag(value), names)


def _encode_name(field: Field, value: str | None, names: Mapping[str, int]) -> bytes:
    return _encode_count(field, None if value is None else names[value], names)


_ENCODERS: Final[Mapping[str, Callable[[Field, Any, Mapping[str, int]], bytes]]] = {
    "def": _encode_count,
    "defs": lambda f, v, n: leb(len(v)) + b"".join(map(leb, v)),
    "use": _encode_use,
    "uses": lambda f, v, n: leb(len(v)) + b"".join([leb(zigzag(x)) for x in v]),
    "const": lambda f, v, n: leb(~v),
    "imm": _encode_count,
    "simm": lambda f, v, n: leb(zigzag(v)),
    "name": _encode_name,
    "names": lambda f, v, n: leb(len(v)) + b"".join([leb(n[x]) for x in v]),
    "target": lambda f, v, n: v.to_bytes(_TARGET_BYTES, "little"),
    "token": _encode_count,
    "enum": lambda f, v, n: leb(f.enum.index(v)),
}


def _decode_def(limits: _Limits, field: Field) -> int | None:
    if field.optional:
        return limits.reader.optional(field.name, 1 << 31)
    return limits.reader.number(field.name, 1 << 31)


def _decode_defs(limits: _Limits, field: Field) -> tuple[int, ...]:
    reader = limits.reader
    return tuple([reader.number(field.name, 1 << 31) for _ in range(reader.count(f"number of {field.name}"))])


def _decode_use(limits: _Limits, field: Field) -> int | None:
    reader = limits.reader
    start = reader.pos
    if field.optional:
        raw = reader.optional(field.name)
        return None if raw is None else limits.operand(unzigzag(raw), start, field.name)
    return limits.operand(reader.signed(field.name), start, field.name)


def _decode_uses(limits: _Limits, field: Field) -> tuple[int, ...]:
    reader = limits.reader
    count = reader.count(f"number of {field.name}")
    return tuple([limits.operand(reader.signed(field.name), reader.pos, field.name) for _ in range(count)])


def _decode_const(limits: _Limits, field: Field) -> int:
    return ~limits.reader.number(field.name, limits.constants)


def _decode_imm(limits: _Limits, field: Field) -> int:
    return limits.reader.number(field.name)


def _decode_simm(limits: _Limits, field: Field) -> int:
    return limits.reader.signed(field.name)


def _decode_name(limits: _Limits, field: Field) -> str | None:
    reader = limits.reader
    start = reader.pos
    index = reader.optional(field.name) if field.optional else reader.number(field.name)
    return None if index is None else limits.name(index, start, field.name)


def _decode_names(limits: _Limits, field: Field) -> tuple[str, ...]:
    reader = limits.reader
    count = reader.count(f"number of {field.name}")
    return tuple([limits.name(reader.number(field.name), reader.pos, field.name) for _ in range(count)])


def _decode_target(limits: _Limits, field: Field) -> int:
    return int.from_bytes(limits.reader.take(_TARGET_BYTES, field.name), "little")


def _decode_token(limits: _Limits, field: Field) -> int | None:
    return limits.reader.optional(field.name, limits.tokens)


def _decode_enum(limits: _Limits, field: Field) -> str:
    return field.enum[limits.reader.number(field.name, len(field.enum))]


_DECODERS: Final[Mapping[str, Callable[[_Limits, Field], Any]]] = {
    "def": _decode_def,
    "defs": _decode_defs,
    "use": _decode_use,
    "uses": _decode_uses,
    "const": _decode_const,
    "imm": _decode_imm,
    "simm": _decode_simm,
    "name": _decode_name,
    "names": _decode_names,
    "target": _decode_target,
    "token": _decode_token,
    "enum": _decode_enum,
}

_NAMES: Final = {
    row.name: tuple((i, f.kind == "names") for i, f in enumerate(row.fields) if f.kind in _NAME_KINDS)
    for row in OPCODES.values()
}
_HAS_TARGETS: Final = {row.name: any(f.kind == "target" for f in row.fields) for row in OPCODES.values()}

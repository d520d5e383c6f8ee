"""Writing LLVM IR as text: fresh names, blocks, and insertion points that can be filled later.

In: calls while the emitter walks the loop form. Out: the text of one module. The invariant that makes structured code
easy: a `Lines` may hold other `Lines`, so the preheader of a loop and its phi nodes have a place before the body is
known, and an instruction whose operands are all defined further out is written there instead of inside the loop (no
LLVM pass hoists it for us, because none is run).
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from tiercel.dtypes import DType

Lines = list["str | Lines"]


def flatten(lines: Lines) -> list[str]:
    """All lines, nested ones in place."""
    flat: list[str] = []
    for line in lines:
        if isinstance(line, str):
            flat.append(line)
        else:
            flat.extend(flatten(line))
    return flat


REGISTER_TYPE = {
    "bool": "i1", "int8": "i8", "uint8": "i8", "int16": "i16", "uint16": "i16", "int32": "i32", "uint32": "i32",
    "int64": "i64", "uint64": "i64", "float16": "half", "bfloat16": "i16", "float32": "float", "float64": "double",
}  # fmt: skip
"""LLVM type of one element in a register. bfloat16 travels as its bits: conversions are ours, exact on every target."""


def memory_type(dtype: DType) -> str:
    """LLVM type of one element in memory: bool is a byte."""
    return "i8" if dtype.name == "bool" else REGISTER_TYPE[dtype.name]


def literal(value: complex, dtype: DType) -> str:
    """An LLVM constant of the register type of `dtype`."""
    if dtype.kind == "b":
        return "true" if value else "false"
    if dtype.kind in "iu":
        return str(int(value.real))
    number = float(value.real)
    if dtype.name == "float16":
        return f"0xH{struct.unpack('<H', struct.pack('<e', dtype.numpy.type(number)))[0]:04X}"
    if dtype.name == "bfloat16":
        return str(int(dtype.numpy.type(number).view("uint16")))
    rounded = float(dtype.numpy.type(number))  # a float constant is written as the double of the same value
    return f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}"


@dataclass(frozen=True, slots=True)
class Value:
    """An SSA value: its text, dtype, number of lanes (1: scalar) and the nesting level that defines it."""

    text: str
    dtype: DType
    lanes: int = 1
    level: int = 0

    @property
    def type(self) -> str:
        """LLVM type."""
        element = REGISTER_TYPE[self.dtype.name]
        return element if self.lanes == 1 else f"<{self.lanes} x {element}>"

    def __str__(self) -> str:
        return f"{self.type} {self.text}"


_PLAIN = re.compile(r"[A-Za-z0-9_.]+").fullmatch


class Writer:
    """The text of one function under construction: the current place to write, fresh names, blocks.

    `levels[k]` is where code of nesting level k may be put early: its operands are defined at level k or further out.
    The last level is always the current position.
    """

    def __init__(self) -> None:
        self.lines: Lines = []
        self.levels: list[Lines] = []
        self.block = "entry"
        self._counts: dict[str, int] = {}
        self._taken: set[str] = set()

    def fresh(self, hint: str) -> str:
        """`%hint`, or `%hint.2` when taken. LLVM keeps these names in what it prints."""
        if not _PLAIN(hint):
            hint = re.sub(r"[^A-Za-z0-9_.]", "_", hint) or "t"
        name, count = hint, self._counts.get(hint, 1)
        while name in self._taken:  # a hint may itself end in a number
            count += 1
            name = f"{hint}.{count}"
        self._counts[hint] = count
        self._taken.add(name)
        return f"%{name}"

    def label(self, hint: str) -> str:
        """A fresh block name, without the `%`."""
        return self.fresh(hint)[1:]

    def start(self, label: str) -> None:
        """Begin block `label`; later lines go there."""
        self.lines.append(f"{label}:")
        self.block = label

    def write(self, line: str) -> None:
        """Add an instruction at the current position."""
        self.lines.append("  " + line)

    def jump(self, label: str) -> None:
        """End the block by going to `label`."""
        self.write(f"br label %{label}")

    def branch(self, condition: str, then: str, orelse: str) -> None:
        """End the block by a conditional jump."""
        self.write(f"br i1 {condition}, label %{then}, label %{orelse}")

    def placeholder(self) -> Lines:
        """A place at the current position to be filled later."""
        place: Lines = []
        self.lines.append(place)
        return place

    @property
    def level(self) -> int:
        """The current nesting level."""
        return len(self.levels)

    def place(self, line: str, level: int) -> None:
        """Write an instruction at `level`: here if that is the current one, else before the structure entered from
        it.
        """
        if level >= len(self.levels):
            self.write(line)
        else:
            self.levels[level].append("  " + line)


def first_lanes(name: str, count: str, lanes: int) -> list[str]:
    """Instructions that make `%name`, a mask of the first so many of `lanes` lanes; `count` is an i64 operand."""
    counts, ramp = f"<{lanes} x i32>", ", ".join(f"i32 {i}" for i in range(lanes))
    return [
        f"  %{name}.few = call i64 @llvm.smin.i64(i64 {count}, i64 {lanes})",
        f"  %{name}.count = trunc i64 %{name}.few to i32",
        f"  %{name}.one = insertelement {counts} poison, i32 %{name}.count, i64 0",
        f"  %{name}.all = shufflevector {counts} %{name}.one, {counts} poison, {counts} zeroinitializer",
        f"  %{name} = icmp slt {counts} <{ramp}>, %{name}.all",
    ]

"""The text form of a program: what `tiercel dis` prints and `tiercel asm` reads.

In: a program. Out: its text, so that `dumps(from_text(to_text(p))) == dumps(p)`; `assemble` holds the way back.

A text has two parts. The listing is for reading: per function a `def` line and per instruction its address, mnemonic,
pseudo-code, and as a comment the source line it belongs to. The data below it, in sections that begin with a dot, is
what the listing leaves out: constants, spans, variable locations, sources, facts, the profile. A text written by hand
may leave the data out; every address is then just a label (any word will do), `%name` is a register of that name,
and constants are written where they are used::

    def half(%x):
                Jump     goto there
        there:  CallOp   %1 = divide(%x, 2)
                Return   return %1

`;` begins a comment. Learned descriptors are comments that begin with `;;`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from tiercel.bytecode.listing import Notation, print_instruction
from tiercel.bytecode.literals import print_literal, print_name
from tiercel.bytecode.program import (
    Function,
    FunctionProfile,
    Program,
    Span,
)
from tiercel.bytecode.structure import depths
from tiercel.bytecode.tokens import print_descriptor
from tiercel.dtypes import as_dtype

__all__ = ["TEXT_VERSION", "neighbourhood", "to_text"]

TEXT_VERSION: Final = 1
_COMMENT_COLUMN: Final = 64
_LEARNED_WIDTH: Final = 42
_WRAP: Final = 96


def to_text(program: Program, *, data: bool = True) -> str:
    """Return the text form.

    Args:
        program: any verified program.
        data: whether to add the data that `from_text` needs to make the identical program; without it, the listing.
    """
    lines = [f"; tiercel bytecode, text version {TEXT_VERSION}", f"program {program.name!r}"]
    for index, function in enumerate(program.functions):
        lines.append("")
        lines += _listing(program, index, function)
    if data:
        lines += ["", "; what follows is data: with it, this text assembles to the identical program"]
        lines += _data(program)
    return "\n".join(lines) + "\n"


def neighbourhood(program: Program, function: Function, index: int, around: int = 2) -> tuple[str, ...]:
    """Return the instructions around one, as lines, with a mark at it; for errors.

    Args:
        program: need not be well-formed.
        function: one of its functions, or one that is to become one.
        index: of the instruction; that of the end is allowed.
        around: how many instructions to show before and after.
    """
    notation = Notation.of(program, function)
    lines = []
    for i in range(max(0, index - around), min(len(function.instructions), index + around + 1)):
        mark = ">" if i == index else " "
        lines.append(f"{mark} 0x{function.pcs[i]:02X}  {print_instruction(function.instructions[i], notation)}")
    if index >= len(function.instructions):
        lines.append(f"> 0x{function.pcs[-1]:02X}  (end of the function)")
    return tuple(lines)


def _listing(program: Program, index: int, function: Function) -> Iterator[str]:
    notation = Notation.of(program, function)
    learned, live_ins, entries = _learned(program, index)
    head = _header(function, notation)
    place = f"{function.filename}:{function.first_line}" if function.filename else ""
    seen = f"{entries} entries" if entries else ""
    about = _one_line(", ".join(filter(None, (place, seen))))
    yield f"{head}  ; {about}" if about else head
    if index == 0 and program.facts is not None:
        for line in _wrapped("    ; where", _separated(c.text for c in program.facts.constraints)):
            yield line
    names = {r: notation.register(r) for r in range(len(function.parameters)) if r in live_ins}
    for register, name in names.items():
        yield f"    ; seen {name:<{max(map(len, names.values()))}}  {live_ins[register]}"
    width = max(4, len(f"0x{function.pcs[-1]:02X}"))
    source = _SourceLines(function)
    indents = depths(function)
    for i, ins in enumerate(function.instructions):
        line = f"    {notation.target(i):>{width}}  {print_instruction(ins, notation, indent=indents[i])}"
        comment = source.comment(i)
        if i in learned:
            line = f"{line:<{_COMMENT_COLUMN}}  ;; {learned[i]}"
        if comment:
            column = _COMMENT_COLUMN + (_LEARNED_WIDTH if learned else 0)
            line = f"{line:<{column}}  ; {comment}"
        yield line.rstrip()
    if any(len(function.instructions) in ins.jump_targets() for ins in function.instructions):
        yield f"    {notation.target(len(function.instructions)):>{width}}  ; end"


def _learned(program: Program, index: int) -> tuple[dict[int, str], dict[int, str], int]:
    """What was learned of the most frequent signature, per instruction and per register; and the number of entries."""
    learned = program.profile
    profile = learned.functions.get(index) if learned is not None else None
    if profile is None:
        return {}, {}, 0
    best = max(profile.signatures, key=lambda s: s.count, default=None)
    if best is None:
        return {}, {}, profile.entries
    results = {i: _one_line(text) for i, text in best.results.items()}
    return results, {r: _one_line(text) for r, text in best.live_ins.items()}, profile.entries


def _one_line(text: str) -> str:
    return text if text.isprintable() else repr(text)


def _header(function: Function, notation: Notation) -> str:
    parts = []
    starred = False
    for i, p in enumerate(function.parameters):
        before = function.parameters[i - 1].kind if i else ""
        if before == "positional_only" and p.kind != "positional_only":
            parts.append("/")
        if p.kind == "keyword_only" and not starred:
            starred = True
            parts.append("*")
        prefix = {"var_positional": "*", "var_keyword": "**"}.get(p.kind, "")
        starred = starred or prefix == "*"
        text = f"{prefix}{notation.register(i)}"
        if p.token is not None:
            text += f": {notation.token(p.token)}"
        if p.default is not None:
            text += f" = {notation.operand(p.default)}"
        parts.append(text)
    if function.parameters and function.parameters[-1].kind == "positional_only":
        parts.append("/")
    first = len(function.parameters)
    free = ", ".join([notation.register(first + i) for i in range(len(function.free))])
    return f"def {print_name(function.name)}({', '.join(parts)}){f' free({free})' if free else ''}:"


class _SourceLines:
    """Gives each instruction the source line it belongs to, where the line changes."""

    def __init__(self, function: Function) -> None:
        self.lines = function.source.splitlines() if function.source is not None else []
        self.function = function
        self.last: int | None = None

    def comment(self, index: int) -> str:
        span = self.function.spans[index] if index < len(self.function.spans) else None
        if span is None or span[0] == self.last:
            return ""
        self.last = span[0]
        offset = span[0] - self.function.first_line
        text = self.lines[offset].strip() if 0 <= offset < len(self.lines) else ""
        # Whatever would end the line or the terminal's mood is left out.
        text = "".join(c if c.isprintable() else " " for c in text)
        return f"line {span[0]}: {text}" if text else f"line {span[0]}"


def _data(program: Program) -> Iterator[str]:
    yield ".program"
    yield f"  source_hash {program.source_hash!r}"
    if program.constants:
        yield ".constants"
        for i, value in enumerate(program.constants):
            yield from _constant_lines(i, value)
    if program.tokens:
        yield ".tokens"
        for i, descriptor in enumerate(program.tokens):
            yield f"  {i} {print_descriptor(descriptor)}"
    if program.facts is not None:
        yield ".facts"
        for constraint in program.facts.constraints:
            yield f"  {constraint.text}"
    for i, function in enumerate(program.functions):
        yield f".function {i}"
        yield from _function_data(function)
    if program.profile is not None:
        yield ".profile"
        for i, profile in sorted(program.profile.functions.items()):
            yield from _profile_lines(i, profile)


def _constant_lines(index: int, value: object) -> Iterator[str]:
    if not isinstance(value, np.ndarray):
        yield f"  {index} {print_literal(value)}"
        return
    yield f"  {index} array {as_dtype(value.dtype).name} {print_literal(value.shape)}"
    # 54 bytes give 72 characters.
    raw = value.tobytes()
    for at in range(0, len(raw), 54):
        yield f"    {base64.b64encode(raw[at : at + 54]).decode('ascii')}"


def _function_data(f: Function) -> Iterator[str]:
    yield f"  qualname {f.qualname!r}"
    yield f"  filename {f.filename!r}"
    yield f"  first_line {f.first_line}"
    yield f"  registers {f.registers}"
    yield f"  loops {f.loops}"
    for v in f.variables:
        yield f"  variable {v.name!r} {v.start} {v.end} {v.where!r}"
    if any(span is not None for span in f.spans):
        yield from _wrapped("  spans", _span_texts(f.spans))
    if f.source is not None:
        yield "  source"
        for line in f.source.splitlines(keepends=True):
            yield f"    {line!r}"


def _span_texts(spans: Sequence[Span | None]) -> Iterator[str]:
    """`line:col-end_col`, `line:col-end_line:end_col`, `=` the same again, `-` none."""
    last: Span | None = None
    for i, span in enumerate(spans):
        if span is None:
            yield "-"
        elif i and span == last:
            yield "="
        else:
            line, col, end_line, end_col = span
            yield f"{line}:{col}-{end_col}" if line == end_line else f"{line}:{col}-{end_line}:{end_col}"
        last = span


def _separated(texts: Iterable[str]) -> Iterator[str]:
    """The texts, each but the last with a comma."""
    last = None
    for text in texts:
        if last is not None:
            yield f"{last},"
        last = text
    if last is not None:
        yield last


def _wrapped(prefix: str, words: Iterator[str]) -> Iterator[str]:
    line = prefix
    for word in words:
        if len(line) + len(word) >= _WRAP and line != prefix:
            yield line
            line = prefix
        line += f" {word}"
    if line != prefix:
        yield line


def _profile_lines(index: int, profile: FunctionProfile) -> Iterator[str]:
    yield f"  function {index} {profile.entries}"
    for loop, (entries, iterations) in sorted(profile.loops.items()):
        yield f"  loop {loop} {entries} {iterations}"
    for s in profile.signatures:
        yield f"  signature {s.text!r} {s.count}"
        for register, text in sorted(s.live_ins.items()):
            yield f"  live {register} {text!r}"
        for at, text in sorted(s.results.items()):
            yield f"  result {at} {text!r}"

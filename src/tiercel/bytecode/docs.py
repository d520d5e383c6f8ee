"""The documentation page of the bytecode, made from its tables.

In: nothing. Out: `render()`, the text of `docs/bytecode.md`. Whatever the page says about single instructions, fields,
words, passes, limits or the file comes from the objects that the code itself uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tiercel.bytecode import layout, structure
from tiercel.bytecode.assemble import from_text
from tiercel.bytecode.constants import MAX_NESTING
from tiercel.bytecode.file import dumps
from tiercel.bytecode.instructions import ENUMS, OPCODES, Field, Opcode
from tiercel.bytecode.passes import PIPELINE
from tiercel.bytecode.text import to_text

__all__ = ["render"]

_EXAMPLE: Final = """\
program 'relu_steps'

def steps(%x: float32[B: 1..64, 128], %n):
            Scalar     %r = range(%n)
            Iter       %it = iter(%r)
    top:    LoopStart  loop 0: for %i in %it, exit out
            CallOp         %x = maximum(%x, 0.0) as np.maximum : float32[B, 128]
            LoopEnd    repeat loop 0 at top
    out:    Return     return %x
"""

_KINDS: Final = (
    ("def", "a register that is written; with `?` it may be absent", "number"),
    ("defs", "registers that are written", "count, numbers"),
    (
        "use",
        "an operand that is read: a register (0 and up) or a constant (`~index`); with `?` it may be absent",
        "zigzag",
    ),
    ("uses", "operands that are read", "count, zigzags"),
    ("const", "an operand that must be a constant", "index"),
    ("imm", "a number below 2**32", "number"),
    ("simm", "a signed number of 32 bits", "zigzag"),
    ("name", "a string; with `?` it may be absent", "index into the function's names"),
    ("names", "strings", "count, indexes"),
    ("target", "an instruction to go to; in memory its index", "byte offset in the function, four bytes"),
    ("token", "a declared token; may be absent", "index plus one, 0 if absent"),
    ("enum", "a word of the table in parentheses", "position in the table"),
)


def render() -> str:
    """Return the page, in Markdown."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield from _INTRODUCTION.strip("\n").split("\n")
    yield from _block("## Fields")
    yield from ("| kind | holds | in files |", "|---|---|---|")
    for kind, holds, encoded in _KINDS:
        yield f"| {kind} | {holds} | {encoded} |"
    yield from _block(_NOTATION)
    yield from ("| code | instruction | fields | effect |", "|---|---|---|---|")
    for row in OPCODES.values():
        yield f"| {row.code} | [{row.name}](#{row.name.lower()}) | {_fields(row)} | `{row.effect}` |"
    yield from _block(_COLUMNS)
    yield from (
        "| instruction | reads | writes | may fail | user code | effect class | live at exit |",
        "|" + "---|" * 7,
    )
    for row in OPCODES.values():
        yield (
            f"| {row.name} | {', '.join(row.reads)} | {', '.join(row.writes)} | {_yes(row.may_fail)} | "
            f"{_yes(row.user_code)} | {row.effect_class} | {row.live_at_exit} |"
        )
    yield from _block("## Each instruction")
    for row in OPCODES.values():
        yield from (f"### {row.name}", "", f"`{row.text}`", "", row.doc, "")
    yield from ("## Words", "")
    for name, words in ENUMS.items():
        yield f"- **{name}**: {', '.join(f'`{w}`' for w in words)}"
    yield from _block(_STRUCTURE.format(depth=structure.MAX_DEPTH))
    for run in dict.fromkeys(PIPELINE):
        summary = (run.__doc__ or "").strip().split("\n")[0]
        yield f"- **{run.__name__}**: {summary}"
    yield from _block(_TEXT)
    program = from_text(_EXAMPLE)
    yield from ("```", *_EXAMPLE.rstrip("\n").split("\n"), "```", "", "It is printed as", "")
    yield from ("```", *to_text(program).rstrip("\n").split("\n"), "```")
    kinds = ", ".join(f"{number} {name}" for number, name in layout.SECTIONS.items())
    text = _FILE.format(
        magic=layout.MAGIC, version=layout.VERSION, kinds=kinds, size=len(dumps(program)), nesting=MAX_NESTING
    )
    yield from _block(text)


def _block(text: str) -> Iterator[str]:
    """The lines of a text, between blank ones."""
    yield from ("", *text.strip("\n").split("\n"), "")


def _fields(row: Opcode) -> str:
    return " ".join(f"`{_field(f)}`" for f in row.fields)


def _field(field: Field) -> str:
    table = f"({field.enum_name})" if field.enum_name else ""
    return f"{field.name}:{field.kind}{'?' if field.optional else ''}{table}"


def _yes(value: bool) -> str:
    return "yes" if value else ""


_INTRODUCTION = """
# Bytecode

A program is a list of functions over one pool of constants and one list of declared tokens; `functions[0]` is the
entry. A function is a list of instructions for a machine with as many registers as the function says. Operands have no
types: what an instruction does is what the Python expression it came from does, on whatever values there are. Types
come later, from what is observed or declared.

On entry parameter `i` is in register `i`, and the cells of captured variables are in the registers behind the
parameters. Everything else is written before it is read, on every path: a variable that may be unbound begins as the
constant `UNBOUND` and has a `Check bound` before its use.
"""

_NOTATION = """

## Instructions

In the column *effect*, `R[a]` is the register (or constant) that field `a` names, `K[a]` a constant, `pc` the
instruction that comes next.

"""

_COLUMNS = """

What the compiler and the exits from native code need to know:

- *reads*, *writes*: state beyond registers.
- *may fail*: it can raise; control may leave native code there, and the interpreter then executes it.
- *user code*: on operands of unknown type it may run any Python (`__add__`, `__bool__`).
- *effect class*: what it does to the world on ordinary operands: `pure`, `alloc` (makes an object), `read_env` (reads
  names, attributes, cells), `write`, `control`, `opaque`.
- *live at exit*: what must be in registers when control leaves native code there: all its operands, or nothing.

"""

_STRUCTURE = """

## Structure

- A loop is the range from LoopStart to the LoopEnd with the same number. Only LoopEnd goes back. `continue` is a jump
  to the LoopEnd, `break` a jump behind it; `exit` is where an exhausted iterator leads.
- A protected range goes from Try to the matching EndTry. Its handler is the range from `handler` to `end`, behind the
  EndTry and at the same level of nesting; it is entered by an exception only, and while control is in it, that
  exception is the one being handled.
- These ranges lie within one another (at most {depth} deep) or apart. A jump may leave them and never enters one.
- Every path ends in Return or Raise.

The verifier checks this, that registers are defined on every path to their uses, that everything named exists, and that
declared tokens agree with the operators' shape rules and hold in every pass of a loop. A refusal names the function,
the address, the reason, and shows the instructions around.

## Passes of the Builder

They are repeated while they remove instructions. Each keeps source positions and variable locations; a variable whose
only store went is at its constant, or "optimised away".

"""

_TEXT = """

## Text form

`tiercel dis` prints it, `tiercel asm` turns it back into the identical bytes. The listing is for reading: address,
mnemonic, pseudo-code, declared token, the source line as a comment, what was learned as a comment with two semicolons.
The sections below it hold what it leaves out. A text written by hand needs none of them, any word will do as an
address, and a register can have any name:

"""

_FILE = """

## File form

`.msir` files are little-endian: the magic bytes `{magic!r}`, the version ({version}) and two zero bytes as u16, the
number of sections as u32; per section its kind (u32), CRC-32 (u32), offset (u64) and length (u64); the CRC-32 of all
that; the sections in the order of their kinds ({kinds}).
Facts, profile and tensors are there only if there are any. The section of tensors begins at a multiple of 64, as does
each tensor, so that it can be mapped. Numbers are LEB128, signed ones zigzag-coded first, text is a byte count and
UTF-8. The example above has {size} bytes.

A program has one spelling: loading refuses every file that saving would not have written, among them numbers with more
bytes than they need and sections that overlap or leave gaps. Files hold no machine code and nothing that is executed by
reading them. Python objects are names, which `load(path, python={{name: object}})` gives a meaning; without it they are
refused, but for builtin exceptions and builtin functions without effects. Loading, verifying and listing are safe for
any bytes; *running* a program is running its author's code, which can call what Python's builtins offer. Counts are
checked against the bytes that are left, constants are nested at most {nesting} deep, and the memory that loading takes
is bounded by about 80 bytes for each byte of the file.
"""

"""The text form: pleasant to read, exact to assemble, and precise about mistakes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bytecode.generate import Generator, generate, make_constant
from tiercel.bytecode import (
    BUILD_KINDS,
    ENUMS,
    OPCODES,
    Builder,
    FunctionProfile,
    Instruction,
    Parameter,
    Profile,
    Program,
    SignatureProfile,
    dumps,
    from_text,
    to_text,
    verify,
)
from tiercel.bytecode.constants import constant_key
from tiercel.bytecode.listing import _TEMPLATES
from tiercel.bytecode.literals import Scanner, parse_literal, print_literal
from tiercel.errors import BytecodeError
from tiercel.shapes import Facts, parse_descriptor


def lstm() -> Program:
    facts = Facts(["B: 16..64"])
    b = Builder("lstm", "lstm.py", facts=facts)
    source = """def step(x, h, n=3, *, k):
    'Doc.'
    for t in range(n):
        gates = x[:, 0] @ w + h
    return h
"""
    f = b.function(
        "step",
        [
            Parameter("x", token=b.token(parse_descriptor("float32[B, 128]"))),
            Parameter("h"),
            Parameter("n", default=b.constant(3)),
            Parameter("k", "keyword_only"),
        ],
        ["w"],
        first_line=10,
        source=source,
    )
    with f.at((12, 4, 13, 31)):
        it = f.Iter(None, f.Call(None, f.LoadGlobal(None, "range"), (2,)))
        loop, start, end = f.new_loop(), f.label(), f.label()
        f.place(start)
        f.LoopStart(loop, it, f.register("t"), end)
    with f.at((13, 16, 13, 27)):
        row = f.Index(None, 0, b.constant((slice(None), 0)))
        token = parse_descriptor("float32[B, 512]")
        f.CallOp(f.register("gates"), "matmul", 0, (row, f.LoadCell(None, 4, "w")), via="np.matmul", token=token)
        f.LoopEnd(loop, start)
    f.place(end)
    with f.at((14, 4, 14, 12)):
        f.Return(1)
    program = b.build()
    signature = SignatureProfile(
        "MatMul:(?,128)x(128,512)", 5, {0: "float32[16..32, 128]"}, {6: "float32[16..32, 512]"}
    )
    rarer = SignatureProfile("other", 2, {}, {4: "float64[1]"})
    program.profile = Profile({0: FunctionProfile(7, {0: (7, 21)}, (rarer, signature))})
    return program


def test_listing(golden: Callable[[str], None]) -> None:
    assert to_text(lstm(), data=False) == str(lstm())
    golden(to_text(lstm()))


def test_listing_with_data_assembles_to_the_identical_program() -> None:
    text = to_text(lstm())
    assert text.startswith(str(lstm()))
    assert dumps(from_text(text)) == dumps(lstm())
    assert to_text(from_text(text)) == text


@given(st.integers(0, 1 << 32))
def test_round_trip(seed: int) -> None:
    program = generate(seed, 20)
    text = to_text(program)
    again = from_text(text)
    assert to_text(again) == text
    assert dumps(again) == dumps(program)
    assert again.functions == program.functions


def test_every_opcode_prints_and_parses() -> None:
    seen = {i.opcode for seed in range(60) for f in generate(seed, 60, passes=False).functions for i in f.instructions}
    assert seen == set(OPCODES), "the round trip above covers every opcode"


@pytest.mark.parametrize("row", OPCODES.values(), ids=lambda row: row.name)
def test_template_shows_every_field(row: Any) -> None:
    shown = set()

    def collect(parts: Any) -> None:
        for part in parts:
            collect(getattr(part, "parts", ()))
            for name in ("args", "keywords", "dsts", "star"):
                shown.add(getattr(part, name, None))
            shown.add(getattr(getattr(part, "field", None), "name", None))

    collect(_TEMPLATES[row.name])
    assert {f.name for f in row.fields} <= shown


def test_hand_written_text() -> None:
    program = from_text(
        """
        def half(%x, %n):          ; a comment; with another semicolon
                    BranchIf   if %n goto there else over
            over:   Raise      raise
            there:  CallOp     %y = divide(%x, 2.0) as np.divide ; names make registers
                    Call       %9 = %y(%x, k=%n, *%x, **%n)
                    Return     return %9
        """
    )
    verify(program)
    f = program.entry
    assert f.instructions[0] == Instruction("BranchIf", (1, 2, 1))
    # Named registers come behind the highest number that occurs.
    assert f.instructions[2] == Instruction("CallOp", (10, "divide", 0, (0, -1), (), "np.divide", None))
    assert f.instructions[3].keywords == ("", "k", "*", "**")
    assert f.registers == 11
    assert [(v.name, v.where) for v in f.variables] == [("x", 0), ("n", 1), ("y", 10)]
    assert program.constants == (2.0,)


def test_addresses_are_labels() -> None:
    text = str(lstm()).replace("0x2C", "0x1000").replace("0x0C", "head:").replace("at head:", "at head")
    opcodes = [i.opcode for i in lstm().entry.instructions]
    assert [i.opcode for i in from_text(text).entry.instructions] == opcodes
    assert from_text(text).entry.instructions[-2].start == 3
    assert from_text(text).entry.instructions[3].exit == 8


def test_parameters_of_every_kind() -> None:
    head = "def f(%a, /, %b: float32[?, 3] where 'dim0 >= 1' = 1, *%rest, %k = 'x', **%more) free(%p, %q):"
    program = from_text(f"{head}\nReturn return %a")
    kinds = ["positional_only", "positional_or_keyword", "var_positional", "keyword_only", "var_keyword"]
    assert [p.kind for p in program.entry.parameters] == kinds
    assert program.entry.free == ("p", "q")
    assert program.constants == (1, "x") and len(program.tokens) == 1
    assert from_text(to_text(program)).entry == program.entry
    assert "def f(%a, /, %b: float32[?0, 3] where 'dim0 >= 1' = 1, *%rest, %k = 'x', **%more) free(%p, %q):" in str(
        program
    )
    assert "def f(%a, /):" in str(from_text("def f(%a, /):\nReturn return %a"))


def test_each_unnamed_size_is_its_own() -> None:
    program = from_text("def f(%a: float32[?, 2], %b: float32[?, 2]):\nReturn return %a")
    first, second = (t.token.dims for t in program.tokens)
    assert first is not None and second is not None and first[0] != second[0]


def test_ranges_in_tokens_become_facts() -> None:
    program = from_text("def f(%a: float32[B: 1..64 % 8, 2]):\nReturn return %a")
    assert program.facts is not None and [c.text for c in program.facts.constraints] == ["B: 8..64 % 8"]
    assert "; where B: 8..64 % 8" in str(program)
    assert dumps(from_text(to_text(program))) == dumps(program)


def test_equal_tokens_and_constants_keep_their_numbers() -> None:
    token = parse_descriptor("float32[B]")
    b = Builder("t")
    f = b.function("f", ["x"])
    f.LoadConst(None, b.constant("long " * 20))
    f.Return(0)
    made = b.build(passes=False)
    program = Program(made.functions, (*made.constants, 1, 1), (token, token))
    program.functions = (
        from_text(
            "def f(%x):\nLoadConst %1 = 0\nMove %2 = 1\nCallOp %3 = exp(%x) : float32[B]\nReturn return %3"
        ).entry,
    )
    ins = list(program.entry.instructions)
    ins[0] = ins[0].replace(value=~2)
    ins[1] = ins[1].replace(src=~1)
    ins[2] = ins[2].replace(token=1)
    program.functions = (replace(program.entry, instructions=tuple(ins)),)
    text = to_text(program)
    assert "%1 = $2" in text and "%2 = 1" in text and ": #1" in text
    assert dumps(from_text(text)) == dumps(program)


@given(st.randoms(use_true_random=False))
def test_literals(r: random.Random) -> None:
    value = make_constant(r)
    scanner = Scanner(print_literal(value))
    again = parse_literal(scanner)
    scanner.finish()
    assert constant_key(again) == constant_key(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (slice(None), "[:]"),
        (slice(None, None, -1), "[::-1]"),
        ((slice(1, None), ..., None), "([1:], Ellipsis, None)"),
        ((1,), "(1,)"),
        (complex(1, -0.0), "complex(1.0, -0.0)"),
        (float("inf"), "inf"),
        (-float("inf"), "-inf"),
        (2**70, "0x400000000000000000"),
        ("tab\tä", "'tab\\tä'"),
        ("\ud800", "'\\ud800'"),
        (np.dtype("f4"), "dtype(float32)"),
    ],
)
def test_literal_notation(value: object, text: str) -> None:
    assert print_literal(value) == text


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("", None, "the text holds no function"),
        ("def f(%x):\nReturn return %x\n.odd", "line 3", "unknown section .odd"),
        ("def f(%x):\nRetrun return %x", "line 2", "unknown opcode 'Retrun'; did you mean 'Return'"),
        ("def f(%x):\nReturn return x", "line 2", "'x' is no constant"),
        ("def f(%x):\nReturn return %x %x", "line 2", "expected the end of the line"),
        ("def f(%x):\nMove %x %x", "line 2", "expected '='"),
        ("def f(%x):\nJump goto nowhere", "line 2", "no line has the label nowhere"),
        ("def f(%x):\na: Jump goto a\na: Return return %x", "line 3", "a second line has the label a"),
        ("def f(%x):\n0x0A Return return %x\n0x00A EndTry end try", "line 3", "a second line has the label 0xA"),
        ("def f(%x):\nScalar %1 = length(%x)", "line 2", "'length' is none of SCALAR_FUNCTIONS"),
        ("def f(%x):\nLoadConst %1 = %x", "line 2", "value must be a constant"),
        ("def f(%x):\nLoadConst %1 = $0", "line 2", r"there is no constant \$0"),
        ("def f(%x):\nCallOp %1 = exp(%x) : #0", "line 2", "there is no token #0"),
        ("def f(%x):\nCallOp %1 = exp(%x) : float32[B", "line 2", "expected a declared token"),
        ("def f(%x):\nCallOp %1 = exp(%x) : float33[B]", "line 2", "'float33' names no dtype; did you mean 'float32'"),
        ("def f(%x):\nCallOp %1 = exp(%x) : float32[?, -1, 768]", "line 2", "cannot be negative"),
        ("def f(%x):\nLoadConst %1 = 'abc", "line 2", "expected a constant"),
        ("def f(%x):\nLoadConst %1 = '\\q'", "line 2", "unknown escape"),
        ("def f(%x):\nLoadConst %1 = (1)", "line 2", "a tuple of one item needs a comma"),
        ("def f(%x):\nLoadConst %1 = [1]", "line 2", "a slice has a ':'"),
        ("def f(%x):\nLoadConst %1 = " + "(" * 100, "line 2", "nested 64 deep"),
        ("def f(%x):\nLoadConst %1 = " + "9" * 5000, "line 2", "more than 4000 digits"),
        ("def f(%x):\nLoadConst %1 = nan_0x0000000000000000", "line 2", "the bits of no NaN"),
        ("def f(x):\nReturn return x", "line 1", "expected %name"),
        ("Return return 1", "line 1", "expected 'program', 'def' or a comment"),
        ("def f(%x):\nReturn return %x\n.constants\n  1 5", "line 4", "expected constant 0"),
        ("def f(%x):\nReturn return %x\n.constants\n  0 array float32 (2,)\n    AAAA", "line 4", "has 8 bytes"),
        ("def f(%x):\nReturn return %x\n.constants\n  0 array float32 (2,)\n    A?A", "line 4", "not base64"),
        ("def f(%x):\nReturn return %x\n.facts\n  B: 1..2\n  B == 5", "line 3", "contradicts"),
        ("def f(%x):\nReturn return %x\n.function 1", "line 3", "there is no function 1"),
        ("def f(%x):\nReturn return %x\n.function 0\n.function 0", "line 4", "a second section"),
        ("def f(%x):\nReturn return %y\n.function 0", "line 2", "no variable has the register %y"),
        ("def f(%x):\nReturn return %x\n.function 0\n  spans 1:2-3 =", "line 1", "1 instructions, but .function has 2"),
        ("def f(%x):\nReturn return %x\n.function 0\n  spans 1:x", "line 4", "expected a span"),
        ("def f(%x):\nReturn return %x\n.function 0\n  colour 'red'", "line 4", "unknown property 'colour'"),
        ("def f(%x):\nReturn return %x\n.profile\n  loop 0 1 1", "line 4", "begins with 'function'"),
        ("def f(%x):\nReturn return %x\n.profile\n  function 0 1\n  live 0 'x'", "line 5", "follows its 'signature'"),
    ],
)
def test_mistakes_are_located(text: str, place: str | None, message: str) -> None:
    with pytest.raises(BytecodeError, match=message) as caught:
        from_text(text)
    assert caught.value.section == (f"text {place}" if place else "text")
    if place:
        line, caret = caught.value.neighbourhood
        assert caret.strip() == "^" and line


def test_a_caret_points_at_the_place() -> None:
    with pytest.raises(BytecodeError) as caught:
        from_text("def f(%x):\n    Move %1 = %x + 2")
    assert caught.value.neighbourhood == ("    Move %1 = %x + 2", "                 ^")


def test_enum_tables_have_words_only() -> None:
    # The text form writes them bare.
    assert all(word.isidentifier() for words in ENUMS.values() for word in words)
    assert len(set(BUILD_KINDS)) == len(BUILD_KINDS)


def test_generator_is_reproducible() -> None:
    assert to_text(Generator(random.Random(7)).program()) == to_text(generate(7))

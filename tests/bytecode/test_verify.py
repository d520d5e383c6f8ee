"""The verifier: one test per way to be refused, each with section, address, reason and neighbourhood."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bytecode.generate import generate
from tiercel.bytecode import (
    Builder,
    FunctionProfile,
    Instruction,
    Parameter,
    Profile,
    Program,
    SignatureProfile,
    Variable,
    find_defects,
    find_structures,
    from_text,
    instructions,
    verify,
)
from tiercel.bytecode.structure import MAX_DEPTH
from tiercel.errors import BytecodeError
from tiercel.shapes import parse_descriptor

# The function of that name hides it in the package.
MODULE: Any = sys.modules["tiercel.bytecode.verify"]

# The seed's listing, in the notation of today. Its three mistakes must each be found.
SEED_LISTING = """
def forward(%x: float32[?, ?, 768]):
    0x00  LoadConst   %1 = 0
    0x02  BranchIf    if %1 goto 0x04 else 0x0A
    0x04  CallOp      %2 = reshape(%x, (-1, -1, 768)) : float32[?, ?, 768]
    0x08  Return      return %2
    0x0A  CallOp      %3 = broadcast_to(%x, (32, 128, 768))
"""
# The same with a condition that is computed, a size that is solved, and both arms joining.
CORRECTED_LISTING = """
def forward(%x: float32[B, T, 768], %limit):
            CallOp      %2 = sum(%x) as np.sum
            CallOp      %3 = greater(%2, %limit)
            BranchIf    if %3 goto long else short
    long:   CallOp      %4 = reshape(%x, (-1, 768)) as np.reshape : float32[B*T, 768]
            Jump        goto join
    short:  CallOp      %4 = reshape(%x, (-1, 768)) as np.reshape : float32[B*T, 768]
    join:   Return      return %4
"""


def refusal(text: str, head: str = "def f(%x, %n, %c):") -> BytecodeError:
    """The only defect of a program."""
    program = from_text(f"{head}\n{text}\n")
    (defect,) = find_defects(program)
    with pytest.raises(BytecodeError) as caught:
        verify(program)
    assert str(caught.value) == str(defect)
    return defect


def test_the_seeds_listing() -> None:
    program = from_text(SEED_LISTING)
    defects = find_defects(program)
    assert [d.section for d in defects] == ["function 0, forward"] * 3
    by_reason = sorted((d.offset, d.reason) for d in defects)
    (branch_at, branch), (reshape_at, reshape), (fall_at, fall) = by_reason
    pcs = program.entry.pcs
    assert (branch_at, reshape_at, fall_at) == (pcs[1], pcs[2], pcs[4])
    assert "the branch tests the constant 0, so its then arm is dead" in branch
    assert "can only specify one unknown dimension" in reshape
    assert "control falls off the end" in fall
    with pytest.raises(BytecodeError) as caught:
        verify(program)
    assert "2 more:" in caught.value.__notes__[0]


def test_the_seeds_token_with_a_solved_and_an_unknown_size() -> None:
    with pytest.raises(BytecodeError, match="a size cannot be negative"):
        from_text("def f(%x):\nCallOp %1 = reshape(%x, (-1, 768)) : float32[?, -1, 768]\nReturn return %1")


def test_the_corrected_listing() -> None:
    verify(from_text(CORRECTED_LISTING))


def test_the_neighbourhood_shows_the_instructions_around() -> None:
    text = "".join(f"Move %{i} = %x\n" for i in range(3, 9)) + "Move %9 = %20\nReturn return %9"
    defect = refusal(text)
    assert defect.offset == 18
    assert defect.neighbourhood == (
        "  0x0C  Move         %7 = %x",
        "  0x0F  Move         %8 = %x",
        "> 0x12  Move         %9 = %20",
        "  0x15  Return       return %9",
    )
    assert str(defect).startswith("section function 0, f, offset 0x12: %20 is not defined on every path to here")


class TestStructure:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("Call %3 = %x()", "control falls off the end"),
            ("Move %3 = %x\nMove %4 = %x", "control falls off the end"),
            ("a: Move %3 = %x\nJump goto a", "Jump goes back to instruction 0; only LoopEnd may go back"),
            ("a: Move %3 = %x\nBranchIf if %x goto a else b\nb: Return return %x", "BranchIf goes back"),
            ("a: LoopStart loop 0: exit z\nz: Return return %x", "a LoopStart without its LoopEnd"),
            ("a: Move %3 = %x\nLoopEnd repeat loop 0 at a", "LoopEnd has no LoopStart to match: it is outside of any"),
            ("EndTry end try\nReturn return %x", "EndTry has no Try to match"),
            (
                "Try try: except %e at h to z\nh: Return return %x\nz: Return return %x",
                "the handler, instruction 1, is not at the nesting level of its Try",
            ),
            (
                ("a: LoopStart loop 0: exit z\nb: LoopStart loop 1: exit y\nLoopEnd repeat loop 0 at a\n"
                "y: LoopEnd repeat loop 1 at b\nz: Return return %x"),
                "the loop around it is loop 1, which starts at 1",
            ),
            (
                ("a: LoopStart loop 0: exit z\nTry try: except %e at h to y\nLoopEnd repeat loop 0 at a\n"
                "EndTry end try\nh: Jump goto y\ny: Jump goto z\nz: Return return %x"),
                "LoopEnd has no LoopStart to match: it is inside the try from 1",
            ),
            ("a: LoopStart loop 0: exit a\nLoopEnd repeat loop 0 at a\nReturn return %x", "lie behind its LoopEnd"),
            (
                "Jump goto b\na: LoopStart loop 0: exit z\nb: LoopEnd repeat loop 0 at a\nz: Return return %x",
                "Jump jumps into the loop of instruction 1 from outside",
            ),
            (
                ("Jump goto b\nTry try: except %e at h to z\nb: EndTry end try\nJump goto z\nh: Jump goto z\n"
                "z: Return return %x"),
                "Jump jumps into the try of instruction 1 from outside",
            ),
            (
                "Try try: except %e at h to z\nEndTry end try\nJump goto h\nh: Jump goto z\nz: Return return %x",
                "Jump jumps into the handler of instruction 0 from outside",
            ),
            (
                "Try try: except %e at h to z\nEndTry end try\nh: Jump goto z\nz: Return return %x",
                "EndTry runs into the handler of instruction 0 from outside",
            ),
            (
                "Try try: except %e at h to h\nEndTry end try\nJump goto h\nh: Return return %x",
                "the handler must be a range behind the Try, got instructions 3 to 3",
            ),
            (
                "Try try: except %e at h to z\nh: Move %3 = %x\nEndTry end try\nz: Return return %x",
                "is not at the nesting level of its Try, behind its EndTry",
            ),
            (
                ("Try try: except %e at h to z\nEndTry end try\nReturn return %x\nh: LoopStart loop 0: exit w\n"
                "z: LoopEnd repeat loop 0 at h\nw: Return return %x"),
                "the handler ends at instruction 4, inside a structure that it holds",
            ),
            (
                ("Try try: except %e at h to z\nTry try: except %e at h to z\nEndTry end try\nEndTry end try\n"
                "Return return %x\nh: Jump goto z\nz: Return return %x"),
                "instruction 5 is the handler of a second Try",
            ),
        ],
    )  # fmt: skip
    def test_refused(self, text: str, message: str) -> None:
        assert message in refusal(text).reason

    def test_target_outside(self) -> None:
        f = from_text("def f(%x):\nJump goto a\na: Return return %x").entry
        for target in (2, 1 << 20):
            bad = replace(f, instructions=(Instruction("Jump", (target,)), f.instructions[1]))
            (defect,) = find_defects(Program((bad,)))
            assert defect.reason == f"Jump goes to instruction {target}; the function has 2"

    def test_nesting_is_bounded(self) -> None:
        def nested(depth: int) -> Program:
            heads = "".join(f"s{i}: LoopStart loop {i}: exit z\n" for i in range(depth))
            ends = "".join(f"LoopEnd repeat loop {i} at s{i}\n" for i in reversed(range(depth)))
            return from_text(f"def f(%x):\n{heads}Jump goto z\n{ends}z: Return return %x")

        verify(nested(MAX_DEPTH))
        (defect,) = find_defects(nested(MAX_DEPTH + 1))
        assert f"nested {MAX_DEPTH} deep" in defect.reason

    def test_what_may_be_left(self) -> None:
        verify(
            from_text(
                """def f(%x, %n):
                Iter       %it = iter(%x)
            a:  LoopStart  loop 0: for %i in %it, exit else
                Try        try: except %e at h to z
                BranchIf   if %n goto out else on
            on: Return     return %i
                EndTry     end try
                Jump       goto z
            h:  BranchIf   if %n goto out else again
            again: Raise   raise
            z:  LoopEnd    repeat loop 0 at a
            else: Move     %i = None
            out: Return    return %n
            """
            )
        )

    def test_structures(self) -> None:
        f = from_text(
            """def f(%x):
            a: LoopStart loop 0: exit z
            Try try: except %e at h to y
            Call %3 = %x()
            EndTry end try
            Jump goto y
            h: Jump goto z
            y: LoopEnd repeat loop 0 at a
            z: Return return %x"""
        ).entry
        found = find_structures(f, lambda index, reason: pytest.fail(reason))
        assert found is not None
        assert [(s.kind, s.head, s.start, s.end, s.parent, s.depth) for s in found.all] == [
            ("loop", 0, 1, 7, -1, 0),
            ("try", 1, 2, 4, 0, 1),
            ("handler", 1, 5, 6, 0, 1),
        ]
        assert found.owner == (-1, 0, 1, 1, 0, 2, 0, -1, -1)


class TestDefined:
    @pytest.mark.parametrize(
        "text",
        [
            "Return return %3",
            "BranchIf if %c goto a else b\na: Move %3 = %x\nb: Return return %3",
            (
                "Iter %it = iter(%x)\nt: LoopStart loop 0: for %3 in %it, exit e\nLoopEnd repeat loop 0 at t\n"
                "e: Return return %3"
            ),
            (
                "Try try: except %e at h to z\nCall %3 = %x()\nEndTry end try\nJump goto z\nh: Jump goto z\n"
                "z: Return return %3"
            ),
            "Try try: except %3 at h to z\nEndTry end try\nJump goto z\nh: Jump goto z\nz: Return return %3",
            "CallOp %4 = exp(%x) as 3:np.exp\nReturn return %4",
        ],
    )
    def test_refused(self, text: str) -> None:
        reason = refusal(text.replace("%3", "%w")).reason if "3:np" not in text else refusal(text).reason
        assert "is not defined on every path to here" in reason

    @pytest.mark.parametrize(
        "text",
        [
            "BranchIf if %c goto a else b\na: Move %3 = %x\nJump goto j\nb: Move %3 = %n\nj: Return return %3",
            (
                "Try try: except %e at h to z\nCall %4 = %x()\nEndTry end try\nReturn return %4\nh: Return return %e\n"
                "z: Return return %x"
            ),
            (
                "Move %3 = %x\nt: LoopStart loop 0: exit e\nBranchIf if %c goto e else n\nn: Move %4 = %3\n"
                "Move %3 = %4\nLoopEnd repeat loop 0 at t\ne: Return return %3"
            ),
            # Never reached, so nothing is known of it.
            "Return return %x\nReturn return %9",
            # Parameters and cells are there on entry.
            "def f(%a) free(%w):\nLoadCell %b = cell %w as w\nReturn return %b",
        ],
    )
    def test_accepted(self, text: str) -> None:
        verify(from_text(text if "def " in text else f"def f(%x, %n, %c):\n{text}"))

    def test_each_use_is_said_once(self) -> None:
        program = from_text("def f(%x):\nMove %1 = %9\nMove %2 = %9\nReturn return %8")
        assert len(find_defects(program)) == 2

    def test_complexity_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(MODULE, "_MAX_PENDING_BYTES", 64 * 3)
        branches = "".join(f"BranchIf if %x goto t{i} else n{i}\nn{i}: Move %{i + 1} = %x\n" for i in range(5))
        targets = "".join(f"t{i}: Move %7 = %x\n" for i in range(5))
        (defect,) = find_defects(from_text(f"def f(%x):\n{branches}{targets}Return return %x"))
        assert "too complex to verify" in defect.reason


class TestFields:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("LoadParam %3 = argument 3\nReturn return %3", "argument 3: the function has 3 parameters"),
            ("LoadTensor %3 = 5\nReturn return %3", "LoadTensor loads arrays; constant 0 is a int"),
            ("MakeFunction %3 = def g with 5\nReturn return %3", "is an object known by name; constant 0 is a int"),
            ("CallOp %3 = expp(%x)\nReturn return %3", "no operator 'expp'; did you mean 'exp"),
            ("CallOp %3 = exp/99(%x)\nReturn return %3", "spellings, got number 99"),
            ("CallOp %3 = exp(*%x)\nReturn return %3", "* does not occur in CallOp"),
            ("CallOp %3 = exp(%x, a=%x, a=%x)\nReturn return %3", "the keyword 'a' is given twice"),
            ("Call %3 = %x('a b'=%x)\nReturn return %3", "the keyword 'a b' is no identifier"),
            ("Call %3 = %x('None'=%x)\nReturn return %3", "the keyword 'None' is no identifier"),
            ("CallOp %3 = exp(%x) as 'np exp'\nReturn return %3", "is no dotted path of names"),
            ("CallOp %3 = exp(%x) as '01:np.exp'\nReturn return %3", "the register of a cell stands before the colon"),
            ("CallOp %3 = exp(%x) as 77:np.exp\nReturn return %3", "register 77: the function has 4"),
            ("LoadGlobal %3 = 'a b'\nReturn return %3", "name must be an identifier, got 'a b'"),
            ("LoadGlobal %3 = a.b\nReturn return %3", "name must be an identifier, got 'a.b'"),
            ("LoadAttr %3 = %x.'True'\nReturn return %3", "name must be an identifier, got 'True'"),
            ("StoreAttr %x.'' = %x\nReturn return %x", "name must be an identifier, got ''"),
            ("Scalar %3 = not(%x, %x)\nReturn return %3", "not takes 1 operands, got 2"),
            ("Scalar %3 = is(%x)\nReturn return %3", "is takes 2 operands, got 1"),
            ("Build %3 = slice(%x)\nReturn return %3", "start, stop and step, got 1 items"),
            ("Build %3 = dict(%x)\nReturn return %3", "keys and values alternating, got 1 items"),
            ("Build %3 = cell(%x, %x)\nReturn return %3", "a cell is built empty or of one item, got 2"),
            ("Raise raise from %x", "a cause needs an exception"),
            ("Check check bound of %x as ''\nReturn return %x", "a Check bound names its variable"),
            (
                (
                    "s: LoopStart loop 0: exit t\nLoopEnd repeat loop 0 at s\nt: LoopStart loop 0: exit u\n"
                    "LoopEnd repeat loop 0 at t\nu: Return return %x"
                ),
                "loop 0 starts a second time",
            ),
            ("BranchIf if 'x' goto a else a\na: Return return %x", "the branch tests the constant 'x'"),
            (
                "LoadConst %3 = ()\nBranchIf if %3 goto a else a\na: Return return %x",
                "the branch tests the constant ()",
            ),
        ],
    )
    def test_refused(self, text: str, message: str) -> None:
        assert message in refusal(text).reason

    @pytest.mark.parametrize(
        ("ins", "message"),
        [
            (("Move", (1, ~9)), "constant 9: the program has 0"),
            (("Move", (99, 0)), "register 99: the function has 4"),
            (("Move", (1, 99)), "register 99: the function has 4"),
            (("CallOp", (1, "exp", 0, (0,), ("", "axis"), None, None)), "1 arguments have 2 keywords"),
            (("CallOp", (1, "exp", 0, (0,), ("",), None, None)), "all arguments are positional"),
            (("CallOp", (1, "exp", 0, (0,), (), None, 7)), "token 7: the program has 0"),
            (("Unpack", ((1, 2), 0, 3)), "target 3 is starred, there are 2"),
        ],
    )
    def test_what_no_text_says(self, ins: Any, message: str) -> None:
        f = from_text("def f(%x):\nMove %1 = %x\nMove %2 = %x\nMove %3 = %x\nReturn return %x").entry
        bad = replace(f, instructions=(Instruction(*ins), *f.instructions[1:]))
        (defect,) = find_defects(Program((bad,)))
        assert message in defect.reason

    def test_loop_fields_belong_together(self) -> None:
        f = from_text("def f(%x):\na: LoopStart loop 0: exit z\nLoopEnd repeat loop 0 at a\nz: Return return %x").entry
        bad = replace(f, instructions=(f.instructions[0].replace(iterator=0), *f.instructions[1:]))
        assert find_defects(Program((bad,)))[0].reason == "a loop has an iterator and a target, or neither"
        bad = replace(f, loops=0)
        assert find_defects(Program((bad,)))[0].reason == "loop 0: the function has 0 loop ids"

    def test_a_branch_on_a_parameter_that_is_also_set_is_fine(self) -> None:
        verify(from_text("def f(%x):\nBranchIf if %x goto a else b\na: LoadConst %x = 1\nb: Return return %x"))

    def test_every_rule_belongs_to_an_opcode(self) -> None:
        for table in (MODULE._RULES, MODULE._IDENTIFIERS):
            assert table.keys() <= instructions.OPCODES.keys()
        with_token = {row.name for row in instructions.OPCODES.values() if any(f.kind == "token" for f in row.fields)}
        assert with_token == MODULE._WITH_TOKEN
        ends = {row.name for row in instructions.OPCODES.values() if row.name in MODULE._NO_FALL_THROUGH}
        assert ends == MODULE._NO_FALL_THROUGH


class TestHeader:
    def program(self, **changes: Any) -> Program:
        f = from_text("def f(%x, %n):\nMove %2 = %x\nReturn return %2").entry
        return Program((replace(f, **changes),), (1,))

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"instructions": (), "spans": (), "variables": ()}, "the function has no instructions"),
            ({"spans": (None,)}, "2 instructions have 1 spans"),
            ({"registers": 1, "variables": ()}, "1 registers: expected at least 2"),
            ({"registers": 1 << 30}, "registers: expected at least 2"),
            ({"spans": ((2, 0, 1, 0), None)}, "the span (2, 0, 1, 0) is none"),
            ({"spans": ((1, -1, 1, 0), None)}, "the span (1, -1, 1, 0) is none"),
            ({"first_line": -1}, "first line -1"),
            ({"parameters": (Parameter("x"), Parameter("x"))}, "two parameters have the same name"),
            ({"parameters": (Parameter("for"), Parameter("x"))}, "'for' is no name of a variable"),
            ({"parameters": (Parameter("x", "odd"), Parameter("y"))}, "has the kind 'odd'"),
            ({"parameters": (Parameter("k", "keyword_only"), Parameter("x"))}, "stands behind a keyword_only one"),
            ({"parameters": (Parameter("a", "var_keyword"), Parameter("b", "var_keyword"))}, "behind a var_keyword"),
            ({"parameters": (Parameter("a", default=0), Parameter("b"))}, "default of parameter 'a' is no constant"),
            ({"parameters": (Parameter("a", default=-2), Parameter("b"))}, "default of parameter 'a' is no constant"),
            ({"parameters": (Parameter("a", token=0), Parameter("b"))}, "parameter 'a' has token 0, the program has 0"),
            ({"variables": (Variable("v", 0, 3, 0),)}, "variable 'v': instructions 0 to 3, there are 2"),
            ({"variables": (Variable("v", 1, 1, 0),)}, "variable 'v': instructions 1 to 1"),
            ({"variables": (Variable("v", 0, 1, 9),)}, "variable 'v' is at 9"),
            ({"variables": (Variable("v", 0, 1, -9),)}, "variable 'v' is at -9"),
            ({"variables": (Variable("v", 0, 1, "cell:9"),)}, "variable 'v' is at 'cell:9'"),
            ({"variables": (Variable("v", 0, 1, "cell:01"),)}, "variable 'v' is at 'cell:01'"),
            ({"variables": (Variable("v", 0, 1, "away"),)}, "variable 'v' is at 'away'"),
        ],
    )  # fmt: skip
    def test_refused(self, changes: dict[str, Any], message: str) -> None:
        (defect,) = find_defects(self.program(**changes))
        assert message in defect.reason and defect.section == "function 0, f" and defect.offset is None

    def test_accepted_locations(self) -> None:
        where = (0, 2, ~0, "cell:1", "optimised away")
        verify(self.program(variables=tuple(Variable("v", 0, 2, w) for w in where)))

    def test_program(self) -> None:
        (defect,) = find_defects(Program(()))
        assert defect.section == "program" and "1 to 65536 functions, got 0 functions" in defect.reason
        f = self.program().functions
        (defect,) = find_defects(Program(f, (1, [2])))
        assert (
            defect.section == "constants" and "constant 1: a value of type list cannot be a constant" in defect.reason
        )

    @pytest.mark.parametrize(
        ("profile", "message"),
        [
            ({1: FunctionProfile()}, "function 1: the program has 1"),
            ({0: FunctionProfile(1, {0: (1, 1)})}, "function 0: there is no loop 0"),
            ({0: FunctionProfile(-1)}, "function 0: counts are 0 to"),
            ({0: FunctionProfile(1, {}, (SignatureProfile("", 1 << 63),))}, "function 0: counts are 0 to"),
            ({0: FunctionProfile(1, {}, (SignatureProfile("", 1, {9: "x"}),))}, "function 0: there is no register 9"),
            ({0: FunctionProfile(1, {}, (SignatureProfile("", 1, {}, {2: "x"}),))}, "there is no instruction 2"),
        ],
    )
    def test_profile(self, profile: dict[int, FunctionProfile], message: str) -> None:
        program = self.program()
        program.profile = Profile(profile)
        (defect,) = find_defects(program)
        assert defect.section == "profile" and message in defect.reason

    def test_defects_are_counted_to_twenty(self) -> None:
        body = "".join(f"Move %{i} = %{i + 50}\n" for i in range(1, 31))
        program = from_text(f"def f(%x):\n{body}Return return %x")
        assert len(find_defects(program)) == 20
        with pytest.raises(BytecodeError) as caught:
            verify(program)
        assert "at least 19 more:" in caught.value.__notes__[0]


class TestDeclared:
    @pytest.mark.parametrize(
        ("operation", "message"),
        [
            ("reshape(%x, (-1, 768)) : float32[B, 768]", None),
            ("reshape(%x, (-1, 768)) : float32[B*T, 768]", None),
            ("reshape(%x, (-1, 768)) : float32[?, 768]", None),
            ("reshape(%x, (-1, 768)) : float32[...]", None),
            ("reshape(%x, (-1, 768)) : float32[B*T, 767]", "dimension 1 is 768, the declared token says 767"),
            ("reshape(%x, (-1, 768)) : float32[B*T + 1, 768]", "dimension 0 is B*T, the declared token says B*T + 1"),
            ("reshape(%x, (-1, 768)) : float32[768]", "the ranks differ"),
            ("reshape(%x, (-1, 768)) : float64[B*T, 768]", "the dtypes differ"),
            ("reshape(%x, (-1, -1)) : float32[B*T, 768]", "can only specify one unknown dimension"),
            ("matmul(%x, %w) : float32[B, T, 10]", None),
            ("matmul(%w, %w) : float32[768, 10]", "matmul refuses its operands"),
            ("add(%x, %w) : float32[B, 768, 768]", "add refuses its operands"),
            ("exp(%x, %x, %x) : float32[B, T, 768]", "exp refuses its operands"),
            ("exp(%unknown) : float32[7]", None),
            ("sum(%x) : float32[]", None),
            ("sum(%x) : float32[1]", "the ranks differ"),
        ],
    )
    def test_results(self, operation: str, message: str | None) -> None:
        head = "def f(%x: float32[B, T, 768], %w: float32[768, 10], %unknown):"
        program = from_text(f"{head}\nCallOp %3 = {operation}\nReturn return %3")
        if message is None:
            verify(program)
        else:
            (defect,) = find_defects(program)
            assert message in defect.reason and defect.offset == 0

    def test_facts_decide(self) -> None:
        text = "CallOp %1 = reshape(%x, (8, 4)) : float32[8, 4]\nReturn return %1"
        verify(from_text(f"def f(%x: float32[B]):\n{text}"))
        (defect,) = find_defects(from_text(f"def f(%x: float32[B: ..31]):\n{text}"))
        assert "cannot reshape" in defect.reason

    def test_tokens_of_parameters_may_stand_in_their_instructions(self) -> None:
        text = "def f(%x):\nLoadParam %x = argument 0 : float32[3]\nCallOp %1 = exp(%x) : float32[4]\nReturn return %1"
        assert "dimension 0 is 3" in find_defects(from_text(text))[0].reason

    def test_copies_carry_tokens(self) -> None:
        text = """def f(%x: float32[3]):
            Move %1 = %x
            Anchor %2 = anchor(%1)
            CallOp %3 = exp(%2) : float32[4]
            Return return %3"""
        assert "dimension 0 is 3" in find_defects(from_text(text))[0].reason

    def test_a_register_with_two_writes_has_what_they_share(self) -> None:
        def text(second: str, result: str) -> str:
            return f"""def f(%x: float32[3, 4], %y: {second}, %c):
                Move %3 = %x
                BranchIf if %c goto a else b
                a: Move %3 = %y
                b: CallOp %4 = exp(%3) : {result}
                Return return %4"""

        verify(from_text(text("float32[3, 5]", "float32[3, 4]")))
        verify(from_text(text("float64[3, 5]", "float32[1, 1]")))
        assert "dimension 0 is 3" in find_defects(from_text(text("float32[3, 5]", "float32[2, 4]")))[0].reason

    def test_tensor_constants(self) -> None:
        b = Builder("t")
        f = b.function("f")
        good = f.LoadTensor(None, b.constant(np.zeros((2, 3), np.float32)), parse_descriptor("float32[2, N]"))
        f.Return(good)
        b.build(passes=False)
        for token, message in (("float32[3, N]", "has shape (2, 3)"), ("int8[2, 3]", "the tensor is float32")):
            f.instructions[0] = f.instructions[0].replace(token=b.token(parse_descriptor(token)))
            with pytest.raises(BytecodeError) as caught:
                b.build(passes=False)
            assert message in caught.value.reason

    LOOP = """def f(%cache: float32[T, 8], %step: float32[1, 8], %it):
        t: LoopStart loop 0: for %i in %it, exit e
        Build %3 = list(%cache, %step)
        CallOp %cache = concat(%3) : float32[{back}, 8]
        LoopEnd repeat loop 0 at t
        e: Return return %cache"""

    def test_loop_carried_registers_have_an_invariant(self) -> None:
        (defect,) = find_defects(from_text(self.LOOP.format(back="T + 1")))
        assert "%0 is carried by the loop at 0: dimension 0 is T on entry and T + 1 after a pass" in defect.reason
        verify(from_text(self.LOOP.format(back="@u0")))
        verify(from_text(self.LOOP.format(back="T")))

    def test_a_register_that_the_loop_does_not_carry_may_change(self) -> None:
        # Written before it is read in each pass.
        text = """def f(%x: float32[T, 8], %y: float32[T + 1, 8], %it):
            CallOp %t = exp(%x) : float32[T, 8]
            Call %u = %it(%t)
            s: LoopStart loop 0: for %i in %it, exit e
            CallOp %t = exp(%x) : float32[T, 8]
            Call %u = %it(%t)
            CallOp %t = exp(%y) : float32[T + 1, 8]
            LoopEnd repeat loop 0 at s
            e: Return return %u"""
        verify(from_text(text))

    def test_copies_are_followed_round_the_loop(self) -> None:
        # From the second pass on %3 holds what the end of the first one wrote.
        text = """def f(%x: float32[3], %g, %it):
            s: LoopStart loop 0: for %i in %it, exit e
            Move %9 = %x
            CallOp %8 = exp(%9) : float32[4]
            CallOp %x = exp(%g) : float32[S]
            LoopEnd repeat loop 0 at s
            e: Return return %x"""
        verify(from_text(text))

    def test_a_write_that_leaves_the_loop_may_differ(self) -> None:
        text = """def f(%x: float32[T, 8], %it, %c, %g):
            s: LoopStart loop 0: for %i in %it, exit e
            Call %u = %it(%x)
            BranchIf if %c goto out else next
            out: CallOp %x = exp(%g) : float32[T + 1, 8]
            Jump goto e
            next: LoopEnd repeat loop 0 at s
            e: Return return %x"""
        verify(from_text(text))


@given(st.integers(0, 1 << 32))
def test_what_the_builder_makes_is_accepted(seed: int) -> None:
    assert find_defects(generate(seed, 25, verify=False)) == ()

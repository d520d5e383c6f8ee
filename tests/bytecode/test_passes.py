"""Each pass: what it changes, what it must not touch, and that lines and variables stay where they belong."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tiercel.bytecode import UNBOUND, Builder, Function, Program, Variable, from_text, passes, to_text, verify
from tiercel.bytecode.constants import ConstantPool
from tiercel.bytecode.passes import (
    PIPELINE,
    fold_constants,
    number_registers,
    remove_dead_code,
    run_passes,
    share_subexpressions,
    thread_jumps,
)


def program(body: str, head: str = "def f(%x, %n, %c):") -> Program:
    return from_text(f"{head}\n{body}\n")


def run(one: passes.Pass, p: Program) -> tuple[Function, ConstantPool]:
    """Run one pass on a program's entry, each instruction with a span of its own; check what every pass keeps."""
    old = p.entry
    spans = tuple((100 + i, i, 100 + i, i + 1) for i in range(len(old.instructions)))
    old = Function(**{**vars(old), "spans": spans})
    pool = ConstantPool(p.constants)
    new = one(old, pool)
    if new is not old:
        by_span = dict(zip(spans, old.instructions, strict=True))
        assert list(new.spans) == sorted(new.spans)  # type: ignore[type-var]
        for span, ins in zip(new.spans, new.instructions, strict=True):
            assert span is not None
            # The line is that of the instruction it comes from: the same target, or the same thing folded.
            assert ins.opcode in (by_span[span].opcode, "LoadConst", "Jump")
    verify(Program((new,), tuple(pool.values), p.tokens, p.facts))
    assert one(new, pool) is new, "a second run changes nothing and returns the same object"
    return new, pool


def listing(f: Function, pool: ConstantPool) -> list[str]:
    text = to_text(Program((f,), tuple(pool.values)), data=False)
    lines = [line.split(";")[0].split(None, 2) for line in text.splitlines() if line.startswith("    0x")]
    return [line[2].strip() if len(line) > 2 else "" for line in lines]


@pytest.mark.parametrize("one", PIPELINE, ids=lambda f: f.__name__)
def test_unchanged_function_is_returned_itself(one: passes.Pass) -> None:
    p = program("CallOp %3 = add(%x, %n)\nReturn return %3")
    assert one(p.entry, ConstantPool(p.constants)) is p.entry


class TestFold:
    def fold(self, body: str) -> list[str]:
        return listing(*run(fold_constants, program(body)))

    def test_a_register_written_once_by_a_constant_is_the_constant(self) -> None:
        assert self.fold("LoadConst %3 = 2\nMove %4 = %3\nCallOp %5 = add(%x, %4)\nReturn return %5") == [
            "%3 = 2",
            "%4 = 2",
            "%5 = add(%x, 2)",
            "return %5",
        ]

    def test_a_register_written_twice_is_not(self) -> None:
        body = "LoadConst %3 = 2\nIf\nb: LoadConst %3 = 3\na: Return return %3".replace(
            "If", "BranchIf if %c goto a else b"
        )
        assert self.fold(body)[-1] == "return %3"

    def test_a_parameter_is_not(self) -> None:
        assert self.fold("LoadConst %x = 2\nReturn return %x")[-1] == "return %x"

    def test_unbound_does_not_spread(self) -> None:
        assert self.fold("Move %3 = UNBOUND\nCheck check bound of %3 as y\nReturn return %3")[-1] == "return %3"

    @pytest.mark.parametrize(
        ("operation", "result"),
        [
            ("negative(1)", "-1"),
            ("add(1, 2)", "3"),
            ("add(1, 2.5)", "3.5"),
            ("multiply(True, 3)", "3"),
            ("divide(1, 4)", "0.25"),
            ("floor_divide(-7, 2)", "-4"),
            ("less(1, 2)", "True"),
            ("add('a', 'b')", "'ab'"),
            ("power(2, 10)", "1024"),
        ],
    )
    def test_python_arithmetic(self, operation: str, result: str) -> None:
        name = operation.partition("(")[0]
        syntax = _syntax(name)
        assert self.fold(f"CallOp %3 = {operation.replace('(', f'/{syntax}(', 1)}\nReturn return %3") == [
            f"%3 = {result}",
            f"return {result}",
        ]

    @pytest.mark.parametrize(
        "operation",
        [
            "divide(1, 0)",
            "floor_divide(1.0, 0.0)",
            "remainder(1, 0)",
            "power(2, -1)",
            "power(2, 1000)",
            "left_shift(1, 1000)",
            "left_shift(1, -1)",
            "add('a', 1)",
            "less('a', 1)",
            "less(1, None)",
            "multiply('a', 1000000)",
            "invert(True)",
            "bitwise_and(1.0, 2)",
            "add(0x100000000000000000000000000000000000, 1)",
        ],
    )
    def test_what_may_raise_warn_or_grow_stays(self, operation: str) -> None:
        name = operation.partition("(")[0]
        spelled = operation.replace("(", f"/{_syntax(name)}(", 1)
        assert self.fold(f"CallOp %3 = {spelled}\nReturn return %3")[-1] == "return %3"

    def test_numpy_functions_stay(self) -> None:
        # np.add(1, 2) is an np.int64, and np.add may be rebound.
        from tiercel import operators

        spelling = operators.get("add").spelling_index("function")
        slash = f"/{spelling}" if spelling else ""
        folded = self.fold(f"CallOp %3 = add{slash}(1, 2) as np.add\nReturn return %3")
        assert folded[-1] == "return %3"

    def test_builtins_by_name_stay(self) -> None:
        assert self.fold("Scalar %3 = len('abc')\nReturn return %3")[-1] == "return %3"

    def test_identity_is_folded_where_python_promises_it(self) -> None:
        assert self.fold("Scalar %3 = is(None, None)\nReturn return %3")[-1] == "return True"
        assert self.fold("Scalar %3 = is_not(1, None)\nReturn return %3")[-1] == "return True"
        assert self.fold("Scalar %3 = is(1000, 1000)\nReturn return %3")[-1] == "return %3"

    def test_displays(self) -> None:
        assert self.fold("Build %3 = tuple(1, 'a')\nReturn return %3")[-1] == "return (1, 'a')"
        assert self.fold("Build %3 = slice(None, 2, None)\nIndex %4 = %x[%3]\nReturn return %4")[1] == "%4 = %x[[:2]]"
        assert self.fold("Build %3 = string('a', 'b')\nReturn return %3")[-1] == "return 'ab'"
        assert self.fold("Build %3 = list(1, 2)\nReturn return %3")[-1] == "return %3"
        assert self.fold("Build %3 = tuple(1, %x)\nReturn return %3")[-1] == "return %3"

    def test_declared_token_stays(self) -> None:
        body = f"CallOp %3 = add/{_syntax('add')}(1, 2) : int64[]\nReturn return %3"
        new, _ = run(fold_constants, program(body))
        assert new.instructions[0].opcode == "CallOp"


class TestJumps:
    def thread(self, body: str) -> list[str]:
        return listing(*run(thread_jumps, program(body)))

    def test_jump_to_jump(self) -> None:
        body = "BranchIf if %c goto a else b\na: Jump goto d\nb: Call %3 = %x()\nd: Return return %x"
        assert self.thread(body)[0] == "if %c goto 0x14 else 0x0F"

    def test_chain(self) -> None:
        body = """BranchIf if %c goto a else b
            a: Jump goto d
            b: Call %3 = %x()
            Return return %3
            d: Jump goto e
            g: Return return %x
            e: Return return %n"""
        lines = self.thread(body)
        assert lines[0].startswith("if %c goto ") and lines[-1] == "return %n"
        new, _ = run(thread_jumps, program(body))
        assert new.instructions[0].then == 6 and new.instructions[1].target == 6

    def test_branch_on_a_constant(self) -> None:
        new, _ = run(thread_jumps, program("BranchIf if 0 goto a else b\na: Return return %x\nb: Return return %n"))
        assert new.instructions[0].opcode == "Jump" and new.instructions[0].target == 2

    def test_branch_on_an_array_stays(self) -> None:
        b = Builder("t")
        f = b.function("f", ["x"])
        here = f.label()
        f.BranchIf(b.constant(np.array([1, 2])), here, here)
        f.place(here)
        f.Return(0)
        assert f.finish().instructions[0].opcode == "BranchIf"
        assert thread_jumps(f.finish(), b.constants).instructions[0].opcode == "BranchIf"

    def test_branch_whose_arms_are_one_still_tests(self) -> None:
        # bool(x) may raise.
        assert len(self.thread("BranchIf if %c goto a else a\na: Return return %x")) == 2

    def test_jump_to_the_next_instruction(self) -> None:
        assert self.thread("Jump goto a\na: Return return %x") == ["return %x"]

    def test_jump_out_of_a_handler_stays(self) -> None:
        body = """Try try: except %e at h to z
            Call %3 = %x()
            EndTry end try
            Jump goto z
            h: Jump goto z
            z: Return return %n"""
        assert self.thread(body)[-2].startswith("goto")

    def test_loop_exit_is_threaded(self) -> None:
        body = """Iter %it = iter(%x)
            t: LoopStart loop 0: for %i in %it, exit e
            LoopEnd repeat loop 0 at t
            e: Jump goto z
            y: Return return %x
            z: Return return %n"""
        new, _ = run(thread_jumps, program(body))
        assert new.instructions[1].exit == 5


class TestDead:
    def remove(self, body: str) -> list[str]:
        return listing(*run(remove_dead_code, program(body)))

    def test_unreachable_code(self) -> None:
        assert self.remove("Return return %x\nCall %3 = %x()\nReturn return %3") == ["return %x"]

    def test_unreachable_loop_goes_whole(self) -> None:
        body = """Jump goto z
            t: LoopStart loop 0: exit z
            LoopEnd repeat loop 0 at t
            z: Return return %x"""
        assert len(self.remove(body)) == 2

    def test_end_of_a_reached_structure_stays(self) -> None:
        body = """Try try: except %e at h to z
            Return return %x
            EndTry end try
            Jump goto z
            h: Raise raise
            z: Return return %n"""
        assert "end try" in self.remove(body)
        body = """t: LoopStart loop 0: exit z
            Return return %x
            LoopEnd repeat loop 0 at t
            z: Return return %n"""
        assert "repeat loop 0 at 0x00" in self.remove(body)

    def test_unread_results(self) -> None:
        body = """LoadConst %3 = 1
            Move %4 = %x
            Build %5 = list(%x)
            Build %6 = list(%5)
            Scalar %7 = is(%x, %n)
            Return return %x"""
        assert self.remove(body) == ["return %x"]

    @pytest.mark.parametrize(
        "effect",
        [
            "CallOp %3 = add(%x, %n)",
            "LoadGlobal %3 = g",
            "LoadAttr %3 = %x.a",
            "Scalar %3 = len(%x)",
            "Scalar %3 = not(%x)",
            "Build %3 = set(%x)",
            "Dim %3 = %x.shape[0]",
            "Index %3 = %x[%n]",
            "Call %3 = %x()",
            "Iter %3 = iter(%x)",
            "Check check bound of %x as x",
            "Anchor %3 = anchor(%x)",
        ],
    )
    def test_what_may_run_code_or_fail_stays(self, effect: str) -> None:
        assert len(self.remove(f"{effect}\nReturn return %x")) == 2

    def test_read_in_a_later_pass_of_a_loop(self) -> None:
        body = """LoadConst %3 = 1
            Iter %it = iter(%x)
            t: LoopStart loop 0: for %i in %it, exit e
            Call %4 = %x(%3)
            LoadConst %3 = 2
            LoopEnd repeat loop 0 at t
            e: Return return %n"""
        assert len(self.remove(body)) == 7

    def test_read_in_a_handler(self) -> None:
        body = """LoadConst %3 = 1
            Try try: except %e at h to z
            LoadConst %3 = 2
            Call %4 = %x()
            EndTry end try
            Return return %x
            h: Return return %3
            z: Return return %n"""
        assert len([line for line in self.remove(body) if line.startswith("%3")]) == 2

    def test_store_that_keeps_an_object_alive_stays(self) -> None:
        # `keep = TemporaryDirectory()`: the folder lives as long as the variable.
        assert self.remove("Call %3 = %x()\nMove %keep = %3\nReturn return %n")[1] == "%keep = %3"

    def test_store_that_drops_an_object_stays(self) -> None:
        body = "Call %big = %x()\nMove %big = None\nCall %4 = %n()\nReturn return %4"
        assert "%big = None" in self.remove(body)
        assert "%x = None" in self.remove("Move %x = None\nReturn return %n")

    def test_variable_is_found_at_its_constant(self) -> None:
        new, pool = run(remove_dead_code, program("LoadConst %y = 5\nReturn return %x"))
        (location,) = [v for v in new.variables if v.name == "y"]
        assert len(new.instructions) == 1
        assert isinstance(location.where, int) and pool[location.where] == 5

    def test_variable_is_optimised_away(self) -> None:
        new, _ = run(remove_dead_code, program("Build %y = list()\nReturn return %x"))
        assert [v.where for v in new.variables if v.name == "y"] == ["optimised away"]


class TestShare:
    def share(self, body: str) -> list[str]:
        return listing(*run(share_subexpressions, program(body)))

    def test_slices_and_identity_tests(self) -> None:
        body = """Build %3 = slice(None, %n, None)
            Index %4 = %x[%3]
            Build %5 = slice(None, %n, None)
            Index %6 = %c[%5]
            Scalar %7 = is(%4, %6)
            Scalar %8 = is(%4, %6)
            Build %9 = tuple(%7, %8)
            Return return %9"""
        lines = self.share(body)
        assert len(lines) == 6 and "%6 = %c[%3]" in lines and "%9 = tuple(%7, %7)" in lines

    def test_not_across_a_change_of_an_operand(self) -> None:
        body = """Build %3 = slice(None, %n, None)
            Move %n = %c
            Build %5 = slice(None, %n, None)
            Build %6 = tuple(%3, %5)
            Return return %6"""
        assert len(self.share(body)) == 5

    def test_not_across_a_change_by_a_shareable_instruction(self) -> None:
        body = """Build %3 = slice(None, %n, None)
            Scalar %n = is(%x, %c)
            Build %5 = slice(None, %n, None)
            Build %6 = tuple(%3, %5)
            Return return %6"""
        assert len(self.share(body)) == 5

    def test_not_across_a_join(self) -> None:
        body = """BranchIf if %c goto a else b
            a: Build %3 = slice(None, %n, None)
            Index %4 = %x[%3]
            b: Build %5 = slice(None, %n, None)
            Index %6 = %x[%5]
            Return return %6"""
        assert len(self.share(body)) == 6

    def test_from_a_join_on(self) -> None:
        body = """BranchIf if %c goto a else b
            a: Index %4 = %x[%c]
            b: Build %5 = slice(None, %n, None)
            Build %6 = slice(None, %n, None)
            Build %7 = tuple(%5, %6)
            Return return %7"""
        assert len(self.share(body)) == 5

    @pytest.mark.parametrize("what", ["tuple", "list", "dict"])
    def test_what_has_an_identity_is_not_shared(self, what: str) -> None:
        body = f"Build %3 = {what}(%x, %n)\nBuild %4 = {what}(%x, %n)\nScalar %5 = is(%3, %4)\nReturn return %5"
        assert len(self.share(body)) == 4

    def test_variables_are_not_shared(self) -> None:
        body = "Scalar %a = is(%x, %n)\nScalar %b = is(%x, %n)\nBuild %9 = tuple(%a, %b)\nReturn return %9"
        assert len(self.share(body)) == 4


class TestNumbers:
    def test_dense_in_order_of_mention(self) -> None:
        p = program("CallOp %9 = add(%x, %n)\nCallOp %5 = add(%9, 1) as 2:np.add\nReturn return %5")
        new, pool = run(number_registers, p)
        assert new.registers == 5
        assert listing(new, pool) == ["%3 = add(%x, %n)", "%4 = add(%3, 1) as 2:np.add", "return %4"]

    def test_cell_registers_of_paths_and_variables_move_along(self) -> None:
        b = Builder("t")
        f = b.function("f", ["x"])
        for _ in range(3):
            f.register()
        cell = f.Build(None, "cell", ())
        f.variable("np", f"cell:{cell}")
        f.Return(f.CallOp(None, "exp", 0, (0,), via=f"{cell}:np.exp"))
        new = number_registers(f.finish(), b.constants)
        assert new.instructions[1].via == "1:np.exp"
        assert [v.where for v in new.variables if v.name == "np"] == ["cell:1"]


def test_pipeline_on_a_whole_function() -> None:
    b = Builder("t")
    f = b.function("f", ["x"])
    with f.at((1, 0, 1, 1)):
        axis = f.CallOp(None, "negative", _syntax("negative"), (b.constant(1),))
        debug = f.register("debug")
        f.LoadConst(debug, b.constant(False))
    on, off = f.label(), f.label()
    with f.at((2, 0, 2, 5)):
        f.BranchIf(debug, on, off)
    f.place(on)
    with f.at((3, 0, 3, 5)):
        f.Call(None, 0, ())
    f.place(off)
    with f.at((4, 0, 4, 5)):
        f.Return(f.CallOp(None, "sum", 0, (0, axis), ("", "axis")))
    p = b.build()
    assert [str(i.opcode) for i in p.entry.instructions] == ["CallOp", "Return"]
    assert p.entry.instructions[0].keywords == ("", "axis")
    assert p.constant(p.entry.instructions[0].args[1]) == -1
    assert p.entry.spans == ((4, 0, 4, 5),) * 2
    assert p.entry.registers == 2
    assert set(map(repr, p.constants)) == {"-1", "False"}
    assert p.entry.variables == (Variable("x", 0, 2, 0), Variable("debug", 0, 2, ~p.constants.index(False)))


def test_building_twice_gives_the_same() -> None:
    b = Builder("t")
    f = b.function("f", ["x"])
    f.Return(f.CallOp(None, "add", _syntax("add"), (b.constant(1), b.constant(2))))
    assert to_text(b.build()) == to_text(b.build())
    assert len(b.build(passes=False).constants) == 2


def test_unbound_variable_keeps_its_check() -> None:
    b = Builder("t")
    f = b.function("f", ["c"])
    y = f.register("y")
    f.Move(y, b.constant(UNBOUND))
    on, off = f.label(), f.label()
    f.BranchIf(0, on, off)
    f.place(on)
    f.Move(y, b.constant(1))
    f.place(off)
    f.Check("bound", y, "y")
    f.Return(y)
    assert len(b.build().entry.instructions) == 5


@pytest.mark.parametrize("one", [*PIPELINE, run_passes], ids=lambda f: f.__name__)
def test_ill_formed_functions_are_left_to_the_verifier(one: Callable[..., Function]) -> None:
    for body in ("Jump goto a\na: Call %3 = %9()", "t: LoopStart loop 0: exit t\nReturn return %7", "EndTry end try"):
        p = program(body)
        one(p.entry, ConstantPool(p.constants))


def _syntax(name: str) -> int:
    from tiercel import operators

    return operators.get(name).spelling_index("syntax")

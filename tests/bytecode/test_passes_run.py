"""Passes change nothing that a program can notice: random programs run before and after them, on Python values.

The evaluator here is a second, naive reading of the instructions' effects, so it shares no mistake with the machine.
"""

from __future__ import annotations

import operator
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bytecode.generate import Generator
from tiercel import operators
from tiercel.bytecode import UNBOUND, Function, Program

PYTHON = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "<": operator.lt, "==": operator.eq, "&": operator.and_, "<<": operator.lshift,
    "-x": operator.neg, "~x": operator.invert,
}  # fmt: skip
NAMES = {s.path: (row.name, i) for row in operators.ALL.values() for i, s in enumerate(row.spellings)
         if s.kind == "syntax" and s.path in PYTHON}  # fmt: skip
INPLACE = operators.find_inplace("+=")
FUEL = 300


class OutOfFuel(BaseException):
    """Ends programs that loop for long; no handler catches it."""


class Machine:
    """Runs one function; `events` is what its calls were given."""

    def __init__(self, program: Program, function: Function) -> None:
        self.program = program
        self.function = function
        self.events: list[str] = []
        self.fuel = FUEL

    def call(self, *args: Any, **keywords: Any) -> int:
        self.events.append(repr((args, keywords)))
        if len(self.events) % 7 == 0:
            raise KeyError(len(self.events))
        return len(self.events)

    def run(self, arguments: list[Any]) -> tuple[str, list[str]]:
        self.registers: list[Any] = [None] * self.function.registers
        self.registers[: len(arguments)] = arguments
        try:
            result = repr(self._run(0, len(self.function.instructions), None))
        except OutOfFuel:
            result = "out of fuel"
        except Exception as error:  # noqa: BLE001  # whatever the program raised is its result
            result = f"{type(error).__name__}: {error}"
        return result, self.events

    def _get(self, operand: int) -> Any:
        return self.registers[operand] if operand >= 0 else self.program.constant(operand)

    def _run(self, pc: int, end: int, handled: BaseException | None) -> Any:
        """Run from `pc`; returns what Return gave, or raises."""
        code = self.function.instructions
        protected: list[int] = []
        spans = {i: _end_of(code, i) for i, ins in enumerate(code) if ins.opcode == "Try"}
        while True:
            protected = [t for t, e in spans.items() if t < pc <= e]
            try:
                done, value = self._step(pc, handled)
            except Exception as error:
                if not protected:
                    raise
                head = code[max(protected)]
                self.registers[head.exception] = error
                handled = error
                pc = head.handler
                continue
            if done:
                return value
            pc = value

    def _step(self, pc: int, handled: BaseException | None) -> tuple[bool, Any]:
        """Run one instruction: (True, result) or (False, next pc)."""
        ins = self.function.instructions[pc]
        get = self._get
        result: Any = None
        match ins.opcode:
            case "Jump":
                return False, ins.target
            case "BranchIf":
                return False, ins.then if get(ins.condition) else ins.else_
            case "LoopStart":
                if ins.iterator is not None:
                    try:
                        self.registers[ins.target] = next(get(ins.iterator))
                    except StopIteration:
                        return False, ins.exit
                return False, pc + 1
            case "LoopEnd":
                self.fuel -= 1
                if self.fuel < 0:
                    raise OutOfFuel
                return False, ins.start
            case "Return":
                return True, get(ins.value)
            case "Raise":
                if ins.exception is not None:
                    raise ValueError(repr(get(ins.exception)))
                assert handled is not None
                raise handled
            case "Try" | "EndTry":
                return False, pc + 1
            case "Check":
                if get(ins.x) is UNBOUND:
                    raise UnboundLocalError(ins.name)
                return False, pc + 1
            case "LoadConst":
                result = get(ins.value)
            case "Move":
                result = get(ins.src)
            case "CallOp":
                spelling = operators.get(ins.operator).spellings[ins.spelling]
                result = PYTHON[spelling.path.removesuffix("=") if spelling.kind == "inplace" else spelling.path](
                    *map(get, ins.args)
                )
            case "Scalar":
                args = [get(a) for a in ins.args]
                result = {"is": lambda: args[0] is args[1], "is_not": lambda: args[0] is not args[1],
                          "not": lambda: not args[0], "len": lambda: len(args[0])}[ins.function]()  # fmt: skip
            case "Build":
                items = [get(i) for i in ins.items]
                result = {"tuple": lambda: tuple(items), "list": lambda: list(items), "slice": lambda: slice(*items),
                          "string": lambda: "".join(items)}[ins.what]()  # fmt: skip
            case "Iter":
                result = iter(get(ins.x))
            case "Index":
                result = get(ins.x)[get(ins.key)]
            case "Call":
                result = self.call(*map(get, ins.args))
            case _:
                raise AssertionError(ins.opcode)
        self.registers[ins.dst] = result
        return False, pc + 1


def _end_of(code: Any, head: int) -> int:
    depth = 0
    for index in range(head, len(code)):
        depth += {"Try": 1, "EndTry": -1}.get(code[index].opcode, 0)
        if depth == 0:
            return index
    raise AssertionError("no EndTry")


class Runnable(Generator):
    """Makes programs of instructions that run on Python values, with many constants and dead stores."""

    VALUES = (0, 1, 2, -3, True, False, None, 1.5, 0.0, "ab", "", (1, 2), 1000)

    def program(self, **build: Any) -> Program:
        self.f = self.b.function("f", ["a", "b", "c"], filename="f.py")
        self.defined = [0, 1, 2]
        self.cells: list[int] = []
        self.budget = self.size
        self._block(0, None)
        self.f.Return(self.f.Build(None, "tuple", self.r.sample(self.defined, min(4, len(self.defined)))))
        return self.b.build(**build)

    def _use(self) -> int:
        return self.b.constant(self.r.choice(self.VALUES)) if self.r.random() < 0.4 else self.r.choice(self.defined)

    def _condition(self) -> int:
        # Constants and registers that hold one: the passes decide these branches.
        return self._use()

    def _simple(self) -> None:
        r, f = self.r, self.f
        dst = self._dst()
        kind = r.randrange(14)
        if kind < 3:
            made = f.LoadConst(dst, self.b.constant(r.choice(self.VALUES)))
        elif kind == 3:
            made = f.Move(dst, self._use())
        elif kind < 7:
            symbol = r.choice(list(NAMES))
            name, spelling = NAMES[symbol]
            made = f.CallOp(dst, name, spelling, [self._use() for _ in range(1 if "x" in symbol else 2)])
        elif kind == 7:
            assert INPLACE is not None
            made = f.CallOp(dst, INPLACE[0].name, INPLACE[1], [self._use(), self._use()])
        elif kind == 8:
            function = r.choice(["is", "is_not", "not", "len"])
            made = f.Scalar(dst, function, [self._use() for _ in range(1 if function in ("not", "len") else 2)])
        elif kind < 11:
            what = r.choice(["tuple", "list", "slice", "slice", "string"])
            made = f.Build(dst, what, [self._use() for _ in range(3 if what == "slice" else r.randrange(3))])
        elif kind == 11:
            made = f.Index(dst, self._use(), self._use())
        elif kind == 12 and r.random() < 0.3:
            f.Raise(self._use())
            return
        else:
            made = f.Call(dst, 0, self._uses())
        self._define(made)


# Results may hold NaN and floats from folding: compared by repr, which shows all bits that matter.
@settings(max_examples=300)
@given(st.integers(0, 1 << 48), st.sampled_from([(0, 1, None), (3, "ab", (1, 2)), (True, 2.5, 0)]))
def test_passes_change_nothing_that_shows(seed: int, arguments: tuple[Any, ...]) -> None:
    plain = Runnable(random.Random(seed), 25).program(passes=False, verify=False)
    short = Runnable(random.Random(seed), 25).program(passes=True)
    before = Machine(plain, plain.entry).run(list(arguments))
    after = Machine(short, short.entry).run(list(arguments))
    assert after == before


def test_the_programs_are_worth_running() -> None:
    """Most of them compute, fold and remove something."""
    shorter = calls = finished = 0
    for seed in range(60):
        plain = Runnable(random.Random(seed), 25).program(passes=False, verify=False)
        short = Runnable(random.Random(seed), 25).program(passes=True)
        shorter += len(short.entry.instructions) < len(plain.entry.instructions)
        result, events = Machine(short, short.entry).run([3, "ab", (1, 2)])
        calls += bool(events)
        finished += result.startswith("(")
    assert shorter > 30 and calls > 15 and finished > 10

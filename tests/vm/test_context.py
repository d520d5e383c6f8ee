"""The machine: hooks, what it knows, and that two of them are apart."""

from __future__ import annotations

import math

import numpy as np

from tests.vm.running import Running
from tiercel.frontend.python import capture
from tiercel.interp import Callee, Environment, decode, run
from tiercel.vm import Machine, machine


def helper(x):
    return x + 1


def caller(x, n):
    for _ in range(n):
        x = helper(x)
    return x


def noisy(x):
    return x * math.fsum([1.0, 2.0])


def test_machines_do_not_disturb_one_another():
    a, b = Running(helper), Running(helper)
    a(1)
    assert a.machine.functions() == [a.decoded]
    assert b.machine.functions() == []
    assert a.machine is not b.machine
    assert machine() is machine()


def test_a_function_belongs_to_the_machine_it_first_ran_under():
    f = Running(helper)
    f(1)
    other = Machine()
    run(f.decoded, (1,), hooks=other.hooks())
    assert other.functions() == []
    assert f.decoded.watch.entry.records()[0].seen.samples == 2


def test_helpers_are_watched_too():
    inner = decode(capture(helper).program, environment=Environment(globals()))
    f = Running(caller)
    hooks = f.machine.hooks(lambda target: Callee(inner, function=helper) if target is helper else None)
    run(f.decoded, (np.zeros(3), 5), hooks=hooks)
    assert f.machine.functions() == [f.decoded, inner]
    assert inner.watch.entry.records()[0].seen.samples == 5
    assert inner.program.profile.functions[0].entries == 5


def test_entering_inside_a_loop_is_seen():
    """The interpreter may begin anywhere; the first thing a machine hears of a function may be one of its loops."""
    f = Running(caller)
    start = next(i for i, ins in enumerate(f.decoded.function.instructions) if ins.opcode == "LoopStart")
    registers = [None] * f.decoded.function.registers
    registers[0], registers[f.decoded.function.instructions[start].iterator] = 1, iter(range(2))
    assert run(f.decoded, (), hooks=f.hooks, start=start, registers=registers) == 3
    assert f.machine.functions() == [f.decoded]
    assert f.decoded.watch.loops[0].records()


def test_the_account_has_python_lines_and_the_ledger():
    f = Running(noisy)
    for _ in range(3):
        f(1)
    f.machine.ledger.entry("copy", "x is not contiguous", function="g", filename="a.py", line=4).add(2)
    lines = f.machine.account()
    assert {(line.kind, line.function, line.count) for line in lines} == {("python", "noisy", 3), ("copy", "g", 2)}
    (line,) = f.machine.account("python")
    assert line.line == noisy.__code__.co_firstlineno + 1
    assert line.time_ns > 0
    assert [line.kind for line in f.machine.account("copy")] == ["copy"]

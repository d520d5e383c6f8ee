"""Random control flow: loops, handlers, `finally`, `with`, jumps out of all of them, calls, run beside CPython.

Programs are made from seeds; what they do is decided by the bits they are given. Compared are events in order, results,
exceptions with context and traceback, and carets.
"""

from __future__ import annotations

import linecache
import os
import random
import sys

import pytest

from tests.interp import functions
from tests.interp.harness import compare

ERRORS = ["KeyError", "ValueError", "IndexError"]


class Writer:
    """Writes one function."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.count = 0
        self.budget = 28

    def number(self) -> int:
        self.count += 1
        return self.count

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def function(self, name: str) -> str:
        self.line(0, f"def {name}(bits, events):")
        self.line(1, "kept = []")
        self.block(1, loop=False, handler=False)
        self.line(1, "return events, kept")
        return "\n".join(self.lines) + "\n"

    def block(self, depth: int, *, loop: bool, handler: bool) -> None:
        for _ in range(self.random.randint(1, 3)):
            self.statement(depth, loop=loop, handler=handler)

    def statement(self, depth: int, *, loop: bool, handler: bool) -> None:
        n = self.number()
        self.budget -= 1
        simple = ["event", "event", "call", "raise", "keep", "info"]
        if loop:
            simple += ["break", "continue"]
        if handler:
            simple += ["reraise"]
        simple += ["return"]
        nested = ["if", "if", "for", "while", "try", "try", "try", "with"]
        kind = self.random.choice(simple if self.budget < 0 or depth > 6 else simple + nested * 2)
        getattr(self, f"write_{kind}")(depth, n, loop, handler)

    def write_event(self, depth, n, loop, handler):
        self.line(depth, f"events.append({n})")

    def write_info(self, depth, n, loop, handler):
        self.line(depth, f"events.append(({n}, repr(sys.exc_info()[1])))")

    def write_keep(self, depth, n, loop, handler):
        self.line(depth, f"kept.append([{n}, *kept[-1:], len(events)])")

    def write_call(self, depth, n, loop, handler):
        self.line(depth, f"events.append(helper(bits, events, {n}) + ({n} if choose(bits) else 1 // len(bits[:1])))")

    def write_raise(self, depth, n, loop, handler):
        cause = self.random.choice(["", "", " from None", " from TypeError('cause')"])
        self.line(depth, "if choose(bits):")
        self.line(depth + 1, f"raise {self.random.choice(ERRORS)}({n}){cause}")

    def write_reraise(self, depth, n, loop, handler):
        self.line(depth, "if choose(bits):")
        self.line(depth + 1, "raise")

    def write_return(self, depth, n, loop, handler):
        self.line(depth, "if choose(bits):")
        self.line(depth + 1, f"return {n}, events, kept")

    def write_break(self, depth, n, loop, handler):
        self.line(depth, "if choose(bits):")
        self.line(depth + 1, "break")

    def write_continue(self, depth, n, loop, handler):
        self.line(depth, "if choose(bits):")
        self.line(depth + 1, "continue")

    def write_if(self, depth, n, loop, handler):
        test = self.random.choice(["choose(bits)", "choose(bits) and choose(bits)", "not choose(bits) or events[5:]"])
        self.line(depth, f"if {test}:")
        self.block(depth + 1, loop=loop, handler=handler)
        if self.random.random() < 0.5:
            self.line(depth, "else:")
            self.block(depth + 1, loop=loop, handler=handler)

    def write_for(self, depth, n, loop, handler):
        over = self.random.choice([f"range({n % 4})", "bits[:3]", f"numbers({n % 3}, events)"])
        self.line(depth, f"for i{n} in {over}:")
        self.line(depth + 1, f"events.append((i{n}, {n}))")
        self.block(depth + 1, loop=True, handler=handler)
        if self.random.random() < 0.4:
            self.line(depth, "else:")
            self.block(depth + 1, loop=loop, handler=handler)

    def write_while(self, depth, n, loop, handler):
        self.line(depth, f"w{n} = 0")
        self.line(depth, f"while w{n} < {n % 4}:")
        self.line(depth + 1, f"w{n} += 1")
        self.block(depth + 1, loop=True, handler=handler)
        if self.random.random() < 0.4:
            self.line(depth, "else:")
            self.block(depth + 1, loop=loop, handler=handler)

    def write_with(self, depth, n, loop, handler):
        self.line(depth, f"with Manager(choose(bits), events) as m{n}:")
        self.block(depth + 1, loop=loop, handler=handler)

    def write_try(self, depth, n, loop, handler):
        self.line(depth, "try:")
        self.block(depth + 1, loop=loop, handler=handler)
        handlers = self.random.randint(0, 2)
        for _ in range(handlers):
            classes = self.random.choice([*ERRORS, "(KeyError, ValueError)", "LookupError", "Exception"])
            name = self.random.choice(["", f" as e{n}"])
            self.line(depth, f"except {classes}{name}:")
            if name:
                self.line(depth + 1, f"events.append(repr(e{n}))")
            self.block(depth + 1, loop=loop, handler=True)
        if handlers and self.random.random() < 0.3:
            self.line(depth, "else:")
            self.block(depth + 1, loop=loop, handler=handler)
        if not handlers or self.random.random() < 0.5:
            self.line(depth, "finally:")
            # `return` and the jumps in `finally` are SyntaxWarnings from 3.14 on, but mean the same.
            self.block(depth + 1, loop=False, handler=False)


def choose(bits):
    return bits.pop() if bits else False


def helper(bits, events, n):
    events.append(("helper", n))
    if choose(bits):
        raise IndexError(n)
    return n


def numbers(n, events):
    try:
        yield from range(n)
    finally:
        events.append(("closed", n))


def make(seed: int):
    name = f"random_{seed}"
    filename = f"<ipython-tests-{name}>"
    source = Writer(seed).function(name)
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    space = {
        "choose": choose,
        "helper": helper,
        "numbers": numbers,
        "Manager": functions.Manager,
        "sys": sys,
        "__name__": __name__,
    }
    exec(compile(source, filename, "exec"), space)
    return space[name], source


# TIERCEL_TEST_RANDOM_PROGRAMS=500 looks longer.
SEEDS = int(os.environ.get("TIERCEL_TEST_RANDOM_PROGRAMS", "40"))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_program(seed):
    function, source = make(seed)
    rng = random.Random(seed)
    for attempt in range(6):
        bits = [rng.random() < 0.35 for _ in range(40)]
        for single_step in (False, True) if attempt < 2 else (False,):
            _, found = compare(function, bits, [], single_step=single_step)
            assert not found, source

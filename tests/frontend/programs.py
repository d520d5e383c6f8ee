"""Random Python functions: every statement of the language in every place where it may stand.

`module(seed, count)` gives the text of a module of functions `f0(log, tick, a, b)`. They read variables that may be
unassigned, raise, and leave loops, handlers and managers in every way; `log` records what they did in order, and `tick`
ends those that would run too long.
"""

from __future__ import annotations

import random
import warnings

HEADER = """
class E1(Exception): pass
class E2(E1): pass
class E3(Exception): pass

COUNTER = 0

class Manager:
    def __init__(self, log, name, swallow=False, fail=None):
        self.log, self.name, self.swallow, self.fail = log, name, swallow, fail
    def __enter__(self):
        self.log.append(("enter", self.name))
        if self.fail == "enter":
            raise E3(self.name)
        return self.name
    def __exit__(self, kind, value, traceback):
        self.log.append(("exit", self.name, kind, str(value)))
        if self.fail == "exit":
            raise E3(self.name)
        return self.swallow

def helper(x, *args, k=1, **kwargs):
    if x == 3:
        raise E2("helper", x)
    return x + k + len(args) + len(kwargs)

def decorator(f):
    return f
"""

VARIABLES = "abcdev"


class Writer:
    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.lines: list[str] = []
        self.number = 0

    def fresh(self) -> int:
        self.number += 1
        return self.number

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    # ---- expressions -------------------------------------------------------------------------------------------------

    def name(self) -> str:
        # Mostly the parameters, so that most reads succeed.
        return self.r.choice(VARIABLES + "aaabbbcc")

    def expression(self, depth: int = 2) -> str:
        r = self.r
        if depth <= 0 or r.random() < 0.25:
            return r.choice([self.name(), self.name(), str(r.randint(-2, 5)), "COUNTER", "None", "True"])
        e = lambda: self.expression(depth - 1)  # noqa: E731
        kind = r.randrange(24)
        if kind < 5:
            # Growth has to stay bounded: nothing is multiplied by a variable.
            return f"({e()} {r.choice(['+', '-', '* 2 -', '//', '%', '|'])} {e()})"
        if kind == 5:
            return f"({e()} {r.choice(['<', '==', '>=', 'is', 'in', 'not in'])} {e()})"
        if kind == 6:
            return f"({e()} < {e()} <= {e()})"
        if kind == 7:
            return f"({e()} {r.choice(['and', 'or'])} {e()} {r.choice(['and', 'or'])} {e()})"
        if kind == 8:
            return f"(not {e()})"
        if kind == 9:
            return f"({e()} if {e()} else {e()})"
        if kind == 10:
            return f"({self.name()} := {e()})"
        if kind == 11:
            return f"[{e()} for {self.name()} in range({r.randint(0, 3)}) if {e()}]"
        if kind == 12:
            return f"{r.choice(['sum', 'any', 'all', 'list', 'tuple', 'sorted'])}({e()} for {self.name()} in (1, 2, {e()}))"
        if kind == 13:
            return f"(lambda {self.name()}={e()}: {e()})()"
        if kind == 14:
            return f"helper({e()}, {e()}, k={e()})"
        if kind == 15:
            return f"helper({e()}, *[{e()}], **{{'z': {e()}}})"
        if kind == 16:
            return f"({e()}, {e()})"
        if kind == 17:
            return f"[{e()}, *({e()}, {e()})][{r.randint(-1, 3)}]"
        if kind == 18:
            return f"{{{e()}: {e()}, 'k': {e()}}}"
        if kind == 19:
            return f"f'{{{self.name()}}}-{{{self.name()}!r:>4}}'"
        if kind == 20:
            return f"(log.append({self.fresh()}) or {e()})"
        if kind == 21:
            return f"len([{e()}, {e()}])"
        if kind == 22:
            return f"{{{self.name()}: {self.name()} for {self.name()} in ({e()}, 2)}}"
        return f"(-{e()})"

    def target(self) -> str:
        r = self.r
        kind = r.randrange(8)
        if kind < 5:
            return r.choice(VARIABLES)
        if kind == 5:
            return f"{r.choice(VARIABLES)}, {r.choice(VARIABLES)}"
        if kind == 6:
            return f"{r.choice(VARIABLES)}, *{r.choice('abc')}x"
        return f"log[{r.randint(-1, 0)}]"

    # ---- statements --------------------------------------------------------------------------------------------------

    def body(self, depth: int, budget: int, loop: bool, function: bool = True) -> None:
        for _ in range(self.r.randint(1, 3)):
            self.statement(depth, budget, loop, function)

    def statement(self, depth: int, budget: int, loop: bool, function: bool) -> None:
        r = self.r
        simple = budget <= 0 or r.random() < 0.45
        if simple:
            kind = r.randrange(20)
            if kind < 5:
                self.line(depth, f"{r.choice(VARIABLES)} = {self.expression()}")
            elif kind == 5:
                self.line(depth, f"{self.target()} = {self.expression(1)}, {self.expression(1)}")
            elif kind == 6:
                self.line(depth, f"{r.choice(VARIABLES)} = {r.choice(VARIABLES)} = {self.expression()}")
            elif kind < 9:
                self.line(depth, f"{r.choice(VARIABLES)} {r.choice(['+=', '-=', '*= 2 -'])} {self.expression()}")
            elif kind < 12:
                self.line(depth, f"log.append(({self.fresh()}, {self.name()}))")
            elif kind == 12 and loop:
                self.line(depth, r.choice(["break", "continue"]))
            elif kind == 13:
                self.line(depth, f"return {self.expression()}")
            elif kind == 14:
                self.line(depth, f"raise {r.choice(['E1', 'E2(1)', 'E3(a)', 'E1 from E3()', 'E1(2) from None'])}")
            elif kind == 15:
                self.line(depth, f"del {r.choice(VARIABLES)}")
            elif kind == 16:
                self.line(depth, f"assert {self.expression()}, {self.expression(1)}")
            elif kind == 17:
                self.line(depth, "raise" if r.random() < 0.4 else self.expression())
            else:
                self.line(depth, self.expression())
            return
        kind = r.randrange(16)
        if kind < 4:
            self.line(depth, f"if {self.expression()}:")
            self.body(depth + 1, budget - 1, loop)
            if r.random() < 0.3:
                self.line(depth, f"elif {self.expression()}:")
                self.body(depth + 1, budget - 1, loop)
            if r.random() < 0.5:
                self.line(depth, "else:")
                self.body(depth + 1, budget - 1, loop)
        elif kind < 7:
            source = r.choice(["range(3)", "(1, 2)", "[3, a]", "[(1, 2), (3, 4)]", "'ab'", self.name()])
            self.line(depth, f"for {self.target()} in {source}:")
            self.line(depth + 1, "tick()")
            self.body(depth + 1, budget - 1, True)
            if r.random() < 0.3:
                self.line(depth, "else:")
                self.body(depth + 1, budget - 1, loop)
        elif kind < 9:
            self.line(depth, f"while {r.choice(['True', self.expression(), self.expression()])}:")
            self.line(depth + 1, "tick()")
            self.body(depth + 1, budget - 1, True)
            if r.random() < 0.3:
                self.line(depth, "else:")
                self.body(depth + 1, budget - 1, loop)
        elif kind < 13:
            self.line(depth, "try:")
            self.body(depth + 1, budget - 1, loop)
            handlers = r.randint(0, 2)
            for i in range(handlers):
                what = r.choice(
                    ["E1", "E2", "(E1, E3)", "TypeError", "(TypeError, NameError)", "Exception", "KeyError"]
                )
                name = f" as {r.choice(VARIABLES)}" if r.random() < 0.4 else ""
                last = i == handlers - 1 and r.random() < 0.2
                self.line(depth, "except:" if last else f"except {what}{name}:")
                self.body(depth + 1, budget - 1, loop)
            if handlers and r.random() < 0.3:
                self.line(depth, "else:")
                self.body(depth + 1, budget - 1, loop)
            if not handlers or r.random() < 0.4:
                self.line(depth, "finally:")
                self.body(depth + 1, budget - 1, loop)
        elif kind == 13:
            option = r.choice(["", "", ", swallow=True", ", fail='exit'", ", fail='enter'"])
            more = f", Manager(log, {self.fresh()})" if r.random() < 0.3 else ""
            name = f" as {r.choice(VARIABLES)}" if r.random() < 0.5 else ""
            self.line(depth, f"with Manager(log, {self.fresh()}{option}){name}{more}:")
            self.body(depth + 1, budget - 1, loop)
        elif kind == 14 and depth < 3:
            name = r.choice("gh")
            if r.random() < 0.3:
                self.line(depth, "@decorator")
            self.line(depth, f"def {name}({r.choice('cde')}={self.expression(1)}, *z):")
            if r.random() < 0.4:
                self.line(depth + 1, "nonlocal b")
                self.line(depth + 1, f"b = {self.expression(1)}")
            self.line(depth + 1, f"return {self.expression()}")
            self.line(depth, f"log.append({name}({self.expression(1)}))")
        else:
            self.line(depth, f"match {self.expression(1)}:")
            self.line(depth + 1, f"case {r.choice(['1 | 2', 'None', 'True', '3'])}:")
            self.body(depth + 2, budget - 1, loop)
            pattern = r.choice([f"{r.choice(VARIABLES)}", "[x, *y]", "int(v)", "(1 | 2) as c", "_"])
            guard = f" if {self.expression(1)}" if r.random() < 0.5 else ""
            self.line(depth + 1, f"case {pattern}{guard}:")
            self.body(depth + 2, budget - 1, loop)

    def function(self, number: int) -> None:
        """Append a function, the first that CPython's compiler accepts (`:=` is not allowed everywhere)."""
        before = len(self.lines)
        while True:
            self._function(number)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    compile("\n".join(self.lines[before:]), "<random>", "exec")
                return
            except SyntaxError:
                del self.lines[before:]

    def _function(self, number: int) -> None:
        self.line(0, f"def f{number}(log, tick, a, b):")
        if self.r.random() < 0.5:
            self.line(1, "c = a")
        for _ in range(self.r.randint(2, 5)):
            self.statement(1, 3, False, True)
        self.line(1, "return a, b, log")
        self.line(0, "")


def module(seed: int, count: int) -> str:
    """Return the text of a module of `count` random functions."""
    writer = Writer(seed)
    for number in range(count):
        writer.function(number)
    return HEADER + "\n".join(writer.lines) + "\n"

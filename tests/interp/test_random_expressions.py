"""Random expressions over objects that record every operation: the same order of evaluation, results and carets.

`TIERCEL_TEST_RANDOM_PROGRAMS=500` looks longer.
"""

from __future__ import annotations

import linecache
import os
import random

import pytest

from tests.interp.harness import interpreted
from tiercel.testing import Arguments, differences, observe

SEEDS = int(os.environ.get("TIERCEL_TEST_RANDOM_PROGRAMS", "40"))
LOG: list[object] = []
FUEL = [0]


def spend(what):
    LOG.append(what)
    FUEL[0] -= 1
    if FUEL[0] == 0:
        raise ArithmeticError(what)


class Noisy:
    """Records what is done with it; at the n-th operation it raises."""

    def __init__(self, name):
        self.__dict__["name"] = name

    def __repr__(self):
        return self.name

    def __getattr__(self, attribute):
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        spend(("get", self.name, attribute))
        return Noisy(f"{self.name}.{attribute}")

    def __setattr__(self, attribute, value):
        spend(("set", self.name, attribute, repr(value)))

    def __getitem__(self, key):
        spend(("item", self.name, repr(key)))
        return Noisy(f"{self.name}[{key!r}]"[-40:])

    def __setitem__(self, key, value):
        spend(("setitem", self.name, repr(key), repr(value)))

    def __call__(self, *args, **kwargs):
        spend(("call", self.name, repr(args), repr(kwargs)))
        return Noisy(f"{self.name}()"[-40:])

    def __bool__(self):
        spend(("bool", self.name))
        return len(self.name) % 2 == 0

    def __iter__(self):
        spend(("iter", self.name))
        return iter([Noisy(self.name[-20:] + "'"), Noisy(self.name[-20:] + '"')])

    def __format__(self, spec):
        spend(("format", self.name, spec))
        return f"<{self.name}>"

    def __hash__(self):
        return hash(self.name)

    def __eq__(self, other):
        spend(("eq", self.name, repr(other)))
        return True

    def __contains__(self, other):
        spend(("contains", self.name, repr(other)))
        return False

    def keys(self):
        spend(("keys", self.name))
        return ["k1", "k2"]

    def __enter__(self):
        spend(("enter", self.name))
        return Noisy("entered")

    def __exit__(self, kind, error, trace):
        spend(("exit", self.name, kind and kind.__name__))
        return False


def _binary(symbol, name):
    def method(self, other):
        spend((symbol, self.name, repr(other)))
        return Noisy(f"({self.name}{symbol}{other!r})"[-40:])

    method.__name__ = name
    return method


for _symbol, _name in [
    ("+", "add"),
    ("-", "sub"),
    ("*", "mul"),
    ("@", "matmul"),
    ("//", "floordiv"),
    ("<<", "lshift"),
    ("&", "and"),
    ("**", "pow"),
]:
    setattr(Noisy, f"__{_name}__", _binary(_symbol, f"__{_name}__"))
    setattr(Noisy, f"__r{_name}__", _binary(f"r{_symbol}", f"__r{_name}__"))
    setattr(Noisy, f"__i{_name}__", _binary(f"i{_symbol}", f"__i{_name}__"))
for _symbol, _name in [("<", "lt"), (">=", "ge")]:
    setattr(Noisy, f"__{_name}__", _binary(_symbol, f"__{_name}__"))
for _symbol, _name in [("-", "neg"), ("~", "invert")]:
    setattr(Noisy, f"__{_name}__", lambda self, s=_symbol: (spend((s, self.name)), Noisy(f"{s}{self.name}"[-40:]))[1])


class Writer:
    """Writes one function of random statements."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.counter = 0

    def function(self, name):
        lines = [f"def {name}(a, b, c):"]
        lines += [f"    {line}" for _ in range(self.random.randint(2, 5)) for line in self.statement()]
        lines.append(f"    return {self.expression(2)}, [a, b, c]")
        return "\n".join(lines) + "\n"

    def target(self):
        return self.random.choice(
            [
                self.variable,
                lambda: f"{self.expression(1)}.attr",
                lambda: f"{self.expression(1)}[{self.subscript(1)}]",
            ]
        )()

    def variable(self):
        return self.random.choice("abc")

    def statement(self):
        e = self.expression
        pick = self.random.choice
        return pick(
            [
                lambda: [e(4)],
                lambda: [f"{self.target()} = {e(3)}"],
                lambda: [f"{self.target()} = {self.target()} = {e(3)}"],
                lambda: [f"{self.target()}, *{self.variable()} = {e(3)}"],
                lambda: [f"({self.target()}, ({self.target()}, {self.target()})) = {e(1)}, {e(2)}"],
                lambda: [f"{self.target()} {pick(['+=', '*=', '@=', '<<='])} {e(3)}"],
                lambda: [f"if {e(2)}:", f"    {e(3)}", "else:", f"    {self.variable()} = {e(2)}"],
                lambda: [f"for {self.target()} in {e(2)}:", f"    {e(3)}"],
                lambda: [f"assert {e(2)}, {e(1)}"],
                lambda: [f"with {e(2)} as {self.target()}:", f"    {e(3)}"],
            ]
        )()

    def subscript(self, depth):
        e = self.expression
        return self.random.choice(
            [
                lambda: e(depth),
                lambda: f"{e(depth)}:{e(depth)}",
                lambda: f"::{e(depth)}",
                lambda: f"{e(depth)}:, {e(depth)}",
                lambda: f"..., {e(depth)}:{e(depth)}:{e(depth)}",
            ]
        )()

    def expression(self, depth):
        if depth <= 0:
            return self.random.choice(["a", "b", "c", "3", "'s'", "noisy", "None"])
        e = lambda: self.expression(depth - 1)
        pick = self.random.choice
        self.counter += 1
        n = self.counter
        return pick(
            [
                lambda: f"({e()} {pick(['+', '-', '*', '@', '//', '&', '**'])} noisy)",
                lambda: f"(noisy {pick(['+', '-', '*', '@', '//', '&', '**'])} {e()})",
                lambda: f"(c {pick(['<', '>=', '==', 'in', 'is', 'is not'])} {e()})",
                lambda: f"(a < {e()} >= {e()})",
                lambda: f"(-a, ~b, not {e()})[{self.random.randint(0, 2)}]",
                lambda: f"noisy.m{n}({e()}, {e()})",
                # Not both stars: CPython unpacks the first before it evaluates what follows it.
                lambda: f"noisy({e()}, *{e()})",
                lambda: f"noisy({e()}, k={e()}, **noisy.d{n})",
                lambda: f"noisy[{self.subscript(depth - 1)}]",
                lambda: f"noisy.at{n}",
                lambda: f"({e()} if {e()} else {e()})",
                lambda: f"({e()} and {e()} or {e()})",
                lambda: f"[{e()}, *noisy, {e()}]",
                lambda: f"({e()}, {e()})",
                lambda: f"{{'a': {e()}, 'b': {e()}, **noisy.d{n}}}",
                lambda: f"f'{{{self.variable()}!r}}|{{noisy.f{n}:{{{self.variable()}!s:>5}}}}|{{noisy(a)!s}}'",
                lambda: f"(w{n} := {e()})",
                lambda: f"[({e()}, v{n}) for v{n} in noisy.i{n} if {e()}]",
                lambda: f"(lambda p{n}, q=noisy.q{n}: {e()} if p{n} is None else p{n})({e()})",
                lambda: f"helper({e()}, y={e()})",
            ]
        )()


def helper(x, y=None):
    spend(("helper", repr(x), repr(y)))
    return x if y is None else y


def make(seed):
    name = f"expressions_{seed}"
    filename = f"<ipython-tests-{name}>"
    source = Writer(seed).function(name)
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    space = {"noisy": Noisy("n"), "helper": helper, "__name__": __name__}
    exec(compile(source, filename, "exec"), space)
    return space[name], source


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_expressions(seed):
    function, source = make(seed)
    for fuel in (10**9, 1, 2, 3, 5, 8, 13, 21, 34):
        logs = []
        observed = []
        for side in (0, 1):
            LOG.clear()
            FUEL[0] = fuel
            observed.append(_observe(function, side))
            logs.append(list(LOG))
        found = _differences(*observed)
        assert logs[0] == logs[1], source
        assert not found, source


def _observe(function, side):
    given = Arguments((Noisy("x"), [Noisy("y0"), Noisy("y1")], Noisy("z")))
    return observe(interpreted(function) if side else function, given)


def _differences(expected, actual):
    FUEL[0] = 10**9
    # Up to 3.11 a comprehension has a frame of its own, which captured code does not show.
    names = {name for _, _, name in expected.traceback}
    frames = "<listcomp>" not in names
    # What CPython marks while it tests the truth of `a and b or c`, while it makes the iterator of a comprehension, and
    # for a failed `assert`, depends on its version.
    carets = (
        frames and names.isdisjoint({"__bool__", "__iter__"}) and not isinstance(expected.exception, AssertionError)
    )
    return differences(expected, actual, tracebacks=frames, carets=carets)

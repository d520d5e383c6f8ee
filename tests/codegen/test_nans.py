"""Minima and maxima that take one instruction because of what is known of NaNs: they are NumPy's all the same."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.codegen.native import build, call
from tiercel.codegen.cpu.emit import emit
from tiercel.codegen.cpu.nans import NaNs
from tiercel.codegen.cpu.target import Target
from tiercel.codegen.cpu.text import Value
from tiercel.dtypes import float32
from tiercel.loops.form import Binary, Block, Buffer, Expr, For, Function, Load, Store, Var, const

HOST = Target.host()
TARGETS = [HOST, HOST.without_avx512()] if HOST.masked_memory else [HOST]
N, J = Var("N"), Var("j")
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.5, 3.0e38)
NUMPY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "min": np.minimum, "max": np.maximum,
}  # fmt: skip


def tree(rng: random.Random, operands: dict[str, Expr], depth: int) -> tuple[Expr, str]:
    """A random expression, and its text for `evaluated`."""
    if depth == 0 or rng.random() < 0.1:
        if rng.random() < 0.5:
            number = rng.choice([0.5, -2.0, 0.0, 1.0009765625, float("inf"), float("nan")])
            return const(number, float32), f"np.float32('{number}')"
        name = rng.choice(sorted(operands))
        return operands[name], name
    op = rng.choice(["min", "max", *NUMPY])
    (a, first), (b, second) = tree(rng, operands, depth - 1), tree(rng, operands, depth - 1)
    return Binary(op, a, b), f"{op}({first}, {second})"


def evaluated(text: str, values: dict[str, np.ndarray]) -> np.ndarray:
    with np.errstate(all="ignore"):
        return eval(text, {"np": np, **NUMPY, **values})


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.cpu)
@pytest.mark.parametrize("seed", range(4))
def test_random_trees(seed, target):
    rng = random.Random(seed)
    x, y = (Buffer(name, float32, (N,)) for name in "xy")
    operands = {"x": Load(x, (J,)), "y": Load(y, (J,))}
    made = [tree(rng, operands, 5) for _ in range(16)]
    results = [Buffer(f"r{i}", float32, (N,), space="result") for i in range(len(made))]
    stores = tuple(Store(r, (J,), e) for r, (e, _) in zip(results, made, strict=True))
    function = Function("trees", (N,), (), (x, y, *results), (), Block((For("j", N, Block(stores), "vector"),)))
    pairs = np.array([(a, b) for a in SPECIAL for b in SPECIAL], np.float32).T
    values = {"x": pairs[0].copy(), "y": pairs[1].copy()}
    arrays = values | {r.name: np.zeros(len(values["x"]), np.float32) for r in results}
    call(build(function, target), function, arrays, {"N": len(values["x"])})
    for r, (_, text) in zip(results, made, strict=True):
        want = np.broadcast_to(evaluated(text, values), arrays[r.name].shape)
        if "div" not in text:  # of zeros of both signs either is the larger one, and division tells them apart
            np.testing.assert_array_equal(arrays[r.name], want, err_msg=text)


def comparisons(value: Expr) -> int:
    """How often the code of `y[j] = value` looks for a NaN."""
    y = Buffer("y", float32, (N,), space="result")
    loop = For("j", N, Block((Store(y, (J,), value),)), "vector")
    return emit(Function("f", (N,), (), (X, Y, y), (), Block((loop,))), HOST).count("fcmp uno")


X, Y = Buffer("x", float32, (N,)), Buffer("other", float32, (N,))


@pytest.mark.skipif(not HOST.masked_memory, reason="elsewhere a comparison and a selection do both")
def test_no_comparison_where_one_operand_decides():
    x, zero = Load(X, (J,)), const(0.0, float32)
    line = Binary("add", Binary("mul", x, const(2.0, float32)), const(1.0, float32))
    assert comparisons(Binary("max", x, zero)) == comparisons(Binary("max", zero, x)) == 0
    assert comparisons(Binary("min", line, Binary("sub", x, zero))) == 0
    assert comparisons(Binary("max", Binary("mul", x, zero), x)) == 0  # 0 * x is NaN where x is, and elsewhere too
    other = Load(Y, (J,))
    assert comparisons(Binary("max", x, other)) > 0
    assert comparisons(Binary("max", Binary("mul", x, zero), Binary("mul", other, zero))) > 0
    assert comparisons(Binary("max", Binary("mul", x, zero), const(2.0, float32))) == 0
    assert comparisons(Binary("max", Binary("div", zero, x), Binary("mul", x, zero))) > 0  # at 0 and at infinity


def test_sets_stay_small():
    nans = NaNs()
    total = Value("%0", float32)
    for number in range(1, 100):
        other, total = total, Value(f"%s{number}", float32)
        nans.note("max", total, other, Value(f"%{number}", float32))
    assert not nans.implies(Value("%0", float32), total)  # forgotten, never wrong
    assert nans.implies(total, total)

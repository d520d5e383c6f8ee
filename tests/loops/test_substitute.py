"""Names replaced by expressions: everywhere, buffers included, and the result still means the same."""

from __future__ import annotations

import numpy as np

from tiercel.dtypes import as_dtype
from tiercel.loops import check, evaluate
from tiercel.loops.form import (
    Allocate,
    Binary,
    Block,
    Buffer,
    Compare,
    For,
    Function,
    If,
    Let,
    Load,
    Select,
    Store,
    Unary,
    Var,
    const,
)
from tiercel.loops.substitute import substitute

F32 = as_dtype("float32")
N = Var("N")
X, Y = Buffer("x", F32, (N,)), Buffer("y", F32, (N,), space="result")


def function(block, start=()):
    return check(Function("f", (N,), (), (X, Y), (), Block((*start, For("i", N, block)))))


def test_the_block_means_the_same_without_the_name():
    i, at = Var("i"), Var("at")
    view = Buffer("view", F32, (N,), (const(1),), "arena", "x", Binary("sub", at, i))
    inside = Compare("lt", at, Binary("sub", N, const(1)))
    block = Block((
        Allocate(view),
        Let("v", Select(inside, Load(view, (at,)), Unary("neg", Load(X, (at,))))),
        If(inside, Block((Store(Y, (at,), Var("v", F32)),)), Block((Store(Y, (i,), Load(X, (i,))),))),
    ))  # fmt: skip
    value = Binary("add", i, const(0))
    named = function(Block((Let("at", value), *block.body)))
    plain = function(substitute(block, {"at": value}))
    x = np.arange(5, dtype=np.float32)
    results = []
    for each in (named, plain):
        y = np.zeros(5, np.float32)
        evaluate(each, {"x": x, "y": y}, {"N": 5})
        results.append(y)
    np.testing.assert_array_equal(*results)


def test_names_bound_inside_stay():
    block = Block((Let("v", const(1)), Store(Y, (Var("v"),), Load(X, (Var("k"),)))))
    found = substitute(block, {"k": Var("i")})
    assert found == Block((Let("v", const(1)), Store(Y, (Var("v"),), Load(X, (Var("i"),)))))

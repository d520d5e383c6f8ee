"""Objects whose attributes compiled code reads: all instances of a class share it."""

from __future__ import annotations

import enum

import numpy as np
import pytest

import tiercel as tc
from tests.vm.inline import InlineBuilder

AT_ONCE = tc.Policy(warmup_calls=0, hot_count=1, hot_time_ms=0.0, hot_total_ms=0.0)
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def jitted(function, policy=AT_ONCE):
    made = tc.jit(function, policy=policy)
    builder = InlineBuilder()
    made.__tiercel__.tiers.builder = lambda: builder
    return made, builder


class Linear:
    def __init__(self, seed, scale=1.0):
        self.weight = np.random.default_rng(seed).standard_normal((4, 4)).astype(np.float32)
        self.scale = scale

    def __call__(self, x):
        return x @ self.weight * self.scale


class Block:
    shared = 2.0

    def __init__(self, seed, scale=1.0):
        self.first, self.second = Linear(seed, scale), Linear(seed + 100, scale)
        self.layers = [Linear(seed + 200), Linear(seed + 300)]

    @classmethod
    def factor(cls):
        return cls.shared

    def run(self, x):
        x = self.second(np.tanh(self.first(x)))
        for layer in self.layers:
            x = layer(x)
        return x * self.factor()


def expected(block, x):
    return Block.run(block, x)


def check(function, block, x=X):
    np.testing.assert_allclose(function(block, x), expected(block, x), rtol=1e-5)


def test_instances_share_a_kernel():
    run, builder = jitted(Block.run, tc.Policy(hot_count=100))
    blocks = [Block(seed) for seed in range(6)]
    run.warmup(blocks[0], X)
    for _ in range(4):
        for block in blocks:
            check(run, block)
    assert len(builder.submitted) == 1
    assert run.stats()["compiled_calls"] == 24, run.explain()


def test_attributes_that_are_replaced_are_seen():
    run, _ = jitted(Block.run)
    block = Block(1)
    for _ in range(3):
        check(run, block)
    block.first = Linear(9)
    check(run, block)
    block.layers[1].weight = np.eye(4, dtype=np.float32)
    check(run, block)
    block.layers.append(Linear(11))
    check(run, block)
    assert run.stats()["compiled_calls"] >= 3


def test_numbers_of_instances_that_differ_are_guarded():
    run, builder = jitted(Block.run)
    plain, scaled = Block(1), Block(1, scale=3.0)
    for _ in range(12):
        check(run, plain)
        check(run, scaled)
    assert len(builder.submitted) == 2


def test_a_subclass_is_another_class():
    class Doubled(Linear):
        def __call__(self, x):
            return super().__call__(x) * 2

    run, _ = jitted(Block.run)
    block = Block(1)
    for _ in range(3):
        check(run, block)
    block.first = Doubled(4)
    check(run, block)
    check(run, Block(2))


def test_a_method_that_an_instance_replaces_is_seen():
    class Model:
        def act(self, x):
            return x * 2

    def call(model, x):
        return model.act(x) + 1

    run, _ = jitted(call)
    model = Model()
    for _ in range(3):
        assert np.array_equal(run(model, X), X * 2 + 1)
    odd = Model()
    odd.act = lambda x: x * 3
    assert np.array_equal(run(odd, X), X * 3 + 1)
    borrowed = Model()
    borrowed.act = Model().act
    assert np.array_equal(run(borrowed, X), X * 2 + 1)


def test_which_object_it_is_matters_where_the_code_asks():
    class Pair:
        def __init__(self, a, b):
            self.a, self.b = a, b

    def tied(pair, x):
        return x * 2 if pair.a is pair.b else x * 3

    run, _ = jitted(tied)
    one, two = Linear(1), Linear(2)
    for pair, factor in ((Pair(one, one), 2), (Pair(one, one), 2), (Pair(one, one), 2), (Pair(one, two), 3)):
        assert np.array_equal(run(pair, X), X * factor)


class Mode(enum.Enum):
    FAST = 1
    SLOW = 2


def test_enumerations_are_told_apart():
    def by_mode(mode, x):
        return x * 2 if mode is Mode.FAST else x * 3

    run, _ = jitted(by_mode)
    for mode, factor in ((Mode.FAST, 2),) * 3 + ((Mode.SLOW, 3),) * 2 + ((Mode.FAST, 2),):
        assert np.array_equal(run(mode, X), X * factor)


@pytest.mark.parametrize("which", [0, 1])
def test_an_object_chosen_by_data(which):
    class Choice:
        def __init__(self, a, b):
            self.a, self.b = a, b

    def chosen(choice, x):
        layer = choice.a if x.sum() > 0 else choice.b
        return layer(x)

    run, _ = jitted(chosen)
    same = Linear(1)
    x = X + (1 if which else -1)
    for choice in (Choice(same, same),) * 3 + (Choice(Linear(3), Linear(4)),) * 3:
        layer = choice.a if x.sum() > 0 else choice.b
        np.testing.assert_allclose(run(choice, x), layer(x), rtol=1e-5)


def test_models_with_lists_of_layers_enter_through_machine_code():
    run, _ = jitted(Block.run)
    block = Block(1)
    for _ in range(4):
        check(run, block)
    (entry, *_) = run.__tiercel__.tiers.entries
    assert entry.stub is not None, entry.without
    before = entry.table.calls
    check(run, block)
    assert entry.table.calls == before + 1
    block.layers.pop()
    check(run, block)
    block.layers = tuple(block.layers)
    check(run, block)

"""Packed forms of frozen operands: shared by entries, found by the stub without asking, dropped with their values."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import tiercel as tc
from tests.vm.test_stub import heat, jitted, through_stub
from tiercel.codegen.cpu.stub import PACK_RECORDS, record_number
from tiercel.values import Parameter, Tensor
from tiercel.vm import packs
from tiercel.vm.packs import MAX_PACKS, Packs, packed_bytes

X = np.arange(5 * 32, dtype=np.float32).reshape(5, 32)


def fake_pack(calls):
    return {("float32", False): lambda *given: calls.append(given)}


def weights(seed, shape=(32, 24)):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_entries_share_what_they_pack():
    calls = []
    first, second, other = (
        Packs("float32", dims, fake_pack(calls)) for dims in ((32, 24, 24, 1, 0),) * 2 + ((24, 32, 1, 24, 0),)
    )
    w = tc.constant(weights(1))
    before = packed_bytes()
    assert first.address(w, w) == second.address(w, w)
    assert len(calls) == 1
    assert packed_bytes() - before == first.nbytes == second.nbytes
    assert other.address(w, w) != first.address(w, w)  # transposed: another layout
    assert len(calls) == 2
    assert first.copied and not second.copied
    del first, second, other
    gc.collect()
    assert packed_bytes() == before


def test_two_functions_pack_a_parameter_once():
    weight = Parameter(weights(2))
    f, f_tiers = jitted(lambda x, w: x @ w)
    g, g_tiers = jitted(lambda x, w: x @ w + 1)
    heat(f, Tensor(X), weight)
    before = packed_bytes()
    heat(g, Tensor(X), weight)
    assert f_tiers.entries[0].packs and g_tiers.entries[0].packs
    assert packed_bytes() == before
    np.testing.assert_allclose(np.asarray(g(Tensor(X), weight)), X @ np.asarray(weight) + 1, rtol=1e-5)


@pytest.mark.parametrize("kind", ["constant", "parameter", "tensor"])
def test_the_stub_asks_once_for_each_value(kind, monkeypatch):
    make = {"constant": tc.constant, "parameter": Parameter, "tensor": lambda a: tc.constant(Tensor(a))}[kind]
    given = X if kind == "constant" else Tensor(X)
    held = make(weights(3))
    f, tiers = jitted(lambda x: x @ held) if kind == "constant" else jitted(lambda x, w: x @ w)
    arguments = (given,) if kind == "constant" else (given, held)
    heat(f, *arguments)
    (entry,) = tiers.entries
    got, by_stub = through_stub(f, *arguments)
    assert by_stub, entry.without
    (operand,) = entry.packs
    monkeypatch.setattr(operand, "address", None)
    asked = []
    monkeypatch.setattr(packs, "frozen_state", asked.append)
    for _ in range(3):
        again, by_stub = through_stub(f, *arguments)
        assert by_stub
        np.testing.assert_array_equal(np.asarray(again), np.asarray(got))
    assert not asked
    np.testing.assert_allclose(np.asarray(got), X @ weights(3), rtol=1e-5)


def test_a_write_is_seen_and_many_values_take_turns():
    values = [Parameter(weights(i)) for i in range(2 * PACK_RECORDS + 1)]
    f, _ = jitted(lambda x, w: x @ w)
    heat(f, Tensor(X), values[0])
    for round_ in range(3):
        for i, value in enumerate(values):
            if round_ == 1:
                value.assign(weights(100 + i))
            want = X @ weights(i if round_ == 0 else 100 + i)
            got, by_stub = through_stub(f, Tensor(X), value)
            assert by_stub
            np.testing.assert_allclose(np.asarray(got), want, rtol=1e-5, atol=1e-5)


def test_a_constant_that_is_made_writable_is_not_taken_from_the_records():
    held = tc.constant(weights(4))
    f, tiers = jitted(lambda x, w: x @ w)
    heat(f, X, held)
    assert tiers.entries[0].packs
    held.flags.writeable = True
    held[...] = 2
    np.testing.assert_allclose(f(X, held), X @ np.full((32, 24), 2, np.float32), rtol=1e-6)


def test_records_are_cleared_when_a_value_dies():
    operand = Packs("float32", (32, 24, 24, 1, 0), fake_pack([]))
    w = tc.constant(weights(5))
    operand.address(w, w)
    record = operand.records.reshape(-1, 4)[1 + record_number(w.ctypes.data)]
    assert record[0] == id(w)
    assert record[2] == w.ctypes.data
    del w
    gc.collect()
    assert not record.any()
    assert operand.records[0] == id(operand.ask)


def test_what_is_not_frozen_is_refused():
    operand = Packs("float32", (32, 24, 24, 1, 0), fake_pack([]))
    w = weights(6)
    with pytest.raises(ValueError, match="frozen"):
        operand.address(w, w)


def test_no_more_than_some_are_kept():
    operand = Packs("float32", (4, 4, 4, 1, 0), fake_pack([]))
    held = [tc.constant(weights(i, (4, 4))) for i in range(MAX_PACKS + 5)]
    for w in held:
        operand.address(w, w)
    assert len(operand.made) == MAX_PACKS

"""The classes of `tiercel.ops` bind and compute as the rows they are spellings of."""

from __future__ import annotations

import dataclasses
import itertools
import zlib

import numpy as np
import pytest

from tests.operators import harness
from tests.operators import test_table as _registers_all_samples  # noqa: F401
from tiercel import ops
from tiercel.operators import ALL
from tiercel.operators.table import Operator, Spelling

CLASSES = [(row, s) for row in ALL.values() for s in row.spellings if s.kind == "class"]
# Enough to see that every argument arrives where it should.
_SAMPLES_EACH = 12


def _expressible(row: Operator, spelling: Spelling, sample: harness.Sample) -> bool:
    """Whether this class can make the call: it has a place for every argument that differs from the row's default."""
    places = {*spelling.parameters, *spelling.keywords.values()}
    given = dict(zip((p.name for p in row.parameters), sample.operands, strict=False)) | sample.attributes
    known = {name for name, value in given.items() if value is not None}
    if not known <= places or any(p.required and p.name not in given for p in row.parameters):
        return False
    # Positional arguments of the call, and operands, cannot be left out in the middle.
    present = [word in known for word in spelling.parameters]
    operands = [x is not None for x in sample.operands]
    return all(p == sorted(p, reverse=True) for p in (present, operands))


def test_names_are_unique():
    names = [s.path for _, s in CLASSES]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(("row", "spelling"), CLASSES, ids=[s.path for _, s in CLASSES])
def test_class_computes_as_its_row(row: Operator, spelling: Spelling):
    rng = np.random.default_rng(zlib.crc32(spelling.path.encode()))
    fitting = (s for s in harness.SAMPLES[row.name](rng) if s.spelling is None and _expressible(row, spelling, s))
    checked = 0
    for sample in itertools.islice(fitting, 20 * _SAMPLES_EACH):
        operands = tuple(x for x in sample.operands if x is not None)
        call = dataclasses.replace(sample, operands=operands, spelling=("class", spelling.path), symbolic=False)
        got = harness.check(row, call)
        if isinstance(got, Exception):
            continue
        with harness.quiet():
            want = row.evaluate(*sample.operands, **sample.attributes)
        assert _same(got, want), sample
        checked += 1
        if checked == _SAMPLES_EACH:
            return
    assert checked, f"no sample of {row.name} fits {spelling.path}"


def _same(a, b):
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(_same, a, b))
    return harness.same_value(a, b)


class TestSpelledOut:
    x = np.arange(24.0).reshape(2, 3, 4)

    def test_constructor_takes_names_of_its_own(self):
        parts = ops.Split(axis=2, output_num=4)(self.x)
        assert [p.shape for p in parts] == [(2, 3, 1)] * 4
        np.testing.assert_array_equal(ops.Split(2, 4)(self.x)[3], self.x[..., 3:])
        np.testing.assert_array_equal(ops.ReduceSum(keep_dims=True)(self.x, 1), self.x.sum(1, keepdims=True))
        np.testing.assert_array_equal(ops.Tril(diagonal=-1)(self.x[0]), np.tril(self.x[0], -1))

    def test_attributes_in_the_call(self):
        np.testing.assert_array_equal(ops.Reshape()(self.x, (-1, 4)), self.x.reshape(-1, 4))
        np.testing.assert_array_equal(ops.Transpose()(self.x, (2, 0, 1)), self.x.transpose(2, 0, 1))
        np.testing.assert_array_equal(ops.ExpandDims()(self.x, 1), self.x[:, None])
        np.testing.assert_array_equal(ops.Gather()(self.x, np.array([2, 0]), 1), self.x[:, [2, 0]])
        assert ops.Cast()(self.x, np.int8).dtype == np.int8

    def test_sequences_of_operands(self):
        pair = (self.x, self.x + 1)
        np.testing.assert_array_equal(ops.Concat(axis=1)(pair), np.concatenate(pair, 1))
        np.testing.assert_array_equal(ops.Stack(axis=-1)(list(pair)), np.stack(pair, -1))
        np.testing.assert_array_equal(ops.Einsum("abc,abc->a")(pair), (pair[0] * pair[1]).sum((1, 2)))

    def test_defaults_are_the_rows(self):
        np.testing.assert_array_equal(ops.Softmax()(self.x), ops.softmax(self.x, -1))
        assert ops.ReduceMean()(self.x) == self.x.mean()

    def test_a_missing_constructor_argument_is_named(self):
        with pytest.raises(TypeError, match="output_num"):
            ops.Split(axis=1)

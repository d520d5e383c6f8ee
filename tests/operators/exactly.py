"""Runs the samples of rows whose results are exact: every claim of the row, and bit-equal values from the oracle."""

from __future__ import annotations

import zlib

import numpy as np

from tests.operators.harness import ORACLES, SAMPLES, Sample, check, quiet, same_value
from tiercel.operators import get


def samples_of(name: str) -> list[Sample]:
    """The samples of a row, the same ones every time."""
    return list(SAMPLES[name](np.random.default_rng(zlib.crc32(name.encode()))))


def check_row(name: str) -> None:
    """Check all samples of a row; the values against its oracle where the call succeeds."""
    row, oracle = get(name), ORACLES.get(name)
    succeeded = 0
    for sample in samples_of(name):
        result = check(row, sample)
        if isinstance(result, Exception):
            continue
        succeeded += 1
        if oracle is None or not sample.compare:
            continue
        with quiet():
            want = oracle(*sample.operands, **sample.attributes)
        assert same_values(result, want), f"{name}: {sample}: got {result!r}, want {want!r}"
    assert succeeded, f"no sample of {name} succeeds"


def same_values(got: object, want: object) -> bool:
    """Equal bits, dtype and shape; items of tuples and lists one by one."""
    if isinstance(got, tuple | list):
        return isinstance(want, tuple | list) and len(got) == len(want) and all(map(same_values, got, want))
    if isinstance(got, np.ndarray | np.generic):
        return same_value(np.asarray(got), np.asarray(want))
    return same_value(got, want)

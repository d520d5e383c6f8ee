"""Rows that draw random numbers from an explicit key: no hidden state, the same key gives the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from tiercel.dtypes import DType
from tiercel.operators import creating, rules
from tiercel.operators.reference import philox
from tiercel.operators.table import EXACT, FRESH, PURE, Call, Lowering, Operator, parameters


def drawing(
    name: str,
    reference: Callable[..., Any],
    doc: str,
    shape: Callable[[Call], Any],
    dtype: Callable[[Call], DType],
    *keys: int,
    operands: str = "key",
    attributes: Mapping[str, object] | None = None,
    may_fail: Sequence[str] = ("value",),
) -> Operator:
    """A row whose result is a function of a key: equal bits everywhere, fresh, in C order.

    Args:
        keys: positions of the operands that are keys.
    """
    return Operator(
        name=name,
        parameters=parameters(operands, attributes),
        spellings=(),
        dtype=creating.dtype_key(dtype, *keys),
        shape=shape,
        layout=rules.layout_c,
        kind=rules.kind_array,
        result=FRESH,
        effect=PURE,
        exactness=EXACT,
        may_fail=tuple(may_fail),
        reference=reference,
        lowering=Lowering("random", name),
        doc=doc,
    )


ROWS: Final = (
    drawing(
        "random_bits",
        philox.random_bits,
        "uniform 32-bit words of Philox4x32-10",
        creating.shape_given,
        creating.always_uint32,
        0,
        attributes={"shape": ()},
    ),
    drawing(
        "random_uniform",
        philox.random_uniform,
        "uniform in [low, high), from as many high bits as the significand has",
        creating.shape_given,
        creating.float_only,
        0,
        attributes={"shape": (), "low": 0.0, "high": 1.0, "dtype": np.float32},
    ),
    drawing(
        "random_normal",
        philox.random_normal,
        "normally distributed, by inversion (AS 241)",
        creating.shape_given,
        creating.float_only,
        0,
        attributes={"shape": (), "mean": 0.0, "std": 1.0, "dtype": np.float32},
    ),
    drawing(
        "dropout",
        philox.dropout,
        "each element zeroed with probability p, the others scaled by 1 / (1 - p); a copy when not training",
        rules.shape_like(),
        creating.inexact_first,
        1,
        operands="x key",
        attributes={"p": 0.5, "training": True},
    ),
    drawing(
        "split_key",
        philox.split_key,
        "num new keys, none of which depends on num",
        creating.shape_split_key,
        creating.always_uint32,
        0,
        attributes={"num": 2},
    ),
    drawing(
        "fold_in",
        philox.fold_in,
        "the key that belongs to an integer: a step, a layer, a worker",
        creating.shape_key,
        creating.always_uint32,
        0,
        1,
        operands="key data",
    ),
)

"""Attention and loops over time for sequences of different lengths, without padding.

In: `Ragged` values. Out: `Ragged` results of the same lengths. Both run compiled code whose sizes are free: attention
once for each sequence, a loop over time once for each step, with the sequences that are that long.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tiercel.api import jit
from tiercel.errors import ShapeError
from tiercel.values.ragged import Ragged
from tiercel.values.tensor import unwrap

__all__ = ["ragged_attention", "ragged_scan"]


def _attend(q: Any, k: Any, v: Any, scale: Any) -> Any:
    scores = q @ k.swapaxes(-1, -2) * scale
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True) @ v


def _attend_causal(q: Any, k: Any, v: Any, scale: Any) -> Any:
    rows, keys = q.shape[-2], k.shape[-2]
    scores = q @ k.swapaxes(-1, -2) * scale
    seen = np.arange(rows)[:, None] + (keys - rows) >= np.arange(keys)[None, :]
    scores = np.where(seen, scores, -np.inf)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True) @ v


@functools.cache
def _compiled(causal: bool) -> Callable[..., Any]:
    return jit(_attend_causal if causal else _attend)


def ragged_attention(q: Ragged, k: Ragged, v: Ragged, *, causal: bool = False, scale: float | None = None) -> Ragged:
    """Attention within each sequence: `softmax(q k^T scale) v`, the steps of one sequence seeing only each other.

    Args:
        q: queries, (sequences, rows of each, size) or (sequences, rows of each, heads, size).
        k, v: keys and values, of as many sequences; q may have other lengths than they (a part at the end).
        causal: the last query sees all keys, the one before it all but the last, and so on.
        scale: of the scores; 1 / sqrt(size) by default.

    Raises:
        ShapeError: not as many sequences, keys and values of different lengths, or other ranks.
        ValueError: a sequence with queries and without keys.
    """
    if len(q) != len(k) or not np.array_equal(k.offsets, v.offsets):
        raise ShapeError(f"ragged_attention: lengths {q.lengths}, {k.lengths} and {v.lengths} of q, k and v")
    if q.ndim not in (3, 4) or {k.ndim, v.ndim} != {q.ndim}:
        raise ShapeError(f"ragged_attention: shapes {q.shape}, {k.shape} and {v.shape}")
    size = q.values.shape[-1]
    dtype = unwrap(q.values).dtype
    factor = dtype.type(1 / np.sqrt(size) if scale is None else scale)
    attend = _compiled(causal)
    parts = []
    for part in zip(q, k, v, strict=True):
        one = tuple(np.asarray(unwrap(x)) for x in part)
        if q.ndim == 4:
            one = tuple(x.transpose(1, 0, 2) for x in one)
        out = attend(*one, factor) if len(part[0]) else one[2][..., :0, :]
        parts.append(out.transpose(1, 0, 2) if q.ndim == 4 else out)
    flat = np.concatenate(parts) if parts else np.asarray(unwrap(v.values))[:0]
    return q.with_values(type(v.values)(flat) if not isinstance(v.values, np.ndarray) else flat)


def ragged_scan(step: Callable[..., Any], x: Ragged, *state: Any) -> tuple[Any, ...]:
    """A recurrent step over the time of every sequence: as `for t in range(length)` over each, for all of them at once.

    Args:
        step: `step(inputs, *state)` gives the output, or a tuple of the output and the parts of the new state where it
            differs from the output: (inputs (m, ...), state parts (m, ...)), for any m. With one part of state and a
            result that is no tuple, the output is the new state.
        x: the inputs.
        state: parts of the first state, (sequences, ...) each. They are not written to.

    Returns:
        (outputs as a Ragged, then the last state of every sequence, part by part). A sequence without steps keeps its
        first state.

    Raises:
        ShapeError: the state is not one of so many sequences, or the step gives another number of parts.
    """
    parts = [np.array(unwrap(s)) for s in state]
    if any(len(p) != len(x) for p in parts):
        raise ShapeError(f"ragged_scan: states of {[len(p) for p in parts]} for {len(x)} sequences")
    lengths, flat = x.lengths, np.asarray(unwrap(x.values))
    order = np.argsort(-lengths, kind="stable")
    starts = x.offsets[:-1][order]
    parts = [p[order] for p in parts]
    outputs: Any = None
    for time in range(int(lengths.max()) if len(x) else 0):
        many = int((lengths > time).sum())
        result = step(flat[starts[:many] + time], *(p[:many] for p in parts))
        new = tuple(result) if isinstance(result, tuple) else (result,)
        if len(new) not in (len(parts), len(parts) + 1):
            raise ShapeError(f"ragged_scan: the step gives {len(new)} results for a state of {len(parts)}")
        output = np.asarray(unwrap(new[0]))
        if outputs is None:
            outputs = np.empty((len(flat), *output.shape[1:]), output.dtype)
        outputs[starts[:many] + time] = output
        for part, value in zip(parts, new[len(new) - len(parts) :], strict=True):
            part[:many] = np.asarray(unwrap(value))
    back = np.argsort(order, kind="stable")
    if outputs is None:
        outputs = flat[:0]
    return (x.with_values(outputs), *(p[back] for p in parts))

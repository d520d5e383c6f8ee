"""Whether peers computed the same: samples of their results, compared element by element.

In: results of calls, as nested tuples and lists of arrays. Out: a sample of each (a few thousand elements at fixed
places), and for each peer None or what is wrong with it. The truth is the float64 reference where there is one, else
the element-wise median of all peers, which one wrong peer among three cannot move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiercel.tools.suite.case import Array

__all__ = ["Sample", "disagreements", "sample"]

# Elements looked at in each array of a result.
ELEMENTS = 8192


@dataclass(frozen=True, slots=True)
class Sample:
    """Shapes of the arrays of a result, and elements of each, float64."""

    shapes: tuple[tuple[int, ...], ...]
    elements: tuple[Array, ...]


def sample(leaves: Sequence[Any], seed: int = 0) -> Sample:
    """Take the same places of any result with these shapes.

    Args:
        leaves: NumPy arrays and numbers.
        seed: which places.
    """
    rng = np.random.default_rng(seed)
    arrays = [np.asarray(leaf) for leaf in leaves]
    taken = []
    for array in arrays:
        flat = array.reshape(-1)
        places = np.sort(rng.integers(0, flat.size, ELEMENTS)) if flat.size > ELEMENTS else slice(None)
        taken.append(flat[places].astype(np.float64))
    return Sample(tuple(a.shape for a in arrays), tuple(taken))


def disagreements(
    samples: Mapping[str, Sample], reference: Sample | None, rtol: float, atol: float, odd_share: float = 0.0
) -> dict[str, str]:
    """Return what is wrong, by peer; peers that are right are not in it.

    Args:
        samples: by peer, of one call each on the same inputs.
        reference: what is right, if somebody knows.
        rtol, atol: an element may be off by `atol + rtol * largest`, largest being that of the array.
        odd_share: so large a share of the elements may be off by more.
    """
    if reference is None and len(samples) < 2:
        return {}
    truth_shapes = reference.shapes if reference is not None else _most_common([s.shapes for s in samples.values()])
    wrong = {
        name: f"result has shapes {list(s.shapes)}, expected {list(truth_shapes)}"
        for name, s in samples.items()
        if s.shapes != truth_shapes
    }
    right = {name: s for name, s in samples.items() if name not in wrong}
    for index in range(len(truth_shapes)):
        if reference is not None:
            truth = reference.elements[index]
        else:
            truth = np.median(np.stack([s.elements[index] for s in right.values()]), axis=0)
        finite = np.abs(truth[np.isfinite(truth)])
        allowed = atol + rtol * (float(finite.max()) if finite.size else 0.0)
        for name, s in right.items():
            got = s.elements[index]
            with np.errstate(invalid="ignore"):
                off = np.where((got == truth) | (np.isnan(got) & np.isnan(truth)), 0.0, np.abs(got - truth))
            off = np.where(np.isnan(off), np.inf, off)
            if off.size and np.mean(off > allowed) > odd_share:
                text = f"result {index} is off by up to {off.max():.3g}, {allowed:.2g} is allowed"
                wrong.setdefault(name, text)
    return wrong


def _most_common(values: list[Any]) -> Any:
    return max(values, key=values.count)

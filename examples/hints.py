"""Shape hints: what may be said about arguments, and what a call that breaks a hint is told.

Hints are optional. The `Annotated` form is plain typing, so mypy and pyright see ordinary arrays; the other forms say
the same.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

import tiercel as tc

Array = npt.NDArray[np.float32]

# One name is one size in all arguments of a call; a size may have a range and a divisor.
Tokens = Annotated[Array, tc.spec("B", tc.dim("T", 1, 512, multiple=8), 16, dtype=np.float32)]
Mask = Annotated[npt.NDArray[np.bool_], tc.spec("B", "T", dtype=np.bool_)]


class State(NamedTuple):
    """Hints work inside named tuples, dataclasses, dicts, lists and tuples."""

    total: Annotated[Array, tc.spec("B", 16)]
    kept: Annotated[Array, tc.spec("B", 1)]


@tc.jit
def accumulate(x: Tokens, mask: Mask, state: State) -> State:
    """Add the tokens that the mask keeps to a running sum."""
    keep = mask[:, :, None].astype(np.float32)
    return State(state.total + (x * keep).sum(axis=1), state.kept + keep.sum(axis=1))


@tc.jit(specs={"x": tc.spec("B", "2*H"), "w": tc.spec("H", None)})
def gated(x: Array, w: Array) -> Array:
    """The same in the decorator, with an expression: x has twice the columns that w has rows."""
    left, right = np.split(x, 2, axis=1)
    out: Array = (left * np.tanh(right)) @ w
    return out


def refused(call: str, error: type[Exception], message: str) -> None:
    print(f"{call}\n    {error.__name__}: {message}")


def main() -> None:
    rng = np.random.default_rng(0)
    for batch, time in ((2, 8), (3, 64), (1, 16)):
        x = rng.standard_normal((batch, time, 16), dtype=np.float32)
        mask = rng.random((batch, time)) < 0.5
        state = State(np.zeros((batch, 16), np.float32), np.zeros((batch, 1), np.float32))
        got = accumulate(x, mask, state)
        want = np.stack([x[i, mask[i]].sum(axis=0) for i in range(batch)])
        np.testing.assert_allclose(got.total, want, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(got.kept[:, 0], mask.sum(axis=1))
    assert gated(np.ones((4, 6), np.float32), np.ones((3, 2), np.float32)).shape == (4, 2)

    try:
        accumulate(x[:, :12], mask[:, :12], state)
    except tc.ShapeError as error:
        refused("a length of 12", type(error), str(error))
    else:
        raise AssertionError("12 is no multiple of 8")
    try:
        accumulate(x, mask[:, :8], state)
    except tc.ShapeError as error:
        refused("a mask of another length", type(error), str(error))
    else:
        raise AssertionError("the mask has another length")
    wide: Any = x.astype(np.float64)
    try:
        accumulate(wide, mask, state)
    except tc.DTypeError as error:
        refused("float64 tokens", type(error), str(error))
    else:
        raise AssertionError("float64 is not float32")
    try:
        gated(np.ones((4, 5), np.float32), np.ones((3, 2), np.float32))
    except tc.ShapeError as error:
        refused("five columns for three rows", type(error), str(error))
    else:
        raise AssertionError("5 is not 2 * 3")
    print("hinted calls all right, broken hints all refused")


if __name__ == "__main__":
    main()

"""What compiled code is declared to do differently: rows of docs/semantics.md."""

from __future__ import annotations

import numpy as np

import tiercel as tc


def test_a_view_of_an_inner_array_is_returned_as_an_array_of_its_own():
    @tc.jit
    def f(x):
        return (x * 2)[:2]

    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    assert f(x).base is not None, "interpreted it is NumPy's view"
    f.warmup(x)
    found = f(x)
    assert f.stats()["compiled_calls"] == 1
    np.testing.assert_array_equal(found, (x * 2)[:2])
    assert found.base is None
    assert found.flags.owndata

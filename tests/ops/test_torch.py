"""`tiercel.ops` on torch tensors."""

from __future__ import annotations

import numpy as np
import pytest

from tiercel import ops
from tiercel.values import Tensor

torch = pytest.importorskip("torch")


def test_torch_in_torch_out():
    x = torch.ones(2, 3)
    got = ops.add(x, Tensor(np.ones(3, np.float32)))
    assert isinstance(got, torch.Tensor)
    assert got.dtype is torch.float32
    assert got.tolist() == [[2, 2, 2], [2, 2, 2]]
    assert isinstance(ops.sum(x), torch.Tensor)
    assert ops.sum(x).item() == 6
    assert all(isinstance(part, torch.Tensor) for part in ops.split(x, 3, axis=1))
    assert isinstance(ops.concat([np.ones((1, 3), np.float32), x]), torch.Tensor)


def test_views_share_memory():
    x = torch.zeros(2, 3)
    ops.transpose(x)[0, 0] = 5
    assert x[0, 0] == 5


def test_bfloat16():
    got = ops.exp(torch.zeros(2, dtype=torch.bfloat16))
    assert got.dtype is torch.bfloat16


def test_gradients_are_not_dropped():
    with pytest.raises(RuntimeError, match="detach"):
        ops.exp(torch.ones(2, requires_grad=True))

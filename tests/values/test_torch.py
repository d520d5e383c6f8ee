"""Tensors beside torch's: torch wins, memory is shared, gradients are never lost silently."""

from __future__ import annotations

import numpy as np
import pytest

import tiercel.dtypes as td
from tiercel.errors import DTypeError
from tiercel.values import Parameter, Tensor, constant, from_dlpack, unwrap
from tiercel.values.interchange import from_torch, is_torch, to_torch

torch = pytest.importorskip("torch")


def test_is_torch():
    assert is_torch(torch.ones(2))
    assert is_torch(torch.nn.Parameter(torch.ones(2)))
    assert not is_torch(np.ones(2))
    assert not is_torch(Tensor([1.0]))


@pytest.mark.parametrize("name", [d.name for d in td.DTYPES])
def test_every_dtype_goes_there_and_back(name):
    array = np.array([0, 1, 1], td.as_dtype(name).numpy)
    there = to_torch(array)
    assert str(there.dtype) == f"torch.{name}"
    back = from_torch(there)
    assert back.dtype == array.dtype
    assert np.shares_memory(back, array)


def test_layouts_and_copies():
    x = torch.arange(12.0).reshape(3, 4)
    assert from_torch(x.T).strides == (4, 16)
    assert np.shares_memory(from_torch(x[::2]), from_torch(x))
    a = np.arange(4.0)
    assert not np.shares_memory(to_torch(a[::-1]).numpy(), a)
    assert to_torch(a[::-1]).tolist() == [3, 2, 1, 0]
    locked = constant(a)
    to_torch(locked).fill_(9)
    assert locked.tolist() == [0, 1, 2, 3]
    z = torch.tensor([1 + 2j]).conj()
    assert from_torch(z).tolist() == [1 - 2j]


def test_tensor_of_torch_shares_memory():
    x = torch.zeros(3)
    t = Tensor(x)
    t += 1
    assert x.tolist() == [1, 1, 1]
    assert from_dlpack(x).tolist() == [1, 1, 1]
    assert torch.from_dlpack(t).tolist() == [1, 1, 1]
    assert torch.from_dlpack(t).data_ptr() == x.data_ptr()


def test_a_gradient_is_never_dropped_silently():
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="needs one"):
        Tensor(x)
    with pytest.raises(RuntimeError, match="needs one"):
        unwrap([x])
    with pytest.raises(BufferError):
        from_dlpack(x)
    with torch.no_grad():
        assert Tensor(x).tolist() == [1, 1, 1]


def test_other_devices_and_layouts_are_refused():
    with pytest.raises(TypeError, match="device 'meta'"):
        from_torch(torch.ones(2, device="meta"))
    with pytest.raises(TypeError, match="to_dense"):
        from_torch(torch.ones(2).to_sparse())
    with pytest.raises(DTypeError):
        Tensor(torch.ones(2).to(torch.float8_e5m2).view(torch.uint8)).astype("float8")


def test_operators_give_torch_and_keep_gradients():
    t, x = Tensor([1.0, 2.0]), torch.tensor([3.0, 4.0], dtype=torch.float64, requires_grad=True)
    for got in (t + x, x + t, t * x, x * t, x - t, t @ x, x @ t, x**t, t**x, t / x, x / t):
        assert is_torch(got)
        assert got.requires_grad
    assert (t - x).tolist() == [-2, -2]
    assert (x - t).tolist() == [2, 2]
    (t * x).sum().backward()
    assert x.grad.tolist() == [1, 2]
    assert is_torch(t < x)
    assert (t < x).tolist() == [True, True]


def test_in_place_keeps_the_left_kind():
    t, x = Tensor([1.0, 2.0]), torch.tensor([3.0, 4.0], dtype=torch.float64)
    t += x
    assert type(t) is Tensor
    assert t.tolist() == [4, 6]
    x += t
    assert is_torch(x)
    assert x.tolist() == [7, 10]


def test_torch_functions_take_tensors():
    t = Tensor(np.ones((2, 3), np.float32))
    got = torch.add(torch.ones(3), t)
    assert is_torch(got)
    assert got.shape == (2, 3)
    assert torch.cat([torch.ones(1, 3), t]).shape == (3, 3)
    assert torch.exp(t).dtype is torch.float32


def test_numpy_functions_give_torch():
    t, x = Tensor([1.0, 2.0]), torch.ones(2, dtype=torch.float64)
    assert is_torch(np.concatenate([t, x]))
    assert is_torch(np.add(t, x))
    assert all(is_torch(part) for part in np.split(np.concatenate([t, x]), 2))


def test_torch_writes_into_a_parameter_are_seen():
    p = Parameter(np.zeros(3, np.float32))
    before = p.version
    torch.add(torch.ones(3), torch.ones(3), out=p)
    assert p.tolist() == [2, 2, 2]
    assert p.version != before


def test_constant_of_torch_is_a_copy():
    x = torch.ones(2)
    c = constant(x)
    x += 1
    assert is_torch(c)
    assert c.tolist() == [1, 1]
    assert constant(x, td.float64).dtype is torch.float64


def test_indexing_and_setting_with_torch():
    t = Tensor(np.arange(4.0))
    assert t[torch.tensor([0, 2])].tolist() == [0, 2]
    t[1:] = torch.zeros(3)
    assert t.tolist() == [0, 0, 0, 0]


def test_hints_take_torch_tensors():
    from tiercel.values import spec, specs_of

    def f(x):
        return x

    checker = specs_of(f, {"x": spec("B", 2, dtype=td.float32)})
    checker.check((torch.ones(3, 2),))
    with pytest.raises(DTypeError, match="float64"):
        checker.check((torch.ones(3, 2, dtype=torch.float64),))

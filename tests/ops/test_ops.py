"""`tiercel.ops`: functions and classes made from the operator table, on every kind of value."""

from __future__ import annotations

import copy
import inspect
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import tiercel
from tiercel import ops
from tiercel.operators import ALL, find_function
from tiercel.ops import generate, stubs
from tiercel.values import Parameter, Tensor, storage_of

X = np.arange(6, dtype=np.float32).reshape(2, 3)


# ---- the module ------------------------------------------------------------------------------------------------------


def test_every_row_has_a_function():
    for name in ALL:
        function = getattr(ops, name)
        assert inspect.isfunction(function)
        assert function.__name__ == function.__qualname__ == name
        assert function.__module__ == "tiercel.ops"
        assert function.__doc__
        row, index = function.__tiercel_op__
        assert row == name
        assert ALL[row].spellings[index].kind == "ops"
        assert find_function(function) == (ALL[name], index)
        own = [own.removeprefix("*") for own, _ in generate.call_arguments(ALL[name], ALL[name].spellings[index])]
        assert list(inspect.signature(function).parameters) == own
        assert len(own) == len(ALL[name].parameters)


def test_every_class_spelling_is_a_class():
    found = [(s.path, row, i) for row in ALL.values() for i, s in enumerate(row.spellings) if s.kind == "class"]
    assert found
    for path, row, index in found:
        made = getattr(ops, path)
        assert inspect.isclass(made)
        assert issubclass(made, ops.Operation)
        assert made.__tiercel_op__ == (row.name, index)
        assert made.__name__ == path
        assert made.__module__ == "tiercel.ops"
        assert made.__doc__


def test_dir_and_all():
    assert {"sum", "MatMul", "Operation"} <= set(dir(ops))
    assert sorted(ops.__all__) == dir(ops)
    assert len(set(ops.__all__)) == len(ops.__all__)


def test_an_unknown_operator_suggests_the_nearest():
    with pytest.raises(AttributeError, match="no operator 'sigmiod'; did you mean 'sigmoid'"):
        ops.sigmiod
    with pytest.raises(AttributeError, match="did you mean 'MatMul'"):
        ops.MatMull
    assert not hasattr(ops, "zzz")


def test_names_are_made_once_also_by_threads():
    assert ops.exp is ops.exp
    ops.__dict__.pop("cosh", None)
    found = []
    barrier = threading.Barrier(4)

    def look():
        barrier.wait()
        found.append(ops.cosh)

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(f) for f in found}) == 1


def test_stub_is_current():
    assert stubs.STUB.read_text(encoding="utf-8") == stubs.render(), "run python -m tiercel.ops.stubs"


def test_importing_ops_is_light():
    code = "import tiercel.ops, sys; assert 'llvmlite' not in sys.modules and 'torch' not in sys.modules"
    source = str(Path(tiercel.__file__).parents[1])
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": source, "PATH": ""})


# ---- functions -------------------------------------------------------------------------------------------------------


def test_signature_and_pythons_own_errors():
    assert str(inspect.signature(ops.sum)) == "(x, axis=None, dtype=None, keepdims=False)"
    with pytest.raises(TypeError, match=r"sum\(\) missing 1 required positional argument: 'x'"):
        ops.sum()
    with pytest.raises(TypeError, match=r"sum\(\) got an unexpected keyword argument 'axes'"):
        ops.sum(X, axes=1)


def test_the_kind_of_the_operands_decides_the_kind_of_the_result():
    assert type(ops.exp(X)) is np.ndarray
    assert type(ops.sum(X)) is np.float32
    assert type(ops.exp(Tensor(X))) is Tensor
    assert type(ops.sum(Tensor(X))) is Tensor
    assert type(ops.add(X, Tensor(X))) is Tensor
    assert type(ops.add(X, Parameter(X))) is Tensor
    assert type(ops.add(1, 2)) is np.int64
    assert type(ops.concat([X, X])) is np.ndarray
    assert type(ops.concat([X, Tensor(X)])) is Tensor
    parts = ops.split(Tensor(X), 3, axis=1)
    assert type(parts) is list
    assert all(type(p) is Tensor for p in parts)


def test_values_are_the_references():
    np.testing.assert_array_equal(ops.add(X, 1), X + 1)
    np.testing.assert_array_equal(ops.sum(Tensor(X), axis=1, keepdims=True).numpy(), X.sum(axis=1, keepdims=True))
    np.testing.assert_array_equal(ops.matmul(Tensor(X), X.T).numpy(), X @ X.T)
    np.testing.assert_array_equal(ops.where(Tensor(X > 2), X, 0).numpy(), np.where(X > 2, X, 0))
    assert ops.sum([1, 2, 3]) == 6


def test_views_keep_the_storage():
    t, p = Tensor(X.copy()), Parameter(X)
    view = ops.transpose(t)
    assert storage_of(view) is storage_of(t)
    view[0, 0] = 9
    assert t[0, 0] == 9
    assert ops.transpose(p).base is p
    assert storage_of(ops.split(t, 3, axis=1)[1]) is storage_of(t)
    assert storage_of(ops.exp(t)) is not storage_of(t)


def test_parameters_are_read_not_written():
    p = Parameter(X)
    ops.exp(p)
    ops.add(p, p)
    ops.softmax(p)
    assert p.version == 0


def test_numpys_errors_come_through():
    with pytest.raises(ValueError, match="operands could not be broadcast"):
        ops.add(Tensor(X), np.ones(4))
    with pytest.raises(TypeError, match="not supported for the input types"):
        ops.bitwise_and(Tensor(X), 1)


def test_functions_pickle_by_name():
    assert pickle.loads(pickle.dumps(ops.sum)) is ops.sum
    assert copy.deepcopy(ops.sum) is ops.sum


def test_source_can_be_read():
    assert inspect.getsource(ops.sum).startswith("def sum(x, axis=None")


def test_documentation_names_the_spellings():
    assert "np.sum, x.sum()" in ops.sum.__doc__
    assert "x + y" in ops.add.__doc__


def test_written_operands_move_their_version():
    writing = [row for row in ALL.values() if row.effect.__class__.__name__ == "Effect" and row.effect.kind == "writes"]
    for row in writing:
        assert "_written" in getattr(ops, row.name).__globals__
    t = Tensor(X.copy())
    before = t.version
    run_writing = generate.run_writing
    run_writing(lambda a: a.fill(3), (t,), {}, (0,))
    assert t.version != before
    assert (t == 3).all()


# ---- classes ---------------------------------------------------------------------------------------------------------


def test_classes_of_the_class_style():
    t = Tensor(X)
    np.testing.assert_array_equal(ops.MatMul()(t, t.T).numpy(), X @ X.T)
    np.testing.assert_array_equal(ops.Reshape()(t, (3, -1)).numpy(), X.reshape(3, -1))
    np.testing.assert_array_equal(ops.ExpandDims()(t, 1).numpy(), X[:, None])
    np.testing.assert_array_equal(ops.Tanh()(t).numpy(), np.tanh(X))
    np.testing.assert_allclose(ops.Sigmoid()(t).numpy(), 1 / (1 + np.exp(-X)), rtol=1e-6)
    i, f, g = ops.Split(axis=1, output_num=3)(t)
    assert f.tolist() == [[1], [4]]
    assert i.shape == g.shape == (2, 1)


def test_class_instances():
    split = ops.Split(axis=1, output_num=4)
    assert repr(split) == "Split(axis=1, output_num=4)"
    assert split.axis == 1
    assert split == ops.Split(axis=1, output_num=4)
    assert hash(split) == hash(ops.Split(axis=1, output_num=4))
    assert split != ops.Split(axis=0, output_num=4)
    assert split != 5
    assert isinstance(split, ops.Split)
    assert pickle.loads(pickle.dumps(split)) == split
    assert copy.deepcopy(split) is split
    with pytest.raises(AttributeError, match=r"Split\(axis=1, output_num=4\) is immutable: cannot set 'axis'"):
        split.axis = 2
    with pytest.raises(AttributeError, match="immutable"):
        del split.axis
    with pytest.raises(TypeError, match="unexpected keyword argument 'axs'"):
        ops.Split(axs=1)


def test_classes_without_attributes_have_one_instance():
    assert ops.MatMul() is ops.MatMul()
    assert repr(ops.MatMul()) == "MatMul()"
    assert pickle.loads(pickle.dumps(ops.MatMul())) is ops.MatMul()
    with pytest.raises(TypeError):
        ops.MatMul(3)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        ops.MatMul()(X)

    class Mine(ops.MatMul):
        pass

    assert type(Mine()) is Mine


def test_the_base_applies_nothing():
    with pytest.raises(TypeError, match="applies nothing"):
        ops.Operation()(1)


@pytest.mark.parametrize("name", sorted(generate.CLASSES))
def test_class_and_function_agree_on_parameters(name):
    row, index = generate.CLASSES[name]
    spelling = row.spellings[index]
    own = {own for own, _ in generate.constructor_arguments(row, spelling)}
    made = getattr(ops, name)
    assert set(inspect.signature(made).parameters) == own
    called = [n for n in inspect.signature(made.__call__).parameters if n != "self"]
    assert called == [own.removeprefix("*") for own, _ in generate.call_arguments(row, spelling)]

"""What a Cell does with its attributes."""

from __future__ import annotations

import copy
import inspect
import pickle

import numpy as np
import pytest

import tiercel as tc
import tiercel.dtypes as td
from tiercel import nn
from tiercel.errors import ShapeError
from tiercel.values import Parameter, Tensor


class Affine(nn.Cell):
    """x * scale + shift."""

    def __init__(self, size):
        super().__init__()
        self.size = size
        self.scale = Parameter(np.full(size, 2.0, np.float32))
        self.shift = Parameter(np.full(size, 1.0, np.float32))

    def construct(self, x, *, twice: bool = False):
        """The affine map."""
        y = x * self.scale + self.shift
        return y * 2 if twice else y


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first = Affine(2)
        self.others = [Affine(3), {"a": Affine(1)}]
        self.shared = self.first
        self.own = Parameter([1.0])
        self.note = "text"

    def construct(self, x):
        return self.first(x)


def test_calling_runs_construct():
    cell = Affine(2)
    assert cell(Tensor([1.0, 2.0])).tolist() == [3, 5]
    assert cell(np.ones(2), twice=True).tolist() == [6, 6]
    with pytest.raises(TypeError, match=r"construct\(\) missing 1 required positional argument: 'x'"):
        cell()


def test_call_has_the_signature_and_text_of_construct():
    assert str(inspect.signature(Affine(2))) == "(x, *, twice: 'bool' = False)"
    assert Affine.__call__.__doc__ == "The affine map."
    assert str(inspect.signature(Affine)) == "(size)"


def test_an_instance_may_replace_construct():
    cell = Affine(2)
    cell.construct = lambda x: "mine"
    assert cell(1) == "mine"


def test_a_cell_without_construct_says_so():
    class Nothing(nn.Cell):
        pass

    with pytest.raises(NotImplementedError, match=r"Nothing defines no construct\(\)"):
        Nothing()(1)


def test_forgetting_super_init_is_harmless():
    class Careless(nn.Cell):
        def __init__(self):
            self.w = Parameter([1.0])

        def construct(self):
            return self.w

    assert Careless()().tolist() == [1]
    assert [n for n, _ in Careless().named_parameters()] == ["w"]


def test_a_call_of_ones_own_stays():
    class Loud(nn.Cell):
        def __call__(self, x):
            return ("loud", self.construct(x))

        def construct(self, x):
            return x

    class Louder(Loud):
        def construct(self, x):
            return x + 1

    assert Loud()(1) == ("loud", 1)
    assert Louder()(1) == ("loud", 2)


class Outer(nn.Cell):
    def __init__(self, size):
        super().__init__()
        self.inner = Affine(size)

    @tc.jit
    def construct(self, x):
        return self.inner(x, twice=True) + 1


def test_calls_in_jitted_code_go_straight_to_construct():
    cell = Outer(2)
    assert cell(Tensor([1.0, 2.0])).tolist() == [7, 11]
    assert set(cell.construct.programs) == {"Outer.construct", "Affine.construct"}
    cell.inner.scale[...] = 0
    assert cell(Tensor([1.0, 2.0])).tolist() == [3, 3]
    cell.inner.construct = lambda x, twice: x * 100
    assert cell(Tensor([1.0, 2.0])).tolist() == [101, 201]
    del cell.inner.construct
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Affine, "construct", lambda self, x, twice: x * 0)
        assert cell(Tensor([1.0, 2.0])).tolist() == [1, 1]
    assert cell(Tensor([1.0, 2.0])).tolist() == [3, 3]
    cell.inner = Affine(1)
    assert cell(Tensor([1.0])).tolist() == [7]


def test_frontend_finds_the_method():
    assert nn.Cell.__tiercel_cell__ == "construct"
    assert Affine.__call__.__tiercel_cell__ == "construct"


# ---- parts -----------------------------------------------------------------------------------------------------------


def test_named_parts():
    net = Net()
    assert [n for n, _ in net.named_parameters()] == [
        "own",
        "first.scale",
        "first.shift",
        "others.0.scale",
        "others.0.shift",
        "others.1.a.scale",
        "others.1.a.shift",
    ]
    assert [n for n, _ in net.named_cells()] == ["", "first", "others.0", "others.1.a"]
    assert [n for n, _ in net.children()] == ["first", "others.0", "others.1.a", "shared"]
    assert len(list(net.cells())) == 4
    assert len(list(net.parameters())) == 7
    assert next(iter(dict(net.named_parameters("net")))) == "net.own"


def test_shared_and_cyclic_parts_appear_once():
    net = Net()
    net.tied = net.first.scale
    net.back = [net]
    net.loop = loop = []
    loop.append(loop)
    assert len(list(net.parameters())) == 7
    assert "Net(...)" in repr(net)


def test_trainable_parameters():
    net = Net()
    net.own.requires_grad = False
    assert len(list(net.trainable_parameters())) == 6


def test_parameters_are_named_by_their_attribute():
    cell = Affine(1)
    assert cell.scale.name == "scale"
    cell.other = Parameter([1.0], name="mine")
    assert cell.other.name == "mine"
    again = Affine(1)
    again.alias = cell.scale
    assert cell.scale.name == "scale"


# ---- attributes and the version --------------------------------------------------------------------------------------


def test_every_assignment_and_deletion_moves_the_version():
    cell = Affine(2)
    seen = {cell.version}
    for change in (
        lambda: setattr(cell, "size", 3),
        lambda: setattr(cell, "size", 3),
        lambda: setattr(cell, "new", None),
        lambda: delattr(cell, "new"),
        cell.eval,
        lambda: setattr(cell, "scale", Parameter([1.0])),
    ):
        change()
        assert cell.version not in seen
        seen.add(cell.version)
    cell.scale[...] = 1
    cell(np.ones(2))
    assert cell.version in seen


def test_a_failed_assignment_still_moves_the_version():
    class Strict(nn.Cell):
        @property
        def fixed(self):
            return 1

    cell = Strict()
    before = cell.version
    with pytest.raises(AttributeError):
        cell.fixed = 2
    assert cell.version != before


def test_versions_are_never_reused():
    cell = Affine(2)
    data = pickle.dumps(cell)
    versions = [c.version for c in (cell, copy.copy(cell), pickle.loads(data), pickle.loads(data), Affine(2))]
    assert len(set(versions)) == len(versions)


def test_a_parameter_is_not_replaced_by_accident():
    cell = Affine(2)
    with pytest.raises(TypeError, match=r"Affine.scale is a Parameter, and a ndarray would take its place"):
        cell.scale = np.ones(2)
    assert type(cell.scale) is Parameter
    cell.scale = None
    cell.shift = Parameter(np.zeros(2))
    del cell.shift
    cell.shift = 5


def test_properties_and_class_attributes_work():
    class Sized(nn.Cell):
        kind = "sized"

        @property
        def double(self):
            return self._n * 2

        @double.setter
        def double(self, value):
            self._n = value // 2

    cell = Sized()
    cell.double = 8
    assert (cell.double, cell._n, cell.kind) == (8, 4, "sized")


# ---- modes, saving, copying ------------------------------------------------------------------------------------------


def test_train_and_eval_reach_every_part():
    net = Net()
    assert net.training
    assert net.eval() is net
    assert not any(cell.training for cell in net.cells())
    net.train()
    assert all(cell.training for cell in net.cells())


def test_state_dict_round_trip(tmp_path):
    net, other = Net(), Net()
    for i, parameter in enumerate(net.parameters()):
        parameter.fill(i)
    state = net.state_dict()
    np.savez(tmp_path / "w.npz", **state)
    net.own[...] = 99
    assert state["own"].tolist() == [0]
    assert other.load_state_dict(np.load(tmp_path / "w.npz")) == ([], [])
    for name, parameter in other.named_parameters():
        np.testing.assert_array_equal(np.asarray(parameter), state[name])
    before = other.own.version
    other.load_state_dict({**state, "own": Tensor([7.0], td.float32)})
    assert other.own.tolist() == [7]
    assert other.own.version != before


def test_load_state_dict_refuses_and_writes_nothing():
    net = Net()
    state = net.state_dict()
    state = {name: value + 5 for name, value in state.items()}
    wrong_name = {**state, "frist.scale": state["first.scale"]}
    del wrong_name["first.scale"]
    with pytest.raises(KeyError, match=r"no value for 'first.scale'; did you mean 'frist.scale'\?"):
        net.load_state_dict(wrong_name)
    assert net.load_state_dict({"first.scale": [8.0, 8.0], "x": 1}, strict=False) == (
        ["own", "first.shift", "others.0.scale", "others.0.shift", "others.1.a.scale", "others.1.a.shift"],
        ["x"],
    )
    before = net.state_dict()
    with pytest.raises(ShapeError, match=r"others.1.a.shift: expected shape \(1,\), got \(2,\)"):
        net.load_state_dict({**state, "others.1.a.shift": np.ones(2)})
    with pytest.raises(TypeError, match=r"others\.1\.a\.shift: expected float32, got complex128"):
        net.load_state_dict({**state, "others.1.a.shift": np.ones(1, complex)})
    for name, value in net.state_dict().items():
        np.testing.assert_array_equal(value, before[name])


@pytest.mark.parametrize("round_trip", [copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))])
def test_copies_are_independent(round_trip):
    cell = Affine(2)
    other = round_trip(cell)
    other.scale[...] = 9
    assert cell.scale.tolist() == [2, 2]
    assert type(other.scale) is Parameter
    assert other.size == 2
    assert other(np.ones(2)).tolist() == [10, 10]


def test_repr_is_a_tree():
    assert repr(Net()) == (
        "Net(\n"
        "  first: Affine(\n    scale: float32[2]\n    shift: float32[2]\n  )\n"
        "  others.0: Affine(\n    scale: float32[3]\n    shift: float32[3]\n  )\n"
        "  others.1.a: Affine(\n    scale: float32[1]\n    shift: float32[1]\n  )\n"
        "  shared: Affine(\n    scale: float32[2]\n    shift: float32[2]\n  )\n"
        "  own: float64[1]\n)"
    )
    assert repr(nn.Dense(2, 3, bias=False)) == "Dense(2, 3\n  weight: float32[3, 2]\n)"
    assert repr(nn.ReLU()) == "ReLU()"


# ---- containers ------------------------------------------------------------------------------------------------------


def test_sequential():
    net = nn.Sequential(Affine(2), np.negative, Affine(2))
    assert net(np.ones(2)).tolist() == [-5, -5]
    assert len(net) == 3
    assert [n for n, _ in net.named_parameters()] == ["0.scale", "0.shift", "2.scale", "2.shift"]
    assert net[1] is np.negative
    assert next(iter(net)) is net[0]
    assert len(nn.Sequential([Affine(1), Affine(1)])) == 2
    with pytest.raises(TypeError, match="expected cells or functions, got 3"):
        nn.Sequential(3)


def test_cell_list():
    cells = nn.CellList([Affine(1)])
    before = cells.version
    cells.append(Affine(2))
    assert cells.version != before
    assert len(cells) == 2
    assert [c.size for c in cells] == [1, 2]
    assert type(cells[:1]) is nn.CellList
    assert cells[-1].size == 2

    class Holder(nn.Cell):
        def __init__(self):
            super().__init__()
            self.layers = cells

    assert next(n for n, _ in Holder().named_parameters()) == "layers.0.scale"
    with pytest.raises(TypeError, match="expected cells, got 3"):
        cells.append(3)

"""Forms of the compiler as tables: what comes back is the same, and nonsense is refused."""

from __future__ import annotations

import copy
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hotpath.programs import EXAMPLES, compiled
from tiercel.dtypes import as_dtype
from tiercel.hotpath.protocol import decode, encode
from tiercel.hotpath.wire import WireError, from_table, to_table
from tiercel.loops import check, to_text
from tiercel.loops.form import Binary, Const, Var
from tiercel.shapes import Facts, Symbol, dim_min


def again(*roots):
    return from_table(decode(encode(to_table(*roots)[0])))


@pytest.mark.parametrize("name", EXAMPLES)
def test_regions_come_back(name):
    made = compiled(name)
    lowered = made.runner.lowered
    function, interface, region = again(lowered.function, lowered.interface, made.region)
    assert function == lowered.function
    assert to_text(check(function)) == to_text(lowered.function)
    assert interface.sizes == lowered.interface.sizes
    assert interface.results == lowered.interface.results
    # graph values compare by identity: equal tables mean equal graphs
    assert to_table(function, interface, region)[0] == to_table(lowered.function, lowered.interface, made.region)[0]
    assert region.facts.constraints == made.region.facts.constraints


def test_ids_of_this_process_stay_here():
    made = compiled("dense")
    (interface,) = again(made.runner.lowered.interface)
    assert {spec.source for spec in interface.inputs} == {("register", None)}


def test_shared_parts_stay_shared():
    x = Var("x", as_dtype("float32"))
    for _ in range(200):
        x = Binary("add", x, x)  # a tree of 2**200 leaves
    table, _ = to_table(x)
    assert len(table) == 203
    (got,) = from_table(table)
    assert got.a is got.b


def test_sizes_constants_and_containers():
    b, t = Symbol("B"), Symbol("T")
    parts = (
        b * t + 3 * b - 7, (b * 8) // t, b % 4, dim_min(b, t), slice(None, b, 2), {"k": (1, 2.5, True, None)},
        [1, [2]], 2 + 3j, ..., as_dtype("bfloat16"), -0.0, b"\x00bytes", "text",
    )  # fmt: skip
    (got,) = again(parts)
    assert repr(got) == repr(parts)
    assert got[0] is parts[0]  # sizes are interned
    (facts,) = again(Facts(["B % 8 == 0", "1 <= T <= 512"]))
    assert facts.range(t).hi == 512
    assert again(np.float32, np.dtype("int8")) == (as_dtype("float32"), as_dtype("int8"))


def test_what_has_no_plain_form_is_refused():
    for x in (object(), np.zeros(3), lambda: None, np.float32(3)):
        with pytest.raises(WireError, match="no plain form"):
            to_table((1, x))


def test_the_first_part_does_not_depend_on_the_last():
    made = compiled("chain")
    lowered = made.runner.lowered
    table, own = to_table(lowered.function, lowered.interface, made.region)
    assert to_table(lowered.function, lowered.interface, None)[0][:own] == table[:own]
    assert own < len(table)


def test_tables_are_equal_in_every_process(tmp_path):
    code = (
        "import hashlib; from tests.hotpath.programs import compiled; from tiercel.hotpath.wire import to_table\n"
        "m = compiled('steps'); l = m.runner.lowered\n"
        "print(hashlib.sha1(repr(to_table(l.function, l.interface, m.region)[0]).encode()).hexdigest())\n"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert len(runs) == 1


@given(st.data())
def test_damaged_tables_are_refused_or_mean_something(data):
    made = compiled("chain").runner.lowered
    table = copy.deepcopy(to_table(made.function, made.interface)[0])
    record = data.draw(st.sampled_from(table))
    junk = st.none() | st.integers(-3, 300) | st.text(max_size=5) | st.lists(st.integers(-3, 300), max_size=2)
    record[data.draw(st.integers(0, len(record) - 1))] = data.draw(junk)
    try:
        from_table(table)
    except WireError:
        pass


@pytest.mark.parametrize(
    "table", [None, [], [[]], [["nothing"]], [[3]], [["tuple", [0]]], [["form.Const", 1]], [["form.Var", {}, [0]]]]
)
def test_nonsense_is_refused(table):
    with pytest.raises(WireError):
        from_table(table)


def test_constructors_still_check():
    x = Const(1, as_dtype("int64"))
    table, _ = to_table(Binary("add", x, x))
    assert table[-2][:2] == ["form.Binary", "add"]
    table[-2][1] = "sqrt"
    with pytest.raises(WireError, match="sqrt"):
        from_table(table)

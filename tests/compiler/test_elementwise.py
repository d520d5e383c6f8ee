"""Every elementwise row that has machine code, against its reference within the row's stated exactness."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.regions import RegionBuilder, Runner
from tiercel.compiler.elementwise import EXPRESSIONS, NotLowered
from tiercel.loops.form import IllFormed
from tiercel.operators import ALL
from tiercel.shapes import Symbol

ATTRIBUTES = {
    "gelu": ({}, {"approximate": "tanh"}),
    "leaky_relu": ({}, {"negative_slope": 0.2}),
    "elu": ({}, {"alpha": 2.0}),
}
# operands or attributes of their own, tested elsewhere; integers only
ELSEWHERE = (
    "astype",
    "where",
    "clip",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "invert",
    "left_shift",
    "right_shift",
)
ROWS = [
    row
    for row in ALL.values()
    if row.lowering.cls == "elementwise" and row.lowering.key in EXPRESSIONS and row.name not in ELSEWHERE
]
SIZE = 131


def operands(row, name):
    """Ordinary numbers of both signs, where the function is defined; some special values in the first lanes."""
    rng = np.random.default_rng(len(row.name))
    arrays = []
    for k in range(row.arity):
        x = rng.standard_normal(SIZE) * 10.0 ** rng.integers(-2, 2, SIZE)
        if row.name in ("arcsin", "arccos", "arctanh"):
            x = np.tanh(x)
        if row.name == "arccosh":
            x = 1 + np.abs(x)
        if row.name in ("log", "log2", "log10", "sqrt", "rsqrt", "power", "float_power") and k == 0:
            x = np.abs(x)
        x[:8] = np.roll([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5], 3 * k)
        arrays.append(x.astype(name))
    return arrays


def within(row, got, want, arrays, wide):
    """Equal, or at most the stated number of units in the last place from the reference in a wider dtype."""
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    if row.exactness.kind == "exact" or got.dtype.kind != "f":
        np.testing.assert_array_equal(got, want)
        return
    size = np.abs(want)
    if row.exactness.of == "operand":
        size = np.maximum.reduce([size, *(np.abs(a) for a in arrays)])
    finite = np.isfinite(want) & np.isfinite(size)
    np.testing.assert_array_equal(got[~np.isfinite(want)], want[~np.isfinite(want)])
    unit = np.spacing(size[finite]).astype(np.float64)
    error = np.abs(got[finite].astype(np.float64) - wide[finite].astype(np.float64)) / unit
    assert error.max(initial=0) <= row.exactness.ulp + 0.5, row.name


@pytest.mark.parametrize("name", ["float32", "float64", "float16"])
@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.name)
def test_row_is_within_its_bound(row, name):
    for attributes in ATTRIBUTES.get(row.name, ({},)):
        b = RegionBuilder(row.name)
        inputs = [b.input(f"x{k}", (Symbol("N"),), name) for k in range(row.arity)]
        arrays = operands(row, name)
        with np.errstate(all="ignore"):
            want = row.reference(*arrays, **attributes)
            wide = row.reference(*(a.astype(np.float64) for a in arrays), **attributes)
        try:
            runner = Runner(b.region(b.apply(row.name, *inputs, **attributes)))
        except (NotLowered, IllFormed) as error:
            pytest.fail(f"{row.name} of {name}: {error}")
        got = runner(*arrays)
        assert got.dtype == want.dtype
        within(row, got, want, arrays, np.asarray(wide))


PROBES = (0.0, 0.5, 1.0, 2.5, 12.0, 90.0, 711.0, 60000.0, 1e30, 3e38, 1e-30, 1e-40, 1.5, np.inf, np.nan)
# NumPy's own flags of powers with infinite exponents depend on its build; the reference of gelu is silent by itself
FLAGGED = [row for row in ROWS if row.arity < 3 and row.name not in ("power", "float_power", "gelu")]


@pytest.mark.parametrize("name", ["float32", "float64"])
@pytest.mark.parametrize("row", FLAGGED, ids=lambda r: r.name)
def test_floating_point_flags_are_numpys(row, name):
    b = RegionBuilder(row.name)
    inputs = [b.input(f"x{k}", (Symbol("N"),), name) for k in range(row.arity)]
    runner = Runner(b.region(b.apply(row.name, *inputs)))
    probes = np.array([*PROBES, *(-p for p in PROBES)], name)
    pairs = [(x,) for x in probes] if row.arity == 1 else [(x, y) for x in probes[::2] for y in probes[::3]]
    for pair in pairs:
        want: set[str] = set()
        raised: set[str] = set()
        arrays = [np.array([v]) for v in pair]
        with np.errstate(all="call", under="ignore", call=lambda kind, _, want=want: want.add(kind)):
            row.reference(*arrays)
        runner(*arrays, raised=raised)
        assert raised == want, (row.name, pair)


@pytest.mark.parametrize("name", ["float16", "float32", "float64", "int32"])
def test_fma_rounds_once(name):
    """Products of numbers near each other's halfway points: rounding twice would differ in some of them."""
    rng, size = np.random.default_rng(0), 20_000
    if name == "int32":
        x, y, z = (rng.integers(-(2**31), 2**31, size, np.int32) for _ in range(3))
    else:
        digits = np.finfo(name).nmant + 1
        x, y = (1 + rng.integers(0, 64, size) * 2.0 ** -rng.integers(1, digits, size) for _ in range(2))
        z = rng.choice([-1, 1], size) * (1 + rng.integers(0, 64, size) / 64) * 2.0 ** -rng.integers(0, 3 * digits, size)
        x, y, z = (v.astype(name) for v in (x, y, z))
        x[:100], z[100:200] = np.inf, -np.inf
    b = RegionBuilder("fma")
    inputs = [b.input(f"x{k}", (Symbol("N"),), name) for k in range(3)]
    got = Runner(b.region(b.apply("fma", *inputs)))(x, y, z)
    with np.errstate(all="ignore"):
        assert name == "int32" or np.any(x * y + z != got)
    np.testing.assert_array_equal(got, ALL["fma"].reference(x, y, z))


def test_fma_of_bfloat16_is_refused():
    b = RegionBuilder("fma")
    inputs = [b.input(f"x{k}", (Symbol("N"),), "bfloat16") for k in range(3)]
    with pytest.raises(NotLowered, match="fma of bfloat16"):
        Runner(b.region(b.apply("fma", *inputs)))


@pytest.mark.parametrize("exponent", [0.5, -1, 2, 3, 2.5, -3])
def test_powers_with_known_exponents(exponent):
    b = RegionBuilder("power")
    x = b.input("x", (Symbol("N"),), "float32")
    values = np.abs(operands(ALL["exp"], "float32")[0]) + np.float32(0.1)
    with np.errstate(all="ignore"):
        want = values**exponent
    got = Runner(b.region(b.apply("power", x, exponent)))(values)
    np.testing.assert_allclose(got, want, rtol=3e-7)

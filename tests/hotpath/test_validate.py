"""What validation accepts and what it does not; the cases it makes; memory that notices everything."""

from __future__ import annotations

import json
import os
import signal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hotpath.programs import EXAMPLES, compiled
from tiercel.compiler.interface import InputSpec, Interface
from tiercel.dtypes import as_dtype
from tiercel.hotpath.cases import MAX_BYTES, Case, Hints, make_cases
from tiercel.hotpath.memory import GuardedMemory
from tiercel.hotpath.native import Called, NoSuchResult
from tiercel.hotpath.reference import Budget, Conditions, Left, Noise, OverBudget, ReferenceFault
from tiercel.hotpath.validate import Certificate, Failure, validate
from tiercel.shapes import Facts, Symbol

X = np.linspace(-3, 3, 64, dtype=np.float32).reshape(8, 8)
CASE = Case("only", 1, {"n": 8}, (X,), True)
EPS = float(np.finfo(np.float32).eps)


def check(function, candidate, *, exact=False, ulp=1.0, cases=(CASE,), **options):
    """Validate a candidate (arrays to leaves) against a function whose results are inexact by `ulp`."""

    def reference(case, conditions):
        leaves = list(function(*case.values))
        if conditions.noise is None:
            return leaves
        return [conditions.noise.moved(leaf, ulp) for leaf in leaves]

    def called(case):
        made = candidate(*case.values)
        return made if isinstance(made, Called) else Called(0, list(made), 0, [])

    return validate(reference, called, cases, exact=exact, **options)


def test_equal_bits_are_accepted():
    found = check(lambda x: [np.exp(x), x.sum()], lambda x: [np.exp(x), x.sum()], exact=True)
    assert isinstance(found, Certificate)
    assert (found.trials[0].outcome, found.max_error, found.elements) == ("equal", 0.0, 65)
    assert "validated on 1 of 1 trials, 65 elements, equal bits" in str(found)


def test_exact_means_exact():
    found = check(lambda x: [x * 2], lambda x: [np.nextafter(x * 2, np.float32(9))], exact=True)
    assert isinstance(found, Failure)
    assert (found.kind, found.result, found.element, found.allowed) == ("value", 0, (0, 0), None)
    zero = check(lambda x: [x * 0], lambda x: [-(x * 0)], exact=True)
    assert isinstance(zero, Failure)  # -0.0 is not 0.0
    either = check(lambda x: [x * 0], lambda x: [-(x * 0)], exact=True, signed_zeros=False)
    assert isinstance(either, Certificate)  # NumPy's minimum of both is one of them
    nan = check(lambda x: [x * np.float32("nan")], lambda x: [x * -np.float32("nan")], exact=True)
    assert isinstance(nan, Certificate)  # the sign of a NaN is nobody's business


def test_inexact_results_may_differ_within_their_class():
    near = check(lambda x: [np.exp(x)], lambda x: [np.exp(x) * np.float32(1 + 2 * EPS)])
    assert isinstance(near, Certificate)
    assert near.trials[0].outcome == "within"
    assert 0 < near.max_error < 4 * EPS
    far = check(lambda x: [np.exp(x)], lambda x: [np.exp(x) * np.float32(1 + 20 * EPS)])
    assert isinstance(far, Failure)
    assert far.allowed < 10 * EPS * np.exp(3)
    assert "64 of 64 elements differ" in far.reason


def test_one_wrong_element_is_found_and_named():
    def off(x):
        y = np.exp(x)
        y[6, 3] += 1e-3
        return [x, y]

    found = check(lambda x: [x, np.exp(x)], off)
    assert (found.result, found.element) == (1, (6, 3))
    assert found.expected.startswith("np.float32(")
    assert "with n=8" in found.reason
    assert found.trial["seed"] == 1


def test_a_small_drift_of_everything_is_found_in_norm():
    def drift(x):
        return [np.exp(x) * np.float32(1 + 10 * EPS)]

    assert isinstance(check(lambda x: [np.exp(x)], drift, ulp=1.0), Failure)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_special_values_must_agree(value):
    def special(x):
        y = np.exp(x)
        y[2, 2] = value
        return [y]

    assert isinstance(check(lambda x: [np.exp(x)], special), Failure)
    assert isinstance(check(special, lambda x: [np.exp(x)]), Failure)
    assert isinstance(check(special, special), Certificate)


def threshold(x, noise=None, width=1.0):
    y = np.exp(x)
    y = y if noise is None else noise.moved(y, width)
    return [y > np.exp(np.float32(X[4, 4]))]


def test_discrete_results_may_differ_at_the_threshold_only():
    def reference(case, conditions):
        return threshold(case.values[0], conditions.noise)

    def flipped(index):
        def candidate(case):
            (y,) = threshold(case.values[0])
            y = y.copy()
            y[index] = not y[index]
            return Called(0, [y], 0, [])

        return candidate

    at = validate(reference, flipped((4, 4)), [CASE], exact=False)
    assert isinstance(at, Certificate)
    away = validate(reference, flipped((0, 0)), [CASE], exact=False)
    assert isinstance(away, Failure)
    assert away.element == (0, 0)


def test_ints_are_exact_unless_they_come_from_floats():
    assert isinstance(check(lambda x: [np.arange(5)], lambda x: [np.arange(5) + 1]), Failure)
    assert isinstance(check(lambda x: [3], lambda x: [4]), Failure)
    assert isinstance(check(lambda x: [3, 2.5, True], lambda x: [3, 2.5, True]), Certificate)


@pytest.mark.parametrize("got", [np.zeros((8, 4), np.float32), np.zeros((8, 8), np.float64)])
def test_shape_and_dtype_must_agree(got):
    found = check(lambda x: [x * 0], lambda x: [got])
    assert found.kind == "value"
    assert "float32[8, 8]" in found.reason


@pytest.mark.parametrize(("name", "digits"), [("float16", 10), ("bfloat16", 7)])
def test_half_and_bfloat16(name, digits):
    dtype = as_dtype(name).numpy
    y = np.exp(X).astype(dtype)
    near = y.astype(np.float32) * np.float32(1 + 2.0**-digits)
    assert isinstance(check(lambda x: [y], lambda x: [near.astype(dtype)]), Certificate)
    far = y.astype(np.float32) * np.float32(1 + 8 * 2.0**-digits)
    assert isinstance(check(lambda x: [y], lambda x: [far.astype(dtype)]), Failure)


def test_an_input_that_was_written_is_a_failure():
    found = check(lambda x: [x], lambda x: Called(0, [x], 0, ["x"]))
    assert (found.kind, found.reason) == ("written", "the kernel writes into its input x")


def test_leaving():
    def left(*values):
        raise Left(3, "IndexError: as asked")

    found = check(left, lambda x: [x])
    assert found.kind == "ran"
    assert "IndexError" in found.reason
    both = check(left, lambda x: Called(2, [], 0, []))
    assert (both.kind, "only: left" in both.reason) == ("never", True)
    declined = check(lambda x: [x], lambda x: Called(2, [], 0, []))
    assert (declined.kind, "only: declined" in declined.reason) == ("never", True)

    def missed(x):
        raise NoSuchResult("no size")

    assert check(left, missed).kind == "never"


def test_what_cannot_be_checked_is_not_accepted():
    def slow(*values):
        raise OverBudget("too many passes")

    assert check(slow, lambda x: [x]).kind == "time"

    def broken(*values):
        raise ReferenceFault("no")

    assert check(broken, lambda x: [x]).kind == "fault"
    assert check(lambda x: [x], lambda x: [x], cases=()).kind == "never"


def test_the_time_is_bounded():
    cases = [Case(str(i), i, {}, (X,), True) for i in range(50)]
    found = check(lambda x: [x], lambda x: [x], cases=cases, budget_s=0.0)
    assert found.kind == "never"


def test_flags_are_compared_with_warnings():
    def reference(case, conditions):
        if conditions.warned is not None:
            conditions.warned.add("overflow")
        return [case.values[0]]

    found = validate(reference, lambda case: Called(0, [case.values[0]], 1, []), [CASE], exact=True)
    assert len(found.notes) == 2
    assert any("raises the flag 'invalid value'" in note for note in found.notes)
    assert any("does not raise the flag 'overflow'" in note for note in found.notes)


@given(st.floats(-4, 4), st.integers(0, 63))
def test_any_perturbation_beyond_the_class_is_found(exponent, position):
    """An error of 2**exponent units is accepted when small, refused when large; between, either is right."""

    def off(x):
        y = np.exp(x).reshape(-1)
        y[position] *= np.float32(1 + 2.0**exponent * EPS)
        return [y.reshape(8, 8)]

    found = check(lambda x: [np.exp(x)], off)
    if 2.0**exponent <= 2:
        assert isinstance(found, Certificate)
    beyond = check(
        lambda x: [np.exp(x)], lambda x: [off(x)[0] + (np.arange(64).reshape(8, 8) == position) * np.float32(1)]
    )
    assert beyond.element == divmod(position, 8)


@pytest.mark.parametrize("exact", [True, False])
def test_elements_that_nobody_writes_are_not_compared(exact):
    def reference(case, conditions):
        y = np.full((4, 4), conditions.fill, np.float32)
        y[:2] = case.values[0][:2, :4]
        return [y]

    def candidate(value, row):
        def call(case):
            (y,) = reference(case, Conditions(Budget(1), fill=99))
            y[row, 1] = value
            return Called(0, [y], 0, [])

        return call

    options = {"exact": exact, "uninitialised": True}
    assert isinstance(validate(reference, candidate(5, 3), [CASE], **options), Certificate)
    assert isinstance(validate(reference, candidate(5, 1), [CASE], **options), Failure)


def test_certificates_and_failures_are_plain_data():
    certificate = check(lambda x: [np.exp(x)], lambda x: [np.exp(x)])
    assert Certificate.from_data(json.loads(json.dumps(certificate.to_data()))) == certificate
    failure = check(lambda x: [x], lambda x: [x + 1])
    assert Failure.from_data(json.loads(json.dumps(failure.to_data()))) == failure
    gone = check(lambda x: [x], lambda x: Called(2, [], 0, []))
    assert Failure.from_data(json.loads(json.dumps(gone.to_data()))) == gone


# ---- cases -----------------------------------------------------------------------------------------------------------

B, T = Symbol("B"), Symbol("T")
F32, I32 = as_dtype("float32"), as_dtype("int32")


def array(name, *dims, dtype=F32, contiguous=True):
    return InputSpec(name, "array", dtype, dims, contiguous, ("register", None))


def cases_of(*inputs, facts=None, hints=None):
    return list(make_cases(Interface(inputs, (), {}), facts, hints or Hints(), "kernel"))


def test_cases_cover_what_matters():
    found = cases_of(array("x", B, T), array("y", T, 128), array("z", B + T, 2))
    names = {c.name for c in found}
    assert {"all sizes one", "special values", "empty", "large"} <= names
    assert {True, False} == {c.at_end for c in found}
    assert any(c.sizes == {"B": 0, "T": 0} for c in found)
    for case in found:
        b, t = case.sizes["B"], case.sizes["T"]
        assert [v.shape for v in case.values] == [(b, t), (t, 128), (b + t, 2)]
    special = next(c for c in found if c.name == "special values").values[0]
    assert np.isnan(special).any()
    assert np.isinf(special).any()


def test_cases_are_the_same_every_time():
    first, second = (cases_of(array("x", B, T), array("i", B, dtype=I32)) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        assert (a.name, a.seed, a.sizes) == (b.name, b.seed, b.sizes)
        assert [v.tobytes() for v in a.values] == [v.tobytes() for v in b.values]


def test_sizes_keep_to_what_is_known():
    facts = Facts(["B % 8 == 0", "16 <= T <= 24"])
    found = cases_of(array("x", B, T), facts=facts)
    assert len(found) >= 3
    assert all(c.sizes["B"] % 8 == 0 and 16 <= c.sizes["T"] <= 24 for c in found)
    assert any(c.sizes["T"] == 16 for c in found)
    assert any(c.sizes["T"] == 24 for c in found)


def test_seen_sizes_and_sampled_scalars_are_tried():
    scalar = InputSpec("n", "pyint", as_dtype("int64"), (), True, ("register", None), value=Symbol("n", "scalar"))
    gain = InputSpec("g", "pyfloat", as_dtype("float64"), (), True, ("register", None))
    hints = Hints(({"B": 37, "T": 3, "n": 2},), {1: (2,), 2: (0.125,)})
    found = cases_of(array("x", B, T), scalar, gain, hints=Hints.from_data(json.loads(json.dumps(hints.to_data()))))
    assert any(c.sizes == {"B": 37, "T": 3, "n": 2} and c.values[1] == 2 for c in found)
    assert any(c.values[2] == 0.125 for c in found)
    assert all(type(c.values[1]) is int and type(c.values[2]) is float for c in found)


def test_bytes_are_bounded():
    cube = array("x", B, B, B, B)
    seen = Hints(({"B": 500},))
    assert all(sum(v.nbytes for v in c.values) <= MAX_BYTES for c in cases_of(cube, hints=seen))


def test_weights_are_the_same_in_all_cases_and_other_sizes_small():
    found = cases_of(array("x", B, T), array("w", 128, 256), hints=Hints(({"B": 1000, "T": 900},)))
    assert len({id(c.values[1]) for c in found}) == 1
    assert np.isfinite(found[0].values[1]).all()
    assert 0.5 < np.linalg.norm(found[0].values[1][0]) < 2
    assert max(n for c in found for n in c.sizes.values()) < 300


def test_relations_between_seen_sizes_are_kept():
    found = cases_of(array("x", B, T), hints=Hints(({"B": 3, "T": 12},)))
    assert any(c.spare and c.sizes == {"B": 6, "T": 24} for c in found)


def test_strided_inputs_are_strided():
    found = cases_of(array("x", B, T, contiguous=False))
    assert any(not c.values[0].flags.c_contiguous for c in found)
    assert all(c.values[0].flags.c_contiguous for c in cases_of(array("x", B, T)))


@pytest.mark.parametrize("name", ["bool", "int8", "uint64", "float16", "bfloat16", "float64", "complex64"])
def test_every_dtype_has_values(name):
    for case in cases_of(array("x", B, T, dtype=as_dtype(name))):
        assert case.values[0].dtype == as_dtype(name).numpy


@pytest.mark.parametrize("name", EXAMPLES)
def test_programs_have_cases(name):
    made = compiled(name)
    assert len(list(make_cases(made.runner.lowered.interface, made.region.facts, Hints(), name))) >= 5


# ---- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize(
    ("shape", "strides"),
    [((3, 5), None), ((3, 5), (4, 12)), ((3, 5), (-20, 4)), ((0, 4), None), ((), None), ((4, 3), (0, 4))],
)
def test_guarded_arrays_hold_values(at_end, shape, strides):
    memory = GuardedMemory()
    made = memory.array(shape, np.dtype(np.float32), at_end=at_end, strides=strides)
    made[...] = 3.5
    assert made.shape == shape
    assert (made == 3.5).all()


@pytest.mark.parametrize(("at_end", "offset"), [(True, 10), (False, -1)])
def test_touching_beyond_kills(at_end, offset):
    """In a child: one element past the end, one before the start."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        block = GuardedMemory().block(10, at_end=at_end)
        import ctypes

        ctypes.memset(block.ctypes.data, 1, 10)
        ctypes.memset(block.ctypes.data + offset, 1, 1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGSEGV


def test_noise_needs_no_generator():
    assert Noise(None, 1.0).moved(np.float32(1), 1.0) > 1

"""Does a kernel compute what the region says? The question before anybody may run it.

In: a reference and a candidate as callables, cases. Out: a `Certificate` of what was tried and how far the results
were apart, or a `Failure` that names the first difference. Both are plain data on the wire.

How far is right: where all operators are exact, equal bits (NaN equals NaN). Else the reference is run again with its
inexact operators disturbed within their bounds; an element may be off by a small multiple of how far the disturbed
results move there (or, relative to its size, elsewhere), and the whole by a multiple in norm. An int or bool, or a
float that jumps (a `where`), may differ only if a disturbance moves it too: then its operand is at the threshold. A
difference that the first disturbances do not explain is looked at again with more and larger ones before it counts.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tiercel.hotpath.cases import Case
from tiercel.hotpath.native import FLAGS, Called, NoSuchResult
from tiercel.hotpath.reference import Budget, Conditions, Left, Noise, OverBudget, ReferenceFault

__all__ = ["Certificate", "Failure", "Trial", "validate"]

ELEMENT: Final = 3.0
"""An element may be off by so many times what disturbances move it, or what they move elements of its size: the kernel
and the reference may both be off by the bound, and not every disturbance goes as far as it could."""
NORM: Final = 4.0
_UNITS: Final = 1.0
"""And by so many units in its last place beside that: the last rounding."""
ENOUGH: Final = 4
"""Trials that ran to their end before spare cases are left out."""
_SHORT_S: Final = 0.03
_SAMPLE: Final = 4096
"""About so many elements of a result say how far elements usually move."""
_MORE: Final = 8
"""Further rounds of three disturbances for a difference that is not explained, up to `_LARGER` times the bounds."""
_LARGER: Final = 4.0

Reference = Callable[[Case, Conditions], list[Any]]
Candidate = Callable[[Case], Called]


@dataclass(frozen=True, slots=True)
class Trial:
    """One case that was tried.

    Attributes:
        name, seed, sizes: of the case.
        outcome: "equal" (bits), "within" (tolerance), "left" (both left the region), "declined" (the kernel left it,
            the interpreter would not have), "too long" (not tried).
        error: largest relative error in norm of a result.
        elements: compared.
    """

    name: str
    seed: int
    sizes: Mapping[str, int]
    outcome: str
    error: float = 0.0
    elements: int = 0


@dataclass(frozen=True, slots=True)
class Certificate:
    """What was tried before a kernel was accepted.

    Attributes:
        trials: all of them.
        exact: equal bits were asked for.
        max_error: the largest relative error in norm, over all trials.
        elements: compared in all.
        notes: what a user may want to know: warnings that only one of both gives.
        time_ms: it took.
    """

    trials: tuple[Trial, ...]
    exact: bool
    max_error: float
    elements: int
    notes: tuple[str, ...] = ()
    time_ms: float = 0.0

    def to_data(self) -> dict[str, Any]:
        """The plain form."""
        return {**_plain(self), "trials": [_plain(t) for t in self.trials], "notes": list(self.notes)}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Certificate:
        """From the plain form."""
        fields = {f.name: data[f.name] for f in dataclasses.fields(cls)}
        trials = tuple(Trial(**t) for t in data["trials"])
        return cls(**{**fields, "trials": trials, "notes": tuple(data["notes"])})

    def __str__(self) -> str:
        ran = sum(t.outcome in ("equal", "within") for t in self.trials)
        how = "equal bits" if self.exact else f"largest error {self.max_error:.2g}"
        return f"validated on {ran} of {len(self.trials)} trials, {self.elements} elements, {how}"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a kernel was not accepted.

    Attributes:
        kind: "value" (an element differs), "written" (an input was changed), "ran" (it went on where the program
            leaves), "never" (no trial ran to its end), "fault" (the reference cannot be trusted), "time".
        reason: for people.
        trial: name, seed and sizes of the case.
        result, element: which leaf of the result, and where in it.
        expected, got, allowed: as text, and the difference that would have been accepted.
    """

    kind: str
    reason: str
    trial: Mapping[str, Any] | None = None
    result: int | None = None
    element: tuple[int, ...] | None = None
    expected: str | None = None
    got: str | None = None
    allowed: float | None = None

    def to_data(self) -> dict[str, Any]:
        """The plain form."""
        return _plain(self)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Failure:
        """From the plain form."""
        fields = {f.name: data[f.name] for f in dataclasses.fields(cls)}
        element = fields["element"]
        return cls(**{**fields, "element": None if element is None else tuple(element)})


def _plain(x: Any) -> dict[str, Any]:
    out = {f.name: getattr(x, f.name) for f in dataclasses.fields(x)}
    return {k: list(v) if isinstance(v, tuple) else dict(v) if isinstance(v, Mapping) else v for k, v in out.items()}


class _Differs(Exception):
    def __init__(self, failure: Failure) -> None:
        self.failure = failure


def validate(
    reference: Reference,
    candidate: Candidate,
    cases: Iterable[Case],
    *,
    exact: bool,
    signed_zeros: bool = True,
    uninitialised: bool = False,
    budget_s: float = 2.0,
    soft_s: float = 0.02,
    run_s: float = 0.25,
    progress: Callable[[str], None] = lambda text: None,
) -> Certificate | Failure:
    """Compare a kernel with its reference.

    Args:
        reference: runs the program under conditions; raises `Left` where it leaves.
        candidate: runs the kernel.
        cases: what to try.
        exact: whether equal bits are asked for.
        signed_zeros: whether the sign of a zero counts where equal bits are asked for.
        uninitialised: whether the program makes arrays without values; elements it never writes are not compared.
        budget_s: for everything; cases that come later are not tried.
        soft_s: computing time after which enough trials are enough.
        run_s: for one run of the reference. A case that takes longer is not tried; the ones after it get less.
        progress: told which trial begins.
    """
    began, computed = time.perf_counter(), time.thread_time()
    trials: list[Trial] = []
    notes: dict[str, None] = {}
    longest = 0.0
    for case in cases:
        ran = sum(t.outcome in ("equal", "within") for t in trials)
        if time.perf_counter() - began > budget_s:
            break
        if ran >= ENOUGH and (case.spare or time.thread_time() - computed > soft_s):
            break  # what comes later is spare, too
        progress(case.name)
        judge = _Judge(reference, case, exact, signed_zeros, uninitialised, run_s)
        started = time.thread_time()
        try:
            trials.append(_try(judge, candidate, case, notes))
            longest = max(longest, time.thread_time() - started)
        except _Differs as error:
            return error.failure
        except OverBudget:
            trials.append(Trial(case.name, case.seed, case.sizes, "too long"))
            # A loop without end, most likely: others of its kind are given up sooner.
            run_s = min(run_s, max(_SHORT_S, 8 * longest))
        except ReferenceFault as error:
            return Failure("fault", f"the reference cannot be run: {error}", _where(case))
    done = [t for t in trials if t.outcome in ("equal", "within")]
    if not done:
        slow = any(t.outcome == "too long" for t in trials)
        what = "the interpreter takes too long on every trial" if slow else "no trial ran to its end"
        tried = ", ".join(f"{t.name}: {t.outcome}" for t in trials) or "no sizes found"
        return Failure("time" if slow else "never", f"{what} ({tried})")
    return Certificate(
        tuple(trials), exact, max(t.error for t in done), sum(t.elements for t in done), tuple(notes),
        (time.perf_counter() - began) * 1e3,
    )  # fmt: skip


def _where(case: Case) -> dict[str, Any]:
    return {"name": case.name, "seed": case.seed, "sizes": dict(case.sizes)}


def _try(judge: _Judge, candidate: Candidate, case: Case, notes: dict[str, None]) -> Trial:
    left: Left | None = None
    wanted: list[Any] = []
    try:
        wanted = judge.run(None)
    except Left as error:
        left = error
    try:
        called = candidate(case)
    except NoSuchResult:
        called = Called(-1, [], 0, [])  # the entry misses
    if called.written:
        name = called.written[0]
        raise _Differs(Failure("written", f"the kernel writes into its input {name}", _where(case)))
    if called.site:
        outcome = "declined" if left is None else "left"
        return Trial(case.name, case.seed, case.sizes, outcome)
    if left is not None:
        reason = f"the kernel runs to its end where the program leaves ({left.reason})"
        raise _Differs(Failure("ran", reason, _where(case)))
    largest, elements, equal = 0.0, 0, True
    for number, (got, want) in enumerate(zip(called.leaves, wanted, strict=True)):
        one, same = judge.compare(number, got, want)
        largest = max(largest, one)
        equal &= same
        elements += int(np.size(want))
    for bit, name in FLAGS.items():
        if called.flags & bit and name not in judge.warned:
            notes.setdefault(f"raises the flag {name!r} where NumPy does not warn: such calls are interpreted")
        elif name in judge.warned and not called.flags & bit:
            notes.setdefault(f"does not raise the flag {name!r} where NumPy warns")
    return Trial(case.name, case.seed, case.sizes, "equal" if equal else "within", largest, elements)


class _Judge:
    """Compares the results of one case; disturbed runs are made when first needed."""

    def __init__(
        self, reference: Reference, case: Case, exact: bool, signed_zeros: bool, uninitialised: bool, run_s: float
    ) -> None:
        self.reference = reference
        self.case = case
        self.exact = exact
        self.signed_zeros = signed_zeros
        self.uninitialised = uninitialised
        self._other: list[Any] | None = None
        self.run_s = run_s
        self.warned: set[str] = set()
        self._moved: list[tuple[float, list[Any]]] = []
        self._planned: Iterator[list[Noise]] | None = None

    def run(self, noise: Noise | None) -> list[Any]:
        """The reference's results."""
        return self.reference(self.case, Conditions(Budget(self.run_s), noise, self.warned if noise is None else None))

    def defined(self, number: int, got: Any, want: Any) -> Any:
        """`got` with the elements that no program writes as in `want`."""
        if self._other is None:
            self._other = self.reference(self.case, Conditions(Budget(self.run_s), fill=1))
        same = _equal_elements(np.asarray(self._other[number]), want)
        return np.where(same, got, want).astype(want.dtype) if got.shape == want.shape else got

    def disturbed(self) -> Iterator[list[tuple[float, list[Any]]]]:
        """Sizes and results of disturbances: two at first (everything up, as a bias would, and at random), then more
        and larger ones, as long as they are asked for.
        """
        if self._planned is None:
            self._planned = self._plan()
        if self._moved:
            yield self._moved
        for noises in self._planned:
            found = self._runs(noises)
            self._moved = self._moved + found
            yield found

    def _plan(self) -> Iterator[list[Noise]]:
        random = np.random.default_rng(self.case.seed + 1)
        yield [Noise(None, 1.0), Noise(random, 1.0)]
        yield [Noise(None, -1.0), Noise(random, 1.0)]
        for number in range(_MORE):
            size = 0.25 + (_LARGER - 0.25) * number / (_MORE - 1)
            yield [Noise(random, size), Noise(random, 1.0), Noise(None, size if number % 2 else -size)]

    def _runs(self, noises: list[Noise]) -> list[tuple[float, list[Any]]]:
        found = []
        for noise in noises:
            try:
                found.append((abs(noise.factor), self.run(noise)))
            except Left:  # a guard at its threshold: says nothing about the values
                continue
        return found

    def compare(self, number: int, got: Any, want: Any) -> tuple[float, bool]:
        """Relative error in norm, and whether the bits are equal.

        Raises:
            _Differs: they are further apart than is right.
        """
        g, w = np.asarray(got), np.asarray(want)
        if g.shape != w.shape or (isinstance(want, np.ndarray | np.generic) and g.dtype != w.dtype):
            self.fail(number, (), f"{w.dtype}{list(w.shape)}", f"{g.dtype}{list(g.shape)}", None)
        if self.uninitialised:
            g = self.defined(number, g, w)
        if g.dtype == w.dtype and g.dtype.kind not in "fcV" and np.array_equal(g, w):
            return 0.0, True
        if _same_bits(g, w):
            return 0.0, True
        if not self.exact and w.dtype.kind in "fcV":
            return self._compare_floats(number, g, w), False
        equal = _equal_elements(g, w)
        if self.exact and not self.signed_zeros and w.dtype.kind in "fcV":
            equal |= (g == 0) & (w == 0)
        if equal.all():
            return 0.0, True
        if self.exact:
            self.fail_at(number, g, w, ~equal, None)
        bad = g != w
        for runs in self.disturbed():
            for _, other in runs:
                bad &= np.asarray(other[number]) == w
            if not bad.any():
                return 0.0, False
        self.fail_at(number, g, w, bad, None)
        raise AssertionError

    def _compare_floats(self, number: int, g: Any, w: Any) -> float:
        wide = np.complex128 if w.dtype.kind == "c" else np.float64
        unit = 2.0**-7 if w.dtype.kind == "V" else float(np.finfo(w.dtype).eps)
        least = 2.0**-133 if w.dtype.kind == "V" else float(np.finfo(w.dtype).smallest_subnormal)
        gw, ww = g.astype(wide).ravel(), w.astype(wide).ravel()
        with np.errstate(all="ignore"):
            apart = np.abs(gw - ww)
            whole = _norm(ww)
            off = _norm(apart)
            odd = _unlike(gw, ww) | (apart > unit * np.abs(ww))
        error = off / whole if whole else off
        if not odd.any():
            return error  # off by the last digit at most: no question
        # Only what is further off is looked at; how far elements of its size usually move is seen from a sample.
        suspects = np.flatnonzero(odd)
        sample = slice(None, None, 1 + ww.size // _SAMPLE)
        gs, ws, usual = gw[suspects], ww[suspects], ww[sample]
        spread: Any = np.zeros(ws.shape)
        around: Any = np.zeros(usual.shape)
        bad: Any = True
        allowed: Any = 0.0
        off, whole, norm = _norm(apart[suspects]), _norm(ws), 0.0
        for runs in self.disturbed():
            with np.errstate(all="ignore"):
                for factor, other in runs:
                    to = np.asarray(other[number]).ravel()
                    spread = np.maximum(spread, _movement(to[suspects].astype(wide), ws, factor))
                    around = np.maximum(around, _movement(to[sample].astype(wide), usual, factor))
                size = np.where(np.isfinite(usual), np.abs(usual), 0.0)
                usable = np.isfinite(around) & (size > 0)
                typical = float(np.median(around[usable] / size[usable])) if usable.any() else 0.0
                size = np.where(np.isfinite(ws), np.abs(ws), 0.0)
                allowed = ELEMENT * np.maximum(spread, typical * size) + _UNITS * unit * size + 2 * least
                far = np.abs(gs - ws)
                bad = _unlike(gs, ws) & np.isfinite(allowed)
                bad |= np.isfinite(far) & (far > allowed)
                norm = NORM * _norm(np.maximum(spread, typical * size)) + _UNITS * unit * whole + 2 * least * ws.size
            if not bad.any() and (off <= norm or not np.isfinite(spread).all()):
                return error
        if np.any(bad):
            everywhere = np.zeros(w.size, bool)
            everywhere[suspects] = bad
            limits = np.zeros(w.size)
            limits[suspects] = allowed
            self.fail_at(number, g, w, everywhere.reshape(w.shape), limits.reshape(w.shape))
        self.fail(number, (), f"norm of the difference at most {norm:.3g}", f"{off:.3g}", norm)
        raise AssertionError

    def fail_at(self, number: int, g: Any, w: Any, bad: Any, allowed: Any) -> None:
        """Report the first element at fault."""
        index = tuple(int(i) for i in np.argwhere(bad)[0]) if w.ndim else ()
        limit = None if allowed is None else float(np.asarray(allowed)[index])
        self.fail(number, index, repr(w[index]), repr(g[index]), limit, int(np.count_nonzero(bad)), w.size)

    def fail(
        self, number: int, index: tuple[int, ...], want: str, got: str, allowed: float | None, bad: int = 1, of: int = 1
    ) -> None:
        """Report a difference."""
        many = f" ({bad} of {of} elements differ)" if of > 1 else ""
        within = "" if allowed is None else f", a difference of {allowed:.3g} allowed"
        sizes = ", ".join(f"{k}={v}" for k, v in self.case.sizes.items())
        reason = (
            f"the kernel computes something else: result {number}{list(index) if index else ''} is {got}, "
            f"expected {want}{within}{many}; trial {self.case.name!r}{f' with {sizes}' if sizes else ''}"
        )
        raise _Differs(Failure("value", reason, _where(self.case), number, index, want, got, allowed))


def _norm(x: Any) -> float:
    """The norm of what is finite."""
    return float(np.linalg.norm(np.where(np.isfinite(x), x, 0.0)))


def _movement(to: Any, at: Any, factor: float) -> Any:
    """How far a disturbance moved elements. What is continuous moves as far as it is pushed; a jump counts with its
    height divided by the push.
    """
    apart = np.abs(to - at) / max(1.0, factor)
    return np.where(_unlike(to, at), np.inf, np.where(np.isnan(apart), 0.0, apart))


def _same_bits(a: Any, b: Any) -> bool:
    whole = a.flags.c_contiguous and b.flags.c_contiguous
    return bool(whole and a.dtype == b.dtype and a.tobytes() == b.tobytes())


def _unlike(a: Any, b: Any) -> Any:
    """Where one is NaN or infinite and the other is not the same."""
    return (np.isnan(a) != np.isnan(b)) | ((np.isinf(a) | np.isinf(b)) & (a != b) & ~(np.isnan(a) & np.isnan(b)))


def _equal_elements(a: Any, b: Any) -> Any:
    if a.dtype.kind not in "fcV":
        return np.asarray(a == b)
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    x, y = a.astype(wide), b.astype(wide)
    same = (x == y) & (np.signbit(x.real) == np.signbit(y.real))
    return np.asarray(same | (np.isnan(x) & np.isnan(y)))

"""What is told about a function: numbers, text, dict, notebook form."""

from __future__ import annotations

import html.parser
import json
import math
import re

import numpy as np
import pytest

import tiercel as tc
from tests.vm.running import Running
from tiercel import config
from tiercel.hotpath.history import History
from tiercel.vm import dispatch, render
from tiercel.vm.dispatch import SignatureState, Tiers, Variant, signature_of
from tiercel.vm.kernels import signature_text
from tiercel.vm.ledger import Line
from tiercel.vm.render import columns, format_count, format_time, place, short
from tiercel.vm.report import Report, Subject, executed, make_report, stats
from tiercel.vm.tuning import Tuning

STATS = {
    "calls", "interpreted_calls", "compiled_calls", "python_calls", "compiles", "tunes", "kernels", "fallbacks",
    "misses", "compiled_time_ns",
    "demotions", "copies", "conversions", "transfers", "allocations", "launches",
    "packed_bytes", "trigger_percent", "helper_calls", "loop_entries",
    "loop_iterations", "loop_kernels", "loop_compiles", "loop_runs", "loop_stops", "compiled_iterations",
    "compiled_loop_time_ns", "instructions", "python_lines", "python_time_ns", "signatures", "time_ns",
}  # fmt: skip


def grid(x, n):
    total = 0
    for _ in range(n):
        for _ in range(3):
            total = total + x
    return total


def noisy(x):
    y = math.fsum([1.0, 2.0])
    return x * y


def branch(x, flag):
    if flag:
        x = x + 1
        x = x + 2
    return x


def straight(x):
    return x * 2 + 1


def subject(f: Running, **more) -> Subject:
    function = f.decoded.function
    return Subject(function.qualname, function.filename, function.first_line, (f.decoded,), **more)


def report_on(f: Running, **settings) -> Report:
    with config.context(**settings):
        return make_report([subject(f)], config.current())


# ---- numbers ---------------------------------------------------------------------------------------------------------


def test_regions_are_counted():
    f = Running(grid)
    for n in (2, 4):
        f(np.ones(3), n)
    (function,) = report_on(f).functions
    outer, inner = function.loops
    assert (function.calls, function.role, function.tier) == (2, "function", "O0")
    assert function.unmet == "not called yet", "without tiers"
    assert (outer.depth, outer.entries, outer.iterations) == (0, 2, 6)
    assert (inner.depth, inner.entries, inner.iterations) == (1, 6, 18)
    assert function.time_ns >= outer.time_ns >= inner.time_ns > 0
    first = grid.__code__.co_firstlineno
    assert (function.line, outer.line, inner.line) == (first, first + 2, first + 3)
    assert function.source == "def grid(x, n):"
    assert outer.source == "for _ in range(n):"
    assert outer.live_ins["x"] == "float64[3]{C}"
    assert function.signatures[0].arguments == {"x": "float64[3]{C}", "n": "int 2..4"}


def test_python_lines_are_told_with_reason_and_cost():
    f = Running(noisy)
    for _ in range(5):
        f(np.ones(2))
    (line,) = report_on(f).functions[0].python
    assert line.line == noisy.__code__.co_firstlineno + 1
    assert line.source == "y = math.fsum([1.0, 2.0])"
    assert "fsum" in line.reason
    assert line.count == 5
    assert line.time_ns > 0


def count_instructions(f: Running, *arguments) -> int:
    """Run one instruction at a time and count."""
    from tiercel.interp import Environment, decode, run

    decoded = decode(f.program, environment=Environment(f.decoded.environment.globals), single_step=True)
    count = 0
    for i, block in enumerate(decoded.table):

        def counted(registers, block=block):
            nonlocal count
            count += 1
            return block(registers)

        decoded.table[i] = counted
    run(decoded, decoded.bind(*arguments))
    return count


@pytest.mark.parametrize("arguments", [(np.ones(2), 0), (np.ones(2), 1), (np.ones(2), 5)])
def test_executed_instructions_of_loops(arguments):
    f = Running(grid)
    f(*arguments)
    ran = count_instructions(f, *arguments)
    # Stepping, entering a loop takes two blocks for the one LoopStart.
    assert executed(f.decoded) == ran - sum(loop.entries for loop in f.decoded.counters.loops)


def test_executed_instructions_without_loops():
    f = Running(straight)
    for _ in range(3):
        f(1)
    assert executed(f.decoded) == 3 * len(f.decoded.function.instructions)
    g = Running(branch)
    g(1, False)
    assert executed(g.decoded) == len(g.decoded.function.instructions) > count_instructions(g, 1, False)


def test_stats_have_all_keys_and_are_numbers():
    f, helper = Running(grid), Running(noisy)
    f(np.ones(3), 2)
    helper(np.ones(3))
    helper(np.ones(3))
    lines = [Line("copy", "grid", "a.py", 1, "why", 7, 0, 0), Line("fallback", "grid", "a.py", 1, "why", 2, 0, 0)]
    found = stats([subject(f, python_calls=4), subject(helper, role="helper")], lines)
    assert set(found) == STATS
    assert all(type(v) is int for v in found.values())
    assert (found["calls"], found["interpreted_calls"], found["python_calls"]) == (5, 1, 4)
    assert (found["helper_calls"], found["python_lines"], found["copies"], found["fallbacks"]) == (2, 2, 7, 2)
    assert (found["loop_entries"], found["loop_iterations"], found["signatures"]) == (3, 8, 1)
    assert found["compiles"] == found["kernels"] == found["compiled_calls"] == 0


# ---- compiled --------------------------------------------------------------------------------------------------------


class Built:
    """Stands in for compiled code."""

    def __init__(self, calls, time_ns, misses=0):
        self.calls, self.time_ns, self.misses = calls, time_ns, misses
        self.from_cache = True
        self.without = ""
        self.allocations, self.launches, self.packed_bytes = 1, calls + 3, 4096
        self.certificate = {"trials": [{}] * 8, "exact": False, "max_error": 1e-7, "elements": 90}


def test_no_pay_back_before_a_compiled_call_was_timed():
    f = Running(grid)
    f(np.ones(3), 2)
    tiers = tiers_of(f)
    built = Built(2, 0)
    hot(tiers, KEY).variants.append(Variant(True, entry=built, built=built, stages_ms={"trace": 5.0}))
    tiers.entries, tiers.compiles = (built,), 1
    report = make_report([subject(f, tiers=tiers)], config.current())
    text = str(report)
    assert "2 calls, not timed yet; interpreted 10.0 ms each" in text
    assert "0 ns" not in text
    assert re.search(r"3 calls, .* in the 1 that was timed, ", text)
    assert "pays back" not in text
    assert "paid back" not in text
    assert "not timed yet" in report._repr_html_()
    assert report.functions[0].kernels[0].saved_ns == 0


@pytest.mark.parametrize(
    ("tuning", "tier"),
    [
        (Tuning(), "O1"),
        (Tuning(state="compiling", choices={0: "way"}), "O1"),
        (Tuning(state="done", choices={0: "way"}, tunes=1), "O2"),
        (Tuning(state="done", tunes=1), "O1"),  # the code of before is back
        (Tuning(choices={0: "way"}, from_store={"key": {"choice": "way", "present": "usual"}}), "O2"),
    ],
    ids=["usual", "not yet there", "tuned here", "undone", "tuned earlier"],
)
def test_a_tuned_kernel_in_use_is_o2(tuning, tier, monkeypatch):
    monkeypatch.setattr(render, "_tuned", lambda told: [])  # measurements are left out here
    f = Running(grid)
    f(np.ones(3), 2)
    tiers = tiers_of(f)
    built = Built(2, 1000)
    hot(tiers, KEY).variants.append(Variant(True, entry=built, built=built, tuning=tuning))
    tiers.entries = (built,)
    report = make_report([subject(f, tiers=tiers)], config.current())
    assert report.functions[0].tier == tier
    assert f"runs compiled ({tier})" in str(report)


def test_lines_that_run_as_python_are_of_interpreted_calls():
    f = Running(noisy)
    f(np.ones(2))
    assert "lines of noisy that run as Python\n" in str(report_on(f))
    tiers = tiers_of(f)
    built = Built(2, 1000)
    hot(tiers, KEY[:1]).variants.append(Variant(True, entry=built, built=built))
    tiers.entries = (built,)
    report = make_report([subject(f, tiers=tiers)], config.current())
    assert "lines of noisy that run as Python while interpreted\n" in str(report)
    assert "line of noisy that runs as Python while interpreted" in report._repr_html_()


@pytest.mark.parametrize(
    ("asked", "since"),
    [((True,), "warmup()"), ((False,), "it is hot"), ((False, True), "warmup() and since it is hot")],
)
def test_warmup_is_told_from_heat(asked, since):
    f = Running(grid)
    f(np.ones(3), 2)
    tiers = tiers_of(f)
    state = hot(tiers, KEY)
    for one in asked:
        built = Built(2, 1000)
        state.variants.append(Variant(True, entry=built, built=built, asked_for=one))
        tiers.entries = (*tiers.entries, built)
    text = str(make_report([subject(f, tiers=tiers)], config.current()))
    assert f"runs compiled (O1) since {since}: " in text


def tiers_of(f: Running, settings=config.current):
    function = f.decoded.function
    return Tiers(function.name, grid, (function, ()), lambda g: None, settings, lambda: pytest.fail("compiled"))


def hot(tiers, key, calls=6, total_ns=60_000_000) -> SignatureState:
    state = tiers.signatures[key] = SignatureState(key, calls, total_ns)
    return state


KEY = ((np.dtype(np.float64), 1, "C"), int)


def test_compiled_calls_are_counted_beside():
    f = Running(grid)
    f(np.ones(3), 2)
    tiers = tiers_of(f)
    state = hot(tiers, KEY)
    built = Built(10, 20_000_000, misses=2)
    stages = {"trace": 5.0, "codegen": 90.0}
    state.variants.append(Variant(True, entry=built, built=built, stages_ms=stages, missed={"sizes": 2}))
    tiers.entries, tiers.compiles = (built,), 1
    s = subject(f, tiers=tiers)
    report = make_report([s], config.current())
    (function,) = report.functions
    assert (function.tier, function.unmet, function.compiled_calls) == ("O1", "", 10)
    (kernel,) = function.kernels
    assert (kernel.state, kernel.sizes, kernel.calls, kernel.misses) == ("compiled", "that agree", 10, 2)
    assert kernel.signature == "x: float64[?], n: int"
    assert kernel.saved_ns == 80_000_000, "10 calls at 10 ms interpreted, at 2 ms compiled"
    text = str(report)
    for part in (
        "runs compiled (O1) since it is hot: 10 calls of 11", "compiled code of grid", "10 calls, 2.00 ms each",
        "interpreted 10.0 ms each", "2 calls it did not take", "made in 95.0 ms (ms: trace 5.0, codegen 90.0)",
        "code was in the cache", "pays back after 12 calls, 10 so far",
        "8 trials, 90 elements, largest relative error 1.0e-07",
    ):  # fmt: skip
        assert part in text, part
    assert "not compiled" not in text
    found = stats([s])
    assert (found["calls"], found["compiled_calls"], found["compiles"], found["kernels"]) == (11, 10, 1, 1)
    assert (found["misses"], found["demotions"], found["compiled_time_ns"]) == (2, 0, 20_000_000)
    assert (found["allocations"], found["launches"], found["packed_bytes"]) == (1, 13, 4096)
    assert found["trigger_percent"] == round(100 * 20_000_000 / (20_000_000 + found["time_ns"]))
    json.dumps(report.to_dict())
    checker = Checker()
    checker.feed(report._repr_html_())
    assert checker.open == []


@pytest.mark.parametrize(
    ("settings", "variant", "expected"),
    [
        ({"level": "O0"}, None, "level is O0: interpreted only"),
        ({"worker": "off"}, None, "worker is off: nothing compiles"),
        ({}, None, "hot: compiled at its next call"),
        ({"hot_count": 100, "hot_total_ms": 500}, None, "6 of 100 entries that make hot"),
        ({"warmup_calls": 9}, None, "entry 6 of the 9 that are only observed"),
        ({}, Variant(True, reason="no rule for this", line=12), "no rule for this (line 12)"),
        ({}, Variant(True, ticket=object()), "being compiled"),
        ({}, Variant(True, entry=Built(1, 1), reason="demoted: slow", demoted="slow"), "slow"),
    ],
)
def test_first_unmet_condition(settings, variant, expected, monkeypatch):
    nothing_yet = History()
    monkeypatch.setattr(dispatch, "history", lambda: nothing_yet)
    f = Running(grid)
    f(np.ones(3), 2)
    with config.context(**settings):
        tiers = tiers_of(f)
        state = hot(tiers, KEY)
        if variant is not None:
            state.variants.append(variant)
        report = make_report([subject(f, tiers=tiers)], config.current())
    assert report.functions[0].unmet.startswith(expected)
    assert report.functions[0].unmet.split(" (hot")[0] in " ".join(str(report).split())


def test_conditions_of_what_was_not_called_and_of_helpers():
    f = Running(grid)
    assert make_report([subject(f, tiers=tiers_of(f))], config.current()).functions[0].unmet == "not called yet"
    f(np.ones(3), 2)
    report = make_report([subject(f), subject(f, role="helper")], config.current())
    assert report.functions[1].unmet == "compiled as a part of what calls it"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.zeros((2, 3), np.float32), "float32[?, ?]"),
        (np.zeros((2, 3)).T, "float64[?, ?]{F}"),
        (np.zeros((2, 3))[:, :2], "float64[?, ?]{strided}"),
        (np.zeros((2, 3)).T[:, :1].T.T[::2], "float64[?, ?]{strided}"),
        (np.zeros((4, 3)).T[:, ::2], "float64[?, ?]{strided in another order}"),
        (tc.Tensor(np.zeros(3)), "Tensor float64[?]"),
        ((np.zeros(3), 4), "(float64[?], int)"),
        ({"a": 1, "b": np.zeros(())}, "{'a': int, 'b': float64[]}"),
        (None, "None"),
        ("mean", "'mean'"),
        (1.5, "float"),
        ((), "()"),
        ([1, 2.0], "[int, float]"),
        ({}, "{}"),
    ],
    ids=str,
)
def test_signatures_as_text(value, text):
    assert signature_text(signature_of(value)) == text


def test_a_real_function_is_reported_compiled(tmp_path):
    """The whole way, with the compile service."""
    quick = {"hot_count": 1, "hot_time_ms": 0, "warmup_calls": 0, "cache_dir": str(tmp_path)}

    @tc.jit
    def chain(x):
        return np.tanh(x) * 2 + x

    with tc.context(**quick):
        chain(np.ones((3, 4), np.float32))
        assert chain.wait(60)
        for size in (1, 5, 9):
            np.testing.assert_allclose(chain(np.ones((size, 4), np.float32)), np.tanh(1.0) * 2 + 1, rtol=1e-6)
        report, counts = chain.explain(), chain.stats()
    assert report.functions[0].tier == "O1", str(report)
    assert counts["compiled_calls"] == 3
    assert counts["kernels"] == 1
    assert "compiled code of" in str(report)


# ---- text ------------------------------------------------------------------------------------------------------------


def test_text_has_everything():
    f = Running(grid)
    for size in (3, 5, 9):
        f(np.ones(size), 2)
    text = str(report_on(f))
    for part in (
        "grid  (", "test_report.py:", "runs interpreted (O0); may reach O2", "3 calls", "loop 0", "loop 1",
        "for _ in range(n):", "for _ in range(3):", "not compiled", "x  float64[3..9]{C}",
        "n  int 2", "arguments of grid (seen in 3 recorded calls)",
    ):  # fmt: skip
        assert part in text, part
    assert all(len(line) <= 130 and line == line.rstrip() for line in text.splitlines())
    assert "runs interpreted (O0), as its level says" in str(report_on(f, level="O0"))


def test_text_of_a_function_that_runs_as_python():
    s = Subject("f", "user.py", 3, reason="it has a yield", reason_line=5, python_calls=2)
    report = make_report([s], config.current())
    text = str(report)
    assert "runs as Python: it has a yield (user.py:5)" in text
    assert "2 calls" in text
    assert report.functions[0].tier == "Python"


def test_text_before_the_first_call():
    f = Running(grid)
    assert "not called yet" in str(report_on(f))
    assert "not called yet" in str(make_report([Subject("f", "user.py", 3)], config.current()))


def test_several_signatures_and_python_lines_and_ledger():
    f = Running(noisy)
    for dtype in (np.float32, np.float64):
        f(np.ones(2, dtype))
    line = Line("copy", "noisy", "user.py", 4, "x is not contiguous", 3, 1500, 0)
    helper = Running(straight)
    helper(1)
    report = make_report([subject(f), subject(helper, role="helper")], config.current(), [line])
    text = str(report)
    for part in (
        "signature 1", "signature 2", "float32[2]{C}", "float64[2]{C}", "lines of noisy that run as Python",
        "y = math.fsum([1.0, 2.0])", "2 times", "helpers captured", "straight", "ledger", "x is not contiguous",
        "user.py:4", "3 times", "1.50 us",
    ):  # fmt: skip
        assert part in text, part


def test_dict_is_plain_and_complete():
    f = Running(grid)
    f(np.ones(3), 2)
    report = report_on(f)
    found = json.loads(json.dumps(report.to_dict()))
    assert found == report.to_dict()
    assert found["functions"][0]["loops"][1]["iterations"] == 6
    assert found["functions"][0]["signatures"][0]["arguments"]["n"] == "int 2"
    assert set(found) == {"name", "level", "reason", "python_calls", "functions", "ledger"}


class Checker(html.parser.HTMLParser):
    """Fails at tags that do not match."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_notebook_form_is_well_formed_and_escaped():
    f = Running(noisy)
    f(np.ones(2))
    s = subject(f)
    line = Line("copy", "<b>", "<i>.py", 4, "a < b & c", 3, 1500, 0)
    report = make_report([s], config.current(), [line])
    text = report._repr_html_()
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    assert "a &lt; b &amp; c" in text
    assert "<b>:" not in text
    assert "math.fsum" in text


# ---- pieces ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1000, "1.00 us"),
        (9_990, "9.99 us"),
        (9_996, "10.0 us"),
        (123_456, "123 us"),
        (999_600, "1.00 ms"),
        (35_300_000, "35.3 ms"),
        (2_500_000_000, "2.50 s"),
        (1e13, "10000 s"),
    ],
)
def test_times(nanoseconds, text):
    assert format_time(nanoseconds) == text


def test_pieces(tmp_path, monkeypatch):
    assert format_count(1234567) == "1 234 567"
    assert columns([["a", "b"], ["long", "1"]], right=[1]) == ["  a     b", "  long  1"]
    assert short("f.<locals>.Class.method") == "Class.method"
    monkeypatch.chdir(tmp_path)
    assert place(str(tmp_path / "x.py"), 3) == "x.py:3"
    assert place("/nowhere/x.py", 3) == "/nowhere/x.py:3"
    assert place("<ipython-input-1>", 3) == "<ipython-input-1>:3"
    assert re.fullmatch(r"x\.py", place("x.py", None))


def test_stalls_do_not_count_as_time_saved():
    state = SignatureState(KEY)
    for _ in range(30):
        state.note(1000, 10)
    for _ in range(10):
        state.note(1_000_000, 1000)
    state.note(1000, 10**9)
    assert state.typical_ns == (31 * 10 + 10 * 1000) // 41
    assert SignatureState(KEY, 4, 80).typical_ns == 20

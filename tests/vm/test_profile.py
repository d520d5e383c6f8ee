"""What the machine learns from the calls it sees."""

from __future__ import annotations

import gc
import sys
import threading
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.vm.running import Running
from tiercel import config
from tiercel.bytecode import dumps, from_text, loads, to_text
from tiercel.bytecode.program import FunctionProfile, Profile, SignatureProfile
from tiercel.config import Settings
from tiercel.frontend.python import CaptureOptions
from tiercel.interp import Environment, decode, run
from tiercel.shapes import Facts, Range, Symbol, parse_descriptor
from tiercel.vm import Machine
from tiercel.vm.profile import MAX_SIGNATURES, RECENT, LiveIn, Recorder, SignatureRecord, _join


def double(x, n):
    return x * n


def walk(x, n):
    total = x
    for _ in range(n):
        total = total + x
    return total


def zeros(*shape):
    return np.zeros(shape, np.float32)


# ---- learning --------------------------------------------------------------------------------------------------------


def test_ranges_grow_with_what_was_seen():
    f = Running(double)
    for batch in (16, 64, 20, 33):
        f(zeros(batch, 128), 3)
    assert f.learned() == [{0: "float32[16..64, 128]{C}", 1: "int 3"}]
    f(zeros(7, 128), 4)
    assert f.learned() == [{0: "float32[7..64, 128]{C}", 1: "int 3..4"}]


def test_a_multiple_is_learned_from_enough_sizes():
    f = Running(double)
    for batch in (16, 64, 24):
        f(zeros(batch, 2), 1)
    assert f.learned()[0][0] == "float32[16..64, 2]{C}", "three sizes prove nothing"
    f(zeros(40, 2), 1)
    assert f.learned()[0][0] == "float32[16..64 % 8, 2]{C}"
    f(zeros(41, 2), 1)
    assert f.learned()[0][0] == "float32[16..64, 2]{C}"


def test_signatures_are_told_apart():
    f = Running(double)
    f(zeros(2, 3), 1)
    f(zeros(2, 3), 1)
    f(np.zeros((2, 3)), 1)
    f(zeros(3), 1)
    f(zeros(3, 2).T, 1)
    f(zeros(2, 3), 1.0)
    profile = f.program.profile.functions[0]
    assert profile.entries == 6
    assert profile.signatures[0].count == 2
    assert {s.text for s in profile.signatures} == {
        "x: float32[?, ?]{C}, n: int",
        "x: float64[?, ?]{C}, n: int",
        "x: float32[?]{C}, n: int",
        "x: float32[?, ?]{F}, n: int",
        "x: float32[?, ?]{C}, n: float",
    }


def test_signatures_are_bounded():
    f = Running(double)
    with config.context(profile_first=100):
        for rank in range(MAX_SIGNATURES + 4):
            f(zeros(*[1] * rank), 1)
    entry = f.decoded.watch.entry
    assert len(entry.signatures) == MAX_SIGNATURES
    assert entry.others == 4


def test_equal_sizes_are_not_one_symbol():
    f = Running(double)
    for size in (3, 5):
        f(zeros(size), size)
    types, facts, _ = f.records[0].typed()
    size, value = types[0].shape[0], types[1].value
    assert size is not value
    assert facts.range(size) == facts.range(value) == Range(3, 5)
    assert facts.equal(size, value) is None


def test_declared_symbols_are_used():
    facts = Facts(["B: 1..512"])
    tokens = {"x": parse_descriptor("float32[B, 2*B]{C}")}
    f = Running(double, options=CaptureOptions(tokens=tokens, facts=facts))
    for size in (3, 5):
        f(zeros(size, 2 * size), 1)
    assert f.learned()[0][0] == "float32[3..5, 2*B]{C}"
    types, facts, _ = f.records[0].typed([f.program.tokens[f.program.functions[0].parameters[0].token], None], facts)
    assert types[0].shape == (Symbol("B"), 2 * Symbol("B"))
    assert facts.range(Symbol("B")) == Range(3, 5)


def test_loops_are_regions_of_their_own():
    f = Running(walk)
    for size in (3, 5):
        f(zeros(size), 4)
    (loop,) = f.decoded.watch.loops
    (record,) = loop.records()
    texts = record.learned_texts()
    names = {live.name: texts[live.register] for live in loop.live_ins}
    assert names["x"] == names["total"] == "float32[3..5]{C}"
    assert "n" not in names, "it is not read in the loop"
    assert f.program.profile.functions[0].loops == {0: (2, 8)}


def test_what_a_loop_makes_itself_is_no_live_in():
    def own(x, n):
        y = None
        for _ in range(n):
            y = x + 1
            x = y * 2
        return x

    f = Running(own)
    f(zeros(3), 2)
    names = {live.name for live in f.decoded.watch.loops[0].live_ins}
    assert "x" in names
    assert "y" not in names


def test_large_ints_have_no_bound():
    f = Running(double)
    f(1, 1 << 70)
    f(1, 2)
    assert f.learned()[0][1] == "int 2.."


# ---- sampling --------------------------------------------------------------------------------------------------------


def sampled(entries, **settings):
    recorder = Recorder([LiveIn(0, "x")])
    values = config.get_context().replace(**settings)
    seen = []
    for entry in range(1, entries + 1):
        if entry >= recorder.due:
            seen.append(entry)
            recorder.sample([entry], entry, values)
    return seen, recorder


def test_first_entries_then_one_in_so_many():
    seen, recorder = sampled(300)
    assert seen == [1, 2, 3, 4, 5, 6, 7, 8, 64, 128, 192, 256]
    assert recorder.records()[0].seen.entries == 256, "each sample stands for the entries since the one before"


def test_settings_say_how_often():
    assert sampled(20, profile_first=2, profile_sample=8)[0] == [1, 2, 8, 16]
    assert sampled(50, profile_first=3, profile_sample=0)[0] == [1, 2, 3]
    assert sampled(5, profile_first=1, profile_sample=1)[0] == [1, 2, 3, 4, 5]


def test_unsampled_entries_do_nothing(monkeypatch):
    f = Running(double)
    for _ in range(8):
        f(zeros(2), 1)
    monkeypatch.setattr(type(f.decoded.watch), "on_entry", lambda *_: pytest.fail("sampled"))
    for _ in range(8, 63):
        f(zeros(2), 1)
    with pytest.raises(pytest.fail.Exception):
        f(zeros(2), 1)


def test_an_odd_value_breaks_nothing():
    class Meta(type):
        @property
        def __mro__(cls):
            raise RuntimeError("no")

    class Odd(metaclass=Meta):
        def __mul__(self, n):
            return "fine"

    f = Running(double)
    assert f(Odd(), 1) == "fine"
    assert f.decoded.watch.entry.failed == 1


# ---- memory ----------------------------------------------------------------------------------------------------------


def test_a_record_does_not_grow():
    live = [LiveIn(0, "x")]
    record = SignatureRecord((("int",),), live, [1])
    size = sys.getsizeof(record._recent)
    for i in range(10 * RECENT):
        record.add([i], 1)
    assert sys.getsizeof(record._recent) == size
    assert len(record.recent()) == RECENT
    assert {v for (v,) in record.recent()} == set(range(9 * RECENT, 10 * RECENT))


@given(st.lists(st.lists(st.integers(-(1 << 60), 1 << 60), min_size=2, max_size=2), min_size=1, max_size=80))
def test_ranges_hold_every_sample(samples):
    record = SignatureRecord((("int",), ("int",)), [LiveIn(0, "x"), LiveIn(1, "y")], samples[0])
    for sizes in samples:
        record.add(sizes, 1)
    for position, within in enumerate(record.ranges()):
        assert all(sizes[position] in within for sizes in samples)
        assert within.lo == min(s[position] for s in samples)
        assert within.hi == max(s[position] for s in samples)
    assert record.recent()[-1] in [tuple(s) for s in samples]


def test_what_ran_may_go():
    machine = Machine()
    f = Running(double, machine)
    f(zeros(3), 1)
    assert machine.functions() == [f.decoded]
    reference = weakref.ref(f.decoded)
    value = np.zeros(3)
    f(value, 1)
    program, seen = f.program, weakref.ref(value)
    del f, value
    gc.collect()
    assert reference() is None
    assert seen() is None
    assert machine.functions() == []
    assert program.profile is None


# ---- threads ---------------------------------------------------------------------------------------------------------


def test_threads_learn_together():
    f = Running(double)
    settings = {"profile_first": 1 << 16}
    start = threading.Barrier(4)
    errors = []

    def work(seed):
        try:
            rng = np.random.default_rng(seed)
            start.wait()
            with config.context(**settings):
                for _ in range(300):
                    size = int(rng.integers(10, 21))
                    f(zeros(size, 4), size)
                    f.program.profile  # others learn meanwhile
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(old)
    assert errors == []
    (record,) = f.records
    assert record.seen.low == (10, 4, 10)
    assert all(size == n and width == 4 for size, width, n in record.recent()), "a sample is never half of another"


# ---- the program's profile -------------------------------------------------------------------------------------------


def test_the_profile_is_read_not_written():
    f = Running(double)
    f(zeros(2), 1)
    before = f.program.profile
    assert f.program.profile is before, "nothing ran"
    f(zeros(5), 1)
    after = f.program.profile
    assert after is not before
    assert before.functions[0].entries == 1
    assert before.functions[0].signatures[0].live_ins[0] == "float32[2]{C}"
    assert after.functions[0].signatures[0].live_ins[0] == "float32[2..5]{C}"


def test_a_file_keeps_what_was_learned_and_more_is_added():
    f = Running(double)
    for size in (4, 6):
        f(zeros(size), size)
    program = loads(dumps(f.program))
    assert program.profile == f.program.profile
    decoded = decode(program, environment=Environment.empty())
    machine = Machine()
    run(decoded, (zeros(11), 5), hooks=machine.hooks())
    profile = program.profile.functions[0]
    assert profile.entries == 3
    assert profile.signatures[0].count == 3
    assert profile.signatures[0].live_ins[0] == "float32[4..11]{C}"
    assert loads(dumps(program)).profile == program.profile


def test_two_decodings_of_one_program_count_together():
    machine = Machine()
    f = Running(double, machine)
    other = decode(f.program, environment=Environment({}))
    f(zeros(2), 1)
    run(other, (zeros(9), 1), hooks=machine.hooks())
    f(zeros(2), 1)
    assert f.program.profile.functions[0].entries == 3
    assert f.learned()[0][0] == "float32[2..9]{C}"


def test_an_assigned_profile_counts():
    f = Running(double)
    f(zeros(2), 1)
    mine = Profile({0: FunctionProfile(7, {}, (SignatureProfile("x", 7),))})
    f.program.profile = mine
    assert f.program.profile is mine


def test_typing_adds_results():
    machine = Machine()
    machine.typing = lambda decoded, record, typed: {0: f"seen {typed.types[0].shape[0]}"}
    f = Running(double, machine)
    f(zeros(2), 1)
    assert f.program.profile.functions[0].signatures[0].results[0] == "seen x.d0"


@pytest.mark.parametrize(
    ("a", "b", "joined"),
    [
        (None, "float32[2]{C}", "float32[2]{C}"),
        ("float32[2, 128]{C}", "float32[5, 128]{C}", "float32[2..5, 128]{C}"),
        ("float32[2..5]{C}", "float32[3..9]{C}", "float32[2..9]{C}"),
        ("float32[8..64 % 8]{C}", "float32[4..12 % 4]{C}", "float32[4..64 % 4]{C}"),
        ("float32[8..64 % 8]{C}", "float32[72]{C}", "float32[8..72 % 8]{C}"),
        ("float32[8..64 % 8]{C}", "float32[73]{C}", "float32[8..73]{C}"),
        ("float32[3]{C}", "float32[9]{C}", "float32[3..9]{C}"),
        ("Tensor float32[2]{C}", "Tensor float32[4]{C}", "Tensor float32[2..4]{C}"),
        ("float32[2]{C}", "Tensor float32[4]{C}", "Tensor float32[4]{C}"),
        ("int 3", "int 4", "int 4"),
        ("garbage", "float32[2]{C}", "float32[2]{C}"),
    ],
)
def test_joining_descriptors(a, b, joined):
    assert _join(a, b) == joined


def test_symbols_have_good_names():
    names = [
        "x", "x", "x[0]", "x['some key']", "self.h", "größe", "min", "n" * 100, "0"
    ]  # fmt: skip
    live = [LiveIn(i, n) for i, n in enumerate(names)]
    record = SignatureRecord((("int",),) * len(names), live, [1] * len(names))
    values = [t.value for t in record.typed().types]
    assert len(set(values)) == len(names)
    assert all(isinstance(v, Symbol) and v.kind == "scalar" for v in values)
    assert [v.name for v in values[:5]] == ["x", "x_2", "x.i0", "x.some.key", "self.h"]


def test_settings_reader_of_the_function_counts():
    f = Running(double)
    own: Settings = config.get_context().replace(profile_first=1, profile_sample=0)
    f.hooks = f.machine.hooks(settings=lambda: own)
    for size in (2, 3):
        f(zeros(size), 1)
    assert f.learned()[0][0] == "float32[2]{C}"


def test_the_listing_shows_what_was_seen():
    f = Running(double)
    assert "; seen" not in str(f.program)
    for size in (16, 64):
        f(zeros(size, 128), 3)
    text = str(f.program)
    assert "    ; seen %x  float32[16..64, 128]{C}\n    ; seen %n  int 3\n" in text
    assert dumps(from_text(to_text(f.program))) == dumps(f.program)

"""The benchmark suite: its machinery on tiny peers, its numbers, its record. Nothing is about how long it takes."""

from __future__ import annotations

import copy
import io
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools import suite_cases
from tests.tools.commands import Command
from tests.tools.suite_cases import CASES, REGISTRY, peer
from tiercel.errors import TiercelError
from tiercel.tools import bench
from tiercel.tools.suite import agreement, load, plot, record, schedule, statistics, table
from tiercel.tools.suite import cases as real
from tiercel.tools.suite.case import DISTINCT, Cannot, Setting, next_power, padded
from tiercel.tools.suite.child import Request
from tiercel.tools.suite.peers import PEERS, Peer, chosen, environment
from tiercel.tools.suite.process import Child, Failed
from tiercel.tools.suite.progress import Progress, span

CASE = CASES["doubling"]
FAST = schedule.Options(True, 1, 60.0, 4, 0.0005, 30.0, 0.02, 30.0)


@pytest.fixture
def tiercel_command(capsys):
    return Command(capsys)


@pytest.fixture(scope="module")
def measured():
    """One run of the tiny case: three peers that are right, and all that are not but for the one that hangs."""
    bad = ("Wrong", "Misshapen", "Refusing", "Raising", "Crashing", "Leaving")
    peers = [
        PEERS["tiercel"],
        PEERS["numpy"],
        peer(suite_cases.Printing),
        Peer("absent", ("no_such_package",)),
        *(peer(getattr(suite_cases, name)) for name in bad),
    ]
    said = []
    made = schedule.run_case(REGISTRY, CASE, peers, FAST, said.append)
    assert said[0] == "doubling: tiercel"
    assert said[-1] == "doubling: round 4 of 4"
    return record.make([made], peers, FAST, record.now())


@pytest.fixture
def peers(measured):
    return measured["cases"][0]["peers"]


# ---- a case ----------------------------------------------------------------------------------------------------------


def test_peers_that_are_right_are_timed_at_every_shape(measured, peers):
    for name in ("tiercel", "numpy", "printing"):
        assert peers[name]["state"] == "ok"
        assert [len(rounds) for rounds in peers[name]["steady"]] == [4, 4]
        assert len(peers[name]["stream"]["calls_s"]) == 6
        assert peers[name]["stream"]["whole"]
        assert peers[name]["stream"]["total_s"] >= sum(peers[name]["stream"]["calls_s"])
        assert peers[name]["stream"]["memory"]["peak_mb"] > 1
    assert measured["cases"][0]["rounds"] == 4
    assert measured["cases"][0]["reference_shapes"] == 2


def test_tiercel_says_how_it_ran(peers):
    told = peers["tiercel"]["told"]
    assert told["stats"]["calls"] > 6
    assert "<lambda>" in told["explain"]


@pytest.mark.parametrize(
    ("name", "state", "reason"),
    [
        ("wrong", "wrong", "wrong at 5: result 0 is off by up to 0.01"),
        ("misshapen", "wrong", "wrong at 2: result has shapes [(), (2, 3)], expected [(2, 3), ()]"),
        ("refusing", "cannot", "there is no doubling here"),
        ("raising", "error", "ValueError: seven is not a dtype"),
        ("crashing", "died", "died: SIGSEGV"),
        ("leaving", "died", "died: out of something"),
        ("absent", "missing", "no_such_package is not installed"),
    ],
)
def test_a_peer_that_fails_is_named_and_not_timed(peers, name, state, reason):
    assert peers[name]["state"] == state
    assert reason in peers[name]["reason"]
    assert "steady" not in peers[name] or not any(peers[name]["steady"])


def test_a_peer_that_hangs_is_ended():
    made = schedule.run_case(
        REGISTRY, CASE, [peer(suite_cases.Hanging)], schedule.Options(True, 1, 0.5, reference_s=1), lambda _: None
    )
    assert made["peers"]["hanging"] == {
        "state": "slow",
        "reason": "over 0.5 s",
        "import_s": made["peers"]["hanging"]["import_s"],
    }
    assert made["summary"]["ratio"] is None


def test_ctrl_c_keeps_what_was_measured(tmp_path):
    def tell(text):
        if text == "doubling: numpy":
            raise KeyboardInterrupt

    with pytest.raises(schedule.Interrupted) as caught:
        schedule.run_case(REGISTRY, CASE, [PEERS["tiercel"], PEERS["numpy"]], FAST, tell)
    case = caught.value.case
    assert case["peers"]["tiercel"]["state"] == "unfinished"
    assert len(case["peers"]["tiercel"]["stream"]["calls_s"]) == 6
    assert case["summary"]["ratio"] is None
    made = record.make([case], [PEERS["tiercel"]], FAST, record.now())
    assert record.check(made) is None
    record.save(made, tmp_path / "r.json")
    assert record.load(tmp_path / "r.json")["cases"][0]["summary"]["stream"]["tiercel"]["whole"]


def test_rounds_that_were_made_count_after_ctrl_c():
    def tell(text):
        if text == "doubling: round 4 of 4":
            raise KeyboardInterrupt

    with pytest.raises(schedule.Interrupted) as caught:
        schedule.run_case(REGISTRY, CASE, [PEERS["tiercel"], PEERS["numpy"]], FAST, tell)
    peers = caught.value.case["peers"]
    assert [len(rounds) for rounds in peers["numpy"]["steady"]] == [3, 3]
    assert peers["numpy"]["state"] == "ok"
    assert caught.value.case["summary"]["ratio"] > 0


def test_tiercel_wrong_is_a_failure(measured, capsys):
    made = copy.deepcopy(measured)
    made["cases"][0]["peers"]["tiercel"] |= {"state": "wrong", "reason": "wrong at 2: off"}
    parser = __import__("argparse").ArgumentParser()
    bench.add_arguments(parser)
    assert bench._finish(made, parser.parse_args([])) == 1
    assert "doubling: wrong at 2: off" in capsys.readouterr().err


def test_streams_and_inputs_are_the_same_everywhere():
    assert CASE.stream(True) == CASE.stream(True)
    assert len(CASE.stream(False)) == 12
    (first,), (second,) = CASE.made_inputs((4,)), CASE.made_inputs((4,))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, CASE.made_inputs((5,))[0][:4])


def test_a_long_stream_has_some_shapes_again_and_again(monkeypatch):
    monkeypatch.setattr(type(CASE), "calls", (500, 64))
    monkeypatch.setattr(type(CASE), "draw", lambda self, rng, quick: (int(rng.integers(1, 10**9)),))
    assert len(set(CASE.stream(True))) <= DISTINCT < len(CASE.stream(True)) == 500
    assert len(set(CASE.stream(False))) == 64 == DISTINCT


# ---- processes -------------------------------------------------------------------------------------------------------


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"


def until(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_child_runs_only_while_it_is_asked(tmp_path):
    with Child(Request(REGISTRY, "doubling", PEERS["numpy"].runtime, 1, str(tmp_path)), "numpy", 60) as child:
        until(lambda: state_of(child.process.pid) == "T")
        assert len(child.ask("stream", shapes=[(3,)], limit_s=10)["calls_s"]) == 1
        until(lambda: state_of(child.process.pid) == "T")
        with pytest.raises(Failed, match="AttributeError"):
            child.ask("nothing_of_this_name")
        assert child.ask("time", shape=(3,), turn_s=0)
    assert state_of(child.process.pid) == "gone"
    assert child.process.returncode == -9


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG")
def test_a_stopped_child_dies_with_its_parent(tmp_path):
    code = f"""
import os
from tiercel.tools.suite.child import Request
from tiercel.tools.suite.process import Child
child = Child(Request({REGISTRY!r}, "doubling", {PEERS["numpy"].runtime!r}, 1, {str(tmp_path)!r}), "numpy", 60)
print(child.process.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=variables)
    pid = int(done.stdout)
    until(lambda: state_of(pid) in ("gone", "Z"))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_time_of_other_processes_is_counted_and_ours_is_not():
    burn = (
        "import time, os\nend = time.process_time() + 0.6\nwhile time.process_time() < end: pass\nprint(1, flush=True)"
    )
    others = load.Others()
    with subprocess.Popen([sys.executable, "-c", f"{burn}\ninput()"], stdin=-1, stdout=-1, text=True) as child:
        child.stdout.readline()
        without, given = others.seconds([]), others.seconds([child.pid])
        child.communicate("\n")
    assert without - given > 0.5


def test_a_busy_machine_is_mentioned(measured):
    case = {**measured["cases"][0], "wall_s": 10.0}
    assert any("took 50% of a core" in str(part) for part in table.of_case({**case, "others_cpu_s": 5.0}))
    assert not any("of a core" in str(part) for part in table.of_case({**case, "others_cpu_s": 0.5}))


def test_every_peer_gets_the_same_threads_and_no_old_caches(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    made = environment(3, str(tmp_path))
    assert {made[f"{n}_NUM_THREADS"] for n in ("OMP", "OPENBLAS", "MKL", "NUMBA", "TIERCEL")} == {"3"}
    assert made["TIERCEL_CACHE_DIR"].startswith(str(tmp_path))
    assert "PYTHONDONTWRITEBYTECODE" not in made
    assert made["TORCHINDUCTOR_CACHE_DIR"].startswith(str(tmp_path))


# ---- agreement -------------------------------------------------------------------------------------------------------


def of(*arrays):
    return agreement.sample(arrays)


def test_one_wrong_peer_among_three_is_found_without_a_reference():
    good = np.linspace(-1, 1, 50)
    samples = {"a": of(good), "b": of(good + 1e-7), "c": of(good + 1e-2)}
    assert list(agreement.disagreements(samples, None, 1e-5, 1e-6)) == ["c"]
    samples["c"] = of(good[:-1])
    assert "shapes" in agreement.disagreements(samples, None, 1e-5, 1e-6)["c"]


def test_the_reference_outvotes_the_majority():
    good = np.linspace(-1, 1, 50)
    samples = {"a": of(good), "b": of(good + 1), "c": of(good + 1)}
    assert list(agreement.disagreements(samples, of(good), 1e-5, 1e-6)) == ["b", "c"]


def test_special_values_must_agree():
    special = np.array([np.nan, np.inf, -np.inf, 1.0])
    same = {"a": of(special), "b": of(special.copy())}
    assert agreement.disagreements(same, of(special), 1e-5, 1e-6) == {}
    for place, value in ((0, 1.0), (1, 5.0), (2, np.nan), (3, np.nan)):
        other = special.copy()
        other[place] = value
        assert list(agreement.disagreements({"a": of(other)}, of(special), 1e-5, 1e-6)) == ["a"]


def test_few_elements_may_be_odd_where_a_case_says_so():
    good = np.zeros(1000)
    odd = good.copy()
    odd[3] = 1
    assert agreement.disagreements({"a": of(odd)}, of(good), 0, 1e-6, odd_share=0.001) == {}
    assert agreement.disagreements({"a": of(odd)}, of(good), 0, 1e-6, odd_share=0.0009) != {}


def test_large_results_are_sampled_at_the_same_places():
    array = np.arange(100_000)
    first, second = agreement.sample([array], 7), agreement.sample([array.copy()], 7)
    np.testing.assert_array_equal(first.elements[0], second.elements[0])
    assert first.elements[0].size == agreement.ELEMENTS
    assert agreement.sample([3, 2.5, True]).shapes == ((), (), ())


def test_nobody_to_compare_with_is_no_disagreement():
    assert agreement.disagreements({"a": of(np.zeros(2))}, None, 0, 0) == {}
    assert agreement.disagreements({"a": of(np.zeros(0))}, of(np.zeros(0)), 0, 0) == {}


# ---- numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", range(1, 60))
def test_the_range_holds_the_median_with_the_stated_confidence(count):
    k = statistics._order(count)

    def inside(k):
        return 1 - 2 * sum(math.comb(count, i) for i in range(k + 1)) / 2**count

    assert k == 0 or inside(k) >= 0.95
    assert inside(k + 1) < 0.95
    assert 0 <= k <= (count - 1) / 2


def test_ratios_are_of_neighbours():
    ratio = statistics.ratio_of_rounds([2.0, 20.0, 6.0], [1.0, 10.0, 2.0, 99.0])
    assert (ratio.value, ratio.low, ratio.high) == (2.0, 2.0, 3.0)
    with pytest.raises(ValueError, match="no rounds"):
        statistics.ratio_of_rounds([], [1.0])


@given(st.lists(st.floats(0.001, 1000), min_size=1, max_size=50), st.floats(0.01, 1))
def test_percentiles_count(values, share):
    found = statistics.percentile(values, share)
    assert found in values
    assert sum(v <= found for v in values) >= share * len(values)
    assert sum(v < found for v in values) < share * len(values)


def test_geometric_mean():
    assert statistics.geometric_mean([1, 4]) == pytest.approx(2)
    assert math.isnan(statistics.geometric_mean([]))


def made_case(**steady):
    peers = {n: {"state": "ok", "steady": s} for n, s in steady.items()}
    return {"shapes": [[1], [2]], "peers": peers}  # what `compare` reads


def test_the_best_peer_is_found_for_each_shape():
    case = made_case(tiercel=[[1.0] * 3, [8.0] * 3], numpy=[[2.0] * 3, [4.0] * 3], numba=[[4.0] * 3, [2.0] * 3])
    told = schedule.compare(case)
    assert [row["best"] for row in told["shapes"]] == ["numpy", "numba"]
    assert [row["ratio"] for row in told["shapes"]] == [0.5, 4.0]
    assert told["ratio"] == pytest.approx(math.sqrt(2))
    assert told["against"]["numpy"] == pytest.approx(1.0)


def test_a_peer_that_is_wrong_is_never_the_best():
    case = made_case(tiercel=[[1.0], [1.0]], numpy=[[2.0], [2.0]], numba=[[0.1], [0.1]])
    case["peers"]["numba"] |= {"state": "wrong", "reason": "wrong"}
    assert [row["best"] for row in schedule.compare(case)["shapes"]] == ["numpy", "numpy"]


@given(st.integers(1, 10_000), st.sampled_from([1, 8, 16]))
def test_buckets_are_powers_of_two(number, least):
    bucket = next_power(number, least)
    assert bucket >= max(number, least)
    assert bucket & (bucket - 1) == 0
    assert bucket == least or bucket < 2 * number


def test_padding_keeps_what_is_there():
    wide = padded(np.ones((2, 3, 4), np.float32), 4, 8)
    assert (wide.shape, wide.dtype, wide.sum()) == ((4, 8, 4), np.float32, 24)
    assert wide[:2, :3].all()


# ---- the record ------------------------------------------------------------------------------------------------------


def test_a_record_survives_json(measured, tmp_path):
    assert record.check(measured) is None
    record.save(measured, tmp_path / "r.json")
    assert record.load(tmp_path / "r.json") == json.loads(json.dumps(measured))
    assert measured["machine"]["cores"] >= 1
    assert measured["versions"]["absent"] is None
    assert measured["versions"]["numpy"] == np.__version__


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda r: r.update(schema=0), "schema 0"),
        (lambda r: r.pop("machine"), "'machine'"),
        (lambda r: r["cases"][0].pop("stream"), "has no 'stream'"),
        (lambda r: r["cases"][0]["sizes"].pop(), "other sizes"),
        (lambda r: r["cases"][0]["peers"]["numpy"].update(state="fine"), "state 'fine'"),
        (lambda r: r["cases"][0]["peers"]["absent"].pop("reason"), "no reason"),
        (lambda r: r["cases"][0]["peers"]["numpy"]["steady"].pop(), "not a time for each shape"),
    ],
)
def test_what_is_no_record_is_refused(measured, tmp_path, change, complaint):
    broken = copy.deepcopy(measured)
    change(broken)
    assert complaint in record.check(broken)
    record.save(broken, tmp_path / "r.json")
    with pytest.raises(TiercelError, match="not a record"):
        record.load(tmp_path / "r.json")


def test_text_is_no_record(tmp_path):
    (tmp_path / "r.json").write_text("{")
    with pytest.raises(TiercelError, match="not JSON"):
        record.load(tmp_path / "r.json")
    assert record.check([]) == "no object"


def test_merging_keeps_cases_and_threads_apart(measured):
    other = copy.deepcopy(measured)
    other["cases"][0]["threads"] = 2
    other["cases"].append({**other["cases"][0], "name": "second"})
    merged = record.merged([measured, other])
    assert [(c["name"], c["threads"]) for c in merged["cases"]] == [("doubling", 1), ("doubling", 2), ("second", 2)]
    assert record.check(merged) is None


def test_a_case_with_other_shapes_replaces_the_one_before(measured):
    other = copy.deepcopy(measured)
    other["cases"][0] |= {"title": "later", "shapes": [[3], [7]]}
    del other["cases"][0]["peers"]["printing"]
    (case,) = record.merged([measured, other])["cases"]
    assert case["title"] == "later"
    assert "printing" not in case["peers"]


def joinable(**peers):
    """A record of one case, two shapes: name to seconds at both."""
    made = {
        n: {
            "state": "ok",
            "steady": [[a] * 3, [b] * 3],
            "stream": {"prepare_s": 0.0, "calls_s": [a, b], "total_s": a + b, "whole": True},
        }
        for n, (a, b) in peers.items()
    }
    case = {"name": "made", "title": "made", "threads": 1, "labels": ["n"], "shapes": [[1], [2]], "sizes": [1, 2]}
    case |= {"stream": [[1], [2]], "wall_s": 1.0, "others_cpu_s": 0.5, "peers": made}
    case["summary"] = schedule.compare(case)
    versions = dict.fromkeys(made, "1")
    rest = {"schema": record.SCHEMA, "machine": {}, "options": {"threads": 1}, "started": ""}
    return {**rest, "versions": versions, "cases": [case]}


def test_peers_of_several_runs_are_compared_with_us_in_their_own():
    # The machine was twice as slow in the second run: numba is faster than numpy there, compared with us.
    first = joinable(tiercel=(1.0, 1.0), numpy=(2.0, 2.0))
    second = joinable(tiercel=(2.0, 2.0), numba=(2.5, 8.0))
    for records in ([first, second], [second, first]):
        merged = record.merged(records)
        assert record.check(merged) is None
        assert merged["versions"].keys() == {"tiercel", "numpy", "numba"}
        (case,) = merged["cases"]
        assert list(case["peers"]) == ["tiercel", "numpy", "numba"]
        assert [row["best"] for row in case["summary"]["shapes"]] == ["numba", "numpy"]
        assert [row["ratio"] for row in case["summary"]["shapes"]] == [0.8, 0.5]
        assert case["summary"]["against"] == {"numpy": pytest.approx(0.5), "numba": pytest.approx(math.sqrt(0.2))}
        ratios = case["summary"]["stream_ratios"]
        assert ratios == {"numpy": 0.5, "numba": pytest.approx(4 / 10.5), "compiling": pytest.approx(4 / 10.5)}
        assert (case["wall_s"], case["others_cpu_s"]) == (2.0, 1.0)
    assert record.merged([record.merged([first, second]), joinable(tiercel=(9.0, 9.0))])["cases"][0]["summary"][
        "against"
    ].keys() == {"numpy", "numba"}


def test_a_peer_that_finished_once_is_not_lost():
    first = joinable(tiercel=(1.0, 1.0), jax=(2.0, 2.0))
    second = joinable(tiercel=(1.0, 1.0), jax=(3.0, 3.0))
    failed = copy.deepcopy(second)
    failed["cases"][0]["peers"]["jax"] = {"state": "slow", "reason": "over 14 s"}
    (case,) = record.merged([first, failed])["cases"]
    assert case["peers"]["jax"]["state"] == "ok"
    assert case["summary"]["against"]["jax"] == pytest.approx(0.5)
    (case,) = record.merged([first, second])["cases"]
    assert case["summary"]["against"]["jax"] == pytest.approx(1 / 3)
    failed["cases"][0]["peers"]["tiercel"] = {"state": "unfinished", "reason": "interrupted"}
    (case,) = record.merged([first, failed])["cases"]
    assert case["summary"]["ratio"] == pytest.approx(0.5)


# ---- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(measured, tmp_path):
    record.save(measured, tmp_path / "r.json")
    return tmp_path / "r.json"


def test_a_record_is_shown_without_measuring(tiercel_command, saved, tmp_path):
    done = tiercel_command("bench", "--load", saved, "--explain", "--json", tmp_path / "again.json")
    assert done.code == 0
    for text in ("doubling: twice the input", "absent: no_such_package is not installed", "died: SIGSEGV"):
        assert text in done.out
    for text in ("6 calls of random shapes", "geometric mean", "twice the input, 1 thread", "missing: absent"):
        assert text in done.out
    assert record.load(tmp_path / "again.json") == record.load(saved)


def test_every_column_of_the_summary_says_what_it_compares(measured):
    summary = table.of_run(measured)[0]
    heads = [str(column.header).replace("\n", " ") for column in summary.columns]
    assert len(set(heads)) == len(heads)
    for head in ("steady / best peer", "steady / numpy", "stream / numpy", "stream / torch"):
        assert head in heads
    for word in ("steady: ", "stream: ", "compiled: share of the time"):
        assert word in summary.caption


def test_cases_are_run_and_written(tiercel_command, tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "CASES", CASES)
    monkeypatch.setattr(bench, "REGISTRY", REGISTRY)
    monkeypatch.setattr(schedule.Options, "usual", lambda quick, threads, limit: FAST)
    done = tiercel_command("bench", "doubling", "--peers", "numpy", "--threads", "1,1", "--json", tmp_path / "r.json")
    assert done.code == 0
    assert "doubling: done, 1 of 1" in done.err
    (case,) = record.load(tmp_path / "r.json")["cases"]
    assert list(case["peers"]) == ["tiercel", "numpy"]
    assert case["summary"]["ratio"] > 0


def test_a_run_that_is_interrupted_shows_and_writes_what_there_is(tiercel_command, measured, tmp_path, monkeypatch):
    def run_case(registry, case, peers, options, tell):
        case = {**measured["cases"][0]}
        case["peers"] = {name: case["peers"][name] for name in ("tiercel", "numpy")}
        raise schedule.Interrupted({**case, "summary": schedule.compare(case)})

    monkeypatch.setattr(bench, "CASES", CASES)
    monkeypatch.setattr(schedule, "run_case", run_case)
    done = tiercel_command("bench", "doubling", "--json", tmp_path / "r.json")
    assert done.code == 130
    assert "geometric mean" in done.out
    assert "interrupted" in done.err
    assert record.load(tmp_path / "r.json")["cases"][0]["name"] == "doubling"


def test_names_that_are_not_there(tiercel_command):
    done = tiercel_command("bench", "sofmax")
    assert done.code == 1
    assert done.err.rstrip().endswith("did you mean 'softmax'?")
    done = tiercel_command("bench", "softmax", "--peers", "numpi")
    assert done.code == 1
    assert done.err.rstrip().endswith("did you mean 'numpy'?")
    assert "; there are " in tiercel_command("bench", "zzzz").err
    assert tiercel_command("bench", "softmax", "--threads", "2,0").code == 2
    assert tiercel_command("bench", "softmax", "--limit", "-1").code == 2


def test_plots_need_matplotlib_before_anything_is_measured(tiercel_command, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = tiercel_command("bench", "softmax", "--plot", tmp_path / "p.png")
    assert done.code == 1
    assert "pip install 'tiercel[bench]'" in done.err


def test_a_plot_is_drawn(measured, tmp_path):
    pytest.importorskip("matplotlib")
    plot.draw(measured, tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    for name in ("p.svg", "q.svg"):
        plot.draw({**measured, "cases": measured["cases"] * 5}, tmp_path / name)
    text = (tmp_path / "p.svg").read_text(encoding="utf-8")
    assert text == (tmp_path / "q.svg").read_text(encoding="utf-8")
    for label in ("doubling", "tiercel", "printing", "ms of a steady call", "6 calls of random shapes"):
        assert label in text
    assert "crashing" not in text  # a peer that was never timed is in no legend
    with pytest.raises(TiercelError, match="nothing to draw"):
        plot.draw({**measured, "cases": []}, tmp_path / "q.png")
    with pytest.raises(TiercelError, match="--plot"):
        plot.draw(measured, tmp_path / "p.txt")


@given(st.lists(st.floats(1e-6, 10), min_size=1, max_size=600), st.floats(0, 1))
def test_the_line_of_a_stream_ends_where_it_ended_and_shows_its_stalls(calls, prepare):
    at, count = plot.finished_by(prepare, calls)
    ends = np.cumsum([prepare, *calls])[1:]
    assert at == sorted(at)
    assert count == sorted(set(count))
    np.testing.assert_allclose(at, np.maximum(ends[np.array(count, int) - 1], 1e-6))
    assert count[-1] == len(calls)
    stalls = [i for i, seconds in enumerate(calls) if seconds > plot.STALL * statistics.median(calls)]
    for stall in stalls:  # with both of its ends: a flat piece
        assert {stall + 1.0, max(stall, 1.0)} <= set(count)


def test_progress_tells_how_far_a_run_is():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    now = [0.0]
    shown = Terminal()
    progress = Progress(4, shown, lambda: now[0])
    progress.tell("lstm: numpy")
    assert shown.getvalue().endswith("[--------------------] 0 of 4, 0 s  lstm: numpy")
    now[0] = 120.0
    progress.finished("lstm")
    assert progress.line("gru: numpy") == "[#####---------------] 1 of 4, 2 min, about 6 min left  gru: numpy"
    plain = io.StringIO()
    progress = Progress(2, plain, lambda: now[0])
    progress.tell("lstm: numpy")
    progress.finished("lstm")
    assert plain.getvalue() == "lstm: done, 1 of 2 after 0 s\n"
    assert [span(s) for s in (3.2, 89, 90, 3599, 4200)] == ["3 s", "89 s", "2 min", "1 h 0 min", "1 h 10 min"]


def test_tiercel_is_always_among_the_peers():
    assert [p.name for p in chosen(["numpy"])] == ["tiercel", "numpy"]
    assert [p.name for p in chosen([])] == list(PEERS)


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.5, "1.50 s"), (0.9996, "1.00 s"), (0.0123, "12.3 ms"), (5e-7, "500 ns"), (2e-6, "2.00 us")]
)
def test_durations(seconds, text):
    assert table.duration(seconds) == text


# ---- the real cases --------------------------------------------------------------------------------------------------

SMALL = [name for name in real.CASES if not name.startswith("encoder") and name != "block-768"]


@pytest.mark.parametrize("name", SMALL)
def test_tiercel_agrees_with_numpy_in_float64(name):
    case = real.CASES[name]
    weights = case.made_weights()
    double = {n: w.astype(np.float64) for n, w in weights.items()}
    shape = case.shapes(True)[0]
    inputs = case.made_inputs(shape)
    wide = [v.astype(np.float64) if getattr(v, "dtype", None) == np.float32 else v for v in inputs]
    got, right = case.tiercel(weights)(*inputs), case.numpy(double)(*wide)
    from tiercel.tools.suite.child import _leaves

    samples = [agreement.sample([np.asarray(leaf) for leaf in _leaves(r)]) for r in (got, right)]
    assert agreement.disagreements({"tiercel": samples[0]}, samples[1], case.rtol, case.atol, case.odd_share) == {}


@pytest.mark.parametrize("name", real.CASES)
def test_shapes_grow_and_names_are_whole(name):
    case = real.CASES[name]
    assert case.name == name
    assert case.title
    for quick in (True, False):
        shapes = case.shapes(quick)
        assert len(set(shapes)) == len(shapes) > 1
        stream = case.stream(quick)
        assert len(stream) == case.calls[not quick]
        assert {len(s) for s in (*shapes, *stream)} == {len(case.labels)}


def test_a_peer_that_a_case_does_not_know_says_so():
    with pytest.raises(Cannot, match="not written"):
        CASE.jax({})
    with pytest.raises(Cannot, match="Numba has no batched"):
        real.CASES["block-384"].numba({})
    assert Setting(1, Path()).threads == 1

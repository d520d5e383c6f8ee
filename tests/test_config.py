from __future__ import annotations

import asyncio
import copy
import dataclasses
import io
import json
import logging
import os
import pickle
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest

from tiercel import config
from tiercel.config import SETTINGS, Policy, Settings
from tiercel.config.kinds import LEDGER_KINDS
from tiercel.errors import ConfigError, TiercelWarning, UnknownSettingError


def origin(name):
    return next(row.origin for row in config.table() if row.name == name)


@pytest.fixture
def environment(monkeypatch):
    def set_variables(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        config.reload()

    yield set_variables
    monkeypatch.undo()
    config.reload()


# --- The table ---


def test_table_settings_and_policy_agree():
    assert [f.name for f in dataclasses.fields(Settings)] == list(SETTINGS)
    assert {f.name for f in dataclasses.fields(Policy)} <= set(SETTINGS)


def test_every_row_has_a_variable_of_its_own_and_a_default_that_it_accepts():
    variables = [v for row in SETTINGS.values() for v in row.env]
    assert len(variables) == len(set(variables))
    for row in SETTINGS.values():
        assert row.env[0].startswith("TIERCEL_")
        assert row.help.endswith(".")
        assert row.kind.check(row.default) == row.default


def test_defaults():
    settings = config.current()
    assert settings.level == "O2"
    assert settings.disable is False
    assert settings.threads is None
    assert settings.strict is False
    assert settings.worker == "process"
    assert settings.log == "off"
    assert (settings.hot_count, settings.hot_time_ms, settings.hot_total_ms, settings.warmup_calls) == (5, 20, 100, 3)
    assert {row.origin for row in config.table()} == {"default"}


ACCEPTED = [
    ("level", "O0", "O0"),
    ("level", "o1", "O1"),
    ("level", 2, "O2"),
    ("level", "0", "O0"),
    ("disable", True, True),
    ("disable", 1, True),
    ("disable", np.bool_(False), False),
    ("threads", None, None),
    ("threads", 3, 3),
    ("threads", np.int64(3), 3),
    ("strict", True, True),
    ("strict", [], False),
    ("strict", {"copy", "python"}, frozenset({"copy", "python"})),
    ("strict", "copy, Python", frozenset({"copy", "python"})),
    ("strict", "off", False),
    ("worker", "THREAD", "thread"),
    ("cache_dir", None, None),
    ("cache_dir", "", None),
    ("cache_dir", "/x/y", "/x/y"),
    ("cache_size", 0, 0),
    ("cache_size", "3k", 3072),
    ("cache_size", "1.5 GiB", 3 << 29),
    ("memory_limit", "2MB", 2 << 20),
    ("memory_limit", None, None),
    ("hot_time_ms", 0, 0.0),
    ("hot_time_ms", np.float32(1.5), 1.5),
    ("hot_time_ms", float("inf"), float("inf")),
    ("profile_sample", 0, 0),
    ("profile_sample", 1, 1),
    ("debug", 5, 5),
    ("debug_filter", "MatMul", "MatMul"),
]


@pytest.mark.parametrize(("name", "value", "expected"), ACCEPTED)
def test_accepted_values_are_normalised(name, value, expected):
    config.set_context(**{name: value})
    got = getattr(config.current(), name)
    assert got == expected
    assert type(got) is type(expected)


REFUSED = [
    ("level", "O3"),
    ("level", 3),
    ("level", True),
    ("level", None),
    ("disable", 2),
    ("disable", "yes"),
    ("threads", 0),
    ("threads", -1),
    ("threads", 1.0),
    ("threads", True),
    ("threads", "2"),
    ("threads", 10**30),
    ("strict", "nonsense"),
    ("strict", {"copy", "nonsense"}),
    ("strict", 3.5),
    ("strict", [1]),
    ("worker", "processes"),
    ("worker", None),
    ("cache_dir", 3),
    ("cache_dir", b"/x"),
    ("cache_dir", "a\0b"),
    ("cache_size", None),
    ("cache_size", -1),
    ("cache_size", "many"),
    ("cache_size", 1.5),
    ("memory_limit", True),
    ("hot_count", 0),
    ("hot_time_ms", -1),
    ("hot_time_ms", float("nan")),
    ("hot_time_ms", "20"),
    ("hot_time_ms", None),
    ("hot_time_ms", 1j),
    ("profile_sample", 3),
    ("profile_sample", -2),
    ("demote_ratio", 0.5),
    ("log", "loud"),
    ("debug", 6),
    ("debug_filter", 3),
]


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_refused_values_name_the_setting_what_it_accepts_and_what_came(name, value):
    with pytest.raises(ConfigError) as caught:
        config.set_context(**{name: value})
    assert caught.value.setting == name
    assert repr(name) in str(caught.value)
    assert SETTINGS[name].kind.accepts in str(caught.value)
    assert f"got {value!r}" in str(caught.value)
    assert origin(name) == "default"


def test_a_refused_call_changes_nothing():
    with pytest.raises(ConfigError):
        config.set_context(level="O0", threads=0)
    with pytest.raises(UnknownSettingError):
        config.set_context(level="O0", thread=2)
    assert config.current().level == "O2"


@pytest.mark.parametrize(
    ("name", "near"), [("levle", "level"), ("jitlevel", "jit_level"), ("thread", "threads"), ("HOT_COUNT", "hot_count")]
)
@pytest.mark.parametrize("where", [config.set_context, config.context, config.overrides, config.current().replace])
def test_unknown_names_raise_with_a_suggestion(where, name, near):
    with pytest.raises(UnknownSettingError, match=f"no setting '{name}'; did you mean '{near}'") as caught:
        where(**{name: 1})
    assert caught.value.setting == name
    assert isinstance(caught.value, AttributeError)


def test_reset_of_an_unknown_name_raises():
    with pytest.raises(UnknownSettingError, match="levle"):
        config.reset("levle")


def test_jit_level_is_an_accepted_spelling():
    config.set_context(jit_level="O0")
    assert config.current().level == "O0"
    assert config.get_context()["jit_level"] == "O0"
    with pytest.raises(ConfigError, match="'level' and 'jit_level' are the same setting"):
        config.set_context(level="O0", jit_level="O1")


def test_home_is_expanded(monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    config.set_context(cache_dir="~/kernels")
    assert config.current().cache_dir == "/home/someone/kernels"


# --- The settings object ---


def test_settings_are_an_immutable_mapping():
    settings = config.get_context()
    assert dict(settings) == {name: getattr(settings, name) for name in SETTINGS}
    assert len(settings) == len(SETTINGS)
    assert "level" in settings
    assert "levle" not in settings
    with pytest.raises(KeyError):
        settings["levle"]
    with pytest.raises(AttributeError):
        settings.level = "O0"
    with pytest.raises(TypeError):
        settings["level"] = "O0"
    assert hash(settings) == hash(settings.replace())


def test_settings_do_not_change_behind_the_readers_back():
    before = config.get_context()
    config.set_context(level="O0")
    assert before.level == "O2"
    config.set_context(**before)
    assert config.current().level == "O2"


def test_settings_replace():
    settings = config.current().replace(jit_level=0)
    assert settings.level == "O0"
    assert config.current().level == "O2"


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_settings_survive_pickle_and_copy(clone):
    settings = config.current().replace(strict=["copy"], threads=2)
    assert clone(settings) == settings


@pytest.mark.parametrize("kind", LEDGER_KINDS)
def test_is_strict(kind):
    settings = config.current()
    assert not settings.is_strict(kind)
    assert settings.replace(strict=True).is_strict(kind)
    assert settings.replace(strict=[kind]).is_strict(kind)
    assert not settings.replace(strict=set(LEDGER_KINDS) - {kind}).is_strict(kind)


# --- Layers ---


def test_layers_count_in_order(environment):
    environment(TIERCEL_HOT_COUNT="7", TIERCEL_DEBUG="1", TIERCEL_WARMUP_CALLS="2")
    config.set_context(hot_count=8, debug=2)
    with config.context(debug=3):
        settings = config.overrides(debug=4)()
        assert (settings.debug, settings.hot_count, settings.warmup_calls, settings.threads) == (4, 8, 2, None)
        got = [origin(name) for name in ("debug", "hot_count", "warmup_calls", "threads")]
        assert got == ["context", "set_context", "environment", "default"]
    assert config.current().debug == 2
    config.reset("debug")
    assert (config.current().debug, config.current().hot_count) == (1, 8)
    config.reset()
    assert config.current().hot_count == 7


def test_context_nests_and_gives_the_settings():
    with config.context(level="O1", threads=2) as outer:
        assert (outer.level, outer.threads) == ("O1", 2)
        with config.context(level="O0") as inner:
            assert (inner.level, inner.threads) == ("O0", 2)
            assert config.current() is inner
        assert config.current() is outer
    assert config.current().level == "O2"


def test_context_ends_with_an_exception():
    with pytest.raises(ZeroDivisionError), config.context(level="O0"):
        1 / 0
    assert config.current().level == "O2"


def test_context_is_checked_when_made_not_when_entered():
    with pytest.raises(ConfigError):
        config.context(level="O9")


def test_context_object_can_be_entered_again_and_within_itself():
    block = config.context(level="O0")
    for _ in range(2):
        with block:
            with block:
                assert config.current().level == "O0"
            assert config.current().level == "O0"
        assert config.current().level == "O2"


def test_context_as_decorator():
    @config.context(level="O0")
    def f():
        return config.current().level

    assert f() == "O0"
    assert config.current().level == "O2"


def test_set_context_reaches_into_open_blocks():
    with config.context(threads=2):
        config.set_context(level="O0", threads=5)
        assert (config.current().level, config.current().threads) == ("O0", 2)
    assert config.current().threads == 5


def test_blocks_that_end_out_of_order():
    def generator():
        with config.context(level="O0"):
            yield config.current().level

    running = generator()
    assert next(running) == "O0"
    with config.context(threads=2):
        running.close()
        assert (config.current().level, config.current().threads) == ("O2", 2)
    assert config.current() == config.current().replace(threads=None)


def test_threads_do_not_see_one_anothers_blocks_but_see_set_context():
    inside, done = threading.Event(), threading.Event()
    seen = []

    def other():
        with config.context(level="O1"):
            inside.set()
            done.wait(10)
            seen.append((config.current().level, config.current().hot_count))

    thread = threading.Thread(target=other)
    with config.context(level="O0"):
        thread.start()
        inside.wait(10)
        assert config.current().level == "O0"
        config.set_context(hot_count=9)
        done.set()
        thread.join()
    assert seen == [("O1", 9)]


def test_tasks_do_not_see_one_anothers_blocks():
    async def task(level, turns):
        with config.context(level=level):
            for _ in range(turns):
                await asyncio.sleep(0)
                assert config.current().level == level
        assert config.current().level == "O2"

    async def main():
        await asyncio.gather(task("O0", 5), task("O1", 9), task("O2", 3))
        # A block around the start of a task is inherited by it, also by a thread.
        with config.context(threads=3):
            child = asyncio.create_task(asyncio.to_thread(lambda: config.current().threads))
        assert config.current().threads is None
        assert await child == 3

    asyncio.run(main())


def test_concurrent_set_context_never_mixes_calls():
    stop = time.monotonic() + 0.3
    bad = []

    def write(value):
        while time.monotonic() < stop:
            config.set_context(hot_count=value, warmup_calls=value)

    def read():
        with config.context(debug=1):
            while time.monotonic() < stop:
                settings = config.current()
                if settings.hot_count != settings.warmup_calls or settings.debug != 1:
                    bad.append(settings)

    config.set_context(hot_count=1, warmup_calls=1)
    threads = [threading.Thread(target=write, args=(v,)) for v in (1, 2)]
    threads += [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not bad


def test_overrides_follow_later_settings_and_keep_the_object():
    read = config.overrides(level="O0", policy=Policy(hot_count=2))
    assert read() is read()
    assert (read().level, read().hot_count, read().warmup_calls) == ("O0", 2, 3)
    config.set_context(level="O1", warmup_calls=1)
    assert (read().level, read().hot_count, read().warmup_calls) == ("O0", 2, 1)
    with config.context(warmup_calls=0):
        assert read().warmup_calls == 0
    assert read().warmup_calls == 1


def test_overrides_of_nothing_are_current():
    assert config.overrides() is config.current
    assert config.overrides(policy=Policy()) is config.current


def test_policy_follows_settings_where_it_says_nothing():
    policy = Policy(hot_count=np.int64(2), hot_time_ms=0)
    assert policy == Policy(hot_count=2, hot_time_ms=0.0)
    assert type(policy.hot_count) is int
    applied = policy.apply(config.current().replace(warmup_calls=9))
    assert (applied.hot_count, applied.hot_time_ms, applied.warmup_calls) == (2, 0.0, 9)
    assert Policy().apply(config.current()) is config.current()
    assert pickle.loads(pickle.dumps(policy)) == policy
    with pytest.raises(ConfigError, match="hot_count"):
        Policy(hot_count=0)
    with pytest.raises(AttributeError):
        policy.hot_count = 3


def test_fork_in_a_process_that_holds_the_lock():
    # The child must be able to read and set although another thread held the lock at the fork.
    program = """
import os, threading, sys, warnings
warnings.simplefilter("ignore")
from tiercel import config
from tiercel.config import layers
config.current()
held, leave = threading.Event(), threading.Event()
def hold():
    with layers._lock, layers._logging.lock:
        held.set(); leave.wait(20)
thread = threading.Thread(target=hold); thread.start(); held.wait()
child = os.fork()
if child == 0:
    config.set_context(level="O0")
    os._exit(0 if config.current().level == "O0" else 1)
leave.set(); thread.join()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)


# --- The environment ---


@pytest.mark.parametrize(
    ("variable", "text", "name", "expected"),
    [
        ("TIERCEL_LEVEL", "o0", "level", "O0"),
        ("TIERCEL_JIT_LEVEL", "1", "level", "O1"),
        ("TIERCEL_DISABLE", "1", "disable", True),
        ("TIERCEL_DISABLE", "off", "disable", False),
        ("TIERCEL_DISABLE", "  ", "disable", False),
        ("TIERCEL_NUM_THREADS", "2", "threads", 2),
        ("TIERCEL_THREADS", " 2 ", "threads", 2),
        ("TIERCEL_NUM_THREADS", "auto", "threads", None),
        ("TIERCEL_STRICT", "1", "strict", True),
        ("TIERCEL_STRICT", "copy,python", "strict", frozenset({"copy", "python"})),
        ("TIERCEL_CACHE_SIZE", "1G", "cache_size", 1 << 30),
        ("TIERCEL_MEMORY_LIMIT", "none", "memory_limit", None),
        ("TIERCEL_HOT_TIME_MS", "2.5", "hot_time_ms", 2.5),
        ("TIERCEL_CACHE_DIR", "/x", "cache_dir", "/x"),
        ("TIERCEL_LOG", "INFO", "log", "info"),
    ],
)
def test_environment_values(environment, variable, text, name, expected):
    environment(**{variable: text})
    assert getattr(config.current(), name) == expected
    if text.strip():
        row = next(r for r in config.table() if r.name == name)
        assert (row.origin, row.env) == ("environment", variable)


def test_the_first_of_two_spellings_counts(environment):
    environment(TIERCEL_NUM_THREADS="2", TIERCEL_THREADS="3")
    assert config.current().threads == 2


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        ("TIERCEL_NUM_THREADS", "two", "TIERCEL_NUM_THREADS='two' is ignored: it accepts an integer from 1"),
        ("TIERCEL_NUM_THREADS", "9" * 5000, "is ignored"),
        ("TIERCEL_LEVEL", "O9", "using O2"),
        ("TIERCEL_CACHE_SIZE", "-5", "using 512 MiB"),
        ("TIERCEL_CACHE_SIZE", "9" * 400, "is ignored"),
        ("TIERCEL_HOT_TIME_MS", "nan", "is ignored"),
        ("TIERCEL_LEVLE", "O0", "no such setting; did you mean 'TIERCEL_LEVEL'"),
    ],
)
def test_bad_environment_values_warn_once_and_the_default_counts(environment, variable, text, message):
    with pytest.warns(TiercelWarning, match=message) as caught:
        environment(**{variable: text})
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert {row.origin for row in config.table()} == {"default"}
        config.set_context(hot_count=3)


def test_a_warning_that_is_an_error_leaves_the_settings_usable(environment):
    with pytest.raises(TiercelWarning):
        environment(TIERCEL_LEVEL="O9", TIERCEL_HOT_COUNT="7")
    assert (config.current().level, config.current().hot_count) == ("O2", 7)


def test_variables_of_the_test_suite_are_no_settings(environment):
    environment(TIERCEL_TEST_ANYTHING="1", TIERCEL_BENCH_SIZE="3")
    config.current()


def test_reload_keeps_what_was_set(environment):
    config.set_context(hot_count=9)
    environment(TIERCEL_HOT_COUNT="7", TIERCEL_DEBUG="1")
    assert (config.current().hot_count, config.current().debug) == (9, 1)


def run_python(code, **variables):
    env = {**os.environ, **variables}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)


def test_import_reads_no_environment_and_is_light():
    code = (
        "import sys, tiercel.config as c\n"
        "heavy = {'rich', 'llvmlite', 'asyncio', 'torch'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "print('imported'); c.current(); print('read')"
    )
    done = run_python(code, TIERCEL_LEVEL="O9")
    assert done.stdout.split() == ["imported", "read"]
    assert done.stderr.count("TiercelWarning: environment variable TIERCEL_LEVEL='O9' is ignored") == 1
    assert 'File "' not in done.stderr
    assert done.stderr.startswith("<string>:4:"), done.stderr


# --- For people ---


def test_show_prints_every_setting_with_value_and_origin(environment):
    environment(TIERCEL_JIT_LEVEL="O1")
    config.set_context(strict=["copy", "python"])
    out = io.StringIO()
    with config.context(threads=2):
        config.show(out)
    lines = out.getvalue().splitlines()
    assert lines[0].split() == ["setting", "value", "from", "environment", "meaning"]
    assert [line.split()[0] for line in lines[1:]] == list(SETTINGS)
    cells = {line.split()[0]: line.split("  ") for line in lines[1:]}
    shown = {name: [c.strip() for c in row if c.strip()] for name, row in cells.items()}
    assert shown["level"][1:4] == ["O1", "environment", "TIERCEL_JIT_LEVEL"]
    assert shown["threads"][1:4] == ["2", "context", "TIERCEL_NUM_THREADS"]
    assert shown["strict"][1:3] == ["copy, python", "set_context"]
    assert shown["cache_size"][1:3] == ["512 MiB", "default"]


def test_show_goes_to_standard_output(capsys):
    config.show()
    assert "hot_count" in capsys.readouterr().out


def test_show_draws_a_table_on_a_terminal():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    out = Terminal()
    config.show(out)
    assert "─" in out.getvalue() or "━" in out.getvalue()
    assert "hot_count" in out.getvalue()


# --- Logging ---


def handlers():
    return [h for h in logging.getLogger("tiercel").handlers if not isinstance(h, logging.NullHandler)]


def test_no_handler_until_log_is_set_and_none_after(capsys):
    log = logging.getLogger("tiercel")
    assert log.level == logging.NOTSET
    assert handlers() == []
    log.error("unseen")
    config.set_context(log="info")
    config.set_context(log="info")
    assert len(handlers()) == 1
    log.info("seen %d", 1)
    logging.getLogger("tiercel.vm").warning("child")
    log.debug("too detailed")
    config.set_context(log="off")
    log.error("unseen")
    assert handlers() == []
    assert log.level == logging.NOTSET
    assert capsys.readouterr().err == "[tiercel] seen 1\n[tiercel] child\n"


def test_log_as_json_carries_fields_and_exceptions(capsys):
    config.set_context(log="debug", log_format="json")
    config.logger.info("Hot path at PC=0x%02X", 10, extra={"fields": {"pc": 10, "dtype": np.dtype("f4"), "level": "x"}})
    try:
        1 / 0
    except ZeroDivisionError:
        config.logger.exception("broken")
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert first["message"] == "Hot path at PC=0x0A"
    assert (first["level"], first["logger"], first["pc"], first["dtype"]) == ("info", "tiercel", 10, "float32")
    assert first["time"].endswith("+00:00")
    assert "ZeroDivisionError" in second["exception"]


def test_log_in_a_block_is_for_this_thread_only(capsys):
    with config.context(log="info"):
        config.logger.info("mine")
        thread = threading.Thread(target=config.logger.info, args=("theirs",))
        thread.start()
        thread.join()
        with config.context(log="error"):
            config.logger.info("quiet")
        config.logger.info("mine again")
    config.logger.info("after")
    assert capsys.readouterr().err == "[tiercel] mine\n[tiercel] mine again\n"
    assert handlers() == []


def test_a_users_own_level_is_kept():
    log = logging.getLogger("tiercel")
    log.setLevel(logging.DEBUG)
    try:
        with config.context(log="error"):
            assert log.level == logging.DEBUG
        assert log.level == logging.DEBUG
    finally:
        log.setLevel(logging.NOTSET)


def test_a_broken_record_does_not_break_the_program(capsys, monkeypatch):
    monkeypatch.setattr(logging, "raiseExceptions", False)
    config.set_context(log="info")
    config.logger.info("%d", "no number")
    config.logger.info("goes on")
    assert capsys.readouterr().err == "[tiercel] goes on\n"

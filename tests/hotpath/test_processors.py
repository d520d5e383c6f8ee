"""How many threads, and why not more."""

from __future__ import annotations

import os

import pytest

from tiercel import config
from tiercel.hotpath.processors import RESTED_DUTY, available_threads, cpu_quota, thread_limits, worker_duty


def system(root, cgroup="0::/user/app\n", **files):
    """A file system with these control group files."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(cgroup)
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, None),
        ({"user__app__cpu_dot_max": "max 100000"}, None),
        ({"user__app__cpu_dot_max": "150000 100000"}, 1.5),
        ({"user__app__cpu_dot_max": "max 100000", "user__cpu_dot_max": "50000 100000"}, 0.5),  # a group above
        ({"user__app__cpu_dot_max": "400000 100000", "user__cpu_dot_max": "200000 100000"}, 2.0),
        ({"cpu_dot_max": "100000 100000"}, 1.0),  # in a container: the group is the root
        ({"user__app__cpu_dot_max": "garbage"}, None),
    ],
)
def test_quota_version_2(tmp_path, files, quota):
    assert cpu_quota(system(tmp_path, **files)) == quota


def test_quota_version_1(tmp_path):
    lines = "5:memory:/app\n4:cpu,cpuacct:/app\n"
    made = system(
        tmp_path,
        lines,
        **{"cpu,cpuacct__app__cpu.cfs_quota_us": "25000", "cpu,cpuacct__app__cpu.cfs_period_us": "100000"},
    )
    assert cpu_quota(made) == 0.25


def test_no_limit_in_version_1(tmp_path):
    files = {"cpu__cpu.cfs_quota_us": "-1", "cpu__cpu.cfs_period_us": "100000"}
    assert cpu_quota(system(tmp_path, "4:cpu:/\n", **files)) is None


def test_the_strictest_limit_counts(tmp_path):
    root = system(tmp_path, user__app__cpu_dot_max="50000 100000")
    cores = len(os.sched_getaffinity(0))
    assert thread_limits({}, tmp_path / "nowhere")[0].threads == cores
    found = available_threads({}, root)
    assert (found.threads, found.reason) == (1, "a quota of 0.50 cores (control group)")
    found = available_threads({"OMP_NUM_THREADS": "1,4"}, tmp_path / "nowhere")
    if cores > 1:
        assert (found.threads, found.reason) == (1, "OMP_NUM_THREADS=1")
    for nonsense in ("", "0", "many", "-3"):
        assert available_threads({"OMP_NUM_THREADS": nonsense}, tmp_path / "nowhere").threads == cores


def test_affinity_limits():
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert available_threads({}).threads == 1
    finally:
        os.sched_setaffinity(0, before)


def test_the_setting_counts_alone():
    with config.context(threads=7):
        assert [(limit.threads, limit.reason) for limit in thread_limits()] == [(7, "the setting threads")]


def test_the_worker_rests_where_a_core_is_shared(tmp_path):
    assert worker_duty(system(tmp_path, user__app__cpu_dot_max="100000 100000")) == RESTED_DUTY
    assert worker_duty(system(tmp_path / "two", user__app__cpu_dot_max="200000 100000")) == 1.0

"""Kernels on disk: found again, never believed when damaged, never in the way of the program."""

from __future__ import annotations

import errno
import multiprocessing
import os
import resource
import tempfile
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiercel.hotpath import cache as module
from tiercel.hotpath.cache import Entry, KernelCache, environment_key, find_place, kernel_key

KEY, OTHER = kernel_key(b"one"), kernel_key(b"two")


@pytest.fixture
def said():
    return []


@pytest.fixture
def cache(tmp_path, said):
    return KernelCache(str(tmp_path / "cache"), 1 << 20, said.append)


def path_of(cache, key=KEY):
    return cache._path(key)


def test_what_is_put_is_found_by_another_process(cache):
    assert cache.place == "disk"
    assert cache.get(KEY) is None
    assert cache.put(KEY, {"name": "f", "times": [1.5]}, b"code")
    again = KernelCache(str(cache.folder.parent), 1 << 20)
    assert again.get(KEY) == Entry({"name": "f", "times": [1.5]}, b"code")
    assert again.get(OTHER) is None
    assert (again.stats()["hits"], again.stats()["misses"], again.stats()["entries"]) == (1, 1, 1)


def test_list_and_clear(cache):
    cache.put(KEY, {"name": "f"}, b"x" * 100)
    path_of(cache, OTHER).parent.mkdir(exist_ok=True)
    path_of(cache, OTHER).write_bytes(b"no entry")
    shown = {info.key: info.data for info in cache.list()}
    assert shown == {KEY.hex(): {"name": "f"}, OTHER.hex(): None}
    assert cache.clear() == 2
    assert cache.list() == []
    assert cache.get(KEY) is None


def test_files_are_for_the_user_only(cache):
    cache.put(KEY, {}, b"code")
    for path in (cache.folder, path_of(cache).parent, path_of(cache)):
        assert path.stat().st_mode & 0o077 == 0


@given(data=st.data())
def test_damaged_entries_are_dropped_and_rebuilt(tmp_path_factory, data):
    said = []
    cache = KernelCache(str(tmp_path_factory.mktemp("cache")), 1 << 20, said.append)
    cache.put(KEY, {"name": "f"}, b"machine code")
    raw = bytearray(path_of(cache).read_bytes())
    if data.draw(st.booleans()):
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del raw[data.draw(st.integers(0, len(raw) - 1)) :]
    path_of(cache).write_bytes(bytes(raw))
    assert cache.get(KEY) is None
    assert not path_of(cache).exists()
    assert len(said) == 1
    assert cache.put(KEY, {"name": "f"}, b"machine code")
    assert cache.get(KEY).blob == b"machine code"


def test_an_entry_under_a_wrong_name_is_foreign(cache):
    cache.put(KEY, {}, b"code")
    path_of(cache, OTHER).parent.mkdir(exist_ok=True)
    path_of(cache, OTHER).write_bytes(path_of(cache).read_bytes())
    assert cache.get(OTHER) is None
    assert cache.get(KEY) is not None


def test_the_least_recently_used_go(tmp_path):
    cache = KernelCache(str(tmp_path), 50_000)
    keys = [kernel_key(bytes([i])) for i in range(10)]
    for age, key in enumerate(keys[:4]):
        cache.put(key, {}, bytes(10_000))
        os.utime(path_of(cache, key), (time.time() - 1000 + age,) * 2)
    assert cache.get(keys[0]) is not None  # used: now the newest
    for key in keys[4:]:
        cache.put(key, {}, bytes(10_000))
    stats = cache.stats()
    assert stats["bytes"] <= 50_000
    assert stats["evicted"] == 10 - stats["entries"]
    assert cache.get(keys[1]) is None
    assert cache.get(keys[9]) is not None
    assert not cache.put(OTHER, {}, bytes(60_000))  # larger than all that may be kept


# ---- places that are no good -----------------------------------------------------------------------------------------


def test_a_folder_open_to_others_is_not_used(tmp_path, said):
    folder = tmp_path / "cache" / module._FOLDER
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    cache = KernelCache(str(tmp_path / "cache"), 1 << 20, said.append)
    assert cache.place == "temporary"
    assert "0700 is needed" in said[0]
    assert cache.put(KEY, {}, b"code")
    assert cache.get(KEY).blob == b"code"
    assert list(folder.iterdir()) == []


def test_a_folder_that_others_may_replace_is_not_used(tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    assert find_place(str(tmp_path / "cache"))[1] == "temporary"
    (tmp_path / "cache").chmod(0o1777)  # as /tmp: nobody can replace what is mine
    assert find_place(str(tmp_path / "cache"))[1] == "disk"


def test_a_link_is_no_folder(tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / module._FOLDER).symlink_to(tmp_path / "real")
    assert find_place(str(tmp_path))[1] == "temporary"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_the_folder_of_somebody_else_is_not_used(tmp_path):
    folder = tmp_path / module._FOLDER
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, 12345)
    _, place, reason = find_place(str(tmp_path))
    assert place == "temporary"
    assert "another user" in reason


def test_a_file_in_the_place_of_the_folder(tmp_path):
    (tmp_path / "cache").write_text("a file")
    _, place, reason = find_place(str(tmp_path / "cache"))
    assert place == "temporary"
    assert "cannot be made" in reason


def test_without_any_folder_memory_is_used(tmp_path, monkeypatch, said):
    (tmp_path / "cache").write_text("a file")

    def refuse(**options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    cache = KernelCache(str(tmp_path / "cache"), 1 << 20, said.append)
    assert cache.place == "memory"
    assert len(said) == 1
    assert not cache.put(KEY, {"name": "f"}, b"code")
    assert cache.get(KEY) == Entry({"name": "f"}, b"code")
    assert [info.key for info in cache.list()] == [KEY.hex()]
    cache.lock(KEY).release()
    assert cache.clear() == 1


def test_memory_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "find_place", lambda directory: (None, "memory", "as asked"))
    cache = KernelCache(None, 1000)
    for i in range(10):
        cache.put(kernel_key(bytes([i])), {}, bytes(300))
    assert cache.stats()["entries"] == 3


def test_a_folder_that_is_only_read(cache, monkeypatch, said):
    cache.put(KEY, {}, b"code")
    real = os.access
    monkeypatch.setattr(module.os, "access", lambda path, mode: mode != os.W_OK and real(path, mode))
    reader = KernelCache(str(cache.folder.parent), 1 << 20, said.append)
    assert reader.place == "read-only"
    assert reader.get(KEY).blob == b"code"
    assert not reader.put(OTHER, {}, b"more")
    assert reader.get(OTHER).blob == b"more"  # kept in memory
    assert not path_of(cache, OTHER).exists()
    reader.drop(KEY)
    assert path_of(cache).exists()
    assert len(said) == 1


def _fill(folder, queue):
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))  # as a full disk: writing fails half way
    said = []
    cache = KernelCache(folder, 1 << 20, said.append)
    first = cache.put(KEY, {}, bytes(100_000))
    second = cache.put(OTHER, {}, bytes(100_000))
    queue.put((first, second, said, cache.get(KEY).blob == bytes(100_000), len(list(cache.folder.rglob("*.*")))))


def test_a_full_disk_costs_the_cache_only(tmp_path):
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_fill, args=(str(tmp_path), queue))
    process.start()
    first, second, said, kept_in_memory, files = queue.get(timeout=60)
    process.join()
    assert (first, second, kept_in_memory, files) == (False, False, True, 0)
    assert len(said) == 1  # said once, not for each kernel
    assert "cannot be written" in said[0]


# ---- several processes -----------------------------------------------------------------------------------------------


def test_one_builds_the_others_wait(cache):
    other = KernelCache(str(cache.folder.parent), 1 << 20)
    lock = cache.lock(KEY)
    assert lock is not None
    assert other.lock(KEY) is None
    assert other.lock(OTHER) is not None
    lock.release()
    lock.release()  # twice does no harm
    again = other.lock(KEY)
    assert again is not None
    again.release()
    assert not list(cache.folder.rglob("*.lock"))


def test_a_builder_that_dies_gives_the_lock_free(cache):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        held = cache.lock(KEY)
        os.write(write, b"y" if held is not None else b"n")
        time.sleep(600)
    assert os.read(read, 1) == b"y"
    assert cache.lock(KEY) is None
    os.kill(child, 9)
    os.waitpid(child, 0)
    assert cache.lock(KEY) is not None
    os.close(read)
    os.close(write)


def test_a_forked_child_does_not_give_the_parents_lock_free(cache):
    lock = cache.lock(KEY)
    child = os.fork()
    if child == 0:
        lock.release()
        os._exit(0)
    os.waitpid(child, 0)
    assert KernelCache(str(cache.folder.parent), 1 << 20).lock(KEY) is None
    lock.release()


def _write_and_read(folder, number, queue):
    cache = KernelCache(folder, 200_000)
    wrong = 0
    for i in range(60):
        key = kernel_key(bytes([i % 12]))
        entry = cache.get(key)
        if entry is not None and (entry.data != {"i": i % 12} or entry.blob != bytes([i % 12]) * 5000):
            wrong += 1
        cache.put(key, {"i": i % 12}, bytes([i % 12]) * 5000)
    queue.put((number, wrong, cache.stats()["dropped"]))


def test_processes_write_the_same_folder_at_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    processes = [context.Process(target=_write_and_read, args=(str(tmp_path), n, queue)) for n in range(3)]
    for process in processes:
        process.start()
    results = sorted(queue.get(timeout=120) for _ in processes)
    for process in processes:
        process.join()
    assert results == [(0, 0, 0), (1, 0, 0), (2, 0, 0)]


def test_what_dead_processes_left_is_cleared(cache):
    cache.put(KEY, {}, b"code")
    old = path_of(cache).with_suffix(".123.part")
    fresh = path_of(cache).with_suffix(".124.part")
    for path in (old, fresh):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 7200,) * 2)
    KernelCache(str(cache.folder.parent), 1 << 20).put(OTHER, {}, b"code")
    assert not old.exists()
    assert fresh.exists()


# ---- keys ------------------------------------------------------------------------------------------------------------


def test_keys_depend_on_every_part():
    keys = {kernel_key(b"ab", b"c"), kernel_key(b"a", b"bc"), kernel_key(b"abc"), kernel_key(b"abc", b"")}
    assert len(keys) == 4
    assert kernel_key(b"x") == kernel_key(b"x")


@pytest.mark.parametrize("part", ["_processor", "_compiler_source"])
def test_keys_depend_on_processor_and_compiler(monkeypatch, part):
    before = environment_key.__wrapped__()
    monkeypatch.setattr(module, part, lambda: ["another"])
    assert environment_key.__wrapped__() != before


def test_a_changed_compiler_is_noticed():
    listed = module._compiler_source()
    assert any(line.startswith("cpu/emit.py ") for line in listed)

"""What is kept on disk: whole or not at all, shared by processes, ignored where damaged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest

from tests.tuner.surfaces import TARGET, product
from tiercel.tuner.predictor import MAX_ROWS, Row
from tiercel.tuner.space import points
from tiercel.tuner.store import Store


def rows(count, n=64):
    made = product(1, n, 256)
    point = points(product(64, n, 256), TARGET)[0]
    return [Row(made._replace(m=m), point, 10.0 * m) for m in range(1, count + 1)]


WINNER = {"choice": [4, "broad", [[None, "even", "rows", 1, 0]]], "gain": 1.1}


@pytest.fixture
def said():
    return []


def test_what_was_added_is_there_for_the_next_process(tmp_path, said):
    Store(tmp_path, "key", said.append).add(rows(3), {"a": WINNER})
    Store(tmp_path, "key", said.append).add(rows(2, 128), {"b": WINNER})
    again = Store(tmp_path, "key", said.append)
    assert again.rows() == rows(3) + rows(2, 128)
    assert again.winners() == {"a": WINNER, "b": WINNER}
    assert said == []
    assert not list(tmp_path.glob("*.part"))
    assert all(os.stat(p).st_mode & 0o077 == 0 for p in tmp_path.iterdir())


def test_another_machine_has_its_own(tmp_path):
    Store(tmp_path, "one").add(rows(3), {"a": WINNER})
    assert Store(tmp_path, "two").rows() == []
    assert Store(tmp_path, "two").winners() == {}


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b"[]", b"\xff\xfe\x00", b'{"format": 99}', b'{"format": 1}',
     b'{"format": 1, "rows": [[1]], "winners": [3]}',
     b'{"format": 1, "rows": 5, "winners": {"a": 7}}'],
)  # fmt: skip
def test_damaged_files_count_as_empty_are_said_once_and_replaced(tmp_path, said, damage):
    Store(tmp_path, "key").add(rows(3), {"a": WINNER})
    for name in ("tuning-key.json", "tuned-key.json"):
        (tmp_path / name).write_bytes(damage)
    store = Store(tmp_path, "key", said.append)
    assert store.rows() == []
    assert store.winners() == {}
    store.rows()
    store.winners()
    assert len(said) == 2
    assert all("tun" in message for message in said)
    store.add(rows(1), {"b": WINNER})
    assert Store(tmp_path, "key").rows() == rows(1)
    assert Store(tmp_path, "key").winners() == {"b": WINNER}


def test_a_cut_off_file_is_found_out(tmp_path, said):
    Store(tmp_path, "key").add(rows(20), {})
    path = tmp_path / "tuning-key.json"
    path.write_bytes(path.read_bytes()[:-10])
    assert Store(tmp_path, "key", said.append).rows() == []
    assert said


def test_a_folder_that_cannot_be_written_is_said_and_costs_nothing_else(tmp_path, said):
    (tmp_path / "tuning-key.json").mkdir()
    store = Store(tmp_path, "key", said.append)
    assert store.rows() == []
    assert not store.add(rows(1), {"a": WINNER})
    assert store.winners() == {"a": WINNER}  # the other file
    assert any("cannot be written" in message for message in said)


def test_memory_where_there_is_no_folder():
    store = Store(None, "key")
    assert not store.add(rows(2), {"a": WINNER})
    assert store.rows() == rows(2)
    assert store.winners() == {"a": WINNER}


def test_rows_are_bounded(tmp_path):
    store = Store(tmp_path, "key")
    store.add(rows(MAX_ROWS + 10), {})
    assert len(store.rows()) == MAX_ROWS
    assert store.rows()[-1] == rows(MAX_ROWS + 10)[-1]


def test_processes_that_write_at_a_time_lose_nothing(tmp_path):
    program = textwrap.dedent("""
        import sys
        from pathlib import Path
        from tests.tuner.test_store import WINNER, rows
        from tiercel.tuner.store import Store
        store = Store(Path(sys.argv[1]), "key")
        for i in range(8):
            store.add(rows(1, 64 * int(sys.argv[2]) + i), {f"{sys.argv[2]}-{i}": WINNER})
    """)
    running = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path), str(i)]) for i in range(1, 4)]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    store = Store(tmp_path, "key")
    assert len(store.rows()) == 24
    assert len(store.winners()) == 24
    json.loads((tmp_path / "tuned-key.json").read_text())

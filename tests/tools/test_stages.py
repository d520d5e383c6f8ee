"""`tiercel stages`: each form of a function, and what cannot be shown."""

from __future__ import annotations

import pytest

from tiercel.tools.cli import main

SOURCE = """
import numpy as np

def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)

def prints(x):
    print(x)
    return x
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "forms.py"
    path.write_text(SOURCE)
    return path


def test_every_form_is_printed(script, capsys):
    assert main(["stages", f"{script}:softmax", "float32[4, 8]"]) == 0
    out = capsys.readouterr().out
    for expected in ("CallOp", "==== region graph", "fold max= ", "define i64 @softmax(", "==== assembly"):
        assert expected in out, expected


def test_one_form_alone(script, capsys):
    assert main(["stages", f"{script}:softmax", "float32[4, 8]", "--only", "loops"]) == 0
    out = capsys.readouterr().out
    assert "for i in range(x_0):  # parallel" in out
    assert "CallOp" not in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{}:softmax"], "takes 1 arguments, 0 are described"),
        (["{}:softmax", "many"], "describes no argument"),
        (["{}:prints", "float32[3]"], "stays interpreted"),
        (["{}:absent", "1"], "absent"),
        (["softmax"], "names no function"),
    ],
)
def test_what_cannot_be_shown_is_one_line(script, capsys, words, message):
    assert main(["stages", *(w.format(script) for w in words)]) == 1
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err

from __future__ import annotations

import copy
import linecache
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest

from tiercel import errors
from tiercel.errors import (
    BytecodeError,
    CaptureError,
    ConfigError,
    DTypeError,
    InternalError,
    ShapeError,
    StrictError,
    TiercelError,
    TiercelPerformanceWarning,
    TiercelWarning,
    UnknownSettingError,
    annotate,
    source_excerpt,
    source_location,
    suggest,
    warn_user,
)

EXAMPLES = [
    TiercelError("plain"),
    ShapeError("expected 3, got 4"),
    DTypeError("no such dtype"),
    BytecodeError(
        "jump leaves the function", section="code", offset=0x1A, neighbourhood=["0x16 LoadConst", "0x1A Jump"]
    ),
    BytecodeError("truncated"),
    CaptureError("yield is not supported", filename="missing.py", line=3, col=4, end_col=9),
    ConfigError("threads accepts an integer", setting="threads"),
    UnknownSettingError("there is no setting 'levle'", setting="levle"),
    StrictError("runs as Python", kind="python", filename="a.py", line=7),
    InternalError("register 4 is undefined", stage="verify"),
]


@pytest.mark.parametrize(
    ("cls", "builtin"),
    [
        (ShapeError, ValueError),
        (DTypeError, TypeError),
        (BytecodeError, ValueError),
        (CaptureError, NotImplementedError),
        (ConfigError, ValueError),
        (UnknownSettingError, AttributeError),
        (StrictError, RuntimeError),
    ],
)
def test_errors_are_tiercel_errors_and_the_nearest_builtin(cls, builtin):
    assert issubclass(cls, TiercelError)
    assert issubclass(cls, builtin)


def test_internal_error_is_no_tiercel_error():
    assert not issubclass(InternalError, TiercelError)
    assert issubclass(InternalError, RuntimeError)
    text = str(InternalError("register 4 is undefined", stage="verify"))
    assert "register 4 is undefined (stage: verify)" in text
    assert "bug in Tiercel" in text
    assert "tiercel doctor" in text


def test_warnings_form_a_family():
    assert issubclass(TiercelPerformanceWarning, TiercelWarning)
    assert issubclass(TiercelWarning, UserWarning)


def test_every_class_is_in_the_drawing_and_exported():
    classes = [
        c
        for c in vars(errors).values()
        if isinstance(c, type) and issubclass(c, BaseException) and c.__module__ == "tiercel.errors"
    ]
    assert len(classes) >= 11
    for cls in classes:
        assert cls.__name__ in errors.__doc__
        assert cls.__name__ in errors.__all__


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))])
def test_errors_survive_pickle_and_copy(error, clone):
    annotated = copy.copy(error)
    annotated.add_note("in MatMul")
    twin = clone(annotated)
    assert type(twin) is type(error)
    assert twin.args == error.args
    assert str(twin) == str(error)
    assert vars(twin) == vars(annotated)
    assert twin.__notes__ == ["in MatMul"]


def test_bytecode_error_tells_section_offset_reason_and_neighbourhood():
    assert str(EXAMPLES[3]) == (
        "section code, offset 0x1A: jump leaves the function\n    0x16 LoadConst\n    0x1A Jump"
    )
    assert str(BytecodeError("bad magic", offset=0)) == "offset 0x00: bad magic"
    assert str(BytecodeError("truncated")) == "truncated"


def source(tmp_path, text):
    path = tmp_path / "user.py"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_capture_error_shows_the_line_and_a_caret(tmp_path):
    path = source(tmp_path, "def f():\n    return (yield 1)\n")
    error = CaptureError("yield is not supported", filename=path, line=2, col=12, end_col=19)
    assert str(error) == (
        "yield is not supported\n"
        f'  File "{path}", line 2\n'
        "    return (yield 1)\n"
        "            ^^^^^^^"
    )  # fmt: skip
    assert str(CaptureError("no source")) == "no source"


@pytest.mark.parametrize(
    ("line", "col", "end_col", "expected"),
    [
        ("    y = x @ w", 8, 13, "    y = x @ w\n        ^^^^^"),
        ("    y = x @ w", 8, None, "    y = x @ w\n        ^"),
        ("    y = x @ w", 8, 8, "    y = x @ w\n        ^"),
        ("    y = x @ w", None, None, "    y = x @ w"),
        ("y = x @ w", 0, 99, "    y = x @ w\n    ^^^^^^^^^"),
        ("y = x @ w", 99, 100, "    y = x @ w\n            ^"),
        ("    y = x @ w", -5, 2, "    y = x @ w\n    ^"),
        # Columns count UTF-8 bytes; carets stand below characters, wide ones under both of their cells.
        ("größe = x @ w", 10, 15, "    größe = x @ w\n            ^^^^^"),
        ("'日本' + x", 0, 8, "    '日本' + x\n    ^^^^^^"),
        ("'日本' + x", 11, 12, "    '日本' + x\n             ^"),
        ("a =\tx + y", 4, 9, "    a =\tx + y\n       \t^^^^^"),
        ("e\u0301 = x", 6, 7, "    e\u0301 = x\n        ^"),
    ],
)
def test_source_excerpt_marks_the_columns(tmp_path, line, col, end_col, expected):
    assert source_excerpt(source(tmp_path, f"first\n{line}\nlast\n"), 2, col, end_col) == expected


@pytest.mark.parametrize(("filename", "line"), [("no such file", 1), ("<string>", 3), (__file__, 10**6), (__file__, 0)])
def test_source_excerpt_without_source_is_empty(filename, line):
    assert source_excerpt(filename, line, 0, 1) == ""
    assert source_location(filename, line, 0, 1) == f'  File "{filename}", line {line}'


def test_source_excerpt_of_an_empty_line_is_empty(tmp_path):
    assert source_excerpt(source(tmp_path, "a\n   \nb\n"), 2, 1, 2) == ""


def test_source_excerpt_clips_long_lines_around_the_mark(tmp_path):
    line = "x = " + " + ".join(f"name_{i}" for i in range(200))
    start = line.index("name_150")
    shown, carets = source_excerpt(source(tmp_path, line + "\n"), 1, start, start + 8).split("\n")
    assert len(shown) < 140
    assert shown.startswith("    ...")
    assert shown.endswith("...")
    assert shown[carets.index("^") : carets.rindex("^") + 1] == "name_150"


def test_source_excerpt_reads_notebook_cells():
    linecache.cache["<cell 1>"] = (6, None, ["y = x\n"], "<cell 1>")
    try:
        assert source_excerpt("<cell 1>", 1, 4, 5) == "    y = x\n        ^"
    finally:
        del linecache.cache["<cell 1>"]


def test_annotate_adds_each_note_once():
    error = ValueError("shapes (2,3) and (4,5) not aligned")
    assert annotate(error, "in MatMul") is error
    annotate(error, "in MatMul")
    annotate(error, "x: [?, 3]")
    assert error.__notes__ == ["in MatMul", "x: [?, 3]"]


def test_annotate_never_replaces_the_error():
    error = ValueError("with odd notes")
    error.__notes__ = "a string"
    assert annotate(error, "note") is error
    assert error.__notes__ == "a string"


def test_annotate_keeps_numpys_exception():
    with pytest.raises(np.exceptions.AxisError) as caught:
        np.sum(np.zeros(2), axis=3)
    assert annotate(caught.value, "in Sum").__notes__ == ["in Sum"]


def test_suggest():
    assert suggest("thread", ["threads", "level"]) == "; did you mean 'threads'?"
    assert suggest("THREAD", ["threads", "level"]) == "; did you mean 'threads'?"
    assert suggest("mvoe", ["Move", "LoadConst"]) == "; did you mean 'Move'?"
    assert suggest("zzz", ["threads", "level"]) == ""


def test_warn_user_points_at_the_first_line_that_is_not_ours():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_user("slow", TiercelPerformanceWarning)  # this line
    (warning,) = caught
    assert warning.category is TiercelPerformanceWarning
    assert warning.filename == __file__
    assert "# this line" in linecache.getline(__file__, warning.lineno)


def test_warn_user_skips_our_frames_and_generated_functions(tmp_path):
    namespace = {"warn_user": warn_user}
    exec(compile("def f():\n    warn_user('x')\n", "<tiercel f>", "exec"), namespace)
    with pytest.warns(TiercelWarning) as caught:
        namespace["f"]()
    assert caught[0].filename == __file__


def test_warn_user_without_a_users_frame_still_warns():
    # Compiled as if it were ours: every frame of the process is then skipped.
    program = (
        "import tiercel.errors as e\n"
        "exec(compile(\"e.warn_user('all ours')\", '<tiercel x>', 'exec'))\n"
    )  # fmt: skip
    code = f"exec(compile({program!r}, '<tiercel main>', 'exec'))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "TiercelWarning: all ours" in run.stderr

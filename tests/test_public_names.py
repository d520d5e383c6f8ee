"""The public names: what is listed is there, what is there is listed, and importing costs next to nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tiercel as tc

PROMISED = [
    "jit",
    "compile",
    "wait",
    "dump",
    "load",
    "set_context",
    "get_context",
    "context",
    "config",
    "Tensor",
    "Parameter",
    "Ragged",
    "ragged",
    "constant",
    "spec",
    "dim",
    "from_dlpack",
    "nn",
    "ops",
    "Policy",
    "testing",
    "freeze",
    "metrics",
    "memory_stats",
    "release_memory",
    "shutdown",
    "grad",
    "value_and_grad",
    "vmap",
    "float16",
    "float32",
    "float64",
    "bfloat16",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool_",
    "complex64",
    "complex128",
    "TiercelError",
    "ShapeError",
    "DTypeError",
    "BytecodeError",
    "CaptureError",
    "InternalError",
    "TiercelPerformanceWarning",
]


def test_promised_names_are_there():
    for name in PROMISED:
        assert getattr(tc, name) is not None
        assert name in tc.__all__
        assert name in dir(tc)


def test_listed_names_are_there():
    assert sorted(set(tc.__all__)) == sorted(tc.__all__)
    for name in tc.__all__:
        getattr(tc, name)


def test_table_and_list_agree():
    assert {*tc._MODULE_OF, "__version__"} == set(tc.__all__)


def test_unknown_name_is_refused_with_a_suggestion():
    with pytest.raises(AttributeError, match="'jitt'; did you mean 'jit'"):
        tc.jitt


def test_import_is_light():
    code = (
        "import sys, tiercel; heavy = {'llvmlite', 'rich', 'numpy', 'torch', 'tiercel.operators'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_jit_never_imports_the_compiler():
    code = (
        "import sys, tiercel as tc; f = tc.jit(lambda x: x + 1); f(1); "
        "assert not {'llvmlite', 'rich', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=60)

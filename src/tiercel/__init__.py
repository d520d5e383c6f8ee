"""Tiercel: a bytecode virtual machine with a profile-guided compiler for NumPy programs whose shapes change.

`import tiercel as tc`, decorate a function of plain NumPy code with `@tc.jit`, call it. Every public name is listed in
`_WHERE` and imported when it is first used, so importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from tiercel._version import __version__

if TYPE_CHECKING:
    from tiercel import bytecode, config, dtypes, errors, nn, operators, ops, shapes, testing
    from tiercel.api import (
        Report,
        compile,
        dump,
        freeze,
        grad,
        jit,
        load,
        memory_stats,
        metrics,
        release_memory,
        shutdown,
        value_and_grad,
        vmap,
        wait,
    )
    from tiercel.config import Policy, context, get_context, set_context
    from tiercel.dtypes import (
        DType,
        bfloat16,
        bool_,
        complex64,
        complex128,
        float16,
        float32,
        float64,
        int8,
        int16,
        int32,
        int64,
        uint8,
        uint16,
        uint32,
        uint64,
    )
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
    )
    from tiercel.values import Parameter, Ragged, Tensor, constant, dim, from_dlpack, ragged, spec

# Module -> the public names it gives; "" is a submodule itself.
_WHERE: Final[dict[str, str]] = {
    "": "bytecode config dtypes errors nn operators ops shapes testing",
    "api": (
        "Report compile dump freeze grad jit load memory_stats metrics release_memory shutdown value_and_grad vmap wait"
    ),
    "config": "Policy context get_context set_context",
    "dtypes": (
        "DType bfloat16 bool_ complex64 complex128 float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 "
        "uint64"
    ),
    "errors": (
        "BytecodeError CaptureError ConfigError DTypeError InternalError ShapeError StrictError TiercelError "
        "TiercelPerformanceWarning TiercelWarning UnknownSettingError"
    ),
    "values": "Parameter Ragged Tensor constant dim from_dlpack ragged spec",
}
_MODULE_OF: Final[dict[str, str]] = {name: module for module, names in _WHERE.items() for name in names.split()}

__all__ = [
    "BytecodeError",
    "CaptureError",
    "ConfigError",
    "DType",
    "DTypeError",
    "InternalError",
    "Parameter",
    "Policy",
    "Ragged",
    "Report",
    "ShapeError",
    "StrictError",
    "Tensor",
    "TiercelError",
    "TiercelPerformanceWarning",
    "TiercelWarning",
    "UnknownSettingError",
    "__version__",
    "bfloat16",
    "bool_",
    "bytecode",
    "compile",
    "complex64",
    "complex128",
    "config",
    "constant",
    "context",
    "dim",
    "dtypes",
    "dump",
    "errors",
    "float16",
    "float32",
    "float64",
    "freeze",
    "from_dlpack",
    "get_context",
    "grad",
    "int8",
    "int16",
    "int32",
    "int64",
    "jit",
    "load",
    "memory_stats",
    "metrics",
    "nn",
    "operators",
    "ops",
    "ragged",
    "release_memory",
    "set_context",
    "shapes",
    "shutdown",
    "spec",
    "testing",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "value_and_grad",
    "vmap",
    "wait",
]


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        from tiercel.errors import suggest

        raise AttributeError(f"module 'tiercel' has no attribute {name!r}{suggest(name, list(_MODULE_OF))}")
    if not module:
        return importlib.import_module(f"tiercel.{name}")
    value = getattr(importlib.import_module(f"tiercel.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

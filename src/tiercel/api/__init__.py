"""What users call: the decorator, files of programs, and the switches of the process.

A jitted function is a plain function (`wrapper`) in front of its state (`function`), which has its source captured
(`captures`), runs it on the interpreter and says what happened (`report`, `notes`).
"""

from tiercel.api.decorator import compile, jit
from tiercel.api.files import dump, load
from tiercel.api.function import JitFunction, is_jitted, state_of
from tiercel.api.process import freeze, memory_stats, metrics, release_memory, shutdown, wait
from tiercel.api.report import Report
from tiercel.api.reserved import NotAvailableError, grad, value_and_grad, vmap

__all__ = [
    "JitFunction",
    "NotAvailableError",
    "Report",
    "compile",
    "dump",
    "freeze",
    "grad",
    "is_jitted",
    "jit",
    "load",
    "memory_stats",
    "metrics",
    "release_memory",
    "shutdown",
    "state_of",
    "value_and_grad",
    "vmap",
    "wait",
]

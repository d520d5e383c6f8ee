"""The evaluator: runs bytecode, and nothing else.

`decode` makes a table of Python functions of one function of a program, `run` runs it. What surrounds the interpreter
speaks to it through `Hooks` only.
"""

from tiercel.interp.bind import binder
from tiercel.interp.decode import Counters, Decoded, Environment, LoopCounters, decode
from tiercel.interp.hooks import NO_HOOKS, Callee, Hooks
from tiercel.interp.layout import CALL, LEAVE, RETURN
from tiercel.interp.locate import Place, locate, places
from tiercel.interp.run import run, run_prepared
from tiercel.interp.tracebacks import block_of, hide, trim, trim_error

__all__ = [
    "CALL",
    "LEAVE",
    "NO_HOOKS",
    "RETURN",
    "Callee",
    "Counters",
    "Decoded",
    "Environment",
    "Hooks",
    "LoopCounters",
    "Place",
    "binder",
    "block_of",
    "decode",
    "hide",
    "locate",
    "places",
    "run",
    "run_prepared",
    "trim",
    "trim_error",
]

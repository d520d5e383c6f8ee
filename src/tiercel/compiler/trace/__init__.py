"""Generic bytecode to a region graph for one Signature: typing and graph building in one walk.

In: a bytecode `Function`, its `Environment`, and the types of its arguments. Out: a `Region` that computes what the
function returns, or `Untraceable` with the reason and the instruction where it stops.

The walk follows the structured control flow with abstract values in the registers:

* instructions on arrays and numbers become nodes, typed by the operator table; Python structure (tuples, lists, slices,
  ranges, known objects) is followed without leaving a trace;
* a branch whose condition is known follows one arm; else both arms are walked and what differs is merged;
* a loop is walked until the types of what it carries no longer change (a size or number that differs widens once);
* a call of a Python function that may be traced through is walked in place; a raise becomes a guard.

The walk of one function is one object, `walk.Frame`, built up from one class per subject; each module imports those
before it in this order: state, objects, layouts, core, writes, operators, views, scalars, calls, branches, sharing,
loops, instructions, walk, arguments, region, loop_region (some passes of one loop instead of a function).

Invariants: writes are new values, and what they leave in arguments is said at the end of the region, where it is
written after everything else; a result that may share memory with an argument or another result is refused unless it
surely is that very array or a view of it; whatever the walk assumes about globals, cells and attributes is among the
conditions of the environment.
"""

from __future__ import annotations

from tiercel.compiler.abstract import Untraceable
from tiercel.compiler.trace.objects import unwrapped
from tiercel.compiler.trace.region import trace_region

__all__ = ["Untraceable", "trace_region", "unwrapped"]

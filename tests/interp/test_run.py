"""Whole functions on the interpreter: the same values, events, exceptions, tracebacks and carets as CPython."""

from __future__ import annotations

import numpy as np
import pytest

from tests.interp import functions as f
from tests.interp.harness import compare

CASES = [
    (f.handled, [(0,), (3,), ("s",)]),
    (f.handled_name, [(0,), (5,), (None,)]),
    (f.finally_runs, [(0, []), (1, [])]),
    (f.return_in_finally, [(0,), (2,)]),
    (f.nested_handlers, [(0, []), (1, [])]),
    (f.implicit_context, [(0,), (1,)]),
    (f.raise_from, [(0,)]),
    (f.reraise, [(0,), (1,)]),
    (f.reraise_named, [(0,)]),
    (f.bare_raise_without_exception, [(0,)]),
    (f.exc_info_inside, [(0,), (1,)]),
    (f.formatted, [(0,)]),
    (f.loop_with_handlers, [(0,), (3,), (12,)]),
    (f.except_in_loop_escapes, [(0,), (5,)]),
    (f.second_exception_caught_outside, [(0, [])]),
    (f.wrong_except_class, [(0,), (1,)]),
    (f.catch_tuple, [(0,)]),
    (f.base_exceptions, [(ValueError,), (SystemExit,), (KeyboardInterrupt,), (GeneratorExit,)]),
    (f.handler_name_is_deleted, [(0,), (1,)]),
    (f.calls_helper, [(0,), (2,)]),
    (f.helper_in_handler, [(0,), (-1,), (2,)]),
    (f.deep_chain, [(0,), (1,)]),
    (f.wrong_arguments, [(1,)]),
    (f.wrong_keyword, [(1,)]),
    (f.missing_keyword, [(1,)]),
    (f.calls_defaults, [(1,)]),
    (f.factorial, [(1,), (20,), ("x",)]),
    (f.is_even, [(0,), (301,)]),
    (f.recursion_through_handler, [(1,), (8,)]),
    (f.unbound, [(0,), (1,)]),
    (f.unbound_in_loop, [(0,), (2,)]),
    (f.global_missing, [(1,)]),
    (f.attribute_missing, [(1,)]),
    (f.closure, [(4,)]),
    (f.late_closure, [(0,), (1,)]),
    (f.unpacking, [((1, [2, 3, 4], 5),), ((1, 2),), (7,)]),
    (f.unpack_too_few, [((1, 2),), ((1, 2, 3, 4),)]),
    (f.while_else, [(3,), (20,)]),
    (f.nested_loops, [(0,), (9,)]),
    (f.short_circuit, [(0, []), (1, [])]),
    (f.inplace_aliasing, [(np.arange(3.0),), (np.arange(6.0)[::2],)]),
    (f.augmented_item_once, [([],)]),
    (f.slices, [(np.arange(12.0).reshape(3, 4),), (np.zeros((3, 4, 2)),), (np.zeros(3),)]),
    (f.store_slices, [(np.arange(12.0).reshape(3, 4),), (np.zeros(3),)]),
    (f.comparisons, [(1, 2), (1.0, 1), ("a", "b")]),
    (f.comparisons, [(np.float32(1), 2)]),
    (f.chained, [(1, 2, 3), (3, 2, 1), (np.arange(2), 1, 2)]),
    (f.strings, [(5,), ("x",)]),
    (f.displays, [((1, 2),), ([],), (3,)]),
    (f.numpy_warning, [(np.array([0.0, -1.0, 1.0]),)]),
    (f.user_warning, [(1,)]),
    (f.generator_closed_on_break, [([],)]),
    (f.frozen_exception, [(0,), (1,)]),
    (f.context_manager, [(0, True, []), (0, False, []), (1, False, [])]),
    (f.no_context_manager, [(1,)]),
    (f.half_a_context_manager, [(1,)]),
]
ALL = [
    pytest.param(function, args, id=f"{function.__name__}-{i}")
    for function, sets in CASES
    for i, args in enumerate(sets)
]


@pytest.mark.parametrize(("function", "args"), ALL)
@pytest.mark.parametrize("mode", ["default", "warnings as errors", "errstate raise"])
def test_as_cpython(function, args, mode):
    _, found = compare(function, *args, mode=mode)
    assert not found


@pytest.mark.parametrize(("function", "args"), ALL)
def test_single_step_as_cpython(function, args):
    _, found = compare(function, *args, single_step=True)
    assert not found

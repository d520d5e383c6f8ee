"""What `capture` makes of a function: which instructions, which claims, which refusals."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import pdb
import subprocess
import sys
import traceback
import types
import warnings
from typing import Any

import numpy as np
import pytest

from tiercel import ops
from tiercel.bytecode import Instruction, Program, dumps, loads
from tiercel.errors import CaptureError
from tiercel.frontend.python import CaptureOptions, capture
from tiercel.interp import Environment, decode, run
from tiercel.shapes import parse_descriptor

LIMIT = 3


def instructions(function: Any, opcode: str | None = None, **options: Any) -> list[Instruction]:
    captured = capture(function, options=CaptureOptions(**options))
    return [i for i in captured.program.entry.instructions if opcode in (None, i.opcode)]


def opcodes(function: Any) -> list[str]:
    return [i.opcode for i in instructions(function)]


def call(function: types.FunctionType, *args: Any) -> Any:
    decoded = decode(capture(function).program, environment=Environment(function.__globals__, None))
    return run(decoded, args, function.__closure__ or ())


# ---- claims --------------------------------------------------------------------------------------------------------------


def test_operator_of_a_global() -> None:
    def f(x):
        return np.exp(x)

    (ins,) = instructions(f, "CallOp")
    assert (ins.operator, ins.via, ins.args, ins.keywords) == ("exp", "np.exp", (0,), ())


def test_operator_of_a_closure() -> None:
    module = np

    def f(x, y):
        return module.sum(x, axis=y)

    (ins,) = instructions(f, "CallOp")
    assert (ins.operator, ins.via, ins.keywords) == ("sum", "2:module.sum", ("", "axis"))


def test_operator_of_a_local_is_not_claimed() -> None:
    def f(x, np):
        return np.exp(x)

    assert not instructions(f, "CallOp")
    assert len(instructions(f, "Call")) == 1


def test_syntax() -> None:
    def f(a, b):
        a @= b
        return -(a + b) < b

    assert [i.operator for i in instructions(f, "CallOp")] == ["matmul", "add", "negative", "less"]


def test_methods_and_properties() -> None:
    def f(x):
        return x.reshape(2, -1).T.sum(axis=0)

    assert [i.operator for i in instructions(f, "CallOp")] == ["reshape", "transpose", "sum"]


def test_method_with_an_argument_that_calls_is_looked_up_first() -> None:
    def g(x):
        return x

    def f(x):
        return x.reshape(g(x))

    assert opcodes(f).index("LoadAttr") < opcodes(f).index("Call")


def test_method_of_self_is_a_call() -> None:
    def f(self, x):
        return self.sum(x), self.T

    assert not instructions(f, "CallOp")


def test_arguments_that_do_not_bind_are_told() -> None:
    def f(x, y):
        return np.add(x, y, out=x)

    captured = capture(f)
    assert "out" in captured.reasons[0].text
    assert captured.reasons[0].line == f.__code__.co_firstlineno + 1


def test_operator_classes() -> None:
    def f(x):
        return ops.Split(axis=1, output_num=4)(x), ops.Sigmoid()(x), ops.Softmax(-1)(x)

    split, sigmoid, softmax = instructions(f, "CallOp")
    assert (split.operator, split.keywords, split.via) == ("split", ("axis", "output_num", ""), "ops.Split")
    assert (sigmoid.operator, sigmoid.args) == ("sigmoid", (0,))
    assert (softmax.operator, softmax.keywords) == ("softmax", ("axis", ""))


def test_ops_functions() -> None:
    def f(x):
        return ops.stack([x, x], axis=1)

    (ins,) = instructions(f, "CallOp")
    assert (ins.operator, ins.via) == ("stack", "ops.stack")


def test_scalars() -> None:
    def f(x):
        return len(x), int(x[0]), x.shape[1], x.item(), not x, x is None

    assert [i.function for i in instructions(f, "Scalar")] == ["len", "int", "not", "is"]
    assert len(instructions(f, "Dim")) == len(instructions(f, "Item")) == 1


def test_append() -> None:
    def f(xs, x):
        out = []
        out.append(helper(x))
        xs.append(x)
        xs.append(helper(x))
        return out

    def helper(x):
        return x

    assert len(instructions(f, "Append")) == 2
    assert len(instructions(f, "LoadAttr")) == 1


def test_whole_store() -> None:
    def f(x):
        x[...] = 1
        x[:] = 2

    assert [i for i in opcodes(f) if i in ("StoreTensor", "SetItem")] == ["StoreTensor", "SetItem"]


def test_loop_form() -> None:
    def f(x):
        h = x
        for t in range(x.shape[0]):
            h = h + x[t]
        return h

    assert opcodes(f) == ["Move", "Dim", "Scalar", "Iter", "LoopStart", "Index", "CallOp", "LoopEnd", "Return"]


def test_no_tuple_for_parallel_assignment() -> None:
    def f(a, b):
        a, b = b, a
        return a

    assert not {"Build", "Unpack"} & set(opcodes(f))


def test_helpers_are_calls_and_compiled_code_is_told() -> None:
    def f(x):
        return plain(x), contextlib.nullcontext(x), sys.getsizeof(x), {}.get(x)

    captured = capture(f)
    assert len(instructions(f, "Call")) == 2  # plain and get, whose owner is not known before the call
    assert [r.text for r in captured.reasons] == [
        "contextlib.nullcontext is a class",
        "sys.getsizeof is compiled code and no operator of the table",
    ]


def plain(x):
    return x


# ---- variables -----------------------------------------------------------------------------------------------------------


def test_checks_only_where_needed() -> None:
    def certain(c):
        if c:
            x = 1
        else:
            x = 2
        for i in range(3):
            y = x + i
            x = y
        while True:
            z = x
            break
        try:
            w = z
        finally:
            x = 1
        return x, w

    def uncertain(c):
        if c:
            x = 1
        return x, x

    assert not instructions(certain, "Check")
    (check,) = instructions(uncertain, "Check")
    assert (check.kind, check.name) == ("bound", "x")
    assert opcodes(uncertain)[0] == "LoadConst"


def test_only_comprehensions_share_no_cell() -> None:
    def f(w, xs):
        return [w * x for x in xs], any(x is w for x in xs)

    assert not instructions(f, "LoadCell")
    assert opcodes(f).count("MakeFunction") == 1  # for a rebound `any`


def test_nested_functions_share_cells_and_keep_their_code() -> None:
    def f(x, y):
        def g():
            return x

        x = y
        return g

    assert [i for i in opcodes(f) if i in ("StoreCell", "LoadCell")] == ["StoreCell"]
    captured = capture(f)
    inner = call(f, 1, 2)
    assert inner.__code__ in captured.nested
    assert inner() == 2
    again = capture(inner, source=captured.nested[inner.__code__])
    assert dumps(again.program) == dumps(capture(inner).program)


def test_variable_locations() -> None:
    def f(a):
        b = a + 1
        return b

    where = capture(f).program.entry.variables_at(1)
    assert where == {"a": 0, "b": 1}


def test_variable_locations_around_a_comprehension() -> None:
    def f(xs, x):
        a = [x + 1 for x in xs]
        return a, x

    entry = capture(f).program.entry
    kinds = [i.opcode for i in entry.instructions]
    assert entry.variables_at(0)["x"] == entry.variables_at(kinds.index("Return"))["x"] == 1
    assert entry.variables_at(kinds.index("Append"))["x"] == entry.instructions[kinds.index("LoopStart")].target != 1

    def g(xs):
        return [y for y in xs], xs

    entry = capture(g).program.entry
    assert set(entry.variables_at(len(entry.instructions) - 1)) == {"xs"}


def test_parameters() -> None:
    def f(a, /, b=2, *c, d, e=(1, 2), **g):
        pass

    program = capture(f).program
    found = [
        (p.name, p.kind, None if p.default is None else program.constant(p.default)) for p in program.entry.parameters
    ]
    assert found == [
        ("a", "positional_only", None),
        ("b", "positional_or_keyword", 2),
        ("c", "var_positional", None),
        ("d", "keyword_only", None),
        ("e", "keyword_only", (1, 2)),
        ("g", "var_keyword", None),
    ]


def test_declared_tokens() -> None:
    token = parse_descriptor("float32[B, 128]")

    def f(x, n):
        return x

    program = capture(f, options=CaptureOptions(tokens={"x": token})).program
    assert program.tokens == (token,)
    assert program.entry.parameters[0].token == 0
    assert program.entry.instructions[0].opcode == "LoadParam"


# ---- meaning that changes after capture ----------------------------------------------------------------------------------


def module_of(text: str, name: str, tmp_path: Any) -> types.ModuleType:
    import importlib.util

    path = tmp_path / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_rebound_names(tmp_path: Any) -> None:
    module = module_of(
        "import numpy as np\nK = 1\ndef f(x):\n"
        "    return np.exp(x), len(x), any(v > K for v in x), sum(v * K for v in x), [K for v in x if v]\n",
        "rebound",
        tmp_path,
    )
    decoded = decode(capture(module.f).program, environment=Environment(module.__dict__, None))
    x = [0, 2]

    def both() -> tuple[str, str]:
        return repr(run(decoded, (x,))), repr(module.f(x))

    def same() -> None:
        ours, python = both()
        assert ours == python

    same()
    module.K = 5  # type: ignore[attr-defined]
    same()
    module.np = types.SimpleNamespace(exp=lambda v: "mine")  # type: ignore[attr-defined]
    same()
    module.len = lambda v: "length"  # type: ignore[attr-defined]
    same()
    module.any = list  # type: ignore[attr-defined]
    module.sum = max  # type: ignore[attr-defined]
    same()
    assert "mine" in both()[0]


def test_program_without_python(tmp_path: Any) -> None:
    def f(x, n):
        out = []
        for i in range(n):
            if i % 2:
                continue
            out.append(np.exp(x) * i)
        return out, f"{n:>3}"

    program = loads(dumps(capture(f).program))
    decoded = decode(program, environment=Environment({"np": np}, None))
    x = np.arange(3.0)
    ours, theirs = run(decoded, (x, 4)), f(x, 4)
    assert all(np.array_equal(a, b) for a, b in zip(ours[0], theirs[0], strict=True))
    assert ours[1] == theirs[1]


# ---- refusals ------------------------------------------------------------------------------------------------------------


def generator(x):
    yield x


async def coroutine(x):
    return x


async def asynchronous_generator(x):
    yield x


def asks_locals(x):
    return locals()


def asks_vars(x):
    y = vars(x)
    return vars()


def asks_dir(x):
    return dir()


def evaluates(x):
    return eval("x")


def executes(x):
    exec("y = x")


def breaks(x):
    breakpoint()


def traces(x):
    pdb.set_trace()


def has_class(x):
    class C:
        y = x

    return C


def looks_at_frames(x):
    return sys._getframe().f_locals


def looks_at_the_stack(x):
    return inspect.stack(), x


def prints_the_stack(x):
    traceback.print_stack()


def warns_at_the_caller(x):
    warnings.warn("x", stacklevel=2)


def async_comprehension(x):
    async def inner():
        return [y async for y in x]

    return asyncio.run(inner())


@pytest.mark.parametrize(
    ("function", "reason", "line"),
    [
        (generator, "generator function", 0),
        (coroutine, "coroutine function", 0),
        (asynchronous_generator, "asynchronous generator", 0),
        (asks_locals, r"locals\(\)", 1),
        (asks_vars, r"vars\(\)", 2),
        (asks_dir, r"dir\(\)", 1),
        (evaluates, r"eval\(\)", 1),
        (executes, r"exec\(\)", 1),
        (breaks, r"breakpoint\(\)", 1),
        (traces, "set_trace", 1),
        (has_class, "class body", 1),
        (looks_at_frames, "_getframe", 1),
        (looks_at_the_stack, "stack", 1),
        (prints_the_stack, "print_stack", 1),
        (warns_at_the_caller, "stacklevel", 1),
        (async_comprehension, "coroutine function", 1),
    ],
)
def test_runs_as_python_whole(function: Any, reason: str, line: int) -> None:
    with pytest.raises(CaptureError, match=reason) as caught:
        capture(function)
    assert caught.value.line == function.__code__.co_firstlineno + line
    assert caught.value.filename == __file__


def test_builtins_that_are_shadowed_are_ordinary() -> None:
    def f(locals, x):
        exec = x
        return locals() + exec()

    assert call(f, lambda: 1, lambda: 2) == 3


def test_too_large() -> None:
    def f(x):
        x = x + 1
        x = x + 2
        return x + 3

    with pytest.raises(CaptureError, match="more than 2 instructions"):
        capture(f, options=CaptureOptions(instruction_limit=2))


def test_nested_too_deeply(tmp_path: Any) -> None:
    # CPython's own compiler takes this; each level of ours needs several frames.
    text = "def f(x):\n    return " + "-(" * 90 + "x" + ")" * 90 + "\n"
    module = module_of(text, "deep", tmp_path)
    assert call(module.f, 3) == 3
    limit = sys.getrecursionlimit()
    depth = len(inspect.stack())
    try:
        sys.setrecursionlimit(depth + 150)
        with pytest.raises(CaptureError, match="nested too deeply"):
            capture(module.f)
    finally:
        sys.setrecursionlimit(limit)


def test_long_chains_do_not_recurse(tmp_path: Any) -> None:
    module = module_of("def f(x):\n    return " + " + ".join(["x"] * 900) + "\n", "chain", tmp_path)
    assert call(module.f, 1) == 900


def test_constant_that_no_program_holds(tmp_path: Any) -> None:
    module = module_of("def f():\n    return " + "0x" + "f" * 10000 + "\n", "large", tmp_path)
    with pytest.raises(CaptureError, match="4096 bytes"):
        capture(module.f)


@pytest.mark.parametrize("thing", [len, np.exp, int, 5, capture.__call__, types.SimpleNamespace()])
def test_no_python_function(thing: Any) -> None:
    with pytest.raises(TypeError, match="Python function"):
        capture(thing)


def test_reasons_are_told_once_and_with_lines() -> None:
    def f(x):
        import math

        for _ in range(3):
            try:
                print(x)
            finally:
                del x[0]
        return math

    reasons = [(r.kind, r.line - f.__code__.co_firstlineno) for r in capture(f).reasons]
    assert reasons == [("outlined", 1), ("callpy", 5), ("outlined", 7)]


# ---- the same everywhere -------------------------------------------------------------------------------------------------

SCRIPT = """
import hashlib
import tests.frontend.test_corpus as corpus
from tiercel.bytecode import dumps
from tiercel.frontend.python import capture
digest = hashlib.sha256()
for case in corpus.CASES[::5]:
    digest.update(dumps(capture(case.function).program))
print(digest.hexdigest())
"""


def test_programs_do_not_depend_on_hashes() -> None:
    found = set()
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", SCRIPT],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(["src", ".", *sys.path])},
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(done.stdout)
    assert len(found) == 1


def test_instructions_have_positions() -> None:
    program: Program = capture(opcodes).program
    assert all(span is not None for span in program.entry.spans)

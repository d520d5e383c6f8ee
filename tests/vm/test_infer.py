"""What the listing says about each instruction holds for what the instructions really write."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tiercel as tc
from tests.vm.running import Running
from tiercel import ops
from tiercel.frontend.python import CaptureOptions
from tiercel.interp import Environment, decode, run
from tiercel.shapes import Facts, parse_descriptor

WEIGHT = np.ones((6, 4), np.float32)


def f32(*shape):
    return np.ones(shape, np.float32)


def chain(x, y):
    return np.tanh(x @ y + 1) * 2


def flatten(x, n):
    b, t, _ = x.shape
    flat = x.reshape(b * t, -1)
    return (flat @ WEIGHT).reshape(b, t, -1)[:, ::2], n + b


def views(x):
    first, rest = x[0], x[1:]
    return x.T, first[None], rest.swapaxes(0, 1), x[::-1], x[..., 0], x.sum(axis=0), x.sum(), x[0, 0]


def layer(x, h, w):
    states = []
    for t in range(x.shape[1]):
        h = np.tanh(x[:, t] + h @ w)
        states.append(h)
    return np.stack(states, axis=1), h


def growing(x, n):
    cache = x[:0]
    for _ in range(n):
        cache = np.concatenate([cache, x])
    return cache * 2


def branches(x, flag):
    if flag:
        y = x[:2]
    else:
        y = x * 2
    z = y + 1
    if x.sum() > 0:
        z = z.astype(np.float64)
    return z


def tries(x):
    try:
        y = x[5]
    except IndexError:
        y = x
    return y + 1


def rows(x):
    total = 0
    for row in x:
        total = total + row
    return total


def nested(x, n):
    y = x
    for i in range(n):
        for _ in range(i):
            y = np.concatenate([y, y[:1]])
        y = y[:2]
    return y + 0


def split(x):
    a, b = np.split(x, 2, axis=1)
    for part in (a, b):
        a = part * 2
    return ops.Split(axis=1, output_num=2)(a), a


def outside(x):
    y = [x]
    sorted(y, key=id)
    y.append(x[0])
    return y[0] + 1, len(x), x.shape[0] // 2


def shrink(items):
    items[0] = items[0][0]


def changed_outside(x):
    items = [x, x]
    shrink(items)
    return items[0] + 1


def mixed_layouts(x, flag):
    y = x
    if flag:
        y = x.T
    return y.swapaxes(0, 1)


CASES = [
    (chain, [(f32(b, 6), f32(6, 3)) for b in (1, 4, 9)]),
    (flatten, [(f32(b, t, 6), b) for b, t in ((2, 3), (5, 1), (4, 4))]),
    (views, [(f32(b, 3),) for b in (2, 7)]),
    (layer, [(f32(b, t, 4), f32(b, 4), f32(4, 4)) for b, t in ((2, 3), (5, 1), (1, 6))]),
    (layer, [tuple(map(tc.Tensor, (f32(b, t, 4), f32(b, 4), f32(4, 4)))) for b, t in ((2, 3), (5, 1))]),
    (growing, [(f32(b, 2), n) for b, n in ((2, 3), (5, 1), (1, 0))]),
    (branches, [(f32(b, 2), flag) for b, flag in ((4, True), (4, False), (9, False))]),
    (branches, [(-f32(b, 2), flag) for b, flag in ((4, True), (5, False))]),
    (tries, [(f32(b, 2),) for b in (4, 8)]),
    (rows, [(f32(b, 2),) for b in (1, 4)]),
    (nested, [(f32(b, 2), n) for b, n in ((4, 3), (2, 1))]),
    (split, [(f32(b, 8),) for b in (4, 8)]),
    (outside, [(f32(b, 2),) for b in (4, 8)]),
    (changed_outside, [(f32(b, 2),) for b in (4, 8)]),
    (mixed_layouts, [(f32(b, b), flag) for b, flag in ((4, True), (6, False))]),
]
each_case = pytest.mark.parametrize(
    ("function", "calls"), CASES, ids=[f"{i}-{f.__name__}" for i, (f, _) in enumerate(CASES)]
)


def written_values(f: Running, arguments):
    """Run one instruction at a time; yield (instruction, values it wrote)."""
    decoded = decode(f.program, environment=Environment(f.decoded.environment.globals), single_step=True)
    out = []
    for number, block in enumerate(decoded.table):
        index = decoded.block_start[number]
        ins = decoded.function.instructions[index]

        def stepped(registers, block=block, index=index, ins=ins):
            following = block(registers)
            values = [registers[r] for r in ins.registers_written()]
            # Where a loop ends, or is only entered, its variable has no new value.
            if ins.opcode != "Try" and not (ins.opcode == "LoopStart" and (not values or values[0] is None)):
                out.append((index, values))
            return following

        decoded.table[number] = stepped
    run(decoded, decoded.bind(*arguments))
    return out


def check_text(text: str, values) -> None:
    many = re.fullmatch(r"(\d+) of (.*)", text)
    texts = [many[2]] * int(many[1]) if many else top_level(text)
    assert len(texts) == len(values)
    for one, value in zip(texts, values, strict=True):
        check_one(one, value)


def top_level(text: str) -> list[str]:
    """Split at the commas that are in no brackets."""
    parts, depth = [""], 0
    for c in text:
        depth += (c in "[({") - (c in "])}")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [p.strip() for p in parts]


def check_one(text: str, value) -> None:
    if text.startswith("list of "):
        assert isinstance(value, list)
        for item in value:
            check_one(text.removeprefix("list of "), item)
    elif text.startswith("("):
        assert isinstance(value, tuple)
        for one, item in zip(top_level(text[1:-1]), value, strict=True):
            check_one(one, item)
    elif text.startswith("np."):
        assert isinstance(value, np.generic)
        assert str(value.dtype) == text[3:]
    elif text.startswith("int"):
        assert type(value) is int
        within = Facts([f"v: {text[4:]}"]) if text[4:] and not text[4:].isdigit() else None
        if text[4:].isdigit():
            assert value == int(text[4:])
        elif within is not None and "?" not in text:
            assert within.range(tc.shapes.Symbol("v")).contains(value)
    elif "[" in text:
        wrapper = "Tensor " if isinstance(value, tc.Tensor) else ""
        assert text.startswith(wrapper)
        assert bool(wrapper) == text.startswith("Tensor ")
        descriptor = parse_descriptor(text.removeprefix("Tensor "))
        facts = descriptor.facts()
        assert descriptor.dtype_name == str(np.asarray(value).dtype)
        assert len(descriptor.token.dims) == value.ndim
        for dim, size in zip(descriptor.token.dims, value.shape, strict=True):
            assert facts.range(dim).contains(size), (text, value.shape)
        if descriptor.layout != "strided":
            flags = np.asarray(value).flags
            assert flags.c_contiguous if descriptor.layout == "C" else flags.f_contiguous


@each_case
def test_what_is_said_holds(function, calls):
    f = Running(function)
    for arguments in calls:
        f(*arguments)
    (signature,) = f.program.profile.functions[0].signatures
    seen = set()
    for arguments in calls:
        for index, values in written_values(f, arguments):
            if index in signature.results:
                check_text(signature.results[index], values)
                seen.add(index)
    assert seen or function is changed_outside


def texts_of(function, *calls, **options):
    f = Running(function, **options)
    for arguments in calls:
        f(*arguments)
    (signature,) = f.program.profile.functions[0].signatures
    return {f.decoded.function.instructions[i].opcode + str(i): text for i, text in signature.results.items()}, list(
        signature.results.values()
    )


def test_it_says_enough():
    """Nothing above demands that anything is said."""
    _, said = texts_of(chain, *CASES[0][1])
    assert said == ["float32[1..9, 3]{C}"] * 4
    _, said = texts_of(layer, *CASES[3][1])
    assert said[-1] == "float32[1..5, ?, 4]{C}"
    assert said.count("float32[1..5, 4]{C}") >= 3
    _, said = texts_of(views, *CASES[2][1])
    assert {"float32[3, 2..7]{F}", "float32[2..7]{strided}", "float32[3]{C}", "np.float32"} <= set(said)


def test_expressions_are_shown_as_they_were():
    _, said = texts_of(flatten, (f32(2, 3, 6), 2), (f32(3, 2, 6), 3))
    assert "float32[6, 6]{C}" in said, "2 * 3 and 3 * 2: interval arithmetic would say 4..9"


def test_loop_carried_sizes():
    _, said = texts_of(growing, *CASES[5][1])
    assert said[-1].startswith("float32[?, 2]"), "it may become anything"


def test_declared_names_are_kept():
    options = CaptureOptions(tokens={"x": parse_descriptor("float32[B, T, 6]{C}")}, facts=Facts(["B <= 64"]))
    _, said = texts_of(flatten, (f32(2, 3, 6), 2), (f32(5, 1, 6), 5), options=options)
    assert "float32[B*T, 6]{C}" in said


def test_weights_of_an_object_are_read_without_running_its_code():
    class Model:
        def __init__(self):
            self.weight = f32(6, 4)

        def __getattr__(self, name):
            raise AssertionError(name)

    def call(self, x):
        return x @ self.weight

    f = Running(call)
    model = Model()
    f(model, f32(2, 6))
    model.__class__.weight = property(lambda self: 1 / 0)  # reading it as Python does would raise
    assert f.program.profile.functions[0].signatures[0].results[1] == "float32[2, 4]{C}"


def test_nothing_is_kept_of_the_object():
    import gc
    import weakref

    class Model:
        pass

    f = Running(lambda self: self.weight)
    model = Model()
    model.weight = f32(2)
    f(model)
    reference = weakref.ref(model)
    del model
    gc.collect()
    assert reference() is None
    assert f.program.profile.functions[0].signatures[0].results == {}

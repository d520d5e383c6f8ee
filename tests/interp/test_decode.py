"""Decoding: no gaps, exact positions, lifetimes of temporaries, entry anywhere."""

from __future__ import annotations

import gc
import sys
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.interp import functions as f
from tests.interp.harness import decoded_of
from tiercel import operators
from tiercel.bytecode import BUILD_KINDS, CHECKS, OPCODES, SCALAR_FUNCTIONS, UNBOUND, Builder, ObjectRef, Parameter
from tiercel.errors import BytecodeError, DTypeError, InternalError, ShapeError, StrictError
from tiercel.interp import RETURN, Environment, decode, locate, run
from tiercel.interp.emit import LOWERINGS

EMPTY = Environment.empty()


def build(parameters, body, *, registers=(), free=(), environment=EMPTY, **options):
    """A decoded function whose instructions `body(f)` emits."""
    builder = Builder("test", "test.py")
    made = builder.function("test", parameters, free, first_line=1)
    body(made)
    return decode(builder.build(verify=False, passes=False), environment=environment, **options)


def test_every_opcode_has_a_decoder():
    assert set(LOWERINGS) == set(OPCODES)


def test_every_spelling_decodes():
    for row in operators.ALL.values():
        for number, spelling in enumerate(row.spellings):
            if spelling.kind in ("ops", "class"):
                continue  # resolved in `tiercel.ops`, where they are tested
            count = 1 if "x" in spelling.path and spelling.kind == "syntax" and "[" not in spelling.path else 3
            arguments = range(min(count, len(spelling.parameters) or 1))

            def body(b, row=row, number=number, arguments=arguments):
                b.Return(b.CallOp(None, row.name, number, tuple(arguments)))

            build(["a", "b", "c"], body)


@pytest.mark.parametrize("word", SCALAR_FUNCTIONS)
def test_every_scalar_function_decodes(word):
    build(["a", "b"], lambda b: b.Return(b.Scalar(None, word, (0, 1))))


@pytest.mark.parametrize("kind", BUILD_KINDS)
def test_every_build_kind_decodes(kind):
    build(["a", "b"], lambda b: b.Return(b.Build(None, kind, (0,) if kind == "cell" else (0, 1))))


@pytest.mark.parametrize("kind", CHECKS)
def test_every_check_decodes(kind):
    def body(b):
        b.Check(kind, 0, "[4]" if kind == "shape_hint" else "float32")
        b.Return(0)

    decoded = build(["x"], body)
    good = np.zeros(4, np.float32)
    assert run(decoded, (good,)) is good


def test_hints_are_checked():
    def shape(b):
        b.Check("shape_hint", 0, "[B, B, T:2..4]")
        b.Return(0)

    def dtype(b):
        b.Check("dtype_hint", 0, "float32")
        b.Return(0)

    assert run(build(["x"], shape), (np.zeros((3, 3, 2)),)) is not None
    with pytest.raises(ShapeError, match=r"\[3, 4, 2\]"):
        run(build(["x"], shape), (np.zeros((3, 4, 2)),))
    with pytest.raises(ShapeError, match="got list"):
        run(build(["x"], shape), ([1],))
    with pytest.raises(DTypeError, match="expected dtype float32, got float64"):
        run(build(["x"], dtype), (np.zeros(3),))


def test_range_of_a_hint_is_checked():
    def shape(b):
        b.Check("shape_hint", 0, "[T:2..4]")
        b.Return(0)

    with pytest.raises(ShapeError, match="must be in"):
        run(build(["x"], shape), (np.zeros(5),))


def test_unknown_object_is_refused_with_its_name():
    def body(b):
        b.Return(b.CallPy(None, b.constant(ObjectRef("mystery")), (), (), "test"))

    with pytest.raises(BytecodeError, match=r"'mystery'.*python="):
        build([], body)


def test_objects_come_from_the_environment():
    def body(b):
        b.Return(b.CallPy(None, b.constant(ObjectRef("mystery")), (0,), (), "test"))

    assert run(build(["x"], body, environment=Environment.empty({"mystery": abs})), (-3,)) == 3


def test_strict_refuses_python_calls():
    def body(b):
        b.Return(b.CallPy(None, b.constant(ObjectRef("builtins.abs")), (0,), (), "no such operator"))

    assert run(build(["x"], body), (-3,)) == 3
    with pytest.raises(StrictError, match="no such operator"):
        run(build(["x"], body, strict=True), (-3,))


def test_literals_keep_their_identity():
    """Two reads of one constant give one object, also from blocks decoded at different times."""

    def body(b):
        k = b.constant((1000.5, "text", (2**70, b"x")))
        first = b.register("first")
        b.LoadConst(first, k)
        second = b.register("second")
        b.LoadConst(second, k)
        b.Return(b.Build(None, "tuple", (first, second)))

    decoded = build([], body)
    a, b = run(decoded, ())
    assert a is b
    assert run(decoded, (), start=1, registers=[a, None, None])[1] is a


def test_array_constant_is_handed_out_itself():
    array = np.arange(3.0)
    decoded = build([], lambda b: b.Return(b.LoadTensor(None, b.constant(array))))
    result = run(decoded, ())
    assert result is decoded.program.constants[0]
    assert not result.flags.writeable


# ---- lifetimes -------------------------------------------------------------------------------------------------------


class Tracked:
    """Says when it goes."""

    def __init__(self, name, events):
        self.name = name
        weakref.finalize(self, events.append, f"{name} freed")

    def __add__(self, other):
        return Tracked(f"({self.name}+{other.name})", other.events if hasattr(other, "events") else _events)


_events: list[str] = []


def chain(make, events):
    x = make("a") + make("b")
    events.append("x made")
    y = make("c") + make("d") + make("e")
    events.append("y made")
    x = None
    events.append("x dropped")
    return y is not None and x is None


def branches(make, events, flag):
    value = (make("a") if flag else make("b")).name
    events.append("chosen")
    for item in [make("c").name, make("d").name]:
        events.append(item)
    return value


@pytest.mark.parametrize("single_step", [False, True])
def test_temporaries_are_freed_when_cpython_frees_them(single_step):
    def recorded(function, *args):
        _events.clear()
        gc.collect()
        function(lambda name: Tracked(name, _events), _events, *args)
        return list(_events)

    from tests.interp.harness import interpreted

    assert recorded(interpreted(chain, single_step=single_step)) == recorded(chain)
    for flag in (True, False):
        assert recorded(interpreted(branches, single_step=single_step), flag) == recorded(branches, flag)


def test_folded_temporaries_let_numpy_reuse_their_memory():
    """`a * b + c` needs one large temporary, not two: NumPy reuses a value that only the stack holds."""
    import tracemalloc

    from tests.interp.harness import interpreted

    def compute(a, b, c):
        return a * b + c

    big = np.ones(1 << 20)
    function = interpreted(compute)
    function(big, big, big)
    tracemalloc.start()
    try:
        result = function(big, big, big)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert result.nbytes <= peak < 1.5 * result.nbytes


def test_frame_is_gone_after_an_exception_is_dropped():
    decoded = decoded_of(f.helper)
    x = Tracked("x", _events)
    _events.clear()
    try:
        run(decoded, (x,))
    except TypeError:
        pass
    reference = weakref.ref(x)
    del x
    assert reference() is None


# ---- entering anywhere -----------------------------------------------------------------------------------------------


def recurrence(x, n):
    total = x
    seen = []
    i = 0
    while i < n:
        total = (total * 3 + i) % 1000 + (total if total % 2 else -i)
        for j in range(i % 3):
            total += j
            if total > 700:
                seen.append((i, total))
                break
        i += 1
    return total, seen, [a + 1 for a in range(n) if a % 2]


def straight(x, n):
    a = (x + n) * (x - n) + x**2
    b = [a, a + 1, (a, n)]
    c, (d, *e) = b[0], b
    return (a, b[1:], c, d, e, f"{a:>5}")


def guarded(x, n):
    out = []
    for i in range(n):
        try:
            out.append(x // i)
        except ZeroDivisionError as error:
            out.append(str(error))
            try:
                out[i + 10]
            except IndexError:
                out.append("deep")
    return out


def steps(decoded, arguments):
    """Every state of a run, one instruction at a time: instruction index and registers before it."""
    frame = [*arguments, *decoded.tail]
    block = decoded.entry(0)
    while block >= 0:
        yield decoded.block_start[block], frame[: decoded.function.registers], block
        block = decoded.table[block](frame)
    assert block == RETURN


@pytest.mark.parametrize("function", [recurrence, straight])
@given(st.integers(-50, 50), st.integers(0, 6))
def test_resuming_anywhere_gives_the_same_result(function, x, n):
    slow = decoded_of(function, single_step=True)
    fast = decoded_of(function)
    expected = function(x, n)
    headers = {slow.back_edge(row.loop) for row in slow.flow.loops}
    for index, registers, block in steps(slow, (x, n)):
        if block in headers:
            continue  # a back edge's own block has no instruction of its own
        # Lists are changed in place by what follows: resume on copies.
        copied = [list(r) if type(r) is list else r for r in registers]
        if any(type(r).__name__.endswith("iterator") for r in registers):
            copied = [type_copy(r) for r in copied]
        assert run(fast, (), start=index, registers=copied) == expected


def type_copy(value):
    import copy

    return copy.copy(value) if type(value).__name__.endswith("iterator") else value


def test_entry_in_handlers_restores_the_exception():
    """Entering at any instruction of a handler, nested ones too, has the exception being handled and handled once."""
    decoded = decoded_of(guarded)
    instructions = decoded.function.instructions
    append = max(i for i, ins in enumerate(instructions) if ins.opcode == "Append")
    around = [row for row in decoded.flow.tries if row.handler <= append < row.end]
    inner, outer = max(around, key=lambda row: row.handler), min(around, key=lambda row: row.handler)
    assert inner is not outer

    def failing(what):
        try:
            what()
        except (ZeroDivisionError, IndexError) as error:
            return error
        raise AssertionError

    error = failing(lambda: 1 // 0)
    deep = failing([].pop)
    names = {v.name: v.where for v in decoded.function.variables}
    registers = [None] * decoded.function.registers
    registers[0], registers[1] = 5, 0
    iterator = decoded.function.instructions[decoded.flow.loops[0].start].iterator
    registers[iterator] = iter(())
    registers[names["out"]] = ["before"]
    registers[names["i"]] = 0
    registers[outer.exception] = error
    registers[inner.exception] = deep
    assert run(decoded, (), start=append, registers=registers) == ["before", "deep"]
    assert sys.exc_info() == (None, None, None)


def test_entry_needs_all_registers():
    with pytest.raises(InternalError, match="needs all"):
        run(decoded_of(straight), (), start=1, registers=[1])


def test_unbound_registers_of_a_program_are_marked():
    def body(b):
        r = b.register("r")
        b.LoadConst(r, b.constant(UNBOUND))
        b.Check("bound", r, "r")
        b.Return(r)

    with pytest.raises(UnboundLocalError, match="cannot access local variable 'r'"):
        run(build([], body), ())


# ---- places ----------------------------------------------------------------------------------------------------------


def test_locate_names_the_instruction():
    def body(b):
        r = b.CallOp(None, "add", 0, (0, 1))
        s = b.CallOp(None, "multiply", 0, (r, r))
        b.Return(b.CallOp(None, "subtract", 0, (s, b.constant("x"))))

    decoded = build(["a", "b"], body)
    for arguments, index in (((1, "x"), 0), (("a", "b"), 1), ((1, 2), 2)):
        with pytest.raises(TypeError) as caught:
            run(decoded, arguments)
        assert locate(decoded, caught.value.__traceback__) == index


def test_signature_binds_as_cpython():
    parameters = [
        Parameter("a", "positional_only"),
        Parameter("b"),
        Parameter("rest", "var_positional"),
        Parameter("k", "keyword_only"),
        Parameter("more", "var_keyword"),
    ]
    decoded = build(parameters, lambda b: b.Return(b.Build(None, "tuple", tuple(range(5)))))
    assert decoded.bind(1, 2, 3, k=4, z=5) == (1, 2, (3,), 4, {"z": 5})
    with pytest.raises(TypeError, match=r"test\(\) missing 1 required keyword-only argument: 'k'"):
        decoded.bind(1, 2)


def test_constant_defaults_bind():
    builder = Builder("test")
    made = builder.function("f", [Parameter("a"), Parameter("b", default=builder.constant(7))])
    made.Return(made.Build(None, "tuple", (0, 1)))
    decoded = decode(builder.build(), environment=EMPTY)
    assert decoded.bind(1) == (1, 7)


def test_decoding_warns_about_nothing():
    """What CPython warned about when it compiled the source is not said again."""

    def body(b):
        three, text = b.constant(3), b.constant("text")
        checks = [
            b.Scalar(None, "is", (0, three)),
            b.Scalar(None, "is_not", (0, b.constant((1, 2)))),
            b.Scalar(None, "is", (b.Build(None, "tuple", (three, three)), text)),
        ]
        for attempt in (
            lambda: b.Index(None, three, three),
            lambda: b.Index(None, b.Build(None, "list", (three,)), text),
            lambda: b.Index(None, text, text),
            lambda: b.CallPy(None, text, (), (), "test"),
            lambda: b.Call(None, text, (), ()),
            lambda: b.LoadAttr(None, three, "real"),
        ):
            attempt()
        b.Return(b.Build(None, "tuple", tuple(checks)))

    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        decoded = build(["x"], body)
    with pytest.raises(TypeError, match="'int' object is not subscriptable"):
        run(decoded, (1,))


def test_decoding_does_not_reset_what_was_warned_about():
    """`catch_warnings` around a compilation would: a warning shown once would be shown again."""
    import warnings

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            warnings.warn("once", UserWarning, stacklevel=1)
            build(["x"], lambda b: b.Return(0))
    assert len(caught) == 1

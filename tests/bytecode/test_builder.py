"""The Builder: one method per opcode, labels, constants, spans, variables, and what it refuses."""

from __future__ import annotations

import ast
import copy
import pickle

import numpy as np
import pytest

from tiercel import dtypes
from tiercel.bytecode import OPCODES, UNBOUND, Builder, FunctionBuilder, ObjectRef, Parameter, Variable, dumps, loads
from tiercel.errors import BytecodeError
from tiercel.shapes import parse_descriptor


@pytest.fixture
def b() -> Builder:
    return Builder("test", "file.py")


@pytest.fixture
def f(b: Builder) -> FunctionBuilder:
    return b.function("f", ["x"])


def test_a_function(b: Builder) -> None:
    f = b.function("double", ["x", Parameter("n", default=b.constant(2))], first_line=3, qualname="C.double")
    with f.at((4, 11, 4, 16)):
        y = f.CallOp(None, "multiply", 0, (0, 1))
    f.Return(y)
    made = b.build().entry
    assert (made.name, made.qualname, made.filename, made.first_line) == ("double", "C.double", "file.py", 3)
    assert [i.opcode for i in made.instructions] == ["CallOp", "Return"]
    assert made.spans == ((4, 11, 4, 16), None)
    assert made.instructions[0].via is None and made.instructions[0].keywords == ()
    assert made.line_of(0) == 4 and made.line_of(1) is None


def test_fields_by_position_keyword_and_default(f: FunctionBuilder) -> None:
    a = f.CallOp(None, "sum", args=[0], keywords=["axis"], spelling=0)
    assert f.instructions[-1].fields == (a, "sum", 0, (0,), ("axis",), None, None)
    f.CallOp(a, "exp", args=(0,), keywords=("",))
    assert f.instructions[-1].keywords == (), "all positional is written one way"
    assert f.Return(a) is None
    f.Raise()
    assert f.instructions[-1].fields == (None, None)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: f.emit("Mvoe", 1, 2), "unknown opcode 'Mvoe'"),
        (lambda f: f.Move(1), "Move.src is missing"),
        (lambda f: f.Move(1, 2, 3), "Move has 2 fields, got 3 values"),
        (lambda f: f.Move(1, src=2, dst=1), "Move.dst is given twice"),
        (lambda f: f.Move(1, source=2), "Move has no field 'source'; it has dst, src"),
        (lambda f: f.Move(1, "x"), "Move.src must be an operand"),
        (lambda f: f.LoadConst(1, 2), "LoadConst.value must be a constant operand"),
    ],
)
def test_ill_formed_instruction(f: FunctionBuilder, call: object, message: str) -> None:
    with pytest.raises(BytecodeError, match=message):
        call(f)  # type: ignore[operator]


def test_every_opcode_has_a_method_with_help() -> None:
    for row in OPCODES.values():
        method = getattr(FunctionBuilder, row.name)
        assert method.__name__ == row.name and row.doc in method.__doc__


def test_labels(b: Builder, f: FunctionBuilder) -> None:
    there = f.label("there")
    f.Jump(there)
    f.place(there)
    f.Return(0)
    with pytest.raises(BytecodeError, match="has a place already"):
        f.place(there)
    assert f.finish().instructions[0].target == 1
    f.Jump(f.label("nowhere"))
    with pytest.raises(BytecodeError, match=r"Jump 2 goes to <Label nowhere, not placed>; call place\(label\)"):
        b.build()


def test_constants_are_shared_by_type_and_value(b: Builder) -> None:
    distinct = [
        None, True, False, 1, 0, 1.0, 0.0, -0.0, 1j, complex(0.0, -1.0), complex(-0.0, 1.0), "1", b"1", (), (1,),
        (1.0,), (True,), (0.0,), (-0.0,), slice(1), slice(1.0), ..., UNBOUND, np.dtype("f4"),
        dtypes.float32, float("nan"),
    ]  # fmt: skip
    operands = [b.constant(v) for v in distinct]
    assert len(set(operands)) == len(distinct)
    assert [b.constant(v) for v in distinct] == operands


def test_arrays_are_own_read_only_copies(b: Builder) -> None:
    source = np.arange(6.0).reshape(2, 3).T
    operand = b.constant(source)
    kept = b.constants[operand]
    source[:] = 0
    assert kept.tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    assert not kept.flags.writeable and kept.flags.c_contiguous
    assert b.constant(kept) == operand and b.constant(kept.copy()) != operand


@pytest.mark.parametrize(
    "value",
    [[1], {1}, object(), np.float32(1), np.array(["a"]), np.dtype("O"), np.dtype(">f4"), (np.zeros(2),), 1 << 40000,
     (ObjectRef("f"),), np.ma.masked_array([1])],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_is_no_constant(b: Builder, value: object) -> None:
    with pytest.raises(BytecodeError):
        b.constant(value)


def test_nesting_of_constants_is_bounded(b: Builder) -> None:
    value: object = ()
    for _ in range(63):
        value = (value,)
    operand = b.constant(value)
    f = b.function("f")
    f.Return(operand)
    assert loads(dumps(b.build())).constants == (value,)
    with pytest.raises(BytecodeError, match="nested 64 deep"):
        b.constant((value,))


def test_tokens_are_shared_and_may_be_descriptors(b: Builder) -> None:
    token = parse_descriptor("float32[B, 128]")
    f = b.function("f", [Parameter("x", token=b.token(token))])
    y = f.CallOp(None, "exp", 0, (0,), token=parse_descriptor("float32[B, 128]"))
    f.Return(y)
    program = b.build()
    assert len(program.tokens) == 1 and program.entry.instructions[0].token == 0


def test_at_takes_nodes(f: FunctionBuilder) -> None:
    node = ast.parse("\nx = a + bé").body[0]
    assert isinstance(node, ast.Assign)
    with f.at(node):
        f.LoadGlobal(None, "a")
        with f.at(node.value):
            f.LoadGlobal(None, "b")
        with f.at(None):
            f.LoadGlobal(None, "c")
        f.LoadGlobal(None, "d")
    assert f.spans == [(2, 0, 2, 11), (2, 4, 2, 11), (2, 0, 2, 11), (2, 0, 2, 11)]
    assert f.span is None


def test_variables(b: Builder) -> None:
    f = b.function("f", ["x", "n"], free=["w"])
    y = f.register("y")
    f.register("never")
    f.LoadGlobal(y, "g")
    cell = f.Build(None, "cell", (0,))
    f.variable("x", f"cell:{cell}")
    f.Return(y)
    assert f.finish().variables == (
        Variable("x", 0, 2, 0),
        Variable("n", 0, 3, 1),
        Variable("w", 0, 3, "cell:2"),
        Variable("x", 2, 3, f"cell:{cell}"),
        Variable("y", 1, 3, y),
    )
    assert b.build().entry.variables_at(2) == {"x": "cell:4", "n": 1, "w": "cell:2", "y": 3}


def test_addresses(b: Builder, f: FunctionBuilder) -> None:
    f.LoadGlobal(None, "a")
    f.LoadGlobal(None, "a")
    f.Return(0)
    made = f.finish()
    assert list(made.pcs) == [0, 3, 6, 8] and made.names == ("a",)
    assert [made.index_of(made.pc_of(i)) for i in range(3)] == [0, 1, 2]
    for pc in (1, 8, 9):
        with pytest.raises(BytecodeError, match="no instruction starts at"):
            made.index_of(pc)


def test_empty_program() -> None:
    with pytest.raises(BytecodeError, match="program 'p' has no function"):
        Builder("p").build()


def test_parameter_kinds(b: Builder) -> None:
    with pytest.raises(BytecodeError, match="parameter 'x' has kind 'odd'"):
        b.function("f", [Parameter("x", "odd")])


def test_unbound_is_one_object() -> None:
    assert (
        pickle.loads(pickle.dumps(UNBOUND))
        is copy.deepcopy(UNBOUND)
        is copy.copy(UNBOUND)
        is type(UNBOUND)()
        is UNBOUND
    )
    assert repr(UNBOUND) == "UNBOUND"
    with pytest.raises(BytecodeError, match="a Check bound is missing"):
        bool(UNBOUND)

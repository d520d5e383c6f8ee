"""The table of instructions has no gap and its value type keeps its promises."""

from __future__ import annotations

import copy
import pickle

import pytest

from tiercel.bytecode import OPCODES, FunctionBuilder, Instruction, instructions
from tiercel.errors import BytecodeError


def test_codes_and_names_are_unique() -> None:
    codes = [row.code for row in OPCODES.values()]
    assert len(set(codes)) == len(codes) and all(0 < c < 128 for c in codes)
    assert [row.name for row in instructions._TABLE] == list(OPCODES)


@pytest.mark.parametrize("row", OPCODES.values(), ids=lambda row: row.name)
def test_row_is_complete(row: instructions.Opcode) -> None:
    assert row.doc and row.effect and row.text
    assert callable(getattr(FunctionBuilder, row.name))
    for field in row.fields:
        assert field.kind == "enum" or field.kind in instructions._ADMITS
        assert not hasattr(Instruction, field.name), "a field would be hidden by an attribute of Instruction"
    assert len({f.name for f in row.fields}) == len(row.fields)


def test_instruction_is_a_value() -> None:
    ins = Instruction("Move", (1, -1))
    assert (ins.dst, ins["src"]) == (1, -1)
    assert ins == Instruction("Move", (1, -1)) and hash(ins) == hash(Instruction("Move", (1, -1)))
    assert ins != Instruction("Move", (1, 0))
    assert pickle.loads(pickle.dumps(ins)) == copy.deepcopy(ins) == ins
    assert ins.replace(dst=3) == Instruction("Move", (3, -1))
    with pytest.raises(AttributeError):
        ins.dst = 2
    with pytest.raises(AttributeError, match="no field 'args'"):
        _ = ins.args


@pytest.mark.parametrize(
    ("opcode", "fields", "message"),
    [
        ("Moves", (1, 2), "unknown opcode 'Moves'; did you mean 'Move'"),
        ("Move", (1,), r"Move has 2 fields \(dst, src\), got 1"),
        ("Move", (-1, 2), "Move.dst must be a register number"),
        ("Move", (True, 2), "Move.dst must be a register number"),
        ("Move", (1, None), "Move.src must be an operand"),
        ("LoadConst", (1, 2), "LoadConst.value must be a constant operand"),
        ("LoadGlobal", (1, 2), "LoadGlobal.name must be a string"),
        ("Scalar", (1, "lenn", ()), "must be one of SCALAR_FUNCTIONS, got 'lenn'; did you mean 'len'"),
        ("Build", (1, "tuple", [1]), "Build.items must be a tuple of operands"),
        ("Jump", (-1,), "Jump.target must be an instruction index"),
    ],
)
def test_ill_formed_instruction(opcode: str, fields: tuple[object, ...], message: str) -> None:
    with pytest.raises(BytecodeError, match=message):
        Instruction(opcode, fields)


def test_reads_and_writes() -> None:
    ins = Instruction("CallOp", (4, "exp", 0, (1, -1), (), "7:np.exp", None))
    assert ins.registers_read() == (1, 7)
    assert ins.operands_read() == (1, -1)
    assert ins.registers_written() == (4,)
    assert ins.constants_read() == (0,)
    assert Instruction("LoadParam", (5, 2, None)).registers_read() == (2,)
    assert Instruction("BranchIf", (0, 4, 5)).jump_targets() == (4, 5)
    loop = Instruction("LoopStart", (0, None, None, 9))
    assert loop.registers_written() == () and loop.registers_read() == ()
    assert Instruction("Unpack", ((1, 2), 3, 0)).map_writes(lambda r: r + 10).dsts == (11, 12)


def test_removable_is_only_what_nobody_can_notice() -> None:
    removable = {row.name for row in OPCODES.values() if row.effect_class in ("pure", "alloc") and not row.may_fail}
    assert removable == {"LoadConst", "LoadTensor", "LoadParam", "Move", "MakeFunction", "Depend"}
    assert instructions.is_removable(Instruction("Scalar", (0, "is", (1, 2))))
    assert not instructions.is_removable(Instruction("Scalar", (0, "len", (1,))))
    assert instructions.is_removable(Instruction("Build", (0, "list", (1, 2))))
    assert not instructions.is_removable(Instruction("Build", (0, "set", (1, 2))))

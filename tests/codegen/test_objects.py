"""Reading object files: what LLVM makes is read, anything else is refused cleanly."""

from __future__ import annotations

import struct

import pytest

from tiercel.codegen.blob import BlobError, link
from tiercel.codegen.cpu.assemble import assemble
from tiercel.codegen.cpu.target import Target
from tiercel.codegen.objects import FUNCTION, UNDEFINED, MalformedObject, read_object

TEXT = """
@table = private constant [4 x i32] [i32 1, i32 2, i32 3, i32 4]
declare i64 @outside(i64)
define i64 @first(i64 %i) {
  %at = getelementptr i32, ptr @table, i64 %i
  %x = load i32, ptr %at, align 4
  %wide = sext i32 %x to i64
  %y = call i64 @outside(i64 %wide)
  ret i64 %y
}
define i64 @second() {
  ret i64 7
}
"""


@pytest.fixture(scope="module")
def obj() -> bytes:
    return assemble(TEXT, Target.host())


def test_sections_symbols_and_relocations(obj: bytes) -> None:
    read = read_object(obj)
    functions = {s.name: s for s in read.symbols if s.kind == FUNCTION}
    assert set(functions) == {"first", "second"}
    assert {read.sections[s.section].name for s in functions.values()} == {".text"}
    assert [s.name for s in read.symbols if s.section == UNDEFINED and s.name] == ["outside"]
    wanted = {read.symbols[r.symbol].name for r in read.relocations if r.section == functions["first"].section}
    assert "outside" in wanted
    constants = [s.data for s in read.sections if s.name.startswith(".rodata")]
    assert struct.pack("<4i", 1, 2, 3, 4) in constants


def test_every_truncation_is_refused(obj: bytes) -> None:
    for size in range(0, len(obj), 7):
        with pytest.raises(MalformedObject):
            read_object(obj[:size])


def test_link_says_what_is_wrong(obj: bytes) -> None:
    with pytest.raises(BlobError, match="object"):
        link(b"no object", ["first"])
    with pytest.raises(BlobError, match="third is not defined"):
        link(obj, ["first", "third"])

"""The file form: exact, refused when damaged in any way, bounded in time and memory, written whole or not at all."""

from __future__ import annotations

import errno
import mmap
import os
import random
import stat
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bytecode import fuzz
from tests.bytecode.fuzz import assemble, check_file, sections
from tests.bytecode.generate import generate, make_array, make_constant
from tiercel import dtypes
from tiercel.bytecode import (
    Builder,
    FunctionProfile,
    Instruction,
    ObjectRef,
    Profile,
    Program,
    SignatureProfile,
    dumps,
    find_defects,
    from_text,
    load,
    loads,
    save,
)
from tiercel.bytecode.constants import constant_key
from tiercel.bytecode.encode import decode_instructions, encode_instructions
from tiercel.bytecode.instructions import OPCODES
from tiercel.bytecode.wire import Reader, Writer, leb, leb_size, unzigzag, zigzag
from tiercel.errors import BytecodeError
from tiercel.shapes import Facts, parse_descriptor

SMALL = """
program 'small'
def f(%x: float32[B: 1..8, 4], %n = 2):
    a: LoopStart loop 0: exit z
       CallOp    %y = add(%x, 1.5) as np.add : float32[B, 4]
       BranchIf  if %y goto z else b
    b: LoopEnd   repeat loop 0 at a
    z: Call      %r = @helper(%x, k=%n)
       Return    return %r
.constants
  0 2
  1 array int16 (2, 3)
    AAABAAIAAwAEAAUA
"""


def small() -> bytes:
    program = from_text(SMALL)
    program.profile = Profile(
        {0: FunctionProfile(3, {0: (3, 9)}, (SignatureProfile("f", 3, {0: "float32[2, 4]"}, {}),))}
    )
    return dumps(program)


def refusal(data: bytes, **options: Any) -> BytecodeError:
    with pytest.raises(BytecodeError) as caught:
        loads(data, **{"resolve": False, **options})
    assert caught.value.section and caught.value.reason
    return caught.value


def program_of(*constants: object) -> Program:
    b = Builder("c")
    f = b.function("f")
    f.Return(b.constant(None))
    return Program(b.build().functions, (None, *constants))


class TestRoundTrip:
    @given(st.integers(0, 1 << 32))
    def test_programs(self, seed: int) -> None:
        program = generate(seed, 25)
        data = dumps(program)
        again = loads(data, resolve=False)
        assert dumps(again) == data
        assert again.functions == program.functions
        assert again.tokens == program.tokens
        assert (again.name, again.source_hash, again.profile) == (program.name, program.source_hash, program.profile)
        assert (again.facts is None) == (program.facts is None)
        for old, new in zip(program.constants, again.constants, strict=True):
            if isinstance(old, np.ndarray):
                assert isinstance(new, np.ndarray) and new.dtype == old.dtype and new.tobytes() == old.tobytes()
                assert new.shape == old.shape and not new.flags.writeable
            elif isinstance(old, ObjectRef):
                assert isinstance(new, ObjectRef) and new.name == old.name and new.value is None
            else:
                assert constant_key(old) == constant_key(new)

    @given(st.randoms(use_true_random=False))
    def test_constants(self, r: random.Random) -> None:
        values = [make_constant(r) for _ in range(5)]
        again = loads(dumps(program_of(*values))).constants[1:]
        assert list(map(constant_key, again)) == list(map(constant_key, values))

    @pytest.mark.parametrize("dtype", dtypes.DTYPES, ids=str)
    def test_arrays(self, dtype: dtypes.DType) -> None:
        for shape in ((), (3,), (0, 4), (2, 1, 5)):
            array = np.ones(shape, dtype.numpy)
            (_, again) = loads(dumps(program_of(array))).constants
            assert again.dtype == dtype.numpy and again.shape == shape and again.tobytes() == array.tobytes()  # type: ignore[attr-defined]
            assert type(again) is np.ndarray

    def test_tensors_are_aligned_and_not_copied(self) -> None:
        r = random.Random(1)
        arrays = [make_array(r) for _ in range(10)]
        data = dumps(program_of(*arrays))
        address = np.frombuffer(data, np.uint8).ctypes.data
        for array in loads(data).constants[1:]:
            assert isinstance(array, np.ndarray)
            if array.size:
                assert (array.ctypes.data - address) % 64 == 0
                assert np.shares_memory(array, np.frombuffer(data, np.uint8))

    def test_a_buffer_that_can_change_is_copied(self) -> None:
        data = bytearray(dumps(program_of(np.arange(3.0))))
        program = loads(data)
        data[-8:] = b"\xff" * 8
        assert program.constants[1].tolist() == [0.0, 1.0, 2.0]  # type: ignore[attr-defined]

    def test_facts(self) -> None:
        program = program_of()
        program.facts = Facts(["B: 16..64 % 8", "B*T <= 1024"])
        again = loads(dumps(program)).facts
        assert again is not None and again.constraints == program.facts.constraints

    def test_empty_facts_and_profile_are_not_absent_ones(self) -> None:
        program = program_of()
        program.facts, program.profile = Facts(), Profile()
        again = loads(dumps(program))
        assert again.facts is not None and again.profile == Profile()
        assert loads(dumps(program_of())).facts is None

    def test_order_of_a_profile_does_not_matter(self) -> None:
        program = loads(small(), resolve=False)
        learned = SignatureProfile("f", 1, {1: "b", 0: "a"}, {2: "y", 1: "x"})
        program.profile = Profile({0: FunctionProfile(1, {}, (learned,))})
        first = dumps(program)
        learned = SignatureProfile("f", 1, {0: "a", 1: "b"}, {1: "x", 2: "y"})
        program.profile = Profile({0: FunctionProfile(1, {}, (learned,))})
        assert dumps(program) == first

    def test_loop_that_is_never_left(self) -> None:
        data = dumps(
            from_text("def f(%x):\na: LoopStart loop 0: exit z\nCall %1 = %x()\nLoopEnd repeat loop 0 at a\nz:")
        )
        assert loads(data).entry.instructions[0].exit == 3


class TestEncoding:
    def test_every_opcode_has_an_encoding(self) -> None:
        from tiercel.bytecode import encode

        kinds = {f.kind for row in OPCODES.values() for f in row.fields}
        assert kinds == encode._ENCODERS.keys() & kinds == encode._DECODERS.keys() & kinds
        assert encode._NAMES.keys() == encode._HAS_TARGETS.keys() == OPCODES.keys()

    def test_instructions_are_compact(self) -> None:
        program = from_text("def f(%x, %n):\nCallOp %2 = add(%x, %n)\nReturn return %2")
        assert list(program.entry.pcs) == [0, 10, 12]

    def test_equal_instructions_become_one_object(self) -> None:
        code = encode_instructions((Instruction("Return", (0,)),) * 3, (), (0, 2, 4, 6))
        decoded = decode_instructions(Reader(code, "code"), (), 0, 0)
        assert decoded[0] is decoded[1] is decoded[2]

    @given(st.integers(0, 1 << 70))
    def test_leb(self, value: int) -> None:
        data = leb(value)
        assert len(data) == leb_size(value)
        if value < 1 << 63:
            assert Reader(data, "s").number("n", 1 << 63) == value

    @given(st.integers())
    def test_zigzag(self, value: int) -> None:
        assert unzigzag(zigzag(value)) == value and zigzag(value) >= 0

    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            (b"", "ends inside n"),
            (b"\x80", "ends inside n"),
            (b"\x80\x00", "written with more bytes than it needs"),
            (b"\x05", "n is 5, the limit is 4"),
            (b"\xff" * 11, "a number of more than 10 bytes"),
        ],
    )
    def test_numbers_are_refused(self, data: bytes, reason: str) -> None:
        with pytest.raises(BytecodeError, match=reason) as caught:
            Reader(data, "s").number("n", 5)
        assert (caught.value.section, caught.value.offset) == ("s", 0)

    def test_counts_are_checked_before_anything_is_made(self) -> None:
        w = Writer()
        w.number(1 << 40)
        with pytest.raises(BytecodeError, match="which needs 3298534883328 bytes; 0 are left"):
            Reader(bytes(w.data), "s").count("the number of things", 3)

    def test_text_is_utf8(self) -> None:
        with pytest.raises(BytecodeError, match="is not UTF-8: invalid start byte at its byte 1"):
            Reader(b"\x02a\xff", "s").text("the name")


class TestDamage:
    def test_truncated_at_every_byte(self) -> None:
        data = small()
        for end in range(len(data)):
            refusal(data[:end])

    def test_every_bit_flipped(self) -> None:
        data = small()
        for bit in range(8 * len(data)):
            damaged = bytearray(data)
            damaged[bit // 8] ^= 1 << bit % 8
            refusal(bytes(damaged))

    def test_bytes_behind_the_end(self) -> None:
        assert "left over" in refusal(small() + b"\0").reason

    def test_each_section_truncated_and_extended_with_right_checksums(self) -> None:
        parts = sections(small())
        for index, (kind, content) in enumerate(parts):
            for end in range(len(content)):
                refusal(assemble([*parts[:index], (kind, content[:end]), *parts[index + 1 :]]))
            refusal(assemble([*parts[:index], (kind, content + b"\0"), *parts[index + 1 :]]))

    def test_each_byte_of_each_section_changed_with_right_checksums(self) -> None:
        parts = sections(small())
        accepted = 0
        for index, (kind, content) in enumerate(parts):
            for at in range(len(content)):
                for change in (1, 0x7F, 0x80, 0xFF):
                    changed = bytearray(content)
                    changed[at] ^= change
                    accepted += check_file(assemble([*parts[:index], (kind, bytes(changed)), *parts[index + 1 :]]))
        # Names, sizes and numbers may be others; most changes are refused.
        assert accepted > 0

    def test_random_damage(self) -> None:
        tried, accepted = fuzz.run(3.0, seed=1)
        assert tried > 20 and 0 < accepted < tried

    def test_section_table(self) -> None:
        parts = sections(small())
        kinds = [kind for kind, _ in parts]
        assert kinds == [1, 2, 3, 4, 5, 6, 7]
        for missing, name in ((1, "program"), (2, "constants"), (3, "tokens"), (5, "functions")):
            assert f"section {name} is missing" in refusal(assemble([p for p in parts if p[0] != missing])).reason
        assert "section of kind 9" in refusal(assemble([*parts[:3], (9, b"")])).reason
        assert "at most 7" in refusal(assemble([*parts, *parts])).reason
        assert "stands behind" in refusal(assemble([parts[1], parts[0], *parts[2:]])).reason
        assert "stands behind" in refusal(assemble([parts[0], parts[0], *parts[2:]])).reason
        assert refusal(assemble([p for p in parts if p[0] != 7])).section == "constants"

    @pytest.mark.parametrize(("field", "change"), [("offset", 1), ("offset", -1), ("length", 1), ("length", 1 << 60)])
    def test_sections_neither_overlap_nor_leave_gaps(self, field: str, change: int) -> None:
        data = bytearray(small())
        at = fuzz.HEADER.size + fuzz.ENTRY.size + (8 if field == "offset" else 16)
        (value,) = struct.unpack_from("<Q", data, at)
        struct.pack_into("<Q", data, at, (value + change) % (1 << 64))
        end = fuzz.HEADER.size + 7 * fuzz.ENTRY.size
        struct.pack_into("<I", data, end, zlib.crc32(data[:end]))
        error = refusal(bytes(data))
        assert error.section in ("header", "constants") and (
            "claims bytes" in error.reason or "checksum" in error.reason
        )

    def test_damage_is_named(self) -> None:
        data = bytearray(small())
        data[-1] ^= 1
        error = refusal(bytes(data))
        assert (error.section, error.offset) == ("tensors", 0) and "the file is damaged" in error.reason
        data = bytearray(small())
        data[20] ^= 1
        assert "the checksum of the header does not match" in refusal(bytes(data)).reason

    def test_other_files(self) -> None:
        assert "this is no .msir file: it begins with b'\\x7fELF" in refusal(b"\x7fELF" + bytes(100)).reason
        assert "this is no .msir file" in refusal(b"").reason

    def test_other_versions_say_what_to_do(self) -> None:
        data = bytearray(small())
        data[8] = 2
        error = refusal(bytes(data))
        assert error.reason == "the file has format version 2, this Tiercel reads version 1: update Tiercel to read it"
        assert (error.section, error.offset) == ("header", 8)
        data[8] = 0
        assert refusal(bytes(data)).reason.endswith("write it again from its source")


class TestContents:
    """What the checksums do not protect against: files made to be malicious."""

    def changed(self, kind: int, content: bytes) -> bytes:
        return assemble([(k, content if k == kind else c) for k, c in sections(small())])

    def test_code(self) -> None:
        program = loads(small(), resolve=False)
        code = encode_instructions(program.entry.instructions, program.entry.names, program.entry.pcs)
        functions = dict(sections(small()))[5]
        assert functions.count(code) == 1

        def refused(new: bytes) -> BytecodeError:
            return refusal(self.changed(5, functions.replace(leb(len(code)) + code, leb(len(new)) + new)))

        jump = OPCODES["LoopEnd"].code
        at = code.index(bytes([jump, 0]))
        for target, where in ((1, "inside an instruction"), (1 << 31, "outside the code")):
            error = refused(code[: at + 2] + struct.pack("<I", target) + code[at + 6 :])
            assert where in error.reason and error.section == "code of function 0, f"
        assert "0xC8 is no opcode" in refused(b"\xc8" + code[1:]).reason
        last = len(code) - 2
        assert "return" not in refused(code[:last] + bytes([34, 0x7F])).reason  # constant 63
        assert "value is constant 63, the program has" in refused(code[:last] + bytes([34, 0x7F])).reason
        error = refused(code[:last] + bytes([34, 0x7E]))
        assert "register 63: the function has" in error.reason and error.neighbourhood

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (b"\x01\x03\x02\x01\x00", "an int is written with more bytes than it needs"),
            (b"\x01\x0b\x63", "no dtype has the code 99"),
            (b"\x01\x10", "there is no constant of kind 16"),
            (b"\x01" + b"\x09\x01" * 80 + b"\x00", "nested more than 64 deep"),
            (b"\x01\x09\x01\x0fabc", "cannot be part of a tuple"),
            (b"\xff\xff\xff\xff\x0f", "the number of constants is 4294967295, which needs"),
            (b"\x01\x06\x02\xc3\x28", "is not UTF-8"),
            (b"\x01\x03\x83\x20" + b"\x01" * 4099, "an int constant of 4099 bytes, the limit is 4096"),
        ],
    )
    def test_constants(self, content: bytes, reason: str) -> None:
        error = refusal(self.changed(2, content))
        assert reason in error.reason and error.section == "constants"

    @pytest.mark.parametrize(
        ("array", "reason"),
        [
            (b"\x0d\x0b\x01\x80\x80\x80\x80\x80\x80\x80\x80\x40\x00", "is 4611686018427387904, the limit is"),
            (b"\x0d\x0b\x02\x80\x80\x80\x80\x10\x80\x80\x80\x80\x10\x00", "a tensor of"),
            (b"\x0d\x0b\x02\x00\x80\x80\x80\x80\x80\x80\x80\x80\x20\x00", "a tensor of 0 bytes"),
            (b"\x0d\x0b\x41", "a rank is 65, the limit is 64"),
            (b"\x0d\x0b\x01\x03\x40", "it must lie at 0"),
            (b"\x0d\x0b\x01\x04\x00", "the section has 12 bytes"),
            (b"\x0d\x0b\x01\x02\x00", "the constants use 8 bytes of tensors, the section has 12"),
            (b"\x0d\x00\x01\x0c\x00", "a bool tensor has bytes other than 0 and 1"),
        ],
    )
    def test_tensors(self, array: bytes, reason: str) -> None:
        assert reason in refusal(self.changed(2, b"\x04\x03\x01\x02" + array + b"\x00\x0f\x00")).reason

    def test_padding_between_tensors(self) -> None:
        data = dumps(program_of(np.arange(3, dtype=np.int8), np.arange(2)))
        parts = dict(sections(data))
        assert len(parts[7]) == 64 + 16
        parts[7] = parts[7][:10] + b"\x01" + parts[7][11:]
        assert "the padding before a tensor is not zero" in refusal(assemble(sorted(parts.items()))).reason

    def test_names_are_listed_in_order_of_use_and_once(self) -> None:
        program = from_text("def f(%x):\nLoadGlobal %1 = aa\nLoadGlobal %2 = bb\nReturn return %1")
        parts = dict(sections(dumps(program)))
        for new, reason in (
            (b"\x02\x02bb\x02aa\x0b\x04\x01\x01\x04\x02\x00", "is name 1 before name 0 was used"),
            (b"\x02\x02aa\x02aa\x0b\x04\x01\x00\x04\x02\x01", "lists a name twice"),
            (b"\x03\x02aa\x02bb\x02cc\x0b\x04\x01\x00\x04\x02\x01", "lists 3 names, its code uses 2"),
        ):
            old = b"\x02\x02aa\x02bb\x08\x04\x01\x00\x04\x02\x01"
            assert old in parts[5]
            new = new.replace(b"\x0b\x04", b"\x08\x04")
            changed = {**parts, 5: parts[5].replace(old, new)}
            assert reason in refusal(assemble(sorted(changed.items()))).reason

    def test_a_profile_is_in_ascending_order(self) -> None:
        parts = dict(sections(small()))
        for profile in (
            b"\x02\0\x01\0\0\0\x01\0\0",
            b"\x01\0\x01\0\x01\0\0\x02\x01\x01a\x00\x01b\x00",
            b"\x01\0\x01\0\x01\0\0\x02\x01\x01a\x01\x01b\x00",
        ):
            error = refusal(assemble(sorted({**parts, 6: profile}.items())))
            assert "not in ascending order" in error.reason and error.section == "profile"

    def test_constraints_of_tokens_are_in_their_fixed_form(self) -> None:
        w = Writer()
        w.raw(b"\x01\x01B\x01\x0b\x02\x01\x01C\x03cpu\x01")
        w.text("1 <= dim0")
        assert "are not in their fixed form" in refusal(self.changed(3, bytes(w.data))).reason

    def test_sizes_are_in_normal_form(self) -> None:
        for text in ("T + B", "B+T", "1", "", "B*", "(" * 1000, "B//0", "?", "B" * 70):
            w = Writer()
            w.number(1)
            w.text(text)
            w.number(1)
            w.raw(b"\x0b\x02\x01\x01C\x03cpu\x00")
            error = refusal(self.changed(3, bytes(w.data)))
            assert error.section == "tokens"

    def test_facts_are_bounded_and_in_normal_form(self) -> None:
        def facts(*texts: str) -> bytes:
            w = Writer()
            w.number(len(texts))
            for text in texts:
                w.text(text)
            return self.changed(4, bytes(w.data))

        assert "not in normal form" in refusal(facts("B : 1..8")).reason
        assert "stands there twice" in refusal(facts("B: 1..8", "B: 1..8")).reason
        assert "contradicts" in refusal(facts("B: 1..8", "B >= 9")).reason
        relations = [f"a{i}*b <= c{i}" for i in range(65)]
        assert "more than 64 facts" in refusal(facts(*relations)).reason
        check_file(facts("B: 1..8", *(f"n{i}: 1..{i + 2}" for i in range(500))))

    def test_a_function_may_not_ask_for_many_registers(self) -> None:
        program = from_text("def f(%x):\nReturn return %x")
        from dataclasses import replace

        program.functions = (replace(program.entry, registers=1 << 31),)
        assert "registers: expected at least 1" in refusal(dumps(program)).reason

    def test_what_files_cannot_hold(self) -> None:
        with pytest.raises(BytecodeError, match="a value of type list cannot be a constant"):
            dumps(program_of([1]))
        token = parse_descriptor("float32[B]")
        odd = type(token)(token.token, "float33")
        with pytest.raises(BytecodeError, match="names no dtype"):
            dumps(Program(program_of().functions, (None,), (odd,)))
        many = Program(program_of().functions, (None,), facts=Facts([f"a{i} + b{i} <= {i}" for i in range(65)]))
        with pytest.raises(BytecodeError, match="more than 64 facts"):
            dumps(many)

    @pytest.mark.parametrize("count", [-1, -200, 1 << 63])
    def test_numbers_that_do_not_fit(self, count: int) -> None:
        program = loads(small(), resolve=False)
        program.profile = Profile({0: FunctionProfile(count)})
        with pytest.raises(BytecodeError, match="does not fit a file"):
            dumps(program)

    def test_unverified(self) -> None:
        data = dumps(from_text("def f(%x):\nReturn return %9"))
        refusal(data)
        assert find_defects(loads(data, verify=False))


class TestObjects:
    def program(self) -> bytes:
        return dumps(from_text("def f(%x):\nCall %1 = @pkg.helper(%x)\nCall %1 = @other(%1)\nReturn return %1"))

    def test_all_missing_names_are_listed(self) -> None:
        with pytest.raises(BytecodeError) as caught:
            loads(self.program())
        assert "that were not given: 'other', 'pkg.helper'; load(path, python={name: object})" in caught.value.reason
        with pytest.raises(BytecodeError, match=r"not given: 'pkg\.helper';"):
            loads(self.program(), python={"other": 1})

    def test_given_objects_are_resolved(self) -> None:
        helper = object()
        program = loads(self.program(), python={"pkg.helper": helper, "other": len, "unused": 1})
        found = {c.name: c.value for c in program.constants if isinstance(c, ObjectRef)}
        assert found == {"pkg.helper": helper, "other": len}
        assert dumps(program) == self.program()

    def test_harmless_builtins_need_not_be_given(self) -> None:
        def names(*objects: str) -> bytes:
            calls = "".join(f"Call %1 = @{name}(%x)\n" for name in objects)
            return dumps(from_text(f"def f(%x):\n{calls}Return return %1"))

        good = loads(names("builtins.AssertionError", "builtins.len", "builtins.sorted")).constants
        assert [c.value for c in good] == [AssertionError, len, sorted]  # type: ignore[attr-defined]
        mine = loads(names("builtins.len"), python={"builtins.len": 5}).constants
        assert [c.value for c in mine] == [5]  # type: ignore[attr-defined]
        for name in ("exec", "eval", "open", "__import__", "getattr", "compile", "input", "len.__call__", "nothing"):
            with pytest.raises(BytecodeError, match="that were not given"):
                loads(names(f"builtins.{name}"))

    def test_without_resolving(self) -> None:
        assert all(c.value is None for c in loads(self.program(), resolve=False).constants)  # type: ignore[attr-defined]


class TestFiles:
    def test_save_and_load(self, tmp_path: Path) -> None:
        for size in (10, 100_000):
            program = program_of(np.arange(size), "text")
            path = tmp_path / f"{size}.msir"
            save(program, path)
            assert path.read_bytes() == dumps(program)
            again = load(path)
            assert dumps(again) == dumps(program)
            assert not again.constants[1].flags.writeable  # type: ignore[attr-defined]
        assert os.listdir(tmp_path).sort() == ["10.msir", "100000.msir"].sort()

    def test_large_tensors_are_mapped(self, tmp_path: Path) -> None:
        path = tmp_path / "w.msir"
        save(program_of(np.arange(100_000)), path)
        array = load(path).constants[1]
        assert type(array) is np.ndarray
        # Down through views and memoryviews to what holds the bytes.
        base: Any = array
        while not isinstance(base, mmap.mmap):
            base = base.obj if isinstance(base, memoryview) else base.base
        # A new file takes the name; the mapping keeps the old one.
        save(program_of(np.zeros(100_000)), path)
        assert array[-1] == 99_999  # type: ignore[index]

    def test_a_full_disk_leaves_the_old_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "p.msir"
        save(program_of(1), path)
        before = path.read_bytes()

        def full(handle: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        for name in ("fsync", "fchmod"):
            with monkeypatch.context() as patch:
                patch.setattr(os, name, lambda *args: full(0))
                with pytest.raises(OSError, match="No space left"):
                    save(program_of(2), path)
            assert path.read_bytes() == before and os.listdir(tmp_path) == ["p.msir"]

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
    def test_a_write_that_fails(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "p.msir"
        save(program_of(1), path)
        before = path.read_bytes()
        real = os.fdopen

        def to_full_device(handle: int, mode: str) -> Any:
            os.close(handle)
            return real(os.open("/dev/full", os.O_WRONLY), mode)

        monkeypatch.setattr(os, "fdopen", to_full_device)
        with pytest.raises(OSError, match="No space left"):
            save(program_of(np.zeros(100_000)), path)
        assert path.read_bytes() == before and os.listdir(tmp_path) == ["p.msir"]

    def test_modes_and_links(self, tmp_path: Path) -> None:
        path, link = tmp_path / "p.msir", tmp_path / "link.msir"
        before = os.umask(0o027)
        try:
            save(program_of(1), path)
            assert stat.S_IMODE(path.stat().st_mode) == 0o640
        finally:
            os.umask(before)
        path.chmod(0o600)
        link.symlink_to(path)
        save(program_of(2), link)
        assert link.is_symlink() and loads(path.read_bytes()).constants == (None, 2)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def test_missing_folder_and_file(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            save(program_of(1), tmp_path / "no" / "p.msir")
        with pytest.raises(FileNotFoundError):
            load(tmp_path / "p.msir")
        (tmp_path / "empty.msir").write_bytes(b"")
        with pytest.raises(BytecodeError, match=r"this is no \.msir file"):
            load(tmp_path / "empty.msir")


# Loads files that are made to need much, with the memory measured by the allocator, and prints the worst factor.
MEMORY = r"""
import tracemalloc
from tests.bytecode.hostile import files
from tiercel import operators
from tiercel.bytecode import loads
from tiercel.errors import BytecodeError

def attempt(data):
    try:
        loads(data, resolve=False)
    except BytecodeError:
        pass

for name, data in files(1 << 15):
    attempt(data)  # fills tables that stay
    tracemalloc.start()
    attempt(data)
    print(name, len(data), tracemalloc.get_traced_memory()[1], sep=",")
    tracemalloc.stop()
"""


def test_memory_is_bounded() -> None:
    root = Path(__file__).resolve().parents[2]
    env = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'src'}"}
    done = subprocess.run(
        [sys.executable, "-c", MEMORY], check=True, capture_output=True, text=True, env=env, cwd=root, timeout=300
    )
    rows = [line.split(",") for line in done.stdout.splitlines()]
    assert len(rows) > 10
    for name, size, peak in rows:
        assert int(peak) < 64 * int(size) + (1 << 20), f"{name}: {size} bytes took {peak}"

"""ELF files for debuggers, read by another reader than the one they are for."""

from __future__ import annotations

import ctypes
import io
import struct

import pytest
from elftools.elf.elffile import ELFFile

from tiercel.codegen.elf import DESCRIPTOR, REGISTER, CodeSymbol, registration_library, symbol_file

CODE = bytes(range(64)) * 2
FUNCTIONS = [CodeSymbol("f loops", 0x10000, 48), CodeSymbol("f", 0x10030, 16)]


def test_the_library_can_be_loaded_and_holds_a_version_one_descriptor(tmp_path):
    path = tmp_path / "names.so"
    path.write_bytes(registration_library())
    library = ctypes.CDLL(str(path))
    library[REGISTER]()
    words = (ctypes.c_char * 24).in_dll(library, DESCRIPTOR)
    assert struct.unpack("<IIQQ", words.raw) == (1, 0, 0, 0)
    words[0:24] = struct.pack("<IIQQ", 1, 2, 3, 4)  # it may be written
    library[REGISTER]()


def test_the_library_has_the_names_for_readers_of_files():
    table = ELFFile(io.BytesIO(registration_library())).get_section_by_name(".dynsym")
    assert [symbol.name for symbol in table.iter_symbols()] == ["", REGISTER, DESCRIPTOR]


def test_functions_are_symbols_with_absolute_addresses():
    elf = ELFFile(io.BytesIO(symbol_file(CODE, 0x10000, FUNCTIONS, "/a/model.py", 7)))
    symbols = list(elf.get_section_by_name(".symtab").iter_symbols())[1:]
    assert [(s.name, s["st_value"], s["st_size"]) for s in symbols] == [("f loops", 0x10000, 48), ("f", 0x10030, 16)]
    text = elf.get_section_by_name(".text")
    assert (text["sh_addr"], text.data()) == (0x10000, CODE)


@pytest.mark.parametrize("line", [1, 7, 63, 64, 300, 70_000])
def test_the_line_table_says_file_and_line(line):
    elf = ELFFile(io.BytesIO(symbol_file(CODE, 0x10000, FUNCTIONS, "/a/model.py", line)))
    dwarf = elf.get_dwarf_info()
    (unit,) = dwarf.iter_CUs()
    top = unit.get_top_DIE()
    assert (top.attributes["DW_AT_name"].value, top.attributes["DW_AT_comp_dir"].value) == (b"model.py", b"/a")
    functions = [
        (d.attributes["DW_AT_name"].value.decode(), d.attributes["DW_AT_low_pc"].value) for d in top.iter_children()
    ]
    assert functions == [("f loops", 0x10000), ("f", 0x10030)]
    table = dwarf.line_program_for_CU(unit)
    rows = [(e.state.address, e.state.line, e.state.end_sequence) for e in table.get_entries() if e.state]
    assert rows == [(0x10000, line, False), (0x10030, line, True), (0x10030, line, False), (0x10040, line, True)]


def test_unwind_records_are_a_section_of_their_own():
    elf = ELFFile(io.BytesIO(symbol_file(CODE, 0x10000, FUNCTIONS, "model.py", 7, (64, 32))))
    records = elf.get_section_by_name(".eh_frame")
    assert (records["sh_addr"], records.data()) == (0x10040, CODE[64:96])
    assert elf.get_section_by_name(".text")["sh_size"] == 64


def test_code_without_a_source_has_names_only():
    elf = ELFFile(io.BytesIO(symbol_file(CODE, 0x10000, FUNCTIONS, "", 0)))
    assert elf.get_section_by_name(".debug_info") is None

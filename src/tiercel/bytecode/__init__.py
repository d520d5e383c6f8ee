"""Bytecode: the table of instructions, programs, and their builder."""

from __future__ import annotations

from tiercel.bytecode.assemble import from_text
from tiercel.bytecode.builder import Builder, FunctionBuilder, Label
from tiercel.bytecode.constants import UNBOUND, ObjectRef
from tiercel.bytecode.file import dumps, load, loads, save
from tiercel.bytecode.instructions import (
    BUILD_KINDS,
    CHECKS,
    ENUMS,
    OPCODES,
    SCALAR_FUNCTIONS,
    Instruction,
    Opcode,
    is_removable,
    may_fail,
)
from tiercel.bytecode.program import (
    Function,
    FunctionProfile,
    Parameter,
    Profile,
    Program,
    SignatureProfile,
    Span,
    Variable,
)
from tiercel.bytecode.structure import Structure, Structures, find_structures, successors
from tiercel.bytecode.text import to_text
from tiercel.bytecode.verify import find_defects, verify

__all__ = [
    "BUILD_KINDS",
    "CHECKS",
    "ENUMS",
    "OPCODES",
    "SCALAR_FUNCTIONS",
    "UNBOUND",
    "Builder",
    "Function",
    "FunctionBuilder",
    "FunctionProfile",
    "Instruction",
    "Label",
    "ObjectRef",
    "Opcode",
    "Parameter",
    "Profile",
    "Program",
    "SignatureProfile",
    "Span",
    "Structure",
    "Structures",
    "Variable",
    "dumps",
    "find_defects",
    "find_structures",
    "from_text",
    "is_removable",
    "load",
    "loads",
    "may_fail",
    "save",
    "successors",
    "to_text",
    "verify",
]

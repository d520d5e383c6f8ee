"""A program to the bytes of its file form, section by section.

In: a program. Out: the bytes, in pieces. `file` describes the form; what is written here is what `read` accepts.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from tiercel.bytecode.constants import UNBOUND, ObjectRef, own_constant
from tiercel.bytecode.encode import encode_instructions
from tiercel.bytecode.layout import (
    ALIGNMENT,
    CRC,
    ENTRY,
    HEADER,
    MAGIC,
    MAX_DIM,
    MAX_SYMBOLIC_BYTES,
    VERSION,
    int_bytes,
)
from tiercel.bytecode.program import (
    OPTIMISED_AWAY,
    PARAMETER_KINDS,
    Function,
    Profile,
    Program,
    Span,
    Variable,
)
from tiercel.bytecode.tokens import MAX_CONSTRAINTS, MAX_TOKEN_CONSTRAINTS, make_facts
from tiercel.bytecode.wire import Writer
from tiercel.dtypes import DType, as_dtype
from tiercel.errors import BytecodeError, DTypeError
from tiercel.shapes import Dim, DimLike, Facts, TensorDescriptor

__all__ = ["file_pieces"]


def file_pieces(program: Program) -> list[bytes | memoryview]:
    """Return the bytes of a program's file form, in pieces: the tensors are not copied.

    Raises:
        BytecodeError: the program holds something that files cannot.
    """
    tensors = _TensorWriter()
    sections: dict[int, list[bytes | memoryview]] = {1: [_write_program(program)]}
    sections[2] = [_write_constants(program.constants, tensors)]
    sections[3] = [_write_tokens(program.tokens)]
    if program.facts is not None:
        sections[4] = [_write_facts(program.facts)]
    sections[5] = [_write_functions(program.functions)]
    if program.profile is not None:
        sections[6] = [_write_profile(program.profile)]
    if tensors.used:
        sections[7] = tensors.pieces
    at = HEADER.size + ENTRY.size * len(sections) + CRC.size
    header = bytearray(HEADER.pack(MAGIC, VERSION, 0, len(sections)))
    body: list[bytes | memoryview] = []
    for kind, pieces in sections.items():
        if kind == 7:
            padding = bytes(-at % ALIGNMENT)
            body.append(padding)
            at += len(padding)
        crc = 0
        for piece in pieces:
            crc = zlib.crc32(piece, crc)
        length = sum(map(len, pieces))
        header += ENTRY.pack(kind, crc, at, length)
        body += pieces
        at += length
    header += CRC.pack(zlib.crc32(header))
    return [bytes(header), *body]


class _TensorWriter:
    """Places arrays in the section of tensors."""

    def __init__(self) -> None:
        self.pieces: list[bytes | memoryview] = []
        self.at = 0
        self.used = False

    def add(self, array: np.ndarray[Any, Any]) -> int:
        """Return the offset at which the array's bytes lie."""
        self.used = True
        padding = bytes(-self.at % ALIGNMENT)
        offset = self.at + len(padding)
        # Through a flat view of bytes: dtypes of other packages have no buffer format.
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        self.pieces += [padding, raw]
        self.at = offset + len(raw)
        return offset


def _write_program(program: Program) -> bytes:
    w = Writer()
    w.text(program.name)
    w.text(program.source_hash)
    return bytes(w.data)


def _write_constants(constants: Iterable[object], tensors: _TensorWriter) -> bytes:
    w = Writer()
    values = tuple(constants)
    w.number(len(values))
    for value in values:
        own_constant(value)
        _write_constant(w, value, tensors)
    return bytes(w.data)


def _write_constant(w: Writer, value: Any, tensors: _TensorWriter) -> None:
    kind = type(value)
    if value is None or value is False or value is True or value is Ellipsis or value is UNBOUND:
        w.u8({None: 0, False: 1, True: 2, Ellipsis: 8, UNBOUND: 14}[value])
    elif kind is int:
        w.u8(3)
        w.blob(int_bytes(value))
    elif kind is float:
        w.u8(4)
        w.f64(value)
    elif kind is complex:
        w.u8(5)
        w.f64(value.real)
        w.f64(value.imag)
    elif kind is str:
        w.u8(6)
        w.text(value)
    elif kind is bytes:
        w.u8(7)
        w.blob(value)
    elif kind is tuple:
        w.u8(9)
        w.number(len(value))
        for item in value:
            _write_constant(w, item, tensors)
    elif kind is slice:
        w.u8(10)
        for item in (value.start, value.stop, value.step):
            _write_constant(w, item, tensors)
    elif isinstance(value, np.dtype):
        w.u8(11)
        w.u8(as_dtype(value).code)
    elif isinstance(value, DType):
        w.u8(12)
        w.u8(value.code)
    elif isinstance(value, np.ndarray):
        w.u8(13)
        w.u8(as_dtype(value.dtype).code)
        w.number(value.ndim)
        for n in value.shape:
            w.number(n)
        w.number(tensors.add(value))
    else:
        assert isinstance(value, ObjectRef)
        w.u8(15)
        w.text(value.name)


def _write_tokens(tokens: Iterable[TensorDescriptor]) -> bytes:
    descriptors = tuple(tokens)
    dims: dict[DimLike, int] = {}
    for d in descriptors:
        for dim in d.token.dims or ():
            if isinstance(dim, Dim):
                dims.setdefault(dim, len(dims))
    w = Writer()
    w.number(len(dims))
    for dim in dims:
        w.text(str(dim))
    w.number(len(descriptors))
    for d in descriptors:
        try:
            w.u8(as_dtype(d.dtype_name).code)
        except DTypeError as e:
            raise BytecodeError(str(e), section="tokens") from e
        w.optional(d.token.rank)
        for dim in d.token.dims or ():
            if isinstance(dim, int) and dim >= MAX_DIM:
                raise BytecodeError(f"a declared size of {dim} does not fit 62 bits", section="tokens")
            w.number(dims[dim] << 1 | 1 if isinstance(dim, Dim) else dim << 1)
        w.text(d.layout)
        w.text(d.device)
        if len(d.shape_constraint) > MAX_TOKEN_CONSTRAINTS:
            raise BytecodeError(f"a token has at most {MAX_TOKEN_CONSTRAINTS} constraints", section="tokens")
        w.number(len(d.shape_constraint))
        for text in d.shape_constraint:
            w.text(text)
    if len(w.data) > MAX_SYMBOLIC_BYTES or sum(len(d.shape_constraint) for d in descriptors) > MAX_CONSTRAINTS:
        raise BytecodeError(
            f"declared tokens take {len(w.data)} bytes; the limits are {MAX_SYMBOLIC_BYTES} bytes and "
            f"{MAX_CONSTRAINTS} constraints",
            section="tokens",
        )
    return bytes(w.data)


def _write_facts(facts: Facts) -> bytes:
    w = Writer()
    w.number(len(facts.constraints))
    for constraint in facts.constraints:
        w.text(constraint.text)
    try:
        make_facts(constraint.text for constraint in facts.constraints)
    except BytecodeError as e:
        raise BytecodeError(e.reason, section="facts") from e
    return bytes(w.data)


def _write_functions(functions: Iterable[Function]) -> bytes:
    w = Writer()
    every = tuple(functions)
    w.number(len(every))
    for f in every:
        w.text(f.name)
        w.text(f.qualname)
        w.text(f.filename)
        w.number(f.first_line)
        w.number(len(f.parameters))
        for p in f.parameters:
            w.text(p.name)
            w.u8(PARAMETER_KINDS.index(p.kind))
            w.optional(None if p.default is None else ~p.default)
            w.optional(p.token)
        w.number(len(f.free))
        for name in f.free:
            w.text(name)
        w.number(f.registers)
        w.number(f.loops)
        w.u8(f.source is not None)
        if f.source is not None:
            w.text(f.source)
        w.number(len(f.names))
        for name in f.names:
            w.text(name)
        w.blob(encode_instructions(f.instructions, f.names, f.pcs))
        _write_spans(w, f.spans)
        w.number(len(f.variables))
        for v in f.variables:
            _write_variable(w, v)
    return bytes(w.data)


def _write_spans(w: Writer, spans: Iterable[Span | None]) -> None:
    """Per instruction 0 (no span), 1 (that of the instruction before), or 2 and the span."""
    last: Span | None = None
    for span in spans:
        if span is None:
            w.u8(0)
        elif span == last:
            w.u8(1)
        else:
            w.u8(2)
            line, col, end_line, end_col = span
            w.signed(line - (last[0] if last is not None else 0))
            w.number(col)
            w.signed(end_line - line)
            w.number(end_col)
        last = span if span is not None else last


def _write_variable(w: Writer, v: Variable) -> None:
    w.text(v.name)
    w.number(v.start)
    w.number(v.end)
    if v.where == OPTIMISED_AWAY:
        w.u8(3)
    elif isinstance(v.where, str):
        w.u8(2)
        w.number(int(v.where.removeprefix("cell:")))
    elif v.where < 0:
        w.u8(1)
        w.number(~v.where)
    else:
        w.u8(0)
        w.number(v.where)


def _write_profile(profile: Profile) -> bytes:
    w = Writer()
    w.number(len(profile.functions))
    for index, f in sorted(profile.functions.items()):
        w.number(index)
        w.number(f.entries)
        w.number(len(f.loops))
        for loop, (entries, iterations) in sorted(f.loops.items()):
            w.number(loop)
            w.number(entries)
            w.number(iterations)
        w.number(len(f.signatures))
        for s in f.signatures:
            w.text(s.text)
            w.number(s.count)
            for learned in (s.live_ins, s.results):
                w.number(len(learned))
                for key, text in sorted(learned.items()):
                    w.number(key)
                    w.text(text)
    return bytes(w.data)

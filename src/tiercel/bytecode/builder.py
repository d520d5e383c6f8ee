"""The Builder: what every frontend drives to make a program.

In: calls, one per instruction, in program order. Out: a `Program`, with labels resolved, the safe passes run, the
variable locations of named registers filled in, and verified.

Invariant: the methods of `FunctionBuilder` are the opcodes of the table, one each, with the row's fields as arguments.

::

    b = Builder("double")
    f = b.function("double", parameters=["x"], filename="f.py", first_line=1)
    with f.at((2, 11, 2, 16)):
        y = f.CallOp(None, "multiply", 0, (0, b.constant(2)))
        f.Return(y)
    program = b.build()
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, final

from tiercel.bytecode.constants import ConstantPool
from tiercel.bytecode.instructions import OPCODES, Instruction, Opcode
from tiercel.bytecode.passes import drop_unused_constants, run_passes
from tiercel.bytecode.program import PARAMETER_KINDS, Function, Parameter, Program, Span, Variable, home_locations
from tiercel.bytecode.tokens import settle
from tiercel.bytecode.verify import verify as verify_program
from tiercel.dtypes import as_dtype
from tiercel.errors import BytecodeError
from tiercel.shapes import Facts, TensorDescriptor

__all__ = ["Builder", "FunctionBuilder", "Label", "span_of"]


@final
class Label:
    """A place in a function, to jump to. Made by `FunctionBuilder.label`, given its place by `place`."""

    __slots__ = ("index", "name")

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.index: int | None = None

    def __repr__(self) -> str:
        return f"<Label {self.name} at {self.index}>" if self.index is not None else f"<Label {self.name}, not placed>"


class Builder:
    """Makes one program.

    Args:
        name: of the program.
        filename: default for its functions.
        source_hash: identifies the source, or empty.
        facts: what is known about the symbols of declared tokens.
    """

    def __init__(
        self, name: str, filename: str | None = None, *, source_hash: str = "", facts: Facts | None = None
    ) -> None:
        self.name = name
        self.filename = filename or ""
        self.source_hash = source_hash
        self.facts = facts
        self.constants = ConstantPool()
        self.tokens: list[TensorDescriptor] = []
        self._token_index: dict[TensorDescriptor, int] = {}
        self.functions: list[FunctionBuilder] = []

    def constant(self, value: object) -> int:
        """Return the operand (negative) of a constant. Equal constants of the same type share one.

        Raises:
            BytecodeError: the value cannot be a constant.
        """
        return self.constants.operand(value)

    def token(self, descriptor: TensorDescriptor) -> int:
        """Return the index of a declared token; equal ones share one. Its dtype becomes the name of one of Tiercel's.

        Raises:
            DTypeError: it is none of Tiercel's.
            ShapeError: the constraints of the token contradict one another.
        """
        dtype = as_dtype(descriptor.dtype_name).name
        descriptor = settle(replace(descriptor, dtype=dtype))
        index = self._token_index.setdefault(descriptor, len(self.tokens))
        if index == len(self.tokens):
            self.tokens.append(descriptor)
        return index

    def function(
        self,
        name: str,
        parameters: Sequence[Parameter | str] = (),
        free: Sequence[str] = (),
        *,
        qualname: str | None = None,
        filename: str | None = None,
        first_line: int = 0,
        source: str | None = None,
    ) -> FunctionBuilder:
        """Begin a function; the first one is the program's entry.

        Args:
            name: `__name__` of the source function.
            parameters: in register order; a string is a plain parameter of that name.
            free: names of captured cells, which arrive in the registers after the parameters.
            qualname, filename, first_line, source: as `Function` has them.
        """
        made = tuple(Parameter(p) if isinstance(p, str) else p for p in parameters)
        f = FunctionBuilder(
            self,
            name,
            made,
            tuple(free),
            qualname=name if qualname is None else qualname,
            filename=self.filename if filename is None else filename,
            first_line=first_line,
            source=source,
        )
        self.functions.append(f)
        return f

    def build(self, *, passes: bool = True, verify: bool = True) -> Program:
        """Return the program.

        Args:
            passes: whether to run the safe passes.
            verify: whether to check the result.

        Raises:
            BytecodeError: a label without a place, or what the verifier refuses.
        """
        if not self.functions:
            raise BytecodeError(f"program {self.name!r} has no function; call Builder.function first")
        functions = [f.finish() for f in self.functions]
        # A pool of the build's own: building twice gives the same program.
        constants = ConstantPool(self.constants.values)
        if passes:
            functions = [run_passes(f, constants) for f in functions]
        program = Program(
            functions=tuple(functions),
            constants=tuple(constants.values),
            tokens=tuple(self.tokens),
            facts=self.facts,
            name=self.name,
            source_hash=self.source_hash,
        )
        if passes:
            program = drop_unused_constants(program)
        if verify:
            verify_program(program)
        return program


class FunctionBuilder:
    """Makes one function: one method per opcode.

    The fields are positional or keyword arguments in the order of the table. `dst=None` takes a fresh register; the
    method returns it. Lists may be any sequence; a `token` may be a descriptor; a target may be a `Label`. `keywords`,
    `via`, `token`, `star`, `cause` and other fields that may be absent can be left out.

    Attributes:
        span: source position that the next instructions get, or None.
        index: of the function in the program.
    """

    if TYPE_CHECKING:
        # The opcode methods; those without a `dst` return None, whatever this says.
        def __getattr__(self, opcode: str) -> Callable[..., int]: ...

    def __init__(
        self,
        builder: Builder,
        name: str,
        parameters: tuple[Parameter, ...],
        free: tuple[str, ...],
        *,
        qualname: str,
        filename: str,
        first_line: int,
        source: str | None,
    ) -> None:
        for p in parameters:
            if p.kind not in PARAMETER_KINDS:
                raise BytecodeError(f"parameter {p.name!r} has kind {p.kind!r}; kinds are {', '.join(PARAMETER_KINDS)}")
        self.builder = builder
        self.name = name
        self.parameters = parameters
        self.free = free
        self.qualname = qualname
        self.filename = filename
        self.first_line = first_line
        self.source = source
        self.index = len(builder.functions)
        self.span: Span | None = None
        self.instructions: list[Instruction] = []
        self.spans: list[Span | None] = []
        self.registers = len(parameters) + len(free)
        self.loops = 0
        self._labels: list[tuple[int, str, Label]] = []
        self._homes: dict[int, str] = {}
        self._variables: list[Variable] = [Variable(p.name, 0, -1, i) for i, p in enumerate(parameters)]
        self._variables += [Variable(n, 0, -1, f"cell:{len(parameters) + i}") for i, n in enumerate(free)]

    def register(self, name: str | None = None) -> int:
        """Return a fresh register; a name makes it the home of that source variable."""
        register = self.registers
        self.registers += 1
        if name is not None:
            self._homes[register] = name
        return register

    def variable(self, name: str, where: int | str | None) -> None:
        """Say that from here on the variable is at `where` (as in `Variable`), and no longer where it was.

        None: it is gone, as the targets of a comprehension are behind it.
        """
        here = len(self.instructions)
        kept = [v for v in self._variables if v.name != name or v.end >= 0 or v.start < here]
        self._variables = [
            Variable(v.name, v.start, here, v.where) if v.name == name and v.end < 0 else v for v in kept
        ]
        if where is not None:
            self._variables.append(Variable(name, here, -1, where))

    def constant(self, value: object) -> int:
        """Return the operand of a constant: `Builder.constant`."""
        return self.builder.constant(value)

    def label(self, name: str = "") -> Label:
        """Return a new label."""
        return Label(name)

    def place(self, label: Label) -> None:
        """Give the label the place of the next instruction.

        Raises:
            BytecodeError: it has a place.
        """
        if label.index is not None:
            raise BytecodeError(f"{label!r} has a place already", section=f"function {self.name}")
        label.index = len(self.instructions)

    def new_loop(self) -> int:
        """Return a new loop id."""
        self.loops += 1
        return self.loops - 1

    @contextmanager
    def at(self, where: ast.AST | Span | None) -> Iterator[None]:
        """Give the instructions of the block the position of a syntax node, or a span; None changes nothing."""
        before = self.span
        if where is not None:
            self.span = where if isinstance(where, tuple) else span_of(where)
        try:
            yield
        finally:
            self.span = before

    def emit(self, opcode: str, *values: Any, **fields: Any) -> int | None:
        """Append an instruction given by its mnemonic; what the opcode methods call.

        Returns:
            The register it writes, if it has a field `dst`.

        Raises:
            BytecodeError: a field is missing, unknown or ill-formed.
        """
        row = OPCODES.get(opcode)
        if row is None:
            return self._append(opcode, [])  # raises, with a suggestion
        if len(values) > len(row.fields):
            raise BytecodeError(f"{opcode} has {len(row.fields)} fields, got {len(values)} values")
        given = [*values, *[_MISSING] * (len(row.fields) - len(values))]
        for name, value in fields.items():
            position = next((i for i, f in enumerate(row.fields) if f.name == name), None)
            if position is None:
                raise BytecodeError(f"{opcode} has no field {name!r}; it has {', '.join(f.name for f in row.fields)}")
            if given[position] is not _MISSING:
                raise BytecodeError(f"{opcode}.{name} is given twice")
            given[position] = value
        return self._append(opcode, [self._field(row, i, v) for i, v in enumerate(given)])

    def _field(self, row: Opcode, position: int, value: Any) -> Any:
        field = row.fields[position]
        if value is _MISSING:
            if field.kind == "def" or field.optional:
                value = None
            elif field.kind in ("uses", "names"):
                return ()
            elif field.name in _ZERO_BY_DEFAULT:
                return 0
            else:
                raise BytecodeError(f"{row.name}.{field.name} is missing")
        if value is None and field.kind == "def" and not field.optional:
            return self.register()
        if field.kind == "target" and isinstance(value, Label):
            self._labels.append((len(self.instructions), field.name, value))
            return 0
        if field.kind == "names" and value is not None:
            # All positional is written one way only.
            return tuple(value) if any(value) else ()
        if field.kind in ("uses", "defs") and value is not None:
            return tuple(value)
        if field.kind == "token" and value is not None and not isinstance(value, int):
            return self.builder.token(value)
        return value

    def _append(self, opcode: str, fields: list[Any]) -> int | None:
        ins = Instruction(opcode, tuple(fields))
        self.instructions.append(ins)
        self.spans.append(self.span)
        return ins["dst"] if ins.row.fields and ins.row.fields[0].name == "dst" else None

    def finish(self) -> Function:
        """Return the function with labels resolved and locations of named registers; `Builder.build` calls it.

        Raises:
            BytecodeError: a label is used but has no place.
        """
        instructions = list(self.instructions)
        for index, field, label in self._labels:
            if label.index is None:
                raise BytecodeError(
                    f"{instructions[index].opcode} {index} goes to {label!r}; call place(label)",
                    section=f"function {self.name}",
                )
            instructions[index] = instructions[index].replace(**{field: label.index})
        return Function(
            name=self.name,
            instructions=tuple(instructions),
            spans=tuple(self.spans),
            qualname=self.qualname,
            filename=self.filename,
            first_line=self.first_line,
            parameters=self.parameters,
            free=self.free,
            registers=self.registers,
            variables=self._locations(instructions),
            loops=self.loops,
            source=self.source,
        )

    def _locations(self, instructions: Sequence[Instruction]) -> tuple[Variable, ...]:
        end = len(instructions)
        found = [v if v.end >= 0 else Variable(v.name, v.start, end, v.where) for v in self._variables]
        return tuple([v for v in [*found, *home_locations(instructions, self._homes)] if v.start < v.end])


_MISSING: Final = object()
_ZERO_BY_DEFAULT: Final = ("spelling", "star")


def span_of(node: ast.AST) -> Span | None:
    """Return the position of a syntax node; None if it has none."""
    line = getattr(node, "lineno", None)
    if line is None:
        return None
    col = getattr(node, "col_offset", 0)
    end_line = getattr(node, "end_lineno", None)
    end_col = getattr(node, "end_col_offset", None)
    return (line, col, line if end_line is None else end_line, col if end_col is None else end_col)


def _method(row: Opcode) -> Callable[..., int | None]:
    def emit(self: FunctionBuilder, *values: Any, **fields: Any) -> int | None:
        return self.emit(row.name, *values, **fields)

    emit.__name__ = row.name
    emit.__qualname__ = f"FunctionBuilder.{row.name}"
    emit.__doc__ = f"Append `{row.text}`.\n\nFields: {', '.join(f.name for f in row.fields) or 'none'}. {row.doc}"
    return emit


for _opcode in OPCODES.values():
    setattr(FunctionBuilder, _opcode.name, _method(_opcode))

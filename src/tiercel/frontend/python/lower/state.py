"""The state of lowering one function, and the steps every construct is made of: emit, branch, load and store a
variable.

In: a `Source` and its scopes. Out: instructions in a `FunctionBuilder`. The constructs register themselves in
`EXPRESSIONS` and `STATEMENTS`, one module a group.

Invariants:

- Nothing is emitted where control cannot come. `bound` holds the variables that are surely assigned here, None where
  here is unreachable. Jumps go forward, so the state at a label is complete when the label is placed; at the head of a
  loop and at a handler it is what held at entry without what the body may delete.
- A variable that may be unassigned when read is checked there (`Check bound`). The registers of such variables hold
  UNBOUND from the start; since this is known only at the end, the function is lowered again with that knowledge.
- Operands are read when the instruction runs, Python reads them when it evaluates them. They differ only where a later
  operand assigns the variable (`x + (x := 1)`); there the value is moved to a register of its own first.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, TypeAlias

from tiercel.bytecode import UNBOUND, Builder, ObjectRef
from tiercel.bytecode.builder import FunctionBuilder, Label, span_of
from tiercel.bytecode.program import Span
from tiercel.errors import CaptureError
from tiercel.frontend.python.outline import Outliner
from tiercel.frontend.python.resolve import Resolver
from tiercel.frontend.python.scopes import FunctionScope, Scope, Variable, mangle, walk_own
from tiercel.frontend.python.source import Source

__all__ = ["EXPRESSIONS", "STATEMENTS", "Finally", "Loop", "Lowering", "Reason", "Target", "expression", "statement"]

Where: TypeAlias = ast.AST | Span | None
ExpressionRule: TypeAlias = Callable[["Lowering", Any, "int | None"], int]
StatementRule: TypeAlias = Callable[["Lowering", Any], None]

EXPRESSIONS: Final[dict[type[ast.AST], ExpressionRule]] = {}
STATEMENTS: Final[dict[type[ast.AST], StatementRule]] = {}


def expression(*kinds: type[ast.AST]) -> Callable[[ExpressionRule], ExpressionRule]:
    """Register the rule of expression nodes: rule(lowering, node, dst) returns the operand that holds the value.

    With a `dst` the rule may write the value there, as its last act, and return `dst`; or ignore it.
    """

    def register(rule: ExpressionRule) -> ExpressionRule:
        for kind in kinds:
            EXPRESSIONS[kind] = rule
        return rule

    return register


def statement(*kinds: type[ast.AST]) -> Callable[[StatementRule], StatementRule]:
    """Register the rule of statement nodes."""

    def register(rule: StatementRule) -> StatementRule:
        for kind in kinds:
            STATEMENTS[kind] = rule
        return rule

    return register


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a line runs as Python.

    Attributes:
        line: of the file.
        kind: "callpy" or "outlined".
        text: the reason.
    """

    line: int
    kind: str
    text: str


@dataclass(eq=False, slots=True)
class Target:
    """A label, and the variables that are surely assigned when control comes there."""

    label: Label
    bound: set[Variable] | None = None


@dataclass(eq=False, slots=True)
class Loop:
    """A loop around the current statement."""

    break_to: Target
    continue_to: Target


@dataclass(eq=False, slots=True)
class Finally:
    """Something to do on every way out of the current statement: a `finally` block, a manager's `__exit__`.

    Attributes:
        clean_up: emits it.
        pending: per way out, ("return",) or ("break" | "continue", loop), where that way continues.
        value: register of the value being returned.
    """

    clean_up: Callable[[], None]
    pending: dict[tuple[object, ...], Target] = field(default_factory=dict)
    value: int | None = None


class Lowering:
    """Lowers one function.

    Args:
        builder: that gets the instructions.
        f: the function's builder.
        source: of the function.
        scopes: of the source.
        resolver: of its names.
        outliner: makes code objects for what has no instruction.
        unbound: variables that need UNBOUND at the start; found by an earlier run.
        shared: ids of the statements that are outlined as a whole.
        limit: most instructions.
    """

    def __init__(
        self,
        builder: Builder,
        f: FunctionBuilder,
        source: Source,
        scopes: FunctionScope,
        resolver: Resolver,
        outliner: Outliner,
        *,
        unbound: frozenset[Variable],
        shared: set[int],
        limit: int,
    ) -> None:
        self.builder = builder
        self.f = f
        self.source = source
        self.scopes = scopes
        self.scope: Scope = scopes.root
        self.resolver = resolver
        self.outliner = outliner
        self.unbound = unbound
        self.shared = shared
        self.limit = limit
        self.found_unbound: set[Variable] = set()
        self.bound: set[Variable] | None = set()
        self.registers: dict[Variable, int] = {}
        self.exits: list[Loop | Finally] = []
        self.reasons: list[Reason] = []
        # Variables that hold a list wherever they are bound: what `append` on them means is certain.
        self.lists: set[Variable] = set()

    # ---- emitting ----------------------------------------------------------------------------------------------------

    @property
    def reachable(self) -> bool:
        """Whether control can come here."""
        return self.bound is not None

    def emit(self, where: Where, opcode: str, *values: Any, **fields: Any) -> int:
        """Emit an instruction at a position, and return the register of its field `dst`; nothing where unreachable."""
        if self.bound is None:
            return self.none
        return self.emit_always(where, opcode, *values, **fields)

    def emit_always(self, where: Where, opcode: str, *values: Any, **fields: Any) -> int:
        """Emit an instruction even where control cannot come: ends of structures, which belong to their beginning."""
        self.f.span = where if isinstance(where, tuple) or where is None else span_of(where)
        if len(self.f.instructions) >= self.limit:
            self.fail(where, f"it is too large: more than {self.limit} instructions")
        made = self.f.emit(opcode, *values, **fields)
        return self.none if made is None else made

    @property
    def none(self) -> int:
        """Operand of the constant None."""
        return self.builder.constant(None)

    def constant(self, value: object) -> int:
        """Operand of a constant."""
        return self.builder.constant(value)

    def builtin(self, value: type) -> int:
        """Operand of a builtin class that is meant whatever its name is bound to."""
        return self.named_object(f"builtins.{value.__name__}", value)

    def named_object(self, name: str, value: Any) -> int:
        """Operand of a Python object known by name."""
        return self.builder.constant(self.outliner.reference(name, value))

    def fail(self, where: Where, reason: str) -> NoReturn:
        """Give up: the whole function runs as Python."""
        span = where if isinstance(where, tuple) else None if where is None else span_of(where)
        line, col, end_col = self.source.code.co_firstlineno, None, None
        if span is not None:
            line, col = span[0], span[1]
            end_col = span[3] if span[2] == span[0] else None
        raise CaptureError(reason, filename=self.source.filename, line=line, col=col, end_col=end_col)

    def note(self, where: ast.AST, kind: str, text: str) -> None:
        """Remember why something runs as Python."""
        if self.reachable:
            self.reasons.append(Reason(getattr(where, "lineno", 0), kind, text))

    # ---- control -----------------------------------------------------------------------------------------------------

    def target(self, name: str = "") -> Target:
        """Return a new place to jump to."""
        return Target(self.f.label(name))

    def _arrive(self, target: Target) -> None:
        assert self.bound is not None
        target.bound = set(self.bound) if target.bound is None else target.bound & self.bound

    def jump(self, where: Where, target: Target) -> None:
        """Go to a target; what follows is unreachable."""
        if self.bound is None:
            return
        self.emit(where, "Jump", target.label)
        self._arrive(target)
        self.bound = None

    def branch(self, where: Where, condition: int, then: Target, else_: Target) -> None:
        """Go to one of two targets; what follows is unreachable."""
        if self.bound is None:
            return
        if then is else_:
            self.jump(where, then)
            return
        self.emit(where, "BranchIf", condition, then.label, else_.label)
        self._arrive(then)
        self._arrive(else_)
        self.bound = None

    def place(self, target: Target) -> None:
        """Make here the place of a target. Reachable if something jumps there or control falls through."""
        self.f.place(target.label)
        if target.bound is not None:
            self.bound = target.bound if self.bound is None else self.bound & target.bound

    def enter(self, target: Target, bound: set[Variable]) -> None:
        """Make here the place of a target that control comes to without a jump: a handler, a loop's exit."""
        assert self.bound is None
        self.f.place(target.label)
        self.bound = bound if target.bound is None else bound & target.bound

    def leave(self, way: tuple[object, ...], where: Where, value: int | None = None) -> None:
        """Leave by `return`, `break` or `continue`, doing on the way what is to be done."""
        for exit_ in reversed(self.exits):
            if isinstance(exit_, Finally):
                if value is not None:
                    if exit_.value is None:
                        exit_.value = self.f.register()
                    self.emit(where, "Move", exit_.value, value)
                pending = exit_.pending.setdefault(way, self.target(str(way[0])))
                self.jump(where, pending)
                return
            if len(way) == 2 and exit_ is way[1]:
                self.jump(where, exit_.break_to if way[0] == "break" else exit_.continue_to)
                return
        self.emit(where, "Return", self.none if value is None else value)
        self.bound = None

    def after(self, done: Finally, where: Where) -> None:
        """Emit the ways out that were held up by a `Finally`, which is no longer among the exits."""
        for way, target in done.pending.items():
            assert self.bound is None
            self.place(target)
            done.clean_up()
            if self.reachable:
                self.leave(way, where, done.value if way[0] == "return" else None)

    def current_loop(self) -> Loop:
        """Return the innermost loop."""
        return next(e for e in reversed(self.exits) if isinstance(e, Loop))

    # ---- variables ---------------------------------------------------------------------------------------------------

    def mangle(self, name: str) -> str:
        """Return a name as it is stored: private names of a class mangled."""
        return mangle(name, self.source.private_class)

    def home(self, variable: Variable) -> int:
        """Return the register of a variable, or of its cell."""
        found = self.registers.get(variable)
        if found is None:
            own = variable.kind == "local" and variable.scope is self.scopes.root
            found = self.registers[variable] = self.f.register(variable.name if own else None)
        return found

    def is_parameter(self, variable: Variable) -> bool:
        """Whether a variable is a parameter in the register it arrived in."""
        return variable.kind == "local" and self.home(variable) < len(self.f.parameters)

    def locate(self, variable: Variable) -> None:
        """Tell debuggers that from here on a name means this variable."""
        home = self.home(variable)
        self.f.variable(variable.name, home if variable.kind == "local" else f"cell:{home}")

    def load(self, where: Where, variable: Variable, dst: int | None = None) -> int:
        """Return an operand that holds the value of a variable; raises in Python's words if it has none."""
        home = self.home(variable)
        free = self.scope.sees_through_frame(variable)
        if variable.kind != "local":
            # The interpreter words the error by where the cell comes from; `free:` says that here it is a free one.
            name = f"free:{variable.name}" if free and variable.kind == "cell" else variable.name
            return self.emit(where, "LoadCell", dst, home, name)
        if self.bound is not None and variable not in self.bound:
            self.emit(where, "Check", "bound_free" if free else "bound", home, variable.name)
            self.found_unbound.add(variable)
            self.bound.add(variable)
        return home

    def store(self, where: Where, variable: Variable, value: int) -> None:
        """Assign to a variable."""
        home = self.home(variable)
        if variable.kind != "local":
            self.emit(where, "StoreCell", home, value)
            return
        if value != home:
            self.emit(where, "LoadConst" if value < 0 else "Move", home, value)
        if self.bound is not None:
            self.bound.add(variable)

    def unbind(self, where: Where, variable: Variable) -> None:
        """Make a variable unassigned."""
        home = self.home(variable)
        if variable.kind != "local":
            self.emit(where, "StoreCell", home, self.constant(UNBOUND))
            return
        self.emit(where, "LoadConst", home, self.constant(UNBOUND))
        if self.bound is not None:
            self.bound.discard(variable)

    def surviving(self, body: Iterable[ast.AST]) -> set[Variable]:
        """Return what stays assigned however far a body gets, and however often."""
        assert self.bound is not None
        lost = {self.mangle(name) for part in body for name in _deletions(part)}
        return {v for v in self.bound if v.name not in lost}

    # ---- operands ----------------------------------------------------------------------------------------------------

    def expression(self, node: ast.AST, dst: int | None = None) -> int:
        """Lower an expression and return the operand that holds its value.

        Args:
            node: the expression.
            dst: where the value would best be; only a wish.
        """
        if self.bound is None:
            return self.none
        rule = EXPRESSIONS.get(type(node))
        if rule is None:
            self.fail(node, f"{type(node).__name__} expressions have no bytecode form")
        return rule(self, node, dst)

    def into(self, node: ast.AST, dst: int) -> None:
        """Lower an expression and put its value into a register."""
        value = self.expression(node, dst)
        if value != dst:
            self.emit(node, "LoadConst" if value < 0 else "Move", dst, value)

    def operands(self, nodes: Sequence[ast.AST]) -> list[int]:
        """Lower expressions in order and return operands that all hold their values afterwards."""
        found: list[int] = []
        for index, node in enumerate(nodes):
            found.append(self.keep(node, self.expression(node), nodes[index + 1 :]))
        return found

    def keep(self, node: ast.AST, operand: int, later: Iterable[ast.AST]) -> int:
        """Return an operand that still holds the value when the expressions `later` have been evaluated."""
        if operand < 0 or not self.scopes.walrus or not isinstance(node, ast.Name | ast.NamedExpr):
            return operand
        name = self.mangle(node.id if isinstance(node, ast.Name) else node.target.id)
        if name not in self.scopes.walrus or not any(_assigns(part, name, self) for part in later):
            return operand
        return self.emit(node, "Move", None, operand)

    # ---- statements --------------------------------------------------------------------------------------------------

    def statements(self, body: Iterable[ast.stmt]) -> None:
        """Lower statements until control cannot come any further."""
        for node in body:
            if self.bound is None:
                return
            rule = STATEMENTS.get(type(node))
            if rule is None:
                self.fail(node, f"{type(node).__name__} statements have no bytecode form")
            rule(self, node)

    @contextmanager
    def inside(self, exit_: Loop | Finally) -> Iterator[None]:
        """Lower something that is left through `exit_`."""
        self.exits.append(exit_)
        try:
            yield
        finally:
            self.exits.pop()

    # ---- Python ------------------------------------------------------------------------------------------------------

    def call_outlined(
        self, where: ast.AST, reason: str, ref: ObjectRef, args: Sequence[int] = (), cells: Sequence[int] = ()
    ) -> int:
        """Call a piece of code compiled by CPython and return its result.

        Args:
            where: position.
            reason: why it has no instructions.
            ref: the code object, from the outliner.
            args: values of its parameters.
            cells: registers of the cells of its free variables.
        """
        self.note(where, "outlined", reason)
        made = self.emit(where, "MakeFunction", None, self.builder.constant(ref), self.f.name, None, None, cells)
        return self.emit(where, "CallPy", None, made, tuple(args), (), reason)


def _deletions(node: ast.AST) -> Iterator[str]:
    for part in walk_own(node, comprehensions=False):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Del):
            yield part.id
        elif isinstance(part, ast.ExceptHandler) and part.name:
            yield part.name


def _assigns(node: ast.AST, name: str, lowering: Lowering) -> bool:
    return any(
        isinstance(part, ast.NamedExpr) and lowering.mangle(part.target.id) == name
        for part in walk_own(node, comprehensions=True)
    )

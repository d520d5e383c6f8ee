"""The loop form: the last form before machine code, and the first that says in which order elements are computed.

In: what `compiler` lowers a fused region to. Out: what `codegen` turns into instructions.

Semantics, once for all nodes:

* Every expression has a `DType`. Index arithmetic is ordinary int64 arithmetic; there is no separate index language.
* Integers wrap modulo 2**bits. Integer `floordiv`/`mod` round towards minus infinity (as NumPy), and the divisor is
  never zero: whoever builds the node has put a guard before it. Shift counts are in 0..bits-1 likewise.
* Floats are IEEE-754 in their own dtype, one rounding per node, no contraction and no reassociation. The only licence
  to reorder is `Reduce` and `Contract`, which say so. float16 and bfloat16 nodes compute in float32 and round once.
* `min`/`max` propagate NaN (NumPy `minimum`/`maximum`); `fmin`/`fmax` prefer the number.
* Operands are evaluated before their node; both arms of `Select` may be evaluated (they have no side effects and
  never trap); statements run in order. `Load` and `Store` are in bounds: bounds were checked by a guard before.
* Buffers of one function do not overlap unless they share a `root`. A buffer with explicit strides may repeat elements
  (stride 0) only when it is read.
* `parallel` axes promise that iterations touch disjoint elements and carry nothing but `Reduce` targets declared
  inside. `vector` axes promise the same for a group of neighbouring iterations; a `Reduce` in a vector axis may keep
  one partial result per lane and combine them at the end.

Why not LLVM IR at once: parallel axes, memory spaces and vector width stay abstract here, so that one lowering serves
every target, and the checker and the printer work on something a person can read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from tiercel.dtypes import DType, as_dtype

INDEX = as_dtype("int64")
BOOL = as_dtype("bool")

# name -> which kinds of dtype it takes: b bool, i signed, u unsigned, f float, c complex
UNARY: dict[str, str] = {
    "neg": "iufc",
    "abs": "iuf",
    "not": "b",
    "invert": "iu",
    "floor": "f",
    "ceil": "f",
    "rint": "f",
    "trunc": "f",
    "sign": "iuf",
    "sqrt": "f",
    "rsqrt": "f",
    "exp": "f",
    "exp_nonpositive": "f",  # exp for arguments that are not above 0 (or NaN): it saves the care for overflow
    "exp2": "f",
    "expm1": "f",
    "log": "f",
    "log2": "f",
    "log10": "f",
    "log1p": "f",
    "sin": "f",
    "cos": "f",
    "tan": "f",
    "arcsin": "f",
    "arccos": "f",
    "arctan": "f",
    "sinh": "f",
    "cosh": "f",
    "tanh": "f",
    "arcsinh": "f",
    "arccosh": "f",
    "arctanh": "f",
    "cbrt": "f",
    "sigmoid": "f",
    "erf": "f",
    "erfc": "f",
    "isnan": "f",
    "isinf": "f",
    "isfinite": "f",
    "signbit": "f",
}
BINARY: dict[str, str] = {
    "add": "iufc",
    "sub": "iufc",
    "mul": "iufc",
    "div": "fc",
    "floordiv": "iuf",
    "mod": "iuf",
    "pow": "iuf",
    "min": "biuf",
    "max": "biuf",
    "fmin": "f",
    "fmax": "f",
    "and": "biu",
    "or": "biu",
    "xor": "biu",
    "shl": "iu",
    "shr": "iu",
    "fmod": "f",
    "atan2": "f",
    "hypot": "f",
    "copysign": "f",
}
COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
REDUCTIONS: dict[str, str] = {
    "add": "iuf",
    "mul": "iuf",
    "min": "biuf",
    "max": "biuf",
    "and": "b",
    "or": "b",
}
SPACES = ("argument", "result", "arena", "constant")
AXES = ("serial", "parallel", "vector")


class IllFormed(ValueError):
    """A node was built that the loop form does not allow: a bug in the pass that built it."""


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise IllFormed(message)


class Expr:
    """Base of the expressions. Every subclass has a `dtype`."""

    __slots__ = ()
    dtype: DType


@dataclass(frozen=True, slots=True)
class Const(Expr):
    """A literal. `value` is a Python bool, int or float (complex for complex dtypes)."""

    value: bool | int | float | complex
    dtype: DType


@dataclass(frozen=True, slots=True)
class Var(Expr):
    """A loop index, a size of the function, a scalar argument, or a name bound by `Let` or `Local`."""

    name: str
    dtype: DType = INDEX


THREAD_COUNT = Var(".threads")
"""How many threads may run a parallel axis that begins here: at least 1, and 1 inside of another one. Always bound."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """A strided block of memory.

    `shape` and `strides` are int64 expressions over the sizes of the function (strides in elements, None for C order).
    `root` names the buffer whose memory this one looks into, None when it owns its memory; `offset` is in elements.
    """

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...] | None = None
    space: str = "argument"
    root: str | None = None
    offset: Expr | None = None

    def __post_init__(self) -> None:
        _require(self.space in SPACES, f"buffer {self.name}: unknown space {self.space!r}")
        _require(
            self.strides is None or len(self.strides) == len(self.shape),
            f"buffer {self.name}: {len(self.shape)} dimensions, {self.strides and len(self.strides)} strides",
        )

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)


@dataclass(frozen=True, slots=True)
class Load(Expr):
    """`buffer[index]`."""

    buffer: Buffer
    index: tuple[Expr, ...]

    def __post_init__(self) -> None:
        _require(
            len(self.index) == self.buffer.rank,
            f"load of {self.buffer.name}: rank {self.buffer.rank}",
        )
        _require(
            all(i.dtype is INDEX for i in self.index),
            f"load of {self.buffer.name}: index is not int64",
        )

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        """The dtype of the buffer."""
        return self.buffer.dtype


@dataclass(frozen=True, slots=True)
class Unary(Expr):
    """`op(x)`, elementwise."""

    op: str
    x: Expr

    def __post_init__(self) -> None:
        _require(self.op in UNARY, f"unknown unary operation {self.op!r}")
        _require(
            self.x.dtype.kind in UNARY[self.op],
            f"{self.op} does not take {self.x.dtype.name}",
        )

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        """bool for predicates, else the operand's."""
        return BOOL if self.op in ("isnan", "isinf", "isfinite", "signbit") else self.x.dtype


@dataclass(frozen=True, slots=True)
class Binary(Expr):
    """`op(a, b)`; both operands have the same dtype, which is also the result's."""

    op: str
    a: Expr
    b: Expr

    def __post_init__(self) -> None:
        _require(self.op in BINARY, f"unknown binary operation {self.op!r}")
        _require(
            self.a.dtype is self.b.dtype,
            f"{self.op}: {self.a.dtype.name} and {self.b.dtype.name}",
        )
        _require(
            self.a.dtype.kind in BINARY[self.op],
            f"{self.op} does not take {self.a.dtype.name}",
        )

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        """The operands' dtype."""
        return self.a.dtype


@dataclass(frozen=True, slots=True)
class Fma(Expr):
    """`a * b + c` rounded once; float32 and float64."""

    a: Expr
    b: Expr
    c: Expr

    def __post_init__(self) -> None:
        _require(
            self.a.dtype is self.b.dtype is self.c.dtype,
            f"fma: {self.a.dtype.name}, {self.b.dtype.name} and {self.c.dtype.name}",
        )
        _require(self.a.dtype.name in ("float32", "float64"), f"fma does not take {self.a.dtype.name}")

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        """The operands' dtype."""
        return self.a.dtype


@dataclass(frozen=True, slots=True)
class Compare(Expr):
    """`a op b` as bool; ordered comparisons with NaN are false, `ne` with NaN is true."""

    op: str
    a: Expr
    b: Expr

    def __post_init__(self) -> None:
        _require(self.op in COMPARE, f"unknown comparison {self.op!r}")
        _require(
            self.a.dtype is self.b.dtype,
            f"{self.op}: {self.a.dtype.name} and {self.b.dtype.name}",
        )

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        """Always bool."""
        return BOOL


@dataclass(frozen=True, slots=True)
class Select(Expr):
    """`a if condition else b`, without branching."""

    condition: Expr
    a: Expr
    b: Expr

    def __post_init__(self) -> None:
        _require(self.condition.dtype is BOOL, "select: condition is not bool")
        _require(
            self.a.dtype is self.b.dtype,
            f"select: {self.a.dtype.name} and {self.b.dtype.name}",
        )

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        """The arms' dtype."""
        return self.a.dtype


@dataclass(frozen=True, slots=True)
class Cast(Expr):
    """NumPy's `astype`: float to int truncates, to bool compares with zero, narrowing rounds to even."""

    x: Expr
    dtype: DType


class Stmt:
    """Base of the statements."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Block(Stmt):
    """Statements in order. Names bound inside end with it."""

    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class For(Stmt):
    """`for index in range(extent)`: the body once per value, in order unless the axis is parallel or vector.

    `work` may say how much all iterations compute, in units of the target's estimate (None: what the body looks like).
    `vectors` is how many vectors of the widest element a pass of a vector axis should take, 0 to let the target choose.
    """

    index: str
    extent: Expr
    body: Block
    axis: str = "serial"
    work: Expr | None = None
    vectors: int = 0

    def __post_init__(self) -> None:
        _require(self.axis in AXES, f"unknown axis kind {self.axis!r}")
        _require(self.extent.dtype is INDEX, f"for {self.index}: extent is not int64")


@dataclass(frozen=True, slots=True)
class While(Stmt):
    """Run `header`, leave when `condition` is false, run `body`, again. Names bound in `header` are seen by both."""

    header: Block
    condition: Expr
    body: Block

    def __post_init__(self) -> None:
        _require(self.condition.dtype is BOOL, "while: condition is not bool")


@dataclass(frozen=True, slots=True)
class If(Stmt):
    """Branch."""

    condition: Expr
    then: Block
    orelse: Block = field(default_factory=lambda: Block(()))

    def __post_init__(self) -> None:
        _require(self.condition.dtype is BOOL, "if: condition is not bool")


@dataclass(frozen=True, slots=True)
class Let(Stmt):
    """Bind an immutable scalar until the end of the enclosing block.

    `most` is a bound of a size that is only found out when running, made of the function's sizes: a buffer sized by it
    takes so much room.
    """

    name: str
    value: Expr
    most: Expr | None = None

    def __post_init__(self) -> None:
        _require(
            self.most is None or self.most.dtype is INDEX is self.value.dtype, f"let {self.name}: a bound of no size"
        )


@dataclass(frozen=True, slots=True)
class Local(Stmt):
    """Declare a mutable scalar with its first value, until the end of the enclosing block."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Assign(Stmt):
    """Give a `Local` a new value."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Reduce(Stmt):
    """`name = op(name, value)` for a `Local`; the order of combination over an enclosing vector axis is free."""

    name: str
    op: str
    value: Expr

    def __post_init__(self) -> None:
        _require(self.op in REDUCTIONS, f"unknown reduction {self.op!r}")
        _require(
            self.value.dtype.kind in REDUCTIONS[self.op],
            f"{self.op} does not reduce {self.value.dtype.name}",
        )


@dataclass(frozen=True, slots=True)
class Store(Stmt):
    """`buffer[index] = value`."""

    buffer: Buffer
    index: tuple[Expr, ...]
    value: Expr

    def __post_init__(self) -> None:
        _require(
            len(self.index) == self.buffer.rank,
            f"store to {self.buffer.name}: rank {self.buffer.rank}",
        )
        _require(
            all(i.dtype is INDEX for i in self.index),
            f"store to {self.buffer.name}: index is not int64",
        )
        _require(
            self.buffer.space != "constant",
            f"store to constant buffer {self.buffer.name}",
        )
        _require(
            self.value.dtype is self.buffer.dtype,
            f"store of {self.value.dtype.name} to {self.buffer.dtype.name} {self.buffer.name}",
        )


@dataclass(frozen=True, slots=True)
class Allocate(Stmt):
    """Make an arena buffer usable until the end of the enclosing block; the memory plan gave it its place."""

    buffer: Buffer


@dataclass(frozen=True, slots=True)
class Panel:
    """Some neighbouring columns of the right operand of a `Contract`, from `first` on, and the name of their sum."""

    accumulator: str
    first: int


@dataclass(frozen=True, slots=True)
class Contract(Stmt):
    """`out[m, n] = epilogue(init[m, n] + sum over k of a[m, k] * b[k, n])`, summed in any order.

    `a`, `b` are rank-2 buffers with any strides (a transposed operand is a strided buffer). `accumulator` is the name
    by which `epilogue` (a block ending in stores) sees the sum of element (`row`, `column`); the epilogue may
    load other buffers at [row, column], [column], [row]. With `packed`, `b` is a constant laid out by the code
    generator's packing routine for this node, once per weight.

    With `panels` only a part of `b` is one operand: `n` is the number of columns of each panel, and `epilogue` sees the
    sums of element (`row`, `first + column`) for all of them at once, each by the panel's name. `accumulator` is that
    of the first panel; `b` is packed.
    """

    a: Buffer
    b: Buffer
    row: str
    column: str
    accumulator: str
    epilogue: Block
    m: Expr
    n: Expr
    k: Expr
    packed: bool = False
    panels: tuple[Panel, ...] = ()

    def __post_init__(self) -> None:
        _require(self.a.rank == 2 and self.b.rank == 2, "contract: operands are not matrices")
        _require(
            not self.panels or (self.packed and self.panels[0].accumulator == self.accumulator),
            "contract: panels of an operand that is not packed, or another accumulator than that of the first",
        )
        _require(
            self.b.dtype in (self.a.dtype, *_stored_for(self.a.dtype)),
            f"contract: {self.a.dtype.name} and {self.b.dtype.name}",
        )
        _require(
            self.a.dtype.kind == "f" or (self.a.dtype.kind in "iu" and self.a.dtype.itemsize >= 4),
            f"contract does not take {self.a.dtype.name}",
        )


NARROW: Final = {"float32": ("float16", "bfloat16"), "int32": ("int8", "uint8", "int16", "uint16")}
"""Dtypes that a product widens to another one as it reads its right operand."""


def _stored_for(dtype: DType) -> tuple[DType, ...]:
    """Dtypes of a right operand that is widened as it is multiplied with a left one of this dtype."""
    names = NARROW.get(dtype.name, ())
    return tuple(map(as_dtype, names))


@dataclass(frozen=True, slots=True)
class Multiply(Stmt):
    """`c = a @ b` for (m, k) `a`, (k, n) `b`, (m, n) `c`: what `Contract` becomes on targets with such a routine.

    With `accumulate` it is `c += a @ b`. `a` and `b` may have any strides unless `b` is `packed` (see `Contract`); rows
    of `c` are contiguous. `before` columns to the left of `b` may be read as well (None: none). Beside float32 `b` may
    be float16 or bfloat16, beside int32 an integer of 8 or 16 bits.

    With `firsts`, `b` is packed as panels (see `Contract`) and `c` has as many parts of equal width side by side: part
    p is `a @ b[:, firsts[p] + start : firsts[p] + start + n]`, and what follows it up to the next part is not kept.

    How, which changes no sum: `rows` of `a` at most at a time, `vectors` a panel (what `b` is `packed` by), and what
    becomes of an unpacked `b` (`how`); None and 0 leave it to the routine.
    """

    a: Buffer
    b: Buffer
    c: Buffer
    m: Expr
    n: Expr
    k: Expr
    packed: bool = False
    accumulate: bool = False
    before: Expr | None = None
    firsts: tuple[int, ...] = ()
    start: Expr | None = None
    rows: Expr | None = None
    how: Expr | None = None
    vectors: int = 0

    def __post_init__(self) -> None:
        _require(all(x.rank == 2 for x in (self.a, self.b, self.c)), "multiply: operands are not matrices")
        _require(
            not self.firsts or (self.packed and self.start is not None and not self.accumulate),
            "multiply: panels need a packed operand and a start",
        )
        _require(
            self.a.dtype is self.c.dtype and self.b.dtype in (self.a.dtype, *_stored_for(self.a.dtype)),
            "multiply: operands of different dtypes",
        )


@dataclass(frozen=True, slots=True)
class Pack(Stmt):
    """Lay the (k, n) matrix `b` out for `Multiply` in the rank-1 buffer `panels`."""

    b: Buffer
    panels: Buffer
    n: Expr
    k: Expr
    vectors: int = 0


@dataclass(frozen=True, slots=True)
class Turn(Stmt):
    """`target[j, i] = source[i, j]` for i < m, j < n; rows of both are contiguous; float32 and float64."""

    source: Buffer
    target: Buffer
    m: Expr
    n: Expr

    def __post_init__(self) -> None:
        _require(self.source.rank == 2 and self.target.rank == 2, "turn: operands are not matrices")
        _require(self.source.dtype is self.target.dtype, "turn: operands of different dtypes")
        _require(self.source.dtype.name in ("float32", "float64"), f"turn does not take {self.source.dtype.name}")


@dataclass(frozen=True, slots=True)
class Ask(Stmt):
    """Say that `buffer[index]`, and what shares its line of the cache, is going to be read. It changes nothing."""

    buffer: Buffer
    index: tuple[Expr, ...]


UNFOLD_SLACK = 128
"""Elements behind each plane of `Unfold`, for vectors that begin inside: zeros, or numbers of the image."""


@dataclass(frozen=True, slots=True)
class Unfold(Stmt):
    """Lay a part of an image out so that every tap of a convolution is a shift.

    `source` has (channels, rows, columns). What is read begins at row `top` and column `left`; rows and columns that
    are not there (of padding, below 0 or beyond the end) read as 0. `target`, of rank 1, gets `down * across` planes a
    channel, of `rows * pitch` elements and `UNFOLD_SLACK` more: element (r, x) of plane (a, b) of channel c is

        source[c, top + r * down + a, left + x * across + b]

    and lies at `((c * down + a) * across + b) * (rows * pitch + UNFOLD_SLACK) + r * pitch + x`.
    """

    source: Buffer
    target: Buffer
    top: Expr
    left: Expr
    rows: Expr
    pitch: Expr
    down: int = 1
    across: int = 1

    def __post_init__(self) -> None:
        _require(self.source.rank == 3 and self.target.rank == 1, "unfold: an image of 3 axes into a row")
        _require(self.source.dtype is self.target.dtype, "unfold: operands of different dtypes")
        _require(self.source.dtype.name in ("float32", "float64"), f"unfold does not take {self.source.dtype.name}")
        _require(self.down > 0 and self.across > 0, "unfold: strides are positive")


@dataclass(frozen=True, slots=True)
class Convolve(Stmt):
    """Sums over the taps of windows, for every output of a block and every position in it, from 0 in their order.

        c[o, y, x] = max(low, bias[o] + sum over t of weights[o, t] * image[y * pitch + x + offsets[t]])

    `weights` is (outputs, taps), `c` (outputs, height, width), rows of both are
    contiguous; `image` is what `Unfold` gives, `offsets` has a number a tap. Without `bias` nothing is added; NaNs are
    kept, and a `low` of None changes nothing.
    """

    weights: Buffer
    image: Buffer
    offsets: Buffer
    c: Buffer
    pitch: Expr
    bias: Buffer | None = None
    low: float | None = None

    def __post_init__(self) -> None:
        ranks = (self.weights.rank, self.image.rank, self.offsets.rank, self.c.rank)
        _require(ranks == (2, 1, 1, 3), f"convolve: operands of ranks {ranks}")
        _require(self.weights.dtype is self.image.dtype is self.c.dtype, "convolve: operands of different dtypes")
        _require(self.c.dtype.name in ("float32", "float64"), f"convolve does not take {self.c.dtype.name}")
        _require(self.offsets.dtype is INDEX, "convolve: offsets are not int64")
        _require(
            self.bias is None or (self.bias.rank == 1 and self.bias.dtype is self.c.dtype), "convolve: bias is no row"
        )


@dataclass(frozen=True, slots=True)
class Exit(Stmt):
    """Leave the function with a site number (> 0): the interpreter goes on there."""

    site: int

    def __post_init__(self) -> None:
        _require(self.site > 0, "exit: sites are numbered from 1")


@dataclass(frozen=True, slots=True)
class Output(Stmt):
    """Give a scalar result of the function its value (may run more than once, the last one counts)."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Function:
    """A compilable unit.

    `sizes` (int64) and `scalars` are given by the caller, `buffers` are all buffers of the spaces argument, result and
    constant in calling order (arena buffers appear in `Allocate` only). `outputs` are scalar results.
    `origin` maps back to the program: (program name, first pc, last pc).
    """

    name: str
    sizes: tuple[Var, ...]
    scalars: tuple[Var, ...]
    buffers: tuple[Buffer, ...]
    outputs: tuple[Var, ...]
    body: Block
    origin: tuple[str, int, int] = ("", 0, 0)


def const(value: float, dtype: DType = INDEX) -> Const:
    """A literal of `dtype` (int64 unless given)."""
    return Const(value, dtype)


def children(node: Expr) -> tuple[Expr, ...]:
    """The operands of an expression, left to right."""
    match node:
        case Const() | Var():
            return ()
        case Load():
            return node.index
        case Unary() | Cast():
            return (node.x,)
        case Binary() | Compare():
            return (node.a, node.b)
        case Fma():
            return (node.a, node.b, node.c)
        case Select():
            return (node.condition, node.a, node.b)
    raise IllFormed(f"unknown expression {type(node).__name__}")


def walk(node: Expr) -> Iterator[Expr]:
    """The expression and everything in it, operands first."""
    for child in children(node):
        yield from walk(child)
    yield node


def blocks(stmt: Stmt) -> tuple[Block, ...]:
    """The blocks directly inside a statement."""
    match stmt:
        case Block():
            return (stmt,)
        case For():
            return (stmt.body,)
        case While():
            return (stmt.header, stmt.body)
        case If():
            return (stmt.then, stmt.orelse)
        case Contract():
            return (stmt.epilogue,)
        case (
            Let()
            | Local()
            | Assign()
            | Reduce()
            | Store()
            | Allocate()
            | Exit()
            | Output()
            | Multiply()
            | Pack()
            | Turn()
            | Ask()
            | Unfold()
            | Convolve()
        ):
            return ()
    raise IllFormed(f"unknown statement {type(stmt).__name__}")


def expressions(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions a statement evaluates itself (not those in its blocks)."""
    match stmt:
        case Block() | Allocate() | Exit():
            return ()
        case For():
            return (stmt.extent,)
        case While() | If():
            return (stmt.condition,)
        case Let():
            return (stmt.value,) if stmt.most is None else (stmt.value, stmt.most)
        case Local() | Assign() | Reduce() | Output():
            return (stmt.value,)
        case Store():
            return (*stmt.index, stmt.value)
        case Contract():
            return (stmt.m, stmt.n, stmt.k)
        case Multiply():
            more = (stmt.before, stmt.start, stmt.rows, stmt.how)
            return (stmt.m, stmt.n, stmt.k, *(x for x in more if x is not None))
        case Pack():
            return (stmt.n, stmt.k)
        case Ask():
            return stmt.index
        case Turn():
            return (stmt.m, stmt.n)
        case Unfold():
            return (stmt.top, stmt.left, stmt.rows, stmt.pitch)
        case Convolve():
            return (stmt.pitch,)
    raise IllFormed(f"unknown statement {type(stmt).__name__}")

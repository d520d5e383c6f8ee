"""Run the loop form element by element in NumPy scalars: the meaning of the form, against which code is tested.

In: a checked `Function`, sizes, scalars, and an array for every buffer. Out: the scalar outputs and the exit site (0
when the function ran to its end); result buffers are written in place. Slow on purpose: one obvious rule per node.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tiercel.loops.form import (
    THREAD_COUNT,
    UNFOLD_SLACK,
    Allocate,
    Ask,
    Assign,
    Binary,
    Block,
    Buffer,
    Cast,
    Compare,
    Const,
    Contract,
    Convolve,
    Exit,
    Expr,
    Fma,
    For,
    Function,
    If,
    IllFormed,
    Let,
    Load,
    Local,
    Multiply,
    Output,
    Pack,
    Reduce,
    Select,
    Stmt,
    Store,
    Turn,
    Unary,
    Unfold,
    Var,
    While,
)

_erf = np.frompyfunc(math.erf, 1, 1)
_erfc = np.frompyfunc(math.erfc, 1, 1)

_UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": np.negative,
    "abs": np.abs,
    "not": np.logical_not,
    "invert": np.invert,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "exp_nonpositive": np.exp,
    "erf": lambda x: np.asarray(_erf(x)).astype(x.dtype)[()],
    "erfc": lambda x: np.asarray(_erfc(x)).astype(x.dtype)[()],
}
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "floordiv": np.floor_divide,
    "mod": np.remainder,
    "pow": np.power,
    "min": np.minimum,
    "max": np.maximum,
    "fmin": np.fmin,
    "fmax": np.fmax,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "fmod": np.fmod,
    "atan2": np.arctan2,
    "hypot": np.hypot,
    "copysign": np.copysign,
}
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _fma(a: Any, b: Any, c: Any) -> Any:
    """a * b + c rounded once, with rationals."""
    if not (np.isfinite(a) and np.isfinite(b) and np.isfinite(c)):
        return a * b + c
    from fractions import Fraction  # with decimal half a megabyte, for this alone

    total = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if total == 0:
        return a * b + c  # the sign of zero
    try:
        near = float(total)
    except OverflowError:
        near = math.copysign(math.inf, total)
    if type(a) is np.float64 or math.isinf(near):
        return type(a)(near)
    # to odd in float64, so that the second rounding equals one
    if Fraction(near) != total and not np.float64(near).view(np.int64) & 1:
        near = math.nextafter(near, math.inf if total > Fraction(near) else -math.inf)
    return type(a)(near)


class _Left(Exception):
    """An `Exit` was reached."""

    def __init__(self, site: int) -> None:
        self.site = site


class _Machine:
    def __init__(self, arrays: Mapping[str, np.ndarray[Any, Any]], scalars: Mapping[str, Any]) -> None:
        self.arrays = dict(arrays)
        self.names: dict[str, Any] = dict(scalars)
        self.outputs: dict[str, Any] = {}

    def index(self, expressions: tuple[Expr, ...]) -> tuple[int, ...]:
        at = tuple(int(self.value(e)) for e in expressions)
        if min(at, default=0) < 0:
            raise IllFormed(f"negative index {at}")  # NumPy would wrap it; the form does not
        return at

    def view(self, buffer: Buffer) -> np.ndarray[Any, Any]:
        array = self.arrays.get(buffer.name)
        if array is not None:
            return array
        assert buffer.root is not None, buffer.name
        whole = self.arrays[buffer.root]
        # a view may see the same bits as another dtype
        root = whole.view(buffer.dtype.numpy).reshape(-1)
        shape = tuple(int(self.value(e)) for e in buffer.shape)
        size = buffer.dtype.itemsize
        strides = (
            tuple(int(self.value(e)) * size for e in buffer.strides)
            if buffer.strides is not None
            else np.empty(shape, buffer.dtype.numpy).strides
        )
        offset = int(self.value(buffer.offset)) if buffer.offset is not None else 0
        return np.lib.stride_tricks.as_strided(root[offset:], shape, strides)

    def value(self, node: Expr) -> Any:
        match node:
            case Const():
                return node.dtype.numpy.type(node.value)
            case Var():
                return self.names[node.name]
            case Load():
                return self.view(node.buffer)[self.index(node.index)]
            case Unary():
                x = self.value(node.x)
                operation = _UNARY.get(node.op) or getattr(np, node.op)
                return node.dtype.numpy.type(operation(x))
            case Binary():
                return node.dtype.numpy.type(_BINARY[node.op](self.value(node.a), self.value(node.b)))
            case Fma():
                return _fma(*(self.value(v) for v in (node.a, node.b, node.c)))
            case Compare():
                return np.bool_(_COMPARE[node.op](self.value(node.a), self.value(node.b)))
            case Select():
                a, b = self.value(node.a), self.value(node.b)
                return a if self.value(node.condition) else b
            case Cast():
                return np.asarray(self.value(node.x)).astype(node.dtype.numpy)[()]
        raise IllFormed(f"unknown expression {type(node).__name__}")

    def block(self, block: Block) -> None:
        """Run a block; names it binds are forgotten at its end, assignments to outer locals stay."""
        before, arrays = set(self.names), set(self.arrays)
        for stmt in block.body:
            self.run(stmt)
        for name in set(self.names) - before:
            del self.names[name]
        for name in set(self.arrays) - arrays:
            del self.arrays[name]

    def run(self, stmt: Stmt) -> None:
        match stmt:
            case Block():
                self.block(stmt)
            case For():
                for i in range(int(self.value(stmt.extent))):
                    self.names[stmt.index] = np.int64(i)
                    self.block(stmt.body)
                self.names.pop(stmt.index, None)
            case While():
                while True:
                    before = set(self.names)
                    for inner in stmt.header.body:
                        self.run(inner)
                    going = bool(self.value(stmt.condition))
                    if going:
                        self.block(stmt.body)
                    for name in set(self.names) - before:
                        del self.names[name]
                    if not going:
                        return
            case If():
                self.block(stmt.then if self.value(stmt.condition) else stmt.orelse)
            case Let() | Local() | Assign():
                self.names[stmt.name] = self.value(stmt.value)
            case Reduce():
                combine = _BINARY[stmt.op]
                value = self.value(stmt.value)
                self.names[stmt.name] = stmt.value.dtype.numpy.type(combine(self.names[stmt.name], value))
            case Store():
                self.view(stmt.buffer)[self.index(stmt.index)] = self.value(stmt.value)
            case Allocate():
                if stmt.buffer.root is None:
                    shape = tuple(int(self.value(e)) for e in stmt.buffer.shape)
                    self.arrays[stmt.buffer.name] = np.empty(shape, stmt.buffer.dtype.numpy)
            case Contract():
                self.contract(stmt)
            case Pack():
                # the layout is the code generator's own affair; here packed means in row order
                n, k = int(self.value(stmt.n)), int(self.value(stmt.k))
                self.view(stmt.panels)[: n * k] = self.view(stmt.b)[:k, :n].reshape(-1)
            case Multiply():
                m, n, k = (int(self.value(e)) for e in (stmt.m, stmt.n, stmt.k))
                if stmt.start is not None:
                    width, start = self.view(stmt.c).shape[1] // len(stmt.firsts), int(self.value(stmt.start))
                    for number, first in enumerate(stmt.firsts):
                        columns = self.view(stmt.b)[:k, first + start : first + start + n]
                        part = self.view(stmt.c)[:m, number * width : number * width + n]
                        part[...] = self.view(stmt.a)[:m, :k] @ columns
                    return
                product = self.view(stmt.a)[:m, :k] @ self.view(stmt.b)[:k, :n].astype(stmt.a.dtype.numpy, copy=False)
                if stmt.accumulate:
                    product = self.view(stmt.c)[:m, :n] + product
                self.view(stmt.c)[:m, :n] = product
            case Ask():
                pass
            case Turn():
                m, n = int(self.value(stmt.m)), int(self.value(stmt.n))
                self.view(stmt.target)[:n, :m] = self.view(stmt.source)[:m, :n].T
            case Unfold():
                self.unfold(stmt)
            case Convolve():
                self.convolve(stmt)
            case Exit():
                raise _Left(stmt.site)
            case Output():
                self.outputs[stmt.name] = self.value(stmt.value)
            case _:
                raise IllFormed(f"unknown statement {type(stmt).__name__}")

    def contract(self, stmt: Contract) -> None:
        accumulator = stmt.a.dtype.accumulator.numpy
        product = self.view(stmt.a).astype(accumulator) @ self.view(stmt.b).astype(accumulator)
        sums = {p.accumulator: p.first for p in stmt.panels} or {stmt.accumulator: 0}
        for row in range(int(self.value(stmt.m))):
            for column in range(int(self.value(stmt.n))):
                self.names |= {stmt.row: np.int64(row), stmt.column: np.int64(column)}
                self.names |= {name: product[row, first + column] for name, first in sums.items()}
                self.block(stmt.epilogue)
        for name in (stmt.row, stmt.column, *sums):
            self.names.pop(name, None)

    def unfold(self, stmt: Unfold) -> None:
        top, left, rows, pitch = (int(self.value(e)) for e in (stmt.top, stmt.left, stmt.rows, stmt.pitch))
        source, target = self.view(stmt.source), self.view(stmt.target)
        plane = rows * pitch + UNFOLD_SLACK
        for number in range(source.shape[0] * stmt.down * stmt.across):
            channel, a, b = np.unravel_index(number, (source.shape[0], stmt.down, stmt.across))
            here = target[number * plane : (number + 1) * plane]
            here[:] = 0
            for r in range(rows):
                y = top + r * stmt.down + a
                for x in range(pitch):
                    column = left + x * stmt.across + b
                    if 0 <= y < source.shape[1] and 0 <= column < source.shape[2]:
                        here[r * pitch + x] = source[channel, y, column]

    def convolve(self, stmt: Convolve) -> None:
        c, weights, image = self.view(stmt.c), self.view(stmt.weights), self.view(stmt.image)
        pitch, offsets = int(self.value(stmt.pitch)), self.view(stmt.offsets)
        _, height, width = c.shape
        at = (np.arange(height)[:, None] * pitch + np.arange(width)).reshape(-1)
        total = weights @ image[offsets[:, None] + at]
        if stmt.bias is not None:
            total = total + self.view(stmt.bias)[:, None]
        if stmt.low is not None:
            total = np.maximum(total, c.dtype.type(stmt.low))
        c[...] = total.reshape(c.shape)


def evaluate(
    function: Function,
    buffers: Mapping[str, np.ndarray[Any, Any]],
    sizes: Mapping[str, int] | None = None,
    scalars: Mapping[str, Any] | None = None,
    *,
    phase: str | None = None,
) -> tuple[int, dict[str, Any]]:
    """Run `function` on arrays given by buffer name.

    Args:
        function: a function that `check` accepts.
        buffers: an array of the declared dtype and shape for each buffer without a root.
        sizes: the values of `function.sizes`.
        scalars: the values of `function.scalars`.
        phase: a size that is 0; the function is run again with 1, on what it has computed (see `compiler.interface`).

    Returns:
        (exit site or 0, scalar outputs by name).
    """
    names: dict[str, Any] = {name: np.int64(size) for name, size in (sizes or {}).items()}
    names[THREAD_COUNT.name] = np.int64(1)
    for scalar in function.scalars:
        names[scalar.name] = scalar.dtype.numpy.type((scalars or {})[scalar.name])
    machine = _Machine(buffers, names)
    try:
        with np.errstate(all="ignore"):
            for stmt in function.body.body:
                machine.run(stmt)
            if phase is not None:
                machine.names[phase] = np.int64(1)
                for stmt in function.body.body:
                    if not isinstance(stmt, Allocate):  # what is kept between the two
                        machine.run(stmt)
    except _Left as left:
        return left.site, machine.outputs
    return 0, machine.outputs

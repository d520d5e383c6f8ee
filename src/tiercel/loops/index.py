"""Index arithmetic on the loop form: building int64 expressions with constants folded, strides of buffers."""

from __future__ import annotations

from tiercel.loops.form import INDEX, Binary, Buffer, Const, Expr


def index_add(a: Expr, b: Expr) -> Expr:
    """a + b, with constants folded."""
    if isinstance(a, Const) and isinstance(b, Const):
        return Const(int(a.value) + int(b.value), INDEX)  # type: ignore[arg-type]
    if isinstance(a, Const) and a.value == 0:
        return b
    if isinstance(b, Const) and b.value == 0:
        return a
    return Binary("add", a, b)


def index_mul(a: Expr, b: Expr) -> Expr:
    """a * b, with constants folded."""
    for x, y in ((a, b), (b, a)):
        if isinstance(x, Const):
            if x.value == 0:
                return x
            if x.value == 1:
                return y
    if isinstance(a, Const) and isinstance(b, Const):
        return Const(int(a.value) * int(b.value), INDEX)  # type: ignore[arg-type]
    return Binary("mul", a, b)


def strides_of(buffer: Buffer) -> tuple[Expr, ...]:
    """Strides in elements; C order where the buffer gives none."""
    if buffer.strides is not None:
        return buffer.strides
    strides: list[Expr] = []
    step: Expr = Const(1, INDEX)
    for extent in reversed(buffer.shape):
        strides.append(step)
        step = index_mul(extent, step)
    return tuple(reversed(strides))

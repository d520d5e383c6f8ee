"""Random small NumPy functions as source text, with argument sets to run them on.

In: a seed. Out: `Generated`: source of one function, argument sets that share a Signature and differ in sizes, and what
a comparison must allow for. Functions are grown a statement at a time by running each candidate on sample arguments: a
statement that raises there is mostly dropped, so most functions are valid on the sample and may fail on other sizes, as
a user's do.

A variable is exact when no step to it rounds differently in another order of summation or another polynomial. Only
exact ones are compared, floored, divided by, branched on or used as sizes: otherwise a rounding could be told from a bug
only by hand.
"""

# ruff: noqa: E501 - tables of source text read best a few to a line

from __future__ import annotations

import random
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np

FLOATS = ("float16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
DTYPES = (
    ("float32",) * 8
    + ("float64",) * 4
    + ("float16", "int64", "int64", "int32", "int8", "uint8", "int16", "bool", "bool")
)
SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33)

EXACT_UNARY = (
    "-{}", "abs({})", "np.abs({})", "np.square({})", "np.sqrt({})", "np.floor({})", "np.ceil({})", "np.sign({})",
    "np.isnan({})", "np.isinf({})", "np.isfinite({})", "np.logical_not({})", "~{}", "np.rint({})", "np.trunc({})",
    "np.negative({})", "np.reciprocal({})", "np.signbit({})", "+{}", "np.positive({})",
)  # fmt: skip
SMOOTH_UNARY = ("np.tanh({})", "np.sin({})", "np.cos({})", "np.arctan({})", "np.exp(-abs({}))", "1 / (1 + np.exp(-{}))")
WILD_UNARY = ("np.exp({})", "np.log({})", "np.log1p({})", "np.expm1({})", "np.exp2({})", "np.log2({})", "np.log10({})",
              "np.sinh({})", "np.cosh({})", "np.arcsinh({})", "np.cbrt({})")  # fmt: skip
EXACT_BINARY = (
    "{} + {}", "{} - {}", "{} * {}", "{} / {}", "{} // {}", "{} % {}", "{} == {}", "{} != {}", "{} < {}", "{} <= {}",
    "{} > {}", "{} >= {}", "{} & {}", "{} | {}", "{} ^ {}", "{} << {}", "{} >> {}", "np.maximum({}, {})",
    "np.minimum({}, {})", "np.fmax({}, {})", "np.fmin({}, {})", "np.logical_and({}, {})", "np.logical_or({}, {})",
    "np.copysign({}, {})", "np.add({}, {})", "np.multiply({}, {})", "np.greater({}, {})", "np.floor_divide({}, {})",
    "np.remainder({}, {})", "np.logical_xor({}, {})", "np.true_divide({}, {})", "np.fmod({}, {})",
)  # fmt: skip
SMOOTH_BINARY = ("{} + {}", "{} - {}", "{} * {}", "np.maximum({}, {})", "np.minimum({}, {})")
WILD_BINARY = ("{} ** {}", "np.power({}, {})", "np.hypot({}, {})", "np.arctan2({}, {})", "np.logaddexp({}, {})")
SCALARS = (
    "0", "1", "2", "-1", "3", "7", "127", "128", "255", "300", "65536", "2147483648", "0.5", "1.0", "-2.5", "0.0",
    "-0.0", "1e10", "1e-40", "1e300", "True", "False", "np.float32(0.5)", "np.float64(1.5)", "np.int8(3)",
    "np.int64(-2)", "np.float16(0.1)", "np.uint8(200)", "np.bool_(True)", "float('inf')", "np.nan", "np.int32(70000)",
)  # fmt: skip
REDUCTIONS = ("sum", "mean", "max", "min", "any", "all", "var", "std", "prod", "argmax", "argmin")
EXACT_REDUCTIONS = ("max", "min", "any", "all", "argmax", "argmin")

# What has no machine code (yet): a function with one of these runs interpreted as a whole, which tests little.
RARE = (
    "tril", "tile", "atleast", "ascontiguous", "sort", "diff", "roll", "pad", "repeat", "cumsum", "hypot", "fmod", "outer",
    "inner", "tensordot", "ii->i", "ij->", "i,i'", "...i", "linspace", "hstack", "vstack", "logaddexp", "arctan2", "arg",
    "cbrt", "sinh", "cosh", "np.power", "eye", "prod", "ij...", "take", "moveaxis",
)  # fmt: skip


@dataclass
class Generated:
    """One function.

    Attributes:
        name: of the function, and of the one that returns every variable (`name_all`).
        source: their text; needs `np`.
        sets: argument tuples.
        exact: whether results must agree to the bit.
    """

    seed: int
    name: str
    source: str
    sets: list[tuple[Any, ...]]
    exact: bool


@dataclass
class Variable:
    name: str
    value: Any
    exact: bool
    fresh: bool = False  # an array of its own: writing to it is seen by nobody else


@dataclass
class Growing:
    rng: random.Random
    lines: list[str] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    scope: dict[str, Any] = field(default_factory=dict)
    counter: int = 0

    def name(self) -> str:
        self.counter += 1
        return f"v{self.counter}"


def values(shape: tuple[int, ...], dtype: str, rng: np.random.Generator, style: str) -> np.ndarray[Any, Any]:
    """Random elements; `style` is mild, special or wide."""
    kind = np.dtype(dtype).kind
    if kind == "b":
        return np.asarray(rng.random(shape) > 0.5)
    if kind in "iu":
        info = np.iinfo(dtype)
        if style == "mild":
            return rng.integers(1 if kind == "u" else -4, 6, shape).astype(dtype)
        made = rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
        if style == "special" and made.size:
            picks = np.array([0, 1, info.min, info.max], dtype)
            made = np.where(rng.random(shape) < 0.5, picks[rng.integers(0, 4, shape)], made)
        return np.asarray(made)
    made = rng.standard_normal(shape)
    if style == "wide":
        made = made * 10.0 ** rng.integers(-6, 4, shape)
    out = np.asarray(made).astype(dtype)
    if style == "special" and out.size:
        with np.errstate(all="ignore"):
            info_f = np.finfo(dtype)
            picks = np.array(
                [np.nan, np.inf, -np.inf, -0.0, 0.0, info_f.max, info_f.tiny, info_f.smallest_subnormal], dtype
            )
        out = np.where(rng.random(shape) < 0.2, picks[rng.integers(0, len(picks), shape)], out)
    return np.asarray(out)


def laid_out(array: np.ndarray[Any, Any], layout: str) -> np.ndarray[Any, Any]:
    """The same elements in another layout."""
    if layout == "F":
        return np.asfortranarray(array)
    if layout == "reversed" and array.ndim:
        return np.ascontiguousarray(array[::-1])[::-1]
    if layout == "strided" and array.ndim:
        wide = np.zeros((*array.shape[:-1], array.shape[-1] * 2), array.dtype)
        wide[..., ::2] = array
        return wide[..., ::2]
    return array


def generate(seed: int, *, length: int | None = None) -> Generated:
    """Grow the function of a seed."""
    rng = random.Random(seed)
    symbols = {s: rng.choice((2, 3, 4, 5, 8)) for s in "ABC"}
    parameters: list[tuple[str, Any]] = []
    for i in range(rng.choice((1, 2, 2, 3))):
        roll = rng.random()
        if roll < 0.12:
            parameters.append((f"p{i}", rng.choice(("int", "float", "npfloat32", "npint64", "bool"))))
        else:
            rank = rng.choice((0, 1, 1, 2, 2, 2, 3, 3, 4))
            shape = tuple(rng.choice(("A", "B", "C", "A", "B", 1, 2)) for _ in range(rank))
            parameters.append(
                (f"p{i}", (rng.choice(DTYPES), shape, rng.choice(("C",) * 5 + ("F", "reversed", "strided"))))
            )
    if all(isinstance(p[1], str) for p in parameters):
        parameters[0] = ("p0", ("float32", ("A", "B"), "C"))

    def arguments(sizes: dict[str, int], style: str, number: int) -> tuple[Any, ...]:
        local = np.random.default_rng(seed * 1000 + number)
        made: list[Any] = []
        for _, form in parameters:
            if form == "int":
                made.append(int(local.integers(-2, 5)))
            elif form == "float":
                made.append(float(local.standard_normal()))
            elif form == "npfloat32":
                made.append(np.float32(local.standard_normal()))
            elif form == "npint64":
                made.append(np.int64(local.integers(-2, 5)))
            elif form == "bool":
                made.append(bool(local.random() > 0.5))
            else:
                dtype, shape, layout = form
                sized = tuple(sizes[d] if isinstance(d, str) else d for d in shape)
                made.append(laid_out(values(sized, dtype, local, style), layout))
        return tuple(made)

    g = Growing(rng)
    sample = arguments(symbols, "mild", 0)
    for (name, _), value in zip(parameters, sample, strict=True):
        g.scope[name] = value
        g.variables.append(Variable(name, value, True))
    g.scope["np"] = np
    wanted = length or rng.randint(1, 8)
    tries = 0
    while len(g.variables) < len(parameters) + wanted and tries < 200:
        tries += 1
        grow(g)
    made = g.variables[len(parameters) :] or g.variables
    form = rng.random()
    if form < 0.6:
        chosen = [made[-1]]
        result = chosen[0].name
    elif form < 0.98:
        chosen = [rng.choice(made) for _ in range(rng.randint(2, 3))]
        chosen[0] = made[-1]
        if rng.random() < 0.1:
            chosen.append(rng.choice(g.variables))
        result = ", ".join(v.name for v in chosen)
    else:
        chosen = [made[-1], rng.choice(made)]
        result = "{'a': " + chosen[0].name + ", 'b': " + chosen[1].name + "}"
    name = f"f{seed}"
    head = ", ".join(p for p, _ in parameters)
    body = "\n".join("    " + line for line in g.lines)
    everything = ", ".join(v.name for v in g.variables)
    source = f"def {name}({head}):\n{body}\n    return {result}\n\n\n"
    source += f"def {name}_all({head}):\n{body}\n    return ({everything},)\n\n\n"
    sets = [sample]
    for number in range(1, 7):
        sizes = dict(symbols) if number == 1 else {s: rng.choice(SIZES) for s in symbols}
        if number == 2:
            sizes[rng.choice("ABC")] = 0
        if number == 3:
            sizes = {s: rng.choice((1, sizes[s])) for s in sizes}
        if number == 4:
            sizes = dict.fromkeys(sizes, rng.choice((1, 3, 8)))
        sets.append(arguments(sizes, ("mild", "mild", "special", "mild", "wide")[number % 5], number))
    return Generated(seed, name, source, sets, all(v.exact for v in chosen))


def grow(g: Growing) -> None:
    """Try one statement."""
    rng = g.rng
    kind = rng.choices(
        ("unary", "binary", "scalar", "reduce", "move", "join", "matmul", "size", "if", "for", "while", "create", "write",
         "where", "cast", "index", "softmax", "collect"),
        (6, 12, 6, 9, 10, 4, 5, 3, 2, 3, 1, 3, 2, 4, 4, 4, 2, 2),
    )[0]  # fmt: skip
    made = STATEMENTS[kind](g)
    if made is None:
        return
    lines, exact, fresh, target = made
    if any(rare in line for line in lines for rare in RARE) and rng.random() < 0.85:
        return
    scope = dict(g.scope)
    # Statements that write are tried on copies.
    for key, value in scope.items():
        if isinstance(value, np.ndarray) and kind in ("write", "for"):
            scope[key] = value.copy(order="K")
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            exec("\n".join(lines), scope)
    except Exception:  # noqa: BLE001 - a statement that is not valid here
        if rng.random() > 0.01:
            return
        g.lines += lines
        g.scope[target] = np.zeros((2, 2), np.float32)
    else:
        value = scope[target]
        if isinstance(value, np.ndarray) and value.size > 20_000:
            return
        if isinstance(value, np.ndarray | np.generic) and value.dtype.kind not in "biuf":
            return
        g.lines += lines
        g.scope = {k: v for k, v in scope.items() if k != "__builtins__"}
    if target in [v.name for v in g.variables]:
        for v in g.variables:
            v.value = g.scope.get(v.name, v.value)
            if v.name == target:
                v.exact = v.exact and exact
        return
    g.variables.append(Variable(target, g.scope[target], exact, fresh))


def pick(g: Growing, *, exact: bool = False, array: bool = False, rank: int = 0) -> Variable | None:
    found = [
        v for v in g.variables
        if (v.exact or not exact) and (not array or (isinstance(v.value, np.ndarray) and v.value.ndim >= rank))
    ]  # fmt: skip
    # the newest are the likeliest, so that chains grow
    return g.rng.choices(found, [1 + i for i in range(len(found))])[0] if found else None


Made = tuple[list[str], bool, bool, str] | None


def unary(g: Growing) -> Made:
    group = g.rng.choices((EXACT_UNARY, SMOOTH_UNARY, WILD_UNARY), (4, 3, 1))[0]
    x = pick(g, exact=group is not SMOOTH_UNARY)
    if x is None:
        return None
    name = g.name()
    return [f"{name} = {g.rng.choice(group).format(x.name)}"], group is EXACT_UNARY, True, name


def binary(g: Growing) -> Made:
    group = g.rng.choices((EXACT_BINARY, SMOOTH_BINARY, WILD_BINARY), (4, 4, 1))[0]
    x, y = (pick(g, exact=group is not SMOOTH_BINARY) for _ in range(2))
    if x is None or y is None:
        return None
    name = g.name()
    exact = group is not WILD_BINARY and x.exact and y.exact
    return [f"{name} = {g.rng.choice(group).format(x.name, y.name)}"], exact, True, name


def scalar(g: Growing) -> Made:
    group = g.rng.choices((EXACT_BINARY, SMOOTH_BINARY, WILD_BINARY), (4, 4, 1))[0]
    x = pick(g, exact=group is not SMOOTH_BINARY)
    if x is None:
        return None
    pair = [x.name, g.rng.choice(SCALARS)]
    if g.rng.random() < 0.4:
        pair.reverse()
    name = g.name()
    return [f"{name} = {g.rng.choice(group).format(*pair)}"], group is not WILD_BINARY and x.exact, True, name


def axis_of(g: Growing, rank: int) -> str:
    roll = g.rng.random()
    if roll < 0.25 or not rank:
        return "None"
    if roll < 0.8 or rank < 2:
        return str(g.rng.randrange(-rank, rank))
    return str(tuple(g.rng.sample(range(rank), g.rng.randint(1, rank))))


def reduce(g: Growing) -> Made:
    op = g.rng.choice(REDUCTIONS)
    x = pick(g, array=True, exact=op in ("argmax", "argmin", "any", "all", "prod"))
    if x is None:
        return None
    axis = axis_of(g, x.value.ndim)
    if op.startswith("arg") and axis.startswith("("):
        axis = "None"
    extra = ", keepdims=True" if g.rng.random() < 0.4 else ""
    if op in ("sum", "mean") and g.rng.random() < 0.1:
        extra += f", dtype=np.{g.rng.choice(('float64', 'float32', 'int64'))}"
    name = g.name()
    form = g.rng.choice((f"{x.name}.{op}(axis={axis}{extra})", f"np.{op}({x.name}, axis={axis}{extra})"))
    if axis == "None" and not extra and g.rng.random() < 0.5:
        form = f"{x.name}.{op}()"
    exact = x.exact and (
        op in EXACT_REDUCTIONS or (op in ("sum", "prod") and x.value.dtype.kind in "biu" and "float" not in extra)
    )
    return [f"{name} = {form}"], exact, True, name


def slices(g: Growing, rank: int) -> str:
    rng = g.rng
    parts = []
    for _ in range(rng.randint(1, max(rank, 1))):
        parts.append(
            rng.choice(
                (":", "1:", ":-1", "::2", "::-1", "0", "-1", ":2", "1:3", "-2:", "::-2", "5:1:-1", "None", "1", ":0")
            )
        )
    if rng.random() < 0.3:
        parts.insert(rng.randint(0, len(parts)), "...")
    return ", ".join(parts)


def move(g: Growing) -> Made:
    rng = g.rng
    x = pick(g, array=True)
    if x is None:
        return None
    n, rank = x.name, x.value.ndim
    perm = list(range(rank))
    rng.shuffle(perm)
    a = str(rng.randrange(-rank, rank)) if rank else "0"
    forms = [
        f"{n}.reshape(-1)", f"{n}.T", f"{n}.transpose({tuple(perm)})", f"np.transpose({n}, {tuple(perm)})",
        f"{n}[{slices(g, rank)}]", f"{n}[{slices(g, rank)}]", f"{n}[{slices(g, rank)}]", f"{n}.ravel()", f"{n}.copy()", f"np.expand_dims({n}, {a})",
        f"np.squeeze({n})", f"np.flip({n}, {a})", f"np.broadcast_to({n}, (2, *{n}.shape))", f"np.repeat({n}, 2, axis={a})",
        f"np.roll({n}, 1, axis={a})", f"np.cumsum({n}, axis={a})", f"np.tile({n}, 2)", f"np.swapaxes({n}, 0, {a})",
        f"{n}.reshape({n}.shape[::-1])", f"np.moveaxis({n}, 0, -1)", f"{n}.flatten()", f"np.diff({n}, axis={a})",
        f"np.pad({n}, 1)", f"np.ascontiguousarray({n})", f"np.concatenate([{n}, {n}], axis={a})",
        f"np.tril({n})", f"np.clip({n}, -1, 1)", f"np.take({n}, 0, axis={a})", f"np.atleast_2d({n})", f"np.sort({n})",
    ]  # fmt: skip
    if rank >= 2:
        forms += [
            f"{n}.reshape({n}.shape[0], -1)", f"{n}.reshape(-1, {n}.shape[-1])",
            f"{n}.reshape({n}.shape[0] * {n}.shape[1], *{n}.shape[2:])", f"{n}.swapaxes(0, 1)",
            f"{n}.reshape({n}.shape[0], {n}.shape[1] // 2, 2, *{n}.shape[2:])", f"{n}[:, 0]", f"{n}[..., ::-1]",
            f"{n}[:{n}.shape[0] // 2]", f"{n}[:, None]", f"{n}[{n}.shape[0] - 1]", f"np.split({n}, 2, axis={a})[1]",
            f"np.einsum('ij...->ji...', {n})",
        ]  # fmt: skip
    form = rng.choice(forms)
    name = g.name()
    exact = x.exact and not ("cumsum" in form and x.value.dtype.kind == "f")
    if not x.exact and "sort" in form:
        return None
    return [f"{name} = {form}"], exact, False, name


def join(g: Growing) -> Made:
    x, y = pick(g, array=True), pick(g, array=True)
    if x is None or y is None:
        return None
    a = g.rng.randrange(-max(x.value.ndim, 1), max(x.value.ndim, 1))
    name = g.name()
    op = g.rng.choice(("np.concatenate", "np.stack", "np.concatenate", "np.hstack", "np.vstack"))
    end = "" if "stack" in op and op != "np.stack" else f", axis={a}"
    pair = [x.name, y.name] + ([x.name] if g.rng.random() < 0.3 else [])
    return [f"{name} = {op}([{', '.join(pair)}]{end})"], x.exact and y.exact, True, name


def matmul(g: Growing) -> Made:
    x, y = pick(g, array=True, rank=1), pick(g, array=True, rank=1)
    if x is None or y is None:
        return None
    rng = g.rng
    a, b = x.name, y.name
    if rng.random() < 0.5:
        b = x.name
    forms = [f"{a} @ {b}", f"np.matmul({a}, {b})", f"np.dot({a}, {b})", f"{a} @ {b}.T", f"{a}.T @ {b}", f"{a} @ np.swapaxes({b}, -1, -2)",
             f"np.einsum('ij,kj->ik', {a}, {b})", f"np.einsum('i,i', {a}, {b})", f"np.einsum('bij,bjk->bik', {a}, {b})",
             f"np.einsum('...i,...i->...', {a}, {b})", f"np.einsum('ij->j', {a})", f"np.outer({a}, {b})", f"np.inner({a}, {b})",
             f"np.einsum('ii->i', {a})", f"np.einsum('ij,ij->', {a}, {b})", f"np.tensordot({a}, {b}, 1)"]  # fmt: skip
    kinds = {x.value.dtype.kind, y.value.dtype.kind}
    name = g.name()
    return [f"{name} = {rng.choice(forms)}"], x.exact and y.exact and "f" not in kinds, True, name


def size(g: Growing) -> Made:
    x, y = pick(g, array=True, rank=1), pick(g, array=True)
    if x is None or y is None:
        return None
    n = x.name
    name = g.name()
    form = g.rng.choice((f"{n}.shape[0]", f"len({n})", f"{n}.size", f"{n}.shape[0] // 2", f"{n}.shape[-1] * 2 + 1",
                         f"{n}.shape[0] - {n}.shape[-1]", f"{y.name} * {n}.shape[0]", f"{y.name} / {n}.shape[-1]", f"{n}.shape",
                         f"max({n}.shape[0], 3)", f"{n}.shape[0] % 3", f"{n}.ndim", f"float({n}.shape[0])", f"{n}.shape[0] ** 0.5",
                         f"{n}.shape[0] > 3", f"min({n}.shape[0], {n}.shape[-1])", f"-{n}.shape[0] // 2", f"{n}.shape[0] / 2"))  # fmt: skip
    return [f"{name} = {form}"], (y.exact if y.name in form else True), True, name


def condition(g: Growing) -> str | None:
    x, y = pick(g, exact=True, array=True), pick(g, exact=True)
    if x is None or y is None:
        return None
    n = x.name
    forms = [
        f"{n}.max() > 0",
        f"{n}.any()",
        f"({n} > 0).all()",
        f"{n}.shape[0] > 3",
        f"{n}.size % 2 == 0",
        f"len({n}) == {n}.shape[-1]",
    ]
    if isinstance(y.value, int | float | bool | np.generic):
        forms += [f"{y.name} > 0", f"{y.name}", f"{y.name} == 1", f"0 < {y.name} < 3", f"not {y.name}"]
    return g.rng.choice(forms)


def step(g: Growing, name: str, others: list[Variable]) -> tuple[str, bool]:
    other = g.rng.choice(others)
    form = g.rng.choice(
        ("{0} * 0.5 + {1}", "{0} - {1}", "np.tanh({0} + {1})", "{0} + 1", "np.maximum({0}, {1})", "{0} * {1}")
    )
    return form.format(name, other.name), other.exact and "tanh" not in form


def branch(g: Growing) -> Made:
    test = condition(g)
    if test is None:
        return None
    name = g.name()
    x = pick(g)
    assert x is not None
    left, a = step(g, x.name, g.variables)
    right, b = step(g, x.name, g.variables)
    exact = a and b and x.exact
    if g.rng.random() < 0.3:
        return [f"{name} = {left} if {test} else {right}"], exact, False, name
    if g.rng.random() < 0.4:
        return [f"{name} = {x.name}", f"if {test}:", f"    {name} = {right}"], exact, False, name
    return [f"if {test}:", f"    {name} = {left}", "else:", f"    {name} = {right}"], exact, False, name


def loop(g: Growing) -> Made:
    x, y = pick(g, array=True, rank=1), pick(g)
    if x is None or y is None:
        return None
    name, i = g.name(), g.name()
    n = x.name
    rng = g.rng
    end = rng.choice((f"{n}.shape[0]", "3", f"len({n})", f"{n}.shape[0] // 2", f"{n}.shape[0] - 1"))
    begin = rng.choice(("", "", "", "1, "))
    pace = rng.choice(("", "", "", ", 2")) if begin else ""
    if rng.random() < 0.15:
        begin, end, pace = f"{n}.shape[0] - 1, ", "-1", ", -1"
    start = rng.choice(
        (f"{n}[0] * 0", f"np.zeros_like({n}[0])", "0.0", "0", f"{y.name}", f"np.zeros({n}.shape[1:], {n}.dtype)")
    )
    body = rng.choice((f"{name} + {n}[{i}]", f"np.tanh({name} + {n}[{i}])", f"{name} * 0.5 + {n}[{i}]", f"np.maximum({name}, {n}[{i}])",
                       f"{name} + {i}", f"{n}[{i}] - {name}", f"{name} + {n}[{n}.shape[0] - 1 - {i}]", f"{name} + {n}.sum(axis=0)"))  # fmt: skip
    exact = x.exact and y.exact and "tanh" not in body and "sum" not in body
    head = f"for {i} in range({begin}{end}{pace}):"
    lines = [f"{name} = {start}", head, f"    {name} = {body}"]
    if rng.random() < 0.15:
        lines[2:] = [
            f"    if {i} == 1:",
            "        continue" if rng.random() < 0.5 else "        break",
            f"    {name} = {body}",
        ]
    if rng.random() < 0.1:
        lines = [f"{name} = {start}", f"for {i} in {n}:", f"    {name} = {body.replace(f'{n}[{i}]', i)}"]
    return lines, exact, False, name


def collect(g: Growing) -> Made:
    x = pick(g, array=True, rank=1)
    if x is None:
        return None
    name, i, items = g.name(), g.name(), g.name()
    n = x.name
    rng = g.rng
    item = rng.choice(
        (f"{n}[{i}] * 2", f"np.tanh({n}[{i}])", f"{n}[{i}]", f"{n}[{i}].sum()", f"{n}[: {i} + 1].sum(axis=0)")
    )
    join_ = rng.choice(
        (
            f"np.stack({items})",
            f"np.stack({items}, axis=-1)",
            f"np.array({items})",
            f"np.concatenate([{items}[0][None], {items}[-1][None]])",
            f"np.stack({items}, axis=1)",
        )
    )
    lines = [f"{items} = []", f"for {i} in range({n}.shape[0]):", f"    {items}.append({item})", f"{name} = {join_}"]
    if rng.random() < 0.2:
        lines = [f"{items} = [{item} for {i} in range({n}.shape[0])]", f"{name} = {join_}"]
    return lines, x.exact and "tanh" not in item and "sum" not in item, True, name


def while_(g: Growing) -> Made:
    x = pick(g, array=True, exact=True)
    if x is None:
        return None
    name, i = g.name(), g.name()
    n = x.name
    if g.rng.random() < 0.5:
        lines = [
            f"{i} = 0",
            f"{name} = {n} * 1.0",
            f"while {i} < 4:",
            f"    {name} = {name} * 0.5 + {n}",
            f"    {i} += 1",
        ]
    else:
        lines = [
            f"{name} = {n} + 0.5",
            f"{i} = 0",
            f"while {i} < 20 and np.max({name}) < 10:",
            f"    {name} = {name} * 2",
            f"    {i} = {i} + 1",
        ]
    return lines, x.exact, True, name


def create(g: Growing) -> Made:
    x = pick(g, array=True, rank=1)
    if x is None:
        return None
    n = x.name
    name = g.name()
    dtype = g.rng.choice(("np.float32", "np.float64", "np.int64", "bool", f"{n}.dtype", "float"))
    form = g.rng.choice((f"np.zeros({n}.shape, {dtype})", f"np.ones(({n}.shape[0], 2), {dtype})", f"np.zeros_like({n})", f"np.ones_like({n})",
                         f"np.full({n}.shape, 2, {dtype})", f"np.arange({n}.shape[0])", f"np.arange({n}.shape[0], dtype=np.float32)",
                         f"np.full_like({n}, 3)", f"np.eye({n}.shape[0])", f"np.arange(1, {n}.shape[0] * 2, 2)", f"np.zeros({n}.shape[0])",
                         f"np.linspace(0.0, 1.0, {n}.shape[0])", f"np.zeros({n}.shape[-1:])", f"np.ones({n}.shape)", f"np.asarray({n}, dtype={dtype})",
                         f"np.array({n})"))  # fmt: skip
    return [f"{name} = {form}"], True and x.exact, True, name


def write(g: Growing) -> Made:
    x, y = pick(g, array=True), pick(g)
    if x is None or y is None:
        return None
    n = x.name
    name = g.name()
    rank = x.value.ndim
    value = g.rng.choice((y.name, "1", "0.5", f"{n} * 2", f"{n}[0]"))
    where = g.rng.choice((slices(g, rank), "...", "0", ":"))
    lines = g.rng.choice((
        [f"{name} = {n} + 0", f"{name} += {value}"], [f"{name} = {n}.copy()", f"{name}[{where}] = {value}"],
        [f"{name} = np.zeros_like({n})", f"{name}[{where}] = {value}"], [f"{name} = {n} * 1", f"{name} *= {value}"],
        [f"{name} = {n}", f"{name} -= {value}"], [f"{name} = {n}", f"{name}[{where}] = {value}"],
        [f"{name} = {n} * 1", f"{name}[{where}] += {value}"], [f"{name} = {n}.reshape(-1)", f"{name} += 1"],
    ))  # fmt: skip
    return lines, x.exact and y.exact, False, name


def where(g: Growing) -> Made:
    c, x, y = pick(g, exact=True, array=True), pick(g), pick(g)
    if c is None or x is None or y is None:
        return None
    name = g.name()
    test = g.rng.choice((f"{c.name}", f"{c.name} > 0", f"{c.name} == {c.name}", f"{c.name} <= 1"))
    right = g.rng.choice((y.name, g.rng.choice(SCALARS)))
    return [f"{name} = np.where({test}, {x.name}, {right})"], x.exact and y.exact, True, name


def cast(g: Growing) -> Made:
    x = pick(g, exact=True)
    if x is None or not isinstance(x.value, np.ndarray | np.generic):
        return None
    name = g.name()
    dtype = g.rng.choice((*FLOATS, "float32", *INTEGERS, "bool_"))
    if x.value.dtype.kind == "f" and dtype in INTEGERS:
        # out of range is undefined in C, so also in NumPy
        return [f"{name} = np.where(abs({x.name}) < 100, abs({x.name}), 1).astype(np.{dtype})"], True, True, name
    form = f"{x.name}.astype(np.{dtype})"
    if g.rng.random() < 0.2 and isinstance(x.value, np.generic):
        form = g.rng.choice(
            (f"float({x.name})", f"int({x.name})", f"bool({x.name})", f"{x.name}.item()", f"np.{dtype}({x.name})")
        )
    return [f"{name} = {form}"], True, True, name


def index(g: Growing) -> Made:
    x, y = pick(g, array=True, rank=1), pick(g, exact=True)
    if x is None or y is None:
        return None
    name = g.name()
    n = x.name
    forms = [
        f"{n}[-1]",
        f"{n}[0]",
        f"{n}[..., 0]",
        f"{n}[{n}.shape[0] // 2]",
        f"{n}[1]",
        f"{n}[0:0]",
        f"{n}[None]",
        f"{n}[..., None]",
    ]
    if isinstance(y.value, int | np.integer) and not isinstance(y.value, bool):
        forms += [f"{n}[{y.name}]", f"{n}[:{y.name}]", f"{n}[{y.name}:]", f"{n}[::{y.name}]"]
    if isinstance(y.value, np.ndarray) and y.value.dtype.kind in "iub":
        forms += [f"{n}[{y.name}]", f"np.take({n}, {y.name}, axis=0)"]
    return [f"{name} = {g.rng.choice(forms)}"], x.exact, False, name


def softmax(g: Growing) -> Made:
    x = pick(g, array=True, rank=1)
    if x is None:
        return None
    n, name, a, b = x.name, g.name(), g.name(), g.name()
    axis = g.rng.choice(("-1", "0"))
    if g.rng.random() < 0.5:
        lines = [
            f"{a} = np.exp({n} - {n}.max(axis={axis}, keepdims=True))",
            f"{name} = {a} / {a}.sum(axis={axis}, keepdims=True)",
        ]
    else:
        lines = [
            f"{a} = {n} - {n}.mean(axis={axis}, keepdims=True)",
            f"{b} = ({a} * {a}).mean(axis={axis}, keepdims=True)",
            f"{name} = {a} / np.sqrt({b} + 1e-2)",
        ]
    return lines, False, True, name


STATEMENTS = {
    "unary": unary, "binary": binary, "scalar": scalar, "reduce": reduce, "move": move, "join": join, "matmul": matmul,
    "size": size, "if": branch, "for": loop, "while": while_, "create": create, "write": write, "where": where,
    "cast": cast, "index": index, "softmax": softmax, "collect": collect,
}  # fmt: skip

"""`ShapeToken`: the shape of a value as programs write it, one expression per dimension.

Text forms, all of which `parse_token` reads::

    [...]                        a shape of unknown rank
    [?, 128]                     a size that nothing is known about, and a static one
    [16..64, 16..64 % 8, 128]    sizes of known range, and multiple
    [B: 16..64, T, B*T]          named sizes, with range where the name occurs first, and an expression of them
    [2*B; B: 16..64]             ranges of names that occur in expressions only

Names are shared: the same name is the same size, in one token and across tokens. Every `?` or range without a name
is a size of its own. Ranges are no part of a token; they live in `Facts`, so a token never changes when they do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tiercel.errors import ShapeError
from tiercel.shapes.dims import Dim, DimLike, Sum, Symbol, as_dim, key_of, symbols_of
from tiercel.shapes.evaluate import evaluate, substitute
from tiercel.shapes.facts import NO_FACTS, Facts
from tiercel.shapes.intervals import default_range
from tiercel.shapes.parse import Reader
from tiercel.shapes.ranges import NATURAL

MAX_RANK = 64  # NumPy's


@dataclass(frozen=True, slots=True)
class ShapeToken:
    """The sizes of a value's dimensions; `dims` None is a value of unknown rank.

    Raises:
        ShapeError: a static size is negative, or there are more than 64 dimensions.
        TypeError: a size is neither an int nor a Dim.
    """

    dims: tuple[DimLike, ...] | None

    def __post_init__(self) -> None:
        if self.dims is None:
            return
        dims = tuple(map(as_dim, self.dims))
        if len(dims) > MAX_RANK:
            raise ShapeError(f"shape with {len(dims)} dimensions: at most {MAX_RANK} are supported")
        for i, dim in enumerate(dims):
            if isinstance(dim, int) and dim < 0:
                raise ShapeError(f"dimension {i} of a shape: a size cannot be negative, got {dim}")
        object.__setattr__(self, "dims", dims)

    @property
    def rank(self) -> int | None:
        """The number of dimensions, None if unknown."""
        return None if self.dims is None else len(self.dims)

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape if all of it is static, else None."""
        if self.dims is None or any(isinstance(dim, Dim) for dim in self.dims):
            return None
        return self.dims  # type: ignore[return-value]  # ints only by the test before

    @property
    def symbols(self) -> frozenset[Symbol]:
        """All symbols that occur."""
        return frozenset().union(*map(symbols_of, self.dims or ()))

    def substitute(self, env: Mapping[str, DimLike]) -> ShapeToken:
        """The token with symbols replaced by name; see `substitute` of dimensions."""
        return self if self.dims is None else ShapeToken(tuple(substitute(dim, env) for dim in self.dims))

    def simplify(self, facts: Facts) -> ShapeToken:
        """The token with every dimension in its simplest form under facts."""
        return self if self.dims is None else ShapeToken(tuple(map(facts.simplify, self.dims)))

    def join(self, other: ShapeToken, fresh: Callable[[], DimLike]) -> ShapeToken:
        """A token for values of either shape: where they differ, a size from fresh; `[...]` if the ranks do."""
        if self.dims is None or other.dims is None or len(self.dims) != len(other.dims):
            return UNKNOWN_RANK
        return ShapeToken(tuple(a if a == b else fresh() for a, b in zip(self.dims, other.dims, strict=True)))

    def text(self, facts: Facts | None = None, symbols: bool = False) -> str:
        """The token as text.

        Args:
            facts: where ranges come from.
            symbols: False shows what is known about each size: a bare symbol as `?` or its range, expressions by
                names. True shows names with their ranges, and `parse_token` gives the same token and ranges back.
        """
        if self.dims is None:
            return "[...]"
        facts = facts or NO_FACTS
        if not symbols:
            return f"[{', '.join(_without_name(dim, facts) for dim in self.dims)}]"
        shown = []
        pending = set(self.symbols)
        for dim in self.dims:
            if isinstance(dim, Symbol) and dim in pending:
                pending.discard(dim)
                shown.append(_with_range(dim, facts))
            else:
                shown.append(str(dim))
        ranges = [_with_range(symbol, facts) for symbol in sorted(pending, key=key_of)]
        ranges = [text for text in ranges if ":" in text]
        return f"[{', '.join(shown)}{'; ' if ranges else ''}{', '.join(ranges)}]"

    def matches(self, shape: Sequence[int], env: Mapping[str, int] | None = None) -> dict[str, int] | None:
        """Sizes of all symbols by which shape is this token's shape, or None if there are none.

        Ranges are not looked at: they are no part of the token. A symbol that only occurs in expressions with another
        unknown one stays unbound, and those expressions unchecked.

        Args:
            shape: the sizes found.
            env: sizes bound before, by name; the result holds them too. Not changed.
        """
        bound = dict(env or ())
        return bound if self._mismatch(shape, bound) is None else None

    def explain_mismatch(self, shape: Sequence[int], env: Mapping[str, int] | None = None) -> str:
        """Why `matches` gives None: the dimension, what was expected and what came. Empty if shape matches."""
        return self._mismatch(shape, dict(env or ())) or ""

    def __str__(self) -> str:
        return self.text(symbols=True)

    def _mismatch(self, shape: Sequence[int], env: dict[str, int]) -> str | None:
        """Bind symbols in env; a text if that is impossible."""
        dims = self.dims
        if dims is None:
            return None
        if len(shape) != len(dims):
            return f"expected {len(dims)} dimensions {self}, got {len(shape)}: {tuple(shape)}"
        before = frozenset(env)
        pending: list[int] = []
        for i, (dim, size) in enumerate(zip(dims, shape, strict=True)):
            if dim.__class__ is int:
                if dim != size:
                    return f"dimension {i} of {self}: expected {dim}, got {size}"
            elif isinstance(dim, Symbol):
                known = env.setdefault(dim.name, size)
                if known != size:
                    return self._symbol_mismatch(i, dim, known, size, before)
            else:
                pending.append(i)
        # An expression with one unknown symbol may give its size, which others may wait for.
        progress = True
        while pending and progress:
            progress = False
            for i in list(pending):
                dim, size = dims[i], shape[i]
                unknown = [symbol for symbol in symbols_of(dim) if symbol.name not in env]
                if len(unknown) == 1:
                    try:
                        solved = _solve(dim, size, unknown[0], env)
                    except _Unsolvable:
                        return f"dimension {i} of {self}: no size {unknown[0]} makes {dim} equal to {size}"
                    if solved is None:
                        continue
                    env[unknown[0].name] = solved
                elif unknown:
                    continue
                pending.remove(i)
                progress = True
                try:
                    value = evaluate(dim, env)
                except (ShapeError, ZeroDivisionError) as error:
                    return f"dimension {i} of {self}: {dim} has no value: {error}"
                if value != size:
                    where = ", ".join(f"{s} = {env[s.name]}" for s in sorted(symbols_of(dim), key=key_of))
                    return f"dimension {i} of {self}: expected {dim} = {value} (with {where}), got {size}"
        return None

    def _symbol_mismatch(self, i: int, symbol: Symbol, known: int, size: int, before: frozenset[str]) -> str:
        if symbol.name in before:
            origin = "bound before"
        else:
            origin = f"from dimension {(self.dims or ()).index(symbol)}"
        return f"dimension {i} of {self}: expected {symbol} = {known} ({origin}), got {size}"


UNKNOWN_RANK = ShapeToken(None)


def parse_token(text: str, facts: Facts | None = None) -> ShapeToken:
    """The token that text says; see the top of this module.

    Args:
        text: any of the forms.
        facts: gets the ranges that stand in the text. Sizes without a name become symbols `?0`, `?1`, ... that these
            facts have not seen before; without facts they only differ from each other and from names in the text.

    Raises:
        ShapeError: the text is no token, or its ranges contradict facts (which then are not changed).
    """
    reader = Reader(text, "shape token")
    facts, target = Facts() if facts is None else facts.copy(), facts
    token = read_token(reader, facts)
    reader.expect_end()
    if target is not None:
        target.assign(facts)
    return token


def read_token(reader: Reader, facts: Facts) -> ShapeToken:
    """The token that comes next in reader; its ranges are added to facts.

    Raises:
        ShapeError: no token comes, or its ranges contradict facts.
    """
    # A name that stands anywhere in the text is not free for a size without one.
    for kind, text, _ in reader.tokens:
        if kind == "symbol" and text.lstrip("$@")[0] == "?":
            facts.reserve(Symbol("?" + text.lstrip("$@?")))
    reader.expect("[")
    if reader.take("..."):
        reader.expect("]")
        return UNKNOWN_RANK
    dims: list[DimLike] = []
    if not reader.take("]"):
        while True:
            if len(dims) == MAX_RANK:
                reader.fail(f"a shape has at most {MAX_RANK} dimensions")
            dims.append(_read_dim(reader, facts))
            if not reader.take(","):
                break
        if reader.take(";"):
            while True:
                symbol = reader.symbol()
                if symbol is None:
                    reader.fail("expected a name")
                reader.expect(":")
                facts.set_range(symbol, reader.range())
                if not reader.take(","):
                    break
        reader.expect("]")
    for dim in dims:
        facts.reserve(dim)
    return ShapeToken(tuple(dims))


def _read_dim(reader: Reader, facts: Facts) -> DimLike:
    if reader.starts_range():
        within = reader.range()
        if within.lo is None or within.lo < 0:
            raise ShapeError(f"range {within} of a dimension: sizes are not negative")
        if within.value is not None:
            return within.value
        symbol = facts.fresh_symbol()
        if within != NATURAL:
            facts.set_range(symbol, within)
        return symbol
    dim = reader.dim()
    if isinstance(dim, int) and dim < 0:
        raise ShapeError(f"dimension {dim} of a shape token: a size cannot be negative")
    if reader.take(":"):
        facts.set_range(dim, reader.range())
    return dim


def _without_name(dim: DimLike, facts: Facts) -> str:
    if not isinstance(dim, Symbol):
        return str(dim)
    within = facts.range(dim)
    return str(within.intersect(NATURAL) or within)  # a size is not negative, also where an int register gives it


def _with_range(symbol: Symbol, facts: Facts) -> str:
    within = facts.range(symbol)
    return str(symbol) if within == default_range(symbol) else f"{symbol}: {within}"


class _Unsolvable(Exception):
    """No size of the symbol gives the dimension its size."""


def _solve(dim: DimLike, size: int, symbol: Symbol, env: Mapping[str, int]) -> int | None:
    """The one value of symbol by which dim is size; None if dim is not linear in it, or many values do.

    Raises:
        _Unsolvable: there is none.
    """
    if not isinstance(dim, Sum):
        return None
    factor = 0
    rest = 0
    for monomial, coefficient in dim.terms:
        if monomial.count(symbol) > 1 or any(a is not symbol and symbol in symbols_of(a) for a in monomial):
            return None
        value = coefficient
        for atom in monomial:
            if atom is not symbol:
                try:
                    value *= evaluate(atom, env)
                except (ShapeError, ZeroDivisionError):
                    raise _Unsolvable from None
        if symbol in monomial:
            factor += value
        else:
            rest += value
    if factor == 0:
        if rest != size:
            raise _Unsolvable
        return None
    solved, left = divmod(size - rest, factor)
    if left or (solved < 0 and symbol.kind != "scalar"):
        raise _Unsolvable
    return solved

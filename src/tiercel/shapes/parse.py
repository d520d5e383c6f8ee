"""Text to sizes and ranges: a small recursive descent parser, the inverse of `str`.

::

    sum     := product (('+' | '-') product)*
    product := factor (('*' | '//' | '%') factor)*
    factor  := '-'* (INTEGER | symbol | function '(' sum (',' sum)* ')' | '(' sum ')')
    symbol  := ('$' | '@')? NAME | '?' DIGITS          $: an int register, @: a size that depends on data
    range   := ('?' | INTEGER | bound? '..' bound?) ('%' INTEGER ('=' INTEGER)?)?

The text may come from a file of unknown origin. Its length, nesting, integers and the size of the result are
bounded, so parsing takes milliseconds whatever the text, and a refusal is always a `ShapeError` with a position.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn

from tiercel.errors import ShapeError
from tiercel.shapes.dims import MAX_DEPTH, MAX_SIZE, RESERVED_NAMES, Dim, DimLike, Symbol, floordiv, mod
from tiercel.shapes.extremes import broadcast_dims, dim_max, dim_min
from tiercel.shapes.polynomial import MAX_COEFFICIENT
from tiercel.shapes.ranges import Range

MAX_TEXT_LENGTH = MAX_SIZE * 64  # what the longest expression with the longest names needs
_MAX_NESTING = 2 * MAX_DEPTH + 2  # a node in parentheses inside a function, at each level
_MAX_WORK = 1 << 20  # products of operand sizes, summed: at most a few seconds
_MAX_DIGITS = 19  # sizes are signed 64 bit numbers

_TOKEN = re.compile(
    r"(?P<number>[0-9]+)"
    r"|(?P<symbol>[$@]?[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*|[$@]?\?[0-9]+)"
    r"|(?P<mark>\.\.\.|\.\.|//|==|!=|<=|>=|[-+*%(),:;\[\]<>=?])"
    r"|(?P<space>[ \t]+)",
    re.ASCII,
)
_KINDS = {"$": "scalar", "@": "data"}
_OPERATORS: dict[str, Callable[[DimLike, DimLike], DimLike]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": floordiv,
    "%": mod,
}
_FUNCTIONS: dict[str, Callable[..., DimLike]] = {
    "min": dim_min,
    "max": dim_max,
    "bcast": lambda *args: broadcast_dims(args),
}


def parse_dim(text: str) -> DimLike:
    """The size that text says, e.g. `"B*T + 2*T - 1"`, `"T//2"`, `"T % 8"`, `"min(T, 512)"`, `"bcast(a, b)"`.

    Raises:
        ShapeError: the text is no size expression, divides by zero, or is too large; names the position.
    """
    reader = Reader(text, "size expression")
    out = reader.dim()
    reader.expect_end()
    return out


def parse_range(text: str) -> Range:
    """The range that text says: `?`, `16..64`, `16..`, `..64`, `128`, each also with ` % 8` or ` % 8 = 3`.

    Raises:
        ShapeError: the text is no range, or a range without a value; names the position.
    """
    reader = Reader(text, "range")
    out = reader.range()
    reader.expect_end()
    return out


class Reader:
    """A text as tokens, and a place in it.

    Args:
        text: what is read.
        what: what the text should be, for messages.
    """

    def __init__(self, text: str, what: str) -> None:
        self.what = what
        self.text = text
        self.place = 0
        self._nesting = 0
        self._work = 0
        if not isinstance(text, str):
            raise TypeError(f"{what}: expected a string, got {type(text).__name__}")
        if len(text) > MAX_TEXT_LENGTH:
            raise ShapeError(f"{what} of {len(text)} characters: at most {MAX_TEXT_LENGTH} are supported")
        self.tokens: list[tuple[str, str, int]] = []
        at = 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                self._fail(f"unexpected character {text[at]!r}", at)
            if match.lastgroup != "space":
                self.tokens.append((str(match.lastgroup), match.group(), at))
            at = match.end()
        self.tokens.append(("end", "", len(text)))

    def peek(self, ahead: int = 0) -> str:
        """The text of a coming token; empty at the end."""
        return self.tokens[min(self.place + ahead, len(self.tokens) - 1)][1]

    def peek_kind(self) -> str:
        """The kind of the next token: number, symbol, mark or end."""
        return self.tokens[self.place][0]

    def take(self, *marks: str) -> str | None:
        """Go past the next token and return it if it is one of marks."""
        kind, text, _ = self.tokens[self.place]
        if kind in ("mark", "symbol") and text in marks:
            self.place += 1
            return text
        return None

    def expect(self, mark: str) -> None:
        """Go past mark.

        Raises:
            ShapeError: something else comes.
        """
        if not self.take(mark):
            self.fail(f"expected {mark!r}")

    def expect_end(self) -> None:
        """Raises ShapeError if anything is left."""
        if self.peek_kind() != "end":
            self.fail("unexpected text")

    def fail(self, reason: str) -> NoReturn:
        """Raise ShapeError at the next token."""
        kind, text, at = self.tokens[self.place]
        self._fail(f"{reason}, got {'the end of the text' if kind == 'end' else repr(text)}", at)

    def integer(self) -> int:
        """An integer with an optional sign."""
        sign = -1 if self.take("-") else 1
        return sign * self._number()

    def dim(self) -> DimLike:
        """A size expression."""
        out = self._product()
        while True:
            at = self.place
            operator = self.take("+", "-")
            if operator is None:
                return out
            right = self._product()
            out = self._apply(at, _OPERATORS[operator], out, right)

    def range(self) -> Range:
        """A range."""
        at = self.place
        lo, hi = self._bounds()
        multiple, remainder = 1, 0
        if self.take("%"):
            multiple_at = self.place
            multiple = self._number()
            if multiple < 1:
                self._fail("the multiple of a range must be at least 1", self.tokens[multiple_at][2])
            if self.take("="):
                remainder = self._number()
        try:
            return Range(lo, hi, multiple, remainder)
        except ShapeError as error:
            self._fail(str(error), self.tokens[at][2])

    def starts_range(self) -> bool:
        """Does a range come that is no size expression: `?`, or bounds with `..`?"""
        if self.peek() in ("?", ".."):
            return True
        sign = 1 if self.peek() == "-" else 0
        return self.peek(sign + 1) == ".." and (self.peek(sign).isdigit() or self.peek(sign) == "inf")

    def symbol(self) -> Symbol | None:
        """The symbol that comes, or None if something else does."""
        kind, text, at = self.tokens[self.place]
        if kind != "symbol" or text in RESERVED_NAMES:
            return None
        self.place += 1
        sort = _KINDS.get(text[0], "input")
        try:
            return Symbol(text.lstrip("$@"), sort)
        except ShapeError as error:
            self._fail(str(error), at)

    def _bounds(self) -> tuple[int | None, int | None]:
        if self.take("?"):
            return 0, None
        lo: int | None = 0
        if self.peek() != "..":
            if self.peek() == "-" and self.peek(1) == "inf":
                self.place += 2
                lo = None
            else:
                lo = self.integer()
                if self.peek() != "..":
                    return lo, lo
        self.expect("..")
        if self.peek_kind() == "number" or self.peek() == "-":
            return lo, self.integer()
        return lo, None

    def _number(self) -> int:
        kind, text, at = self.tokens[self.place]
        if kind != "number":
            self.fail("expected an integer")
        if len(text) > _MAX_DIGITS or int(text) >= 1 << 63:
            self._fail("integer does not fit in 64 bits", at)
        self.place += 1
        return int(text)

    def _product(self) -> DimLike:
        out = self._factor()
        while True:
            at = self.place
            operator = self.take("*", "//", "%")
            if operator is None:
                return out
            right = self._factor()
            out = self._apply(at, _OPERATORS[operator], out, right)

    def _factor(self) -> DimLike:
        negative = False
        while self.take("-"):
            negative = not negative
        out = self._primary()
        return -out if negative else out

    def _primary(self) -> DimLike:
        if self.peek_kind() == "number":
            return self._number()
        symbol = self.symbol()
        if symbol is not None:
            return symbol
        at = self.place
        function = self.take("min", "max", "bcast")
        if function is None and self.peek() != "(":
            self.fail("expected an integer, a name or '('")
        self.expect("(")
        self._nesting += 1
        if self._nesting > _MAX_NESTING:
            self._fail(f"more than {_MAX_NESTING} levels of parentheses", self.tokens[at][2])
        out = self.dim()
        if function is not None:
            args = [out]
            while self.take(","):
                args.append(self.dim())
            out = self._apply(at, _FUNCTIONS[function], *args)
        self._nesting -= 1
        self.expect(")")
        return out

    def _apply(self, at: int, operation: Callable[..., DimLike], *args: DimLike) -> DimLike:
        sizes = [arg.size + 1 if isinstance(arg, Dim) else 2 for arg in args]
        self._work += sizes[0] * sizes[1] if len(sizes) == 2 else sum(sizes) ** 2
        if self._work > _MAX_WORK:
            self._fail("the expression takes too long to bring into normal form", self.tokens[at][2])
        try:
            out = operation(*args)
        except (ShapeError, ZeroDivisionError) as error:
            self._fail(str(error), self.tokens[at][2])
        if isinstance(out, int) and not -MAX_COEFFICIENT < out < MAX_COEFFICIENT:
            self._fail("a constant exceeds 127 bits", self.tokens[at][2])
        return out

    def _fail(self, reason: str, at: int) -> NoReturn:
        start, stop = max(0, at - 30), at + 30
        shown = ("..." if start else "") + self.text[start:stop] + ("..." if stop < len(self.text) else "")
        raise ShapeError(f"{self.what}, position {at}: {reason}; in {shown!r}")

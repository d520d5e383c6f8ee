"""Symbolic dimensions: integer expressions over symbols, always in normal form.

What comes in are plain ints and `Dim` objects, what goes out is an int whenever the result is constant, else a `Dim`.
A `Dim` is one of three things: a `Symbol`, a `Node` (`//`, `%`, `min`, `max`, `bcast` of other dimensions), or a `Sum`
(a polynomial over symbols and nodes). All three are interned: equal expressions are one object, so `==` and `hash` are
those of `object`, and memo tables cost one dict lookup.

What the normal form assumes, and nothing else:

- Symbols stand for any integers, negative ones, 0 and 1 included. `//` and `%` are Python's (they round down).
- A symbolic denominator is not 0. Where it is, the written expression has no value while its normal form may have one:
  `(B*T) // T` is `B`. No rule assumes a *positive* denominator unless it is a positive int: `(x//a)//b -> x//(a*b)`
  holds for ints b > 0 and any a. (With `Facts` the same is done for symbols known to be positive.)
- `bcast` assumes that the broadcast is legal; see `extremes.broadcast_dim`.

Normal form here means: commutativity, associativity and distributivity of `+ - *`, and shifting a numerator by a
multiple of its denominator, give the same object. It does not mean that every pair of equal functions is found
equal; `Facts.equal` tries harder and says when it does not know.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from math import gcd
from operator import index
from typing import Any, NoReturn, SupportsIndex, TypeAlias, cast
from weakref import WeakValueDictionary

from tiercel.errors import ShapeError
from tiercel.shapes import polynomial
from tiercel.shapes.polynomial import MAX_COEFFICIENT, MAX_DEGREE, MAX_TERMS, DimLimitError, Monomial, Terms

MAX_DEPTH = 24  # nesting of nodes
MAX_SIZE = 512  # symbols and operators of an expression written out in full
_MEMO_ENTRIES = 4096

SYMBOL_KINDS = ("input", "scalar", "data")
# How a kind is written in front of the name: an input's size, an int register, a size that depends on data.
KIND_SIGILS = {"input": "", "scalar": "$", "data": "@"}
RESERVED_NAMES = frozenset({"min", "max", "bcast", "where"})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*|\?(0|[1-9][0-9]{0,8})", re.ASCII)
_MAX_NAME_LENGTH = 64

_interned: WeakValueDictionary[Any, Dim] = WeakValueDictionary()
_lock = threading.RLock()  # reentrant: a finalizer run by the garbage collector may build dimensions


def _reset_lock() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_reset_lock)


class Dim:
    """An integer expression over symbols, immutable and interned. Not made directly: see `Symbol` and the operators."""

    __slots__ = ("__weakref__", "_symbols", "_text", "depth", "size")

    __array_ufunc__ = None  # NumPy scalars leave `np.int64(3) * dim` to us

    # Sorts expressions the same way in every process: a tuple that starts with the kind of node.
    key: tuple[Any, ...]
    depth: int
    size: int
    _symbols: frozenset[Symbol] | None
    _text: str | None

    def __add__(self, other: Operand) -> DimLike:
        return _plus(self, other) if other.__class__ in _OPERANDS else _coerced(_plus, self, other)

    def __radd__(self, other: Operand) -> DimLike:
        return _plus(self, other) if other.__class__ in _OPERANDS else _coerced(_plus, self, other)

    def __sub__(self, other: Operand) -> DimLike:
        return _minus(self, other) if other.__class__ in _OPERANDS else _coerced(_minus, self, other)

    def __rsub__(self, other: Operand) -> DimLike:
        return _coerced(_reversed_minus, self, other)

    def __mul__(self, other: Operand) -> DimLike:
        return _times(self, other) if other.__class__ in _OPERANDS else _coerced(_times, self, other)

    def __rmul__(self, other: Operand) -> DimLike:
        return _times(self, other) if other.__class__ in _OPERANDS else _coerced(_times, self, other)

    def __floordiv__(self, other: Operand) -> DimLike:
        return _coerced(floordiv, self, other)

    def __rfloordiv__(self, other: Operand) -> DimLike:
        return _coerced(_reversed_floordiv, self, other)

    def __mod__(self, other: Operand) -> DimLike:
        return _coerced(mod, self, other)

    def __rmod__(self, other: Operand) -> DimLike:
        return _coerced(_reversed_mod, self, other)

    def __neg__(self) -> DimLike:
        return _times(self, -1)

    def __pos__(self) -> Dim:
        return self

    def _refuse_order(self, other: object) -> NoReturn:
        raise TypeError(
            f"the order of {self} and {other} is not known from the expressions alone; "
            "ask Facts.less_equal(a, b), or use dim_min and dim_max"
        )

    __lt__ = __le__ = __gt__ = __ge__ = _refuse_order

    def __bool__(self) -> NoReturn:
        raise TypeError(f"whether the size {self} is nonzero is not known; ask Facts.equal({self}, 0)")

    def __copy__(self) -> Dim:
        return self

    def __deepcopy__(self, memo: object) -> Dim:
        return self

    def __str__(self) -> str:
        if self._text is None:
            self._text = _format(self)
        return self._text

    def __repr__(self) -> str:
        return f"<Dim {self}>"


DimLike: TypeAlias = int | Dim
Operand: TypeAlias = Dim | SupportsIndex  # of an operator: also NumPy's integers


class Symbol(Dim):
    """The dimension named `name`; two symbols are the same if name and kind are.

    Args:
        name: an identifier (dots allowed), or `?` and a number for a size without a name.
        kind: "input" (a size of an input, never negative), "scalar" (an int register, any value) or "data" (a size
            that depends on data, never negative). Text shows scalars as `$name` and data sizes as `@name`.

    Raises:
        ShapeError: the name or the kind is not one of those.
    """

    __slots__ = ("key", "kind", "name")

    name: str
    kind: str

    def __new__(cls, name: str, kind: str = "input") -> Symbol:
        found = _interned.get((name, kind))
        if found is not None:
            return cast(Symbol, found)
        if kind not in SYMBOL_KINDS:
            raise ShapeError(f"kind of symbol {name!r}: expected one of {', '.join(SYMBOL_KINDS)}, got {kind!r}")
        if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > _MAX_NAME_LENGTH:
            raise ShapeError(
                f"name of a symbol: expected an identifier or '?' and a number (at most {_MAX_NAME_LENGTH} "
                f"characters), got {name!r}"
            )
        if name in RESERVED_NAMES:
            raise ShapeError(f"name of a symbol: {name!r} is a function of size expressions")
        self = super().__new__(cls)
        self.name = name
        self.kind = kind
        # Anonymous sizes come after named ones, by number.
        order = (1, int(name[1:]), "") if name[0] == "?" else (0, 0, name)
        self.key = (0, order, kind)
        self.depth = 0
        self.size = 1
        self._symbols = None
        self._text = None
        return cast(Symbol, _intern((name, kind), self))

    def __reduce__(self) -> tuple[Any, ...]:
        return Symbol, (self.name, self.kind)


class Node(Dim):
    """`op` applied to `args`, where no rule of the normal form applies. `op` is `//`, `%`, `min`, `max` or `bcast`."""

    __slots__ = ("args", "key", "op")

    op: str
    args: tuple[DimLike, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        return make_node, (self.op, self.args)


class Sum(Dim):
    """A polynomial with more than one term, or one term that is neither constant nor a bare symbol or node."""

    __slots__ = ("_key", "terms")

    terms: tuple[tuple[Monomial, int], ...]
    _key: tuple[Any, ...] | None

    @property
    def key(self) -> tuple[Any, ...]:  # type: ignore[override]  # only sums among a node's arguments need theirs
        """Sorts expressions the same way in every process."""
        if self._key is None:
            self._key = (2, tuple((len(m), tuple(atom.key for atom in m), c) for m, c in self.terms))
        return self._key

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_pairs, (self.terms,)


_OPERANDS = frozenset({int, Symbol, Node, Sum})


def as_dim(x: object) -> DimLike:
    """x as an int or Dim.

    Raises:
        TypeError: x is neither an integer nor a Dim.
    """
    if x.__class__ in _OPERANDS:
        return cast("DimLike", x)
    try:
        return int(index(cast(SupportsIndex, x)))
    except TypeError:
        raise TypeError(f"a size must be an int or a Dim, got {x!r} of type {type(x).__name__}") from None


def key_of(x: DimLike) -> tuple[Any, ...]:
    """A key that sorts ints and dimensions together, ints last, the same way in every process."""
    return x.key if isinstance(x, Dim) else (3, x)


def terms_of(x: DimLike) -> Terms:
    """x as a polynomial (a new dict)."""
    if isinstance(x, Sum):
        return dict(x.terms)
    if isinstance(x, Dim):
        return {(x,): 1}
    return {(): x} if x else {}


def from_terms(terms: Terms) -> DimLike:
    """The dimension with these terms; coefficients may not be 0.

    Raises:
        DimLimitError: it is too large.
    """
    if not terms:
        return 0
    if len(terms) == 1:
        ((monomial, coefficient),) = terms.items()
        if not monomial:
            return coefficient
        if coefficient == 1 and len(monomial) == 1:
            return cast(Dim, monomial[0])
    intern_key = frozenset(terms.items())
    found = _interned.get(intern_key)
    if found is not None:
        return found
    depth = 0
    size = len(terms)
    for monomial, coefficient in terms.items():
        if not -MAX_COEFFICIENT < coefficient < MAX_COEFFICIENT:
            raise DimLimitError("a coefficient of a size expression exceeds 127 bits")
        if len(monomial) > MAX_DEGREE:
            raise DimLimitError(f"size expression of degree {len(monomial)}: at most {MAX_DEGREE} are supported")
        for atom in monomial:
            size += atom.size
            depth = max(depth, atom.depth)
    if len(terms) > MAX_TERMS:
        raise DimLimitError(f"size expression with {len(terms)} terms: at most {MAX_TERMS} are supported")
    _check_size(size)
    out = Sum.__new__(Sum)
    out.terms = tuple(terms.items()) if len(terms) == 1 else tuple(sorted(terms.items(), key=_pair_key))
    out._key = None
    out.depth = depth
    out.size = size
    out._symbols = None
    out._text = None
    return _intern(intern_key, out)


def make_node(op: str, args: tuple[DimLike, ...]) -> Dim:
    """The node `op(*args)`, to which no rule applies any more: the arguments are in the order of the normal form."""
    intern_key = (op, args)
    found = _interned.get(intern_key)
    if found is not None:
        return found
    depth = 1
    size = 1
    for arg in args:
        if isinstance(arg, Dim):
            depth = max(depth, arg.depth + 1)
            size += arg.size
        else:
            size += 1
            if not -MAX_COEFFICIENT < arg < MAX_COEFFICIENT:
                raise DimLimitError("a constant of a size expression exceeds 127 bits")
    if depth > MAX_DEPTH:
        raise DimLimitError(f"size expression nested {depth} deep: at most {MAX_DEPTH} levels are supported")
    _check_size(size)
    out = Node.__new__(Node)
    out.op = op
    out.args = args
    out.key = (1, op, tuple(key_of(arg) for arg in args))
    out.depth = depth
    out.size = size
    out._symbols = None
    out._text = None
    return _intern(intern_key, out)


def symbols_of(x: DimLike) -> frozenset[Symbol]:
    """The symbols that x depends on."""
    if not isinstance(x, Dim):
        return frozenset()
    if x._symbols is None:
        if isinstance(x, Symbol):
            x._symbols = frozenset((x,))
        elif isinstance(x, Node):
            x._symbols = frozenset().union(*map(symbols_of, x.args))
        else:
            x._symbols = frozenset().union(*(symbols_of(atom) for m, _ in cast(Sum, x).terms for atom in m))
    return x._symbols


def floordiv(x: DimLike, d: DimLike) -> DimLike:
    """`x // d`, rounding down.

    Raises:
        ZeroDivisionError: d is the int 0.
    """
    if isinstance(x, int) and isinstance(d, int):
        return x // d
    out = _floordivs.get((x, d))
    if out is None:
        out = _floordiv_by_int(x, d) if isinstance(d, int) else _floordiv_by_dim(x, d)
        remember(_floordivs, (x, d), out)
    return out


def mod(x: DimLike, d: DimLike) -> DimLike:
    """`x % d`, with the sign of d as in Python.

    Raises:
        ZeroDivisionError: d is the int 0.
    """
    if isinstance(x, int) and isinstance(d, int):
        return x % d
    out = _mods.get((x, d))
    if out is None:
        out = _mod_by_int(x, d) if isinstance(d, int) else _mod_by_dim(x, d)
        remember(_mods, (x, d), out)
    return out


def memo_table() -> dict[Any, DimLike]:
    """A table of results by operands. Keys are interned objects, so a hit costs a tenth of a microsecond."""
    table: dict[Any, DimLike] = {}
    _memo_tables.append(table)
    return table


def remember(table: dict[Any, DimLike], key: object, value: DimLike) -> DimLike:
    """Put value into a memo table, which stays of bounded size; returns value."""
    if len(table) >= _MEMO_ENTRIES:
        table.clear()
    table[key] = value
    return value


def clear_memo() -> None:
    """Empty all memo tables. Only speed depends on them."""
    for table in _memo_tables:
        table.clear()


_memo_tables: list[dict[Any, DimLike]] = []
_sums = memo_table()
_differences = memo_table()
_products = memo_table()
_floordivs = memo_table()
_mods = memo_table()


def _intern(key: object, new: Dim) -> Dim:
    with _lock:
        found = _interned.get(key)
        if found is None:
            _interned[key] = found = new
    return found


def _check_size(size: int) -> None:
    if size > MAX_SIZE:
        raise DimLimitError(f"size expression with {size} symbols and operators: at most {MAX_SIZE} are supported")


def _pair_key(pair: tuple[Monomial, int]) -> tuple[Any, ...]:
    return polynomial.monomial_key(pair[0])


def _from_pairs(pairs: tuple[tuple[Monomial, int], ...]) -> DimLike:
    # Pickles may come from a process with other memo tables, never with another order of atoms.
    return from_terms(dict(pairs))


def _coerced(operator: Callable[[Dim, DimLike], DimLike], self: Dim, other: Operand) -> DimLike:
    if not isinstance(other, Dim):
        try:
            other = int(index(other))
        except TypeError:
            return NotImplemented  # type: ignore[no-any-return]  # Python tries the other operand
    return operator(self, other)


def _plus(a: Dim, b: Any) -> DimLike:
    key = (a, b)
    out = _sums.get(key)
    if out is None:
        out = from_terms(polynomial.add(terms_of(a), terms_of(b)))
        remember(_sums, key, out)
    return out


def _minus(a: Dim, b: Any) -> DimLike:
    key = (a, b)
    out = _differences.get(key)
    if out is None:
        out = from_terms(polynomial.add(terms_of(a), terms_of(b), -1))
        remember(_differences, key, out)
    return out


def _times(a: Dim, b: Any) -> DimLike:
    key = (a, b)
    out = _products.get(key)
    if out is None:
        if isinstance(b, int):
            out = a if b == 1 else from_terms(polynomial.scale(terms_of(a), b))
        else:
            out = from_terms(polynomial.multiply(terms_of(a), terms_of(b)))
        remember(_products, key, out)
    return out


def _reversed_minus(a: Dim, b: DimLike) -> DimLike:
    return -a + b


def _reversed_floordiv(a: Dim, b: DimLike) -> DimLike:
    return floordiv(b, a)


def _reversed_mod(a: Dim, b: DimLike) -> DimLike:
    return mod(b, a)


def _floordiv_by_int(x: DimLike, d: int) -> DimLike:
    if d == 0:
        raise ZeroDivisionError(f"division of the size {x} by zero")
    terms = terms_of(x)
    if d < 0:
        terms, d = polynomial.scale(terms, -1), -d  # x // -d -> -x // d
    quotient, rest = polynomial.divide(terms, {(): d})  # (a*d + b) // d -> a + b // d
    out = from_terms(quotient)
    if not rest or _between_zero_and(rest, d):
        return out  # (x % k) // d -> 0 for k <= d
    constant = rest.pop((), 0)
    common = gcd(d, *rest.values())
    # floor((g*p + c) / (g*e)) -> floor((p + c // g) / e)
    d //= common
    rest = {monomial: coefficient // common for monomial, coefficient in rest.items()}
    if constant // common:
        rest[()] = constant // common
    inner = [m for m, c in rest.items() if len(m) == 1 and c == 1 and isinstance(m[0], Node) and m[0].op == "//"]
    if len(inner) == 1:
        # (y//a + p) // d -> (y + a*p) // (a*d), for ints d > 0
        del rest[inner[0]]
        numerator, denominator = inner[0][0].args
        return out + floordiv(numerator + denominator * from_terms(rest), denominator * d)
    return out + make_node("//", (from_terms(rest), d))


def _floordiv_by_dim(x: DimLike, d: Dim) -> DimLike:
    terms = terms_of(x)
    divisor = terms_of(d)
    if divisor[polynomial.leading(divisor)] < 0:
        terms, divisor = polynomial.scale(terms, -1), polynomial.scale(divisor, -1)
    quotient, rest = polynomial.divide(terms, divisor)  # (a*d + b) // d -> a + b // d
    out = from_terms(quotient)
    if not rest:
        return out
    common, rest, reduced = _cancel(rest, divisor)
    if common == _ONE:
        return out + make_node("//", (from_terms(rest), from_terms(reduced)))
    return out + floordiv(from_terms(rest), from_terms(reduced))  # (g*a) // (g*b) -> a // b


def _mod_by_int(x: DimLike, d: int) -> DimLike:
    if d == 0:
        raise ZeroDivisionError(f"remainder of the size {x} by zero")
    if d < 0:
        return -mod(-x, -d)  # x % -d -> -(-x % d)
    rest = {m: c % d for m, c in terms_of(x).items() if c % d}  # (a*d + b) % d -> b % d
    while True:  # (c * (y % k) + b) % d -> (c*y + b) % d where d divides c*k
        inner = [m for m, c in rest.items() if _is_mod_by_int(m) and c * m[0].args[1] % d == 0]
        if not inner or _between_zero_and(rest, d):
            break
        coefficient = rest.pop(inner[0])
        rest = polynomial.add(rest, terms_of(inner[0][0].args[0]), coefficient)
        rest = {m: c % d for m, c in rest.items() if c % d}
    if not rest or _between_zero_and(rest, d):
        return from_terms(rest)  # (x % k) % d -> x % k for k <= d
    constant = rest.pop((), 0)
    common = gcd(d, *rest.values())
    # (g*p + c) % (g*e) -> g * ((p + c // g) % e) + c % g
    rest = {monomial: coefficient // common for monomial, coefficient in rest.items()}
    if constant // common:
        rest[()] = constant // common
    out: DimLike = constant % common
    if common == d:
        return out
    return out + make_node("%", (from_terms(rest), d // common)) * common


def _mod_by_dim(x: DimLike, d: Dim) -> DimLike:
    terms = terms_of(x)
    divisor = terms_of(d)
    if divisor[polynomial.leading(divisor)] < 0:
        return -mod(-x, -d)  # x % -d -> -(-x % d)
    rest = polynomial.divide(terms, divisor)[1]  # (a*d + b) % d -> b % d
    for monomial, coefficient in rest.items():
        # (c * (y % k) + b) % d -> (c*y + b) % d where d divides c*k
        if len(monomial) == 1 and isinstance(monomial[0], Node) and monomial[0].op == "%":
            numerator, denominator = monomial[0].args
            if mod(denominator * coefficient, d) == 0:
                del rest[monomial]
                return mod(from_terms(polynomial.add(rest, terms_of(numerator), coefficient)), d)
    if not rest:
        return 0
    common, rest, reduced = _cancel(rest, divisor)
    if common == _ONE:
        return make_node("%", (from_terms(rest), from_terms(reduced)))
    return from_terms(common) * mod(from_terms(rest), from_terms(reduced))  # (g*a) % (g*b) -> g * (a % b)


_ONE: Terms = {(): 1}


def _cancel(a: Terms, b: Terms) -> tuple[Terms, Terms, Terms]:
    """(g, a/g, b/g) for a common factor g of two polynomials that are not zero: the largest that is easy to find."""
    common = _ONE
    if len(b) > 1:
        monomial, coefficient = polynomial.common_monomial(b), polynomial.content(b)
        primitive = polynomial.divide_by_term(b, monomial, coefficient)
        quotient, rest = polynomial.divide(a, primitive)
        if not rest:
            common, a, b = primitive, quotient, {monomial: coefficient}
    both = (*a, *b)
    monomial = polynomial.common_monomial(dict.fromkeys(both, 1))
    coefficient = gcd(polynomial.content(a), polynomial.content(b))
    if monomial or coefficient != 1:
        common = polynomial.multiply(common, {monomial: coefficient})
        a = polynomial.divide_by_term(a, monomial, coefficient)
        b = polynomial.divide_by_term(b, monomial, coefficient)
    return common, a, b


def _is_mod_by_int(monomial: Monomial) -> bool:
    if len(monomial) != 1 or not isinstance(monomial[0], Node) or monomial[0].op != "%":
        return False
    return isinstance(monomial[0].args[1], int)  # a positive one: `x % -k` has no node of its own


def _between_zero_and(terms: Terms, limit: int) -> bool:
    """Is the value in [0, limit) by its form alone: a constant and remainders by ints, all counted positively?"""
    most = 0
    for monomial, coefficient in terms.items():
        if coefficient < 0:
            return False
        if not monomial:
            most += coefficient
        elif _is_mod_by_int(monomial):
            most += coefficient * (monomial[0].args[1] - 1)
        else:
            return False
    return most < limit


def _format(x: Dim) -> str:
    if isinstance(x, Symbol):
        return KIND_SIGILS[x.kind] + x.name
    if isinstance(x, Node):
        if x.op == "//":
            return f"{_format_operand(x.args[0])}//{_format_operand(x.args[1])}"
        if x.op == "%":
            return f"{_format_operand(x.args[0])} % {_format_operand(x.args[1])}"
        return f"{x.op}({', '.join(map(str, x.args))})"
    parts: list[str] = []
    for monomial, coefficient in cast(Sum, x).terms:
        sign = "-" if coefficient < 0 else "+"
        size = abs(coefficient)
        if not monomial:
            text = str(size)
        elif len(monomial) == 1 and size == 1 and (parts or sign == "+" or not _is_division(monomial[0])):
            text = str(monomial[0])  # but -(T//2) at the start, where - would bind to T
        else:
            factors = [] if size == 1 else [str(size)]
            factors += [f"({atom})" if _is_division(atom) else str(atom) for atom in monomial]
            text = "*".join(factors)
        if parts:
            parts.append(f" {sign} {text}")
        else:
            parts.append(text if sign == "+" else f"-{text}")
    return "".join(parts)


def _format_operand(x: DimLike) -> str:
    """x as an operand of `//` or `%`: in parentheses unless it reads as one thing."""
    if isinstance(x, Sum) or (isinstance(x, Dim) and _is_division(x)) or (isinstance(x, int) and x < 0):
        return f"({x})"
    return str(x)


def _is_division(x: Dim) -> bool:
    return isinstance(x, Node) and x.op in ("//", "%")

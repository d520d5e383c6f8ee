"""`Facts`: what is known about sizes, and what follows from it.

What comes in are ranges and constraints; what goes out are ranges, divisors, and answers True, False or None (not
known). Every answer but None is a proof from the facts given; the search for proofs is bounded, so None may also mean
that it was not found.

Three stores hold what is known. A *value* replaces a symbol (`dim1 == 2*dim0`), and no replaced symbol occurs
anywhere else. A *range* belongs to a symbol that is left. A *bound* is the range of an expression that is more than
a symbol (`B*T <= 1024`, `N - T >= 0`), in primitive form: no constant, coefficients without common factor, the first
one positive. Facts are only ever added; one that contradicts the others is refused and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from math import gcd
from typing import TypeVar, cast

from tiercel.errors import ShapeError
from tiercel.shapes import polynomial
from tiercel.shapes.constraints import Constraint
from tiercel.shapes.dims import Dim, DimLike, Node, Sum, Symbol, as_dim, floordiv, from_terms, symbols_of, terms_of
from tiercel.shapes.evaluate import apply_node
from tiercel.shapes.extremes import split_constant
from tiercel.shapes.intervals import default_range, expand_mods, node_range, sum_range, term_range
from tiercel.shapes.polynomial import DimLimitError
from tiercel.shapes.ranges import ANY, NATURAL, Range

_MEMO_ENTRIES = 4096
# The search for proofs is bounded, so that hostile facts cost milliseconds. What is beyond a bound is not concluded.
_MAX_BOUNDS = 64  # relations kept; ranges of symbols are not counted
_MAX_REASONED_SIZE = 64  # symbols and operators of an expression whose parts are compared with each other
_COMBINATION_DEPTH = 2  # how many relations are combined with an expression at a time,
_COMBINATIONS = 64  # how many such attempts a question costs at most,
_CHECKS = 128  # and the check of a new constraint,
_CHECK_WORK = 512  # which tries the fewer the more relations there are: attempts times relations
_MIN_CHECKS = 8  # but these at least, on the relations it narrowed first
_PROPAGATION_ROUNDS = 4  # enough for chains as they occur; each round is sound on its own
_MAX_CORE_SEARCH = 64  # facts among which the ones that contradict are looked for

_ZERO = Range.single(0)
_POSITIVE = Range(1, None)


_V = TypeVar("_V")


class _Contradiction(Exception):
    """What is being added cannot be true together with the rest."""


class Facts:
    """What is known about sizes. Starts with what the kinds of symbols say: inputs' and data sizes are not negative."""

    __slots__ = (
        "_bounds",
        "_changed",
        "_log",
        "_names",
        "_narrowed",
        "_next_fresh",
        "_plain_memo",
        "_ranges",
        "_ranges_memo",
        "_simple_memo",
        "_unequal",
        "_values",
    )

    def __init__(self, constraints: Iterable[str | Constraint] = ()) -> None:
        self._values: dict[Symbol, DimLike] = {}
        self._ranges: dict[Symbol, Range] = {}
        self._bounds: dict[Dim, Range] = {}
        self._unequal: tuple[DimLike, ...] = ()  # expressions that are not 0
        self._log: dict[Constraint, None] = {}  # in the order of adding
        self._narrowed: dict[Dim, None] = {}  # relations that the constraint being added says something new about
        self._changed: set[Symbol] = set()  # symbols that something was learnt about, relations of which wait
        self._names: set[str] = set()
        self._next_fresh = 0
        self._plain_memo: dict[Dim, Range] = {}
        self._ranges_memo: dict[Dim, Range] = {}
        self._simple_memo: dict[Dim, DimLike] = {}
        for constraint in constraints:
            self.constrain(constraint)

    # --- adding -------------------------------------------------------------------------------------------------------

    def set_range(self, x: DimLike, within: Range) -> None:
        """Add that every value of x (a symbol or an expression) lies in the range.

        Ranges given before stay true: what counts is what all of them have in common.

        Raises:
            ShapeError: that contradicts what is known.
        """
        self.constrain(Constraint((as_dim(x),), within=within))

    def constrain(self, constraint: str | Constraint) -> None:
        """Add a constraint, such as `"dim0 % 8 == 0"`, `"1 <= T <= 512"`, `"dim1 == 2 * dim0"` or `"T: 16..64 % 8"`.

        Raises:
            ShapeError: the text is no constraint, or it contradicts others; names them, and adds nothing.
        """
        if isinstance(constraint, str):
            constraint = Constraint.parse(constraint)
        saved = self._values, self._ranges, self._bounds, self._unequal
        self._values, self._ranges, self._bounds = dict(self._values), dict(self._ranges), dict(self._bounds)
        self._changed, self._narrowed = set(), {}
        try:
            self._apply(constraint)
            self._propagate()
            self._check(constraint.symbols)
        except _Contradiction:
            self._values, self._ranges, self._bounds, self._unequal = saved
            self._forget_memo()
            raise ShapeError(self._explain_contradiction(constraint)) from None
        except BaseException:
            self._values, self._ranges, self._bounds, self._unequal = saved
            self._forget_memo()
            raise
        self._names.update(symbol.name for symbol in constraint.symbols)
        self._log[constraint] = None

    def update(self, other: Facts) -> None:
        """Add everything that was added to other.

        Raises:
            ShapeError: something of it contradicts what is known; what came before it stays added.
        """
        for constraint in other._log:
            self.constrain(constraint)
        self._names |= other._names

    def fresh_symbol(self, kind: str = "input") -> Symbol:
        """A symbol `?0`, `?1`, ... that these facts have not seen; see `reserve`."""
        while f"?{self._next_fresh}" in self._names:
            self._next_fresh += 1
        symbol = Symbol(f"?{self._next_fresh}", kind)
        self._names.add(symbol.name)
        return symbol

    def reserve(self, x: DimLike) -> None:
        """Let no fresh symbol have the name of a symbol of x."""
        self._names.update(symbol.name for symbol in symbols_of(x))

    def copy(self) -> Facts:
        """Facts that start with the same knowledge and go their own way."""
        other = Facts()
        other.assign(self)
        return other

    def assign(self, source: Facts) -> None:
        """Take over all that source knows in place of what was known here."""
        self._values = dict(source._values)
        self._ranges = dict(source._ranges)
        self._bounds = dict(source._bounds)
        self._unequal = source._unequal
        self._log = dict(source._log)
        self._names = set(source._names)
        self._next_fresh = source._next_fresh
        self._plain_memo = dict(source._plain_memo)
        self._ranges_memo = dict(source._ranges_memo)
        self._simple_memo = dict(source._simple_memo)

    # --- asking -------------------------------------------------------------------------------------------------------

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """Everything that was added, in that order; adding it to new facts gives equal ones."""
        return tuple(self._log)

    def range(self, x: DimLike) -> Range:
        """A range that holds every value that x can have."""
        if not isinstance(x, Dim):
            return Range.single(as_dim(x))  # type: ignore[arg-type]  # an int, for it is no Dim
        found = self._ranges_memo.get(x)
        if found is None:
            resolved = self._resolve(x)
            found = self._combined(resolved, [_COMBINATIONS])
            _remember(self._ranges_memo, x, found)
        return found

    def divisor(self, x: DimLike) -> int:
        """The largest number known to divide x; 0 if x is 0, which every number divides."""
        return self.range(x).divisor

    def equal(self, a: DimLike, b: DimLike) -> bool | None:
        """True if a and b are proved equal, False if proved different, None if neither."""
        if a is b:
            return True
        try:
            difference = self.simplify(as_dim(a) - as_dim(b))
            if isinstance(difference, Dim):
                difference = self.simplify(expand_mods(difference))
        except DimLimitError:
            return None
        if isinstance(difference, int):
            return difference == 0
        values = self.range(difference)
        if values.value == 0:
            return True
        if not values.contains(0):
            return False
        for unequal in self._unequal:
            if self._resolve(unequal) in (difference, -difference):
                return False
        return None

    def less_equal(self, a: DimLike, b: DimLike) -> bool | None:
        """True if `a <= b` is proved, False if `a > b` is, None if neither."""
        if a is b:
            return True
        try:
            values = self.range(self.simplify(as_dim(b) - as_dim(a)))
        except DimLimitError:
            return None
        if values.lo is not None and values.lo >= 0:
            return True
        if values.hi is not None and values.hi < 0:
            return False
        return None

    def implies(self, constraint: str | Constraint) -> bool:
        """Is the constraint proved by what is known?"""
        if isinstance(constraint, str):
            constraint = Constraint.parse(constraint)
        if constraint.within is not None:
            return constraint.within.covers(self.range(constraint.operands[0]))
        for a, relation, b in constraint.pairs():
            if relation == "==":
                proved = self.equal(a, b) is True
            elif relation == "!=":
                proved = self.equal(a, b) is False
            else:
                low, high = (a, b) if relation in ("<=", "<") else (b, a)
                if relation in ("<", ">"):
                    low = low + 1
                proved = self.less_equal(low, high) is True
            if not proved:
                return False
        return True

    def simplify(self, x: DimLike) -> DimLike:
        """An expression equal to x under these facts, with known values put in and decided operations carried out."""
        if not isinstance(x, Dim):
            return as_dim(x)
        found = self._simple_memo.get(x)
        if found is None:
            found = self._simplified(self._resolve(x))
            _remember(self._simple_memo, x, found)
        return found

    def __repr__(self) -> str:
        return f"Facts({[str(constraint) for constraint in self._log]})"

    # --- drawing conclusions ------------------------------------------------------------------------------------------

    def _apply(self, constraint: Constraint) -> None:
        if constraint.within is not None:
            self._narrow(constraint.operands[0], constraint.within)
        for a, relation, b in constraint.pairs():
            if relation == "==":
                self._equate(a, b)
            elif relation == "!=":
                self._unequal += (a - b,)
            elif relation == "<=":
                self._narrow(b - a, NATURAL)
            elif relation == "<":
                self._narrow(b - a, _POSITIVE)
            elif relation == ">=":
                self._narrow(a - b, NATURAL)
            elif relation == ">":
                self._narrow(a - b, _POSITIVE)
            else:
                raise AssertionError(f"unknown relation {relation!r}")

    def _equate(self, a: DimLike, b: DimLike) -> None:
        a, b = self._resolve(a), self._resolve(b)
        difference = a - b
        if isinstance(difference, int):
            if difference:
                raise _Contradiction
            return
        found = solve_for_symbol(a, b)
        if found is None:
            self._narrow(difference, _ZERO)
        else:
            self._eliminate(*found)

    def _eliminate(self, symbol: Symbol, value: DimLike) -> None:
        """Put value, in which symbol does not occur, in the place of symbol everywhere."""
        within = self._ranges.pop(symbol, default_range(symbol))
        self._values[symbol] = value
        self._changed |= symbols_of(value)
        self._forget_memo()
        for other, old in self._values.items():
            if symbol in symbols_of(old):
                self._values[other] = self._resolve(old)
        self._narrow(value, within)
        affected = [bound for bound in self._bounds if symbol in symbols_of(bound)]
        for bound in affected:
            if bound in self._bounds:
                self._narrow(bound, self._bounds.pop(bound))

    def _narrow(self, x: DimLike, within: Range) -> None:
        """Add that x is in the range."""
        x = self._resolve(x)
        if isinstance(x, int):
            if not within.contains(x):
                raise _Contradiction
            return
        primitive, factor, constant = _primitive(x)
        solved = _solve_linear(within, factor, constant)
        if solved is None:
            raise _Contradiction
        old = self._plain(primitive)
        new = old.intersect(solved)
        if new is None:
            raise _Contradiction
        if new == old:
            return
        self._forget_memo()
        self._changed |= symbols_of(primitive)
        if isinstance(primitive, Symbol):
            if new.value is not None:
                self._eliminate(primitive, new.value)
            else:
                self._ranges[primitive] = new
            return
        if primitive in self._bounds or (len(self._bounds) < _MAX_BOUNDS and primitive.size <= _MAX_REASONED_SIZE):
            self._bounds[primitive] = new
            self._narrowed[primitive] = None
        if isinstance(primitive, Node):
            self._narrow_arguments(primitive, new)
        elif new.value is not None:
            # A relation that had no symbol to solve for may have one by now.
            found = solve_for_symbol(primitive, new.value)
            if found is not None:
                self._bounds.pop(primitive, None)
                self._eliminate(*found)

    def _narrow_arguments(self, node: Node, within: Range) -> None:
        """What follows for the arguments of a node that lies in the range."""
        if node.op == "min" and within.lo is not None:
            for arg in node.args:
                self._narrow(arg, Range(within.lo, None))
        elif node.op == "max" and within.hi is not None:
            for arg in node.args:
                self._narrow(arg, Range(None, within.hi))
        elif node.op in ("//", "%") and isinstance(node.args[1], int):
            numerator, k = node.args[0], node.args[1]
            if node.op == "//":
                lo = None if within.lo is None else within.lo * k
                hi = None if within.hi is None else within.hi * k + k - 1
                self._narrow(numerator, Range(lo, hi))
            elif within.value is not None:
                self._narrow(numerator, Range(None, None, k, within.value))
            elif within.multiple > 1:
                self._narrow(numerator, Range(None, None, gcd(k, within.multiple), within.remainder))

    def _propagate(self) -> None:
        """Narrow the symbols of bounds by the rest of the bound: `T <= N` and `N <= 100` give `T <= 100`."""
        for _ in range(_PROPAGATION_ROUNDS):
            changed, self._changed = self._changed, set()
            for primitive, within in list(self._bounds.items()):
                if isinstance(primitive, Sum) and not changed.isdisjoint(symbols_of(primitive)):
                    self._narrow_terms(primitive, within)
            if not self._changed:
                return

    def _narrow_terms(self, relation: Sum, within: Range) -> None:
        """What follows from a relation for the symbols that are terms of it."""
        parts = [term_range(monomial, coefficient, self._plain) for monomial, coefficient in relation.terms]
        for i, (monomial, coefficient) in enumerate(relation.terms):
            if len(monomial) == 1 and isinstance(monomial[0], Symbol) and monomial[0] not in self._values:
                rest = reduce(Range.__add__, parts[:i] + parts[i + 1 :])
                self._narrow(coefficient * monomial[0], within - rest)

    def _check(self, touched_symbols: frozenset[Symbol]) -> None:
        """Raise _Contradiction if what is known cannot be true, as far as relations of these symbols show it.

        Every contradiction that is new has a part in what the constraint narrowed, so that is looked at first.
        """
        budget = [min(_CHECKS, max(_MIN_CHECKS, _CHECK_WORK // max(1, len(self._bounds))))]
        symbols = {symbol for touched in touched_symbols for symbol in symbols_of(self._resolve(touched))}
        touching = (primitive for primitive in self._bounds if not symbols.isdisjoint(symbols_of(primitive)))
        for primitive in dict.fromkeys((*self._narrowed, *touching)):
            within = self._bounds.get(primitive)
            if within is None:
                continue
            others = self._combined(primitive, budget, without=primitive, strict=True)
            if others.intersect(within) is None:
                raise _Contradiction
        for unequal in self._unequal:
            if self.simplify(unequal) == 0 or self.range(unequal).value == 0:
                raise _Contradiction

    def _explain_contradiction(self, new: Constraint) -> str:
        """Which of the facts before contradict new: as few as possible."""
        core = list(self._log)
        if len(core) > _MAX_CORE_SEARCH:
            return f"constraint `{new}` contradicts the {len(core)} constraints before it"
        for candidate in list(core):
            fewer = [constraint for constraint in core if constraint is not candidate]
            if _contradicts(fewer, new):
                core = fewer
        if not core:
            negative = any(symbol.kind != "scalar" for symbol in new.symbols)
            return f"constraint `{new}` is never true" + (" (sizes are not negative)" if negative else "")
        named = " and ".join(f"`{constraint}`" for constraint in core)
        return f"constraint `{new}` contradicts {named}"

    def _forget_memo(self) -> None:
        self._plain_memo.clear()
        self._ranges_memo.clear()
        self._simple_memo.clear()

    def _resolve(self, x: DimLike) -> DimLike:
        """x with known values in the place of symbols."""
        if not isinstance(x, Dim) or not self._values or symbols_of(x).isdisjoint(self._values):
            return as_dim(x)
        return self._rebuilt(x, {})

    def _rebuilt(self, x: DimLike, memo: dict[Dim, DimLike]) -> DimLike:
        if not isinstance(x, Dim):
            return x
        if isinstance(x, Symbol):
            return self._values.get(x, x)
        out = memo.get(x)
        if out is not None:
            return out
        out = x
        try:
            if isinstance(x, Node):
                out = apply_node(x.op, [self._rebuilt(arg, memo) for arg in x.args])
            else:
                out = 0
                for monomial, coefficient in cast(Sum, x).terms:
                    term: DimLike = coefficient
                    for atom in monomial:
                        term = term * self._rebuilt(atom, memo)
                    out = out + term
        except (ShapeError, ZeroDivisionError):
            out = x  # without a value, or too large: x itself is still true
        memo[x] = out
        return out

    # --- ranges -------------------------------------------------------------------------------------------------------

    def _plain(self, x: DimLike) -> Range:
        """The range of x by its form, from the ranges of its symbols and the bounds of its nodes.

        Bounds that join x with other things are not looked at, so this ends: it only ever asks for parts of x.
        """
        if isinstance(x, Symbol):
            return self._ranges.get(x) or default_range(x)
        if not isinstance(x, Dim):
            return Range.single(x)
        found = self._plain_memo.get(x)
        if found is None:
            found = node_range(x, self._plain) if isinstance(x, Node) else sum_range(x, self._plain)
            bound = self._bounds.get(x)
            if bound is not None:
                found = found.intersect(bound) or found
            _remember(self._plain_memo, x, found)
        return found

    def _combined(self, x: DimLike, budget: list[int], without: Dim | None = None, strict: bool = False) -> Range:
        """The range of x by its form and by relations: where p is in r, x is in `(x - c*p) + c*r`.

        Two ways that leave no value in common are a contradiction between facts. Where strict it is raised; elsewhere
        one of them is the answer, for any answer is right then.

        Args:
            x: a resolved expression.
            budget: one number, how many combinations may still be tried.
            without: a relation that is not used.
            strict: whether to look for contradictions.
        """
        out = self._plain(x)
        if not self._bounds or not isinstance(x, Dim):
            return out
        if x.size > _MAX_REASONED_SIZE:
            return out
        pending: list[tuple[Dim, Range, Dim | None]] = [(x, _ZERO, without)]  # (rest, range of x - rest, used last)
        for _ in range(_COMBINATION_DEPTH):
            reached: list[tuple[Dim, Range, Dim | None]] = []
            for rest, removed, last in pending:
                for left, part, primitive in self._without_relations(rest, last):
                    budget[0] -= 1
                    if budget[0] < 0:
                        return out
                    removed_too = removed + part
                    both = out.intersect(self._plain(left) + removed_too)
                    if both is None and strict:
                        raise _Contradiction
                    out = both or out
                    if isinstance(left, Dim):
                        reached.append((left, removed_too, primitive))
            pending = reached
        return out

    def _without_relations(self, x: Dim, without: Dim | None) -> Iterator[tuple[DimLike, Range, Dim]]:
        """All `(x - c*p, range of c*p, p)` for relations p and numbers c by which a term of x disappears."""
        terms = terms_of(x)
        symbols = symbols_of(x)
        for primitive, within in self._bounds.items():
            if primitive is without or symbols.isdisjoint(symbols_of(primitive)):
                continue
            subtracted = terms_of(primitive)
            factors = set()
            for monomial, coefficient in subtracted.items():
                factor, rest = divmod(terms.get(monomial, 0), coefficient)
                if factor and not rest:
                    factors.add(factor)
            for factor in sorted(factors):
                try:
                    left = from_terms(polynomial.add(terms, subtracted, -factor))
                except DimLimitError:
                    continue
                yield left, within * Range.single(factor), primitive

    # --- simplification -----------------------------------------------------------------------------------------------

    def _simplified(self, x: DimLike) -> DimLike:
        if not isinstance(x, Dim):
            return x
        if isinstance(x, Symbol):
            value = self.range(x).value
            return x if value is None else value
        try:
            if isinstance(x, Node):
                args = [self.simplify(arg) for arg in x.args]
                out = apply_node(x.op, args)
                if isinstance(out, Node):
                    out = self._decided(out)
            else:
                out = 0
                for monomial, coefficient in cast(Sum, x).terms:
                    out = out + self._simplified_term(monomial, coefficient)
        except (ShapeError, ZeroDivisionError):
            return x
        if isinstance(out, Dim):
            value = self.range(out).value
            if value is not None:
                return value
        # What one rule gives may be food for another; every rule makes the expression smaller.
        if out is not x and isinstance(out, Dim) and out.size < x.size:
            return self.simplify(out)
        return out

    def _simplified_term(self, monomial: tuple[Dim, ...], coefficient: int) -> DimLike:
        term: DimLike = coefficient
        divided: list[DimLike] = []
        for atom in monomial:
            factor = self.simplify(atom)
            if isinstance(factor, Node) and factor.op == "//":
                divided.append(factor)
            else:
                term = term * factor
        for factor in divided:
            numerator, k = cast(Node, factor).args
            known = self.range(numerator)
            if isinstance(k, int) and known.multiple % k == 0 and isinstance(term, Dim | int):
                # c*k*(y // k) -> c * (y - r) where y % k is known to be r
                quotient, rest = polynomial.divide(terms_of(term), {(): k})
                if not rest:
                    term = from_terms(quotient) * (numerator - known.remainder % k)
                    continue
            term = term * factor
        return term

    def _decided(self, node: Node) -> DimLike:
        """The node, or what it is known to be."""
        if node.size > _MAX_REASONED_SIZE:
            return node
        if node.op in ("min", "max"):
            return self._decided_extreme(node)
        if node.op == "bcast":
            return self._decided_broadcast(node)
        numerator, denominator = node.args
        if self.less_equal(0, numerator) and self.less_equal(numerator + 1, denominator):
            return 0 if node.op == "//" else numerator  # 0 <= a < b: a // b -> 0, a % b -> a
        if node.op == "//" and isinstance(denominator, int):
            base, constant = split_constant(numerator)
            known = self.range(base)
            if constant and known.multiple % denominator == 0:
                # (y + c)//k -> y//k + (r + c)//k where y % k is known to be r
                return floordiv(base, denominator) + (known.remainder % denominator + constant) // denominator
        if node.op == "//" and isinstance(numerator, Node) and numerator.op == "//":
            if self.less_equal(1, denominator):
                return floordiv(numerator.args[0], numerator.args[1] * denominator)  # (x//a)//b -> x//(a*b), b > 0
        return node

    def _decided_extreme(self, node: Node) -> DimLike:
        kept: list[DimLike] = list(node.args)
        for arg in node.args:
            for other in kept:
                if other is arg:
                    continue
                small, large = (other, arg) if node.op == "min" else (arg, other)
                if self.less_equal(small, large):
                    kept.remove(arg)
                    break
        return node if len(kept) == len(node.args) else apply_node(node.op, kept)

    def _decided_broadcast(self, node: Node) -> DimLike:
        kept: list[DimLike] = []
        for arg in node.args:
            within = self.range(arg)
            if not within.contains(1):
                return arg  # the others are 1 or the same
            if within.value != 1 and not any(self.equal(arg, other) for other in kept):
                kept.append(arg)
        return node if len(kept) == len(node.args) else apply_node("bcast", kept)


def _remember(memo: dict[Dim, _V], x: Dim, value: _V) -> None:
    if len(memo) >= _MEMO_ENTRIES:
        memo.clear()
    memo[x] = value


def _contradicts(constraints: list[Constraint], new: Constraint) -> bool:
    facts = Facts()
    try:
        for constraint in (*constraints, new):
            facts._apply(constraint)
            facts._propagate()
        facts._check(new.symbols)
    except _Contradiction:
        return True
    return False


def _primitive(x: Dim) -> tuple[Dim, int, int]:
    """(p, c, d) with `x == c*p + d`, p without constant or common factor and with a positive first coefficient."""
    base, constant = split_constant(x)
    if not isinstance(base, Sum):
        return cast(Dim, base), 1, constant
    terms = terms_of(base)
    factor = polynomial.content(terms)
    if base.terms[0][1] < 0:
        factor = -factor
    return cast(Dim, from_terms({m: c // factor for m, c in terms.items()})), factor, constant


def _solve_linear(within: Range, factor: int, constant: int) -> Range | None:
    """All p with `factor * p + constant` in the range; None if there are none."""
    shifted = within - Range.single(constant)
    if factor < 0:
        shifted, factor = -shifted, -factor
    if factor == 1:
        return shifted
    lo = None if shifted.lo is None else -(-shifted.lo // factor)
    hi = None if shifted.hi is None else shifted.hi // factor
    if lo is not None and hi is not None and lo > hi:
        return None
    # factor * p = remainder modulo multiple
    common = gcd(factor, shifted.multiple)
    if shifted.remainder % common:
        return None
    multiple = shifted.multiple // common
    remainder = pow(factor // common, -1, multiple) * (shifted.remainder // common) % multiple if multiple > 1 else 0
    return Range(lo, hi).intersect(Range(None, None, multiple, remainder))


def solve_for_symbol(a: DimLike, b: DimLike) -> tuple[Symbol, DimLike] | None:
    """A symbol and its value by `a == b`. None if no symbol stands alone with factor 1 or -1."""
    choices: list[tuple[Symbol, DimLike]] = []
    difference = a - b
    if isinstance(a, Symbol) and a not in symbols_of(b):
        choices.append((a, b))
    if isinstance(b, Symbol) and b not in symbols_of(a):
        choices.append((b, a))
    if not choices and isinstance(difference, Sum):
        for monomial, coefficient in difference.terms:
            if len(monomial) == 1 and isinstance(monomial[0], Symbol) and abs(coefficient) == 1:
                symbol = monomial[0]
                rest = difference - coefficient * symbol
                if symbol not in symbols_of(rest):
                    choices.append((symbol, rest * -coefficient))
    # Of two, the one without a name goes, then the one that is not an input, then the later one.
    return max(
        choices, key=lambda choice: (choice[0].name[0] == "?", choice[0].kind != "input", choice[0].key), default=None
    )


NO_FACTS = Facts()
"""What is known without being told. Shared: nothing may be added to it."""

__all__ = ["ANY", "NATURAL", "NO_FACTS", "Facts", "solve_for_symbol"]

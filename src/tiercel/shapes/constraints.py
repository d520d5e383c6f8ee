"""Constraints: relations between sizes as they are written, `dim0 % 8 == 0`, `1 <= T <= 512`, `T: 16..64 % 8`.

A constraint is only a statement; `Facts` draws conclusions from it, `holds` tests it on given sizes.

::

    constraint := sum (relation sum)+ | sum ':' range
    relation   := '==' | '!=' | '<=' | '<' | '>=' | '>'
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tiercel.errors import ShapeError
from tiercel.shapes.dims import DimLike, Symbol, symbols_of
from tiercel.shapes.evaluate import evaluate, substitute
from tiercel.shapes.parse import Reader
from tiercel.shapes.ranges import Range

_RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    "<": operator.lt,
    ">=": operator.ge,
    ">": operator.gt,
}


@dataclass(frozen=True, slots=True)
class Constraint:
    """`operands[0] relations[0] operands[1] ...` as in a chained Python comparison, or `operands[0]: within`.

    Args:
        operands: at least two sizes, or one if `within` is given.
        relations: between each two operands one of `== != <= < >= >`.
        within: the range that holds the only operand.

    Raises:
        ShapeError: the parts do not fit together.
    """

    operands: tuple[DimLike, ...]
    relations: tuple[str, ...] = ()
    within: Range | None = None

    def __post_init__(self) -> None:
        unknown = [relation for relation in self.relations if relation not in _RELATIONS]
        expected = 1 if self.within is not None else max(2, len(self.relations) + 1)
        if unknown or len(self.operands) != expected or (self.within is not None and self.relations):
            raise ShapeError(
                f"constraint: expected operands joined by {' '.join(_RELATIONS)}, or one operand and a range; "
                f"got operands {self.operands}, relations {self.relations}, range {self.within}"
            )

    @staticmethod
    def parse(text: str) -> Constraint:
        """The constraint that text says.

        Raises:
            ShapeError: it says none; names the position.
        """
        reader = Reader(text, "constraint")
        operands = [reader.dim()]
        if reader.take(":"):
            within = reader.range()
            reader.expect_end()
            return Constraint((operands[0],), within=within)
        relations = []
        while relation := reader.take(*_RELATIONS):
            relations.append(relation)
            operands.append(reader.dim())
        if not relations:
            reader.fail("expected one of == != <= < >= > or ':' and a range")
        reader.expect_end()
        return Constraint(tuple(operands), tuple(relations))

    @property
    def text(self) -> str:
        """The constraint as text; `parse` gives it back."""
        if self.within is not None:
            return f"{self.operands[0]}: {self.within}"
        parts = [str(self.operands[0])]
        for relation, operand in zip(self.relations, self.operands[1:], strict=True):
            parts += [relation, str(operand)]
        return " ".join(parts)

    @property
    def symbols(self) -> frozenset[Symbol]:
        """All symbols that occur."""
        return frozenset().union(*map(symbols_of, self.operands))

    def pairs(self) -> Iterator[tuple[DimLike, str, DimLike]]:
        """The relations one by one, as (left, relation, right)."""
        yield from zip(self.operands, self.relations, self.operands[1:], strict=False)

    def holds(self, env: Mapping[str, int]) -> bool:
        """Is it true for these sizes?

        Raises:
            ShapeError: a symbol has no value in env.
            ZeroDivisionError: a denominator is 0.
        """
        if self.within is not None:
            return self.within.contains(evaluate(self.operands[0], env))
        return all(_RELATIONS[relation](evaluate(a, env), evaluate(b, env)) for a, relation, b in self.pairs())

    def substitute(self, env: Mapping[str, DimLike]) -> Constraint:
        """The same statement about other sizes."""
        return Constraint(tuple(substitute(operand, env) for operand in self.operands), self.relations, self.within)

    def __str__(self) -> str:
        return self.text

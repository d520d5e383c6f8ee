"""`TensorDescriptor`: everything static about a tensor value: token, dtype, layout, device, constraints on its sizes.

Text form: `float32[16..64, 128]{C}`, on another device `float32[16..64, 128]{C}@cuda:0`, with relations between
dimensions that the token does not show `float32[B, T]{C} where dim0 <= dim1`. Constraints name dimensions by
position (`dim0`), so a descriptor can be read, compared and stored without the facts it was made from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tiercel.errors import ShapeError
from tiercel.shapes.constraints import Constraint
from tiercel.shapes.dims import Dim, DimLike, Symbol, symbols_of
from tiercel.shapes.evaluate import substitute
from tiercel.shapes.facts import Facts
from tiercel.shapes.parse import MAX_TEXT_LENGTH
from tiercel.shapes.ranges import NATURAL, Range
from tiercel.shapes.token import ShapeToken, parse_token

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_TEXT = re.compile(
    r"(?P<dtype>[A-Za-z_][A-Za-z0-9_]*)(?P<token>\[[^\]]*\])"
    r"(?:\{(?P<layout>[A-Za-z_][A-Za-z0-9_]*)\})?(?:@(?P<device>[A-Za-z_][A-Za-z0-9_]*(?::[0-9]+)?))?"
    r"(?: where (?P<where>.+))?",
    re.ASCII,
)
_DEVICE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(:[0-9]+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class TensorDescriptor:
    """What is known about a tensor before it exists.

    Args:
        token: the shape.
        dtype: a name, or an object with a `name`.
        layout: "C" or "F" for contiguous in that order, "strided" for strides known at run time only.
        device: "cpu", "cuda", "cuda:0", ...
        shape_constraint: what is known of the sizes, as text over `dim0`, `dim1`, ...; see `with_facts`. Rewritten to
            a fixed form, so that descriptors which say the same are equal.

    Raises:
        ShapeError: layout or device is no name, or a constraint is none, contradicts others, or names no dimension.
    """

    token: ShapeToken
    dtype: object
    layout: str = "C"
    device: str = "cpu"
    shape_constraint: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _WORD.fullmatch(self.layout):
            raise ShapeError(f"layout of a tensor: expected a name such as C, F or strided, got {self.layout!r}")
        if not _DEVICE.fullmatch(self.device):
            raise ShapeError(f"device of a tensor: expected a name such as cpu or cuda:0, got {self.device!r}")
        # The same knowledge is the same text, in whatever words it came.
        object.__setattr__(self, "shape_constraint", tuple(self.shape_constraint))
        if self.shape_constraint:
            object.__setattr__(self, "shape_constraint", _constraints(self.token, self.facts()))

    @property
    def dtype_name(self) -> str:
        """The name of the dtype."""
        return self.dtype if isinstance(self.dtype, str) else str(getattr(self.dtype, "name"))  # noqa: B009

    @property
    def static_dims(self) -> dict[int, int]:
        """Dimension to size, where the size is static."""
        return {i: dim for i, dim in enumerate(self.token.dims or ()) if isinstance(dim, int)}

    @property
    def dynamic_dim_ids(self) -> dict[int, str]:
        """Dimension to name or expression, where the size is not static."""
        return {i: str(dim) for i, dim in enumerate(self.token.dims or ()) if isinstance(dim, Dim)}

    def with_facts(self, facts: Facts) -> TensorDescriptor:
        """The descriptor with all that facts say about its sizes as `shape_constraint`."""
        return replace(self, shape_constraint=_constraints(self.token, facts))

    def facts(self) -> Facts:
        """What `shape_constraint` says, about the symbols of the token.

        Raises:
            ShapeError: a constraint is none, contradicts others, or names no dimension.
        """
        facts = Facts()
        env = {f"dim{i}": dim for i, dim in enumerate(self.token.dims or ())}
        for text in self.shape_constraint:
            constraint = Constraint.parse(text)
            _check_names(constraint, env, self.token)
            facts.constrain(constraint.substitute(env))
        return facts

    def text(self, symbols: bool = False) -> str:
        """The descriptor as text.

        Args:
            symbols: False shows ranges in the place of names. True shows names with their ranges, and
                `parse_descriptor` gives an equal descriptor back (with the dtype as its name).
        """
        facts = self.facts()
        shown = self.token.text(facts, symbols)
        out = f"{self.dtype_name}{shown}{{{self.layout}}}"
        if self.device != "cpu":
            out += f"@{self.device}"
        if symbols:
            parse_token(shown, ranges := Facts())
            env = {f"dim{i}": dim for i, dim in enumerate(self.token.dims or ())}
            rest = [
                text for text in self.shape_constraint if not ranges.implies(Constraint.parse(text).substitute(env))
            ]
            if rest:
                out += f" where {', '.join(rest)}"
        return out

    def __str__(self) -> str:
        return self.text()


def parse_descriptor(text: str) -> TensorDescriptor:
    """The descriptor that text says; its `shape_constraint` holds the ranges in the text.

    Raises:
        ShapeError: the text is no descriptor.
    """
    match = _TEXT.fullmatch(text) if len(text) <= MAX_TEXT_LENGTH else None
    if match is None:
        raise ShapeError(f"tensor descriptor: expected a form such as float32[16..64, 128]{{C}}, got {text[:80]!r}")
    token = parse_token(match["token"], facts := Facts())
    if match["where"]:
        env = {f"dim{i}": dim for i, dim in enumerate(token.dims or ())}
        for part in _split_commas(match["where"]):
            constraint = Constraint.parse(part)
            _check_names(constraint, env, token)
            facts.constrain(constraint.substitute(env))
    out = TensorDescriptor(token, match["dtype"], match["layout"] or "C", match["device"] or "cpu")
    return out.with_facts(facts)


def _split_commas(text: str) -> list[str]:
    """The parts between commas; those inside parentheses do not separate."""
    parts = [""]
    depth = 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _check_names(constraint: Constraint, env: Mapping[str, DimLike], token: ShapeToken) -> None:
    unknown = sorted(str(symbol) for symbol in constraint.symbols if symbol.name not in env)
    if unknown:
        raise ShapeError(f"constraint `{constraint}` on {token}: there is no {', '.join(unknown)}")


def _constraints(token: ShapeToken, facts: Facts) -> tuple[str, ...]:
    """What facts say about the sizes of token: dimension by dimension, then relations not yet said."""
    dims = token.dims or ()
    simple = [facts.simplify(dim) for dim in dims]
    shown_by: dict[str, DimLike] = {}  # name of a symbol to the first dimension that is this symbol
    for form in (simple, dims):
        for i, dim in enumerate(form):
            if isinstance(dim, Symbol):
                shown_by.setdefault(dim.name, Symbol(f"dim{i}"))
    out: list[str] = []
    said = Facts()
    for i, dim in enumerate(simple):
        subject = Symbol(f"dim{i}")
        if isinstance(dims[i], int):
            said.constrain(Constraint((subject, dims[i]), ("==",)))
            continue
        shown = all(symbol.name in shown_by for symbol in symbols_of(dim))
        value = substitute(dim, shown_by) if shown else subject
        texts = _range_constraints(subject, facts.range(dim)) if value is subject else [f"{subject} == {value}"]
        for text in texts:
            said.constrain(text)
        out += texts
    for constraint in facts.constraints:
        if all(symbol.name in shown_by for symbol in constraint.symbols):
            relation = constraint.substitute(shown_by)
            if not said.implies(relation):
                said.constrain(relation)
                out.append(str(relation))
    return tuple(out)


def _range_constraints(subject: Symbol, within: Range) -> list[str]:
    within = within.intersect(NATURAL) or within
    if within.value is not None:
        return [f"{subject} == {within.value}"]
    out = []
    if within.lo is not None and within.lo > within.remainder:
        out.append(f"{subject} >= {within.lo}")
    if within.hi is not None:
        out.append(f"{subject} <= {within.hi}")
    if within.multiple > 1:
        out.append(f"{subject} % {within.multiple} == {within.remainder}")
    return out

"""Transcendental functions as inline polynomials on vectors.

In: the expression emitter and operand values. Out: a value of the same dtype. Every function takes NaN (payload kept
where arithmetic keeps it), infinities, denormals and signed zeros; its bound in ULP stands in its docstring and is
tested over the whole range. They raise the floating-point flags (invalid, divide, overflow) where NumPy's functions do
and nowhere else: a flag too many would send every call that watches it to the interpreter.

A file a family: `calculator` has the arithmetic, `guard` sends rare arguments to the runtime library, where
`codegen.cpu.rare` puts the functions named here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from tiercel.codegen.cpu.mathematics import (
    circular,
    division,
    error,
    exponential,
    inverse,
    logarithm,
    power,
)
from tiercel.codegen.cpu.mathematics.calculator import Calculator
from tiercel.codegen.cpu.text import Value

Function: TypeAlias = "Callable[..., Value]"

MATHEMATICS: Final[dict[str, Function]] = {
    "exp": exponential.exp,
    "exp_nonpositive": exponential.exp_nonpositive,
    "exp2": exponential.exp2,
    "expm1": exponential.expm1,
    "sigmoid": exponential.sigmoid,
    "sinh": exponential.sinh,
    "cosh": exponential.cosh,
    "tanh": exponential.tanh,
    "log": logarithm.log,
    "log2": logarithm.log2,
    "log10": logarithm.log10,
    "log1p": logarithm.log1p,
    "arcsinh": logarithm.arcsinh,
    "arccosh": logarithm.arccosh,
    "arctanh": logarithm.arctanh,
    "sin": circular.sin,
    "cos": circular.cos,
    "tan": circular.tan,
    "arcsin": inverse.arcsin,
    "arccos": inverse.arccos,
    "arctan": inverse.arctan,
    "atan2": inverse.atan2,
    "erf": error.erf,
    "erfc": error.erfc,
    "pow": power.pow,
    "cbrt": power.cbrt,
    "hypot": power.hypot,
    "floordiv": division.floordiv,
    "mod": division.mod,
    "fmod": division.fmod,
}
"""Operation of the loop form -> its code: a function of the emitter and the operands."""

BOUNDS: Final[dict[str, tuple[float, float]]] = {
    "exp": (1.1, 1.1),
    "exp_nonpositive": (1.1, 1.1),
    "exp2": (1, 1),
    "expm1": (1.5, 1.5),
    "log": (1.1, 1.1),
    "log2": (1.1, 1.1),
    "log10": (1.1, 1.1),
    "log1p": (1.5, 1.5),
    "sigmoid": (3, 3),
    "sinh": (3, 3),
    "cosh": (2, 2),
    "tanh": (2, 2),
    "arcsinh": (2, 2),
    "arccosh": (3, 3),
    "arctanh": (2.5, 2.5),
    "sin": (1.5, 1),
    "cos": (1.5, 1),
    "tan": (2.5, 2.5),
    "arcsin": (2.5, 2.5),
    "arccos": (2, 2),
    "arctan": (2, 2),
    "atan2": (2.5, 2.5),
    "erf": (1.5, 1.5),
    "erfc": (3.5, 4),
    "pow": (1, 1),
    "cbrt": (1, 1),
    "hypot": (0.6, 1.5),
}
"""Largest error in ULP of the result, float32 and float64. Operations that are not here are exact."""


@dataclass(frozen=True, slots=True)
class Rare:
    """A function of which some arguments are computed in the runtime library.

    Attributes:
        arity: number of operands.
        special: the condition on the operands, in any dtype and lane count.
        compute: the result where the condition holds, for one element.
        wide: `compute` works in float64 for both dtypes, else in the dtype itself.
    """

    arity: int
    special: Callable[..., Value]
    compute: Callable[..., Value]
    wide: bool = True


def _beyond_minus_one(c: Calculator, x: Value) -> Value:
    return logarithm.not_positive_normal(c, c.add(x, 1.0))


RARE: Final[dict[str, Rare]] = {
    "log": Rare(1, logarithm.not_positive_normal, logarithm.rare_log),
    "log2": Rare(1, logarithm.not_positive_normal, logarithm.rare_log2),
    "log10": Rare(1, logarithm.not_positive_normal, logarithm.rare_log10),
    "log1p": Rare(1, _beyond_minus_one, logarithm.rare_log1p),
    "sin": Rare(1, circular.is_huge, circular.rare_sin),
    "cos": Rare(1, circular.is_huge, circular.rare_cos),
    "tan": Rare(1, circular.is_huge, circular.rare_tan),
    "atan2": Rare(2, inverse.is_off_axis, inverse.rare_atan2),
    "pow": Rare(2, power.is_odd_power, power.rare_pow),
    "cbrt": Rare(1, power.is_not_normal, power.rare_cbrt),
    "floordiv": Rare(2, division.is_far, division.rare_floordiv, wide=False),
    "mod": Rare(2, division.is_far, division.rare_mod, wide=False),
    "fmod": Rare(2, division.is_far, division.rare_fmod, wide=False),
}
"""Name in the library -> row."""

"""The vocabulary of `Lowering` that code generation implements: one name for each expression, fold and scan.

In: nothing. Out: `KEYS`, for each lowering class the keys that rows use and what each computes. Elementwise keys name a
scalar expression of the loop's element types: operands are converted to the row's dtype first (`rules.resolve_ufunc`
says which), the expression is evaluated in it (half types in float32, rounded once) and the result is what the row's
dtype rule says. Reduction keys name a fold: initial value, combination, and what is done to operands before and to the
result after. Rows of the other classes (contraction, movement, gather, creation, random, opaque) are lowered by their
own name.

Invariant (tested): every key here is used by a row, and every elementwise, reduction and scan row has its key here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["KEYS"]

_ELEMENTWISE: Final[dict[str, str]] = {
    # Arithmetic.
    "add": "x + y; bools: x | y",
    "subtract": "x - y",
    "multiply": "x * y; bools: x & y",
    "divide": "x / y in floating point",
    "floor_divide": "floats: floor(x / y) as Python's //; integers: floor, 0 for y == 0, x for (min, -1)",
    "remainder": "x - floor(x / y) * y as Python's %; integers: 0 for y == 0",
    "fmod": "C's fmod; integers: C's %, 0 for y == 0",
    "divmod": "(floor_divide, remainder)",
    "power": "pow(x, y); integers: repeated multiplication, y < 0 raises; y == 2: x * x",
    "float_power": "pow(x, y) in float64 or complex128",
    "negative": "-x",
    "positive": "x",
    "absolute": "|x|; complex: hypot(re, im); smallest integer: itself",
    "fabs": "|x|",
    "sign": "(x > 0) - (x < 0), NaN for NaN; complex: x / |x|, 0 for 0",
    "copysign": "|x| with the sign of y",
    "signbit": "sign bit of x",
    "nextafter": "the neighbour of x towards y",
    "gcd": "greatest common divisor",
    "lcm": "least common multiple",
    "fma": "x * y + z, rounded once; integers: wraps",
    "maximum": "x if x >= y or x is NaN else y",
    "minimum": "x if x <= y or x is NaN else y",
    "fmax": "x if x >= y or y is NaN else y",
    "fmin": "x if x <= y or y is NaN else y",
    # Comparison; complex numbers compare by real part, then imaginary part.
    "equal": "x == y",
    "not_equal": "x != y",
    "less": "x < y",
    "less_equal": "x <= y",
    "greater": "x > y",
    "greater_equal": "x >= y",
    # Truth values and bits.
    "logical_and": "(x != 0) & (y != 0)",
    "logical_or": "(x != 0) | (y != 0)",
    "logical_xor": "(x != 0) ^ (y != 0)",
    "logical_not": "x == 0",
    "bitwise_and": "x & y",
    "bitwise_or": "x | y",
    "bitwise_xor": "x ^ y",
    "invert": "~x; bools: not x",
    "left_shift": "x << y, 0 unless 0 <= y < bits",
    "right_shift": "x >> y, the sign (0 or -1) unless 0 <= y < bits",
    "bitwise_count": "population count of |x|",
    # Exponentials, logarithms, roots.
    "exp": "e**x",
    "exp2": "2**x",
    "expm1": "e**x - 1",
    "log": "ln x",
    "log2": "log2 x",
    "log10": "log10 x",
    "log1p": "ln(1 + x)",
    "logaddexp": "max(x, y) + ln(1 + e**-|x - y|); x + ln 2 for x == y",
    "logaddexp2": "max(x, y) + log2(1 + 2**-|x - y|); x + 1 for x == y",
    "sqrt": "square root",
    "cbrt": "cube root",
    "square": "x * x",
    "reciprocal": "1 / x in x's dtype",
    "hypot": "sqrt(x*x + y*y)",
    "rsqrt": "1 / sqrt(x)",
    # Circular and hyperbolic functions.
    "sin": "sine",
    "cos": "cosine",
    "tan": "tangent",
    "arcsin": "inverse sine",
    "arccos": "inverse cosine",
    "arctan": "inverse tangent",
    "arctan2": "angle of (y, x): the first operand is the ordinate",
    "sinh": "hyperbolic sine",
    "cosh": "hyperbolic cosine",
    "tanh": "hyperbolic tangent",
    "arcsinh": "inverse hyperbolic sine",
    "arccosh": "inverse hyperbolic cosine",
    "arctanh": "inverse hyperbolic tangent",
    "degrees": "x * (180 / pi)",
    "radians": "x * (pi / 180)",
    # Rounding, limits, classification.
    "rint": "nearest integer, ties to even",
    "floor": "floor",
    "ceil": "ceiling",
    "trunc": "towards zero",
    "round": "rint(x * 10**decimals) / 10**decimals, each step rounded in x's dtype; decimals < 0: / then *",
    "clip": "minimum(maximum(x, min), max) of the bounds that are not None",
    "isnan": "x != x",
    "isinf": "|x| == inf",
    "isfinite": "|x| < inf",
    # Complex numbers, selection, conversion.
    "real": "real part",
    "imag": "imaginary part, 0 of real numbers",
    "conj": "re - im*i",
    "angle": "arctan2(im, re), times 180 / pi with deg",
    "where": "x if condition != 0 else y",
    "masked_fill": "value if mask else x",
    "one_hot": "1 if index == position else 0",
    "cast": "conversion to the result's dtype",
    # Activations.
    "relu": "0 if x <= 0 else x",
    "sigmoid": "1 / (1 + e**-x)",
    "silu": "x * sigmoid(x)",
    "softplus": "max(x, 0) + ln(1 + e**-|x|)",
    "erf": "error function",
    "erfc": "1 - erf(x)",
    "gelu": "x * erfc(-x / sqrt 2) / 2, or with approximate tanh x * sigmoid(sqrt(8/pi) * (x + 0.044715 x**3))",
    "leaky_relu": "x if x > 0 else negative_slope * x",
    "elu": "x if x > 0 else alpha * expm1(x)",
}

_REDUCTION: Final[dict[str, str]] = {
    "sum": "0; a + x (half types in float32)",
    "prod": "1; a * x (half types in float32)",
    "mean": "sum / count",
    "var": "sum |x - mean|**2 / (count - ddof)",
    "std": "sqrt(var)",
    "max": "first element; maximum(a, x)",
    "min": "first element; minimum(a, x)",
    "ptp": "max - min",
    "any": "false; a | (x != 0)",
    "all": "true; a & (x != 0)",
    "argmax": "index of the first maximum, NaN being the largest",
    "argmin": "index of the first minimum, NaN being the smallest",
    "count_nonzero": "0; a + (x != 0)",
    "logsumexp": "m + ln sum e**(x - m), m = max or 0 where that is not finite",
    "norm": "sqrt(sum |x|**2), or by ord: max, min, count or (sum |x|**ord)**(1/ord)",
    "max_pool1d": "maximum over each window",
    "max_pool2d": "maximum over each window",
    "avg_pool1d": "sum over each window / its count (half types in float32)",
    "avg_pool2d": "sum over each window / its count (half types in float32)",
    "softmax": "e**(x - max) / sum",
    "log_softmax": "x - max - ln sum e**(x - max)",
    "layer_norm": "(x - mean) / sqrt(mean (x - mean)**2 + eps) * weight + bias",
    "rms_norm": "x / sqrt(mean x**2 + eps) * weight",
    "batch_norm": "(x - mean) / sqrt(var + eps) * weight + bias, statistics given",
}

_SCAN: Final[dict[str, str]] = {
    "cumsum": "a + x, from the first element (half types in float32)",
    "cumprod": "a * x",
}

KEYS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "elementwise": MappingProxyType(_ELEMENTWISE),
        "reduction": MappingProxyType(_REDUCTION),
        "scan": MappingProxyType(_SCAN),
    }
)

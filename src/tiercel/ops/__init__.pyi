# Generated from the operator table by `python -m tiercel.ops.stubs`. Edit the table, not this file.

from collections.abc import Sequence
from typing import Any

class Operation:
    """Base of the operator classes."""

    def __call__(self, *operands: Any) -> Any: ...

def absolute(x: Any) -> Any:
    """|x|, real for complex x."""

def add(x: Any, y: Any) -> Any:
    """x + y; logical or of bools."""

def all(x: Any, axis: Any = ..., keepdims: bool = ...) -> Any:
    """whether no element is zero."""

def angle(x: Any, deg: bool = ...) -> Any:
    """angle in the complex plane, in degrees with deg=True."""

def any(x: Any, axis: Any = ..., keepdims: bool = ...) -> Any:
    """whether one element is not zero."""

def arccos(x: Any) -> Any:
    """inverse cosine."""

def arccosh(x: Any) -> Any:
    """inverse hyperbolic cosine."""

def arcsin(x: Any) -> Any:
    """inverse sine."""

def arcsinh(x: Any) -> Any:
    """inverse hyperbolic sine."""

def arctan(x: Any) -> Any:
    """inverse tangent."""

def arctan2(x: Any, y: Any) -> Any:
    """angle of the point (y, x): the first operand is the ordinate."""

def arctanh(x: Any) -> Any:
    """inverse hyperbolic tangent."""

def argmax(x: Any, axis: Any = ..., keepdims: bool = ...) -> Any:
    """index of the first largest element, of the first NaN if there is one; without axis into the flattened array."""

def argmin(x: Any, axis: Any = ..., keepdims: bool = ...) -> Any:
    """index of the first smallest element, of the first NaN if there is one."""

def astype(x: Any, dtype: Any, copy: bool = ...) -> Any:
    """x converted to a dtype, rounding to nearest even; out-of-range floats to integers as C does."""

def batch_norm(x: Any, mean: Any, var: Any, weight: Any = ..., bias: Any = ..., axis: Any = ..., eps: Any = ...) -> Any:
    """(x - mean) / sqrt(var + eps) * weight + bias with given statistics, one for each index of axis."""

def bitwise_and(x: Any, y: Any) -> Any:
    """x & y."""

def bitwise_count(x: Any) -> Any:
    """number of one bits of |x|, as uint8."""

def bitwise_or(x: Any, y: Any) -> Any:
    """x | y."""

def bitwise_xor(x: Any, y: Any) -> Any:
    """x ^ y."""

def cbrt(x: Any) -> Any:
    """cube root."""

def ceil(x: Any) -> Any:
    """smallest integer not below x."""

def clip(x: Any, min: Any = ..., max: Any = ...) -> Any:
    """minimum(maximum(x, min), max); a bound that is None does not bind."""

def conj(x: Any) -> Any:
    """complex conjugate; the method returns a real array itself."""

def copysign(x: Any, y: Any) -> Any:
    """|x| with the sign of y."""

def cos(x: Any) -> Any:
    """cosine."""

def cosh(x: Any) -> Any:
    """hyperbolic cosine."""

def count_nonzero(x: Any, axis: Any = ..., keepdims: bool = ...) -> Any:
    """number of elements that are not zero; a Python int without axis."""

def cumprod(x: Any, axis: Any = ..., dtype: Any = ...) -> Any:
    """running product along axis."""

def cumsum(x: Any, axis: Any = ..., dtype: Any = ...) -> Any:
    """running sum along axis, of the flattened array without one."""

def degrees(x: Any) -> Any:
    """radians to degrees."""

def divide(x: Any, y: Any) -> Any:
    """x / y, integers as float64."""

def divmod(x: Any, y: Any) -> Any:
    """(floor_divide(x, y), remainder(x, y))."""

def elu(x: Any, alpha: Any = ...) -> Any:
    """x where x > 0, else alpha * (exp(x) - 1)."""

def equal(x: Any, y: Any) -> Any:
    """x == y."""

def erf(x: Any) -> Any:
    """the error function."""

def erfc(x: Any) -> Any:
    """1 - erf(x), accurate for large x."""

def exp(x: Any) -> Any:
    """e to the power x."""

def exp2(x: Any) -> Any:
    """2 to the power x."""

def expm1(x: Any) -> Any:
    """exp(x) - 1, accurate near 0."""

def fabs(x: Any) -> Any:
    """|x| as a floating number."""

def float_power(x: Any, y: Any) -> Any:
    """x to the power y in float64 or complex128."""

def floor(x: Any) -> Any:
    """largest integer not above x; integers and bools stay."""

def floor_divide(x: Any, y: Any) -> Any:
    """floor(x / y); an integer divided by 0 is 0."""

def fma(x: Any, y: Any, z: Any) -> Any:
    """x * y + z, rounded once; integers wrap."""

def fmax(x: Any, y: Any) -> Any:
    """the larger; a NaN loses against a number."""

def fmin(x: Any, y: Any) -> Any:
    """the smaller; a NaN loses against a number."""

def fmod(x: Any, y: Any) -> Any:
    """x - trunc(x / y) * y, with the sign of x."""

def gcd(x: Any, y: Any) -> Any:
    """greatest common divisor of |x| and |y|."""

def gelu(x: Any, approximate: Any = ...) -> Any:
    """x * (1 + erf(x / sqrt 2)) / 2; approximate='tanh': x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x**3))) / 2."""

def greater(x: Any, y: Any) -> Any:
    """x > y."""

def greater_equal(x: Any, y: Any) -> Any:
    """x >= y."""

def hypot(x: Any, y: Any) -> Any:
    """sqrt(x**2 + y**2) without overflow."""

def imag(x: Any) -> Any:
    """imaginary part: a view of a complex array, read-only zeros for a real one."""

def invert(x: Any) -> Any:
    """~x; logical not of bools."""

def isfinite(x: Any) -> Any:
    """whether x is neither NaN nor infinite."""

def isinf(x: Any) -> Any:
    """whether x is an infinity."""

def isnan(x: Any) -> Any:
    """whether x is NaN."""

def layer_norm(x: Any, weight: Any = ..., bias: Any = ..., axis: Any = ..., eps: Any = ...) -> Any:
    """(x - mean) / sqrt(var + eps) * weight + bias over axis; weight and bias have the sizes of axis."""

def lcm(x: Any, y: Any) -> Any:
    """least common multiple of |x| and |y|."""

def leaky_relu(x: Any, negative_slope: Any = ...) -> Any:
    """x where x > 0, else negative_slope * x."""

def left_shift(x: Any, y: Any) -> Any:
    """x << y; 0 beyond the width."""

def less(x: Any, y: Any) -> Any:
    """x < y; complex by real, then imaginary part."""

def less_equal(x: Any, y: Any) -> Any:
    """x <= y."""

def log(x: Any) -> Any:
    """natural logarithm."""

def log10(x: Any) -> Any:
    """logarithm to base 10."""

def log1p(x: Any) -> Any:
    """log(1 + x), accurate near 0."""

def log2(x: Any) -> Any:
    """logarithm to base 2."""

def log_softmax(x: Any, axis: Any = ...) -> Any:
    """logarithm of softmax over axis."""

def logaddexp(x: Any, y: Any) -> Any:
    """log(exp(x) + exp(y))."""

def logaddexp2(x: Any, y: Any) -> Any:
    """log2(2**x + 2**y)."""

def logical_and(x: Any, y: Any) -> Any:
    """both are not zero."""

def logical_not(x: Any) -> Any:
    """x is zero."""

def logical_or(x: Any, y: Any) -> Any:
    """one is not zero."""

def logical_xor(x: Any, y: Any) -> Any:
    """exactly one is not zero."""

def logsumexp(x: Any, axis: Any = ..., keepdims: bool = ...) -> Any:
    """log(sum(exp(x))) without overflow."""

def max(x: Any, axis: Any = ..., keepdims: bool = ...) -> Any:
    """largest element; NaN if any is NaN."""

def maximum(x: Any, y: Any) -> Any:
    """the larger; NaN if either is NaN."""

def mean(x: Any, axis: Any = ..., dtype: Any = ..., keepdims: bool = ...) -> Any:
    """arithmetic mean; integers as float64; NaN with a warning if empty."""

def min(x: Any, axis: Any = ..., keepdims: bool = ...) -> Any:
    """smallest element; NaN if any is NaN."""

def minimum(x: Any, y: Any) -> Any:
    """the smaller; NaN if either is NaN."""

def multiply(x: Any, y: Any) -> Any:
    """x * y; logical and of bools."""

def negative(x: Any) -> Any:
    """-x; not defined for bools."""

def nextafter(x: Any, y: Any) -> Any:
    """the next floating number from x towards y."""

def norm(x: Any, axis: Any = ..., ord: Any = ..., keepdims: bool = ...) -> Any:
    """vector norm of order ord (None is 2) over one axis, or Frobenius norm over all."""

def not_equal(x: Any, y: Any) -> Any:
    """x != y."""

def positive(x: Any) -> Any:
    """a copy of x; not defined for bools."""

def power(x: Any, y: Any) -> Any:
    """x to the power y; x ** 2 is x * x."""

def prod(x: Any, axis: Any = ..., dtype: Any = ..., keepdims: bool = ...) -> Any:
    """product; dtypes as for sum."""

def ptp(x: Any, axis: Any = ..., keepdims: bool = ...) -> Any:
    """largest minus smallest element."""

def radians(x: Any) -> Any:
    """degrees to radians."""

def real(x: Any) -> Any:
    """real part: a view of a complex array, a real array itself."""

def reciprocal(x: Any) -> Any:
    """1 / x, in x's own dtype: integers give 0, 1 or -1."""

def relu(x: Any) -> Any:
    """x where x > 0 or x is NaN, else +0."""

def remainder(x: Any, y: Any) -> Any:
    """x - floor(x / y) * y, with the sign of y."""

def right_shift(x: Any, y: Any) -> Any:
    """x >> y; the sign beyond the width."""

def rint(x: Any) -> Any:
    """nearest integer, ties to even."""

def rms_norm(x: Any, weight: Any = ..., axis: Any = ..., eps: Any = ...) -> Any:
    """x / sqrt(mean(x * x) + eps) * weight over axis."""

def round(x: Any, decimals: Any = ...) -> Any:
    """nearest multiple of 10**-decimals, ties to even, as NumPy computes it: rint(x * 10**decimals) / 10**decimals."""

def rsqrt(x: Any) -> Any:
    """1 / sqrt(x)."""

def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""

def sign(x: Any) -> Any:
    """-1, 0 or 1; NaN stays NaN; x / |x| for complex x."""

def signbit(x: Any) -> Any:
    """whether the sign bit of x is set."""

def silu(x: Any) -> Any:
    """x * sigmoid(x)."""

def sin(x: Any) -> Any:
    """sine."""

def sinh(x: Any) -> Any:
    """hyperbolic sine."""

def softmax(x: Any, axis: Any = ...) -> Any:
    """exp(x - max) / sum(exp(x - max)) over axis; a slice of -inf only is NaN."""

def softplus(x: Any) -> Any:
    """log(1 + exp(x))."""

def sqrt(x: Any) -> Any:
    """square root."""

def square(x: Any) -> Any:
    """x * x."""

def std(x: Any, axis: Any = ..., dtype: Any = ..., ddof: Any = ..., keepdims: bool = ...) -> Any:
    """square root of var."""

def subtract(x: Any, y: Any) -> Any:
    """x - y; not defined for bools."""

def sum(x: Any, axis: Any = ..., dtype: Any = ..., keepdims: bool = ...) -> Any:
    """sum; bools and small integers add up as int64 or uint64, half types in float32."""

def tan(x: Any) -> Any:
    """tangent."""

def tanh(x: Any) -> Any:
    """hyperbolic tangent."""

def trunc(x: Any) -> Any:
    """integer part."""

def var(x: Any, axis: Any = ..., dtype: Any = ..., ddof: Any = ..., keepdims: bool = ...) -> Any:
    """mean of |x - mean(x)|**2, the divisor less ddof."""

def where(condition: Any, x: Any, y: Any) -> Any:
    """x where the condition is not zero, else y."""

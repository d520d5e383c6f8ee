# Generated from the operator table by `python -m tiercel.ops.stubs`. Edit the table, not this file.
# ruff: noqa: E501
# fmt: off

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

def arange(start: Any, stop: Any = ..., step: Any = ..., dtype: Any = ...) -> Any:
    """numbers from start (0 if only one is given) up to stop, step apart."""

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

def argsort(x: Any, axis: Any = ..., kind: Any = ..., stable: Any = ...) -> Any:
    """the positions that sort along an axis."""

def argwhere(x: Any) -> Any:
    """the coordinates of the nonzero elements, one row an element."""

def array(x: Any, dtype: Any = ..., order: Any = ..., ndmin: Any = ...) -> Any:
    """a new array from an array, a scalar, or nested lists of them."""

def array_split(x: Any, sections: Any, axis: Any = ...) -> Any:
    """as split, but the first parts may be one longer than the others."""

def asarray(x: Any, dtype: Any = ..., order: Any = ...) -> Any:
    """an array as it is, anything else made into one."""

def ascontiguousarray(x: Any, dtype: Any = ...) -> Any:
    """in C order and with at least one dimension: the array itself if it is, else a copy."""

def asfortranarray(x: Any, dtype: Any = ...) -> Any:
    """in Fortran order and with at least one dimension: the array itself if it is, else a copy."""

def astype(x: Any, dtype: Any, copy: bool = ...) -> Any:
    """x converted to a dtype, rounding to nearest even; out-of-range floats to integers as C does."""

def avg_pool1d(x: Any, kernel_size: Any, stride: Any = ..., padding: Any = ..., ceil_mode: bool = ..., count_include_pad: bool = ...) -> Any:
    """the mean of each window along the last axis."""

def avg_pool2d(x: Any, kernel_size: Any, stride: Any = ..., padding: Any = ..., ceil_mode: bool = ..., count_include_pad: bool = ...) -> Any:
    """the mean of each window over the last two axes."""

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

def broadcast_to(x: Any, shape: Any) -> Any:
    """a read-only view in a larger shape, repeated with stride 0."""

def cbrt(x: Any) -> Any:
    """cube root."""

def ceil(x: Any) -> Any:
    """smallest integer not below x."""

def clip(x: Any, min: Any = ..., max: Any = ...) -> Any:
    """minimum(maximum(x, min), max); a bound that is None does not bind."""

def column_stack(arrays: Sequence[Any]) -> Any:
    """the arrays beside each other, vectors as columns."""

def compress(condition: Any, x: Any, axis: Any = ...) -> Any:
    """slices along an axis where a condition of one dimension is true."""

def concat(arrays: Sequence[Any], axis: Any = ..., dtype: Any = ...) -> Any:
    """the arrays one after the other along an existing axis; flattened first for axis None."""

def conj(x: Any) -> Any:
    """complex conjugate; the method returns a real array itself."""

def conv1d(x: Any, w: Any, b: Any = ..., stride: Any = ..., padding: Any = ..., dilation: Any = ..., groups: Any = ...) -> Any:
    """cross-correlation of (N, C, L) with (O, C / groups, K), plus a bias."""

def conv2d(x: Any, w: Any, b: Any = ..., stride: Any = ..., padding: Any = ..., dilation: Any = ..., groups: Any = ...) -> Any:
    """cross-correlation of (N, C, H, W) with (O, C / groups, KH, KW), plus a bias."""

def copy(x: Any, order: Any = ...) -> Any:
    """a copy in the order of the array; the method copies in C order."""

def copysign(x: Any, y: Any) -> Any:
    """|x| with the sign of y."""

def cos(x: Any) -> Any:
    """cosine."""

def cosh(x: Any) -> Any:
    """hyperbolic cosine."""

def count_nonzero(x: Any, axis: Any = ..., keepdims: bool = ...) -> Any:
    """number of elements that are not zero."""

def cumprod(x: Any, axis: Any = ..., dtype: Any = ...) -> Any:
    """running product along axis."""

def cumsum(x: Any, axis: Any = ..., dtype: Any = ...) -> Any:
    """running sum along axis, of the flattened array without one."""

def degrees(x: Any) -> Any:
    """radians to degrees."""

def depend(x: Any, after: Sequence[Any]) -> Any:
    """the operand itself, once all the others have been computed."""

def diag(x: Any, k: Any = ...) -> Any:
    """a square with the vector on a diagonal, or a view of the diagonal of a matrix."""

def diagonal(x: Any, offset: Any = ..., axis1: Any = ..., axis2: Any = ...) -> Any:
    """a read-only view of a diagonal of two axes, which becomes the last axis."""

def dim(x: Any, axis: Any) -> Any:
    """the size of one axis."""

def divide(x: Any, y: Any) -> Any:
    """x / y, integers as float64."""

def divmod(x: Any, y: Any) -> Any:
    """(floor_divide(x, y), remainder(x, y))."""

def dot(x: Any, y: Any) -> Any:
    """sum over the last axis of x and the second to last of y; a scalar multiplies."""

def dropout(x: Any, key: Any, p: Any = ..., training: bool = ...) -> Any:
    """each element zeroed with probability p, the others scaled by 1 / (1 - p); a copy when not training."""

def dstack(arrays: Sequence[Any]) -> Any:
    """the arrays behind each other, along axis 2."""

def dtype(x: Any) -> Any:
    """the element type."""

def einsum(subscripts: Any, *operands: Any) -> Any:
    """sum of products by Einstein's convention; a view if nothing is multiplied or summed."""

def elu(x: Any, alpha: Any = ...) -> Any:
    """x where x > 0, else alpha * (exp(x) - 1)."""

def embedding(indices: Any, table: Any) -> Any:
    """the rows of a table that the indices name."""

def empty(shape: Any, dtype: Any = ..., order: Any = ...) -> Any:
    """elements of any value, to be written before they are read."""

def empty_like(x: Any, dtype: Any = ..., order: Any = ..., shape: Any = ...) -> Any:
    """elements of any value with the shape, dtype and order of an array."""

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

def expand_dims(x: Any, axis: Any) -> Any:
    """with new axes of size 1 at the given positions of the result."""

def expm1(x: Any) -> Any:
    """exp(x) - 1, accurate near 0."""

def eye(N: Any, M: Any = ..., k: Any = ..., dtype: Any = ..., order: Any = ...) -> Any:
    """ones on the k-th diagonal, zeros elsewhere."""

def fabs(x: Any) -> Any:
    """|x| as a floating number."""

def flatnonzero(x: Any) -> Any:
    """the positions of the nonzero elements in C order."""

def flatten(x: Any, order: Any = ...) -> Any:
    """a copy of all elements in one dimension."""

def flip(x: Any, axis: Any = ...) -> Any:
    """backwards along all axes, or those named."""

def fliplr(x: Any) -> Any:
    """backwards along the second axis."""

def flipud(x: Any) -> Any:
    """backwards along the first axis."""

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

def fold_in(key: Any, data: Any) -> Any:
    """the key that belongs to an integer: a step, a layer, a worker."""

def full(shape: Any, fill_value: Any, dtype: Any = ..., order: Any = ...) -> Any:
    """all elements a value, which broadcasts."""

def full_like(x: Any, fill_value: Any, dtype: Any = ..., order: Any = ..., shape: Any = ...) -> Any:
    """a value with the shape, dtype and order of an array."""

def gather(x: Any, indices: Any, axis: Any = ...) -> Any:
    """slices at integer positions along an axis (ONNX Gather)."""

def gather_elements(x: Any, indices: Any, axis: Any = ...) -> Any:
    """as take_along_axis, but the indices may be fewer in every dimension (torch.gather, ONNX GatherElements)."""

def gather_nd(x: Any, indices: Any) -> Any:
    """x[tuple(i)] for each index vector along the last axis of the indices."""

def gcd(x: Any, y: Any) -> Any:
    """greatest common divisor of |x| and |y|."""

def gelu(x: Any, approximate: Any = ...) -> Any:
    """x * (1 + erf(x / sqrt 2)) / 2; approximate='tanh': x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x**3))) / 2."""

def greater(x: Any, y: Any) -> Any:
    """x > y."""

def greater_equal(x: Any, y: Any) -> Any:
    """x >= y."""

def hstack(arrays: Sequence[Any], dtype: Any = ...) -> Any:
    """the arrays beside each other: along axis 1, vectors along axis 0."""

def hypot(x: Any, y: Any) -> Any:
    """sqrt(x**2 + y**2) without overflow."""

def identity(x: Any) -> Any:
    """the operand itself; pins the instruction to its line."""

def imag(x: Any) -> Any:
    """imaginary part: a view of a complex array, read-only zeros for a real one."""

def index(x: Any, key: Any) -> Any:
    """x[key]: a view for ints, slices, None and `...`; a copy if there is an array in the key."""

def index_put(x: Any, indices: Any, values: Any, accumulate: bool = ...) -> Any:
    """a copy of x after x[key] = values, or after adding the values up there."""

def inner(x: Any, y: Any) -> Any:
    """sum over the last axes of both; a scalar multiplies."""

def interpolate(x: Any, size: Any = ..., scale: Any = ..., mode: Any = ..., align_corners: bool = ...) -> Any:
    """(N, C, ...) resized: nearest, linear or bilinear, to sizes or by factors."""

def invert(x: Any) -> Any:
    """~x; logical not of bools."""

def isfinite(x: Any) -> Any:
    """whether x is neither NaN nor infinite."""

def isinf(x: Any) -> Any:
    """whether x is an infinity."""

def isnan(x: Any) -> Any:
    """whether x is NaN."""

def item(x: Any) -> Any:
    """the one element as a Python scalar."""

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

def linear(x: Any, w: Any, b: Any = ...) -> Any:
    """x @ w.T + b; half types are summed in float32 and rounded once."""

def linspace(start: Any, stop: Any, num: Any = ..., endpoint: bool = ..., dtype: Any = ..., axis: Any = ...) -> Any:
    """num numbers evenly spaced from start to stop, along a new axis."""

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

def masked_fill(x: Any, mask: Any, value: Any) -> Any:
    """x with a value where a mask is true."""

def masked_select(x: Any, mask: Any) -> Any:
    """the elements where a mask is true, in one dimension."""

def matmul(x: Any, y: Any) -> Any:
    """matrix product over the last two axes, leading axes broadcast; of bfloat16 in float32, NumPy's only loop."""

def matrix_transpose(x: Any) -> Any:
    """with the last two axes exchanged."""

def max(x: Any, axis: Any = ..., keepdims: bool = ...) -> Any:
    """largest element; NaN if any is NaN."""

def max_pool1d(x: Any, kernel_size: Any, stride: Any = ..., padding: Any = ..., dilation: Any = ..., ceil_mode: bool = ...) -> Any:
    """the maximum of each window along the last axis."""

def max_pool2d(x: Any, kernel_size: Any, stride: Any = ..., padding: Any = ..., dilation: Any = ..., ceil_mode: bool = ...) -> Any:
    """the maximum of each window over the last two axes."""

def maximum(x: Any, y: Any) -> Any:
    """the larger; NaN if either is NaN."""

def mean(x: Any, axis: Any = ..., dtype: Any = ..., keepdims: bool = ...) -> Any:
    """arithmetic mean; integers as float64; NaN with a warning if empty."""

def min(x: Any, axis: Any = ..., keepdims: bool = ...) -> Any:
    """smallest element; NaN if any is NaN."""

def minimum(x: Any, y: Any) -> Any:
    """the smaller; NaN if either is NaN."""

def moveaxis(x: Any, source: Any, destination: Any) -> Any:
    """with some axes moved to new positions, the others in their order."""

def multiply(x: Any, y: Any) -> Any:
    """x * y; logical and of bools."""

def ndim(x: Any) -> Any:
    """the number of dimensions."""

def negative(x: Any) -> Any:
    """-x; not defined for bools."""

def nextafter(x: Any, y: Any) -> Any:
    """the next floating number from x towards y."""

def nonzero(x: Any) -> Any:
    """the coordinates of the nonzero elements, one array an axis."""

def norm(x: Any, axis: Any = ..., ord: Any = ..., keepdims: bool = ...) -> Any:
    """vector norm of order ord (None is 2) over one axis, or Frobenius norm over all."""

def not_equal(x: Any, y: Any) -> Any:
    """x != y."""

def one_hot(indices: Any, depth: Any, on_value: Any = ..., off_value: Any = ..., axis: Any = ..., dtype: Any = ...) -> Any:
    """a new axis that holds one value at the index and another elsewhere."""

def ones(shape: Any, dtype: Any = ..., order: Any = ...) -> Any:
    """all elements one."""

def ones_like(x: Any, dtype: Any = ..., order: Any = ..., shape: Any = ...) -> Any:
    """ones with the shape, dtype and order of an array."""

def outer(x: Any, y: Any) -> Any:
    """every element of x times every element of y."""

def pad(x: Any, pad_width: Any, mode: Any = ..., constant_values: Any = ...) -> Any:
    """with elements put before and after along each axis: a constant, the edge, or the array's own elements."""

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

def random_bits(key: Any, shape: Any = ...) -> Any:
    """uniform 32-bit words of Philox4x32-10."""

def random_normal(key: Any, shape: Any = ..., mean: Any = ..., std: Any = ..., dtype: Any = ...) -> Any:
    """normally distributed, by inversion (AS 241)."""

def random_uniform(key: Any, shape: Any = ..., low: Any = ..., high: Any = ..., dtype: Any = ...) -> Any:
    """uniform in [low, high), from as many high bits as the significand has."""

def ravel(x: Any, order: Any = ...) -> Any:
    """all elements in one dimension, without a copy where memory allows."""

def real(x: Any) -> Any:
    """real part: a view of a complex array, a real array itself."""

def reciprocal(x: Any) -> Any:
    """1 / x, in x's own dtype: integers give 0, 1 or -1."""

def relu(x: Any) -> Any:
    """x where x > 0 or x is NaN, else +0."""

def remainder(x: Any, y: Any) -> Any:
    """x - floor(x / y) * y, with the sign of y."""

def repeat(x: Any, repeats: Any, axis: Any = ...) -> Any:
    """each element repeated, along an axis or in one dimension."""

def reshape(x: Any, shape: Any, order: Any = ...) -> Any:
    """the same elements in another shape; a size of -1 is worked out from the others."""

def right_shift(x: Any, y: Any) -> Any:
    """x >> y; the sign beyond the width."""

def rint(x: Any) -> Any:
    """nearest integer, ties to even."""

def rms_norm(x: Any, weight: Any = ..., axis: Any = ..., eps: Any = ...) -> Any:
    """x / sqrt(mean(x * x) + eps) * weight over axis."""

def roll(x: Any, shift: Any, axis: Any = ...) -> Any:
    """shifted along axes, what leaves at the end coming back at the start."""

def round(x: Any, decimals: Any = ...) -> Any:
    """nearest multiple of 10**-decimals, ties to even, as NumPy computes it: rint(x * 10**decimals) / 10**decimals."""

def rsqrt(x: Any) -> Any:
    """1 / sqrt(x)."""

def scatter(x: Any, indices: Any, updates: Any, axis: Any = ..., reduce: Any = ...) -> Any:
    """a copy of x with elements along an axis replaced by, or combined with, updates."""

def scatter_nd(x: Any, indices: Any, updates: Any, reduce: Any = ...) -> Any:
    """a copy of x with x[tuple(i)] replaced by, or combined with, updates."""

def searchsorted(x: Any, v: Any, sorter: Any = ..., side: Any = ...) -> Any:
    """where values would stand in a sorted vector."""

def set_index(x: Any, key: Any, value: Any) -> Any:
    """x[key] = value: writes x, the value broadcast and cast."""

def shape(x: Any) -> Any:
    """the sizes, as a tuple of ints."""

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

def size(x: Any, axis: Any = ...) -> Any:
    """the number of elements, or the size of some axes."""

def softmax(x: Any, axis: Any = ...) -> Any:
    """exp(x - max) / sum(exp(x - max)) over axis; a slice of -inf only is NaN."""

def softplus(x: Any) -> Any:
    """log(1 + exp(x))."""

def sort(x: Any, axis: Any = ..., kind: Any = ..., stable: Any = ...) -> Any:
    """in ascending order along an axis, NaN last."""

def split(x: Any, sections: Any, axis: Any = ...) -> Any:
    """views of equal parts along an axis, or of the parts between given indices."""

def split_key(key: Any, num: Any = ...) -> Any:
    """num new keys, none of which depends on num."""

def sqrt(x: Any) -> Any:
    """square root."""

def square(x: Any) -> Any:
    """x * x."""

def squeeze(x: Any, axis: Any = ...) -> Any:
    """without axes of size 1: all, or those named; the array itself if there are none."""

def stack(arrays: Sequence[Any], axis: Any = ..., dtype: Any = ...) -> Any:
    """the arrays one after the other along a new axis."""

def std(x: Any, axis: Any = ..., dtype: Any = ..., ddof: Any = ..., keepdims: bool = ...) -> Any:
    """square root of var."""

def stop_gradient(x: Any) -> Any:
    """the operand itself, which a derivative counts as constant."""

def subtract(x: Any, y: Any) -> Any:
    """x - y; not defined for bools."""

def sum(x: Any, axis: Any = ..., dtype: Any = ..., keepdims: bool = ...) -> Any:
    """sum; bools and small integers add up as int64 or uint64, half types in float32."""

def swapaxes(x: Any, axis1: Any, axis2: Any) -> Any:
    """with two axes exchanged."""

def take(x: Any, indices: Any, axis: Any = ..., mode: Any = ...) -> Any:
    """elements or slices at integer positions along an axis, or of the flattened array."""

def take_along_axis(x: Any, indices: Any, axis: Any = ...) -> Any:
    """one element along an axis for each index, the other subscripts being the index's own."""

def tan(x: Any) -> Any:
    """tangent."""

def tanh(x: Any) -> Any:
    """hyperbolic tangent."""

def tensordot(x: Any, y: Any, axes: Any = ...) -> Any:
    """sum over pairs of axes, the last and the first ones by default."""

def tile(x: Any, reps: Any) -> Any:
    """the whole array repeated along each axis."""

def topk(x: Any, k: Any, axis: Any = ..., largest: bool = ..., sorted: bool = ...) -> Any:
    """the k largest or smallest along an axis, and their positions; equal elements in order of position."""

def trace(x: Any, offset: Any = ..., axis1: Any = ..., axis2: Any = ..., dtype: Any = ...) -> Any:
    """sum of a diagonal of two axes."""

def transpose(x: Any, axes: Any = ...) -> Any:
    """with the axes in the given order, reversed by default."""

def tri(N: Any, M: Any = ..., k: Any = ..., dtype: Any = ...) -> Any:
    """ones at and below the k-th diagonal, zeros above."""

def tril(x: Any, k: Any = ...) -> Any:
    """zero above the k-th diagonal of the last two axes."""

def triu(x: Any, k: Any = ...) -> Any:
    """zero below the k-th diagonal of the last two axes."""

def trunc(x: Any) -> Any:
    """integer part."""

def unique(x: Any, return_index: bool = ..., return_inverse: bool = ..., return_counts: bool = ..., axis: Any = ..., equal_nan: bool = ...) -> Any:
    """the distinct elements in ascending order; on request their first positions, the inverse, and counts."""

def unstack(x: Any, axis: Any = ...) -> Any:
    """views of each position along an axis."""

def var(x: Any, axis: Any = ..., dtype: Any = ..., ddof: Any = ..., keepdims: bool = ...) -> Any:
    """mean of |x - mean(x)|**2, the divisor less ddof."""

def vdot(x: Any, y: Any) -> Any:
    """sum of the products of all elements, those of x conjugated."""

def vstack(arrays: Sequence[Any], dtype: Any = ...) -> Any:
    """the arrays below each other, vectors as rows."""

def where(condition: Any, x: Any, y: Any) -> Any:
    """x where the condition is not zero, else y; a Python int wraps to the result's dtype."""

def zeros(shape: Any, dtype: Any = ..., order: Any = ...) -> Any:
    """all elements zero."""

def zeros_like(x: Any, dtype: Any = ..., order: Any = ..., shape: Any = ...) -> Any:
    """zeros with the shape, dtype and order of an array."""

class Abs(Operation):
    """|x|, real for complex x."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Acos(Operation):
    """inverse cosine."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Acosh(Operation):
    """inverse hyperbolic cosine."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Add(Operation):
    """x + y; logical or of bools."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, y: Any) -> Any: ...

class Angle(Operation):
    """angle in the complex plane, in degrees with deg=True."""

    deg: bool
    def __init__(self, deg: bool = ...) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Arange(Operation):
    """numbers from start (0 if only one is given) up to stop, step apart."""

    dtype: Any
    def __init__(self, dtype: Any = ...) -> None: ...
    def __call__(self, start: Any, stop: Any = ..., step: Any = ...) -> Any: ...

class ArgSort(Operation):
    """the positions that sort along an axis."""

    axis: Any
    def __init__(self, axis: Any = ...) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Argmax(Operation):
    """index of the first largest element, of the first NaN if there is one; without axis into the flattened array."""

    axis: Any
    keep_dims: bool
    def __init__(self, axis: Any = ..., keep_dims: bool = ...) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Argmin(Operation):
    """index of the first smallest element, of the first NaN if there is one."""

    axis: Any
    keep_dims: bool
    def __init__(self, axis: Any = ..., keep_dims: bool = ...) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Asin(Operation):
    """inverse sine."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Asinh(Operation):
    """inverse hyperbolic sine."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Atan(Operation):
    """inverse tangent."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Atan2(Operation):
    """angle of the point (y, x): the first operand is the ordinate."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, y: Any) -> Any: ...

class Atanh(Operation):
    """inverse hyperbolic tangent."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class AvgPool1d(Operation):
    """the mean of each window along the last axis."""

    kernel_size: Any
    stride: Any
    padding: Any
    ceil_mode: bool
    count_include_pad: bool
    def __init__(self, kernel_size: Any, stride: Any = ..., padding: Any = ..., ceil_mode: bool = ..., count_include_pad: bool = ...) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class AvgPool2d(Operation):
    """the mean of each window over the last two axes."""

    kernel_size: Any
    stride: Any
    padding: Any
    ceil_mode: bool
    count_include_pad: bool
    def __init__(self, kernel_size: Any, stride: Any = ..., padding: Any = ..., ceil_mode: bool = ..., count_include_pad: bool = ...) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class BatchMatMul(Operation):
    """matrix product over the last two axes, leading axes broadcast; of bfloat16 in float32, NumPy's only loop."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, y: Any) -> Any: ...

class BatchNorm(Operation):
    """(x - mean) / sqrt(var + eps) * weight + bias with given statistics, one for each index of axis."""

    axis: Any
    eps: Any
    def __init__(self, axis: Any = ..., eps: Any = ...) -> None: ...
    def __call__(self, x: Any, mean: Any, var: Any, weight: Any = ..., bias: Any = ...) -> Any: ...

class BitwiseAnd(Operation):
    """x & y."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, y: Any) -> Any: ...

class BitwiseOr(Operation):
    """x | y."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, y: Any) -> Any: ...

class BitwiseXor(Operation):
    """x ^ y."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, y: Any) -> Any: ...

class BroadcastTo(Operation):
    """a read-only view in a larger shape, repeated with stride 0."""

    shape: Any
    def __init__(self, shape: Any) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Cast(Operation):
    """x converted to a dtype, rounding to nearest even; out-of-range floats to integers as C does."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, dtype: Any) -> Any: ...

class Ceil(Operation):
    """smallest integer not below x."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Clip(Operation):
    """minimum(maximum(x, min), max); a bound that is None does not bind."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, min: Any = ..., max: Any = ...) -> Any: ...

class Concat(Operation):
    """the arrays one after the other along an existing axis; flattened first for axis None."""

    axis: Any
    def __init__(self, axis: Any = ...) -> None: ...
    def __call__(self, arrays: Sequence[Any]) -> Any: ...

class Conj(Operation):
    """complex conjugate; the method returns a real array itself."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Conv1d(Operation):
    """cross-correlation of (N, C, L) with (O, C / groups, K), plus a bias."""

    stride: Any
    padding: Any
    dilation: Any
    groups: Any
    def __init__(self, stride: Any = ..., padding: Any = ..., dilation: Any = ..., groups: Any = ...) -> None: ...
    def __call__(self, x: Any, w: Any, b: Any = ...) -> Any: ...

class Conv2d(Operation):
    """cross-correlation of (N, C, H, W) with (O, C / groups, KH, KW), plus a bias."""

    stride: Any
    padding: Any
    dilation: Any
    groups: Any
    def __init__(self, stride: Any = ..., padding: Any = ..., dilation: Any = ..., groups: Any = ...) -> None: ...
    def __call__(self, x: Any, w: Any, b: Any = ...) -> Any: ...

class Cos(Operation):
    """cosine."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Cosh(Operation):
    """hyperbolic cosine."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class CumProd(Operation):
    """running product along axis."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, axis: Any = ...) -> Any: ...

class CumSum(Operation):
    """running sum along axis, of the flattened array without one."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, axis: Any = ...) -> Any: ...

class DType(Operation):
    """the element type."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Depend(Operation):
    """the operand itself, once all the others have been computed."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, after: Sequence[Any]) -> Any: ...

class Diag(Operation):
    """a square with the vector on a diagonal, or a view of the diagonal of a matrix."""

    diagonal: Any
    def __init__(self, diagonal: Any = ...) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Diagonal(Operation):
    """a read-only view of a diagonal of two axes, which becomes the last axis."""

    offset: Any
    axis1: Any
    axis2: Any
    def __init__(self, offset: Any = ..., axis1: Any = ..., axis2: Any = ...) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Div(Operation):
    """x / y, integers as float64."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, y: Any) -> Any: ...

class Dot(Operation):
    """sum over the last axis of x and the second to last of y; a scalar multiplies."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, y: Any) -> Any: ...

class Dropout(Operation):
    """each element zeroed with probability p, the others scaled by 1 / (1 - p); a copy when not training."""

    p: Any
    training: bool
    def __init__(self, p: Any = ..., training: bool = ...) -> None: ...
    def __call__(self, x: Any, key: Any) -> Any: ...

class Einsum(Operation):
    """sum of products by Einstein's convention; a view if nothing is multiplied or summed."""

    equation: Any
    def __init__(self, equation: Any) -> None: ...
    def __call__(self, operands: Sequence[Any]) -> Any: ...

class Elu(Operation):
    """x where x > 0, else alpha * (exp(x) - 1)."""

    alpha: Any
    def __init__(self, alpha: Any = ...) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Embedding(Operation):
    """the rows of a table that the indices name."""

    def __init__(self) -> None: ...
    def __call__(self, indices: Any, table: Any) -> Any: ...

class Equal(Operation):
    """x == y."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, y: Any) -> Any: ...

class Erf(Operation):
    """the error function."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Erfc(Operation):
    """1 - erf(x), accurate for large x."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Exp(Operation):
    """e to the power x."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Exp2(Operation):
    """2 to the power x."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class ExpandDims(Operation):
    """with new axes of size 1 at the given positions of the result."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, axis: Any) -> Any: ...

class Expm1(Operation):
    """exp(x) - 1, accurate near 0."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Eye(Operation):
    """ones on the k-th diagonal, zeros elsewhere."""

    def __init__(self) -> None: ...
    def __call__(self, N: Any, M: Any = ..., dtype: Any = ...) -> Any: ...

class Fill(Operation):
    """all elements a value, which broadcasts."""

    def __init__(self) -> None: ...
    def __call__(self, dtype: Any = ..., shape: Any = ..., fill_value: Any = ...) -> Any: ...

class Flip(Operation):
    """backwards along all axes, or those named."""

    axis: Any
    def __init__(self, axis: Any = ...) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Floor(Operation):
    """largest integer not above x; integers and bools stay."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class FloorDiv(Operation):
    """floor(x / y); an integer divided by 0 is 0."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, y: Any) -> Any: ...

class Fma(Operation):
    """x * y + z, rounded once; integers wrap."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, y: Any, z: Any) -> Any: ...

class FoldIn(Operation):
    """the key that belongs to an integer: a step, a layer, a worker."""

    def __init__(self) -> None: ...
    def __call__(self, key: Any, data: Any) -> Any: ...

class FullLike(Operation):
    """a value with the shape, dtype and order of an array."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, fill_value: Any) -> Any: ...

class Gather(Operation):
    """slices at integer positions along an axis (ONNX Gather)."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, indices: Any, axis: Any = ...) -> Any: ...

class GatherElements(Operation):
    """as take_along_axis, but the indices may be fewer in every dimension (torch.gather, ONNX GatherElements)."""

    axis: Any
    def __init__(self, axis: Any = ...) -> None: ...
    def __call__(self, x: Any, indices: Any) -> Any: ...

class GatherNd(Operation):
    """x[tuple(i)] for each index vector along the last axis of the indices."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, indices: Any) -> Any: ...

class GeLU(Operation):
    """x * (1 + erf(x / sqrt 2)) / 2; approximate='tanh': x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x**3))) / 2."""

    approximate: Any
    def __init__(self, approximate: Any = ...) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Greater(Operation):
    """x > y."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, y: Any) -> Any: ...

class GreaterEqual(Operation):
    """x >= y."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, y: Any) -> Any: ...

class Hypot(Operation):
    """sqrt(x**2 + y**2) without overflow."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, y: Any) -> Any: ...

class Identity(Operation):
    """the operand itself; pins the instruction to its line."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Imag(Operation):
    """imaginary part: a view of a complex array, read-only zeros for a real one."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class IndexPut(Operation):
    """a copy of x after x[key] = values, or after adding the values up there."""

    accumulate: bool
    def __init__(self, accumulate: bool = ...) -> None: ...
    def __call__(self, x: Any, indices: Any, values: Any) -> Any: ...

class Inner(Operation):
    """sum over the last axes of both; a scalar multiplies."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, y: Any) -> Any: ...

class Interpolate(Operation):
    """(N, C, ...) resized: nearest, linear or bilinear, to sizes or by factors."""

    size: Any
    scale: Any
    mode: Any
    align_corners: bool
    def __init__(self, size: Any = ..., scale: Any = ..., mode: Any = ..., align_corners: bool = ...) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Invert(Operation):
    """~x; logical not of bools."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class IsFinite(Operation):
    """whether x is neither NaN nor infinite."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class IsInf(Operation):
    """whether x is an infinity."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class IsNan(Operation):
    """whether x is NaN."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class LayerNorm(Operation):
    """(x - mean) / sqrt(var + eps) * weight + bias over axis; weight and bias have the sizes of axis."""

    axis: Any
    eps: Any
    def __init__(self, axis: Any = ..., eps: Any = ...) -> None: ...
    def __call__(self, x: Any, weight: Any = ..., bias: Any = ...) -> Any: ...

class LeakyReLU(Operation):
    """x where x > 0, else negative_slope * x."""

    negative_slope: Any
    def __init__(self, negative_slope: Any = ...) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class LeftShift(Operation):
    """x << y; 0 beyond the width."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, y: Any) -> Any: ...

class Less(Operation):
    """x < y; complex by real, then imaginary part."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, y: Any) -> Any: ...

class LessEqual(Operation):
    """x <= y."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, y: Any) -> Any: ...

class LinSpace(Operation):
    """num numbers evenly spaced from start to stop, along a new axis."""

    def __init__(self) -> None: ...
    def __call__(self, start: Any, stop: Any, num: Any = ...) -> Any: ...

class Linear(Operation):
    """x @ w.T + b; half types are summed in float32 and rounded once."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, w: Any, b: Any = ...) -> Any: ...

class Log(Operation):
    """natural logarithm."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Log10(Operation):
    """logarithm to base 10."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Log1p(Operation):
    """log(1 + x), accurate near 0."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Log2(Operation):
    """logarithm to base 2."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class LogSoftmax(Operation):
    """logarithm of softmax over axis."""

    axis: Any
    def __init__(self, axis: Any = ...) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class LogSumExp(Operation):
    """log(sum(exp(x))) without overflow."""

    keep_dims: bool
    def __init__(self, keep_dims: bool = ...) -> None: ...
    def __call__(self, x: Any, axis: Any = ...) -> Any: ...

class LogicalAnd(Operation):
    """both are not zero."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, y: Any) -> Any: ...

class LogicalNot(Operation):
    """x is zero."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class LogicalOr(Operation):
    """one is not zero."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, y: Any) -> Any: ...

class LogicalXor(Operation):
    """exactly one is not zero."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, y: Any) -> Any: ...

class MaskedFill(Operation):
    """x with a value where a mask is true."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, mask: Any, value: Any) -> Any: ...

class MaskedSelect(Operation):
    """the elements where a mask is true, in one dimension."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, mask: Any) -> Any: ...

class MatMul(Operation):
    """matrix product over the last two axes, leading axes broadcast; of bfloat16 in float32, NumPy's only loop."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, y: Any) -> Any: ...

class MaxPool1d(Operation):
    """the maximum of each window along the last axis."""

    kernel_size: Any
    stride: Any
    padding: Any
    dilation: Any
    ceil_mode: bool
    def __init__(self, kernel_size: Any, stride: Any = ..., padding: Any = ..., dilation: Any = ..., ceil_mode: bool = ...) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class MaxPool2d(Operation):
    """the maximum of each window over the last two axes."""

    kernel_size: Any
    stride: Any
    padding: Any
    dilation: Any
    ceil_mode: bool
    def __init__(self, kernel_size: Any, stride: Any = ..., padding: Any = ..., dilation: Any = ..., ceil_mode: bool = ...) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Maximum(Operation):
    """the larger; NaN if either is NaN."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, y: Any) -> Any: ...

class Minimum(Operation):
    """the smaller; NaN if either is NaN."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, y: Any) -> Any: ...

class Mod(Operation):
    """x - floor(x / y) * y, with the sign of y."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, y: Any) -> Any: ...

class MoveAxis(Operation):
    """with some axes moved to new positions, the others in their order."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, source: Any, destination: Any) -> Any: ...

class Mul(Operation):
    """x * y; logical and of bools."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, y: Any) -> Any: ...

class Neg(Operation):
    """-x; not defined for bools."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class NonZero(Operation):
    """the coordinates of the nonzero elements, one array an axis."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Norm(Operation):
    """vector norm of order ord (None is 2) over one axis, or Frobenius norm over all."""

    ord: Any
    keep_dims: bool
    def __init__(self, ord: Any = ..., keep_dims: bool = ...) -> None: ...
    def __call__(self, x: Any, axis: Any = ...) -> Any: ...

class NotEqual(Operation):
    """x != y."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, y: Any) -> Any: ...

class OneHot(Operation):
    """a new axis that holds one value at the index and another elsewhere."""

    axis: Any
    dtype: Any
    def __init__(self, axis: Any = ..., dtype: Any = ...) -> None: ...
    def __call__(self, indices: Any, depth: Any, on_value: Any = ..., off_value: Any = ...) -> Any: ...

class Ones(Operation):
    """all elements one."""

    def __init__(self) -> None: ...
    def __call__(self, shape: Any, dtype: Any = ...) -> Any: ...

class OnesLike(Operation):
    """ones with the shape, dtype and order of an array."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Outer(Operation):
    """every element of x times every element of y."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, y: Any) -> Any: ...

class Pad(Operation):
    """with elements put before and after along each axis: a constant, the edge, or the array's own elements."""

    paddings: Any
    mode: Any
    value: Any
    def __init__(self, paddings: Any, mode: Any = ..., value: Any = ...) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Pow(Operation):
    """x to the power y; x ** 2 is x * x."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, y: Any) -> Any: ...

class RMSNorm(Operation):
    """x / sqrt(mean(x * x) + eps) * weight over axis."""

    axis: Any
    eps: Any
    def __init__(self, axis: Any = ..., eps: Any = ...) -> None: ...
    def __call__(self, x: Any, weight: Any = ...) -> Any: ...

class RandomBits(Operation):
    """uniform 32-bit words of Philox4x32-10."""

    def __init__(self) -> None: ...
    def __call__(self, key: Any, shape: Any = ...) -> Any: ...

class RandomNormal(Operation):
    """normally distributed, by inversion (AS 241)."""

    mean: Any
    std: Any
    dtype: Any
    def __init__(self, mean: Any = ..., std: Any = ..., dtype: Any = ...) -> None: ...
    def __call__(self, key: Any, shape: Any = ...) -> Any: ...

class RandomUniform(Operation):
    """uniform in [low, high), from as many high bits as the significand has."""

    low: Any
    high: Any
    dtype: Any
    def __init__(self, low: Any = ..., high: Any = ..., dtype: Any = ...) -> None: ...
    def __call__(self, key: Any, shape: Any = ...) -> Any: ...

class Rank(Operation):
    """the number of dimensions."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Ravel(Operation):
    """all elements in one dimension, without a copy where memory allows."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class ReLU(Operation):
    """x where x > 0 or x is NaN, else +0."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Real(Operation):
    """real part: a view of a complex array, a real array itself."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class RealDiv(Operation):
    """x / y, integers as float64."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, y: Any) -> Any: ...

class Reciprocal(Operation):
    """1 / x, in x's own dtype: integers give 0, 1 or -1."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class ReduceAll(Operation):
    """whether no element is zero."""

    keep_dims: bool
    def __init__(self, keep_dims: bool = ...) -> None: ...
    def __call__(self, x: Any, axis: Any = ...) -> Any: ...

class ReduceAny(Operation):
    """whether one element is not zero."""

    keep_dims: bool
    def __init__(self, keep_dims: bool = ...) -> None: ...
    def __call__(self, x: Any, axis: Any = ...) -> Any: ...

class ReduceMax(Operation):
    """largest element; NaN if any is NaN."""

    keep_dims: bool
    def __init__(self, keep_dims: bool = ...) -> None: ...
    def __call__(self, x: Any, axis: Any = ...) -> Any: ...

class ReduceMean(Operation):
    """arithmetic mean; integers as float64; NaN with a warning if empty."""

    keep_dims: bool
    def __init__(self, keep_dims: bool = ...) -> None: ...
    def __call__(self, x: Any, axis: Any = ...) -> Any: ...

class ReduceMin(Operation):
    """smallest element; NaN if any is NaN."""

    keep_dims: bool
    def __init__(self, keep_dims: bool = ...) -> None: ...
    def __call__(self, x: Any, axis: Any = ...) -> Any: ...

class ReduceProd(Operation):
    """product; dtypes as for sum."""

    keep_dims: bool
    def __init__(self, keep_dims: bool = ...) -> None: ...
    def __call__(self, x: Any, axis: Any = ...) -> Any: ...

class ReduceStd(Operation):
    """square root of var."""

    ddof: Any
    keep_dims: bool
    def __init__(self, ddof: Any = ..., keep_dims: bool = ...) -> None: ...
    def __call__(self, x: Any, axis: Any = ...) -> Any: ...

class ReduceSum(Operation):
    """sum; bools and small integers add up as int64 or uint64, half types in float32."""

    keep_dims: bool
    def __init__(self, keep_dims: bool = ...) -> None: ...
    def __call__(self, x: Any, axis: Any = ...) -> Any: ...

class ReduceVar(Operation):
    """mean of |x - mean(x)|**2, the divisor less ddof."""

    ddof: Any
    keep_dims: bool
    def __init__(self, ddof: Any = ..., keep_dims: bool = ...) -> None: ...
    def __call__(self, x: Any, axis: Any = ...) -> Any: ...

class Repeat(Operation):
    """each element repeated, along an axis or in one dimension."""

    axis: Any
    def __init__(self, axis: Any = ...) -> None: ...
    def __call__(self, x: Any, repeats: Any) -> Any: ...

class Reshape(Operation):
    """the same elements in another shape; a size of -1 is worked out from the others."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, shape: Any) -> Any: ...

class RightShift(Operation):
    """x >> y; the sign beyond the width."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, y: Any) -> Any: ...

class Rint(Operation):
    """nearest integer, ties to even."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Roll(Operation):
    """shifted along axes, what leaves at the end coming back at the start."""

    shift: Any
    axis: Any
    def __init__(self, shift: Any, axis: Any = ...) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Round(Operation):
    """nearest multiple of 10**-decimals, ties to even, as NumPy computes it: rint(x * 10**decimals) / 10**decimals."""

    decimals: Any
    def __init__(self, decimals: Any = ...) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Rsqrt(Operation):
    """1 / sqrt(x)."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Scatter(Operation):
    """a copy of x with elements along an axis replaced by, or combined with, updates."""

    axis: Any
    reduce: Any
    def __init__(self, axis: Any = ..., reduce: Any = ...) -> None: ...
    def __call__(self, x: Any, indices: Any, updates: Any) -> Any: ...

class ScatterNd(Operation):
    """a copy of x with x[tuple(i)] replaced by, or combined with, updates."""

    reduce: Any
    def __init__(self, reduce: Any = ...) -> None: ...
    def __call__(self, x: Any, indices: Any, updates: Any) -> Any: ...

class SearchSorted(Operation):
    """where values would stand in a sorted vector."""

    side: Any
    def __init__(self, side: Any = ...) -> None: ...
    def __call__(self, x: Any, v: Any) -> Any: ...

class Select(Operation):
    """x where the condition is not zero, else y; a Python int wraps to the result's dtype."""

    def __init__(self) -> None: ...
    def __call__(self, condition: Any, x: Any, y: Any) -> Any: ...

class Shape(Operation):
    """the sizes, as a tuple of ints."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class SiLU(Operation):
    """x * sigmoid(x)."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Sigmoid(Operation):
    """1 / (1 + exp(-x))."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Sign(Operation):
    """-1, 0 or 1; NaN stays NaN; x / |x| for complex x."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Sin(Operation):
    """sine."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Sinh(Operation):
    """hyperbolic sine."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Size(Operation):
    """the number of elements, or the size of some axes."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Softmax(Operation):
    """exp(x - max) / sum(exp(x - max)) over axis; a slice of -inf only is NaN."""

    axis: Any
    def __init__(self, axis: Any = ...) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Softplus(Operation):
    """log(1 + exp(x))."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Sort(Operation):
    """in ascending order along an axis, NaN last."""

    axis: Any
    def __init__(self, axis: Any = ...) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Split(Operation):
    """views of equal parts along an axis, or of the parts between given indices."""

    axis: Any
    output_num: Any
    def __init__(self, axis: Any = ..., output_num: Any = ...) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class SplitKey(Operation):
    """num new keys, none of which depends on num."""

    def __init__(self) -> None: ...
    def __call__(self, key: Any, num: Any = ...) -> Any: ...

class Sqrt(Operation):
    """square root."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Square(Operation):
    """x * x."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Squeeze(Operation):
    """without axes of size 1: all, or those named; the array itself if there are none."""

    axis: Any
    def __init__(self, axis: Any = ...) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Stack(Operation):
    """the arrays one after the other along a new axis."""

    axis: Any
    def __init__(self, axis: Any = ...) -> None: ...
    def __call__(self, arrays: Sequence[Any]) -> Any: ...

class StopGradient(Operation):
    """the operand itself, which a derivative counts as constant."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Sub(Operation):
    """x - y; not defined for bools."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, y: Any) -> Any: ...

class SwapAxes(Operation):
    """with two axes exchanged."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, axis1: Any, axis2: Any) -> Any: ...

class Take(Operation):
    """elements or slices at integer positions along an axis, or of the flattened array."""

    axis: Any
    def __init__(self, axis: Any = ...) -> None: ...
    def __call__(self, x: Any, indices: Any) -> Any: ...

class TakeAlongAxis(Operation):
    """one element along an axis for each index, the other subscripts being the index's own."""

    axis: Any
    def __init__(self, axis: Any = ...) -> None: ...
    def __call__(self, x: Any, indices: Any) -> Any: ...

class Tan(Operation):
    """tangent."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Tanh(Operation):
    """hyperbolic tangent."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class TensorDot(Operation):
    """sum over pairs of axes, the last and the first ones by default."""

    axes: Any
    def __init__(self, axes: Any = ...) -> None: ...
    def __call__(self, x: Any, y: Any) -> Any: ...

class Tile(Operation):
    """the whole array repeated along each axis."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, reps: Any) -> Any: ...

class TopK(Operation):
    """the k largest or smallest along an axis, and their positions; equal elements in order of position."""

    axis: Any
    largest: bool
    sorted: bool
    def __init__(self, axis: Any = ..., largest: bool = ..., sorted: bool = ...) -> None: ...
    def __call__(self, x: Any, k: Any) -> Any: ...

class Trace(Operation):
    """sum of a diagonal of two axes."""

    offset: Any
    axis1: Any
    axis2: Any
    def __init__(self, offset: Any = ..., axis1: Any = ..., axis2: Any = ...) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Transpose(Operation):
    """with the axes in the given order, reversed by default."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any, axes: Any = ...) -> Any: ...

class Tril(Operation):
    """zero above the k-th diagonal of the last two axes."""

    diagonal: Any
    def __init__(self, diagonal: Any = ...) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Triu(Operation):
    """zero below the k-th diagonal of the last two axes."""

    diagonal: Any
    def __init__(self, diagonal: Any = ...) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Trunc(Operation):
    """integer part."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Unique(Operation):
    """the distinct elements in ascending order; on request their first positions, the inverse, and counts."""

    return_index: bool
    return_inverse: bool
    return_counts: bool
    def __init__(self, return_index: bool = ..., return_inverse: bool = ..., return_counts: bool = ...) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Unstack(Operation):
    """views of each position along an axis."""

    axis: Any
    def __init__(self, axis: Any = ...) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class Where(Operation):
    """x where the condition is not zero, else y; a Python int wraps to the result's dtype."""

    def __init__(self) -> None: ...
    def __call__(self, condition: Any, x: Any, y: Any) -> Any: ...

class Zeros(Operation):
    """all elements zero."""

    def __init__(self) -> None: ...
    def __call__(self, shape: Any, dtype: Any = ...) -> Any: ...

class ZerosLike(Operation):
    """zeros with the shape, dtype and order of an array."""

    def __init__(self) -> None: ...
    def __call__(self, x: Any) -> Any: ...

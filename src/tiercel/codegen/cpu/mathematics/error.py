"""The error function and its complement.

Coefficients without another source are near minimax, fitted by `benchmarks/minimax.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.codegen.cpu.mathematics.calculator import Calculator
from tiercel.codegen.cpu.mathematics.exponential import exp_of_negative
from tiercel.codegen.cpu.text import Value

if TYPE_CHECKING:
    from tiercel.codegen.cpu.expressions import Expressions

# float32, N. Juffa's two-branch approximation of erff (public post, 2016): 1 - exp(-t + t * p(t)) for t = |x| above
# 0.927734375, x + x * q(x**2) below
_FAR_32_HIGH, _FAR_32_NEXT = (-1.72853470e-5, 3.83197126e-4), (-3.88396438e-3, 2.42546219e-2)
_FAR_32 = (-1.06777877e-1, -6.34846687e-1, -1.28717512e-1)
_NEAR_32 = (-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1)

# float64: 1 - exp(t * p(t)) on [1, 6], absolute error 2**-58; x + x * q(x**2) on [0, 1], relative error 2**-56
_FAR_64 = (
    1.507369829346497e-12, -6.698793897250176e-11, 1.3938931718411263e-09, -1.8033340397613643e-08,
    1.6225707581063446e-07, -1.0737112652018286e-06, 5.3659712700151815e-06, -2.0286313021725624e-05,
    5.58665794844357e-05, -9.512859880243674e-05, 3.879523996901268e-07, 0.0005754123421604597, -0.0016933567418690575,
    0.0002126001764286442, 0.01912465405483981, -0.102770709022264, -0.6366202803186184, -1.1283791078561385,
)  # fmt: skip
_NEAR_64 = (
    -7.76307736323529e-10, 1.370156352507004e-08, -1.6203962478212418e-07, 1.6446797118563519e-06,
    -1.4924682455207668e-05, 0.00012055291842420746, -0.0008548325863366275, 0.005223977604512925,
    -0.026866170642873874, 0.1128379167094225, -0.3761263890318345, 0.12837916709551256,
)  # fmt: skip

# erfc(a) = exp(-a**2) * (1 + p(q)) / (1 + 2 a) with q = (a - k) / (a + k) (M. Shepherd and J. Laframboise, "Chebyshev
# approximation of (1 + 2x) exp(x**2) erfc(x) in 0 <= x < infinity", Mathematics of Computation 36, 1981);
# relative errors 2**-25.7 with k = 2, 2**-54.4 with k = 4
_COMPLEMENT_32 = (
    -0.0004047398688271642, -0.0012369652977213264, 0.0013135891640558839, 0.008636985905468464, -0.00805776659399271,
    -0.05420517176389694, 0.16405458748340607, -0.16603149473667145, -0.09276390820741653, 0.27697840332984924,
)  # fmt: skip
_COMPLEMENT_64 = (
    -8.411800251784413e-09, -8.114013110943818e-09, 1.0158286038161742e-07, 5.542541486550786e-08,
    -8.202126702185339e-07, 3.135470610935101e-07, 5.709248950600205e-06, -1.123413935297636e-05,
    -2.4400363314041727e-05, 0.00015062635211868903, -0.00019925598779417067, -0.0007577744382521331,
    0.0050319697833177785, -0.01619773388164234, 0.037167515565886176, -0.06633036582806885, 0.09373283499622559,
    -0.10103906603556304, 0.06809705425476191, 0.015379652102605904, -0.13962111684056314, 0.23299511862555256,
)  # fmt: skip


def erf(expressions: Expressions, x: Value) -> Value:
    """Error function. At most 1.5 ULP."""
    c = Calculator(expressions, x)
    t = c.clamp(c.abs(x), high=c.of(4.0, 6.0))
    square = c.mul(t, t)
    if c.single:
        r = c.fma(c.fma(t, *_FAR_32_HIGH), square, c.fma(t, *_FAR_32_NEXT))
        for coefficient in _FAR_32:
            r = c.fma(r, t, coefficient)
        r = c.fma(r, t, c.neg(t))
    else:
        r = c.mul(c.horner(t, _FAR_64), t)
    far = c.sub(1.0, exp_of_negative(c, r))
    near = c.fma(c.horner(square, _NEAR_32 if c.single else _NEAR_64), t, t)
    return c.sign_of(c.choose(c.test("gt", t, c.of(0.927734375, 1.0)), far, near), x)


def erfc(expressions: Expressions, x: Value) -> Value:
    """1 - erf(x). At most 3.5 ULP (float64: 4) of the result, far out too. The steps that keep both quotients and the
    square exact enough are N. Juffa's (public post on erfcf, 2013).
    """
    c = Calculator(expressions, x)
    a = c.clamp(c.abs(x), high=c.of(10.06, 27.3))
    k = c.of(2.0, 4.0)
    r = c.div(1.0, c.add(a, k))
    q = c.fma(r, -2 * k, 1.0)
    q = c.fma(r, c.fma(c.neg(q), a, c.fma(c.add(q, 1.0), -k, a)), q)
    p = c.horner(q, _COMPLEMENT_32 if c.single else _COMPLEMENT_64)
    r = c.div(1.0, c.fma(a, 2.0, 1.0))
    q = c.fma(p, r, r)
    q = c.fma(c.fma(c.fma(c.neg(q), a, 0.5), 2.0, c.sub(p, q)), r, q)
    square = c.mul(a, a)
    e = exp_of_negative(c, c.neg(square))
    y = c.mul(q, e)
    y = c.fma(c.fma(c.neg(a), a, square), y, y)
    return c.choose(c.test_whole("slt", c.bits(x), 0), c.sub(2.0, y), y)

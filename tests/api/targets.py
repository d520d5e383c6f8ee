"""Jitted things at module level, where `pickle` finds them."""

from __future__ import annotations

import functools

import numpy as np

import tiercel as tc


@tc.jit
def scaled(x, factor=2.0, *, offset=0.0):
    """Scale and shift."""
    return x * factor + offset


def helper(x):
    return np.tanh(x) + 1


@tc.jit
def with_helper(x):
    return helper(x) * 2


@tc.jit
def jitted_inner(x):
    return x + 1


@tc.jit
def jitted_outer(x):
    return jitted_inner(x) * jitted_inner(x)


class Model:
    """Every kind of method."""

    scale = 3.0

    def __init__(self, w):
        self.w = w

    @tc.jit
    def method(self, x):
        return x @ self.w

    @tc.jit
    @classmethod
    def class_first(cls, x):
        return x * cls.scale

    @classmethod
    @tc.jit
    def class_second(cls, x):
        return x * cls.scale

    @tc.jit
    @staticmethod
    def static_first(x):
        return x + 1

    @staticmethod
    @tc.jit
    def static_second(x):
        return x + 1

    @tc.jit
    @property
    def total(self):
        return self.w.sum()

    @property
    @tc.jit
    def total_second(self):
        return self.w.sum()

    @tc.jit
    @functools.cached_property
    def cached(self):
        return self.w.mean()

    def __call__(self, x):
        return x @ self.w + self.scale


@tc.jit
def mismatch(x, w):
    return np.exp(x @ (w + w))


@tc.jit
def raises_own(x):
    if x.sum() > 0:
        raise ValueError("mine")
    return x

"""A tiny case for tests of the benchmark suite, and peers that do what peers should not. Children import it."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import numpy as np

import tiercel as tc
from tiercel.tools.suite.case import Cannot, Case
from tiercel.tools.suite.peers import Peer, Runtime

REGISTRY = "tests.tools.suite_cases:CASES"


def double(x: Any, w: Any) -> Any:
    return x * 2 + w, x.sum()


class Doubling(Case):
    name = "doubling"
    title = "twice the input"
    calls = (6, 12)

    def shapes(self, quick):
        return [(2,), (5,)]

    def draw(self, rng, quick):
        return (int(rng.integers(1, 9)),)

    def weights(self, rng):
        return {"w": rng.standard_normal(3, dtype=np.float32)}

    def inputs(self, rng, shape):
        return (rng.standard_normal((*shape, 3), dtype=np.float32),)

    def numpy(self, weights):
        return lambda x: double(x, weights["w"])

    def tiercel(self, weights):
        w = tc.constant(weights["w"])
        return tc.jit(lambda x: double(x, w))


class Wrong(Runtime):
    """Off at one of the shapes."""

    def build(self, case, weights):
        call = case.numpy(weights)

        def run(x):
            y, total = call(x)
            return y + 0.01 * (len(x) == 5), total

        return run


class Misshapen(Runtime):
    def build(self, case, weights):
        call = case.numpy(weights)
        return lambda x: call(x)[::-1]


class Refusing(Runtime):
    def build(self, case, weights):
        raise Cannot("there is no doubling here")


class Raising(Runtime):
    def build(self, case, weights):
        raise ValueError("seven is not a dtype\nsecond line")


class Crashing(Runtime):
    def build(self, case, weights):
        os.kill(os.getpid(), signal.SIGSEGV)


class Leaving(Runtime):
    def build(self, case, weights):
        print("out of something", flush=True)
        os._exit(3)


class Hanging(Runtime):
    def build(self, case, weights):
        while True:
            time.sleep(1)


class Printing(Runtime):
    """Right, and noisy."""

    def build(self, case, weights):
        call = case.numpy(weights)

        def run(x):
            print("noise")
            return call(x)

        return run


def peer(runtime: type[Runtime]) -> Peer:
    """A peer of this runtime, by its name in small letters."""
    return Peer(runtime.__name__.lower(), (), f"tests.tools.suite_cases:{runtime.__name__}")


CASES = {"doubling": Doubling()}

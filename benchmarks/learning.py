"""What learning costs: an entry that is not sampled, one that is, and the memory of what was learned.

The first two are differences and medians of many small runs, made alternately. At the default settings one entry in 64
is sampled after the first 8, so the last line of times is what a call pays on average.
"""

from __future__ import annotations

import statistics
import sys
import time

import numpy as np

from tiercel import config
from tiercel.frontend.python import capture
from tiercel.interp import NO_HOOKS, Environment, decode, run
from tiercel.tools import demo_models
from tiercel.vm import Machine
from tiercel.vm.profile import MAX_SIGNATURES, RECENT, LiveIn, Recorder
from tiercel.vm.scan import MAX_SLOTS

ROUNDS, CALLS = 41, 2000


def nothing(x):
    return x


def looping(x):
    for _ in ():
        pass
    return x


def seconds_each(function, calls: int = CALLS) -> float:
    # Time of this thread's own work: waiting for a busy core is nobody's cost.
    before = time.thread_time()
    for _ in range(calls):
        function()
    return (time.thread_time() - before) / calls


def medians(*functions) -> list[float]:
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(ROUNDS):
        for into, function in zip(times, functions, strict=True):
            into.append(seconds_each(function))
    return [statistics.median(t) for t in times]


def unsampled(function) -> float:
    """Nanoseconds that hooks add to a call none of whose entries is sampled."""
    decoded = decode(capture(function).program, environment=Environment(function.__globals__))
    hooks = Machine().hooks()
    arguments = (np.zeros(3),)
    run(decoded, arguments, hooks=hooks)
    decoded.watch.entry.due = 1 << 62
    for loop in decoded.watch.loops:
        loop.due = 1 << 62
    without, with_hooks = medians(
        lambda: run(decoded, arguments, hooks=NO_HOOKS), lambda: run(decoded, arguments, hooks=hooks)
    )
    return 1e9 * (with_hooks - without)


def sampled(values) -> float:
    """Nanoseconds of one sample of these live-ins."""
    recorder = Recorder([LiveIn(i, f"x{i}") for i in range(len(values))])
    settings = config.current()
    (each,) = medians(lambda: recorder.sample(values, 1, settings))
    return 1e9 * each


def main() -> int:
    weights = demo_models.make_weights()
    inputs = [np.zeros((16, 20, 128), np.float32), np.zeros((16, 256), np.float32), np.zeros((16, 256), np.float32)]
    lstm = [*inputs, weights.ih, weights.hh, weights.bias_ih]
    entry, both = unsampled(nothing), unsampled(looping)
    one, six = sampled(inputs[:1]), sampled(lstm)
    period = config.current().profile_sample
    print(f"an entry of a function that is not sampled   {entry:8.0f} ns")
    print(f"an entry of a loop that is not sampled       {both - entry:8.0f} ns")
    print(f"a sample of one array                        {one:8.0f} ns")
    print(f"a sample of the six arrays of an LSTM layer  {six:8.0f} ns")
    print(f"on average, per call of the LSTM layer       {both + 2 * six / period:8.0f} ns  (function and loop)")

    recorder = Recorder([LiveIn(i, f"x{i}") for i in range(len(lstm))])
    for i in range(1000):
        recorder.sample([np.zeros((i % 9, 20, 128), np.float32), *lstm[1:]], i + 1, config.current())
    (record,) = recorder.records()
    ring = sys.getsizeof(record._recent)
    print(f"ring of the last {RECENT} samples, {len(record.slots)} sizes   {ring:8d} bytes")
    print(f"at most per region                           {MAX_SIGNATURES * 8 * RECENT * MAX_SLOTS:8d} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

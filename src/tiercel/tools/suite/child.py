"""One (case, peer) in a process of its own: `python -m tiercel.tools.suite.child FD`.

In: requests on a socket, (action, arguments). Out: one answer each: ("done", value), ("cannot", reason) or
("error", text). Nothing is timed across the socket: times are taken here, around calls whose inputs exist already.

A child that is not asked anything sits in `recv`, stopped by its parent besides. It dies with its parent, stopped or
not (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import ctypes
import importlib
import json
import math
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import numpy as np

from tiercel.tools.suite import agreement
from tiercel.tools.suite.case import Call, Cannot, Case, Setting, Shape
from tiercel.tools.suite.peers import Runtime, clock

__all__ = ["Request", "main"]

_PR_SET_PDEATHSIG: Final = 1
# A call longer than this gains nothing from another one that fills the caches first.
_COLD_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Request:
    """What a child is made for.

    Attributes:
        registry: `module:attribute` of a mapping from names to cases.
        case: a name in it.
        runtime: `module:class` of the peer's runtime.
        threads: how many.
        folder: where files of this case are.
        double: compute in float64, for the reference.
    """

    registry: str
    case: str
    runtime: str
    threads: int
    folder: str
    double: bool = False


def main(words: Sequence[str]) -> int:
    """Serve until the parent says stop or hangs up. `words`: the number of the socket."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = Connection(int(words[0]))
    server: _Server | None = None
    while True:
        try:
            action, arguments = connection.recv()
        except (EOFError, OSError):
            return 0
        if action == "stop":
            return 0
        try:
            if server is None:
                server = _Server(arguments["request"])
                answer: tuple[str, Any] = ("done", server.started())
            else:
                with server.runtime.running():
                    answer = ("done", getattr(server, action)(**arguments))
        except Cannot as reason:
            answer = ("cannot", str(reason))
        except BaseException as error:  # noqa: BLE001 - whatever a peer raises is reported, not our end
            traceback.print_exc()
            answer = ("error", f"{type(error).__name__}: {_first_line(error)}")
        connection.send(answer)


class _Server:
    def __init__(self, request: Request) -> None:
        began = clock()
        self.case: Case = _look_up(request.registry)[request.case]
        setting = Setting(request.threads, Path(request.folder))
        cls: type[Runtime] = _look_up(request.runtime)
        self.runtime = cls(setting)
        self.setting = setting
        self.double = request.double
        self.import_s = clock() - began
        self.call: Call | None = None
        self.made: dict[Shape, tuple[Any, ...]] = {}

    def started(self) -> dict[str, Any]:
        """Answer the first request."""
        return {"import_s": self.import_s}

    def export(self) -> dict[str, Any]:
        """Write the case's ONNX model into the folder. The runtime is torch's."""
        import torch

        began = clock()
        case = self.case
        weights = case.made_weights()
        module = case.onnx_module(weights)
        example = tuple(self.runtime.convert(v) for v in case.onnx_example())
        axes = {name: dict(changing) for name, changing in case.onnx_inputs}
        path = self.setting.folder / "model.onnx"
        # The exporter that needs no further package and takes loops and branches (through TorchScript).
        torch.onnx.export(module, example, str(path), dynamo=False, input_names=list(axes), dynamic_axes=axes)
        return {"export_s": clock() - began, "bytes": path.stat().st_size}

    def stream(self, shapes: list[Shape], limit_s: float) -> dict[str, Any]:
        """Build the function, then call it on random shapes, compiling as it goes. Called once, first."""
        case = self.case
        weights = case.made_weights()
        if self.double:
            weights = {name: _doubled(value) for name, value in weights.items()}
        inputs = [self._inputs(shape) for shape in shapes]
        base = _resident("VmRSS")
        _reset_peak()
        finish = self.runtime.finish
        began = clock()
        call = self.call = self.runtime.build(case, weights)
        prepared = clock()
        seconds = []
        for arguments in inputs:
            start = clock()
            finish(call(*arguments))
            end = clock()
            seconds.append(end - start)
            if end - began > limit_s:
                break
        total = clock() - began
        peak = _resident("VmHWM")
        self.runtime.wait(60)
        return {
            "prepare_s": prepared - began,
            "calls_s": seconds,
            "total_s": total,
            "whole": len(seconds) == len(shapes),
            "memory": {"before_mb": base, "peak_mb": peak, "others_mb": _resident_of_children()},
        }

    def settle(self, shapes: list[Shape], seconds: float) -> dict[str, Any]:
        """Call on every shape until nothing is compiled any more. Returns the first call at each shape."""
        assert self.call is not None
        firsts = []
        for shape in shapes:
            start = clock()
            self.runtime.finish(self.call(*self._inputs(shape)))
            firsts.append(clock() - start)
        began = clock()
        for _ in range(4):
            part = clock()
            while clock() - part < seconds / 4:
                for shape in shapes:
                    self.runtime.finish(self.call(*self._inputs(shape)))
                    if clock() - part > seconds / 4:
                        break
            self.runtime.wait(60)
        return {"first_s": firsts, "settle_s": clock() - began}

    def sample(self, shape: Shape) -> agreement.Sample:
        """Return a sample of the result at a shape."""
        if self.call is None:  # the reference
            weights = {name: _doubled(value) for name, value in self.case.made_weights().items()}
            self.call = self.runtime.build(self.case, weights)
        result = self.call(*self._inputs(shape))
        self.runtime.finish(result)
        return agreement.sample([self.runtime.collect(leaf) for leaf in _leaves(result)], sum(shape))

    def time(self, shape: Shape, turn_s: float) -> list[float]:
        """Return the seconds of calls at a shape, as many as fit into a turn, one at least."""
        assert self.call is not None
        call, finish, arguments = self.call, self.runtime.finish, self._inputs(shape)
        start = clock()
        finish(call(*arguments))
        first = clock() - start
        if first > _COLD_S:
            return [first]
        count = max(1, math.ceil(turn_s / max(first, 1e-7)))
        times = []
        for _ in range(min(count, 10_000)):
            start = clock()
            finish(call(*arguments))
            times.append(clock() - start)
        return times

    def describe(self) -> dict[str, Any]:
        """Return what the peer can tell about how it ran."""
        assert self.call is not None
        told = self.runtime.describe(self.call)
        return json.loads(json.dumps(told, default=str))  # type: ignore[no-any-return]

    def _inputs(self, shape: Shape) -> tuple[Any, ...]:
        if shape not in self.made:
            made = self.case.made_inputs(shape)
            if self.double:
                made = tuple(_doubled(v) for v in made)
            self.made[shape] = tuple(self.runtime.convert(v) for v in made)
        return self.made[shape]


def _doubled(value: Any) -> Any:
    return value.astype(np.float64) if isinstance(value, np.ndarray) and value.dtype == np.float32 else value


def _leaves(result: Any) -> list[Any]:
    if isinstance(result, Mapping):
        return [leaf for value in result.values() for leaf in _leaves(value)]
    if isinstance(result, tuple | list):
        return [leaf for value in result for leaf in _leaves(value)]
    return [result]


def _look_up(reference: str) -> Any:
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else "no message"


def _resident(key: str, pid: str = "self") -> float:
    """Megabytes from /proc, 0 where there is none."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0.0
    line = next((x for x in status.splitlines() if x.startswith(f"{key}:")), "x 0")
    return int(line.split()[1]) / 1024


def _reset_peak() -> None:
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        pass  # then the peak is that since the start


def _resident_of_children() -> float:
    """Megabytes at their peak, of the processes this one has started (compile workers)."""
    try:
        pids = " ".join(p.read_text(encoding="ascii") for p in Path("/proc/self/task").glob("*/children")).split()
    except OSError:
        return 0.0
    return sum(_resident("VmHWM", pid) for pid in pids)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

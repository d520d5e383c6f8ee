"""Runs functions on a machine of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tiercel.frontend.python import capture
from tiercel.interp import Decoded, Environment, decode, run
from tiercel.vm import Machine


class Running:
    """A captured function with a machine; called like the function."""

    def __init__(self, function: Callable[..., Any], machine: Machine | None = None, **options: Any) -> None:
        self.program = capture(function, **options).program
        self.decoded: Decoded = decode(self.program, environment=Environment(function.__globals__))
        self.machine = machine or Machine()
        self.hooks = self.machine.hooks()

    def __call__(self, *arguments: Any) -> Any:
        return run(self.decoded, self.decoded.bind(*arguments), hooks=self.hooks)

    @property
    def records(self):
        return self.decoded.watch.entry.records()

    def learned(self) -> list[dict[int, str]]:
        return [s.live_ins for s in self.program.profile.functions[0].signatures]

"""A region graph as text, for people: debugging, golden tests, `explain`.

In: a `Region` (checked or not: a broken one must be readable too). Out: one line per input, step and result, loops and
branches indented. The text is not parsed again.

A value is written `%name`, or `%number` in the order of the text; two of one name are told apart by a number. A
constant or size is written where it is used. `@12` at the end of a line is the instruction at which the interpreter
would go on.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from tiercel.compiler.graph import Branch, Graph, Guard, Input, Loop, Node, Region, Result, Step, Value, is_constant
from tiercel.operators import ALL
from tiercel.operators.types import NoneType

INDENT = "    "


class _Names:
    """The names of values, each used for one value only."""

    def __init__(self) -> None:
        self.of: dict[Value, str] = {}
        self.taken: set[str] = set()
        self.numbers = map(str, itertools.count(1))

    def __call__(self, value: Value) -> str:
        """The name of a value, or the constant it is."""
        if is_constant(value) and value not in self.of:
            return "None" if isinstance(value.type, NoneType) else str(getattr(value.type, "value"))  # noqa: B009
        return f"%{self._name(value)}"

    def defined(self, value: Value) -> str:
        """A value where it is defined: with its type."""
        return f"%{self._name(value)}: {value.type}"

    def _name(self, value: Value) -> str:
        found = self.of.get(value)
        if found is None:
            found = name = value.name or next(self.numbers)
            count = 0
            while found in self.taken:
                count += 1
                found = f"{name}.{count}"
            self.taken.add(found)
            self.of[value] = found
        return found


def region_text(region: Region) -> str:
    """The whole region as text.

    Args:
        region: need not be well formed.

    Returns:
        Lines, the last one ended.
    """
    names = _Names()
    lines = [f"region {region.name}{region.signature}:"]
    lines += [INDENT + _input(given, names) for given in region.inputs]
    lines += _graph(region.graph, INDENT, names)
    for label, results in region.exits.items():
        for register, result in results.items():
            lines.append(INDENT + _exit(label, register, _result(result, names)))
    for write in region.writes:
        given = names(region.inputs[write.index].value)
        lines.append(f"{INDENT}write {given} = {names(write.value)}{'' if write.whole else ' where it differs'}")
    lines += [f"{INDENT}note: {note}" for note in region.notes]
    return "\n".join(lines) + "\n"


def _exit(label: int | str, register: int | str, text: str) -> str:
    if label == register == "return":
        return f"return {text}"
    return f"exit {label}: {register if isinstance(register, str) else f'R[{register}]'} = {text}"


def _input(given: Input, names: _Names) -> str:
    frozen = " frozen" if given.frozen else ""
    return f"input {names.defined(given.value)}{frozen}  # {_source(given.source)}"


def _source(source: tuple[str, Any]) -> str:
    """Where an input comes from: `register 0`, `global w`, `register 0 .weight [2]`."""
    kind, detail = source
    match kind:
        case "attribute" if isinstance(detail, tuple):
            return f"{_source(detail[0])} .{detail[1]}"
        case "item" if isinstance(detail, tuple):
            return f"{_source(detail[0])} [{detail[1]!r}]"
        case "global" | "cell" if isinstance(detail, tuple):
            return f"{kind} {detail[1]}"
    return f"{kind} {detail}"


def _graph(graph: Graph, indent: str, names: _Names) -> list[str]:
    lines = [line for step in graph.steps for line in _step(step, indent, names)]
    return lines or [f"{indent}pass"]


def _step(step: Step, indent: str, names: _Names) -> Iterator[str]:
    inner = indent + INDENT
    match step:
        case Node():
            operands = ", ".join([*map(names, step.inputs), *_attributes(step, names)])
            writes = "" if step.writes is None else f" in the storage of {names(step.inputs[step.writes])}"
            outputs = ", ".join(map(names.defined, step.outputs))
            yield f"{indent}{outputs} = {step.operator}({operands}){writes}  # @{step.origin}"
        case Guard():
            yield f"{indent}guard {names(step.condition)}, {step.reason!r}  # @{step.origin}"
        case Branch():
            yield f"{indent}if {names(step.condition)}:  # @{step.origin}"
            yield from _graph(step.then, inner, names)
            yield f"{indent}else:"
            yield from _graph(step.orelse, inner, names)
            for merged in step.merged:
                then, orelse = names(merged.then), names(merged.orelse)
                where = " in place" if merged.in_place else ""
                yield f"{indent}merge {names.defined(merged.after)} = {then} | {orelse}{where}"
        case Loop():
            for carried in step.carried:
                where = " in place" if carried.in_place else ""
                yield f"{indent}carry {names.defined(carried.inside)} = {names(carried.initial)}{where}"
            if step.header is None:
                counter = "_" if step.index is None else names(step.index)
                trip = names(step.trip) if isinstance(step.trip, Value) else step.trip
                yield f"{indent}for {counter} in 0..{trip}:  # @{step.origin}"
            else:
                yield f"{indent}while:  # @{step.origin}"
                yield from _graph(step.header, inner, names)
                condition = "nothing" if step.condition is None else names(step.condition)
                yield f"{indent}holds {condition}:"
            if step.once is not None:
                yield f"{inner}in the first pass:"
                yield from _graph(step.once, inner + INDENT, names)
            if step.ahead is not None:
                ahead = step.ahead
                yield f"{inner}before passes {ahead.start}..{ahead.start}+{ahead.count}, every {ahead.passes}:"
                yield from _graph(ahead.graph, inner + INDENT, names)
            yield from _graph(step.body, inner, names)
            for carried in step.carried:
                yield f"{inner}next {names(carried.inside)} = {names(carried.next)}"
            for collected in step.collected:
                yield f"{inner}collect {names(collected.inside)}"
            for carried in step.carried:
                yield f"{indent}after {names.defined(carried.after)} = {names(carried.inside)}"
            for collected in step.collected:
                yield f"{indent}after {names.defined(collected.after)} = all {names(collected.inside)}"


def _attributes(node: Node, names: _Names) -> Iterator[str]:
    """The attributes that are not at their defaults, as `name=value`."""
    row = ALL.get(node.operator)
    defaults = {p.name: p.default for p in row.parameters} if row is not None else {}
    for name, value in node.attributes.items():
        if value is None or (name in defaults and type(value) is type(defaults[name]) and value == defaults[name]):
            continue
        yield f"{name}={_data(value, names)}"


def _data(value: Any, names: _Names) -> str:
    match value:
        case Value():
            return names(value)
        case tuple():
            return f"({', '.join(_data(v, names) for v in value)}{',' if len(value) == 1 else ''})"
        case list():
            return f"[{', '.join(_data(v, names) for v in value)}]"
        case Mapping():
            return f"{{{', '.join(f'{k}: {_data(v, names)}' for k, v in value.items())}}}"
        case slice():
            parts = ["" if p is None else _data(p, names) for p in (value.start, value.stop, value.step)]
            return ":".join(parts if parts[2] else parts[:2])
    if value is Ellipsis:
        return "..."
    return repr(value) if isinstance(value, str) else str(value)


def _result(result: Result, names: _Names) -> str:
    match result.what:
        case "none":
            return "None"
        case "constant":
            return repr(result.constant)
        case "input":
            return f"input {result.index}"
        case "either":
            assert result.value is not None
            assert result.tag is not None
            return f"{names(result.value)} or the input numbered {names(result.tag)}"
        case "view":
            of = f"input {result.index}" if result.base is None else names(result.base)
            return f"view of {of}" + ("" if result.value is None else f" ({names(result.value)})")
        case "tuple" | "list":
            items = ", ".join(_result(item, names) for item in result.items)
            if result.what == "list":
                return f"[{items}]"
            wrap = "" if result.wrap < 0 else f"class {result.wrap} "
            return f"{wrap}({items}{',' if len(result.items) == 1 else ''})"
        case "value":
            return "nothing" if result.value is None else names(result.value)

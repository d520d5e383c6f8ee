"""Functions and classes of `tiercel.ops`, made from the operator table.

In: a row and one of its spellings of kind "ops" or "class". Out: a Python function with the row's parameters, defaults
and documentation, or a class whose constructor takes the attributes and whose instances take the operands. Both carry
`__tiercel_op__ = (row name, spelling index)`, by which the frontend knows them.

Invariant: nothing about an operator is written here. Each is made as source text and compiled, because a signature that
Python checks itself costs nothing at a call and gives Python's own messages.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tiercel.operators import ALL
from tiercel.operators.table import PURE, REQUIRED, Effect, Operator, Parameter, Spelling
from tiercel.ops.call import run, run_one, run_writing

__all__ = ["CLASSES", "FUNCTIONS", "Operation", "argument_list", "constructor_arguments", "make_class", "make_function"]

_MODULE: Final = "tiercel.ops"


def _index(kind: str) -> dict[str, tuple[Operator, int]]:
    return {
        spelling.path: (row, index)
        for row in ALL.values()
        for index, spelling in enumerate(row.spellings)
        if spelling.kind == kind
    }


# Public name to (row, spelling index).
FUNCTIONS: Final[Mapping[str, tuple[Operator, int]]] = _index("ops")
CLASSES: Final[Mapping[str, tuple[Operator, int]]] = _index("class")


class Operation:
    """Base of the operator classes: `ops.Split(axis=1, output_num=4)(x)`.

    An instance holds the attributes its constructor was given and never changes; two with equal attributes are equal.
    """

    __slots__: tuple[str, ...] = ()
    __tiercel_op__: tuple[str, int]

    def __call__(self, *operands: Any) -> Any:
        """Apply the operator; subclasses say to what."""
        raise TypeError(f"{type(self).__name__} is the base of the operator classes and applies nothing")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{self!r} is immutable: cannot set {name!r}; construct another one")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{self!r} is immutable: cannot delete {name!r}")

    def _given(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in type(self).__slots__}

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._given() == other._given()

    def __hash__(self) -> int:
        return hash((type(self), *self._given().values()))

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self._given().items())
        return f"{type(self).__name__}({given})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _construct, (type(self).__name__, self._given())

    def __copy__(self) -> Operation:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Operation:
        return self


def _construct(name: str, given: dict[str, Any]) -> Any:
    import tiercel.ops

    return getattr(tiercel.ops, name)(**given)


# ---- functions -------------------------------------------------------------------------------------------------------


def make_function(name: str) -> Callable[..., Any]:
    """Return the function `tiercel.ops.<name>`.

    Args:
        name: a key of `FUNCTIONS`.
    """
    row, index = FUNCTIONS[name]
    spelling = row.spellings[index]
    pairs = call_arguments(row, spelling)
    names: dict[str, Any] = {}
    arguments = argument_list(pairs, names)
    body = _body(row, {p.name: own.removeprefix("*") for own, p in pairs}, spelling.fixed, names)
    function: Callable[..., Any] = _compile(f"def {name}({arguments}):\n{_prologue(pairs, name)}{body}", name, names)
    function.__doc__ = _function_doc(row)
    function.__tiercel_op__ = (row.name, index)  # type: ignore[attr-defined]
    return function


def argument_list(parameters: Sequence[tuple[str, Parameter]], names: dict[str, Any] | None = None) -> str:
    """Return the text between the parentheses of a `def`.

    Args:
        parameters: own name and row parameter, in order; a name with a star takes the remaining positionals.
        names: gets the default values that have no literal form; without it they are written as `...`.
    """
    out = []
    optional = False
    for own, parameter in parameters:
        if own.startswith("*"):
            out.append(own)
        elif not parameter.required:
            optional = True
            out.append(f"{own}={_literal(own, parameter.default, names)}")
        elif optional:
            # Python wants a default here, but there is none: see `_prologue`.
            out.append(f"{own}={_literal(own, REQUIRED, names)}")
        else:
            out.append(own)
    return ", ".join(out)


def _literal(own: str, value: object, names: dict[str, Any] | None) -> str:
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and value - value == 0):
        return repr(value)
    if isinstance(value, tuple) and all(v is None or isinstance(v, bool | int | str) for v in value):
        return repr(value)
    if names is None:
        return "..."
    names[f"_default_{own}"] = value
    return f"_default_{own}"


def _prologue(parameters: Sequence[tuple[str, Parameter]], name: str) -> str:
    """Statements in front of the body: what a signature cannot say."""
    lines = []
    optional = False
    for own, parameter in parameters:
        if own.startswith("*"):
            # As `Operator.bind` has it: a single one stands for itself.
            word = own[1:]
            lines.append(f"    if len({word}) == 1:\n        {word} = {word}[0]\n")
            continue
        optional = optional or not parameter.required
        if optional and parameter.required:
            message = f"{name}() missing the required argument {own!r}"
            lines.append(f"    if {own} is _default_{own}:\n        raise TypeError({message!r})\n")
    return "".join(lines)


def _body(row: Operator, sources: Mapping[str, str], fixed: Mapping[str, object], names: dict[str, Any]) -> str:
    """The statement that runs a row; `sources` gives the expression for each row parameter."""
    names["_reference"] = row.reference
    expressions: dict[str, str] = {}
    for parameter in row.parameters:
        name = parameter.name
        if name in sources:
            expressions[name] = sources[name]
        elif name in fixed:
            expressions[name] = _literal(f"fixed_{name}", fixed[name], names)
        elif not parameter.required:
            expressions[name] = _literal(name, parameter.default, names)
        else:
            raise ValueError(f"operator {row.name}: no value for the required parameter {name!r}")
    operands = [expressions[p.name] for p in row.parameters[: row.arity]]
    operand_tuple = f"({''.join(o + ', ' for o in operands)})"
    attributes = [f"{p.name!r}: {expressions[p.name]}" for p in row.parameters[row.arity :]]
    if row.effect != PURE:
        written = row.effect.operands if isinstance(row.effect, Effect) else tuple(range(row.arity))
        names["_run"], names["_written"] = run_writing, written
        return f"    return _run(_reference, {operand_tuple}, {{{', '.join(attributes)}}}, _written)\n"
    if len(operands) == 1 and not attributes:
        names["_run"] = run_one
        return f"    return _run(_reference, {operands[0]})\n"
    names["_run"] = run
    return f"    return _run(_reference, {operand_tuple}, {{{', '.join(attributes)}}})\n"


def _compile(source: str, name: str, names: dict[str, Any]) -> Any:
    filename = f"<{_MODULE}.{name}>"
    names["__name__"] = _MODULE
    exec(compile(source, filename, "exec"), names)
    # So that tracebacks and `inspect.getsource` show it.
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    made = names.pop(name)
    made.__module__ = _MODULE
    return made


def _function_doc(row: Operator) -> str:
    lines = [_sentence(row.doc), ""]
    same = [str(s) for s in row.spellings if s.kind in ("function", "method", "syntax", "property")]
    if same:
        lines += [f"Also written {', '.join(same)}.", ""]
    lines += ["Args:", *(f"    {p.name}: {_role(p)}" for p in row.parameters), ""]
    lines += ["Returns:", f"    {_RESULTS[row.container]}; {_exactness(row)}.", ""]
    if row.may_fail:
        from tiercel.operators.table import FAILURES

        lines += ["Raises:", *(f"    {FAILURES[f]}." for f in row.may_fail), ""]
    return "\n".join(lines)


_RESULTS: Final[dict[str | None, str]] = {
    None: "an array or scalar, of the operands' kind (torch, Tensor, else NumPy)",
    "tuple": "a tuple of arrays or scalars, of the operands' kind (torch, Tensor, else NumPy)",
    "list": "a list of arrays, of the operands' kind (torch, Tensor, else NumPy)",
}


def _role(parameter: Parameter) -> str:
    match parameter.role:
        case "operand":
            return "an array or scalar" + ("" if parameter.required else ", or None")
        case "operands":
            return "a list or tuple of arrays"
        case _:
            return "required" if parameter.required else f"default {parameter.default!r}"


def _exactness(row: Operator) -> str:
    match row.exactness.kind:
        case "exact":
            return "compiled code gives the same bits"
        case "bounded":
            return f"compiled code is within {row.exactness.ulp:g} units in the last place"
        case _:
            return "compiled code may add up in another order"


def _sentence(text: str) -> str:
    return text if text.endswith(".") else text + "."


# ---- classes ---------------------------------------------------------------------------------------------------------


def constructor_arguments(row: Operator, spelling: Spelling) -> list[tuple[str, Parameter]]:
    """Own name and row parameter of each constructor argument, in order."""
    by_name = {p.name: p for p in row.parameters}
    own_names = {target: own for own, target in spelling.keywords.items()}
    return [(own_names.get(target, target), by_name[target]) for target in spelling.constructor if target[0] != "!"]


def call_arguments(row: Operator, spelling: Spelling) -> list[tuple[str, Parameter]]:
    """Own name and row parameter of each argument of a call, in order; a name with a star takes the remaining ones."""
    by_name = {p.name: p for p in row.parameters}
    # The keywords of a class are its constructor's.
    own_names = {} if spelling.kind == "class" else {target: own for own, target in spelling.keywords.items()}
    out = [
        (own_names.get(word, word), by_name[word.removeprefix("*")]) for word in spelling.parameters if word[0] != "!"
    ]
    known = {p.name for _, p in out}
    return out + [(own, by_name[target]) for target, own in own_names.items() if target not in known]


def make_class(name: str) -> type[Operation]:
    """Return the class `tiercel.ops.<name>`.

    Args:
        name: a key of `CLASSES`.
    """
    row, index = CLASSES[name]
    spelling = row.spellings[index]
    constructed = constructor_arguments(row, spelling)
    called = call_arguments(row, spelling)
    names: dict[str, Any] = {"_Operation": Operation, "_set": object.__setattr__}
    # An own name that a call operand has as well would hide it in the body.
    sources = {p.name: f"self.{own}" for own, p in constructed}
    sources.update({p.name: own.removeprefix("*") for own, p in called})
    lines = [f"class {name}(_Operation):", f"    __slots__ = ({''.join(f'{own!r}, ' for own, _ in constructed)})"]
    if constructed:
        lines += [f"    def __init__(self, {argument_list(constructed, names)}):"]
        lines += _indent(_prologue(constructed, name))
        lines += [f"        _set(self, {own!r}, {own})" for own, _ in constructed]
    else:
        # One instance is as good as another: making one is a look-up.
        lines += ["    def __new__(cls):", "        return _instance if cls is _class else _new(cls)"]
    arguments = argument_list(called, names)
    lines += [f"    def __call__(self{', ' if arguments else ''}{arguments}):"]
    lines += _indent(_prologue(called, name))
    lines += _indent(_body(row, sources, spelling.fixed, names))
    made: type[Operation] = _compile("\n".join(lines) + "\n", name, names)
    made.__doc__ = _class_doc(row, name, constructed, called)
    made.__tiercel_op__ = (row.name, index)
    if not constructed:
        names["_new"] = object.__new__
        names["_class"] = made
        names["_instance"] = object.__new__(made)
    return made


def _indent(text: str) -> list[str]:
    return ["    " + line for line in text.splitlines()]


def _class_doc(
    row: Operator, name: str, constructed: Sequence[tuple[str, Parameter]], called: Sequence[tuple[str, Parameter]]
) -> str:
    form = f"{name}({argument_list(constructed)})({', '.join(own for own, _ in called)})"
    lines = [
        _sentence(row.doc),
        "",
        f"`{form}`; the function is `ops.{row.name}`.",
        "",
    ]
    if constructed:
        lines += ["Args:", *(f"    {own}: {_role(p)}" for own, p in constructed), ""]
    return "\n".join(lines)

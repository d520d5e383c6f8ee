"""`Cell`: a module class with parameters, sub-cells and a `construct` method that may be jitted.

In: a subclass that assigns Parameters, Cells and anything else in `__init__` and defines `construct`. Out: an object
that is called like its `construct` and lists, saves and loads its parameters.

Attributes live in `__dict__` alone: being assigned is being registered, in that order, and a list, tuple or dict of
cells or parameters counts as well. Invariant: each assignment or deletion of an attribute gives the cell a version it
never had before, so compiled code that read attributes checks one number. (Changing a list held by a cell in place is
not an assignment.) A cell is known by `__tiercel_cell__`, the name of the method that a call runs; a `__call__` made
here carries it too, so that calls inside jitted code go straight to that method.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import numpy as np
import numpy.typing as npt

from tiercel.errors import ShapeError, suggest
from tiercel.values import Parameter, Tensor, unwrap

__all__ = ["Cell"]

# One counter for all cells: `next` is atomic, so two threads never give out one version twice.
_versions: Final = itertools.count(1)
_VERSION: Final = "_version"


class Cell:
    """Base class of modules.

    Subclasses assign their parts in `__init__` and define `construct`; calling the cell calls it.

    Attributes:
        training: True at first; `train()` and `eval()` set it here and in all sub-cells.
    """

    __tiercel_cell__: ClassVar[str] = "construct"
    # An attribute whose elements are named by their key alone: "0.weight", not "items.0.weight".
    _unnamed: ClassVar[str | None] = None

    training: bool
    _version: int

    def __new__(cls, *args: Any, **keywords: Any) -> Self:
        """Prepare the instance, so that a subclass that forgets `super().__init__()` still works."""
        self = super().__new__(cls)
        self.__dict__["training"] = True
        self.__dict__[_VERSION] = next(_versions)
        return self

    def __init__(self) -> None:
        super().__init__()

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Give the class a `__call__` with the signature of its `construct`."""
        super().__init_subclass__(**keywords)
        construct = cls.__dict__.get("construct")
        if construct is None or not hasattr(cls.__call__, "__tiercel_cell__"):
            # Somebody's own `__call__`, here or in a base class, stays.
            return

        def __call__(self: Cell, /, *args: Any, **more: Any) -> Any:  # noqa: N807
            return self.construct(*args, **more)

        __call__.__doc__ = construct.__doc__
        __call__.__module__ = cls.__module__
        __call__.__qualname__ = f"{cls.__qualname__}.__call__"
        try:
            __call__.__signature__ = inspect.signature(construct)  # type: ignore[attr-defined]
        except (TypeError, ValueError):
            pass
        __call__.__tiercel_cell__ = cls.__tiercel_cell__  # type: ignore[attr-defined]
        cls.__call__ = __call__  # type: ignore[assignment,method-assign]

    if TYPE_CHECKING:
        # A method or a jitted method, of any parameters: subclasses do not keep to one signature.
        construct: Any
    else:

        def construct(self, *args: Any, **keywords: Any) -> Any:
            """What calling the cell does; every subclass that is called defines it."""
            raise NotImplementedError(f"{type(self).__name__} defines no construct(); a Cell is called through it")

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Call `construct`."""
        return self.construct(*args, **keywords)

    # ---- attributes --------------------------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Parameter):
            if value.name is None:
                value.name = name
        elif value is not None and isinstance(self.__dict__.get(name), Parameter):
            raise TypeError(
                f"{type(self).__name__}.{name} is a Parameter, and a {type(value).__name__} would take its place; "
                f"write into it with cell.{name}.assign(value), or wrap the value in tc.Parameter(...)"
            )
        try:
            super().__setattr__(name, value)
        finally:
            self.__dict__[_VERSION] = next(_versions)

    def __delattr__(self, name: str) -> None:
        try:
            super().__delattr__(name)
        finally:
            self.__dict__[_VERSION] = next(_versions)

    @property
    def version(self) -> int:
        """A number that every assignment to an attribute changes."""
        return self._version

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != _VERSION}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__dict__[_VERSION] = next(_versions)

    # ---- parts -------------------------------------------------------------------------------------------------------

    def named_cells(self, prefix: str = "") -> Iterator[tuple[str, Cell]]:
        """Go through this cell (under the name `prefix`) and all cells in it, each once, depth first."""
        return _cells(self, prefix, set())

    def cells(self) -> Iterator[Cell]:
        """Go through this cell and all cells in it, each once."""
        return (cell for _, cell in self.named_cells())

    def children(self) -> Iterator[tuple[str, Cell]]:
        """Go through the cells that are attributes of this one (or in a list, tuple or dict that is)."""
        return ((name, part) for name, part in _parts(self) if isinstance(part, Cell))

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """Go through all parameters with their dotted names; one that is shared appears once, under its first name."""
        seen: set[int] = set()
        for path, cell in self.named_cells(prefix):
            for name, part in _parts(cell):
                if isinstance(part, Parameter) and id(part) not in seen:
                    seen.add(id(part))
                    yield (f"{path}.{name}" if path else name), part

    def parameters(self) -> Iterator[Parameter]:
        """Go through all parameters, each once."""
        return (parameter for _, parameter in self.named_parameters())

    def trainable_parameters(self) -> Iterator[Parameter]:
        """Go through the parameters with `requires_grad`."""
        return (parameter for parameter in self.parameters() if parameter.requires_grad)

    # ---- modes -------------------------------------------------------------------------------------------------------

    def train(self, mode: bool = True) -> Self:
        """Set `training` here and in all cells in this one, and return the cell."""
        for cell in self.cells():
            cell.training = bool(mode)
        return self

    def eval(self) -> Self:
        """The same as `train(False)`."""
        return self.train(False)

    # ---- saving and loading ------------------------------------------------------------------------------------------

    def state_dict(self, prefix: str = "") -> dict[str, npt.NDArray[Any]]:
        """Return a copy of every parameter by its dotted name: `np.savez("w.npz", **cell.state_dict())`."""
        return {name: np.array(parameter, copy=True) for name, parameter in self.named_parameters(prefix)}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> tuple[list[str], list[str]]:
        """Write saved values into the parameters. Nothing is written unless everything fits.

        Args:
            state: arrays, Tensors or torch tensors by dotted name; dtypes may change within their kind.
            strict: whether names that are missing or not known are errors.

        Returns:
            The names of parameters without a value, and of values without a parameter.

        Raises:
            KeyError: names differ, and `strict`.
            ShapeError: a value has another shape.
            TypeError: a value's dtype does not convert within its kind.
        """
        parameters = dict(self.named_parameters())
        missing = [name for name in parameters if name not in state]
        unexpected = [name for name in state if name not in parameters]
        if strict and (missing or unexpected):
            lines = [f"no value for {name!r}{suggest(name, unexpected)}" for name in missing]
            lines += [f"{name!r} is no parameter" for name in unexpected]
            raise KeyError(f"state does not fit {type(self).__name__}: " + "; ".join(lines))
        values = {}
        for name, parameter in parameters.items():
            if name not in state:
                continue
            value = np.asarray(unwrap(state[name]))
            if value.shape != parameter.shape:
                raise ShapeError(f"{name}: expected shape {parameter.shape}, got {value.shape}")
            if not np.can_cast(value.dtype, parameter.dtype.numpy, casting="same_kind"):
                raise TypeError(f"{name}: expected {parameter.dtype}, got {value.dtype}, which is of another kind")
            values[name] = value
        for name, value in values.items():
            parameters[name].assign(value)
        return missing, unexpected

    # ---- text --------------------------------------------------------------------------------------------------------

    def extra_repr(self) -> str:
        """Return what the first line of `repr` says between the parentheses; subclasses say their sizes."""
        return ""

    def __repr__(self) -> str:
        return _text(self, set())


Cell.__call__.__tiercel_cell__ = Cell.__tiercel_cell__  # type: ignore[attr-defined]


def _parts(cell: Cell) -> Iterator[tuple[str, Parameter | Cell]]:
    """The parameters and cells among a cell's attributes, and in the lists, tuples and dicts among them."""
    for name, value in cell.__dict__.items():
        yield from _parts_in("" if name == cell._unnamed else name, value, ())


def _parts_in(name: str, value: Any, inside: tuple[int, ...]) -> Iterator[tuple[str, Parameter | Cell]]:
    if isinstance(value, Parameter | Cell):
        yield name, value
    elif isinstance(value, list | tuple | dict) and id(value) not in inside:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from _parts_in(f"{name}.{key}" if name else str(key), item, (*inside, id(value)))


def _cells(cell: Cell, path: str, seen: set[int]) -> Iterator[tuple[str, Cell]]:
    if id(cell) in seen:
        return
    seen.add(id(cell))
    yield path, cell
    for name, child in cell.children():
        yield from _cells(child, f"{path}.{name}" if path else name, seen)


def _text(cell: Cell, inside: set[int]) -> str:
    head = f"{type(cell).__name__}({cell.extra_repr()}"
    if id(cell) in inside:
        return f"{type(cell).__name__}(...)"
    lines = []
    for name, part in _parts(cell):
        if isinstance(part, Cell):
            body = _text(part, inside | {id(cell)}).replace("\n", "\n  ")
            lines.append(f"  {name}: {body}")
        else:
            lines.append(f"  {name}: {_describe(part)}")
    return head + "".join(f"\n{line}" for line in lines) + ("\n)" if lines else ")")


def _describe(tensor: Tensor) -> str:
    return f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]"

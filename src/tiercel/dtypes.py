"""The dtype lattice: fifteen element types, how they combine, and what a Python scalar adds to them.

In: anything that names an element type (`as_dtype`), or the operands of an operation (`promote_types`,
`result_type`). Out: one of the interned `DType` objects below, or a `DTypeError` that says what is accepted.

Invariant: for every combination that NumPy has an answer for, the answer here is NumPy's (it is asked once and the
answer kept), so a typed program and the interpreter cannot disagree. A `DType` equals, and hashes like, its
`np.dtype`, and NumPy takes it wherever it takes a dtype: `np.zeros(3, tc.float32)`.

bfloat16 comes from `ml_dtypes`, which NumPy sees as a foreign type and treats in two ways: `np.promote_types` refuses
bfloat16 with float16 and with integers wider than 8 bits, while ufuncs compute those pairs in float32 or float64 and
a Python float widens bfloat16 to float32. Arithmetic counts: `promote_types` and `result_type` give the dtype that
`a + b` has, and `has_common_dtype` tells whether NumPy also joins the two (concatenate, where).

Why not plain `np.dtype`: it has no kind for bfloat16 ('V'), no accumulator, and admits byte orders, structures and
objects that no kernel handles.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar, Final, Literal, TypeAlias, final

import ml_dtypes
import numpy as np

from tiercel.errors import DTypeError, suggest

__all__ = [
    "COMPLEX",
    "DTYPES",
    "FLOATS",
    "INTEGERS",
    "DType",
    "DTypeLike",
    "Kind",
    "Weak",
    "WeakComplex",
    "WeakFloat",
    "WeakInt",
    "as_dtype",
    "bfloat16",
    "bool_",
    "check_int_range",
    "complex64",
    "complex128",
    "default_dtype",
    "float16",
    "float32",
    "float64",
    "from_code",
    "has_common_dtype",
    "int8",
    "int16",
    "int32",
    "int64",
    "is_dtype",
    "promote_types",
    "result_type",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "weak_of",
]

Kind: TypeAlias = Literal["b", "i", "u", "f", "c"]


@final
class DType:
    """An element type. There is one object per type: compare with `is` or `==`, use as a dictionary key freely.

    Attributes:
        name: NumPy's name of the type: "float32".
        kind: 'b' bool, 'i' signed, 'u' unsigned, 'f' real floating (bfloat16 included), 'c' complex.
        itemsize: bytes of one element.
        numpy: the native-order `np.dtype`.
        code: a small number for file formats; never changes for a name.
    """

    __slots__ = ("_hash", "code", "itemsize", "kind", "name", "numpy")

    name: str
    kind: Kind
    itemsize: int
    numpy: np.dtype[Any]
    code: int
    _hash: int

    def __init__(self) -> None:
        raise TypeError("DType objects are fixed; use tiercel.dtypes.as_dtype(...) to get one")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{self!r} is immutable: cannot set {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{self!r} is immutable: cannot delete {name!r}")

    @property
    def dtype(self) -> np.dtype[Any]:
        """The `np.dtype`; NumPy reads this attribute wherever it accepts a dtype."""
        return self.numpy

    # NumPy >= 2.4 looks here first.
    __numpy_dtype__ = dtype

    @property
    def scalar_type(self) -> type[Any]:
        """The NumPy scalar type, for example `np.float32`."""
        return self.numpy.type

    @property
    def bits(self) -> int:
        """Bits of one element as stored (8 for bool)."""
        return self.itemsize * 8

    @property
    def is_bool(self) -> bool:
        """Whether this is bool."""
        return self.kind == "b"

    @property
    def is_integer(self) -> bool:
        """Whether this is a signed or unsigned integer (bool is not)."""
        return self.kind in "iu"

    @property
    def is_signed(self) -> bool:
        """Whether negative values exist."""
        return self.kind in "ifc"

    @property
    def is_float(self) -> bool:
        """Whether this is a real floating type."""
        return self.kind == "f"

    @property
    def is_complex(self) -> bool:
        """Whether this is a complex type."""
        return self.kind == "c"

    @property
    def is_inexact(self) -> bool:
        """Whether this is a real or complex floating type."""
        return self.kind in "fc"

    @property
    def is_half(self) -> bool:
        """Whether this is one of the two 16-bit floating types, which accumulate in float32."""
        return self.kind == "f" and self.itemsize == 2

    @property
    def accumulator(self) -> DType:
        """The type in which sums of products are kept: float32 for float16 and bfloat16, else the type itself."""
        return float32 if self.is_half else self

    @property
    def real(self) -> DType:
        """The type of the real part: float32 for complex64, float64 for complex128, else the type itself."""
        if self.kind != "c":
            return self
        return float32 if self.itemsize == 8 else float64

    @property
    def complex(self) -> DType:
        """The smallest complex type that holds this type: what `x + 1j` has."""
        return promote_types(self, complex64)

    @property
    def finfo(self) -> Any:
        """`np.finfo` of a floating or complex type (`ml_dtypes.finfo` for bfloat16).

        Raises:
            DTypeError: for bool and integers.
        """
        if self.kind not in "fc":
            raise DTypeError(f"{self.name} is not a floating dtype and has no finfo; iinfo describes integers")
        if self is bfloat16:
            return ml_dtypes.finfo(self.numpy)  # type: ignore[no-untyped-call]
        return np.finfo(self.numpy)

    @property
    def iinfo(self) -> np.iinfo[Any]:
        """`np.iinfo` of an integer type.

        Raises:
            DTypeError: for bool, floating and complex types.
        """
        if self.kind not in "iu":
            raise DTypeError(f"{self.name} is not an integer dtype and has no iinfo; finfo describes floating types")
        return np.iinfo(self.numpy)

    @property
    def min(self) -> Any:
        """Smallest finite value, as a Python bool, int or float."""
        return _bounds(self)[0]

    @property
    def max(self) -> Any:
        """Largest finite value, as a Python bool, int or float."""
        return _bounds(self)[1]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DType):
            return self is other
        if isinstance(other, np.dtype):
            return bool(self.numpy == other)
        # What np.dtype compares equal to as well: "float32", np.float32, float.
        if isinstance(other, str | type):
            return _lookup(other) is self
        return NotImplemented

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"tiercel.{self.name}"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Callable[[object], DType], tuple[str]]:
        return as_dtype, (self.name,)

    def __copy__(self) -> DType:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> DType:
        return self


DTypeLike: TypeAlias = "DType | np.dtype[Any] | type[Any] | str"


def _make(name: str, kind: Kind, code: int, numpy: np.dtype[Any]) -> DType:
    self = object.__new__(DType)
    for slot, value in (
        ("name", name),
        ("kind", kind),
        ("code", code),
        ("numpy", numpy),
        ("itemsize", numpy.itemsize),
        ("_hash", hash(numpy)),
    ):
        object.__setattr__(self, slot, value)
    return self


# The table. Codes are written to files: append, never renumber.
bool_: Final = _make("bool", "b", 0, np.dtype(np.bool_))
int8: Final = _make("int8", "i", 1, np.dtype(np.int8))
int16: Final = _make("int16", "i", 2, np.dtype(np.int16))
int32: Final = _make("int32", "i", 3, np.dtype(np.int32))
int64: Final = _make("int64", "i", 4, np.dtype(np.int64))
uint8: Final = _make("uint8", "u", 5, np.dtype(np.uint8))
uint16: Final = _make("uint16", "u", 6, np.dtype(np.uint16))
uint32: Final = _make("uint32", "u", 7, np.dtype(np.uint32))
uint64: Final = _make("uint64", "u", 8, np.dtype(np.uint64))
float16: Final = _make("float16", "f", 9, np.dtype(np.float16))
bfloat16: Final = _make("bfloat16", "f", 10, np.dtype(ml_dtypes.bfloat16))
float32: Final = _make("float32", "f", 11, np.dtype(np.float32))
float64: Final = _make("float64", "f", 12, np.dtype(np.float64))
complex64: Final = _make("complex64", "c", 13, np.dtype(np.complex64))
complex128: Final = _make("complex128", "c", 14, np.dtype(np.complex128))

DTYPES: Final[tuple[DType, ...]] = (
    bool_,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
    float16,
    bfloat16,
    float32,
    float64,
    complex64,
    complex128,
)
INTEGERS: Final = tuple(d for d in DTYPES if d.is_integer)
FLOATS: Final = tuple(d for d in DTYPES if d.is_float)
COMPLEX: Final = tuple(d for d in DTYPES if d.is_complex)

_BY_NAME: Final = {d.name: d for d in DTYPES}
_BY_NUMPY: Final = {d.numpy: d for d in DTYPES}
_BY_CODE: Final = {d.code: d for d in DTYPES}
_BY_TYPE: Final[dict[type, DType]] = {
    bool: bool_,
    int: int64,
    float: float64,
    complex: complex128,
    **{d.numpy.type: d for d in DTYPES},
}


class Weak:
    """A Python scalar among the operands of `result_type`: it has a kind but no width of its own (NEP 50).

    Pass the subclass itself, or an instance without a value, where the value is not known yet; with a value the range
    is checked as NumPy checks it. A Python bool is not weak: it is an ordinary bool operand.
    """

    __slots__ = ("value",)
    kind: ClassVar[Kind]

    def __init__(self, value: object = None) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'' if self.value is None else repr(self.value)})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Weak) and self.value == other.value

    def __hash__(self) -> int:
        return hash((type(self), self.value))


@final
class WeakInt(Weak):
    """A Python int operand."""

    __slots__ = ()
    kind = "i"


@final
class WeakFloat(Weak):
    """A Python float operand."""

    __slots__ = ()
    kind = "f"


@final
class WeakComplex(Weak):
    """A Python complex operand."""

    __slots__ = ()
    kind = "c"


_WEAK_TYPES: Final[dict[type, type[Weak]]] = {int: WeakInt, float: WeakFloat, complex: WeakComplex}


class _IntSubclass(int):
    pass


# Older releases of NumPy 2 take an IntEnum for a weak int, newer ones for an array of the default dtype.
_SUBCLASSES_ARE_WEAK: Final = bool(np.result_type(np.uint8, _IntSubclass(1)) == np.uint8)

# What stands for a weak operand when NumPy is asked for the result.
_WEAK_PROBE: Final[dict[str, int | float | complex]] = {"i": 1, "f": 1.0, "c": 1j}
# Position 0 is no weak operand at all.
_WEAK_ORDER: Final = " ifc"
_WEAK_DEFAULT: Final = {"i": int64, "f": float64, "c": complex128}


def as_dtype(x: object) -> DType:
    """Return the `DType` that `x` names.

    Args:
        x: a `DType`; a native-order `np.dtype`; a NumPy or Python scalar type (`np.float32`, `float`); a name as NumPy
            spells it ("float32", "f4", "bfloat16"); a torch dtype.

    Raises:
        DTypeError: `x` names no type, or one that Tiercel does not have (other byte orders, structures, objects,
            strings, dates, long double).
    """
    if isinstance(x, DType):
        return x
    found = _lookup(x)
    if found is not None:
        return found
    raise DTypeError(_explain_unknown(x))


def is_dtype(x: object) -> bool:
    """Whether `as_dtype(x)` would succeed."""
    return isinstance(x, DType) or _lookup(x) is not None


def from_code(code: int) -> DType:
    """Return the `DType` with this file-format code.

    Raises:
        DTypeError: no dtype has the code.
    """
    found = _BY_CODE.get(code)
    if found is None:
        raise DTypeError(f"no dtype has the code {code}; codes are 0 to {max(_BY_CODE)}")
    return found


def _lookup(x: object) -> DType | None:
    if isinstance(x, np.dtype):
        return _BY_NUMPY.get(x)
    if isinstance(x, type):
        # np.longlong is a type of its own, with the dtype of np.int64.
        return _BY_TYPE.get(x) or (_lookup_spelling(x.__name__) if issubclass(x, np.integer) else None)
    if isinstance(x, str):
        return _BY_NAME.get(x) or _lookup_spelling(x)
    # torch is recognised by name so that it need not be importable.
    if type(x).__module__ == "torch" and type(x).__name__ == "dtype":
        return _BY_NAME.get(str(x).removeprefix("torch."))
    return None


@functools.lru_cache(maxsize=256)
def _lookup_spelling(name: str) -> DType | None:
    # Commas and digits in front would make np.dtype read a structure.
    if len(name) > 32 or "," in name:
        return None
    try:
        return _BY_NUMPY.get(np.dtype(name))
    except (TypeError, ValueError):
        return None


_ABSTRACT: Final = (
    *(np.generic, np.number, np.integer, np.signedinteger, np.unsignedinteger),
    *(np.inexact, np.floating, np.complexfloating, np.flexible, np.character),
)


def _explain_unknown(x: object) -> str:
    accepted = f"Tiercel's dtypes are {', '.join(_BY_NAME)}"
    if isinstance(x, str):
        try:
            x = np.dtype(x)
        except (TypeError, ValueError):
            near = suggest(_expand_short_name(str(x)), list(_BY_NAME))
            return f"{x!r} names no dtype{f'{near} ' if near else '; '}{accepted}"
    if isinstance(x, type) and issubclass(x, np.generic):
        if x in _ABSTRACT:
            return f"{x!r} is an abstract NumPy type and names no single dtype; {accepted}"
        x = np.dtype(x)
    if isinstance(x, np.dtype):
        if x.fields is not None or x.subdtype is not None:
            return f"structured dtype {x} is not supported: give each field an array of its own; {accepted}"
        native = x.newbyteorder("=")
        if native in _BY_NUMPY:
            return f"dtype {x.str!r} has the other byte order; convert with a.astype({native.name!r}); {accepted}"
        return f"NumPy dtype {x} is not supported; {accepted}"
    if hasattr(x, "dtype"):
        return f"expected a dtype, got a value of type {type(x).__name__}; pass its .dtype; {accepted}"
    return f"expected a dtype, got {x!r} of type {type(x).__name__}; {accepted}"


_SHORT_NAMES: Final = (("bf", "bfloat"), ("fp", "float"), ("f", "float"), ("u", "uint"), ("i", "int"), ("c", "complex"))


def _expand_short_name(name: str) -> str:
    lowered = name.lower().strip()
    for short, long in _SHORT_NAMES:
        if lowered.startswith(short) and lowered[len(short) :].isdigit():
            return long + lowered[len(short) :]
    return lowered


def default_dtype(value: object) -> DType:
    """Return the dtype of `np.asarray(value)` for one Python or NumPy scalar.

    Raises:
        DTypeError: the array would have a dtype Tiercel does not have (an int beyond 64 bits, a string, an object).
    """
    exact = _BY_TYPE.get(type(value))
    if exact is not None and exact is not int64:
        return exact
    return as_dtype(np.asarray(value).dtype)


def weak_of(value: object) -> Weak | None:
    """Return the weak operand that a Python scalar is, or None if it is not one.

    Bools and NumPy scalars are not; whether subclasses such as `IntEnum` are is for the installed NumPy to say.
    """
    kind = _weak_kind(value)
    return kind(value) if kind is not None else None


def _weak_kind(value: object) -> type[Weak] | None:
    kind = _WEAK_TYPES.get(type(value))
    if kind is None and _SUBCLASSES_ARE_WEAK and not isinstance(value, bool | np.generic):
        return next((weak for python, weak in _WEAK_TYPES.items() if isinstance(value, python)), None)
    return kind


@functools.cache
def _promote(a: DType, b: DType) -> DType:
    if a is b:
        return a
    if has_common_dtype(a, b):
        return _BY_NUMPY[np.promote_types(a.numpy, b.numpy)]
    return _added(a, np.ones(1, b.numpy))


def _added(a: DType, b: Any) -> DType:
    """The dtype NumPy adds in; asked by adding, because type resolution knows nothing of ml_dtypes' loops."""
    return _BY_NUMPY[(np.ones(1, a.numpy) + b).dtype]


def promote_types(a: object, b: object) -> DType:
    """Return the dtype that an operation on arrays of dtypes `a` and `b` computes in.

    `np.promote_types` for every pair it accepts; for bfloat16 with float16 or with integers wider than 8 bits, where it
    raises, the dtype that NumPy's ufuncs give (float32 with 16-bit types, float64 with wider integers).

    Args:
        a, b: anything `as_dtype` accepts.
    """
    return _promote(as_dtype(a), as_dtype(b))


@functools.cache
def _has_common(a: DType, b: DType) -> bool:
    try:
        np.promote_types(a.numpy, b.numpy)
    except TypeError:
        return False
    return True


def has_common_dtype(a: object, b: object) -> bool:
    """Whether NumPy joins arrays of the two dtypes (`np.concatenate`, `np.where`), not only computes with them."""
    return _has_common(as_dtype(a), as_dtype(b))


def result_type(*operands: object, check: bool = True) -> DType:
    """Return the dtype of an arithmetic operation on `operands`, as NumPy 2 (NEP 50) gives it.

    Args:
        operands: dtypes (anything `as_dtype` accepts); arrays and NumPy scalars, by their dtype; Python ints, floats
            and complex numbers, which are weak; `Weak` objects or classes. Python bools count as bool.
        check: whether a Python int must fit the result. NumPy checks it in arithmetic but not in comparisons.

    Raises:
        OverflowError: a Python int does not fit the result's dtype; the message is NumPy's.
        DTypeError: an operand has no dtype of Tiercel's.
        ValueError: no operands, as in NumPy.
    """
    if not operands:
        raise ValueError("at least one array or dtype is required")
    strong: list[DType] = []
    weak = " "
    ints: list[int] = []
    for x in operands:
        if isinstance(x, DType):
            strong.append(x)
            continue
        kind, value = _classify(x)
        if isinstance(kind, DType):
            strong.append(kind)
        else:
            weak = max(weak, kind, key=_WEAK_ORDER.find)
            if isinstance(value, int):
                ints.append(value)
    result = _combine(tuple(strong), weak)
    if not strong and len(operands) == 1 and ints:
        # A lone Python int is the array NumPy makes of it: uint64 between 2**63 and 2**64.
        return default_dtype(ints[0])
    if check:
        for value in ints:
            check_int_range(value, result)
    return result


def check_int_range(value: int, dtype: DType) -> None:
    """Raise NumPy's OverflowError if a Python int cannot be an operand of an operation of this dtype.

    Args:
        value: the Python int.
        dtype: the dtype of the operation.
    """
    if dtype.kind in "iu":
        low, high = _bounds(dtype)
        if not low <= value <= high:
            dtype.numpy.type(value)  # raises, with NumPy's own message
            raise OverflowError(f"Python integer {value} out of bounds for {dtype.name}")
    elif dtype.kind in "fc":
        float(value)  # "int too large to convert to float", as NumPy has it


def _classify(x: object) -> tuple[DType, None] | tuple[str, object]:
    weak = _weak_kind(x)
    if weak is not None:
        return weak.kind, x
    if isinstance(x, np.ndarray):
        return as_dtype(x.dtype), None
    if isinstance(x, Weak):
        return x.kind, x.value
    if isinstance(x, type) and issubclass(x, Weak):
        return x.kind, None
    found = _lookup(x)
    if found is not None:
        return found, None
    own = getattr(x, "dtype", None)
    if own is not None:
        return as_dtype(own), None
    if isinstance(x, int | float | complex):  # bool, and subclasses of the others: NumPy makes an array of them
        return default_dtype(x), None
    raise DTypeError(_explain_unknown(x))


@functools.lru_cache(maxsize=4096)
def _combine(strong: tuple[DType, ...], weak: str) -> DType:
    if not strong:
        return _WEAK_DEFAULT[weak]
    if bfloat16 not in strong:
        # Not a fold over pairs: NumPy gives float32 for (int16, uint16, float32), a fold float64.
        probes = [_WEAK_PROBE[weak]] if weak in _WEAK_PROBE else []
        return _BY_NUMPY[np.result_type(*(d.numpy for d in strong), *probes)]
    try:
        result = _BY_NUMPY[np.result_type(*(d.numpy for d in strong))]
    except TypeError:
        others = tuple(d for d in strong if d is not bfloat16)
        result = _promote(bfloat16, _combine(others, " "))
    if result is bfloat16:
        # Scalars are weak for NumPy's own dtypes only: with a Python float this is float32.
        return _added(bfloat16, _WEAK_PROBE[weak]) if weak in _WEAK_PROBE else bfloat16
    return _combine((result,), weak)


@functools.cache
def _bounds(dtype: DType) -> tuple[Any, Any]:
    if dtype.kind == "b":
        return False, True
    if dtype.kind in "iu":
        info = dtype.iinfo
        return int(info.min), int(info.max)
    limits = dtype.finfo
    return float(limits.min), float(limits.max)

"""Constructors of rows that share most columns: elementwise ufuncs, elementwise operators of our own, reductions.

In: what is particular to a row (name, spellings, exactness, doc). Out: an `Operator` with the family's columns filled.
Every column can still be given by keyword, so a row says what is different about it and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tiercel.operators import rules
from tiercel.operators.python import python_result
from tiercel.operators.table import (
    FRESH,
    PURE,
    DTypeRule,
    Exactness,
    Lowering,
    Operator,
    Spelling,
    function,
    inplace,
    parameters,
    syntax,
)

__all__ = ["elementwise", "reduction", "ufunc"]


def ufunc(
    name: str,
    implementation: np.ufunc,
    exactness: Exactness,
    doc: str,
    *,
    operands: str | None = None,
    infix: str | None = None,
    builtin: str | None = None,
    spellings: Sequence[Spelling] = (),
    any_int: bool = False,
    may_fail: tuple[str, ...] = (),
    lowering: Lowering | None = None,
    container: Any = None,
    **columns: Any,
) -> Operator:
    """A row that is a NumPy ufunc: broadcast shape, K order, the ufunc's own dtypes, NumPy scalar for rank 0.

    Args:
        name: of the row, and of its lowering key.
        implementation: the ufunc.
        exactness: of the compiled form.
        doc: one line.
        operands: operand names; default "x" or "x y" by the ufunc's arity.
        infix: "+" adds the infix spelling and, for binary ones, "+=".
        builtin: name of a Python builtin that dispatches to it ("abs").
        spellings: more of them.
        any_int: see `rules.dtype_ufunc`.
        may_fail, lowering, container, columns: as in `Operator`.
    """
    operands = operands or ("x" if implementation.nin == 1 else "x y")
    forms: list[Spelling] = [function(f"numpy.{implementation.__name__}", f"{operands} /")]
    if infix is not None:
        forms.insert(0, syntax(infix, operands))
        if implementation.nin == 2 and infix not in _COMPARISONS:
            forms.insert(1, inplace(f"{infix}="))
    if builtin is not None:
        forms.append(function(f"builtins.{builtin}", f"{operands} /"))
    forms.extend(spellings)
    return Operator(
        name=name,
        parameters=parameters(operands),
        spellings=tuple(forms),
        dtype=columns.pop("dtype", None) or rules.dtype_ufunc(implementation, any_int=any_int),
        shape=columns.pop("shape", rules.shape_broadcast),
        layout=columns.pop("layout", rules.layout_k),
        kind=columns.pop("kind", rules.kind_numpy),
        result=columns.pop("result", FRESH),
        effect=PURE,
        exactness=exactness,
        may_fail=(("broadcast", "range") if implementation.nin > 1 else ()) + may_fail,
        reference=columns.pop("reference", implementation),
        lowering=lowering or Lowering("elementwise", name),
        python=python_result if infix or builtin else None,
        container=container,
        doc=doc,
        **columns,
    )


_COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})


def elementwise(
    name: str,
    reference: Callable[..., Any],
    dtype: DTypeRule,
    exactness: Exactness,
    doc: str,
    *,
    operands: str = "x",
    attributes: Mapping[str, object] | None = None,
    spellings: Sequence[Spelling] = (),
    may_fail: tuple[str, ...] = (),
    lowering: Lowering | None = None,
    **columns: Any,
) -> Operator:
    """A row that computes each element of the broadcast shape by itself and is no ufunc of NumPy's."""
    return Operator(
        name=name,
        parameters=parameters(operands, attributes),
        spellings=tuple(spellings),
        dtype=dtype,
        shape=columns.pop("shape", rules.shape_broadcast),
        layout=columns.pop("layout", rules.layout_k),
        kind=columns.pop("kind", rules.kind_numpy),
        result=columns.pop("result", FRESH),
        effect=PURE,
        exactness=exactness,
        may_fail=(("broadcast",) if " " in operands else ()) + may_fail,
        reference=reference,
        lowering=lowering or Lowering("elementwise", name),
        doc=doc,
        **columns,
    )


def reduction(
    name: str,
    reference: Callable[..., Any],
    dtype: DTypeRule,
    exactness: Exactness,
    doc: str,
    *,
    attributes: Mapping[str, object] | None = None,
    spellings: Sequence[Spelling] = (),
    needs_element: bool = False,
    lowering: Lowering | None = None,
    **columns: Any,
) -> Operator:
    """A row that folds operand 0 over `axis`; attributes are `axis`, the given ones, `keepdims`."""
    return Operator(
        name=name,
        parameters=parameters("x", {"axis": None, **(attributes or {}), "keepdims": False}),
        spellings=tuple(spellings),
        dtype=dtype,
        shape=columns.pop("shape", None) or rules.shape_reduce(needs_element=needs_element),
        layout=columns.pop("layout", rules.layout_reduce),
        kind=columns.pop("kind", rules.kind_numpy),
        result=columns.pop("result", FRESH),
        effect=PURE,
        exactness=exactness,
        may_fail=columns.pop("may_fail", ("empty",) if needs_element else ()),
        reference=reference,
        lowering=lowering or Lowering("reduction", name),
        doc=doc,
        **columns,
    )

"""Names that are promised and not there yet. Calling one says so.

In: anything. Out: `NotAvailableError`.
"""

from __future__ import annotations

from typing import Any, NoReturn

from tiercel.errors import TiercelError

__all__ = ["NotAvailableError", "grad", "value_and_grad", "vmap"]


class NotAvailableError(TiercelError, NotImplementedError):
    """A name of the public interface that this version only reserves."""


def _refuse(name: str, instead: str) -> NoReturn:
    raise NotAvailableError(f"tiercel.{name} is reserved and does not exist yet in this version; {instead}")


def grad(function: Any, /, *args: Any, **kwargs: Any) -> NoReturn:
    """Reserved: the derivative of a jitted function.

    Raises:
        NotAvailableError: always, in this version.
    """
    _refuse("grad", "differentiate by hand or with another framework")


def value_and_grad(function: Any, /, *args: Any, **kwargs: Any) -> NoReturn:
    """Reserved: value and derivative of a jitted function.

    Raises:
        NotAvailableError: always, in this version.
    """
    _refuse("value_and_grad", "differentiate by hand or with another framework")


def vmap(function: Any, /, *args: Any, **kwargs: Any) -> NoReturn:
    """Reserved: a function over one more axis.

    Raises:
        NotAvailableError: always, in this version.
    """
    _refuse("vmap", "write the batch axis out, or loop over it inside a jitted function")

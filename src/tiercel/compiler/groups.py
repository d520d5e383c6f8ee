"""The nest of a group, by what the group holds: a product or convolution, row reductions, or elements only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.compiler.convolution import lower_convolution
from tiercel.compiler.fuse import CONVOLUTIONS, Group
from tiercel.compiler.pointwise import lower_pointwise
from tiercel.compiler.products import lower_product
from tiercel.compiler.rows import lower_rows

if TYPE_CHECKING:
    from tiercel.compiler.lower import Lowerer


def lower_group(state: Lowerer, group: Group) -> None:
    """The nest of a group."""
    if group.contraction is not None:
        lower = lower_convolution if group.contraction.operator in CONVOLUTIONS else lower_product
        lower(state, group, group.contraction)
    elif group.row:
        lower_rows(state, group)
    else:
        lower_pointwise(state, group)

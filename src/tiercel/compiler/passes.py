"""The passes from the traced region graph to the one that is lowered, in order.

In: a `Region` as it was traced. Out: the same region with another graph, which computes the same. Each pass is one
public function of one module, and `graph_check.check_region` accepts what each of them gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from tiercel.compiler.casts import take_casts
from tiercel.compiler.expand import expand_composites
from tiercel.compiler.graph import Region
from tiercel.compiler.hoist import hoist_loops
from tiercel.compiler.inplace import write_in_place
from tiercel.compiler.narrow import narrow_columns
from tiercel.compiler.unroll import unroll_loops

__all__ = ["PASSES", "prepare"]


def _expand(region: Region) -> Region:
    graph = expand_composites(region.graph)
    return region if graph is region.graph else replace(region, graph=graph)


PASSES: Final[Mapping[str, Callable[[Region], Region]]] = {
    "expand": _expand,  # first: the others know primitive operators only
    "casts": take_casts,  # products as they are written, before anything is moved
    "hoist": hoist_loops,  # before writes are in place: it moves values, and a storage is no value
    "narrow": narrow_columns,  # after hoisting, which takes whole products
    "unroll": unroll_loops,  # after steps are hoisted: what passes share is not to be computed in each of them
    "in place": write_in_place,
}


def prepare(region: Region, check: Callable[[Region], Region] | None = None) -> Region:
    """Run the passes; after each `check` sees what it gave.

    Raises:
        NotLowered: a composite in a form that has no machine code.
    """
    for pass_ in PASSES.values():
        region = pass_(region)
        if check is not None:
            check(region)
    return region

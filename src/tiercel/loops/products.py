"""The products of matrices in a function: numbered, so that a choice made for one can be told to whoever expands it."""

from __future__ import annotations

from collections.abc import Iterator

from tiercel.loops.form import Block, Contract, blocks

__all__ = ["contracts_of"]


def contracts_of(block: Block) -> Iterator[Contract]:
    """The products inside, in the order in which choices number them."""
    for stmt in block.body:
        if isinstance(stmt, Contract):
            yield stmt
        else:
            for inner in blocks(stmt):
                yield from contracts_of(inner)

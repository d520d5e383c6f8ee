"""What the code generator knows of the processor: name, features, vector width, and how many lanes a loop gets.

In: LLVM's detection of the host (or a name given for tests). Out: a `Target`. Never imports LLVM except in `host()`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from tiercel.codegen.cpu.estimate import is_long, is_plain, node_weight
from tiercel.loops.form import Block, Expr, Load, Reduce, Stmt, Store, blocks, expressions, walk

SHORT_BODY = 24
"""Work, in arithmetic nodes, up to which a body is short: writing it twice costs less than a millisecond."""
_MOST_PLAIN = 400
"""Work up to which arithmetic without any function gets four vectors: a chain waits for its own results otherwise."""


def _weight(block: Block) -> tuple[int, int, bool, bool]:
    """(arithmetic nodes, widest element in bytes, anything long, no function at all) of a body; transcendental
    functions count for about ten.
    """
    work, width, long, plain = 0, 1, False, True

    def visit(node: Expr) -> None:
        nonlocal work, width, long, plain
        work += node_weight(node)
        plain = plain and is_plain(node)
        for part in walk(node):
            long = long or is_long(part)
            if isinstance(part, Load):
                width = max(width, part.buffer.dtype.itemsize)

    def statement(stmt: Stmt) -> None:
        nonlocal width
        for expression in expressions(stmt):
            visit(expression)
        if isinstance(stmt, Store):
            width = max(width, stmt.buffer.dtype.itemsize)
        for inner in blocks(stmt):
            for s in inner.body:
                statement(s)

    for stmt in block.body:
        statement(stmt)
    return work, width, long, plain


@dataclass(frozen=True, slots=True)
class Target:
    """A processor.

    Attributes:
        cpu: LLVM's name of it.
        features: LLVM's feature string.
        vector_bytes: width of its vectors.
        masked_memory: masked loads and stores cost about what plain ones do.
    """

    cpu: str
    features: str
    vector_bytes: int
    masked_memory: bool
    triple: str = ""

    @property
    def key(self) -> str:
        """What a cache of machine code must be keyed by."""
        return f"{self.triple}/{self.cpu}/{self.features}"

    def lanes_for(self, body: Block, vectors: int = 0) -> int:
        """How many elements one iteration of a vector axis handles: four vectors breadth-first (measured: 2.15 against
        3.2 to 3.4 ns an element for one; a reduction has to wait for its last addition otherwise), two for bodies that
        only move data or are very long (a power takes the same time with two and half the compile time).
        `vectors` says how many where that is known better.
        """
        work, width, long, plain = _weight(body)
        folds = any(isinstance(stmt, Reduce) for stmt in body.body)
        most = _MOST_PLAIN if plain else 120
        chosen = vectors or (4 if (8 <= work <= most or (folds and work < 8)) and not long else 2)
        return max(2, min(64, chosen * self.vector_bytes // min(max(width, 4), 8)))

    def repeats(self, body: Block) -> bool:
        """Whether a vector axis has its body twice: for whole groups of lanes, and masked for the rest."""
        return _weight(body)[0] <= SHORT_BODY

    @classmethod
    def host(cls) -> Target:
        """The processor this process runs on, as LLVM sees it. Imports LLVM."""
        return _host()

    @classmethod
    def of(cls, cpu: str, on: set[str], features: str, triple: str) -> Target:
        """A target from LLVM's names."""
        if "avx512f" in on and "avx512bw" in on and "avx512vl" in on and "avx512dq" in on:
            return cls(cpu, features, 64, True, triple)
        if "avx2" in on:
            return cls(cpu, features, 32, False, triple)
        return cls(cpu, features, 16, False, triple)

    def without_avx512(self) -> Target:
        """The same processor restricted to AVX2: for tests of the narrower code on a wider machine."""
        kept = ",".join(f for f in self.features.split(",") if not f.lstrip("+-").startswith("avx512"))
        off = ",".join(f"-{f.lstrip('+-')}" for f in self.features.split(",") if f.lstrip("+-").startswith("avx512"))
        return Target("x86-64-v3", ",".join(x for x in (kept, off) if x), 32, False, self.triple)


@functools.cache
def _host() -> Target:
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    cpu, triple = llvm.get_host_cpu_name(), llvm.get_process_triple()
    return Target.of(cpu, {name for name, on in features.items() if on}, features.flatten(), triple)

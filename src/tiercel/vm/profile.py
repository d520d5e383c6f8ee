"""The profile: which Signatures come by at the entries of functions and loops, and which sizes.

In: the interpreter's hooks, with a frame. Out: per Signature the learned range of every size, as texts and as `Facts`
for typing, and `Program.profile`, which the listing shows and files keep.

Entries 1 to `profile_first` of a region are looked at, then one in `profile_sample`. The entries between them cost a
call and a comparison. Memory is bounded: `MAX_SIGNATURES` per region, for each the extremes of at most 64 sizes and a
ring of the last `RECENT` samples in 64-bit integers (16 KiB at the very most, 2.5 KiB for ten sizes).

Invariants: nothing here keeps a value of the user's alive or runs his code. Threads sample at once without a lock: what
a Signature has learned is one immutable `Seen`, replaced as a whole, so a racing thread may lose a sample but nobody
sees half of one. Two sizes share a symbol only where the program declares it; that they agreed so far proves nothing.

A range is what was seen, not what will come: whoever uses it guards it.
"""

from __future__ import annotations

import math
import re
import weakref
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from tiercel import config
from tiercel.bytecode.program import Function, FunctionProfile, Profile, Program, SignatureProfile
from tiercel.config import Settings
from tiercel.errors import ShapeError
from tiercel.interp import Decoded
from tiercel.interp.flow import successors
from tiercel.interp.layout import CounterLayout
from tiercel.operators.types import Type
from tiercel.shapes import DimLike, Facts, Range, ShapeToken, Symbol, TensorDescriptor, parse_descriptor
from tiercel.vm.scan import INT_LIMIT, Key, Slot, key_text, key_type, scan, slots

__all__ = [
    "MAX_SIGNATURES",
    "RECENT",
    "LiveIn",
    "Recorder",
    "Seen",
    "SignatureRecord",
    "Typed",
    "Watch",
    "believed_multiple",
    "function_profile",
    "learned",
]

# Signatures of one region that are told apart; entries with others are only counted.
MAX_SIGNATURES: Final = 8
# Samples of one Signature that are kept as they came.
RECENT: Final = 32
# A multiple is believed when this many different sizes have it: two random sizes share a factor more often than not.
_DISTINCT_FOR_MULTIPLE: Final = 4
_NEVER: Final = 1 << 62


class LiveIn(NamedTuple):
    """A register that is read in a region before it is written there; `name` is the variable's, or `R3`."""

    register: int
    name: str


class Seen(NamedTuple):
    """What was learned of one Signature: samples taken, entries they stand for, and per size the extremes."""

    samples: int
    entries: int
    low: tuple[int, ...]
    high: tuple[int, ...]
    divisor: tuple[int, ...]


class Typed(NamedTuple):
    """A Signature as typing takes it: a type per live-in, what is known of their symbols, and what each size is."""

    types: tuple[Type, ...]
    facts: Facts
    dims: tuple[DimLike, ...] = ()


class SignatureRecord:
    """One Signature of a region.

    Attributes:
        key: the keys of the live-ins.
        live_ins: what they are the keys of.
        slots: what the sizes are.
        seen: what was learned; replaced, never changed.
    """

    __slots__ = ("_next", "_objects", "_recent", "key", "live_ins", "seen", "slots")

    def __init__(
        self, key: tuple[Key, ...], live_ins: Sequence[LiveIn], sizes: Sequence[int], values: Sequence[Any] = ()
    ) -> None:
        self.key = key
        self.live_ins = tuple(live_ins)
        self.slots = tuple(s for k, live in zip(key, live_ins, strict=True) for s in slots(k, live.name))
        if len(self.slots) != len(sizes):
            raise ValueError(f"{len(sizes)} sizes for {len(self.slots)} slots")
        self._recent = array("q", bytes(8 * RECENT * len(sizes)))
        self._next = 0
        # Of objects one sample each, weakly: what the attributes of `self` are is read from it.
        self._objects: dict[int, weakref.ref[Any]] = {}
        for k, live, value in zip(key, live_ins, values, strict=False):
            if not isinstance(k, tuple) and k.__weakrefoffset__:
                self._objects[live.register] = weakref.ref(value)
        self.seen = Seen(0, 0, tuple(sizes), tuple(sizes), tuple(map(abs, sizes)))

    def add(self, sizes: Sequence[int], entries: int) -> None:
        """Take a sample that stands for some entries."""
        seen = self.seen
        width = len(sizes)
        at = self._next
        self._recent[at * width : (at + 1) * width] = array("q", sizes)
        self._next = (at + 1) % RECENT
        self.seen = Seen(
            seen.samples + 1,
            seen.entries + entries,
            tuple(map(min, seen.low, sizes)),
            tuple(map(max, seen.high, sizes)),
            tuple(map(math.gcd, seen.divisor, sizes)),
        )

    def sample(self, register: int) -> Any:
        """Return an object that came by in a live-in register; None if it is gone, or the live-in is no object."""
        reference = self._objects.get(register)
        return None if reference is None else reference()

    def recent(self) -> list[tuple[int, ...]]:
        """Return the last samples, at most `RECENT`, in no particular order."""
        width = len(self.slots)
        count = min(self.seen.samples, RECENT)
        ring = self._recent[:]
        return [tuple(ring[i * width : (i + 1) * width]) for i in range(count)]

    def ranges(self) -> list[Range]:
        """Return the learned range of each slot."""
        seen = self.seen
        columns = list(zip(*self.recent(), strict=True)) or [()] * len(self.slots)
        out = []
        for low, high, divisor, column in zip(seen.low, seen.high, seen.divisor, columns, strict=True):
            bottom = None if low <= -INT_LIMIT else low
            top = None if high >= INT_LIMIT else high
            out.append(Range(bottom, top, believed_multiple(divisor, len(set(column)))))
        return out

    def text(self) -> str:
        """Return the Signature without sizes, such as `x: float32[?, ?]{C}, n: int`."""
        unknown = iter(["?"] * len(self.slots))
        return ", ".join(
            f"{live.name}: {key_text(k, unknown)}" for live, k in zip(self.live_ins, self.key, strict=True)
        )

    def learned_texts(self, tokens: Sequence[TensorDescriptor | None] = ()) -> dict[int, str]:
        """Return per live-in register what was learned of it, such as `float32[16..64, 128]{C}`.

        Args:
            tokens: declared descriptors, one per live-in, None where there is none. Sizes that they give as an
                expression are shown as declared.
        """
        ranges = iter(self.ranges())
        out: dict[int, str] = {}
        for i, (live, key) in enumerate(zip(self.live_ins, self.key, strict=True)):
            own = [next(ranges) for _ in slots(key, live.name)]
            dims = _declared_dims(key, tokens[i] if i < len(tokens) else None)
            shown = [
                str(within) if dim is None or isinstance(dim, Symbol | int) else str(dim)
                for dim, within in zip(dims or [None] * len(own), own, strict=True)
            ]
            out[live.register] = key_text(key, iter(shown))
        return out

    def typed(self, tokens: Sequence[TensorDescriptor | None] = (), facts: Facts | None = None) -> Typed:
        """Return the types of the live-ins with a symbol for every size, and the learned ranges of these symbols.

        Args:
            tokens: declared descriptors, one per live-in, None where there is none; their symbols are used.
            facts: what is declared about these symbols.
        """
        known = facts.copy() if facts is not None else Facts()
        ranges = iter(self.ranges())
        names: set[str] = {str(s) for t in tokens if t is not None for s in t.token.symbols}
        types = []
        every: list[DimLike] = []
        for i, (live, key) in enumerate(zip(self.live_ins, self.key, strict=True)):
            dims: list[DimLike] = []
            declared = _declared_dims(key, tokens[i] if i < len(tokens) else None)
            for position, slot in enumerate(slots(key, live.name)):
                within = next(ranges)
                dim = declared[position] if declared is not None else _symbol(slot, names)
                if isinstance(dim, Symbol):
                    try:
                        known.set_range(dim, within)
                    except ShapeError:
                        pass  # a declared range that was narrowed later: what is declared counts
                dims.append(dim)
            types.append(key_type(key, iter(dims)))
            every += dims
        return Typed(tuple(types), known, tuple(every))


def believed_multiple(divisor: int, distinct: int) -> int:
    """Return the common divisor of some sizes if there were enough different ones to believe it, else 1."""
    return max(divisor, 1) if distinct >= _DISTINCT_FOR_MULTIPLE else 1


def _declared_dims(key: Any, token: TensorDescriptor | None) -> tuple[DimLike, ...] | None:
    if token is None or token.token.dims is None or not (isinstance(key, tuple) and key[0] == "array"):
        return None
    return token.token.dims if len(token.token.dims) == key[3] else None


def _symbol(slot: Slot, taken: set[str]) -> Symbol:
    """A symbol of its own for a slot, named after it: axis 1 of `x` is `x.d1`."""
    base = ".".join(re.findall(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+", slot.path.encode("ascii", "replace").decode())) or "v"
    base = re.sub(r"\.([0-9])", r".i\1", base)[:40].rstrip(".")
    base = base if re.match(r"[A-Za-z_]", base) else f"v{base}"
    if slot.kind == "size":
        base += f".d{slot.axis}"
    elif slot.kind == "length":
        base += ".len"
    name, count = base, 1
    while name in taken or name in ("min", "max", "bcast", "where"):
        count += 1
        name = f"{base}_{count}"
    taken.add(name)
    return Symbol(name, "scalar" if slot.kind == "value" else "input")


class Recorder:
    """Samples the entries of one region.

    Attributes:
        live_ins: what is looked at.
        due: the entry, counted from 1, from which on the next one is looked at.
        signatures: by key, at most `MAX_SIGNATURES`.
        others: entries with a Signature beyond those.
        failed: samples that could not be taken.
    """

    __slots__ = ("_last", "due", "failed", "live_ins", "others", "signatures")

    def __init__(self, live_ins: Sequence[LiveIn]) -> None:
        self.live_ins = tuple(live_ins)
        self.due = 1
        self.signatures: dict[tuple[Key, ...], SignatureRecord] = {}
        self.others = 0
        self.failed = 0
        self._last = 0

    def sample(self, registers: Sequence[Any], entry: int, settings: Settings) -> None:
        """Look at the live-ins of entry number `entry`, and decide which one is next."""
        stands_for = max(entry - self._last, 1)
        self._last = entry
        first, period = settings.profile_first, settings.profile_sample
        if entry < first:
            self.due = entry + 1
        else:
            self.due = (entry // period + 1) * period if period else _NEVER
        sizes: list[int] = []
        try:
            key = tuple([scan(registers[live.register], sizes) for live in self.live_ins])
            record = self.signatures.get(key)
            if record is None:
                if len(self.signatures) >= MAX_SIGNATURES:
                    self.others += stands_for
                    return
                values = [registers[live.register] for live in self.live_ins]
                record = self.signatures.setdefault(key, SignatureRecord(key, self.live_ins, sizes, values))
            record.add(sizes, stands_for)
        except Exception:  # noqa: BLE001 - a value so odd that it cannot be described must not break the program
            self.failed += 1

    def records(self) -> list[SignatureRecord]:
        """Return the Signatures, the most frequent first."""
        known = list(self.signatures.values())
        return sorted(known, key=lambda r: -r.seen.entries)


class Watch:
    """The recorders of one decoded function, kept in `Decoded.watch`.

    Args:
        decoded: the function.
        settings: tells the settings that count for it.

    Attributes:
        entry: of the function's entries; live-ins are its parameters.
        loops: of each loop's entries.
        regions: `vm.regions.LoopTiers` of loops that were looked at.
    """

    __slots__ = ("_counts", "_settings", "entry", "loops", "regions")

    def __init__(self, decoded: Decoded, settings: Callable[[], Settings] = config.current) -> None:
        function = decoded.function
        self._counts = decoded.counts
        self._settings = settings
        self.regions: dict[int, Any] = {}
        self.entry = Recorder([LiveIn(i, p.name) for i, p in enumerate(function.parameters)])
        live = loop_live_ins(function, {loop.loop: (loop.start, loop.stop) for loop in decoded.flow.loops})
        self.loops = [Recorder(live.get(loop, ())) for loop in range(function.loops)]

    def on_entry(self, registers: Sequence[Any]) -> None:
        """Take a sample of an entry of the function."""
        self.entry.sample(registers, self._counts[CounterLayout.CALLS], self._settings())

    def on_region(self, loop: int, registers: Sequence[Any]) -> None:
        """Take a sample of an entry of a loop."""
        count = self._counts[CounterLayout.FIRST_LOOP + CounterLayout.PER_LOOP * loop + CounterLayout.ENTRIES]
        self.loops[loop].sample(registers, count, self._settings())


def loop_live_ins(function: Function, loops: dict[int, tuple[int, int]]) -> dict[int, list[LiveIn]]:
    """Return per loop the registers that are read in it and live when it is entered.

    Args:
        function: of a verified program.
        loops: per loop id the instructions LoopStart and LoopEnd.
    """
    if not loops:
        return {}
    instructions = function.instructions
    reads = [set(ins.registers_read()) for ins in instructions]
    writes = [set(ins.registers_written()) for ins in instructions]
    after = [successors(instructions, i) for i in range(len(instructions))]
    live: list[set[int]] = [set() for _ in instructions]
    changed = True
    while changed:
        changed = False
        for i in range(len(instructions) - 1, -1, -1):
            out = set().union(*(live[target] for target in after[i] if target < len(instructions)))
            now = reads[i] | (out - writes[i])
            if now != live[i]:
                live[i] = now
                changed = True
    found = {}
    for loop, (start, stop) in loops.items():
        inside = set().union(*reads[start : stop + 1])
        names = {where: name for name, where in function.variables_at(start).items() if isinstance(where, int)}
        for i, p in enumerate(function.parameters):
            names.setdefault(i, p.name)
        found[loop] = [LiveIn(r, names.get(r, f"R{r}")) for r in sorted(live[start] & inside)]
    return found


def declared_tokens(program: Program, function: Function) -> list[TensorDescriptor | None]:
    """Return the declared descriptor of each parameter."""
    return [program.tokens[p.token] if p.token is not None else None for p in function.parameters]


# What typing adds: given a function and a Signature of its entries, texts per instruction.
Typing: TypeAlias = Callable[[Decoded, SignatureRecord, Typed], "dict[int, str]"]


def learned(
    program: Program, decoded: Sequence[Decoded], base: Profile | None = None, typing: Typing | None = None
) -> Profile:
    """Return what was learned about a program until now.

    Args:
        program: of which `decoded` are functions.
        decoded: those that ran. More than one may be of the same function (another environment).
        base: the profile from before they ran, as the program's file had it.
        typing: tells what instructions wrote; without it only the parameters are known.
    """
    functions = dict(base.functions) if base is not None else {}
    by_index: dict[int, list[Decoded]] = {}
    for one in decoded:
        if one.program is program and one.watch is not None:
            by_index.setdefault(one.index, []).append(one)
    for index, same in by_index.items():
        functions[index] = function_profile(same, functions.get(index), typing)
    return Profile(functions)


def function_profile(
    decoded: Sequence[Decoded], base: FunctionProfile | None = None, typing: Typing | None = None
) -> FunctionProfile:
    """Return what was learned about one function.

    Args:
        decoded: the decoded forms of the function, at least one, all watched.
        base, typing: as for `learned`.
    """
    program, index = decoded[0].program, decoded[0].index
    function = program.functions[index]
    tokens = declared_tokens(program, function)
    base = base or FunctionProfile()
    entries = base.entries
    loops = dict(base.loops)
    signatures = {s.text: s for s in base.signatures}
    for one in decoded:
        counters = one.counters
        entries += counters.calls
        for loop, c in enumerate(counters.loops):
            old = loops.get(loop, (0, 0))
            loops[loop] = (old[0] + c.entries, old[1] + c.iterations)
        for record in one.watch.entry.records():
            learned = _signature_profile(one, record, tokens, typing)
            known = signatures.get(learned.text)
            signatures[learned.text] = learned if known is None else _merge(known, learned)
    kept = sorted(signatures.values(), key=lambda s: -s.count)[:MAX_SIGNATURES]
    return FunctionProfile(entries, loops, tuple(kept))


def _signature_profile(
    decoded: Decoded, record: SignatureRecord, tokens: Sequence[TensorDescriptor | None], typing: Typing | None
) -> SignatureProfile:
    live_ins = record.learned_texts(tokens)
    results = {}
    if typing is not None:
        results = typing(decoded, record, record.typed(tokens, decoded.program.facts))
    return SignatureProfile(record.text(), record.seen.entries, live_ins, results)


def _merge(a: SignatureProfile, b: SignatureProfile) -> SignatureProfile:
    """What both profiles of one Signature know; where they cannot be joined, the newer one counts."""
    live_ins = {r: _join(a.live_ins.get(r), text) for r, text in b.live_ins.items()}
    results = {i: _join(a.results.get(i), text) for i, text in b.results.items()}
    return SignatureProfile(b.text, a.count + b.count, live_ins, results)


def _join(a: str | None, b: str) -> str:
    """The descriptor that covers two; `b` if they are none, or no descriptors of arrays."""
    if a is None or a == b:
        return b
    # What Tensors and torch's are shown with; descriptors know no wrappers.
    prefix = next((p for p in ("Tensor ", "torch ") if b.startswith(p)), "")
    if not a.startswith(prefix):
        return b
    try:
        first, second = parse_descriptor(a.removeprefix(prefix)), parse_descriptor(b.removeprefix(prefix))
    except ShapeError:
        return b
    dims_a, dims_b = first.token.dims, second.token.dims
    if dims_a is None or dims_b is None or len(dims_a) != len(dims_b) or first.layout != second.layout:
        return b
    facts_a, facts_b, joined = first.facts(), second.facts(), Facts()
    dims: list[DimLike] = []
    for x, y in zip(dims_a, dims_b, strict=True):
        within = _cover(facts_a.range(x), facts_b.range(y))
        dim: DimLike = within.value if within.value is not None else joined.fresh_symbol()
        if isinstance(dim, Symbol):
            joined.set_range(dim, within)
        dims.append(dim)
    token = ShapeToken(tuple(dims))
    return prefix + TensorDescriptor(token, second.dtype, second.layout, second.device).with_facts(joined).text()


def _cover(a: Range, b: Range) -> Range:
    """The range from the least to the largest of both, with a multiple only if one was learned and holds for both."""
    hull = a.union(b)
    learned = [r.multiple for r in (a, b) if r.value is None]
    multiple = math.gcd(*learned, *(r.value for r in (a, b) if r.value is not None)) if learned else 1
    return Range(hull.lo, hull.hi, max(multiple, 1))

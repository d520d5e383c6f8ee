"""Random well-formed programs, made through the Builder: every opcode, every kind of constant, nested structures."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from tiercel import dtypes, operators
from tiercel.bytecode import (
    BUILD_KINDS,
    UNBOUND,
    Builder,
    FunctionProfile,
    Label,
    ObjectRef,
    Parameter,
    Profile,
    Program,
    SignatureProfile,
)
from tiercel.shapes import Facts, TensorDescriptor, parse_descriptor, parse_dim

NAMES = ("x", "w", "state", "größe", "_h", "i", "for_", "x1")
TEXTS = (
    "",
    "a",
    "it's",
    'say "hi"',
    "tab\tnew\nline\\",
    "é漢字🙂",
    "; no comment",
    "%3 = $4",
    "\x00\x7f\x85\u2028",
    "\ud800",
)
OBJECTS = ("outlined_1", "pkg.mod.f", "<lambda>", "two words", "")


def make_constant(r: random.Random, depth: int = 0) -> Any:
    """A constant of any kind."""
    simple = [
        lambda: r.choice([None, True, False, Ellipsis, UNBOUND]) if depth == 0 else None,
        lambda: r.choice([0, 1, -1, 127, 128, -128, -129, 2**31, -(2**63), 2**64, 10**40, -(10**40)]),
        lambda: r.choice([0.0, -0.0, 1.5, -1e300, 1e-320, float("inf"), float("-inf"), float("nan"), _nan(r)]),
        lambda: complex(r.choice([0.0, -0.0, 1.0, float("nan")]), r.choice([-0.0, 2.5, float("inf")])),
        lambda: r.choice(TEXTS),
        lambda: bytes(r.choices(range(256), k=r.randrange(6))),
        lambda: r.choice(dtypes.DTYPES),
        lambda: r.choice(dtypes.DTYPES).numpy,
    ]
    kind = r.randrange(len(simple) + (2 if depth < 3 else 0))
    if kind < len(simple):
        return simple[kind]()
    if kind == len(simple):
        return tuple(make_constant(r, depth + 1) for _ in range(r.randrange(4)))
    return slice(*(r.choice([None, make_constant(r, depth + 1)]) for _ in range(3)))


def _nan(r: random.Random) -> float:
    bits = 0x7FF8000000000000 | r.randrange(1, 1 << 51)
    return float(np.uint64(bits).view(np.float64))


def make_array(r: random.Random) -> np.ndarray[Any, Any]:
    """A small array of any dtype and rank, zero sizes included."""
    dtype = r.choice(dtypes.DTYPES)
    shape = tuple(r.randrange(4) for _ in range(r.randrange(4)))
    raw = np.array(r.choices(range(2 if dtype.is_bool else 256), k=int(np.prod(shape)) * dtype.itemsize), np.uint8)
    return raw.view(dtype.numpy).reshape(shape)


def make_token(r: random.Random) -> TensorDescriptor:
    """A declared token."""
    if r.random() < 0.1:
        return parse_descriptor("float32[...]{strided}@cuda:1")
    dims = [r.choice(["1", "0", "128", "B", "B*T", "T + 1", "?0", "$n", "@u0", "min(T, 512)", "(B + T)//2"])
            for _ in range(r.randrange(4))]  # fmt: skip
    made = parse_descriptor(f"{r.choice(dtypes.DTYPES).name}[{', '.join(dims)}]{{{r.choice(['C', 'F', 'strided'])}}}")
    if dims and r.random() < 0.3:
        constraints = (f"dim{r.randrange(len(dims))} >= 0",)
        return TensorDescriptor(made.token, made.dtype, made.layout, made.device, constraints)
    return made


class Generator:
    """Makes one program.

    Args:
        r: the source of randomness; equal ones give equal programs.
        size: about how many instructions.
        objects: whether objects known by name may occur.
    """

    def __init__(self, r: random.Random, size: int = 30, *, objects: bool = True) -> None:
        self.r = r
        self.size = size
        self.objects = objects
        facts = Facts()
        for text in r.sample(["B: 16..64", "T % 8 == 0", "1 <= T", "T <= 512"], r.randrange(3)):
            facts.constrain(text)
        facts.reserve(parse_dim("?0"))
        self.b = Builder(r.choice(TEXTS), source_hash=r.choice(["", "abc123"]), facts=r.choice([None, facts]))

    def program(self, **build: Any) -> Program:
        for number in range(self.r.randrange(1, 3)):
            self._function(number)
        made = self.b.build(**build)
        if self.r.random() < 0.3:
            made.profile = make_profile(self.r, made)
        return made

    def _function(self, number: int) -> None:
        r = self.r
        kinds = sorted(
            r.choices(["positional_only", "positional_or_keyword", "keyword_only"], k=r.randrange(1, 4)),
            key=ORDER.index,
        )
        if r.random() < 0.2:
            kinds = (
                [k for k in kinds if ORDER.index(k) < 3] + ["var_positional"] + [k for k in kinds if ORDER.index(k) > 2]
            )
            kinds.sort(key=ORDER.index)
        if r.random() < 0.2:
            kinds.append("var_keyword")
        names = r.sample(NAMES, len(kinds) + 1)
        parameters = [
            Parameter(
                n,
                k,
                self.b.constant(make_constant(r)) if r.random() < 0.3 else None,
                self.b.token(make_token(r)) if r.random() < 0.3 else None,
            )
            for n, k in zip(names, kinds, strict=False)
        ]
        free = names[-1:] if r.random() < 0.4 else []
        self.f = self.b.function(
            r.choice(["f", "step", "<lambda>", "naïve"]),
            parameters,
            free,
            qualname=r.choice(["C.f", "f.<locals>.g"]),
            filename=r.choice(["a.py", "<ipython-input-1>", "C:\\x\\ü.py", "", "two\nlines.py"]),
            first_line=r.randrange(1000),
            source=r.choice([None, "def f(x):\n    return x\n", "no newline at the end", ""]),
        )
        self.defined = list(range(len(parameters)))
        self.cells = list(range(len(parameters), len(parameters) + len(free)))
        self.budget = self.size
        self._block(0, None)
        self.f.Return(self._use())

    def _use(self) -> int:
        if self.r.random() < 0.3:
            return self.b.constant(make_constant(self.r))
        return self.r.choice(self.defined)

    def _uses(self, most: int = 4) -> list[int]:
        return [self._use() for _ in range(self.r.randrange(most))]

    def _dst(self) -> int | None:
        """A register to write: mostly a fresh one, sometimes a variable's."""
        kind = self.r.random()
        if kind < 0.5:
            return None
        if kind < 0.7:
            return self.r.choice(self.defined)
        return self.f.register(self.r.choice(NAMES))

    def _define(self, register: int | None) -> None:
        if register is not None and register not in self.defined:
            self.defined.append(register)

    def _block(self, depth: int, leave: Label | None) -> None:
        """Some statements; `leave` is where a break may go."""
        for _ in range(self.r.randrange(1, 6)):
            if self.budget <= 0:
                return
            self.budget -= 1
            self.f.span = self._span()
            choice = self.r.random()
            if depth < 3 and choice < 0.3:
                before = list(self.defined)
                self.r.choice([self._if, self._while, self._for, self._try])(depth, leave)
                # What was defined inside is not defined on every path.
                self.defined = before
            elif leave is not None and choice < 0.35:
                on = self.f.label()
                self.f.BranchIf(self._condition(), leave, on)
                self.f.place(on)
            else:
                self._simple()

    def _condition(self) -> int:
        # Of other registers a constant may be all that is ever written, which only the passes may leave to branch on.
        return self.r.randrange(len(self.f.parameters))

    def _span(self) -> tuple[int, int, int, int] | None:
        r = self.r
        if r.random() < 0.2:
            return None
        if r.random() < 0.3:
            return self.f.span
        line = r.randrange(1, 2000)
        return (line, r.randrange(100), line + r.choice([0, 0, 0, 3]), r.randrange(100))

    def _if(self, depth: int, leave: Label | None) -> None:
        then, other, end = self.f.label(), self.f.label(), self.f.label()
        self.f.BranchIf(self._condition(), then, other)
        before = list(self.defined)
        self.f.place(then)
        self._block(depth + 1, leave)
        self.f.Jump(end)
        self.f.place(other)
        self.defined = before
        self._block(depth + 1, leave)
        self.f.place(end)

    def _while(self, depth: int, leave: Label | None) -> None:
        loop, start, body, end = self.f.new_loop(), self.f.label(), self.f.label(), self.f.label()
        self.f.place(start)
        self.f.LoopStart(loop, None, None, end)
        self.f.BranchIf(self._condition(), body, end)
        self.f.place(body)
        self._block(depth + 1, end)
        self.f.LoopEnd(loop, start)
        self.f.place(end)

    def _for(self, depth: int, leave: Label | None) -> None:
        loop, start, end = self.f.new_loop(), self.f.label(), self.f.label()
        iterator = self.f.Iter(None, self._use())
        target = self.f.register(self.r.choice([None, *NAMES]))
        self.f.place(start)
        self.f.LoopStart(loop, iterator, target, end)
        before = list(self.defined)
        self._define(target)
        self._block(depth + 1, end)
        self.f.LoopEnd(loop, start)
        self.defined = before
        self.f.place(end)

    def _try(self, depth: int, leave: Label | None) -> None:
        handler, end = self.f.label(), self.f.label()
        exception = self.f.register(self.r.choice([None, "e"]))
        before = list(self.defined)
        self.f.Try(exception, handler, end)
        self._block(depth + 1, leave)
        self.f.EndTry()
        self.f.Jump(end)
        self.f.place(handler)
        self.defined = before
        self._define(exception)
        self._block(depth + 1, leave)
        self.f.Jump(end) if self.r.random() < 0.7 else self.f.Raise()
        self.f.place(end)

    def _simple(self) -> None:
        r, f = self.r, self.f
        name = r.choice(SIMPLE)
        dst = self._dst()
        if name == "LoadConst":
            made = f.LoadConst(dst, self.b.constant(make_constant(r)))
        elif name == "LoadTensor":
            made = f.LoadTensor(dst, self.b.constant(make_array(r)))
        elif name == "LoadParam":
            made = f.LoadParam(dst, r.randrange(len(f.parameters)))
        elif name == "LoadGlobal":
            made = f.LoadGlobal(dst, r.choice(NAMES))
        elif name == "LoadAttr":
            made = f.LoadAttr(dst, self._use(), r.choice(NAMES))
        elif name == "StoreAttr":
            made = f.StoreAttr(self._use(), r.choice(NAMES), self._use())
        elif name == "LoadCell":
            if not self.cells:
                self.cells.append(f.Build(None, "cell", self._uses(2)[:1]))
                self._define(self.cells[-1])
                return
            made = f.LoadCell(
                dst, r.choice([c for c in self.cells if c in self.defined] or self.defined), r.choice(NAMES)
            )
        elif name == "StoreCell":
            made = f.StoreCell(self._use(), self._use())
        elif name == "Move":
            made = f.Move(dst, self._use())
        elif name == "CallOp":
            made = self._callop(dst)
        elif name == "Dim":
            made = f.Dim(dst, self._use(), r.choice([-1, 0, 3, -200]))
        elif name == "Scalar":
            made = f.Scalar(
                dst, *r.choice([("len", self._uses()), ("is", [self._use(), self._use()]), ("not", [self._use()])])
            )
        elif name == "Item":
            made = f.Item(dst, self._use())
        elif name == "Build":
            what = r.choice(BUILD_KINDS)
            count = {"slice": 3, "dict": 4, "cell": 1}.get(what, r.randrange(4))
            made = f.Build(dst, what, [self._use() for _ in range(count)])
        elif name == "Unpack":
            dsts = [f.register(r.choice([None, *NAMES])) for _ in range(r.randrange(1, 4))]
            f.Unpack(dsts, self._use(), r.randrange(len(dsts) + 1))
            for register in dsts:
                self._define(register)
            return
        elif name == "Index":
            made = f.Index(dst, self._use(), self._use())
        elif name == "SetItem":
            made = f.SetItem(self._use(), self._use(), self._use())
        elif name == "Append":
            made = f.Append(self._use(), self._use())
        elif name == "Iter":
            made = f.Iter(dst, self._use())
        elif name == "Raise":
            on, off = f.label(), f.label()
            f.BranchIf(self._condition(), on, off)
            f.place(on)
            f.Raise(*r.choice([(None, None), (self._use(), None), (self._use(), self._use())]))
            f.place(off)
            return
        elif name in ("Call", "CallPy"):
            made = self._call(name, dst)
        elif name == "MakeFunction":
            if not self.objects:
                return
            code = self.b.constant(ObjectRef(r.choice(OBJECTS) + str(r.randrange(3))))
            made = f.MakeFunction(
                dst,
                code,
                r.choice(TEXTS[:5]),
                r.choice([None, self._use()]),
                r.choice([None, self._use()]),
                self._uses(2),
            )
        elif name == "StoreTensor":
            made = f.StoreTensor(self._use(), self._use())
        elif name == "Depend":
            made = f.Depend(dst, self._use(), self._uses())
        elif name == "Check":
            made = f.Check(r.choice(["bound", "shape_hint", "dtype_hint", "bound_free"]), self._use(), r.choice(NAMES))
        else:
            assert name == "Anchor", name
            made = f.Anchor(dst, self._use())
        self._define(made)

    def _callop(self, dst: int | None) -> int:
        r = self.r
        operator = r.choice(OPERATORS)
        args = self._uses()
        keywords = ["" if r.random() < 0.7 else f"k{i}" for i in range(len(args))]
        via = r.choice([None, None, "np.exp", "m", "mod.sub.größe"])
        if self.cells and r.random() < 0.2:
            cells = [c for c in self.cells if c in self.defined]
            via = f"{r.choice(cells)}:np.exp" if cells else None
        # With a token the operands decide whether it is right, so only where nothing is known of one.
        token = None
        unknown = [i for i, p in enumerate(self.f.parameters) if p.token is None]
        if args and unknown and r.random() < 0.3:
            args[0] = r.choice(unknown)
            token = make_token(r)
            # A register of its own: one that a loop carries must have one token throughout.
            dst = None
        spelling = r.randrange(len(operators.get(operator).spellings))
        return self.f.CallOp(dst, operator, spelling, args, keywords, via, token)

    def _call(self, name: str, dst: int | None) -> int:
        r = self.r
        args = self._uses(5)
        keywords = [r.choice(["", "", "*", "**", f"k{i}"]) for i in range(len(args))]
        callee = self._use()
        if self.objects and r.random() < 0.3:
            callee = self.b.constant(ObjectRef(r.choice(OBJECTS) + str(r.randrange(3))))
        if name == "Call":
            return self.f.Call(dst, callee, args, keywords)
        return self.f.CallPy(dst, callee, args, keywords, r.choice(TEXTS[:9]))


ORDER = ("positional_only", "positional_or_keyword", "var_positional", "keyword_only", "var_keyword")
OPERATORS = ("add", "exp", "matmul", "reshape", "sum", "concat")
SIMPLE = (
    "LoadConst", "LoadTensor", "LoadParam", "LoadGlobal", "LoadAttr", "StoreAttr", "LoadCell", "StoreCell", "Move",
    "CallOp", "CallOp", "CallOp", "Dim", "Scalar", "Item", "Build", "Build", "Unpack", "Index", "SetItem", "Append",
    "Iter", "Raise", "Call", "CallPy", "MakeFunction", "StoreTensor", "Depend", "Check", "Anchor",
)  # fmt: skip


def make_profile(r: random.Random, program: Program) -> Profile:
    """A profile that fits a program."""
    functions = {}
    for index, f in enumerate(program.functions):
        loops = {i: (r.randrange(100), r.randrange(1 << 40)) for i in range(f.loops) if r.random() < 0.7}
        signatures = tuple(
            SignatureProfile(
                f"add:({s},128)",
                r.randrange(1000),
                {
                    i: r.choice(["float32[16..64, 128]{C}", "odd;\r\ntext"])
                    for i in range(f.registers)
                    if r.random() < 0.3
                },
                {
                    i: r.choice(["float32[16..64 % 8]", "odd;text\n"])
                    for i in range(len(f.instructions))
                    if r.random() < 0.2
                },
            )
            for s in range(r.randrange(3))
        )
        if r.random() < 0.8:
            functions[index] = FunctionProfile(r.randrange(1 << 33), loops, signatures)
    return Profile(functions)


def generate(seed: int, size: int = 30, *, objects: bool = True, **build: Any) -> Program:
    """The program of a seed."""
    return Generator(random.Random(seed), size, objects=objects).program(**build)


__all__ = ["Generator", "generate", "make_array", "make_constant", "make_profile"]

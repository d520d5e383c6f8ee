"""Random functions that write into arrays under several names: what compiles does what Python does."""

from __future__ import annotations

import importlib.util
import random

import numpy as np
import pytest

from tests.compiler.regions import ExitTaken
from tests.compiler.tracing import Compiled, leaves
from tiercel.compiler.elementwise import NotLowered
from tiercel.compiler.trace import Untraceable

NAMES = "abcd"


def statements(rng: random.Random, depth: int, indent: str, loops: int) -> list[str]:
    """A block of statements over four arrays of shape (n, m), a list and a pair."""
    lines = []
    for _ in range(rng.randint(1, 4)):
        p, q, r = (rng.choice(NAMES) for _ in range(3))
        t = f"t{loops - 1}" if loops else "0"
        form = rng.choice([
            f"{p} = {q} * 0.5 + {r}", f"{p} = {q}", f"{p} += 1", f"{p} += {q}", f"{p} -= {q} * 0.5",
            f"{p}[{t}] = {q}[0]",
            f"{p}[{t}] += 1", f"{p}[{t}] = {q}[{t}] * 2", f"{p}[{t}, 0] = {q}[0, 0]", f"{p} = zeros(x.shape, float32)",
            f"{p}[:, 0] = 2", f"{p}[{q} > 1] = 0", f"{p}[...] = {q}", f"v = {p}[{t}]", "v = v * 2",
            f"{p}[0] = v", f"pair = ({p}, {q})", f"{p} = pair[0] + 1", f"{p} = pair[1]", f"{p}, {q} = {q}, {p}",
            f"x += {q}", f"y[{t}] = {q}[0] * 2", f"x[{q} > 1] = 0", f"y[1:] = {q}[:-1]", f"x[...] = {q} * 2",
            "v += 1",
            f"v = {p}[1:]", f"add(x, {q})", f"{p} = add({q}, {r})", f"held[0] = {p}", f"{p} = held[1]",
            f"out.append({p}[0] * 1)", f"out.append({p}[0])",
        ])  # fmt: skip
        lines.append(indent + form)
        if depth and rng.random() < 0.45:
            inner = indent + "    "
            if rng.random() < 0.5:
                lines.append(f"{indent}for t{loops} in range(x.shape[0]):")
                lines += statements(rng, depth - 1, inner, loops + 1)
                if rng.random() < 0.2:
                    lines.append(f"{inner}if {p}.sum() > 20: break")
            else:
                lines.append(f"{indent}if {p}.sum() > {q}.max():")
                lines += statements(rng, depth - 1, inner, loops)
                if rng.random() < 0.5:
                    lines += [f"{indent}else:", *statements(rng, depth - 1, inner, loops)]
    return lines


def program(seed: int) -> str:
    """The source of a module with a function `f(x, y)`."""
    rng = random.Random(seed)
    names = ["x * 1", "y * 2", "x + y", "x - y", "y", "x", "a"]
    start = [f"{n} = {rng.choice(names[: 6 + (i > 0)])}" for i, n in enumerate(NAMES)]
    start += ["v = x[0] * 1", "pair = (a, b)", "held = [c, d]", "out = []"]
    end = rng.choice(
        [
            "a.sum(), b * 1, c + d",
            "a, b * 1",
            "d + 1, v + 0",
            "np.stack(out), a + b",
            "pair[0] + held[0]",
            "x",
            "x + 1, y",
        ]
    )
    body = ["    " + s for s in start] + statements(rng, 2, "    ", 0) + [f"    return {end}"]
    return "\n".join(
        [
            "import numpy as np",
            "from numpy import float32, zeros",
            "def add(p, q):",
            "    p += q",
            "    return p",
            "def f(x, y):",
            *body,
            "",
        ]
    )


def outcome(seed: int, folder) -> str:
    """Compile and compare: "same", "left" or "refused"."""
    path = folder / f"random_writes_{seed}.py"
    path.write_text(program(seed))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rng = np.random.default_rng(seed)
    sets = [tuple(rng.standard_normal((n, m), dtype=np.float32) for _ in range(2)) for n, m in ((3, 4), (1, 2), (5, 3))]
    try:
        compiled = Compiled(module.f, *sets[0])
    except (Untraceable, NotLowered):
        return "refused"
    left = False
    for x, y in sets:
        ours, theirs = (x.copy(), y.copy()), (x.copy(), y.copy())
        try:
            got = compiled(*ours)
        except ExitTaken:
            left = True
            np.testing.assert_array_equal(ours, (x, y), err_msg=program(seed))
            continue
        want = module.f(*theirs)
        for g, w in zip([*leaves(got), *ours], [*leaves(want), *theirs], strict=True):
            assert np.shape(g) == np.shape(w), program(seed)
            np.testing.assert_allclose(g, w, rtol=1e-3, atol=1e-3, err_msg=program(seed))
    return "left" if left else "same"


@pytest.mark.filterwarnings("ignore")
def test_random_writes(tmp_path):
    outcomes = [outcome(seed, tmp_path) for seed in range(60)]
    assert outcomes.count("same") >= 5, outcomes

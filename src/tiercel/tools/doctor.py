"""`tiercel doctor`: what is installed, what is on, and what is not and why.

In: nothing. Out: facts in sections, and checks, each with a state: `ok`, `off` (not there, and nothing is wrong),
`warn` (works, but not as it could) or `fail`. Exit code 1 if a check fails.

LLVM is asked in a process of its own, as the compile worker would start it: importing it here would weigh on the
caller, and a library that aborts must not take the doctor with it.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.metadata
import importlib.util
import json
import mmap
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any, Final, Literal

import numpy as np

import tiercel
from tiercel import config
from tiercel.config import SETTINGS
from tiercel.hotpath.processors import available_threads
from tiercel.hotpath.service import service
from tiercel.vm import stub
from tiercel.vm.build import builder

__all__ = ["Check", "add_arguments", "diagnose", "run"]

State = Literal["ok", "off", "warn", "fail"]

# The variables that decide how many threads the libraries below NumPy start.
_THREAD_VARIABLES: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# The instruction sets that make a difference to generated code.
_FEATURES: Final = (
    *("SSE42", "AVX", "F16C", "FMA3", "AVX2", "AVX512F", "AVX512_SKX", "AVX512_SPR", "AMX"),
    *("NEON", "ASIMD", "ASIMDHP", "ASIMDDP", "SVE"),
)
_PACKAGES: Final = ("numpy", "ml_dtypes", "llvmlite", "scipy-openblas32", "platformdirs", "rich")
_OPTIONAL: Final = ("torch", "onnx", "onnxruntime", "jax", "numba", "scipy")
_ASK_LLVM: Final = """
import json, llvmlite, llvmlite.binding as llvm
llvm.initialize_native_target()
features = llvm.get_host_cpu_features()
print(json.dumps({
    "llvm": ".".join(map(str, llvm.llvm_version_info)), "llvmlite": llvmlite.__version__,
    "cpu": llvm.get_host_cpu_name(), "triple": llvm.get_process_triple(),
    "features": sorted(name for name, on in features.items() if on),
}))
"""


@dataclass(frozen=True, slots=True)
class Check:
    """Something that was tried: what, how it stands, and what that means."""

    name: str
    state: State
    text: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--json", action="store_true", help="everything as one JSON object")


def run(options: argparse.Namespace) -> int:
    """Print the diagnosis. Returns 1 if a check fails."""
    found = diagnose()
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        print("\n".join(_text(found)))
    return 1 if any(c["state"] == "fail" for c in found["checks"]) else 0


def diagnose() -> dict[str, Any]:
    """Return everything as plain data.

    Keys: `tiercel`, `python`, `numpy`, `machine`, `threads`, `llvm`, `packages` (name to value), `settings` (rows of
    name, value, origin, variable), `checks` (rows of name, state, text).
    """
    llvm = _llvm()
    return {
        "tiercel": {"version": tiercel.__version__, "place": os.path.dirname(tiercel.__file__)},
        "python": _python(),
        "numpy": _numpy(),
        "machine": _machine(),
        "threads": _threads(),
        "llvm": llvm,
        "packages": {name: _version(name) for name in (*_PACKAGES, *_OPTIONAL)},
        "settings": [
            {
                "name": row.name,
                "value": SETTINGS[row.name].kind.show(row.value),
                "origin": row.origin,
                "variable": row.env,
            }
            for row in config.table()
        ],
        "checks": [
            {"name": c.name, "state": c.state, "text": c.text}
            for c in (
                _check_capture(),
                _check_disabled(),
                _check_tracer(),
                _check_native(llvm),
                _check_executable_memory(),
                _check_processes(),
                _check_compiler(),
                _check_entry(),
                _check_cache(),
                _check_cuda(),
            )
        ],
    }


# ---- facts -----------------------------------------------------------------------------------------------------------


def _python() -> dict[str, str]:
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    return {
        "version": f"{platform.python_implementation()} {platform.python_version()}{'' if gil else ' (free-threaded)'}",
        "executable": sys.executable or "unknown",
        "prefix": sys.prefix,
    }


def _numpy() -> dict[str, str]:
    out = {"version": np.__version__}
    try:
        blas: Mapping[str, Any] = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        out["blas"] = f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()
    except (KeyError, TypeError):
        out["blas"] = "unknown"
    return out


def _machine() -> dict[str, str]:
    out = {"system": f"{platform.system()} {platform.release()}", "architecture": platform.machine()}
    out["cpu"] = _cpu_name()
    known = _numpy_features()
    out["features"] = " ".join(f for f in _FEATURES if known.get(f)) or "unknown"
    total = _total_memory()
    if total:
        out["memory"] = f"{total / 2**30:.1f} GiB"
    limit = _cgroup_number("memory.max", "memory/memory.limit_in_bytes")
    if limit is not None and (not total or limit < total):
        out["memory limit"] = f"{limit / 2**30:.1f} GiB (control group)"
    return out


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith(("model name", "Model", "cpu model")):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def _numpy_features() -> Mapping[str, bool]:
    # NumPy has asked the CPU already, and on every architecture; there is no public name for the answer.
    try:
        module = importlib.import_module("numpy._core._multiarray_umath")
    except ImportError:
        return {}
    found: Mapping[str, bool] = getattr(module, "__cpu_features__", {})
    return found


def _total_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0


def _threads() -> dict[str, str]:
    out = {"cores": str(os.cpu_count() or "unknown")}
    if hasattr(os, "sched_getaffinity"):
        out["affinity"] = f"{len(os.sched_getaffinity(0))} cores"
    quota = cpu_quota()
    out["quota"] = "none" if quota is None else f"{quota:.2f} cores (control group)"
    for variable in _THREAD_VARIABLES:
        out[variable] = os.environ.get(variable, "not set")
    allowed = available_threads()
    out["compiled code"] = f"{allowed.threads} threads: {allowed.reason}"
    return out


def cpu_quota() -> float | None:
    """Return how many cores the process's control group may use; None if there is no limit."""
    text = _cgroup_text("cpu.max")
    if text is not None:
        quota, _, period = text.partition(" ")
        return None if quota == "max" or not period else int(quota) / int(period)
    quota_us = _cgroup_number(None, "cpu/cpu.cfs_quota_us")
    period_us = _cgroup_number(None, "cpu/cpu.cfs_period_us")
    return quota_us / period_us if quota_us and period_us and quota_us > 0 else None


def _cgroup_text(v2: str | None, v1: str | None = None) -> str | None:
    root = Path("/sys/fs/cgroup")
    places = [root / v1] if v1 is not None else []
    if v2 is not None:
        places.insert(0, root / v2)
        try:
            # One line for version 2: "0::/path/of/the/group".
            own = Path("/proc/self/cgroup").read_text(encoding="utf-8").rpartition("0::")[2].strip().lstrip("/")
            places.insert(0, root / own / v2)
        except OSError:
            pass
    for path in places:
        try:
            return path.read_text(encoding="utf-8").strip()
        except OSError:
            continue
    return None


def _cgroup_number(v2: str | None, v1: str) -> int | None:
    text = _cgroup_text(v2, v1)
    return int(text) if text is not None and text.lstrip("-").isdigit() else None


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _llvm() -> dict[str, str]:
    """What a fresh interpreter says about LLVM; `error` if it cannot be asked."""
    if not sys.executable:
        return {"error": "this program does not say where its Python interpreter is (sys.executable is empty)"}
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", _ASK_LLVM], capture_output=True, text=True, check=False, timeout=60
        )
    except subprocess.TimeoutExpired:
        return {"error": f"{sys.executable} did not answer within 60 s"}
    except OSError as error:
        return {"error": f"{sys.executable} cannot be started: {error.strerror or error}"}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return {"error": last}
    found: dict[str, Any] = json.loads(done.stdout)
    return {**found, "features": " ".join(found["features"])}


# ---- checks ----------------------------------------------------------------------------------------------------------


def _check_capture() -> Check:
    from tiercel.frontend.python import capture
    from tiercel.interp import Environment, decode
    from tiercel.interp import run as run_decoded

    try:
        program = capture(FunctionType(_probe.__code__, globals())).program
        decoded = decode(program, environment=Environment(globals()))
        got = run_decoded(decoded, (np.arange(3.0), 2))
        if not np.array_equal(got, [0.0, 3.0, 6.0]):
            return Check("interpreter", "fail", f"a probe gave {got!r} instead of [0, 3, 6]")
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the diagnosis
        return Check("interpreter", "fail", f"a probe failed: {type(error).__name__}: {error}")
    return Check("interpreter", "ok", "captures, decodes and runs a probe")


def _probe(x: Any, n: int) -> Any:
    total = x
    for _ in range(n):
        total = total + x
    return total


def _check_disabled() -> Check:
    settings = config.current()
    if settings.disable:
        return Check("jit", "off", "the setting `disable` is on: tc.jit returns functions unchanged")
    if settings.level == "O0":
        return Check("jit", "off", "level is O0: everything stays interpreted")
    return Check("jit", "ok", f"functions may reach level {settings.level}")


def _check_tracer() -> Check:
    if sys.gettrace() is not None:
        return Check("tracer", "warn", "a tracer or debugger is active: jitted functions run as Python")
    return Check("tracer", "ok", "none is active")


def _check_native(llvm: Mapping[str, str]) -> Check:
    if "error" in llvm:
        return Check("llvm", "warn", f"not usable, so nothing can be compiled: {llvm['error']}")
    return Check("llvm", "ok", f"LLVM {llvm['llvm']} for {llvm['cpu']} ({llvm['triple']})")


def _check_executable_memory() -> Check:
    if not hasattr(mmap, "PROT_EXEC"):
        return Check("executable memory", "off", f"not known how on {platform.system()}: stays interpreted")
    # As code is installed: written first, made executable then, never both at once.
    library = ctypes.CDLL(None, use_errno=True)
    with mmap.mmap(-1, mmap.PAGESIZE) as page:
        held = ctypes.c_char.from_buffer(page)
        address = ctypes.c_void_p(ctypes.addressof(held))
        refused = library.mprotect(address, ctypes.c_size_t(mmap.PAGESIZE), mmap.PROT_READ | mmap.PROT_EXEC)
        reason = os.strerror(ctypes.get_errno()) if refused else ""
        del held
    if refused:
        return Check("executable memory", "warn", f"refused by the system ({reason}): everything stays interpreted")
    return Check("executable memory", "ok", "may be made")


def _check_processes() -> Check:
    if not sys.executable:
        return Check("worker process", "warn", "no interpreter to start one with (sys.executable is empty)")
    if not os.access(sys.executable, os.X_OK):
        return Check("worker process", "warn", f"{sys.executable} cannot be executed")
    return Check("worker process", "ok", f"{sys.executable} can be started")


def _check_compiler() -> Check:
    reason = builder().available()
    if reason is not None:
        return Check("compiler", "off", f"{reason}: everything runs interpreted (O0), and right")
    return Check("compiler", "ok", f"hot functions are compiled in a {config.current().worker} of its own")


def _check_entry() -> Check:
    reason = stub.unusable()
    if reason is not None:
        return Check("entry", "warn", f"calls enter compiled code through Python, 10 us instead of 0.2: {reason}")
    return Check("entry", "ok", "calls enter compiled code through machine code, about 0.2 us each")


def _check_cache() -> Check:
    state = service().cache.stats()
    place = state["folder"] or "memory"
    if state["place"] == "disk":
        return Check("kernel cache", "ok", f"{state['entries']} kernels in {place}")
    return Check("kernel cache", "warn", f"{state['place']}: {state['reason']} ({place})")


def _check_cuda() -> Check:
    if not Path("/dev/nvidia0").exists():
        return Check("cuda", "off", "no device here")
    return Check("cuda", "off", "a device is here; this version runs on the CPU only")


# ---- text ------------------------------------------------------------------------------------------------------------

_SECTIONS: Final[tuple[tuple[str, Callable[[dict[str, Any]], Mapping[str, str]]], ...]] = (
    ("Tiercel", lambda d: d["tiercel"]),
    ("Python", lambda d: d["python"]),
    ("NumPy", lambda d: d["numpy"]),
    ("Machine", lambda d: d["machine"]),
    ("Threads", lambda d: d["threads"]),
    ("LLVM", lambda d: {k: v for k, v in d["llvm"].items() if k != "features"}),
    ("Packages", lambda d: d["packages"]),
)


def _text(found: dict[str, Any]) -> list[str]:
    out: list[str] = []
    for title, part in _SECTIONS:
        out += [title, *_aligned(part(found).items()), ""]
    changed = [s for s in found["settings"] if s["origin"] != "default"]
    out.append(f"Settings ({len(changed)} of {len(found['settings'])} not at their default)")
    rows = [(s["name"], f"{s['value']}{_origin(s)}") for s in found["settings"]]
    out += [*_aligned(rows), "", "Checks"]
    width = max(len(c["name"]) for c in found["checks"])
    out += [f"  {c['state']:<4}  {c['name']:<{width}}  {c['text']}" for c in found["checks"]]
    return out


def _origin(setting: Mapping[str, str]) -> str:
    if setting["origin"] == "default":
        return ""
    return f"  (from {setting['variable']})" if setting["origin"] == "environment" else f"  (by {setting['origin']})"


def _aligned(rows: Any) -> list[str]:
    rows = [(str(a), str(b)) for a, b in rows]
    width = max((len(a) for a, _ in rows), default=0)
    return [f"  {a:<{width}}  {b}".rstrip() for a, b in rows]

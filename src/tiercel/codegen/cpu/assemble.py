"""LLVM IR text to an object file. The only place that imports LLVM; it runs in the compile worker.

No mid-level passes: the text is explicit (measured: they add 12 to 51 ms and no speed). Position-independent code in
the small code model, so that only relative relocations are left for `codegen.blob`.
"""

from __future__ import annotations

import functools
from typing import Any, Final

from tiercel.codegen.cpu.target import Target

FULL: Final = 2
"""Code generation effort for code that stays."""
QUICK: Final = 0
"""Effort for code that is wanted soon: half of the time of `FULL` or less, 0 to 20 percent slower when it runs
(measured 2026 on Zen 4: a gate 6 ms instead of 13, softmax 8 instead of 18, an LSTM layer 32 instead of 80). Only
after `allow_quick`: without its options such code is up to three times slower."""

_QUICK_OPTIONS: Final = {
    "optimize-regalloc": ("true", "true"),  # else every value is spilled; what `FULL` does anyway
    "enable-misched": ("false", "true"),
    "disable-machine-sink": ("true", "false"),
    "disable-machine-cse": ("true", "false"),
    "disable-copyprop": ("true", "false"),
}
"""Options of LLVM for `QUICK`, and their values otherwise: registers are allocated as at higher levels, and passes that
take more time than they bring are off."""
_allowed: Final[list[bool]] = []
_in_force: Final[list[bool]] = [False]


def allow_quick() -> None:
    """Let code be compiled at the level `QUICK`: the options it needs are those of the whole process, which therefore
    must be one of ours.
    """
    if not _allowed:
        _allowed.append(True)


def best_level(*, quick: bool) -> int:
    """The level to compile with here when code is wanted soon, or not."""
    return QUICK if quick and _allowed else FULL


def _set_options(level: int) -> None:
    quick = level == QUICK and bool(_allowed)
    if quick != _in_force[0]:
        import llvmlite.binding as llvm

        for name, (on, off) in _QUICK_OPTIONS.items():
            llvm.set_option("", f"-{name}={on if quick else off}")
        _in_force[0] = quick


@functools.cache
def _machine(cpu: str, features: str, level: int) -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=cpu, features=features, opt=level, reloc="pic", codemodel="small")


def assemble(text: str, target: Target, *, level: int = FULL, verify: bool = False) -> bytes:
    """Compile a module.

    Args:
        text: LLVM IR.
        target: the processor.
        level: code generation effort 0 to 3.
        verify: run LLVM's verifier first (0.3 ms for a small kernel; an invalid module otherwise aborts the process).

    Returns:
        The bytes of an ELF object.

    Raises:
        RuntimeError: LLVM's message when the text does not parse or verify.
    """
    import llvmlite.binding as llvm

    module = llvm.parse_assembly(text)
    if verify:
        module.verify()
    _set_options(level)
    return bytes(_machine(target.cpu, target.features, level).emit_object(module))


def disassemble(text: str, target: Target, *, level: int = FULL) -> str:
    """The assembly of a module, for people."""
    import llvmlite.binding as llvm

    return str(_machine(target.cpu, target.features, level).emit_assembly(llvm.parse_assembly(text)))

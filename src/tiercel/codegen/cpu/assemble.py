"""LLVM IR text to an object file. The only place that imports LLVM; it runs in the compile worker.

No mid-level passes: the text is explicit (measured: they add 12 to 51 ms and no speed). Position-independent code in
the small code model, so that only relative relocations are left for `codegen.blob`.
"""

from __future__ import annotations

import functools
from typing import Any

from tiercel.codegen.cpu.target import Target


@functools.cache
def _machine(cpu: str, features: str, level: int) -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=cpu, features=features, opt=level, reloc="pic", codemodel="small")


def assemble(text: str, target: Target, *, level: int = 2, verify: bool = False) -> bytes:
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
    return bytes(_machine(target.cpu, target.features, level).emit_object(module))


def disassemble(text: str, target: Target, *, level: int = 2) -> str:
    """The assembly of a module, for people."""
    import llvmlite.binding as llvm

    return str(_machine(target.cpu, target.features, level).emit_assembly(llvm.parse_assembly(text)))

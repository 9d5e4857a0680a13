"""LLVM IR text to an object file in memory."""

from __future__ import annotations

import llvmlite.binding as llvm

from pliant.base.errors import PliantError
from pliant.codegen.llvm.target import Target, machine


class CodegenError(PliantError):
    """Generated code was rejected: a fault of ours."""


def compile_text(text: str, t: Target, *, level: int = 3) -> bytes:
    """Parse, verify, optimise and emit. Raises CodegenError when LLVM rejects the text."""
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise CodegenError(f"generated LLVM IR is malformed: {error}") from error
    module.triple = t.triple
    tm = machine(t)
    module.data_layout = str(tm.target_data)
    optimise(module, tm, level)
    return tm.emit_object(module)  # type: ignore[no-any-return]


def optimise(module: llvm.ModuleRef, tm: llvm.TargetMachine, level: int = 3) -> None:
    """Run LLVM's pipeline. Loops are vectorized by us, explicitly, and not by LLVM.

    LLVM 22.1 is wrong where it does: of a division that no lane changes but only some lanes want,
    it takes the first lane for all, and the others load from an address that nobody computed.
    """
    options = llvm.create_pipeline_tuning_options(level)
    options.loop_vectorization = False
    options.slp_vectorization = False
    passes = llvm.create_pass_builder(tm, options)
    passes.getModulePassManager().run(module, passes)


def assembly(text: str, t: Target) -> str:
    """The machine code of IR text, to read."""
    module = llvm.parse_assembly(text)
    module.verify()
    tm = machine(t)
    optimise(module, tm)
    return tm.emit_assembly(module)  # type: ignore[no-any-return]

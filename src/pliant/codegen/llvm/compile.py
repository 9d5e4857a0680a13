"""LLVM IR text to an object file in memory."""

from __future__ import annotations

from typing import Final

import llvmlite.binding as llvm

from pliant.base.errors import InternalError
from pliant.codegen.llvm.target import Target, machine

LONG: Final = 200_000  # characters; register allocation takes time quadratic in a function


class CodegenError(InternalError):
    """Generated code was rejected."""


def compile_text(text: str, t: Target, *, level: int = 3) -> bytes:
    """Parse, verify, optimise and emit. Raises CodegenError when LLVM rejects the text.

    `level` is that of LLVM's optimisation; below 3 very long texts get its quick code generator.
    """
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise CodegenError(f"generated LLVM IR is malformed: {error}") from error
    module.triple = t.triple
    tm = machine(t, 0 if level < 3 and len(text) > LONG else 3)
    module.data_layout = str(tm.target_data)
    optimise(module, tm, level)
    return tm.emit_object(module)  # type: ignore[no-any-return]


def optimise(module: llvm.ModuleRef, tm: llvm.TargetMachine, level: int = 3) -> None:
    """Run LLVM's pipeline. Loops are vectorized by us, explicitly, and not by LLVM."""
    options = llvm.create_pipeline_tuning_options(level)
    options.loop_vectorization = True
    options.slp_vectorization = False
    passes = llvm.create_pass_builder(tm, options)
    passes.getModulePassManager().run(module, passes)


def assembly(text: str, t: Target, *, level: int = 3) -> str:
    """The machine code of IR text, to read."""
    module = llvm.parse_assembly(text)
    module.verify()
    tm = machine(t)
    optimise(module, tm, level)
    return tm.emit_assembly(module)  # type: ignore[no-any-return]

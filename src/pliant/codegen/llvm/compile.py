"""LLVM IR text to an object file in memory.

llvmlite locks LLVM from Python code, in which a signal's handler may raise: the lock would stay
taken, and other threads wait for ever. So signals wait while LLVM is called, here and elsewhere.
"""

from __future__ import annotations

import re
from typing import Final

import llvmlite.binding as llvm

from pliant.base.errors import InternalError
from pliant.base.load import signals_held
from pliant.codegen.llvm.target import Target, machine

LEVEL: Final = 2  # of LLVM's optimisation; the next takes a fifth longer and has no faster code
LONG: Final = 200_000  # characters; register allocation takes time quadratic in a function

_MASKED_STORE: Final = re.compile(
    r"^ *(?:tail )?call void @llvm\.masked\.store\.\S+?"
    r"\(<\d+ x (?P<element>\w+)> (?P<value>%[^ ,]+), "
    r"ptr (?:\w+ )*?align (?P<align>\d+) (?P<address>[%@][^ ,]+), "
    r"<\d+ x i1> <(?P<mask>i1 \w+(?:, i1 \w+)*)>\).*$",
    re.MULTILINE,
)


class CodegenError(InternalError):
    """Generated code was rejected."""


@signals_held()
def compile_text(text: str, t: Target, *, level: int = LEVEL) -> bytes:
    """Parse, verify, optimise and emit. Raises CodegenError when LLVM rejects the text.

    `level` is that of LLVM's optimisation; at 0, and below LEVEL where the text is very long, it
    is its quick code generator that makes code.
    """
    module, tm = _optimised(text, t, level)
    return tm.emit_object(module)  # type: ignore[no-any-return]


def _optimised(text: str, t: Target, level: int) -> tuple[llvm.ModuleRef, llvm.TargetMachine]:
    """What machine code is made of, and what makes it."""
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise CodegenError(f"generated LLVM IR is malformed: {error}") from error
    module.triple = t.triple
    quick = level == 0 or (level < LEVEL and len(text) > LONG)
    tm = machine(t, 0 if quick else 3)
    module.data_layout = str(tm.target_data)
    optimise(module, tm, level)
    return _single_lanes_apart(module), tm


def _single_lanes_apart(module: llvm.ModuleRef) -> llvm.ModuleRef:
    """The module with scalar stores for masked ones of which a single lane is known to be active.

    LLVM 22.1 makes such stores for AVX-512 itself, but forgets that a lane was narrowed: of an i32
    that became an i16 it writes all four bytes.
    """
    text = str(module)
    if "@llvm.masked.store" not in text:
        return module
    found = _MASKED_STORE.sub(_single_lane, text)
    return module if found == text else llvm.parse_assembly(found)


def _single_lane(store: re.Match[str]) -> str:
    lanes = store["mask"].replace("i1 ", "").split(", ")
    if lanes.count("true") != 1:
        return store[0]
    lane, name, kind = lanes.index("true"), f"%lane.of.{store.start()}", store["element"]
    address = f"getelementptr {kind}, ptr {store['address']}, i64 {lane}"
    return (
        f"  {name} = extractelement <{len(lanes)} x {kind}> {store['value']}, i64 {lane}\n"
        f"  {name}.at = {address}\n"
        f"  store {kind} {name}, ptr {name}.at, align {store['align']}"
    )


def optimise(module: llvm.ModuleRef, tm: llvm.TargetMachine, level: int = LEVEL) -> None:
    """Put in what is to be inlined, and simplify each function. Loops are vectorized and unrolled
    by us, explicitly, and not by LLVM.

    The rest of LLVM's pipeline for a module, which is about functions that call one another and
    goes over all loops once more, takes as long again, and code is no faster for it (nine models:
    between 0.99 and 1.01 times).

    LLVM 22.1 is wrong where it vectorizes: of a division that no lane changes but only some lanes
    want, it takes the first lane for all, and the others load from an address that nobody computed.
    Where it unrolls, it does so once more what was unrolled: a fifth more code, which took a third
    longer to make and was no faster for it (products of few rows slower).
    """
    options = llvm.create_pipeline_tuning_options(level)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_unrolling = False
    passes = llvm.create_pass_builder(tm, options)
    inline = llvm.create_new_module_pass_manager()
    inline.add_always_inliner_pass()
    inline.add_global_dead_code_eliminate_pass()
    inline.run(module, passes)
    simplify = passes.getFunctionPassManager()
    for function in module.functions:
        if not function.is_declaration:
            simplify.run(function, passes)


@signals_held()
def assembly(text: str, t: Target, *, level: int = LEVEL) -> str:
    """The machine code of IR text, to read: that of `compile_text`. Raises what that does."""
    module, tm = _optimised(text, t, level)
    return tm.emit_assembly(module)  # type: ignore[no-any-return]

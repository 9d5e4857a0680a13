"""Kernels and host functions to object files, and objects to addresses in this process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Final

import llvmlite.binding as llvm
from llvmlite.binding import orcjit

from pliant.base.dtypes import DType
from pliant.base.errors import InternalError, PliantError, ResourceError
from pliant.base.load import signals_held
from pliant.base.settings import settings
from pliant.codegen.epilogue import Epilogue, with_epilogues
from pliant.codegen.epilogue_kernel import EpilogueKernel
from pliant.codegen.llvm.compile import LEVEL
from pliant.codegen.llvm.emitter import Options, emit_host, emit_kernel
from pliant.codegen.llvm.multiply_add import is_multiply_add
from pliant.codegen.llvm.pairs import has_pairs
from pliant.codegen.llvm.square import is_square
from pliant.codegen.llvm.target import Target, machine
from pliant.codegen.micro_kernels import micro_kernel, micro_kernels
from pliant.codegen.microkernel import MatrixKernel, MicroKernel
from pliant.codegen.source import Built, Source
from pliant.loop.conditions_first import conditions_first
from pliant.loop.hoist import hoist
from pliant.loop.lower_blocks import lower_blocks
from pliant.loop.parser import parse_function
from pliant.loop.rows_ahead import rows_ahead
from pliant.loop.stmt import LINE, PAGE, Function, Invoke, statements
from pliant.loop.verify import verify_function
from pliant.lower.canonical import Spec
from pliant.lower.contraction import Factors
from pliant.schedule.intrinsic import Intrinsic
from pliant.schedule.program import Program
from pliant.schedule.recipes.choose import schedule
from pliant.schedule.recipes.matmul_tile import MatmulIntrinsic
from pliant.schedule.recipes.multiply_add import multiply_adds
from pliant.schedule.recipes.square import squares

HOST_LEVEL: Final = 1  # of LLVM's optimisation: host functions are long and run once a call
ONCE_LEVEL: Final = 0  # code that runs once, when a model is compiled, is sooner made than run


def matmul_intrinsic(t: Target, numerics: str = "fast") -> MatmulIntrinsic:
    """What the register tile of a target computes in f32."""
    return _intrinsic(micro_kernel(t, numerics))


def target_matmuls(t: Target, numerics: str = "fast") -> tuple[MatmulIntrinsic, ...]:
    """What the micro-kernels of a target compute: one for every pair of operand types."""
    return tuple(map(_intrinsic, micro_kernels(t, numerics)))


def target_factors(t: Target, numerics: str = "fast") -> tuple[Factors, ...]:
    """The types that factors of a product may have, narrow ones first, with how many are multiplied
    at once; all with panels as wide as those of f32, and what else fits some numbers of columns."""
    width = matmul_intrinsic(t, numerics).columns
    by_types: dict[tuple[DType, DType], list[MatmulIntrinsic]] = {}
    for x in target_matmuls(t, numerics):
        by_types.setdefault((x.a, x.b), []).append(x)
    found = []
    for x, *others in by_types.values():
        if x.columns == width:
            fitting = tuple((y.columns, y.group) for y in others)
            found.append(Factors(x.a, x.b, x.c, x.group, _apart(x.rows, t.l1), fitting))
    return tuple(sorted(found, key=lambda x: x.a.bits))


def _apart(rows: int, l1: int) -> int:
    """The least power of two such that lines of `rows` rows that begin multiples of so many bytes
    after one another do not fit into the sets that they map to; 0 where they always do. The bits
    of an address that choose the set are those within a page: a cache has l1 / PAGE ways."""
    apart = LINE
    while apart <= PAGE and rows * apart <= l1:
        apart *= 2
    return apart if apart <= PAGE else 0


def target_intrinsics(t: Target, numerics: str = "fast") -> tuple[Intrinsic, ...]:
    """What programs may call on a target."""
    matmuls = (i for mm in target_matmuls(t, numerics) for i in mm.intrinsics)
    return (*matmuls, *squares(t.lanes(32)), *multiply_adds(t.lanes(32)))


def _intrinsic(mk: MatrixKernel) -> MatmulIntrinsic:
    return MatmulIntrinsic(
        mk.symbol, mk.rows, mk.columns, mk.lanes, mk.a, mk.b, mk.c, mk.group, mk.row_unit
    )


def kernel_schedule(spec: Spec, t: Target) -> Program:
    """How a kernel runs on a target: the program of its definition, and the steps that made it."""
    mm = matmul_intrinsic(t, spec.numerics)
    for _, plan in spec.plans:  # of one type
        packed = next(x for x in spec.inputs if x.label == plan.packed)
        wanted = (plan.a_side.dtype, packed.dtype, plan.columns(packed), plan.group)
        offered = target_matmuls(t, spec.numerics)
        mm = next(x for x in offered if (x.a, x.b, x.columns, x.group) == wanted)
    return schedule(spec, t.lanes(32), mm, near=t.l1, pairs=has_pairs(t.features))


def kernel_program(symbol: str, spec: Spec, t: Target) -> Function:
    """The loop program of a kernel for a target: all that code is made of."""
    return kernel_schedule(spec, t).function.replace(name=symbol)


def kernel_source(f: Function, t: Target) -> Source:
    """A kernel as far as it is made in Python."""
    numerics = dict(f.notes).get("numerics", "fast")
    kernels = {mk.symbol: mk for mk in micro_kernels(t, numerics) if isinstance(mk, MicroKernel)}
    plain, epilogues = with_epilogues(conditions_first(lower_blocks(f)), kernels)
    references = {e.symbol: e.reference for e in epilogues}
    calls = (references.get(c, c) for c in micro_kernels_called(plain))
    code = emit_kernel(hoist(rows_ahead(plain)), Options.of(f, t.features))
    return Source(*code, tuple(calls), _level(f, LEVEL))


def spec_source(symbol: str, spec: Spec, t: Target) -> Source:
    """From what a kernel computes; its loop program is verified where PLIANT_CHECK asks for it."""
    program = kernel_program(symbol, spec, t)
    if settings().check:
        try:
            verify_function(program)
        except PliantError as error:
            raise InternalError(f"after the stage kernels ({symbol}): {error}") from error
    return kernel_source(program, t)


def build_kernel(f: Function, t: Target) -> Built:
    return kernel_source(f, t).built(t)


def micro_kernels_called(f: Function) -> tuple[str, ...]:
    """Symbols of the micro-kernels that a kernel needs, each once."""
    calls = (s.callee for s in statements(f.body) if isinstance(s, Invoke))
    return tuple(c for c in dict.fromkeys(calls) if not (is_square(c) or is_multiply_add(c)))


def build_with_micro_kernels(f: Function, t: Target) -> list[bytes]:
    """A kernel's object and those of the micro-kernels that it calls, to link by themselves."""
    kernel = build_kernel(f, t)
    called = called_kernels(kernel.calls, t).values()
    return [kernel.object, *(build_micro_kernel(mk, t).object for mk in called)]


def called_kernels(
    references: Iterable[str], t: Target, numerics: str = "fast"
) -> dict[str, MatrixKernel | EpilogueKernel]:
    """The micro-kernels that sources call (`Source.calls`)."""
    known = {mk.symbol: mk for mk in micro_kernels(t, numerics)}
    found: dict[str, MatrixKernel | EpilogueKernel] = {}
    for reference in references:
        symbol, _, text = reference.partition("\n")
        kernel = known[symbol]
        found[reference] = kernel
        if text:
            assert isinstance(kernel, MicroKernel)
            epilogue = Epilogue(symbol, parse_function(text))
            found[reference] = EpilogueKernel(kernel, epilogue, frozenset(t.features))
    return found


def host_source(f: Function) -> Source:
    """A host function as far as it is made in Python."""
    return Source(*emit_host(lower_blocks(f), Options()), level=_level(f, HOST_LEVEL))


def _level(f: Function, usual: int) -> int:
    """Of LLVM's optimisation of a function."""
    return ONCE_LEVEL if dict(f.notes).get("once") else usual


@cache
def build_micro_kernel(mk: MatrixKernel | EpilogueKernel, t: Target) -> Built:
    """Many kernels call the same one, and LLVM takes longer for it than for most of them."""
    return Source(mk.text()).built(t)


class Image:
    """Objects linked into this process. Keeps the code alive.

    By JITLink, which puts all of an object into one block and reports what goes wrong. LLVM's older
    linker maps each kind of section by itself, and ends the process where there is no memory or
    where the system lays code and constants more than 2 GB apart.

    Raises ResourceError.
    """

    @signals_held()
    def __init__(self, objects: Sequence[bytes], symbols: Sequence[str], t: Target) -> None:
        self._jit = llvm.create_lljit_compiler(machine(t), use_jit_link=True, suppress_errors=True)
        builder = orcjit.JITLibraryBuilder()
        for o in objects:
            builder.add_object_img(o)
        for s in symbols:
            builder.export_symbol(s)
        builder.add_current_process()
        try:
            self._library = builder.link(self._jit, "image")
        except RuntimeError as error:
            raise ResourceError(
                f"cannot place {sum(map(len, objects))} bytes of code in this process, is there "
                f"memory left? {error}"
            ) from error
        self.entries: Mapping[str, int] = {s: self._library[s] for s in symbols}

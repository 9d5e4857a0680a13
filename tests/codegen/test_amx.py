"""Kernels in AMX tiles: their machine code is looked at, and run with the instructions emulated.

`test_micro_kernels` runs them as they are, on machines that have AMX.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import pytest

from pliant.base.dtypes import i64
from pliant.codegen.build import kernel_source
from pliant.codegen.llvm.compile import assembly
from pliant.codegen.llvm.target import target
from pliant.codegen.micro_kernels import micro_kernels
from pliant.codegen.x86.tiles import TileKernel
from pliant.ir.expr import Index
from pliant.loop.stmt import BufferRef, For, Function, Invoke, buffer, seq
from pliant.sym.expr import as_int
from tests.codegen.amx import Emulated, by_itself
from tests.codegen.native import entry, run
from tests.codegen.tiles import Tile, evenly_apart, extremes, tails
from tests.targets import skipped_without

AMX = target("x86-64-amx")
KERNELS = [mk for mk in micro_kernels(AMX) if isinstance(mk, TileKernel)]


@pytest.mark.parametrize("mk", KERNELS, ids=lambda mk: mk.symbol)
def test_instructions(mk: TileKernel) -> None:
    text = assembly(mk.text(), AMX)
    assert text.count(f"{mk.instruction}\t") == 2 + 4  # few rows, many rows
    assert "tilerelease" not in text  # the caller's
    assert "vzeroupper" in text


@skipped_without("x86-64-avx512")  # only tiles are emulated
@pytest.mark.parametrize("cases", [tails, evenly_apart, extremes])
@pytest.mark.parametrize("mk", KERNELS, ids=lambda mk: mk.symbol)
def test_emulated(mk: TileKernel, cases: Callable[[TileKernel], Iterator[Tile]]) -> None:
    text, symbol = by_itself(mk)
    code = Emulated(text, symbol)
    call = entry(code.address)
    for tile in cases(mk):
        run(call, tile)
        assert not code.tiles.faults
        assert code.tiles.left == [16] * 8  # configured as they were


def program(mk: TileKernel, kinds: Sequence[str]) -> Function:
    """A call of the kernel for each, in a loop of this kind."""
    a, other = buffer("a", (64,), mk.a), buffer("other", (64,), mk.a)
    at, b = buffer("at", (8,), i64), buffer("b", (64, mk.columns, mk.group), mk.b)
    c = buffer("c", (32, 32), mk.c)
    operands = (a, at, other, b, c)
    refs = (BufferRef(x, (Index(as_int(0)),) * x.rank) for x in operands)
    call = Invoke(mk.symbol, (*refs, *(Index(as_int(n)) for n in (1, 1, 64, 32, 0))))
    loops = (For(f"i{k}", as_int(4), call, kind) for k, kind in enumerate(kinds))
    return Function("program", operands, (), seq(*loops))


@pytest.mark.parametrize("kinds", [["serial"], ["parallel"], ["serial", "parallel", "serial"]])
def test_whoever_calls_one_has_configured_the_tiles(kinds: list[str]) -> None:
    text = kernel_source(program(KERNELS[0], kinds), AMX).text
    functions = [f.splitlines() for f in text.split("\ndefine ")[1:]]
    calling = [f for f in functions if any("@pl_mm_" in line for line in f)]
    assert len(calling) == len(set(kinds))
    for lines in calling:
        calls = [x for x in lines if " call " in x or "ret " in x]
        assert "ldtilecfg" in calls[0]
        for before, here in pairwise(calls):
            assert "ret " not in here or "tilerelease" in before
            # A thread's share of the loop gives them up.
            assert "ptr @program.par" not in before or "ldtilecfg" in here
    assert text.count("ldtilecfg(") - 1 == len(calling) + (len(kinds) > 1)  # not for every call

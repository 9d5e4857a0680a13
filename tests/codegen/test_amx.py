"""Kernels in AMX tiles: their machine code is looked at, and run with the instructions emulated.

`test_micro_kernels` runs them as they are, on machines that have AMX.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pliant.codegen.llvm.compile import assembly
from pliant.codegen.llvm.target import target
from pliant.codegen.micro_kernels import micro_kernels
from pliant.codegen.x86.tiles import TileKernel
from tests.codegen.amx import Emulated
from tests.codegen.native import entry, run
from tests.codegen.tiles import Tile, extremes, tails

AMX = target("x86-64-amx")
KERNELS = [mk for mk in micro_kernels(AMX) if isinstance(mk, TileKernel)]


@pytest.mark.parametrize("mk", KERNELS, ids=lambda mk: mk.symbol)
def test_instructions(mk: TileKernel) -> None:
    text = assembly(mk.text(), AMX)
    assert text.count(f"{mk.instruction}\t") == 2 + 4  # few rows, many rows
    assert "tilerelease" in text.rsplit("tilestored", 1)[1]  # on every way out
    assert "vzeroupper" in text


@pytest.mark.parametrize("cases", [tails, extremes])
@pytest.mark.parametrize("mk", KERNELS, ids=lambda mk: mk.symbol)
def test_emulated(mk: TileKernel, cases: Callable[[TileKernel], Iterator[Tile]]) -> None:
    code = Emulated(mk.text(), mk.symbol)
    call = entry(code.address)
    for tile in cases(mk):
        run(call, tile)
        assert not code.tiles.faults
        assert not code.tiles.rows  # given up

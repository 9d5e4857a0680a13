"""Micro-kernels of the feature sets that this machine has, against NumPy."""

from __future__ import annotations

from itertools import chain

import pytest

from pliant.codegen.build import Image, build_micro_kernel
from pliant.codegen.llvm.target import FEATURE_SETS, Target, target
from pliant.codegen.micro_kernels import micro_kernels
from pliant.codegen.microkernel import AHEAD, LINE, TURNS, MatrixKernel, MicroKernel, unrolled
from pliant.codegen.source import Source
from pliant.codegen.x86.tiles import TileKernel
from pliant.runtime.features import forbidden_features, host_machine, missing_features
from tests.codegen.amx import by_itself
from tests.codegen.native import entry, run
from tests.codegen.tiles import evenly_apart, extremes, tails

# Each under the smallest feature set that has it. In order, lanes for few words stand for those for
# more: they differ where they are added up.
KERNELS = {
    mk: target(name)
    for name in reversed(FEATURE_SETS)
    for numerics in ("fast", "batch_invariant")
    for mk in micro_kernels(target(name), numerics)
    if target(name).architecture == host_machine()
    and (numerics == "fast" or not isinstance(mk, MicroKernel) or mk.shares < 4)
}
PARAMS = [pytest.param(mk, t, id=f"{t.name}-{mk.symbol}") for mk, t in KERNELS.items()]


@pytest.mark.sweep
@pytest.mark.parametrize(("mk", "t"), PARAMS)
def test_against_numpy(mk: MatrixKernel, t: Target) -> None:
    missing = missing_features(t.features) or forbidden_features(t.features)
    if missing:
        pytest.skip(f"no {', '.join(missing)} here: {mk.symbol} of {t.name} was not run")
    cases = [tails(mk), extremes(mk)]
    if isinstance(mk, TileKernel):
        text, symbol = by_itself(mk)
        code = Source(text).built(t)
        cases.append(evenly_apart(mk))  # others take every row alike
    else:
        code, symbol = build_micro_kernel(mk, t), mk.symbol
    image = Image([code.object], [symbol], t)
    call = entry(image.entries[symbol])
    for tile in chain.from_iterable(cases):
        run(call, tile)


@pytest.mark.sweep(4)
@pytest.mark.parametrize(("mk", "t"), PARAMS)
def test_the_next_panel_is_asked_for(mk: MatrixKernel, t: Target) -> None:
    if not isinstance(mk, MicroKernel):
        return
    variants = [f for f in mk.text().split("define internal ")[1:] if "_m" in f]
    fetched = [f.count("call void @llvm.prefetch") for f in variants]
    row = mk.columns * mk.group * mk.b.bytes
    shares = [row * unrolled(mk, m)[1] // TURNS for m in range(1, mk.rows + 1)]
    assert all(shares)  # as many tiles ask for all of it
    assert fetched == [-(-x // LINE) if m >= AHEAD else 0 for m, x in enumerate(shares, 1)]

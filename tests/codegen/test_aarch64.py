"""Micro-kernels for AArch64, compiled here and run under qemu's user emulation.

It takes the Debian package qemu-user and the wheel ziglang, which `make test` installs where it
can. Without them nothing here runs, and a warning says so at the end of the test run.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import struct
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from pliant.codegen.build import build_micro_kernel
from pliant.codegen.llvm.compile import assembly
from pliant.codegen.llvm.target import FEATURE_SETS, target
from pliant.codegen.micro_kernels import micro_kernels
from pliant.codegen.microkernel import MatrixKernel
from tests.codegen.tiles import Tile, extremes, tails

TARGETS = [n for n in FEATURE_SETS if n.startswith("aarch64")]
KERNELS = {
    mk: target(name)
    for name in reversed(TARGETS)
    for numerics in ("fast", "batch_invariant")
    for mk in micro_kernels(target(name), numerics)
}
SERVER = Path(__file__).with_name("tile_server.c")


def _missing() -> str:
    """What cannot be found to run code for AArch64, with how to get it."""
    needed = []
    if shutil.which("qemu-aarch64") is None:
        needed.append("qemu-aarch64 (apt-get install qemu-user)")
    if importlib.util.find_spec("ziglang") is None:
        needed.append("ziglang (pip install ziglang)")
    return " and ".join(needed)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An executable with every kernel in it."""
    if _missing():
        text = f"CODE FOR AARCH64 WAS NOT RUN: there is no {_missing()}"
        warnings.warn(text, stacklevel=1)
        pytest.skip(text)
    folder = tmp_path_factory.mktemp("aarch64")
    names = [mk.symbol for mk in KERNELS]
    lines = [f"extern int {n}();" for n in names]
    lines.append(f"void* const kernels[] = {{{', '.join(names)}}};")
    (folder / "kernels.c").write_text("\n".join(lines) + "\n")
    objects = []
    for mk, t in KERNELS.items():
        objects.append(f"{mk.symbol}.o")
        (folder / objects[-1]).write_bytes(build_micro_kernel(mk, t).object)
    command = [
        sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-musl", "-nostdlib",
        "-ffreestanding", "-static", "-O1", "-w", "-o", "server", str(SERVER), "kernels.c",
        *objects,
    ]  # fmt: skip
    environment = {"ZIG_GLOBAL_CACHE_DIR": str(folder), "ZIG_LOCAL_CACHE_DIR": str(folder)}
    subprocess.run(command, cwd=folder, env=os.environ | environment, check=True, timeout=300)
    return folder / "server"


def _run(server: Path, mk: MatrixKernel, tiles: Iterator[Tile]) -> None:
    place, found = list(KERNELS).index(mk), list(tiles)
    calls = []
    for tile in found:
        sizes = [a.nbytes for a in tile.arrays]
        calls.append(struct.pack("<10q", place, *sizes, *tile.sizes))
        calls += [a.tobytes() for a in tile.arrays]
    command = ["qemu-aarch64", "-cpu", "max", str(server)]
    done = subprocess.run(command, input=b"".join(calls), capture_output=True, timeout=300)
    assert done.returncode == 0, f"{mk.symbol} ended with {done.returncode}"
    results = done.stdout
    for tile in found:
        c = tile.arrays[-1]
        tile.check(np.frombuffer(results[: c.nbytes], c.dtype))
        results = results[c.nbytes :]
    assert not results


@pytest.mark.sweep(3)
@pytest.mark.parametrize("cases", [tails, extremes])
@pytest.mark.parametrize("mk", KERNELS, ids=lambda mk: mk.symbol)
def test_under_qemu(
    server: Path, mk: MatrixKernel, cases: Callable[[MatrixKernel], Iterator[Tile]]
) -> None:
    _run(server, mk, cases(mk))


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("name", "instruction"),
    [("aarch64", "fmla"), ("aarch64-dotprod", "sdot"), ("aarch64-dotprod", "udot"),
     ("aarch64-i8mm", "sudot")],
)  # fmt: skip
def test_factors_are_lanes(name: str, instruction: str) -> None:
    """The instructions take a row's factors from where they were loaded."""
    t = target(name)
    texts = [assembly(mk.text(), t) for mk in micro_kernels(t)]
    assert any(re.search(rf"\b{instruction}\t.*\[3\]", text) for text in texts)

"""AMX's instructions, emulated as their definition says, for machines that lack them.

The text of a kernel is compiled with calls of functions in place of the instructions. What is not
emulated is how TDPBF16PS rounds inside of one instruction: here each rounds its sum once.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np
import pytest
from llvmlite.binding import orcjit

import pliant.codegen.llvm.compile as compile_module
from pliant import pipeline
from pliant.codegen import build
from pliant.codegen.llvm.compile import compile_text
from pliant.codegen.llvm.target import FEATURE_SETS, Target, machine, target
from pliant.codegen.llvm.writer import FunctionText, ModuleText
from pliant.codegen.microkernel import PARAMS
from pliant.codegen.x86.tiles import TileKernel, configure, release
from pliant.runtime import features
from tests.targets import runs_here

PREFIX: Final = "emulated_"
BYTE, ADDRESS, STEP = ctypes.c_int8, ctypes.c_void_p, ctypes.c_int64
_SIGN: Final = {"u": np.uint8, "s": np.int8}


@dataclass
class Tiles:
    """The tile registers of a thread. A fault is noted, since the code that calls goes on."""

    rows: list[int] = field(default_factory=list)  # nothing: not configured
    left: list[int] = field(default_factory=list)  # what they were when they were given up
    bytes: list[int] = field(default_factory=list)
    data: np.ndarray = field(default_factory=lambda: np.zeros((8, 16, 64), np.uint8))
    faults: list[str] = field(default_factory=list)
    products: int = 0  # how many there were

    def ldtilecfg(self, at: int) -> None:
        config = _memory(at, 64)
        widths, rows = config[16:48].view(np.uint16), config[48:64]
        self._need(config[0] == 1, "palette 1")
        self._need(not config[1] and not config[2:16].any(), "reserved bytes are 0")
        self._need(not widths[8:].any() and not rows[8:].any(), "there are 8 tiles")
        self._need((widths[:8] <= 64).all() and (rows[:8] <= 16).all(), "a tile is 16 x 64 bytes")
        self._need(((widths[:8] == 0) == (rows[:8] == 0)).all(), "rows and bytes are both 0")
        self.rows, self.bytes = list(map(int, rows[:8])), list(map(int, widths[:8]))
        self.data[:] = 0

    def tilerelease(self) -> None:
        self.left, self.rows, self.bytes = self.rows, [], []

    def tilezero(self, tile: int) -> None:
        self._configured(tile)
        self.data[tile] = 0

    def tileloadd64(self, tile: int, base: int, step: int) -> None:
        self._configured(tile)
        self.data[tile] = 0
        for r in range(self.rows[tile]):
            self.data[tile, r, : self.bytes[tile]] = _memory(base + r * step, self.bytes[tile])

    def tilestored64(self, tile: int, base: int, step: int) -> None:
        self._configured(tile)
        for r in range(self.rows[tile]):
            _memory(base + r * step, self.bytes[tile])[:] = self.data[tile, r, : self.bytes[tile]]

    def product(self, kind: str, c: int, a: int, b: int) -> None:
        """C += A B over words of four bytes: row r of B holds word r of every column."""
        self.products += 1
        self._configured(c, a, b)
        self._need(len({a, b, c}) == 3, "three different tiles")
        self._need(self.rows[a] == self.rows[c], "A has the rows of C")
        self._need(self.bytes[b] == self.bytes[c], "B has the columns of C")
        self._need(self.bytes[a] == 4 * self.rows[b], "A has the words of B")
        left, right = self._words(a, kind[0]), self._words(b, kind[1])
        with np.errstate(all="ignore"):
            total = np.einsum("mke,kne->mn", left, right)
            if kind == "bf":
                sums = self.data[c].view(np.float32)
                sums[:] = _flush((sums.astype(np.float64) + total).astype(np.float32))
            else:
                sums = self.data[c].view(np.int32)
                sums[:] = (sums + total).astype(np.int32)

    def _words(self, tile: int, kind: str) -> np.ndarray:
        if kind in _SIGN:
            return self.data[tile].view(_SIGN[kind]).reshape(16, 16, 4).astype(np.int64)
        numbers = self.data[tile].view(ml_dtypes.bfloat16).astype(np.float32)
        return _flush(numbers).astype(np.float64).reshape(16, 16, 2)

    def _configured(self, *tiles: int) -> None:
        self._need(bool(self.rows) and all(self.rows[x] for x in tiles), "the tile is configured")

    def _need(self, holds: Any, what: str) -> None:
        if not holds:
            self.faults.append(what)


def _flush(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < 2.0**-126, np.float32(0), x)


def _memory(at: int, size: int) -> np.ndarray:
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(at))


def by_itself(mk: TileKernel) -> tuple[str, str]:
    """A kernel's text with a function that configures the tiles, calls it, and gives them up, and
    the name of that function."""
    module, text = ModuleText(), mk.text()
    t, symbol = FunctionText(module), f"{mk.symbol}_by_itself"
    parameters = PARAMS.replace(" noalias", "").replace(" readonly", "")
    configure(t)
    status = t.assign(f"call i32 @{mk.symbol}({parameters})")
    release(t)
    t.line(f"ret i32 {status}")
    declared = [line for line in module.declares if line not in text]
    return "\n".join([text, *declared, t.render(f"define i32 @{symbol}({PARAMS})")]), symbol


class Emulated:
    """Code that runs with emulated tiles."""

    def __init__(self, text: str, symbol: str) -> None:
        self.tiles, self._callbacks = Tiles(), list[Any]()
        t = target("x86-64-avx512")
        builder = orcjit.JITLibraryBuilder()
        builder.add_object_img(compile_text(_calling(text), t))
        builder.export_symbol(symbol)
        for name, callback in callbacks(self.tiles).items():
            if f"@llvm.x86.{name}(" in text:
                self._callbacks.append(callback)
                builder.import_symbol(PREFIX + name, _address(callback))
        self._jit = llvm.create_lljit_compiler(machine(t))
        self._library = builder.link(self._jit, "emulated")
        self.address: int = self._library[symbol]


def _calling(text: str) -> str:
    """A text with calls in place of the instructions."""
    return re.sub(r"@llvm\.x86\.(?=ldtilecfg|tile|tdp)", f"@{PREFIX}", text)


def _address(callback: Any) -> int | None:
    return ctypes.cast(callback, ctypes.c_void_p).value


def callbacks(tiles: Tiles) -> dict[str, Any]:
    """What the instructions do, by their names, for code to call."""
    found: dict[str, tuple[list[Any], Callable[..., None]]] = {
        "ldtilecfg": ([ADDRESS], tiles.ldtilecfg),
        "tilerelease": ([], tiles.tilerelease),
        "tilezero": ([BYTE], tiles.tilezero),
        "tileloadd64": ([BYTE, ADDRESS, STEP], tiles.tileloadd64),
        "tilestored64": ([BYTE, ADDRESS, STEP], tiles.tilestored64),
    }
    for name, kind in (
        ("tdpbssd", "ss"), ("tdpbsud", "su"), ("tdpbusd", "us"), ("tdpbuud", "uu"),
        ("tdpbf16ps", "bf"),
    ):  # fmt: skip
        found[name] = ([BYTE] * 3, lambda *x, kind=kind: tiles.product(kind, *x))
    return {name: ctypes.CFUNCTYPE(None, *kinds)(run) for name, (kinds, run) in found.items()}


@dataclass(frozen=True)
class Machine:
    """This one, with tiles. `target` is what to compile for, from one thread."""

    tiles: Tiles
    target: str


@contextmanager
def machine_with_tiles() -> Iterator[Machine]:
    """What is compiled for this target runs here, where AVX-512 does, its instructions emulated.
    The target has a name of its own: nothing that is kept of it serves others."""
    name, tiles = "x86-64-amx-emulated", Tiles()
    widest = ("x86-64-avx512-bf16", "x86-64-avx512-vnni", "x86-64-avx512")
    calls, wide = callbacks(tiles), target(next(n for n in widest if runs_here(n)))
    compiled = compile_module._optimised

    class Builder(orcjit.JITLibraryBuilder):  # type: ignore[misc]
        def add_current_process(self) -> Any:
            for instruction, callback in calls.items():
                self.import_symbol(PREFIX + instruction, _address(callback))
            return super().add_current_process()

    def optimised(text: str, t: Target, level: int) -> Any:
        return compiled(_calling(text), wide if t.name == name else t, level)

    with pytest.MonkeyPatch.context() as patch:
        tiled = (*wide.features, "amx-tile", "amx-int8", "amx-bf16")
        patch.setitem(FEATURE_SETS, name, tiled)
        patch.setattr(compile_module, "_optimised", optimised)
        patch.setattr(build, "orcjit", SimpleNamespace(JITLibraryBuilder=Builder))
        patch.setattr(features, "host_features", lambda: None)  # nothing is refused
        patch.setattr(features, "_native", SimpleNamespace(request_amx=lambda: True))
        patch.setattr(pipeline, "WORTH_PROCESSES", 1 << 30)  # others know nothing of this
        patch.setenv("PLIANT_CACHE_DIR", "off")
        yield Machine(tiles, name)

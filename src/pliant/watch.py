"""Looks over a compilation's shoulder: verifies every stage, and writes it down.

`PLIANT_CHECK=1` and `PLIANT_DUMP=folder` ask for it, or `emit=` of `pliant.compile`. What the files
are is in `pliant.dump`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from pliant.base.errors import InternalError, InvalidModelError, PliantError
from pliant.base.settings import Emit
from pliant.codegen.build import (
    called_kernels,
    host_source,
    kernel_program,
    kernel_source,
)  # fmt: skip
from pliant.codegen.llvm.compile import assembly
from pliant.codegen.llvm.target import Target
from pliant.codegen.source import Source
from pliant.dump import write_stage, write_weights
from pliant.graph.function import Module
from pliant.graph.operator import Operators
from pliant.graph.verify import Inferred, verify_module
from pliant.loop.verify import verify_function as verify_loop
from pliant.lower.function import Lowered
from pliant.text import to_text


@dataclass
class Watch:
    """Follows one compilation. `stage` is the last one that was reached."""

    operators: Operators
    emit: Emit | None = None
    check: bool = False
    weights: Mapping[str, np.ndarray] = field(default_factory=dict)
    stage: str = "import"
    _written: int = 0
    _inferred: Inferred = field(default_factory=dict)

    def begin(self, weights: Mapping[str, np.ndarray]) -> None:
        """The weights that graph stages name; they are written beside these."""
        self.weights = weights
        if self.emit is not None and self.wants("graph"):
            write_weights(self.emit.folder, weights)

    def wants(self, kind: str) -> bool:
        """Whether stages of this kind are written."""
        return self.emit is not None and kind in self.emit.kinds

    def __call__(self, stage: str, functions: Callable[[], Sequence[Any]]) -> None:
        """`stage` is done; `functions` makes its graph functions."""
        self.stage = stage
        if not (self.check or self.wants("graph")):
            return
        module = Module({f.name: f for f in functions()}, dict(self.weights))
        if self.check:
            self._checked(stage, lambda: verify_module(module, self.operators, self._inferred))
        if self.wants("graph"):
            self._write(f"{stage}.py", to_text(module))

    def programs(self, parts: Sequence[Lowered], t: Target, numerics: str) -> None:
        """The kernels and host functions, and their code; those in the cache are made anew."""
        hosts = [p.host for p in parts]
        if self.check:
            for host in hosts:
                self._checked(f"host ({host.name})", partial(verify_loop, host))
        if not any(map(self.wants, ("loop", "host", "llvm", "asm"))):
            return
        specs = {s: spec for p in parts for s, spec in p.kernels.items()}
        kernels = [kernel_program(symbol, spec, t) for symbol, spec in specs.items()]
        for kind, name, functions in (("loop", "kernels", kernels), ("host", "host", hosts)):
            if self.wants(kind):
                self._write(f"{name}.py", to_text(Module({f.name: f for f in functions})))
        called = dict[str, None]()
        for f in kernels:
            source = kernel_source(f, t)
            self._code(f.name, source, t)
            called |= dict.fromkeys(source.calls)
        for mk in called_kernels(called, t, numerics).values():
            self._code(mk.symbol, Source(mk.text()), t)
        for f in hosts:
            self._code(f.name, host_source(f), t)

    def _code(self, name: str, source: Source, t: Target) -> None:
        if self.wants("llvm"):
            self._write(f"{name}.ll", source.text)
        if self.wants("asm"):
            self._write(f"{name}.s", assembly(source.text, t, level=source.level))

    def _checked(self, stage: str, verify: Callable[[], None]) -> None:
        try:
            verify()
        except PliantError as error:
            kind = InvalidModelError if stage == "import" else InternalError
            raise kind(f"after the stage {stage}: {error}") from error

    def _write(self, name: str, text: str) -> None:
        assert self.emit is not None
        write_stage(self.emit.folder, f"{self._written:02d}_{name}", text)
        self._written += 1

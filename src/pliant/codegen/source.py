"""What an object file is made of, and what it comes to be."""

from __future__ import annotations

from dataclasses import dataclass

from pliant.codegen.llvm.compile import LEVEL, compile_text
from pliant.codegen.llvm.target import Target
from pliant.runtime.manifest import Site


@dataclass(frozen=True)
class Built:
    """An object file, the checks in its code, and the micro-kernels that it calls."""

    object: bytes
    sites: tuple[Site, ...] = ()
    calls: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """What such an object file is made of: LLVM IR text, its checks, and what it calls; and the
    level of LLVM's optimisation."""

    text: str
    sites: tuple[Site, ...] = ()
    calls: tuple[str, ...] = ()
    level: int = LEVEL

    def built(self, t: Target) -> Built:
        """By LLVM. Raises CodegenError."""
        return Built(compile_text(self.text, t, level=self.level), self.sites, self.calls)

"""What an object file is made of, and what it comes to be."""

from __future__ import annotations

from dataclasses import dataclass

from pliant.runtime.manifest import Site


@dataclass(frozen=True)
class Built:
    """An object file, the checks in its code, and the micro-kernels that it calls."""

    object: bytes
    sites: tuple[Site, ...] = ()
    calls: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """What such an object file is made of: LLVM IR text, its checks, and what it calls."""

    text: str
    sites: tuple[Site, ...] = ()
    calls: tuple[str, ...] = ()

    def built(self, object: bytes) -> Built:
        """With the object that LLVM made of the text."""
        return Built(object, self.sites, self.calls)

"""The flags of Pliant: environment variables of its own, read here and nowhere else in Python.

The thread pool (C) reads PLIANT_NUM_THREADS and OMP_NUM_THREADS itself.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NUMERICS: Final = ("fast", "strict", "batch_invariant")  # see `pliant.compile`
PRECISIONS: Final = ("bf16", "int8")  # see `pliant.compile`
STAGES: Final = ("graph", "loop", "host", "llvm", "asm")  # kinds that can be written
DUMPED: Final = frozenset(STAGES) - {"asm"}  # those that PLIANT_DUMP writes


@dataclass(frozen=True)
class Emit:
    """Which kinds of a compilation's stages to write, and to which folder."""

    folder: Path
    kinds: frozenset[str] = DUMPED


@dataclass(frozen=True)
class Settings:
    """One field a flag."""

    cache_dir: Path | None  # PLIANT_CACHE_DIR: where compiled kernels are kept; "off": nowhere
    dump: Path | None  # PLIANT_DUMP: a folder to write every stage of a compilation to
    check: bool  # PLIANT_CHECK=1: verify the program after every stage
    debug: bool  # PLIANT_DEBUG=1: commands print where an error came from
    threads: str  # what decides the number of threads, where a variable does: "NAME=value"


def settings() -> Settings:
    """The flags as they are now."""
    cache = os.environ.get("PLIANT_CACHE_DIR", "")
    folder = None if cache == "off" else Path(cache) if cache else _home_cache()
    dump = os.environ.get("PLIANT_DUMP", "")
    check, debug = (os.environ.get(name) == "1" for name in ("PLIANT_CHECK", "PLIANT_DEBUG"))
    return Settings(folder, Path(dump) if dump else None, check, debug, _threads())


def _home_cache() -> Path | None:
    """In the user's cache folder; None for a user without a home."""
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    return home / "pliant" / "kernels"


def _threads() -> str:
    for name in ("PLIANT_NUM_THREADS", "OMP_NUM_THREADS"):
        value = os.environ.get(name, "")
        first = value.split(",")[0].strip()
        if first.isdigit() and int(first) > 0:
            return f"{name}={value}"
    return ""

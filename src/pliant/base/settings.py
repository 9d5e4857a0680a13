"""The flags of Pliant: environment variables, read here and nowhere else in Python.

The thread pool (C) reads PLIANT_NUM_THREADS and OMP_NUM_THREADS itself.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """One field a flag."""

    cache_dir: Path | None  # PLIANT_CACHE_DIR: where compiled kernels are kept; "off": nowhere
    dump: Path | None  # PLIANT_DUMP: a folder to write every stage of a compilation to
    check: bool  # PLIANT_CHECK=1: verify the program after every stage


def settings() -> Settings:
    """The flags as they are now."""
    cache = os.environ.get("PLIANT_CACHE_DIR", "")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = None if cache == "off" else Path(cache) if cache else home / "pliant" / "kernels"
    dump = os.environ.get("PLIANT_DUMP", "")
    return Settings(folder, Path(dump) if dump else None, os.environ.get("PLIANT_CHECK") == "1")

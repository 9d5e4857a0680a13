"""Object files to one shared object, by the system's C compiler or the `ziglang` wheel.

Used when an artifact is saved, never when it is loaded or run.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pliant.base.errors import ResourceError

TIMEOUT_SECONDS: Final = 300

# Generated code calls nothing but memcpy and its kin and the compiler's own helpers.
SYSTEM_LIBRARIES: Final = ("-nostdlib", "-lc", "-lm", "-lgcc")
FLAGS: Final = (
    "-shared",
    "-Wl,--no-undefined",
    "-Wl,--build-id=none",  # the same input gives the same bytes
    "-Wl,-z,noexecstack",
)


def link_shared(objects: Sequence[bytes], exports: Sequence[str]) -> bytes:
    """A shared object that defines `exports` and hides everything else. Raises ResourceError."""
    try:
        return _link(objects, exports)
    except OSError as e:
        raise ResourceError(
            f"cannot link: {e.strerror or e}, in the folder for temporary files (TMPDIR names it)"
        ) from e


def _link(objects: Sequence[bytes], exports: Sequence[str]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="pliant-link-") as name:
        folder = Path(name)
        files = []
        for i, data in enumerate(objects):
            files.append(f"{i}.o")
            (folder / files[-1]).write_bytes(data)
        symbols = "".join(f"{e};" for e in exports)
        (folder / "exports").write_text(f"{{ global: {symbols} local: *; }};\n")
        command, libraries = find_linker()
        # Relative names: the path of the temporary folder must not reach the output.
        arguments = [*FLAGS, "-Wl,--version-script=exports", "-o", "out.so", *files, *libraries]
        _run([*command, *arguments], folder)
        return (folder / "out.so").read_bytes()


def find_linker() -> tuple[list[str], tuple[str, ...]]:
    """The command to link with, and the libraries it needs to be told. Raises ResourceError."""
    compiler = os.environ.get("CC") or "cc"
    found = shutil.which(compiler) or shutil.which("gcc") or shutil.which("clang")
    if found:
        return [found], SYSTEM_LIBRARIES
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"], ("-lc", "-lm")
    raise ResourceError(
        "saving needs a linker: install a C compiler, or `pip install pliant[export]`"
    )


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        raise ResourceError(f"the linker {command[0]} did not run: {e}") from None
    if done.returncode:
        raise ResourceError(
            f"the linker {command[0]} failed with code {done.returncode}:\n{done.stderr[-2000:]}"
        )

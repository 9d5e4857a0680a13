"""Messages, and tables of text."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from pliant.base.errors import ResourceError
from pliant.runtime.artifact import replacing


def message(text: str) -> None:
    """To standard error."""
    print(text, file=sys.stderr, flush=True)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they must be; the first to the left, numbers to the right."""
    widths = [max(len(r[k]) for r in (header, *rows)) for k in range(len(header))]
    lines = []
    for row in (header, ["-" * w for w in widths], *rows):
        first, *rest = (c.ljust(w) if k == 0 else c.rjust(w)
                        for k, (c, w) in enumerate(zip(row, widths, strict=True)))  # fmt: skip
        lines.append("  ".join([first, *rest]).rstrip())
    return "\n".join(lines)


def file_size(n: int) -> str:
    """1234567 as "1.2 MB"."""
    size, unit = float(n), "B"
    for larger in ("kB", "MB", "GB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"


def write_whole(path: Path, data: bytes) -> None:
    """A file whole or not at all; what is no file (a terminal, a pipe) gets it as it is.

    Raises ResourceError.
    """
    if path.is_char_device() or path.is_fifo():
        try:
            path.write_bytes(data)
        except OSError as e:
            raise ResourceError(f"cannot write {path}: {e.strerror or e}") from e
        return
    with replacing(path) as file:
        file.write(data)

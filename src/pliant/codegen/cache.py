"""Objects on disk, by what they were made from.

A key hashes everything that an object depends on. Entries are written to a temporary name and
renamed, so a reader sees a whole file or none, and each carries a checksum. A cache that cannot be
written is not an error: compiling goes on without it, and `problem` says why.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

CAP: Final = 1 << 30  # bytes kept; the least recently used go first
ABANDONED: Final = 60  # seconds after which a temporary file has no writer
SELDOM: Final = 256  # entries stored, on average, for each look at all of them
SUFFIX: Final = ".kernel"

COMPILER: Final = ("codegen", "schedule", "lower", "loop", "ir", "sym")  # what shapes an object


@functools.cache
def compiler_digest() -> str:
    """A hash of the compiler's own sources: an object made by other code is another object."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for folder in COMPILER:
        for path in sorted((root / folder).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


class ObjectCache:
    """A folder of entries (bytes and a JSON value). `folder` None switches it off. It is `due` for
    a `trim` once in a while: to look at all entries takes as long as there are many."""

    def __init__(self, folder: Path | None, cap: int = CAP) -> None:
        self.folder, self.cap = folder, cap
        self.hits = self.misses = 0
        self.due = False
        self.problem = ""

    def get(self, key: str) -> tuple[bytes, Any] | None:
        """The entry, or None; a damaged one is removed."""
        if self.folder is None:
            return None
        path = self._path(key)
        try:
            raw = path.read_bytes()
        except OSError:
            self.misses += 1
            return None
        head, _, rest = raw.partition(b"\n")
        if hashlib.sha256(rest).hexdigest().encode() != head:
            with contextlib.suppress(OSError):
                path.unlink()
            self.misses += 1
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        self.hits += 1
        notes, _, data = rest.partition(b"\n")
        return data, json.loads(notes)

    def put(self, key: str, data: bytes, notes: object) -> None:
        """Store an entry, if the folder lets us."""
        if self.folder is None or self.problem:
            return
        rest = json.dumps(notes, separators=(",", ":")).encode() + b"\n" + data
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            fd, name = tempfile.mkstemp(dir=self.folder, prefix=".new-")
            try:
                with os.fdopen(fd, "wb") as f:
                    f.write(hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest)
                os.replace(name, self._path(key))
                self.due = self.due or zlib.crc32(key.encode()) % SELDOM == 0
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(name)
                raise
        except OSError as error:
            self._note(error)

    def probe(self) -> str:
        """Why entries cannot be stored, or an empty string."""
        if self.folder is not None and not self.problem:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                tempfile.TemporaryFile(dir=self.folder).close()
            except OSError as error:
                self._note(error)
        return self.problem

    def _note(self, error: OSError) -> None:
        self.problem = f"kernels are not cached: {self.folder}: {error.strerror or error}"

    def entries(self) -> list[Path]:
        """Where they are, by name."""
        return sorted(Path(path) for _, _, path in self._found())

    def size(self) -> int:
        """Bytes of all entries."""
        return sum(size for _, size, _ in self._found())

    def trim(self) -> int:
        """Remove the least recently used entries beyond the cap; how many went."""
        self._remove_abandoned()
        found = sorted(self._found())
        total, gone = sum(size for _, size, _ in found), 0
        for _, size, path in found:
            if total <= self.cap:
                break
            with contextlib.suppress(OSError):
                os.unlink(path)
                gone += 1
            total -= size
        self.due = False
        return gone

    def clear(self) -> int:
        """Remove everything; how many entries went."""
        self._remove_abandoned()
        gone = 0
        for path in self.entries():
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
                gone += 1
        return gone

    def _found(self) -> Iterator[tuple[float, int, str]]:
        """Age, size and path of each entry. Another process may remove them meanwhile."""
        if self.folder is None or not self.folder.is_dir():
            return
        with os.scandir(self.folder) as inside:
            for entry in inside:
                if entry.name.endswith(SUFFIX):
                    with contextlib.suppress(OSError):
                        status = entry.stat()
                        yield status.st_mtime, status.st_size, entry.path

    def _remove_abandoned(self) -> None:
        """Remove what a killed process left half-written."""
        if self.folder is not None and self.folder.is_dir():
            for path in self.folder.glob(".new-*"):
                with contextlib.suppress(OSError):
                    if time.time() - path.stat().st_mtime > ABANDONED:
                        path.unlink()

    def _path(self, key: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{key}{SUFFIX}"

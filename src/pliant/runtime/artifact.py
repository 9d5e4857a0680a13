"""The file of a saved model: an ELF shared object with a manifest and weights after it.

    0               machine code (ELF)
    manifest_at     manifest, JSON                        4 KiB aligned
    weights_at      weights, mapped, never read through   64 KiB aligned (the largest page in use)
    size - 160      footer

The footer is at the end so that the file is a valid shared object from its first byte. A damaged
ELF file can kill the process that loads it, so lengths and the checksum of everything but the
weights are verified before the loader sees it. An artifact is code: load only what you trust.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import stat
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from pliant.base.errors import ArtifactError, ResourceError
from pliant.runtime import abi
from pliant.runtime.features import host_machine, missing_features
from pliant.runtime.manifest import FORMAT, Manifest

MAGIC: Final = b"PLIANT\r\n"
# magic, format, reserved, code bytes, manifest at, bytes, weights at, bytes; then two SHA-256:
# of the weights, and of everything before the weights and the footer up to here.
FIELDS: Final = struct.Struct("<8sII5Q40x32s")
FOOTER_BYTES: Final = FIELDS.size + 32
MANIFEST_ALIGNMENT: Final = 4096
WEIGHTS_ALIGNMENT: Final = 65536
LONGEST_MANIFEST: Final = 1 << 30
BLOCK: Final = 1 << 22

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True, slots=True)
class Footer:
    """Where the parts of an artifact are."""

    code_bytes: int
    manifest_at: int
    manifest_bytes: int
    weights_at: int
    weights_bytes: int
    weights_sha256: bytes

    def pack(self) -> bytes:
        return FIELDS.pack(
            MAGIC,
            FORMAT,
            0,
            self.code_bytes,
            self.manifest_at,
            self.manifest_bytes,
            self.weights_at,
            self.weights_bytes,
            self.weights_sha256,
        )


# ---- writing ------------------------------------------------------------------------------------


def write_artifact(
    path: str | os.PathLike[str], code: bytes, manifest: Manifest, weights: Sequence[Bytes]
) -> None:
    """Writes the file whole or not at all. `weights` are the bytes of `manifest.weights`."""
    with replacing(path) as file:
        checksum = hashlib.sha256()

        def put(data: bytes) -> None:
            file.write(data)
            checksum.update(data)

        text = manifest.to_json()
        put(code)
        put(bytes(-len(code) % MANIFEST_ALIGNMENT))
        manifest_at = file.tell()
        put(text)
        has_weights = manifest.weights_bytes > 0
        put(bytes(-file.tell() % (WEIGHTS_ALIGNMENT if has_weights else 8)))
        weights_at = file.tell()
        weights_sha256 = _write_weights(file, manifest, weights)
        footer = Footer(
            len(code), manifest_at, len(text), weights_at, manifest.weights_bytes, weights_sha256
        )
        put(footer.pack())
        file.write(checksum.digest())


def _write_weights(file: IO[bytes], manifest: Manifest, weights: Sequence[Bytes]) -> bytes:
    checksum = hashlib.sha256()
    at = 0
    for info, data in sorted(
        zip(manifest.weights, weights, strict=True), key=lambda w: w[0].offset
    ):
        if info.offset < at or data.nbytes != info.bytes:
            raise ValueError(f"weight {info.name}: {data.nbytes} bytes at {info.offset} do not fit")
        for piece in (bytes(info.offset - at), data.data):
            file.write(piece)
            checksum.update(piece)
        at = info.offset + info.bytes
    return checksum.digest()


def copy_artifact(source: IO[bytes], path: str | os.PathLike[str]) -> None:
    """Saves a loaded artifact elsewhere; `source` keeps its position, which threads share."""
    at = 0
    with replacing(path) as file:
        while block := os.pread(source.fileno(), BLOCK, at):
            file.write(block)
            at += len(block)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A new file that takes the place of `path` when the block ends without an error.

    Whoever has the old file mapped keeps it: its contents never change in place.
    """
    try:
        target = Path(path)
        found = _kind(target)
    except (TypeError, ValueError) as e:  # no path at all, or a NUL in it
        raise ResourceError(f"cannot write {path!r:.200}: {e}") from None
    if found not in (0, stat.S_IFREG):
        # A rename would put a file in the place of the folder or device.
        what = {stat.S_IFDIR: "a folder"}.get(found, "no ordinary file")
        raise ResourceError(f"cannot write {target}: it is {what}")
    import tempfile  # takes memory that those who only load do without

    temporary = ""
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        with os.fdopen(descriptor, "wb") as file:
            yield file
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, target)
        temporary = ""
    except OSError as e:
        raise ResourceError(f"cannot write {target}: {e.strerror or e}") from e
    finally:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _kind(path: Path) -> int:
    """The kind of file that is there, as `stat` has it; 0: nothing that one could tell."""
    try:
        return stat.S_IFMT(path.stat().st_mode)
    except OSError:
        return 0


# ---- reading ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Artifact:
    """A verified artifact: an open file, its manifest, its weights mapped."""

    path: Path
    file: IO[bytes]
    manifest: Manifest
    weights: tuple[Bytes, ...]


def open_artifact(path: str | os.PathLike[str], *, verify_weights: bool = False) -> Artifact:
    """Checks everything that can be checked before the code is loaded. Raises ArtifactError."""
    try:
        name = Path(path)
        file = open(name, "rb")  # noqa: SIM115 (open as long as its code is loaded)
    except OSError as e:
        raise ArtifactError(f"{path}: cannot be opened: {e.strerror}") from e
    except (TypeError, ValueError) as e:  # no path at all, or a NUL in it
        raise ArtifactError(f"{path!r:.200} is not the path of an artifact: {e}") from None
    try:
        footer = _read_footer(file)
        manifest = _read_manifest(file, footer)
        _check_fits(manifest)
        weights = _map_weights(file, footer, manifest)
        if verify_weights:
            _check_weights(file, footer)
    except ArtifactError as e:
        file.close()
        raise ArtifactError(f"{name}: {e}") from e.__cause__
    except OSError as e:
        file.close()
        raise ArtifactError(f"{name}: cannot be read: {e.strerror or e}") from e
    except BaseException:
        file.close()
        raise
    return Artifact(name, file, manifest, weights)


def _read_footer(file: IO[bytes]) -> Footer:
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    is_elf = file.read(4) == b"\x7fELF"
    if not is_elf:
        raise ArtifactError("it is not a Pliant artifact")
    if size < FOOTER_BYTES:
        raise ArtifactError(f"it is truncated: only {size} bytes")
    file.seek(size - FOOTER_BYTES)
    data = file.read(FOOTER_BYTES)
    magic, version, _, code, manifest_at, manifest_bytes, weights_at, weights_bytes, sha = (
        FIELDS.unpack(data[: FIELDS.size])
    )
    if magic != MAGIC:
        raise ArtifactError(
            "it does not end as a Pliant artifact does: it is truncated, or another kind of library"
        )
    if version != FORMAT:
        raise ArtifactError(
            f"it has format {version}, this Pliant reads format {FORMAT}; compile and save it again"
        )
    footer = Footer(code, manifest_at, manifest_bytes, weights_at, weights_bytes, sha)
    ordered = code <= manifest_at and manifest_at + manifest_bytes <= weights_at
    ordered &= weights_bytes == 0 or weights_at % WEIGHTS_ALIGNMENT == 0
    if not ordered or weights_at + weights_bytes + FOOTER_BYTES != size:
        raise ArtifactError(
            f"it is truncated or damaged: {size} bytes are not what its parts add up to"
        )
    if _checksum(file, weights_at, data[: FIELDS.size]) != data[FIELDS.size :]:
        raise ArtifactError(
            "it is damaged: its code or manifest does not have the checksum it was saved with"
        )
    return footer


def _checksum(file: IO[bytes], length: int, tail: bytes = b"", start: int = 0) -> bytes:
    checksum = hashlib.sha256()
    file.seek(start)
    while length > 0:
        block = file.read(min(length, BLOCK))
        if not block:
            raise ArtifactError("it became shorter while it was read")
        checksum.update(block)
        length -= len(block)
    checksum.update(tail)
    return checksum.digest()


def _read_manifest(file: IO[bytes], footer: Footer) -> Manifest:
    if footer.manifest_bytes > LONGEST_MANIFEST:
        raise ArtifactError(f"its manifest of {footer.manifest_bytes} bytes is impossible")
    file.seek(footer.manifest_at)
    return Manifest.from_json(file.read(footer.manifest_bytes))


def _check_fits(manifest: Manifest) -> None:
    """Does this machine run it?"""
    if manifest.abi != abi.ABI_VERSION:
        raise ArtifactError(
            f"it needs version {manifest.abi} of the runtime interface, this Pliant has "
            f"{abi.ABI_VERSION}; compile and save it again"
        )
    machine = manifest.target.partition("-")[0]
    if machine and machine != host_machine():
        raise ArtifactError(f"it is for {machine}, this machine is {host_machine()}")
    missing = missing_features(manifest.cpu_features)
    if missing:
        raise ArtifactError(
            f"it needs {', '.join(missing)}, which this CPU lacks; compile it with a target that "
            "does not use it"
        )


def _map_weights(file: IO[bytes], footer: Footer, manifest: Manifest) -> tuple[Bytes, ...]:
    if footer.weights_bytes != manifest.weights_bytes:
        raise ArtifactError("its manifest and its weights do not belong together")
    for w in manifest.weights:
        if w.offset < 0 or w.bytes < 0 or w.offset % abi.ALIGNMENT:
            raise ArtifactError(f"weight {w.name} has an impossible place")
    if footer.weights_bytes == 0:
        return tuple(np.empty(0, np.uint8) for _ in manifest.weights)
    mapped = mmap.mmap(
        file.fileno(), footer.weights_bytes, prot=mmap.PROT_READ, offset=footer.weights_at
    )
    section = np.frombuffer(mapped, np.uint8)
    return tuple(section[w.offset : w.offset + w.bytes] for w in manifest.weights)


def _check_weights(file: IO[bytes], footer: Footer) -> None:
    found = _checksum(file, footer.weights_bytes, start=footer.weights_at)
    if found != footer.weights_sha256:
        raise ArtifactError(
            "its weights are damaged: they do not have the checksum they were saved with"
        )

"""`load`: a saved model back into a process. Needs no compiler."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path
from typing import IO, Final

from pliant.base.errors import ArtifactError
from pliant.runtime import _native
from pliant.runtime.artifact import Artifact, open_artifact
from pliant.runtime.callable import Compiled, Program, check_limits
from pliant.runtime.features import forbidden_features


def load(
    path: str | os.PathLike[str],
    *,
    threads: int | None = None,
    memory_limit: int | None = None,
    verify_weights: bool = False,
) -> Compiled:
    """The first function of an artifact; the others are its items: `load(path)["decode"]`.

    `threads` and `memory_limit` (bytes a call may use) are as in `pliant.compile`. The code and the
    manifest are always checked against their hashes; `verify_weights` also checks the weights,
    which reads all of them, while otherwise a call reads those that it uses. An artifact is code:
    load only what you trust. Raises ArtifactError for a file that is damaged, of another version
    or for another processor, and InvalidModelError for wrong limits.
    """
    check_limits(threads, memory_limit)
    artifact = open_artifact(path, verify_weights=verify_weights)
    forbidden = forbidden_features(artifact.manifest.cpu_features)
    if forbidden:
        raise ArtifactError(
            f"{path}: it needs {', '.join(forbidden)}, which the system does not let this process "
            "use; compile it with a target that does not use it"
        )
    library = Library(artifact)
    program = Program(
        artifact.manifest,
        {f.symbol: library.symbol(f.symbol) for f in artifact.manifest.functions},
        weights=artifact.weights,
        keepalive=library,
        threads=threads,
        memory_limit=memory_limit,
        artifact=artifact,
    )
    return program.function(artifact.manifest.functions[0].name)


_COUNT: Final = count()


class Library:
    """The code of an artifact, and the open file behind it."""

    def __init__(self, artifact: Artifact) -> None:
        self._path = artifact.path
        self._file: IO[bytes] = artifact.file
        try:
            self._code: _native.SharedObject | None = _native.SharedObject(_name_of(artifact))
        except OSError as e:
            raise ArtifactError(f"{self._path}: the system cannot load it: {e}") from e

    def symbol(self, name: str) -> int:
        """The address of a function."""
        assert self._code is not None
        try:
            return self._code.symbol(name)
        except KeyError:
            raise ArtifactError(f"{self._path}: it lacks the function {name}") from None

    def __del__(self) -> None:
        # In this order: the name must stand for the file as long as the code is loaded.
        self._code = None
        self._file.close()


def _name_of(artifact: Artifact) -> str:
    """A name for the loader that stands for this very file.

    The loader takes two files of one name for the same library, so a model saved again under its
    old path would come back as the old one: the descriptor's name is taken. And two names of one
    file are one library, under the first of them, after whose descriptor was closed another file
    may have its number: so a descriptor has another name each time, of as many steps in place as a
    counter says.
    """
    steps = "".join("/." if bit == "1" else "//" for bit in f"{next(_COUNT):b}")
    name = f"/proc/self/fd{steps}/{artifact.file.fileno()}"
    return name if Path(name).exists() else str(artifact.path.resolve())

"""The exception tree. Every error a user can meet derives from `PliantError`.

    PliantError
    ├── UnsupportedError      the model uses something Pliant does not implement      exit code 3
    ├── InvalidModelError     the model (or program) is malformed or inconsistent     exit code 1
    ├── ShapeError            rank, dtype, size, device or value of an argument       exit code 1
    ├── ArtifactError         a saved file is damaged or does not fit this machine    exit code 1
    ├── ResourceError         memory, disk or time limit reached                      exit code 1
    └── InternalError         a fault of Pliant itself, with a bundle to see it again exit code 1

Messages say what failed in the user's words, why, and what to do.
"""

from __future__ import annotations


class PliantError(Exception):
    """Base of all errors raised on purpose by Pliant."""

    exit_code = 1


class UnsupportedError(PliantError):
    """The model needs an operator, type or feature that is not implemented."""

    exit_code = 3


class InvalidModelError(PliantError):
    """The model, graph or tensor program is malformed."""


class ShapeError(PliantError, ValueError):
    """An argument has the wrong rank, type, size, layout, device or value."""


class ArtifactError(PliantError):
    """A saved artifact is damaged, truncated or made for another machine."""


class ResourceError(PliantError):
    """A limit on memory, disk or time was reached."""


class InternalError(PliantError):
    """Pliant itself is at fault; the message names a folder with what it takes to see it again."""

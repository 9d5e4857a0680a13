"""Pliant: compile a model once; run it at every shape, on every target.

    f = pliant.compile(model, (example,), dynamic_shapes={"x": {0: "batch"}})
    y = f(x)
    f.save("model.so"); g = pliant.load("model.so")

The runtime comes with the import, so that `load` and the first call wait for nothing. The compiler
comes on first use: a process that runs saved models needs none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pliant.base.load import load_module, signals_held

with signals_held():
    from pliant.base.errors import (
        ArtifactError,
        InternalError,
        InvalidModelError,
        PliantError,
        ResourceError,
        ShapeError,
        UnsupportedError,
    )
    from pliant.runtime.callable import Compiled
    from pliant.runtime.loader import load

if TYPE_CHECKING:
    from pliant.graph.function import Dim
    from pliant.pipeline import compile
    from pliant.written import program

__all__ = [
    "ArtifactError", "Compiled", "Dim", "InternalError", "InvalidModelError", "PliantError",
    "ResourceError", "ShapeError", "UnsupportedError", "__version__", "compile", "load", "program",
]  # fmt: skip

_HOME: Final = {
    "compile": "pliant.pipeline",
    "program": "pliant.written",
    "Dim": "pliant.graph.function",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return load_module("pliant.version").VERSION
    if name not in _HOME:
        raise AttributeError(f"module 'pliant' has no attribute {name!r}")
    value = getattr(load_module(_HOME[name]), name)
    globals()[name] = value
    return value

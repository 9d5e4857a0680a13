"""Pliant: compile a model once; run it at every shape, on every target.

    f = pliant.compile(model, (example,), dynamic_shapes={"x": {0: "batch"}})
    y = f(x)
    f.save("model.so"); g = pliant.load("model.so")

Names load on first use, so that `import pliant` is quick and loading an artifact needs no compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pliant.base.load import load_module

if TYPE_CHECKING:
    from pliant.base.errors import (
        ArtifactError,
        InvalidModelError,
        PliantError,
        ResourceError,
        ShapeError,
        UnsupportedError,
    )
    from pliant.graph.function import Dim
    from pliant.pipeline import compile
    from pliant.runtime.callable import Compiled
    from pliant.runtime.loader import load
    from pliant.written import program

__all__ = [
    "ArtifactError", "Compiled", "Dim", "InvalidModelError", "PliantError", "ResourceError",
    "ShapeError", "UnsupportedError", "__version__", "compile", "load", "program",
]  # fmt: skip

_HOME: Final = {
    "compile": "pliant.pipeline",
    "load": "pliant.runtime.loader",
    "program": "pliant.written",
    "Compiled": "pliant.runtime.callable",
    "Dim": "pliant.graph.function",
    "ArtifactError": "pliant.base.errors",
    "InvalidModelError": "pliant.base.errors",
    "PliantError": "pliant.base.errors",
    "ResourceError": "pliant.base.errors",
    "ShapeError": "pliant.base.errors",
    "UnsupportedError": "pliant.base.errors",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return load_module("pliant.version").VERSION
    if name not in _HOME:
        raise AttributeError(f"module 'pliant' has no attribute {name!r}")
    value = getattr(load_module(_HOME[name]), name)
    globals()[name] = value
    return value

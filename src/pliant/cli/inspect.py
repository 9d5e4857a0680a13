"""`pliant inspect FILE`: what an artifact says about itself. Nothing of it is executed."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pliant.cli.terminal import file_size
from pliant.runtime.artifact import open_artifact
from pliant.runtime.codec import encode
from pliant.runtime.manifest import Function, Manifest, Symbol


def configure(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("file", type=Path, metavar="FILE", help="a compiled file")
    parser.add_argument("--json", action="store_true", help="everything, as JSON")
    parser.add_argument("--explain", action="store_true", help="kernels and what caused them")
    parser.add_argument("--weights", action="store_true", help="list every weight")
    parser.add_argument(
        "--verify", action="store_true", help="check the checksum of the weights as well"
    )


def run(options: argparse.Namespace) -> int:
    """Print it."""
    path: Path = options.file
    artifact = open_artifact(path, verify_weights=options.verify)
    artifact.file.close()
    size = path.stat().st_size
    if options.json:
        print(json.dumps(_as_json(artifact.manifest, size), indent=1))
        return 0
    print("\n".join(_lines(path, size, artifact.manifest, options)))
    return 0


def _as_json(manifest: Manifest, size: int) -> dict[str, Any]:
    fields: dict[str, Any] = encode(manifest)
    return fields | {"format": manifest.format, "abi": manifest.abi, "file_bytes": size}


def _lines(path: Path, size: int, m: Manifest, options: argparse.Namespace) -> Iterator[str]:
    versions = ", ".join(f"{k} {v}" for k, v in sorted(m.versions.items()))
    yield f"{path}: {file_size(size)}, format {m.format}, made by {versions or 'unknown'}"
    yield f"target {m.target or 'any'}: {' '.join(m.cpu_features) or 'no features'}"
    yield f"{len(m.weights)} weights, {file_size(m.weights_bytes)}"
    if options.weights:
        for w in m.weights:
            yield f"  {w.name}: {w.dtype}{list(w.shape)}"
    for f in m.functions:
        yield from _function(f)
        if options.explain:
            yield f.explain


def _function(f: Function) -> Iterator[str]:
    yield f"function {f.name}"
    for side, tensors in (("input", f.inputs), ("output", f.outputs)):
        for t in tensors:
            yield f"  {side} {t}"
    for s in f.symbols:
        yield f"  symbol {describe(s)}"
    for site in f.sites:
        yield f"  check {site.error}: {site.message}" + (f" [{site.span}]" if site.span else "")
    for name, value in sorted(f.stats.items()):
        yield f"  {name} {value}"


def describe(s: Symbol) -> str:
    """A symbol and what holds of it."""
    top = "" if s.max is None else f" <= {s.max}"
    return f"{s.min} <= {s.name}{top}" + (f", a multiple of {s.multiple}" if s.multiple > 1 else "")

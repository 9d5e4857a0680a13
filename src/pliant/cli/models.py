"""What a command line names: a compiled file, an ONNX model, or a saved ExportedProgram."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pliant  # its `compile` is loaded on use: running a compiled file needs no LLVM
from pliant.base.errors import InvalidModelError, ShapeError
from pliant.base.load import load_module
from pliant.base.settings import NUMERICS, Emit, settings
from pliant.cli.progress import progress
from pliant.cli.terminal import message
from pliant.codegen.cache import ObjectCache
from pliant.graph.function import Dim
from pliant.runtime.callable import Compiled

_DIM: Final = re.compile(r"(?P<name>[^=]+)=(?P<min>\d*)(?P<dots>\.\.)?(?P<max>\d*)(:(?P<by>\d+))?")


def add_compile_options(parser: argparse.ArgumentParser) -> None:
    """The options of everything that may compile."""
    parser.add_argument("--target", default="native", help="native, x86-64, x86-64-avx2 …")
    parser.add_argument(
        "--dim", action="append", default=[], type=parse_dim, metavar="NAME=MIN..MAX[:MULTIPLE]",
        help="what is known of a symbolic dimension: seq=1..4096, width=32..:32, batch=4",
    )  # fmt: skip
    parser.add_argument("--numerics", default="fast", choices=NUMERICS)
    parser.add_argument(
        "--precision", metavar="bf16|int8", help="of products' factors; default: as the model says"
    )
    add_threads(parser)


def add_threads(parser: argparse.ArgumentParser) -> None:
    """`--threads`."""
    parser.add_argument(
        "--threads", type=positive, metavar="N",
        help="default: PLIANT_NUM_THREADS, OMP_NUM_THREADS, then affinity and cgroup",
    )  # fmt: skip


def positive(text: str) -> int:
    """A number from 1 up, for argparse."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 up")
    return int(text)


def parse_dim(text: str) -> tuple[str, Dim]:
    """`seq=1..4096:8` as a name and a Dim; either end may be left out."""
    m = _DIM.fullmatch(text)
    if m is None or not (m["min"] or m["max"] or m["by"]):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not NAME=MIN..MAX[:MULTIPLE], such as seq=1..4096 or width=32..640:32"
        )
    low = int(m["min"] or 0)
    high = int(m["max"]) if m["max"] else None if m["dots"] else low
    try:
        return m["name"], Dim(low, high, int(m["by"] or 1))
    except ShapeError as e:
        raise argparse.ArgumentTypeError(f"{text!r}: {e}") from None


def dims_of(pairs: Sequence[tuple[str, Dim]]) -> Mapping[str, Dim] | None:
    """The `dims` of `pliant.compile` from the command line."""
    return dict(pairs) or None


def is_artifact(path: Path) -> bool:
    """Whether a file is machine code (and so, if anything, a compiled model)."""
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError as e:
        raise InvalidModelError(f"{path}: cannot be read: {e.strerror}") from None


def source_model(path: Path) -> Any:
    """What `pliant.compile` takes for a file: a path, or an ExportedProgram for a `.pt2`."""
    is_artifact(path)  # it can be read at all
    if path.suffix != ".pt2":
        return path
    torch = load_module("torch")
    try:
        return torch.export.load(path)
    except Exception as e:
        first = (str(e).splitlines() or [type(e).__name__])[0]
        raise InvalidModelError(f"{path}: torch.export.load cannot read it: {first}") from e


def compile_file(path: Path, options: argparse.Namespace, emit: Emit | None = None) -> Compiled:
    """Compile a model's file, with progress; `emit` as in `pliant.compile`."""
    warn_of_cache()
    with progress(f"compile {path.name}") as report:
        return pliant.compile(
            source_model(path), dims=dims_of(options.dim), target=options.target,
            precision=options.precision, numerics=options.numerics, threads=options.threads,
            progress=report, emit=emit,
        )  # fmt: skip


def open_callable(path: Path, options: argparse.Namespace) -> Compiled:
    """Load a compiled file, or compile a model."""
    if is_artifact(path):
        if (
            options.dim or options.target != "native" or options.numerics != "fast"
            or options.precision
        ):  # fmt: skip
            late = "--dim, --target, --precision and --numerics come too late"
            raise InvalidModelError(f"{path} is compiled already: {late}")
        return pliant.load(path, threads=options.threads)
    return compile_file(path, options)


def warn_of_cache() -> None:
    """A cache that cannot be written is no error, but slow."""
    cache = ObjectCache(settings().cache_dir)
    problem = cache.probe()
    if problem:
        message(f"warning: {problem}")

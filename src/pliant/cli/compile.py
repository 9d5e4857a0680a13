"""`pliant compile MODEL -o FILE`: one compilation, one file."""

from __future__ import annotations

import argparse
from pathlib import Path

from pliant.base.errors import InvalidModelError, ResourceError
from pliant.base.settings import STAGES, Emit
from pliant.cli.models import add_compile_options, compile_file, is_artifact
from pliant.cli.terminal import file_size, message


def configure(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument(
        "model", type=Path, metavar="MODEL", help="an .onnx or .pt2 file, or a .py stage of a dump"
    )
    parser.add_argument("-o", "--output", type=Path, help="default: the model's name with .so")
    parser.add_argument(
        "--emit", type=stages, metavar="KINDS",
        help="write stages to the folder OUTPUT.stages: graph,loop,host,llvm,asm or some of them",
    )  # fmt: skip
    add_compile_options(parser)


def stages(text: str) -> frozenset[str]:
    """Kinds of stages, for argparse."""
    kinds = frozenset(text.split(","))
    unknown = kinds - set(STAGES)
    if unknown:
        raise argparse.ArgumentTypeError(
            f"{min(unknown)!r} is no kind of stage; there are: {', '.join(STAGES)}"
        )
    return kinds


def run(options: argparse.Namespace) -> int:
    """Compile and save; standard output names the file, and the folder of stages."""
    model: Path = options.model
    output: Path = options.output or Path(model.with_suffix(".so").name)
    if is_artifact(model):
        raise InvalidModelError(f"{model} is compiled already")
    if not output.parent.is_dir():
        raise ResourceError(f"cannot write {output}: the folder {output.parent} does not exist")
    emit = Emit(output.with_suffix(".stages"), options.emit) if options.emit else None
    compiled = compile_file(model, options, emit)
    compiled.save(output)
    stats = compiled.stats()
    message(
        f"{compiled.function}\n{stats['kernels']} kernels, {stats['cache_hits']} parts from the "
        f"cache, {file_size(output.stat().st_size)}"
    )
    print(output)
    if emit is not None:
        print(emit.folder)
    return 0

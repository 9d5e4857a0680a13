"""`pliant run FILE --input …`: arrays in, arrays out."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from pliant.cli.arrays import Array, read_inputs, write_outputs
from pliant.cli.models import add_compile_options, open_callable
from pliant.cli.terminal import message


def configure(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("file", type=Path, metavar="FILE", help="a compiled file or a model")
    parser.add_argument(
        "-i", "--input", action="append", default=[], metavar="SPEC",
        help="name=file.npy, name=random:2,128, name=random:2,128:0..30000, or a .npz file",
    )  # fmt: skip
    parser.add_argument("-o", "--output", type=Path, help="an .npz (or, for one output, .npy) file")
    parser.add_argument("--function", help="which function of the file; default: its first")
    parser.add_argument("--seed", type=int, default=0, help="of random inputs")
    add_compile_options(parser)


def run(options: argparse.Namespace) -> int:
    """Run once. Without -o, standard output summarises each output."""
    compiled = open_callable(options.file, options)
    if options.function:
        compiled = compiled[options.function]
    inputs = read_inputs(options.input, compiled.function, options.seed)
    results = {k: np.asarray(v) for k, v in compiled.run(inputs).items()}
    if options.output is None:
        for name, array in results.items():
            print(summary(name, array))
        return 0
    write_outputs(options.output, results)
    message("\n".join(summary(name, array) for name, array in results.items()))
    print(options.output)
    return 0


def summary(name: str, array: Array) -> str:
    """An output on a line."""
    shape = ", ".join(map(str, array.shape))
    text = f"{name}: {array.dtype}[{shape}]"
    if not array.size:
        return f"{text} empty"
    if array.size == 1:
        return f"{text} {array.ravel()[0]}"
    values = array.astype(np.float64)
    return f"{text} min {values.min():.6g} mean {values.mean():.6g} max {values.max():.6g}"

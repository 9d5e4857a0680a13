"""`pliant demo`: real sentences through a real model, compiled once, at many shapes."""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch

import pliant
from pliant.cli.minilm import Encoder, load_encoder, tokenize
from pliant.cli.models import add_threads, positive, warn_of_cache
from pliant.cli.peers import OnnxRuntimePeer, UnavailableError, open_peer
from pliant.cli.progress import progress
from pliant.cli.terminal import message, table
from pliant.cli.timing import SETTLE, contention, geometric_mean, interleave, paired_ratio

INACCURATE: Final = 4
TOLERANCE: Final = 1e-4  # relative L2 distance to PyTorch

SENTENCES: Final = (
    "A man is eating food.",
    "Someone eats a meal.",
    "The stock market fell today.",
)
EXPECTED: Final = (0.7614, -0.0170, -0.0301)  # of 1,2 · 1,3 · 2,3

LENGTHS: Final = (
    "Hello!",
    "It rained all night, and by the morning the river had risen over its banks.",
    "A compiler reads a program and writes another that does the same thing faster. " * 6,
    "Long documents are cut into pieces before they are embedded, unless the model is able "
    "to read them whole, as this one is up to its limit of five hundred and twelve tokens. " * 14,
)
SHAPES: Final = ((1, 8), (1, 37), (1, 128), (1, 512), (4, 19), (8, 64), (16, 128))

Pair = tuple[torch.Tensor, torch.Tensor]


def configure(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("--runs", type=positive, default=10, help="timed runs of each shape")
    add_threads(parser)


def run(options: argparse.Namespace) -> int:
    """Print similarities, then times per shape; exit code 4 where PyTorch disagrees."""
    encoder, tokenizer = load_encoder()
    warn_of_cache()
    example = tokenize(tokenizer, SENTENCES)
    dims = {0: "batch", 1: "seq"}
    with progress("compile MiniLM-L6") as report:
        compiled = pliant.compile(
            encoder, example, dynamic_shapes={"ids": dims, "mask": dims},
            dims={"seq": pliant.Dim(min=1, max=512)}, threads=options.threads, progress=report,
        )  # fmt: skip
    threads = int(str(compiled.stats()["threads"]))
    torch.set_num_threads(threads)
    busy = contention()
    error = _similarities(compiled(*example))
    inputs = [tokenize(tokenizer, [s]) for s in LENGTHS] + [example]
    error |= _lengths(compiled, encoder, inputs)
    print(f"\nTime of a call, {threads} threads, all on the same inputs:\n")
    with tempfile.TemporaryDirectory() as folder:
        print(_times(compiled, _peers(encoder, example, Path(folder), threads), options.runs))
    if busy:
        print(f"\nWARNING: {busy}")
    stats = compiled.stats()
    print(f"\nCompilations: {stats['compiles']}, for {stats['calls']} calls at all these shapes.")
    return INACCURATE if error else 0


def _similarities(vectors: torch.Tensor) -> bool:
    print("Similarity (cosine), beside what the model's authors' weights give:\n")
    is_wrong = False
    for (i, j), expected in zip(((0, 1), (0, 2), (1, 2)), EXPECTED, strict=True):
        found = float(vectors[i] @ vectors[j])
        is_wrong |= abs(found - expected) > 1e-3
        print(f"  {found:7.4f} ({expected:7.4f})  {SENTENCES[i]}  ·  {SENTENCES[j]}")
    return is_wrong


def _lengths(compiled: pliant.Compiled, encoder: Encoder, inputs: list[Pair]) -> bool:
    """Texts of very different lengths agree with PyTorch."""
    print("\nTexts of different lengths, distance to PyTorch's embedding:\n")
    is_wrong = False
    for ids, mask in inputs:
        found, expected = compiled(ids, mask), _eager(encoder, ids, mask)
        distance = float((found - expected).norm() / expected.norm())
        is_wrong |= not distance <= TOLERANCE
        print(f"  {ids.shape[0]} x {ids.shape[1]:3d} tokens   {distance:.1e}")
    return is_wrong


def _eager(encoder: Encoder, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = encoder(ids, mask)
    return found


def _peers(
    encoder: Encoder, example: Pair, folder: Path, threads: int
) -> Mapping[str, Callable[[torch.Tensor, torch.Tensor], Callable[[], object]]]:
    """Ways to run the same model; ONNX Runtime where it and the exporter are installed."""
    peers: dict[str, Any] = {"torch": lambda i, m: lambda: _eager(encoder, i, m)}
    try:
        session = _onnxruntime(encoder, example, folder, threads)
    except UnavailableError as why:
        message(f"onnxruntime left out: {why}")
        return peers
    peers["onnxruntime"] = lambda i, m: session.prepare({"ids": i.numpy(), "mask": m.numpy()})
    return peers


def _onnxruntime(encoder: Encoder, example: Pair, folder: Path, threads: int) -> OnnxRuntimePeer:
    path = folder / "minilm.onnx"
    dims = {0: torch.export.Dim("batch"), 1: torch.export.Dim("seq", max=512)}
    try:
        with progress("export to ONNX for ONNX Runtime") as report, _quiet():
            report("torch.onnx.export", 0, 1)
            torch.onnx.export(
                encoder, example, path, input_names=["ids", "mask"], dynamo=True,
                dynamic_shapes={"ids": dims, "mask": dims}, verbose=False,
            )  # fmt: skip
    except Exception as e:  # the exporter's errors are of any class
        first = (str(e).splitlines() or [type(e).__name__])[0]
        raise UnavailableError(f"torch.onnx.export failed: {first}") from e
    peer = open_peer("onnxruntime", path, threads)
    assert isinstance(peer, OnnxRuntimePeer)
    return peer


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's remarks on itself."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def _times(compiled: pliant.Compiled, peers: Mapping[str, Any], runs: int) -> str:
    rows, ratios = [], {name: list[float]() for name in peers}
    for batch, seq in SHAPES:
        ids = torch.randint(1000, 30000, (batch, seq), generator=torch.manual_seed(batch * seq))
        mask = torch.ones_like(ids)
        calls = {"pliant": lambda i=ids, m=mask: compiled(i, m)}
        calls |= {name: prepare(ids, mask) for name, prepare in peers.items()}
        times = interleave(calls, runs, limit=4.0, settle=SETTLE)
        for name in peers:
            ratios[name].append(paired_ratio(times[name], times["pliant"]))
        rows.append([f"{batch} x {seq}", *(f"{t.median * 1e3:.2f}" for t in times.values()),
                     *(f"{ratios[name][-1]:.2f}" for name in peers)])  # fmt: skip
    header = ["batch x seq", "pliant ms", *(f"{n} ms" for n in peers), *(f"x {n}" for n in peers)]
    rows.append(["geometric mean", *[""] * (len(peers) + 1),
                 *(f"{geometric_mean(r):.2f}" for r in ratios.values())])  # fmt: skip
    return table(header, rows)

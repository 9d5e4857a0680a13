"""`pliant bench FILE`: time per shape, interleaved with other runtimes on the same inputs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from pliant.base.errors import InvalidModelError, PliantError
from pliant.cli.arrays import Array, Filler, parse_range, relative_error, shapes_at
from pliant.cli.models import add_compile_options, is_artifact, open_callable, positive
from pliant.cli.peers import PEERS, Peer, UnavailableError, open_peer
from pliant.cli.sweep import combinations, parse_sizes
from pliant.cli.terminal import message, table, write_whole
from pliant.cli.timing import SETTLE, Times, contention, geometric_mean, interleave, paired_ratio
from pliant.runtime.callable import Compiled
from pliant.version import VERSION

INACCURATE: Final = 4
OURS: Final = "pliant"


def configure(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help="a compiled file or a model")
    add("--shapes", nargs="+", default=[], type=_argument(parse_sizes), metavar="NAME=SIZES",
        help="sizes to combine: batch=1,4 seq=16,64; a range: seq=16..512, 32..640:32")  # fmt: skip
    add("--range", nargs="+", default=[], type=_argument(parse_range), metavar="INPUT=LOW..HIGH",
        help="values of an input; default: normal floats, integers 0 and 1")  # fmt: skip
    add("--against", default="", metavar="NAMES", help=f"of {','.join(PEERS)}")
    add("--model", type=Path, help="the model that a compiled FILE came from, for --against")
    add("--runs", type=positive, default=20, help="timed runs of each shape (default 20)")
    add("--limit", type=float, default=10.0, help="seconds after which a shape's runs end")
    add("--tolerance", type=float, default=1e-2, help="relative L2 distance to the peers")
    add("--seed", type=int, default=0, help="of the inputs")
    add("--json", type=Path, metavar="FILE", help="write everything to FILE")
    add_compile_options(parser)


def run(options: argparse.Namespace) -> int:
    """Print the table; exit code 4 where a peer's results differ by more than the tolerance."""
    names = [n for n in options.against.split(",") if n]
    for name in names:
        if name not in PEERS:
            raise InvalidModelError(f"no runtime {name!r}; there are: {', '.join(PEERS)}")
    compiled = open_callable(options.file, options)
    sweep = combinations(compiled.function, dict(options.shapes))
    inputs = {i.name for i in compiled.function.inputs}
    for name, _ in options.range:
        if name not in inputs:
            raise InvalidModelError(f"--range: no input {name!r}; there are: {', '.join(inputs)}")
    threads = int(str(compiled.stats()["threads"]))
    peers, skipped = _peers(names, options, threads)
    busy = contention()
    filler = Filler(dict(options.range), options.seed)
    shapes = []
    for sizes in sweep:
        shapes.append(measure(compiled, peers, sizes, filler, options))
        message(f"  {_label(sizes)}: done")
    report = {
        "format": 1, "pliant": VERSION, "file": str(options.file), "threads": threads,
        "runs": options.runs, "contention": busy, "skipped": skipped, "shapes": shapes,
        "geometric_mean": _means(shapes),
    }  # fmt: skip
    print(render(report, [OURS, *peers]))
    if options.json:
        write_whole(options.json, (json.dumps(report, indent=1) + "\n").encode())
    worst = max((e for s in shapes for e in s["errors"].values()), default=0.0)
    if worst > options.tolerance:
        message(f"pliant: results differ by {worst:.2g}, more than {options.tolerance:g}")
        return INACCURATE
    return 0


def measure(
    compiled: Compiled, peers: Mapping[str, Peer], sizes: Mapping[str, int], filler: Filler,
    options: argparse.Namespace,
) -> dict[str, Any]:  # fmt: skip
    """One shape: the times of everyone who can run it, and how far their results are apart."""
    shapes = shapes_at(compiled.function, sizes)
    arrays = {i.name: filler.array(i, shapes[i.name]) for i in compiled.function.inputs}
    entry: dict[str, Any] = {"symbols": dict(sizes), "results": {}, "ratios": {}, "errors": {},
                             "problems": {}}  # fmt: skip
    try:
        ours = _flat(compiled.run(arrays).values())
    except PliantError as e:
        entry["problems"][OURS] = str(e)
        return entry
    calls: dict[str, Callable[[], object]] = {OURS: lambda: compiled.run(arrays)}
    for name, peer in peers.items():
        try:
            call = peer.prepare(arrays)
            theirs = _flat(call())
        except Exception as e:  # a peer's own errors are of any class
            entry["problems"][name] = (str(e).strip().splitlines() or [type(e).__name__])[0][:200]
            continue
        pairs = list(zip(ours, theirs, strict=False))
        entry["errors"][name] = max((relative_error(a, b) for a, b in pairs), default=0.0)
        calls[name] = call
    times = interleave(calls, options.runs, limit=options.limit, settle=SETTLE)
    entry["results"] = {name: _summary(t) for name, t in times.items()}
    entry["ratios"] = {n: paired_ratio(t, times[OURS]) for n, t in times.items() if n != OURS}
    return entry


def render(report: Mapping[str, Any], names: Sequence[str]) -> str:
    """The report as a table: milliseconds, and how much longer the others take."""
    peers = names[1:]
    header = ["shape", *(f"{n} ms" for n in names), "p90", "p99", *(f"x {n}" for n in peers)]
    rows = []
    for s in report["shapes"]:
        results = s["results"]
        cells = [f"{results[n]['median_ms']:.3f}" if n in results else "-" for n in names]
        ours = results.get(OURS)
        tail = [f"{ours[p]:.3f}" if ours else "-" for p in ("p90_ms", "p99_ms")]
        ratios = [f"{s['ratios'][n]:.2f}" if n in s["ratios"] else "-" for n in peers]
        rows.append([_label(s["symbols"]), *cells, *tail, *ratios])
    lines = [table(header, rows)]
    for name, mean in report["geometric_mean"].items():
        lines.append(f"{name} takes {mean:.2f} times as long (geometric mean)")
    if report["contention"]:
        lines.append(f"WARNING: {report['contention']}")
    for name, why in report["skipped"].items():
        lines.append(f"{name} left out: {why}")
    for s in report["shapes"]:
        lines += [f"{_label(s['symbols'])}: {n}: {why}" for n, why in s["problems"].items()]
    return "\n".join(lines)


def _peers(
    names: Sequence[str], options: argparse.Namespace, threads: int
) -> tuple[dict[str, Peer], dict[str, str]]:
    model: Path | None = options.model or (None if is_artifact(options.file) else options.file)
    peers: dict[str, Peer] = {}
    skipped: dict[str, str] = {}
    for name in names:
        if model is None:
            skipped[name] = "a compiled file holds no model: name it with --model"
            continue
        try:
            peers[name] = open_peer(name, model, threads)
        except UnavailableError as why:
            skipped[name] = str(why)
            message(f"{name} left out: {why}")
    return peers, skipped


def _summary(t: Times) -> dict[str, float]:
    points = {f"p{p}_ms": t.percentile(p) * 1e3 for p in (50, 90, 99)}
    return {"median_ms": t.median * 1e3, **points, "runs": len(t.seconds)}


def _means(shapes: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for s in shapes:
        for name, ratio in s["ratios"].items():
            found.setdefault(name, []).append(ratio)
    return {name: geometric_mean(ratios) for name, ratios in found.items()}


def _flat(values: Any) -> list[Array]:
    return [np.asarray(v) for v in values]


def _label(sizes: Mapping[str, int]) -> str:
    return " ".join(f"{k}={v}" for k, v in sizes.items()) or "fixed"


def _argument(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """A parser that raises ValueError, for argparse, with its own words."""

    def convert(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as e:
            raise argparse.ArgumentTypeError(str(e)) from None

    return convert

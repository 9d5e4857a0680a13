"""One compilation under load: random legal sizes, memory, illegal calls and threads.

    PYTHONPATH=src:. python bench/soak.py [NAME …] [--tuples 1000] [--json F] [--markdown F]

Each dynamic model of the list runs in a process of its own:

1. memory: after a warm-up of 100 of the tuples and the one that needs most, a call at each;
   resident memory of the last 100 calls may be 1 % above that of the first 100. Nothing else runs.
2. results: each distinct tuple against the source framework (relative L2 up to 1e-4), and the bits
   of every call of the first pass against those of this one. Where the two differ by more, the
   model in float64 decides: `in f64` has the distances of both from it.
3. illegal calls: one tensor of the wrong rank, type or size, sizes that the model's own code
   refuses; always ShapeError, between legal calls.
4. threads: 8 threads call one callable at 50 sizes each, in different orders; bit for bit equal.

Exit code 4 where something is not so, 1 where a model could not be measured.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from math import prod
from multiprocessing import get_context
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, Final

import torch

from bench.models import Case, Inputs
from bench.onnx_models import ALL_MODELS
from pliant.cli.terminal import message, table
from pliant.runtime.callable import Compiled
from pliant.sym.expr import parse_int
from tests.compare import bits, distance
from tests.sizes import Sizes, tuples

LIMIT: Final = 1e-4
GROWTH: Final = 1.01
THREADS: Final = 8
SHAPES: Final = 50
WARMUP: Final = 100
ENDS: Final = 100  # first and last calls, whose memory is compared
PAGE: Final = 4096
_TRIM: Final = getattr(ctypes.CDLL(None), "malloc_trim", lambda _: 0)  # glibc has it


def soak(name: str, count: int, threads: int) -> dict[str, Any]:
    """All four parts for one model."""
    torch.set_num_threads(threads)
    case = ALL_MODELS[name]()
    f = case.compile(threads)
    sizes = tuples(0, case.sizes, count, case.most)
    message(f"{name}: memory")
    memory, hashes = _memory(f, case, sizes)
    message(f"{name}: {memory}; results")
    results = _results(f, case, sizes, hashes)
    message(f"{name}: {results}; illegal calls and threads")
    rest = _illegal(f, case, sizes) | _threads(f, case)
    message(f"{name}: {rest}")
    compiles = {"compiles": f.stats()["compiles"]}
    return {"model": name, "tuples": count} | memory | results | rest | compiles


def _call(f: Compiled, inputs: Inputs) -> list[torch.Tensor]:
    return list(f.run(inputs).values())


def _resident() -> int:
    """Bytes of this process in memory, without those of freed blocks, of which the C library keeps
    more or less as inputs and results come and go."""
    _TRIM(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def _peak(f: Compiled, case: Case, sizes: Sizes) -> int:
    """The planned bytes of a call."""
    shapes = {name: t.shape for name, t in case.make(**sizes).items()}
    extents = {
        dim: size
        for info in f.function.inputs
        for dim, size in zip(info.shape, shapes[info.name], strict=True)
    }
    return parse_int(str(f.stats()["peak_memory"])).eval(extents)


def _memory(f: Compiled, case: Case, sizes: Sequence[Sizes]) -> tuple[dict[str, Any], list[str]]:
    """Resident memory over a call at each tuple, and the bits of their results."""
    for s in (*sizes[:: max(1, len(sizes) // WARMUP)], max(sizes, key=lambda s: _peak(f, case, s))):
        _call(f, case.make(**s))
    begun, bytes_then, hashes = time.perf_counter(), [], []
    for s in sizes:
        hashes.append(bits(_call(f, case.make(**s))))
        if min(len(hashes) - 1, len(sizes) - len(hashes)) < ENDS:
            bytes_then.append(_resident())
    first, last = fmean(bytes_then[:ENDS]), fmean(bytes_then[-ENDS:])
    seconds = time.perf_counter() - begun
    row = {"MiB": round(last / 2**20, 1), "growth": last / first, "seconds": round(seconds, 1)}
    return row, hashes


def _results(
    f: Compiled, case: Case, sizes: Sequence[Sizes], hashes: Sequence[str]
) -> dict[str, Any]:
    """Each distinct tuple against the source, and its bits against those of earlier calls."""
    bits_of: dict[tuple[int, ...], str] = {}
    errors: dict[tuple[int, ...], float] = {}
    in_f64: dict[str, tuple[float, float]] = {}
    for s in sizes:
        key = tuple(s.values())
        if key not in errors:
            inputs = case.make(**s)
            got = _call(f, inputs)
            source = case.reference(inputs)
            bits_of[key], errors[key] = bits(got), distance(got, source)
            if not errors[key] <= LIMIT:
                exact = case.exact(inputs)
                errors[key] = distance(got, exact)
                in_f64[" ".join(map(str, key))] = errors[key], distance(source, exact)
    wrong = [" ".join(map(str, key)) for key, e in errors.items() if not e <= LIMIT]
    unsteady = sum(bits_of[tuple(s.values())] != h for s, h in zip(sizes, hashes, strict=True))
    return {
        "distinct": len(errors), "relative L2": max(errors.values()), "wrong": len(wrong),
        "unsteady": unsteady, "in f64": in_f64, "wrong at": wrong[:20],
    }  # fmt: skip


def _illegal(f: Compiled, case: Case, sizes: Sequence[Sizes]) -> dict[str, Any]:
    """The classes of errors of illegal calls, between legal ones."""
    random, classes, count = Random(1), set(), 0
    small = sorted((s for s in sizes if 0 not in s.values()), key=lambda s: prod(s.values()))
    good = case.make(**small[0])
    want = bits(_call(f, good))
    for s in small[:: len(small) // 25 + 1]:
        for inputs in _spoilt(f, case, random, case.make(**s)):
            count += 1
            try:
                f.run(inputs)
                classes.add("none")
            except Exception as e:  # whatever it is, its class is what is asked
                classes.add(type(e).__name__)
        if bits(_call(f, good)) != want:
            classes.add("a wrong result afterwards")
    return {"illegal": count, "errors": " ".join(sorted(classes))}


def _spoilt(f: Compiled, case: Case, random: Random, good: Inputs) -> Iterator[Inputs]:
    """Legal inputs with one thing wrong."""
    name, t = random.choice(list(good.items()))
    (info,) = (i for i in f.function.inputs if i.name == name)
    dims = [dim for i in f.function.inputs for dim in i.shape]
    yield good | {name: t[None]}
    yield good | {name: t.to(torch.float64)}
    for d, dim in enumerate(info.shape):
        if dim.isdecimal() or dims.count(dim) > 1:  # fixed, or another input disagrees
            yield good | {name: torch.cat([t, t.narrow(d, 0, 1)], d)}
    for wrong in case.illegal:
        yield case.make(**wrong)


def _threads(f: Compiled, case: Case) -> dict[str, Any]:
    """How many results of threads at work together differ from serial ones."""
    few = tuples(2, case.sizes, SHAPES, max(1, case.most // 4))
    inputs = [case.make(**s) for s in few]
    want = [bits(_call(f, x)) for x in inputs]

    def work(thread: int) -> int:
        order = Random(thread).sample(range(len(inputs)), len(inputs))
        return sum(bits(_call(f, inputs[k])) != want[k] for k in order)

    with ThreadPoolExecutor(THREADS) as pool:
        differing = sum(pool.map(work, range(THREADS)))
    return {"threads": f"{THREADS}×{len(inputs)}", "differing": differing}


def _failures(row: dict[str, Any]) -> list[str]:
    """What of a row is not as it must be."""
    checks = {
        "compiles": row["compiles"] == 1,
        "results": row["wrong"] == 0,
        "same bits": row["unsteady"] == 0,
        "memory": row["growth"] <= GROWTH,
        "errors": row["errors"] == "ShapeError",
        "threads": row["differing"] == 0,
    }
    return [what for what, holds in checks.items() if not holds]


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=[], help=f"of {', '.join(ALL_MODELS)}")
    parser.add_argument("--tuples", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=2, help="of Pliant and of the source")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    rows, failed = [], {}
    for name in options.models or ALL_MODELS:
        try:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
                rows.append(process.submit(soak, name, options.tuples, options.threads).result())
        except Exception as e:  # one model's trouble must not hide the others
            failed[name] = f"{type(e).__name__}: {str(e)[:300]}"
            message(f"{name}: {failed[name]}")
    for row in rows:
        row["not so"] = ", ".join(_failures(row))
    header = [h for h in rows[0] if h != "wrong at"] if rows else []
    cells = [[_cell(row[h]) for h in header] for row in rows]
    if rows:
        print(table(header, cells))
    if options.markdown:
        lines = [f"| {' | '.join(c)} |" for c in [header, ["---"] * len(header), *cells]]
        options.markdown.write_text("\n".join(lines) + "\n")
    if options.json:
        data = {"limit": LIMIT, "growth": GROWTH, "rows": rows, "failed": failed}
        options.json.write_text(json.dumps(data, indent=1) + "\n")
    if any(row["not so"] for row in rows):
        return 4
    return 1 if failed else 0


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{k}: {a:.1e}, source {b:.1e}" for k, (a, b) in value.items())
    if isinstance(value, float):
        return f"{value:.1e}" if 0 < value < 1e-2 else f"{value:.4g}"
    return str(value)


if __name__ == "__main__":
    raise SystemExit(main())

"""The steps of docs/tutorial_matmul.md beside the machine's best product, on one thread, in turns.

    PYTHONPATH=src:. python bench/tutorial.py [--sizes 512 1000 …] [--runs N] [--json FILE]

The best is that of NumPy, PyTorch, OpenVINO and ONNX Runtime, as far as they are installed, that
took the least time at the size. `x best` says how many times as long as a step it takes: the last
steps are wanted at 0.85 or more. The programs are those that the document defines.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import linecache
import re
from pathlib import Path
from typing import Any, Final

import numpy as np

import pliant
from bench.product_peers import on_one_thread, product_peers
from bench.timing import contention, interleave, paired_ratio, table
from pliant.schedule.program import Program

DOCUMENT: Final = Path(__file__).parents[1] / "docs" / "tutorial_matmul.md"
SLOW: Final = {"naive"}  # not measured at every size
_BLOCK: Final = re.compile(r"^```(python|text[^\n]*)\n(.*?)^```", re.S | re.M)


def blocks() -> list[tuple[str, str]]:
    """The document's blocks: what they are, and their text."""
    return [(kind, text) for kind, text in _BLOCK.findall(DOCUMENT.read_text())]


def run_block(source: str, number: int, names: dict[str, Any]) -> str:
    """Execute a block of Python in the document's names; what it printed."""
    file = f"{DOCUMENT.name}[{number}]"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, file, "exec"), names)
    return printed.getvalue()


def programs(names: dict[str, Any]) -> dict[str, Program]:
    """The steps, in order: programs with a name of more than a letter."""
    return {n: p for n, p in names.items() if isinstance(p, Program) and len(n) > 1}


def main() -> None:
    """Print a table of each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[512, 768, 1024])
    parser.add_argument("--runs", type=int, default=31)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    on_one_thread()
    busy = contention()
    names: dict[str, Any] = {"__name__": "tutorial"}
    for number, (kind, text) in enumerate(blocks()):
        if kind == "python":
            run_block(text, number, names)
    compiled = {n: pliant.compile(p, threads=1) for n, p in programs(names).items()}
    rows: list[list[Any]] = []
    for size in options.sizes:
        rng = np.random.default_rng(size)
        a, b = (rng.standard_normal((size, size), np.float32) for _ in range(2))
        out, peers = np.empty_like(a), product_peers(a, b)
        calls: dict[str, Any] = dict(peers)
        for name, f in compiled.items():
            if name not in SLOW or size == min(options.sizes):
                calls[name] = lambda f=f, a=a, b=b, out=out: f(a, b, out=out)
        for name, call in calls.items():
            np.testing.assert_allclose(np.asarray(call()), a @ b, atol=1e-2, err_msg=name)
        times = interleave(calls, options.runs, limit=60.0)
        best = min(peers, key=lambda n: times[n].median)
        for name, t in times.items():
            speed, ratio = 2e-9 * size**3 / t.median, paired_ratio(times[best], t)
            shown = f"{name} (best)" if name == best else name
            rows.append([size, shown, t.median * 1e3, speed, ratio])
    header = ["size", "step", "ms", "GFLOP/s", "x best"]
    cells = [[f"{v:.2f}" if isinstance(v, float) else str(v) for v in row] for row in rows]
    print(table(header, cells))
    if busy:
        print(f"WARNING: {busy}")
    if options.json:
        data = {"contention": busy, "rows": [dict(zip(header, r, strict=True)) for r in rows]}
        options.json.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()

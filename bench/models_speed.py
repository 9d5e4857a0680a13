"""Whole models beside PyTorch eager: median times and ratios of interleaved runs.

    PYTHONPATH=src:. python bench/models_speed.py [NAME …] [--threads 1 2] [--json F] [--markdown F]

`x torch` is how many times as long eager takes; `x channels_last` the same with the model and its
pictures in that layout (models of pictures only).
"""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

import pliant
from bench.models import MODELS, Case
from bench.timing import compare, contention, geometric_mean, message


def measure(name: str, case: Case, threads: int, runs: int) -> dict[str, Any]:
    """A model at its typical sizes."""
    inputs = case.inputs
    torch.set_num_threads(threads)
    f = pliant.compile(
        case.module, (), inputs, dynamic_shapes=case.dynamic_shapes, threads=threads,
        dims={n: pliant.Dim(**known) for n, known in case.dims.items()},
    )  # fmt: skip
    calls: dict[str, Callable[[], object]] = {
        "pliant": lambda: f(**inputs),
        "torch": _eager(case.module, inputs),
    }
    if any(t.ndim == 4 for t in inputs.values()):
        kind = {"memory_format": torch.channels_last}
        pictures = {k: t.to(**kind) if t.ndim == 4 else t for k, t in inputs.items()}
        calls["channels_last"] = _eager(copy.deepcopy(case.module).to(**kind), pictures)
    row = {"model": name, "threads": threads, "compile s": f.stats()["compile_seconds"]}
    return row | compare(calls, "pliant", runs)


def _eager(module: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> Callable[[], object]:
    def call() -> object:
        with torch.inference_mode():
            return module(**inputs)

    return call


def markdown(rows: Sequence[dict[str, Any]], means: dict[str, float], busy: str) -> str:
    """The rows as a Markdown table."""
    header = list(dict.fromkeys(k for r in rows for k in r))
    lines = [f"| {' | '.join(header)} |", "|" + " --- |" * len(header)]
    for r in rows:
        cells = (r.get(h, "") for h in header)
        lines.append(
            f"| {' | '.join(f'{c:.2f}' if isinstance(c, float) else str(c) for c in cells)} |"
        )
    lines += ["", *(f"Geometric mean of {k}: {v:.2f}" for k, v in means.items())]
    return "\n".join([*lines, *([f"\n**{busy}**"] if busy else [])])


def main() -> int:
    """Print the table; exit code 1 where a model could not be measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=[], help=f"of {', '.join(MODELS)}")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    busy, rows, failed = contention(), [], {}
    for name in options.models or MODELS:
        try:
            case = MODELS[name]()
            for threads in options.threads:
                message(f"{name}, {threads} threads")
                rows.append(measure(name, case, threads, options.runs))
        except Exception as e:  # one model's trouble must not hide the others
            failed[name] = f"{type(e).__name__}: {str(e)[:200]}"
            message(f"{name}: {failed[name]}")
    keys = [k for k in ("x torch", "x channels_last") if any(k in r for r in rows)]
    means = {k: geometric_mean([r[k] for r in rows if k in r]) for k in keys}
    text = markdown(rows, means, busy)
    print(text)
    if options.markdown:
        options.markdown.write_text(text + "\n")
    if options.json:
        data = {"contention": busy, "rows": rows, "geometric_mean": means, "failed": failed}
        options.json.write_text(json.dumps(data, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())

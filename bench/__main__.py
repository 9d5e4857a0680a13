"""The standing benchmark: whole models beside every other system, in one command.

    PYTHONPATH=src:. python -m bench [--rows TEXT …] [--peers NAME …] [--threads 1 2]
        [--precision f32 bf16] [--sweep | --kernels] [--runs N] [--quick] [--out FOLDER]

`x best` is how many times as long the fastest other system takes; `of ceiling` is the least time
that the row's operations and bytes need at the machine's measured peaks, over ours. Peak memory is
of a fresh process that loads what was built and calls it once. `--sweep` asks for 20 lengths of one
compilation beside a compilation of ours for each of them, `--kernels` for models of one operator
(`bench.kernel_models`). FOLDER gets standing.json, .md and .svg.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bench.kernel_models import KERNELS
from bench.standing import AskedError, Row, build, ceilings, measure
from bench.standing_report import markdown, means, record, svg
from bench.systems import OURS, SYSTEMS
from bench.timing import contention, message

PICTURE: Final = {"batch": 1, "height": 224, "width": 224}
ROWS: Final = (
    *(Row("minilm", {"batch": 1, "seq": n}) for n in (16, 64, 128, 256)),
    Row("bert_base", {"batch": 1, "seq": 128}),
    Row("decoder", {"batch": 1, "seq": 128}),
    Row("vit_b16", {"batch": 1}),
    Row("resnet50", PICTURE),
    Row("mobilenet_v2", PICTURE),
    Row("efficientvit_b1", PICTURE),
    Row("segformer_b0", {"batch": 1, "height": 512, "width": 512}),
    Row("efficientnet_lite0", {"batch": 1}),
    *(Row("ocr_det", {"batch": 1, "height": h, "width": w})
      for h, w in ((192, 384), (320, 640), (640, 640))),
    *(Row("ocr_rec", {"batch": 1, "height": 48, "width": w}) for w in (160, 320, 432)),
)  # fmt: skip
SWEEP: Final = tuple(Row("minilm", {"batch": 1, "seq": n}) for n in range(13, 513, 26))
QUICK: Final = ("pliant", "eager", "onnxruntime", "openvino")


def _systems(options: argparse.Namespace, precision: str) -> list[str]:
    ours = OURS[precision]
    peers = [n for n in SYSTEMS if SYSTEMS[n].bf16 == (precision == "bf16") and n != ours]
    if options.peers:
        peers = [n for n in peers if n in options.peers]
    elif options.quick:
        peers = [n for n in peers if n in QUICK]
    elif not options.sweep:
        peers = [n for n in peers if n != "pliant static"]
    for name in [n for n in peers if SYSTEMS[n].missing()]:
        peers.remove(name)
        message(f"{name} is left out: not installed: {', '.join(SYSTEMS[name].missing())}")
    return [ours, *peers]


def _model(rows: Sequence[Row], options: argparse.Namespace, peaks: Any) -> list[dict[str, Any]]:
    """All rows of one model."""
    model, each = rows[0].model, [r.sizes for r in rows]
    found = []
    with tempfile.TemporaryDirectory(prefix="pliant-bench-") as place:
        folder = Path(place)
        wanted = {p: _systems(options, p) for p in options.precision}
        absent = build([n for names in wanted.values() for n in names], model, folder, each)
        try:
            work = ceilings(["work", model, place, json.dumps(each)])
        except AskedError as e:
            message(f"{model}: no ceiling: {e}")
            work = [None] * len(rows)
        for row, needs in zip(rows, work, strict=True):
            for precision, names in wanted.items():
                for threads in options.threads:
                    message(f"{row.name}, {precision}, {threads} threads")
                    present = [n for n in names if n not in absent]
                    m = measure(
                        present, row, folder, threads, precision, options.runs, options.limit
                    )
                    m.failed |= {n: absent[n] for n in names if n in absent}
                    found.append(record(m, needs, peaks[threads]))
                    message(f"  {found[-1]['ms']} {m.failed or ''}")
    return found


def main() -> int:
    """Write the files and print the table; exit code 1 where a row has no time of ours."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    add = parser.add_argument
    add("--rows", nargs="+", default=[], metavar="TEXT", help="rows whose names begin so")
    add("--peers", nargs="+", default=[], choices=list(SYSTEMS), metavar="NAME",
        help=f"of {', '.join(SYSTEMS)}")  # fmt: skip
    add("--threads", type=int, nargs="+", default=[1, 2])
    add("--precision", nargs="+", default=["f32"], choices=list(OURS))
    instead = parser.add_mutually_exclusive_group().add_argument
    instead("--sweep", action="store_true", help="20 lengths of MiniLM instead of the rows")
    instead("--kernels", action="store_true", help="single operators instead of the rows")
    add("--runs", type=int, default=15, help="rounds (default 15)")
    add("--limit", type=float, default=60.0, help="seconds after which a row's rounds end")
    add("--quick", action="store_true", help=f"only {', '.join(QUICK)}; 5 rounds")
    add("--out", type=Path, default=Path("."), metavar="FOLDER")
    options = parser.parse_args()
    if options.quick:
        options.runs = min(options.runs, 5)
    rows = [r for r in (SWEEP if options.sweep else KERNELS if options.kernels else ROWS)
            if not options.rows or any(r.name.startswith(t) for t in options.rows)]  # fmt: skip
    busy, found, failed = contention(), [], {}
    peaks = {t: ceilings(["peaks", str(t)]) for t in options.threads}
    for model in dict.fromkeys(r.model for r in rows):
        try:
            found += _model([r for r in rows if r.model == model], options, peaks)
        except AskedError as e:  # one model's trouble must not hide the others
            failed[model] = str(e)
            message(f"{model}: {e}")
    text = markdown(found, busy)
    data = {"contention": busy, "peaks": peaks, "rows": found, "failed": failed,
            "geometric_mean": means(found)}  # fmt: skip
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "standing.json").write_text(json.dumps(data, indent=1) + "\n")
    (options.out / "standing.md").write_text(text)
    (options.out / "standing.svg").write_text(svg(found))
    print(text)
    ok = found and all(OURS[r["precision"]] in r["ms"] for r in found)
    return 1 if failed or not ok else 0


if __name__ == "__main__":
    raise SystemExit(main())

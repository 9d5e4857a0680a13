"""Every model of the list against its source framework: relative L2 of f32 results at several
shapes, all of one compilation.

    PYTHONPATH=src:. python bench/accuracy.py [NAME …] [--json F] [--markdown F]

Weights and inputs are real where the model has real ones (`bench/onnx_models.py`, MiniLM,
EfficientNet-Lite0). Exit code 4 where a result is further away than 1e-4, 1 where a model could not
be measured.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Final

from bench.models import Case
from bench.onnx_models import ALL_MODELS
from pliant.cli.terminal import message, table
from tests.compare import distance

LIMIT: Final = 1e-4


def measure(name: str, case: Case) -> dict[str, Any]:
    """A model at its shapes."""
    message(f"{name}: compiling")
    f = case.compile()
    errors = {}
    for shape in case.shapes:
        inputs = case.make(**dict(zip(case.sizes, shape, strict=True)))
        errors[shape] = distance(list(f.run(inputs).values()), case.expected(inputs))
        message(f"{name} {shape}: {errors[shape]:.1e}")
    return {
        "model": name,
        "dims": ", ".join(case.sizes),
        "shapes": " ".join("×".join(map(str, s)) for s in errors),
        "relative L2": max(errors.values()),
        "compiles": f.stats()["compiles"],
        "errors": list(errors.values()),
    }


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=[], help=f"of {', '.join(ALL_MODELS)}")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    rows, failed = [], {}
    for name in options.models or ALL_MODELS:
        try:
            rows.append(measure(name, ALL_MODELS[name]()))
        except Exception as e:  # one model's trouble must not hide the others
            failed[name] = f"{type(e).__name__}: {str(e)[:300]}"
            message(f"{name}: {failed[name]}")
    header = ["model", "dims", "shapes", "relative L2", "compiles"]
    cells = [[f"{v:.1e}" if isinstance(v := r[h], float) else str(v) for h in header] for r in rows]
    if rows:
        print(table(header, cells))
    if options.markdown:
        lines = [f"| {' | '.join(c)} |" for c in [header, ["---"] * len(header), *cells]]
        options.markdown.write_text("\n".join(lines) + "\n")
    if options.json:
        data = {"limit": LIMIT, "rows": rows, "failed": failed}
        options.json.write_text(json.dumps(data, indent=1) + "\n")
    if any(not r["relative L2"] <= LIMIT or r["compiles"] != 1 for r in rows):
        return 4
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""ONNX's node tests by operator: pass, refused, WRONG, crash.

python bench/onnx_conformance.py [--compiled] [--dynamic] [--filter REGEX] [--op OP] [--table FILE]

With the graph interpreter, or (--compiled) natively, each test in a process of its own.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from pliant.frontend.onnx import ONNX_OPS
from tests.frontend.onnx.node_cases import (
    CRASH,
    PASS,
    REFUSED,
    WRONG,
    left_out,
    node_tests,
    operator_of,
    run_case,
    run_isolated,
)


def main() -> int:
    """Print the table; exit code 1 where anything is wrong or crashes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--filter", default="", help="names to run, a regular expression")
    parser.add_argument("--dynamic", action="store_true", help="make every dim symbolic")
    parser.add_argument("--compiled", action="store_true", help="run natively")
    parser.add_argument("--table", type=Path, help="write the table there, as Markdown")
    parser.add_argument("--op", default="", help="one operator")
    parser.add_argument("--verbose", action="store_true", help="one line for each failed test")
    options = parser.parse_args()
    out_of_scope: Counter[str] = Counter()
    table: dict[str, Counter[str]] = {}
    for case in node_tests():
        if not re.search(options.filter, case.name):
            continue
        if options.op and operator_of(case) != options.op:
            continue
        why = left_out(case.model)
        if why:
            out_of_scope[why] += 1
            continue
        run = run_isolated if options.compiled else run_case
        outcome = run(case, dynamic=options.dynamic)
        table.setdefault(outcome.op, Counter())[outcome.result] += 1
        if outcome.result in (WRONG, CRASH) or (options.verbose and outcome.result == REFUSED):
            print(
                f"{outcome.result:8} {outcome.name}: {outcome.detail}", file=sys.stderr, flush=True
            )
    if options.table:
        options.table.write_text(_markdown(table, out_of_scope))
    return _report(table, out_of_scope)


def _markdown(table: dict[str, Counter[str]], out_of_scope: Counter[str]) -> str:
    total = sum(table.values(), Counter[str]())
    count = sum(total.values()) or 1
    lines = [
        "# ONNX operators",
        "",
        "ONNX's own node tests, compiled natively and compared with the expected results. Refused:",
        "an `UnsupportedError` that says why. Made by",
        "`python bench/onnx_conformance.py --compiled --table docs/onnx_coverage.md`.",
        "",
        f"{total[PASS]} of {count} pass ({100 * total[PASS] / count:.1f} %), {total[REFUSED]} are "
        f"refused, {total[WRONG]} give a wrong result, {total[CRASH]} crash. Left out: "
        + ", ".join(f"{n} {why}" for why, n in sorted(out_of_scope.items()))
        + ".",
        "",
        "| operator | pass | refused | wrong | crash |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for op, counts in sorted(table.items()):
        cells = (str(counts[c] or "") for c in (PASS, REFUSED, WRONG, CRASH))
        lines.append(f"| {op} | {' | '.join(cells)} |")
    fused = sorted(op for domain, op in ONNX_OPS if domain == "com.microsoft")
    lines += [
        "",
        "Operators of com.microsoft, which are compared with ONNX Runtime or with what they were "
        f"fused of: {', '.join(fused)}.",
    ]
    return "\n".join(lines) + "\n"


def _report(table: dict[str, Counter[str]], out_of_scope: Counter[str]) -> int:
    columns = (PASS, REFUSED, WRONG, CRASH)
    print(f"{'operator':36}" + "".join(f"{c:>9}" for c in columns))
    total: Counter[str] = Counter()
    for op, counts in sorted(table.items()):
        total += counts
        print(f"{op:36}" + "".join(f"{counts[c] or '':>9}" for c in columns))
    print(f"{'total':36}" + "".join(f"{total[c]:>9}" for c in columns))
    count = sum(total.values()) or 1
    left = ", ".join(f"{n} {why}" for why, n in sorted(out_of_scope.items()))
    print(f"{100 * total[PASS] / count:.1f} % of {count} pass; left out: {left or 'none'}")
    return 1 if total[WRONG] or total[CRASH] else 0


if __name__ == "__main__":
    sys.exit(main())

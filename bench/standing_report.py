"""The standing benchmark's results as JSON, as a Markdown table and as a plot (SVG)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from bench.standing import Measured
from bench.systems import OURS
from bench.timing import geometric_mean

OWN: Final = ("pliant", "pliant static", "pliant bf16")
BAR, LABEL, SCALE = 14, 260, 220  # of the plot: height of a bar, room for names, pixels for 1.0


def record(
    m: Measured, work: Mapping[str, int] | None, peaks: Mapping[str, float]
) -> dict[str, Any]:
    """A row as plain data. Ratios say how many times as long the others take."""
    ours = OURS[m.precision]
    found: dict[str, Any] = {
        "row": m.row.name, "threads": m.threads, "precision": m.precision,
        "ms": {n: statistics.median(s) * 1e3 for n, s in m.seconds.items()},
        "load ms": {n: s * 1e3 for n, s in m.load.items()},
        "peak MB": {n: b / 1e6 for n, b in m.peak.items()},
        "distance": m.distance, "failed": m.failed,
    }  # fmt: skip
    if work is not None:
        limit = max(work["flops"] / peaks[m.precision], work["bytes"] / peaks["copy"])
        found |= {"work": dict(work), "ceiling ms": limit * 1e3}
    best = m.best(OWN)
    if best is not None:
        found["best peer"] = best
    if ours in m.seconds:
        found["ratios"] = {n: m.ratio(n, ours) for n in m.seconds if n != ours}
        if best is not None:
            found["x best"] = found["ratios"][best]
        if work is not None:
            found["of ceiling"] = limit / statistics.median(m.seconds[ours])
    return found


def means(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Geometric means of the ratios to the best peers, by precision and threads."""
    kinds: dict[str, list[float]] = {}
    for r in rows:
        if "x best" in r:
            kinds.setdefault(f"{r['precision']}, {r['threads']} threads", []).append(r["x best"])
    return {kind: geometric_mean(ratios) for kind, ratios in kinds.items()}


def markdown(rows: Sequence[Mapping[str, Any]], busy: str) -> str:
    """A line for every row: times, the best peer, the share of the ceiling, peak memory."""
    systems = list(dict.fromkeys(n for r in rows for n in r["ms"]))
    header = ["row", "threads", "precision", *(f"{n} ms" for n in systems), "best peer", "x best",
              "of ceiling", "peak MB, ours", "least of peers"]  # fmt: skip
    lines = [f"| {' | '.join(header)} |", "|" + " --- |" * len(header)]
    for r in rows:
        own = r["peak MB"].get(OURS[r["precision"]])
        least = min((v for n, v in r["peak MB"].items() if n not in OWN), default=None)
        cells = [r["row"], r["threads"], r["precision"], *(r["ms"].get(n) for n in systems),
                 r.get("best peer"), r.get("x best"), r.get("of ceiling"), own, least]  # fmt: skip
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    lines += ["", *(f"Geometric mean of x best, {k}: {v:.2f}" for k, v in means(rows).items())]
    left_out = [f"- {r['row']}, {n}: {why}" for r in rows for n, why in r["failed"].items()]
    if left_out:
        lines += ["", "Without a time:", "", *dict.fromkeys(left_out)]
    return "\n".join([*lines, *(["", f"**{busy}**"] if busy else [])]) + "\n"


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) and value < 100 else (
        f"{value:.0f}" if isinstance(value, float) else str(value)
    )  # fmt: skip


def svg(rows: Sequence[Mapping[str, Any]]) -> str:
    """Bars: how many times as long the best peer of each row takes; the line is 1."""
    shown = [r for r in rows if "x best" in r]
    height = (len(shown) + 1) * (BAR + 6)
    width = LABEL + SCALE * max([2.0, *(r["x best"] + 1 for r in shown)])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for k, r in enumerate(shown):
        y, ratio = k * (BAR + 6) + 6, r["x best"]
        name = f"{r['row']}, {r['precision']}, {r['threads']} threads"
        colour = "#2a7" if ratio >= 1 else "#c53"
        length = ratio * SCALE
        parts += [
            f'<text x="4" y="{y + 11}">{escape(name)}</text>',
            f'<rect x="{LABEL}" y="{y}" width="{length:.1f}" height="{BAR}" fill="{colour}"/>',
            f'<text x="{LABEL + length + 4:.1f}" y="{y + 11}">{ratio:.2f} x '
            f"{escape(r['best peer'])}</text>",
        ]
    one = LABEL + SCALE
    parts.append(f'<line x1="{one}" x2="{one}" y1="0" y2="{height}" stroke="black"/></svg>')
    return "\n".join(parts) + "\n"

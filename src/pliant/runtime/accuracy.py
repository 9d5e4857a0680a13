"""How far a function with less precision inside is from what it was made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from pliant.runtime.callable import Compiled
from pliant.runtime.tree import flatten

MEASURED: Final = ("f32", "f64")


def accuracy(
    reduced: Compiled, exact: Compiled, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, float]:
    """`relative_l2[y]` and `max_abs[y]` of every f32 and f64 output y, for one call.

    The relative L2 is |y - exact| / |exact|, Frobenius norms; 0 where both are 0.
    """
    got, want = (
        flatten(f.function.result_tree, f(*args, **kwargs), "result") for f in (reduced, exact)
    )
    found: dict[str, float] = {}
    for info, ours, theirs in zip(exact.function.outputs, got, want, strict=True):
        if info.dtype not in MEASURED:
            continue
        a, b = (np.asarray(x).astype(np.float64) for x in (ours, theirs))
        error, norm = float(np.linalg.norm(a - b)), float(np.linalg.norm(b))
        relative = error / norm if norm else 0.0 if error == 0 else float("inf")
        found[f"relative_l2[{info.name}]"] = relative
        found[f"max_abs[{info.name}]"] = float(np.abs(a - b).max(initial=0.0))
    return found

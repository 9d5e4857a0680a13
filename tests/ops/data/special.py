"""Special functions against torch in f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.ops.case import FLOATS, Case, arg, special, with_types
from tests.ops.data.matmul import in_f64

SIZES = ({"m": 3, "n": 7}, {"m": 1, "n": 1}, {"m": 0, "n": 5}, {"m": 64, "n": 3})
FUNCTIONS = {
    "lgamma": torch.lgamma, "digamma": torch.digamma, "erfcx": torch.special.erfcx,
    "log_ndtr": torch.special.log_ndtr, "erfinv": torch.erfinv, "ndtri": torch.special.ndtri,
    "bessel_i0": torch.special.i0, "bessel_i0e": torch.special.i0e,
    "bessel_i1": torch.special.i1, "bessel_i1e": torch.special.i1e,
}  # fmt: skip
NEITHER = ("bessel_i0", "bessel_i1")
"""What torch makes NaN at infinity."""


def spread(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, _: Any) -> Any:
    return (rng.normal(size=shape) * 12).astype(dtype.numpy)


def unit(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, _: Any) -> Any:
    """From one end to the other, with both."""
    values = rng.choice([0.0, 1.0, -1.0, 1.5, np.nan, 1e-20], shape)
    return np.where(rng.random(shape) < 0.8, rng.uniform(-1, 1, shape), values).astype(dtype.numpy)


CASES = [
    case
    for name, fn in FUNCTIONS.items()
    for fill in ((unit,) if name in ("erfinv", "ndtri") else (spread, special))
    if not (fill is special and name in NEITHER)
    for case in with_types(
        Case(name, (arg("f32", "m", "n", fill=fill),), in_f64(fn), {}, SIZES, 2, fill.__name__),
        *(FLOATS if fill is not special else ("f32",)),
    )
]

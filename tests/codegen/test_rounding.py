"""f32 becomes the nearest bf16, whatever instructions a vector's width has for it."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from pliant.loop.parser import parse_function
from pliant.schedule.primitives import program
from tests.schedule.native import native

SHORT = """
@loop(notes={notes})
def short(x: f32["n"], y: bf16["n"], n: i64):
    for i in grid(n):
        with block("y", S(i, n)) as (a,):
            y[a] = bf16(x[a])
"""

LEAST_NORMAL = np.float32(2.0**-126)


def numbers() -> np.ndarray:
    """Ties to either side, what lies beside them, the largest, infinities and random bits."""
    upper = np.arange(0, 2**16, 37, dtype=np.uint32) << 16
    ties = (upper[:, None] + np.array([0x7FFF, 0x8000, 0x8001], np.uint32)).ravel()
    some = np.random.default_rng(0).integers(0, 2**32, 4096, dtype=np.uint32)
    special = np.array([np.inf, -np.inf, 3.4e38, -3.4e38, 0.0, -0.0], np.float32).view(np.uint32)
    return np.concatenate([ties, some, special]).view(np.float32)


@pytest.mark.parametrize("lanes", [4, 8, 16, 32, 64])
@pytest.mark.parametrize("tail", ["peel", "mask"])
@pytest.mark.parametrize("flushes", [False, True])
def test_to_bf16(lanes: int, tail: str, flushes: bool) -> None:
    notes = '{"flushes": True}' if flushes else "{}"
    p = program(parse_function(SHORT.replace("{notes}", notes))).split("i", lanes, tail=tail)
    p = p.vectorize(p.made[1])
    x = numbers()
    y = np.zeros(len(x), ml_dtypes.bfloat16)
    native(p.function, [x, y], {"n": len(x)})
    with np.errstate(over="ignore", invalid="ignore"):
        expected = x.astype(ml_dtypes.bfloat16)
    nan = np.isnan(x)
    assert np.isnan(y[nan].astype(np.float32)).all()
    got, wanted = y.view(np.uint16)[~nan], expected.view(np.uint16)[~nan]
    small = flushes & (np.abs(x[~nan]) < LEAST_NORMAL)
    right = got == wanted
    flushed = small & (got & 0x7FFF == 0)
    assert (right | flushed).all()

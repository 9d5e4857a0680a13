"""Tensors out of sizes and numbers, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from pliant.base.dtypes import DTYPES
from tests.ops.case import Case, arg, between

SIZES = ({"m": 3, "n": 5}, {"m": 1, "n": 1}, {"m": 0, "n": 2}, {"m": 7, "n": 2})


def full(shape: Any, value: Any, dtype: Any) -> np.ndarray:
    return np.full(tuple(shape), value).astype(dtype.numpy)


def iota(size: int, start: Any = 0, step: Any = 1, *, dtype: Any) -> np.ndarray:
    whole = isinstance(start, int) and isinstance(step, int)
    return (start + np.arange(size, dtype=np.int64 if whole else np.float64) * step).astype(
        dtype.numpy
    )


def eye(rows: int, cols: int, offset: int = 0, *, dtype: Any) -> np.ndarray:
    return np.eye(rows, cols, offset).astype(dtype.numpy)


def one_hot(x: np.ndarray, depth: int, dtype: Any, axis: int) -> np.ndarray:
    wrapped = np.where(x < 0, x + depth, x)
    found = wrapped[..., None] == np.arange(depth)
    return np.moveaxis(found, -1, axis).astype(dtype.numpy)


def create_cases() -> list[Case]:
    found = []
    for name, dtype in DTYPES.items():
        value: Any = 1 if name == "bool" else 3
        found += [
            Case(
                "full",
                (),
                full,
                lambda d, v=value, t=dtype: {"shape": (d("m"), 2, d("n")), "value": v, "dtype": t},
                SIZES,
                note=name,
                numpy=True,
            ),
            Case(
                "eye",
                (),
                eye,
                lambda d, t=dtype: {"rows": d("m"), "cols": d("n"), "dtype": t},
                SIZES,
                note=name,
                numpy=True,
            ),
        ]
        if name != "bool":
            found.append(
                Case(
                    "iota",
                    (),
                    iota,
                    lambda d, t=dtype: {"size": d("m"), "start": 2, "step": 3, "dtype": t},
                    SIZES,
                    note=name,
                    numpy=True,
                )
            )
    return found


F32, I64, BOOL = DTYPES["f32"], DTYPES["i64"], DTYPES["bool"]
CASES = [
    *create_cases(),
    Case(
        "full",
        (),
        full,
        {"shape": (), "value": float("-inf"), "dtype": F32},
        note="scalar",
        numpy=True,
    ),
    Case(
        "iota",
        (),
        iota,
        lambda d: {"size": d("m"), "start": 0.5, "step": 0.1, "dtype": F32},
        SIZES,
        note="fraction",
        numpy=True,
    ),
    Case(
        "iota",
        (),
        iota,
        lambda d: {"size": d("m"), "start": d("n"), "step": -2, "dtype": I64},
        SIZES,
        note="sizes",
        numpy=True,
    ),
    *(
        Case(
            "eye",
            (),
            eye,
            lambda d, k=k: {"rows": d("m"), "cols": d("n"), "offset": k, "dtype": F32},
            SIZES,
            note=str(k),
            numpy=True,
        )
        for k in (-1, 2)
    ),
    *(
        Case(
            "one_hot",
            (arg("i64", "m", "n", fill=between(-4, 6)),),
            one_hot,
            {"depth": 4, "dtype": F32, "axis": a},
            SIZES,
            note=str(a),
            numpy=True,
        )
        for a in range(3)
    ),
    Case(
        "one_hot",
        (arg("u8", "m", fill=between(0, 6)),),
        one_hot,
        lambda d: {"depth": d("n"), "dtype": BOOL, "axis": 1},
        SIZES,
        note="sizes",
        numpy=True,
    ),
    Case(
        "size_value",
        (),
        lambda value: np.asarray(value),
        lambda d: {"value": d("2*m + n")},
        SIZES,
        numpy=True,
    ),
    *(
        Case(
            "size_vector",
            (),
            lambda values: np.asarray(values, np.int64),
            lambda d, k=k: {"values": (d("m"), 3, d("m*n"), d("n"))[:k]},
            SIZES,
            note=str(k),
            numpy=True,
        )
        for k in range(5)
    ),
]

"""Reductions against torch and NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tests.ops.case import FLOATS, INTS, Case, arg, extremes, few, numbers, special, with_types

SIZES = ({"m": 3, "n": 5, "k": 7}, {"m": 1, "n": 2, "k": 1}, {"m": 2, "n": 33, "k": 4})
EMPTY = ({"m": 0, "n": 2, "k": 3}, {"m": 2, "n": 0, "k": 3})
AXES = ((0,), (2,), (1, 2), (0, 2), (0, 1, 2), (2, 0))


def folded(fn: Any) -> Any:
    """A NumPy reduction of f64 (or of the type itself, wrapping) over a tuple of axes."""

    def oracle(x: np.ndarray, axes: Sequence[int], keepdims: bool) -> np.ndarray:
        wide = x if x.dtype.kind in "iub" else x.astype(np.float64)
        return np.asarray(fn(wide, axis=tuple(axes), keepdims=keepdims)).astype(x.dtype)

    return oracle


def wrapped(fn: Any) -> Any:
    def oracle(x: np.ndarray, axes: Sequence[int], keepdims: bool) -> np.ndarray:
        return np.asarray(fn(x, axis=tuple(axes), keepdims=keepdims, dtype=x.dtype))

    return oracle


def bounded(fn: Any, empty: float) -> Any:
    def oracle(x: np.ndarray, axes: Sequence[int], keepdims: bool) -> np.ndarray:
        wide = x.astype(np.float64) if x.dtype.kind not in "iub" else x
        initial = {} if x.dtype.kind in "iub" else {"initial": empty}
        return np.asarray(fn(wide, axis=tuple(axes), keepdims=keepdims, **initial)).astype(x.dtype)

    return oracle


def logsumexp(x: np.ndarray, axes: Sequence[int], keepdims: bool) -> np.ndarray:
    wide = torch.from_numpy(x.astype(np.float64))
    return torch.logsumexp(wide, tuple(axes), keepdims).numpy().astype(x.dtype)


def variance(x: np.ndarray, axes: Sequence[int], keepdims: bool, correction: float) -> np.ndarray:
    wide = torch.from_numpy(x.astype(np.float64))
    found = torch.var(wide, tuple(axes), correction=correction, keepdim=keepdims)
    return found.numpy().astype(x.dtype)


def norm(x: np.ndarray, p: int, axes: Sequence[int], keepdims: bool) -> np.ndarray:
    wide = x.astype(np.float64)
    total = (np.abs(wide) ** p).sum(tuple(axes), keepdims=keepdims)
    return np.asarray(total ** (1 / p)).astype(x.dtype)


FLOAT = {
    "sum": folded(np.sum),
    "mean": folded(np.mean),
    "max": bounded(np.max, -np.inf),
    "min": bounded(np.min, np.inf),
    "prod": folded(np.prod),
    "logsumexp": logsumexp,
}


def attributes(axes: Sequence[int], keepdims: bool, **more: Any) -> dict[str, Any]:
    return {"axes": tuple(axes), "keepdims": keepdims, **more}


def cases_of(op: str, oracle: Any, dtypes: Sequence[str], fill: Any, **more: Any) -> list[Case]:
    found: list[Case] = []
    for k, axes in enumerate(AXES):
        base = Case(
            op,
            (arg(dtypes[0], "m", "n", "k", fill=fill),),
            oracle,
            attributes(axes, keepdims=k % 2 == 0, **more),
            SIZES,
            4,
            "".join(map(str, axes)) + "".join(f"-{v}" for v in more.values()),
            numpy=True,
        )
        found += with_types(base, *(dtypes if k < 2 else dtypes[:1]))
    return found


def float_cases() -> list[Case]:
    found: list[Case] = []
    for op, oracle in FLOAT.items():
        found += cases_of(op, oracle, FLOATS, numbers)
        args = (arg("f32", "m", "n", "k"),)
        found.append(
            Case(op, args, oracle, attributes((1,), True), EMPTY, note="empty", numpy=True)
        )
        args = (arg("f32", "m", "n", "k", fill=special),)
        if op not in ("prod",):
            found.append(
                Case(op, args, oracle, attributes((0, 2), False), SIZES, note="special", numpy=True)
            )
        if op != "logsumexp":
            none = Case(op, args, oracle, attributes((), True), SIZES, note="none", numpy=True)
            found += with_types(none, *FLOATS)
    return found


def int_cases() -> list[Case]:
    found: list[Case] = []
    for op, fn in (("sum", np.sum), ("prod", np.prod)):
        found += cases_of(op, wrapped(fn), INTS, extremes)
    for op, fn in (("max", np.max), ("min", np.min)):
        found += cases_of(op, bounded(fn, 0), INTS, extremes)
    for op, fn in (("any", np.any), ("all", np.all)):
        found += cases_of(op, folded(fn), ("bool",), numbers)
        args = (arg("bool", "m", "n", "k"),)
        found.append(
            Case(op, args, folded(fn), attributes((1,), False), EMPTY, numpy=True, note="empty")
        )
    args = (arg("i32", "m", "n", "k"),)
    found.append(Case("mean", args, int_mean, attributes((1, 2), False), SIZES, numpy=True))
    return found


def int_mean(x: np.ndarray, axes: Sequence[int], keepdims: bool) -> np.ndarray:
    return np.trunc(x.astype(np.float64).mean(tuple(axes), keepdims=keepdims)).astype(x.dtype)


def best(fn: Any) -> Any:
    def oracle(x: np.ndarray, axis: int, keepdims: bool, last: bool = False) -> np.ndarray:
        wide = x if x.dtype.kind in "iub" else x.astype(np.float64)
        if last:
            found = x.shape[axis] - 1 - fn(np.flip(wide, axis), axis=axis, keepdims=keepdims)
            return np.asarray(found)
        return np.asarray(fn(wide, axis=axis, keepdims=keepdims))

    return oracle


def arg_cases() -> list[Case]:
    found: list[Case] = []
    for op, fn in (("argmax", np.argmax), ("argmin", np.argmin)):
        for k, attrs in enumerate(
            (
                {"axis": 0, "keepdims": True},
                {"axis": 2, "keepdims": False},
                {"axis": 1, "keepdims": False, "last": True},
            )
        ):
            args = (arg("f32", "m", "n", "k", fill=few),)
            base = Case(op, args, best(fn), attrs, SIZES, note=str(k), numpy=True)
            found += with_types(base, *FLOATS, "i64", "u8", "i8")
    return found


CASES = [
    *float_cases(),
    *int_cases(),
    *arg_cases(),
    *(c for k in (0, 1) for c in cases_of("variance", variance, FLOATS, numbers, correction=k)),
    *(c for p in (1, 2) for c in cases_of("norm", norm, (*FLOATS, "i32"), numbers, p=p)),
]

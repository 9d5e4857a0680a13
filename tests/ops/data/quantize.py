"""Quantisation against the ONNX reference's formulas."""

from __future__ import annotations

from typing import Any

import numpy as np

from pliant.base.dtypes import DTYPES
from tests.ops.case import Case, arg, extremes, positive, with_types

SIZES = ({"m": 3, "n": 5}, {"m": 1, "n": 1}, {"m": 0, "n": 2}, {"m": 16, "n": 9})


def along(v: np.ndarray, x: np.ndarray, axis: int) -> np.ndarray:
    return v if v.ndim == 0 else v.reshape([-1 if d == axis else 1 for d in range(x.ndim)])


def quantize(
    x: np.ndarray, scale: np.ndarray, zero: Any = None, *, axis: int, to: Any
) -> np.ndarray:
    real = x.astype(np.float32) / along(scale, x, axis).astype(np.float32)
    value = np.rint(real) + (0 if zero is None else along(zero, x, axis).astype(np.float64))
    return np.clip(value, to.min, to.max).astype(to.numpy)


def dequantize(x: np.ndarray, scale: np.ndarray, zero: Any = None, *, axis: int) -> np.ndarray:
    value = x.astype(np.int32) - (0 if zero is None else along(zero, x, axis).astype(np.int32))
    return (value.astype(np.float32) * along(scale, x, axis).astype(np.float32)).astype(scale.dtype)


def dynamic(x: np.ndarray) -> Any:
    """ONNX Runtime's: the scale of zeros is 1."""
    high, low = max(x.max(initial=0), 0), min(x.min(initial=0), 0)
    scale = (
        np.float32(1)
        if high == low
        else np.float32((np.float32(high) - np.float32(low)) / np.float32(255))
    )
    zero = np.clip(np.rint(-np.float32(low) / scale), 0, 255).astype(np.uint8)
    y = np.clip(np.rint(x / scale) + np.float32(zero), 0, 255).astype(np.uint8)
    return y, np.asarray(scale), np.asarray(zero)


def wide(rng: Any, shape: Any, dtype: Any, _: Any) -> Any:
    return (rng.normal(size=shape) * 100).astype(dtype.numpy)


def zeros(rng: Any, shape: Any, dtype: Any, _: Any) -> Any:
    return np.zeros(shape, dtype.numpy)


def cases() -> list[Case]:
    found: list[Case] = []
    for to in ("u8", "i8", "u16", "i16", "i32"):
        for axis, dims in ((0, ()), (0, ("m",)), (1, ("n",))):
            for offset in (None, arg(to, *dims, fill=extremes)):
                note = f"{to}{axis}{len(dims)}{'z' if offset else ''}"
                scale = arg("f32", *dims, fill=positive)
                if to != "i32" or offset is None:
                    args = (arg("f32", "m", "n", fill=wide), scale, offset)
                    found.append(
                        Case(
                            "quantize_linear",
                            args,
                            quantize,
                            {"axis": axis, "to": DTYPES[to]},
                            SIZES,
                            note=note,
                            numpy=True,
                        )
                    )
                x = arg(to, "m", "n", fill=extremes)
                found.append(
                    Case(
                        "dequantize_linear",
                        (x, scale, offset),
                        dequantize,
                        {"axis": axis},
                        SIZES,
                        note=note,
                        numpy=True,
                    )
                )
    half = Case(
        "quantize_linear",
        (arg("f16", "m", "n", fill=wide), arg("f16", "n", fill=positive), arg("i8", "n")),
        quantize,
        {"axis": 1, "to": DTYPES["i8"]},
        SIZES,
        numpy=True,
    )
    found += with_types(half, "f16", "bf16")
    found.append(
        Case(
            "dequantize_linear",
            (arg("i8", "m", "n"), arg("f16", fill=positive)),
            dequantize,
            {"axis": 1},
            SIZES,
            note="half",
            numpy=True,
        )
    )
    for name, fill in (("wide", wide), ("positive", positive), ("zeros", zeros)):
        found.append(
            Case(
                "dynamic_quantize_linear",
                (arg("f32", "m", "n", fill=fill),),
                dynamic,
                {},
                SIZES,
                note=name,
                numpy=True,
            )
        )
    return found


CASES = cases()

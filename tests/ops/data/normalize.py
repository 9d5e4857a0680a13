"""Normalisation against torch, and the ONNX reference where torch has no such operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from tests.ops.case import FLOATS, Case, arg, numbers, positive, special, with_types
from tests.ops.data.matmul import in_f64

SIZES = (
    {"b": 2, "s": 5, "d": 12},
    {"b": 1, "s": 1, "d": 1},
    {"b": 0, "s": 3, "d": 4},
    {"b": 3, "s": 7, "d": 33},
)
IMAGES = (
    {"b": 2, "c": 6, "h": 5, "w": 3},
    {"b": 1, "c": 6, "h": 1, "w": 2},
    {"b": 0, "c": 6, "h": 2, "w": 2},
)


def softmax_cases() -> list[Case]:
    found: list[Case] = []
    for op, fn in (("softmax", functional.softmax), ("log_softmax", functional.log_softmax)):

        def oracle(x: torch.Tensor, axis: int, fn: Any = fn) -> torch.Tensor:
            return fn(x.double(), dim=axis).to(x.dtype)

        for axis in range(3):
            for fill, note in ((numbers, ""), (special, "special")):
                base = Case(
                    op,
                    (arg("f32", "b", "s", "d", fill=fill),),
                    oracle,
                    {"axis": axis},
                    SIZES,
                    4,
                    f"{axis}{note}",
                )
                found += with_types(base, *(FLOATS if axis == 2 else ("f32",)))
    empty = ({"b": 2, "s": 3, "d": 0},)
    x = (arg("f32", "b", "s", "d"),)
    found.append(
        Case(
            "softmax",
            x,
            lambda x, axis: functional.softmax(x, axis),
            {"axis": 2},
            empty,
            note="empty",
        )
    )
    return found


def layer_norm(
    x: Any, weight: Any = None, bias: Any = None, *, axes_from: int, eps: float
) -> torch.Tensor:
    return functional.layer_norm(x, x.shape[axes_from:], weight, bias, eps)


def rms_norm(x: Any, weight: Any = None, *, axes_from: int, eps: float) -> torch.Tensor:
    return functional.rms_norm(x, x.shape[axes_from:], weight, eps)


def layer_cases() -> list[Case]:
    found: list[Case] = []
    for axes_from, dims in ((2, ("d",)), (1, ("s", "d"))):
        attrs = {"axes_from": axes_from, "eps": 1e-5}
        x, w, b = arg("f32", "b", "s", "d"), arg("f32", *dims), arg("f32", *dims)
        for args, note in (((x,), ""), ((x, w), "w"), ((x, w, b), "wb"), ((x, None, b), "b")):
            base = Case(
                "layer_norm", args, in_f64(layer_norm), attrs, SIZES, 4, f"{axes_from}{note}"
            )
            found += with_types(base, *FLOATS)
        for args, note in (((x,), ""), ((x, w), "w")):
            base = Case("rms_norm", args, in_f64(rms_norm), attrs, SIZES, 4, f"{axes_from}{note}")
            found += with_types(base, *FLOATS)
    # A large mean: the variance must not cancel.
    far = arg("f32", "b", "s", "d", fill=lambda r, s, t, _: (r.normal(size=s) + 1e3).astype("f"))
    found.append(
        Case(
            "layer_norm",
            (far,),
            in_f64(layer_norm),
            {"axes_from": 2, "eps": 1e-5},
            SIZES,
            40,
            "far",
        )
    )
    return found


def batch_norm(x: Any, scale: Any, bias: Any, mean: Any, var: Any, *, eps: float) -> torch.Tensor:
    return functional.batch_norm(x, mean, var, scale, bias, eps=eps)


def group_norm(x: Any, w: Any = None, b: Any = None, *, groups: int, eps: float) -> torch.Tensor:
    if x.numel() == 0:
        return x
    shape = (x.shape[0], groups, -1)
    rows = x.reshape(shape)
    mean, var = rows.mean(2, keepdim=True), rows.var(2, keepdim=True, correction=0)
    result = ((rows - mean) / torch.sqrt(var + eps)).reshape(x.shape)
    along = (1, -1) + (1,) * (x.ndim - 2)
    result = result if w is None else result * w.reshape(along)
    return result if b is None else result + b.reshape(along)


def instance_norm(x: Any, w: Any = None, b: Any = None, *, eps: float) -> torch.Tensor:
    return group_norm(x, w, b, groups=x.shape[1], eps=eps)


def channel_cases() -> list[Case]:
    found: list[Case] = []
    x, v = arg("f32", "b", "c", "h", "w"), arg("f32", "c")
    var = arg("f32", "c", fill=positive)
    for args, note in (
        ((x, v, v, v, var), "wb"),
        ((x, None, None, v, var), ""),
        ((x, v, None, v, var), "w"),
    ):
        base = Case("batch_norm", args, in_f64(batch_norm), {"eps": 1e-5}, IMAGES, 8, note)
        found += with_types(base, *FLOATS)
    flat = arg("f32", "b", "c")
    found.append(
        Case(
            "batch_norm", (flat, v, v, v, var), in_f64(batch_norm), {"eps": 1e-3}, IMAGES, 8, "flat"
        )
    )
    for groups in (1, 2, 6):
        for args, note in (((x,), ""), ((x, v, v), "wb")):
            attrs = {"groups": groups, "eps": 1e-5}
            base = Case("group_norm", args, in_f64(group_norm), attrs, IMAGES, 8, f"{groups}{note}")
            found += with_types(base, *(FLOATS if groups == 2 else ("f32",)))
    for args, note in (((x,), ""), ((x, v, v), "wb")):
        base = Case("instance_norm", args, in_f64(instance_norm), {"eps": 1e-5}, IMAGES, 8, note)
        found += with_types(base, *FLOATS)
    return found


def lrn(x: np.ndarray, size: int, alpha: float, beta: float, bias: float) -> np.ndarray:
    """The formula of ONNX LRN, channel by channel."""
    total = np.zeros(x.shape)
    for c in range(x.shape[1]):
        low, high = max(0, c - (size - 1) // 2), min(x.shape[1], c + size // 2 + 1)
        total[:, c] = (x[:, low:high].astype(np.float64) ** 2).sum(1)
    return (x / (bias + alpha / size * total) ** beta).astype(x.dtype)


def lp_normalize(x: np.ndarray, axis: int, p: int) -> np.ndarray:
    wide = x.astype(np.float64)
    size = (np.abs(wide) ** p).sum(axis, keepdims=True) ** (1 / p)
    return np.divide(wide, size, out=np.zeros_like(wide), where=size != 0).astype(x.dtype)


def mvn(x: np.ndarray, axes: Sequence[int], eps: float) -> np.ndarray:
    wide = x.astype(np.float64)
    mean, std = wide.mean(tuple(axes), keepdims=True), wide.std(tuple(axes), keepdims=True)
    return ((wide - mean) / (std + eps)).astype(x.dtype)


def some_zeros(rng: Any, shape: Any, dtype: Any, _: Any) -> Any:
    values = rng.normal(size=shape)
    values[..., ::2] = 0
    return values.astype(dtype.numpy)


def other_cases() -> list[Case]:
    found: list[Case] = []
    x = arg("f32", "b", "c", "h", "w")
    for size in (1, 3, 4, 7, 33, 1 << 31):
        attrs: dict[str, Any] = {"size": size, "alpha": 0.3, "beta": 0.75, "bias": 1.5}
        found += with_types(
            Case("lrn", (x,), lrn, attrs, IMAGES, 4, str(size), numpy=True), "f32", "f16"
        )
    for p in (1, 2):
        for axis in (1, 2):
            args = (arg("f32", "b", "c", "h", fill=some_zeros),)
            base = Case(
                "lp_normalize",
                args,
                lp_normalize,
                {"axis": axis, "p": p},
                IMAGES,
                4,
                f"{p}{axis}",
                numpy=True,
            )
            found += with_types(base, "f32", "f16")
    for axes in ((0, 2, 3), (2, 3)):
        sizes = IMAGES[:2] if 0 in axes else IMAGES
        attrs = {"axes": axes, "eps": 1e-9}
        found.append(
            Case("mean_variance_normalize", (x,), mvn, attrs, sizes, 8, str(len(axes)), numpy=True)
        )
    return found


CASES = [*softmax_cases(), *layer_cases(), *channel_cases(), *other_cases()]

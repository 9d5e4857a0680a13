"""Convolutions and pooling against torch, and the ONNX reference where it is broader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from tests.ops.case import FLOATS, Case, arg, extremes, few, special, with_types
from tests.ops.data.matmul import in_f64

CONV = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
TRANSPOSE = {
    1: functional.conv_transpose1d,
    2: functional.conv_transpose2d,
    3: functional.conv_transpose3d,
}
NAMES = ("d", "h", "w")
SIZES = (
    {"b": 2, "d": 5, "h": 7, "w": 6},
    {"b": 1, "d": 3, "h": 3, "w": 3},
    {"b": 0, "d": 4, "h": 5, "w": 5},
    {"b": 1, "d": 8, "h": 11, "w": 4},
)


def torch_pad(x: torch.Tensor, pads: Any, value: float = 0.0) -> torch.Tensor:
    return functional.pad(x, [side for pair in reversed(list(pads)) for side in pair], value=value)


def conv(
    x: Any, w: Any, bias: Any = None, *, strides: Any, pads: Any, dilations: Any, groups: int
) -> torch.Tensor:
    return CONV[x.ndim - 2](torch_pad(x, pads), w, bias, strides, 0, dilations, groups)


def attributes(rank: int, stride: int, pads: Any, dilation: int, groups: int) -> dict[str, Any]:
    return {
        "strides": (stride,) * rank,
        "pads": tuple(pads[:rank]),
        "dilations": (dilation,) * rank,
        "groups": groups,
    }


NONE, ONE, SKEW = ((0, 0),) * 3, ((1, 1),) * 3, ((2, 0), (0, 1), (1, 2))


def conv_cases() -> list[Case]:
    found = []
    for rank in (1, 2, 3):
        spatial = NAMES[3 - rank :]
        choices = (
            (1, NONE, 1, 1),
            (2, ONE, 1, 1),
            (1, SKEW, 2, 2),
            (3, ONE, 1, 4),
            (2, SKEW, 1, 1),
        )
        for j, (stride, pads, dilation, groups) in enumerate(choices):
            kernel = (3, 2, 3)[:rank] if dilation == 1 else (2,) * rank
            sizes = SIZES if dilation == 1 or stride == 1 else SIZES[:1]
            x = arg("f32", "b", 4, *spatial)
            w = arg("f32", 8, 4 // groups, *kernel)
            bias = arg("f32", 8) if j % 2 else None
            attrs = attributes(rank, stride, pads, dilation, groups)
            base = Case("conv", (x, w, bias), in_f64(conv), attrs, sizes, 4, f"{rank}d{j}")
            found += with_types(base, *(FLOATS if rank == 2 and j in (1, 3) else ("f32",)))
    names = Case(
        "conv",
        (arg("f32", "b", "c", "h", "w"), arg("f32", "o", "c", 3, 3), arg("f32", "o")),
        in_f64(conv),
        attributes(2, 1, ONE, 1, 1),
        tuple(
            s | {"c": c, "o": o} for s, c, o in zip(SIZES, (3, 1, 2, 5), (4, 1, 3, 2), strict=True)
        ),
        4,
        "channels",
    )
    point = Case(
        "conv",
        (arg("f32", "b", 6, "h", "w"), arg("f32", 3, 6, 1, 1)),
        in_f64(conv),
        attributes(2, 1, NONE, 1, 1),
        SIZES,
        4,
        "pointwise",
    )
    return [*found, names, point]


def conv_transpose(
    x: Any,
    w: Any,
    bias: Any = None,
    *,
    strides: Any,
    pads: Any,
    output_padding: Any,
    dilations: Any,
    groups: int,
) -> torch.Tensor:
    """torch's without padding, cropped and extended by hand: its pads are symmetric."""
    full = TRANSPOSE[x.ndim - 2](x, w, None, strides, 0, 0, groups, dilations)
    full = torch_pad(
        full, [(-lo, extra - hi) for (lo, hi), extra in zip(pads, output_padding, strict=True)]
    )
    return full if bias is None else full + bias.reshape(1, -1, *(1,) * (x.ndim - 2))


def transpose_cases() -> list[Case]:
    found = []
    for rank in (1, 2, 3):
        spatial = NAMES[3 - rank :]
        choices = (
            (1, NONE, 1, 1, 0),
            (2, ONE, 1, 1, 1),
            (1, SKEW, 2, 2, 0),
            (3, ONE, 1, 2, 2),
            (2, NONE, 1, 1, 0),
        )
        for j, (stride, pads, dilation, groups, extra) in enumerate(choices):
            kernel = (3, 2, 4)[:rank]
            x = arg("f32", "b", 4, *spatial)
            w = arg("f32", 4, 6 // groups, *kernel)
            bias = arg("f32", 6) if j % 2 else None
            attrs = attributes(rank, stride, pads, dilation, groups) | {
                "output_padding": (extra,) * rank
            }
            base = Case(
                "conv_transpose",
                (x, w, bias),
                in_f64(conv_transpose),
                attrs,
                SIZES,
                4,
                f"{rank}d{j}",
            )
            found += with_types(base, *(FLOATS if rank == 2 and j == 1 else ("f32",)))
    return found


def conv_integer(x: Any, w: Any, x_zero: Any = None, w_zero: Any = None, **attrs: Any) -> Any:
    wide, kernel = x.double(), w.double()
    if x_zero is not None:
        wide = wide - x_zero.double()
    if w_zero is not None:
        kernel = kernel - w_zero.double().reshape(-1, *(1,) * (w.ndim - 1))
    return conv(wide, kernel, **attrs).round().to(torch.int32)


def integer_cases() -> list[Case]:
    x, w = arg("u8", "b", 4, "h", "w", fill=extremes), arg("i8", 6, 4, 3, 3, fill=extremes)
    zeros: tuple[tuple[Any, ...], ...] = (
        (),
        (arg("u8"),),
        (arg("u8"), arg("i8", 6)),
        (None, arg("i8")),
    )
    return [
        Case(
            "conv_integer",
            (x, w, *z),
            conv_integer,
            attributes(2, 2, ONE, 1, 1),
            SIZES,
            note=str(k),
        )
        for k, z in enumerate(zeros)
    ]


POOL_KERNELS: tuple[dict[str, Any], ...] = (
    {"kernel": (2, 2), "strides": (2, 2), "pads": ((0, 0), (0, 0)), "dilations": (1, 1)},
    {"kernel": (3, 3), "strides": (2, 1), "pads": ((1, 1), (1, 1)), "dilations": (1, 1)},
    {"kernel": (2, 3), "strides": (1, 2), "pads": ((1, 1), (0, 0)), "dilations": (2, 1)},
    {"kernel": (3, 2), "strides": (3, 3), "pads": ((1, 1), (1, 1)), "dilations": (1, 1)},
)


def max_pool(
    x: Any, kernel: Any, strides: Any, pads: Any, dilations: Any, ceil_mode: bool = False
) -> Any:
    return functional.max_pool2d(x, kernel, strides, [p[0] for p in pads], dilations, ceil_mode)


def max_pool_places(x: Any, **attrs: Any) -> Any:
    pads = [p[0] for p in attrs.pop("pads")]
    return functional.max_pool2d(x, **renamed(attrs), padding=pads, return_indices=True)[1]


def renamed(attrs: dict[str, Any]) -> dict[str, Any]:
    names = {"kernel": "kernel_size", "strides": "stride", "dilations": "dilation"}
    return {names.get(k, k): v for k, v in attrs.items()}


def avg_pool(
    x: Any,
    kernel: Any,
    strides: Any,
    pads: Any,
    dilations: Any,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    divisor: int | None = None,
) -> Any:
    pads = [p[0] for p in pads]
    return functional.avg_pool2d(x, kernel, strides, pads, ceil_mode, count_include_pad, divisor)


def window_oracle(
    x: np.ndarray,
    kernel: Any,
    strides: Any,
    pads: Any,
    dilations: Any = None,
    count_include_pad: bool = False,
    p: float | None = None,
    ceil_mode: bool = False,
) -> np.ndarray:
    """One spatial dim, window by window: asymmetric padding and dilation of means."""
    (k,), (s,), ((lo, hi),), (d,) = kernel, strides, pads, dilations or (1,)
    n = x.shape[2]
    columns = []
    room = n + lo + hi - d * (k - 1) - 1
    count = min(-(-room // s) + 1, -(-(n + lo) // s)) if ceil_mode else room // s + 1
    for o in range(count):
        at = [o * s + j * d - lo for j in range(k)]
        inside = [i for i in at if 0 <= i < n]
        values = x[:, :, inside].astype(np.float64)
        if p is None:
            columns.append(values.sum(2) / (k if count_include_pad else len(inside)))
        else:
            columns.append((np.abs(values) ** p).sum(2) ** (1 / p))
    return np.stack(columns, 2).astype(x.dtype)


def pool_cases() -> list[Case]:
    found: list[Case] = []
    sizes = (*SIZES[:2], SIZES[3], {"b": 1, "d": 1, "h": 8, "w": 9})
    for j, attrs in enumerate(POOL_KERNELS):
        for ceil in (False, True):
            more = attrs | {"ceil_mode": ceil}
            x = arg("f32", "b", 3, "h", "w", fill=special)
            base = Case("max_pool", (x,), max_pool, more, sizes, note=f"{j}{ceil:d}")
            found += with_types(base, *(FLOATS if j == 1 else ("f32",)))
            tied = arg("f32", "b", 3, "h", "w", fill=few)  # the first counts, of NaN the last
            found.append(
                Case("max_pool_places", (tied,), max_pool_places, more, sizes, note=f"{j}{ceil:d}")
            )
            if attrs["dilations"] != (1, 1):
                continue
            for pad in (False, True):
                more = attrs | {"ceil_mode": ceil, "count_include_pad": pad}
                more |= {"divisor": 5} if j == 1 and pad else {}
                x = arg("f32", "b", 3, "h", "w")
                base = Case(
                    "avg_pool", (x,), in_f64(avg_pool), more, sizes, 4, f"{j}{ceil:d}{pad:d}"
                )
                found += with_types(base, *(FLOATS if j == 1 else ("f32",)))
    ints = Case(
        "max_pool",
        (arg("i8", "b", 3, "h", "w", fill=extremes),),
        lambda x, **k: max_pool(x.double(), **k).to(x.dtype),
        POOL_KERNELS[1],
        sizes,
    )
    found += with_types(ints, "i8", "u8", "i32")
    x = arg("f32", "b", 3, "w")
    one: dict[str, Any] = {"kernel": (3,), "strides": (2,), "pads": ((2, 1),)}
    for d in (1, 2):
        for pad in (False, True):
            more = one | {"dilations": (d,), "count_include_pad": pad}
            found.append(
                Case("avg_pool", (x,), window_oracle, more, sizes, 4, f"skew{d}{pad:d}", numpy=True)
            )
    for p in (1, 2, 3):
        found.append(
            Case("lp_pool", (x,), window_oracle, one | {"p": p}, sizes, 8, str(p), numpy=True)
        )
        more = one | {"p": p, "dilations": (2,), "ceil_mode": True}
        found.append(Case("lp_pool", (x,), window_oracle, more, sizes, 8, f"ceil{p}", numpy=True))
    return found


ADAPTIVE = {
    1: functional.adaptive_avg_pool1d,
    2: functional.adaptive_avg_pool2d,
    3: functional.adaptive_avg_pool3d,
}


def adaptive(x: torch.Tensor, output_size: Sequence[int | None]) -> torch.Tensor:
    return ADAPTIVE[len(output_size)](x, tuple(output_size))


def adaptive_max(x: torch.Tensor, output_size: Sequence[int | None]) -> torch.Tensor:
    sizes = tuple(n if m is None else m for n, m in zip(x.shape[2:], output_size, strict=True))
    return functional.adaptive_max_pool2d(x, sizes)


def adaptive_at(x: torch.Tensor, output_size: Sequence[int | None]) -> torch.Tensor:
    sizes = tuple(n if m is None else m for n, m in zip(x.shape[2:], output_size, strict=True))
    return functional.adaptive_max_pool2d(x, sizes, return_indices=True)[1]


def adaptive_cases() -> list[Case]:
    found: list[Case] = []
    for size in ((1, 1), (2, 3), (7, 5), (None, 2), (13, 1)):
        x = arg("f32", "b", 3, "h", "w")
        base = Case(
            "adaptive_avg_pool", (x,), in_f64(adaptive), {"output_size": size}, SIZES, 4, str(size)
        )
        found += with_types(base, *(FLOATS if size == (2, 3) else ("f32",)))
        most = Case(
            "adaptive_max_pool", (x,), adaptive_max, {"output_size": size}, SIZES, 0, str(size)
        )
        found += with_types(most, *(FLOATS if size == (2, 3) else ("f32",)))
        tied = arg("f32", "b", 3, "h", "w", fill=few)
        found.append(replace(most, op="adaptive_max_pool_places", args=(tied,), oracle=adaptive_at))
    found.append(
        Case(
            "adaptive_avg_pool",
            (arg("f32", "b", 3, "h"),),
            in_f64(adaptive),
            {"output_size": (3,)},
            SIZES,
            4,
            "1d",
        )
    )
    found.append(
        Case(
            "adaptive_avg_pool",
            (arg("f32", "b", 3, "2*h", "w"),),
            in_f64(adaptive),
            lambda d: {"output_size": (d("h"), d("w"))},
            SIZES,
            4,
            "halves",
        )
    )
    return found


CASES = [
    *conv_cases(),
    *transpose_cases(),
    *integer_cases(),
    *pool_cases(),
    *adaptive_cases(),
]

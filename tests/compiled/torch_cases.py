"""Small torch functions with arguments for a size `n`, to compile once and run at many sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

Fn = Callable[..., Any]
SIZES = (0, 1, 2, 7, 15, 16, 17, 64)
POSITIVE = SIZES[1:]  # where torch refuses empty tensors
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
DTYPES = (*FLOATS, *INTS, torch.bool)


@dataclass(frozen=True)
class Case:
    """`fn(*make(n))`; dims that grow with n are symbolic, everything else is not."""

    name: str
    fn: Fn
    make: Callable[[int], tuple[torch.Tensor, ...]]
    sizes: tuple[int, ...] = SIZES
    tolerance: float = 2e-5


def tensor(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Random numbers of a type: floats are normal, integers use their whole range."""
    g = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=g).to(dtype)
    if dtype is torch.bool:
        return torch.randint(0, 2, shape, generator=g).bool()
    info = torch.iinfo(dtype)
    if dtype is torch.int64:
        return torch.randint(-(1 << 62), 1 << 62, shape, generator=g)
    return torch.randint(info.min, info.max, shape, generator=g, dtype=dtype)


def small(*shape: int, dtype: torch.dtype = torch.int64, low: int = -5, high: int = 6) -> Any:
    """Random integers in a small range."""
    g = torch.Generator().manual_seed(1)
    return torch.randint(0 if dtype is torch.uint8 else low, high, shape, generator=g).to(dtype)


def index(*shape: int, high: int, seed: int = 2) -> torch.Tensor:
    return torch.randint(0, max(high, 1), shape, generator=torch.Generator().manual_seed(seed))


def special(n: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Numbers with NaN, infinities, zeros and ties among them."""
    odd = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0, 1.0, -1.0, 0.5, 2.5, -2.5]
    x = torch.tensor(odd * (n // len(odd) + 1))[:n]
    return x.to(dtype)


def casts(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """To every type; what torch makes of negative floats as unsigned integers is undefined."""
    positive = x.abs() if x.dtype.is_floating_point else x
    return tuple((positive if t is torch.uint8 else x).to(t) for t in DTYPES)


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def elementwise() -> list[Case]:
    cases = []
    for d in DTYPES:
        cases.append(Case(
            f"arithmetic {short(d)}",
            (lambda x, y: (x & y, x | y, x ^ y, ~x, x == y, x < y, torch.where(x, x, y)))
            if d is torch.bool else
            (lambda x, y: (x + y, x - y, x * y, x * 3, torch.maximum(x, y), torch.minimum(x, y),
                           x < y, x == y, x >= y, x.abs(), -x, x.square(), torch.sign(x),
                           x.clamp(0, 5), torch.where(x < y, x, y))),
            lambda n, d=d: (tensor(n, 3, dtype=d), tensor(n, 3, dtype=d, seed=3)),
        ))  # fmt: skip
        cases.append(Case(
            f"casts {short(d)}", casts,
            lambda n, d=d: ((tensor(n, 3) * 5).to(d) if d.is_floating_point
                            else tensor(n, 3, dtype=d),),
        ))  # fmt: skip
        cases.append(Case(
            f"broadcast {short(d)}", lambda x, y, z: (x * y, x + z, torch.where(x > y, x, z)),
            lambda n, d=d: (tensor(2, n, 3, dtype=d), tensor(n, 1, dtype=d, seed=1),
                            tensor(1, 3, dtype=d, seed=2)),
            (0, 1, 7, 17),
        ))  # fmt: skip
    for d in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        cases.append(Case(
            f"functions {short(d)}",
            lambda x: (x.exp(), x.abs().log(), x.tanh(), x.sigmoid(), x.erf(), x.sin(), x.cos(),
                       x.abs().sqrt(), x.abs().rsqrt(), x.floor(), x.round(), x.trunc(),
                       x.reciprocal(), x.expm1(), F.gelu(x), F.silu(x)),
            lambda n, d=d: (tensor(n, 3, dtype=d) * 3,),
        ))  # fmt: skip
        cases.append(Case(
            f"special {short(d)}",
            lambda x: (x.amax(), x.amin(), x.argmax(), x.argmin(), torch.maximum(x, x.flip(0)),
                       torch.minimum(x, x.flip(0)), torch.fmax(x, x.flip(0)), x.isnan(), x.isinf(),
                       torch.relu(x), x.sign(), x.round(), x.clamp(-1, 1), x == x, x.bool()),
            lambda n, d=d: (special(n, d),), POSITIVE,
        ))  # fmt: skip
    for d in INTS:
        cases.append(Case(
            f"division {short(d)}",
            lambda x, y: (torch.div(x, y, rounding_mode="floor"), x % y, x // y,
                          torch.div(x, y, rounding_mode="trunc"), torch.fmod(x, y), x / y),
            lambda n, d=d: (small(n, 7, dtype=d, low=-100, high=100), small(1, 7, dtype=d) * 2 + 1),
        ))  # fmt: skip
        cases.append(Case(
            f"bits {short(d)}",
            lambda x, y: (x & y, x | y, x ^ y, ~x, x << 2, x >> 1, x.pow(3)),
            lambda n, d=d: (tensor(n, 3, dtype=d), tensor(n, 3, dtype=d, seed=9)),
        ))  # fmt: skip
    cases += [
        Case("division f32", lambda x, y: (x / y, torch.div(x, y, rounding_mode="floor"), x % y,
                                          torch.div(x, y, rounding_mode="trunc"), torch.fmod(x, y)),
             lambda n: (tensor(n, 3) * 9, tensor(n, 3, seed=4))),
        Case("pow", lambda x, y: (x.abs().pow(y), x.pow(2), x.pow(3), 2.0 ** x, x.abs() ** 0.5),
             lambda n: (tensor(n, 3), tensor(n, 3, seed=1))),
        Case("scalars", lambda x: (x + 1, 2 - x, x * x.shape[0], x / 3, x.mean() + x.sum()),
             lambda n: (tensor(n),), POSITIVE),
        Case("rank 0", lambda x, y: (x + y, x * y.sum(), (x * 2).exp()),
             lambda n: (tensor(), tensor(n))),
        Case("two sizes", lambda x, y: (x[:, None] * y[None, :], (x[:, None] < y).sum(0)),
             lambda n: (tensor(n), tensor(max(n - 1, 0) if n != 83 else 89))),
    ]  # fmt: skip
    return cases


AXES = ((0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2))


def reductions() -> list[Case]:
    def over(fn: Fn, axes: tuple[tuple[int, ...], ...] = AXES) -> Fn:
        return lambda x: tuple(fn(x, a, k) for a in axes for k in (False, True))

    def tall(n: int, d: torch.dtype = torch.float32) -> tuple[torch.Tensor, ...]:
        return (tensor(3, n, 5, dtype=d),)

    def wide(n: int, d: torch.dtype = torch.float32) -> tuple[torch.Tensor, ...]:
        return (tensor(2, 3, n, dtype=d),)

    cases = []
    for where, make in (("middle", tall), ("trailing", wide)):
        cases += [
            Case(f"sum {where}", over(lambda x, a, k: x.sum(a, k)), make),
            Case(f"mean {where}", over(lambda x, a, k: x.mean(a, k)), make),
            Case(f"amax {where}", over(lambda x, a, k: x.amax(a, k)), make, POSITIVE),
            Case(f"any {where}", over(lambda x, a, k: ((x > 1).any(a[0], k), (x < 1).all(a[0], k)),
                                      ((0,), (1,), (2,))), make),
            Case(f"arg {where}", over(lambda x, a, k: (x.argmax(a[0], k), x.argmin(a[0], k)),
                                      ((0,), (1,), (2,))), make, POSITIVE),
            Case(f"softmax {where}", lambda x: tuple(x.softmax(d) for d in range(3)), make),
            Case(f"log_softmax {where}", lambda x: tuple(x.log_softmax(d) for d in range(3)), make),
            Case(f"norms {where}", lambda x: (x.norm(dim=1), x.norm(1, dim=2), x.logsumexp(0)),
                 make, tolerance=1e-4),
            Case(f"prod {where}", lambda x: (x.prod(0), x.prod(1), x.prod(2), x.prod()), make,
                 tolerance=2e-4),
            Case(f"scan {where}", lambda x: (x.cumsum(0), x.cumsum(1), x.cumsum(2), x.cumprod(1),
                                             x.cummax(1)[0]), make, tolerance=1e-4),
        ]  # fmt: skip
        cases += [
            Case(f"sum {where} {short(d)}",
                 lambda x: (x.sum(0), x.sum(1), x.sum(2), x.sum(), x.amax(1), x.amin(0), x.argmax(1)),
                 lambda n, d=d, make=make: make(n, d), POSITIVE, 2e-3)
            for d in (*FLOATS[1:], *INTS)
        ]  # fmt: skip
    cases += [
        Case("sum bool", lambda x: (x.sum(), x.sum(0), x.sum(1), x.any(), x.all(0)),
             lambda n: (tensor(n, 3, dtype=torch.bool),)),
        Case("var", lambda x: (x.var(1), x.std(2, correction=0), x.var((0, 1))), lambda n: tall(n),
             (2, 7, 16, 17, 64)),
        Case("softmax half", lambda x: (x.softmax(-1), x.softmax(0), x.log_softmax(1)),
             lambda n: (tensor(3, n, dtype=torch.float16),)),
        Case("big rows", lambda x: (x.sum(1), x.softmax(1), x.argmax(1), x.amin(1)),
             lambda n: (tensor(2, n),), (1, 1000, 4097)),
        Case("masked softmax", lambda x: x.masked_fill(x < 0, float("-inf")).softmax(-1),
             lambda n: (tensor(3, n),), (2, 7, 16, 17, 64)),
    ]  # fmt: skip
    return cases


def normalisations() -> list[Case]:
    w = tensor(6, seed=5)
    return [
        Case("layer_norm", lambda x: (F.layer_norm(x, (6,), w, w), F.layer_norm(x, (4, 6))),
             lambda n: (tensor(n, 4, 6),)),
        Case("layer_norm half", lambda x: F.layer_norm(x, (6,)),
             lambda n: (tensor(n, 6, dtype=torch.float16),)),
        Case("rms_norm", lambda x: F.rms_norm(x, (6,), w, 1e-5), lambda n: (tensor(n, 6),)),
        Case("group_norm", lambda x: F.group_norm(x, 3, w, w), lambda n: (tensor(2, 6, n),),
             (2, 7, 15, 17)),
        Case("group_norm 2d", lambda x: F.group_norm(x, 2), lambda n: (tensor(n, 6, 3, 2),)),
        Case("batch_norm", lambda x: F.batch_norm(x, w, w.abs() + 1, w, w),
             lambda n: (tensor(n, 6, 5),)),
        Case("batch_norm of its own statistics",
             lambda x: (F.batch_norm(x, None, None, w, w, training=True),
                        F.batch_norm(x.transpose(0, 1), None, None, training=True, eps=0.1)),
             lambda n: (tensor(n, 6, 5),), (2, 7, 17)),
        Case("batch_norm of its own statistics, half",
             lambda x: F.batch_norm(x, None, None, training=True),
             lambda n: (tensor(n, 6, 5, dtype=torch.float16),), (2, 7, 17)),
        Case("instance_norm", lambda x: F.instance_norm(x), lambda n: (tensor(2, 6, n, 3),),
             (2, 7, 17)),
        Case("norm then product", lambda x: F.layer_norm(x, (6,)) @ w + x.softmax(-1) @ w,
             lambda n: (tensor(n, 6),)),
        Case("residual norm", lambda x, y: F.layer_norm(x + y.relu(), (6,)) + x,
             lambda n: (tensor(2, n, 6), tensor(2, n, 6, seed=2))),
    ]  # fmt: skip


def products() -> list[Case]:
    cases = []
    for d in (*FLOATS, torch.int32, torch.int64, torch.uint8):
        cases.append(Case(
            f"matmul {short(d)}",
            lambda x, y: (x @ y, x[0] @ y[0], x[0, 0] @ y[0], x @ y[0], x[0, 0] @ y[0, :, 0],
                          x @ y[0, :, 0], x[:, 0] @ y),
            lambda n, d=d: (small(2, n, 4, dtype=d), small(2, 4, 5, dtype=d)), POSITIVE,
        ))  # fmt: skip
        cases.append(Case(
            f"deep matmul {short(d)}", lambda x, y: (x @ y, y.mT @ x.mT),
            lambda n, d=d: (small(3, n, dtype=d), small(n, 5, dtype=d)),
        ))  # fmt: skip
    w, b = tensor(40, 37, seed=5), tensor(40)
    cases += [
        Case("linear", lambda x: (F.linear(x, w, b), F.linear(x, w).relu() + 1),
             lambda n: (tensor(n, 37),)),
        Case("linear batched", lambda x: F.gelu(F.linear(x, w, b)), lambda n: (tensor(2, n, 37),)),
        Case("linear half", lambda x: F.linear(x, w.half(), b.half()),
             lambda n: (tensor(n, 37, dtype=torch.float16),)),
        Case("columns", lambda x: w @ x, lambda n: (tensor(37, n),)),
        Case("both ways", lambda x, y: (x.mT @ y, x @ y.mT, (x @ y.mT).softmax(-1) @ y),
             lambda n: (tensor(2, n, 9), tensor(2, n, 9, seed=2)), tolerance=5e-5),
        Case("broadcast batch", lambda x, y: x @ y,
             lambda n: (tensor(3, 1, n, 4), tensor(2, 4, 5))),
        Case("einsum", lambda x, y: (torch.einsum("bik,bkj->bji", x, y),
                                     torch.einsum("bik,bkj->i", x, y)),
             lambda n: (tensor(2, n, 4), tensor(2, 4, 3)), tolerance=5e-5),
        Case("outer", lambda x, y: (torch.outer(x, y), torch.dot(x, x), x[:, None] @ y[None]),
             lambda n: (tensor(n), tensor(5))),
        Case("transposed operand", lambda x, y: x.transpose(1, 2) @ y.transpose(0, 1)[None],
             lambda n: (tensor(2, 4, n), tensor(5, 4))),
        Case("chain", lambda x: (x @ w.T).relu() @ w @ w.T + b, lambda n: (tensor(n, 37),),
             tolerance=1e-4),
        Case("addmm", lambda x, y: torch.addmm(b[:5], x, y, beta=0.5, alpha=2),
             lambda n: (tensor(n, 4), tensor(4, 5))),
    ]  # fmt: skip
    return cases


def convolutions() -> list[Case]:
    cases = []
    k6 = tensor(6)
    k6233 = tensor(6, 2, 3, 3)
    k8133 = tensor(8, 1, 3, 3)
    k6411 = tensor(6, 4, 1, 1)
    k643 = tensor(6, 4, 3)
    k413 = tensor(4, 1, 3)
    k32222 = tensor(3, 2, 2, 2, 2)
    k424 = tensor(4, 2, 4)
    k4322 = tensor(4, 3, 2, 2)
    image = (3, 7, 16, 17)
    w, b = tensor(6, 4, 3, 3, seed=5), k6
    for name, options in {
        "plain": {}, "padded": {"padding": 1}, "strided": {"stride": 2, "padding": 1},
        "dilated": {"dilation": 2, "padding": 2}, "odd": {"stride": (2, 1), "padding": (0, 2)},
    }.items():  # fmt: skip
        cases.append(Case(
            f"conv2d {name}", lambda x, o=options: F.conv2d(x, w, b, **o).relu(),
            lambda n: (tensor(2, 4, n, 9),), image, 5e-5,
        ))  # fmt: skip
    dw, gw = tensor(4, 1, 3, 3), k6233
    wide = tensor(24, 20, 3, 3, seed=5)
    t = tensor(4, 6, 3, 3)
    cases += [
        Case("conv2d batch", lambda x: F.conv2d(x, w, b), lambda n: (tensor(n, 4, 5, 6),),
             tolerance=5e-5),
        Case("conv2d depthwise", lambda x: F.conv2d(x, dw, padding=1, groups=4),
             lambda n: (tensor(2, 4, n, 9),), image, 5e-5),
        Case("conv2d multiplier", lambda x: F.conv2d(x, k8133, groups=4),
             lambda n: (tensor(2, 4, n, 9),), image, 5e-5),
        Case("conv2d grouped", lambda x: F.conv2d(x, gw, b, groups=2),
             lambda n: (tensor(2, 4, n, 9),), image, 5e-5),
        Case("conv2d wide", lambda x: F.conv2d(F.conv2d(x, wide, padding=1).relu(), wide[:, :, :1, :1].mT.reshape(20, 24, 1, 1)),
             lambda n: (tensor(1, 20, n, 5),), image, 1e-4),
        Case("conv2d 1x1", lambda x: F.conv2d(x, k6411, b, stride=2),
             lambda n: (tensor(2, 4, n, 5),), POSITIVE, 5e-5),
        Case("conv2d same", lambda x: F.conv2d(x, w, padding="same"),
             lambda n: (tensor(2, 4, n, 5),), image, 5e-5),
        Case("conv2d double", lambda x: F.conv2d(x, w.double(), padding=1),
             lambda n: (tensor(2, 4, n, 5, dtype=torch.float64),), image),
        Case("conv2d half", lambda x: F.conv2d(x, w.half(), padding=1),
             lambda n: (tensor(2, 4, n, 5, dtype=torch.float16),), image, 2e-3),
        Case("conv1d", lambda x: (F.conv1d(x, k643, b, 2, 1), F.conv1d(x, k643, dilation=2, padding=2)),
             lambda n: (tensor(2, 4, n),), image, 5e-5),
        Case("conv1d depthwise", lambda x: F.conv1d(x, k413, padding=1, groups=4),
             lambda n: (tensor(2, 4, n),), tolerance=5e-5, sizes=POSITIVE),
        Case("conv3d", lambda x: F.conv3d(x, k32222, stride=(1, 2, 1), padding=1),
             lambda n: (tensor(1, 2, n, 4, 5),), (2, 7, 16), 5e-5),
        Case("conv_transpose1d", lambda x: F.conv_transpose1d(x, k424, None, 2, 1),
             lambda n: (tensor(2, 4, n),), POSITIVE, 5e-5),
    ]  # fmt: skip
    for name, options in {
        "plain": {}, "strided": {"stride": 2, "padding": 1, "output_padding": 1},
        "dilated": {"dilation": 2}, "stride 3": {"stride": 3, "padding": (1, 0)},
    }.items():  # fmt: skip
        cases.append(Case(
            f"conv_transpose2d {name}", lambda x, o=options: F.conv_transpose2d(x, t, b, **o),
            lambda n: (tensor(2, 4, n, 5),), (1, 2, 7, 16), 5e-5,
        ))  # fmt: skip
    cases += [
        Case("conv_transpose2d grouped",
             lambda x: F.conv_transpose2d(x, k4322, stride=2, groups=2),
             lambda n: (tensor(2, 4, n, 5),), (1, 2, 7, 16), 5e-5),
        Case("conv_transpose2d 2x2", lambda x: F.conv_transpose2d(x, k4322, stride=2),
             lambda n: (tensor(2, 4, n, n),), (1, 2, 7, 16), 5e-5),
        Case("max_pool", lambda x: (F.max_pool2d(x, 2), F.max_pool2d(x, 3, 2, 1),
                                    F.max_pool2d(x, 3, 1, dilation=1)),
             lambda n: (tensor(2, 3, n, 9),), image),
        Case("max_pool ceil", lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True),
             lambda n: (tensor(2, 3, n, 8),), image),
        Case("avg_pool", lambda x: (F.avg_pool2d(x, 2), F.avg_pool2d(x, 3, 2, 1),
                                    F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)),
             lambda n: (tensor(2, 3, n, 9),), image),
        Case("pool1d", lambda x: (F.max_pool2d(x[:, :, None], (1, 2)), F.avg_pool1d(x, 3, 2, 1)),
             lambda n: (tensor(2, 3, n),), image),
        Case("pool3d", lambda x: (F.max_pool3d(x, 2), F.avg_pool3d(x, 2)),
             lambda n: (tensor(1, 2, n, 4, 5),), (2, 7, 16)),
        Case("adaptive", lambda x: (F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, (2, 3)),
                                    F.adaptive_max_pool2d(x, 1)),
             lambda n: (tensor(2, 3, n, 6),), image),
        Case("pool of channels", lambda x: F.max_pool2d(F.conv2d(x, w, padding=1).relu(), 2),
             lambda n: (tensor(2, 4, n, 8),), image, 5e-5),
    ]  # fmt: skip
    return cases


def views() -> list[Case]:
    return [
        Case("cat", lambda x, y: (torch.cat([x, y]), torch.cat([x, x, y], 0), torch.stack([x, x], 1),
                                  torch.cat([x, x * 2], 1)),
             lambda n: (tensor(n, 3), tensor(2, 3))),
        Case("cat last", lambda x, y: (torch.cat([x, y], -1), torch.cat([x, y], 1).sum(1)),
             lambda n: (tensor(3, n), tensor(3, 2))),
        Case("split", lambda x: (*x.split(2, 1), *x.split([1, 4], 1), *x.chunk(2, 1)),
             lambda n: (tensor(n, 5),)),
        Case("slice", lambda x: (x[1:], x[:-1], x[::2], x[:, 1:3], x[-3:], x[:, ::2], x[2:5]),
             lambda n: (tensor(n, 4),), (7, 15, 16, 17, 64)),
        Case("slice empty", lambda x: (x[:2], x[:, 3:], x[:, :0]), lambda n: (tensor(n, 4),),
             (2, 7, 64)),
        Case("pad", lambda x: (F.pad(x, (1, 2)), F.pad(x, (0, 0, 2, 1), value=3.0),
                               F.pad(x, (-1, 1))), lambda n: (tensor(n, 4),)),
        Case("pad modes", lambda x: (F.pad(x, (1, 1), mode="reflect"),
                                     F.pad(x, (2, 1), mode="replicate"),
                                     F.pad(x, (1, 1), mode="circular")),
             lambda n: (tensor(2, 3, n),), (2, 7, 16, 17)),
        Case("expand", lambda x: (x[:, None].expand(-1, 3, -1) + 1, x.expand(2, -1, -1).contiguous(),
                                  x[:, :1].expand(-1, 4) * x), lambda n: (tensor(n, 4),)),
        Case("flip", lambda x: (x.flip(0), x.flip(1), x.flip((0, 1)), x.roll(1, 0), x.roll(-2, 1)), lambda n: (tensor(n, 4),), POSITIVE),
        Case("transpose", lambda x: (x.transpose(0, 2).contiguous(), x.permute(2, 0, 1) + 1,
                                     x.mT.contiguous() * x.mT), lambda n: (tensor(3, n, 5),)),
        Case("big transpose", lambda x: (x.T.contiguous(), x.T + 1), lambda n: (tensor(n, 37),)),
        Case("reshape", lambda x: (x.reshape(-1, 2) + 1, x.flatten(), x.reshape(-1),
                                   x.reshape(x.shape[0], -1), x.transpose(0, 1).reshape(6, -1)),
             lambda n: (tensor(n, 6),), POSITIVE),
        Case("heads", lambda x: x.reshape(2, -1, 3, 4).transpose(1, 2).reshape(6, -1, 4),
             lambda n: (tensor(2, n, 12),), POSITIVE),
        Case("repeat", lambda x: (x.repeat(2, 1), x.repeat_interleave(2, 1), x.tile(3),
                                  x.unfold(1, 2, 1)), lambda n: (tensor(n, 4),)),
        Case("triangle", lambda x: (x.tril(), x.triu(1), x.tril(-1), x.diagonal()),
             lambda n: (tensor(n, n),)),
        Case("identity", lambda x: x, lambda n: (tensor(n, 3),)),
        Case("same twice", lambda x: (x, x, x + 1), lambda n: (tensor(n, 3),)),
        Case("constant", lambda x: (torch.ones(2), x, torch.arange(3)), lambda n: (tensor(n),)),
        Case("created", lambda x: (torch.arange(x.shape[0]), torch.zeros(x.shape[0], 2),
                                   torch.eye(x.shape[0]), torch.full_like(x, 2)),
             lambda n: (tensor(n),)),
        Case("pixels", lambda x: (F.pixel_shuffle(x, 2), F.channel_shuffle(x, 2)),
             lambda n: (tensor(2, 8, n, 3),), POSITIVE),
        Case("in place", in_place, lambda n: (tensor(n, 3),)),
    ]  # fmt: skip


def in_place(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.relu_().add_(1)
    z = torch.zeros(x.shape[0], 4)
    z[:, 1:3] = y[:, :2]
    z[:, 0] = 5
    return y + z.sum(1, keepdim=True)


def indexing() -> list[Case]:
    table = tensor(11, 5, seed=4)
    return [
        Case("embedding", lambda i: (F.embedding(i, table), table[i]),
             lambda n: (index(2, n, high=11),)),
        Case("index_select", lambda x, i: (x.index_select(0, i), x[:, i % 3], x[i], x[-i]),
             lambda n: (tensor(n, 3), index(n, high=n)), POSITIVE),
        Case("gather_by_itself", lambda x: x.gather(0, (x > 0).long() % x.shape[0]),
             lambda n: (tensor(n, 89),), sizes=POSITIVE),
        Case("gather", lambda x, i: (x.gather(1, i), x.gather(0, i * 0)),
             lambda n: (tensor(n, 4), index(n, 2, high=4)), POSITIVE),
        Case("advanced", lambda x, i: (x[i, i % 3], x[i[:, None], torch.arange(3)]),
             lambda n: (tensor(n, 3), index(n, high=n)), POSITIVE),
        Case("scatter", lambda x, i: (x.scatter(1, i, 9.0), x.scatter_add(1, i, x[:, :2]),
                                      x.scatter_reduce(1, i, x[:, :2], "amax")),
             lambda n: (tensor(n, 4), index(n, 2, high=4))),
        Case("index_add", lambda x, i: (x.index_add(0, i, x), torch.index_put(x, (i,), x[:1] * 2)),
             lambda n: (tensor(n, 3), index(n, high=n)), POSITIVE),
        Case("masked", lambda x: (x.masked_fill(x > 0, 7), torch.where(x > 0, x.log(), x)),
             lambda n: (tensor(n, 3),)),
        Case("sort", lambda x: (*x.sort(1), *x.sort(0, descending=True), x.argsort(1)),
             lambda n: (tensor(n, 5),)),
        Case("sort ties", lambda x: (*x.sort(dim=0, stable=True),
                                     x.sort(dim=0, descending=True, stable=True)[0]),
             lambda n: (special(n),), (1, 7, 17, 64)),
        Case("topk", lambda x: (*x.topk(2, 1), *x.topk(1, 1, False), *x.topk(3, 0)),
             lambda n: (tensor(n, 5),), (7, 16, 17, 64)),
        Case("topk deep", lambda x: tuple(x.topk(3)), lambda n: (tensor(2, n),), (7, 16, 17, 64)),
        Case("one_hot", lambda i: F.one_hot(i, 4), lambda n: (index(n, high=4),)),
        Case("bucketize", lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])),
             lambda n: (tensor(n),)),
    ]  # fmt: skip


def resizes() -> list[Case]:
    def both(**options: Any) -> Fn:
        return lambda x: (F.interpolate(x, scale_factor=2, **options),
                          F.interpolate(x, size=(7, 5), **options))  # fmt: skip

    def make(n: int) -> tuple[torch.Tensor, ...]:
        return (tensor(1, 3, n, 6),)

    sizes = (1, 2, 7, 16)
    return [
        Case("nearest", both(mode="nearest"), make, sizes),
        Case("nearest-exact", both(mode="nearest-exact"), make, sizes),
        Case("bilinear", both(mode="bilinear"), make, sizes),
        Case("align_corners", both(mode="bilinear", align_corners=True), make, sizes),
        Case("bicubic", both(mode="bicubic"), make, sizes, 5e-5),
        Case("linear resize", lambda x: F.interpolate(x, scale_factor=1.5, mode="linear"),
             lambda n: (tensor(2, 3, n),), (2, 4, 16)),
        Case("grid_sample", lambda x, g: F.grid_sample(x, g, align_corners=False),
             lambda n: (tensor(1, 2, 5, 6), tensor(1, n, 4, 2)), POSITIVE, 5e-5),
    ]  # fmt: skip


def attentions() -> list[Case]:
    attend = F.scaled_dot_product_attention

    def qkv(n: int, heads: int = 4) -> tuple[torch.Tensor, ...]:
        return tensor(2, 4, n, 8), tensor(2, heads, n, 8, seed=1), tensor(2, heads, n, 8, seed=2)

    return [
        Case("attention", lambda q, k, v: attend(q, k, v), qkv, POSITIVE, 5e-5),
        Case("causal", lambda q, k, v: attend(q, k, v, is_causal=True, scale=0.3), qkv, POSITIVE,
             5e-5),
        Case("cross", lambda q, k: attend(q, k, k), lambda n: (tensor(2, 4, 3, 8), tensor(2, 4, n, 8)),
             POSITIVE, 5e-5),
        Case("float mask", lambda q, k, v, m: attend(q, k, v, m),
             lambda n: (*qkv(n), tensor(2, 1, n, n)), POSITIVE, 5e-5),
        Case("bool mask", lambda q, k, v, m: attend(q, k, v, m),
             lambda n: (*qkv(n), tensor(n, n) > -0.5), (7, 16, 17), 5e-5),
        Case("gqa", lambda q, k, v: attend(q, k, v, enable_gqa=True), lambda n: qkv(n, 2), POSITIVE,
             5e-5),
        Case("attention half", lambda q, k, v: attend(q, k, v),
             lambda n: tuple(t.half() for t in qkv(n)), POSITIVE, 4e-3),
    ]  # fmt: skip


def scattered(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Every reduction, with and without what was there before."""
    at = (x * 3).long().abs() % 6
    kinds = ("sum", "prod", "mean", "amax", "amin")
    both = [(k, include) for k in kinds for include in (True, False)]
    return tuple(x.scatter_reduce(1, at, x * 2, k, include_self=i) for k, i in both)


def bags(i: torch.Tensor, table: torch.Tensor) -> tuple[torch.Tensor, ...]:
    rows = tuple(F.embedding_bag(i, table, mode=m) for m in ("sum", "mean", "max"))
    starts = torch.tensor([0, 1, 1])
    return (*rows, F.embedding_bag(i.flatten(), table, starts, mode="sum"))


def late() -> list[Case]:
    """Operators written with others, by rules of ours or by torch's decompositions."""
    return [
        Case("scatter_reduce", scattered, lambda n: (tensor(n, 6),), tolerance=1e-4),
        Case("masked_scatter", lambda x, y: (x.masked_scatter(x > 0, y),
                                             x.masked_scatter((x > 0)[:, :1], y)),
             lambda n: (tensor(n, 6), tensor(n, 6, seed=1))),
        Case("embedding_bag", bags, lambda n: (index(n, 3, high=6), tensor(6, 2)), POSITIVE),
        Case("distances", lambda x: (torch.cdist(x, x + 1), torch.cdist(x, x + 1, p=1.0),
                                     F.pairwise_distance(x, x.flip(1))),
             lambda n: (tensor(n, 6),), POSITIVE, 1e-4),
        Case("order statistics", lambda x: (x.median(), *x.median(1), *x.kthvalue(2, 1)),
             lambda n: (tensor(n, 5),), POSITIVE),
        Case("median of NaN", lambda x: (x.median(0).values, x.median()), lambda n: (special(n),),
             POSITIVE),
        Case("searchsorted", lambda x: (
                torch.searchsorted(torch.arange(5.0), x), torch.searchsorted(x.sort(1)[0], x * 0.5),
                torch.searchsorted(torch.arange(5.0), x, right=True)),
             lambda n: (tensor(n, 6),)),
        Case("signs", lambda x: (torch.signbit(x), torch.copysign(torch.ones(1), x), torch.erfc(x),
                                 torch.round(x, decimals=1)),
             lambda n: (torch.where(special(n).isnan(), torch.ones(n), special(n)),)),
        Case("adaptive maximum", lambda x: (F.adaptive_max_pool2d(x, (2, 3)),
                                            F.adaptive_max_pool1d(x[:, 0], 4),
                                            F.avg_pool2d(x, 2, 1, 1, divisor_override=3)),
             lambda n: (tensor(2, 3, n, 5),), POSITIVE),
        Case("splits of their own", lambda x: (*torch.hsplit(x, 2), *torch.vsplit(x, 1)),
             lambda n: (tensor(n, 6),)),
        Case("one of a size", lambda x: (x - x[:, :1], x * x[:1], x[:1] + x[:, :1]),
             lambda n: (tensor(n, 5),)),
        Case("decomposed", lambda x: (torch.rot90(x), F.huber_loss(x, x.flip(1)), torch.trace(x),
                                      torch.special.entr(x.abs()), torch.logaddexp(x, x * 2),
                                      F.fold(F.unfold(x[None, None], 2, stride=1), x.shape, 2)),
             lambda n: (tensor(n, 5),), (2, 7, 17)),
    ]  # fmt: skip


CASES = [
    *elementwise(), *reductions(), *normalisations(), *products(), *convolutions(), *views(),
    *indexing(), *resizes(), *attentions(), *late(),
]  # fmt: skip

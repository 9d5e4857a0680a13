"""Operators of quantised graphs, as `convert_pt2e` writes them: as torch's own definitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.ao.quantization.fx import _decomposed  # noqa: F401  (it defines the operators)

import pliant
from tests.compiled.torch_run import Apply
from tests.frontend.torch.running import assert_same

Q = torch.ops.quantized_decomposed
I8 = (-128, 127, torch.int8)


def data(*shape: int) -> torch.Tensor:
    torch.manual_seed(0)
    x = torch.randn(*shape) * 3
    x.flatten()[:4] = torch.tensor([0.075, -0.075, 100.0, -90.0])  # ties, and what saturates
    return x


def there_and_back(x: Any, *qparams: Any) -> Any:
    return Q.dequantize_per_tensor(Q.quantize_per_tensor(x, *qparams), *qparams)


def along(x: Any, scale: Any, zero: Any, axis: int) -> Any:
    y = Q.quantize_per_channel(x, scale, zero, axis, *I8)
    return Q.dequantize_per_channel(y, scale, zero, axis, *I8)


def dynamic(x: Any, w: Any, scale: Any) -> Any:
    chosen = Q.choose_qparams(x, -128, 127, 1e-5, torch.int8)
    wide = Q.dequantize_per_channel(w, scale, None, 0, *I8)
    return torch.nn.functional.linear(there_and_back(x, *chosen, *I8), wide)


SCALES = torch.tensor([0.05, 0.1, 0.02, 0.3, 0.07, 0.011])
ZEROS = torch.tensor([0, 3, -5, 7, 0, 127])
W = torch.arange(-96, 96).reshape(6, 32).to(torch.int8)
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "i8": (lambda x: there_and_back(x, 0.05, 3, *I8), ()),
    "u8": (lambda x: there_and_back(x, 0.05, 128, 0, 255, torch.uint8), ()),
    "i16": (lambda x: Q.quantize_per_tensor(x, 5e-4, 5, -32768, 32767, torch.int16), ()),
    "four bits": (lambda x: Q.quantize_per_tensor(x, 0.05, 0, -8, 7, torch.int8), ()),
    "tensors": (lambda x, s, z: there_and_back(x, s, z, *I8), (torch.tensor(0.03), ZEROS[1])),
    "bounds": (
        lambda x, s, z, a, b: Q.quantize_per_tensor(x, s, z, a, b, torch.int8),
        (SCALES[:1], ZEROS[1:2], torch.tensor(-8), torch.tensor(7)),
    ),
    "axis": (lambda x, s, z: along(x, s, z, 1), (SCALES, ZEROS)),
    "last axis": (lambda x, s, z: along(x[:, None], s, z, -1), (SCALES, ZEROS)),
    "zeros that are fractions": (
        lambda x, w, s: x.sum() * 0 + Q.dequantize_per_channel(w, s, s * 5, 0, *I8), (W, SCALES),
    ),
    "a zero outside of the type": (
        lambda x: x.sum() * 0 + Q.dequantize_per_tensor(W, 0.1, 200, *I8), (),
    ),
    "range": (lambda x: Q.choose_qparams(x, -128, 127, 1e-5, torch.int8), ()),
    "middle": (lambda x: Q.choose_qparams_symmetric(x, 0, 255, 1e-5, torch.uint8), ()),
    "of tokens": (lambda x: Q.choose_qparams_per_token_asymmetric(x, torch.int8), ()),
    "tokens": (
        lambda x, z: Q.quantize_per_token(x, x.abs().amax(1, True) / 127, z.expand(len(x), 1), *I8),
        (ZEROS[1:2],),
    ),
    "fake": (lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -128, 127), ()),
}  # fmt: skip


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", CASES)
def test_same_as_torch(name: str) -> None:
    fn, more = CASES[name]
    symbolic = name != "fake"  # torch.export has no shapes of it
    shapes = (({0: "n"}, *({} for _ in more)),) if symbolic else None
    f = pliant.compile(Apply(fn), (data(4, 6), *more), dynamic_shapes=shapes)
    for n in (1, 4, 17) if symbolic else (4,):
        x = data(n, 6)
        assert_same(f(x, *more), fn(x, *more))


def test_groups_of_a_weight() -> None:
    def fn(x: Any, w: Any, s: Any) -> Any:
        z = torch.zeros(6, 2, dtype=torch.int32)
        wide = Q.dequantize_per_channel_group(w, s, z, -8, 7, torch.int8, 16, torch.float32)
        return torch.nn.functional.linear(x, wide)

    args = (torch.randn(3, 32), W, torch.rand(6, 2))
    f = pliant.compile(Apply(fn), args, dynamic_shapes=(({0: "n"}, {}, {}),))
    assert_same(f(*args), fn(*args), tolerance=1e-5)


def test_a_dynamically_quantised_layer() -> None:
    args = (data(5, 32), W, SCALES)
    f = pliant.compile(Apply(dynamic), args, dynamic_shapes=(({0: "n"}, {}, {}),))
    assert_same(f(*args), dynamic(*args), tolerance=1e-5)

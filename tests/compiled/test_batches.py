"""Batches that a product takes as one dimension: the operators that torch writes attention with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import pliant

Tensors = tuple[torch.Tensor, ...]


def plain(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return torch.softmax(q @ k.mT * 0.3, -1) @ v


def masked(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def grouped(q: Any, k: Any, v: Any, mask: Any) -> Any:
    k, v = (x[:, :2].repeat_interleave(2, 1) for x in (k, v))
    return torch.softmax((q @ k.mT).masked_fill(~mask, -1e4), -1) @ v


def merged(q: Any, k: Any, v: Any, mask: Any) -> Any:
    """Scores are by sample and head where the mask is added, by both in one elsewhere."""
    b, h, s, _ = q.shape
    q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    scores = torch.bmm(q, k.mT).view(b, h, s, k.shape[1])
    bias = torch.zeros(mask.shape).masked_fill(~mask, -1e4)
    weights = torch.softmax((scores + bias).flatten(0, 1), -1)
    return torch.bmm(weights, v).view(b, h, s, v.shape[-1]).transpose(1, 2).flatten(2)


class Attend(nn.Module):
    def __init__(self, how: Callable[..., Any]) -> None:
        super().__init__()
        self.how = how

    def forward(self, q: Any, k: Any, v: Any, mask: Any) -> Any:
        return self.how(q, k, v, mask)


def tensors(b: int, s: int, t: int) -> Tensors:
    mask = torch.rand(b, 1, s, t) > 0.3
    if mask.numel():
        mask[-1, :, s // 2] = False  # a row without any key
    parts = (torch.randn(b, 4, n, d) for n, d in ((s, 16), (t, 16), (t, 8)))
    return (*parts, mask)


SIZES = ((2, 40, 50), (1, 1, 33), (3, 37, 64), (2, 0, 5), (0, 3, 4), (1, 5, 1))


def projected(q: Any, k: Any, v: Any, mask: Any) -> Any:
    """Keys and values are parts of rows that have no sample of their own."""
    heads = q.shape[1]
    k = (k.transpose(1, 2).flatten(0, 1).flatten(1) + 1).unflatten(0, (q.shape[0], k.shape[2]))
    v = (v.transpose(1, 2).flatten(0, 1).flatten(1) * 2).unflatten(0, (q.shape[0], v.shape[2]))
    k, v = (x.unflatten(2, (heads, -1)).transpose(1, 2) for x in (k, v))
    return F.scaled_dot_product_attention(q * 2, k, v, attn_mask=mask).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize("how", [plain, masked, merged, projected])
def test_one_sample_or_one_head(how: Callable[..., Any], samples: int, heads: int) -> None:
    torch.manual_seed(0)
    model = Attend(how)
    given = tuple(x[:, :heads] for x in tensors(samples, 40, 50))
    f = pliant.compile(torch.export.export(model, given).run_decompositions())
    text = f.explain()
    assert text.count("[attention") == 1
    assert "[contraction" not in text
    torch.testing.assert_close(f(*given), model(*given), rtol=2e-5, atol=2e-5)


def test_windows_with_masks_of_their_own() -> None:
    """Two maps by sample and window lie between products that have both in one."""

    class Windows(nn.Module):
        def forward(self, x: Any, mask: Any) -> Any:
            q, k, v = x.unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
            scores = q @ k.mT
            n = mask.shape[0]
            scores = scores.unflatten(0, (-1, n)) + mask[:, None]
            scores = (scores + mask[:, None]).flatten(0, 1)
            return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)

    torch.manual_seed(0)
    given = torch.randn(10, 49, 96), torch.randn(5, 49, 49)
    f = pliant.compile(Windows(), given)
    assert f.explain().count("[attention") == 1
    torch.testing.assert_close(f(*given), Windows()(*given), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("how", [plain, masked, grouped, merged])
@pytest.mark.parametrize("symbolic", [False, True])
def test_core_operators_are_one_kernel(how: Callable[..., Any], symbolic: bool) -> None:
    torch.manual_seed(0)
    model = Attend(how)
    example = tensors(*SIZES[0])
    b, s, t = torch.export.Dim("b"), torch.export.Dim("s"), torch.export.Dim("t")
    dims = ({0: b, 2: s}, {0: b, 2: t}, {0: b, 2: t}, {0: b, 2: s, 3: t})
    program = torch.export.export(model, example, dynamic_shapes=(dims if symbolic else None))
    f = pliant.compile(program.run_decompositions())
    text = f.explain()
    assert text.count("[attention") == 1
    assert "[contraction" not in text
    for sizes in SIZES if symbolic else SIZES[:1]:
        given = tensors(*sizes)
        found, want = f(*given), model(*given)
        torch.testing.assert_close(found, want, rtol=2e-5, atol=2e-5, equal_nan=True)


def test_a_batch_that_is_read_whole_too() -> None:
    """One factor has both dimensions, the other has them in one."""

    class Model(nn.Module):
        def forward(self, x: Any, w: Any) -> Any:
            y = torch.bmm(x.flatten(0, 1), w)
            return y.softmax(-1), torch.bmm(y, w.mT).view(x.shape)

    torch.manual_seed(0)
    args = torch.randn(3, 5, 7, 6), torch.randn(15, 6, 9)
    for dims in (None, ({0: "a", 2: "n"}, {2: "k"})):
        model = Model()
        if dims is not None:
            dims = ({2: "n"}, {2: "k"})
        f = pliant.compile(model, args, dynamic_shapes=dims)
        for found, want in zip(f(*args), model(*args), strict=True):
            torch.testing.assert_close(found, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("shape", [(5, 1), (37, 29), (3, 1000), (1, 64), (0, 5), (5, 0)])
def test_any_and_all_of_rows(shape: tuple[int, int]) -> None:
    def model(x: Any) -> Any:
        return (x > 2.0).any(-1), (x > -2.0).all(-1), x.softmax(-1) * (x != 0).any(-1, True)

    torch.manual_seed(0)
    x = torch.randn(shape).round()
    if x.numel():
        x[0] = torch.nan
    f = pliant.compile(model, (torch.randn(3, 4),), dynamic_shapes=({0: "n", 1: "m"},))
    assert "[reduction" not in f.explain()
    for found, want in zip(f(x), model(x), strict=True):
        torch.testing.assert_close(found, want, rtol=1e-6, atol=1e-6, equal_nan=True)

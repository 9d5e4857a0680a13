"""flex_attention: scores are changed, and kept or not, by functions of the model's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import pliant


class Flex(nn.Module):
    """A bias for each head, learned; a window, by a block mask."""

    def __init__(self, heads: int, window: int | None) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.randn(heads))
        self.window = window

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            return torch.tanh(s) * 3 + self.slope[h] * (i - j)

        def seen(b: Any, h: Any, i: Any, j: Any) -> Any:
            return (i >= j) & (i - j < self.window) & (i % 7 != 3)  # some rows see nothing

        blocks = None
        if self.window:
            blocks = create_block_mask(seen, None, None, q.shape[2], k.shape[2], device="cpu")
        return flex_attention(
            q, k, v, score_mod=score, block_mask=blocks, enable_gqa=q.shape[1] != k.shape[1]
        )


def tensors(b: int, heads: int, s: int) -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(b, h, s, 8) for h in (4, heads, heads))


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("heads", [4, 2])
@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("symbolic", [False, True])
def test_functions_of_scores(heads: int, window: int | None, symbolic: bool) -> None:
    torch.manual_seed(0)
    model = Flex(4, window).eval()
    dims = tuple({0: "b", 2: "s"} for _ in range(3)) if symbolic else None
    f = pliant.compile(model, tensors(2, heads, 40), dynamic_shapes=dims)
    text = f.explain()
    assert text.count("[attention") == 1
    assert "[contraction" not in text
    for b, s in ((2, 40), (1, 3), (3, 65)) if symbolic else ((2, 40),):
        given = tensors(b, heads, s)
        with torch.no_grad():
            want = model(*given)
        torch.testing.assert_close(f(*given), want, rtol=2e-5, atol=2e-5)


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")
def test_an_exported_program_in_core_operators() -> None:
    torch.manual_seed(0)
    model = Flex(4, 5).eval()
    given = tensors(2, 4, 40)
    f = pliant.compile(torch.export.export(model, given).run_decompositions())
    with torch.no_grad():
        torch.testing.assert_close(f(*given), model(*given), rtol=2e-5, atol=2e-5)

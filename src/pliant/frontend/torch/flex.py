"""`torch.nn.attention.flex_attention` in operators: a model's own functions of a score and of its
place, over all scores at once.

    score: (s, b, h, i, j) -> s + bias[h] * (i - j)      mask: (b, h, i, j) -> i >= j
 ->
    s = q @ k.mT * scale;  s = s + bias[h] * (i - j);  s = masked_fill(s, not (i >= j), -inf)
    softmax(s) @ v, logsumexp(s), max(s)

Which blocks of keys a block mask keeps follows from its function of places, which says all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

_PLACES: Final = 4  # batch, head, query, key


def attention_graph(
    node: Node, score: GraphModule, mask: GraphModule
) -> tuple[GraphModule, list[Any]]:
    """A graph of operators for a node of flex_attention with these functions, and the node's
    operands that it takes."""
    q, k, v, _, _, scale, _, of_score, of_mask = node.args
    operands = [q, k, v, *of_score, *of_mask]  # type: ignore[misc]
    many = len(of_score)  # type: ignore[arg-type]

    def attended(q: Any, k: Any, v: Any, *captured: Any) -> tuple[Any, Any, Any]:
        return _attended(
            q, k, v, scale, lambda *x: score(*x, *captured[:many]),
            lambda *x: mask(*x, *captured[many:]),
        )  # fmt: skip

    values = [x.meta["val"] if isinstance(x, Node) else x for x in operands]
    with values[0].fake_mode:
        return make_fx(attended)(*values), operands


def _attended(
    q: Any, k: Any, v: Any, scale: Any, score: Callable[..., Any], mask: Callable[..., Any]
) -> tuple[Any, Any, Any]:
    """What flex_attention returns; logarithms are to base 2. A row without keys gives zeros."""
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    groups = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(groups, 1) if groups != 1 else x for x in (k, v))
    scores = q.to(wide) @ k.to(wide).mT * scale
    places = [torch.arange(n, device=q.device) for n in scores.shape]
    scores = _everywhere(score, 1)(scores, *places)
    scores = scores.to(wide).masked_fill(~_everywhere(mask, 0)(*places), -math.inf)
    found = torch._safe_softmax(scores, -1).to(q.dtype) @ v.to(q.dtype)
    return found, scores.logsumexp(-1) / math.log(2), scores.amax(-1) / math.log(2)


def _everywhere(function: Callable[..., Any], others: int) -> Callable[..., Any]:
    """The function of scalars, of `others` and then of places, over all of them."""
    for k in reversed(range(_PLACES)):
        along = [0 if k == place else None for place in range(_PLACES)]
        function = torch.vmap(function, in_dims=(*[0] * others, *along))
    return function

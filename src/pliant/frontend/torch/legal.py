"""What torch touches unchecked is checked where a model runs on an example that was resized.

indices of 9, offsets [0, 2, 5]     no offsets left: torch would read one, and the process end
places of maxima in 9 x 12          of 2 x 2 there are but four: a gradient would be added elsewhere
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from math import prod
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_BAGS = (
    torch.ops.aten._embedding_bag.default,
    torch.ops.aten._embedding_bag_forward_only.default,
)
_POOLS = {
    torch.ops.aten.max_pool2d_with_indices_backward.default: 2,
    torch.ops.aten.max_pool3d_with_indices_backward.default: 3,
    torch.ops.aten.adaptive_max_pool2d_backward.default: 2,
    torch.ops.aten.adaptive_max_pool3d_backward.default: 3,
}
"""How many dims the places, their last argument, count through."""

_NEVER = (
    torch.ops.aten._ctc_loss.default,
    torch.ops.aten._ctc_loss.Tensor,
    torch.ops.aten.segment_reduce.default,
    torch.ops.aten._embedding_bag_dense_backward.default,
    torch.ops.aten._embedding_bag_per_sample_weights_backward.default,
)
"""What is not imported either: nothing is to be learned of it at other sizes."""

_CALLED = (
    *_BAGS, torch.ops.aten.embedding_bag.default, torch.ops.aten.embedding_bag.padding_idx, *_POOLS,
    *_NEVER, torch.ops.aten.ctc_loss.IntList, torch.ops.aten.ctc_loss.Tensor,
)  # fmt: skip


def legal(program: torch.export.ExportedProgram) -> AbstractContextManager[Any]:
    """While it lasts, what the program's operators would touch outside of their operands is an
    error. Of others nothing is watched: torch's own control flow runs under no such mode."""
    modules = (m for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule))
    called = {node.target for m in modules for node in m.graph.nodes}
    return nullcontext() if called.isdisjoint(_CALLED) else _Legal()


class _Legal(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func in _BAGS:
            _check_bags(*args)
        elif func in _POOLS:
            _check_places(args[1], args[-1], _POOLS[func])
        elif func in _NEVER:
            raise ValueError("whether all that it reads is there is not known")
        return func(*args, **(kwargs or {}))


def _check_places(pooled: torch.Tensor, places: torch.Tensor, dims: int) -> None:
    """Each is in the plane, or the volume, that was pooled."""
    size = prod(pooled.shape[-dims:])
    if places.numel() and not 0 <= int(places.min()) <= int(places.max()) < size:
        raise ValueError("some maximum lies outside of what was pooled")


def _check_bags(
    weight: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, scale: bool = False,
    mode: int = 0, sparse: bool = False, factors: torch.Tensor | None = None, last: bool = False,
    *padding: int,
) -> None:  # fmt: skip
    """Of no bags it reads the first, too."""
    bags = offsets.numel() - last
    if bags < 1 or not 0 <= int(offsets.min()) <= int(offsets.max()) <= indices.numel():
        raise ValueError("no bags, or some begin where there are no indices")

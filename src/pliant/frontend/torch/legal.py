"""What torch reads unchecked is checked while a model runs on an example that was resized.

indices of 9, offsets [0, 2, 5]     no offsets left: torch would read one, and the process end
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_BAGS = (
    torch.ops.aten._embedding_bag.default,
    torch.ops.aten._embedding_bag_forward_only.default,
)
_CALLED = (*_BAGS, torch.ops.aten.embedding_bag.default, torch.ops.aten.embedding_bag.padding_idx)


def legal(program: torch.export.ExportedProgram) -> AbstractContextManager[Any]:
    """While it lasts, what the program's operators would read outside of their operands is an
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
        return func(*args, **(kwargs or {}))


def _check_bags(
    weight: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, scale: bool = False,
    mode: int = 0, sparse: bool = False, factors: torch.Tensor | None = None, last: bool = False,
    *padding: int,
) -> None:  # fmt: skip
    """Of no bags it reads the first, too."""
    bags = offsets.numel() - last
    if bags < 1 or not 0 <= int(offsets.min()) <= int(offsets.max()) <= indices.numel():
        raise ValueError("no bags, or some begin where there are no indices")

"""Where in the user's model an exported node comes from."""

from __future__ import annotations

import os
import re
from typing import Final

import torch
from torch.fx import Node

from pliant.base.spans import Span

_FRAME: Final = re.compile(r'File "(.+?)", line (\d+), in ')
TRACERS: Final = tuple(os.path.dirname(f) + os.sep for f in (torch.__file__, __file__))
"""Where code lies that is not the model's: torch's, and what stands in for it while tracing."""
READERS: Final = os.path.join(os.path.dirname(torch.__file__), "_dynamo", "")
"""Where torch's code lies that reads the model's instead of running it."""


def span_of(node: Node) -> Span | None:
    """The innermost line of the user's code, and the path of the module within the model."""
    path = ""
    stack = node.meta.get("nn_module_stack")
    if stack:
        path = str(next(reversed(stack.values()))[0]).removeprefix("L['self'].")
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    own = [f for f in frames if not f[0].startswith(TRACERS)] or frames
    if own:
        file, line = own[-1]
        return Span(file, int(line), path)
    return Span(path or "model", 0, node.name) if path else None

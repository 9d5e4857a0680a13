"""Whether a mask is the causal one is not asked while a module is traced.

`nn.Transformer` and its parts compare the values of a mask with those of the causal one, to tell
attention that it might leave the mask away. A trace cannot decide by values; nor need it: a mask is
applied as it is, whatever is known of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch.nn.modules import transformer


@contextlib.contextmanager
def masks_as_they_are() -> Iterator[None]:
    """Meanwhile the layers of `nn.Transformer` know of a mask what their caller says of it."""
    before = transformer._detect_is_causal_mask
    transformer._detect_is_causal_mask = _as_said
    try:
        yield
    finally:
        transformer._detect_is_causal_mask = before


def _as_said(mask: Any, is_causal: bool | None = None, size: int | None = None) -> bool:
    return bool(is_causal)

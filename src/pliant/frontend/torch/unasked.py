"""What torch asks of values while a module runs, and no trace can decide, nor need it.

`nn.Transformer` and its parts compare a mask with the causal one, to tell attention that it might
leave the mask away: it is applied as it is. Distributions validate their arguments, unless Python
runs without assertions or a model says otherwise: as without assertions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch.distributions import Distribution
from torch.nn.modules import transformer


@contextlib.contextmanager
def values_unasked() -> Iterator[None]:
    """Meanwhile layers of `nn.Transformer` know of a mask what their caller says of it, and
    distributions take arguments unseen where they were not told to look."""
    compared, validated = transformer._detect_is_causal_mask, Distribution._validate_args
    transformer._detect_is_causal_mask = _as_said
    Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        transformer._detect_is_causal_mask = compared
        Distribution.set_default_validate_args(validated)


def _as_said(mask: Any, is_causal: bool | None = None, size: int | None = None) -> bool:
    return bool(is_causal)

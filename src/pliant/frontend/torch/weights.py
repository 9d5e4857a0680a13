"""Torch tensors as NumPy arrays: parameters, buffers and constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from pliant.base.dtypes import bf16
from pliant.base.errors import UnsupportedError
from pliant.frontend.torch.promote import from_torch


def to_array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The tensor's values, contiguous; its very memory where that can be (the compiler copies what
    it keeps)."""
    from_torch(tensor.dtype)  # raises on types that Pliant lacks
    if tensor.is_quantized or tensor.layout is not torch.strided:
        raise UnsupportedError(f"{tensor.layout} and quantized weights are not supported")
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    if plain.dtype is torch.bfloat16:
        return plain.view(torch.int16).numpy().view(bf16.numpy)
    return plain.numpy()

"""Scaled dot-product attention.

The common case maps to the catalogue's operator; anything else goes through ONNX's own definition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pliant.frontend.onnx.site import Lowering

ATTENTION: Final[Mapping[str, Lowering]] = {}

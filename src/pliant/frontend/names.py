"""Names of symbols made of the user's words: "batch size" -> batch_size, "class" -> class_."""

from __future__ import annotations

import keyword
from typing import Final

_RESERVED: Final = frozenset({"min", "max"})  # functions of the text of integers


def symbol_name(text: str) -> str:
    """`text` as an identifier without leading underscore; empty where nothing is left of it."""
    clean = "".join(c if c.isascii() and c.isalnum() else "_" for c in text).strip("_")
    if not clean:
        return ""
    if clean[0].isdigit():
        clean = f"d{clean}"
    return f"{clean}_" if keyword.iskeyword(clean) or clean in _RESERVED else clean

"""Names that nothing has yet."""

from __future__ import annotations

from collections.abc import Container


def fresh_name(wish: str, taken: Container[str]) -> str:
    """`wish` if it is not taken, else the first of `wish_1, wish_2 …` that is not."""
    name, k = wish, 1
    while name in taken:
        name, k = f"{wish}_{k}", k + 1
    return name

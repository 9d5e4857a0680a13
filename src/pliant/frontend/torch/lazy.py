"""Results that most models do not read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Lazy:
    """A second result of an operator, made on first use."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._value: Any = None

    def get(self) -> Any:
        if self._value is None:
            self._value = self._make()
        return self._value

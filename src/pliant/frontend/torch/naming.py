"""Names for torch's symbols: the user's where there are any, else made from the input's name."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from pliant.frontend.torch.dims import Request, sanitise
from pliant.frontend.torch.symbols import Symbols
from pliant.graph.function import Dim
from pliant.sym.expr import Int, as_int, var


class Naming:
    """The integer of each torch symbol, what is known of it, and the shapes of the inputs."""

    def __init__(
        self,
        declared: Mapping[str, Dim],
        ranges: Mapping[Any, Any],
        bounded: Collection[str] = (),
        unbounded: Collection[str] = (),
    ) -> None:
        """`bounded` symbols have a range that the model asks for, `unbounded` ones one that does
        not matter."""
        self.dims: dict[str, Dim] = {}
        self.equalities: list[tuple[Int, Int]] = []
        self.shapes: dict[str, tuple[Int, ...]] = {}
        self.symbols = Symbols({})
        self._declared = declared
        self._ranges = {str(k): v for k, v in ranges.items()}
        self._bounded = bounded
        self._unbounded = unbounded
        self._of: dict[str, Int] = {}

    def read(self, tensors: Sequence[tuple[str, Any, Mapping[int, Request]]]) -> None:
        """Take the inputs in order: (name, fake tensor, requests by axis)."""
        for name, value, requests in tensors:  # plain symbols first, they name the others
            for axis, size in enumerate(value.shape):
                self._plain(name, axis, size, requests.get(axis))
        for name, value, requests in tensors:
            for axis, size in enumerate(value.shape):
                self._derived(name, axis, size, requests.get(axis))
        self.symbols = Symbols(self._of)
        for name, value, requests in tensors:
            self.shapes[name] = tuple(
                self._size(size, requests.get(axis)) for axis, size in enumerate(value.shape)
            )

    def _plain(self, name: str, axis: int, size: Any, request: Request | None) -> None:
        if not isinstance(size, torch.SymInt) or not size.node.expr.is_Symbol:
            return
        symbol = size.node.expr.name
        if symbol in self._of and not (request and request.name):
            return
        chosen = (request and request.name) or sanitise(f"{name}_{axis}")
        known = request.known if request else Dim()
        known = known.merged(self._declared.get(chosen))
        known = known.merged(self._range(symbol))
        self.dims[chosen] = self.dims.get(chosen, Dim()).merged(known)
        if symbol not in self._of:
            self._of[symbol] = var(chosen)
        elif self._of[symbol] is not var(chosen):
            pair = (var(chosen), self._of[symbol])
            if pair not in self.equalities:
                self.equalities.append(pair)

    def _derived(self, name: str, axis: int, size: Any, request: Request | None) -> None:
        if not isinstance(size, torch.SymInt) or size.node.expr.is_Symbol:
            return
        expr = size.node.expr
        for symbol in sorted(s.name for s in expr.free_symbols):
            if symbol in self._of:
                continue
            chosen = (request and request.root) or sanitise(f"{name}_{axis}_{symbol}")
            self._of[symbol] = var(chosen)
            self.dims[chosen] = Dim().merged(self._declared.get(chosen)).merged(self._range(symbol))

    def _size(self, size: Any, request: Request | None) -> Int:
        if not isinstance(size, torch.SymInt):
            return as_int(int(size))
        if request and request.name and size.node.expr.is_Symbol:
            return var(request.name)
        return self.symbols.of(size)

    def _range(self, symbol: str) -> Dim:
        """Torch's range. Its lower end is an assumption of tracing unless the model's code asks."""
        found = self._ranges.get(symbol)
        if found is None or symbol in self._unbounded:
            return Dim()
        low = int(found.lower) if symbol in self._bounded and found.lower.is_Integer else 0
        low = low if low > 2 else 0  # torch assumes 2 by itself; small sizes are tried
        high = int(found.upper) if found.upper.is_Integer else None
        return Dim(low, high if high is not None and high < 1 << 62 else None)

"""Numbers that a model takes out of tensors with `item()`.

span = torch.tensor(x.shape[1]) + 64     a rank-0 tensor whose value is the size s + 64
table[: span.item()]                     so torch's fresh symbol u0 is s + 64
x * x.mean().item()                      any other number is the rank-0 tensor it came from
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch.fx import Node

from pliant.frontend.torch.symbols import Symbols
from pliant.graph.function import Value
from pliant.sym.expr import Int, as_int


class Numbers:
    """What is known of the symbols that torch makes up for numbers out of tensors."""

    def __init__(self, symbols: Symbols) -> None:
        self._symbols = symbols
        self._sizes: dict[Value, Int] = {}
        self._tensors: dict[str, Value] = {}

    def take(self, node: Node, value: Value) -> None:
        """`node` is `value.item()`."""
        name = _symbol(node.meta["val"])
        if name is None:
            return
        if value in self._sizes:
            self._symbols.define(name, self._sizes[value])
        else:
            self._tensors[name] = value

    def tensor(self, number: Any) -> Value | None:
        """The rank-0 tensor that this SymInt or SymFloat is, where it is no size."""
        name = _symbol(number)
        return None if name is None else self._tensors.get(name)

    def note(self, node: Node, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """Follow integers made from sizes through rank-0 tensors, and sizes of results."""
        self.note_sizes(result, node.meta.get("val"))
        if not isinstance(result, Value):
            return
        if not result.shape and result.dtype.is_int:
            fold = _FOLDS.get(str(node.target))
            terms: list[Any] = [self._sizes.get(a) if isinstance(a, Value) else a for a in args]
            plain = not set(kwargs) - {"dtype"} and all(isinstance(t, int | Int) for t in terms)
            if fold is not None and plain and not any(isinstance(t, bool) for t in terms):
                self._sizes[result] = fold(*map(as_int, terms))

    def note_sizes(self, result: Any, value: Any) -> None:
        """What torch made up for the sizes of results is what ours are."""
        if isinstance(result, tuple) and isinstance(value, tuple | list):
            for r, v in zip(result, value, strict=True):
                self.note_sizes(r, v)
        if not isinstance(result, Value) or not isinstance(value, torch.Tensor):
            return
        for ours, theirs in zip(result.shape, value.shape, strict=True):
            name = _symbol(theirs)
            if name is not None and name.startswith("u"):
                self._symbols.define(name, ours)


def _symbol(number: Any) -> str | None:
    """The name of a bare symbol."""
    if not isinstance(number, torch.SymInt | torch.SymFloat):
        return None
    expr = number.node.expr
    return expr.name if expr.is_Symbol else None


def _same(a: Int) -> Int:
    return a


_FOLDS: Final[dict[str, Callable[..., Int]]] = {
    "aten.scalar_tensor.default": _same,
    "aten.add.Tensor": lambda a, b: a + b,
    "aten.add.Scalar": lambda a, b: a + b,
    "aten.sub.Tensor": lambda a, b: a - b,
    "aten.sub.Scalar": lambda a, b: a - b,
    "aten.rsub.Scalar": lambda a, b: b - a,
    "aten.mul.Tensor": lambda a, b: a * b,
    "aten.mul.Scalar": lambda a, b: a * b,
    "aten.neg.default": lambda a: -a,
    **dict.fromkeys(
        (f"aten.{n}.default" for n in ("clone", "detach", "lift_fresh", "lift_fresh_copy")), _same
    ),
}
"""Integer arithmetic by the names of torch's operators."""

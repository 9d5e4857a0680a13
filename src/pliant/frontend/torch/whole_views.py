"""Shapes of views stay those that were asked for while a module is traced.

x.view(b, h // 7, 7, c)    torch splits h into h // 7 and h // (h // 7), and every later size has
                           that in it: a trace of windows does not come to an end
x.view(-1, h, w, c)        divides all elements by h · w · c, however simple what is left of their
                           product is

So for a contiguous tensor, whose view has the sizes that it was given and the strides that follow.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch._prims_common import (
    extract_shape_from_varargs,
    infer_size,
    is_contiguous_or_false,
    make_contiguous_strides_for,
)
from torch.utils._sympy.functions import FloorDiv

from pliant.frontend.torch.whole_sizes import is_symbol


@contextlib.contextmanager
def whole_views() -> Iterator[None]:
    """Meanwhile torch gives a view of symbolic sizes the shape that it was asked for."""
    original = torch._refs._reshape_view_helper

    def helper(x: Any, *shape: Any, allow_copy: bool) -> Any:
        sizes = list(extract_shape_from_varargs(shape, validate=False))
        plain = not is_symbol(*sizes, *x.shape) or not sizes
        if plain or not is_contiguous_or_false(x):
            return original(x, *shape, allow_copy=allow_copy)
        whole = _inferred(x.shape, sizes)
        return torch.as_strided(x, whole, make_contiguous_strides_for(whole))

    torch._refs._reshape_view_helper = helper  # type: ignore[assignment]
    try:
        yield
    finally:
        torch._refs._reshape_view_helper = original


def _inferred(shape: Sequence[Any], sizes: list[Any]) -> list[Any]:
    """The sizes of a view without a -1; that the elements are as many is checked."""
    places = [k for k, n in enumerate(sizes) if isinstance(n, int) and n == -1]
    if len(places) == 1:
        (at,) = places
        left = _quotient(shape, sizes[:at] + sizes[at + 1 :])
        if left is not None:
            return [*sizes[:at], left, *sizes[at + 1 :]]
    elements = math.prod(shape)
    whole: list[Any] = list(infer_size(sizes, elements))
    _check(elements == math.prod(whole))
    return whole


def _quotient(shape: Sequence[Any], others: Sequence[Any]) -> Any | None:
    """The product of `shape` divided by that of `others`, where these are among its factors. Both
    x and m · (x // m) are, where m divides x, which is checked. None where they are not."""
    have, want = _Product.of(shape), _Product.of(others)
    number, left = have.number, list(have.symbols)
    divided: list[tuple[Any, int]] = []
    for x in want.symbols:
        if x in left:
            left.remove(x)
            continue
        parts = (f for f in left if isinstance(f, FloorDiv) and f.args[0] == x)
        part = next((f for f in parts if f.args[1].is_Integer), None)
        if part is None or number % int(part.args[1]):
            return None
        left.remove(part)
        number //= int(part.args[1])
        divided.append((x, int(part.args[1])))
    if not want.number or number % want.number:
        return None
    env = next(n.node.shape_env for n in (*shape, *others) if is_symbol(n))
    for x, m in divided:
        _check(_size(env, x) % m == 0)
    return _size(env, sympy.Mul(number // want.number, *left))


@dataclass(frozen=True)
class _Product:
    """A product of sizes: a number and what it is multiplied with."""

    number: int
    symbols: tuple[Any, ...]

    @staticmethod
    def of(sizes: Sequence[Any]) -> _Product:
        factors = [f for n in sizes if is_symbol(n) for f in sympy.Mul.make_args(n.node.expr)]
        numbers = [n for n in sizes if not is_symbol(n)] + [f for f in factors if f.is_Integer]
        return _Product(math.prod(map(int, numbers)), tuple(f for f in factors if not f.is_Integer))


def _check(condition: Any) -> None:
    torch._check(condition)  # type: ignore[no-untyped-call]


def _size(env: Any, expr: Any) -> Any:
    """An expression of torch's symbols as a size."""
    return int(expr) if expr.is_Integer else env.create_symintnode(expr, hint=None)

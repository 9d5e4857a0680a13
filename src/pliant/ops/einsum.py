"""Einstein summation: sums of products, dimensions named by letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import prod
from typing import Final

from pliant.base.dtypes import DType
from pliant.base.errors import InvalidModelError
from pliant.ir.expr import Expr
from pliant.ir.tensor import Tensor, compute, reduce
from pliant.ops.common import (
    Requirement,
    accumulator,
    broadcast,
    cast_tensor,
    same_type,
)
from pliant.sym.expr import Int, const, minimum

LIKELY: Final = 64  # of a size that is not known
Part = tuple[Sequence[str], Tensor]


def einsum(xs: tuple[Tensor, ...], *, equation: str) -> Tensor:
    """NumPy's einsum: repeated letters are equal dims, missing ones summed, `...` broadcasts. More
    than two operands are multiplied by pairs, each time those of the fewest products."""
    wide = accumulator(same_type(*xs))
    terms, out = parse(equation, [x.rank for x in xs])
    extents, requires = letter_extents(terms, xs)
    parts = list(zip(terms, xs, strict=True))
    while len(parts) > 2:
        a, b = min(combinations(range(len(parts)), 2), key=lambda p: _products(parts, p, extents))
        second, first = parts.pop(b), parts.pop(a)
        wanted = {*out, *(c for term, _ in parts for c in term)}
        kept = [c for c in dict.fromkeys((*first[0], *second[0])) if c in wanted]
        parts.insert(a, (kept, _summed([first, second], kept, extents, wide)))
    result = _summed(parts, out, extents, wide, requires)
    return cast_tensor(result, xs[0].dtype)


def _products(parts: Sequence[Part], pair: tuple[int, int], extents: Mapping[str, Int]) -> int:
    letters = {c for k in pair for c in parts[k][0]}
    return prod(extents[c].value if extents[c].is_const else LIKELY for c in letters)


def _summed(
    parts: Sequence[Part], out: Sequence[str], extents: Mapping[str, Int], wide: DType,
    requires: tuple[Requirement, ...] = (),
) -> Tensor:  # fmt: skip
    """The sum of products over all letters that the result does not have."""
    summed = [c for c in dict.fromkeys(c for term, _ in parts for c in term) if c not in out]

    def product(at: dict[str, Int]) -> Expr:
        factors = [
            x[tuple(_place(at[c], d, extents[c]) for c, d in zip(term, x.shape, strict=True))]
            for term, x in parts
        ]
        result = factors[0].cast(wide)
        for f in factors[1:]:
            result = result * f.cast(wide)
        return result

    def body(*i: Int) -> Expr:
        outer = dict(zip(out, i, strict=True))
        if not summed:
            return product(outer)
        return reduce(
            "sum",
            [extents[c] for c in summed],
            lambda *r: product(outer | dict(zip(summed, r, strict=True))),
        )

    return compute([extents[c] for c in out], body, "einsum", requires)


def _place(i: Int, dim: Int, extent: Int) -> Int:
    if dim == 1:
        return const(0)
    return i if dim == extent or dim.is_const else minimum(i, dim - 1)


def parse(equation: str, ranks: Sequence[int]) -> tuple[list[list[str]], list[str]]:
    """The letters of each operand and of the result; dims under `...` get the names ".0", ".1", …
    counted from the last."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    inputs = left.split(",")
    if len(inputs) != len(ranks):
        raise InvalidModelError(f"{equation!r} names {len(inputs)} operands, not {len(ranks)}")
    terms = [_letters(t, r, equation) for t, r in zip(inputs, ranks, strict=True)]
    dots = max((sum(c[0] == "." for c in t) for t in terms), default=0)
    every = [c for t in terms for c in t]
    if arrow:
        out = _letters(right, len(right.replace("...", "")) + dots, equation)
    else:
        once = sorted(c for c in set(every) if c[0] != "." and every.count(c) == 1)
        out = [f".{k}" for k in reversed(range(dots))] + once
    if len(set(out)) != len(out) or any(c not in every and c[0] != "." for c in out):
        raise InvalidModelError(f"{equation!r}: the result repeats or invents a letter")
    return terms, [c for c in out if c in every]


def _letters(term: str, rank: int, equation: str) -> list[str]:
    before, dots, after = term.partition("...")
    hidden = rank - len(before) - len(after)
    if not (before + after).isalpha() and before + after:
        raise InvalidModelError(f"{equation!r} is no einsum equation")
    if hidden < 0 or (hidden and not dots):
        raise InvalidModelError(f"{equation!r}: {term!r} does not fit an operand of rank {rank}")
    return [*before, *(f".{k}" for k in reversed(range(hidden))), *after]


def letter_extents(
    terms: Sequence[Sequence[str]], xs: Sequence[Tensor]
) -> tuple[dict[str, Int], tuple[Requirement, ...]]:
    """The extent of every letter; dims of one letter broadcast together."""
    dims: dict[str, list[Int]] = {}
    for t, x in zip(terms, xs, strict=True):
        for c, d in zip(t, x.shape, strict=True):
            dims.setdefault(c, []).append(d)
    extents: dict[str, Int] = {}
    requires: list[Requirement] = []
    for c, found in dims.items():
        (extents[c],), meet = broadcast([(d,) for d in found])
        requires += meet
    return extents, tuple(requires)

"""Einstein summation: one sum of products, dimensions named by letters."""

from __future__ import annotations

from collections.abc import Sequence

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


def einsum(xs: tuple[Tensor, ...], *, equation: str) -> Tensor:
    """NumPy's einsum: repeated letters are equal dims, missing ones summed, `...` broadcasts."""
    wide = accumulator(same_type(*xs))
    terms, out = parse(equation, [x.rank for x in xs])
    extents, requires = letter_extents(terms, xs)
    summed = [c for c in dict.fromkeys(c for t in terms for c in t) if c not in out]

    def product(at: dict[str, Int]) -> Expr:
        factors = [
            x[tuple(_place(at[c], d, extents[c]) for c, d in zip(t, x.shape, strict=True))]
            for t, x in zip(terms, xs, strict=True)
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

    shape = [extents[c] for c in out]
    return cast_tensor(compute(shape, body, "einsum", requires), xs[0].dtype)


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

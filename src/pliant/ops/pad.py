"""Padding and cropping."""

from __future__ import annotations

from collections.abc import Sequence

from pliant.base.errors import InvalidModelError
from pliant.ir.expr import Expr, as_expr
from pliant.ir.tensor import Tensor, all_of, compute, select, within
from pliant.ops.common import Requirement, at_least, not_empty, positive
from pliant.sym.expr import Int, IntLike, as_int, maximum, minimum

Pads = Sequence[tuple[IntLike, IntLike]]


def pad(x: Tensor, *, pads: Pads, mode: str = "constant", value: float = 0) -> Tensor:
    """`lo` elements more before and `hi` after each dimension; negative numbers crop.

    reflect mirrors about the edge elements, edge repeats them, wrap continues from the other end.
    """
    if len(pads) != x.rank:
        raise InvalidModelError(f"{len(pads)} pads for a tensor of rank {x.rank}")
    if mode not in ("constant", "reflect", "edge", "wrap"):
        raise InvalidModelError(f"no padding mode {mode!r}")
    sizes = [(as_int(lo), as_int(hi)) for lo, hi in pads]
    shape: list[Int] = []
    requires: list[Requirement] = []
    for d, (extent, (lo, hi)) in enumerate(zip(x.shape, sizes, strict=True)):
        shape.append(extent + lo + hi)
        if _crops(lo) or _crops(hi):
            requires += at_least(shape[-1], 0, f"pads crop dim {d}, of size {extent}, below 0")
        if mode != "constant" and (_extends(lo) or _extends(hi)):
            requires += _source_requirements(extent, lo, hi, mode, d)

    def body(*i: Int) -> Expr:
        at = [k - lo for k, (lo, _) in zip(i, sizes, strict=True)]
        if mode != "constant":
            return x[tuple(
                _source(j, n, lo, hi, mode)
                for j, n, (lo, hi) in zip(at, x.shape, sizes, strict=True)
            )]  # fmt: skip
        conditions = [
            within(j, n)
            for j, n, (lo, hi) in zip(at, x.shape, sizes, strict=True)
            if _extends(lo) or _extends(hi)
        ]
        inside = x[tuple(at)]
        return select(all_of(conditions), inside, as_expr(value, x.dtype)) if conditions else inside

    return compute(shape, body, "pad", requires)


def _extends(size: Int) -> bool:
    """Whether a pad may be positive."""
    return not size.is_const or size.value > 0


def _crops(size: Int) -> bool:
    """Whether a pad may be negative."""
    return size.is_const and size.value < 0


def _folds_once(extent: Int, lo: Int, hi: Int) -> bool:
    """Whether one reflection at each end is enough; assumed (and required) of symbolic sizes."""
    sizes = (extent, lo, hi)
    return not all(s.is_const for s in sizes) or max(lo.value, hi.value) < extent.value


def _source_requirements(
    extent: Int, lo: Int, hi: Int, mode: str, dim: int
) -> tuple[Requirement, ...]:
    requires = not_empty(extent, f"padded dim {dim}")
    if mode == "reflect" and _folds_once(extent, lo, hi):
        for size in filter(_extends, (lo, hi)):
            message = f"reflected dim {dim} must be larger than the padding {size}"
            requires += at_least(extent - 1, size, message)
    return requires


def _source(j: Int, extent: Int, lo: Int, hi: Int, mode: str) -> Int:
    """Where position j, counted from the first element, comes from."""
    if not _extends(lo) and not _extends(hi):
        return j
    if mode == "edge":
        return minimum(maximum(j, 0), extent - 1)
    if mode == "wrap":
        return j % positive(extent)
    if _folds_once(extent, lo, hi):
        unsigned = maximum(j, -j) if _extends(lo) else j
        return minimum(unsigned, 2 * extent - 2 - unsigned) if _extends(hi) else unsigned
    period = positive(2 * extent - 2)
    return minimum(j % period, period - j % period) if extent != 1 else as_int(0)

"""Sliding windows: what convolution and pooling share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pliant.base.errors import InvalidModelError
from pliant.ir.expr import Expr
from pliant.ir.tensor import Tensor, all_of, within
from pliant.ops.common import Requirement, at_least, nonnegative
from pliant.sym.expr import Int, IntLike, as_int, minimum

Pads = Sequence[tuple[IntLike, IntLike]]


@dataclass(frozen=True)
class Windows:
    """Windows over the spatial dims of x, those after the first two.

    Element k of window o along a dimension is element o*stride + k*dilation - lo of x.
    """

    spatial: tuple[Int, ...]
    kernel: tuple[Int, ...]
    strides: tuple[int, ...]
    pads: tuple[tuple[Int, Int], ...]
    dilations: tuple[int, ...]

    def counts(self, *, ceil_mode: bool = False) -> tuple[Int, ...]:
        """How many windows along each dimension.

        With `ceil_mode` a last one may stick out, if it begins inside the operand or the padding
        before it (torch, ONNX).
        """
        found = []
        for d, s in enumerate(self.strides):
            lo, hi = self.pads[d]
            room = self.spatial[d] + lo + hi - self.dilations[d] * (self.kernel[d] - 1) - 1
            count = nonnegative((room + s) // s)
            if ceil_mode and s > 1:
                up = nonnegative((room + 2 * s - 1) // s)
                count = minimum(up, (self.spatial[d] + lo + s - 1) // s)
            found.append(count)
        return tuple(found)

    def fit(self) -> tuple[Requirement, ...]:
        """The requirements that there is a window along each dimension."""
        found: tuple[Requirement, ...] = ()
        for d, (lo, hi) in enumerate(self.pads):
            padded, reach = self.spatial[d] + lo + hi, self.dilations[d] * (self.kernel[d] - 1) + 1
            found += at_least(padded, reach, f"the window is larger than padded dim {2 + d}")
        return found

    def at(self, window: Sequence[Int], element: Sequence[Int]) -> tuple[Int, ...]:
        """The position in x of an element of a window; outside of x in the padding."""
        return tuple(
            o * s + k * d - lo
            for o, k, s, d, (lo, _) in zip(
                window, element, self.strides, self.dilations, self.pads, strict=True
            )
        )

    def inside(self, position: Sequence[Int], *, ceil_mode: bool = False) -> Expr | None:
        """The condition that a position is in x; None where it always is."""
        conditions = [
            within(p, n)
            for p, n, pads, s in zip(position, self.spatial, self.pads, self.strides, strict=True)
            if any(side != 0 for side in pads) or (ceil_mode and s > 1)
        ]
        return all_of(conditions) if conditions else None


def windows(
    x: Tensor,
    kernel: Sequence[IntLike],
    strides: Sequence[int],
    pads: Pads,
    dilations: Sequence[int] | None = None,
) -> Windows:
    """The windows of `kernel` over x; raises InvalidModelError where the numbers do not fit."""
    rank = x.rank - 2
    dilations = (1,) * rank if dilations is None else tuple(dilations)
    if rank < 0 or any(len(a) != rank for a in (kernel, strides, pads, dilations)):
        raise InvalidModelError(
            f"kernel, strides, pads and dilations must have {rank} entries, one a spatial dim"
        )
    if any(s < 1 for s in (*strides, *dilations)):
        raise InvalidModelError("strides and dilations must be at least 1")
    return Windows(
        x.shape[2:], tuple(map(as_int, kernel)), tuple(strides),
        tuple((as_int(lo), as_int(hi)) for lo, hi in pads), dilations,
    )  # fmt: skip

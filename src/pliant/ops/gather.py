"""Reads and writes at places that other tensors name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pliant.base.dtypes import i64
from pliant.base.errors import InvalidModelError, UnsupportedError
from pliant.graph.operator import Operator
from pliant.ir.expr import Binary, Expr, Guard, Select, as_expr
from pliant.ir.tensor import Tensor, compute, scatter, select
from pliant.ops.common import (
    Requirement,
    Shape,
    aligned,
    at_least,
    broadcast,
    broadcast_to,
    check_axis,
    check_rank,
    equal,
    same_type,
    without,
)
from pliant.sym.expr import Int

REDUCTIONS: Final = {"none": "set", "add": "add", "mul": "mul", "max": "max", "min": "min"}


def checked(index: Expr, extent: Int, what: str, *, negative: bool = True) -> Expr:
    """An index as i64, counted from the end if negative; out of range fails the call."""
    at, size = index.cast(i64), as_expr(extent)
    signed = negative and index.dtype.is_signed
    low = as_expr(-extent) if signed else as_expr(0)
    legal = Binary("and", low <= at, at < size)
    place = select(at < 0, at + size, at) if signed else at
    return Guard(legal, place, "index", f"{what}: an index is out of range of size {extent}")


def needs_indices(indices: Tensor) -> None:
    """Raise unless the elements are integers."""
    if not indices.dtype.is_int:
        raise InvalidModelError(f"indices are integers, not {indices.dtype}")


def gather(x: Tensor, indices: Tensor, *, axis: int) -> Tensor:
    """NumPy's take along `axis`: the dims of `indices` take the place of the axis."""
    return _taken(x, indices, axis, "gather", negative=True)


def embedding(weight: Tensor, indices: Tensor) -> Tensor:
    """Rows of `weight`; negative indices are out of range."""
    return _taken(weight, indices, 0, "embedding", negative=False)


def _taken(x: Tensor, indices: Tensor, axis: int, name: str, *, negative: bool) -> Tensor:
    check_axis(axis, x.rank)
    needs_indices(indices)
    end = axis + indices.rank
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])

    def body(*i: Int) -> Expr:
        at = checked(indices[i[axis:end]], x.shape[axis], name, negative=negative)
        return x[(*i[:axis], at, *i[end:])]

    return compute(shape, body, name)


def _fits(indices: Tensor, x: Tensor, axis: int) -> tuple[Requirement, ...]:
    check_axis(axis, x.rank)
    check_rank(indices, x.rank, "indices")
    needs_indices(indices)
    requires: list[Requirement] = []
    for d, (n, m) in enumerate(zip(x.shape, indices.shape, strict=True)):
        if d != axis:
            requires += at_least(n, m, f"dim {d} of the indices, {m}, exceeds the operand's {n}")
    return tuple(requires)


def gather_elements(x: Tensor, indices: Tensor, *, axis: int) -> Tensor:
    """out[i] = x[i with indices[i] at `axis`] (torch.gather)."""
    requires = _fits(indices, x, axis)

    def body(*i: Int) -> Expr:
        at = checked(indices[i], x.shape[axis], "gather_elements")
        return x[(*i[:axis], at, *i[axis + 1 :])]

    return compute(indices.shape, body, "gather_elements", requires)


def _tuple_length(indices: Tensor, x: Tensor, batch_dims: int) -> int:
    needs_indices(indices)
    if indices.rank == 0 or not indices.shape[-1].is_const:
        raise UnsupportedError("the last dim of the indices must be a known number")
    length = indices.shape[-1].value
    if batch_dims + length > x.rank or batch_dims >= indices.rank:
        raise InvalidModelError(f"{length} indices for a tensor of rank {x.rank}")
    return length


def gather_nd(x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    """Slices of x at the index tuples that the last dim of `indices` holds (ONNX GatherND)."""
    length = _tuple_length(indices, x, batch_dims)
    outer = indices.shape[:-1]
    requires: list[Requirement] = []
    for d in range(batch_dims):
        requires += equal(x.shape[d], outer[d], f"batch dim {d} differs")

    def body(*i: Int) -> Expr:
        row, rest = i[: len(outer)], i[len(outer) :]
        at = [
            checked(indices[(*row, k)], x.shape[batch_dims + k], "gather_nd") for k in range(length)
        ]
        return x[(*row[:batch_dims], *at, *rest)]

    return compute((*outer, *x.shape[batch_dims + length :]), body, "gather_nd", requires)


def _combiner(reduction: str) -> str:
    if reduction not in REDUCTIONS:
        raise InvalidModelError(f"no reduction {reduction!r}")
    return REDUCTIONS[reduction]


def scatter_elements(
    x: Tensor, indices: Tensor, updates: Tensor, *, axis: int, reduction: str = "none"
) -> Tensor:
    """x with updates[i] combined in at `i with indices[i] at axis`; the last one wins."""
    same_type(x, updates)
    requires = list(_fits(indices, x, axis))
    check_rank(updates, x.rank, "updates")
    for d, (n, m) in enumerate(zip(updates.shape, indices.shape, strict=True)):
        requires += at_least(n, m, f"dim {d} of the indices, {m}, exceeds the updates' {n}")

    def where(*i: Int) -> Sequence[Expr | Int]:
        at = checked(indices[i], x.shape[axis], "scatter_elements")
        return [*i[:axis], at, *i[axis + 1 :]]

    return scatter(
        x, indices.shape, where, lambda *i: updates[i], combiner=_combiner(reduction),
        name="scatter_elements", requires=requires,
    )  # fmt: skip


def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    """x with slices combined in at the index tuples of the last dim of `indices` (ONNX)."""
    same_type(x, updates)
    length = _tuple_length(indices, x, 0)
    outer = indices.shape[:-1]
    box = (*outer, *x.shape[length:])
    check_rank(updates, len(box), "updates")
    requires: list[Requirement] = []
    for d, (n, m) in enumerate(zip(updates.shape, box, strict=True)):
        requires += equal(n, m, f"dim {d} of the updates is {n}, not {m}")

    def where(*i: Int) -> Sequence[Expr | Int]:
        row, rest = i[: len(outer)], i[len(outer) :]
        at = [checked(indices[(*row, k)], x.shape[k], "scatter_nd") for k in range(length)]
        return [*at, *rest]

    return scatter(
        x, box, where, lambda *i: updates[i], combiner=_combiner(reduction), name="scatter_nd",
        requires=requires,
    )  # fmt: skip


class Indexing:
    """Advanced indexing x[indices]: None entries (and missing ones) are full slices.

    The broadcast dims of the index tensors stand where the first of them is if they are adjacent,
    and in front otherwise (NumPy).
    """

    def __init__(self, x: Tensor, indices: Sequence[Tensor | None]) -> None:
        if len(indices) > x.rank:
            raise InvalidModelError(f"{len(indices)} indices for a tensor of rank {x.rank}")
        self.x = x
        self.tensors = {d: t for d, t in enumerate(indices) if t is not None}
        for t in self.tensors.values():
            if t.dtype.kind == "bool":
                raise UnsupportedError("indexing with a boolean mask")
            needs_indices(t)
        self.picked, self.requires = broadcast([t.shape for t in self.tensors.values()])
        axes = list(self.tensors)
        adjacent = bool(axes) and axes == list(range(axes[0], axes[0] + len(axes)))
        self.front = axes[0] if adjacent else 0
        kept = without(x.shape, *axes)
        self.shape: Shape = (*kept[: self.front], *self.picked, *kept[self.front :])

    def place(self, i: Sequence[Int], name: str) -> list[Expr | Int]:
        """Which element of x belongs to `i` in the indexed result."""
        end = self.front + len(self.picked)
        row = i[self.front : end]
        rest = iter((*i[: self.front], *i[end:]))
        at: list[Expr | Int] = []
        for d, extent in enumerate(self.x.shape):
            t = self.tensors.get(d)
            if t is None:
                at.append(next(rest))
            else:
                at.append(checked(t[aligned(row, t.shape, self.picked)], extent, name))
        return at


def index(x: Tensor, indices: tuple[Tensor | None, ...]) -> Tensor:
    """x[indices] with NumPy's advanced indexing."""
    what = Indexing(x, indices)
    return compute(what.shape, lambda *i: x[tuple(what.place(i, "index"))], "index", what.requires)


def index_put(
    x: Tensor, value: Tensor, indices: tuple[Tensor | None, ...], *, accumulate: bool = False
) -> Tensor:
    """x with x[indices] = value (or += value); the value broadcasts to the indexed shape."""
    same_type(x, value)
    what = Indexing(x, indices)
    return scatter(
        x, what.shape,
        lambda *i: what.place(i, "index_put"),
        lambda *i: value[aligned(i, value.shape, what.shape)],
        combiner="add" if accumulate else "set", name="index_put",
        requires=what.requires + broadcast_to(value.shape, what.shape),
    )  # fmt: skip


def masked_fill(x: Tensor, mask: Tensor, value: Tensor) -> Tensor:
    """The rank-0 value where the mask holds, x elsewhere; x and mask broadcast."""
    same_type(x, value)
    check_rank(value, 0, "value")
    shape, requires = broadcast((x.shape, mask.shape))

    def body(*i: Int) -> Expr:
        kept = x[aligned(i, x.shape, shape)]
        return Select(mask[aligned(i, mask.shape, shape)], value[()], kept)

    return compute(shape, body, "masked_fill", requires)


GATHER: Final[tuple[Operator, ...]] = (
    Operator("gather", gather),
    Operator("embedding", embedding),
    Operator("gather_elements", gather_elements),
    Operator("gather_nd", gather_nd),
    Operator("scatter_elements", scatter_elements),
    Operator("scatter_nd", scatter_nd),
    Operator("index", index, variadic=True),
    Operator("index_put", index_put, variadic=True),
    Operator("masked_fill", masked_fill),
)

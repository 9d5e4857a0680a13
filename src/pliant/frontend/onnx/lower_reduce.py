"""Reductions, softmax and their like."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pliant.base.dtypes import boolean, f64
from pliant.frontend.onnx.site import Lowering, Site, product
from pliant.graph.function import Value


def _reduce(op: str, since: int = 18) -> Lowering:
    return lambda s: _reduced(s, s.x(), op, since)


def _reduced(s: Site, x: Value, op: str, since: int = 18, **more: Any) -> Value:
    axes, keep = _axes(s, since)
    return s.call(op, x, axes=axes, keepdims=keep, **more)


def _axes(s: Site, since: int = 18) -> tuple[tuple[int, ...], bool]:
    rank = s.item(0).rank
    axes = s.axes(1, rank, since)
    keep = bool(s.int_attr("keepdims", 1))
    if not axes and not s.int_attr("noop_with_empty_axes", 0):
        axes = tuple(range(rank))
    return axes or (), keep


def _extreme(op: str, logical: str) -> Lowering:
    def lower(s: Site) -> Value:
        x = s.x()
        return _reduced(s, x, logical if x.dtype is boolean else op)

    return lower


def lower_reduce_mean(s: Site) -> Value:
    """Integers divide towards zero."""
    x = s.x()
    if x.dtype.is_float:
        return _reduced(s, x, "mean")
    axes, keep = _axes(s)
    count = s.size(product([x.shape[a] for a in axes]), x.dtype)
    return s.call("truncdiv", s.call("sum", x, axes=axes, keepdims=keep), count)


def lower_reduce_l1(s: Site) -> Value:
    """Sum of absolute values."""
    x = s.x()
    if x.dtype.is_float:
        return _reduced(s, x, "norm", p=1)
    return _reduced(s, s.call("abs", x), "sum")


def lower_reduce_l2(s: Site) -> Value:
    """Square root of the sum of squares."""
    x = s.x()
    if x.dtype.is_float:
        return _reduced(s, x, "norm", p=2)
    return s.cast(_reduced(s, s.cast(x, f64), "norm", p=2), x.dtype)


def lower_reduce_log_sum(s: Site) -> Value:
    """log(sum)."""
    x = s.x()
    wide = x if x.dtype.is_float else s.cast(x, f64)
    return s.cast(s.call("log", _reduced(s, wide, "sum")), x.dtype)


def lower_reduce_log_sum_exp(s: Site) -> Value:
    """log(sum(exp))."""
    x = s.x()
    wide = x if x.dtype.is_float else s.cast(x, f64)
    return s.cast(_reduced(s, wide, "logsumexp"), x.dtype)


def lower_reduce_sum_square(s: Site) -> Value:
    """Sum of squares."""
    x = s.x()
    return _reduced(s, s.call("mul", x, x), "sum")


def _arg(op: str) -> Lowering:
    def lower(s: Site) -> Value:
        x = s.x()
        return s.call(
            op, x, axis=s.axis("axis", 0, rank=len(x.shape)),
            keepdims=bool(s.int_attr("keepdims", 1)),
            last=bool(s.int_attr("select_last_index", 0)),
        )  # fmt: skip

    return lower


def along_axis(lower: Callable[[Site, Value, int], Value]) -> Lowering:
    """Before opset 13 all dims from the axis on are taken as one (and the default axis is 1)."""

    def entry(s: Site) -> Value:
        x = s.x()
        rank = len(x.shape)
        if s.opset >= 13:
            return lower(s, x, s.axis("axis", -1, rank=rank))
        axis = s.axis("axis", 1, rank=rank) if rank else 0
        if axis == rank - 1:
            return lower(s, x, axis)
        flat = s.reshape(x, (product(x.shape[:axis]), product(x.shape[axis:])))
        return s.reshape(lower(s, flat, 1), x.shape)

    return entry


def _plain(op: str) -> Lowering:
    def lower(s: Site, x: Value, axis: int) -> Value:
        return s.call(op, x, axis=axis)

    return along_axis(lower)


def _hardmax(s: Site, x: Value, axis: int) -> Value:
    best = s.call("argmax", x, axis=axis, keepdims=True, last=False)
    places = s.call("iota", size=x.shape[axis], start=0, step=1, dtype=best.dtype)
    shape = tuple(d if k == axis else 1 for k, d in enumerate(x.shape))
    return s.cast(s.call("eq", best, s.reshape(places, shape)), x.dtype)


REDUCE: Final[Mapping[str, Lowering]] = {
    "ArgMax": _arg("argmax"),
    "ArgMin": _arg("argmin"),
    "Hardmax": along_axis(_hardmax),
    "LogSoftmax": _plain("log_softmax"),
    "ReduceL1": lower_reduce_l1,
    "ReduceL2": lower_reduce_l2,
    "ReduceLogSum": lower_reduce_log_sum,
    "ReduceLogSumExp": lower_reduce_log_sum_exp,
    "ReduceMax": _extreme("max", "any"),
    "ReduceMean": lower_reduce_mean,
    "ReduceMin": _extreme("min", "all"),
    "ReduceProd": _reduce("prod"),
    "ReduceSum": _reduce("sum", since=13),
    "ReduceSumSquare": lower_reduce_sum_square,
    "Softmax": _plain("softmax"),
}

"""Evaluate nodes whose operands are known: constants, sizes and arithmetic on them.

    Shape -> Gather -> Mul -> Concat      carried as integers, no tensor is made

`FOLDS` maps an operator to a function of the site and the known operands. Elements are numbers,
or sizes where an array has dtype object. `UndecidedError` means: compute it at run time instead.
What has no rule for sizes needs none for numbers: those the importer computes by any operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from pliant.base.dtypes import DType, boolean, f32, from_numpy, i64
from pliant.frontend.onnx.shapes import reshaped, slice_ranges, split_sizes
from pliant.frontend.onnx.site import Item, NeedsValueError, Site
from pliant.frontend.onnx.symbolic import (
    Known,
    Ratio,
    Sizes,
    UndecidedError,
    from_ints,
    is_numeric,
    ratio_of,
    settle,
    to_symbolic,
)
from pliant.frontend.onnx.tensors import dtype_of
from pliant.sym.expr import Int, as_int, ceildiv

LARGEST_KNOWN: Final = 16_384
_LARGEST_SYMBOLIC: Final = 1024

Knowns = list[Known]
Fold = Callable[[Site, Knowns], Known]


def fold(site: Site) -> tuple[Item, ...] | None:
    """The node's results as known items; None where they must be computed at run time."""
    rule = FOLDS.get(site.op)
    if (rule is None and site.op != "Split") or site.node.domain not in ("", "ai.onnx"):
        return None
    if site.op in ("Shape", "Size"):
        knowns: Knowns = []
    else:
        found = [None if i is None else i.known for i in site.items]
        if any(k is None or k.size > LARGEST_KNOWN for k in found):
            return None
        knowns = [k for k in found if k is not None]
    try:
        with np.errstate(all="ignore"):
            results = _split(site, knowns) if rule is None else (rule(site, knowns),)
            return tuple(_item(site, k) for k in results)
    except (UndecidedError, NeedsValueError, ValueError, TypeError, IndexError, ArithmeticError):
        return None  # the lowering says what is wrong, if anything is


def is_small_constant(known: Known | None) -> bool:
    """Whether these are numbers, so few that it is cheap to compute with them while importing."""
    return is_numeric(known) and known.size <= LARGEST_KNOWN


def _item(site: Site, known: Known) -> Item:
    dtype = _result_dtype(site) if known.dtype == object else from_numpy(known.dtype)
    settled = settle(known, dtype)
    if settled.size > (_LARGEST_SYMBOLIC if settled.dtype == object else LARGEST_KNOWN):
        raise UndecidedError
    return Item(dtype, tuple(as_int(d) for d in settled.shape), known=settled)


def _result_dtype(site: Site) -> DType:
    if site.op in ("Shape", "Size"):
        return i64
    if site.op == "Cast":
        return dtype_of(site.int_attr("to"), "Cast")
    return site.item({"Where": 1, "CastLike": 1, "OneHot": 2}.get(site.op, 0)).dtype


# Elementwise: (on numbers, on sizes or ratios)


def _unary(numeric: Any, symbolic: Callable[[Sizes, Any], Any]) -> Fold:
    def rule(site: Site, knowns: Knowns) -> Known:
        (a,) = knowns
        if a.dtype != object:
            return np.asarray(numeric(a)).astype(a.dtype)
        return _each(lambda v: symbolic(site.sizes, v), a)

    return rule


def _binary(numeric: Any, symbolic: Callable[[Sizes, Any, Any], Any]) -> Fold:
    def rule(site: Site, knowns: Knowns) -> Known:
        result = knowns[0]
        for b in knowns[1:]:
            _small(np.broadcast_shapes(result.shape, b.shape))
            if result.dtype != object and b.dtype != object:
                result = np.asarray(numeric(result, b))
                continue
            dtype = site.item(0).dtype
            left, right = to_symbolic(result, dtype), to_symbolic(b, dtype)
            result = _each(lambda v, w: symbolic(site.sizes, v, w), left, right)
        return result

    return rule


def _compare(numeric: Any, symbolic: Callable[[Sizes, Any, Any], bool]) -> Fold:
    both = _binary(numeric, symbolic)

    def rule(site: Site, knowns: Knowns) -> Known:
        return np.asarray(both(site, knowns)).astype(np.bool_)

    return rule


def _each(fn: Callable[..., Any], *arrays: Known) -> Known:
    spread = np.broadcast_arrays(*arrays)
    out = np.empty(spread[0].size, dtype=object)
    out[:] = [fn(*vs) for vs in zip(*(s.ravel() for s in spread), strict=True)]
    return out.reshape(spread[0].shape)


def _truncdiv(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind not in "iu":
        return np.asarray(a / b)
    if not b.all():
        raise UndecidedError
    quotient = a // b
    return np.asarray(quotient + ((quotient * b != a) & ((a < 0) != (b < 0))).astype(a.dtype))


def _div(z: Sizes, a: Any, b: Any) -> Any:
    if isinstance(a, Int):
        return z.truncdiv(a, b)
    if not z.is_nonneg(b.num) or b.num == 0:
        raise UndecidedError
    return a * Ratio(b.den, b.num)


def _mod(site: Site, knowns: Knowns) -> Known:
    fmod = site.int_attr("fmod", 0)

    def symbolic(z: Sizes, a: Any, b: Any) -> Any:
        if not isinstance(a, Int) or not z.is_nonneg(b) or (fmod and not z.is_nonneg(a)):
            raise UndecidedError
        return z.rest(a, b)

    def numeric(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if a.dtype.kind in "iu" and not b.all():
            raise UndecidedError
        return np.asarray(np.fmod(a, b) if fmod else np.mod(a, b))

    return _binary(numeric, symbolic)(site, knowns)


def _abs(z: Sizes, a: Any) -> Any:
    if z.is_nonneg(a if isinstance(a, Int) else a.num):
        return a
    return z.greatest(a, -a) if isinstance(a, Int) else _undecided()


def _least(z: Sizes, a: Any, b: Any) -> Any:
    if isinstance(a, Int):
        return z.least(a, b)
    return a if z.less(a.num * b.den, b.num * a.den) else b


def _greatest(z: Sizes, a: Any, b: Any) -> Any:
    if isinstance(a, Int):
        return z.greatest(a, b)
    return b if z.less(a.num * b.den, b.num * a.den) else a


def _equal(z: Sizes, a: Any, b: Any) -> bool:
    if isinstance(a, Int):
        return z.equal(a, b)
    return z.equal(a.num * b.den, b.num * a.den)


def _less(z: Sizes, a: Any, b: Any) -> bool:
    if isinstance(a, Int):
        return z.less(a, b)
    return z.less(a.num * b.den, b.num * a.den)


def _undecided() -> Any:
    raise UndecidedError


def _cast(site: Site, knowns: Knowns) -> Known:
    known = knowns[0]
    source = site.item(0).dtype
    by_name = site.op == "Cast"
    if not by_name and site.item(1).small:
        raise UndecidedError
    target = dtype_of(site.int_attr("to"), "Cast") if by_name else site.item(1).dtype
    if known.dtype != object:
        if target.is_int and source.is_float and not np.isfinite(known).all():
            raise UndecidedError
        return known.astype(target.numpy)
    if target is boolean:
        return _each(lambda v: not site.sizes.equal(v if isinstance(v, Int) else v.num, as_int(0)),
                     known).astype(np.bool_)  # fmt: skip
    if source.is_int == target.is_int:
        return known
    if target.is_float:
        return _each(lambda v: Ratio(v, as_int(1)), known)
    return _each(lambda v: site.sizes.truncdiv(v.num, v.den), known)


# Moving elements


def _shape(site: Site, knowns: Knowns) -> Known:
    shape = site.item(0).shape
    start, stop = site.int_attr("start", 0), site.int_attr("end", len(shape))
    dims = shape[slice(start, stop)]
    return from_ints(dims, (len(dims),))


def _size(site: Site, knowns: Knowns) -> Known:
    total = as_int(1)
    for d in site.item(0).shape:
        total = total * d
    return from_ints([total], ())


def _gather(site: Site, knowns: Knowns) -> Known:
    data, indices = knowns
    axis = site.axis("axis", 0, rank=data.ndim)
    _small((*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]))
    return np.asarray(np.take(data, _numbers(indices), axis=axis))


def _slice(site: Site, knowns: Knowns) -> Known:
    picks = []
    for r in slice_ranges(site):
        start, stop, step = r.start.value, r.stop.value, r.step
        picks.append(slice(start, None if stop < 0 else stop, step))
    return np.asarray(knowns[0][tuple(picks)])


def _concat(site: Site, knowns: Knowns) -> Known:
    axis = site.axis("axis", None, rank=knowns[0].ndim)
    if any(k.dtype == object for k in knowns):
        knowns = [to_symbolic(k, site.item(0).dtype) for k in knowns]
    return np.concatenate(knowns, axis=axis)


def _reshape(site: Site, knowns: Knowns) -> Known:
    return knowns[0].reshape([d.value for d in reshaped(site)])


def _unsqueeze(site: Site, knowns: Knowns) -> Known:
    count = len(site.numbers(1, "axes") if site.opset >= 13 else site.ints_attr("axes"))
    axes = site.axes(1, knowns[0].ndim + count, since=13)
    return np.expand_dims(knowns[0], axes or ())


def _squeeze(site: Site, knowns: Knowns) -> Known:
    return np.squeeze(knowns[0], site.axes(1, knowns[0].ndim, since=13))


def _transpose(site: Site, knowns: Knowns) -> Known:
    perm = site.ints_attr("perm", tuple(reversed(range(knowns[0].ndim))))
    return np.transpose(knowns[0], perm)


def _flatten(site: Site, knowns: Knowns) -> Known:
    axis = site.int_attr("axis", 1) % (knowns[0].ndim + 1)
    return knowns[0].reshape(int(np.prod(knowns[0].shape[:axis])), -1)


def _expand(site: Site, knowns: Knowns) -> Known:
    shape = np.broadcast_shapes(knowns[0].shape, tuple(_numbers(knowns[1])))
    return np.broadcast_to(knowns[0], _small(shape))


def _tile(site: Site, knowns: Knowns) -> Known:
    repeats = _numbers(knowns[1])
    _small([int(np.prod(repeats, dtype=object)) * knowns[0].size])
    return np.tile(knowns[0], repeats)


def _split(site: Site, knowns: Knowns) -> tuple[Known, ...]:
    axis = site.axis("axis", 0, rank=knowns[0].ndim)
    ends = np.cumsum([s.value for s in split_sizes(site, axis)])[:-1]
    return tuple(np.split(knowns[0], ends, axis=axis))


def _constant_of_shape(site: Site, knowns: Knowns) -> Known:
    value = site.tensor_attr("value") if site.has_attr("value") else np.zeros(1, np.float32)
    return np.full(_small(_numbers(knowns[0])), value.ravel()[0], value.dtype)


def _range(site: Site, knowns: Knowns) -> Known:
    start, limit, delta = (k.ravel()[0] for k in knowns)
    if all(k.dtype != object for k in knowns):
        _small([max(math.ceil((limit.item() - start.item()) / delta.item()), 0)])
        return np.arange(start, limit, delta, dtype=knowns[0].dtype)
    if not site.item(0).dtype.is_int:
        raise UndecidedError
    first, last, step = (v if isinstance(v, Int) else as_int(int(v)) for v in (start, limit, delta))
    if not step.is_const or step.value < 1:
        raise UndecidedError
    count = ceildiv(last - first, step)
    if not count.is_const:
        raise UndecidedError
    (size,) = _small([max(count.value, 0)])
    return from_ints([first + step * k for k in range(size)], (size,))


def _where(site: Site, knowns: Knowns) -> Known:
    cond, a, b = knowns
    if cond.dtype == object:
        raise UndecidedError
    _small(np.broadcast_shapes(cond.shape, a.shape, b.shape))
    if a.dtype == object or b.dtype == object:
        a, b = (to_symbolic(k, site.item(1).dtype) for k in (a, b))
    return np.where(cond, a, b)


def _one_hot(site: Site, knowns: Knowns) -> Known:
    at, depth, values = _numbers(knowns[0]), int(_numbers(knowns[1]).item()), knowns[2]
    _small((at.size, depth))
    axis = site.axis("axis", -1, rank=at.ndim + 1)
    places = np.expand_dims(np.where(at < 0, at + depth, at), axis)
    steps = np.arange(depth).reshape([depth if d == axis else 1 for d in range(at.ndim + 1)])
    return np.asarray(np.where(places == steps, values[1], values[0]))


def _gather_nd(site: Site, knowns: Knowns) -> Known:
    if site.int_attr("batch_dims", 0):
        raise UndecidedError
    indices = _numbers(knowns[1])
    return np.asarray(knowns[0][tuple(np.moveaxis(indices, -1, 0))])


def _scatter_nd(site: Site, knowns: Knowns) -> Known:
    if site.str_attr("reduction", "none") != "none":
        raise UndecidedError
    data, indices, updates = knowns
    if data.dtype == object or updates.dtype == object:
        data, updates = (to_symbolic(k, site.item(0).dtype) for k in (data, updates))
    out = np.array(data)
    out[tuple(np.moveaxis(_numbers(indices), -1, 0))] = updates
    return out


def _nonzero(site: Site, knowns: Knowns) -> Known:
    return np.stack(np.nonzero(_numbers(knowns[0]))).astype(np.int64)


def _reduce(numeric: Any, symbolic: Callable[[Sizes, Any, Any], Any], since: int) -> Fold:
    def rule(site: Site, knowns: Knowns) -> Known:
        data = knowns[0]
        axes = site.axes(1, data.ndim, since)
        if not axes and site.int_attr("noop_with_empty_axes", 0):
            return data
        keep = bool(site.int_attr("keepdims", 1))
        if data.dtype != object:
            return np.asarray(numeric(data, axis=axes or None, keepdims=keep)).astype(data.dtype)
        if data.ndim != 1 or not data.size:
            raise UndecidedError
        total = data[0]
        for v in data[1:]:
            total = symbolic(site.sizes, total, v)
        out = np.empty(1, dtype=object)
        out[0] = total
        return out.reshape((1,) if keep else ())

    return rule


def _numbers(known: Known) -> np.ndarray:
    if known.dtype == object:
        raise UndecidedError
    return known


def _small(shape: Any) -> tuple[int, ...]:
    sizes = tuple(int(d) for d in shape)
    if int(np.prod(sizes, dtype=object)) > LARGEST_KNOWN:
        raise UndecidedError
    return sizes


def _identity(site: Site, knowns: Knowns) -> Known:
    return knowns[0]


FOLDS: Final[Mapping[str, Fold]] = {
    "Neg": _unary(np.negative, lambda z, a: -a),
    "Abs": _unary(np.abs, _abs),
    "Floor": _unary(np.floor, lambda z, a: a.floor()),
    "Ceil": _unary(np.ceil, lambda z, a: a.ceil()),
    "Reciprocal": _unary(np.reciprocal, lambda z, a: _div(z, ratio_of(1.0, f32), a)),
    "Add": _binary(np.add, lambda z, a, b: a + b),
    "Sub": _binary(np.subtract, lambda z, a, b: a - b),
    "Mul": _binary(np.multiply, lambda z, a, b: a * b),
    "Div": _binary(_truncdiv, _div),
    "Mod": _mod,
    "Min": _binary(np.minimum, _least),
    "Max": _binary(np.maximum, _greatest),
    "Equal": _compare(np.equal, _equal),
    "Less": _compare(np.less, _less),
    "Greater": _compare(np.greater, lambda z, a, b: _less(z, b, a)),
    "LessOrEqual": _compare(np.less_equal, lambda z, a, b: not _less(z, b, a)),
    "GreaterOrEqual": _compare(np.greater_equal, lambda z, a, b: not _less(z, a, b)),
    "Cast": _cast,
    "CastLike": _cast,
    "Identity": _identity,
    "Shape": _shape,
    "Size": _size,
    "Gather": _gather,
    "GatherND": _gather_nd,
    "ScatterND": _scatter_nd,
    "Slice": _slice,
    "Concat": _concat,
    "Reshape": _reshape,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Flatten": _flatten,
    "Expand": _expand,
    "Tile": _tile,
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "Where": _where,
    "OneHot": _one_hot,
    "NonZero": _nonzero,
    "ReduceProd": _reduce(np.prod, lambda z, a, b: a * b, 18),
    "ReduceSum": _reduce(np.sum, lambda z, a, b: a + b, 13),
    "ReduceMax": _reduce(np.max, _greatest, 18),
    "ReduceMin": _reduce(np.min, _least, 18),
}

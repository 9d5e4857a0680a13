"""Fourier transforms: in steps where the length is known and has small prime factors
(`ops.fourier`), else as products with matrices of roots of one.

    fft     y[k] = sum over n of x[n] * exp(-2 pi i n k / length)
    stft    the same of windows that slide along a signal; istft adds such windows up again

Products have both parts in one: concat(re, im) by [[cos, -sin], [sin, cos]]. A long transform, of
a * b elements, is made of some of a and of b.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from pliant.base.dtypes import DType, i64
from pliant.base.errors import UnsupportedError
from pliant.frontend.torch.complex_parts import Parts, parts_of
from pliant.frontend.torch.context import Context, Lowering, Table, axis_of
from pliant.frontend.torch.lower_complex import conj, product, view_as_real
from pliant.frontend.torch.lower_shape import expand, movedim, roll, slice_axis
from pliant.frontend.torch.promote import floating
from pliant.graph.function import Value
from pliant.ops.fourier import pays
from pliant.sym.expr import Int, as_int

MOST: Final = 1 << 26
"""Elements of a matrix that is made while importing."""

LONG: Final = 1024
"""Elements from which on a transform is made of shorter ones, where it can be."""

_POWERS: Final = {None: (0.0, 1.0), "backward": (0.0, 1.0), "ortho": (0.5, 0.5),
                  "forward": (1.0, 0.0)}  # fmt: skip
"""A transform, and an inverse one, is divided by that power of its length."""


# ---- one axis


def _transform(ctx: Context, x: Any, axis: int, n: Int, bins: Int, *, inverse: bool) -> Parts:
    """`bins` of the transform of the first `n` elements along an axis, not scaled."""
    x = _each(_floats(ctx, x), lambda v: _fitted(ctx, v, axis, n))
    if pays(x.shape, axis, n):
        return _in_steps(ctx, x, axis, bins, inverse=inverse)
    x = _each(x, lambda v: movedim(ctx, v, axis, -1))
    found = _along_rows(ctx, x, n, bins, inverse=inverse)
    return found.map(lambda v: movedim(ctx, v, -1, axis))


def _in_steps(ctx: Context, x: Any, axis: int, bins: Int, *, inverse: bool) -> Parts:
    """Of a length that is known and has small prime factors."""
    n = x.shape[axis]
    if not isinstance(x, Parts) and not inverse and bins == n // 2 + 1:
        return Parts(*ctx.call("fourier_of_reals", x, axis=axis))
    re, im = (x.re, x.im) if isinstance(x, Parts) else (x, None)
    y = Parts(*ctx.call("fourier", re, im, axis=axis, inverse=inverse))
    return y if bins == n else y.map(lambda v: slice_axis(ctx, v, axis, 0, bins))


def _along_rows(ctx: Context, x: Any, n: Int, bins: Int, *, inverse: bool) -> Parts:
    divisor = _divisor(n)
    if divisor > 1:
        y = _of_shorter(ctx, x, divisor, n.value // divisor, inverse=inverse)
        return y if bins == n else y.map(lambda v: slice_axis(ctx, v, len(v.shape) - 1, 0, bins))
    cos, sin = _roots(ctx, n, bins, n, _type(x))
    up, down = (sin, _neg(ctx, sin)) if inverse else (_neg(ctx, sin), sin)
    matrix = _beside(ctx, cos, up, 1)
    if isinstance(x, Parts):
        matrix = _beside(ctx, matrix, _beside(ctx, down, cos, 1), 0)
        x = ctx.call("concat", (x.re, x.im), axis=len(x.shape) - 1)
    y = ctx.call("matmul", x, _value(ctx, matrix, x.dtype))
    last = len(y.shape) - 1
    return Parts(slice_axis(ctx, y, last, 0, bins), slice_axis(ctx, y, last, bins, 2 * bins))


def _divisor(n: Int) -> int:
    """The one nearest below the root of a length that is long; 1 of a prime one, and of others."""
    if not n.is_const or n.value < LONG:
        return 1
    return next(d for d in range(math.isqrt(n.value), 0, -1) if n.value % d == 0)


def _of_shorter(ctx: Context, x: Any, a: int, b: int, *, inverse: bool) -> Parts:
    """y[k + a*l] = sum over j of z[k, j] * root_n[j*k] * root_b[j*l],
    z[k, j] = sum over i of x[b*i + j] * root_a[i*k]."""
    *before, n = x.shape
    rank = len(before) + 2
    x = _each(x, lambda v: ctx.call("reshape", v, shape=(*before, as_int(a), as_int(b))))
    y = _transform(ctx, x, rank - 2, as_int(a), as_int(a), inverse=inverse)
    cos, sin = _roots(ctx, as_int(a), as_int(b), n, y.re.dtype)
    turns = Parts(cos, sin if inverse else -sin).map(lambda v: _value(ctx, v, y.re.dtype))
    y = product(ctx, lambda v, w: ctx.call("mul", v, w), y, turns)
    y = _along_rows(ctx, y, as_int(b), as_int(b), inverse=inverse)
    y = y.map(lambda v: movedim(ctx, v, -1, -2))
    return y.map(lambda v: ctx.call("reshape", v, shape=(*before, n)))


def _back_to_real(ctx: Context, x: Any, axis: int, n: Int) -> Value:
    """`n` real numbers of whose transform these are the first n // 2 + 1 elements, not scaled."""
    x = parts_of(ctx, _floats(ctx, x))
    rank, given = len(x.shape), n // 2 + 1
    x = x.map(lambda v: _fitted(ctx, v, axis, given))
    if pays(x.shape, axis, n):
        return ctx.call("fourier_to_reals", x.re, x.im, axis=axis, n=n.value)  # type: ignore[no-any-return]
    x = x.map(lambda v: movedim(ctx, v, axis, -1))
    if _divisor(n) > 1:
        y = _along_rows(ctx, _mirrored(ctx, x, n), n, n, inverse=True).re
        return movedim(ctx, y, -1, axis)  # type: ignore[no-any-return]
    cos, sin = _roots(ctx, given, n, n, x.re.dtype)
    times = _times(ctx, given, n, x.re.dtype)
    matrix = _beside(ctx, _mul(ctx, cos, times), _neg(ctx, _mul(ctx, sin, times)), 0)
    both = ctx.call("concat", (x.re, x.im), axis=rank - 1)
    y = ctx.call("matmul", both, _value(ctx, matrix, x.re.dtype))
    return movedim(ctx, y, -1, axis)  # type: ignore[no-any-return]


def _mirrored(ctx: Context, x: Parts, n: Int) -> Parts:
    """With the conjugates that follow, of real numbers' transforms: the imaginary parts of the
    first and of the middle element do not count."""
    axis, given = len(x.shape) - 1, x.shape[-1]
    rest = x.map(lambda v: slice_axis(ctx, v, axis, 1, n - given + 1))
    rest = conj(ctx, rest.map(lambda v: ctx.call("flip", v, axes=(axis,))))
    own = [k for k in (0, n.value / 2) if k == int(k)]
    counts = np.ones(given.value)
    counts[np.asarray(own, dtype=int)] = 0
    im = ctx.call("mul", x.im, _value(ctx, counts, x.im.dtype))
    return Parts(
        ctx.call("concat", (x.re, rest.re), axis=axis), ctx.call("concat", (im, rest.im), axis=axis)
    )


def _times(ctx: Context, given: Int, n: Int, dtype: DType) -> Any:
    """How often each of the first elements counts: the others are their conjugates."""
    if n.is_const:
        known = np.arange(given.value)
        return np.where((known == 0) | (2 * known == n.value), 1.0, 2.0)[:, None]
    k = _places(ctx, given, 0)
    twice = ctx.call("mul", k, ctx.scalar(2, i64))
    single = ctx.call(
        "or",
        ctx.call("eq", k, ctx.scalar(0, i64)),
        ctx.call("eq", twice, ctx.tensor(n, i64)),
    )
    return ctx.call("where", single, ctx.scalar(1, dtype), ctx.scalar(2, dtype))


def _roots(ctx: Context, rows: Int, columns: Int, n: Int, dtype: DType) -> tuple[Any, Any]:
    """cos and sin of 2 pi r c / n, [rows, columns]: arrays where the sizes are known."""
    if rows.is_const and columns.is_const and n.is_const:
        if rows.value * columns.value > MOST:
            raise UnsupportedError(f"a transform of {n.value} elements is too long")
        turns = np.outer(np.arange(rows.value), np.arange(columns.value)) % max(n.value, 1)
        angles = 2 * math.pi / max(n.value, 1) * turns
        return np.cos(angles), np.sin(angles)
    turns = ctx.call("mul", _places(ctx, rows, 0), _places(ctx, columns, 1))
    rest = ctx.call("floormod", turns, ctx.call("max", ctx.tensor(n, i64), ctx.scalar(1, i64)))
    share = ctx.call("div", ctx.cast(rest, dtype), ctx.tensor(n, dtype))
    angle = ctx.call("mul", share, ctx.scalar(2 * math.pi, dtype))
    return ctx.call("cos", angle), ctx.call("sin", angle)


# ---- arrays while they are known, values from there on


def _beside(ctx: Context, a: Any, b: Any, axis: int) -> Any:
    if isinstance(a, np.ndarray):
        return np.concatenate([a, b], axis)
    return ctx.call("concat", (a, b), axis=axis)


def _neg(ctx: Context, a: Any) -> Any:
    return -a if isinstance(a, np.ndarray) else ctx.call("neg", a)


def _mul(ctx: Context, a: Any, b: Any) -> Any:
    return a * b if isinstance(a, np.ndarray) else ctx.call("mul", a, b)


def _value(ctx: Context, a: Any, dtype: DType) -> Value:
    if isinstance(a, np.ndarray):
        return ctx.builder.weight("roots", a.astype(dtype.numpy))
    return a  # type: ignore[no-any-return]


# ---- shapes


def _each(x: Any, function: Any) -> Any:
    return x.map(function) if isinstance(x, Parts) else function(x)


def _type(x: Any) -> DType:
    return x.re.dtype if isinstance(x, Parts) else x.dtype  # type: ignore[no-any-return]


def _floats(ctx: Context, x: Any) -> Any:
    return _each(x, lambda v: ctx.cast(v, floating(v.dtype)))


def _places(ctx: Context, size: Int, axis: int) -> Value:
    """0, 1, … along one axis of two."""
    line = ctx.call("iota", size=size, start=0, step=1, dtype=i64)
    return ctx.call("unsqueeze", line, axes=(1 - axis,))  # type: ignore[no-any-return]


def _fitted(ctx: Context, x: Value, axis: int, n: Int) -> Value:
    """Cut, or with zeros behind."""
    if x.shape[axis] == n:
        return x
    pads = [(as_int(0), as_int(0))] * len(x.shape)
    pads[axis] = (as_int(0), n - x.shape[axis])
    return ctx.call("pad", x, pads=tuple(pads), mode="constant", value=0)  # type: ignore[no-any-return]


def _scaled(ctx: Context, x: Any, n: Int, norm: str | None, *, inverse: bool) -> Any:
    if norm not in _POWERS:
        raise UnsupportedError(f"the norm {norm!r}: it is backward, ortho or forward")
    power = _POWERS[norm][inverse]
    if not power:
        return x
    dtype = _type(x)
    if n.is_const:
        factor = ctx.scalar(float(max(n.value, 1)) ** -power, dtype)
        return _each(x, lambda v: ctx.call("mul", v, factor))
    size = ctx.tensor(n, dtype)
    size = size if power == 1 else ctx.call("sqrt", size)
    return _each(x, lambda v: ctx.call("div", v, size))


# ---- the operators


def _sizes(
    x: Any, s: Sequence[Any] | None, dim: Sequence[int] | None, last: int | None
) -> tuple[list[int], list[Int]]:
    """The axes, and as many elements as are taken of each; -1 stands for all."""
    rank = len(x.shape)
    if dim is None:
        many = len(s) if s is not None else last or rank
        dim = range(rank - many, rank)
    axes = [axis_of(d, rank) for d in dim]
    if s is None:
        return axes, [x.shape[a] for a in axes]
    if len(s) != len(axes):
        raise UnsupportedError(f"{len(s)} sizes for {len(axes)} axes")
    given = [as_int(n) for n in s]
    return axes, [x.shape[a] if n == -1 else n for a, n in zip(axes, given, strict=True)]


def _along_each(
    ctx: Context, x: Any, axes: Sequence[int], sizes: Sequence[Int], norm: Any, *, inverse: bool
) -> Any:
    """One axis after another."""
    for axis, n in zip(axes, sizes, strict=True):
        x = _transform(ctx, x, axis, n, n, inverse=inverse)
        x = _scaled(ctx, x, n, norm, inverse=inverse)
    return x


def _many(inverse: bool, default: int | None) -> Lowering:
    """fft2, ifftn and the like."""

    def rule(ctx: Context, x: Any, s: Any = None, dim: Any = None, norm: Any = None) -> Any:
        axes, sizes = _sizes(x, s, dim, default)
        y = parts_of(ctx, _floats(ctx, x)) if not axes else x
        return _along_each(ctx, y, axes, sizes, norm, inverse=inverse)

    return rule


def _many_of_reals(default: int | None, *, symmetric: bool = False) -> Lowering:
    """rfft2, rfftn: half of the last axis, then the others. Inversely ihfft2, ihfftn, whose last
    axis are the conjugates of such a half."""

    def rule(ctx: Context, x: Any, s: Any = None, dim: Any = None, norm: Any = None) -> Any:
        (*others, last), (*sizes, n) = _sizes(x, s, dim, default)
        y = _transform(ctx, x, last, n, n // 2 + 1, inverse=False)
        y = conj(ctx, y) if symmetric else y
        y = _scaled(ctx, y, n, _swapped(norm) if symmetric else norm, inverse=False)
        return _along_each(ctx, y, others, sizes, norm, inverse=symmetric)

    return rule


def _many_to_reals(default: int | None, *, symmetric: bool = False) -> Lowering:
    """irfft2, irfftn: back along the others, then to reals along the last axis. Forwards hfft2,
    hfftn, of half of a signal whose other half are its conjugates."""

    def rule(ctx: Context, x: Any, s: Any = None, dim: Any = None, norm: Any = None) -> Any:
        (*others, last), (*sizes, n) = _sizes(x, s, dim, default)
        if s is None or as_int(s[-1]) == -1:
            n = 2 * (x.shape[last] - 1)
        y = _along_each(ctx, x, others, sizes, norm, inverse=not symmetric)
        y = conj(ctx, parts_of(ctx, _floats(ctx, y))) if symmetric else y
        y = _back_to_real(ctx, y, last, n)
        return _scaled(ctx, y, n, _swapped(norm) if symmetric else norm, inverse=True)

    return rule


def _swapped(norm: str | None) -> str | None:
    return {None: "forward", "backward": "forward", "forward": "backward"}.get(norm, norm)


def _one(many: Lowering) -> Lowering:
    """fft, ifft, rfft, irfft: along one axis."""

    def rule(ctx: Context, x: Any, n: Any = None, dim: int = -1, norm: Any = None) -> Any:
        return many(ctx, x, None if n is None else (n,), (dim,), norm)

    return rule


def _shifted(inverse: bool) -> Lowering:
    """The zeroth element goes to the middle, or back."""

    def rule(ctx: Context, x: Any, dim: Any = None) -> Any:
        rank = len(x.shape)
        axes = range(rank) if dim is None else [dim] if isinstance(dim, int) else dim
        shifts = [x.shape[a] // 2 if not inverse else (x.shape[a] + 1) // 2 for a in axes]
        return _each(x, lambda v: roll(ctx, v, shifts, list(axes)))

    return rule


def stft(
    ctx: Context, x: Any, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
    window: Any = None, normalized: bool = False, onesided: bool | None = None,
    return_complex: bool | None = None, align_to_window: bool | None = None,
) -> Any:  # fmt: skip
    """[batch, length] to [batch, bins, frames]."""
    hop = hop_length or n_fft // 4
    frames = _each(x, lambda v: ctx.call(
        "unfold", v, axis=len(v.shape) - 1, size=n_fft, step=hop
    ))  # fmt: skip
    frames = _floats(ctx, frames)
    shape = _window(ctx, window, n_fft, win_length, _type(frames))
    if shape is not None:
        frames = _each(frames, lambda v: ctx.call("mul", *ctx.promoted(v, shape)))
    n = as_int(n_fft)
    half = onesided if onesided is not None else not isinstance(x, Parts)
    last = len(frames.shape) - 1
    y = _transform(ctx, frames, last, n, n // 2 + 1 if half else n, inverse=False)
    y = _scaled(ctx, y, n, "ortho" if normalized else None, inverse=False)
    y = y.map(lambda v: movedim(ctx, v, -1, -2))
    return y if return_complex else view_as_real(ctx, y)


def istft(
    ctx: Context, x: Parts, n_fft: int, hop_length: int | None = None,
    win_length: int | None = None, window: Any = None, center: bool = True,
    normalized: bool = False, onesided: bool | None = None, length: Any = None,
    return_complex: bool = False,
) -> Any:  # fmt: skip
    """[batch, bins, frames] to [batch, length]: frames times the window, added up, over what the
    squares of the window add up to."""
    n, hop, rank = as_int(n_fft), hop_length or n_fft // 4, len(x.shape)
    turned = x.map(lambda v: movedim(ctx, v, -1, -2))
    if onesided if onesided is not None else not return_complex:
        frames: Any = _back_to_real(ctx, turned, rank - 1, n)
    else:
        frames = _transform(ctx, turned, rank - 1, n, n, inverse=True)
        frames = frames if return_complex else frames.re
    frames = _scaled(ctx, frames, n, "ortho" if normalized else None, inverse=True)
    dtype = _type(frames)
    shape = _window(ctx, window, n_fft, win_length, dtype)
    if shape is None:
        shape = expand(ctx, ctx.scalar(1, dtype), (n,))
    frames = _each(frames, lambda v: ctx.call("mul", *ctx.promoted(v, shape)))
    squares = expand(ctx, ctx.call("mul", shape, shape), (x.shape[-1], n))
    total = _each(frames, lambda v: _added(ctx, v, hop))
    envelope = _added(ctx, squares, hop)
    have = envelope.shape[0]
    start = as_int(n_fft // 2 if center else 0)
    stop = have - start if length is None else start + as_int(length)
    envelope = slice_axis(ctx, _fitted(ctx, envelope, 0, stop), 0, start, stop)

    def finished(v: Value) -> Value:
        axis = len(v.shape) - 1
        cut = slice_axis(ctx, _fitted(ctx, v, axis, stop), axis, start, stop)
        return ctx.call("div", cut, envelope)  # type: ignore[no-any-return]

    return _each(total, finished)


def _window(
    ctx: Context, window: Any, n_fft: int, win_length: int | None, dtype: DType
) -> Value | None:
    """A window in the middle of a frame, zeros around it."""
    length = win_length or n_fft
    if window is None and length == n_fft:
        return None
    shape = expand(ctx, ctx.scalar(1, dtype), (as_int(length),)) if window is None else window
    left = (n_fft - length) // 2
    if n_fft == length:
        return shape  # type: ignore[no-any-return]
    pads = ((as_int(left), as_int(n_fft - length - left)),)
    return ctx.call("pad", shape, pads=pads, mode="constant", value=0)  # type: ignore[no-any-return]


def _added(ctx: Context, frames: Value, hop: int) -> Value:
    """[…, frames, n], each frame `hop` behind the one before, as one signal."""
    *before, count, size = frames.shape
    n, axis = size.value, len(before)
    pieces = -(-n // hop)
    frames = _fitted(ctx, frames, axis + 1, as_int(pieces * hop))
    whole = (count - 1 + pieces) * hop
    total: Any = None
    for k in range(pieces):
        piece = slice_axis(ctx, frames, axis + 1, k * hop, (k + 1) * hop)
        line = ctx.call("reshape", piece, shape=(*before, count * hop))
        pads = [(as_int(0), as_int(0))] * axis
        pads.append((as_int(k * hop), whole - count * hop - k * hop))
        line = ctx.call("pad", line, pads=tuple(pads), mode="constant", value=0)
        total = line if total is None else ctx.call("add", total, line)
    return slice_axis(ctx, total, axis, 0, (count - 1) * hop + n)  # type: ignore[no-any-return]


FFT: Final[Table] = {
    **{
        f"aten.fft_{back}fft{many}.default": _many(bool(back), default)
        for back in ("", "i")
        for many, default in (("2", 2), ("n", None))
    },
    **{
        f"aten.fft_{kind}fft{many}.default": rule(default, symmetric="h" in kind)
        for kind, rule in (
            ("r", _many_of_reals),
            ("ir", _many_to_reals),
            ("h", _many_to_reals),
            ("ih", _many_of_reals),
        )
        for many, default in (("2", 2), ("n", None))
    },
    "aten.fft_fft.default": _one(_many(False, None)),
    "aten.fft_ifft.default": _one(_many(True, None)),
    "aten.fft_rfft.default": _one(_many_of_reals(None)),
    "aten.fft_irfft.default": _one(_many_to_reals(None)),
    "aten.fft_hfft.default": _one(_many_to_reals(None, symmetric=True)),
    "aten.fft_ihfft.default": _one(_many_of_reals(None, symmetric=True)),
    "aten.fft_fftshift.default": _shifted(False),
    "aten.fft_ifftshift.default": _shifted(True),
    "aten.stft.default": stft,
    "aten.istft.default": istft,
}

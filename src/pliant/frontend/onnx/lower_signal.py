"""Fourier transforms, in steps (`ops.fourier`) or as products with matrices of roots of one, and
mel filters.

    DFT     y[k] = sum over n of x[n] * exp(-2 pi i n k / length), complex numbers as pairs
    STFT    the same of windows that slide along a signal

In a product are real and imaginary parts: x [..., length*2] by a matrix [length*2, bins*2].
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from pliant.base.dtypes import DType
from pliant.base.errors import InvalidModelError
from pliant.frontend.onnx.heads import places
from pliant.frontend.onnx.site import Lowering, Site
from pliant.frontend.onnx.tensors import dtype_of
from pliant.graph.function import Value
from pliant.ops.fourier import pays
from pliant.sym.expr import Int, as_int

MOST_ELEMENTS: Final = 1 << 26
"""Of a matrix that is made while importing: transforms of 8192."""

_AXIS_IS_AN_OPERAND: Final = 20


@dataclass(frozen=True)
class Transform:
    """One transform: so many elements become so many bins, each of one part or two."""

    length: Int
    bins: Int
    parts: int  # of an element
    inverse: bool = False
    real: bool = False  # whether a bin has one part

    def matrix(self, s: Site, dtype: DType) -> Value:
        """[length*parts, bins*parts of a bin]."""
        rows, columns = self._given, self.bins
        if rows.is_const and columns.is_const and self.length.is_const:
            _check_size(s, rows.value * columns.value)
            turns = np.outer(np.arange(rows.value), np.arange(columns.value)) % self.length.value
            angles = 2 * math.pi / max(self.length.value, 1) * turns
            whole = self._blocks(np.cos(angles), np.sin(angles))
            if self.inverse:
                whole = whole / max(self.length.value, 1) * self._twice()[:, None]
            return s.weight(whole.astype(dtype.numpy), "roots")
        if self.real:
            raise s.unsupported("the length of a transform back to reals must be known")
        return self._at_run_time(s, dtype)

    @property
    def _given(self) -> Int:
        """How many elements an operand has: half of them where the others follow from these."""
        return self.length // 2 + 1 if self.real else self.length

    def _twice(self) -> np.ndarray:
        """How often each row of the matrix counts, where only half of the elements are given."""
        if not self.real:
            return np.ones(self._given.value * self.parts)
        n = np.arange(self._given.value)
        single = (n == 0) | (2 * n == self.length.value)
        return np.repeat(np.where(single, 1.0, 2.0), self.parts)

    def _blocks(self, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
        sign = 1 if self.inverse else -1
        out = np.stack([cos, sign * sin], -1)  # of the real part
        if self.parts == 2:
            out = np.stack([out, np.stack([-sign * sin, cos], -1)], 1)
        else:
            out = out[:, None]
        if self.real:
            out = out[..., :1]
        rows, parts, columns, wide = out.shape
        return out.reshape(rows * parts, columns * wide)

    def _at_run_time(self, s: Site, dtype: DType) -> Value:
        n, k = places(s, self.length, 2, 0), places(s, self.bins, 2, 1)
        turns = s.call(
            "floormod", s.call("mul", n, k), s.size(s.sizes.greatest(self.length, as_int(1)))
        )
        share = s.call("div", s.cast(turns, dtype), s.size(self.length, dtype))
        angle = s.call("mul", share, s.scalar(2 * math.pi, dtype))
        cos, sin = s.call("cos", angle), s.call("sin", angle)
        minus = s.call("neg", sin)
        up, down = (sin, minus) if self.inverse else (minus, sin)
        blocks = [s.call("stack", (cos, up), axis=2)]
        if self.parts == 2:
            blocks.append(s.call("stack", (down, cos), axis=2))
        whole = s.call("stack", tuple(blocks), axis=1)
        flat = s.reshape(whole, (self.length * self.parts, self.bins * 2))
        return s.call("div", flat, s.size(self.length, dtype)) if self.inverse else flat

    def of(self, s: Site, x: Value, axis: int) -> Value:
        """x [..., length along the axis, ..., parts] -> [..., bins, ..., parts of a bin]."""
        if pays(x.shape[:-1], axis, self.length):
            return self._in_steps(s, x, axis)
        rank, wide = len(x.shape), 1 if self.real else 2
        order = (*(k for k in range(rank) if k not in (axis, rank - 1)), axis, rank - 1)
        x = s.call("transpose", x, perm=order)
        flat = s.reshape(x, (*x.shape[:-2], self._given * self.parts))
        y = s.call("matmul", flat, self.matrix(s, x.dtype))
        y = s.reshape(y, (*x.shape[:-2], self.bins, wide))
        return s.call("transpose", y, perm=tuple(int(k) for k in np.argsort(order)))

    def _in_steps(self, s: Site, x: Value, axis: int) -> Value:
        n, last = self.length.value, len(x.shape) - 1
        parts = [s.reshape(s.part(x, last, k, k + 1), x.shape[:-1]) for k in range(self.parts)]
        if self.real:
            y = [s.call("fourier_to_reals", *parts, axis=axis, n=n)]
        elif self.parts == 1 and self.bins == self.length // 2 + 1:
            y = list(s.call_many("fourier_of_reals", *parts, axis=axis))
        else:
            whole = s.call_many("fourier", *parts, axis=axis, inverse=self.inverse)
            y = [s.part(v, axis, 0, self.bins) for v in whole]
        found = s.call("stack", tuple(y), axis=last)
        return s.call("mul", found, s.scalar(1 / n, x.dtype)) if self.inverse else found


def _check_size(s: Site, elements: int) -> None:
    if elements > MOST_ELEMENTS:
        raise s.unsupported(f"a matrix of {elements} elements for it is too large")


def lower_dft(s: Site) -> Value:
    """Along one axis; of half the bins of a real signal if asked, or back from these."""
    x = s.x(0)
    rank = len(x.shape)
    if rank > 1 and not x.shape[-1].is_const:
        raise s.unsupported("whether its operand is complex must be known")
    if rank < 2 or x.shape[-1] not in (1, 2):
        raise InvalidModelError(f"{s.span}: the last dim of the operand is 1 or 2, not {x.shape}")
    axis = _axis(s, rank)
    parts = x.shape[-1].value
    inverse, half = bool(s.int_attr("inverse", 0)), bool(s.int_attr("onesided", 0))
    back = inverse and half
    if back and parts == 1:
        raise InvalidModelError(f"{s.span}: a transform back to reals wants complex numbers")
    have = x.shape[axis]
    own = 2 * (have - 1) if back else have
    length = s.ints(1, "dft_length")[0] if s.has(1) else own
    wanted = length // 2 + 1 if back else length
    x = _fitted(s, x, axis, wanted)
    bins = length // 2 + 1 if half and not inverse else length
    return Transform(length, bins, parts, inverse, real=back).of(s, x, axis)


def _axis(s: Site, rank: int) -> int:
    if s.opset < _AXIS_IS_AN_OPERAND:
        axis = s.axis("axis", 1, rank=rank)
    else:
        axis = s.positive_axis(s.numbers(2, "axis")[0] if s.has(2) else -2, rank)
    if axis == rank - 1:
        raise InvalidModelError(f"{s.span}: the last dim holds the parts of complex numbers")
    return axis


def _fitted(s: Site, x: Value, axis: int, length: Int) -> Value:
    """`x` cut, or with zeros behind, to a length along an axis."""
    have = x.shape[axis]
    if have == length:
        return x
    pads = [(as_int(0), as_int(0))] * len(x.shape)
    pads[axis] = (as_int(0), length - have)
    return s.call("pad", x, pads=tuple(pads), mode="constant", value=0)


def lower_stft(s: Site) -> Value:
    """Of frames of a signal [batch, length, 1 or 2], each times a window."""
    x = s.x(0)
    if len(x.shape) == 2:
        x = s.call("unsqueeze", x, axes=(2,))
    (step,) = s.numbers(1, "frame_step")
    if s.has(3):
        size = s.ints(3, "frame_length")[0]
    elif s.has(2):
        size = s.item(2).shape[0]
    else:
        raise InvalidModelError(f"{s.span}: neither a window nor a frame_length")
    if not size.is_const or len(x.shape) != 3 or x.shape[2] not in (1, 2) or step < 1:
        raise s.unsupported("the frame length and whether the signal is complex must be known")
    frames = s.call("unfold", x, axis=1, size=size.value, step=step)  # [batch, frames, parts, size]
    frames = s.call("transpose", frames, perm=(0, 1, 3, 2))
    if s.has(2):
        window = s.x(2)
        frames = s.call("mul", frames, s.reshape(window, (*window.shape, 1)))
    bins = size // 2 + 1 if s.int_attr("onesided", 1) else size
    return Transform(size, bins, x.shape[2].value).of(s, frames, 2)


def lower_mel(s: Site) -> Value:
    """Triangles that are equally wide on the mel scale, [bins of a spectrum, mel bins]."""
    mels, length, rate, low, high = (
        s.const(k, n).ravel()[0].item()
        for k, n in enumerate(
            ("num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz")
        )
    )
    bins = length // 2 + 1
    _check_size(s, bins * mels)
    edge = [2595 * np.log1p(f / 700) / np.log(10) for f in (low, high)]
    steps = np.arange(mels + 2) * ((edge[1] - edge[0]) / (mels + 2)) + edge[0]
    hertz = 700 * np.expm1(steps / 2595 * np.log(10))
    at = ((length + 1) * hertz // rate).astype(np.int64)
    out = np.zeros((bins, mels))
    for k in range(mels):
        first, top, last = (int(v) for v in at[k : k + 3])
        rise = np.arange(first, top + 1) if top > first else np.asarray([top])
        values = (rise - first) / (top - first) if top > first else np.ones(1)
        _put(out[:, k], rise, values)
        if last > top:
            fall = np.arange(top, last)
            _put(out[:, k], fall, (last - fall) / (last - top))
    dtype = dtype_of(s.int_attr("output_datatype", 1), "the result")
    return s.weight(out.astype(dtype.numpy), "mel")


def _put(column: np.ndarray, rows: np.ndarray, values: np.ndarray) -> None:
    inside = (rows >= 0) & (rows < len(column))
    column[rows[inside]] = values[inside]


SIGNAL: Final[Mapping[str, Lowering]] = {
    "DFT": lower_dft,
    "MelWeightMatrix": lower_mel,
    "STFT": lower_stft,
}

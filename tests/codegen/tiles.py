"""Tiles for micro-kernels to compute: arguments as code takes them, and what must come out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pliant.base.dtypes import DType, f32
from pliant.codegen.microkernel import MatrixKernel
from pliant.loop.stmt import ABSENT, ZEROS

CANARY = 77


@dataclass
class Tile:
    """One call: `arrays` are a, offsets, other, b, c; `sizes` m, P, K, ldc."""

    mk: MatrixKernel
    arrays: list[np.ndarray]
    sizes: tuple[int, int, int, int]
    columns: int
    a: np.ndarray  # P, m, K; rows that are missing are the other row
    b: np.ndarray  # P, K, columns

    def check(self, c: np.ndarray) -> None:
        """`c` as the kernel left it is right, and nothing was written beside it."""
        m, _, _, ldc = self.sizes
        c = c.reshape(-1, ldc)
        assert (c[m:] == CANARY).all(), "rows beyond m were written"
        assert (c[:, self.mk.columns :] == CANARY).all(), "columns beyond the panel were written"
        got, place = c[:m, : self.columns], f"{self.mk.symbol} {self.sizes}"
        if not self.mk.c.is_float:
            exact = np.einsum("pik,pkj->ij", self.a.astype(np.int64), self.b.astype(np.int64))
            np.testing.assert_array_equal(got, exact.astype(np.int32), place)
            return
        with np.errstate(invalid="ignore"):
            wide = np.float64 if self.mk.c is f32 else np.longdouble
            a, b = self.a.astype(wide), self.b.astype(wide)
            exact = np.einsum("pik,pkj->ij", a, b)
            error = _of_sums(a, b, self.mk.c) + _flushed(a, b, self.mk.c)
        finite = np.isfinite(exact)
        np.testing.assert_array_equal(got[~finite], exact[~finite], place)
        excess = np.abs(got[finite] - exact[finite]) - error[finite]
        assert (excess <= 0).all(), f"{place}: {excess.max()} beyond what rounding explains"


def _of_sums(a: np.ndarray, b: np.ndarray, dtype: DType) -> np.ndarray:
    """The most that a sum of so many terms may be off, in any order."""
    n = a.shape[0] * a.shape[2] + 8
    unit = n * float(np.finfo(dtype.numpy).eps) / 2
    return unit / (1 - unit) * np.einsum("pik,pkj->ij", np.abs(a), np.abs(b))


def _flushed(a: np.ndarray, b: np.ndarray, dtype: DType) -> np.ndarray:
    """The most that is lost where denormal operands and results are taken for zeros."""
    tiny, terms = float(np.finfo(dtype.numpy).tiny), a.shape[0] * a.shape[2]
    both = np.abs(a).sum((0, 2))[:, None] + np.abs(b).sum((0, 1))[None, :]
    return tiny * (both + terms)


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    """Random numbers: all integers of the type, floats of a few magnitudes."""
    if dtype.is_int:
        return rng.integers(dtype.min, int(dtype.max) + 1, shape).astype(dtype.numpy)
    scale = 2.0 ** rng.integers(-6, 7, shape)
    return (rng.standard_normal(shape) * scale).astype(dtype.numpy)


def garbage(shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    """What memory may hold where nobody looks."""
    return np.full(shape, np.nan if dtype.is_float else dtype.max).astype(dtype.numpy)


def tile(
    mk: MatrixKernel, rows: int, depth: int, *, positions: int = 1, columns: int = 0,
    absent: int = 0, a: np.ndarray | None = None, b: np.ndarray | None = None, seed: int = 0,
    beyond: int = 0, elsewhere: int = 0,
) -> Tile:  # fmt: skip
    """A random tile; `absent`: every third row is not there, nor is any of every third position, as
    this entry says: numbers stand for them, or zeros. Rows of the first operand overlap
    and come in no order, and the last ends where its memory ends. Those of a given `a` follow one
    another, so many elements `beyond` each; the last so many, `elsewhere`, in reverse."""
    rng = np.random.default_rng((rows, depth, positions, columns, seed))
    n = columns or mk.columns
    step = max(depth // 2, 1)
    memory = values(rng, (max(positions * rows - 1, 0) * step + depth,), mk.a)
    offsets = rng.permutation(positions * rows).reshape(positions, rows) * step
    if a is not None:
        room = np.concatenate([a, garbage((rows, beyond), mk.a)], axis=1)
        memory = room.reshape(-1)[: rows * (depth + beyond) - beyond]
        order = np.arange(rows)
        order[rows - elsewhere :] = order[rows - elsewhere :][::-1]
        offsets = order[None] * (depth + beyond)
    other = np.zeros(depth, mk.a.numpy) if absent == ZEROS else values(rng, (depth,), mk.a)
    if absent:
        q, i = np.indices(offsets.shape)
        offsets = np.where((q % 3 == 1) | ((q * rows + i) % 3 == 1), absent, offsets)
    right = values(rng, (positions, depth, n), mk.b) if b is None else b.reshape(1, depth, n)
    left = np.zeros((positions, rows, depth), mk.a.numpy)
    for (q, i), o in np.ndenumerate(offsets):
        left[q, i] = other if o < 0 else memory[o : o + depth]
    ldc = mk.columns + 3
    c = np.full((rows + 2, ldc), CANARY, mk.c.numpy)
    arrays = [memory, offsets.astype(np.int64), other, packed(mk, right), c]
    return Tile(mk, arrays, (rows, positions, depth, ldc), n, left, right)


def packed(mk: MatrixKernel, b: np.ndarray) -> np.ndarray:
    """(P, K, n) as a panel (P, ceil(K/group), columns, group), with garbage where it is padded."""
    positions, depth, n = b.shape
    words = -(-depth // mk.group)
    panel = garbage((positions, words * mk.group, mk.columns), mk.b)
    panel[:, :depth, :n] = b
    return panel.reshape(positions, words, mk.group, mk.columns).transpose(0, 1, 3, 2).copy()


def tails(mk: MatrixKernel) -> Iterator[Tile]:
    """All rows, all columns, and depths around every multiple that code may unroll by."""
    for rows in range(1, mk.rows + 1):
        for depth in (0, 1, 2, 3, 4, 5, 7, 9, 16, 17, 33, 67):
            yield tile(mk, rows, depth)
    for columns in range(1, mk.columns + 1):
        yield tile(mk, mk.rows, 9, columns=columns)
    for rows in range(1, mk.rows + 1):
        for depth in (0, 1, 6, 70):
            for absent in (ABSENT, ZEROS):
                yield tile(mk, rows, depth, positions=4, absent=absent)
    yield tile(mk, 2, 5, positions=0)


def evenly_apart(mk: MatrixKernel) -> Iterator[Tile]:
    """Rows of a matrix, some of a greater one; and such of which the last 16 are elsewhere."""
    for rows in (1, 2, mk.rows // 2, mk.rows // 2 + 1, mk.rows - 1, mk.rows):
        for depth in (31, 32, 64, 70, 130):
            a = values(np.random.default_rng(depth), (rows, depth), mk.a)
            yield tile(mk, rows, depth, a=a)
            yield tile(mk, rows, depth, a=a, beyond=3)
            yield tile(mk, rows, depth, a=a, elsewhere=16)
    for rows in (min(3, mk.rows), mk.rows):
        for depth in (256, 600):
            a = values(np.random.default_rng(depth), (rows, depth), mk.a)
            yield tile(mk, rows, depth, a=a)
            yield tile(mk, rows, depth, a=a, elsewhere=16)
            yield tile(mk, rows, depth, positions=3, absent=ZEROS)


def extremes(mk: MatrixKernel) -> Iterator[Tile]:
    """The greatest products, and sums that wrap (integers) or are no numbers (floats)."""
    if mk.c.is_float:
        for special in (np.inf, np.nan):
            for at in (0, 8):
                a = np.ones((mk.rows, 9), mk.a.numpy)
                b = np.ones((9, mk.columns), mk.b.numpy)
                a[0, at], b[at, 1] = special, -special
                yield tile(mk, mk.rows, 9, a=a, b=b)
        tiny = np.full((2, 7), 2.0**-130).astype(mk.a.numpy)
        yield tile(mk, 2, 7, a=tiny, b=np.full((7, mk.columns), 2.0**20).astype(mk.b.numpy))
        yield tile(mk, 2, 7, a=tiny, b=np.full((7, mk.columns), 2.0**-20).astype(mk.b.numpy))
        return
    for x in (mk.a.min, mk.a.max):
        for y in (mk.b.min, mk.b.max):
            for depth in (1, 4, 7, 70_001):  # the last: 70001 * 255 * 128 is more than 2**31
                rows = 2 if depth > 7 else mk.rows
                a = np.full((rows, depth), x, mk.a.numpy)
                yield tile(mk, rows, depth, a=a, b=np.full((depth, mk.columns), y, mk.b.numpy))

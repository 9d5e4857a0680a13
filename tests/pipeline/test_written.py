"""Tensor programs compile like models: called with arrays, checked, saved and loaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import pliant
from pliant.graph.builder import Builder
from pliant.language import exp, f32, grid, i32, i64, sizes, sqrt
from pliant.ops.table import OPERATORS
from pliant.schedule.errors import SchedulingError
from pliant.schedule.program import Program
from pliant.sym.expr import var

n, k, m = sizes("n k m")
RNG = np.random.default_rng(3)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pliant.program
def product(c: f32[n, m], a: f32[n, k], b: f32[k, m]):
    """Outputs may come first."""
    for i, j in grid(n, m):
        c[i, j] = sum(a[i, r] * b[r, j] for r in grid(k))


@pliant.program
def softmax(x: f32[n, k], y: f32[n, k], top: f32[n]):
    e = alloc(f32[n, k], scope="scratch")  # noqa: F821
    total = alloc(f32[n], scope="scratch")  # noqa: F821
    for i in grid(n):
        top[i] = max(x[i, r] for r in grid(k))
        for j in grid(k):
            e[i, j] = exp(x[i, j] - top[i])
        total[i] = sum(e[i, r] for r in grid(k))
        for j in grid(k):
            y[i, j] = e[i, j] / total[i]


def scheduled_product() -> Program:
    p = product.split("i", 4).split("j", 16)
    return p.reorder("i_0", "j_0", "i_1", "r", "j_1").vectorize("j_1").parallel("i_0")


@pytest.mark.parametrize("p", [product, scheduled_product()])
@pytest.mark.parametrize("shape", [(3, 5, 4), (1, 1, 1), (17, 3, 33), (0, 2, 3), (4, 0, 5)])
def test_a_program_is_compiled_once_for_all_shapes(p: Program, shape: tuple[int, ...]) -> None:
    a, b = floats(shape[0], shape[1]), floats(shape[1], shape[2])
    f = pliant.compile(p)
    np.testing.assert_allclose(f(a, b), a @ b, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(f(a, b), p.run(a, b), rtol=1e-4, atol=1e-5)
    assert f.stats()["compiles"] == 1


def test_it_takes_torch_tensors_buffers_and_names() -> None:
    f = pliant.compile(product)
    a, b, out = torch.randn(3, 5), torch.randn(5, 2), torch.empty(3, 2)
    assert isinstance(f(a, b), torch.Tensor)
    assert f(a, b, out=out) is out
    torch.testing.assert_close(out, a @ b)
    assert set(f.run({"a": a, "b": b})) == {"c"}
    torch.testing.assert_close(f(a.T.contiguous().T, b), a @ b)  # any strides


def test_several_results_come_as_a_tuple() -> None:
    x = floats(4, 7)
    y, top = pliant.compile(softmax)(x)
    np.testing.assert_allclose(y.sum(1), np.ones(4), rtol=1e-5)
    np.testing.assert_array_equal(top, x.max(1))
    want, _ = softmax.run(x)
    np.testing.assert_allclose(y, want, rtol=1e-5)


def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    f = pliant.compile(scheduled_product())
    f.save(tmp_path / "product.so")
    g = pliant.load(tmp_path / "product.so")
    a, b = floats(9, 4), floats(4, 20)
    np.testing.assert_array_equal(g(a, b), f(a, b))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ((floats(3, 4), floats(5, 2)), "b: dim 0 must be k = 4, got 5"),
        ((floats(3), floats(5, 2)), "a"),
        ((floats(3, 4).astype(np.float64), floats(4, 2)), "a"),
        ((floats(3, 4),), "product"),
    ],
)
def test_what_does_not_fit_is_refused(arrays: tuple[np.ndarray, ...], message: str) -> None:
    with pytest.raises(pliant.ShapeError, match=message):
        pliant.compile(product)(*arrays)
    with pytest.raises(pliant.ShapeError):
        product.run(*arrays)


@pliant.program(dims={"n": pliant.Dim(min=4, max=64, multiple=4)})
def halves(x: f32[n], y: f32[n]):
    for i in grid(n):
        y[i] = x[i] * 0.5


def test_what_a_schedule_takes_for_granted_is_checked() -> None:
    p = halves.split("i", 4, tail="exact").vectorize("i_1")
    f = pliant.compile(p, dims={"n": pliant.Dim(max=32)})
    np.testing.assert_array_equal(f(np.ones(8, np.float32)), np.full(8, 0.5, np.float32))
    for size, message in ((6, "multiple of 4"), (0, "at least 4"), (36, "at most 32")):
        with pytest.raises(pliant.ShapeError, match=message):
            f(floats(size))
    with pytest.raises(pliant.ShapeError, match="must be a multiple of 4"):
        p.run(floats(6))
    with pytest.raises(pliant.ShapeError, match="halves has no size 'q'; its sizes are: n"):
        pliant.compile(p, dims={"q": pliant.Dim()})


@pliant.program
def shifted(x: f32[2 * n + 1], y: f32[n + 3]):
    for i in grid(n + 3):
        y[i] = x[min(i, 2 * n)]


def test_sizes_follow_from_linear_extents() -> None:
    x = floats(9)
    want = x[np.minimum(np.arange(7), 8)]
    np.testing.assert_array_equal(shifted.run(x), want)
    f = pliant.compile(shifted)
    np.testing.assert_array_equal(f(x), want)
    with pytest.raises(pliant.ShapeError):
        f(floats(8))


def accumulates(x: f32[n], y: f32[n]):
    for i in grid(n):
        y[i] += x[i]


def nothing(x: f32[n]):
    pass


def open_size(x: f32[n], y: f32[m]):
    for i in grid(m):
        y[i] = x[0]


def steps(x: f32[n], y: f32[n], count: i64):
    for i in grid(n):
        y[i] = x[i] * f32(count)


def first_half(x: f32[n], y: f32[n]):
    for i in grid(n // 2):
        y[i] = x[i]


def but_the_first(x: f32[n], y: f32[n, 2]):
    for i in grid(n - 1):
        y[i + 1, 0] = x[i]
        y[i + 1, 1] = x[i]


def no_corner(x: f32[n, m], y: f32[n, m]):
    for i, j in grid(n, m - 1):
        y[i, j] = x[i, j]


def past_the_end(x: f32[n], y: f32[n]):
    for i in grid(n):
        y[i] = 0.5 * (x[i] + x[i + 1])


def before_the_start(x: f32[n, m], y: f32[n, m]):
    for i, j in grid(n, m):
        y[i, j] = x[i, j - 2]


def stored_past_the_end(x: f32[n], y: f32[n]):
    for i in grid(n):
        y[i + 1] = x[i]


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (past_the_end, "index n of dim 0 of x is outside of 0 to n - 1"),
        (before_the_start, "index -2 of dim 1 of x is outside of 0 to m - 1"),
        (stored_past_the_end, "index n of dim 0 of y is outside of 0 to n - 1"),
        (first_half, r"y is written up to n//2 of the n along dim 0"),
        (but_the_first, "y is written from index 1 of dim 0 on, not before"),
        (no_corner, r"y is written up to m - 1 of the m along dim 1"),
        (accumulates, "y is read before it is written"),
        (nothing, "it stores into none of its parameters"),
        (open_size, "the size m does not follow from the shapes of its inputs"),
        (steps, "the size count does not follow"),
    ],
)
def test_what_is_no_function_of_arrays_is_refused(fn: object, message: str) -> None:
    p = pliant.program(fn)  # type: ignore[call-overload]
    with pytest.raises(pliant.InvalidModelError, match=message):
        pliant.compile(p)
    with pytest.raises(pliant.InvalidModelError, match=message):
        p.run(floats(3))


@pliant.program
def triangle(x: f32[n, n], y: f32[n, n]):
    for i in grid(n):
        for j in grid(i + 1):
            y[i, j] = x[i, j]


def test_what_is_not_stored_is_anything() -> None:
    """Only margins are proved never to be stored; running the program shows the rest."""
    x, below = floats(4, 4), np.tril(np.ones((4, 4), bool))
    np.testing.assert_array_equal(pliant.compile(triangle)(x)[below], x[below])


COLUMNS = int(next(iter(product.intrinsics)).split("x")[1])  # of the target's tile


@pliant.program
def tile(a: f32[n, k], b: f32[k, COLUMNS], c: f32[n, COLUMNS]):
    for i, j in grid(n, COLUMNS):
        c[i, j] = sum(a[i, r] * b[r, j] for r in grid(k))


def test_a_program_may_call_an_intrinsic_of_the_target() -> None:
    p = with_intrinsic(tile, TILE_ROWS)
    a, b = floats(13, 6), floats(6, COLUMNS)
    np.testing.assert_allclose(p.run(a, b), a @ b, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(pliant.compile(p)(a, b), a @ b, rtol=1e-4, atol=1e-5)
    if next(iter(p.intrinsics)) == "pl_mm_f32_14x32":
        with pytest.raises(pliant.InvalidModelError, match="tile calls pl_mm_f32_14x32, which"):
            pliant.compile(p, target="x86-64-avx2")


TILE_ROWS = dict(next(i for n, i in tile.intrinsics.items() if n.endswith("_plain")).most)["m"]


def test_a_tile_that_is_too_large_for_an_intrinsic_is_refused() -> None:
    """It jumps to code for the number of rows: beyond the last there is none."""
    with pytest.raises(SchedulingError, match=f"_plain does at most m = {TILE_ROWS}, here m is"):
        with_intrinsic(tile, TILE_ROWS + 1)


def with_intrinsic(p: Program, rows: int) -> Program:
    p = p.split("i", rows, tail="clip").reorder("i_0", "i_1", "j", "r")
    p = p.add_unit_loop("r")
    (position,) = p.made
    p = p.cache_index("c", "a", "i_0", "r", (position, "i_1"))
    p = p.decompose_reduction("c", position)
    return p.tensorize("i_1", next(i for i in p.intrinsics if i.endswith("_plain")))


def test_integers_and_other_types_work() -> None:
    @pliant.program
    def counts(x: i32[n], y: i32[3]):
        for c in grid(3):
            y[c] = sum(i32(x[i] == i32(c)) for i in grid(n))

    x = RNG.integers(0, 3, 50).astype(np.int32)
    np.testing.assert_array_equal(pliant.compile(counts)(x), np.bincount(x, minlength=3))


@pliant.program
def added(x: f32[n], z: f32[m], y: f32[n]):
    for i in grid(n):
        y[i] = x[i] + z[i]


@pliant.program
def windows(x: f32[n], z: f32[m], y: f32[n]):
    for i in grid(n):
        y[i] = x[i] + (z[i] + z[i + 2])


@pliant.program
def scaled_columns(x: f32[n, k], z: f32[m], y: f32[n, k]):
    for i, j in grid(n, k):
        y[i, j] = x[i, j] * z[j]


@pliant.program
def lower_left(x: f32[n, m], y: f32[n]):
    for i in grid(n):
        y[i] = 0.0
        for j in grid(i):
            y[i] += x[i, j]


@pliant.program
def from_the_end(x: f32[n], z: f32[m], y: f32[n]):
    for i in grid(n):
        y[i] = x[i] - z[m - 1 - i]


@pliant.program
def first_of(x: f32[n], z: f32[m], y: f32[m]):
    for i in grid(n):
        y[i] = x[i]


@pytest.mark.parametrize(
    ("p", "bad", "good", "text"),
    [
        (added, [(5,), (3,)], [(5,), (5,)], r"dim 0 of z must be at least n \(n is 5, m is 3\)"),
        (added, [(1,), (0,)], [(0,), (0,)], "dim 0 of z must be at least n"),
        (windows, [(5,), (6,)], [(5,), (7,)], r"dim 0 of z must be at least n \+ 2"),
        (windows, [(1,), (2,)], [(0,), (0,)], r"dim 0 of z must be at least n \+ 2"),
        (scaled_columns, [(2, 3), (2,)], [(0, 3), (2,)], "dim 0 of z must be at least k"),
        (lower_left, [(4, 2)], [(4, 3)], "dim 1 of x must be at least n - 1"),
        (lower_left, [(2, 0)], [(1, 0)], "dim 1 of x must be at least n - 1"),
        (from_the_end, [(4,), (3,)], [(3,), (4,)], "index m - n of dim 0 of z must be at least 0"),
        (first_of, [(4,), (3,)], [(3,), (3,)], r"dim 0 of y must be at least n \(n is 4, m is 3"),
    ],
)
def test_indices_of_one_size_into_a_buffer_of_another(
    p: Program, bad: list[tuple[int, ...]], good: list[tuple[int, ...]], text: str
) -> None:
    """They went out of memory; nothing is asked where no iteration has them."""
    f = pliant.compile(p)
    with pytest.raises(pliant.ShapeError, match=text):
        f(*(floats(*s) for s in bad))
    with pytest.raises(pliant.ShapeError, match=text.split(r" \(")[0]):
        p.run(*(floats(*s) for s in bad))
    arrays = [floats(*s) for s in good]
    np.testing.assert_allclose(f(*arrays), p.run(*arrays), rtol=1e-5, atol=1e-5)


def test_demands_stay_with_schedules_and_graphs() -> None:
    p = added.split("i", 8).vectorize("i_1").parallel("i_0")
    with pytest.raises(pliant.ShapeError, match=r"dim 0 of z must be at least n \(n is 9, m is 8"):
        pliant.compile(p)(floats(9), floats(8))
    b = Builder("twice", OPERATORS)
    x, z = b.param("x", f32, (var("n") + 2,)), b.param("z", f32, (var("n"),))
    with pytest.raises(pliant.PliantError, match="added: dim 0 of z must be at least n"):
        p.call(b, x, z)
    function, _ = (p.call(b, z, x), b.finish([z]))[1]
    assert not function.equalities  # proved


def test_conditions_keep_indices_inside() -> None:
    @pliant.program
    def padded(x: f32[n], z: f32[m], y: f32[n]):
        for i in grid(n):
            y[i] = x[i] + (z[i] if i < m else 0.0)

    assert not padded.demands
    x, z = floats(5), floats(3)
    want = x + np.pad(z, (0, 2))
    np.testing.assert_allclose(pliant.compile(padded)(x, z), want, rtol=1e-6)


def test_data_out_of_bounds_is_an_error_of_the_interpreter() -> None:
    @pliant.program
    def gathered(x: f32[n], at: i64[m], y: f32[m]):
        for i in grid(m):
            y[i] = x[at[i]]

    with pytest.raises(pliant.ShapeError, match=r"gathered: x\[3\] is outside its shape \[3\]"):
        gathered.run(floats(3), np.array([0, 3]))


@pliant.program
def means(x: f32[n, k], y: f32[n]):
    for i in grid(n):
        y[i] = sum(x[i, j] for j in grid(k)) / f32(k + 1)


@pliant.program
def stable(x: f32[n, k], y: f32[n, k]):
    for i in grid(n):
        top = max(x[i, j] for j in grid(k))
        total = sum(exp(x[i, j] - top) for j in grid(k))
        for j in grid(k):
            y[i, j] = exp(x[i, j] - top) / total


@pliant.program
def best_and_where(x: f32[n, k], y: f32[n], at: i64[n]):
    for i in grid(n):
        where = argmax(x[i, j] for j in grid(k))  # noqa: F821
        y[i] = x[i, where] if where < k else 0.0
        at[i] = where


@pliant.program
def of_sums(x: f32[n, k], y: f32[n]):
    for i in grid(n):
        y[i] = sum(x[i, j] * max(x[i, h] for h in grid(j + 1)) for j in grid(k))


@pliant.program
def where_there_is_one(x: f32[n, k], y: f32[n]):
    for i in grid(n):
        y[i] = sum(x[i + 1, j] for j in grid(k)) if i + 1 < n else -1.0


@pliant.program
def accumulated(x: f32[n, k], y: f32[n]):
    for i in grid(n):
        s = alloc(f32[()])  # noqa: F821
        s[()] = 1.0
        for j in grid(k):
            s[()] += x[i, j]
        y[i] = s[()]


@pliant.program
def distances(x: f32[n, k], y: f32[n]):
    """Sums of one kind are not in one place."""
    for i in grid(n):
        y[i] = sum(x[i, j] for j in grid(k)) / sqrt(
            sum(x[i, j] * x[i, j] for j in grid(k)) + sum(abs(x[i, j]) for j in grid(k))
        )


SUMS = [means, stable, distances, best_and_where, of_sums, where_there_is_one, accumulated]


@pytest.mark.parametrize("p", SUMS)
def test_sums_stand_anywhere(p: Program) -> None:
    """They have memory of their own, so that rows can be done side by side."""
    f = pliant.compile(p.split("i", 4).parallel("i_0"))
    for rows, columns in ((0, 3), (1, 1), (3, 0), (5, 7), (13, 2)):
        x = floats(rows, columns)
        want, got = p.run(x), f(x)
        for a, b in zip(*([y] if isinstance(y, np.ndarray) else y for y in (got, want))):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    x = floats(5, 7)
    wanted = {
        means: x.sum(1) / 8,
        distances: x.sum(1) / np.sqrt((x * x).sum(1) + abs(x).sum(1)),
        accumulated: x.sum(1) + 1,
        of_sums: (x * np.maximum.accumulate(x, 1)).sum(1),
        where_there_is_one: np.append(x[1:].sum(1), -1),
        best_and_where: x.max(1),
        stable: torch.tensor(x).softmax(1).numpy(),
    }[p]
    result = f(x)
    first = result[0] if isinstance(result, tuple) else result
    np.testing.assert_allclose(first, wanted, rtol=1e-4, atol=1e-5)


def test_sizes_that_divide_by_nothing_are_errors() -> None:
    @pliant.program
    def in_parts(x: f32[n], z: f32[m], y: f32[n]):
        for i in grid(n // m):
            y[i] = x[i]
        for i in grid(n - n // m):
            y[i + n // m] = x[i] * 2.0

    with pytest.raises(pliant.ShapeError, match="m must be at least 1 here, got 0"):
        pliant.compile(in_parts)(floats(3), floats(0))
    with pytest.raises(pliant.ShapeError, match="in_parts: integer division"):
        in_parts.run(floats(3), floats(0))

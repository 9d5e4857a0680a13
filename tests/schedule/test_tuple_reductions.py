"""Reductions of several values: argmax, online softmax, Welford, complex products."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pliant.base.dtypes import f32, i64
from pliant.base.errors import InvalidModelError
from pliant.ir.evaluator import Env, Evaluator
from pliant.ir.expr import Binary, Expr, Index, Var, as_expr, const
from pliant.ir.parser import ParseError
from pliant.loop.interpret import interpret
from pliant.loop.parser import parse_function
from pliant.loop.printer import function_text
from pliant.loop.reducer import Reducer, parameter, reducer
from pliant.loop.reduction import as_update, best_of
from pliant.loop.stmt import BufferRef, Combine, buffer, seq
from pliant.loop.verify import verify_function
from pliant.schedule.errors import SchedulingError
from pliant.schedule.program import Program
from pliant.sym.expr import var
from tests.schedule.native import native
from tests.schedule.programs import ROW_SIZES, best, same
from tests.schedule.tuples import (
    ATTENTION,
    COMPLEX,
    NORMAL,
    TUPLES,
    WELFORD,
    attention,
    normals,
    welford,
)

Array = np.ndarray


def softmax_of(x: Array, w: Array) -> list[Array]:
    wide = x.astype(np.float64)
    e = np.exp(wide - wide.max(1, keepdims=True)) if x.shape[1] else wide
    return [(e * w).sum(1) / np.maximum(e.sum(1), 1.0)]


def normal_of(x: Array) -> list[Array]:
    wide = x.astype(np.float64)
    top = wide.max(1, initial=-np.inf)
    return [top, np.exp(wide - np.where(top == -np.inf, 0, top)[:, None]).sum(1)]


def moments_of(x: Array) -> list[Array]:
    wide = x.astype(np.float64)
    mean = wide.sum(1) / max(x.shape[1], 1)
    return [mean, ((wide - mean[:, None]) ** 2).sum(1)]


def products_of(x: Array, y: Array) -> list[Array]:
    z = (x.astype(np.float64) + 1j * y).prod(1)
    return [z.real, z.imag]


def argmax_of(x: Array) -> list[Array]:
    return [x.argmax(1) if x.shape[1] else np.zeros(len(x), np.int64)]


def inputs(name: str, n: int, k: int) -> list[Array]:
    rng = np.random.default_rng(n * 100 + k)
    x = rng.standard_normal((n, k)).astype(np.float32) * 3
    match name:
        case "attention":
            return [x, rng.standard_normal(k).astype(np.float32)]
        case "products":
            return [x / 3, rng.standard_normal((n, k)).astype(np.float32)]
    return [x]


ORACLES: dict[str, Callable[..., list[Array]]] = {
    "normals": normal_of,
    "attention": softmax_of,
    "welford": moments_of,
    "products": products_of,
    "best": argmax_of,
}
STARTS: dict[str, Callable[[], Program]] = {**TUPLES, "best": best}


def scheduled(p: Program, block: str, loop: str) -> Program:
    """Partial results in four lanes, started in front of the loops, rows in parallel."""
    q = p.split(loop, 4).rfactor(f"{loop}_1")
    partial, row = str(q.made[0]), str(q.loops(str(q.made[0]))[0])
    q = q.decompose_reduction(partial, f"{loop}_0").decompose_reduction(block, f"{loop}_1_f")
    return q.vectorize(f"{loop}_1").parallel(row)


@pytest.mark.parametrize("name", sorted(STARTS))
def test_split_rfactor_decompose(name: str) -> None:
    """The meaning stays, in the interpreter and in machine code, and is NumPy's."""
    p = STARTS[name]()
    block, loop = ("p", "p_r") if name == "best" else ("s", "r")
    q = scheduled(p, block, loop)
    if name != "products":  # of random integers: products are too large
        same(p, q)
    for n, k in [*ROW_SIZES, (3, 8), (1, 33)]:
        given = inputs(name, n, k)
        expected = ORACLES[name](*given)
        for f in (p.function, q.function):
            for run in (interpret, native):
                outs = [np.full(n, 7, b.dtype.numpy) for b in f.buffers[len(given) :]]
                run(f, [*given, *outs], {"n": n, "k": k})
                for got, want in zip(outs, expected, strict=True):
                    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def test_ties_and_nan() -> None:
    """The first of equals; a NaN beats everything, the first one too; all -inf gives the first."""
    p = best()
    q = scheduled(p, "p", "p_r")
    rows = [
        [1, 3, 3, 2, 3, 0, 0],
        [1, np.nan, 5, np.nan, 3, 0, 9],
        [-np.inf] * 7,
        [-np.inf, -np.inf, np.nan, np.inf, 0, 0, np.nan],
        [np.inf, 0, np.inf, 0, 0, 0, np.inf],
        [0.0, -0.0, 0.0, -0.0, 0, 0, 0],
    ]
    x = np.array(rows, np.float32)
    for f in (p.function, q.function):
        for run in (interpret, native):
            at = np.zeros(len(x), np.int64)
            run(f, [x, at], {"n": len(x), "k": x.shape[1]})
            np.testing.assert_array_equal(at, x.argmax(1))


def test_one_fact_for_all_primitives() -> None:
    """What is commutative may be reordered, merged from parts and padded; not run in parallel."""
    for make in (normals, welford):
        p = make()
        same(p, p.reorder("r", "i"))
        same(p, p.split("r", 3).reorder("r_1", "i", "r_0"))
        same(p, p.split("r", 4).split("i", 2).reorder("r_0", "i_1", "r_1", "i_0"))
        with pytest.raises(SchedulingError, match="block s reduces over it"):
            p.parallel("r")
        same(p, p.parallel("i"))
        with pytest.raises(SchedulingError, match="is no operator"):
            p.split("r", 4).reorder("i", "r_0", "r_1").reduce_lanes("s")
        with pytest.raises(SchedulingError, match="decompose_reduction first"):
            p.split("r", 4, tail="peel")
        same(p, p.decompose_reduction("s", "r").split("r", 4, tail="peel"))
        same(p, p.decompose_reduction("s", "i").split("r", 4).reorder("r_0", "i"))
        same(p, p.split("r", var("n") + 1).rfactor("r_0").parallel("i"))


def test_moving_what_follows_and_small_buffers() -> None:
    p = attention()
    q = p.split("i", 2).reverse_compute_at("y", "i_0")
    same(p, q)
    q = p.compute_at("s", "j")
    same(p, q.shrink_buffer("t").shrink_buffer("m").shrink_buffer("d").parallel("j"))
    q = p.split("r", 4).rfactor("r_1")
    assert q.made == ("s_rf", "t_rf", "m_rf", "d_rf", "r_1_f")
    for b in ("t_rf", "m_rf", "d_rf"):
        q = q.shrink_buffer(b)
    same(p, q.vectorize("r_1").parallel("i"))


def test_rfactor_of_the_outer_part() -> None:
    """Rows of the partial results are one per tile, each tile reduced by itself."""
    p = normals()
    q = p.split("r", 4).rfactor("r_0")
    same(p, q)
    same(p, q.parallel("r_0"))
    same(p, p.reorder("r", "i").split("r", 4).reorder("r_0", "i", "r_1").rfactor("r_0"))


def test_text_round_trips() -> None:
    for text in (NORMAL, ATTENTION, WELFORD, COMPLEX):
        f = parse_function(text)
        verify_function(f)
        again = function_text(f)
        assert parse_function(again) is f
        assert "@reducer(" in again
    assert "m[v], d[v] = normal(m[v], d[v], x[v, u], 1.0)" in function_text(normals().function)
    assert "argmax_f32(p_best[p_vi], p[p_vi], x[p_vi, p_vr], p_vr)" in function_text(
        best().function
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("normal(m[v], d[v], x", "normal(d[v], m[v], x", "the first 2 values are those of the"),
        ("normal(m[v], d[v], x[v, u], 1.0)", "normal(m[v], d[v], 1.0)", "for 2 elements"),
        ("@reducer(-inf, 0.0)", "@reducer(-inf)", "1 values take 2 parameters"),
        ("@reducer(-inf, 0.0)", "@other(-inf, 0.0)", "is a @reducer"),
        ("return top, ", "return ", "results and identity do not fit"),
        ("_a1 * exp(_a0 - at)", "_a1 * exp(q - at)", "q"),
        ("m[v], d[v] = normal(m[v], d[v]", "m[v], m[v] = normal(m[v], m[v]", "of one buffer"),
        ("m[v], d[v] = normal", "m[v], 3 = normal", "is no element of a buffer|assign to literal"),
    ],
)
def test_faults_of_the_text(old: str, new: str, message: str) -> None:
    assert old in NORMAL
    with pytest.raises((ParseError, InvalidModelError), match=message):
        parse_function(NORMAL.replace(old, new))


def test_faults_of_reducers() -> None:
    zero = const(0.0, f32)
    plus = reducer("plus", (zero,), lambda a, b: (a[0] + b[0],))
    minus = reducer("plus", (zero,), lambda a, b: (a[0] - b[0],))
    x, y = buffer("x", (4,), f32), buffer("y", (4,), f32)
    at = (as_expr(0),)
    with pytest.raises(InvalidModelError, match="is not its own"):
        Reducer("r", (Var("_a1", f32),), (zero,))
    with pytest.raises(InvalidModelError, match="is not its own"):
        Reducer("r", (Index(var("k")),), (as_expr(0),))
    with pytest.raises(InvalidModelError, match="a Load cannot be in it"):
        Reducer("r", (x[0],), (zero,))
    with pytest.raises(InvalidModelError, match="its identity is not constant"):
        Reducer("r", (Var("_a0", f32),), (x[0],))
    body = seq(*(Combine(by, (BufferRef(b, at),), (zero,)) for by, b in ((plus, x), (minus, y))))
    from_text = parse_function("@loop\ndef f(x: f32[4], y: f32[4]):\n    pass\n")
    with pytest.raises(InvalidModelError, match="two reducers are called plus"):
        verify_function(from_text.replace(body=body))
    with pytest.raises(InvalidModelError, match="values of plus are i64, not f32"):
        Combine(plus, (BufferRef(x, at),), (as_expr(1),))


def test_what_is_a_reduction() -> None:
    """Values, places and conditions that look at what is updated make the order count."""
    p = normals()
    assert as_update(p.block("s")) is not None
    for old, new in (
        ("x[v, u], 1.0)", "x[v, u] + m[v], 1.0)"),
        ("R(r, k))", "R(r, k), where=m[i] < 3.0)"),
    ):
        assert old in NORMAL
        q = type(p)(parse_function(NORMAL.replace(old, new)), p.facts, p.primitives)
        assert as_update(q.block("s")) is None
        with pytest.raises(SchedulingError, match=r"the same element of m|an element of m twice"):
            q.split("r", 4).reorder("r_1", "r_0")
        with pytest.raises(SchedulingError, match="is no update by a known combiner or reducer"):
            q.rfactor("r")


def test_strict_numerics() -> None:
    """Only what rounds nothing may be done in another order."""
    assert not best_of("argmax", f32).rounds and not best_of("argmin", i64).rounds
    for make, refused in ((normals, True), (best, False)):
        p = make()
        notes = (("numerics", "strict"),)
        strict = type(p)(p.function.replace(notes=notes), p.facts, p.primitives)
        loop = "r" if refused else "p_r"
        if refused:
            with pytest.raises(SchedulingError, match="the numerics are strict"):
                strict.rfactor(loop)
        else:
            same(strict, strict.split(loop, 4).rfactor(f"{loop}_1"))


@pytest.mark.parametrize("name", ["normals", "attention", "welford", "products", "best"])
def test_laws(name: str) -> None:
    """The declared laws hold on random tuples, up to rounding."""
    p = STARTS[name]()
    (by,) = {s.reducer for s in p.statements() if isinstance(s, Combine)}
    rng = np.random.default_rng(5)

    def some() -> tuple[Expr, ...]:
        if name == "welford":
            count = float(rng.integers(0, 3))
            return tuple(const(v if count else 0.0, f32) for v in (count, rng.normal(), 0.5))
        values = rng.normal(size=len(by.types))
        return tuple(
            as_expr(int(v * 9)) if t is i64 else const(abs(v), t)
            for v, t in zip(values, by.types, strict=True)
        )

    for _ in range(20):
        a, b, c = some(), some(), some()
        close(by(a, b), by(b, a))
        close(by(by(a, b), c), by(a, by(b, c)))
        close(by(a, by.identity), a)
        close(by(by.identity, a), a)


def close(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> None:
    values = [[Evaluator(lambda s: s).value(x)(Env()) for x in side] for side in (a, b)]
    np.testing.assert_allclose(*values, rtol=1e-5, atol=1e-5)


def test_parameters_are_integers_where_they_can_be() -> None:
    assert isinstance(parameter(Var("_a0", i64)), Index)
    add = reducer("add", (as_expr(0),), lambda a, b: (a[0] + b[0],))
    assert add((Index(var("i")),), (as_expr(3),)) == (Index(var("i") + 3),)
    loaded = buffer("p", (4,), i64)[2]
    assert add((loaded,), (as_expr(3),)) == (Binary("add", loaded, as_expr(3)),)


def test_a_block_whose_own_loop_says_how_long_it_is_stays_there() -> None:
    """The extent of its sum is that of a part, which another loop does not know."""
    p = normals().split("r", var("n") + 1, tail="clip").rfactor("r_0")
    with pytest.raises(SchedulingError, match="compute_at of block s_rf: it uses r_0"):
        p.compute_at("s_rf", "r_0_f")

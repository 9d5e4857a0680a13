"""The loop interpreter: each statement, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.base.dtypes import bf16, boolean, f16, f32, i8, i32, i64
from pliant.base.errors import InvalidModelError, ShapeError
from pliant.ir.expr import (
    Axis,
    Binary,
    Cast,
    Expr,
    Guard,
    Index,
    Reduce,
    Select,
    Unary,
    Var,
    as_expr,
    const,
)
from pliant.loop.interpret import Traffic, interpret
from pliant.loop.stmt import (
    Alloc,
    Block,
    BufferRef,
    Check,
    For,
    Function,
    If,
    Invoke,
    Iter,
    Let,
    Seq,
    Stmt,
    Store,
    While,
    buffer,
    for_,
)  # fmt: skip
from pliant.sym.expr import as_int, var

n, k = var("n"), var("k")
X = buffer("x", (n, k), f32)
Y = buffer("y", (n,), f32)


def row_sums(kind: str = "serial") -> Function:
    body = Block(
        "sum",
        (Iter("i", n, "S"), Iter("r", k, "R")),
        (var("a"), var("b")),
        Store(Y, (Index(var("i")),), Y[var("i")] + X[var("i"), var("r")]),
        init=Store(Y, (Index(var("i")),), const(0.0, f32)),
    )
    return Function("row_sums", (X, Y), ("n", "k"), For("a", n, For("b", k, body), kind))


@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (0, 4), (4, 0)])
def test_block_initialises_before_the_first_reduction_step(shape: tuple[int, int]) -> None:
    x = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
    y = np.full(shape[0], np.nan, np.float32)
    interpret(row_sums(), [x, y], list(shape))
    np.testing.assert_array_equal(y, x.sum(1))


def test_iterations_of_a_parallel_loop_run_in_any_order() -> None:
    x = np.ones((3, 2), np.float32)
    y = np.zeros(3, np.float32)
    interpret(row_sums("parallel"), [x, y], {"n": 3, "k": 2}, order=reversed)
    assert y.tolist() == [2, 2, 2]


def test_traffic_counts_bytes() -> None:
    traffic = Traffic()
    x, y = np.ones((3, 2), np.float32), np.zeros(3, np.float32)
    interpret(row_sums(), [x, y], [3, 2], traffic=traffic)
    assert traffic.loads == {"x": 24, "y": 24}
    assert traffic.stores == {"x": 0, "y": 36}


def test_predicate_guards_the_tail_of_a_split() -> None:
    i = var("i")
    block = Block(
        "copy", (Iter("i", n, "S"),), (var("o") * 4 + var("v"),),
        Store(Y, (Index(i),), const(1.0, f32)), where=Binary("lt", Index(i), Index(n)),
    )  # fmt: skip
    nest = For("o", (n + 3) // 4, For("v", as_int(4), block, "vectorized"))
    y = np.zeros(6, np.float32)
    interpret(Function("f", (Y,), ("n",), nest), [y], [6])
    assert y.tolist() == [1] * 6
    unguarded = For("o", (n + 3) // 4, For("v", as_int(4), block.replace(where=None)))
    with pytest.raises(IndexError, match="block copy: i = 6"):
        interpret(Function("f", (Y,), ("n",), unguarded), [y], [6])


def test_out_of_range_access_is_refused() -> None:
    f = Function("f", (Y,), ("n",), Store(Y, (Index(n),), const(1.0, f32)))
    with pytest.raises(IndexError, match=r"y\[3\] is outside its shape \[3\]"):
        interpret(f, [np.zeros(3, np.float32)], [3])
    g = Function("g", (Y,), ("n",), Store(Y, (Index(n - 1),), const(1.0, f32)))
    with pytest.raises(IndexError, match="element 4 of 3"):  # the buffer claims more than it has
        interpret(g, [np.zeros(3, np.float32)], [5])


def test_alloc_is_poisoned_and_private() -> None:
    acc = buffer("acc", (as_int(1),), f32, scope="register")
    i = var("i")
    read_first = Store(Y, (Index(i),), acc[0])
    body = Alloc(acc, Seq((read_first, Store(acc, (as_expr(0),), const(1.0, f32)))))
    y = np.zeros(2, np.float32)
    interpret(Function("f", (Y,), ("n",), For("i", n, body, "vectorized")), [y], [2])
    assert np.isnan(y).all()
    with pytest.raises(InvalidModelError, match="acc is used but not declared"):
        interpret(Function("f", (Y,), ("n",), For("i", n, read_first)), [y], [2])


def test_let_binds_a_size() -> None:
    out = buffer("out", (as_int(8),), i64)
    store = Store(out, (as_expr(0),), Index(var("m") * 2))
    body = Let(Var("m", i64), Index(n) + 3, store)
    y = np.zeros(8, np.int64)
    interpret(Function("f", (out,), ("n",), body), [y], [4])
    assert y[0] == 14


def test_while_if_check() -> None:
    out = buffer("out", (), i64)
    step = If(
        Binary("lt", out[()], as_expr(5)),
        Store(out, (), out[()] + 1),
        Store(out, (), out[()] + 10),
    )
    body = Seq(
        (
            While(Binary("lt", out[()], Index(n)), step),
            Check(
                Binary("lt", out[()], as_expr(20)),
                "ShapeError",
                "got {0}, n is {1}",
                (out[()], Index(n)),
            ),
        )
    )
    y = np.zeros((), np.int64)
    interpret(Function("f", (out,), ("n",), body), [y], [6])
    assert y == 15
    with pytest.raises(ShapeError, match="got 25, n is 16"):
        interpret(Function("f", (out,), ("n",), body), [np.zeros((), np.int64)], [16])


def test_invoke_python_and_loop_functions() -> None:
    whole = BufferRef(Y, (as_expr(0),))
    tail = BufferRef(Y, (as_expr(1),))
    body = Seq((Invoke("fill", (whole, Index(n))), Invoke("ones", (tail, Index(n - 1)))))
    ones = Function(
        "ones", (Y,), ("n",), For("i", n, Store(Y, (Index(var("i")),), const(1.0, f32)))
    )

    def fill(memory: np.ndarray, count: int) -> None:
        memory[:count] = 7

    y, traffic = np.zeros(4, np.float32), Traffic()
    interpret(
        Function("f", (Y,), ("n",), body), [y], [4], {"fill": fill, "ones": ones}, traffic=traffic
    )
    assert y.tolist() == [7, 1, 1, 1]
    assert traffic.stores == {"y": 0, "ones.y": 12}
    with pytest.raises(InvalidModelError, match="no callee 'fill'"):
        interpret(Function("f", (Y,), ("n",), body), [y], [4])


def evaluate(expr, **sizes):  # type: ignore[no-untyped-def]
    out = buffer("out", (), expr.dtype)
    y = np.zeros((), expr.dtype.numpy)
    interpret(Function("f", (out,), tuple(sizes), Store(out, (), expr)), [y], sizes)
    return y[()]


def test_scalar_rules() -> None:
    assert evaluate(const(100, i8) + const(100, i8)) == -56
    assert evaluate(Binary("truncdiv", const(-7, i32), const(2, i32))) == -3
    assert evaluate(Binary("floordiv", const(-7, i32), const(2, i32))) == -4
    assert evaluate(Binary("truncmod", const(-7, i32), const(2, i32))) == -1
    assert evaluate(Binary("floormod", const(-7, i32), const(2, i32))) == 1
    assert evaluate(Binary("shr", const(-8, i32), const(33, i32))) == -4
    assert evaluate(Binary("pow", const(-1, i32), const(-3, i32))) == -1
    assert evaluate(Cast(i8, const(1e9, f32))) == 127
    assert evaluate(Cast(i8, const(float("nan"), f32))) == 0
    assert evaluate(Cast(i8, const(300, i32))) == 44
    assert evaluate(Cast(boolean, const(float("nan"), f32)))
    assert np.isnan(evaluate(Binary("max", const(float("nan"), f32), const(1, f32))))
    assert evaluate(Binary("fmax", const(float("nan"), f32), const(1, f32))) == 1
    assert evaluate(Unary("round", const(2.5, f32))) == 2
    assert evaluate(const(1.0, bf16) + const(0.001, bf16)) == 1
    assert evaluate(const(60000, f16) + const(60000, f16)) == np.inf
    with pytest.raises(ZeroDivisionError):
        evaluate(Binary("truncdiv", const(1, i32), const(0, i32)))


def test_select_is_lazy_and_guard_raises() -> None:
    bad = Guard(as_expr(False), as_expr(1), "index", "index out of range")
    assert evaluate(Select(as_expr(True), as_expr(3), bad)) == 3
    with pytest.raises(ShapeError, match="index out of range"):
        evaluate(bad)


def test_reductions_inside_expressions() -> None:
    axis = (Axis("_r0", n),)
    square = Index(var("_r0") * var("_r0"))
    assert evaluate(Reduce("sum", axis, square), n=4) == 14
    assert evaluate(Reduce("max", axis, square), n=0) == i64.min
    away = Index(4 * var("_r0") - var("_r0") * var("_r0"))
    assert evaluate(Reduce("argmax", axis, away), n=5) == 2


def test_any_strides() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)[::-1, ::2]
    s, t = var("s"), var("t")
    strided = buffer("x", (n, k), f32, strides=(s, t))
    i, j = var("i"), var("j")
    body = for_([("i", n), ("j", k)], Store(Y, (Index(i * k + j),), strided[i, j]))
    flat = buffer("y", (n * k,), f32)
    store = Store(flat, (Index(i * k + j),), strided[i, j])
    body = for_([("i", n), ("j", k)], store)
    y = np.zeros(6, np.float32)
    interpret(Function("f", (strided, flat), ("n", "k", "s", "t"), body), [x, y], [3, 2, -4, 2])
    np.testing.assert_array_equal(y, x.reshape(-1))


def test_long_chains() -> None:
    out = buffer("out", (), i64)
    expr: Expr = out[()]
    for _ in range(2000):
        expr = Binary("xor", expr, out[()])
    body: Stmt = Store(out, (), expr + Index(var("v1999")))
    for m in reversed(range(2000)):
        before = Index(var(f"v{m - 1}")) if m else as_expr(0)
        body = Let(Var(f"v{m}", i64), before + 1, body)
    y = np.zeros((), np.int64)
    interpret(Function("f", (out,), (), body), [y], [])
    assert y == 2000

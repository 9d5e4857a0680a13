"""Other layouts for buffers: transform_layout."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.loop.interpret import interpret
from pliant.loop.parser import parse_function
from pliant.loop.printer import function_text
from pliant.schedule.errors import SchedulingError
from pliant.schedule.layout import layout
from pliant.schedule.primitives import program
from pliant.schedule.program import Program, replay
from pliant.schedule.trace import parse_trace, print_trace
from pliant.sym.expr import var
from tests.schedule.programs import chain, matmul, outline, rows, running, same, softmax, stencil
from tests.schedule.test_loops import lines
from tests.schedule.test_tiles import tiles

n, m, k = var("n"), var("m"), var("k")
PANELS = layout(lambda i, j: (j // 4, i, j % 4))


def refused(p: Program, reason: str, *args: object, **options: object) -> None:
    with pytest.raises(SchedulingError, match=reason):
        p.transform_layout(*args, **options)


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    "how",
    [
        PANELS,
        layout(lambda i, j: (j, i)),
        layout(lambda i, j: (i * k + j,)),
        layout(lambda i, j: (0, j % 3, i // 2, j // 3, i % 2)),
        layout(lambda i, j: (i, k - 1 - j)),
        layout(lambda i, j: (2 * i + 3, j)),
    ],
)
@pytest.mark.parametrize("pad", [None, 7.0])
def test_transform_layout(how: tuple, pad: float | None) -> None:
    p = chain()
    same(p, p.transform_layout("b", how, pad))
    same(p, p.transform_layout("b", how, pad).transform_layout("a", how).parallel("a_i"))
    p = softmax().split("e_i", 3)
    same(p, p.transform_layout("e", how, pad))


def test_the_producer_fills_the_gaps() -> None:
    p = chain()
    q = p.transform_layout("b", PANELS, 0.0)
    assert q.made == ("b", "b", "b_0", "b_1", "b_2")
    assert outline(q) == lines("""
        scratch a[n, k]
        scratch b[(k + 3)//4, n, 4]
        a_i < n
          a_j < k
            a(a_i, a_j)
        b_0 < (k + 3)//4
          b_1 < n
            b_2 < 4
              b(b_0, b_1, b_2)
        y_i < n
          y_j < k
            y(y_i, y_j)
    """)
    assert "select(4*b_v0 + b_v2 < k, " in function_text(q.function)
    # A buffer that has no gaps leaves its producer as it is.
    q = p.transform_layout("b", layout(lambda i, j: (j, i)), 0.0)
    assert q.made == ("b",)


def test_where_the_producer_cannot_a_block_in_front_does() -> None:
    p = matmul().cache_write("c")  # a reduction
    q = p.transform_layout("c_local", PANELS, 0.0)
    assert q.made[1] == "c_local_pad"
    assert outline(q).startswith(
        lines("""
            scratch c_local[(m + 3)//4, n, 4]
            c_local_pad_0 < (m + 3)//4
              c_local_pad_1 < n
                c_local_pad_2 < 4
                  c_local_pad(c_local_pad_0, c_local_pad_1, c_local_pad_2) where …
        """)
    )
    same(p, q)
    p = chain().parallel("b_i")
    q = p.transform_layout("b", PANELS, 0.0)
    assert q.made[1] == "b_pad"
    same(p, q)


@pytest.mark.parametrize("make", [chain, lambda: chain().parallel("b_i")])
def test_gaps_hold_the_pad_value(make: object) -> None:
    """A reader that goes over whole panels sees it there."""
    text = """
@loop
def f(x: f32["n"], y: f32["n + 3"], n: i64):
    t = alloc(f32[n], scope="scratch")
    for a in {}(n):
        with block("t", S(a, n)) as (i,):
            t[i] = x[i]
    for b in grid(n):
        with block("u", S(b, n)) as (i,):
            y[i] = t[i]
"""
    for word, n_ in [("grid", 5), ("grid", 4), ("parallel", 6), ("grid", 0)]:
        p = program(parse_function(text.format(word)))
        q = p.transform_layout("t", layout(lambda i: (i // 4, i % 4)), 9.0)
        whole = function_text(q.function).split("    for b in")[0] + (
            "    for b, c in grid((n + 3)//4, 4):\n"
            '        with block("u", S(b, (n + 3)//4), S(c, 4)) as (i, j):\n'
            "            y[4*i + j] = t[i, j]\n"
        )
        whole = whole.replace('y: f32["n + 3"]', 'y: f32["4*((n + 3)//4)"]')
        x = np.arange(n_, dtype=np.float32)
        y = np.zeros((n_ + 3) // 4 * 4, np.float32)
        interpret(parse_function(whole), [x, y], [n_])
        np.testing.assert_array_equal(y, np.pad(x, (0, -n_ % 4), constant_values=9.0))


def test_a_parameter_where_it_is_allowed() -> None:
    p = matmul()
    refused(p, "it is a parameter: with parameter=True the signature changes", "b", PANELS)
    q = p.transform_layout("b", PANELS, parameter=True)
    assert "".join(f"{b.name}{list(map(str, b.shape))}" for b in q.function.buffers) == (
        "a['n', 'k']b['(m + 3)//4', 'k', '4']c['n', 'm']"
    )
    assert dict(q.function.notes) == {"layouts": (("b", PANELS),)}
    assert parse_function(function_text(q.function)) is q.function
    assert parse_trace(print_trace(q.trace)) == q.trace
    assert replay(q.trace, matmul()).function is q.function
    for sizes in [(3, 5, 4), (2, 8, 1), (0, 3, 2), (2, 3, 0)]:
        rows_, columns, depth = sizes
        rng = np.random.default_rng(1)
        a, b = (rng.standard_normal(s).astype(np.float32) for s in (sizes[::2], (depth, columns)))
        packed = np.full(((columns + 3) // 4 * 4, depth), np.nan, np.float32)
        packed[:columns] = b.T
        packed = np.ascontiguousarray(
            packed.reshape((columns + 3) // 4, 4, depth).transpose(0, 2, 1)
        )
        c = np.zeros((rows_, columns), np.float32)
        interpret(q.function, [a, packed, c], sizes)
        np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-5)
    # Twice: the note is about the parameter as it came.
    again = q.transform_layout("b", layout(lambda u, r, v: (r, u * 4 + v)), parameter=True)
    (kept,) = dict(again.function.notes)["layouts"]
    assert [str(x) for x in kept[1]] == ["_0", "_1"]


def test_an_output_with_gaps() -> None:
    p = chain()
    q = p.transform_layout("y", PANELS, 5.0, parameter=True)
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    y = np.zeros((2, 2, 4), np.float32)
    interpret(q.function, [x, y], [2, 6])
    expected = np.pad((2 * (x + 1)) ** 2, ((0, 0), (0, 2)), constant_values=5.0)
    np.testing.assert_array_equal(y, expected.reshape(2, 2, 4).transpose(1, 0, 2))


def test_buffers_of_a_tile() -> None:
    p = stencil()
    q = p.split("u_i", 4, tail="clip").compute_at("t", "u_i_0").shrink_buffer("t")
    same(p, q.transform_layout("t", layout(lambda i: (i // 2, i % 2))).parallel("u_i_0"))
    p = matmul()
    q = tiles(p, "c").transform_layout("c_local", layout(lambda i, j: (j // 2, i, j % 2)))
    same(p, q)


def test_indices_that_depend_on_data() -> None:
    p = program(
        parse_function("""
@loop
def f(at: i64["n"], x: f32[8], y: f32["n"], n: i64):
    t = alloc(f32[8], scope="scratch")
    for a in grid(8):
        with block("t", S(a, 8)) as (i,):
            t[i] = x[i] + 1.0
    for b in grid(n):
        with block("u", S(b, n)) as (i,):
            y[i] = t[(at[i] * at[i]) % 8]
""")
    )
    same(p, p.transform_layout("t", layout(lambda i: (i % 3, i // 3)), 0.0))


def test_transform_layout_refuses() -> None:
    refused(chain(), "the layout is not one of 2 indices", "b", (var("z"), var("_0")))
    refused(chain(), "not known to be one-to-one", "b", layout(lambda i, j: (i + j,)))
    refused(chain(), "not known to be one-to-one", "b", layout(lambda i, j: (i - 1, j)))
    refused(chain(), "not known to be one-to-one", "b", layout(lambda i, j: (i, j // 2)))
    refused(chain(), "there is no such buffer", "z", PANELS)
    wide = rows().cache_write("s").split("s_i", 8).reverse_compute_at("s_store", "s_i_0")
    wide = wide.shrink_buffer("s_local")
    refused(wide, "does not fit into registers", "s_local", layout(lambda i: (1000 * i,)))
    table = tiles(matmul(), "c").cache_index("c", "a", "c_i_0", "c_r", ("c_i_1_0", "c_i_1_1"))
    refused(table, "it is read by offset", "a", layout(lambda i, r: (r, i)), parameter=True)
    nobody = matmul()
    refused(nobody, "nothing here writes it", "b", PANELS, 0.0, parameter=True)
    spread = layout(lambda i, j: (2 * i, j))
    refused(running(), "where its gaps are is not known", "y", spread, 0.0, parameter=True)

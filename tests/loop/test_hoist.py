"""Names for integers that loops share."""

from __future__ import annotations

import numpy as np

from pliant.base.dtypes import f32
from pliant.ir.expr import Index
from pliant.loop.hoist import hoist
from pliant.loop.interpret import interpret
from pliant.loop.printer import function_text
from pliant.loop.stmt import Function, If, Let, Store, buffer, for_, statements
from pliant.loop.verify import verify_function
from pliant.sym.expr import Int, minimum, var

n, m, i, j, k = (var(x) for x in "nmijk")
y, x = buffer("y", (n, m), f32), buffer("x", (n, m), f32)


def program(rows: Int, columns: Int, at: tuple[Int, Int]) -> Function:
    """y[at] = x[at] + 1 for i < rows, j < columns."""
    indices = tuple(map(Index, at))
    body = Store(y, indices, x[at] + 1.0)
    return Function("f", (y, x), ("n", "m"), for_([("i", rows), ("j", columns)], body))


def lets(f: Function) -> list[str]:
    found = (s for s in statements(f.body) if isinstance(s, Let))
    return [f"{s.var.name} = {s.value.int_}" for s in found if isinstance(s.value, Index)]


def same(f: Function, g: Function) -> None:
    verify_function(g)
    for sizes in ((0, 3), (3, 0), (1, 1), (5, 4), (9, 2)):
        given = np.arange(sizes[0] * sizes[1], dtype=np.float32).reshape(sizes)
        results = []
        for each in (f, g):
            out = np.zeros(sizes, np.float32)
            interpret(each, [out, given], sizes)
            results.append(out)
        np.testing.assert_array_equal(*results)


def test_each_where_all_that_it_needs_is_known() -> None:
    f = program(n * m, minimum(i % m + 1, 1), (i // m, i % m))
    g = hoist(f)
    assert lets(g) == ["h = i%m", "h_1 = i//m"]
    assert "for j in grid(min(1, h + 1)):" in function_text(g)
    same(f, g)


def test_parts_that_several_share_come_first() -> None:
    blocks = (n + 3) // 4
    f = program(blocks * m, minimum(4, n - 4 * (i % blocks)), (4 * (i % blocks) + j, i // blocks))
    g = hoist(f)
    assert lets(g) == ["h = (n + 3)//4", "h_1 = i%h", "h_2 = i//h"]
    same(f, g)


def test_nothing_is_divided_by_what_may_be_zero() -> None:
    f = program(n, m, (i, (i + j) % m))
    g = hoist(f)
    assert lets(g) == []
    store = next(s for s in statements(f.body) if isinstance(s, Store))
    guarded = If(Index(k) < Index(n // (m + 1)), store)
    f = Function("f", (y, x), ("n", "m"), for_([("i", n), ("j", n), ("k", n)], guarded))
    assert lets(hoist(f)) == ["h = n//(m + 1)"]

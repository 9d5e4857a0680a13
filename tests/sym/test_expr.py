"""Normal form of symbolic integers: one line a rule, then random programs against arithmetic."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given, settings

from pliant.sym.expr import Int, as_int, ceildiv, const, maximum, minimum, parse_int, var
from tests.share import draws
from tests.sym.trees import Tree, build, trees, valuations

a, b, c, d, f, i, k, m, n, x, y = map(var, "abcdfikmnxy")


@pytest.mark.parametrize(
    ("expr", "printed"),
    [
        (x + 1 + x - 1, "2*x"),
        (x - x, "0"),
        (2 - x, "-x + 2"),
        ((x + 1) * (x - 1), "x**2 - 1"),
        (i * n + k, "i*n + k"),
        (x * 6 // 6, "x"),
        ((4 * x + 5) // 4, "x + 1"),
        ((4 * x - 1) // 4, "x - 1"),
        ((6 * x + 5) // 4, "x + x//2 + 1"),
        (x // 4 // 8, "x//32"),
        (x // n // m, "x//(m*n)"),
        ((x // 2 + 1) // 2, "(x + 2)//4"),
        (-(x // 4), "-(x//4)"),
        (-x // 4, "(-x)//4"),
        (ceildiv(n, 16), "(n + 15)//16"),
        (ceildiv(n, m), "(n - 1)//m + 1"),
        (6 * x % 6, "0"),
        ((6 * x + 3) % 4, "2*((x + 1)%2) + 1"),
        (x % 32 // 4, "(x//4)%8"),
        (x % 32 % 4, "x%4"),
        (x % 3 % 4, "x%3"),
        (x % 3 // 4, "0"),
        ((x // 9 + x % 9) // 4, "x//4 - 2*(x//9)"),
        ((x // 9 + x % 9) % 4, "x%4"),
        ((x // 27 + (x // 9) % 3 + (x // 3) % 3 + x % 3) % 2, "x%2"),
        ((x // 27 + (x // 9) % 3 + (x // 3) % 3 + x % 3) // 2, "x//2 - (x//27) - (x//3) - (x//9)"),
        ((2 * (x // 3) + 2 * (x % 3)) // 4, "x//2 - (x//3)"),
        ((x % 32 * 3 + y) % 8, "(3*x + y)%8"),
        ((x % 2 + y) // 2 + 3 * (x // 2) + x % 2, "(x + y)//2 + x"),
        (7 * (x // 4) - (3 * (x % 4) + y) // 6, "-((3*(x%4) + y)//6) + 7*(x//4)"),
        (n * ((x % 6 + y) // 2) + 3 * n * (x // 6), "((x + y)//2)*n"),
        ((x % 3 + y) // 2 + x // 3, "(x%3 + y)//2 + x//3"),
        (a * b // b, "a"),
        (a * b % b, "0"),
        ((a * b + c * b) // b, "a + c"),
        ((a * b + c) // b, "a + c//b"),
        ((a * b + c) % b, "c%b"),
        (a * (n + 1) // (n + 1), "a"),
        ((a * (n + 1) + i) // (n + 1), "a + i//(n + 1)"),
        ((a * (n + 1) + i) % (n + 1), "i%(n + 1)"),
        (n // (n + 1), "n//(n + 1)"),
        (n * x // (n * y), "x//y"),
        (n * x % (n * y), "n*(x%y)"),
        ((2 * x + 1) // (2 * n), "x//n"),
        ((2 * x + 1) % (2 * n), "2*(x%n) + 1"),
        (x % (n * m) // m, "(x//m)%n"),
        (x % (n * m) % m, "x%m"),
        (n // 8 * 8 + n % 8, "n"),
        (f // d * d + f % d, "f"),
        ((f + i) // d * d * k + (f + i) % d * k, "f*k + i*k"),
        (8 * (n // 8) + n // 8 * 8 + n % 8, "n + 8*(n//8)"),
        (x // 4 % 8 * 4 + x % 4, "x%32"),
        (x // 32 * 32 + x // 4 % 8 * 4 + x % 4, "x"),
        (x // m % n * m + x % m, "x%(m*n)"),
        (x // (d + 1) * (d + 1) + x % (d + 1), "x"),
        (x % -4, "-((-x)%4)"),
        (x // -4, "(-x)//4"),
        (minimum(n + 3, n + 1), "n + 1"),
        (minimum(4, n, 7, minimum(n, m)), "min(4, m, n)"),
        (maximum(x), "x"),
        (maximum(3, 5), "5"),
        (maximum(0, minimum(x, n)), "max(0, min(n, x))"),
        (2 * minimum(x, 3) - 1, "2*min(3, x) - 1"),
        (as_int(1) // (n + 1), "1//(n + 1)"),
    ],
)
def test_normal_form(expr: Int, printed: str) -> None:
    assert str(expr) == printed
    assert parse_int(printed) is expr


def test_equality_is_identity() -> None:
    assert x + y is y + x
    assert (x + y == y + x) is True
    assert (x == y) is False
    assert const(3) == 3 and hash(const(3)) == hash(3) and const(300) is const(299) + 1
    assert x != 3 and x != "x"
    assert {const(3): "three"}[3] == "three"  # type: ignore[index]


def test_order_of_construction_does_not_matter() -> None:
    parts = [8 * (n // 8), n // 8 * 8, n % 8, -n, 16 * (m // 4), 4 * (m % 4)]
    forward = sum(parts, const(0))
    assert sum(reversed(parts), const(0)) is forward


def test_queries() -> None:
    e = 3 * n * (m // 4) + 7
    assert e.names == {"n", "m"} and not e.is_const and const(7).value == 7
    assert [(coefficient, len(factors)) for coefficient, factors in e.terms()] == [(3, 2), (7, 0)]
    assert e.linear("n") == (3 * (m // 4), 7)
    assert e.linear("m") is None and (n * n).linear("n") is None
    assert e.linear("k") == (0, e)
    assert e.subs({"m": 8, "n": x}) == 6 * x + 7
    assert (x + 2 * y).subs({"x": y, "y": x}) == y + 2 * x
    assert e.eval({"n": 2, "m": 9}) == 19
    with pytest.raises(ValueError, match="not a constant"):
        _ = e.value


def test_misuse_is_refused() -> None:
    with pytest.raises(ZeroDivisionError):
        x // 0
    with pytest.raises(TypeError):
        bool(x < y)  # type: ignore[operator]
    with pytest.raises(TypeError):
        bool(x)
    for text in ("__import__('os')", "x.y", "x / 2", "min()", "1 +", "x ** y", "True"):
        with pytest.raises(ValueError, match="expression"):
            parse_int(text)
    with pytest.raises(ValueError, match="cannot name"):
        var("min")


def test_copies_are_the_same_object() -> None:
    e = minimum(x // n, 4) + x % 3
    assert copy.copy(e) is e and copy.deepcopy(e) is e and pickle.loads(pickle.dumps(e)) is e


@given(trees(), valuations())
@settings(max_examples=draws(700), deadline=None)
def test_value_and_text_survive(tree: Tree, values: dict[str, int]) -> None:
    expr = as_int(build(tree))
    assert expr.eval(values) == build(tree, values)
    assert parse_int(str(expr)) is expr
    namespace = {name: var(name) for name in expr.names} | {"min": minimum, "max": maximum}
    assert as_int(eval(str(expr), namespace)) is expr


@given(trees(), trees(), valuations())
@settings(max_examples=draws(300), deadline=None)
def test_substitution_is_evaluation(tree: Tree, new: Tree, values: dict[str, int]) -> None:
    expr, replacement = as_int(build(tree)), as_int(build(new))
    after = expr.subs({"x": replacement})
    assert after.eval(values) == expr.eval(values | {"x": replacement.eval(values)})


@given(trees(), trees(), trees())
@settings(max_examples=draws(300), deadline=None)
def test_sums_and_products_are_canonical(p: Tree, q: Tree, r: Tree) -> None:
    a, b, c = (as_int(build(tree)) for tree in (p, q, r))
    assert a + b is b + a
    assert a * b is b * a
    assert a - a == 0 and a + 0 is a and a * 1 is a
    assert c.linear("x") is None or c.linear("x")[0] * x + c.linear("x")[1] is c  # type: ignore[index]

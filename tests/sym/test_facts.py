"""Facts: one line a rule, then every answer checked on all values of small domains."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pliant.sym.expr import Int, as_int, ceildiv, maximum, minimum, var
from pliant.sym.facts import ContradictionError, Facts
from tests.share import draws
from tests.sym.trees import Tree, build, trees

i, j, k, m, n, q, s, t, x, y = map(var, "ijkmnqstxy")
batch, seq = var("batch"), var("seq")


def scene() -> Facts:
    """Dimensions n, m, q and s (a multiple of 16); i < n, j < 16, k < m; any x and y."""
    facts = Facts()
    facts.declare("n", min=1)
    facts.declare("m", min=1, max=100)
    facts.declare("q")
    facts.declare("s", multiple=16)
    facts.declare_index("i", n)
    facts.declare_index("j", 16)
    facts.declare_index("k", m)
    return facts


@pytest.mark.parametrize(
    ("expr", "printed"),
    [
        (j // 16, "0"),
        (j % 16, "j"),
        ((16 * x + j) // 16, "x"),
        ((16 * x + j) % 16, "j"),
        ((q * n + i) // n, "q"),
        ((q * n + i) % n, "i"),
        ((i * m + k) // m, "i"),
        ((i * m + k) // (m * n), "0"),
        ((q * n * m + i * m + k) // (m * n), "q"),
        ((q * n * m + i * m + k) % (m * n) // m, "i"),
        ((n - 1 - i) // n, "0"),
        ((n - 1 - i) % n, "-i + n - 1"),
        ((16 * x + j) // 64, "x//4"),
        ((16 * x + j) % 64, "j + 16*(x%4)"),
        ((m * x + k) // (m * n), "x//n"),
        ((j - 16) // 16, "-1"),
        (s // 8 * 8, "s"),
        ((s * x + j) // 16, "(s//16)*x"),
        ((s * x + j) % 16, "j"),
        (s % 8, "0"),
        (ceildiv(s, 16), "s//16"),
        (minimum(m, 200), "m"),
        (minimum(m, 0), "0"),
        (maximum(n, 1), "n"),
        (minimum(i + 1, n), "i + 1"),
        (minimum(16, s + 16 * j + 16, q + 16), "16"),
        ((x + minimum(q, 0)) // n, "x//n"),
        (j // 4 % 4, "j//4"),
        (j * 3 // 4, "(3*j)//4"),
    ],
)
def test_simplify(expr: Int, printed: str) -> None:
    assert str(scene().simplify(expr)) == printed


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        (lambda f: f.lt(i, n), True),
        (lambda f: f.lt(i * 16 + j, n * 16), True),
        (lambda f: f.lt(i * m + k, n * m), True),
        (lambda f: f.lt(i * m + k, n * m - 1), False),
        (lambda f: f.le(i, n - 2), False),
        (lambda f: f.nonneg(n - i - 1), True),
        (lambda f: f.positive(n), True),
        (lambda f: f.positive(q), False),
        (lambda f: f.nonneg(x), False),
        (lambda f: f.nonneg(x * x), True),
        (lambda f: f.le(16 * (x // 16), x), True),
        (lambda f: f.lt(x, 16 * (x // 16) + 16), True),
        (lambda f: f.le(q, ceildiv(q, 16) * 16), True),
        (lambda f: f.lt(ceildiv(q, 16) * 16, q + 16), True),
        (lambda f: f.le(n * (x // n), x), True),
        (lambda f: f.le(minimum(x, y), x), True),
        (lambda f: f.le(x, maximum(x, y)), True),
        (lambda f: f.equal(minimum(x, y) + maximum(x, y), x + y), True),
        (lambda f: f.equal(maximum(x, x + n), x + n), True),
        (lambda f: f.lt(x % n, n), True),
        (lambda f: f.le(q % n, q), True),
        (lambda f: f.le(n, n * n), True),
        (lambda f: f.le(q, q * n), True),
        (lambda f: f.le(0, q * (2 * n - 1) * (2 * m - 1)), True),  # multiplied out
        (lambda f: f.le(m, n * m), True),
        (lambda f: f.le(1, (3 * n - 2) * (5 * m - 4) * (n + m - 1)), True),
        (lambda f: f.le(0, (2 * n - 3) * (2 * m - 1)), False),
        (lambda f: f.le(0, q * (n - m) * (2 * m - 1)), False),
        (lambda f: f.equal(x - x % 4, 4 * (x // 4)), True),
        (lambda f: f.equal(x - 4 * (x // 4), x % 4), True),
        (lambda f: f.equal(s // 8, 2 * (s // 16)), True),
        (lambda f: f.equal(x, y), False),
        (lambda f: f.divisible(s * x + 32, 16), True),
        (lambda f: f.divisible(s * s, 256), True),
        (lambda f: f.divisible(s // 4, 4), True),
        (lambda f: f.divisible(s, 32), False),
        (lambda f: f.divisible(n * x, n), True),
        (lambda f: f.divisible(x, 0), False),
    ],
)
def test_claims(claim: Callable[[Facts], bool], expected: bool) -> None:
    assert claim(scene()) is expected


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (m, (1, 100)),
        (k, (0, 99)),
        (2 * m - 3 * j, (2 - 45, 200)),
        (m * j, (0, 1500)),
        (x, (None, None)),
        (x % 8, (0, 7)),
        (x * x, (0, None)),
        (n - i, (1, None)),
        (m // 8, (0, 12)),
        (-m // 8, (-13, -1)),
        (minimum(x, m), (None, 100)),
        (maximum(x, m), (1, None)),
        (q // n, (0, None)),
        (j * 10**400, (0, 15 * 10**400)),
        (n * 10**400, (10**400, None)),
    ],
)
def test_bounds(expr: Int, expected: tuple[int | None, int | None]) -> None:
    assert scene().bounds(expr) == expected


def test_tiles_stay_inside() -> None:
    facts = Facts()
    facts.declare("n")
    facts.declare_index("t", ceildiv(n, 16))
    facts.declare_index("j", minimum(16, n - 16 * t))
    assert facts.lt(16 * t + j, n)
    assert facts.positive(n - 16 * t)
    assert not facts.positive(n)
    assert facts.le(16 * t + 16, n + 15)


def test_quotients_of_products_stay_below() -> None:
    facts = scene()
    facts.declare_index("f", n * m)
    assert facts.lt(var("f") // m, n)
    assert not facts.lt(var("f") // m, n - 1)


def test_no_minimum_exceeds_its_last_argument() -> None:
    """Whatever the search finds to do in the others first."""
    facts = scene()
    facts.declare_index("b", (n + 3) // 4)
    b = var("b")
    long = (3 * minimum(4, n - 4 * b) + 4 * b + 5) // 8 + b
    for last in ((m + 7) // 8, m * j + 1):
        assert facts.le(minimum(long, last), last)
        assert facts.le(last, maximum(long, last))


def test_what_is_defined_again_is_known_once() -> None:
    facts = Facts()
    facts.declare("n", min=1)
    facts.define("blocks", n // 16)
    before = list(facts._store.nonneg)
    facts.define("blocks", n // 16)
    assert before == [n - 16 * var("blocks")] == facts._store.nonneg


def test_definitions_are_known_by_their_bounds() -> None:
    facts = scene()
    facts.define("blocks", n // 16)
    facts.define("rest", minimum(n, 7))
    assert facts.le(16 * var("blocks"), n)
    assert facts.le(var("rest"), 7) and facts.le(var("rest"), n) and facts.positive(var("rest"))
    assert facts.simplify(var("blocks") + n // 16) == var("blocks") + n // 16  # replaced nowhere


def test_answers_get_better_with_facts() -> None:
    facts = scene()
    assert not facts.le(x, 5)
    assert facts.bounds(x + y) == (None, None)
    inner = facts.copy()
    inner.declare("x", min=0, max=5)
    assert inner.le(x, 5) and not facts.le(x, 5)
    inner.assume_le(y, 2)
    assert inner.bounds(x + y) == (None, 7)
    inner.declare("x", min=0, max=9)
    assert not inner.le(x, 5)


def test_equalities() -> None:
    facts = Facts()
    facts.declare("n", min=2, likely=(7,))
    facts.declare("m", max=50, multiple=8)
    facts.assume_equal(m, n)
    assert facts.simplify(m + n) == 2 * n
    assert facts.bounds(n) == (8, 48) and facts.range_of("m") == (8, 48)
    assert facts.divisible(n, 8) and facts.likely("n") == (7,)
    facts.assume_equal(n, 16)
    assert facts.simplify(m * x) == 16 * x
    with pytest.raises(ContradictionError):
        facts.assume_equal(m, 17)
    with pytest.raises(ContradictionError):
        facts.assume_le(m, 3)


def test_equality_with_a_sum_bounds_the_other_side() -> None:
    facts = Facts()
    for name in ("past", "seq", "total"):
        facts.declare(name)
    facts.assume_equal(var("total"), var("past") + seq)
    assert facts.le(seq, var("total"))
    assert facts.equal(var("total") - seq, var("past"))
    facts.declare("total", max=4096)
    assert facts.bounds(var("past"))[1] == 4096


def test_equality_with_an_extreme_bounds_its_arguments() -> None:
    facts = Facts()
    facts.declare("n")
    facts.declare("m")
    facts.assume_equal(maximum(n + 2, 7), n + 2)
    facts.assume_equal(3, minimum(m, (n + 1) // 2, 3))
    assert facts.bounds(n)[0] == 5
    assert facts.le(3, m) and facts.le(3, (n + 1) // 2)


def test_what_is_known_of_a_quotient_or_an_extreme_is_known_of_what_is_in_it() -> None:
    """As of a chain of windows, each of which has to fit in the image that the one before left."""
    facts = Facts()
    facts.declare("n")
    facts.assume_le(4, maximum(3, (n - 3) // 5))
    assert facts.bounds(n) == (23, None)
    facts.assume_equal(maximum(3, n // 20 - 1), maximum(0, n // 20 - 1))
    assert facts.bounds(n) == (80, None)
    assert facts.equal((maximum(0, n // 20 - 1) + 13) // 16, (n + 240) // 320)
    facts.assume_lt(minimum(200, n // 2), 100)
    assert facts.bounds(n) == (80, 199)


def test_a_range_of_one_number_is_that_number() -> None:
    facts = Facts()
    facts.declare_index("i", 1)
    facts.declare("n", min=3)
    facts.assume_le(n, 3)
    assert facts.simplify(16 * i + n * j) == 3 * j
    facts.declare_index("i", 2)
    assert facts.simplify(i) == i


def test_products() -> None:
    facts = Facts()
    for name in ("batch", "seq", "a", "b"):
        facts.declare(name, min=1)
    facts.assume_product_equal([batch, seq], [2, var("a"), var("b")])
    assert facts.equal(batch * seq * 4, 8 * var("a") * var("b"))
    assert facts.equal(var("a") * var("b"), batch * seq // 2)
    assert facts.divisible(batch * seq, 2)
    facts.assume_product_equal([batch, 12, 64], [batch, var("heads"), 64])
    assert facts.simplify(var("heads")) == 12
    facts.declare("z")
    facts.assume_product_equal([var("z"), x], [var("z"), y])
    assert not facts.equal(x, y)


def test_divisibility() -> None:
    facts = Facts()
    facts.assume_divisible(n, 4)
    facts.assume_divisible(n, 6)
    assert facts.divisible(n, 12) and facts.multiple_of("n") == 12
    facts.assume_divisible(x + y, 8)
    assert facts.divisible(3 * x + 3 * y + 16, 8) and not facts.divisible(x, 2)
    facts.declare("heads", min=1)
    facts.assume_divisible(m, var("heads"))
    assert facts.simplify(m // var("heads") * var("heads")) == m
    assert facts.simplify(m * x % var("heads")) == 0
    facts.assume_equal(q % 32, 0)
    assert facts.divisible(q, 32)
    with pytest.raises(ContradictionError):
        facts.assume_divisible(3, 2)


def test_inequalities() -> None:
    facts = Facts()
    facts.assume_lt(x, y)
    facts.assume_le(y, 10)
    facts.assume_le(0, x)
    assert facts.bounds(x) == (0, 9) and facts.bounds(y) == (1, 10)
    facts.declare("n", min=1)
    assert facts.le(x * n, y * n)
    assert facts.simplify(minimum(x, y)) == x


def test_inequalities_of_whole_numbers() -> None:
    """All but one of so many columns, in vectors of 16."""
    facts = Facts()
    for name in "nm":
        facts.declare(name, 0, None)
    columns = 4 * n * m - 1
    facts.assume_le(0, columns)
    assert facts.le(1, n * m)
    assert facts.nonneg(columns // 64)
    facts.assume_le(6 * n * m, 29)
    assert facts.bounds(n * m) == (1, 4)
    facts.assume_le(m * m, 6 * n + 5)
    assert not facts.le(m * m, 6 * n + 4)


def test_copies_and_redeclarations_are_independent() -> None:
    facts = scene()
    inner = facts.copy()
    inner.declare_index("i", 4)
    inner.assume_equal(n, 8)
    assert inner.bounds(i) == (0, 3) and inner.equal(n, 8)
    assert facts.bounds(i) == (0, None) and not facts.equal(n, 8)


def test_no_query_raises() -> None:
    facts = Facts()
    facts.declare("n", max=0)
    facts.assume_equal(n, 0)
    assert facts.simplify(x // n) == x // n
    assert not facts.equal(x % n, 1)
    facts.declare_index("i", 0)
    facts.bounds(i * x)
    facts.declare("a", max=var("b"))
    facts.declare("b", max=var("a"))
    assert facts.bounds(var("a")) == (0, None)


PROGRAM = """
from pliant.sym.expr import *
from pliant.sym.facts import Facts
facts = Facts()
names = ["seq", "batch", "heads", "past", "total", "z", "a"]
for name in names:
    facts.declare(name, min=1)
seq, batch, heads, past, total, z, a = map(var, names)
facts.assume_equal(total, past + seq)
facts.assume_product_equal([z, a], [batch, heads, seq])
x = minimum(z*a + total, batch*heads + past//4, seq % 3) * (a + z + heads)
print(x, facts.simplify(x), facts.bounds(x), [str(atom) for _, atom in x.terms()])
"""


def test_every_process_prints_the_same() -> None:
    printed = set()
    for seed in ("1", "2", "3"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", PROGRAM]
        printed.add(subprocess.check_output(command, env=environment, text=True))
    assert len(printed) == 1


DIMS = st.integers(1, 3)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Facts, list[dict[str, int]]]:
    """Facts over NAMES and all the (small) valuations that satisfy them."""
    facts = Facts()
    n_max, m_multiple, x_low, y_extent = (
        draw(DIMS),
        draw(DIMS),
        draw(st.integers(-4, 2)),
        draw(DIMS),
    )
    facts.declare("n", min=1, max=n_max)
    facts.declare("m", min=1, max=6, multiple=m_multiple)
    facts.declare("x", min=x_low, max=x_low + 4)
    facts.declare_index("y", n * y_extent)
    facts.declare("z", min=-2, max=3)
    spans = [range(x_low, x_low + 5), range(9), range(-2, 4), range(1, n_max + 1), range(1, 7)]
    values = [dict(zip("xyznm", point, strict=True)) for point in itertools.product(*spans)]
    kept = [v for v in values if v["m"] % m_multiple == 0 and v["y"] < v["n"] * y_extent]
    for kind, left, right in draw(st.lists(ASSUMPTIONS, max_size=2)):
        a, b = as_int(build(left)), as_int(build(right))
        kept = [v for v in kept if HOLDS[kind](a.eval(v), b.eval(v))]
        try:
            getattr(facts, f"assume_{kind}")(a, b)
        except ContradictionError:
            assert not kept
    assume(kept)
    return facts, kept[:: max(1, len(kept) // 40)]


ASSUMPTIONS = st.one_of(
    st.tuples(st.sampled_from(["equal", "le", "lt"]), trees(4), trees(4)),
    st.tuples(st.just("divisible"), trees(4), st.integers(1, 6)),
)
HOLDS: dict[str, Callable[[int, int], bool]] = {
    "equal": lambda a, b: a == b,
    "le": lambda a, b: a <= b,
    "lt": lambda a, b: a < b,
    "divisible": lambda a, b: a % b == 0,
}


@given(worlds(), trees(8), trees(4), st.integers(1, 8))
@settings(max_examples=draws(400), deadline=None)
def test_answers_hold(
    world: tuple[Facts, list[dict[str, int]]], tree: Tree, other: Tree, by: int
) -> None:
    facts, values = world
    a, b = as_int(build(tree)), as_int(build(other))
    simple, settled = facts.simplify(a), facts.settle(a)
    low, high = facts.bounds(a)
    equal, le, lt = facts.equal(a, b), facts.le(a, b), facts.lt(a, b)
    divisible = facts.divisible(a, by)
    for v in values:
        value, rhs = a.eval(v), b.eval(v)
        assert simple.eval(v) == settled.eval(v) == value
        assert (low is None or low <= value) and (high is None or value <= high)
        assert not equal or value == rhs
        assert not le or value <= rhs
        assert not lt or value < rhs
        assert not divisible or value % by == 0


@given(worlds(), trees(6), trees(4), st.booleans())
@settings(max_examples=draws(200), deadline=None)
def test_answers_of_a_copy_hold(
    world: tuple[Facts, list[dict[str, int]]], tree: Tree, other: Tree, further: bool
) -> None:
    """With a variable of its own, and perhaps a fact more; what the other learns is not known."""
    facts, values = world
    inner = facts.copy()
    inner.declare_index("w", n + 1)
    a, b = as_int(build(tree)), as_int(build(other))
    facts.declare("w", min=100)
    with suppress(ContradictionError):
        facts.assume_le(x, -2)
    if further:
        values = [v for v in values if v["z"] <= 2]
        try:
            inner.assume_le(var("z"), 2)
        except ContradictionError:
            assert not values
    asked = a + var("w") * b
    simple, (low, high) = inner.simplify(asked), inner.bounds(asked)
    le = inner.le(a, b)
    for v in values:
        assert not le or a.eval(v) <= b.eval(v)
        for w in (0, v["n"]):
            value = asked.eval(v | {"w": w})
            assert simple.eval(v | {"w": w}) == value
            assert (low is None or low <= value) and (high is None or value <= high)


@pytest.mark.parametrize(
    ("expr", "printed"),
    [
        (maximum(0, q - 1) + minimum(1, q), "q"),
        ((maximum(0, minimum(1, q) + q - 1) + 1) // 2, "(q + 1)//2"),
        (maximum(0, s - 1) + minimum(1, s), "s"),
        (minimum(1, q), "min(1, q)"),
        (maximum(0, n - 2) + minimum(2, n), "n"),
        (maximum(0, q - 1), "max(0, q - 1)"),
        (maximum(0, x - 1) + minimum(1, x), "max(0, x - 1) + min(1, x)"),  # x may be negative
    ],
)
def test_settle(expr: Int, printed: str) -> None:
    assert str(scene().settle(expr)) == printed


def test_a_copy_answers_by_its_origin() -> None:
    """What is asked of copies about sizes alone is found once."""
    facts = scene()
    asked = minimum(n * m, q + n * m)
    for _ in range(3):
        inner = facts.copy()
        inner.declare_index("z", n)
        assert inner.simplify(asked) == n * m
    assert asked in facts._store.simplified


def test_an_abbreviation_keeps_other_answers_and_says_what_it_means() -> None:
    facts = Facts()
    facts.declare("n", min=1)
    a, n = var("a"), var("n")
    assert not facts.nonneg(a - n)
    assert facts.simplify((n + a) // 2) == (n + a) // 2
    facts.assume_equal(a, 3 * n)
    assert facts.nonneg(a - n)
    assert facts.simplify((n + a) // 2) == 2 * n
    facts.declare("i", min=0, max=a - 1)
    assert facts.lt(var("i"), 3 * n)


def test_a_new_variable_that_a_fact_mentions() -> None:
    facts = Facts()
    facts.declare("i", min=0, max=var("n") - 1)
    assert facts.bounds(var("i")) == (0, None)
    facts.declare("n", min=1, max=8)
    assert facts.bounds(var("i")) == (0, 7)


@pytest.mark.parametrize("facts", [["x + x//2"], ["x + y//2", "y + x//2"], ["x - 3*(x//4)"]])
def test_multiples_that_lead_back_to_themselves(facts: list[str]) -> None:
    """Simplifying ends, at what is equal, where what is divisible has a quotient of itself."""
    x, y = var("x"), var("y")
    known = Facts()
    known.declare("x", min=2, max=60)
    known.declare("y", min=0, max=60)
    multiples = [as_int(eval(f, {"x": x, "y": y})) for f in facts]
    for m in multiples:
        known.assume_divisible(m, 2)
        known.assume_divisible(m, 2)
    asked = [x // 2, y // 2, x // 4 + x, (x + y) // 2, *multiples, *(m // 2 for m in multiples)]
    held = 0
    for a, b in itertools.product(range(2, 61), range(61)):
        values = {"x": a, "y": b}
        if any(m.eval(values) % 2 for m in multiples):
            continue
        held += 1
        for e in asked:
            assert known.simplify(e).eval(values) == e.eval(values), e
    assert held

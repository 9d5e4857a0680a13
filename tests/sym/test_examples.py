"""Values that contradict a claim: only where no proof can be."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from pliant.sym.examples import contradicted
from pliant.sym.expr import Int, as_int, var
from pliant.sym.facts import Facts
from tests.share import draws
from tests.sym.test_facts import scene, worlds
from tests.sym.trees import Tree, build, trees

i, j, m, n, q, s, unknown = map(var, ("i", "j", "m", "n", "q", "s", "unknown"))


@pytest.mark.parametrize(
    ("claim", "found"),
    [
        (n - 2, True),
        (500 - n, True),
        (n * m - 3 * m, True),
        (n - 1 - i, False),
        (16 * n - 16 * i - j - 1, False),
        (s - 16 * (s // 16), False),
        (4 - unknown, True),
        (as_int(3) // q - 1, True),  # where q is 0 it says nothing
    ],
    ids=str,
)
def test_claims(claim: Int, found: bool) -> None:
    assert contradicted(scene()._store, claim) is found


def test_values_follow_the_facts() -> None:
    facts = scene()
    assert contradicted(facts._store, n - 2)
    facts.assume_le(2, n)
    assert not contradicted(facts._store, n - 2)
    facts.declare("twice")
    facts.assume_equal(var("twice"), 2 * q)
    assert not contradicted(facts._store, var("twice") - 2 * q)
    assert contradicted(facts._store, var("twice") - 3 * q)


def test_values_of_a_copy_follow_its_own_facts() -> None:
    """Variables and abbreviations that its origin does not know."""
    facts = scene().copy()
    facts.declare_index("z", 3)
    facts.assume_equal(var("twice"), 2 * q)
    store = facts._store
    assert store.origin() is not None
    assert not contradicted(store, 2 - var("z"))
    assert contradicted(store, 1 - var("z"))
    assert not contradicted(store, var("twice") - 2 * q)
    assert contradicted(store, var("twice") - 3 * q)
    assert contradicted(store, n - 2)


@given(worlds(), trees(8))
@settings(max_examples=draws(300), deadline=None)
def test_what_is_proved_is_not_contradicted(
    world: tuple[Facts, list[dict[str, int]]], tree: Tree
) -> None:
    facts, _ = world
    x = as_int(build(tree))
    low, high = facts.bounds(x)
    assert low is None or not contradicted(facts._store, x - low)
    assert high is None or not contradicted(facts._store, high - x)


def test_values_are_within_what_facts_bound() -> None:
    """A size that others bound by a fact (a quotient that was given a name), and loops over it:
    whether rows are left over is not asked of a search."""
    facts = Facts()
    rows, tiles, tile = map(var, ("rows", "tiles", "tile"))
    facts.declare("rows")
    facts.define("tiles", (rows + 1) // 2)
    facts.declare_index("tile", tiles)
    facts.declare_index("row", 2)
    store = facts._store
    assert contradicted(store, rows - 2 * tile - 2)  # of an odd number the last is half a tile
    assert contradicted(store, 2 * tile + 1 - rows)
    assert contradicted(store, tile - 1) and contradicted(store, tiles - 2 - tile)
    assert not contradicted(store, rows - 2 * tile - 1)
    assert not contradicted(store, tiles - 1 - tile)


def test_values_chosen_one_after_the_other() -> None:
    """As variables are declared and asked about, in a set of facts and in its copies."""
    facts = Facts()
    facts.declare("rows", min=1)
    assert contradicted(facts._store, 1 - var("rows"))
    facts.declare_index("k", var("rows"))
    facts.define("half", var("k") // 2)
    copy = facts.copy()
    copy.declare_index("z", var("half"))
    for store in (copy._store, facts._store):
        assert contradicted(store, var("k") - 4) and contradicted(store, var("half") - 2)
        assert not contradicted(store, var("rows") - 1 - var("k"))
        assert not contradicted(store, var("k") - 2 * var("half"))
    assert contradicted(facts._store, var("k") - 1)
    assert not contradicted(copy._store, var("k") - 2)  # the loop goes round
    assert contradicted(copy._store, var("half") - 2 - var("z"))
    assert not contradicted(copy._store, var("half") - 1 - var("z"))
    facts.assume_le(8, var("k"))
    assert not contradicted(facts._store, var("half") - 4)

"""Maps through tables: a page table as the example, then judgements against random tables."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.sym.expr import Int, as_int, const, parse_int, var
from pliant.sym.facts import Facts
from pliant.sym.index_map import IndexMap
from pliant.sym.table_map import Lookup, TableMap
from tests.share import draws

batch, seq, count, b, t, d, page = map(var, ("batch", "seq", "count", "b", "t", "d", "page"))

PAGED = TableMap(
    ("b", "t", "d"),
    (batch, seq, const(64)),
    (Lookup("page", "pages", (b, t // 16), count, distinct=True),),
    (page, t % 16, d),
)
ROWS = TableMap(
    ("i", "j"), (var("n"), var("m")), (Lookup("row", "rows", (var("i"),), var("k")),),
    (var("row"), var("j")),
)  # fmt: skip


def test_strides_and_contiguity() -> None:
    assert PAGED.contiguity([16 * 64, 64, 1]) == "contiguous"
    assert PAGED.contiguity([16 * 64, 1, 16]) == "strided"
    assert PAGED.strides([16 * 64, 64, 1]) == (None, None, 1)
    assert PAGED.strides([0, 64, 1]) == (0, None, 1)
    along_time = TableMap(("b", "d", "t"), (batch, const(64), seq), PAGED.lookups, PAGED.outputs)
    assert along_time.contiguity([16 * 64, 64, 1]) == "gather"
    assert ROWS.contiguity([var("m"), 1]) == "contiguous"
    assert ROWS.contiguity([var("m"), 0]) == "broadcast"


def test_injectivity_needs_distinct_entries() -> None:
    assert PAGED.is_injective()
    assert not ROWS.is_injective()
    (lookup,) = PAGED.lookups
    shared = Lookup("page", "pages", lookup.index, count, distinct=False)
    assert not TableMap(PAGED.inputs, PAGED.extents, (shared,), PAGED.outputs).is_injective()


def test_compose() -> None:
    tile = IndexMap(("u", "v"), (var("tiles"), const(16)), (const(0), 16 * var("u") + var("v"), d))
    tiled = PAGED.compose(tile)
    assert tiled.outputs == (page, var("v"), d)
    assert tiled.lookups[0].index == (0, var("u"))
    assert tiled.contiguity([1024, 64, 1]) == "strided"
    flat = PAGED.then(IndexMap(("p", "s", "e"), (count, const(16), const(64)), (var("s"),)))
    assert flat.outputs == (t % 16,) and flat.lookups == ()
    twice = ROWS.compose(TableMap(("i", "j"), (var("n"), var("m")), ROWS.lookups, ROWS.outputs))
    assert [lookup.name for lookup in twice.lookups] == ["row", "row_"]
    assert twice.lookups[1].index == (var("row"),) and twice.outputs == (var("row_"), var("j"))


def test_image_and_misuse() -> None:
    assert PAGED.image() == [(0, count), (0, 16), (0, 64)]
    with pytest.raises(ValueError, match="too early"):
        TableMap(("i",), (as_int(4),), (Lookup("a", "x", (var("a"),), as_int(3)),), (var("a"),))


@st.composite
def cases(draw: st.DrawFn) -> tuple[TableMap, dict[str, dict[tuple[int, ...], int]]]:
    """A map of two inputs through one or two tables, and the contents of the tables."""
    index = st.sampled_from(["i", "j", "i//2", "i%2", "i + j", "2*j + i", "0"])
    extents = (as_int(draw(st.integers(1, 4))), as_int(draw(st.integers(1, 3))))
    formulas = st.lists(index, min_size=1, max_size=2).map(lambda ts: tuple(map(parse_int, ts)))
    lookups = [Lookup("p", "P", draw(formulas), as_int(40), draw(st.booleans()))]
    if draw(st.booleans()):
        chained = draw(st.sampled_from([(), (var("p"),), (var("p") + var("i"),)]))
        lookups.append(Lookup("q", "Q", draw(formulas) + chained, as_int(40), draw(st.booleans())))
    outputs = st.sampled_from(["p", "i", "j", "3*p + j", "i%2", "4*p", lookups[-1].name])
    outs = draw(st.lists(outputs, min_size=1, max_size=3))
    tables: dict[str, dict[tuple[int, ...], int]] = {"P": {}, "Q": {}}
    table_map = TableMap(("i", "j"), extents, tuple(lookups), tuple(map(parse_int, outs)))
    for values in points(table_map, tables, draw):
        del values
    return table_map, tables


def points(table_map: TableMap, tables: Any, draw: Any = None) -> list[dict[str, int]]:
    """The values of all variables at all points; missing entries are drawn."""
    found = []
    for point in itertools.product(*(range(extent.value) for extent in table_map.extents)):
        values = dict(zip(table_map.inputs, point, strict=True))
        for lookup in table_map.lookups:
            table = tables[lookup.table]
            place = tuple(x.eval(values) for x in lookup.index)
            if place not in table:
                taken = set(table.values()) if lookup.distinct else set()
                table[place] = draw(st.integers(0, 39).filter(lambda v, s=taken: v not in s))
            values[lookup.name] = table[place]
        found.append(values)
    return found


@given(cases(), st.lists(st.integers(0, 5), min_size=3, max_size=3))
@settings(max_examples=draws(300), deadline=None)
def test_judgements_hold(case: tuple[TableMap, Any], numbers: list[int]) -> None:
    table_map, tables = case
    everything = points(table_map, tables)
    outputs = [tuple(out.eval(v) for out in table_map.outputs) for v in everything]
    if table_map.is_injective(Facts()):
        assert len(set(outputs)) == len(outputs)
    for at, box in enumerate(table_map.image()):
        assert box is not None
        assert all(box[0].value <= out[at] < box[0].value + box[1].value for out in outputs)
    strides = numbers[: len(table_map.outputs)]
    flat: dict[Any, int] = {}
    for values, out in zip(everything, outputs, strict=True):
        flat[values["i"], values["j"]] = sum(o * s for o, s in zip(out, strides, strict=True))
    for at, step in enumerate(table_map.strides(strides)):
        for point in flat:
            after = (point[0] + (at == 0), point[1] + (at == 1))
            if isinstance(step, Int) and after in flat:
                assert flat[after] - flat[point] == step.value
    simple = table_map.simplified()
    again = [tuple(out.eval(v) for out in simple.outputs) for v in points(simple, tables)]
    assert again == outputs

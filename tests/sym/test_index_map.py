"""Index maps: known shapes of maps, then every judgement checked by enumerating small boxes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.sym.expr import Int, IntLike, as_int, const, maximum, parse_int, var
from pliant.sym.facts import Facts
from pliant.sym.index_map import IndexMap
from tests.share import draws

n, m = var("n"), var("m")


def make(domain: dict[str, IntLike], *outputs: str) -> IndexMap:
    extents = tuple(map(as_int, domain.values()))
    return IndexMap(tuple(domain), extents, tuple(map(parse_int, outputs)))


def shown(index_map: IndexMap | None) -> str:
    if index_map is None:
        return "none"
    pairs = zip(index_map.inputs, index_map.extents, strict=True)
    domain = ", ".join(f"{name}<{extent}" for name, extent in pairs)
    return f"{domain} -> {', '.join(map(str, index_map.outputs))}"


FUSE = make({"i": n, "j": 16}, "16*i + j")
SPLIT = make({"f": 16 * n}, "f//16", "f%16")
MULTIPLE = Facts()
MULTIPLE.declare("n", min=1, multiple=16)
MULTIPLE.declare("m", min=1)


@pytest.mark.parametrize(
    ("index_map", "inverse"),
    [
        (FUSE, "o0<16*n -> o0//16, o0%16"),
        (SPLIT, "o0<n, o1<16 -> 16*o0 + o1"),
        (make({"i": n, "j": m}, "j", "i"), "o0<m, o1<n -> o1, o0"),
        (make({"i": n, "j": m}, "i*m + j"), "o0<m*n -> o0//m, o0%m"),
        (make({"i": n}, "i//16", "i%16"), "o0<n//16, o1<16 -> 16*o0 + o1"),
        (make({"i": 10}, "i//4", "i%4"), "none"),
        (make({"i": n}, "n - 1 - i"), "o0<n -> n - o0 - 1"),
        (make({"i": n}, "i", "0"), "o0<n, o1<1 -> o0"),
        (make({"i": n, "j": 1}, "i"), "o0<n -> o0, 0"),
        (make({"i": n}, "2*i"), "none"),
        (make({"i": n}, "i + 1"), "none"),
        (make({"i": n}, "i", "i"), "none"),
        (make({"i": n, "j": m}, "i"), "none"),
        (make({"i": n, "j": n}, "i + j"), "none"),
        (make({"i": n}, "i*i"), "none"),
        (
            make({"a": n, "b": m}, "(m*a + b)//8", "(m*a + b)%8"),
            "o0<m*(n//8), o1<8 -> (8*o0 + o1)//m, (o1 + 8*o0)%m",
        ),
        (
            make({"h": 8, "w": 12, "c": 3}, "h//2", "w//4", "h%2", "4*c + w%4"),
            "o0<4, o1<3, o2<2, o3<12 -> o2 + 2*o0, 4*o1 + o3%4, o3//4",
        ),
    ],
)
def test_inverse(index_map: IndexMap, inverse: str) -> None:
    found = index_map.inverse(MULTIPLE)
    assert shown(found).replace(" ", "").split("->")[0] == inverse.replace(" ", "").split("->")[0]
    if found is not None:
        expected = inverse.split(" -> ")[1].split(", ")
        assert list(found.outputs) == [parse_int(text) for text in expected]
        back = found.compose(index_map, MULTIPLE)
        assert back.outputs == tuple(map(var, index_map.inputs)) or 1 in index_map.extents


def test_compose_simplifies() -> None:
    assert shown(SPLIT.compose(FUSE)) == "i<n, j<16 -> i, j"
    assert shown(FUSE.compose(SPLIT)) == "f<16*n -> f"
    swap = make({"a": n, "b": m}, "b", "a")
    assert shown(swap.compose(make({"x": m, "y": n}, "y", "x"))) == "x<m, y<n -> x, y"
    with pytest.raises(ValueError, match="cannot feed"):
        FUSE.compose(FUSE)


def test_image() -> None:
    assert FUSE.image() == [(const(0), 16 * n)]
    conv = make({"o": n, "k": 3}, "2*o + k - 1")
    assert conv.image() == [(const(-1), 2 * n + 1)]
    assert make({"i": n}, "5 - i", "i//16", "i%7").image() == [
        (6 - n, n),
        (const(0), (n - 1) // 16 + 1),
        (const(0), const(7)),
    ]
    assert make({"i": n}, "i*x").image() == [None]


@pytest.mark.parametrize(
    ("index_map", "expected"),
    [
        (FUSE, True),
        (SPLIT, True),
        (make({"i": 10}, "i//4", "i%4"), True),
        (make({"i": n, "j": 3}, "4*i + j"), True),
        (make({"i": n, "j": 5}, "4*i + j"), False),
        (make({"i": n, "j": m}, "i", "i + j"), False),
        (make({"i": n, "j": m}, "7 - j", "i + 3"), True),
        (make({"i": n}, "i//4"), False),
        (make({"i": n, "j": m}, "i"), False),
        (make({"i": n}, "0"), False),
        (make({"a": n, "b": m}, "(m*a + b)//8", "(m*a + b)%8"), True),
    ],
)
def test_injective(index_map: IndexMap, expected: bool) -> None:
    assert index_map.is_injective(MULTIPLE) is expected


@pytest.mark.parametrize(
    ("index_map", "box", "expected"),
    [
        (FUSE, [16 * n], True),
        (FUSE, [16 * n - 1], True),
        (FUSE, [16 * n + 1], False),
        (SPLIT, [n, 16], True),
        (make({"o": n, "k": 3}, "2*o + k"), [2 * n + 1], True),
        (make({"o": n, "k": 3}, "4*o + k"), [4 * n - 1], False),
        (make({"i": n, "r": m}, "i"), [n], True),
        (make({"i": n, "r": var("free")}, "i"), [n], False),
        (make({"i": var("free")}, "i"), [var("free")], True),
        (make({"i": n}, "i//16", "i//16"), [1, 1], False),
        (make({"i": n}, "i//4"), [n // 4], True),
    ],
)
def test_covers(index_map: IndexMap, box: list[IntLike], expected: bool) -> None:
    assert index_map.covers(box, MULTIPLE) is expected


@pytest.mark.parametrize(
    ("index_map", "strides", "kind", "steps"),
    [
        (make({"i": n, "j": m}, "i", "j"), [m, 1], "contiguous", (m, const(1))),
        (make({"i": n, "j": m}, "j", "i"), [n, 1], "strided", (const(1), n)),
        (make({"i": n, "j": m}, "i", "0"), [m, 1], "broadcast", (m, const(0))),
        (make({"i": n, "j": m}, "i", "j//2"), [m, 1], "gather", None),
        (make({"i": n, "j": 16}, "i", "j%16"), [16, 1], "contiguous", (const(16), const(1))),
        (SPLIT, [16, 1], "contiguous", (const(1),)),
        (SPLIT, [32, 1], "gather", None),
        (make({"i": n, "j": m}, "i*j"), [1], "gather", None),
    ],
)
def test_strides(
    index_map: IndexMap, strides: list[IntLike], kind: str, steps: tuple[Int, ...] | None
) -> None:
    assert index_map.contiguity(strides) == kind
    assert index_map.strides(strides) == steps


def test_malformed_maps_are_refused() -> None:
    with pytest.raises(ValueError, match="distinct"):
        make({"i": n}, "i").__class__(("i", "i"), (n, n), ())
    with pytest.raises(ValueError, match="box"):
        make({"i": n, "j": var("i")}, "i")


def term(draw: st.DrawFn, names: list[str]) -> Int:
    source = var(draw(st.sampled_from(names)))
    if draw(st.integers(0, 3)) == 0:
        source = source * draw(st.integers(1, 6)) + var(draw(st.sampled_from(names)))
    low, modulus = draw(st.sampled_from([1, 1, 2, 3])), draw(st.sampled_from([0, 0, 2, 3, 4]))
    digit = source // low % modulus if modulus else source // low
    return digit * draw(st.sampled_from([1, 1, 2, 3, 4, 6, 12, -1, -2]))


@st.composite
def maps(draw: st.DrawFn) -> tuple[IndexMap, dict[str, int]]:
    """A map with up to three inputs, and values for its symbol (at least 1) and a free one."""
    names = ["a", "b", "c"][: draw(st.integers(1, 3))]
    size = st.sampled_from([1, 2, 3, 4, 6, var("n"), 2 * var("n"), var("z")])
    extents = tuple(as_int(draw(size)) for _ in names)
    outputs = []
    for _ in range(draw(st.integers(1, 3))):
        parts = [term(draw, names) for _ in range(draw(st.integers(1, 3)))]
        out = sum(parts, const(draw(st.sampled_from([0, 0, 0, 1, 3]))))
        outputs.append(out)
    if draw(st.booleans()):
        outputs = mixed_radix(draw, names, extents)
    values = {"n": draw(st.integers(1, 4)), "z": draw(st.integers(0, 3))}
    return IndexMap(tuple(names), extents, tuple(outputs)), values


def mixed_radix(draw: st.DrawFn, names: list[str], extents: tuple[Int, ...]) -> list[Int]:
    """Split, flip, shuffle and fuse the inputs: often invertible."""
    digits = []
    for name, extent in zip(names, extents, strict=True):
        split = draw(st.sampled_from([1, 1, 2, 3]))
        flipped = draw(st.integers(0, 3)) == 0
        x = extent - 1 - var(name) if flipped else var(name)
        digits += [(x // split, maximum(extent // split, 0)), (x % split, const(split))]
    digits = draw(st.permutations(digits))
    outputs, at = [], 0
    while at < len(digits):
        out: Int = const(0)
        for digit, extent in digits[at : (at := at + draw(st.integers(1, 3)))]:
            out = out * extent + digit
        outputs.append(out)
    return outputs


def points(index_map: IndexMap, values: dict[str, int]) -> dict[tuple[int, ...], tuple[int, ...]]:
    sizes = [range(extent.eval(values)) for extent in index_map.extents]
    found = {}
    for point in itertools.product(*sizes):
        scope = values | dict(zip(index_map.inputs, point, strict=True))
        found[point] = tuple(out.eval(scope) for out in index_map.outputs)
    return found


@given(maps(), st.lists(st.integers(0, 8), min_size=9, max_size=9))
@settings(max_examples=draws(400), deadline=None)
def test_judgements_hold(case: tuple[IndexMap, dict[str, int]], numbers: list[int]) -> None:
    index_map, values = case
    facts = Facts()
    facts.declare("n", min=1)
    facts.declare("z")
    table = points(index_map, values)
    if index_map.is_injective(facts):
        assert len(set(table.values())) == len(table)
    boxes = index_map.image(facts)
    for at, box in enumerate(boxes):
        if box is not None:
            low, extent = box[0].eval(values), box[1].eval(values)
            assert all(low <= out[at] < low + extent for out in table.values())
    sizes = [const(v) for v in numbers[: len(boxes)]]
    for candidate in (sizes, [const(1) if b is None else b[0] + b[1] for b in boxes]):
        if index_map.covers(candidate, facts):
            target = itertools.product(*(range(extent.eval(values)) for extent in candidate))
            assert set(target) <= set(table.values())
    strides = numbers[3 : 3 + len(boxes)]
    steps = index_map.strides(strides, facts)
    flat = {p: sum(o * s for o, s in zip(out, strides, strict=True)) for p, out in table.items()}
    if steps is not None and table:
        origin = flat[(0,) * len(index_map.inputs)]
        for point, position in flat.items():
            moved = sum(i * s.eval(values) for i, s in zip(point, steps, strict=True))
            assert position == origin + moved
    inverse = index_map.inverse(facts)
    if inverse is not None:
        assert points(inverse, values) == {out: point for point, out in table.items()}

"""Bare expressions reach intrinsics: by which mapping, with which results, and why not."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import torch

from bench.kernel_calls import Kernel
from pliant.base.dtypes import f32, i32, u8
from pliant.codegen.build import target_intrinsics, target_matmuls
from pliant.codegen.llvm.square import is_square
from pliant.codegen.llvm.target import target
from pliant.ir.expr import Expr
from pliant.ir.tensor import compute, placeholder, reduce
from pliant.loop.from_tensor import unscheduled
from pliant.loop.rewrite import subst
from pliant.loop.stmt import Function, Invoke, Store, buffer, for_, statements
from pliant.schedule.auto_tensorize import auto_tensorize, mappings_to
from pliant.schedule.errors import SchedulingError
from pliant.schedule.intrinsic import Intrinsic
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from pliant.schedule.recipes.matmul_tile import MatmulIntrinsic
from pliant.sym.expr import Int, IntLike, var
from tests.schedule.programs import same
from tests.schedule.workloads import (
    BF16,
    DEPTHWISE,
    F32,
    INT8,
    WORKLOADS,
    Make,
    Types,
    Workload,
    matmul,
    transposed,
    window,
)
from tests.woven import woven

MM = MatmulIntrinsic("mm_3x4", 3, 4, 2)
n, m, k = var("n"), var("m"), var("k")


def product_tile(name: str, t: Types, rows: IntLike, columns: int, depth: int) -> Intrinsic:
    """c[i, j] += a[i, k] * b[k, j], in the type of the sum."""
    a, b = buffer("a", (rows, depth), t.a), buffer("b", (depth, columns), t.b)
    c = buffer("c", (rows, columns), t.sum, strides=(var("ldc"), 1))
    i, j, r = var("i"), var("j"), var("r")
    value = c[i, j] + a[i, r].cast(t.sum) * b[r, j].cast(t.sum)
    body = for_([("i", rows), ("j", columns), ("r", depth)], Store(c, c[i, j].indices, value))
    return Intrinsic(name, Function(name, (a, b, c), ("ldc",), body))


def dot(name: str, t: Types, columns: int, depth: int) -> Intrinsic:
    """c[j] += sum over k of a[k] * b[j, k]: what the dot product instructions do."""
    a, b = buffer("a", (depth,), t.a), buffer("b", (columns, depth), t.b)
    c = buffer("c", (columns,), t.sum)
    j, r = var("j"), var("r")
    value = c[j] + a[r].cast(t.sum) * b[j, r].cast(t.sum)
    body = for_([("j", columns), ("r", depth)], Store(c, c[j].indices, value))
    return Intrinsic(name, Function(name, (a, b, c), (), body))


def lanes(columns: int) -> Intrinsic:
    """c[j] += a[j] * b[j]: a vector's multiply and add."""
    a, b, c = (buffer(x, (columns,), f32) for x in "abc")
    j = var("j")
    body = for_([("j", columns)], Store(c, c[j].indices, c[j] + a[j] * b[j]))
    return Intrinsic("fma", Function("fma", (a, b, c), (), body))


def bare(w: Workload, *intrinsics: Intrinsic, **known: int) -> Program:
    return program(w.function(**known), intrinsics=intrinsics or MM.intrinsics)


def groups(p: Program, block: str, intrinsic: str) -> str:
    """The best mapping, without the block's name."""
    best = mappings_to(p, block, intrinsic).best
    assert best is not None
    return str(best).replace(f"{block}_v", "")


# Which iterators run as rows, columns and terms of a product, whatever the types.
MAPPINGS = {
    "a b -> c": "(i) -> i; (j) -> j; () -> q; (r) -> k",
    "aᵀ bᵀ -> cᵀ": "(i) -> i; (j) -> j; () -> q; (r) -> k",
    "batched aᵀ b -> c": "(j) -> i; (k) -> j; () -> q; (r) -> k; outside: i",
    "conv1d NCW": "(i, k) -> i; (j) -> j; (r) -> q; (s) -> k",
    "conv1d NWC": "(i, j) -> i; (k) -> j; (s) -> q; (r) -> k",
    "conv2d NCHW": "(i, k, l) -> i; (j) -> j; (r, s) -> q; (t) -> k",
    "conv2d NHWC": "(i, j, k) -> i; (l) -> j; (s, t) -> q; (r) -> k",
    "conv3d NDHWC": "(i0, i1, i2, i3) -> i; (i4) -> j; (r1, r2, r3) -> q; (r0) -> k",
    "strided": "(i, k, l) -> i; (j) -> j; (r, s) -> q; (t) -> k",
    "dilated": "(i, k, l) -> i; (j) -> j; (r, s) -> q; (t) -> k",
    "transposed, stride 2": "(i, k, l) -> i; (j) -> j; (r, s) -> q; (t) -> k",
}


@pytest.mark.parametrize("name", MAPPINGS)
def test_mappings_to_the_micro_kernel(name: str) -> None:
    w = WORKLOADS[name](F32)
    assert groups(bare(w), w.result.name, MM.plain) == MAPPINGS[name]


@pytest.mark.parametrize("name", [x for x in WORKLOADS if "grouped" not in x])
def test_mappings_are_the_same_for_all_types(name: str) -> None:
    """But for that u8 and i8 cannot change places."""
    found = []
    for t in (F32, BF16, INT8):
        w, tile = WORKLOADS[name](t), product_tile("tile", t, 4, 4, 2)
        maps = mappings_to(bare(w, tile), w.result.name, "tile").maps
        found.append([str(m) for m in maps])
    assert found[0] == found[1]
    first = found[2][0]
    assert first == next(m for m in found[0] if m in found[2])
    assert 2 * len(found[2]) == len(found[0])


def test_all_mappings_are_ranked() -> None:
    """Both operands may be packed, and rows may be fewer; where a weight is constant, it is."""
    w = WORKLOADS["conv2d NCHW"](F32)
    found = mappings_to(bare(w), "y", MM.plain)
    assert len(found.maps) == 6
    assert [m.rank for m in found.maps] == sorted(m.rank for m in found.maps)
    assert {m.operands[0].load.source.name for m in found.maps} == {"x", "w"}
    best = mappings_to(bare(w), "y", MM.plain, frozenset({"x"})).best
    assert best is not None
    assert best.operands[1].load.source.name == "x"


@pytest.mark.parametrize(("heads", "each", "together"), [(4, 2, True), (4, 1, True), (2, 3, False)])
def test_what_shares_a_panel(heads: int, each: int, together: bool) -> None:
    """What is too little to fill a panel is taken together with what lies next to it; not where
    that leaves as many panels, with elements across their borders."""
    a, b = placeholder("a", (n, k), f32), placeholder("b", (k, heads, each), f32)
    y = compute(
        (n, heads, each),
        lambda i, h, j: reduce("sum", (k,), lambda r: a[i, r] * b[r, h, j]),
        "y",
    )
    p = program(unscheduled("heads", [y], [a, b], ["n", "k"]), intrinsics=MM.intrinsics)
    best = mappings_to(p, "y", MM.plain, frozenset({"b"})).best
    assert best is not None
    assert len(best.groups["j"]) == (2 if together else 1)


@pytest.mark.parametrize(
    ("make", "types", "intrinsic", "reason"),
    [
        (DEPTHWISE, F32, MM.intrinsics[1], "no iterator indexes both y and w but not x"),
        (WORKLOADS["a b -> c"], INT8, MM.intrinsics[1], "it adds up i32, not f32"),
        (
            WORKLOADS["a b -> c"], Types(u8, u8, i32), dot("d", INT8, 4, 4),
            "it has cast of type u8 where the intrinsic converts i8",
        ),
        (WORKLOADS["a b -> c"], F32, lanes(4), "no iterator indexes c and x and y"),
    ],
)  # fmt: skip
def test_reasons(make: object, types: Types, intrinsic: Intrinsic, reason: str) -> None:
    w = make(types)  # type: ignore[operator]
    p = bare(w, intrinsic)
    with pytest.raises(SchedulingError, match=reason):
        auto_tensorize(p, w.result.name, [intrinsic.name])


def test_other_reasons() -> None:
    a, b = placeholder("a", (n, k), f32), placeholder("b", (k, m), f32)

    def refused(combiner: str, term: object) -> str:
        y = compute((n, m), lambda i, j: reduce(combiner, (k,), lambda r: term(i, j, r)), "y")  # type: ignore[operator]
        p = program(unscheduled("f", [y], [a, b], ["n", "m", "k"]), intrinsics=MM.intrinsics)
        with pytest.raises(SchedulingError) as caught:
            auto_tensorize(p, "y", [MM.plain])
        return str(caught.value)

    assert "it is a max, not a sum" in refused("max", lambda i, j, r: a[i, r] * b[r, j])
    text = refused("sum", lambda i, j, r: a[i, r] + b[r, j])
    assert "it has binary add where the intrinsic has binary mul" in text
    text = refused("sum", lambda i, j, r: (a[i, r] + a[i, 0]) * b[r, j])
    assert "what would be a is made of 2 elements" in text
    y = compute((n,), lambda i: reduce("sum", (m, k), lambda s, r: a[i, r] * b[r, s]), "y")
    p = program(unscheduled("f", [y], [a, b], ["n", "m", "k"]), intrinsics=MM.intrinsics)
    with pytest.raises(SchedulingError, match="no iterator indexes both y and b but not a"):
        auto_tensorize(p, "y", [MM.plain])
    with pytest.raises(SchedulingError, match="has no intrinsic 'amx'"):
        auto_tensorize(p, "y", ["amx"])


def with_zero_points(kind: str, **known: int) -> Function:
    """A product of bytes less their zero points: of a whole operand, of each row and column, or of
    a batch's."""
    lead: tuple[IntLike, ...] = (var("s"),) if kind == "batched" else ()
    a, b = placeholder("a", (*lead, n, k), u8), placeholder("b", (*lead, k, m), INT8.b)
    za, zb = placeholder("za", (n,) if kind == "each" else (), u8), placeholder("zb", (m,), INT8.b)

    def element(*at: Int) -> Expr:
        *z, i, j = at
        zero = za[i] if kind == "each" else za[()]

        def term(r: Int) -> Expr:
            right = b[(*z, r, j)].cast(i32)
            if kind != "left":
                right = right - zb[j].cast(i32)
            return (a[(*z, i, r)].cast(i32) - zero.cast(i32)) * right

        return reduce("sum", (k,), term)

    y = compute((*lead, n, m), element, "y")
    inputs = [a, b, za] if kind == "left" else [a, b, za, zb]
    sizes = [*(["s"] if lead else []), "n", "m", "k"]
    f = unscheduled("f", [y], inputs, sizes)
    given: dict[str, IntLike] = dict(known)
    buffers = tuple(subst(x, given) for x in f.buffers)
    return f.replace(
        buffers=buffers, sizes=tuple(x for x in sizes if x not in known), body=subst(f.body, given)
    )


@pytest.mark.sweep
@pytest.mark.parametrize("known", [{}, {"k": 7}, {"n": 5, "m": 3, "k": 8}])
@pytest.mark.parametrize("kind", ["left", "both", "each", "batched"])
def test_zero_points(kind: str, known: dict[str, int]) -> None:
    """They are summed apart, and what is made of the sums is made of each tile; a sum of no whole
    tiles is padded as well."""
    tile = product_tile("tile", INT8, 4, 4, 4)
    p = program(with_zero_points(kind, **known), intrinsics=[tile])
    best = mappings_to(p, "y", "tile").best
    assert best is not None
    assert [o.zero is not None for o in best.operands] == [True, kind != "left"]
    q = auto_tensorize(p, "y", ["tile"])
    assert "y_parts" in q.blocks and "y_sum" not in q.allocated
    rank = len(p.function.sizes)
    shapes = [x[:rank] for x in [(2, 3, 5, 7), (1, 4, 8, 9), (3, 1, 0, 2), (2, 5, 2, 0)]]
    same(p, q, shapes, {"tile": tile.semantics})


def cases(w: Workload, count: int = 2) -> list[tuple[int, ...]]:
    random, most = Random(len(w.sizes)), 6 if w.result.name == "c" else 3
    zero = (2, 0, 3, 1)[: len(w.sizes)]
    some = [tuple(random.randint(1, most) for _ in w.sizes) for _ in range(count)]
    return [zero, *some]


@pytest.mark.sweep
@pytest.mark.parametrize("name", WORKLOADS)
def test_programs_keep_their_meaning(name: str) -> None:
    """By the best mapping, with sizes at run time and constant."""
    w = WORKLOADS[name](F32)
    meaning = {MM.symbol: MM.intrinsics[0].semantics}
    p = bare(w)
    q = auto_tensorize(p, w.result.name, [MM.plain])
    calls = [s for s in statements(q.function.body) if isinstance(s, Invoke)]
    assert {call.callee for call in calls} == {MM.symbol}
    same(p, q, cases(w), meaning)
    known = dict(zip(w.sizes, cases(w)[1], strict=True))
    p = bare(w, **known)
    same(p, auto_tensorize(p, w.result.name, [MM.plain]), [()], meaning)


@pytest.mark.parametrize("name", ["a b -> c", "batched a b -> cᵀ", "conv2d NHWC"])
def test_a_single_row_of_a_constant_size(name: str) -> None:
    """How far its rows are apart in a tile of more dimensions than the intrinsic's was not told."""
    w = WORKLOADS[name](F32)
    p = bare(w, **dict.fromkeys(w.sizes, 1))
    q = auto_tensorize(p, w.result.name, [MM.plain])
    same(p, q, [()], {MM.symbol: MM.intrinsics[0].semantics})


SMALL = [
    ("a b -> c", BF16, product_tile("tile", BF16, 4, 4, 2), {"k": 6}),
    ("aᵀ bᵀ -> cᵀ", INT8, product_tile("tile", INT8, 4, 4, 2), {"k": 6}),
    ("a bᵀ -> c", INT8, dot("dot", INT8, 4, 4), {"k": 8}),
    ("batched a b -> c", INT8, dot("dot", INT8, 4, 4), {"k": 8}),
    ("conv1d NCW", F32, product_tile("tile", F32, 4, 4, 2), {}),
    ("conv2d NHWC", INT8, dot("dot", INT8, 4, 2), {}),
    ("grouped", BF16, product_tile("tile", BF16, 4, 4, 2), {}),
    ("strided", INT8, dot("dot", INT8, 4, 2), {}),
    ("transposed, stride 2", F32, product_tile("tile", F32, 4, 4, 2), {}),
]


ODD_SUMS = [
    ("a b -> c", F32, product_tile("tile", F32, 4, 4, 2), {}),
    ("a b -> c", BF16, product_tile("tile", BF16, 4, 4, 4), {"k": 6}),
    ("aᵀ b -> cᵀ", INT8, product_tile("tile", INT8, 4, 4, 4), {"n": 5, "m": 3, "k": 7}),
    ("a bᵀ -> c", INT8, dot("dot", INT8, 4, 4), {"k": 3}),
    ("batched a bᵀ -> c", INT8, dot("dot", INT8, 4, 4), {}),
    ("conv2d 1x1 NHWC", F32, product_tile("tile", F32, 4, 4, 3), {}),
    ("conv1d NCW", INT8, dot("d", INT8, 4, 5), {}),
    ("conv2d 1x1 NHWC", BF16, dot("dot", BF16, 4, 8), {"n": 3, "m": 2}),
]


@pytest.mark.sweep(3)
@pytest.mark.parametrize(("name", "types", "intrinsic", "known"), ODD_SUMS)
def test_sums_that_are_no_whole_tiles(
    name: str, types: Types, intrinsic: Intrinsic, known: dict[str, int]
) -> None:
    """They are padded to whole ones."""
    w = WORKLOADS[name](types)
    p = bare(w, intrinsic, **known)
    q = auto_tensorize(p, w.result.name, [intrinsic.name])
    assert any(s.name == "pad_einsum" for s in q.trace)
    shapes = [c[: len(p.function.sizes)] for c in cases(w, 2)]
    same(p, q, shapes, {intrinsic.name: intrinsic.semantics})


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "types", "intrinsic", "known"), SMALL)
def test_instructions(name: str, types: Types, intrinsic: Intrinsic, known: dict[str, int]) -> None:
    """Intrinsics of a fixed size that add to their output, in types of their own."""
    w = WORKLOADS[name](types)
    p = bare(w, intrinsic, **known)
    q = auto_tensorize(p, w.result.name, [intrinsic.name])
    shapes = [c[: len(p.function.sizes)] for c in cases(w, 2)]
    same(p, q, shapes, {intrinsic.name: intrinsic.semantics})


@pytest.mark.parametrize("make", [window(2, channels=8), window(1, channels=16, groups=2)])
def test_images_with_channels_first_are_relaid(make: Make) -> None:
    """What a window slides along is read in place, from a copy with its channels last."""
    w = make(F32)
    p = bare(w)
    q = auto_tensorize(p, "y", [MM.plain])
    assert q.buffer("x_cache").shape[-1] == w.inputs[0].dims[1]
    assert "x_part" not in q.allocated
    same(p, q, cases(w), {MM.symbol: MM.intrinsics[0].semantics})


def test_depthwise_convolutions_reach_vectors() -> None:
    for make in (DEPTHWISE, window(2, last=True, groups=6, channels=6, filters=6)):
        w, fma = make(F32), lanes(4)
        p = bare(w, fma)
        q = auto_tensorize(p, "y", ["fma"])
        same(p, q, [(1, 3, 4), (2, 0, 1)], {"fma": fma.semantics})


def test_the_first_intrinsic_that_fits() -> None:
    w, fma = DEPTHWISE(F32), lanes(4)
    p = bare(w, *MM.intrinsics, fma)
    q = auto_tensorize(p, "y", [MM.plain, "fma"])
    (call,) = [s for s in statements(q.function.body) if isinstance(s, Invoke)]
    assert call.callee == "fma"


ODD = {
    "conv2d of 5 channels, NCHW": window(2, channels=5),
    "conv2d of 5 channels, NHWC": window(2, last=True, channels=5, filters=3),
    "conv1d of 19 channels": window(1, channels=19, kernel=1),
}


TYPES = {"f32": F32, "bf16": BF16, "u8s8": INT8}


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "types"), woven([*WORKLOADS, *ODD], [*TYPES], each=2))
def test_compiled_results(name: str, types: str) -> None:
    """One kernel, 20 random shapes, beside torch; of what is multiplied in groups, too."""
    t, factors = target(), TYPES[types]
    wanted = factors.a, factors.b, factors.sum
    mm = next(x for x in target_matmuls(t) if (x.a, x.b, x.c) == wanted)
    w = (WORKLOADS | ODD)[name](factors)
    f = auto_tensorize(bare(w, *mm.intrinsics), w.result.name, [mm.plain]).function
    calls = [s.callee for s in statements(f.body) if isinstance(s, Invoke)]
    assert calls == [mm.symbol] * (4 if name == "transposed, stride 2" else 1)  # one for each phase
    check(Kernel(f, t), w, 20)


WIDE = {
    "aᵀ b -> c": matmul(True, False, False),
    "aᵀ bᵀ -> cᵀ": matmul(True, True, True),
    "conv1d": window(1, channels=40, filters=40),
    "conv2d, stride 2": window(2, stride=2, channels=40, filters=3),
    "transposed, stride 2": transposed(2, channels=40, filters=5),
}


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "types"), woven([*WIDE], [*TYPES], each=2))
def test_compiled_results_with_squares(name: str, types: str) -> None:
    """Operands that lie across are turned by squares, where these fit, and the rest one by one."""
    t, factors = target(), TYPES[types]
    w, wanted = WIDE[name](factors), (factors.a, factors.b, factors.sum)
    mm = next(x for x in target_matmuls(t) if (x.a, x.b, x.c) == wanted)
    p = program(w.function(), intrinsics=target_intrinsics(t))
    f = auto_tensorize(p, w.result.name, [mm.plain]).function
    calls = {s.callee for s in statements(f.body) if isinstance(s, Invoke)}
    assert mm.symbol in calls
    assert "ᵀ" in name or any(map(is_square, calls))  # of products, the other may be the rows
    check(Kernel(f, t), w, 20)


def check(kernel: Kernel, w: Workload, count: int) -> None:
    """The kernel, with sizes at run time, beside torch at random shapes."""
    random = Random(1)
    for _ in range(count):
        sizes = {s: random.randint(1, 40 if s != "b" else 3) for s in w.sizes}
        if len(sizes) > 3:
            sizes = {s: min(v, 12) for s, v in sizes.items()}
        check_at(kernel, w, sizes, [sizes[s] for s in w.sizes])


def check_at(kernel: Kernel, w: Workload, sizes: dict[str, int], passed: list[int]) -> None:
    """The kernel beside torch at one shape; `passed` are the sizes that it does not know."""
    rng = np.random.default_rng(1)
    x, y = (
        rng.integers(0 if i.dtype is u8 else -4, 5, [d.eval(sizes) for d in i.dims])
        for i in w.inputs
    )
    given = [a.astype(i.dtype.numpy) for a, i in zip((x, y), w.inputs, strict=True)]
    shape = [d.eval(sizes) for d in w.result.shape]
    out = np.full(shape, 77, w.result.dtype.numpy)
    kernel([*given, out], passed)
    expected = w.reference(torch.tensor(x).float(), torch.tensor(y).float()).numpy()
    np.testing.assert_array_equal(out, expected, err_msg=str(sizes))

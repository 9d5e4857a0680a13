"""Random small programs: chains of elementwise work, reductions, products, convolutions, windows,
scans, gathers, scatters, masks and integers, over dims that are symbols or numbers, 0, 1 and primes
among them; now and then one written by hand."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from pliant.base.dtypes import f32, i8, i32, i64, u8
from pliant.ir.expr import Binary, Expr, Unary, as_expr
from pliant.ir.tensor import (
    Tensor,
    all_of,
    compute,
    inputs_of,
    placeholder,
    reduce,
    scan,
    scatter,
    select,
    sources,
    within,
)
from pliant.loop.from_tensor import unscheduled
from pliant.loop.parser import parse_function
from pliant.loop.stmt import Function
from pliant.schedule.intrinsic import Intrinsic
from pliant.sym.expr import Int, IntLike, as_int, var
from tests.schedule.by_hand import BY_HAND
from tests.schedule.tuples import TUPLES

SYMBOLS = ("n", "m", "k")
NUMBERS = (0, 1, 2, 3, 4, 5, 7, 8)
SIZES = (0, 1, 2, 3, 4, 5, 7, 9)
MOST = 3  # dims of a tensor
WRITTEN = {**TUPLES, **BY_HAND}

KINDS = (
    "elementwise", "reduction", "product", "convolution", "stencil", "window", "running", "gather",
    "moved", "scattered", "masked", "whole", "whole", "spread",
)  # fmt: skip
PRODUCTS = ("product", "convolution", "spread")

Dims = tuple[Int, ...]
Draw = Callable[[Any], Any]


@st.composite
def programs(draw: Draw) -> tuple[Function, tuple[tuple[int, ...], ...]]:
    """A function, and sizes to run it at."""
    by_hand = draw(st.integers(0, 7)) == 0
    function = (
        WRITTEN[draw(st.sampled_from(sorted(WRITTEN)))]().function
        if by_hand
        else _Maker(draw).function()
    )
    cases = draw(st.lists(st.tuples(*[st.sampled_from(SIZES) for _ in function.sizes]),
                          min_size=3, max_size=3))  # fmt: skip
    return function, tuple(dict.fromkeys(cases))


class _Maker:
    """Makes stages one after the other, each of something that is there already."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        few = draw(st.lists(st.sampled_from(SYMBOLS), min_size=1, max_size=2, unique=True))
        numbers = draw(st.lists(st.sampled_from(NUMBERS), min_size=1, max_size=2))
        self.dims: list[Int] = [*map(var, few), *map(as_int, numbers)]
        self.stages: list[Tensor] = []
        self.products = 0  # at most two, so that sums of floats stay exact

    def function(self) -> Function:
        for k in range(self.draw(st.integers(1, 4))):
            left = [kind for kind in KINDS if kind not in PRODUCTS or self.products < 2]
            self.stages.append(getattr(self, self.draw(st.sampled_from(left)))(f"t{k}"))
        read = {s for t in self.stages for s in sources(t)}
        outputs = [t for t in self.stages if t not in read]
        extra = self.draw(st.sampled_from(self.stages))
        outputs += [extra] if extra not in outputs and self.draw(st.integers(0, 3)) == 0 else []
        inputs = inputs_of(outputs)
        names = {s for t in (*self.stages, *inputs) for d in t.shape for s in d.names}
        sizes = [s for s in SYMBOLS if s in names]
        return unscheduled("random", outputs, inputs, sizes)

    def one(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def dim(self) -> Int:
        return self.draw(st.sampled_from(self.dims))

    def shape(self, least: int = 1, most: int = MOST) -> Dims:
        return tuple(self.dim() for _ in range(self.draw(st.integers(least, min(most, MOST)))))

    def tensor(self, like: Dims | None = None, least: int = 1, most: int = MOST) -> Tensor:
        """A stage, or a new input; of shape `like` where that is given."""
        fits = [
            t
            for t in self.stages
            if t.dtype is f32
            and (t.shape == like if like is not None else least <= len(t.shape) <= most)
        ]
        if fits and self.draw(st.integers(0, 3)):
            return self.draw(st.sampled_from(fits))
        dims = self.shape(least, most) if like is None else like
        return placeholder(f"x{self.draw(st.integers(0, 1))}_" + _shape_name(dims), dims, f32)

    def value(self, e: Expr) -> Expr:
        """Something elementwise, whose numbers stay small."""
        match self.one("add", "half", "max", "abs", "as it is"):
            case "add":
                return e + 1.0
            case "half":
                return e * 0.5
            case "max":
                return Binary("max", e, e * 0.25)
            case "abs":
                return Unary("abs", e)
        return e

    # ---- stages

    def elementwise(self, name: str) -> Tensor:
        """A map of one or two tensors; the second may be of fewer dims."""
        a = self.tensor()
        rank = len(a.shape)
        kept = self.draw(st.lists(st.integers(0, rank - 1), min_size=1, unique=True))
        b = self.tensor(tuple(a.shape[d] for d in kept)) if self.one(True, False) else None

        def body(*i: Int) -> Expr:
            first = self.value(a[i])
            if b is None:
                return first
            return Binary("sub", first, b[tuple(i[d] for d in kept)])

        return compute(a.shape, body, name)

    def reduction(self, name: str) -> Tensor:
        a = self.tensor()
        over = self.draw(
            st.lists(st.integers(0, len(a.shape) - 1), min_size=1, max_size=2, unique=True)
        )
        combiner = self.one("sum", "sum", "max", "min", "argmax") if len(over) == 1 else "sum"
        kept = [d for d in range(len(a.shape)) if d not in over]
        extents = [a.shape[d] for d in over]

        def body(*i: Int) -> Expr:
            outer = dict(zip(kept, i, strict=True))

            def element(*r: Int) -> Expr:
                at = outer | dict(zip(over, r, strict=True))
                return a[tuple(at[d] for d in range(len(at)))]

            return reduce(combiner, extents, element)

        return compute(tuple(a.shape[d] for d in kept), body, name)

    def product(self, name: str) -> Tensor:
        self.products += 1
        rows, depth, columns = self.dim(), self.dim(), self.dim()
        a, b = self.tensor((rows, depth)), self.tensor((depth, columns))
        return compute(
            (rows, columns),
            lambda i, j: reduce("sum", (depth,), lambda r: a[i, r] * b[r, j]),
            name,
        )

    def convolution(self, name: str) -> Tensor:
        """Along one dim with channels, or of an image; with steps, holes, and groups or none."""
        self.products += 1
        step, hole, width = self.one(1, 2), self.one(1, 2), self.one(2, 3)
        extent, room = self.dim(), hole * (width - 1)
        if self.one(True, False):
            rows = self.dim()
            a, w = (
                self.tensor((rows + 1, step * extent + room)),
                self.tensor((as_int(2), as_int(width))),
            )
            return compute(
                (rows, extent),
                lambda i, j: reduce(
                    "sum", (2, width), lambda r, s: a[i + r, step * j + hole * s] * w[r, s]
                ),
                name,
            )
        filters, channels, alone = self.dim(), self.dim(), self.one(True, False)
        a = self.tensor((filters if alone else channels, step * extent + room))
        w = self.tensor((filters, width) if alone else (filters, channels, width))

        def body(o: Int, i: Int) -> Expr:
            if alone:
                return reduce("sum", (width,), lambda r: a[o, step * i + hole * r] * w[o, r])
            return reduce(
                "sum", (channels, width), lambda c, r: a[c, step * i + hole * r] * w[o, c, r]
            )

        return compute((filters, extent), body, name)

    def spread(self, name: str) -> Tensor:
        """A transposed convolution with steps, along one dim, perhaps with channels."""
        self.products += 1
        step, width, skip = self.one(2, 3), self.one(1, 2, 3, 4), self.one(0, 1, 2)
        extent, channels = self.dim(), self.one(1, 1, 2)
        a, w = self.tensor((as_int(channels), extent)), self.tensor((channels, width))

        def body(i: Int) -> Expr:
            def term(c: Int, r: Int) -> Expr:
                at = i + skip - r
                known = [as_expr(at % step).eq(0), within(at // step, extent)]
                return select(all_of(known), a[c, at // step], 0.0) * w[c, r]

            return reduce("sum", (channels, width), term)

        return compute((step * extent + self.one(0, 0, 1),), body, name)

    def stencil(self, name: str) -> Tensor:
        """Neighbours along the last dim, zeros outside; or a reduction over the window."""
        a = self.tensor(most=2)
        extent = a.shape[-1]
        low, width = self.one(-1, 0, -2), self.one(2, 3)

        def at(i: tuple[Int, ...], w: IntLike) -> Expr:
            moved = i[-1] + w
            return select(within(moved, extent), a[(*i[:-1], moved)], 0.0)

        if self.one(True, False):
            return compute(
                a.shape, lambda *i: reduce("sum", (width,), lambda r: at(i, r + low)), name
            )

        def body(*i: Int) -> Expr:
            total = at(i, low)
            for w in range(1, width):
                total = total + at(i, low + w)
            return total

        return compute(a.shape, body, name)

    def window(self, name: str) -> Tensor:
        """Neighbours of something made for them, which has all of them."""
        width, extent = self.one(2, 3), self.dim()
        a = self.tensor((*self.shape(0, 1), extent + width - 1))
        made = compute(a.shape, lambda *i: self.value(a[i]), f"{name}_wide")
        self.stages.append(made)

        def at(i: tuple[Int, ...], w: IntLike) -> Expr:
            return made[(*i[:-1], i[-1] + w)]

        shape = (*a.shape[:-1], extent)
        if self.one(True, False):
            return compute(shape, lambda *i: reduce("max", (width,), lambda r: at(i, r)), name)
        return compute(shape, lambda *i: at(i, 0) * 0.5 + at(i, width - 1), name)

    def masked(self, name: str) -> Tensor:
        """What is kept where data say so; or whether they say so all along the last dim."""
        a = self.tensor()
        mask = compute(a.shape, lambda *i: Binary("lt", as_expr(0.0), a[i]), f"{name}_mask")
        self.stages.append(mask)
        if self.one(True, False):
            return compute(a.shape, lambda *i: select(mask[i], self.value(a[i]), 0.0), name)
        combiner = self.one("any", "all")
        found = compute(
            a.shape[:-1],
            lambda *i: reduce(combiner, a.shape[-1:], lambda r: mask[(*i, r)]),
            f"{name}_{combiner}",
        )
        self.stages.append(found)
        return compute(found.shape, lambda *i: select(found[i], 1.0, -1.0), name)

    def whole(self, name: str) -> Tensor:
        """Sums, or the greatest, of products of bytes, perhaps less a zero point; as floats again,
        or not."""
        rows, depth = self.dim(), self.dim()
        a = placeholder("bytes_" + _shape_name((rows, depth)), (rows, depth), u8)
        b = placeholder("small_" + _shape_name((depth,)), (depth,), i8)
        zero = placeholder("zero_" + _shape_name((rows,)), (rows,), u8)
        combiner = self.one("sum", "sum", "sum", "max", "argmax")
        offset = self.one(True, True, False)

        def body(i: Int) -> Expr:
            def term(r: Int) -> Expr:
                left = a[i, r].cast(i32)
                return (left - zero[i].cast(i32) if offset else left) * b[r].cast(i32)

            return reduce(combiner, (depth,), term)

        total = compute((rows,), body, name)
        if self.one(True, False):
            return total
        self.stages.append(total)
        return compute((rows,), lambda i: total[i].cast(f32) * 0.5, f"{name}_float")

    def running(self, name: str) -> Tensor:
        a = self.tensor(most=2)
        along = self.draw(st.integers(0, len(a.shape) - 1))
        return scan(
            a.shape, along, self.one("sum", "max"), lambda *i: a[i],
            exclusive=False, reverse=self.one(True, False), name=name,
        )  # fmt: skip

    def gather(self, name: str) -> Tensor:
        """Rows at places that the data says; zeros where there is none."""
        a, n = self.tensor(most=2), self.dim()
        rows = a.shape[0]
        table = placeholder("index_" + _shape_name((n,)), (n,), i64)

        def body(i: Int, *rest: Int) -> Expr:
            at = table[i]
            inside = Binary("and", Binary("le", as_expr(0), at), Binary("lt", at, as_expr(rows)))
            return select(inside, a[(at, *rest)], 0.0)

        return compute((n, *a.shape[1:]), body, name)

    def moved(self, name: str) -> Tensor:
        """Transposed, reversed, or every second element."""
        a = self.tensor()
        order = self.draw(st.permutations(range(len(a.shape))))
        shape = [a.shape[d] for d in order]
        how = self.one("order", "reversed", "second")
        last = shape[-1]
        if how == "second":
            shape[-1] = (last + 1) // 2

        def body(*i: Int) -> Expr:
            at = list(i)
            if how == "reversed":
                at[-1] = last - 1 - at[-1]
            elif how == "second":
                at[-1] = 2 * at[-1]
            places = dict(zip(order, at, strict=True))
            return a[tuple(places[d] for d in range(len(places)))]

        return compute(tuple(shape), body, name)

    def scattered(self, name: str) -> Tensor:
        """Backwards into another tensor; or added to the places that the data says."""
        base = self.tensor(most=1)
        (extent,) = base.shape
        if self.one(True, False):
            value = self.tensor((extent,))
            return scatter(
                base, (extent,), lambda i: (extent - 1 - i,), lambda i: value[i], name=name
            )
        n = self.dim()
        table, value = placeholder("index_" + _shape_name((n,)), (n,), i64), self.tensor((n,))

        def outside(i: Int) -> Expr:
            at = table[i]
            return Binary("or", Binary("lt", at, as_expr(0)), Binary("le", as_expr(extent), at))

        return scatter(
            base, (n,), lambda i: (table[i],), lambda i: value[i],
            combiner=self.one("add", "set", "max"), skip=outside, name=name,
        )  # fmt: skip


def _intrinsic(name: str, body: str) -> Intrinsic:
    signature = 'a: f32["m"], b: f32["m"], c: f32["m"], m: i64'
    text = f"@loop\ndef {name}({signature}):\n    for i in grid(m):\n        {body}\n"
    function = parse_function(text)
    used = tuple(b for b in function.buffers if f"{b.name}[" in body)
    return Intrinsic(name, function.replace(buffers=used))


INTRINSICS = (
    _intrinsic("copy_row", "c[i] = a[i]"),
    _intrinsic("zero_row", "c[i] = 0.0"),
    _intrinsic("add_row", "c[i] = c[i] + a[i]"),
    _intrinsic("sum_row", "c[0] = c[0] + a[i]"),
    _intrinsic("dot_row", "c[0] = c[0] + a[i] * b[i]"),
)


def _shape_name(dims: Dims) -> str:
    return "_".join(re.sub(r"\W+", "_", str(d)) for d in dims)

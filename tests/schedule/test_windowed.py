"""Depthwise convolutions by their recipe: what it takes, and that it keeps the meaning."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from pliant.codegen.build import kernel_source
from pliant.codegen.llvm.target import target
from pliant.frontend.select import Request, import_model
from pliant.ir.expr import Reduce
from pliant.ir.node import walk
from pliant.loop.rewrite import conjuncts, int_names
from pliant.lower.canonical import Spec
from pliant.lower.function import lower_function
from pliant.ops.table import OPERATORS
from pliant.schedule.recipes.start import start
from pliant.schedule.recipes.windowed import windowed_order, windowed_recipe
from tests.schedule.programs import same
from tests.woven import woven

LANES, SUMS = 2, 28


def depthwise(rank: int = 2, channels: int = 40, **options: Any) -> nn.Module:
    conv = nn.Conv1d if rank == 1 else nn.Conv2d
    return conv(channels, channels, groups=channels, **{"kernel_size": 3} | options)


def spec_of(
    between: nn.Module, rank: int = 2, *, fixed: bool = False, dtype: torch.dtype = torch.float32,
    lanes: int = 1,
) -> Spec:  # fmt: skip
    """The reduction of a module between two products, which want channels innermost."""
    pointwise = nn.Conv1d if rank == 1 else nn.Conv2d
    module = nn.Sequential(pointwise(40, 40, 1), between, pointwise(40, 40, 1)).to(dtype)
    x = torch.ones(2, 40, *(20, 21)[:rank], dtype=dtype)
    dynamic: Any = ({0: "n"} | {2 + d: f"d{d}" for d in range(rank)},)
    request = Request(module.eval(), (x,), None, ({},) if fixed else dynamic)
    imported = import_model(request, OPERATORS)
    lowered = lower_function(imported.function, OPERATORS, 32, lanes=lanes, constant_extents=fixed)
    return next(x.spec for _, x in lowered.main.launches if x.spec.kind == "reduction")


def places_of(width: int, options: dict[str, Any], window: int = 3) -> tuple[int, int]:
    """How many places a square window has along the axes of an image that is 5 high."""
    reach = 1 + (window - 1) * options.get("dilation", 1) - 2 * options.get("padding", 0)
    high, wide = ((size - reach) // options.get("stride", 1) + 1 for size in (5, width))
    return high, wide


OPTIONS: dict[str, dict[str, Any]] = {
    "padded": {"padding": 1},
    "bare": {},
    "strided": {"padding": 1, "stride": 2},
    "dilated": {"padding": 2, "dilation": 2},
    "more than the kernel": {"padding": 4},
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", OPTIONS)
def test_keeps_the_meaning(name: str) -> None:
    options = OPTIONS[name]
    spec = spec_of(nn.Sequential(depthwise(**options), nn.ReLU6()))
    assert windowed_order(spec)
    p = windowed_recipe(spec, LANES, SUMS)
    cases = [(6, 4), (14, 3)]
    same(start(spec), p, [sizes_of(spec, c, size, places_of(size, options)) for size, c in cases])


def sizes_of(spec: Spec, channels: int, width: int, places: tuple[int, int]) -> list[int]:
    """The kernel's sizes for one image, in order; `channels`: in the unit of their size."""
    image, result = spec.inputs[0].shape, spec.members[-1][1].shape
    values = (1, channels, 5, width, 1, channels, *places)
    known = {x: v for e, v in zip((*image, *result), values, strict=True) for x in e.names}
    return [known[name] for name in spec.sizes]


LARGE: dict[str, dict[str, Any]] = {
    "padded": {"kernel_size": 5, "padding": 2},
    "strided": {"kernel_size": 5, "padding": 2, "stride": 2},
    "dilated": {"kernel_size": 5, "padding": 3, "dilation": 2},
    "even": {"kernel_size": 4, "padding": 1},
    "wide": {"kernel_size": 9, "padding": 4},
    "more than the kernel": {"kernel_size": 5, "padding": 7},
}


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "pairs"), woven([*LARGE], [False, True]))
def test_rows_outside_of_the_image_are_left_out(name: str, pairs: bool) -> None:
    options = LARGE[name]
    window = options["kernel_size"]
    dtype = torch.bfloat16 if pairs else torch.float32
    spec = spec_of(nn.Sequential(depthwise(**options), nn.ReLU6()), dtype=dtype)
    p = windowed_recipe(spec, LANES, SUMS, pairs=pairs)
    cases = [(6, 4), (14, 3), (9, 2)]
    places = {size: places_of(size, options, window) for size, _ in cases}
    same(start(spec), p, [sizes_of(spec, c, size, places[size]) for size, c in cases])
    counts = [p.loop(x).extent for block in p.blocks for x in p.loops(block)]
    by_row = [x for x in counts if any(name not in p.sizes for name in x.names)]
    assert by_row  # how many rows of the window there are depends on where it is
    assert pairs == any(isinstance(n, Reduce) for n in walk(p.function.body))


def test_a_rest_is_one_vector() -> None:
    """Of blocks of two vectors, where the number of channels is a multiple of one: no mask."""
    options = OPTIONS["strided"]
    spec = spec_of(nn.Sequential(depthwise(**options), nn.ReLU6()), lanes=8)
    p = windowed_recipe(spec, 8, SUMS)
    lanes = {p.loops(block)[-1]: block for block in p.blocks}
    assert {p.loop(x).extent.value for x in lanes} == {8, 16}
    for lane, name in lanes.items():
        block = p.block(name)
        bound = {i.var: x for i, x in zip(block.iters, block.bindings, strict=True)}
        along = {v for v, x in bound.items() if lane in x.names}
        assert not any(along & int_names(c) for c in conjuncts(block.where))
    same(start(spec), p, [sizes_of(spec, c, 6, places_of(6, options)) for c in (1, 2, 5)])


@pytest.mark.sweep(2)
@pytest.mark.parametrize("pairs", [False, True])
def test_wide_windows_are_run_through_in_steps(pairs: bool) -> None:
    dtype = torch.bfloat16 if pairs else torch.float32
    spec = spec_of(depthwise(kernel_size=(2, 31), padding=(1, 15)), dtype=dtype)
    p = windowed_recipe(spec, LANES, SUMS, pairs=pairs)
    loops = [p.loop(x) for block in p.blocks for x in p.loops(block)]
    assert {x.extent.value for x in loops if x.kind == "unrolled"} <= {4, 7, 8}
    assert any(x.extent.is_const and x.extent.value == 3 for x in loops)  # of 8, and one of 7


def test_pairs_of_products() -> None:
    """Two rows of bf16 at a time, by one instruction where there is one; a last one by itself."""
    module = nn.Sequential(depthwise(kernel_size=5, padding=2), nn.ReLU6())
    p = windowed_recipe(spec_of(module, dtype=torch.bfloat16), 16, 28, pairs=True)
    for machine, has in (("x86-64-avx512", False), ("x86-64-avx512-bf16", True)):
        text = kernel_source(p.function, target(machine)).text
        assert ("dpbf16ps.512" in text) == has
    assert "fmul" not in text  # not for a single row either
    strict = replace(spec_of(module, dtype=torch.bfloat16), numerics="strict")
    text = kernel_source(windowed_recipe(strict, 16, 28, pairs=True).function, target(machine)).text
    assert "dpbf16ps" not in text


@pytest.mark.parametrize(("wide", "columns"), [(14, 7), (30, 6), (20, 5), (13, 4)])
def test_wide_tiles(wide: int, columns: int) -> None:
    """Pairs of a large window's rows are summed for up to seven columns of an image whose width is
    known, where none are left."""
    conv = nn.Conv2d(32, 32, 5, padding=2, groups=32)
    module = nn.Sequential(nn.Conv2d(8, 32, 1), conv, nn.Conv2d(32, 8, 1)).to(torch.bfloat16)
    dynamic: Any = ({0: "n", 2: "h"},)
    request = Request(module.eval(), (torch.ones(2, 8, 11, wide).bfloat16(),), None, dynamic)
    lowered = lower_function(import_model(request, OPERATORS).function, OPERATORS, 32)
    spec = next(x.spec for _, x in lowered.main.launches if x.spec.kind == "reduction")
    for pairs, expected in ((True, columns), (False, 4)):
        p = windowed_recipe(spec, 16, 28, pairs=pairs)
        loops = [p.loop(x) for block in p.blocks for x in p.loops(block)]
        assert max(x.extent.value for x in loops if x.kind == "unrolled") == max(expected, 5)
        if pairs:  # what slides is 5 wide
            assert any(x.extent == expected for x in loops if x.kind == "unrolled")


@pytest.mark.parametrize("module", [
    nn.MaxPool2d(3, 1, 1),  # neighbours share nothing
    nn.AvgPool2d(3, 2, 1),
])  # fmt: skip
def test_others_are_left(module: nn.Module) -> None:
    assert not windowed_order(spec_of(module))


def test_a_number_has_no_windows() -> None:
    assert windowed_order(replace(spec_of(nn.AvgPool2d(3)), order=())) is None


def test_windows_of_one_column() -> None:
    """Tiles are of rows then, channels innermost."""
    order = windowed_order(spec_of(depthwise(kernel_size=(3, 1))))
    assert order == (0, 3, 2, 1)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", ["padded", "strided", "dilated"])
def test_rows_of_images(name: str) -> None:
    """Alone, a convolution reads and writes images with their channels first: tiles of rows."""
    options = OPTIONS[name]
    module = depthwise(channels=3, **options).eval()
    dynamic: Any = ({0: "n", 2: "h", 3: "w"},)
    imported = import_model(Request(module, (torch.ones(2, 3, 20, 21),), None, dynamic), OPERATORS)
    launches = lower_function(imported.function, OPERATORS, 32).main.launches
    spec = next(x.spec for _, x in launches if x.spec.kind == "reduction")
    assert spec.order == (0, 1, 2, 3)
    assert windowed_order(spec)
    p = windowed_recipe(spec, LANES, SUMS)
    image, result = spec.inputs[0].shape, spec.members[-1][1].shape
    step = options.get("stride", 1)
    reach = 2 * options.get("dilation", 1)  # the image has its padding by now
    cases = []
    for high, wide in ((4, 4), (5, 3), (9, 6)):
        known = dict(zip(map(str, (*result, *image)), (
            1, 3, high, wide, 1, 3, step * (high - 1) + reach + 1, step * (wide - 1) + reach + 1,
        ), strict=True))  # fmt: skip
        cases.append([known[size] for size in spec.sizes])
    same(start(spec), p, cases)


def image_spec(filters: int) -> Spec:
    """The first convolution of a model, which reads images with their channels first."""
    module = nn.Sequential(nn.Conv2d(3, filters, 3, 2, 1), nn.ReLU(), nn.Conv2d(filters, 8, 1))
    dynamic: Any = ({0: "n", 2: "h", 3: "w"},)
    request = Request(module.eval(), (torch.ones(2, 3, 20, 21),), None, dynamic)
    launches = lower_function(import_model(request, OPERATORS).function, OPERATORS, 32).main
    return next(x.spec for _, x in launches.launches if x.spec.kind == "reduction")


@pytest.mark.sweep(3)
@pytest.mark.parametrize("filters", [12, 16, 20, 24, 40])
def test_code_for_images(filters: int) -> None:
    """Rows of a window ask for the image's next ones. No vector is of a register and a part of
    one, as LLVM would take it to pieces."""
    p = windowed_recipe(image_spec(filters), 16, 28)
    text = kernel_source(p.function, target("x86-64-avx512")).text
    assert text.count("call void @llvm.prefetch")
    code = "".join(line for line in text.splitlines() if not line.startswith("@"))
    lanes = {int(n) for n in re.findall(r"<(\d+) x float>", code)}
    assert all(n % 16 == 0 or n < 16 for n in lanes), lanes


@pytest.mark.sweep
@pytest.mark.parametrize("filters", [3, 5, 8])
def test_images_keep_the_meaning(filters: int) -> None:
    spec = image_spec(filters + 5)
    p = windowed_recipe(spec, filters, SUMS)
    image, result = spec.inputs[0].shape, spec.members[-1][1].shape
    cases = []
    for high, wide in ((5, 3), (8, 33)):
        places = (1, filters + 5, (high + 1) // 2, (wide + 1) // 2)
        known = dict(zip(map(str, (*image, *result)), (1, 3, high, wide, *places), strict=True))
        cases.append([known[size] for size in spec.sizes])
    same(start(spec), p, cases)

"""Transposed convolutions, split in their phases, against torch at every size."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

import pliant
from pliant.codegen.build import kernel_program
from pliant.codegen.llvm.target import target as find_target
from pliant.frontend.select import Request, import_model
from pliant.loop.stmt import Invoke, statements
from pliant.ops.table import OPERATORS
from pliant.sym.expr import as_int
from tests.compiled.torch_cases import tensor
from tests.compiled.torch_run import Apply
from tests.frontend.torch.running import assert_same
from tests.stages.oracle import stages_of

SIZES = ((1, 1), (1, 4), (2, 3), (5, 7), (16, 2))


def options(
    channels: int, outputs: int, kernel: Any, stride: Any, padding: Any = 0,
    output_padding: Any = 0, dilation: Any = 1, groups: int = 1,
) -> dict[str, Any]:  # fmt: skip
    return dict(locals())


CASES = {
    "2x2 by 2": options(16, 8, (2, 2), 2),
    "2x2 by 2, whole panels": options(24, 32, (2, 2), 2),
    "4x4 by 2": options(5, 40, (4, 4), 2, 1),
    "4x4 by 2, few outputs": options(20, 3, (4, 4), 2, 1),
    "4x8 by 2, few outputs": options(20, 3, (4, 8), 2, (0, 3)),
    "3x3 by 2": options(16, 33, (3, 3), 2, 1, 1),
    "3x3 by 2, odd extents": options(6, 7, (3, 3), 2, 1),
    "5x3 by 3, 2": options(4, 6, (5, 3), (3, 2), (2, 0), (1, 0)),
    "1x1 by 2": options(8, 5, (1, 1), 2, 0, 1),
    "2x1 by 3": options(8, 34, (2, 1), 3, 0, (2, 1)),
    "3x3 by 2, dilation 2": options(4, 6, (3, 3), 2, 2, 1, 2),
    "3x3 by 2, dilation 3": options(4, 36, (3, 3), 2, 1, 0, 3),
    "4x3 by 3, dilation 2, words across": options(4, 16, (4, 3), (3, 2), 0, 1, 2),
    "3x2 by 4, dilation 6": options(4, 6, (3, 2), 4, 3, 3, 6),
    "2x2 by 1, 2": options(4, 6, (2, 2), (1, 2)),
    "groups": options(6, 4, (4, 3), 2, 1, 1, 1, 2),
    "wide groups": options(32, 64, (2, 3), 2, 0, 0, 1, 2),
    "depthwise": options(20, 20, (3, 4), 2, 1, 1, 1, 20),
}  # fmt: skip


def call(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, o: dict[str, Any]) -> Any:
    fn = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[x.dim() - 3]
    return fn(
        x, weight, bias, o["stride"], o["padding"], o["output_padding"], o["groups"], o["dilation"]
    )


def check(o: dict[str, Any], rank: int, sizes: Any, after: Any = None) -> pliant.Compiled:
    """The same as torch at all sizes, from one compilation."""
    weight = tensor(o["channels"], o["outputs"] // o["groups"], *o["kernel"])
    bias = tensor(o["outputs"])

    def fn(x: torch.Tensor) -> Any:
        y = call(x, weight, bias, o)
        return y if after is None else after(y)

    dims = {0: "n"} | {2 + d: f"d{d}" for d in range(rank)}
    f = pliant.compile(
        Apply(fn), (tensor(3, o["channels"], *((6, 8, 7)[:rank])),), dynamic_shapes=((dims,),)
    )
    for n in (1, 2):
        for size in sizes:
            x = tensor(n, o["channels"], *size)
            try:
                expected = fn(x)
            except RuntimeError:  # torch refuses results without elements
                continue
            assert_same(f(x), expected, tolerance=1e-4)
    assert f.stats()["compiles"] == 1
    return f


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
def test_two_dimensions(name: str) -> None:
    check(CASES[name], 2, SIZES)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("o", [
    options(20, 33, (16,), 8, 4), options(20, 1, (5,), 3, 2, 1), options(4, 6, (2,), 5, 0, 3),
])  # fmt: skip
def test_one_dimension(o: dict[str, Any]) -> None:
    check(o, 1, ((1,), (2,), (9,), (50,)))


@pytest.mark.sweep(2)
@pytest.mark.parametrize("o", [
    options(16, 4, (2, 2, 2), 2), options(4, 33, (3, 4, 1), (2, 2, 1), (1, 1, 0), (1, 0, 0)),
])  # fmt: skip
def test_three_dimensions(o: dict[str, Any]) -> None:
    check(o, 3, ((1, 1, 1), (2, 3, 4), (5, 1, 2)))


def test_results_without_elements() -> None:
    weight = tensor(4, 6, 4, 4)
    f = pliant.compile(
        Apply(lambda x: F.conv_transpose2d(x, weight, stride=2, padding=1)),
        (tensor(2, 4, 6, 5),), dynamic_shapes=(({0: "n", 2: "h", 3: "w"},),),
    )  # fmt: skip
    for n, h, w in ((0, 3, 2), (2, 0, 3), (2, 3, 0)):
        assert f(tensor(n, 4, h, w)).shape == (n, 6, 2 * h, 2 * w)


def test_maps_follow_in_the_same_kernel() -> None:
    o = options(16, 32, (4, 4), 2, 1)
    weight = tensor(8, 32, 3, 3)
    f = check(o, 2, SIZES, lambda y: F.conv2d(F.silu(y) + 1, weight, padding=1))
    assert (f.explain().count("[contraction"), f.explain().count("[patches")) == (1, 1)
    assert f.explain().count("[map]") <= 2  # the input's layout, the result's


@pytest.mark.sweep(2)
@pytest.mark.parametrize("kernel", [2, 3])
def test_a_residual_joins_where_extents_are_exact(kernel: int) -> None:
    o = options(16, 32, (kernel, 4), 2, (0, 1))
    weight = tensor(8, 32, 3, 3)

    def after(y: torch.Tensor) -> Any:
        z = torch.relu(y + y.mean((2, 3), keepdim=True) * torch.arange(y.shape[3]))
        return F.conv2d(z, weight, padding=1), z, F.max_pool2d(y, 2, ceil_mode=True)

    check(o, 2, SIZES, after)


def test_a_join_is_read_through() -> None:
    o = options(16, 32, (2, 2), 2)
    weight = tensor(8, 64, 3, 3)
    check(o, 2, SIZES, lambda y: F.conv2d(torch.cat([y, y.flip(2)], 1), weight, padding=1))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_other_types(dtype: torch.dtype) -> None:
    weight = tensor(6, 4, 3, 4, dtype=dtype)
    fn = lambda x: F.conv_transpose2d(x, weight, stride=2, padding=1)  # noqa: E731
    f = pliant.compile(
        Apply(fn), (tensor(2, 6, 5, 4, dtype=dtype),),
        dynamic_shapes=(({2: "h", 3: "w"},),),
    )  # fmt: skip
    for h, w in SIZES[2:]:
        x = tensor(2, 6, h, w, dtype=dtype)
        assert_same(f(x), fn(x), tolerance=1e-2 if dtype is torch.float16 else 1e-9)


@pytest.mark.sweep
@pytest.mark.parametrize("filters", [1, 7, 12, 16, 20, 24, 33])
def test_columns_of_several_phases(filters: int) -> None:
    """Phases share a panel where that halves their number, also with an epilogue."""
    torch.manual_seed(0)
    conv = torch.nn.ConvTranspose2d(24, filters, 2, 2)
    module = torch.nn.Sequential(conv, torch.nn.BatchNorm2d(filters), torch.nn.ReLU()).eval()
    f = pliant.compile(module, (tensor(1, 24, 5, 6),), dynamic_shapes=({0: "n", 2: "h", 3: "w"},))
    for shape in [(1, 24, 1, 1), (2, 24, 5, 7), (1, 24, 16, 17), (0, 24, 3, 3)]:
        x = tensor(*shape)
        with torch.no_grad():
            torch.testing.assert_close(f(x), module(x), rtol=1e-4, atol=1e-4)


def test_down_and_up_again() -> None:
    """Sides like 2*((h + 1)//2) - 1: that rows lie forwards in memory is seen of their product."""
    down, up = torch.nn.Conv2d(6, 40, 3, 2, 1), torch.nn.ConvTranspose2d(40, 20, 3, 2, 1)
    last = torch.nn.Conv2d(20, 4, 3, 1, 1, groups=4)
    module = torch.nn.Sequential(down, torch.nn.ReLU(), up, last).eval()
    f = pliant.compile(module, (tensor(1, 6, 5, 6),), dynamic_shapes=({0: "n", 2: "h", 3: "w"},))
    for shape in [(1, 6, 1, 2), (2, 6, 5, 7), (1, 6, 16, 17), (0, 6, 3, 3)]:
        x = tensor(*shape)
        with torch.no_grad():
            torch.testing.assert_close(f(x), module(x), rtol=1e-4, atol=1e-4)


@pytest.mark.sweep
@pytest.mark.parametrize("size", [1, 2, 4, 5, 12, 14])
@pytest.mark.parametrize("kernel", [2, 4])
def test_small_images_of_a_constant_size(size: int, kernel: int) -> None:
    """Rows of a few pixels are divided by numbers, which are in the expressions then."""
    first, weight = tensor(16, 16, 1, 1), tensor(16, 20, kernel, kernel, seed=1)

    def fn(x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = F.conv_transpose2d(F.conv2d(x, first), weight, None, kernel)
        return y

    f = pliant.compile(Apply(fn), (tensor(2, 16, size, size),), dynamic_shapes=(({0: "b"},),))
    for b in (1, 3):
        x = tensor(b, 16, size, size)
        assert_same(f(x), fn(x), tolerance=1e-5)


@pytest.mark.sweep(3)
@pytest.mark.parametrize(("size", "kernel"), [(24, 2), (56, 2), (17, 3)])
def test_an_image_and_its_parts_are_one_size(size: int, kernel: int) -> None:
    """Kernels know that an image has as many rows as its phases together, constant or not: it is
    turned in squares."""
    weight = tensor(20, 33, kernel, kernel)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.conv_transpose2d(x, weight, stride=kernel).relu()

    x = tensor(1, 20, size, size)
    imported = import_model(Request(Apply(fn), (x,)), OPERATORS)
    avx512 = find_target("x86-64-avx512")
    main = stages_of(imported.function, {}, avx512, programs=False).parts[-1]
    _, launch = main.launches[-1]
    assert as_int(size) in launch.sizes and as_int(kernel * size) not in launch.sizes
    calls = statements(kernel_program("k", launch.spec, avx512).body)
    assert any(isinstance(s, Invoke) and s.callee.startswith("transpose_") for s in calls)
    assert_same(pliant.compile(Apply(fn), (x,))(x), fn(x), tolerance=1e-5)

"""What follows products is made of the sums in registers: where that is so, and what comes out."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as nf

import pliant
from pliant.codegen.build import called_kernels, kernel_source
from pliant.codegen.epilogue_kernel import EpilogueKernel
from pliant.codegen.llvm.compile import assembly
from pliant.codegen.llvm.target import Target, target
from tests.compiled.torch_cases import tensor
from tests.compiled.torch_run import traced
from tests.frontend.torch.running import assert_same
from tests.stages.oracle import stages_of
from tests.targets import where_it_runs
from tests.woven import woven

DEPTH = 20
ROWS = (0, 1, 3, 7, 10, 14, 15, 27, 45)  # below and above what is worth it, and tails
WIDTHS = (16, 24, 32, 33, 40, 48, 64, 80, 100)
TARGETS = where_it_runs("x86-64-avx512", "x86-64-avx2", "native")
Then = Callable[..., Any]


class Layer(nn.Module):
    """A product and what follows; `more` operands are as large as its result, rows or columns."""

    def __init__(self, then: Then, width: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(width)
        self.then = then
        self.product = nn.Linear(DEPTH, width).to(dtype)

    def forward(self, x: Tensor, *more: Tensor) -> Any:
        return self.then(self.product(x), *more)


FOLLOWS: dict[str, Then] = {
    "relu": nf.relu,
    "clamp": lambda y: torch.clamp(y, 0.25, 0.5),
    "leaky": lambda y: nf.leaky_relu(y, 0.1),
    "both": lambda y: (y, nf.relu(y)),
    "flags": lambda y: y > 0.1,
    "doubles": lambda y: (y + 1.0).double(),
    "added": lambda y, r: y + r,
    "added in bf16": lambda y, r: (nf.relu(y) + r).bfloat16(),
    "a scale a row": lambda y, r: y * r[:, :1],
    "a scale a column": lambda y, r: y * r[0],
    "a scale": lambda y, r: y * r[0, 0],
    "turned": lambda y, r: nf.relu(y + r[:, :1].flatten()[:, None]).T,
}
MORE = {"added", "added in bf16", "a scale a row", "a scale a column", "a scale", "turned"}


def layer(name: str, width: int, dtype: torch.dtype = torch.float32) -> nn.Module:
    return Layer(FOLLOWS[name], width, dtype).eval()


def inputs(name: str, rows: int, width: int, dtype: torch.dtype = torch.float32) -> Any:
    """Some for a call; where the model reads the first row of an operand, there is one."""
    x, r = tensor(rows, DEPTH).to(dtype), tensor(max(rows, 1), width, seed=1).to(dtype)
    if name not in MORE:
        return (x,)
    return x, r if name in ("a scale", "a scale a column") else r[:rows]


def dynamic(name: str) -> Any:
    """Any number of rows."""
    if name not in MORE:
        return ({0: "m"},)
    return {0: "m"}, {0: "r" if name in ("a scale", "a scale a column") else "m"}


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "width"), woven(list(FOLLOWS), WIDTHS, each=3))
@pytest.mark.parametrize("t", TARGETS)
def test_against_torch(name: str, width: int, t: str) -> None:
    """Rows of tiles that are whole, and not; columns of panels that are whole, and not."""
    model = layer(name, width)
    f = pliant.compile(model, inputs(name, 12, width), dynamic_shapes=dynamic(name), target=t)
    for rows in ROWS:
        args = inputs(name, rows, width)
        with torch.no_grad():
            assert_same(f(*args), model(*args), tolerance=1e-5)
    assert f.stats()["compiles"] == 1


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("dtype", "precision", "tolerance"),
    [
        (torch.float64, None, 1e-12),
        (torch.float16, None, 2e-3),
        (torch.bfloat16, None, 2e-2),
        (torch.float32, "bf16", 2e-2),
        (torch.float32, "int8", 3e-2),
    ],
    ids=str,
)
@pytest.mark.parametrize("width", [16, 48, 64])
def test_types(dtype: torch.dtype, precision: Any, tolerance: float, width: int) -> None:
    for name in ("relu", "added"):
        model = layer(name, width, dtype)
        args = inputs(name, 12, width, dtype)
        f = pliant.compile(model, args, dynamic_shapes=dynamic(name), precision=precision)
        for rows in ROWS:
            args = inputs(name, rows, width, dtype)
            with torch.no_grad():
                assert_same(f(*args), model(*args), tolerance=tolerance)


@pytest.mark.parametrize("name", ["relu", "added"])
def test_bits_of_a_row(name: str) -> None:
    """A row's results do not depend on how many others there are: with and without registers."""
    width = 64
    model = layer(name, width)
    f = pliant.compile(
        model, inputs(name, 12, width), dynamic_shapes=dynamic(name), numerics="batch_invariant"
    )
    args = inputs(name, 45, width)
    whole = torch.as_tensor(f(*args))
    for rows in range(1, 45):
        some = torch.as_tensor(f(*(x[:rows] for x in args)))
        assert torch.equal(some, whole[:rows]), rows


def test_in_place() -> None:
    """What is added may lie where the result goes."""

    class Chain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.products = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))

        def forward(self, x: Tensor) -> Tensor:
            x = torch.sin(x)
            for product in self.products:
                x = x + product(torch.cos(x))
            return x

    model = Chain().eval()
    f = pliant.compile(model, (tensor(9, 64),), dynamic_shapes=({0: "m"},))
    for rows in ROWS:
        x = tensor(rows, 64)
        with torch.no_grad():
            assert_same(f(x), model(x), tolerance=1e-5)


def called(model: nn.Module, args: tuple[Tensor, ...], t: Target) -> list[EpilogueKernel]:
    """The micro-kernels with epilogues that a model's kernels call."""
    stages = stages_of(*traced(model, args, None), t)
    programs = [stages.kernels[symbol] for symbol in stages.parts[-1].kernels]
    references = dict.fromkeys(c for f in programs for c in kernel_source(f, t).calls)
    found = called_kernels(references, t)
    for reference, kernel in found.items():
        if isinstance(kernel, EpilogueKernel):
            assert kernel.epilogue.reference == reference
            assert kernel.symbol != kernel.kernel.symbol
    return [k for k in found.values() if isinstance(k, EpilogueKernel)]


AVX512 = target("x86-64-avx512")


def test_the_program() -> None:
    """It is in terms of the tile; what lies in columns has no step between rows."""
    model = Layer(lambda y, r: nf.relu(y + r), 64).eval()
    (kernel,) = called(model, (tensor(28, DEPTH), tensor(28, 64)), AVX512)
    assert kernel.epilogue.reference.splitlines() == [
        "pl_mm_f32_14x32",
        '@loop(notes={"noalias": ("y2",)})',
        'def epilogue(t: f32["m", 32], x0: f32[32], '
        'x1: buffer(f32["m", 32], strides=("x1_step", 1)), '
        'y2: buffer(f32["m", 32], strides=("y2_step", 1)), m: i64, x1_step: i64, y2_step: i64):',
        "    for _i, _j in grid(m, 32):",
        "        y2[_i, _j] = max(t[_i, _j] + x0[_j] + x1[_i, _j], 0.0)",
    ]


def test_one_for_all_layers() -> None:
    """Layers that end alike call the same one, whatever their sizes."""
    widths = (64, 96, 128, 32)
    layers = [x for a, b in pairwise(widths) for x in (nn.Linear(a, b), nn.ReLU())]
    assert len(called(nn.Sequential(*layers), (tensor(28, 64),), AVX512)) == 1


def on_the_stack(text: str) -> int:
    """Vectors that a micro-kernel for 14 rows stores there."""
    code = assembly(text, AVX512)
    whole = code[code.index("_m14:") : code.index(".cfi_endproc", code.index("_m14:"))]
    return len(re.findall(r"%zmm\d+, \S*\(%rsp\)", whole))


def test_no_memory_for_the_tile() -> None:
    """The sums never leave their registers."""
    (kernel,) = called(Layer(nf.relu, 64).eval(), (tensor(28, DEPTH),), AVX512)
    assert on_the_stack(kernel.text()) <= on_the_stack(kernel.kernel.text()) < 28


@pytest.mark.parametrize(("name", "lines"), [
    ("relu", 0), ("added", 28), ("a scale a row", 0), ("a scale a column", 0),
])  # fmt: skip
def test_rows_that_are_read_in_the_end_are_asked_for(name: str, lines: int) -> None:
    """28 lines of 14 rows, before the product; what is in few lines is near anyhow."""
    (kernel,) = called(layer(name, 64), inputs(name, 28, 64), AVX512)
    whole = kernel.text()
    variant = whole[whole.index("_m14(") :]
    before = variant[: variant.index("phi")]
    assert before.count("@llvm.prefetch.p0(") == lines
    assert variant[: variant.index("ret i32")].count("@llvm.prefetch.p0(") - lines in (1, 2)


KEPT: dict[str, tuple[Then, int]] = {
    "takes longer than to store": (torch.sigmoid, 28),
    "many operations": (lambda y: nf.hardswish(y) * y + nf.hardtanh(y * 2.0 - 3.0), 28),
    "few rows": (nf.relu, 9),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_stays(name: str) -> None:
    then, rows = KEPT[name]
    assert called(Layer(then, 64).eval(), (tensor(rows, DEPTH),), AVX512) == []


def test_sums_as_they_are() -> None:
    """Where nothing follows, the micro-kernel stores where the result is wanted."""
    stages = stages_of(
        *traced(nn.Linear(DEPTH, 64, bias=False), (tensor(28, DEPTH),), None), AVX512
    )
    (program,) = (stages.kernels[s] for s in stages.parts[-1].kernels)
    source = kernel_source(program, AVX512)
    assert source.calls == ("pl_mm_f32_14x32",)
    assert len(re.findall("call i32 @pl_mm_f32_14x32", source.text)) == 2


def test_images() -> None:
    """Rows are the places of an image: equally far apart in memory that is channels innermost."""
    torch.manual_seed(0)
    layers = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU6(), nn.Conv2d(32, 48, 1), nn.Conv2d(48, 64, 3, 2),
        nn.ReLU(), nn.Conv2d(64, 5, 1),
    ).eval()  # fmt: skip
    assert len(called(layers, (tensor(2, 3, 14, 14),), AVX512)) == 2
    dims = {0: "n", 2: "h", 3: "w"}
    f = pliant.compile(layers, (tensor(2, 3, 20, 21),), dynamic_shapes=(dims,))
    for shape in ((1, 3, 3, 3), (2, 3, 14, 14), (1, 3, 17, 31), (0, 3, 5, 5), (3, 3, 6, 7)):
        x = tensor(*shape)
        with torch.no_grad():
            assert_same(f(x), layers(x), tolerance=1e-5)

"""Products of bf16: packed by the target's groups, run by its bf16 micro-kernel, right within the
bound of f32 sums of exact products that are rounded once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import pliant
from pliant.codegen.llvm.target import target
from pliant.codegen.micro_kernels import micro_kernels
from tests.targets import where_it_runs

BF16 = 2.0**-8  # half a unit in the last place, relative
Case = tuple[nn.Module, Callable[[int], tuple[torch.Tensor, ...]]]


class Product(nn.Module):
    def __init__(self, *, left: bool = False, right: bool = False) -> None:
        super().__init__()
        self.left, self.right = left, right

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a = a.transpose(-1, -2) if self.left else a
        b = b.transpose(-1, -2) if self.right else b
        return a @ b


def _linear(k: int, n: int) -> Case:
    return nn.Linear(k, n), lambda m: (torch.randn(m, k),)


def _conv(module: nn.Module, *shape: int) -> Case:
    return module, lambda m: (torch.randn(m, *shape),)


CASES: dict[str, Case] = {
    **{f"linear_{k}x{n}": _linear(k, n) for k, n in [(1, 1), (3, 1), (17, 31), (64, 96), (130, 7)]},
    "conv2d": _conv(nn.Conv2d(16, 24, 3, padding=1), 16, 9, 7),
    "conv2d_odd": _conv(nn.Conv2d(17, 5, 3, stride=2), 17, 9, 8),
    "conv2d_3": _conv(nn.Conv2d(3, 32, 3, stride=2, padding=1), 3, 11, 11),
    "conv2d_1x1": _conv(nn.Conv2d(33, 40, 1), 33, 5, 5),
    "grouped": _conv(nn.Conv2d(32, 64, 3, groups=2), 32, 6, 6),
    "dilated": _conv(nn.Conv2d(16, 8, 3, dilation=2), 16, 9, 9),
    "transposed": _conv(nn.ConvTranspose2d(8, 16, 4, stride=2), 8, 5, 4),
    "conv1d": _conv(nn.Conv1d(12, 20, 5), 12, 19),
    "conv3d": _conv(nn.Conv3d(8, 9, 2), 8, 4, 5, 3),
    "conv3d_3": _conv(nn.Conv3d(16, 24, 3, padding=1), 16, 3, 4, 5),
}
SIZES = (2, 13, 31)


def _check(
    module: nn.Module, args: list[tuple[torch.Tensor, ...]], dynamic: Any, target: str = "native"
) -> None:
    module = module.to(torch.bfloat16).eval()
    narrow = [tuple(x.bfloat16() for x in xs) for xs in args]
    f = pliant.compile(module, narrow[-1], dynamic_shapes=dynamic, target=target)
    exact = module.double()
    with torch.no_grad():
        for xs in narrow:
            want = exact(*(x.double() for x in xs))
            most = exact_abs(exact, xs)
            error = (f(*xs).double() - want).abs()
            assert (error <= BF16 * want.abs() + 2.0**-16 * most + 1e-30).all()


def exact_abs(module: nn.Module, xs: tuple[torch.Tensor, ...]) -> float:
    """A bound of the sums of the products' magnitudes."""
    parameters = [p.abs().sum().item() for p in module.parameters()]
    largest = max(x.abs().max().item() for x in xs)
    if parameters:
        return largest * sum(parameters)
    return largest * xs[0].double().abs().sum().item()


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
def test_layers(name: str) -> None:
    torch.manual_seed(0)
    module, inputs = CASES[name]
    _check(module, [inputs(m) for m in SIZES], ({0: "batch"},))


@pytest.mark.sweep(2)
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
def test_products_of_values_with_a_symbolic_sum(left: bool, right: bool) -> None:
    torch.manual_seed(0)

    def inputs(k: int) -> tuple[torch.Tensor, ...]:
        a, b = torch.randn(2, 5, k), torch.randn(2, k, 37)
        return (a.mT.contiguous() if left else a), (b.mT.contiguous() if right else b)

    dims = ({1 if left else 2: "k"}, {2 if right else 1: "k"})
    _check(Product(left=left, right=right), [inputs(k) for k in (1, 2, 3, 17, 64, 65)], dims)


def test_windows_of_three_digits_with_a_weight_at_run_time() -> None:
    """Where a pair lies in a panel is found from three digits of a window and a channel."""

    class Conv(nn.Module):
        def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.conv3d(x, w, padding=1)

    dims = ({0: "b", 2: "d", 3: "h", 4: "w"}, {})
    for channels in (5, 16):
        w = torch.randn(9, channels, 3, 3, 3)
        args = [(torch.randn(b, channels, *s), w) for b, s in [(1, (1, 2, 3)), (2, (3, 4, 5))]]
        _check(Conv(), args, dims)


@pytest.mark.parametrize("target", where_it_runs("x86-64", "x86-64-avx2", "x86-64-avx512"))
def test_without_the_instruction(target: str) -> None:
    torch.manual_seed(0)
    module, inputs = CASES["linear_17x31"]
    _check(module, [inputs(13)], None, target=target)


def test_pairs_reach_the_micro_kernel_and_panels_are_bf16(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLIANT_DUMP", str(tmp_path))
    layer = nn.Linear(71, 50).bfloat16().eval()
    f = pliant.compile(layer, (torch.randn(4, 71).bfloat16(),))
    assert list(tmp_path.glob("*/*pl_mm_bf16*"))
    wide = next(mk.columns for mk in micro_kernels(target()) if mk.b.name == "bf16")
    panels = f"bf16[{-(-50 // wide)}, 36, {wide}, 2]"
    assert panels in next(tmp_path.glob("*/05_packing.py")).read_text()
    again = pliant.compile(next(tmp_path.glob("*/05_packing.py")))
    x = torch.randn(4, 71).bfloat16()
    assert torch.equal(torch.as_tensor(again(x)), f(x))


def test_what_is_no_number_stays_in_its_row() -> None:
    """The zeros that fill the last pair are multiplied with nothing of the next row."""
    layer = nn.Linear(17, 33, bias=False).bfloat16().eval()
    x = torch.ones(3, 17).bfloat16()
    x[1, 0], x[2, 16] = float("nan"), float("inf")
    y = pliant.compile(layer, (x,))(x)
    assert y[0].isfinite().all() and y[1].isnan().all()
    assert torch.equal(y[2].float(), layer.weight[:, 16].detach().float().sign() * float("inf"))


class Chosen(nn.Module):
    """A product with what other values choose of a value: rows, elements, its own or a table's."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.table = how, nn.Parameter(torch.randn(9, 33))
        self.weight = nn.Parameter(torch.randn(33, 40))

    def forward(self, x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        if self.how == "embedding":
            return nn.functional.embedding(i, self.table) @ self.weight
        if self.how == "mask":
            return torch.where(i[:, None] > 4, x, torch.zeros(())) @ self.weight
        rows = {"rows": i, "elements": i[:, None].expand_as(x), "itself": x.long().abs() % 7}
        chosen = x[i] if self.how == "rows" else x.gather(0, rows[self.how])
        return chosen @ self.weight


@pytest.mark.sweep
@pytest.mark.parametrize("how", ["embedding", "mask", "rows", "elements", "itself"])
def test_factors_that_other_values_choose(how: str) -> None:
    torch.manual_seed(0)
    module = Chosen(how).eval()
    args = [(torch.randn(n, 33), torch.arange(n) % 7) for n in (16, 7, 65)]
    f = pliant.compile(module, args[0], dynamic_shapes=({0: "n"}, {0: "n"}), precision="bf16")
    with torch.no_grad():
        for x in args:
            exact = module(*x)
            assert (f(*x) - exact).norm() <= BF16 * exact.norm()

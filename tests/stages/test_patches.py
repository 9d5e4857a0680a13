"""Products between maps of patches are found by their accesses; some patches at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import pliant
from bench.traces import watching
from pliant.base.dtypes import bf16, f32
from pliant.codegen.llvm.target import target
from pliant.graph.builder import Builder
from pliant.graph.function import Dim, Function
from pliant.graph.inline import inline
from pliant.loop.stmt import LINE, Alloc, For, Store, statements
from pliant.loop.verify import verify_function
from pliant.ops.table import OPERATORS
from pliant.opt.winograd import steps_for
from pliant.sym.expr import var
from tests.compiled.torch_run import traced
from tests.stages.oracle import Stages, run_graph, run_programs, stages_of
from tests.targets import runs_here

T = target()


def by_patches(
    channels: int = 4, outputs: int = 32, *, step: int = 4, twice: str = "", side: int | str = "w"
) -> tuple[Function, dict[str, np.ndarray]]:
    """The operators by themselves; `twice` is read by something else, too."""
    b = Builder("main", OPERATORS)
    for name in ("n", "h", *([side] if isinstance(side, str) else [])):
        b.dim(name, Dim(min=1))
    width = var(side) if isinstance(side, str) else side
    x = b.param("x", f32, (var("n"), channels, var("h"), width))
    rng = np.random.default_rng(0)
    w = b.weight("w", rng.standard_normal((outputs, channels, 3, 3)).astype(np.float32))
    x = b.call("relu", x)
    made: dict[str, Any] = {"v": b.call("winograd_patches", x, pads=((1, 1), (1, 1)), step=step)}
    u = b.call("winograd_filters", w, step=step)
    made["m"] = b.call("winograd_products", made["v"], u)
    y = b.call("winograd_results", made["m"], height=var("h"), width=width, last=True)
    results = [b.call("relu", y)]
    if twice:
        results.append(b.call("sum", made[twice], axes=(0, 1, 2, 3, 4, 5), keepdims=False))
    return b.finish(results)


def kinds(stages: Stages) -> list[str]:
    return [g.kind for g in stages.parts[-1].groups]


@pytest.mark.sweep(2)
@pytest.mark.parametrize("step", [2, 4])
def test_meaning(step: int) -> None:
    """Every stage, and the kernels, mean a convolution; at sizes of less than a patch, too."""
    function, weights = by_patches(step=step)
    stages = stages_of(function, weights, T)
    assert "patches" in kinds(stages) and "contraction" not in kinds(stages)
    for f in stages.kernels.values():
        verify_function(f)
    (w,) = weights.values()
    for n, h, width in ((1, 5, 6), (2, 1, 1), (1, 8, 9)):
        x = np.random.default_rng(1).standard_normal((n, 4, h, width)).astype(np.float32)
        given = torch.relu(torch.from_numpy(x))
        y = nn.functional.conv2d(given, torch.from_numpy(w), padding=1).relu()
        want = y.permute(0, 2, 3, 1).numpy()
        found = {
            stage: run_graph(inline(module, "main"), weights, {"x": x})
            for stage, module in stages.graph.items()
        }
        found["programs"] = run_programs(stages, {"x": x}, T)
        for name, (have,) in found.items():
            np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-4, err_msg=name)


def test_places_are_in_other_sets() -> None:
    """Of a first cache, whose sets a page's lines go through: those that are written in one go, in
    parts of every length."""
    stages = stages_of(*by_patches(96, 24), T)
    (f,) = (k for k in stages.kernels.values() if "patches" in k.name)
    buffers = [s.buffer for s in statements(f.body) if isinstance(s, Alloc)]
    found = [b for b in buffers if b.shape[2:4] == (6, 6)]
    assert len(found) == 2
    for buffer in found:
        *_, place, _, _ = buffer.strides
        for rows in (1, 2, 14, 28, 40, 56):
            there = place.subs(dict.fromkeys(place.names, rows)).value * buffer.dtype.bytes
            assert there % (2 * LINE) == LINE


def test_where() -> None:
    def found(**more: Any) -> bool:
        return "patches" in kinds(stages_of(*by_patches(**more), T, programs=False))

    assert found() and found(step=2) and found(side=60)
    assert not found(twice="v") and not found(twice="m")
    assert not found(side=4)  # one patch: no row of them
    assert found(channels=64, outputs=64, side=24)
    assert not found(channels=128, outputs=128, side=24)  # filters would be read for six of them
    assert found(channels=128, outputs=128, side=40)


class Beside(nn.Module):
    """Two convolutions of one image."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.before = nn.Conv2d(3, 16, 1)
        self.first, self.second = (nn.Conv2d(16, n, 3, padding=1) for n in (16, 24))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.before(x).relu()
        return torch.cat([self.first(x).relu(), self.second(x).tanh()], 1).mean((2, 3))


@pytest.mark.sweep(2)
@pytest.mark.parametrize("precision", [None, "bf16"])
def test_several_of_one_image(precision: str | None) -> None:
    """Each has patches of its own."""
    model, x = Beside().eval(), torch.randn(1, 3, 19, 33)
    f = pliant.compile(model, (x,), precision=precision)
    assert f.explain().count("[patches, ") == (2 if steps_for(precision, T.features) else 0)
    error = torch.linalg.vector_norm(f(x) - model(x)) / torch.linalg.vector_norm(model(x))
    assert error <= (1e-2 if precision else 2e-6)


@pytest.mark.parametrize("precision", [None, "bf16"])
def test_of_an_image_in_twice_its_size(precision: str | None) -> None:
    """Patches are made of fewer elements of it than of others, and still in the kernel."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 64, 1), nn.Upsample(scale_factor=2.0), nn.Conv2d(64, 64, 3, padding=1)
    ).eval()
    x = torch.randn(1, 3, 20, 24)
    f = pliant.compile(model, (x,), dynamic_shapes=({2: "h", 3: "w"},), precision=precision)
    assert ("[patches, " in f.explain()) is (steps_for(precision, T.features) is not None)
    for h, w in ((20, 24), (1, 1), (7, 31)):
        x = torch.randn(1, 3, h, w)
        error = torch.linalg.vector_norm(f(x) - model(x)) / torch.linalg.vector_norm(model(x))
        assert error <= (1e-2 if precision else 2e-6)


def test_why_not() -> None:
    model = nn.Sequential(nn.Conv2d(3, 128, 1), nn.Conv2d(128, 128, 3), nn.Conv2d(128, 3, 1))
    f = pliant.compile(model.eval(), (torch.rand(1, 3, 26, 26),))
    assert "not in 1: filters would be read again for each of many short rows" in f.explain()


class Joined(nn.Module):
    """A residual block whose sum goes on twice, after an odd number of channels."""

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        torch.manual_seed(outputs)
        self.before = nn.Conv2d(3, channels, 1)
        self.patches = nn.Conv2d(channels, outputs, 3, padding=1)
        self.beside = nn.Conv2d(channels, outputs, 1)
        self.after = nn.Conv2d(outputs, 7, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.before(x).relu()
        y = self.patches(x) + self.beside(x)
        return self.after(y.relu()), y.mean((2, 3))


@pytest.mark.sweep
@pytest.mark.parametrize(("channels", "outputs"), [(32, 16), (33, 35), (47, 97), (96, 24)])
def test_compiled(channels: int, outputs: int) -> None:
    """Columns that fill no panel, several panels; rows of one part and of several, threads."""
    model = Joined(channels, outputs)
    graph = traced(model, (torch.rand(1, 3, 16, 200),), ({0: "n", 2: "h", 3: "w"},))
    exact = Joined(channels, outputs).double().eval()
    for precision, most in ((None, 2e-6), ("bf16", 2e-2)):
        f = pliant.compile(graph, precision=precision, threads=2)
        assert ("[patches, " in f.explain()) is (steps_for(precision, T.features) is not None)
        for n, h, w in ((1, 16, 200), (2, 3, 7), (3, 9, 65), (1, 1, 1), (1, 6, 401)):
            x = torch.randn(n, 3, h, w)
            for got, want in zip(f(x), exact(x.double()), strict=True):
                error = torch.linalg.vector_norm(got.double() - want)
                assert error <= most * torch.linalg.vector_norm(want)
        assert f.stats()["compiles"] == 1


def test_memory_is_that_of_images() -> None:
    """What lies between is not stored for a whole image."""
    model = nn.Sequential(nn.Conv2d(3, 32, 1), nn.Conv2d(32, 32, 3, padding=1), nn.Conv2d(32, 3, 1))
    f = pliant.compile(model.eval(), (torch.rand(1, 3, 400, 400),))
    (line,) = (x for x in f.explain().splitlines() if "memory for intermediate" in x)
    assert int(line.split(":")[1].split()[0]) <= 2 * 4 * 32 * 400 * 400


@pytest.mark.parametrize(("vectors", "together"), [(4, 2), (3, 1)])
def test_patches_of_bf16_are_made_two_vectors_at_a_time(vectors: int, together: int) -> None:
    """Where that leaves no rest. (With AMX there are no patches of bf16.)"""
    name = next(n for n in ("x86-64-avx512", "x86-64-avx2", "native") if runs_here(n))
    lanes = target(name).lanes(32)
    channels = vectors * lanes
    model = nn.Sequential(
        nn.Conv2d(3, channels, 1), nn.Conv2d(channels, 32, 3, padding=1), nn.Conv2d(32, 3, 1)
    )
    with watching() as seen:
        f = pliant.compile(
            model.eval(), (torch.randn(1, 3, 32, 32),), precision="bf16", target=name
        )
    assert "[patches" in f.explain()
    made = [
        s.extent.value for p in seen.kernels if "patches" in p.name for s in statements(p.body)
        if isinstance(s, For) and s.kind == "vectorized"
        and any(isinstance(x, Store) and x.buffer.dtype is bf16 for x in statements(s.body))
        and any(isinstance(x, Store) and x.buffer.scope == "scratch" for x in statements(s.body))
    ]  # fmt: skip
    assert made == [together * lanes]

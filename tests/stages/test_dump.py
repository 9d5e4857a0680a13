"""What PLIANT_DUMP, `emit` and internal failures leave behind, and going on from there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

import pliant
from pliant import pipeline
from pliant.base.dtypes import bf16, f32
from pliant.base.errors import InternalError, InvalidModelError, ResourceError
from pliant.base.settings import STAGES, Emit
from pliant.codegen import build
from pliant.codegen.build import build_kernel
from pliant.codegen.llvm.target import target
from pliant.dump import read_stage
from pliant.graph.builder import Builder
from pliant.graph.function import Function
from pliant.ops.table import OPERATORS
from pliant.sym.expr import var
from pliant.text import parse_module, to_text

Program = tuple[Function, dict[str, np.ndarray]]


@pytest.fixture
def program() -> Program:
    """A product with a folded weight, a softmax, a sort (a loop program), a bf16 weight."""
    rng = np.random.default_rng(0)
    b = Builder("main", OPERATORS)
    x = b.param("x", f32, (var("n"), 20))
    w = b.weight("w", rng.standard_normal((20, 24)).astype(np.float32))
    scale = b.weight("scale", rng.standard_normal((24,)).astype(bf16.numpy))
    h = b.call("matmul", x, b.call("neg", w))
    h = b.call("mul", b.call("softmax", h, axis=1), b.call("cast", scale, to=f32))
    values, places = b.call("topk", h, axis=1, k=5, largest=True)
    return b.finish([values, places])


def names(folder: Path) -> list[str]:
    return [p.name for p in sorted(folder.iterdir())]


def graph_stages(folder: Path) -> list[Path]:
    """The files of graph stages, in order."""
    found = sorted(folder.glob("*.py"))
    return [p for p in found if p.stem[3:] not in ("kernels", "host")]


def test_dump(program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLIANT_DUMP", str(tmp_path / "d"))
    pliant.compile(program)
    pliant.compile(program)
    assert names(tmp_path / "d") == ["000", "001"]
    folder = tmp_path / "d" / "000"
    found = names(folder)
    stages = [n[3:-3] for n in found if n.endswith(".py")]
    assert stages[:2] == ["import", "fission"] and stages[-3:] == ["groups", "kernels", "host"]
    assert [n[:2] for n in found[:-1]] == [f"{k:02d}" for k in range(len(found) - 1)]
    code = {n[3:-3] for n in found[len(stages) : -1] if n.endswith(".ll")}
    assert found[-1] == "weights.npz" and len(code) == len(found) - len(stages) - 1
    (path,) = folder.glob("*_kernels.py")
    kernels = parse_module(path.read_text()).functions
    assert {"main", "main_prepare", *kernels} < code
    monkeypatch.delenv("PLIANT_DUMP")
    for name in found[: len(stages)]:
        text = (folder / name).read_text()
        compile(text, name, "exec")  # valid Python
        with np.load(folder / "weights.npz") as stored:
            weights = {k.partition(":")[2]: stored[k] for k in stored if k.startswith("f32")}
        weights |= {k: a for k, a in program[1].items() if a.dtype == bf16.numpy}
        assert to_text(parse_module(text, weights)) == text


def test_graph_stages_can_be_compiled(program: Program, tmp_path: Path) -> None:
    f = pliant.compile(program, emit=Emit(tmp_path, frozenset(["graph"])))
    for stage in graph_stages(tmp_path):
        g = pliant.compile(stage)
        for n in (1, 9):
            x = np.random.default_rng(n).standard_normal((n, 20)).astype(np.float32)
            for a, b in zip(f(x), g(x), strict=True):
                np.testing.assert_array_equal(a, b, stage.name)


LAYERS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "linear": (nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 4)), (3, 24)),
    "attention": (nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), (2, 9, 32)),
    "images": (
        nn.Sequential(
            nn.Conv2d(3, 32, 3, 2, 1), nn.Conv2d(32, 32, 3, groups=32), nn.Hardswish(),
            nn.Conv2d(32, 30, 1), nn.ConvTranspose2d(30, 17, 2, 2), nn.GroupNorm(1, 17),
        ),
        (1, 3, 20, 24),
    ),
    "patches": (nn.Sequential(nn.Conv2d(3, 32, 1), nn.Conv2d(32, 32, 3)), (1, 3, 19, 24)),
    "recurrent": (nn.LSTM(8, 16, batch_first=True), (2, 5, 8)),
}  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("name", LAYERS)
def test_stages_of_layers_can_be_compiled(name: str, tmp_path: Path) -> None:
    """Products that are packed, panels that are copies, heads that are parts of rows."""
    module, shape = LAYERS[name]
    x = torch.rand(shape)
    emit = Emit(tmp_path, frozenset(["graph"]))
    f = pliant.compile(module.eval(), (x,), dynamic_shapes=({0: "n"},), emit=emit)
    found = graph_stages(tmp_path)
    assert len(found) >= 7
    for stage in found:
        g = pliant.compile(stage)
        for n in (1, 3):
            y = torch.rand(n, *shape[1:])
            for a, b in zip(tree_leaves(f(y)), tree_leaves(g(y)), strict=True):
                torch.testing.assert_close(torch.as_tensor(b), a, rtol=1e-4, atol=1e-5)


def test_kernels_can_be_built_again(program: Program, tmp_path: Path) -> None:
    pliant.compile(program, emit=Emit(tmp_path, frozenset(STAGES)))
    (path,) = tmp_path.glob("*_kernels.py")
    kernels = parse_module(path.read_text()).functions
    listings = {p.stem[3:]: p.read_text() for p in tmp_path.glob("*.s")}
    assert kernels.keys() < listings.keys() and {"main", "main_prepare"} < listings.keys()
    for name, kernel in kernels.items():
        assert name.encode() in build_kernel(kernel, target()).object
        assert f"{name}:" in listings[name]


def test_an_internal_failure_leaves_a_bundle(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(build, "kernel_program", broken)
    monkeypatch.setenv("PLIANT_CACHE_DIR", "off")
    with pytest.raises(InternalError, match=r"last stage kernel k_\w+: KeyError: 'lost'; .* in"):
        pliant.compile(program)
    (folder,) = tmp_path.iterdir()
    assert names(folder) == ["failure.txt", "import.py", "weights.npz"]
    told = (folder / "failure.txt").read_text()
    assert "pliant: " in told and "raise KeyError" in told
    assert read_stage(folder / "import.py")[0] is program[0]
    with pytest.raises(InternalError, match="KeyError: 'lost'"):
        pliant.compile(folder / "import.py")


def test_a_failure_of_a_frontend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise IndexError("beyond")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(pipeline, "import_model", broken)
    with pytest.raises(InternalError, match="last stage import: IndexError: beyond"):
        pliant.compile("model.onnx")
    (folder,) = tmp_path.iterdir()
    assert names(folder) == ["failure.txt"]


def test_checks_name_the_stage(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = program[0].replace(results=(program[0].bindings[-1].outputs[0].replace(name="q"),))
    monkeypatch.setenv("PLIANT_CHECK", "1")
    with pytest.raises(InvalidModelError, match="after the stage import: main: q is used but not"):
        pliant.compile((wrong, program[1]))


def test_errors(program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text("x = 1")
    with pytest.raises(InvalidModelError, match=r"a.py: line 1: expected a function"):
        pliant.compile(tmp_path / "a.py")
    with pytest.raises(InvalidModelError, match=r"b.py: cannot be read"):
        pliant.compile(tmp_path / "b.py")
    pliant.compile(program, emit=Emit(tmp_path / "s", frozenset(["graph", "loop"])))
    with pytest.raises(InvalidModelError, match="no graph function in it to compile"):
        pliant.compile(next((tmp_path / "s").glob("*_kernels.py")))
    (tmp_path / "s" / "weights.npz").unlink()
    with pytest.raises(InvalidModelError, match=r"the weight '\w+' is not in the store"):
        pliant.compile(tmp_path / "s" / "00_import.py")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PLIANT_DUMP", str(tmp_path / "file"))
    with pytest.raises(ResourceError, match=r"cannot write to .*file"):
        pliant.compile(program)

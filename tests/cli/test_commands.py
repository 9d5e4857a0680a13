"""Commands in processes of their own: data, messages, exit codes, error texts."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from pliant.codegen.llvm.target import FEATURE_SETS
from tests.cli.conftest import Run, make_model

pytest.importorskip("onnx")


def test_compile_inspect_and_run(cli: Run, model: Path, tmp_path: Path) -> None:
    made = cli("compile", model, "-o", "m.so", "--dim", "batch=1..64")
    assert (made.returncode, made.stdout) == (0, "m.so\n")
    assert "compile small.onnx: import" in made.stderr
    x = np.random.default_rng(0).standard_normal((5, 8), np.float32)
    np.save(tmp_path / "x.npy", x)
    ran = cli("run", "m.so", "-i", "x=x.npy", "-o", "y.npz")
    assert (ran.returncode, ran.stdout) == (0, "y.npz\n")
    w = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)
    y = np.load(tmp_path / "y.npz")["y"]
    np.testing.assert_allclose(y, np.maximum(x @ w, 0), rtol=1e-4, atol=1e-5)
    shown = cli("inspect", "m.so")
    assert "input x: f32[batch, 8]" in shown.stdout
    assert "symbol 1 <= batch <= 64" in shown.stdout
    facts = json.loads(cli("inspect", "m.so", "--json").stdout)
    assert facts["functions"][0]["inputs"][0]["name"] == "x"
    assert facts["file_bytes"] == (tmp_path / "m.so").stat().st_size
    too_large = cli("run", "m.so", "-i", "x=random:65,8")
    assert (too_large.returncode, too_large.stdout) == (1, "")
    assert too_large.stderr == "pliant: x: dim 0 (batch) must be at most 64, got 65\n"


def test_a_compiled_file_runs_without_llvm(cli: Run, model: Path, tmp_path: Path) -> None:
    assert cli("compile", model, "-o", "m.so").returncode == 0
    (tmp_path / "blocked").mkdir()
    for name in ("llvmlite", "onnx", "torch"):
        (tmp_path / "blocked" / f"{name}.py").write_text("raise ImportError('blocked')")
    source = Path(__file__).parents[2] / "src"
    path = f"{tmp_path / 'blocked'}{os.pathsep}{source}"
    ran = cli("run", "m.so", "-i", "x=random:2,8", PYTHONPATH=path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("y: float32[2, 4] min ")


ERRORS = {
    ("compile", "no.onnx"): (1, "pliant: no.onnx: cannot be read: No such file or directory\n"),
    ("inspect", "text"): (1, "pliant: text: it is not a Pliant artifact\n"),
    ("inspect", "no.so"): (1, "pliant: no.so: cannot be opened: No such file or directory\n"),
    ("compile", "small.onnx", "-o", "no/m.so"): (
        1, "pliant: cannot write no/m.so: the folder no does not exist\n",
    ),
    ("compile", "small.onnx", "-o", "."): (1, "pliant: cannot write .: it is a folder\n"),
    ("compile", "small.onnx", "--dim", "seq=1..4"): (
        1, "pliant: the model has no dim 'seq'; it has: batch\n",
    ),
    ("compile", "small.onnx", "--target", "z80"): (
        3, f"pliant: no target 'z80'; there are: native, {', '.join(FEATURE_SETS)}\n",
    ),
    ("run", "small.onnx", "--function", "decode", "-i", "x=random:2,8"): (
        1, "pliant: there is no function 'decode'; there are: main\n",
    ),
    ("run", "small.onnx", "-i", "x=random:2"): (
        1, "pliant: input x: f32[batch, 8]: expected 2 dimensions, got 1\n",
    ),
    ("run", "small.onnx", "-i", "x=random:2,7"): (
        1, "pliant: x: dim 1 must be 8, got 7\n",
    ),
    ("bench", "small.onnx", "--against", "x"): (
        1, "pliant: no runtime 'x'; there are: torch, onnxruntime, openvino\n",
    ),
}  # fmt: skip


@pytest.mark.sweep(3)
@pytest.mark.parametrize("arguments", ERRORS, ids=" ".join)
def test_an_error_is_one_clean_message(
    cli: Run, model: Path, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "text").write_text("this is no library")
    code, text = ERRORS[arguments]
    found = cli(*arguments)
    said = "".join(s for s in found.stderr.splitlines(True) if not s.startswith("compile small"))
    assert (found.returncode, found.stdout, said) == (code, "", text)


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    "arguments",
    [(), ("nonsense",), ("compile",), ("compile", "m.onnx", "--dim", "seq"),
     ("compile", "m.onnx", "--dim", "seq=9..4"), ("compile", "m.onnx", "--threads", "0"),
     ("compile", "m.onnx", "--dim", "seq=1..3:7"), ("compile", "m.onnx", "--dim", "seq=9:0"),
     ("compile", "m.onnx", "--dim", f"seq={10**30}"), ("bench", "m.onnx", "--shapes", "seq=-3"),
     ("bench", "m.onnx", "--shapes", "seq=4..2"), ("cache", "burn")],
    ids=" ".join,
)  # fmt: skip
def test_usage(cli: Run, arguments: tuple[str, ...]) -> None:
    found = cli(*arguments)
    assert (found.returncode, found.stdout) == (2, "")
    assert "usage: pliant" in found.stderr
    assert "Traceback" not in found.stderr


def test_an_unsupported_model(cli: Run, tmp_path: Path) -> None:
    make_model(tmp_path / "odd.onnx", "Frobnicate", "org.example")
    found = cli("compile", "odd.onnx", "-o", "m.so")
    assert found.returncode == 3
    assert "Frobnicate" in found.stderr
    assert not (tmp_path / "m.so").exists()


def test_a_traceback_only_when_asked_for(cli: Run) -> None:
    assert "Traceback" in cli("inspect", "no.so", PLIANT_DEBUG="1").stderr


def test_help_is_quick_and_loads_no_compiler(cli: Run) -> None:
    found = cli("--help", PYTHONPROFILEIMPORTTIME="1")
    assert found.returncode == 0
    assert all(n not in found.stderr for n in ("llvmlite", "torch", "onnx", "pliant.pipeline"))


def test_doctor(cli: Run) -> None:
    found = cli("doctor", PLIANT_NUM_THREADS="3")
    assert found.returncode == 0, found.stdout
    assert "threads      3 (PLIANT_NUM_THREADS=3)\n" in found.stdout


def test_bench_report(cli: Run, model: Path, tmp_path: Path) -> None:
    found = cli(
        "bench", model, "--shapes", "batch=0,1,3..9:3", "--runs", 3, "--json", "b.json",
        "--against", "torch",
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    report = json.loads((tmp_path / "b.json").read_text())
    assert set(report) == {
        "format", "pliant", "file", "threads", "runs", "contention", "skipped", "shapes",
        "geometric_mean",
    }  # fmt: skip
    assert report["skipped"] == {"torch": "PyTorch runs .pt2 models, not ONNX files"}
    assert [s["symbols"]["batch"] for s in report["shapes"]] == [0, 1, 3, 6, 9]
    for s in report["shapes"]:
        assert set(s) == {"symbols", "results", "ratios", "errors", "problems"}
        ours = s["results"]["pliant"]
        assert set(ours) == {"median_ms", "p50_ms", "p90_ms", "p99_ms", "runs"}
        assert 0 < ours["p50_ms"] <= ours["p90_ms"] <= ours["p99_ms"]


def test_bench_finds_inaccurate_results(cli: Run, model: Path) -> None:
    pytest.importorskip("onnxruntime")
    found = cli("bench", model, "--shapes", "batch=3", "--runs", 1, "--against", "onnxruntime",
                "--tolerance", -1)  # fmt: skip
    assert found.returncode == 4, found.stderr
    assert "results differ by" in found.stderr


def test_compile_writes_stages(cli: Run, model: Path, tmp_path: Path) -> None:
    made = cli("compile", model, "-o", "m.so", "--emit", "graph,host,asm", "--numerics", "strict")
    assert (made.returncode, made.stdout) == (0, "m.so\nm.stages\n")
    names = sorted(p.name for p in (tmp_path / "m.stages").iterdir())
    (groups,) = [n for n in names if n.endswith("_groups.py")]
    assert names[0] == "00_import.py" and names[-1] == "weights.npz"
    assert any(n.endswith("_host.py") for n in names)
    assert names[-2].endswith(".s") and not any("kernels" in n or n.endswith(".ll") for n in names)
    again = cli("compile", f"m.stages/{groups}", "-o", "n.so")
    assert (again.returncode, again.stdout) == (0, "n.so\n")
    wrong = cli("compile", model, "--emit", "loop,poem")
    assert wrong.returncode == 2 and "'poem' is no kind of stage" in wrong.stderr

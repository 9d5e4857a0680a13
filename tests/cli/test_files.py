"""What is left on disk: whole files or none, and a cache that may fail."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from pliant.base.errors import InvalidModelError, PliantError
from pliant.cli.arrays import read_inputs
from pliant.runtime.artifact import open_artifact
from pliant.runtime.manifest import Function, TensorInfo
from tests.cli.conftest import Run, environment

pytest.importorskip("onnx")


def test_the_cache_fills_and_empties(cli: Run, model: Path, tmp_path: Path) -> None:
    assert "entries  0\n" in cli("cache").stdout
    assert cli("compile", model, "-o", "m.so").returncode == 0
    assert "entries  0\n" not in cli("cache", "info").stdout
    trimmed = cli("cache", "trim")
    assert (trimmed.returncode, trimmed.stderr) == (0, "0 entries removed\n")
    cleared = cli("cache", "clear")
    assert "entries  0\n" in cleared.stdout
    assert not list((tmp_path / "cache").glob("*"))


def test_a_cache_that_cannot_be_written(cli: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    made = cli("compile", model, "-o", "m.so")
    assert made.returncode == 0
    assert "warning: kernels are not cached: " in made.stderr
    assert (tmp_path / "m.so").exists()


def test_no_cache(cli: Run, model: Path, tmp_path: Path) -> None:
    assert cli("compile", model, "-o", "m.so", PLIANT_CACHE_DIR="off").returncode == 0
    assert not (tmp_path / "cache").exists()
    assert "none" in cli("cache", PLIANT_CACHE_DIR="off").stdout


def test_a_failed_write_keeps_the_old_output(cli: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "m.so").mkdir()
    made = cli("compile", model, "-o", "m.so")
    assert made.returncode == 1
    assert "pliant: cannot write m.so: " in made.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cache", "m.so", "small.onnx"]


def test_damaged_arrays(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(40.0).reshape(5, 8))
    np.savez_compressed(tmp_path / "b.npz", a=np.arange(400), b=np.ones((30, 3)))
    good = [(tmp_path / name).read_bytes() for name in ("a.npy", "b.npz")]
    function = Function("f", "f", inputs=(TensorInfo("x", "f64", ("n", "8")),), outputs=())
    (found,) = read_inputs([f"x={tmp_path / 'a.npy'}"], function, 0).values()
    assert found.shape == (5, 8)
    assert set(read_inputs([str(tmp_path / "b.npz")], function, 0)) == {"a", "b"}
    pick = random.Random(0)
    bad = tmp_path / "bad"
    for k in range(400):
        data = bytearray(good[k % 2])
        for _ in range(pick.choice((1, 2, 5))):
            data[pick.randrange(len(data) if pick.random() < 0.5 else 128)] ^= 1 << pick.randrange(
                8
            )
        bad.write_bytes(data[: pick.choice((len(data), pick.randrange(len(data))))])
        for spec in (f"x={bad}", str(bad)):
            with contextlib.suppress(PliantError):
                read_inputs([spec], function, 0)
    bad.write_bytes(good[0])
    with pytest.raises(InvalidModelError) as caught:
        read_inputs([str(bad)], function, 0)
    assert str(caught.value) == f"{bad}: one array without a name: give NAME={bad}"
    bad.write_bytes(b"text")
    with pytest.raises(InvalidModelError) as caught:
        read_inputs([f"x={bad}"], function, 0)
    assert str(caught.value) == f"{bad}: not a readable .npy or .npz file"


def test_devices_stay_what_they_are(cli: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "null").symlink_to("/dev/null")
    made = cli("compile", model, "-o", "null")
    assert made.returncode == 1
    assert made.stderr.endswith("pliant: cannot write null: it is no ordinary file\n")
    ran = cli("run", model, "-i", "x=random:2,8", "-o", "null")
    assert (ran.returncode, ran.stdout) == (0, "null\n")
    assert (tmp_path / "null").is_symlink() and Path("/dev/null").is_char_device()


LOST = """
import sys, time, weakref
from pliant import cli

class Held: ...

def dispatch(arguments):
    held = Held()
    seen = weakref.ref(held, lambda _: exec("raise KeyboardInterrupt"))
    del held
    time.sleep(60)

cli._dispatch = dispatch
sys.exit(cli.main([]))
"""


def test_an_interrupt_where_none_can_be_raised(tmp_path: Path) -> None:
    """Python drops it in the callback of a weak reference; interned nodes have one each."""
    done = subprocess.run(
        [sys.executable, "-c", LOST], env=environment(tmp_path), capture_output=True, text=True,
        timeout=50,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (130, "pliant: interrupted\n")


@pytest.mark.sweep(2)
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("phase", ["import", "kernels"])
def test_an_interrupted_compilation(
    cli: Run, model: Path, tmp_path: Path, how: signal.Signals, phase: str
) -> None:
    command = [sys.executable, "-m", "pliant.cli", "compile", str(model), "-o", "m.so"]
    child = subprocess.Popen(
        command, cwd=tmp_path, env=environment(tmp_path / "cache"), stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert child.stderr is not None
    for line in child.stderr:
        if f": {phase}" in line:
            break
    time.sleep(0.02)
    child.send_signal(how)
    rest = child.stderr.read()
    code = child.wait(60)
    assert "Traceback" not in rest
    if (tmp_path / "m.so").exists():  # it was done before the signal came
        open_artifact(tmp_path / "m.so", verify_weights=True).file.close()
    else:
        assert code in (130, -how)
    left = [p.name for p in tmp_path.iterdir()]
    assert set(left) <= {"cache", "m.so", "small.onnx"}
    again = cli("compile", model, "-o", "m.so")
    assert again.returncode == 0, again.stderr

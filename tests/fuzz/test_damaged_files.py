"""A short run of `bench/fuzz_artifact.py`, which looks for what a damaged file can do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.fuzzing import artifacts
from bench.fuzzing.isolate import ACCEPTED, CRASH, ESCAPED, HANG, REFUSED, isolated
from pliant.base.errors import ShapeError
from tests.runtime import tiny

pytest.importorskip("onnx")

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("what", [("--count", "200"), ("--onnx", "--few", "--count", "80")])
def test_no_file_does_harm(what: tuple[str, ...], tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "bench" / "fuzz_artifact.py"), *what, "--minutes", "2"]
    path = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
    env = os.environ | {"PYTHONPATH": path, "PLIANT_CACHE_DIR": str(tmp_path / "cache")}
    found = subprocess.run(command, env=env, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert "refused" in found.stdout and "accepted" in found.stdout
    assert found.stdout.endswith(", 0 did harm\n")


def refuse() -> str:
    raise ShapeError("this does not fit")


def loop() -> str:
    while True:
        pass


def crash() -> str:
    os.kill(os.getpid(), signal.SIGSEGV)


@pytest.mark.parametrize(
    ("work", "kind"),
    [(lambda: "done", ACCEPTED), (refuse, REFUSED), (lambda: str(1 // 0), ESCAPED),
     (crash, CRASH), (loop, HANG)],
)  # fmt: skip
def test_children_are_told_apart(work, kind) -> None:
    verdict = isolated(work, seconds=0.5 if kind == HANG else 30)
    assert verdict.kind == kind
    assert verdict.is_bad == (kind in (ESCAPED, CRASH, HANG))


def test_a_resealed_file_has_the_right_checksum(tmp_path: Path) -> None:
    path = tmp_path / "m.so"
    tiny.program().save(path)
    data = path.read_bytes()
    assert artifacts.resealed(data) == data

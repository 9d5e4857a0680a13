"""The cache of compiled kernels: damaged, full, shared, gone. Compiling never fails for it."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
from pliant.base.settings import settings
from pliant.codegen.cache import ObjectCache

PROGRAM = """
import sys, numpy as np, pliant
from tests.codegen.test_cache import model
f = pliant.compile(model())
assert (f(np.ones((3, 8), np.float32)) == 8).all()
print(f.stats()["cache_hits"], f.stats()["cache_misses"])
"""


def model() -> tuple[Any, dict[str, np.ndarray]]:
    """y = x @ 1, x: f32[n, 8]."""
    from pliant.base.dtypes import f32
    from pliant.graph.builder import Builder
    from pliant.ops.table import OPERATORS
    from pliant.sym.expr import var

    b = Builder("main", OPERATORS)
    x = b.param("x", f32, (var("n"), 8))
    w = b.weight("w", np.ones((8, 4), np.float32))
    return b.finish([b.call("relu", b.call("matmul", x, w))])


def run() -> dict[str, Any]:
    """Compile and run; what the cache did."""
    f = pliant.compile(model())
    assert (f(np.ones((3, 8), np.float32)) == 8).all()
    return f.stats()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PLIANT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_damaged_entries_are_made_again(folder: Path) -> None:
    made = run()["cache_misses"]
    assert made and run()["cache_misses"] == 0
    entries = sorted(folder.glob("*.kernel"))
    good = [e.read_bytes() for e in entries]
    damages = (
        lambda d: d[: len(d) // 2], lambda d: b"", lambda d: d[:-1] + bytes([d[-1] ^ 1]),
        lambda d: b"x" + d, lambda d: bytes(len(d)),
    )  # fmt: skip
    for damage in damages:
        for entry, data in zip(entries, good, strict=True):
            entry.write_bytes(damage(data))
        assert run()["cache_misses"] == made
        assert [e.read_bytes() for e in entries] == good


def test_a_folder_where_an_entry_should_be(folder: Path) -> None:
    run()
    for entry in folder.glob("*.kernel"):
        entry.unlink()
        entry.mkdir()
    assert run()["cache_hits"] == 0
    assert not list(folder.glob(".new-*"))


def test_the_folder_disappears(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put = ObjectCache.put

    def put_and_remove(self: ObjectCache, key: str, data: bytes, notes: object) -> None:
        put(self, key, data, notes)
        shutil.rmtree(folder)

    monkeypatch.setattr(ObjectCache, "put", put_and_remove)
    run()
    monkeypatch.undo()


@pytest.mark.parametrize("call", ["mkstemp", "write", "replace"])
def test_a_full_disk(folder: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def full(*_: object, **__: object) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    cache = ObjectCache(folder)
    if call == "mkstemp":
        monkeypatch.setattr(tempfile, "mkstemp", full)
    elif call == "replace":
        monkeypatch.setattr(os, "replace", full)
    else:
        fdopen = os.fdopen

        def opened(fd: int, mode: str) -> Any:
            file = fdopen(fd, mode, buffering=0)
            os.close(fd)  # so that a write fails
            return file

        monkeypatch.setattr(os, "fdopen", opened)
    cache.put("key", b"data", [])
    assert cache.problem.startswith(f"kernels are not cached: {folder}: ")
    assert cache.get("key") is None
    cache.put("key", b"data", [])  # not tried again
    monkeypatch.undo()
    assert not list(folder.glob("*"))


def test_entries_that_go_while_they_are_counted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run()
    cache = ObjectCache(folder, cap=0)

    class Gone:
        name, path = "gone.kernel", str(folder / "gone.kernel")

        def stat(self) -> None:
            raise FileNotFoundError(self.path)

    monkeypatch.setattr(os, "scandir", lambda path: contextlib.nullcontext([Gone()]))
    assert (cache.size(), cache.trim(), cache.clear()) == (0, 0, 0)


def test_the_cap_holds_by_itself(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = ObjectCache(folder)
    for k in range(3):
        cache.put(f"old{k}", bytes(1 << 20), [])
        os.utime(folder / f"old{k}.kernel", (k, k))
    monkeypatch.setattr("pliant.codegen.cache.SELDOM", 1)
    monkeypatch.setattr(ObjectCache.__init__, "__defaults__", (1 << 21,))
    run()
    left = {p.name for p in folder.glob("old*")}
    assert left == {"old2.kernel"}
    assert cache.size() <= 1 << 21


def test_entries_are_looked_at_once_in_a_while(folder: Path) -> None:
    cache = ObjectCache(folder)
    due = 0
    for k in range(2000):
        cache.due = False
        cache.put(f"key{k}", b"", [])
        due += cache.due
    assert 1 <= due <= 30


def test_processes_that_compile_at_once(folder: Path) -> None:
    command = [sys.executable, "-c", PROGRAM]
    source = Path(__file__).parents[2]
    env = os.environ | {"PYTHONPATH": f"{source / 'src'}{os.pathsep}{source}"}
    children = [
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    for child in children:
        said, _ = child.communicate(timeout=120)
        assert child.returncode == 0
        hits, misses = map(int, said.split())
        assert hits + misses > 0
    assert run()["cache_misses"] == 0


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("PLIANT_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert settings().cache_dir is None

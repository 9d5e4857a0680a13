"""Targets are feature sets, never CPU names: a virtual machine may report a wrong one, and named
AVX-512 CPUs make LLVM prefer 256-bit vectors (tried with LLVM 22).

A target's code runs on every processor that has its features, and is refused elsewhere
(`runtime.features`).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

import llvmlite.binding as llvm

from pliant.base.errors import UnsupportedError
from pliant.base.load import signals_held
from pliant.runtime.features import forbidden_features

_AVX2: Final = ("avx", "avx2", "fma", "f16c", "bmi", "bmi2", "popcnt", "lzcnt", "movbe", "sse4.1",
                "sse4.2", "ssse3", "sse3", "cx16")  # fmt: skip
_AVX512: Final = (*_AVX2, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_VNNI: Final = (*_AVX512, "avx512vnni")
_BF16: Final = (*_VNNI, "avx512bf16")
_NEON: Final = ("neon", "fp-armv8")

# Where a machine has several, the last of them is its best.
FEATURE_SETS: Final[dict[str, tuple[str, ...]]] = {
    "x86-64": ("sse2",),
    "x86-64-avx2": _AVX2,
    "x86-64-avx2-vnni": (*_AVX2, "avxvnni"),
    "x86-64-avx512": _AVX512,
    "x86-64-avx512-vnni": _VNNI,
    "x86-64-avx512-bf16": _BF16,
    "x86-64-amx": (*_BF16, "amx-tile", "amx-int8", "amx-bf16"),
    "aarch64": _NEON,
    "aarch64-dotprod": (*_NEON, "dotprod"),
    "aarch64-i8mm": (*_NEON, "dotprod", "i8mm"),
}
# Vector registers, by the first features that say so: their width and how many there are.
_REGISTERS: Final = {
    "avx512f": (512, 32), "avx2": (256, 16), "sse2": (128, 16), "neon": (128, 32),
}  # fmt: skip
_CACHES: Final = Path("/sys/devices/system/cpu/cpu0/cache")
_BASELINE: Final = {"x86_64": "x86-64", "aarch64": "generic"}  # LLVM's CPU, to add features to


@dataclass(frozen=True)
class Target:
    """What code is made for.

    `vector_bits` is the width of a vector register; `registers` how many there are. `l1` is the
    bytes of the first cache that its code is made for (of the last: `lower.row_facts.LARGE`).
    """

    name: str
    triple: str
    features: tuple[str, ...]
    vector_bits: int
    registers: int
    l1: int = 32 << 10

    @property
    def architecture(self) -> str:
        """The first part of the triple."""
        return self.triple.partition("-")[0]

    def lanes(self, bits: int) -> int:
        """Elements of `bits` bits in one vector register."""
        return self.vector_bits // bits


def target(name: str = "native") -> Target:
    """The target called `name`: "native" is the widest feature set that this machine has, with its
    first cache.

    Raises UnsupportedError for a name that there is not.
    """
    if name == "native":
        return replace(target(_native_name()), l1=_first_cache())
    if name not in FEATURE_SETS:
        known = ", ".join(("native", *FEATURE_SETS))
        raise UnsupportedError(f"no target {name!r}; there are: {known}")
    features = FEATURE_SETS[name]
    bits, registers = next(r for f, r in _REGISTERS.items() if f in features)
    architecture = "aarch64" if "neon" in features else "x86_64"
    return Target(name, f"{architecture}-unknown-linux-gnu", features, bits, registers)


@cache
@signals_held()
def _native_name() -> str:
    has = llvm.get_host_cpu_features()
    for name, features in reversed(FEATURE_SETS.items()):
        if all(has.get(f, False) for f in features) and not forbidden_features(features):
            return name
    raise UnsupportedError("this machine's processor has none of the supported feature sets")


@cache
def _first_cache() -> int:
    """Bytes of this processor's first cache for data, as Linux tells; what targets are made for by
    default where it does not."""
    for level in _CACHES.glob("index*"):
        with suppress(OSError, ValueError):
            facts = [(level / name).read_text().strip() for name in ("level", "type", "size")]
            if facts[:2] == ["1", "Data"] and facts[2].endswith("K"):
                return int(facts[2][:-1]) << 10
    return Target.l1


@cache
@signals_held()
def machine(t: Target, opt: int = 3) -> llvm.TargetMachine:
    """LLVM's code generator for a target; with `opt` 0 it takes time linear in the code."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    features = ",".join(f"+{f}" for f in t.features)
    if t.vector_bits == 512:
        features += ",-prefer-256-bit"
    return llvm.Target.from_triple(t.triple).create_target_machine(
        cpu=_BASELINE[t.architecture], features=features, opt=opt, reloc="pic", codemodel="small"
    )

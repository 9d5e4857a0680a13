"""Saved models, damaged in every way that a file can be.

Two kinds of damage. Of *broken* files the checksums are as they were: an accident. Of *resealed*
ones the checksum is right again: then only the structure can give the damage away. Code is never
changed in those, since an artifact is code: who writes its checksum may as well write its code.
"""

from __future__ import annotations

import hashlib
import json
import random
import struct
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from onnx import parser

import pliant
from pliant.base.dtypes import DTYPES
from pliant.runtime.artifact import FIELDS, FOOTER_BYTES
from pliant.runtime.callable import Compiled
from pliant.runtime.loader import load
from pliant.runtime.manifest import Manifest
from pliant.sym.expr import parse_int

Array = np.ndarray[Any, np.dtype[Any]]

MODELS: Final = {
    "matmul": """g (float[batch, 2] x) => (float[batch, 4] y) {
        w = Constant<value = float[2, 4] {1, 2, 3, 4, 5, 6, 7, 8}>() h = MatMul(x, w)
        y = Softmax<axis = -1>(h) }""",
    "gather": """g (float[n, 6] x, int64[m] i) => (float[m, 6] y, float[4, n] z) {
        k = Constant<value = int64[4] {0, 5, 2, 2}>() y = Gather<axis = 0>(x, i)
        t = Transpose<perm = [1, 0]>(x) z = Gather<axis = 0>(t, k) }""",
    "conv": """g (float[n, 3, h, w] x) => (float[n, 2, 1, 1] y) {
        k = Constant<value = float[2, 3, 1, 1] {1, 2, 3, 4, 5, 6}>()
        c = Conv(x, k) r = Relu(c) y = GlobalAveragePool(r) }""",
}


@dataclass(frozen=True)
class Seed:
    """A saved model, inputs for it, and the part of its manifest that its code relies on."""

    name: str
    data: bytes
    inputs: tuple[dict[str, Array], ...]
    contract: object


def seeds(folder: Path) -> list[Seed]:
    """A few models, compiled and saved."""
    out = []
    for name, text in MODELS.items():
        compiled = pliant.compile(model_file(text), threads=1)
        path = folder / f"{name}.so"
        compiled.save(path)
        inputs = tuple(ones(compiled, input_shapes(compiled, n)) for n in (0, 1, 5))
        out.append(Seed(name, path.read_bytes(), inputs, contract(compiled.manifest)))
    return out


def model_file(text: str) -> bytes:
    """A graph in ONNX's text format as a model file."""
    header = '<ir_version: 9, opset_import: ["" : 17]>\n'
    return bytes(parser.parse_model(header + text).SerializeToString())


def input_shapes(compiled: Compiled, size: int) -> dict[str, list[int]]:
    """The shape of each input where all symbols are of this size."""
    symbols = {s.name: size for s in compiled.function.symbols}
    return {
        i.name: [max(parse_int(d).eval(symbols), 0) for d in i.shape]
        for i in compiled.function.inputs
    }


def ones(compiled: Compiled, shapes: Mapping[str, Sequence[int]]) -> dict[str, Array]:
    """Arrays of ones for all inputs."""
    return {
        i.name: np.ones(shapes[i.name], DTYPES[i.dtype].numpy) for i in compiled.function.inputs
    }


def contract(manifest: Manifest) -> object:
    """What code takes on trust: types and ranks of tensors, and where its weights are."""
    functions = [
        (
            f.symbol,
            [(i.dtype, len(i.shape), i.compact) for i in f.inputs],
            len(f.outputs),
        )
        for f in manifest.functions
    ]
    return functions, [(w.offset, w.bytes) for w in manifest.weights]


def load_and_run(path: Path, seed: Seed) -> str:
    """Load a file; run it if it keeps the contract of its seed."""
    loaded = load(path, threads=1)
    loaded.explain()
    if contract(loaded.manifest) != seed.contract:
        return "loaded, not run: another contract"
    names = [i.name for i in loaded.function.inputs]
    for inputs in seed.inputs:
        loaded.run(dict(zip(names, inputs.values(), strict=True)))
    loaded.stats()
    return "loaded and run"


# ---- damage -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """The numbers of a footer."""

    code_bytes: int
    manifest_at: int
    manifest_bytes: int
    weights_at: int
    weights_bytes: int

    @staticmethod
    def of(data: bytes) -> Layout:
        return Layout(*FIELDS.unpack(data[-FOOTER_BYTES:][: FIELDS.size])[3:8])


Damage = Callable[[random.Random, bytes, bytes], bytes]


def damaged(pick: random.Random, seed: Seed, other: Seed) -> tuple[str, bytes]:
    """A damaged copy of `seed`, and what was done."""
    damage = pick.choice(DAMAGES)
    return damage.__name__.strip("_"), damage(pick, seed.data, other.data)


def _truncate(pick: random.Random, data: bytes, _: bytes) -> bytes:
    layout = Layout.of(data)
    ends = (layout.manifest_at, layout.weights_at, len(data) - FOOTER_BYTES, len(data))
    near = pick.choice(ends) + pick.randint(-70, 70)
    return data[: pick.choice((near, pick.randrange(len(data)), pick.randrange(200)))]


def _flip_bits(pick: random.Random, data: bytes, _: bytes) -> bytes:
    out = bytearray(data)
    for _i in range(pick.choice((1, 1, 2, 8, 64))):
        out[_somewhere(pick, data)] ^= 1 << pick.randrange(8)
    return bytes(out)


def _overwrite(pick: random.Random, data: bytes, _: bytes) -> bytes:
    out = bytearray(data)
    at, length = _somewhere(pick, data), pick.choice((1, 4, 8, 64, 4096))
    length = min(length, len(out) - at)
    fill = pick.choice((b"\0", b"\xff", b"A", None))
    out[at : at + length] = pick.randbytes(length) if fill is None else fill * length
    return bytes(out)


def _swap(pick: random.Random, data: bytes, _: bytes) -> bytes:
    a, b, c, d = sorted(pick.randrange(len(data) + 1) for _i in range(4))
    return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]


def _swap_sections(pick: random.Random, data: bytes, _: bytes) -> bytes:
    p = Layout.of(data)
    parts = [data[: p.manifest_at], data[p.manifest_at : p.weights_at],
             data[p.weights_at : -FOOTER_BYTES]]  # fmt: skip
    pick.shuffle(parts)
    return b"".join(parts) + data[-FOOTER_BYTES:]


def _splice(pick: random.Random, data: bytes, other: bytes) -> bytes:
    at, there = pick.randrange(len(data)), pick.randrange(len(other))
    return pick.choice(
        (data[:at] + other[there:], data[:-FOOTER_BYTES] + other[-FOOTER_BYTES:],
         data[: Layout.of(data).manifest_at] + other[Layout.of(other).manifest_at :])
    )  # fmt: skip


def _extend(pick: random.Random, data: bytes, other: bytes) -> bytes:
    more = pick.choice((pick.randbytes(pick.randrange(1, 9000)), data[-FOOTER_BYTES:], other))
    at = pick.choice((len(data), pick.randrange(len(data)), len(data) - FOOTER_BYTES))
    return data[:at] + more + data[at:]


def _edit_footer(pick: random.Random, data: bytes, _: bytes) -> bytes:
    return data[:-FOOTER_BYTES] + _changed_fields(pick, data) + data[-32:]


def _edit_manifest(pick: random.Random, data: bytes, _: bytes) -> bytes:
    """Lengths follow, the checksum does not."""
    return _with_manifest(data, _changed_manifest(pick, data), reseal=False)


def _reseal_footer(pick: random.Random, data: bytes, _: bytes) -> bytes:
    return resealed(data[:-FOOTER_BYTES] + _changed_fields(pick, data) + bytes(32))


def _reseal_manifest(pick: random.Random, data: bytes, _: bytes) -> bytes:
    return _with_manifest(data, _changed_manifest(pick, data), reseal=True)


def _reseal_manifest_bytes(pick: random.Random, data: bytes, _: bytes) -> bytes:
    p = Layout.of(data)
    out = bytearray(data)
    for _i in range(pick.choice((1, 1, 3))):
        out[p.manifest_at + pick.randrange(p.manifest_bytes)] = pick.randrange(256)
    return resealed(bytes(out))


def _reseal_manifest_of_other(_: random.Random, data: bytes, other: bytes) -> bytes:
    p = Layout.of(other)
    return _with_manifest(
        data, other[p.manifest_at : p.manifest_at + p.manifest_bytes], reseal=True
    )


DAMAGES: Final[tuple[Damage, ...]] = (
    _truncate, _flip_bits, _overwrite, _swap, _swap_sections, _splice, _extend, _edit_footer,
    _edit_manifest, _reseal_footer, _reseal_manifest, _reseal_manifest, _reseal_manifest_bytes,
    _reseal_manifest_of_other,
)  # fmt: skip


def resealed(data: bytes) -> bytes:
    """With the checksum that its footer asks for, as far as that makes sense."""
    at = min(Layout.of(data).weights_at, len(data) - FOOTER_BYTES)
    fields = data[-FOOTER_BYTES:-32]
    return data[:-32] + hashlib.sha256(data[:at] + fields).digest()


def _somewhere(pick: random.Random, data: bytes) -> int:
    """A place: the parts that are read first, and last, more often than their size tells."""
    p = Layout.of(data)
    low, high = pick.choice(
        (
            (0, len(data)), (0, 64), (p.manifest_at, p.manifest_at + p.manifest_bytes),
            (len(data) - FOOTER_BYTES, len(data)), (p.weights_at, len(data) - FOOTER_BYTES),
        )
    )  # fmt: skip
    return pick.randrange(low, max(high, low + 1))


def _changed_fields(pick: random.Random, data: bytes) -> bytes:
    fields = list(FIELDS.unpack(data[-FOOTER_BYTES:-32]))
    at = pick.randrange(1, 8)
    limit = (1 << (32 if at < 3 else 64)) - 1
    old = int(fields[at])
    new = pick.choice(
        (0, 1, old + 1, old - 1, old + 4096, old * 2, old + 65536, len(data), limit, limit >> 1,
         1 << 47, pick.randrange(limit))
    )  # fmt: skip
    fields[at] = max(0, min(new, limit))
    return struct.pack(FIELDS.format, *fields)


VALUES: Final = (
    None, -1, 0, 1, 7, 64, 1 << 31, 1 << 62, 1 << 64, 10**30, 1.5, float("nan"), True, "", "x",
    "f32", "i64", "bool", "n", "2*n", "n//0", "{0}", "{9}", "{", "main", "exit", "abort", "../x",
    "é\0", [], {}, [[]], ["n"], "PliantError", "__class__", "a" * 5000,
)  # fmt: skip


def _changed_manifest(pick: random.Random, data: bytes) -> bytes:
    p = Layout.of(data)
    value = json.loads(data[p.manifest_at : p.manifest_at + p.manifest_bytes])
    for _i in range(pick.choice((1, 1, 1, 2, 4))):
        _change(pick, value)
    return json.dumps(value, separators=(",", ":")).encode()


def _change(pick: random.Random, value: Any) -> None:
    node: Any = value
    while True:
        key = pick.choice(list(node) if isinstance(node, dict) else range(len(node)))
        child = node[key]
        if isinstance(child, dict | list) and child and pick.random() < 0.8:
            node = child
            continue
        break
    match pick.randrange(5):
        case 0:
            del node[key]
        case 1 if isinstance(node, list):
            node.insert(pick.randrange(len(node) + 1), deepcopy(pick.choice(node)))
        case 2 if isinstance(node, dict):
            node[pick.choice(("extra", *node))] = deepcopy(child)
        case 3 if isinstance(child, int | float):
            node[key] = child + pick.choice((-64, -1, 1, 4, 64))
        case _:
            node[key] = deepcopy(pick.choice(VALUES))  # the next change may be in it


def _with_manifest(data: bytes, text: bytes, *, reseal: bool) -> bytes:
    """The file with another manifest in the old one's place, everything after it moved along."""
    p = Layout.of(data)
    head = data[: p.manifest_at] + text
    head += bytes(-len(head) % (65536 if p.weights_bytes else 8))
    fields = list(FIELDS.unpack(data[-FOOTER_BYTES:-32]))
    fields[5], fields[6] = len(text), len(head)
    weights = data[p.weights_at : p.weights_at + p.weights_bytes]
    out = head + weights + struct.pack(FIELDS.format, *fields) + data[-32:]
    return resealed(out) if reseal else out

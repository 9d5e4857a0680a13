"""Arrays from the command line, and random ones for a function's inputs.

name=file.npy    name=random:2,128    name=random:2,128:0..30000    all.npz
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from pliant.base.dtypes import DTYPES
from pliant.base.errors import InvalidModelError, ResourceError, ShapeError
from pliant.cli.terminal import write_whole
from pliant.runtime.manifest import Function, TensorInfo
from pliant.sym.expr import parse_int

Array = np.ndarray[Any, np.dtype[Any]]

# Ones and zeros are legal as ids, masks, types and indices of nearly every model.
INTEGERS: Final = (0.0, 1.0)
_RANDOM: Final = re.compile(
    r"random:(?P<shape>\d+([,x]\d+)*)?(:(?P<low>-?[\d.]+?)\.\.(?P<high>-?[\d.]+))?"
)


@dataclass(frozen=True)
class Filler:
    """Random arrays. `ranges` are the least and greatest value by input name."""

    ranges: Mapping[str, tuple[float, float]]
    seed: int = 0

    def array(self, info: TensorInfo, shape: Sequence[int]) -> Array:
        """An array for an input: normal floats, zeros and ones, or uniform in the input's range."""
        rng = np.random.default_rng([self.seed, *info.name.encode()])
        dtype = DTYPES[info.dtype].numpy
        bounds = self.ranges.get(info.name)
        if bounds is None and info.dtype.startswith(("f", "bf")):
            return rng.standard_normal(shape, np.float32).astype(dtype)
        low, high = bounds or INTEGERS
        if info.dtype.startswith(("f", "bf")):
            return rng.uniform(low, high, shape).astype(dtype)
        return rng.integers(int(low), int(high), shape, endpoint=True).astype(dtype)


def parse_range(text: str) -> tuple[str, tuple[float, float]]:
    """`name=0..30000` as a name and bounds. Raises ValueError."""
    name, _, bounds = text.partition("=")
    low, dots, high = bounds.partition("..")
    if not (name and dots):
        raise ValueError(f"{text!r} is not NAME=LOW..HIGH")
    return name, (float(low), float(high))


def read_inputs(specs: Sequence[str], function: Function, seed: int) -> dict[str, Array]:
    """The arrays that `--input` names. Raises InvalidModelError and ShapeError."""
    out: dict[str, Array] = {}
    infos = {i.name: i for i in function.inputs}
    for spec in specs:
        name, is_named, value = spec.partition("=")
        if not is_named:
            out |= _read_npz(Path(spec))
            continue
        if name not in infos:
            raise ShapeError(f"there is no input {name!r}; there are: {', '.join(infos)}")
        out[name] = _one(infos[name], value, seed)
    return out


def _one(info: TensorInfo, value: str, seed: int) -> Array:
    if not value.startswith("random:"):
        return _read_npy(Path(value))
    m = _RANDOM.fullmatch(value)
    if m is None:
        raise ShapeError(f"{info.name}: {value!r} is not random:SHAPE or random:SHAPE:LOW..HIGH")
    shape = [int(d) for d in re.split("[,x]", m["shape"])] if m["shape"] else []
    ranges = {info.name: (float(m["low"]), float(m["high"]))} if m["low"] else {}
    return Filler(ranges, seed).array(info, shape)


def _read_npy(path: Path) -> Array:
    found = _load(path)
    if not isinstance(found, np.ndarray):
        raise InvalidModelError(f"{path}: a .npz file has several arrays: give it without a name")
    return found


def _read_npz(path: Path) -> dict[str, Array]:
    found = _load(path)
    if isinstance(found, np.ndarray):
        raise InvalidModelError(f"{path}: one array without a name: give NAME={path}")
    return found


def _load(path: Path) -> Array | dict[str, Array]:
    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return found
        with found:
            return {k: found[k] for k in found.files}
    except OSError as e:
        raise InvalidModelError(f"{path}: cannot be read: {e.strerror or e}") from None
    except MemoryError:
        raise ResourceError(f"{path}: its arrays do not fit into memory") from None
    except Exception as e:  # of damaged files NumPy, zipfile and zlib raise many kinds
        raise InvalidModelError(f"{path}: not a readable .npy or .npz file") from e


def write_outputs(path: Path, results: Mapping[str, Array]) -> None:
    """A .npz of everything, or a .npy of the only one. Types NumPy's files lack become float32."""
    arrays = {k: a if a.dtype.isbuiltin == 1 else a.astype(np.float32) for k, a in results.items()}
    buffer = io.BytesIO()
    if path.suffix == ".npy":
        if len(arrays) != 1:
            raise InvalidModelError(f"{path}: there are {len(arrays)} outputs: name an .npz file")
        np.save(buffer, next(iter(arrays.values())))
    else:
        np.savez(buffer, allow_pickle=False, **arrays)
    write_whole(path, buffer.getvalue())


def shapes_at(function: Function, symbols: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """The shape of every input for these sizes. Raises ShapeError for a symbol without a size."""
    out = {}
    for info in function.inputs:
        dims = [parse_int(d) for d in info.shape]
        missing = sorted({n for d in dims for n in d.names} - set(symbols))
        if missing:
            raise ShapeError(f"{info}: no size is given for {', '.join(missing)}")
        shape = tuple(d.eval(symbols) for d in dims)
        if min(shape, default=0) < 0:
            raise ShapeError(f"{info}: there is no shape {shape}")
        out[info.name] = shape
    return out


def relative_error(found: Array, expected: Array) -> float:
    """Relative L2 distance; infinite where shapes or the places of NaN differ."""
    if found.shape != expected.shape:
        return math.inf
    a, b = found.astype(np.float64).ravel(), expected.astype(np.float64).ravel()
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    a, b = a[~same], b[~same]
    if not a.size:
        return 0.0
    norm = float(np.linalg.norm(expected.astype(np.float64)[np.isfinite(expected)]))
    distance = float(np.linalg.norm(a - b))
    return distance / norm if norm > 0 and math.isfinite(distance) else math.inf

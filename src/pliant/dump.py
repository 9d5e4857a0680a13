"""Files of compilations: their stages, to read and to go on from, and bundles of internal failures.

    00_import.py 01_fission.py 02_phases.py 03_views.py 04_layouts.py 05_packing.py 06_split.py
    07_groups.py 08_kernels.py 09_host.py 10_k_row_….ll … weights.npz

Every `.py` file is a module that `text.parse_module` reads back, with the weights of `weights.npz`;
a graph stage can be compiled on its own: `pliant.compile("07_groups.py")`.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import traceback
import zipfile
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np

from pliant.base.dtypes import DTYPES, bf16, from_numpy
from pliant.base.errors import InvalidModelError, ResourceError
from pliant.base.settings import Emit, settings
from pliant.graph.function import Function, Module
from pliant.graph.inline import inline
from pliant.loop.stmt import Function as LoopFunction
from pliant.ops.program import TensorProgram
from pliant.ops.table import OPERATORS
from pliant.opt.use_programs import use_programs
from pliant.text import parse_module, to_text
from pliant.version import VERSION

WEIGHTS: Final = "weights.npz"
SMALL: Final = 4096  # elements of a weight that goes into a bundle as it is


def dump_of_settings() -> Emit | None:
    """What PLIANT_DUMP asks for: a new folder in it for each compilation."""
    root = settings().dump
    if root is None:
        return None
    with _writing(root):
        root.mkdir(parents=True, exist_ok=True)
        number = sum(1 for _ in root.iterdir())
        while True:
            folder = root / f"{number:03d}"
            try:
                folder.mkdir()
            except FileExistsError:
                number += 1
                continue
            return Emit(folder)


def write_stage(folder: Path, name: str, text: str) -> None:
    """Write one stage; raises ResourceError where the folder does not let us."""
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def write_weights(
    folder: Path, weights: Mapping[str, np.ndarray], *, compress: bool = False
) -> None:
    """Write the weights that stages in the folder name."""
    save: Any = np.savez_compressed if compress else np.savez
    bits = {bf16.numpy: np.uint16}  # NumPy's files do not know the type
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        save(folder / WEIGHTS, **{
            f"{from_numpy(a.dtype)}:{key}": a.view(bits.get(a.dtype, a.dtype))
            for key, a in weights.items()
        })  # fmt: skip


def read_stage(path: Path) -> tuple[Function, dict[str, np.ndarray]]:
    """A written graph stage as one function, and its weights from the file beside it.

    Raises InvalidModelError where the file is no such stage.
    """
    try:
        module = parse_module(path.read_text(encoding="utf-8"), _read_weights(path.parent))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidModelError(f"{path}: cannot be read: {error}") from error
    except InvalidModelError as error:
        raise InvalidModelError(f"{path}: {error}") from error
    functions = [n for n, f in module.functions.items() if isinstance(f, Function)]
    if not functions:
        raise InvalidModelError(f"{path}: there is no graph function in it to compile")
    programs = {
        n: TensorProgram(f) for n, f in module.functions.items() if isinstance(f, LoopFunction)
    }
    try:
        function = use_programs(inline(module, functions[-1]), programs, OPERATORS)
    except InvalidModelError as error:
        raise InvalidModelError(f"{path}: {error}") from error
    return function, module.weights


def _read_weights(folder: Path) -> dict[str, np.ndarray]:
    path = folder / WEIGHTS
    if not path.exists():
        return {}
    try:
        with np.load(path) as stored:
            named = [(k, *k.partition(":")[::2]) for k in stored]
            return {key: stored[k].view(DTYPES[dtype].numpy) for k, dtype, key in named}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise InvalidModelError(f"{path}: cannot be read: {error}") from error


def write_bundle(
    error: BaseException,
    stage: str,
    graph: tuple[Function, Mapping[str, np.ndarray]] | None,
    options: Mapping[str, object],
) -> Path | None:
    """Everything that it takes to see an internal failure again, in a new folder; None where none
    can be written. Large weights are replaced by zeros: their values hardly ever matter here."""
    with contextlib.suppress(OSError, ResourceError):
        folder = Path(tempfile.mkdtemp(prefix="pliant-failure-"))
        facts = {"pliant": VERSION, "llvmlite": version("llvmlite"), "python": sys.version,
                 "numpy": np.__version__, "stage": stage, **options}  # fmt: skip
        told = "".join(f"{name}: {value}\n" for name, value in facts.items())
        trace = "".join(traceback.format_exception(error))
        again = "again: pliant.compile('import.py')\n" if graph else ""
        write_stage(folder, "failure.txt", f"{told}{again}\n{trace}")
        if graph is not None:
            function, weights = graph
            write_stage(
                folder, "import.py", to_text(Module({function.name: function}, dict(weights)))
            )
            stand_ins = {k: _stand_in(a) for k, a in weights.items()}
            write_weights(folder, stand_ins, compress=True)
        return folder
    return None


def _stand_in(a: np.ndarray) -> np.ndarray:
    return a if a.size <= SMALL else np.zeros_like(a)


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ResourceError(f"cannot write to {folder}: {error.strerror or error}") from error

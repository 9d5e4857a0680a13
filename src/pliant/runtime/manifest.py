"""What an artifact says about itself: its functions, their checks, its weights, what it needs.

Plain data without behaviour; kept as JSON in the file. `FORMAT` changes when the meaning does.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, Final

from pliant.base.dtypes import DTYPES
from pliant.base.errors import ArtifactError, InvalidModelError, ShapeError
from pliant.runtime import abi
from pliant.runtime.codec import DecodeError, decode, encode
from pliant.runtime.tree import LEAF, Tree, tuple_of

FORMAT: Final = 1

Stat = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """An input or output. Extents are expressions over the symbols, as text: "2*seq", "384".

    `compact`: the code reads it row-major; an input with other strides is copied first.
    """

    name: str
    dtype: str
    shape: tuple[str, ...]
    compact: bool = False

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise InvalidModelError(f"{self.name}: unknown dtype {self.dtype!r}")
        if len(self.shape) > abi.MAX_NDIM:
            raise InvalidModelError(f"{self.name}: more than {abi.MAX_NDIM} dimensions")

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(self.shape)}]"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the user's function; its leaves are inputs, in order."""

    name: str
    tree: Tree = LEAF
    keyword_only: bool = False


@dataclass(frozen=True, slots=True)
class Site:
    """A run-time check. `message` has places {0}, {1} … for the values that the check reports."""

    message: str
    error: str = "ShapeError"  # a class of pliant.base.errors
    span: str = ""

    @property
    def id(self) -> int:
        """The number that compiled code reports: a hash of the contents, so that kernels that are
        compiled apart need not agree on a numbering."""
        digest = hashlib.sha256(f"{self.error}\0{self.message}".encode()).digest()
        return int.from_bytes(digest[:6], "little")


@dataclass(frozen=True, slots=True)
class Symbol:
    """A named dimension and what was declared or found out about it."""

    name: str
    min: int = 0
    max: int | None = None
    multiple: int = 1


@dataclass(frozen=True, slots=True)
class WeightInfo:
    """A constant: `bytes` bytes at `offset` of the weights section, a multiple of 64."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Function:
    """One callable of an artifact. Compiled code names a check by its site's `id`."""

    name: str
    symbol: str  # of the host entry in the machine code
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    parameters: tuple[Parameter, ...] | None = None  # None: each input is one
    result: Tree | None = None  # None: a bare tensor, or a tuple of them
    sites: tuple[Site, ...] = ()
    symbols: tuple[Symbol, ...] = ()
    explain: str = ""
    stats: dict[str, Stat] = field(default_factory=dict)  # compiles, kernels, bytes, peak_memory …

    def __post_init__(self) -> None:
        if sum(p.tree.num_leaves for p in self.all_parameters) != len(self.inputs):
            raise InvalidModelError(
                f"{self.name}: the parameters do not have as many leaves as inputs"
            )
        if self.result_tree.num_leaves != len(self.outputs):
            raise InvalidModelError(
                f"{self.name}: the result does not have as many leaves as outputs"
            )

    @property
    def all_parameters(self) -> tuple[Parameter, ...]:
        if self.parameters is not None:
            return self.parameters
        return tuple(Parameter(i.name) for i in self.inputs)

    @property
    def result_tree(self) -> Tree:
        if self.result is not None:
            return self.result
        return LEAF if len(self.outputs) == 1 else tuple_of(len(self.outputs))

    def __str__(self) -> str:
        inputs, outputs = (", ".join(map(str, side)) for side in (self.inputs, self.outputs))
        return f"{self.name}({inputs}) -> {outputs}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything about an artifact but its code and the bytes of its weights."""

    functions: tuple[Function, ...]
    weights: tuple[WeightInfo, ...] = ()
    target: str = ""  # LLVM triple; empty: not checked
    cpu_features: tuple[str, ...] = ()  # LLVM's names, without "+"
    versions: dict[str, str] = field(default_factory=dict)  # pliant, llvm …
    abi: int = abi.ABI_VERSION
    format: int = FORMAT

    def __post_init__(self) -> None:
        if len({f.name for f in self.functions}) != len(self.functions) or not self.functions:
            raise InvalidModelError("an artifact needs one or more functions with different names")

    def function(self, name: str) -> Function:
        """The function of that name. Raises ShapeError listing what there is."""
        for f in self.functions:
            if f.name == name:
                return f
        known = ", ".join(f.name for f in self.functions)
        raise ShapeError(f"there is no function {name!r}; there are: {known}")

    @property
    def weights_bytes(self) -> int:
        """Size of the weights section."""
        return max((w.offset + w.bytes for w in self.weights), default=0)

    def to_json(self) -> bytes:
        """The same manifest gives the same bytes."""
        fields = encode(self) | {"format": self.format, "abi": self.abi}
        return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()

    @staticmethod
    def from_json(data: bytes) -> Manifest:
        """Raises ArtifactError for anything but a manifest of this version."""
        try:
            value: Any = json.loads(data)
        except (ValueError, RecursionError) as e:
            raise ArtifactError(f"its manifest is not readable: {e}") from None
        _check_version(value)
        try:
            return decode(Manifest, value)
        except (DecodeError, InvalidModelError, RecursionError) as e:
            raise ArtifactError(f"its manifest is malformed: {e}") from None


def _check_version(value: Any) -> None:
    found = value.get("format") if isinstance(value, dict) else None
    if found == FORMAT:
        return
    versions = value.get("versions") if isinstance(value, dict) else None
    made_by = versions.get("pliant", "unknown") if isinstance(versions, dict) else "unknown"
    raise ArtifactError(
        f"its manifest has format {found}, this Pliant reads format {FORMAT}; "
        f"it was made by Pliant {made_by}: compile and save the model again"
    )

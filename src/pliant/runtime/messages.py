"""Codes of the call path and of generated code, turned into exceptions in the user's words."""

from __future__ import annotations

from typing import Final

from pliant.base import errors
from pliant.base.dtypes import DTYPES
from pliant.base.errors import PliantError, ResourceError, ShapeError
from pliant.runtime import abi
from pliant.runtime.manifest import Function, TensorInfo

DTYPE_NAMES: Final[dict[int, str]] = {d.dlpack: d.name for d in DTYPES.values()}
CODE_NAMES: Final = ("i", "u", "f", "opaque", "bf", "complex", "bool")
DEVICE_NAMES: Final = {
    2: "CUDA",
    3: "pinned CUDA",
    7: "Vulkan",
    8: "Metal",
    10: "ROCm",
    13: "managed CUDA",
    14: "oneAPI",
}


def dtype_name(dlpack: int) -> str:
    """The name of a DLPack type; of one that Pliant lacks, something to recognise it by."""
    code, bits = dlpack >> 8, dlpack & 0xFF
    known = CODE_NAMES[code] if 0 <= code < len(CODE_NAMES) else f"DLPack type {code} of bits "
    return DTYPE_NAMES.get(dlpack, f"{known}{bits}")


class Messages:
    """Makes the exception for a failed call of one function. It never raises itself."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self._sites = {s.id: s for s in function.sites}

    def __call__(self, code: int, payload: tuple[int, ...], detail: str) -> PliantError:
        if code < 0:
            return self._argument(code, payload, detail)
        match code:
            case abi.CHECK:
                return self._check(payload)
            case abi.MEMORY:
                return self._memory(payload)
            case abi.INDEX:
                return self._at_site(
                    payload[0], f"index {payload[1]} is outside an extent of {payload[2]}"
                )
            case abi.DIVIDE:
                return self._at_site(payload[0], "integer division by zero")
            case abi.OUTPUT:
                return self._output(payload)
            case abi.INTERRUPTED:
                return ResourceError(f"{self.function.name}: the call was interrupted")
        return PliantError(f"{self.function.name}: unknown error code {code} from compiled code")

    def _check(self, payload: tuple[int, ...]) -> PliantError:
        site, values = payload[0], payload[1:]
        found = self._sites.get(site)
        if found is None:
            return ShapeError(f"{self.function.name}: check {site} failed with {list(values)}")
        try:
            text = found.message.format(*values)
        except (IndexError, KeyError, ValueError):
            text = f"{found.message} {list(values)}"
        cls = getattr(errors, found.error, ShapeError)
        if not (isinstance(cls, type) and issubclass(cls, PliantError)):
            cls = ShapeError
        return cls(f"{text} [{found.span}]" if found.span else text)

    def _at_site(self, site: int, what: str) -> PliantError:
        found = self._sites.get(site)
        if found is None:
            return ShapeError(f"{self.function.name}: {what}")
        return ShapeError(f"{found.message}: {what}" + (f" [{found.span}]" if found.span else ""))

    def _memory(self, payload: tuple[int, ...]) -> PliantError:
        _, wanted, limit = (*payload, 0, 0)[:3]
        return ResourceError(f"{self.function.name}: {_no_memory(wanted, limit)}")

    def _output(self, payload: tuple[int, ...]) -> PliantError:
        index, reason, dim, expected, got = payload[:5]
        info = self._tensor(True, index)
        match reason:
            case abi.OUTPUT_DTYPE:
                what = f"expected {dtype_name(expected)}, got {dtype_name(got)}"
            case abi.OUTPUT_RANK:
                what = f"expected {expected} dimensions, got {got}"
            case abi.OUTPUT_EXTENT:
                what = f"dim {dim} must be {expected}, got {got}"
            case abi.OUTPUT_NOT_COMPACT:
                what = "the buffer must be contiguous (row-major)"
            case abi.OUTPUT_SHARED:
                other = self._tensor(True, dim)
                what = f"the buffer shares memory with that of {other.name if other else dim}"
            case abi.OUTPUT_NEGATIVE:
                return ShapeError(
                    f"output {info.name if info else index} would have a negative extent"
                )
            case abi.OUTPUT_MISSING:
                return PliantError(
                    f"{self.function.name}: compiled code did not produce output {index}"
                )
            case _:
                return PliantError(
                    f"{self.function.name}: unknown fault {reason} of output {index}"
                )
        return ShapeError(f"out= for {info or index}: {what}")

    def _tensor(self, is_output: bool, index: int) -> TensorInfo | None:
        table = self.function.outputs if is_output else self.function.inputs
        return table[index] if 0 <= index < len(table) else None

    def _argument(self, code: int, payload: tuple[int, ...], detail: str) -> PliantError:
        is_output, index, a, b = (*payload, 0, 0)[:4]
        info = self._tensor(bool(is_output), index)
        if code == abi.ARG_COUNT:
            what = "output buffers in out=" if is_output else "inputs"
            return ShapeError(
                f"{self.function.name}: expected {a} {what}, got {b}: {self.function}"
            )
        where = f"out= for {info}" if is_output else f"input {info}"
        if code == abi.ARG_MEMORY:
            return ResourceError(f"{where}: it must be copied, and {_no_memory(a, b)}")
        return ShapeError(f"{where}: {_explain_argument(code, a, b, detail, info)}")


def _no_memory(wanted: int, limit: int) -> str:
    if not wanted:
        return "the system has no memory left"
    size = "more than 2^63 bytes" if wanted >= 2**63 - 1 else f"{wanted:,} bytes"
    return (
        f"cannot get {size} of memory (the limit for a call is {limit:,}); use smaller inputs, or "
        "raise memory_limit"
    )


def _explain_argument(code: int, a: int, b: int, detail: str, info: TensorInfo | None) -> str:
    name = info.name if info else "x"
    match code:
        case abi.ARG_KIND:
            if a:  # the object's own library refused; torch adds its C++ stack
                first = (detail.splitlines() or ["it"])[0]
                return f"cannot read {first}; pass a plain, dense tensor or array"
            if detail in ("float", "int", "bool"):
                rank = len(info.shape) if info else 1
                return f"expected a tensor or array of {rank} dimensions, got a number"
            return f"expected a tensor or array, got {detail}"
        case abi.ARG_DTYPE:
            return f"expected dtype {dtype_name(a)}, got {dtype_name(b)}; convert it first"
        case abi.ARG_RANK:
            return f"expected {a} dimensions, got {b}"
        case abi.ARG_DEVICE:
            device = DEVICE_NAMES.get(a, f"device type {a}")
            return f"it is on {device} {b}; move it to the CPU first"
        case abi.ARG_GRAD:
            return (
                "it requires a gradient, which this function does not compute; call under "
                f"torch.no_grad(), pass {name}.detach(), or train with "
                'torch.compile(backend="pliant")'
            )
        case abi.ARG_VALUE:
            return f"the {detail} does not fit {info.dtype if info else 'the dtype'}"
        case abi.ARG_LAYOUT:
            return (
                "its memory layout cannot be used (unaligned, lazily negated or of impossible "
                "extents); make a contiguous copy first"
            )
        case abi.ARG_ORDER:
            native = f'{name}.astype({name}.dtype.newbyteorder("="))'
            return f"its bytes are not in native order; use {native}"
        case abi.ARG_READ_ONLY:
            return "it is read-only"
    return f"unusable ({code})"

"""What generated code asks of the runtime, through `pl_ctx` (runtime/native/pliant.h).

The offsets are the ABI (`runtime.abi`); `pliant.h` asserts the same numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pliant.base.dtypes import DType
from pliant.base.errors import InvalidModelError
from pliant.codegen.llvm.writer import FunctionText
from pliant.loop.stmt import Buffer
from pliant.runtime import abi
from pliant.runtime.abi import CTX, TENSOR

if TYPE_CHECKING:
    from pliant.codegen.llvm.emitter import Emitter

PARALLEL: Final = CTX["parallel"]
ARENA: Final = CTX["arena"]
SCRATCH: Final = CTX["scratch"]
MARK: Final = CTX["mark"]
RELEASE: Final = CTX["release"]
OUTPUT: Final = CTX["output"]
WEIGHTS: Final = CTX["weights"]
ERROR_CODE: Final = CTX["error_code"]
PAYLOAD: Final = CTX["payload"]
INPUTS: Final = CTX["inputs"]
PAYLOAD_VALUES: Final = abi.PAYLOAD - 1


def _field(t: FunctionText, offset: int, kind: str = "ptr", base: str = "%ctx") -> str:
    at = t.assign(f"getelementptr i8, ptr {base}, i64 {offset}")
    return t.assign(f"load {kind}, ptr {at}, align 8")


def store_error(t: FunctionText, site: int, values: tuple[str, ...]) -> None:
    """Say which check failed, with the numbers for its message."""
    at = t.assign(f"getelementptr i8, ptr %ctx, i64 {ERROR_CODE}")
    t.line(f"store i32 1, ptr {at}, align 4")
    for k, value in enumerate((str(site), *values[:PAYLOAD_VALUES])):
        at = t.assign(f"getelementptr i8, ptr %ctx, i64 {PAYLOAD + 8 * k}")
        t.line(f"store i64 {value}, ptr {at}, align 8")


def parallel(e: Emitter, body: str, closure: str, count: str, grain: str) -> str:
    fn = _field(e.text, PARALLEL)
    args = f"ptr %ctx, ptr @{body}, ptr {closure}, i64 {count}, i64 {grain}"
    return e.text.assign(f"call i32 {fn}({args})")


def scratch(e: Emitter, size: str) -> str:
    """Memory of this thread, to which nothing else points; leaves with error 2 when there is
    none."""
    fn = _field(e.text, SCRATCH)
    return _checked(e, e.text.assign(f"call noalias ptr {fn}(ptr %ctx, i64 {size})"))


def scratch_mark(t: FunctionText) -> str:
    return t.assign(f"call i64 {_field(t, MARK)}(ptr %ctx)")


def scratch_release(t: FunctionText, mark: str, pointer: str) -> None:
    """What is got next may lie where `pointer` does: nothing that is done there comes later."""
    t.line(f'call void asm sideeffect "", "r,~{{memory}}"(ptr {pointer})')
    t.line(f"call void {_field(t, RELEASE)}(ptr %ctx, i64 {mark})")


def arena(e: Emitter, size: str) -> str:
    fn = _field(e.text, ARENA)
    return _checked(e, e.text.assign(f"call ptr {fn}(ptr %ctx, i64 {size})"))


def output(e: Emitter, index: int, dtype: DType, shape: list[str]) -> str:
    t = e.text
    dims = t.alloca(f"[{max(len(shape), 1)} x i64]", 8)
    for k, extent in enumerate(shape):
        at = t.assign(f"getelementptr i64, ptr {dims}, i64 {k}")
        t.line(f"store i64 {extent}, ptr {at}, align 8")
    fn = _field(t, OUTPUT)
    args = f"ptr %ctx, i64 {index}, i64 {dtype.dlpack}, i64 {len(shape)}, ptr {dims}"
    return _checked(e, t.assign(f"call ptr {fn}({args})"))


def host_buffer(e: Emitter, b: Buffer) -> str:
    """The address of a buffer of a host function. Its scope says which: `input3`, `shape3` and
    `strides3` (i64 arrays of that input), `weight5`."""
    t = e.text
    kind = b.scope.rstrip("0123456789")
    number = int(b.scope[len(kind) :])
    if kind == "weight":
        return _field(t, 8 * number, base=_field(t, WEIGHTS))
    offsets = {"input": TENSOR["data"], "shape": TENSOR["shape"], "strides": TENSOR["strides"]}
    if kind not in offsets:
        raise InvalidModelError(f"{b.name}: a host function cannot take scope {b.scope!r}")
    tensor = _field(t, 8 * number, base=_field(t, INPUTS))
    return _field(t, offsets[kind], base=tensor)


def _checked(e: Emitter, pointer: str) -> str:
    """The runtime has set the error where it returns null."""
    t = e.text
    good, bad = t.label("ok"), t.label("fail")
    t.branch(t.assign(f"icmp ne ptr {pointer}, null"), good, bad)
    t.start(bad)
    at = t.assign(f"getelementptr i8, ptr %ctx, i64 {ERROR_CODE}")
    e.leave(t.assign(f"load i32, ptr {at}, align 4"))
    t.start(good)
    return pointer

"""What no kernel can beat: copies of as many bytes, and multiply-adds in registers alone."""

from __future__ import annotations

import ctypes
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import llvmlite.binding as llvm
import numpy as np
import torch

from pliant.codegen.llvm.target import target

_P: Final = ctypes.c_void_p
# Multiply-adds under way: two a cycle, each of four cycles, and some more, but no more than stay in
# the registers of the smallest set, beside an operand.
CHAINS: Final = 12

# 64 bytes a store, past the caches; the fence makes them visible as ordinary stores would be.
_STREAM = """
define void @stream(ptr %to, ptr %from, i64 %lines) {
entry:
  br label %test
test:
  %k = phi i64 [0, %entry], [%next, %body]
  %more = icmp slt i64 %k, %lines
  br i1 %more, label %body, label %done
body:
  %p = getelementptr <16 x float>, ptr %from, i64 %k
  %q = getelementptr <16 x float>, ptr %to, i64 %k
  %v = load <16 x float>, ptr %p, align 64
  store <16 x float> %v, ptr %q, align 64, !nontemporal !0
  %next = add i64 %k, 1
  br label %test
done:
  fence seq_cst
  ret void
}
!0 = !{i32 1}
"""


class Copies:
    """Ways to read as many bytes as a kernel reads and write as many as it writes, each half of
    their sum: the C library's, PyTorch's (on its threads), and one with streaming stores. What they
    write is warm: it was touched before.

    `kernel`: what the kernel reads and writes. If these are two f32 tensors of so many bytes, those
    are copied: what the caches have of them, how they are mapped, and where they begin in a page is
    the same for all then."""

    def __init__(self, moved: int, kernel: Sequence[torch.Tensor] = ()) -> None:
        self._lines = max(1, moved // 2 // 64)
        count = self._lines * 16
        if len(kernel) != 2 or any(x.dtype != torch.float32 or x.numel() != count for x in kernel):
            kernel = torch.ones(count), torch.ones(count)
        self._from, self._to = (x.reshape(-1) for x in kernel)
        self._stream = _compiled("stream", _STREAM, [_P, _P, ctypes.c_int64])

    def calls(self) -> dict[str, Callable[[], object]]:
        """By name."""
        source, to = self._from, self._to
        a, b = source.numpy(), to.numpy()
        p, q, lines = source.data_ptr(), to.data_ptr(), self._lines
        return {
            "copy": lambda: to.copy_(source),
            "memcpy": lambda: np.copyto(b, a),
            "stream": lambda: self._stream(q, p, lines),
        }


def least(call: Callable[[], object], limit: float = 1.0) -> float:
    """The least seconds of a call, repeated for about `limit` seconds."""
    call()
    best, end = math.inf, time.perf_counter() + limit
    while time.perf_counter() < end:
        begun = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begun)
    return best


def peak_operations(threads: int, *, bf16: bool = False) -> float:
    """Operations a second of multiply-adds whose operands are in registers, in f32 or of pairs of
    bf16, on so many threads at once; 0 where there is no such instruction."""
    t = target()
    if bf16 and "avx512bf16" not in t.features:
        return 0.0
    lanes = t.lanes(32)
    run = _compiled("chains", _chains(lanes, bf16=bf16), [ctypes.c_int64])
    times = 1 << 20
    per_call = times * CHAINS * lanes * (4 if bf16 else 2)

    def at_once() -> None:
        pool = [threading.Thread(target=run, args=(times,)) for _ in range(threads - 1)]
        for thread in pool:
            thread.start()
        run(times)
        for thread in pool:
            thread.join()

    return threads * per_call / least(at_once)


def _chains(lanes: int, *, bf16: bool) -> str:
    """A loop of multiply-adds that do not wait for one another."""
    kind = f"<{lanes} x float>"
    side = f"<{2 * lanes} x bfloat>" if bf16 else kind
    name = "llvm.x86.avx512bf16.dpbf16ps.512" if bf16 else f"llvm.fma.v{lanes}f32"
    names = [f"%a{k}" for k in range(CHAINS)]
    heads = [f"{a} = phi {kind} [ zeroinitializer, %entry ], [ {a}n, %loop ]" for a in names]
    given = f"{side} %x, {side} %x"
    steps = [
        f"{a}n = call {kind} @{name}({f'{kind} {a}, {given}' if bf16 else f'{given}, {kind} {a}'})"
        for a in names
    ]
    total = [f"store volatile {kind} {a}n, ptr %memory" for a in names]
    operand = f"%x = load volatile {side}, ptr %memory"
    return "\n".join([
        f"declare {kind} @{name}({kind}, {side}, {side})",  # of f32, all three are the same
        "define void @chains(i64 %n) {", "entry:", f"%memory = alloca {kind}",
        f"store {kind} zeroinitializer, ptr %memory", operand, "br label %loop", "loop:",
        "%k = phi i64 [ 0, %entry ], [ %next, %loop ]", *heads, *steps,
        "%next = add i64 %k, 1", "%more = icmp slt i64 %next, %n",
        "br i1 %more, label %loop, label %done", "done:", *total, "ret void", "}",
    ])  # fmt: skip


_ENGINES: Final[dict[str, llvm.ExecutionEngine]] = {}  # they keep the code


def _compiled(name: str, text: str, arguments: list[Any]) -> Callable[..., None]:
    """A function of LLVM IR for this machine."""
    engine = _ENGINES.get(text)
    if engine is None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        found = llvm.Target.from_default_triple()
        features = llvm.get_host_cpu_features().flatten()
        machine = found.create_target_machine(llvm.get_host_cpu_name(), features, opt=3)
        engine = _ENGINES[text] = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
        engine.finalize_object()
    return ctypes.CFUNCTYPE(None, *arguments)(engine.get_function_address(name))

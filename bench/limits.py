"""What a kernel that moves data cannot beat: copies of as many bytes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import llvmlite.binding as llvm
import numpy as np
import torch

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
    write is warm: it was touched before."""

    def __init__(self, moved: int) -> None:
        lines = max(1, moved // 2 // 64)
        self._from = torch.ones(lines * 16)
        self._to = torch.ones(lines * 16)
        self._lines = lines
        self._stream = _streaming()

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


class _Jit:
    engine: llvm.ExecutionEngine | None = None  # keeps the code


def _streaming() -> Callable[[int, int, int], None]:
    if _Jit.engine is None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        found = llvm.Target.from_default_triple()
        machine = found.create_target_machine(cpu=llvm.get_host_cpu_name(), opt=3)
        module = llvm.parse_assembly(_STREAM)
        _Jit.engine = llvm.create_mcjit_compiler(module, machine)
        _Jit.engine.finalize_object()
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    return kind(_Jit.engine.get_function_address("stream"))

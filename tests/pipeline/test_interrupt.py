"""A compilation that a signal ends at any moment leaves the process able to compile."""

from __future__ import annotations

import random
import signal
import threading
import time
from types import FrameType
from typing import Any, NoReturn

import numpy as np
import pytest
from onnx import parser

import pliant
from pliant import pipeline
from pliant.codegen.llvm.compile import compile_text
from pliant.codegen.llvm.target import target as find_target

ATTENTION = """<ir_version: 9, opset_import: ["" : 17]>
g (float[b, s, 16] x) => (float[b, s, 16] y, float[b, t, 16] z) {
    k = Transpose<perm = [0, 2, 1]>(x)  a = MatMul(x, k)  p = Softmax<axis = -1>(a)
    y = MatMul(p, x)  r = Relu(y)  z = Concat<axis = 1>(r, x)
}"""


def stop(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


@pytest.mark.parametrize("processes", [False, True])
def test_an_interrupted_compilation(monkeypatch: pytest.MonkeyPatch, processes: bool) -> None:
    monkeypatch.setenv("PLIANT_CACHE_DIR", "off")
    monkeypatch.setenv("PLIANT_NUM_THREADS", "2")
    monkeypatch.setattr(pipeline, "WORTH_PROCESSES", 0 if processes else 99)
    model = parser.parse_model(ATTENTION).SerializeToString()
    x = np.random.default_rng(0).standard_normal((2, 3, 16), np.float32)

    def compile_and_run() -> Any:
        return pliant.compile(model)(x)

    wanted = compile_and_run()
    begun = time.monotonic()
    compile_and_run()
    whole = time.monotonic() - begun
    pick = random.Random(0)
    before = signal.signal(signal.SIGALRM, stop)
    try:
        for _ in range(8):
            try:
                signal.setitimer(signal.ITIMER_REAL, pick.uniform(0.001, whole))
                compile_and_run()
            except KeyboardInterrupt:
                pass
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
    for have, want in zip(compile_and_run(), wanted, strict=True):
        np.testing.assert_array_equal(have, want)


def test_other_threads_do_not_wait_for_what_was_interrupted() -> None:
    """llvmlite's lock is free afterwards, wherever a handler raised."""
    t = find_target("native")
    text = f'target triple = "{t.triple}"\ndefine i64 @f(i64 %x) {{\n  ret i64 %x\n}}\n'
    pick = random.Random(0)
    before = signal.signal(signal.SIGALRM, stop)
    interrupted = 0
    try:
        for _ in range(400):
            try:
                signal.setitimer(signal.ITIMER_REAL, pick.uniform(1e-5, 3e-3))
                end = time.monotonic() + 0.1
                while time.monotonic() < end:
                    compile_text(text, t, level=0)
            except KeyboardInterrupt:
                interrupted += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert interrupted > 300  # others are lost in callbacks, of the collector, say
    other = threading.Thread(target=compile_text, args=(text, t), daemon=True)
    other.start()
    other.join(60)
    assert not other.is_alive()

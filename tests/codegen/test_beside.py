"""Kernels of other processes: the same objects, and errors that say what happened."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import parser

import pliant
from pliant import pipeline
from pliant.base.errors import InternalError, ResourceError
from pliant.codegen import beside, build
from pliant.codegen.beside import Beside
from pliant.codegen.llvm.compile import CodegenError, compile_text
from pliant.codegen.llvm.target import Target, target
from pliant.codegen.source import Built, Source
from pliant.lower.canonical import Spec

GOOD = "define i32 @f(i32 %x) {\n  %y = mul i32 %x, 7\n  ret i32 %y\n}\n"
# An intrinsic that this target has no instruction for: LLVM cannot select it, and aborts.
FATAL = """declare <16 x float> @llvm.x86.avx512.rcp14.ps.512(<16 x float>, <16 x float>, i16)
define <16 x float> @f(<16 x float> %x) {
  %y = call <16 x float> @llvm.x86.avx512.rcp14.ps.512(<16 x float> %x, <16 x float> %x, i16 -1)
  ret <16 x float> %y
}
"""


@pytest.fixture
def two() -> Iterator[Beside]:
    made = Beside(2)
    yield made
    made.close()


def test_objects_are_the_same(two: Beside) -> None:
    t = target("x86-64")
    texts = [GOOD.replace("7", str(n)) for n in range(9)]
    for text, made in [(text, two.make(Source(text), t)) for text in texts]:
        assert made.result() == Built(compile_text(text, t))


def test_what_llvm_rejects(two: Beside) -> None:
    t = target("x86-64")
    with pytest.raises(CodegenError, match="malformed"):
        two.make(Source(GOOD.replace("ret i32", "ret i64")), t).result()
    assert two.make(Source(GOOD), t).result()  # and goes on


def test_what_llvm_cannot_bear(two: Beside) -> None:
    with pytest.raises(InternalError, match="LLVM ended its process"):
        two.make(Source(FATAL), target("x86-64")).result()


def test_a_killed_process() -> None:
    one = Beside(1)
    try:
        made = one.make(Source(GOOD), target("x86-64"))
        assert made.result()
        os.kill(one._processes[0]._run.pid, signal.SIGKILL)
        with pytest.raises(ResourceError, match="killed"):
            one.make(Source(GOOD), target("x86-64")).result()
    finally:
        one.close()


@pytest.mark.parametrize("executable", ["", "/nowhere/python", "/bin/false", "/bin/echo"])
def test_without_processes(monkeypatch: pytest.MonkeyPatch, executable: str) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    made = Beside(2)
    try:
        t = target("x86-64")
        assert made.make(Source(GOOD), t).result() == Built(compile_text(GOOD, t))
        assert not made.waiting  # no kernel is for it
    finally:
        made.close()


def test_close_waits_for_nothing() -> None:
    before = threading.active_count()
    made = Beside(1)
    run = made._processes[0]._run
    slow = GOOD + "".join(GOOD.replace("@f", f"@f{n}") for n in range(1000))
    futures = [made.make(Source(slow), target("x86-64")) for _ in range(20)]
    time.sleep(0.3)
    made.close()
    assert run.returncode == -signal.SIGKILL
    assert all(f.done() for f in futures)
    assert threading.active_count() == before


def _specs() -> dict[str, Spec]:
    """Of a small model's kernels."""
    found = dict[str, Spec]()

    def noted(symbol: str, spec: Spec, t: Target) -> Source:
        found[symbol] = spec
        return build.spec_source(symbol, spec, t)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLIANT_CACHE_DIR", "off")
        patch.setenv("PLIANT_NUM_THREADS", "1")
        patch.setattr(pipeline, "spec_source", noted)
        _compiled()
    return found


def ready(of: Beside) -> None:
    """Its processes have begun."""
    until = time.monotonic() + 60
    while not of.waiting:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_whole_kernels(two: Beside) -> None:
    """Made from specs: code, checks and calls are those of this process."""
    t = target()
    specs = _specs()
    ready(two)
    assert len(specs) > 2
    for symbol, spec in specs.items():
        assert two.make((symbol, spec), t).result() == build.spec_source(symbol, spec, t).built(t)


def test_what_cannot_be_sent(two: Beside) -> None:
    """As deep an expression as Python's own limit is made here, if at all."""
    t = target("x86-64")
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    source = Source(GOOD, calls=(deep,))
    assert two.make(source, t).result().object == compile_text(GOOD, t)
    assert two.make(Source(GOOD), t).result().object == compile_text(GOOD, t)


def test_waiting(two: Beside) -> None:
    """A process should have one thing to do and another to go on with."""
    t = target("x86-64")
    slow = GOOD + "".join(GOOD.replace("@f", f"@f{n}") for n in range(500))
    assert two.make(Source(GOOD), t).result()
    ready(two)
    made = []
    while two.waiting:
        made.append(two.make(Source(slow), t))
    assert len(made) == 4
    assert all(x.result() for x in made)
    assert two.waiting
    alone = Beside(0)
    assert not alone.waiting
    alone.close()


def test_help() -> None:
    """What nobody has begun is made here; an error is the task's."""
    t = target("x86-64")
    slow = GOOD + "".join(GOOD.replace("@f", f"@f{n}") for n in range(1000))
    one = Beside(1)
    try:
        first = one.make(Source(slow), t)
        bad = one.make(Source("no code"), t)
        rest = [one.make(Source(GOOD.replace("7", str(n))), t) for n in range(5)]
        one.help()
        assert all(x.done() for x in rest[1:])
        with pytest.raises(CodegenError, match="malformed"):
            bad.result()
        for n, made in enumerate(rest):
            assert made.result().object == compile_text(GOOD.replace("7", str(n)), t)
        assert first.result().object
    finally:
        one.close()


def test_what_cannot_be_scheduled(two: Beside) -> None:
    """Errors have the class that they have here."""
    symbol, spec = next(iter(_specs().items()))
    ready(two)
    with pytest.raises(AssertionError, match="made up"):
        two.make((symbol, replace(spec, kind="made up")), target()).result()


def test_warnings_come_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        beside, "PROGRAM",
        beside.PROGRAM.replace("\nserve()", """\nimport warnings
import pliant.codegen.build as build
before = build.spec_source
def warning(*args):
    warnings.warn("it is slow")
    return before(*args)
build.spec_source = warning
serve()"""),
    )  # fmt: skip
    (symbol, spec), *_ = _specs().items()
    one = Beside(1)
    ready(one)
    try:
        with pytest.warns(UserWarning, match="it is slow"):
            assert one.make((symbol, spec), target()).result().object
    finally:
        one.close()


MANY = """<ir_version: 9, opset_import: ["" : 17]>
g (float[b, s, 16] x) => (float[b, t, 16] y) <int64 one = {1}> {
    k = Transpose<perm = [0, 2, 1]>(x)  a = MatMul(x, k)  p = Softmax<axis = -1>(a)
    r = MatMul(p, x)  c = Concat<axis = 1>(r, x)  d = CumSum(c, one)
    e = Softmax<axis = 1>(d)  f = ReduceMax<axes = [1]>(e)  y = Sub(e, f)
}"""


def _compiled() -> pliant.Compiled:
    return pliant.compile(parser.parse_model(MANY).SerializeToString())


@pytest.mark.sweep(2)
@pytest.mark.parametrize("ahead", ["WORTH_PROCESSES", "WORTH_PROCESSES_AHEAD"])
def test_models_are_the_same(monkeypatch: pytest.MonkeyPatch, ahead: str) -> None:
    monkeypatch.setenv("PLIANT_CACHE_DIR", "off")
    monkeypatch.setenv("PLIANT_NUM_THREADS", "3")
    used: list[int] = []
    close = Beside.close

    def noted(self: Beside) -> None:
        used.append(len(self._processes))
        close(self)

    monkeypatch.setattr(beside.Beside, "close", noted)
    monkeypatch.setattr(pipeline, ahead, 2)
    ours = _compiled()
    monkeypatch.setenv("PLIANT_NUM_THREADS", "1")
    alone = _compiled()
    assert used == [2, 0]
    assert ours._program.objects == alone._program.objects
    x = np.random.default_rng(0).standard_normal((2, 5, 16), np.float32)
    np.testing.assert_array_equal(ours(x), alone(x))


def test_one_request_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process has the next request, however large, while nobody attends to its answer."""
    t = target("x86-64")
    large = GOOD + "".join(GOOD.replace("@f", f"@f{n}") for n in range(200))
    texts = [large.replace("%x, 7", f"%x, {n}") for n in range(4)]
    read, go_on = threading.Event(), threading.Event()
    answer = beside._Process.answer

    def slow(self: Any) -> Built:
        made = answer(self)
        read.set()
        go_on.wait(60)
        return made

    monkeypatch.setattr(beside._Process, "answer", slow)
    one = Beside(1)
    try:
        made = [one.make(Source(text), t) for text in texts]
        assert read.wait(60)
        one.help()  # what is sent is not made here as well
        assert [x.done() for x in made] == [False, False, True, True]
        go_on.set()
        for text, x in zip(texts, made, strict=True):
            assert x.result().object == compile_text(text, t)
    finally:
        go_on.set()
        one.close()

"""Calls from many threads, after fork, and interrupted ones."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from pliant.base.errors import ShapeError
from pliant.runtime import _native, abi
from pliant.runtime.manifest import Function
from pliant.runtime.messages import Messages
from pliant.runtime.tree import tuple_of
from tests.runtime import tiny


def test_many_threads_on_one_callable():
    f = tiny.program(threads=4).function("add_one")

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(200):
            n = int(random.integers(0, 20000))
            x = random.standard_normal(n, np.float32)
            if n == 13:
                continue
            y = f(torch.from_numpy(x)).numpy() if seed % 2 else f(x)
            np.testing.assert_array_equal(y, x + 1)
            with pytest.raises(ShapeError):
                f(np.zeros(13, np.float32))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert f.stats()["calls"] >= 3000


def test_fork():
    f = tiny.program(threads=4).function("add_one")
    x = np.arange(100000, dtype=np.float32)
    f(x)
    assert _native.pool_workers() > 0
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        good = _native.pool_workers() == 0 and bool((f(x) == x + 1).all())
        os._exit(0 if good and _native.pool_workers() > 0 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


SPIN = f"""
define i32 @spin(ptr %ctx) {{
entry:
  %poll = call ptr @field(ptr %ctx, i64 {abi.CTX["poll"]})
  br label %loop
loop:
  %e = call i32 %poll(ptr %ctx)
  %go = icmp eq i32 %e, 0
  br i1 %go, label %loop, label %done
done:
  ret i32 %e
}}
"""


def spin() -> _native.Callable:
    address, keep = tiny.link("spin", tiny.compile_object(tiny.HELPERS + SPIN))
    function = Function("spin", "spin", inputs=(), outputs=(), result=tuple_of(0))
    return _native.Callable(
        address,
        inputs=[],
        outputs=[],
        weights=[],
        fail=Messages(function),
        keepalive=keep,
    )


@pytest.fixture
def _interruptible():
    """Ctrl-C is ignored in jobs that a shell runs in the background, and so by their children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interruptible")
def test_a_signal_ends_a_long_call_and_others_run_meanwhile():
    f = spin()
    ticks = 0

    def tick() -> None:
        nonlocal ticks
        while ticks < 10:
            ticks += 1
            time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=tick)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        f()
    thread.join()
    assert ticks == 10


def test_memory_stays_flat_over_many_shapes():
    f = tiny.program(threads=1).function("add_one")
    random = np.random.default_rng(0)
    x = np.zeros(1 << 18, np.float32)

    def calls(count: int) -> None:
        for n in random.integers(14, 1 << 18, count):
            f(x[:n])

    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    calls(500)
    before = resident()
    calls(2000)
    assert resident() - before < 8 << 20

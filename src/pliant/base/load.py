"""Modules that load when they are needed, and whole.

A signal's handler runs between any two steps of Python, and those of SIGINT and SIGTERM raise. When
that happens in Python code which the initialisation of an extension module calls, the exception has
to pass through C++ that was not written for it, and the process ends in `std::terminate` or a
segmentation fault. So signals wait until an import is done.
"""

from __future__ import annotations

import contextlib
import importlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any


def load_module(name: str) -> Any:
    """Import a module; the handlers of signals that come meanwhile run afterwards."""
    with signals_held():
        return importlib.import_module(name)


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Signals whose handlers are written in Python take effect when the block has ended.

    Handlers run in the main thread, so elsewhere there is nothing to hold. It is not done by
    `pthread_sigmask`: the system gives a signal that one thread blocks to another, and Python then
    runs its handler in the main thread all the same.
    """
    came: list[int] = []
    holding = True

    def hold(number: int, frame: FrameType | None) -> None:
        if holding:
            came.append(number)
        else:  # a handler has raised before all of them were back
            handlers[number](number, frame)

    handlers: dict[int, Any] = {
        n: h for n in signal.valid_signals() if callable(h := signal.getsignal(n))
    }
    try:
        with contextlib.suppress(ValueError):  # not in the main thread
            for number in handlers:
                signal.signal(number, hold)
        yield
    finally:
        holding = False
        for number, handler in handlers.items():
            if signal.getsignal(number) is hold:  # what was imported may have set its own
                signal.signal(number, handler)
        for number in dict.fromkeys(came):
            signal.raise_signal(number)

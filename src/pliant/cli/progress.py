"""Phases of a compilation on standard error: one line kept up to date on a terminal, else a line
for each phase. A clock of its own speaks in long phases, so that it is never silent for 2 s."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from pliant.pipeline import Progress

TICK: Final = {True: 0.25, False: 1.8}  # seconds between updates: on a terminal, elsewhere
WIDTH: Final = 78


class Reporter:
    """Says which phase a compilation is in."""

    def __init__(self, what: str, stream: TextIO) -> None:
        self.what = what
        self._stream = stream
        self._terminal = stream.isatty()
        self._begun = self._phase_begun = self._spoken = time.monotonic()
        self._phase, self._done, self._of = "start", 0, 1
        self._lock = threading.Lock()
        self._finished = threading.Event()
        self._clock = threading.Thread(target=self._tick, name="pliant-progress", daemon=True)
        self._clock.start()

    def __call__(self, phase: str, done: int, of: int) -> None:
        """The `progress` of `pliant.compile`."""
        with self._lock:
            is_new = phase != self._phase
            if is_new:
                self._phase, self._phase_begun = phase, time.monotonic()
            self._done, self._of = done, of
            if is_new and phase != "done":
                self._speak()

    def close(self, is_ok: bool) -> None:
        """Ends the line; on success says how long it all took."""
        self._finished.set()
        self._clock.join()
        if self._terminal:
            self._stream.write("\r" + " " * WIDTH + "\r")
        if is_ok:
            self._stream.write(f"{self.what}: {time.monotonic() - self._begun:.1f} s\n")
        self._stream.flush()

    def _tick(self) -> None:
        tick = TICK[self._terminal]
        while not self._finished.wait(max(tick - (time.monotonic() - self._spoken), 0.05)):
            with self._lock:
                if time.monotonic() - self._spoken >= tick:
                    self._speak()

    def _speak(self) -> None:
        self._spoken = time.monotonic()
        line = f"{self.what}: {self._phase}{self._progress()}"
        if self._terminal:
            self._stream.write("\r" + line[:WIDTH].ljust(WIDTH))
        else:
            self._stream.write(line + "\n")
        self._stream.flush()

    def _progress(self) -> str:
        now = time.monotonic()
        spent = now - self._phase_begun
        parts = [f" {self._done}/{self._of}"] if self._of > 1 else []
        if now - self._begun >= 0.1:
            parts.append(f" [{now - self._begun:.1f} s]")
        if self._done and spent > 1:
            parts.append(f" {spent * (self._of - self._done) / self._done:.0f} s to go")
        return "".join(parts)


@contextlib.contextmanager
def progress(what: str) -> Iterator[Progress]:
    """A reporter for the length of a block, on standard error."""
    reporter = Reporter(what, sys.stderr)
    is_ok = False
    try:
        yield reporter
        is_ok = True
    finally:
        reporter.close(is_ok)

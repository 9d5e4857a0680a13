"""Runs a piece of work in a forked child: what it said, or how it died."""

from __future__ import annotations

import os
import resource
import select
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pliant.base.errors import PliantError

ACCEPTED, REFUSED, ESCAPED, CRASH, HANG = "accepted", "refused", "ESCAPED", "CRASH", "HANG"
BAD: Final = (ESCAPED, CRASH, HANG)
LONGEST: Final = 60_000  # bytes of a child's report: less than a pipe holds


@dataclass(frozen=True)
class Verdict:
    """`kind` is one of the words above; `text` the refusal, the traceback or the signal."""

    kind: str
    text: str

    @property
    def is_bad(self) -> bool:
        return self.kind in BAD


def isolated(work: Callable[[], str], *, seconds: float, memory: int = 0) -> Verdict:
    """Runs `work` in a child. `memory` bounds its address space, in bytes.

    Accepted: it returned. Refused: it raised a PliantError, which names more than nothing. Escaped:
    another exception. Crash: a signal ended it. Hang: it was ended after `seconds`.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        _be_child(work, write, memory)
    os.close(write)
    said = _listen(read, seconds)
    os.close(read)
    if said is None:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if said is None:
        return Verdict(HANG, f"no result after {seconds:g} s")
    code = os.waitstatus_to_exitcode(status)
    if code or not said:
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return Verdict(CRASH, f"{how} {said.decode(errors='replace')}")
    kind, _, text = said.decode(errors="replace").partition("\n")
    return Verdict(kind, text)


def _be_child(work: Callable[[], str], write: int, memory: int) -> None:
    """Never returns: the parent's handlers and buffers are not for the child to run."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if memory:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        os.write(write, _verdict(work).encode(errors="replace")[:LONGEST])
    finally:
        os._exit(0)


def _verdict(work: Callable[[], str]) -> str:
    try:
        return f"{ACCEPTED}\n{work()}"
    except PliantError as error:
        text = str(error)
        if len(text) < 8:
            return f"{ESCAPED}\n{type(error).__name__} that says only {text!r}"
        return f"{REFUSED}\n{type(error).__name__}: {text}"
    except BaseException:
        return f"{ESCAPED}\n{traceback.format_exc()}"


def _listen(read: int, seconds: float) -> bytes | None:
    """What comes until the other end closes; None when it does not in time."""
    end = time.monotonic() + seconds
    said = b""
    while True:
        ready, _, _ = select.select([read], [], [], max(end - time.monotonic(), 0))
        if not ready:
            return None
        block = os.read(read, 65536)
        if not block:
            return said
        said += block

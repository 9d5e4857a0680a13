"""LLVM in processes of its own, beside the Python that writes its text.

Scheduling and LLVM take about as long as one another. In two threads they would hand the
interpreter's lock to and fro, which loses a third of what there is to win. What LLVM cannot bear
ends its process, which here is not the user's.

A process reads requests from its standard input, answers them in order on its standard output, and
ends when its input does.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Final

from pliant.base.errors import InternalError, ResourceError
from pliant.codegen.llvm.compile import CodegenError, compile_text
from pliant.codegen.llvm.target import Target

READY: Final = b"pliant, ready\n"
# The search path comes as arguments: this process may have changed its own.
PROGRAM: Final = f"import sys; sys.path[:] = sys.argv[1:]; from {__name__} import serve; serve()"


def serve() -> None:
    """What such a process does: texts with their targets come, objects or complaints go."""
    requests = sys.stdin.buffer
    with os.fdopen(os.dup(1), "wb") as replies:
        os.dup2(2, 1)  # whatever prints does not print into the replies
        replies.write(READY)
        replies.flush()
        while True:
            try:
                text, target = pickle.load(requests)
            except EOFError:
                return
            answer: bytes | str
            try:
                answer = compile_text(text, target)
            except CodegenError as error:
                answer = str(error)
            pickle.dump(answer, replies)
            replies.flush()


class _Process:
    """One of them. Raises OSError where it cannot be started."""

    def __init__(self, command: Sequence[str]) -> None:
        # A session of its own: a user's Ctrl-C is for this process, which then ends the others.
        self._run = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        assert self._run.stdin is not None and self._run.stdout is not None
        self._to, self._from = self._run.stdin, self._run.stdout
        self._ready = False

    def ready(self) -> bool:
        """Whether it is what it should be; waits for it the first time."""
        if not self._ready:
            self._ready = self._from.read(len(READY)) == READY
        return self._ready

    def compile(self, text: str, t: Target) -> bytes:
        """Raises CodegenError when LLVM rejects the text, and other errors where it ended."""
        try:
            pickle.dump((text, t), self._to)
            self._to.flush()
            answer = pickle.load(self._from)
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            raise self._ended() from error
        if isinstance(answer, str):
            raise CodegenError(answer)
        assert isinstance(answer, bytes)
        return answer

    def kill(self) -> None:
        """End it, whatever it is doing."""
        self._run.kill()

    def close(self) -> None:
        """When it was killed, and nobody waits for it."""
        self._run.wait()
        self._from.close()
        with contextlib.suppress(OSError):  # what was not written yet has no reader
            self._to.close()

    def _ended(self) -> Exception:
        status = self._run.wait()
        if status == -signal.SIGKILL:
            return ResourceError(
                "the process in which LLVM made code of a kernel was killed; is there memory left?"
            )
        how = signal.strsignal(-status) if status < 0 else f"exit code {status}"
        return InternalError(f"LLVM ended its process while it made code of a kernel: {how}")


class Beside:
    """So many processes, to make objects of texts. With none, and where they cannot be had, this
    process does it by itself, at once. To be closed."""

    def __init__(self, count: int) -> None:
        self._processes: list[_Process] = []
        self._free = SimpleQueue[_Process]()
        self._threads = ThreadPoolExecutor(max(count, 1), "pliant-llvm")
        command = [sys.executable, "-c", PROGRAM, *sys.path]
        if not sys.executable or getattr(sys, "frozen", False):
            count = 0  # an application with Python inside; it would be another of it
        with contextlib.suppress(OSError):
            for _ in range(count):
                self._processes.append(_Process(command))
                self._free.put(self._processes[-1])

    def compile(self, text: str, t: Target) -> Future[bytes]:
        """The object file of a kernel's text; raises as `compile_text` does, and ResourceError or
        InternalError where LLVM's process ended."""
        if self._processes:
            return self._threads.submit(self._compile, text, t)
        done = Future[bytes]()
        done.set_result(compile_text(text, t))
        return done

    def _compile(self, text: str, t: Target) -> bytes:
        process = self._free.get()
        try:
            return process.compile(text, t) if process.ready() else compile_text(text, t)
        finally:
            self._free.put(process)

    def close(self) -> None:
        """Nothing is waited for; what was not done yet is not done any more."""
        for process in self._processes:
            process.kill()
        self._threads.shutdown(cancel_futures=True)
        for process in self._processes:
            process.close()

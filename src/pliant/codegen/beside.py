"""Processes that make kernels beside this one.

Scheduling and LLVM take about as long as one another. In two threads they would hand the
interpreter's lock to and fro, which loses a third of what there is to win. So other processes
compile what this one schedules, and make whole kernels where they would wait for that; and this one
helps where they have more to do than it. What LLVM cannot bear ends a process that is not the
user's then.

A process reads requests from its standard input, answers them in order on its standard output, and
ends when its input does. One request lies there ahead, and answers find room: while this process is
busy, its thread that attends to the other waits some milliseconds for the interpreter's lock at
every step, and the other is not to wait for that.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pickle import PicklingError
from threading import Condition, Thread
from typing import TYPE_CHECKING, Final

from pliant.base.errors import InternalError, ResourceError
from pliant.codegen.llvm.target import Target
from pliant.codegen.source import Built, Source

if TYPE_CHECKING:  # what only some processes need, and takes its time to import
    from pliant.lower.canonical import Spec

AHEAD: Final = 2  # requests that a process has: one that it does, and another to go on with
ROOM: Final = 1 << 20  # bytes of a pipe

READY: Final = b"pliant, ready\n"
# The search path comes as arguments: this process may have changed its own.
PROGRAM: Final = f"import sys; sys.path[:] = sys.argv[1:]\nfrom {__name__} import serve\nserve()"


@dataclass(frozen=True)
class Answer:
    """What came of a request, and what there was to warn of."""

    made: Built | None = None
    error: Exception | None = None
    warned: tuple[str, ...] = ()


def serve() -> None:
    """What such a process does: sources or kernels to be come with their targets, objects or
    complaints go."""
    requests = sys.stdin.buffer
    with os.fdopen(os.dup(1), "wb") as replies:
        os.dup2(2, 1)  # whatever prints does not print into the replies
        replies.write(READY)
        replies.flush()
        from pliant.codegen.build import spec_source  # noqa: F401  while nothing is asked for yet

        while True:
            try:
                request = pickle.load(requests)
            except EOFError:
                return
            pickle.dump(_answer(*request), replies)
            replies.flush()


def _answer(what: Source | tuple[str, Spec], t: Target) -> Answer:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            made, error = _made(what, t), None
        except Exception as e:
            made, error = None, _sendable(e)
    return Answer(made, error, tuple(str(w.message) for w in warned))


def _made(what: Source | tuple[str, Spec], t: Target) -> Built:
    if isinstance(what, Source):
        return what.built(t)
    from pliant.codegen.build import spec_source  # later: a process first says that it is there

    return spec_source(*what, t).built(t)


def _sendable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return InternalError(f"{type(error).__name__}: {error}")
    return error


class _Process:
    """One of them. Raises OSError where it cannot be started."""

    def __init__(self, command: Sequence[str]) -> None:
        # A session of its own: a user's Ctrl-C is for this process, which then ends the others.
        self._run = subprocess.Popen(
            command, ROOM, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        assert self._run.stdin is not None and self._run.stdout is not None
        self._to, self._from = self._run.stdin, self._run.stdout
        for pipe in (self._to, self._from):
            _widen(pipe.fileno())

    def begins(self) -> bool:
        """Whether it is what it should be; waits until it is."""
        return self._from.read(len(READY)) == READY

    def ask(self, request: bytes) -> None:
        """Whether it has ended becomes known with the answer."""
        with contextlib.suppress(OSError):
            self._to.write(request)
            self._to.flush()

    def answer(self) -> Built:
        """To the first request that was not answered yet. Raises what there it did, and
        ResourceError or InternalError where it ended."""
        try:
            answer = pickle.load(self._from)
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            raise self._ended() from error
        assert isinstance(answer, Answer)
        for message in answer.warned:
            warnings.warn(message, stacklevel=2)
        if answer.error is not None:
            raise answer.error
        assert answer.made is not None
        return answer.made

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


def _widen(pipe: int) -> None:
    """Make room for a request and an answer, of which most have some 100 KB."""
    with contextlib.suppress(ImportError, AttributeError, OSError):  # there is less then
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, ROOM)


@dataclass(frozen=True)
class _Task:
    """What is to be made, and the promise of it."""

    what: Source | tuple[str, Spec]
    target: Target
    made: Future[Built]
    request: bytes = b""  # both, as they are sent

    def begin(self) -> bool:
        """Whether it is still wanted."""
        return self.made.set_running_or_notify_cancel()

    def keep(self, make: Callable[[], Built]) -> None:
        """Keep the promise, with a result or an error."""
        try:
            made = make()
        except BaseException as error:
            self.made.set_exception(error)
            if not isinstance(error, Exception):
                raise
        else:
            self.made.set_result(made)

    def run(self) -> None:
        """All of it, here."""
        if self.begin():
            self.keep(lambda: _made(self.what, self.target))


class Beside:
    """So many processes, to make objects. With none, and where they cannot be had, this process
    does it by itself. To be closed.

    Kernels are scheduled by processes and by the thread that asks for them, not by others of this
    process, which would only take the interpreter's lock from one another."""

    def __init__(self, count: int = 0) -> None:
        self._processes: list[_Process] = []
        self._threads: list[Thread] = []  # each attends to a process
        self._ready: list[_Process] = []
        self._tasks = deque[_Task]()  # that were not begun
        self._changed = Condition()  # there are more, or no more will come
        self._closed = False
        self._asked: list[Future[Built]] = []
        self.start(count)

    def start(self, count: int) -> None:
        """So many processes, unless there are some already. It takes as long to import what they
        need as to lower a model: who knows that there will be something to do begins early."""
        if self._processes or count == 0:
            return
        if not sys.executable or getattr(sys, "frozen", False):
            return  # an application with Python inside; it would be another of it
        command = [sys.executable, "-c", PROGRAM, *sys.path]
        with contextlib.suppress(OSError):
            for _ in range(count):
                process = _Process(command)
                self._processes.append(process)
                thread = Thread(target=self._attend, args=(process,), name="pliant-beside")
                self._threads.append(thread)
                thread.start()

    @property
    def processes(self) -> int:
        """How many there are, or are being started."""
        return len(self._processes)

    @property
    def waiting(self) -> bool:
        """Whether a process has nothing to do, or will not have soon."""
        self._asked = [x for x in self._asked if not x.done()]
        all_ready = len(self._ready) == len(self._processes)
        return all_ready and len(self._asked) < AHEAD * len(self._processes)

    def make(self, what: Source | tuple[str, Spec], t: Target) -> Future[Built]:
        """The object of a source; or, for who saw that processes are `waiting`, of a kernel, with
        its symbol, from the start. Raises what `Source.built` and `spec_source` do, and
        ResourceError or InternalError where the process ended. What cannot be sent is made here."""
        task = _Task(what, t, Future())
        if self._processes:
            with contextlib.suppress(RecursionError, TypeError, AttributeError, PicklingError):
                task = replace(task, request=pickle.dumps((what, t)))
        if task.request:
            self._asked.append(task.made)
            with self._changed:
                self._tasks.append(task)
                self._changed.notify()
        else:
            task.run()
        return task.made

    def help(self) -> None:
        """Make here what no process has begun, the last first."""
        with contextlib.suppress(IndexError):
            while True:
                self._tasks.pop().run()

    def _attend(self, process: _Process) -> None:
        """Send a process what is to be done, one request ahead of what it does."""
        begun = process.begins()
        if begun:
            self._ready.append(process)
        asked = deque[_Task]()
        while True:
            for task in self._next(AHEAD - len(asked), wait=not asked):
                if not begun:
                    task.run()
                elif task.begin():
                    asked.append(task)
                    process.ask(task.request)
            if asked:
                asked.popleft().keep(process.answer)
            elif self._closed:
                return

    def _next(self, most: int, *, wait: bool) -> list[_Task]:
        """Up to so many tasks; waits for one, if it should, unless no more will come."""
        with self._changed:
            while wait and not self._tasks and not self._closed:
                self._changed.wait()
            found = list[_Task]()
            with contextlib.suppress(IndexError):  # somebody helps
                while len(found) < most:
                    found.append(self._tasks.popleft())
            return found

    def close(self) -> None:
        """Nothing is waited for; what was not done yet is not done any more."""
        with contextlib.suppress(IndexError):
            while True:
                self._tasks.pop().made.cancel()
        for process in self._processes:
            process.kill()
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        for process in self._processes:
            process.close()

"""Python's search for cycles of garbage, held off while much is made that has none."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Cycles are not looked for meanwhile.

    A compilation makes many objects and hardly a cycle, but how many there are has the collector go
    through all objects of the process (those of a framework, too) again and again: a tenth to a
    fifth of the time. Where it is off already, it stays so; of several threads, the first that is
    done has it on again, which costs the others time and nothing else.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()

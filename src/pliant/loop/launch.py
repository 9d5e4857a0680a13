"""What was found of a launch, and what must hold of it before its threads can run at once.

Memory that each thread has for itself hands nothing from one to another; nothing goes from block to
block; shared memory is filled by the threads of its block, and there is enough of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pliant.base.errors import InvalidModelError
from pliant.loop.boxes import touched_box
from pliant.loop.dependence import agreed_loops
from pliant.loop.regions import Access
from pliant.loop.stmt import Buffer, For
from pliant.loop.threads import WARP, private_axes
from pliant.sym.facts import Facts


@dataclass(frozen=True)
class Limits:
    """What a block of threads may have."""

    shared_bytes: int = 48 * 1024
    threads: int = 1024


@dataclass(frozen=True)
class Use:
    """An access, and the axes in loops of which it is."""

    access: Access
    bound: frozenset[str]


@dataclass
class Launch:
    """What was found in a launch on the way."""

    nest: dict[str, For]  # the loops of threads, by axis
    blocks: tuple[For, ...]
    uses: list[Use] = field(default_factory=list)
    homes: dict[Buffer, frozenset[str]] = field(default_factory=dict)  # axes around its allocation
    shared: list[Buffer] = field(default_factory=list)
    rows: list[Buffer] = field(default_factory=list)  # one for each row of threads


@dataclass(frozen=True)
class Checks:
    """What must hold of the launch `found` of the function `name`; `facts` hold in its threads."""

    name: str
    found: Launch
    facts: Facts
    limits: Limits

    def run(self) -> None:
        """Raise InvalidModelError unless all of it does."""
        self._limits()
        self._own()
        self._blocks()
        self._filled()

    def refuse(self, why: str) -> InvalidModelError:
        return InvalidModelError(f"{self.name}: {why}")

    def _limits(self) -> None:
        threads = 1
        for loop in self.found.nest.values():
            if not loop.extent.is_const:
                raise self.refuse(
                    f"{loop.kind} has the extent {loop.extent}, which is not a number"
                )
            threads *= loop.extent.value
        if threads > self.limits.threads:
            raise self.refuse(f"a block has {threads} threads, more than {self.limits.threads}")
        row = self.found.nest["threadIdx.x"]
        for b in self.found.rows[:1]:
            if WARP % row.extent.value:
                raise self.refuse(
                    f"{b.name} is in {b.scope} memory, and {row.extent} threads of threadIdx.x are "
                    f"not a part of a warp of {WARP}"
                )
        sizes = [(b, self._bytes(b)) for b in self.found.shared]
        if sum(n for _, n in sizes) > self.limits.shared_bytes:
            parts = ", ".join(f"{b.name} {n}" for b, n in sizes)
            raise self.refuse(
                f"a block has {self.limits.shared_bytes} bytes of shared memory, and uses {parts}"
            )

    def _bytes(self, b: Buffer) -> int:
        most = self.facts.bounds(b.room)[1]
        if most is None:
            size = f"{b.room} elements"
            raise self.refuse(f"{b.name}, in shared memory, has no greatest size: {size}")
        return most * b.dtype.bytes

    def _own(self) -> None:
        """Nothing goes from one thread to another through memory that each has for itself."""
        for b in dict.fromkeys(u.access.buffer for u in self.found.uses):
            if b not in self.found.homes and private_axes(b.scope):
                whose = "thread" if "threadIdx.x" in private_axes(b.scope) else "block"
                raise self.refuse(
                    f"{b.name} is in {b.scope} memory, of one {whose}, and allocated outside of "
                    f"the launch that uses it"
                )
        for w, r in _flows(self.found.uses):
            b = w.access.buffer
            own = private_axes(b.scope)
            if b not in self.found.homes:
                continue
            axes = [
                x
                for a, x in self.found.nest.items()
                if a in own and a in w.bound - self.found.homes[b]
            ]
            axes = [x for x in axes if x.extent != 1]
            if not axes:
                continue
            same = agreed_loops(w.access, r.access, axes, self.facts)
            for x in axes:
                if x.kind not in r.bound or x.var not in same:
                    raise self.refuse(
                        f"{_who(r)} reads {b.name}, in {b.scope} memory, where perhaps another "
                        f"thread of {x.kind} wrote it, {_who(w)}"
                    )

    def _blocks(self) -> None:
        """Nothing goes from one block of threads to another."""
        blocks = [x for x in self.found.blocks if x.extent != 1]
        uses = [u for u in self.found.uses if u.access.buffer not in self.found.homes]
        for k, first in enumerate(uses):
            for then in uses[k:]:
                a, b = first.access, then.access
                if a.buffer is not b.buffer or not (a.write or b.write):
                    continue
                same = agreed_loops(a, b, blocks, self.facts)
                apart = [x.kind for x in blocks if x.var not in same]
                if apart:
                    raise self.refuse(
                        f"{_who(first)} and {_who(then)} use perhaps the same element of "
                        f"{a.buffer.name} in blocks of threads that differ in {apart[0]}, and "
                        f"nothing orders blocks"
                    )

    def _filled(self) -> None:
        """No shared memory is read which surely no thread of the block writes."""
        inner = tuple(self.found.nest.values())
        known = _names_outside(self.found)
        for b in (*self.found.shared, *self.found.rows):
            mine = [u.access for u in self.found.uses if u.access.buffer is b]
            stores = [_run(a, inner) for a in mine if a.write]
            if any(a.indices is None for a in mine):
                continue
            for r in (a for a in mine if not a.write and a.sure):
                if not stores:
                    raise self.refuse(f"nothing writes {b.name}, which is read{_at(r)}")
                have = touched_box(stores, known, self.facts)
                need = touched_box([_run(r, inner)], known, self.facts)
                for (low, high), (first, last) in zip(have, need, strict=True):
                    if self.facts.lt(first, low) or self.facts.lt(high, last):
                        raise self.refuse(
                            f"the threads of a block write {b.name} from {low} to {high} and read "
                            f"it from {first} to {last}{_at(r)}"
                        )


def _flows(uses: Sequence[Use]) -> list[tuple[Use, Use]]:
    """Pairs of a store and a load of one buffer."""
    stores = [u for u in uses if u.access.write]
    loads = [u for u in uses if not u.access.write]
    return [(w, r) for w in stores for r in loads if w.access.buffer is r.access.buffer]


def _who(u: Use) -> str:
    return f"block {u.access.block}" if u.access.block else "a statement"


def _at(a: Access) -> str:
    return f" in block {a.block}" if a.block else ""


def _run(a: Access, nest: tuple[For, ...]) -> Access:
    """The access by all threads of a block."""
    return replace(a, loops=(*nest, *a.loops))


def _names_outside(found: Launch) -> frozenset[str]:
    """Names that the ends of a region in a block may mention: all but those of its threads and of
    loops inside."""
    inner = {x.var for x in found.nest.values()}
    names = frozenset[str]()
    for u in found.uses:
        inner |= {x.var for x in u.access.loops}
        for d in range(u.access.buffer.rank):
            index = u.access.index(d)
            names |= index.names if index is not None else frozenset()
        names = names.union(*(x.extent.names for x in u.access.loops))
        names = names.union(*(d.names for d in u.access.buffer.shape))
    return names - inner

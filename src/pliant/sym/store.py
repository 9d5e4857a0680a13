"""The data behind `Facts`: what is known of variables, and the memory of answered queries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from pliant.sym.atoms import Monomial
from pliant.sym.expr import Int

Interval = tuple[int | None, int | None]
"""(least, greatest); None where unbounded."""

UNBOUNDED: Final[Interval] = (None, None)


@dataclass(frozen=True, slots=True)
class Dim:
    """What is known of one variable by itself."""

    min: int | None = None
    max: int | None = None
    multiple: int = 1
    likely: tuple[int, ...] = ()
    unit: int = 1
    """A size that is asked for is so many times the variable."""

    def within(self, low: int | None, high: int | None, multiple: int = 1) -> Dim:
        """Also between low and high, and a multiple of `multiple` (ends are rounded inwards)."""
        low = low if self.min is None else self.min if low is None else max(low, self.min)
        high = high if self.max is None else self.max if high is None else min(high, self.max)
        low = None if low is None else -(-low // multiple) * multiple
        high = None if high is None else high // multiple * multiple
        return Dim(low, high, multiple, self.likely, self.unit)


@dataclass(frozen=True, slots=True)
class Rule:
    """A polynomial equality used from left to right: coefficient * lead == rest."""

    lead: Monomial
    coefficient: int
    rest: Int


@dataclass(slots=True)
class FactStore:
    """Plain data. Memories hold answers for the present facts; who adds a fact calls `forget`."""

    dims: dict[str, Dim] = field(default_factory=dict)
    uppers: dict[str, Int] = field(default_factory=dict)
    """Symbolic greatest values, as of loop indices."""
    values: dict[str, Int] = field(default_factory=dict)
    """Variables solved for; no value mentions a solved variable."""
    rules: list[Rule] = field(default_factory=list)
    nonneg: list[Int] = field(default_factory=list)
    """Expressions known to be at least 0."""
    multiples: list[tuple[Int, Int]] = field(default_factory=list)
    """(x, k): x is divisible by k."""

    pinned: dict[str, int] = field(default_factory=dict)
    """Variables whose range is one number."""

    intervals: dict[Int, Interval] = field(default_factory=dict)
    lowers: dict[Int, int | None] = field(default_factory=dict)
    signs: dict[Int, bool] = field(default_factory=dict)
    simplified: dict[Int, Int] = field(default_factory=dict)
    examples: tuple[Any, ...] | None = None
    """Values of variables that agree with the facts; None until somebody asks."""
    unsettled: set[str] = field(default_factory=set)
    """Variables that have no values in the examples yet."""
    visiting: set[str] = field(default_factory=set)
    """Variables whose range is being computed: guards against bounds that refer to each other."""

    above: dict[str, FactStore] = field(default_factory=dict)
    """The same facts, and that a variable has not its least value, by variable."""

    version: int = 0
    """How often facts were added."""
    base: FactStore | None = None
    """What this is a copy of, as long as it has only facts more about variables of its `own`."""
    base_version: int = 0
    own: set[str] = field(default_factory=set)

    def forget(self) -> None:
        """Drop the answers that may get better, after a fact was added: what is proved stays so."""
        self.version += 1
        self.base = None
        self.above.clear()
        for memory in (self.intervals, self.lowers, self.simplified):
            memory.clear()
        self.examples = None
        self.signs = {x: True for x, proved in self.signs.items() if proved}

    def forget_all(self) -> None:
        """Drop all answers, after a fact was replaced."""
        self.signs = {}
        self.forget()

    def forget_about(self, name: str) -> None:
        """Drop the answers that mention a variable, after the first fact about it was added."""
        self.version += 1
        self.own.add(name)
        self.above.clear()
        for memory in (self.intervals, self.lowers, self.signs, self.simplified):
            for x in [x for x in memory if name in x.names]:
                del memory[x]
        self.unsettled.add(name)

    def origin(self) -> FactStore | None:
        """What this is a copy of, with all facts that this has, but those about its `own`."""
        if self.base is not None and self.base.version != self.base_version:
            self.base = None
        return self.base

    def shared(self, x: Int) -> FactStore | None:
        """The origin, where it knows of all that `x` mentions as much: then it answers, for all of
        its copies."""
        return self.origin() if x.names.isdisjoint(self.own) else None

    def is_new(self, name: str) -> bool:
        """Whether no fact mentions the variable."""
        return (
            name not in self.dims
            and name not in self.values
            and not any(name in x.names for x in self.values.values())
            and not any(name in x.names for x in self.uppers.values())
            and not any(name in r.rest.names or name in r.lead.names for r in self.rules)
            and not any(name in x.names for x in self.nonneg)
            and not any(name in x.names or name in k.names for x, k in self.multiples)
        )

    def copy(self) -> FactStore:
        """An independent store with the same facts, and their answers so far. What knows no more
        than its origin stands for that: copies of copies do not ask along a line of them."""
        origin = self.origin()
        base = self if origin is None or self.own else origin
        return FactStore(
            dict(self.dims),
            dict(self.uppers),
            dict(self.values),
            list(self.rules),
            list(self.nonneg),
            list(self.multiples),
            dict(self.pinned),
            dict(self.intervals),
            dict(self.lowers),
            dict(self.signs),
            dict(self.simplified),
            self.examples,
            set(self.unsettled),
            base=base,
            base_version=base.version,
        )

    def put(self, name: str, dim: Dim) -> None:
        """Set what is known of a variable by itself."""
        self.dims[name] = dim
        self.pinned.pop(name, None)
        if dim.min is not None and dim.min == dim.max:
            self.pinned[name] = dim.min

    def dim(self, name: str) -> Dim:
        """What is known of a variable; nothing if it was never declared."""
        return self.dims.get(name, _UNKNOWN)

    @property
    def order(self) -> dict[str, int]:
        """Position of each variable in the order of declaration."""
        return {name: at for at, name in enumerate(self.dims)}


_UNKNOWN: Final = Dim()

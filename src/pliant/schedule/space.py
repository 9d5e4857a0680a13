"""What a sampling step decides among: spaces of values, as data that any search can work on.

    default        what it is without tuning: the policy of the recipe
    refuses        why a value is none of this space
    draw           one at random
    neighbours     those a small change away

`Choice` is one of some values; `Tiles` are the factors of a tiling. Drawing and changing tiles is
as in MetaSchedule (Shao et al., NeurIPS 2022, appendix): a change moves a prime factor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from random import Random
from typing import Any, Final, Protocol

MOST: Final = 64  # of an outer factor where the extent sets no limit


class Space(Protocol):
    """The values that a sampling step may decide for."""

    @property
    def default(self) -> Any:
        """The value where nobody decides otherwise."""

    def refuses(self, value: Any) -> str:
        """Why `value` is not in the space; empty if it is."""

    def draw(self, rng: Random) -> Any:
        """A value at random."""

    def neighbours(self, value: Any) -> tuple[Any, ...]:
        """Other values, a small change away from this one."""


@dataclass(frozen=True)
class Choice:
    """One of `candidates`, with `weights` for drawing."""

    candidates: tuple[Any, ...]
    default: Any
    weights: tuple[float, ...] | None = None

    def refuses(self, value: Any) -> str:
        if any(_is(value, c) for c in self.candidates):
            return ""
        return f"{value!r} is none of {', '.join(map(repr, self.candidates))}"

    def draw(self, rng: Random) -> Any:
        return rng.choices(self.candidates, self.weights)[0]

    def neighbours(self, value: Any) -> tuple[Any, ...]:
        weights = self.weights or (1.0,) * len(self.candidates)
        pairs = zip(self.candidates, weights, strict=True)
        return tuple(c for c, w in pairs if w > 0 and not _is(c, value))


def _is(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(a == b)


@dataclass(frozen=True)
class Tiles:
    """Factors of the loops that a loop is split into, outermost first, without the outermost: that
    one gets what is left.

    Where the extent is a number, and `unit` divides it, the product divides it; otherwise there is
    a tail, and outer factors are at most MOST. The last factor is at most `limit`. The product of
    the factors from loop `at` on (the outermost is loop 0) is a multiple of `unit`.
    """

    extent: int | None
    loops: int
    limit: int
    at: int = 1
    unit: int = 1
    policy: tuple[int, ...] | None = None

    @property
    def divides(self) -> bool:
        """Whether a legal tiling has no tail."""
        return self.extent is not None and self.extent > 0 and self.extent % self.unit == 0

    @property
    def default(self) -> tuple[int, ...]:
        """The caller's policy; without one the inner loops are as long as is allowed."""
        if self.policy is not None:
            return self.policy
        factors = self._start(None)
        if self.divides:
            assert self.extent is not None
            rest, most = self.extent // self.unit, max(self.limit // factors[-1], 1)
            factors[-1] *= next(d for d in range(most, 0, -1) if rest % d == 0)
        else:
            while 2 * factors[-1] <= self.limit:
                factors[-1] *= 2
        return tuple(factors)

    def refuses(self, value: Any) -> str:
        inner = self.loops - 1
        if not (isinstance(value, tuple) and len(value) == inner):
            return f"{value!r} is not a tuple of {inner} factors"
        if not all(type(f) is int and f >= 1 for f in value):
            return f"{value!r} has a factor that is no number from 1 up"
        if value[-1] > self.limit:
            return f"the innermost factor {value[-1]} is more than {self.limit}"
        if prod(value[max(self.at, 1) - 1 :]) % self.unit:
            return f"the factors {value} from loop {self.at} on are no multiple of {self.unit}"
        if self.divides:
            assert self.extent is not None
            if self.extent % prod(value):
                return f"the product of {value} does not divide {self.extent}"
        return ""

    def draw(self, rng: Random) -> tuple[int, ...]:
        factors = self._start(rng)
        if self.divides:
            assert self.extent is not None
            for f in _primes(self.extent // self.unit):
                k = rng.randrange(self.loops)
                if k and not (k == self.loops - 1 and factors[-1] * f > self.limit):
                    factors[k - 1] *= f
        else:
            for k, f in enumerate(factors):
                most = max((self.limit if k == len(factors) - 1 else MOST) // f, 1)
                factors[k] = f * min(rng.randint(1, 1 << rng.randint(0, most.bit_length())), most)
        return tuple(factors)

    def neighbours(self, value: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        found: dict[tuple[int, ...], None] = {}
        rest = 1
        if self.divides:
            assert self.extent is not None
            rest = self.extent // prod(value)
        whole = (rest, *value)
        steps = sorted({2, *(f for x in whole for f in _primes(x))})
        for f in steps:
            for a in range(len(whole)):
                taken = whole[a] % f == 0
                for b in range(len(whole)):
                    # Where there is a tail, the outermost loop takes and gives what it likes.
                    if a != b and (taken or (a == 0 and not self.divides)):
                        changed = list(whole)
                        changed[a] //= f if taken else 1
                        changed[b] *= f
                        found[tuple(changed[1:])] = None
        return tuple(v for v in found if v != value and not self.refuses(v))

    def _start(self, rng: Random | None) -> list[int]:
        """Factors with no more in them than `unit`, anywhere where it may be or, without `rng`,
        as far inside as it fits."""
        factors = [1] * (self.loops - 1)
        inner = range(max(self.at, 1) - 1, len(factors))
        for f in reversed(_primes(self.unit)):
            free = [k for k in inner if k < len(factors) - 1 or factors[-1] * f <= self.limit]
            factors[(free or [inner[-1]])[-1] if rng is None else rng.choice(free or inner)] *= f
        return factors

    @property
    def empty(self) -> str:
        """Why no tiling is legal; empty if some is."""
        alone = self.loops - 1 == max(self.at, 1)
        if alone and self.unit > self.limit:
            return f"the innermost factor cannot be a multiple of {self.unit} up to {self.limit}"
        return ""


def _primes(n: int) -> Sequence[int]:
    """Prime factors, smallest first, each as often as it divides."""
    found, f = [], 2
    while f * f <= n:
        while n % f == 0:
            found.append(f)
            n //= f
        f += 1
    return [*found, n] if n > 1 else found

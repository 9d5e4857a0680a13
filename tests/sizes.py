"""Random legal sizes of a model's dynamic dimensions, corner cases among them.

The legal sizes of a dimension are a range: `range(0, 65)`, or `range(32, 641, 32)` where the model
takes multiples of 32 only; then it is the factor that varies.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

Sizes = dict[str, int]


def corners(legal: range) -> list[int]:
    """The legal ones of 0, 1, the ends, and powers of two with their neighbours."""
    factors = range(legal[0] // legal.step, legal[-1] // legal.step + 1)
    powers = [1 << k for k in range(factors[-1].bit_length() + 1)]
    wanted = {0, 1, factors[0], factors[-1]} | {p + d for p in powers for d in (-1, 0, 1)}
    return [k * legal.step for k in factors if k in wanted]


def primes(legal: range) -> list[int]:
    """The legal sizes whose factor is a prime."""
    factors = range(max(2, legal[0] // legal.step), legal[-1] // legal.step + 1)
    return [k * legal.step for k in factors if all(k % d for d in range(2, int(k**0.5) + 1))]


def draw(random: Random, legal: Mapping[str, range], most: int | None = None) -> Sizes:
    """One legal tuple. `most` bounds the product of its sizes, 0 counting as 1."""
    names = random.sample(list(legal), len(legal))
    smallest = {n: max(1, legal[n][0]) for n in names}
    sizes: Sizes = {}
    for name in names:
        r = legal[name]
        if most is not None:
            taken = 1
            for other in names:
                taken *= max(1, sizes[other]) if other in sizes else smallest[other]
            r = r[: max(1, len(range(r.start, most * smallest[name] // taken + 1, r.step)))]
        kind = random.choice((corners, primes, list))
        sizes[name] = random.choice(kind(r) or r)
    return {n: sizes[n] for n in legal}


def tuples(
    seed: int, legal: Mapping[str, range], count: int, most: int | None = None
) -> list[Sizes]:
    """`count` legal tuples: every corner of every dimension at least once, the rest random and
    mostly distinct."""
    random = Random(seed)
    out = [
        draw(random, {**legal, name: range(size, size + 1)}, most)
        for name, r in legal.items()
        for size in corners(r)
    ][:count]
    seen = {tuple(sizes.values()) for sizes in out}
    while len(out) < count:
        few = (draw(random, legal, most) for _ in range(16))
        sizes = next((s for s in few if tuple(s.values()) not in seen), None)
        out.append(sizes or draw(random, legal, most))
        seen.add(tuple(out[-1].values()))
    random.shuffle(out)
    return out

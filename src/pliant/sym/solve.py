"""Solving a system of numerals for its inputs: the work behind injectivity, coverage and inverses.

    f = 16*i + j,  outputs (f//8, f%8)       sources i, j (inputs) and f (an expression of them)

The digits of the outputs give the sources; a source that is an expression of whole inputs is a
numeral itself, and gives those.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pliant.sym.digits import Numeral, Place, dense, distinct, numeral, reach, terms
from pliant.sym.expr import Int, const, var
from pliant.sym.facts import Facts

Piece = tuple[Place, Int]
"""A digit and its value in terms of the outputs."""


@dataclass(frozen=True, slots=True)
class System:
    """The outputs of a map as numerals; None for those that are not."""

    extents: dict[str, Int]
    outputs: tuple[Numeral | None, ...]
    sizes: dict[Int, Int]
    """The number of values of each source."""
    shared: dict[Int, Numeral]
    """The sources that are expressions of whole inputs."""


def read_system(
    inputs: tuple[str, ...], extents: tuple[Int, ...], outputs: Iterable[Int], facts: Facts
) -> System:
    """Read outputs; `facts` know the ranges of the inputs."""
    names = frozenset(inputs)
    outs = [facts.simplify(out) for out in outputs]
    sizes = {var(name): size for name, size in zip(inputs, extents, strict=True)}
    shared: dict[Int, Numeral] = {}
    for source in dict.fromkeys(source for out in outs for source in _sources(out, names)):
        read = numeral(source, names, sizes, facts) if source not in sizes else None
        if read is None or read.offset != 0 or any(not _is_whole(p) for p in read.places):
            continue
        size = dense(read.places, facts)
        if size is not None:
            shared[source] = read
            sizes[source] = size
    numerals = tuple(numeral(out, names, sizes, facts) for out in outs)
    return System(dict(zip(inputs, extents, strict=True)), numerals, sizes, shared)


def _sources(x: Int, inputs: frozenset[str]) -> list[Int]:
    read = terms(x, inputs)
    return [term.digit.source for term in read[0]] if read else []


def _is_whole(place: Place) -> bool:
    digit = place.digit
    return digit.modulus is None and digit.low == 1 and len(digit.source.names) == 1


def is_injective(system: System, facts: Facts) -> bool:
    """Whether the outputs determine the inputs."""
    pieces: dict[Int, list[Piece]] = {}
    for out in system.outputs:
        if out is not None and distinct(out.places, facts):
            for place in out.places:
                pieces.setdefault(place.digit.source, []).append((place, const(0)))
    known: set[str] = set()
    for source, found in pieces.items():
        if _assemble(found, system.sizes[source], facts, exact=False) is not None:
            known |= source.names & system.extents.keys()
    return all(name in known or facts.le(size, 1) for name, size in system.extents.items())


def readable(system: System, facts: Facts) -> list[Int]:
    """The digits that can be read off the outputs, as formulas in the inputs."""
    digits = [
        place.digit
        for out in system.outputs
        if out is not None and distinct(out.places, facts)
        for place in out.places
    ]
    return [digit.value() for digit in digits]


def covers(system: System, box: tuple[Int, ...], facts: Facts) -> bool:
    """Whether every point of the box is an output."""
    if not _is_free(system, facts):
        return False
    for out, extent in zip(system.outputs, box, strict=True):
        if out is None or not facts.equal(out.offset, 0):
            return False
        if not facts.le(extent, reach(out.places, facts)):
            return False
    return True


def _is_free(system: System, facts: Facts) -> bool:
    """Whether all digits of the outputs take all their values, independently of each other.

    A loop that may be empty is allowed only in a map that is one-to-one onto the product of its
    outputs' ranges: then that product is empty too. Otherwise an empty loop reaches nothing.
    """
    places = [place for out in system.outputs if out is not None for place in out.places]
    pieces: dict[Int, list[Piece]] = {}
    for place in places:
        pieces.setdefault(place.digit.source, []).append((place, const(0)))
    if not _are_separate(pieces, system):
        return False
    open_sources = [s for s, found in pieces.items() if not _tiles(found, system.sizes[s], facts)]
    tiled = not open_sources
    for source in open_sources:
        first, *others = pieces[source]
        if others or not _is_full(first[0], system.sizes[source], facts):
            return False
    used = frozenset[str]().union(*(source.names for source in pieces))
    numerals = [out for out in system.outputs if out is not None]
    one_to_one = tiled and all(dense(out.places, facts) is not None for out in numerals)
    if one_to_one and used >= system.extents.keys():
        return True
    return all(facts.positive(size) for size in system.extents.values())


def _are_separate(sources: Iterable[Int], system: System) -> bool:
    """Whether no input occurs in two sources."""
    seen: set[str] = set()
    for source in sources:
        names = source.names & system.extents.keys()
        if seen & names:
            return False
        seen |= names
    return True


def _is_full(place: Place, size: Int, facts: Facts) -> bool:
    """Whether the digit takes each value below its extent, the source each below `size` >= 1."""
    modulus = place.digit.modulus
    return modulus is None or facts.le(place.digit.low * modulus, size)


def _tiles(found: list[Piece], size: Int, facts: Facts) -> bool:
    return _assemble(found, size, facts, exact=True) is not None


def _assemble(pieces: list[Piece], size: Int, facts: Facts, *, exact: bool) -> Int | None:
    """The source from its digits; None if they leave some of it open.

    If exact, the digits use up all pieces and their extents multiply to the size.
    """
    left = list(pieces)
    low: Int = const(1)
    value: Int = const(0)
    while left:
        at = next((at for at, (p, _) in enumerate(left) if facts.equal(p.digit.low, low)), None)
        if at is None:
            break
        place, digit = left.pop(at)
        value += low * digit
        low *= place.extent
    if exact:
        return value if not left and facts.equal(low, size) else None
    return value if facts.le(size, low) else None


def solve(
    system: System, outputs: tuple[str, ...], facts: Facts
) -> tuple[tuple[Int, ...], tuple[Int, ...]] | None:
    """(extents, inputs): the box that the outputs fill, and the inputs as functions of them."""
    extents = []
    pieces: dict[Int, list[Piece]] = {}
    for name, out in zip(outputs, system.outputs, strict=True):
        size = dense(out.places, facts) if out is not None else None
        if out is None or size is None or not facts.equal(out.offset, 0):
            return None
        extents.append(size)
        for place, value in _digits(var(name), out, size, facts):
            pieces.setdefault(place.digit.source, []).append((place, value))
    if not _are_separate(pieces, system):
        return None
    values: dict[str, Int] = {}
    for source, found in pieces.items():
        size = system.sizes[source]
        assembled = _assemble(found, size, facts, exact=True)
        if assembled is None:
            return None
        if source not in system.shared:
            values[str(source)] = assembled
            continue
        for place, digit in _digits(assembled, system.shared[source], size, facts):
            values[str(place.digit.source)] = digit
    for name, extent in system.extents.items():
        if name not in values:
            if not facts.equal(extent, 1):
                return None
            values[name] = const(0)
    return tuple(extents), tuple(values[name] for name in system.extents)


def _digits(value: Int, whole: Numeral, size: Int, facts: Facts) -> list[Piece]:
    """Each place with its digit; the greatest place needs no remainder."""
    found = []
    for place in whole.places:
        digit = value // place.scale
        if not facts.equal(place.scale * place.extent, size):
            digit %= place.extent
        found.append((place, place.extent - 1 - digit if place.flipped else digit))
    return found

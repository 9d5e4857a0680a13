"""The words of tensor programs, to import where one is written, so that editors and linters know
them.

    import pliant
    from pliant.language import exp, f32, grid, sizes

    n, k = sizes("n k")

    @pliant.program
    def scaled_exp(x: f32[n, k], y: f32[n, k]):
        for i, j in grid(n, k):
            y[i, j] = exp(x[i, j] * 0.5)

loops        grid, parallel, vectorized, unrolled; Python's own range(n)
blocks       block, S, R, O, init
buffers      alloc, let, buffer, address
control      if, while, check, sequence, invoke, barrier
reducers     reducer(identity…), of several values together (`loop.reducer`)
types        f16 bf16 f32 f64, i8 … i64, u8 … u64, boolean; f32(x) converts
functions    those of `ir.expr` by name: exp, tanh, max, atan2, isnan, …; select, cast, bitcast
reductions   sum, prod, max, min, any, all over `for r in grid(k)`
sizes        sizes("n k"): names for extents; a string, f32["n", "k"], says the same

Python never runs what a program says: a word means something inside a program only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pliant.base.dtypes import DTYPES, DType, boolean
from pliant.base.errors import InvalidModelError
from pliant.ir.expr import BINARY_OPS, COMBINERS, UNARY_OPS
from pliant.sym.expr import Int, var


@dataclass(frozen=True)
class Word:
    """A word of the language, outside of any program."""

    name: str

    def __call__(self, *args: object, **options: object) -> Any:
        raise InvalidModelError(f"{self.name} means something inside a @pliant.program only")


def sizes(names: str) -> Any:
    """Sizes by their names, separated by blanks: one, or a tuple of several."""
    found = names.replace(",", " ").split()
    if not found or not all(n.isidentifier() for n in found):
        raise InvalidModelError(f'sizes takes names, as in sizes("n m"), not {names!r:.60}')
    made: tuple[Int, ...] = tuple(map(var, found))
    return made if len(made) > 1 else made[0]


_STATEMENTS: Final = (
    "grid parallel vectorized unrolled each block S R O init alloc let buffer address check "
    "sequence invoke barrier reducer inf nan select cast bitcast guard"
).split()
_OPERATORS: Final = {"and", "or", "not"}  # of Python's own
WORDS: Final[dict[str, Word | DType]] = {
    **{name: Word(name) for name in _STATEMENTS},
    **{name: Word(name) for name in sorted((UNARY_OPS | BINARY_OPS).union(COMBINERS) - _OPERATORS)},
    **{name: dtype for name, dtype in DTYPES.items() if dtype is not boolean},
    "boolean": boolean,
}

__all__ = ["sizes", *WORDS]


def __getattr__(name: str) -> Any:
    if name in WORDS:
        return WORDS[name]
    raise AttributeError(f"module 'pliant.language' has no attribute {name!r}")

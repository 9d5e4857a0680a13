"""Microseconds per symbolic construction and query, first time and repeated.

python bench/sym_queries.py
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from itertools import count

from pliant.sym.expr import ceildiv, minimum, var
from pliant.sym.facts import Facts

ROUNDS = 2000

n, m, k = var("n"), var("m"), var("k")
fresh = count()


def scene() -> Facts:
    facts = Facts()
    facts.declare("n", min=1, max=4096)
    facts.declare("m", min=1, multiple=16)
    facts.declare("k", min=1)
    facts.declare_index("i", n)
    facts.declare_index("j", 16)
    facts.declare_index("t", ceildiv(n, 16))
    return facts


def case(name: str, first: Callable[[int], object], again: Callable[[int], object]) -> None:
    """`first` must do new work for each number it gets; `again` repeats one piece of work."""
    rows = []
    for body in (first, again):
        again(0)
        start = time.perf_counter()
        for at in range(ROUNDS):
            body(at)
        rows.append((time.perf_counter() - start) / ROUNDS * 1e6)
    print(f"{name:34s} {rows[0]:9.2f} {rows[1]:9.2f}")


def both(name: str, work: Callable[[int], object]) -> None:
    case(name, lambda at: work(1000 + next(fresh)), lambda at: work(7))


def main() -> None:
    i, j, t = var("i"), var("j"), var("t")
    facts = scene()
    gc.disable()
    print(f"{'microseconds':34s} {'new':>9s} {'repeated':>9s}")
    both("var + const", lambda c: n + c)
    both("linear sum of three", lambda c: n * c + m + c)
    both("product of sums", lambda c: (n + c) * (m + c))
    both("index  (i*n + j)*c + t", lambda c: (i * n + j) * c + t)
    both("divide by constant", lambda c: (16 * i + j + c) // 16)
    both("divide by symbol", lambda c: (i * n + j + c) // n)
    both("recombine quotient and remainder", lambda c: (i + c) // n * n + (i + c) % n)
    both("minimum", lambda c: minimum(16, n - 16 * t + c))
    both("substitute", lambda c: (i * n + j).subs({"i": c}))
    both("bounds, ranges", lambda c: facts.bounds(n * c + 3 * j))
    both("bounds, relation", lambda c: facts.bounds(n * c - i * c))
    both("equal, same", lambda c: facts.equal(n * c + j, j + c * n))
    both("equal, no", lambda c: facts.equal(n * c, k + j))
    both("lt, index in range", lambda c: facts.lt(i * c + j, n * c + 16))
    both("lt, tile in range", lambda c: facts.lt(16 * t * c, n * c))
    both("nonneg, not provable", lambda c: facts.nonneg(k * c - i * n - j))
    both("divisible", lambda c: facts.divisible(m * c, 16))
    both("simplify, sum", lambda c: facts.simplify(i * n + j * c))
    both("simplify, (q*n + i)//n", lambda c: facts.simplify((c * k * n + i) // n))
    both("simplify, (16*t + j)//64", lambda c: facts.simplify((16 * (t + 4 * c) + j) // 64))
    both("copy and declare an index", lambda c: facts.copy().declare_index("u", n))


if __name__ == "__main__":
    sys.exit(main())

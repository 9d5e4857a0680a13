"""Checks that make the sizes of a host function exact: nothing overflows, nothing divides by 0.

    4*batch*seq**2 + seq//heads    ->    check(1 <= heads, …)
                                         check(f64(batch) * f64(seq) * f64(seq) <= 2**50 / 4, …)

Host code computes with 64-bit integers that wrap. A size that wrapped would place a buffer too
small for what is written to it, so every product is tried in floating point before it is used.
Anything above 2**50, be it bytes or elements, is more than a process can address; and a sum of
thousands of terms below that does not wrap.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pliant.base.dtypes import f64
from pliant.base.errors import ResourceError
from pliant.ir.expr import Binary, Cast, Expr, Index, Unary, const
from pliant.loop.stmt import Check, Stmt
from pliant.sym.atoms import Atom, DivAtom, Factors, MaxAtom, MinAtom, ModAtom, VarAtom
from pliant.sym.expr import Int, as_int, rebuild_atom, var
from pliant.sym.facts import Facts

LARGEST: Final = 1 << 50
LONGEST: Final = 1 << 12  # terms of a sum


def guards(sizes: Iterable[Int], ranges: Facts) -> list[Stmt]:
    """The checks that these sizes need, given the ranges of their symbols.

    Raises ResourceError for sizes that are too large for every call.
    """
    found = _Guards(ranges)
    for size in sizes:
        if size.is_const and abs(size.value) > LARGEST:
            raise ResourceError(
                f"the model needs a size of {size.value} elements or bytes, more than 2**50; "
                "that is beyond every machine's memory"
            )
        found.visit(size)
    products = [found.product(factors, c) for factors, c in found.coefficients.items()]
    return [*found.divisors.values(), *(p for p in products if p is not None)]


class _Guards:
    def __init__(self, ranges: Facts) -> None:
        self.ranges = ranges
        self.divisors: dict[Int, Stmt] = {}  # in order: a divisor's own divisors come first
        self.coefficients: dict[Factors, int] = {}  # the largest of each product of atoms
        self._seen: set[Int] = set()

    def visit(self, x: Int) -> None:
        if x in self._seen:
            return
        self._seen.add(x)
        terms = list(x.terms())
        if len(terms) > LONGEST or any(abs(c) > 1 << 62 for c, _ in terms):
            raise ResourceError("a size in the model is too large to compute with")
        for coefficient, factors in terms:
            for atom, _ in factors:
                self._visit_atom(atom)
            if factors:
                known = self.coefficients.get(factors, 0)
                self.coefficients[factors] = max(known, abs(coefficient))

    def _visit_atom(self, atom: Atom) -> None:
        match atom:
            case DivAtom(num, den) | ModAtom(num, den):
                self.visit(den)
                if den not in self.divisors and not self.ranges.positive(den):
                    cond = Binary("le", Index(as_int(1)), Index(den))
                    text = f"{den} must be at least 1 here, got {{0}}: the model divides by it"
                    self.divisors[den] = Check(cond, "ShapeError", text, (Index(den),))
                self.visit(num)
            case MinAtom(args) | MaxAtom(args):
                for a in args:
                    self.visit(a)
            case VarAtom():
                pass

    def product(self, factors: Factors, coefficient: int) -> Stmt | None:
        """The check of coefficient times a product of atoms; None where it cannot be too large."""
        parts = [rebuild_atom(a, lambda x: x) for a, power in factors for _ in range(power)]
        if len(parts) == 1 and coefficient == 1:
            return None
        if self._largest(parts) * coefficient <= LARGEST:
            return None
        total: Expr = self._float(parts[0])
        for part in parts[1:]:
            total = Binary("mul", total, self._float(part))
        whole = as_int(coefficient)
        for part in parts:
            whole = whole * part
        names = sorted(whole.names)
        told = ", ".join(f"{n} = {{{k}}}" for k, n in enumerate(names))
        text = f"the call is too large: {whole} is more than 2**50, with {told}; use smaller inputs"
        limit = const(float(LARGEST // coefficient), f64)
        return Check(
            Binary("le", total, limit), "ResourceError", text, tuple(Index(var(n)) for n in names)
        )

    def _largest(self, parts: Iterable[Int]) -> float:
        product = 1.0
        for part in parts:
            low, high = self.ranges.bounds(part)
            if low is None or high is None:
                return float("inf")
            product *= max(abs(low), abs(high))
        return product

    def _float(self, x: Int) -> Expr:
        value = Cast(f64, Index(x))
        return value if self.ranges.nonneg(x) else Unary("abs", value)

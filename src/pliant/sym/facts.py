"""What is known of symbolic integers, and what follows from it.

    facts = Facts()
    facts.declare("n", min=1, max=4096, multiple=16)
    facts.declare_index("i", ceildiv(n, 16))           0 <= i < ceildiv(n, 16)
    facts.assume_equal(m, 2*n)
    facts.lt(16*i, n)                                  True
    facts.simplify((n*k + i)//n)                       k + i//n

Answers are sound: True means "for all values that satisfy the facts". They are not complete: False
means "not proved", and None "no bound found"; a query never raises. Variables that were not
declared may be any integer. Facts that contradict each other in plain sight raise
`ContradictionError`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import reduce
from math import gcd, lcm
from operator import mul
from typing import Final

from pliant.sym.atoms import (
    ONE,
    DivAtom,
    MaxAtom,
    MinAtom,
    ModAtom,
    VarAtom,
    common,
    monomial,
)
from pliant.sym.cases import by_cases
from pliant.sym.divide import exact_quotient
from pliant.sym.expr import Int, IntLike, as_int, const, var
from pliant.sym.intervals import interval
from pliant.sym.prove import lower, nonneg
from pliant.sym.simplify import canonical, exact, simplify
from pliant.sym.store import Dim, FactStore, Interval, Rule

FEW: Final = 4  # terms of an extreme that are worth a fact each: proofs look at all that there are


class ContradictionError(ValueError):
    """A fact cannot hold together with those already assumed."""


class Facts:
    """A growing set of facts. Give each scope its own with `copy`."""

    __slots__ = ("_store",)

    def __init__(self) -> None:
        self._store = FactStore()

    def copy(self) -> Facts:
        """An independent set with the same facts."""
        new = Facts()
        new._store = self._store.copy()
        return new

    # ---- assuming

    def define(self, name: str, value: IntLike, *, relations: bool = True) -> None:
        """`name`, of which nothing was known, is `value`: its range is known from now on and, with
        `relations`, the bounds that a quotient, a remainder or an extreme of few has. Unlike
        `assume_equal` it replaces the name nowhere, so that what is asked of it stays short."""
        x, this = as_int(value), var(name)
        low, high = interval(self._store, x)
        self.declare(name, min=low, max=high)
        known: list[Int] = []
        match x.sole_atom if relations else None:
            case DivAtom(num, den):
                known = [num - den * this]
            case ModAtom(_, den) if not den.is_const:
                known = [den - this - 1]
            case MinAtom(args) if len(args) <= FEW:
                known = [arg - this for arg in args]
            case MaxAtom(args) if len(args) <= FEW:
                known = [this - arg for arg in args]
        # No proof that they follow is looked for: nothing else is known of the name. What says
        # something of it alone is in its range; code that is written twice defines it again.
        store = self._store
        facts = map(self.simplify, known)
        new = [fact for fact in facts if len(fact.names) > 1 and fact not in store.nonneg]
        if new:
            store.nonneg += new
            store.forget_about(name)

    def declare(
        self,
        name: str,
        min: int | None = 0,
        max: IntLike | None = None,
        multiple: int = 1,
        likely: Iterable[int] = (),
        unit: int = 1,
    ) -> None:
        """A dimension: its range (both ends included), a divisor, values to expect, and of how many
        times the variable a size is, where that is always the same (for what to expect of it).

        Declaring a name again replaces what was declared of it, not what was assumed since.
        """
        store = self._store
        upper = as_int(max).subs(store.values) if isinstance(max, Int | int) else None
        known = upper.value if upper is not None and upper.is_const else None
        upper = None if known is not None else upper
        dim = Dim(likely=tuple(likely), unit=unit).within(min, known, multiple)
        if dim == store.dims.get(name) and upper is store.uppers.get(name):
            return  # nothing is replaced: as of a loop that is gone through again
        is_new = store.is_new(name)
        store.put(name, dim)
        store.uppers.pop(name, None)
        if upper is not None:
            store.uppers[name] = upper
        if is_new:
            store.forget_about(name)
        else:
            store.forget_all()
        if name in store.values:
            self._inherit(store.values[name], store.dims[name], store.uppers.pop(name, None))

    def declare_index(self, name: str, extent: IntLike) -> None:
        """A loop variable, 0 <= name < extent; nothing follows for extent, loops may be empty."""
        self.declare(name, min=0, max=as_int(extent) - 1)

    def assume_equal(self, a: IntLike, b: IntLike) -> None:
        """a == b. Solved for the variable declared last, where one can be solved for."""
        a, b = self.simplify(a), self.simplify(b)
        self._assume_bounded(a, b)
        self._assume_bounded(b, a)
        zero = self._reduced(self.simplify(a) - self.simplify(b))
        if zero.is_const:
            if zero.value:
                raise ContradictionError(f"{a} cannot equal {b}")
            return
        atom = zero.sole_atom
        name = self._solvable(zero)
        if isinstance(atom, ModAtom):
            self.assume_divisible(atom.num, atom.den)
        elif name is not None:
            self._solve(zero, name)
            return
        elif zero.flags:
            # Rewriting with an equation between quotients might not end, but it can prove.
            self._store.nonneg += [zero, -zero]
        else:
            (lead, coefficient), *_ = zero.pairs
            signed = zero if coefficient > 0 else -zero
            rest = signed.make({lead: abs(coefficient)}) - signed
            self._store.rules.append(Rule(lead, abs(coefficient), rest))
            self.assume_divisible(rest, abs(coefficient))
        self._store.forget()

    def assume_product_equal(self, xs: Iterable[IntLike], ys: Iterable[IntLike]) -> None:
        """The products are equal, as of the shapes before and after a reshape."""
        self.assume_equal(_product(xs), _product(ys))

    def assume_divisible(self, a: IntLike, k: IntLike) -> None:
        """a is a multiple of k, which is at least 1."""
        x, by = self.simplify(a), self.simplify(k)
        if by.is_const and by.value < 1:
            raise ValueError(f"the divisor must be at least 1, not {by}")
        if x.is_const and by.is_const and x.value % by.value:
            raise ContradictionError(f"{x} is not divisible by {by}")
        if self.divisible(x, by):
            return
        (mono, coefficient), *others = x.pairs
        if by.is_const and not others and isinstance(mono.atom, VarAtom):
            name = mono.atom.name
            dim = self._store.dim(name)
            multiple = lcm(dim.multiple, by.value // gcd(coefficient, by.value))
            self._store.put(name, dim.within(None, None, multiple))
        else:
            self._store.multiples.append((x, by))
        self._store.forget()

    def assume_le(self, a: IntLike, b: IntLike) -> None:
        """a <= b."""
        self._assume_nonneg(self.simplify(b) - self.simplify(a), f"{a} <= {b}")

    def assume_lt(self, a: IntLike, b: IntLike) -> None:
        """a < b."""
        self._assume_nonneg(self.simplify(b) - self.simplify(a) - 1, f"{a} < {b}")

    # ---- asking

    def simplify(self, x: IntLike) -> Int:
        """An equal expression, as simple as the facts allow."""
        return simplify(self._store, as_int(x))

    def settle(self, x: IntLike) -> Int:
        """The same; where minima and maxima matter for the least value of a variable alone, without
        these. For sizes, of which others are made."""
        return by_cases(self._store, as_int(x))

    def bounds(self, x: IntLike) -> Interval:
        """(least, greatest) value that x can have; None where no bound was found."""
        written = as_int(x)
        x = self.simplify(written)
        if x.is_const:
            return x.value, x.value
        low, high = interval(self._store, x)
        if x is not written:  # min(14, y) is simply y where y <= 14, but that is harder to see
            least, most = interval(self._store, written)
            low = least if low is None else low if least is None else max(low, least)
            high = most if high is None else high if most is None else min(high, most)
        if low is None or high is None or len(x.pairs) > 1 or x.flags:
            better = lower(self._store, x)
            most = lower(self._store, -x)
            low = better if low is None else low if better is None else max(low, better)
            high = high if most is None else -most if high is None else min(high, -most)
        return low, high

    def range_of(self, name: str) -> Interval:
        """(least, greatest) value of a variable."""
        return self.bounds(var(name))

    def likely(self, name: str) -> tuple[int, ...]:
        """Values that a variable is expected to have, best first."""
        return self._store.dim(name).likely

    def unit_of(self, name: str) -> int:
        """Of how many times the variable a size is."""
        return self._store.dim(name).unit

    def multiple_of(self, name: str) -> int:
        """The greatest number known to divide a variable."""
        return self._store.dim(name).multiple

    def equal(self, a: IntLike, b: IntLike) -> bool:
        """Whether a == b is proved."""
        a, b = as_int(a), as_int(b)
        if a is b:
            return True
        difference = self.simplify(a - b)
        if difference.is_const:
            return difference.value == 0
        if canonical(self._store, difference) == 0:
            return True
        scale = lcm(*(rule.coefficient for rule in self._store.rules))
        if scale > 1 and self.simplify(difference * scale) == 0:
            return True
        return nonneg(self._store, difference) and nonneg(self._store, -difference)

    def divisible(self, a: IntLike, k: IntLike) -> bool:
        """Whether a is proved a multiple of k, which is at least 1."""
        x, by = self.simplify(a), self.simplify(k)
        if by.is_const and by.value < 1:
            return False
        if self.simplify(x % by) == 0:
            return True
        return canonical(self._store, x) % canonical(self._store, by) == 0

    def nonneg(self, a: IntLike) -> bool:
        """Whether a >= 0 is proved."""
        x = self.simplify(a)
        return x.value >= 0 if x.is_const else nonneg(self._store, x)

    def positive(self, a: IntLike) -> bool:
        """Whether a >= 1 is proved."""
        return self.nonneg(as_int(a) - 1)

    def le(self, a: IntLike, b: IntLike) -> bool:
        """Whether a <= b is proved."""
        return self.nonneg(as_int(b) - a)

    def lt(self, a: IntLike, b: IntLike) -> bool:
        """Whether a < b is proved."""
        return self.nonneg(as_int(b) - a - 1)

    # ---- the work of assuming

    def _reduced(self, zero: Int) -> Int:
        """Divide an equation by its content and by common factors that are at least 1."""
        if not zero.pairs:
            return zero
        shared = reduce(common, (mono for mono, _ in zero.pairs))
        for atom, _ in shared.factors:
            factor = zero.make({monomial(((atom, 1),)): 1})
            while self.positive(factor) and (less := exact_quotient(zero, factor)) is not None:
                zero = less
        return exact(zero, const(gcd(*(c for _, c in zero.pairs))))

    def _solvable(self, zero: Int) -> str | None:
        """The last declared variable that occurs once, with coefficient 1 or -1."""
        order = self._store.order
        best: tuple[int, str] | None = None
        for mono, coefficient in zero.pairs:
            if abs(coefficient) != 1 or not isinstance(mono.atom, VarAtom):
                continue
            name = mono.atom.name
            if sum(name in other.names for other, _ in zero.pairs) == 1:
                key = (order.get(name, len(order)), name)
                best = key if best is None else max(best, key)
        return best[1] if best else None

    def _assume_bounded(self, extreme: Int, value: Int) -> None:
        """Of max(…) == value no argument is more, of min(…) == value none is less."""
        match extreme.sole_atom:
            case MaxAtom(args):
                for arg in args:
                    self.assume_le(arg, value)
            case MinAtom(args):
                for arg in args:
                    self.assume_le(value, arg)

    def _solve(self, zero: Int, name: str) -> None:
        """Replace a variable by its value in all facts."""
        store = self._store
        solved = zero.linear(name)
        assert solved is not None
        slope, rest = solved
        value = -rest * slope
        if store.is_new(name):  # a mere abbreviation
            store.values[name] = value
            store.forget_about(name)
            return
        replaced = {name: value}
        upper = store.uppers.pop(name, None)
        store.values = {key: old.subs(replaced) for key, old in store.values.items()}
        store.values[name] = value
        store.uppers = {key: old.subs(replaced) for key, old in store.uppers.items()}
        rules, store.rules = store.rules, []
        pending, store.nonneg = store.nonneg, []
        multiples, store.multiples = store.multiples, []
        store.forget()
        for rule in rules:
            self.assume_equal(rule.coefficient * rule.rest.make({rule.lead: 1}), rule.rest)
        self._inherit(value, store.dim(name), upper)
        for fact in pending:
            self.assume_le(0, fact)
        for x, by in multiples:
            self.assume_divisible(x, by)
        store.forget()

    def _inherit(self, value: Int, dim: Dim, upper: Int | None) -> None:
        """What was known of a solved variable holds of its value."""
        if dim.min is not None:
            self.assume_le(dim.min, value)
        if dim.max is not None:
            self.assume_le(value, dim.max)
        if upper is not None:
            self.assume_le(value, upper)
        self.assume_divisible(value, dim.multiple)
        self._expect(value, dim.likely)

    def _expect(self, value: Int, likely: tuple[int, ...]) -> None:
        atom = value.sole_atom
        if isinstance(atom, VarAtom) and likely:
            dim = self._store.dim(atom.name)
            if not dim.likely:
                self._store.dims[atom.name] = replace(dim, likely=likely)

    def _assume_nonneg(self, x: Int, claim: str) -> None:
        if x.is_const:
            if x.value < 0:
                raise ContradictionError(f"{claim} cannot hold")
            return
        if self.nonneg(x):
            return
        x = _tightened(x)
        (mono, coefficient), *others = x.pairs
        offset = x.subs(dict.fromkeys(x.names, 0)) if not x.flags else None
        if isinstance(mono.atom, VarAtom) and (not others or others[0][0] is ONE):
            assert offset is not None
            self._narrow(mono.atom.name, coefficient, offset.value)
            self._store.forget()
            return
        inside = self._inside(x)
        for part in inside:
            self._assume_nonneg(self.simplify(part), claim)
        if not inside or not self.nonneg(x):
            self._store.nonneg.append(x)
            self._store.forget()

    def _inside(self, x: Int) -> list[Int]:
        """What x >= 0 says of what a quotient or an extreme is made of, where there is but one:
        n//20 - 4 >= 0 is n - 80 >= 0, and so is max(3, n//20) - 4 >= 0."""
        rest = dict(x.pairs)
        offset = rest.pop(ONE, 0)
        ((mono, sign),) = rest.items() if len(rest) == 1 else ((ONE, 0),)
        least = -offset if sign == 1 else None  # of the atom
        most = offset if sign == -1 else None
        match mono.atom:
            case DivAtom(num, den) if den.is_const and least is not None:
                return [num - least * den]
            case DivAtom(num, den) if den.is_const and most is not None:
                return [(most + 1) * den - 1 - num]
            case MaxAtom(args) if most is not None:
                return [most - arg for arg in args]
            case MinAtom(args) if least is not None:
                return [arg - least for arg in args]
            case MaxAtom(args) if least is not None:
                large = [arg for arg in args if not self.lt(arg, least)]
                return [arg - least for arg in large] if len(large) == 1 else []
            case MinAtom(args) if most is not None:
                small = [arg for arg in args if not self.lt(most, arg)]
                return [most - arg for arg in small] if len(small) == 1 else []
        return []

    def _narrow(self, name: str, coefficient: int, offset: int) -> None:
        """Use coefficient*name + offset >= 0, where the coefficient is 1 or -1."""
        dim = self._store.dim(name)
        if coefficient > 0:
            tight = dim.within(-offset, None, dim.multiple)
        else:
            tight = dim.within(None, offset, dim.multiple)
        self._store.put(name, tight)


def _tightened(x: Int) -> Int:
    """g y + c >= 0 is y + floor(c / g) >= 0 where y is whole: 4 n m - 1 >= 0 is n m - 1 >= 0."""
    common = gcd(*(coefficient for mono, coefficient in x.pairs if mono is not ONE))
    return x.make({mono: coefficient // common for mono, coefficient in x.pairs})


def _product(xs: Iterable[IntLike]) -> Int:
    return reduce(mul, map(as_int, xs), const(1))

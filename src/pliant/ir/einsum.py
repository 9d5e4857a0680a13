"""Reductions in one form: O[…] ⊕= f(I1[…], I2[…]).

    y[n, o, p] = sum over c, k of (inside ? x[n, c, p + k] : 0) * w[o, c, k]

    outer  n o p     inner  c k     combiner  sum     term  (inside ? x[…] : 0) * w[…]

What computes the same but for the names of iterators and operands, and the shapes, has the same
form: a product of any kind, a hardware instruction, a library's function. `ir.mapping` compares
two of them. (TensorIR, ASPLOS'23, section 4.2; without its restriction to plain indices.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pliant.ir.expr import Axis, Binary, Expr, Index, Reduce, Select, const
from pliant.ir.tensor import Compute, Tensor, own_nodes
from pliant.sym.expr import var


class NoEinsum(Exception):  # noqa: N818  (a result, not a failure)
    """Why something is not of this form."""


@dataclass(frozen=True)
class Einsum:
    """`label[…] combiner= term` for all values of the iterators.

    `outer` iterators index the output, which lies in memory with those of `order` from outermost
    to innermost; `inner` ones are reduced over. With a `guard`, a term is the combiner's identity
    where that does not hold. `begins`: the output is overwritten, not added to. `at` is where an
    element of the output is, in terms of `outer`.
    """

    label: str
    outer: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    combiner: str
    term: Expr
    at: tuple[Expr, ...]
    order: tuple[str, ...]
    guard: Expr | None = None
    begins: bool = True

    @property
    def extents(self) -> dict[str, Axis]:
        """The iterators by name, outer ones first."""
        return {a.var: a for a in (*self.outer, *self.inner)}


def einsum_of(tensor: Tensor, order: Sequence[int] | None = None) -> Einsum:
    """The form of a comprehension with a reduction, whose dimensions lie in memory in `order`
    (None: row-major). Raises NoEinsum."""
    if not isinstance(tensor, Compute) or not isinstance(tensor.body, Reduce):
        raise NoEinsum(f"{tensor.name} is no reduction")
    body = tensor.body
    names = [a.var for a in tensor.axes]
    term, guard = split_guard(body.combiner, body.body)
    return Einsum(
        tensor.name, tensor.axes, body.axes, body.combiner, term,
        tuple(Index(var(name)) for name in names),
        tuple(names if order is None else (names[d] for d in order)), guard,
    )  # fmt: skip


def split_guard(combiner: str, term: Expr) -> tuple[Expr, Expr | None]:
    """The term of a sum without the condition that it is not zero."""
    if combiner == "sum" and isinstance(term, Select) and term.b is const(0, term.dtype):
        return term.a, term.cond
    return term, None


def product_factors(tensor: Compute) -> tuple[Expr, Expr] | None:
    """What a sum of products multiplies; None for what is none."""
    match tensor.body:
        case Reduce("sum", _, Binary("mul", a, b)):
            return a, b
    return None


def product_sides(tensor: Compute) -> tuple[frozenset[str], ...]:
    """The output axes that each factor of a product of matrices has, whatever is done to elements
    before they are multiplied; empty for what is none."""
    factors = product_factors(tensor)
    if factors is None:
        return ()
    outer = {a.var for a in tensor.axes}
    rows, columns = (names_in(side) & outer for side in factors)
    return (rows, columns) if rows - columns and columns - rows else ()


def names_in(x: Expr) -> frozenset[str]:
    """The iterators and sizes in the indices of an expression."""
    names: frozenset[str] = frozenset()
    for node in own_nodes(x):
        if isinstance(node, Index):
            names |= node.int_.names
    return names

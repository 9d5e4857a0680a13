"""3 x 3 convolutions by fewer products: Winograd's minimal filtering F(step x step, 3 x 3).

    V = B^T d B                 of each patch of x, so many steps apart       winograd_patches
    U = G g G^T                 of each 3 x 3 filter                          winograd_filters
    M = U V                     a matrix product for each place of a patch    winograd_products
    Y = A^T M A                 step x step results from each patch           winograd_results

With patches of 6 x 6, 36 products for the 4 x 4 results where a convolution has 144; of 4 x 4,
16 for 2 x 2 where it has 36 (Lavin and Gray, Fast Algorithms for Convolutional Neural Networks,
CVPR 2016, section 4). The matrices follow from points at which polynomials are multiplied (Toom
and Cook). Of four points with short fractions these have the least errors, half of those of 1, -1,
2 and -2: in f32 about twice those of the sum of products. (How points matter: Barabasz et al.,
Error Analysis and Improving the Accuracy of Winograd Convolution, ACM TOMS 2020.) What B and A
multiply by are numbers of f32, exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from math import prod
from typing import Final

from pliant.base.errors import ShapeError
from pliant.graph.operator import Operator
from pliant.ir.expr import Expr, as_expr
from pliant.ir.tensor import Tensor, all_of, compute, reduce, select, within
from pliant.ops.common import check_rank, equal
from pliant.ops.window import Pads, windows
from pliant.sym.expr import Int, IntLike, ceildiv

Factors = Sequence[Fraction]
Matrix = Sequence[Factors]


@dataclass(frozen=True)
class Filtering:
    """The matrices for `step` results of a patch in each direction, as products of others."""

    step: int
    patches: tuple[Matrix, ...]  # B^T
    filters: tuple[Matrix, ...]  # G
    results: tuple[Matrix, ...]  # A^T

    @property
    def patch(self) -> int:
        """Elements of a patch in each direction."""
        return self.step + 2


def _filtering(*positive: Fraction) -> Filtering:
    """Through 0, these points, their negatives, and infinity.

    Polynomials at p and -p are the sum and the difference of their even and odd terms: these are
    computed once for both."""
    points = [Fraction(0), *(x for p in positive for x in (p, -p))]
    step = len(points) - 1

    def others(point: Fraction) -> list[Fraction]:
        return [p for p in points if p != point]

    def powers(count: int) -> list[list[Fraction]]:
        """So many powers of each point, and of infinity: of that the last is 1, others are 0."""
        return [
            *([p**k for k in range(count)] for p in points),
            [Fraction(k == count - 1) for k in range(count)],
        ]

    # From the polynomials through all points but one, and through all.
    patches = [*([*_through(others(p)), Fraction(0)] for p in points), _through(points)]
    # A filter's values at the points, over what those polynomials have there.
    filters = [
        [x / prod(p - q for q in others(p)) for x in row]
        for p, row in zip(points, powers(3), strict=False)
    ]
    pairs = [[Fraction(i == k) for k in range(step + 2)] for i in range(step + 2)]
    for k in range(1, step, 2):
        pairs[k][k + 1] = Fraction(1)
        pairs[k + 1][k : k + 2] = [Fraction(1), Fraction(-1)]
    return Filtering(
        step,
        (pairs, _halves(patches)),
        ([*filters, powers(3)[-1]],),
        (tuple(zip(*_halves(powers(step)), strict=True)), pairs),
    )


def _halves(rows: Matrix) -> Matrix:
    """Half the sum and half the difference of every two rows between the first and the last."""
    found = list(rows)
    for k in range(1, len(rows) - 1, 2):
        both = list(zip(rows[k], rows[k + 1], strict=True))
        found[k : k + 2] = [(x + y) / 2 for x, y in both], [(x - y) / 2 for x, y in both]
    return found


def _through(points: Sequence[Fraction]) -> list[Fraction]:
    """The coefficients, that of the least power first, of the polynomial that is 0 there."""
    found = [Fraction(1)]
    for p in points:
        found = [
            a - p * b for a, b in zip([Fraction(0), *found], [*found, Fraction(0)], strict=True)
        ]
    return found


FILTERINGS: Final[Mapping[int, Filtering]] = {
    f.step: f
    for f in (
        _filtering(Fraction(1)),
        _filtering(Fraction(5, 8), Fraction(3, 2)),
    )
}
"""By their steps."""


def winograd_patches(x: Tensor, *, pads: Pads, step: int = 4) -> Tensor:
    """V[n, p, a, b, q, c]: x [N, C, H, W] in patches that begin `step` (2 or 4) apart, with zeros
    in the padding and where the last patch goes beyond; each multiplied by B^T from both sides."""
    f = _of_step(step)
    box = windows(x, (3, 3), (1, 1), pads)

    def body(n: Int, p: Int, a: Int, b: Int, q: Int, c: Int) -> Expr:
        def at(i: int, j: int) -> Expr:
            position = (p * step + i - box.pads[0][0], q * step + j - box.pads[1][0])
            inside = all_of([within(*pair) for pair in zip(position, x.shape[2:], strict=True)])
            return select(inside, x[(n, c, *position)], as_expr(0, x.dtype))

        return _both_sides(f.patches, a, b, at)

    rows, columns = (ceildiv(count, step) for count in box.counts())
    shape = (x.shape[0], rows, f.patch, f.patch, columns, x.shape[1])
    return compute(shape, body, "winograd_patches", box.fit())


def winograd_filters(w: Tensor, *, step: int = 4) -> Tensor:
    """U[a, b, c, o] of filters w [O, C, 3, 3]: each multiplied by G from one side, then from the
    other."""
    f = _of_step(step)
    check_rank(w, 4, "weight")
    outputs, channels = w.shape[:2]
    sums = _sums(f.filters)

    def left(a: Int, j: Int, c: Int, o: Int) -> Expr:
        return _chosen(a, sums, lambda row: row(lambda i: w[o, c, i, j]))

    half = compute((f.patch, w.shape[3], channels, outputs), left, "winograd_filters_half")

    def right(a: Int, b: Int, c: Int, o: Int) -> Expr:
        return _chosen(b, sums, lambda row: row(lambda j: half[a, j, c, o]))

    message = "Winograd's filters are 3 x 3"
    requires = equal(w.shape[2], 3, message) + equal(w.shape[3], 3, message)
    return compute((f.patch, f.patch, channels, outputs), right, "winograd_filters", requires)


def winograd_products(v: Tensor, u: Tensor) -> Tensor:
    """M[n, p, a, b, q, o]: the product over channels at each place (a, b) of patches."""

    def body(n: Int, p: Int, a: Int, b: Int, q: Int, o: Int) -> Expr:
        return reduce("sum", (v.shape[5],), lambda c: v[n, p, a, b, q, c] * u[a, b, c, o])

    message = f"patches have {v.shape[5]} channels, filters {u.shape[2]}"
    requires = equal(v.shape[5], u.shape[2], message)
    return compute((*v.shape[:5], u.shape[3]), body, "winograd_products", requires)


def winograd_results(m: Tensor, *, height: IntLike, width: IntLike, last: bool = False) -> Tensor:
    """y [N, O, height, width], or with channels `last`: results of each patch of m, which is
    multiplied by A^T and A."""
    check_rank(m, 6, "products")
    f = _of_step(m.shape[2].value - 2 if m.shape[2].is_const else 0)
    step = f.step

    def body(n: Int, *place: Int) -> Expr:
        h, w, o = place if last else (*place[1:], place[0])

        def at(i: int, j: int) -> Expr:
            return m[n, h // step, i, j, w // step, o]

        return _both_sides(f.results, h % step, w % step, at)

    sides = (height, width, m.shape[5]) if last else (m.shape[5], height, width)
    return compute((m.shape[0], *sides), body, "winograd_results")


def _of_step(step: int) -> Filtering:
    if step not in FILTERINGS:
        raise ShapeError(f"Winograd's filtering has steps of {' or '.join(map(str, FILTERINGS))}")
    return FILTERINGS[step]


Term = Callable[[int], Expr]
Row = Callable[[Term], Expr]
"""What a row of a matrix makes of a vector."""
Terms = Sequence[tuple[int, float]]
"""The places and factors of a row's terms that are not 0; what is subtracted comes last."""
Sums = Sequence[Sequence[Terms]]
"""Matrices, each row as its terms."""


def _both_sides(matrices: Sequence[Matrix], a: Int, b: Int, at: Callable[[int, int], Expr]) -> Expr:
    """Element (a, b) of matrix x values x matrix^T."""
    at = cache(at)  # the rows have many elements in common
    sums = _sums(matrices)

    def row(left: Row) -> Expr:
        column = cache(lambda j: left(lambda i: at(i, j)))
        return _chosen(b, sums, lambda right: right(column))

    return _chosen(a, sums, row)


def _chosen(index: Int, matrices: Sums, of: Callable[[Row], Expr]) -> Expr:
    """What is made of the row of that index of the matrices' product."""
    last = len(matrices[0]) - 1
    value = of(partial(_times, matrices, last))
    for k in reversed(range(last)):
        value = select(as_expr(index).eq(k), of(partial(_times, matrices, k)), value)
    return value


def _sums(matrices: Sequence[Matrix]) -> Sums:
    return [[_terms(row) for row in matrix] for matrix in matrices]


def _terms(factors: Factors) -> Terms:
    found = [(k, float(f)) for k, f in enumerate(factors) if f != 0]
    return sorted(found, key=lambda term: term[1] < 0)


def _times(matrices: Sums, row: int, term: Term) -> Expr:
    """The row of the matrices' product times a vector."""
    first, *rest = matrices
    return _sum(first[row], (lambda k: _times(rest, k, term)) if rest else term)


def _sum(terms: Terms, term: Term) -> Expr:
    total: Expr | None = None
    for k, factor in terms:
        size = term(k)
        if abs(factor) != 1:
            size = size * as_expr(abs(factor), size.dtype)
        if total is None:
            total = size if factor > 0 else -size
        else:
            total = total + size if factor > 0 else total - size
    assert total is not None
    return total


WINOGRAD: Final[tuple[Operator, ...]] = (
    Operator("winograd_patches", winograd_patches),
    Operator("winograd_filters", winograd_filters),
    Operator("winograd_products", winograd_products),
    Operator("winograd_results", winograd_results),
)

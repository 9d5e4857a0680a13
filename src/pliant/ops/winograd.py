"""3 x 3 convolutions by fewer products: Winograd's minimal filtering F(4 x 4, 3 x 3).

    V = B^T d B                 of each 6 x 6 patch of x, four apart          winograd_patches
    U = G g G^T                 of each 3 x 3 filter                          winograd_filters
    M = U V                     36 matrix products over channels              winograd_products
    Y = A^T M A                 4 x 4 results from each patch                 winograd_results

36 products for 16 results where a convolution has 144 (Lavin and Gray, Fast Algorithms for
Convolutional Neural Networks, CVPR 2016, section 4.3). The matrices follow from points at which
polynomials are multiplied (Toom and Cook). Of points with short fractions these have the least
errors, half of those of 1, -1, 2 and -2: in f32 about twice those of the sum of products. (How
points matter: Barabasz et al., Error Analysis and Improving the Accuracy of Winograd Convolution,
ACM TOMS 2020.) What B and A multiply by are numbers of f32, exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import prod
from typing import Final

from pliant.graph.operator import Operator
from pliant.ir.expr import Expr, as_expr
from pliant.ir.tensor import Tensor, all_of, compute, reduce, select, within
from pliant.ops.common import check_rank, equal
from pliant.ops.window import Pads, windows
from pliant.sym.expr import Int, IntLike, ceildiv

STEP: Final = 4  # results of a patch in each direction
PATCH: Final = 6

POINTS: Final = (Fraction(0), Fraction(5, 8), Fraction(-5, 8), Fraction(3, 2), Fraction(-3, 2))

Factors = Sequence[Fraction]
Matrix = Sequence[Factors]


def _through(points: Sequence[Fraction]) -> list[Fraction]:
    """The coefficients, that of the least power first, of the polynomial that is 0 there."""
    found = [Fraction(1)]
    for p in points:
        found = [
            a - p * b for a, b in zip([Fraction(0), *found], [*found, Fraction(0)], strict=True)
        ]
    return found


def _powers(count: int) -> list[list[Fraction]]:
    """So many powers of each point, and of infinity, of which the last is 1 and others are 0."""
    last = [Fraction(k == count - 1) for k in range(count)]
    return [*([p**k for k in range(count)] for p in POINTS), last]


def _others(point: Fraction) -> list[Fraction]:
    return [p for p in POINTS if p != point]


PATCHES: Final = (*([*_through(_others(p)), Fraction(0)] for p in POINTS), _through(POINTS))
"""B^T: from the polynomial through all points but one."""

FILTERS: Final = (
    *(
        [x / prod(p - q for q in _others(p)) for x in row]
        for p, row in zip(POINTS, _powers(3), strict=False)
    ),
    _powers(3)[-1],
)
"""G: a filter's values at the points, over what B's polynomials have there."""

RESULTS: Final = tuple(zip(*_powers(STEP), strict=True))
"""A^T."""


def winograd_patches(x: Tensor, *, pads: Pads) -> Tensor:
    """V[n, p, a, b, q, c]: x [N, C, H, W] in patches that begin 4 apart, with zeros in the padding
    and where the last patch goes beyond; each multiplied by B^T from both sides."""
    box = windows(x, (3, 3), (1, 1), pads)

    def body(n: Int, p: Int, a: Int, b: Int, q: Int, c: Int) -> Expr:
        def at(i: int, j: int) -> Expr:
            position = (p * STEP + i - box.pads[0][0], q * STEP + j - box.pads[1][0])
            inside = all_of([within(*pair) for pair in zip(position, x.shape[2:], strict=True)])
            return select(inside, x[(n, c, *position)], as_expr(0, x.dtype))

        return _both_sides(PATCHES, a, b, at)

    rows, columns = (ceildiv(count, STEP) for count in box.counts())
    shape = (x.shape[0], rows, PATCH, PATCH, columns, x.shape[1])
    return compute(shape, body, "winograd_patches", box.fit())


def winograd_filters(w: Tensor) -> Tensor:
    """U[a, b, c, o] of filters w [O, C, 3, 3]: each multiplied by G from one side, then from the
    other."""
    check_rank(w, 4, "weight")
    outputs, channels = w.shape[:2]

    def left(a: Int, j: Int, c: Int, o: Int) -> Expr:
        return _chosen(a, FILTERS, lambda row: _sum(row, lambda i: w[o, c, i, j]))

    half = compute((PATCH, w.shape[3], channels, outputs), left, "winograd_filters_half")

    def right(a: Int, b: Int, c: Int, o: Int) -> Expr:
        return _chosen(b, FILTERS, lambda row: _sum(row, lambda j: half[a, j, c, o]))

    message = "Winograd's filters are 3 x 3"
    requires = equal(w.shape[2], 3, message) + equal(w.shape[3], 3, message)
    return compute((PATCH, PATCH, channels, outputs), right, "winograd_filters", requires)


def winograd_products(v: Tensor, u: Tensor) -> Tensor:
    """M[n, p, a, b, q, o]: the product over channels at each place (a, b) of patches."""

    def body(n: Int, p: Int, a: Int, b: Int, q: Int, o: Int) -> Expr:
        return reduce("sum", (v.shape[5],), lambda c: v[n, p, a, b, q, c] * u[a, b, c, o])

    message = f"patches have {v.shape[5]} channels, filters {u.shape[2]}"
    requires = equal(v.shape[5], u.shape[2], message)
    return compute((*v.shape[:5], u.shape[3]), body, "winograd_products", requires)


def winograd_results(m: Tensor, *, height: IntLike, width: IntLike, last: bool = False) -> Tensor:
    """y [N, O, height, width], or with channels `last`: 4 x 4 results of each patch of m, which is
    multiplied by A^T and A."""

    def body(n: Int, *place: Int) -> Expr:
        h, w, o = place if last else (*place[1:], place[0])

        def at(i: int, j: int) -> Expr:
            return m[n, h // STEP, i, j, w // STEP, o]

        return _both_sides(RESULTS, h % STEP, w % STEP, at)

    sides = (height, width, m.shape[5]) if last else (m.shape[5], height, width)
    return compute((m.shape[0], *sides), body, "winograd_results")


def _both_sides(matrix: Matrix, a: Int, b: Int, at: Callable[[int, int], Expr]) -> Expr:
    """Element (a, b) of matrix x values x matrix^T."""

    def row(left: Factors) -> Expr:
        def column(j: int) -> Expr:
            return _sum(left, lambda i: at(i, j))

        return _chosen(b, matrix, lambda right: _sum(right, column))

    return _chosen(a, matrix, row)


def _chosen(index: Int, matrix: Matrix, of: Callable[[Factors], Expr]) -> Expr:
    """What is made of the matrix's row of that index."""
    value = of(matrix[-1])
    for k in reversed(range(len(matrix) - 1)):
        value = select(as_expr(index).eq(k), of(matrix[k]), value)
    return value


def _sum(factors: Factors, term: Callable[[int], Expr]) -> Expr:
    """The sum of terms with factors that are not 0; what is subtracted comes last."""
    total: Expr | None = None
    for k in sorted((k for k, f in enumerate(factors) if f != 0), key=lambda k: factors[k] < 0):
        factor, size = factors[k], term(k)
        if abs(factor) != 1:
            size = size * as_expr(float(abs(factor)), size.dtype)
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

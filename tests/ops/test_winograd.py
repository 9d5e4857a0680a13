"""The steps of Winograd's minimal filtering, and that they are a convolution together."""

from fractions import Fraction
from functools import reduce
from itertools import product
from operator import mul

import pytest

from pliant.base.dtypes import f32
from pliant.base.errors import ShapeError
from pliant.ir.tensor import placeholder
from pliant.ops.winograd import FILTERINGS, Filtering, Matrix, winograd_patches, winograd_results
from tests.ops.case import Case, check
from tests.ops.data.winograd import CASES


@pytest.mark.sweep(3)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_winograd(case: Case) -> None:
    check(case)


def times(a: Matrix, b: Matrix) -> Matrix:
    columns = list(zip(*b, strict=True))
    return [[sum(map(mul, row, c), start=Fraction(0)) for c in columns] for row in a]


@pytest.mark.parametrize("f", FILTERINGS.values(), ids=lambda f: str(f.step))
def test_matrices(f: Filtering) -> None:
    """Exactly: result i sums element i + k of a patch times element k of a filter, and no other."""
    patches, filters, results = (reduce(times, x) for x in (f.patches, f.filters, f.results))
    for i, j, k in product(range(f.step), range(f.patch), range(3)):
        terms = (results[i][m] * patches[m][j] * filters[m][k] for m in range(f.patch))
        assert sum(terms) == (j == i + k)


def test_other_steps() -> None:
    x = placeholder("x", (1, 8, 12, 12), f32)
    with pytest.raises(ShapeError, match="steps of 2 or 4"):
        winograd_patches(x, pads=((1, 1), (1, 1)), step=3)
    with pytest.raises(ShapeError, match="steps of 2 or 4"):
        winograd_results(placeholder("m", (1, 2, 5, 5, 2, 8), f32), height=4, width=4)

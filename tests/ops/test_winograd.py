"""The steps of Winograd's minimal filtering, and that they are a convolution together."""

from fractions import Fraction
from itertools import product

import pytest

from pliant.ops.winograd import FILTERS, PATCH, PATCHES, RESULTS, STEP
from tests.ops.case import Case, check
from tests.ops.data.winograd import CASES


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_winograd(case: Case) -> None:
    check(case)


def test_matrices() -> None:
    """Exactly: result i sums element i + k of a patch times element k of a filter, and no other."""
    for i, j, k in product(range(STEP), range(PATCH), range(3)):
        terms = (Fraction(RESULTS[i][m]) * PATCHES[m][j] * FILTERS[m][k] for m in range(PATCH))
        assert sum(terms) == (j == i + k)

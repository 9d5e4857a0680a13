"""The `reduce` family against their oracles."""

import pytest

from tests.ops.case import Case, check
from tests.ops.data.reduce import CASES


@pytest.mark.sweep(3)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_reduce(case: Case) -> None:
    check(case)

"""The `shape` family against their oracles."""

import pytest

from tests.ops.case import Case, check
from tests.ops.data.shape import CASES


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_shape(case: Case) -> None:
    check(case)

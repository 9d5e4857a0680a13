"""The `gather` family against their oracles."""

import pytest

from tests.ops.case import Case, check
from tests.ops.data.gather import CASES


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_gather(case: Case) -> None:
    check(case)

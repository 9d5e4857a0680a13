"""Linear algebra against their oracles."""

import pytest

from tests.ops.case import Case, check
from tests.ops.data.linalg import CASES


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_linalg(case: Case) -> None:
    check(case)

"""The `matmul` family against their oracles."""

import pytest

from tests.ops.case import Case, check
from tests.ops.data.matmul import CASES


@pytest.mark.sweep(3)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_matmul(case: Case) -> None:
    check(case)

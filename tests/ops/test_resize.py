"""The `resize` family against their oracles."""

import pytest

from tests.ops.case import Case, check
from tests.ops.data.resize import CASES


@pytest.mark.sweep
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_resize(case: Case) -> None:
    check(case)

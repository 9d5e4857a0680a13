"""The `create` family against their oracles."""

import pytest

from tests.ops.case import Case, check
from tests.ops.data.create import CASES


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_create(case: Case) -> None:
    check(case)

"""The `attention` family against their oracles."""

import pytest

from tests.ops.case import Case, check
from tests.ops.data.attention import CASES


@pytest.mark.sweep(3)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_attention(case: Case) -> None:
    check(case)

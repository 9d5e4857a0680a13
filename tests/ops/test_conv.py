"""The `conv` family against their oracles."""

import pytest

from tests.ops.case import Case, check
from tests.ops.data.conv import CASES


@pytest.mark.sweep(3)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_conv(case: Case) -> None:
    check(case)

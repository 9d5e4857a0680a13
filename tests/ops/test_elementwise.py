"""Elementwise operators against their oracles."""

import pytest

from tests.ops.case import Case, check
from tests.ops.data.elementwise import CASES


@pytest.mark.sweep(4)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_elementwise(case: Case) -> None:
    check(case)

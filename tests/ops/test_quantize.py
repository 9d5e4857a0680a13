"""The `quantize` family against their oracles."""

import pytest

from tests.ops.case import Case, check
from tests.ops.data.quantize import CASES


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_quantize(case: Case) -> None:
    check(case)

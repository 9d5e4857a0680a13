"""Plain products in the loop language that reach the micro-kernels of this machine, compiled."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.codegen.build import kernel_source, target_matmuls
from pliant.codegen.llvm.target import FEATURE_SETS, target
from pliant.schedule.recipes.matmul_tile import MatmulIntrinsic
from tests.codegen.tiles import values
from tests.schedule.native import native
from tests.schedule.test_groups import product, tiled
from tests.targets import runs_here

TARGETS = {
    mm: t
    for t in map(target, filter(runs_here, reversed(FEATURE_SETS)))
    for mm in target_matmuls(t)
}
SIZES = [(3, 5, 0), (31, 45, 67)]  # tails of tiles, panels and words


@pytest.mark.sweep
@pytest.mark.parametrize("mm", TARGETS, ids=lambda mm: mm.symbol)
def test_against_numpy(mm: MatmulIntrinsic) -> None:
    t = TARGETS[mm]
    p = tiled(product(mm), mm).tensorize("c_i_1", mm.plain)
    assert kernel_source(p.function, t).calls == (mm.symbol,)
    for n, m, k in SIZES:
        rng = np.random.default_rng((n, m, k))
        a, b = values(rng, (n, k), mm.a), values(rng, (k, m), mm.b)
        c = np.full((n, m), 77, mm.c.numpy)
        native(p.function, [a, b, c], {"n": n, "m": m, "k": k}, t)
        if not mm.c.is_float:
            np.testing.assert_array_equal(c, (a.astype(np.int64) @ b).astype(np.int32))
            continue
        x, y = a.astype(np.longdouble), b.astype(np.longdouble)
        bound = (k + 8) * float(np.finfo(mm.c.numpy).eps) * (np.abs(x) @ np.abs(y))
        assert (np.abs(c - x @ y) <= bound).all()

"""The `recurrent` family against its oracles."""

import numpy as np
import pytest

from pliant.base.dtypes import f16, f32, i64
from pliant.base.errors import InvalidModelError
from pliant.ir.evaluate import evaluate
from pliant.ir.tensor import Input, OpaqueOutput, compute
from pliant.loop.interpret import interpret
from pliant.ops.program import TensorProgram, run_program
from pliant.ops.recurrence import LANES, Cell, recurrence
from pliant.ops.recurrent import ACTIVATIONS, rnn
from pliant.sym.expr import as_int, var
from tests.ops.case import Case, check
from tests.ops.data.recurrent import CASES


@pytest.mark.sweep
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_recurrent(case: Case) -> None:
    check(case)


def operands(dtype: object = f32) -> list[Input]:
    t, b, h = map(var, "tbh")
    shapes = ((t, b, h), (h, h), (h,), (b,), (b, h))
    return [Input(f"x{k}", i64 if k == 3 else dtype, s) for k, s in enumerate(shapes)]


def test_refused() -> None:
    with pytest.raises(InvalidModelError, match="activations"):
        rnn(*operands(), activations=("gelu",))
    with pytest.raises(InvalidModelError, match="cast to f32"):
        rnn(*operands(f16))
    x = operands()
    wide = Input("wide", f32, (as_int(3), as_int(6)))
    with pytest.raises(InvalidModelError, match="dim 1 of weights must be 1"):
        rnn(x[0], wide, *x[2:])
    with pytest.raises(InvalidModelError, match="lengths are i64"):
        rnn(*x[:3], x[4], x[4])


def test_program_of_a_transposed_operand() -> None:
    """Its buffers are row-major, whatever views NumPy makes of the operands."""
    w = Input("w", f32, (as_int(3), as_int(3)))
    turned = compute(w.shape, lambda i, j: w[j, i], "turned")
    x = [Input(f"x{k}", i64 if k == 3 else f32, s) for k, s in enumerate([
        (as_int(1), as_int(1), as_int(3)), w.shape, (as_int(3),), (as_int(1),),
        (as_int(1), as_int(3)),
    ])]  # fmt: skip
    y: OpaqueOutput = rnn(x[0], turned, *x[2:])[0]
    rng = np.random.default_rng(0)
    known = {w: rng.standard_normal((3, 3)).astype(np.float32)}
    for v in (x[0], x[2], x[4]):
        known[v] = rng.standard_normal([d.value for d in v.shape]).astype(np.float32)
    known[x[3]] = np.ones(1, np.int64)
    (got,) = evaluate([y], known, {}, interpret)
    expected = np.tanh(known[x[0]][0] + known[x[2]] + known[x[4]] @ known[w].T)
    np.testing.assert_allclose(got[0], expected, rtol=1e-5)


@pytest.mark.parametrize("reverse", [False, True])
def test_lengths_beyond_the_steps_are_all_steps(reverse: bool) -> None:
    """Nothing is read past the input, whatever the lengths say."""
    program = TensorProgram(recurrence(Cell("rnn", (ACTIVATIONS["tanh"],)), f32, reverse))
    x, panels, bias, start = (
        np.ones(s, np.float32) for s in ((3, 2, 4), (1, 4, LANES), (1, LANES), (2, 4))
    )
    runs = [run_program(program, (x, panels, bias, np.array(n), start)) for n in ([3, 0], [9, -5])]
    for got, expected in zip(*runs, strict=True):
        np.testing.assert_array_equal(got, expected)

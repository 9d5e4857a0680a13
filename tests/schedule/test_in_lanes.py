"""Sums in the lanes of vectors: what the intrinsics compute, and what reaches them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bench.kernel_calls import Kernel
from pliant.base.dtypes import DTYPES, DType, f32
from pliant.codegen.build import kernel_source, micro_kernels_called, target_intrinsics
from pliant.codegen.llvm.target import FEATURE_SETS, target
from pliant.ir.expr import Index
from pliant.ir.tensor import compute, placeholder, reduce
from pliant.loop.from_tensor import unscheduled
from pliant.loop.stmt import Alloc, BufferRef, Function, Invoke, buffer
from pliant.schedule.auto_tensorize import auto_tensorize
from pliant.schedule.errors import SchedulingError
from pliant.schedule.intrinsic import Intrinsic
from pliant.schedule.primitives import program
from pliant.schedule.program import Program
from pliant.schedule.recipes.multiply_add import (
    multiply_add_name,
    multiply_add_names,
    multiply_adds,
)
from pliant.sym.expr import as_int, var
from tests.schedule.native import native
from tests.schedule.programs import same
from tests.schedule.test_auto_tensorize import check, check_at, product_tile, with_zero_points
from tests.schedule.workloads import (
    BF16,
    DEPTHWISE,
    F32,
    INT8,
    WORKLOADS,
    Make,
    Types,
    Workload,
    depthwise,
    transposed,
    window,
)
from tests.woven import woven

LANES = target().lanes(32)
TYPES = {"f32": F32, "bf16": BF16, "u8s8": INT8}


def each(channels: int, times: int = 1) -> dict[str, int]:
    """Convolutions of each channel by itself, with so many filters."""
    return {"groups": channels, "channels": channels, "filters": times * channels}


# Channels of no whole vectors, and of several; windows of every kind.
KINDS: dict[str, Make] = {
    **{f"{k}, {c} channels": v for c in (3, 19, 40) for k, v in depthwise(c).items()},
    "NCW": window(1, **each(5)),
    "NWC": window(1, last=True, **each(21)),
    "NCDHW": window(3, **each(3)),
    "NDHWC": window(3, last=True, **each(18)),
    "dilated NCHW": window(2, dilation=2, **each(4)),
    "dilated NHWC": window(2, last=True, dilation=2, **each(33)),
    "5x5 NCHW": window(2, kernel=5, **each(3)),
    "7x7 NHWC": window(2, last=True, kernel=7, **each(7)),
    "1x1 NCHW": window(2, kernel=1, **each(4)),
    "1x1 NHWC": window(2, last=True, kernel=1, **each(35)),
    "stride 3 NCHW": window(2, stride=3, **each(4)),
    "stride 5 NCHW": window(2, stride=5, **each(4)),
    "two filters each, NCHW": window(2, **each(4, 2)),
    "two filters each, NHWC": window(2, last=True, **each(16, 2)),
    "all channels, NCHW": window(2, channels=3, filters=2),
    "all channels, NHWC": window(2, last=True, channels=5, filters=20),
    "grouped": window(2, channels=4, filters=6, groups=2),
    "transposed": transposed(1),
    "a b -> c": WORKLOADS["a b -> c"],
    "a bᵀ -> c": WORKLOADS["a bᵀ -> c"],
    "aᵀ b -> cᵀ": WORKLOADS["aᵀ b -> cᵀ"],
}


def in_lanes(w: Workload, t: Types, lanes: int = LANES, **known: int) -> Program:
    p = program(w.function(**known), intrinsics=multiply_adds(lanes))
    return auto_tensorize(p, w.result.name, multiply_add_names(t.a, t.b, lanes))


def called(p: Program) -> set[str]:
    return {s.callee for s in p.statements() if isinstance(s, Invoke)}


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("known", range(len(multiply_adds(4))))
def test_code(known: int, lanes: int) -> None:
    """The code of each intrinsic does what its semantics says, wherever its operands begin."""
    intrinsic = multiply_adds(lanes)[known]
    formals = intrinsic.semantics.buffers
    given = [buffer(b.name, (b.shape[0] + 3,), b.dtype) for b in formals]
    start = (Index(as_int(3)),)
    call = Invoke(intrinsic.callee, tuple(BufferRef(b, start) for b in given))
    rng = np.random.default_rng(known)

    def numbers(dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
        least, most = (0, 256) if dtype is DTYPES["u8"] else (-100, 100)
        return rng.integers(least, most, shape).astype(dtype.numpy)

    a, b, c = (numbers(x.dtype, (x.shape[0].value,)) for x in given)
    wide = np.float32 if formals[2].dtype is f32 else np.int32
    expected = c.copy()
    expected[3:] += a[3:].astype(wide) * b[3:].astype(wide)
    native(Function("add", tuple(given), (), call), [a, b, c], {})
    np.testing.assert_array_equal(c, expected)


def test_targets_offer_them() -> None:
    """No object of their own has to be linked for them."""
    for name in FEATURE_SETS:
        t = target(name)
        offered = {i.name for i in target_intrinsics(t)}
        assert {i.name for i in multiply_adds(t.lanes(32))} <= offered
    q = in_lanes(DEPTHWISE(F32), F32)
    assert called(q) and micro_kernels_called(q.function) == ()


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "types"), woven([*KINDS], [*TYPES]))
def test_compiled_results(name: str, types: str) -> None:
    """One kernel, 20 random shapes, beside torch."""
    t = TYPES[types]
    w = KINDS[name](t)
    q = in_lanes(w, t)
    assert called(q) <= set(multiply_add_names(t.a, t.b, LANES))
    check(Kernel(q.function, target()), w, 20)


SIZES = ((2, 1, 13, 5), (1, 7, 1, 9), (2, 17, 37, 3), (1, 16, 16, 16))


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("name", "types"),
    woven([*depthwise(19), "NCW", "NDHWC", "1x1 NHWC", "5x5 NCHW"], [*TYPES]),
)
def test_constant_sizes(name: str, types: str) -> None:
    """Shorter than a vector, several, and one element."""
    t = TYPES[types]
    w = (KINDS | depthwise(19))[name](t)
    for sizes in SIZES:
        known = dict(zip(w.sizes, sizes, strict=False))
        check_at(Kernel(in_lanes(w, t, **known).function, target()), w, known, [])


MEANING = {i.callee: i.semantics for i in multiply_adds(4)}


@pytest.mark.sweep
@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("name", [*depthwise(3), "NCW", "a b -> c"])
def test_programs_keep_their_meaning(name: str, types: str) -> None:
    """With sizes of 0, 1 and primes; constant ones, too."""
    t = TYPES[types]
    w = (KINDS | depthwise(3))[name](t)
    p = program(w.function(), intrinsics=multiply_adds(4))
    names = multiply_add_names(t.a, t.b, 4)
    q = auto_tensorize(p, w.result.name, names)
    cases = [x[: len(w.sizes)] for x in ((1, 0, 3), (1, 1, 1), (2, 3, 0), (1, 5, 7), (0, 2, 2))]
    same(p, q, cases, MEANING)
    p = program(w.function(**dict.fromkeys(w.sizes, 3)), intrinsics=multiply_adds(4))
    same(p, auto_tensorize(p, w.result.name, names), [()], MEANING)


@pytest.mark.parametrize("name", depthwise(6))
def test_sums_stay_in_registers(name: str) -> None:
    """No memory is allocated, nothing is looked up; images are read where they lie."""
    q = in_lanes(depthwise(6)[name](F32), F32)
    allocated = [s.buffer for s in q.statements() if isinstance(s, Alloc)]
    assert allocated and all(b.scope == "register" for b in allocated)


def test_channels_or_columns_are_lanes() -> None:
    """Whichever the output has element after element, by the intrinsic with the factors for it."""
    for last in (False, True):
        w = window(2, last=last, **each(24))(F32)
        assert called(in_lanes(w, F32)) == {multiply_add_name(f32, f32, LANES, one=not last)}
    rows = window(2, **each(24))(F32)
    assert called(in_lanes(rows, F32, n=1, m=1)) == {multiply_add_name(f32, f32, LANES, one=False)}


@pytest.mark.sweep
@pytest.mark.parametrize("name", FEATURE_SETS)
def test_every_target(name: str) -> None:
    """There is code for each, and none calls a library."""
    t = target(name)
    for types, make in zip(TYPES.values(), list(depthwise(9).values())[:3], strict=True):
        q = in_lanes(make(types), types, t.lanes(32))
        text = kernel_source(q.function, t).text
        assert "alwaysinline" in text and f"<{t.lanes(32)} x " in text


@pytest.mark.sweep
@pytest.mark.parametrize("lanes", [4, 8])
@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("make", [DEPTHWISE, window(2, last=True, **each(10))], ids=["one", "all"])
def test_narrower_vectors(lanes: int, types: str, make: Any) -> None:
    """Those of other processors, on this one."""
    w = make(TYPES[types])
    check(Kernel(in_lanes(w, TYPES[types], lanes).function, target()), w, 5)


@pytest.mark.parametrize("kind", ["left", "both"])
def test_zero_points(kind: str) -> None:
    """They are summed apart."""
    p = program(with_zero_points(kind), intrinsics=multiply_adds(4))
    q = auto_tensorize(p, "y", multiply_add_names(INT8.a, INT8.b, 4))
    assert "y_parts" in q.blocks
    same(p, q, [(3, 5, 7), (1, 8, 9), (1, 0, 2), (5, 2, 0)], MEANING)


def test_operands_that_lie_otherwise_and_reasons() -> None:
    """What lies in another way is read into a vector; what is stored so is refused."""
    n, m = var("n"), var("m")
    a, b = placeholder("a", (n, m), f32), placeholder("b", (n, m), f32)
    known = multiply_adds(4)
    names = multiply_add_names(f32, f32, 4)
    y = compute((n,), lambda i: reduce("sum", (m,), lambda r: a[i, r] * b[i, r]), "y")
    p = program(unscheduled("f", [y], [a, b], ["n", "m"]), intrinsics=known)
    same(p, auto_tensorize(p, "y", names), [(5, 3), (9, 1), (0, 2)], MEANING)
    z = compute((m, n), lambda i, j: reduce("sum", (m,), lambda r: a[j, r] * b[j, i]), "z")
    p = program(unscheduled("f", [z], [a, b], ["n", "m"]), intrinsics=known)
    assert called(auto_tensorize(p, "z", names)) == {names[0]}
    w = window(2, **each(4))(F32)
    p = program(w.function(), intrinsics=known)
    with pytest.raises(SchedulingError, match="does not lie element after element along y_vj"):
        auto_tensorize(p, "y", names[:1])
    two = Intrinsic("two", product_tile("two", F32, 4, 4, 2).semantics, inside=True)
    p = program(WORKLOADS["a b -> c"](F32).function(), intrinsics=[two])
    with pytest.raises(SchedulingError, match="two is not of lanes alone"):
        auto_tensorize(p, "c", ["two"])

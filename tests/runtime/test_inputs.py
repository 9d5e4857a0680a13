"""What may be passed to a compiled function, and what is said about the rest."""

from __future__ import annotations

import gc
import re
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from pliant.base.dtypes import DTYPES
from pliant.base.errors import PliantError, ResourceError, ShapeError
from pliant.runtime import _native, abi
from pliant.runtime.manifest import Function, TensorInfo
from pliant.runtime.messages import Messages
from tests.runtime import tiny


@pytest.fixture(scope="module")
def f() -> Any:
    return tiny.program().function("add_one")


@pytest.fixture(scope="module")
def g() -> Any:
    return tiny.program().function("add")


def test_numbers_of_the_header_and_of_the_table_agree():
    assert _native.CTX_OFFSETS == abi.CTX
    assert _native.ABI_VERSION == abi.ABI_VERSION


class OnlyDlpack:
    """An array of some other library."""

    def __init__(self, array: np.ndarray, *, old: bool = False, device: tuple = (1, 0)) -> None:
        self.array, self.old, self.device = array, old, device

    def __dlpack_device__(self) -> tuple:
        return self.device

    def __dlpack__(self, **kwargs: object) -> object:
        if self.old and kwargs:
            raise TypeError("unexpected keyword")
        return self.array.__dlpack__(**kwargs)


def unaligned(a: np.ndarray) -> np.ndarray:
    raw = np.zeros(a.nbytes + 1, np.uint8)[1:]
    view = raw.view(a.dtype)
    view[:] = a
    return view


def read_only(a: np.ndarray) -> np.ndarray:
    a.flags.writeable = False
    return a


X = np.arange(12, dtype=np.float32)
ARRAYS = {
    "plain": X,
    "reversed": X[::-1],
    "strided": X[1::3],
    "broadcast": np.broadcast_to(np.float32(5), (7,)),
    "empty": X[:0],
    "one": X[:1],
    "read-only": read_only(X.copy()),
    "unaligned": unaligned(X),
    "field of a record": np.zeros(5, dtype=[("a", "u1"), ("b", "f4")])["b"],
    "memmap-like subclass": X.view(np.recarray).view(np.ndarray),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_numpy_arrays_of_any_layout(f, name):
    x = ARRAYS[name]
    y = f(x)
    assert isinstance(y, np.ndarray)
    assert y.flags.writeable
    assert y.flags.c_contiguous
    np.testing.assert_array_equal(y, x + 1)


@pytest.mark.parametrize("old", [False, True])
def test_anything_with_dlpack(f, old):
    np.testing.assert_array_equal(f(OnlyDlpack(X[::-2], old=old)), X[::-2] + 1)
    np.testing.assert_array_equal(f(OnlyDlpack(unaligned(X)[::3], old=old)), X[::3] + 1)
    out = np.zeros(12, np.float32)
    f(X, out=OnlyDlpack(out, old=old))
    np.testing.assert_array_equal(out, X + 1)


def test_torch_tensors(f, g):
    x = torch.arange(9.0)
    for view in (x, x[::2], x[:0], x[3], x.expand(9)):
        if view.ndim:
            y = f(view)
            assert isinstance(y, torch.Tensor)
            assert torch.equal(y, view + 1)
    s, d = g(x, X[:9])  # mixed: torch wins
    assert torch.equal(s, 2 * x)
    assert torch.equal(d, 0 * x)
    parameter = torch.nn.Parameter(x)
    with torch.no_grad():
        assert torch.equal(f(parameter), x + 1)
    with torch.inference_mode():
        assert torch.equal(f(x + 0), x + 1)


def test_results_outlive_everything(f):
    kept = [f(np.full(1000, i, np.float32)) for i in range(50)]
    kept += [f(torch.full((1000,), float(i))) for i in range(50)]
    gc.collect()
    for i, y in enumerate(kept):
        assert (y == i % 50 + 1).all()
    y = kept[-1]
    y += 1  # torch may write to it and view it
    assert y.view(10, 100).sum() == 51 * 1000


def test_buffers_are_recycled(f):
    _native.set_buffers_cap(256 << 20)
    x = np.zeros(1 << 20, np.float32)
    addresses = {f(x).__array_interface__["data"][0] for _ in range(10)}
    assert len(addresses) == 1


def test_out_is_filled_and_returned(f, g):
    x, out = X.copy(), np.empty(12, np.float32)
    assert f(x, out=out) is out
    np.testing.assert_array_equal(out, X + 1)
    t = torch.empty(12)
    assert f(x, out=t) is t
    assert torch.equal(t, torch.from_numpy(X + 1))
    s = np.empty(12, np.float32)
    results = g(x, x, out=(s, None))
    assert results[0] is s
    np.testing.assert_array_equal(s, 2 * X)
    np.testing.assert_array_equal(results[1], 0 * X)
    assert f(x, out=[out]) is out


@pytest.mark.parametrize("shift", [-3, -1, 0, 1, 3])
def test_out_may_overlap_an_input(f, shift):
    base = np.arange(20, dtype=np.float32)
    x, out = base[5:15], base[5 + shift : 15 + shift]
    expected = x + 1
    f(x, out=out)
    np.testing.assert_array_equal(out, expected)
    base = torch.arange(20.0)
    x, out = base[5:15], base[5 + shift : 15 + shift]
    expected = x + 1
    f(x, out=out)
    assert torch.equal(out, expected)


def identity_entry(dtype: int) -> tuple[int, object]:
    """`f(x: T[]) -> T[]`, copying by the dtype's size."""
    size = max((dtype & 0xFF) // 8, 1)
    text = tiny.HELPERS + (
        f"define i32 @identity{dtype}(ptr %ctx) {{\n"
        "  %t = call ptr @input(ptr %ctx, i64 0)\n"
        f"  %f = call ptr @field(ptr %ctx, i64 {abi.CTX['output']})\n"
        f"  %y = call ptr %f(ptr %ctx, i64 0, i64 {dtype}, i64 0, ptr null)\n"
        "  %x = call ptr @field(ptr %t, i64 0)\n"
        f"  %v = load i{8 * size}, ptr %x\n"
        f"  store i{8 * size} %v, ptr %y\n"
        "  ret i32 0\n}\n"
    )
    return tiny.link(f"identity{dtype}", tiny.compile_object(text))


def identity(name: str) -> _native.Callable:
    code = DTYPES[name].dlpack
    address, keep = identity_entry(code)
    function = Function(
        "f",
        "f",
        inputs=(TensorInfo("x", name, ()),),
        outputs=(TensorInfo("y", name, ()),),
    )
    spec = [("x", code, 0)]
    return _native.Callable(
        address,
        inputs=spec,
        outputs=spec,
        weights=[],
        fail=Messages(function),
        keepalive=keep,
        single=True,
    )


TORCH = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u64": torch.uint64,
    "u32": torch.uint32,
    "u16": torch.uint16,
    "u8": torch.uint8,
    "bool": torch.bool,
}


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_in_numpy_and_torch_and_as_number(name):
    f, dtype = identity(name), DTYPES[name]
    for value in {0, 1, dtype.max if not dtype.is_float else 2.5}:
        x = np.array(value, dtype.numpy)
        y = f(x)
        assert y.dtype == dtype.numpy
        assert y.shape == ()
        assert y == x
        assert f(np.array(value, dtype.numpy)[()]) == x  # a NumPy scalar
        t = torch.tensor(value, dtype=TORCH[name])
        assert f(t).dtype == TORCH[name]
        assert f(t) == t
        assert f(bool(value) if name == "bool" else value) == x


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("i8", 128),
        ("i8", -129),
        ("u8", 256),
        ("u8", -1),
        ("u32", 1 << 32),
        ("i64", 1 << 63),
        ("i64", -(1 << 63) - 1),
        ("u64", 1 << 64),
        ("u64", -1),
        ("i32", 1.0),
        ("bool", 1),
        ("bool", 0.0),
        ("f32", 10**400),
    ],
)
def test_numbers_that_do_not_fit(name, value):
    with pytest.raises(ShapeError, match=r"input x.*does not fit"):
        identity(name)(value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("i8", -128), ("u64", (1 << 64) - 1), ("i64", -(1 << 63)), ("u32", (1 << 32) - 1)],
)
def test_numbers_that_just_fit(name, value):
    assert int(identity(name)(value)) == value


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize(
    "value", [1.0000001, 65519.0, 65520.0, 1e-8, -0.0, float("inf"), 3.1415926]
)
@pytest.mark.parametrize("name", ["f16", "bf16", "f32"])
def test_numbers_round_as_numpy_rounds(name, value):
    with np.errstate(over="ignore"):
        expected = np.array(value).astype(DTYPES[name].numpy)
    got = identity(name)(value)
    assert got.tobytes() == expected.tobytes()


GRAD = torch.ones(3, requires_grad=True)
BAD_INPUTS = [
    (X.astype(np.float64), "expected dtype f32, got f64"),
    (X.astype(ml_dtypes.bfloat16), "expected dtype f32, got bf16"),
    (X.astype(np.complex64), "got complex64"),
    (X.astype(">f4"), "native order"),
    (np.array(["a"]), "expected dtype f32"),
    (np.array([object()]), "expected dtype f32"),
    (X.reshape(3, 4), "expected 1 dimensions, got 2"),
    (np.zeros((1,) * 64, np.float32), "expected 1 dimensions, got 64"),
    (np.float32(3), "expected 1 dimensions, got 0"),
    (3.0, "expected a tensor or array of 1 dimensions, got a number"),
    ("text", "got str"),
    ([1.0, 2.0], "got list"),
    (None, "got NoneType"),
    (torch.Tensor, "got "),
    (np.ndarray, "got "),
    (GRAD, r"requires a gradient.*torch.no_grad\(\), pass x.detach\(\)"),
    (torch.nn.Parameter(torch.ones(3)), "requires a gradient"),
    (torch.ones(3, device="meta"), "input x"),
    (torch.ones(3).to_sparse(), "input x"),
    (torch.ones(3).to_mkldnn(), "input x"),
    (torch.ones(3, 3).to_sparse_csr(), r"cannot read Tensor: [^\n]*; pass a plain, dense tensor"),
    (torch.ones(3).to(torch.float8_e4m3fn), "expected dtype f32, got DLPack type"),
    (torch.ones(3, dtype=torch.complex64).conj(), "input x"),
    (torch.ones(3, dtype=torch.complex64).conj().imag, "lazily negated"),
    (torch.ones(3, dtype=torch.float64), "got f64"),
    (OnlyDlpack(X, device=(2, 1)), "on CUDA 1"),
    (OnlyDlpack(X, device=("cpu", 0)), "input x"),
    (OnlyDlpack("no array"), "input x"),
    (OnlyDlpack(np.zeros(3)), "got f64"),
]


@pytest.mark.parametrize("case", range(len(BAD_INPUTS)))
def test_bad_inputs_are_named(f, case):
    value, pattern = BAD_INPUTS[case]
    with pytest.raises(ShapeError, match=r"input x: f32\[n\]: ") as caught:
        f(value)
    assert re.search(pattern, str(caught.value)), caught.value


@pytest.mark.parametrize(
    ("out", "pattern"),
    [
        (np.empty(12), "expected dtype f32, got f64"),
        (np.empty(11, np.float32), "dim 0 must be 12, got 11"),
        (np.empty((12, 1), np.float32), "expected 1 dimensions, got 2"),
        (np.empty(24, np.float32)[::2], "contiguous"),
        (np.broadcast_to(np.float32(1), (12,)), "read-only"),
        (read_only(np.empty(12, np.float32)), "read-only"),
        (unaligned(X), "layout"),
        (torch.empty(12, requires_grad=True), "gradient"),
        (3.0, "got a number|got float"),
        ("text", "got str"),
        ((), "expected 1 output buffers"),
        ((None, None), "expected 1 output buffers"),
    ],
)
def test_bad_out_is_named(f, out, pattern):
    with pytest.raises(ShapeError, match=pattern):
        f(X, out=out)


def test_outputs_must_not_share_memory(g):
    base = np.empty(20, np.float32)
    with pytest.raises(ShapeError, match="shares memory with that of difference"):
        g(X, X, out=(base[:12], base[8:]))


def test_wrong_number_of_inputs(f, g):
    with pytest.raises(
        ShapeError, match=r"add_one: expected 1 inputs, got 2: add_one\(x: f32\[n\]"
    ):
        f(X, X)
    with pytest.raises(ShapeError, match="expected 2 output buffers"):
        g(X, X, out=X)


def test_checks_speak_the_users_words(f, g):
    with pytest.raises(ShapeError, match=r"^x: dim n must not be 13 \[model.py:7\]$"):
        f(np.zeros(13, np.float32))
    with pytest.raises(ShapeError, match=r"^x and y differ: n = 3, m = 4$"):
        g(X[:3], X[:4])


def test_memory_limit():
    f = tiny.program(memory_limit=1 << 20).function("add_one")
    f(X)
    with pytest.raises(
        ResourceError, match=r"cannot get 4,000,000 bytes.*limit for a call is 1,048,576"
    ):
        f(np.zeros(1_000_000, np.float32))
    f(X)  # and it goes on
    huge = np.broadcast_to(np.float32(0), (1 << 60,))
    with pytest.raises(ResourceError, match="cannot get"):
        tiny.program().function("add_one")(huge)


def test_an_input_that_is_too_large_to_copy(f):
    huge = OnlyDlpack(np.broadcast_to(np.float32(0), (1 << 40,)))
    address, keep = identity_entry(DTYPES["f32"].dlpack)
    function = Function("f", "f", inputs=(TensorInfo("x", "f32", ("n",)),), outputs=())
    compact = _native.Callable(
        address, inputs=[("x", DTYPES["f32"].dlpack, 1, True)], outputs=[], weights=[],
        fail=Messages(function), keepalive=keep, memory_limit=1 << 30,
    )  # fmt: skip
    with pytest.raises(ResourceError) as caught:
        compact(huge)
    assert str(caught.value) == (
        "input x: f32[n]: it must be copied, and cannot get 4,398,046,511,104 bytes of memory "
        "(the limit for a call is 1,073,741,824); use smaller inputs, or raise memory_limit"
    )


def test_errors_of_the_object_itself_pass(f):
    class Stops:
        def __dlpack_device__(self) -> object:
            raise KeyboardInterrupt

        __dlpack__ = None

    with pytest.raises(KeyboardInterrupt):
        f(Stops())


def test_references_are_balanced(f):
    x, t, out = X.copy(), torch.ones(5), np.empty(12, np.float32)
    bad = np.zeros(3)

    def calls() -> None:
        f(x)
        f(t)
        f(x, out=out)
        f(OnlyDlpack(x))
        for wrong in (bad, "text", GRAD):
            with pytest.raises(PliantError):
                f(wrong)

    calls()
    gc.collect()  # what earlier tests raised over GRAD may hold it in cycles until now
    before = [sys.getrefcount(o) for o in (x, t, out, bad, GRAD)]
    for _ in range(200):
        calls()
    gc.collect()
    assert [sys.getrefcount(o) for o in (x, t, out, bad, GRAD)] == before


def test_native_callable_refuses_nonsense():
    arguments: dict[str, Any] = {"inputs": [], "outputs": [], "weights": [], "fail": ValueError}
    with pytest.raises(ValueError, match="address is 0"):
        _native.Callable(0, **arguments)
    with pytest.raises(ValueError, match="spec is"):
        _native.Callable(1, **{**arguments, "inputs": [("x",)]})
    with pytest.raises(ValueError, match="single"):
        _native.Callable(1, **arguments, single=True)
    with pytest.raises((TypeError, BufferError)):
        _native.Callable(1, **{**arguments, "weights": [None]})
    with pytest.raises(OSError, match="nowhere"):
        _native.SharedObject("/nowhere.so")

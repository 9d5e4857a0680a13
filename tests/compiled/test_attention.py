"""Two products with rows between them, as one kernel, against torch in f64 at many sizes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import pliant
from pliant.lower import function
from tests.compiled.torch_cases import tensor
from tests.compiled.torch_run import Apply, traced
from tests.targets import runs_here

SIZES = (
    (1, 1, 1), (2, 0, 5), (2, 5, 0), (0, 3, 3), (1, 2, 33), (3, 13, 7), (1, 127, 31), (2, 33, 130),
    (1, 15, 257),
)  # fmt: skip
DIMS = ({0: "b", 2: "s"}, {0: "b", 2: "t"}, {0: "b", 2: "t"})
FEW = ((1, 1, 1), (2, 13, 7), (1, 5, 65))
Args = tuple[torch.Tensor, ...]


def operands(
    b: int, s: int, t: int, *, heads: int = 3, keys: int = 24, values: int = 40, shared: int = 1
) -> Args:
    """Queries, keys, values."""
    groups = heads // shared
    return (
        tensor(b, heads, s, keys, seed=s),
        tensor(b, groups, t, keys, seed=t + 1),
        tensor(b, groups, t, values, seed=t + 2),
    )


def check(
    fn: Callable[..., Any], make: Callable[[int, int, int], Args], dims: Sequence[Any] | None = None,
    *, sizes: Any = SIZES, fused: int = 1, tolerance: float = 2e-5, **options: Any,
) -> pliant.Compiled:  # fmt: skip
    """The same as in f64 at all sizes, from one compilation, with so many attention kernels."""
    example, shapes = make(2, 6, 11), (tuple(dims or DIMS),)
    f = pliant.compile(Apply(fn), example, dynamic_shapes=shapes, **options)
    return check_compiled(f, fn, make, sizes=sizes, fused=fused, tolerance=tolerance)


def check_compiled(
    f: pliant.Compiled, fn: Callable[..., Any], make: Callable[[int, int, int], Args],
    *, sizes: Any = SIZES, fused: int = 1, tolerance: float = 2e-5,
) -> pliant.Compiled:  # fmt: skip
    """The same, of what is compiled."""
    assert f.explain().count("[attention") == fused, f.explain()
    for b, s, t in sizes:
        args = make(b, s, t)
        want = fn(*(a.double() if a.is_floating_point() else a for a in args)).float()
        found = f(*args)
        assert found.shape == want.shape
        torch.testing.assert_close(found, want, rtol=tolerance, atol=tolerance, equal_nan=True)
    return f


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) * 0.3, -1) @ v


def test_softmax() -> None:
    f = check(attend, operands)
    # Nothing that is kept has a place for each pair of a query and a key.
    memory = re.search(r"memory for intermediate values: (.*)", f.explain())
    assert memory is not None and not re.search(r"\bs\b", memory[1])


@pytest.mark.sweep
@pytest.mark.parametrize("keys", [2, 8, 33, 64])
@pytest.mark.parametrize("values", [2, 31, 32, 96])
def test_depths(keys: int, values: int) -> None:
    check(attend, lambda *n: operands(*n, keys=keys, values=values), sizes=FEW)


def test_one_column() -> None:
    """What is no product of matrices is right all the same."""
    check(attend, lambda *n: operands(*n, keys=1), sizes=FEW, fused=0)
    check(attend, lambda *n: operands(*n, values=1), sizes=FEW, fused=0)


@pytest.mark.sweep
@pytest.mark.parametrize("shape", ["bhst", "b1st", "b11t", "11st", "11s1", "1h1t", "st", "t"])
def test_masks(shape: str) -> None:
    """A mask that is added, of every shape that can be broadcast; and one that chooses."""
    place = {"b": 0, "s": 1, "t": 2}

    def make(*n: int) -> Args:
        extents = [3 if x == "h" else 1 if x == "1" else n[place[x]] for x in shape]
        return (*operands(*n), tensor(*extents, seed=9))

    def add(q: Any, k: Any, v: Any, m: Any) -> Any:
        return torch.softmax(q @ k.transpose(-1, -2) + m, -1) @ v

    def choose(q: Any, k: Any, v: Any, m: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=m > 0)

    mask = {d: x for d, x in enumerate(shape) if x in place}
    dims = ({0: "b", 2: "s"}, {0: "b", 2: "t"}, {0: "b", 2: "t"}, mask)
    check(add, make, dims)
    if len(shape) > 1:  # torch does not take another
        check(choose, make, dims)


def test_causal() -> None:
    def causal(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    check(causal, operands, sizes=[*(n for n in SIZES if n[2]), (1, 200, 200), (1, 70, 300)])


def test_a_band() -> None:
    """Scores that a condition on places leaves out, before and after those of a block."""

    def near(q: Any, k: Any, v: Any) -> Any:
        i = torch.arange(q.shape[2])[:, None]
        j = torch.arange(k.shape[2])[None]
        seen = (i - j <= 20) & (j - 2 * i <= 9)
        scores = torch.where(seen, q @ k.transpose(-1, -2), -1e9)
        return torch.softmax(scores, -1) @ v

    check(near, operands, sizes=(*SIZES, (1, 400, 300), (1, 70, 900)))
    check(near, lambda *n: operands(*n, shared=3), sizes=(*FEW, (1, 200, 300)))


PLACES: dict[str, Callable[[torch.Tensor, torch.Tensor, int, int], torch.Tensor]] = {
    "before": lambda i, j, s, t: j <= i,
    "long before": lambda i, j, s, t: j <= i - 5,
    "of the last": lambda i, j, s, t: j <= i + t - s,
    "behind": lambda i, j, s, t: j >= i,
    "window": lambda i, j, s, t: (j <= i) & (i - j < 40),
    "near": lambda i, j, s, t: (i - j).abs() <= 17,
    "near or first": lambda i, j, s, t: ((i - j).abs() <= 17) | (j < 4),
    "far": lambda i, j, s, t: (i - j).abs() > 17,
    "steep": lambda i, j, s, t: (j <= 2 * i) & (3 * j >= i),
    "blocks": lambda i, j, s, t: j // 64 <= i // 64,
}
MASKED: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "chosen": lambda x, m: torch.softmax(torch.where(m, x, -torch.inf), -1),
    "filled": lambda x, m: torch.softmax(x.masked_fill(~m, -torch.inf), -1),
    "added": lambda x, m: torch.softmax(x + torch.where(m, 0.0, -torch.inf), -1),
    "scaled": lambda x, m: torch.softmax(torch.where(m, x, -torch.inf) * 0.25, -1),
    "a number": lambda x, m: torch.softmax(torch.where(m, x, -1e9), -1),
}
FAR = [*SIZES, (1, 400, 300), (1, 70, 900)]


def masked(place: str, how: str) -> Callable[..., torch.Tensor]:
    def attention(q: Any, k: Any, v: Any) -> Any:
        s, t = q.shape[2], k.shape[2]
        m = PLACES[place](torch.arange(s)[:, None], torch.arange(t)[None], s, t)
        return MASKED[how](q @ k.transpose(-1, -2), m) @ v

    return attention


@pytest.mark.sweep
@pytest.mark.parametrize("place", PLACES)
def test_masks_by_place(place: str) -> None:
    """Rows that are masked wholly are NaN, keys that no row of a block sees are left out."""
    check(masked(place, "chosen"), operands, sizes=FAR)


@pytest.mark.sweep
@pytest.mark.parametrize("how", MASKED)
def test_ways_to_mask(how: str) -> None:
    check(masked("window", how), operands, sizes=FAR)
    check(masked("window", how), operands, sizes=FAR[-2:], precision="bf16", tolerance=0.06)


@pytest.mark.sweep
@pytest.mark.parametrize("how", ["chosen", "filled", "added", "scaled"])
@pytest.mark.parametrize("place", ["before", "near"])
def test_keys_that_a_mask_hides_are_left_out(how: str, place: str) -> None:
    """Otherwise a NaN there would be seen: 0 times NaN is one."""
    f = check(masked(place, how), operands, sizes=())
    q, k, v = operands(1, 900, 900)
    for key in (0, 899):
        hidden = v.clone()
        hidden[:, :, key] = torch.nan
        rows = f(q, k, hidden).isnan().all(-1)[0, 0]
        assert rows[key]
        assert rows[899 - key] == (place == "before" and key == 0)


def test_expressions_of_indices() -> None:
    def alibi(q: Any, k: Any, v: Any) -> Any:
        i = torch.arange(q.shape[2])[:, None]
        j = torch.arange(k.shape[2])[None]
        scores = torch.tanh(q @ k.transpose(-1, -2) / 5) * 5 - 0.1 * (i - j).abs()
        return torch.softmax(scores.masked_fill((i - j).abs() > 40, -1e9), -1) @ v

    check(alibi, operands)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("shared", [2, 4])
def test_shared_heads(shared: int) -> None:
    """Keys of several heads, or of all: rows are then the queries of them all, also with a mask
    and with what depends on the head."""

    def grouped(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    def causal(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    def slopes(q: Any, k: Any, v: Any) -> Any:
        k, v = (x.repeat_interleave(shared, 1) for x in (k, v))
        far = (torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])[None]).abs()
        slope = torch.arange(1, 5)[:, None, None] * 0.1
        x = torch.softmax(q @ k.transpose(-1, -2) - slope * far, -1)
        return torch.relu(x @ v) + q[..., :1]

    def make(b: int, s: int, t: int) -> Args:
        return operands(b, s, t, heads=4, shared=shared)

    check(grouped, make)
    check(causal, make, sizes=[n for n in SIZES if n[2]])
    check(slopes, make)


@pytest.mark.sweep
@pytest.mark.parametrize("kind", ["depths", "causal", "unscaled", "linear"])
def test_bf16(kind: str) -> None:
    """Factors in pairs: of depths and numbers of keys that are odd, under masks, with shared heads,
    with weights that are no softmax. The weights are bf16, what they are made of stays f32."""

    def causal(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    def unscaled(q: Any, k: Any, v: Any) -> Any:
        x = q @ k.transpose(-1, -2)
        return torch.exp(x - x.amax(-1, keepdim=True)) @ v / k.shape[2]

    def linear(q: Any, k: Any, v: Any) -> Any:
        return torch.relu(q @ k.transpose(-1, -2) / k.shape[2]) @ v

    def shared(b: int, s: int, t: int) -> Args:
        return operands(b, s, t, heads=4, shared=2)

    def of_depths(keys: int, values: int) -> Callable[[int, int, int], Args]:
        return lambda *n: operands(*n, keys=keys, values=values)

    depths = [(attend, of_depths(*d), SIZES) for d in ((24, 40), (13, 31), (64, 33))]
    some = tuple(n for n in SIZES if n[2])
    cases: dict[str, list[tuple[Callable[..., Any], Callable[..., Args], Any]]] = {
        "depths": depths,
        "causal": [(causal, shared, (*some, (1, 70, 300)))],
        "unscaled": [(unscaled, operands, some)],
        "linear": [(linear, operands, some)],
    }
    for fn, make, sizes in cases[kind]:
        graph = traced(Apply(fn), make(2, 6, 11), (DIMS,))
        for target in filter(runs_here, ("native", "x86-64-avx512", "x86-64-avx2")):
            f = pliant.compile(graph, precision="bf16", target=target)
            check_compiled(f, fn, make, sizes=sizes, tolerance=0.06)


def test_one_head() -> None:
    """A head that is one keeps its dimension."""

    def heads(q: Any, k: Any, v: Any) -> Any:
        q, k, v = (x.reshape(*x.shape[:2], 1, -1).transpose(1, 2) for x in (q, k, v))
        return attend(q, k, v).transpose(1, 2).flatten(2)

    def make(b: int, s: int, t: int) -> Args:
        return tensor(b, s, 48), tensor(b, t, 48, seed=1), tensor(b, t, 60, seed=2)

    few = [n for n in SIZES if all(n)]
    check(heads, make, ({0: "b", 1: "s"}, {0: "b", 1: "t"}, {0: "b", 1: "t"}), sizes=few)


def test_heads_side_by_side() -> None:
    """Projections as models have them: heads lie side by side in a row, results too."""

    def heads(q: Any, k: Any, v: Any) -> Any:
        q, k, v = (x.reshape(*x.shape[:2], 3, -1).transpose(1, 2) for x in (q, k, v))
        return attend(q, k, v).transpose(1, 2).flatten(2)

    def make(b: int, s: int, t: int) -> Args:
        return tensor(b, s, 48), tensor(b, t, 48, seed=1), tensor(b, t, 60, seed=2)

    few = [n for n in SIZES if all(n)]
    check(heads, make, ({0: "b", 1: "s"}, {0: "b", 1: "t"}, {0: "b", 1: "t"}), sizes=few)


@pytest.mark.sweep
@pytest.mark.parametrize("precision", [None, "bf16"])
def test_rows_pages_apart(precision: str | None) -> None:
    """Queries whose rows would meet in one set of a cache are copied, as what is multiplied."""
    torch.manual_seed(0)
    joint = torch.nn.Linear(8, 3 * 2048)

    class Heads(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            parts = joint(x).chunk(3, -1)
            q, k, v = (t.unflatten(-1, (32, 64)).transpose(1, 2) for t in parts)
            return attend(q, k, v).transpose(1, 2).flatten(2)

    x = tensor(2, 40, 8)
    with torch.no_grad():
        want = Heads()(x)
        for dims in ({}, {0: "b", 1: "s"}):
            f = pliant.compile(Heads(), (x,), dynamic_shapes=(dims,), precision=precision)
            assert f.explain().count("[attention") == 1
            close = 2e-5 if precision is None else 0.06
            torch.testing.assert_close(f(x), want, rtol=close, atol=close)


def test_rows_that_do_not_lie_side_by_side() -> None:
    def columns(q: Any, k: Any, v: Any) -> Any:
        return attend(q.transpose(-1, -2), k, v)

    def make(b: int, s: int, t: int) -> Args:
        q, k, v = operands(b, s, t)
        return q.transpose(-1, -2).contiguous(), k, v

    check(columns, make, ({0: "b", 3: "s"}, {0: "b", 2: "t"}, {0: "b", 2: "t"}))


class Joint(torch.nn.Module):
    """Queries, keys and values are parts of the rows of one value, or of its columns."""

    def __init__(self, across: bool) -> None:
        super().__init__()
        self.across = across

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = x.relu()  # a result, so it is row-major
        if self.across:
            q, k, v = (t.unflatten(-2, (2, -1)).mT for t in x.chunk(3, -2))
        else:
            q, k, v = (t.unflatten(-1, (2, -1)).transpose(-2, -3) for t in x.chunk(3, -1))
        return attend(q, k, v), x


@pytest.mark.sweep
@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("keys", [1, 49, 300])
def test_parts_of_one_value(across: bool, keys: int) -> None:
    module, shape = Joint(across), (3, 192, keys) if across else (3, keys, 192)
    f = pliant.compile(module, (tensor(2, *shape),), dynamic_shapes=({0: "b"},))
    for b in (2, 1, 5):
        x = tensor(b, *shape, seed=b)
        for have, want in zip(f(x), module(x), strict=True):
            torch.testing.assert_close(have, want, rtol=2e-5, atol=2e-5)


class Windows(torch.nn.Module):
    """Attention within windows of an image, and a bias for each pair of places."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = torch.nn.Linear(64, 192)
        self.bias = torch.nn.Parameter(tensor(2, 49, 49))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.qkv(x).chunk(3, -1)
        q, k, v = (t.unflatten(-1, (2, 32)).transpose(-2, -3) for t in parts)
        return torch.softmax(q @ (k * 0.2).mT + self.bias, -1) @ v


def test_values_ask_for_no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values are packed, and a projection of which some are parts stays as queries want it."""
    chosen: list[dict[str, Any]] = []
    choose = function.choose_layouts

    def noted(*args: Any) -> Any:
        chosen.append(choose(*args))
        return chosen[-1]

    monkeypatch.setattr(function, "choose_layouts", noted)
    module, x = Windows().eval(), tensor(2, 4, 49, 64)
    f = pliant.compile(module, (x,), dynamic_shapes=({0: "b"},))
    assert chosen[0]["linear"] == (0, 1, 2, 3)
    torch.testing.assert_close(f(x), module(x), rtol=2e-5, atol=2e-5)


class Units(torch.nn.Module):
    """Queries, keys and values of heads and windows, as Hiera and video models have them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, windows, tokens, _ = x.shape
        parts = x.relu().view(b, windows, tokens, 3, 4, 24).permute(3, 0, 4, 1, 2, 5)
        return attend(*parts.unbind(0)).transpose(1, 3).reshape(b, -1, 96)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("windows", [1, 3])
def test_heads_and_windows(windows: int) -> None:
    """Scores and their sums have a dimension more than those of sequences, and lie in rows, too."""
    module, shape = Units(), (windows, 50, 288)
    dims = {0: "b"} if windows == 1 else {0: "b", 1: "w"}
    f = pliant.compile(module, (tensor(2, *shape),), dynamic_shapes=({**dims, 2: "t"},))
    assert f.explain().count("[attention") == 1
    for b, tokens in ((1, 1), (2, 33), (1, 196)):
        x = tensor(b, windows, tokens, 288, seed=tokens)
        torch.testing.assert_close(f(x), module(x), rtol=2e-5, atol=2e-5)


def test_epilogue() -> None:
    def gated(q: Any, k: Any, v: Any, g: Any) -> Any:
        return torch.relu(attend(q, k, v) * g) + 1

    def make(b: int, s: int, t: int) -> Args:
        return (*operands(b, s, t), tensor(b, 3, s, 40, seed=3))

    dims = ({0: "b", 2: "s"}, {0: "b", 2: "t"}, {0: "b", 2: "t"}, {0: "b", 2: "s"})
    f = check(gated, make, dims)
    assert f.explain().count("[map]") == 2  # what packs the operands


def test_other_rows() -> None:
    """Not only softmax: any maps and reductions of rows."""

    def squares(q: Any, k: Any, v: Any) -> Any:
        x = torch.relu(q @ k.transpose(-1, -2)) ** 2
        return (x / (x.sum(-1, keepdim=True) + 1)) @ v

    def two_values(q: Any, k: Any, v: Any) -> Any:
        x = q @ k.transpose(-1, -2)
        mean = x.mean(-1, keepdim=True)
        return ((x - mean) * torch.rsqrt(((x - mean) ** 2).mean(-1, keepdim=True) + 1e-5)) @ v

    some = [n for n in SIZES if n[2]]
    check(squares, operands, tolerance=1e-4, sizes=some)
    check(two_values, operands, tolerance=2e-4, sizes=some)


def test_nothing_and_no_numbers() -> None:
    """Rows that are masked wholly, infinities, NaN: as the definition has it."""

    def softmax(q: Any, k: Any, v: Any, m: Any) -> Any:
        return torch.softmax(q @ k.transpose(-1, -2) + m, -1) @ v

    def safe(q: Any, k: Any, v: Any, m: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=m)

    inf, nan = float("inf"), float("nan")

    def make(b: int, s: int, t: int) -> Args:
        q, k, v = operands(b, s, t)
        m = torch.zeros(s, t)
        m[::3] = -inf
        m[1::3, ::2] = -inf
        q[:, 0, 1::4] = nan
        k[:, 1, ::9, 0] = inf
        v[:, 2, 1::7] = inf
        v[:, 2, 2::7, ::2] = nan
        return q, k, v, m

    dims = ({0: "b", 2: "s"}, {0: "b", 2: "t"}, {0: "b", 2: "t"}, {0: "s", 1: "t"})
    sizes = ((1, 1, 1), (2, 13, 7), (1, 33, 65))
    check(softmax, make, dims, sizes=sizes)
    f = pliant.compile(Apply(safe), make(2, 6, 11), dynamic_shapes=(dims,))
    masked = make(2, 6, 11)[3].isinf().all(-1)
    assert (f(*operands(2, 6, 11), make(2, 6, 11)[3])[:, :, masked] == 0).all()


def test_batch_invariant() -> None:
    """A query's result does not depend on which others there are."""
    f = check(attend, operands, numerics="batch_invariant")
    q, k, v = operands(1, 61, 45)
    whole = f(q, k, v)
    for s in (1, 2, 17, 60):
        assert torch.equal(f(q[:, :, :s].contiguous(), k, v), whole[:, :, :s])


def test_strict() -> None:
    f = check(attend, operands, numerics="strict", fused=0)
    assert "[contraction" not in f.explain()


@pytest.mark.sweep(2)
@pytest.mark.parametrize("target", ["x86-64", "x86-64-avx2"])
def test_targets(target: str) -> None:
    check(attend, operands, target=target)


def test_threads() -> None:
    check(attend, operands, threads=3)


def test_what_is_wanted_elsewhere_is_kept() -> None:
    def weights_too(q: Any, k: Any, v: Any) -> Any:
        w = torch.softmax(q @ k.transpose(-1, -2), -1)
        return torch.cat((w @ v, w), -1)

    def sums_too(q: Any, k: Any, v: Any) -> Any:
        x = torch.exp(torch.tanh(q @ k.transpose(-1, -2)))
        total = x.sum(-1, keepdim=True)
        return torch.cat((x @ v / total, total), -1)

    f = check(weights_too, operands, fused=0)
    assert re.search(r"not in \d+: \S+ reads \S+ too", f.explain()), f.explain()
    f = check(sums_too, operands, fused=0, tolerance=1e-4, sizes=[n for n in SIZES if n[2]])
    assert "a value for each row is wanted elsewhere" in f.explain()


def test_weights_keep_products_apart() -> None:
    a, b = tensor(24, 50), tensor(50, 16)
    f = pliant.compile(
        Apply(lambda x: torch.softmax(x @ a, -1) @ b),
        (tensor(3, 24),),
        dynamic_shapes=(({0: "n"},),),
    )
    assert "[attention" not in f.explain()


@pytest.mark.sweep
@pytest.mark.parametrize("queries", [1, 7, 14, 15])
@pytest.mark.parametrize("heads", [1, 4], ids=["own keys", "shared keys"])
def test_queries_of_a_constant_number(queries: int, heads: int) -> None:
    def grouped(q: Any, k: Any, v: Any) -> Any:
        k, v = (x.expand(-1, heads, -1, -1) for x in (k, v))
        return torch.softmax(q @ k.transpose(-1, -2) * 0.25, -1) @ v

    def make(s: int) -> Args:
        return torch.randn(2, heads, queries, 16), torch.randn(2, 1, s, 16), torch.randn(2, 1, s, 9)

    f = pliant.compile(Apply(grouped), make(20), dynamic_shapes=(({}, {2: "s"}, {2: "s"}),))
    for s in (1, 2, 31, 33, 1000):
        args = make(s)
        torch.testing.assert_close(f(*args), grouped(*args), rtol=1e-4, atol=1e-5)


STAYS_APART: dict[str, Any] = {
    "made again": lambda a, m: torch.where(m[:, :1] < 0, torch.zeros(()), a.softmax(-1)),
    "no numbers": lambda a, m: torch.nan_to_num((a + m).softmax(-1)),
    "scaled": lambda a, m: a.softmax(-1) * 2 + m,
}


@pytest.mark.sweep
@pytest.mark.parametrize("case", STAYS_APART)
def test_weights_that_are_made_of_others(case: str) -> None:
    def attend_so(q: Any, k: Any, v: Any, m: Any) -> Any:
        return STAYS_APART[case](q @ k.transpose(-1, -2), m) @ v

    def make(t: int, s: int) -> Args:
        return (*(torch.randn(2, n, 8) for n in (t, s, s)), torch.randn(t, s))

    shapes = ({1: "t"}, {1: "s"}, {1: "s"}, {0: "t", 1: "s"})
    f = pliant.compile(Apply(attend_so), make(20, 30), dynamic_shapes=(shapes,))
    for t, s in ((1, 1), (17, 3), (40, 33), (5, 100)):
        args = make(t, s)
        torch.testing.assert_close(f(*args), attend_so(*args), rtol=1e-4, atol=1e-5)


def test_a_few_keys() -> None:
    q, k, v = torch.randn(2, 20, 8), torch.randn(2, 6, 8), torch.randn(2, 6, 8)
    f = pliant.compile(Apply(attend), (q, k, v), dynamic_shapes=(({1: "t"}, {}, {}),))
    torch.testing.assert_close(f(q, k, v), attend(q, k, v), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("target", ["native", "x86-64-avx2"])
def test_panels_of_two_widths(target: str) -> None:
    """What weights alone make of places (Swin v2), by two products, whose panels are not alike."""
    torch.manual_seed(0)

    class Places(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide, self.heads = torch.nn.Linear(2, 512), torch.nn.Linear(512, 24, bias=False)
            self.register_buffer("places", torch.randn(1, 13, 13, 2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.heads(self.wide(self.places).relu())

    module, x = Places(), torch.randn(1, 13, 13, 24)
    f = pliant.compile(module, (x,), target=target)
    with torch.no_grad():
        torch.testing.assert_close(f(x), module(x), rtol=2e-5, atol=2e-5)

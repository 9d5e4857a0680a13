"""`torch.compile(…, backend="pliant")`: the same as eager PyTorch, forwards and backwards."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from pliant import dynamo

Calls = list[tuple[Any, ...]]


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is compiled."""
    made: list[Any] = []
    compile_model = dynamo.compile_model

    def noted(*args: Any, **kwargs: Any) -> Any:
        made.append(compile_model(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(dynamo, "compile_model", noted)
    return made


def same(want: Any, found: Any) -> None:
    """Values, shapes, types and strides."""
    for w, f in zip(tree_leaves(want), tree_leaves(found), strict=True):
        if isinstance(w, torch.Tensor):
            assert w.stride() == f.stride()
            torch.testing.assert_close(f, w, rtol=2e-5, atol=2e-5)
        else:
            assert w == f


def check(model: Callable[..., Any], calls: Calls, *, eager: bool = False, **options: Any) -> None:
    """The same as the model in all calls; with a warning where a part runs in eager PyTorch."""
    compiled = torch.compile(model, backend="pliant", **options)
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        for args in calls:
            mine, theirs = copy.deepcopy(args), copy.deepcopy(args)
            same(model(*theirs), compiled(*mine))
            same(theirs, mine)  # what is changed in place
    said = [str(w.message) for w in caught if "in eager PyTorch" in str(w.message)]
    assert bool(said) == eager, said


def image(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


def test_it_is_registered() -> None:
    assert "pliant" in torch._dynamo.list_backends()


def test_one_compilation_for_sizes_that_vary(compilations: list[Any]) -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(2), nn.LayerNorm(64)
    ).eval()
    check(model, [(image(n, 3, 8, 8),) for n in (2, 3, 5, 13, 15)])
    assert len(compilations) == 2  # of the first size, and of all others


def test_sizes_0_and_1() -> None:
    check(nn.Linear(4, 3), [(image(n, 4),) for n in (3, 0, 1, 2)])
    check(lambda x: x.sum(0), [(image(n, 4),) for n in (0, 1, 2)])


def test_sizes_that_are_made_of_others() -> None:
    def parts(x: torch.Tensor) -> tuple[torch.Tensor, int, torch.Tensor]:
        y = torch.cat((x, x.flip(0), x[:1]))
        return y, y.shape[0] * 2, y.reshape(-1, 2).sum(1)

    check(parts, [(image(n, 4),) for n in (3, 5, 6)], dynamic=True)
    strided = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.Flatten())
    check(strided, [(image(2, 3, n, n + 3),) for n in (9, 12, 16)], dynamic=True)


def test_weights_that_change(compilations: list[Any]) -> None:
    model = nn.Linear(4, 3)
    compiled = torch.compile(model, backend="pliant")
    x = image(5, 4)
    with torch.no_grad():
        for _ in range(4):
            torch.testing.assert_close(compiled(x), model(x))
            model.weight.mul_(2)
            model.load_state_dict({"weight": model.weight + 1, "bias": model.bias * 3})
    assert len(compilations) == 2  # the second one takes weights as inputs
    with torch.inference_mode():
        torch.testing.assert_close(compiled(x), model(x))


def branches(x: torch.Tensor) -> torch.Tensor:
    y = torch.relu(x) * 2
    if y.sum() > 0:  # a graph ends here
        return y + 1
    return y - 1


def changes(x: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    x[0] = 0
    return x + 1


class Kept(nn.Module):
    """A buffer that calls add to."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total += x.sum(0)
        return self.total * 2


CASES: dict[str, tuple[Callable[..., Any], Calls]] = {
    "graphs that end early": (branches, [(image(4, 5),), (-image(4, 5).abs(),), (image(7, 5),)]),
    "structures": (lambda x: {"a": x.t(), "b": [x + 1, x.shape[0]], "c": x}, [
        (image(3, 4),), (image(5, 4),), (image(6, 4),)
    ]),
    "views": (lambda x: (x.view(-1), x[1:], x.mT), [(image(8, 4),), (image(9, 4),)]),
    "numbers": (lambda x, n: x.reshape(n, -1).sum(0) * n, [
        (image(12, 4), n) for n in (2, 3, 4, 6, 2)
    ]),
    "fractions": (lambda x, a: x * a, [(image(4), a) for a in (1.5, 2.5, 3.5)]),
    "changed inputs": (changes, [(image(8, 4),), (image(9, 4),)]),
    "items": (lambda x: x * x.sum().item(), [(image(8, 4),), (image(9, 4),)]),
    "selected": (lambda x: (x.relu() + 1)[x[:, 0] > 0].exp(), [(image(8, 4),), (image(9, 4),)]),
    "no tensor": (lambda: torch.arange(5) * 2, [()]),
    "integers": (lambda x: x // 3 + x % 5, [(torch.arange(-9, 9),), (torch.arange(7),)]),
    "LSTM": (nn.LSTM(8, 16, batch_first=True), [(image(2, n, 8),) for n in (4, 5, 6)]),
    "attention": (nn.MultiheadAttention(16, 4, batch_first=True).eval(), [
        (image(2, n, 16),) * 3 for n in (4, 5, 6)
    ]),
    "encoder": (
        nn.TransformerEncoder(
            nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2, enable_nested_tensor=False
        ).eval(),
        [(image(2, n, 16),) for n in (4, 5, 6)],
    ),
    "encoder, norms first": (
        nn.TransformerEncoderLayer(
            16, 2, 32, activation="gelu", batch_first=True, norm_first=True
        ).eval(),
        [(image(2, 5, 16),)],
    ),
}  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("case", CASES)
def test_functions(case: str) -> None:
    check(*CASES[case])


def test_a_weight_as_a_result() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(image(5, 4))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x @ self.table.T, self.table

    check(Tied(), [(image(3, 4),)])


def test_nothing_but_weights() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(image(5, 4))

        def forward(self) -> torch.Tensor:
            return self.table.softmax(-1) * 2

    check(Scaled(), [(), ()])


def test_parts_whose_weights_change() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.after = nn.Linear(8, 8), nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.before(x).tanh()
            return self.after(h * torch.rand_like(h).clamp(2, 2)).relu()  # twos

    model = Noisy()
    compiled = torch.compile(model, backend="pliant")
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in (3, 3, 5):
            x = image(n, 8)
            torch.testing.assert_close(compiled(x), model(x))
            model.before.weight.mul_(0.5)
    assert any("in eager PyTorch" in str(w.message) for w in caught)


def test_state() -> None:
    kept = Kept()
    compiled = torch.compile(copy.deepcopy(kept), backend="pliant")
    with torch.no_grad():
        for n in (3, 4, 5):
            x = image(n, 4)
            torch.testing.assert_close(compiled(x), kept(x))


def test_channels_last() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).to(memory_format=torch.channels_last)
    last = torch.channels_last
    check(model, [(image(n, 3, 9, 9).to(memory_format=last),) for n in (2, 3, 4)])


def test_what_is_not_supported_runs_around_what_is(compilations: list[Any]) -> None:
    def noisy(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        h = torch.tanh(x @ w) + 1
        h = h * torch.rand_like(h).clamp(2, 2)  # twos
        return torch.softmax(h, -1) @ w.T

    check(noisy, [(image(4, 8), image(8, 8))], eager=True)
    assert len(compilations) == 2


def test_checks_that_are_effects(compilations: list[Any]) -> None:
    """Their order is an input that is given as None."""

    def whitened(x: torch.Tensor) -> torch.Tensor:
        covariance = torch.tanh(x).mT @ x / x.shape[0] + 10 * torch.eye(x.shape[1])
        root = torch.linalg.cholesky(covariance.mT + covariance)
        return torch.softmax(x @ root + 1, -1) * 2

    check(whitened, [(image(n, 6),) for n in (8, 9, 5)], eager=True)
    assert len(compilations) > 1


class Block(nn.Module):
    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.joint, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.joint(self.norm(x)).chunk(3, -1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.feed(x)


def train(model: nn.Module, run: Callable[..., Any], batches: list[torch.Tensor]) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = run(batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_training_a_language_model() -> None:
    """Forwards and backwards are compiled, whole, for lengths that vary; steps are the same."""
    model = nn.Sequential(nn.Embedding(50, 32), Block(), nn.Linear(32, 50))
    other = copy.deepcopy(model)
    compiled = torch.compile(model, backend="pliant", dynamic=True)
    batches = [torch.randint(0, 50, (3, n)) for n in (9, 12, 17, 8)]

    def loss_of(run: Callable[..., Any]) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda b: F.cross_entropy(run(b[:, :-1]).flatten(0, 1), b[:, 1:].flatten())

    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*in eager PyTorch.*")
        found = train(model, loss_of(compiled), batches)
    want = train(other, loss_of(other), batches)
    assert found == pytest.approx(want, rel=1e-4)
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def test_training_a_convolutional_net() -> None:
    """Derivatives of convolutions are eager PyTorch's; statistics of batches are kept."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(72, 5),
    )  # fmt: skip
    other = copy.deepcopy(model)
    compiled = torch.compile(model, backend="pliant")
    batches = [image(n, 3, 8, 8) for n in (4, 6, 5)]
    for batch in batches:
        torch._dynamo.mark_dynamic(batch, 0)
    with pytest.warns(UserWarning, match="convolution_backward"):
        found = train(model, lambda x: compiled(x).square().mean(), batches)
    want = train(other, lambda x: other(x).square().mean(), batches)
    assert found == pytest.approx(want, rel=1e-4)
    for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False), nn.BatchNorm2d(width),
            nn.ReLU6(), nn.Conv2d(width, width, 1), nn.BatchNorm2d(width),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.body(x))


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "residual": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), Residual(8), Residual(8), nn.Flatten(2)),
        (3, 9, 10),
    ),
    "eager views": (  # what comes back from the pads is viewed
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.ReLU(), nn.ReflectionPad2d(1), nn.Unflatten(1, (2, 4)),
            nn.Flatten(0, 1), nn.Conv2d(4, 4, 3), nn.Sigmoid(),
        ),
        (3, 7, 8),
    ),
    "volumes": (
        lambda: nn.Sequential(
            nn.Conv3d(2, 4, 3, padding=1), nn.BatchNorm3d(4), nn.ReLU(), nn.Conv3d(4, 3, 2),
        ),
        (2, 4, 5, 6),
    ),
    "sequences": (
        lambda: nn.Sequential(nn.Conv1d(2, 4, 3), nn.GELU(), nn.Conv1d(4, 2, 3, 2)), (2, 11),
    ),
    "enlarged": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 6, 3, stride=2), nn.ReLU(), nn.ConvTranspose2d(6, 4, 2, stride=2),
            nn.Upsample(scale_factor=2), nn.Conv2d(4, 1, 1),
        ),
        (3, 9, 11),
    ),
    "one by one": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Conv2d(6, 4, 1),
            nn.Flatten(), nn.Linear(4, 2),
        ),
        (3, 5, 5),
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*in eager PyTorch")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", NETS)
def test_gradients_of_convolutional_nets(name: str, dynamic: bool) -> None:
    make, shape = NETS[name]
    model = make()
    other = copy.deepcopy(model)
    compiled = torch.compile(model, backend="pliant", dynamic=dynamic)
    for n in (2, 1, 3):
        x, y = (image(n, *shape).requires_grad_() for _ in range(2))
        y.data.copy_(x.data)
        found, want = compiled(x), other(y)
        assert found.stride() == want.stride()
        weights = torch.randn(want.shape)
        (found * weights).sum().backward()
        (want * weights).sum().backward()
        pairs = [(found, want), (x.grad, y.grad)]
        pairs += [
            (a.grad, b.grad) for a, b in zip(model.parameters(), other.parameters(), strict=True)
        ]
        for a, b in pairs:
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def test_images_lie_with_their_channels_last_between_both_ways(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What one part of the model keeps or computes for another."""
    images: list[torch.Tensor] = []
    captured = dynamo.captured

    def noted(graph: Any, weights: Any, given: Any, *rest: Any) -> Any:
        images.extend(x for x in given if x.shape == (2, 8, 4, 5))
        return captured(graph, weights, given, *rest)

    monkeypatch.setattr(dynamo, "captured", noted)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1), nn.Sigmoid()
    )
    compiled = torch.compile(model, backend="pliant")
    with pytest.warns(UserWarning, match="convolution_backward"):
        compiled(image(2, 3, 9, 11)).sum().backward()
    assert len(images) > 2
    assert all(dynamo.is_channels_last(x) for x in images)


def test_options(compilations: list[Any]) -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
    compiled = torch.compile(model, backend="pliant", options={"precision": "bf16", "threads": 1})
    x = image(5, 64)
    with torch.no_grad():
        error = (compiled(x) - model(x)).norm() / model(x).norm()
    assert 1e-4 < error < 2e-2
    assert compilations[0].stats()["threads"] == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"options": {"freeze": True}}, r"options=\{'freeze': ...\} is not available; there are: "),
        ({"mode": "max-autotune"}, "mode='max-autotune' is for another backend"),
    ],
)
def test_other_options(options: dict[str, Any], said: str) -> None:
    with pytest.raises(Exception, match=said):
        torch.compile(nn.Linear(2, 2), backend="pliant", **options)(image(1, 2))

"""nn.LSTM, nn.GRU and nn.RNN: one compilation for every length and batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import pliant
from tests.compiled.torch_cases import tensor
from tests.frontend.torch.running import assert_same

SIZES = ((2, 7), (1, 1), (5, 1), (1, 37), (3, 130))
MODULES: dict[str, tuple[type[nn.RNNBase], dict[str, Any]]] = {
    "lstm": (nn.LSTM, {}),
    "lstm, layers": (nn.LSTM, {"num_layers": 3, "bidirectional": True, "dropout": 0.5}),
    "lstm, time first": (nn.LSTM, {"batch_first": False, "bias": False}),
    "lstm, projection": (nn.LSTM, {"proj_size": 3}),
    "lstm, layers of projections": (
        nn.LSTM,
        {"num_layers": 2, "bidirectional": True, "proj_size": 2, "bias": False},
    ),
    "gru": (nn.GRU, {}),
    "gru, layers": (nn.GRU, {"num_layers": 2, "bidirectional": True, "bias": False}),
    "gru, wide": (nn.GRU, {"hidden_size": 33, "batch_first": False}),
    "rnn": (nn.RNN, {"num_layers": 2}),
    "rnn, relu": (nn.RNN, {"nonlinearity": "relu", "bidirectional": True}),
}


def _module(name: str) -> nn.RNNBase:
    torch.manual_seed(0)
    kind, options = MODULES[name]
    return kind(5, **{"hidden_size": 6, "batch_first": True, **options}).eval()


@pytest.mark.sweep
@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("given", [False, True])
def test_every_length(name: str, given: bool) -> None:
    module = _module(name)
    states = 2 if isinstance(module, nn.LSTM) else 1
    ways = module.num_layers * (2 if module.bidirectional else 1)

    def make(b: int, s: int) -> tuple[Any, ...]:
        x = tensor(*((b, s) if module.batch_first else (s, b)), 5, seed=s)
        widths = (module.proj_size or module.hidden_size, module.hidden_size)[:states]
        begin = tuple(tensor(ways, b, n, seed=b + k) for k, n in enumerate(widths))
        return (x, begin if states == 2 else begin[0]) if given else (x,)

    batch, steps = (0, 1) if module.batch_first else (1, 0)
    begin: Any = None
    if given:
        begin = ({1: "b"}, {1: "b"}) if states == 2 else {1: "b"}
    shapes = {"input": {batch: "b", steps: "s"}, "hx": begin}
    f = pliant.compile(module, make(2, 6), dynamic_shapes=shapes)
    for b, s in SIZES:
        args = make(b, s)
        with torch.no_grad():
            expected = module(*args)
        assert_same(f(*args), expected, tolerance=1e-5)
    assert f.stats()["compiles"] == 1


@pytest.mark.sweep(3)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_types(dtype: torch.dtype) -> None:
    module = _module("lstm").to(dtype)
    f = pliant.compile(module, (tensor(2, 6, 5, dtype=dtype),), dynamic_shapes=({1: "s"},))
    x = tensor(2, 19, 5, dtype=dtype)
    (y, (h, c)), wide = f(x), _module("lstm").to(dtype).double()
    expected, (last, cell) = wide(x.double())
    limit = {torch.float64: 1e-12, torch.float16: 2e-3, torch.bfloat16: 2e-2}[dtype]
    for have, want in ((y, expected), (h, last), (c, cell)):
        assert have.dtype == dtype
        torch.testing.assert_close(have.double(), want, rtol=limit, atol=limit)


def test_no_batch_and_a_model_around() -> None:
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.lstm = nn.Embedding(30, 5), _module("lstm, layers")
            self.head = nn.Linear(12, 4)

        def forward(self, words: torch.Tensor) -> torch.Tensor:
            y, (h, _) = self.lstm(self.embed(words))
            return self.head(y) + self.head(torch.cat([h[-1], h[-2]], -1))[..., None, :]

    module = Tagger().eval()
    f = pliant.compile(module, (torch.arange(7),), dynamic_shapes=({0: "s"},))
    for s in (1, 7, 29):
        words = torch.arange(s)
        with torch.no_grad():
            assert_same(f(words), module(words), tolerance=1e-5)


def test_an_exported_program() -> None:
    """Torch's own trace keeps the layer, at one length."""
    module, x = _module("gru, layers"), tensor(2, 6, 5)
    with torch.no_grad():
        f = pliant.compile(torch.export.export(module, (x,)))
        assert_same(f(x), module(x), tolerance=1e-5)


def test_torch_is_as_it_was() -> None:
    kept = [getattr(torch._VF, k) for k in ("lstm", "gru", "rnn_tanh", "rnn_relu")]
    pliant.compile(_module("rnn"), (tensor(2, 6, 5),))
    assert [getattr(torch._VF, k) for k in ("lstm", "gru", "rnn_tanh", "rnn_relu")] == kept


CELLS: dict[str, nn.RNNCellBase] = {
    "lstm": nn.LSTMCell(5, 6),
    "lstm, no bias": nn.LSTMCell(5, 6, bias=False),
    "gru": nn.GRUCell(5, 6),
    "gru, no bias": nn.GRUCell(5, 6, bias=False),
    "rnn": nn.RNNCell(5, 6),
    "rnn, relu": nn.RNNCell(5, 6, nonlinearity="relu", bias=False),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", CELLS)
def test_cells(name: str) -> None:
    cell = CELLS[name].eval()
    pair = isinstance(cell, nn.LSTMCell)

    def make(b: int) -> tuple[Any, ...]:
        h, c = tensor(b, 6, seed=b), tensor(b, 6, seed=b + 1)
        return tensor(b, 5, seed=b + 2), (h, c) if pair else h

    state: Any = ({0: "b"}, {0: "b"}) if pair else {0: "b"}
    f = pliant.compile(cell, make(3), dynamic_shapes=({0: "b"}, state))
    for b in (3, 1, 0, 17):
        args = make(b)
        with torch.no_grad():
            assert_same(f(*args), cell(*args), tolerance=1e-5)
    alone = pliant.compile(cell, (tensor(5),))
    with torch.no_grad():
        assert_same(alone(tensor(5)), cell(tensor(5)), tolerance=1e-5)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_cells_of_other_types(dtype: torch.dtype) -> None:
    """Of 16 bits, as exact as the result can say."""
    torch.manual_seed(0)
    cell = nn.GRUCell(5, 6).to(dtype).eval()
    x, h = tensor(4, 5, dtype=dtype), tensor(4, 6, dtype=dtype)
    y = pliant.compile(cell, (x, h))(x, h)
    assert y.dtype is dtype
    with torch.no_grad():
        expected = cell.double()(x.double(), h.double())
    torch.testing.assert_close(
        y.double(), expected, atol=1e-2 if dtype.itemsize == 2 else 1e-12, rtol=0
    )

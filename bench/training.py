"""Steps of training under `torch.compile(backend="pliant")`, beside eager PyTorch (also with
channels last) and Inductor: forwards, the loss, backwards, and the optimizer's step in eager.

    PYTHONPATH=src:. python bench/training.py [NAME …] [--threads N] [--runs N] [--json FILE]

Calls of all systems are interleaved; the clock includes a whole step on a batch that is there.
"""

from __future__ import annotations

import argparse
import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from bench.timing import compare, contention, message, report
from tests.models.decoder import Config, Decoder
from tests.models.mobilenet import MobileNetV2
from tests.models.resnet import ResNet

SYSTEMS: Final = ("pliant", "eager", "eager channels_last", "inductor")
Made = tuple[nn.Module, torch.Tensor]


def _perceptron() -> Made:
    layers = (nn.Linear(256, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Linear(1024, 1024))
    return nn.Sequential(*layers, nn.GELU(), nn.Linear(1024, 10)), torch.randn(64, 256)


def _encoder() -> Made:
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    return nn.Sequential(encoder, nn.Linear(256, 10)), torch.randn(4, 64, 256)


def _decoder() -> Made:
    config = Config(layers=4, hidden=256, heads=8, inner=704, vocabulary=1000)
    return Decoder(config), torch.randint(0, 1000, (4, 64))


MODELS: Final[dict[str, Callable[[], Made]]] = {
    "perceptron": _perceptron,
    "encoder": _encoder,
    "decoder": _decoder,
    "resnet26": lambda: (ResNet((2, 2, 2, 2)), torch.randn(8, 3, 64, 64)),
    "mobilenet_v2": lambda: (MobileNetV2(), torch.randn(8, 3, 96, 96)),
}


def steps(made: Made, system: str, threads: int) -> Callable[[], object]:
    """A step of training of a copy of the model."""
    model: Any = copy.deepcopy(made[0]).train()
    batch = made[1]
    if system.endswith("channels_last"):
        model = model.to(memory_format=torch.channels_last)
        batch = batch.to(memory_format=torch.channels_last)
    run = model
    if not system.startswith("eager"):
        torch._dynamo.reset()
        more: Any = {"options": {"threads": threads}} if system == "pliant" else {}
        run = torch.compile(model, backend=system, **more)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)

    def step() -> object:
        optimizer.zero_grad()
        loss = run(batch).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    with warnings.catch_warnings():  # convolutions' derivatives are eager PyTorch's
        warnings.simplefilter("ignore")
        step()
    return step


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=[], help=f"of {', '.join(MODELS)}")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    rows, busy = [], contention()
    for name in options.models or MODELS:
        made = MODELS[name]()
        image = made[1].dim() == 4
        message(f"{name}: compiling")
        systems = [s for s in SYSTEMS if image or not s.endswith("channels_last")]
        calls = {s: steps(made, s, options.threads) for s in systems}
        row = compare(calls, "pliant", options.runs)
        best = min(x for k, x in row.items() if k.startswith("x "))
        rows.append({"model": name, **{f"{s} ms": row.get(f"{s} ms", "") for s in SYSTEMS},
                     "x best": best})  # fmt: skip
    report(rows, busy or contention(), options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Nodes that are equal are one object, whichever thread makes them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn

import pliant
from pliant.base.dtypes import f32
from pliant.ir.expr import Binary, Expr, Var

THREADS = 8


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(do: list[threading.Thread]) -> None:
    for t in do:
        t.start()
    for t in do:
        t.join()


def test_of_several_threads(restless: None) -> None:
    together = threading.Barrier(THREADS)
    made: list[list[Expr]] = [[] for _ in range(THREADS)]

    def make(mine: list[Expr]) -> None:
        for n in range(200):
            together.wait()
            mine.append(Binary("add", Var(f"interned_{n}", f32), Var(f"interned_{n + 1}", f32)))

    at_once([threading.Thread(target=make, args=(mine,)) for mine in made])
    assert len(made[0]) == 200
    for same in zip(*made, strict=True):
        assert all(x is same[0] for x in same)


def test_dropped_by_several_threads(restless: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept stays the one node of its fields while others make equal ones and drop them."""
    lost: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)
    others = []

    def drop() -> None:
        for n in range(20_000):
            kept = Var(f"dropped_{n % 3}", f32)
            if Var(f"dropped_{n % 3}", f32) is not kept:
                others.append(n)

    at_once([threading.Thread(target=drop) for _ in range(THREADS)])
    assert not lost
    assert not others


def test_compilations_at_once(restless: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLIANT_CACHE_DIR", "off")
    model = nn.Sequential(nn.Linear(6, 9), nn.GELU(), nn.LayerNorm(9), nn.Linear(9, 4)).eval()
    program = torch.export.export(
        model, (torch.ones(3, 6),), dynamic_shapes=({0: torch.export.Dim("b")},)
    )
    x = torch.randn(5, 6)
    results: list[np.ndarray] = []
    at_once(
        [
            threading.Thread(target=lambda: results.append(pliant.compile(program)(x.numpy())))
            for _ in range(3)
        ]
    )
    assert len(results) == 3
    for y in results:
        np.testing.assert_allclose(y, model(x).detach().numpy(), rtol=1e-4, atol=1e-6)

"""A launch that takes one of several kernels, by what holds of the sizes of the call."""

from __future__ import annotations

import torch

from pliant.codegen.llvm.target import target as find_target
from pliant.frontend.select import Request, import_model
from pliant.ir.expr import Binary, Index
from pliant.loop.stmt import If, Invoke, statements
from pliant.ops.table import OPERATORS
from pliant.sym.expr import as_int, var
from tests.compiled.test_gaps import Product
from tests.stages.oracle import stages_of


def test_the_host_chooses() -> None:
    dims = {"a": {0: "m", 1: "k"}, "b": {0: "k", 1: "n"}}
    request = Request(Product(), (torch.randn(8, 24), torch.randn(24, 40)), None, dims)
    imported = import_model(request, OPERATORS)
    avx512 = find_target("x86-64-avx512")
    main = stages_of(imported.function, {}, avx512, programs=False).parts[-1]
    (choice,) = [s for s in statements(main.host.body) if isinstance(s, If)]
    then, otherwise = choice.then, choice.otherwise
    assert isinstance(then, Invoke) and isinstance(otherwise, Invoke)
    assert then.args == otherwise.args
    gathers = [main.kernels[s.callee].plans[0][1].gather for s in (then, otherwise)]
    assert gathers == [True, False]
    rest = Index(4 * (var("k") % 1024))
    assert choice.cond is Binary("eq", rest, Index(as_int(0)))

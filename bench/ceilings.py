"""What a model takes at least, and what the machine can do at most.

    python -m bench.ceilings work MODEL FOLDER SIZES       operations and bytes, as JSON
    python -m bench.ceilings peaks THREADS                 operations and bytes a second, as JSON

Operations are those of the reductions over products of our own graph (2 a term); bytes are inputs,
weights and outputs once. What passes between operators is not counted: it can stay in a cache. So
their times at the machine's peaks are a lower limit, and no call can have more than 100 % of it.
"""

from __future__ import annotations

import json
import math
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from bench.limits import Copies, least, peak_operations
from bench.systems import Sizes, case_of, read_inputs
from pliant.frontend.imported import ImportedModel
from pliant.frontend.select import Request, import_model
from pliant.graph.function import Dim, Value
from pliant.ir.einsum import split_guard
from pliant.ir.expr import Binary, Reduce
from pliant.ir.tensor import Compute
from pliant.lower.function import facts_of
from pliant.lower.stages import Stages, fission
from pliant.ops.table import OPERATORS


def work(model: str, folder: Path, each: list[Sizes]) -> list[dict[str, int]]:
    """{"flops", "bytes"} at each of the sizes."""
    imported = _imported(model)
    stages = fission(imported.function, OPERATORS, facts_of(imported.function))
    return [_count(imported, stages, _symbols(imported, folder, sizes)) for sizes in each]


def _imported(model: str) -> ImportedModel:
    case = case_of(model)
    dims = {n: Dim(**known) for n, known in case.dims.items()}
    if hasattr(case, "module"):
        request = Request(case.module, (), case.inputs, case.dynamic_shapes, dims)
    else:
        request = Request(case.path, dims=dims)
    return import_model(request, OPERATORS)


def _symbols(imported: ImportedModel, folder: Path, sizes: Sizes) -> dict[str, int]:
    """What the symbols are when the inputs of these sizes come."""
    given, found = read_inputs(folder, sizes), {}
    for name, value in zip(imported.inputs, imported.function.params, strict=True):
        for extent, size in zip(value.type.shape, given[name].shape, strict=True):
            if len(extent.names) == 1 and str(extent) in extent.names:
                found[str(extent)] = size
    return found


def _count(imported: ImportedModel, stages: Stages, symbols: dict[str, int]) -> dict[str, int]:
    f = imported.function

    def size(value: Value) -> int:
        return math.prod(d.eval(symbols) for d in value.type.shape) * value.type.dtype.bytes

    flops = 0
    for stage in stages.stages.values():
        t = stage.tensor
        if isinstance(t, Compute) and isinstance(t.body, Reduce) and t.body.combiner == "sum":
            term, _ = split_guard("sum", t.body.body)
            if isinstance(term, Binary) and term.op == "mul":
                axes = (*t.axes, *t.body.axes)
                flops += 2 * math.prod(a.extent.eval(symbols) for a in axes)
    values = (*f.params, *f.results, *(v for v, _ in f.weights))
    return {"flops": flops, "bytes": sum(map(size, values))}


def peaks(threads: int) -> dict[str, float]:
    """Operations a second of multiply-adds, in f32 and bf16, in registers or, where that has
    instructions of its own (tiles), in the framework's product; bytes a second of the best copy,
    read and written."""
    torch.set_num_threads(threads)
    found = {}
    n = 2048
    for name, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16)):
        a, b = (torch.randn(n, n).to(dtype) for _ in range(2))
        product = 2 * n**3 / least(lambda a=a, b=b: torch.mm(a, b))
        found[name] = max(product, peak_operations(threads, bf16=name == "bf16"))
    x, y = torch.ones(1 << 26), torch.zeros(1 << 26)
    streamed = [Copies(2 * x.nbytes // threads).calls()["stream"] for _ in range(threads)]

    def streams() -> None:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda call: call(), streamed))

    found["copy"] = 2 * x.nbytes / min(least(lambda: y.copy_(x)), least(streams))
    return found


def main() -> int:
    """One process's part."""
    found: Any
    if sys.argv[1] == "peaks":
        found = peaks(int(sys.argv[2]))
    else:
        found = work(sys.argv[2], Path(sys.argv[3]), json.loads(sys.argv[4]))
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

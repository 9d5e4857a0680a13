"""Torch's samples of its own operators (`torch.testing`), compiled and compared with torch.

    PYTHONPATH=src:. python bench/torch_conformance.py [NAME …] [--dtype float32 …] [--samples N]
        [--symbolic]

Each sample is a model of one operator whose tensors are inputs; complex results are compared as
pairs. With `--symbolic` dims are named by their sizes, and what was compiled is called at other
sizes too; inputs other than floats are few small numbers then. What torch itself refuses there does
not count, nor do sparse results. Standard output is a table of what is not right; exit code 4 where
a result is wrong, or anything but a `PliantError` comes.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import pliant
from pliant.base.errors import InternalError
from pliant.cli.terminal import table

Inputs = tuple[torch.Tensor, ...]
BAD = ("wrong", "failed")


class Operator(nn.Module):
    """An operator of these arguments, the tensors among them from the caller."""

    def __init__(self, op: Any, arguments: Any) -> None:
        super().__init__()
        self._op = op
        self._leaves, self._spec = pytree.tree_flatten(arguments)
        self._at = [k for k, x in enumerate(self._leaves) if isinstance(x, torch.Tensor)]

    @property
    def inputs(self) -> Inputs:
        """The sample's tensors."""
        return tuple(self._leaves[k].clone() for k in self._at)

    @property
    def others(self) -> list[Any]:
        """Its other arguments."""
        return [x for k, x in enumerate(self._leaves) if k not in self._at]

    def forward(self, *tensors: torch.Tensor) -> Any:
        leaves = list(self._leaves)
        for k, x in zip(self._at, tensors, strict=True):
            leaves[k] = x
        args, kwargs = pytree.tree_unflatten(leaves, self._spec)
        return pytree.tree_map(_real, self._op(*args, **kwargs))


@dataclass(frozen=True)
class Outcome:
    """What came of a sample: right, refused, wrong or failed."""

    operator: str
    what: str
    why: str = ""
    sample: str = ""


def samples(op: Any, dtype: torch.dtype, most: int) -> Iterator[Operator]:
    """As many that torch computes, and that have plain tensors."""
    found = 0
    for sample in op.sample_inputs("cpu", dtype, requires_grad=False):
        module = Operator(op.op, ((sample.input, *sample.args), sample.kwargs))
        result = computed(module, module.inputs) if module.inputs else None
        leaves = pytree.tree_leaves(result)
        if leaves and all(map(_is_plain, leaves)):
            yield module
            found += 1
        if found == most:
            return


def _is_plain(x: Any) -> bool:
    return not isinstance(x, torch.Tensor) or x.layout is torch.strided


def _real(x: Any) -> Any:
    """Complex results as pairs, which a model may have."""
    if isinstance(x, torch.Tensor) and x.is_complex():
        return torch.view_as_real(x.resolve_conj())
    return x


def computed(module: nn.Module, inputs: Inputs) -> Any:
    """What torch makes of them; None where it refuses."""
    try:
        with torch.no_grad():
            return module(*(x.clone() for x in inputs))
    except Exception:  # torch raises many kinds
        return None


def outcome(name: str, module: Operator, *, symbolic: bool) -> Outcome:
    """Compile it and call it, at its sizes and, where they are symbols, at others."""
    inputs = module.inputs
    sample = f"{[tuple(x.shape) for x in inputs]} {module.others}"[:120]
    named = tuple({k: f"d{d}" for k, d in enumerate(x.shape) if d > 1} for x in inputs)
    try:
        f = pliant.compile(module, inputs, dynamic_shapes=(named,) if symbolic else None)
    except InternalError as error:
        return Outcome(name, "failed", str(error), sample)
    except pliant.PliantError as error:
        return Outcome(name, "refused", str(error), sample)
    except Exception as error:
        return Outcome(name, "failed", f"{type(error).__name__}: {error}", sample)
    for call in (inputs, *(resized(inputs, change) for change in CHANGES if symbolic)):
        expected = computed(module, call)
        if expected is None:
            continue
        try:
            found = f(*call)
        except pliant.PliantError as error:
            if call is inputs:
                return Outcome(name, "wrong", f"it refuses its own sample: {error}", sample)
            continue
        except Exception as error:
            return Outcome(name, "failed", f"{type(error).__name__}: {error}", sample)
        if difference := differs(found, expected):
            shapes = [tuple(x.shape) for x in call]
            return Outcome(name, "wrong", f"{difference} at {shapes}", sample)
    return Outcome(name, "right")


CHANGES = (lambda d: d + 1, lambda d: d + 7, lambda d: 2 * d, lambda d: max(2, d - 1), lambda d: 1)


def resized(inputs: Inputs, change: Any) -> Inputs:
    """Random tensors whose dims, but those of one element, are changed so."""
    return tuple(_random([change(d) if d > 1 else d for d in x.shape], x.dtype) for x in inputs)


def _random(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_floating_point:
        return torch.rand(shape, dtype=dtype) * 4 - 1.5
    return torch.randint(0, 2, shape).to(dtype)


def differs(found: Any, expected: Any) -> str:
    """In what; empty where in nothing."""
    a, left = pytree.tree_flatten(found)
    b, right = pytree.tree_flatten(expected)
    if left != right:
        return "the structure"
    return next(filter(None, map(_differs, a, b)), "")


def _differs(a: Any, b: Any) -> str:
    if not isinstance(b, torch.Tensor):
        return "" if a == b else f"{a} for {b}"
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{a.dtype}{list(a.shape)} for {b.dtype}{list(b.shape)}"
    if not b.dtype.is_floating_point:
        return "" if torch.equal(a, b) else "integers"
    finite = b[b.isfinite()].double()
    scale = float(finite.abs().max()) if finite.numel() else 1.0
    wide = 2e-2 if b.dtype.itemsize == 2 else 1e-4
    near = torch.allclose(
        a.double(), b.double(), rtol=wide, atol=wide * max(scale / 10, 1e-3), equal_nan=True
    )
    return "" if near else "values"


def outcomes(
    names: Sequence[str], dtype: torch.dtype, most: int, *, symbolic: bool
) -> list[Outcome]:
    """Of every operator that takes the type; of those named, where any are."""
    found = []
    for op in op_db:
        name = f"{op.name}.{op.variant_test_name}".rstrip(".")
        if dtype not in op.dtypes or (names and op.name not in names and name not in names):
            continue
        print(name, file=sys.stderr, flush=True)
        found += [outcome(name, m, symbolic=symbolic) for m in samples(op, dtype, most)]
    return found


def rows(found: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """What is not right, alike ones of an operator once."""
    alike = Counter((o.operator, o.what) for o in found)
    first = {(o.operator, o.what): o for o in reversed(found)}
    return [
        (*key, str(alike[key]), f"{' '.join(o.why.split())} {o.sample}"[:160])
        for key, o in sorted(first.items())
        if o.what != "right"
    ]


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--dtype", nargs="+", default=["float32"])
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--symbolic", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    bad = False
    for dtype in options.dtype:
        found = outcomes(
            options.names, getattr(torch, dtype), options.samples, symbolic=options.symbolic
        )
        counts = Counter(o.what for o in found)
        if not_right := rows(found):
            print(table(("operator", "outcome", "samples", "the first"), not_right))
        print(f"{dtype}: {len(found)} samples, {dict(counts)}", flush=True)
        bad = bad or any(counts[what] for what in BAD)
    return 4 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

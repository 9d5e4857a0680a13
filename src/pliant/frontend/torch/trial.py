"""One way to trace a module: what varies, at which sizes the example is, and by which tracer."""

from __future__ import annotations

import contextlib
import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from pliant.base.errors import InvalidModelError, UnsupportedError
from pliant.frontend.torch.dims import Leaf, torch_spec
from pliant.frontend.torch.examples import resized
from pliant.frontend.torch.probe import Probe
from pliant.frontend.torch.recurrent import whole_recurrences
from pliant.frontend.torch.unasked import values_unasked
from pliant.frontend.torch.whole_sizes import WholeSizes
from pliant.frontend.torch.whole_views import whole_views
from pliant.graph.function import Dim


@dataclass(frozen=True)
class Trial:
    """A module and its example, with what is said of the dims: `spec` in the structure of the
    arguments, `dims` by name, `leaves` for each tensor."""

    model: torch.nn.Module
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    leaves: Sequence[Leaf]
    spec: Any
    dims: Mapping[str, Dim]

    def trace(self, sizes: Mapping[str, int]) -> ExportedProgram:
        """At these sizes. Non-strict first (fast, follows Python), then through Dynamo. Raises
        InvalidModelError where a dim is fixed by the model, UnsupportedError for what torch cannot
        capture."""
        first: Exception | None = None
        for strict in (False, True):
            try:
                return self._exported(sizes, strict)
            except Exception as error:  # torch raises many kinds, some of them private
                first = first or error
                if _is_about_sizes(error):
                    break
        assert first is not None
        raise _explained(first) from first

    def attempt(self, sizes: Mapping[str, int], *, strict: bool = False) -> ExportedProgram | None:
        """A trace that may fail: at sizes that the model need not take, or by Dynamo."""
        disabled = logging.root.manager.disable
        logging.disable(logging.CRITICAL)  # Dynamo logs what it raises
        try:
            return self._exported(sizes, strict)
        except Exception:  # torch raises many kinds, some of them private
            return None
        finally:
            logging.disable(disabled)

    def probe(self, program: ExportedProgram) -> Probe:
        """To run the model and a trace beside one another."""
        return Probe(self.model, self.args, self.kwargs, self.leaves, program)

    def run_example(self) -> None:
        """What torch itself cannot run is no question of what can be exported. Raises
        InvalidModelError."""
        try:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.model(*self.args, **self.kwargs)
        except Exception as error:  # torch raises many kinds
            raise InvalidModelError(
                f"the model fails on the example inputs: {type(error).__name__}: "
                f"{_first_line(error)}"
            ) from error

    def _exported(self, sizes: Mapping[str, int], strict: bool) -> ExportedProgram:
        args, kwargs = _unmarked(resized(self.args, self.kwargs, self.leaves, sizes))
        shapes = torch_spec(self.spec, self.dims)
        # Dynamo would trace the mode as a part of the model.
        symbols = contextlib.nullcontext() if strict else WholeSizes()
        with (
            torch.no_grad(), warnings.catch_warnings(), _transforms_ended(), whole_recurrences(),
            whole_views(), values_unasked(), symbols,
        ):  # fmt: skip
            warnings.simplefilter("ignore")
            return torch.export.export(
                self.model, args, kwargs, dynamic_shapes=shapes, strict=strict
            )


@contextlib.contextmanager
def _transforms_ended() -> Iterator[None]:
    """Transforms of torch.func that are begun inside are ended: torch does not end those of a trace
    that fails, and whatever is computed afterwards would be a part of them."""
    depth = torch._C._functorch.get_dynamic_layer_stack_depth()
    try:
        yield
    finally:
        torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)


def _unmarked(arguments: Any) -> Any:
    """Each example a tensor of its own, over the same memory: torch marks dims on those that it
    gets, and does not take that back where it fails; and one tensor given for two arguments,
    attention(x, x, x), would be one input of the trace, whatever the others are called with."""

    def own(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or isinstance(x, torch.nn.Parameter):
            return x
        return x.detach()

    return pytree.tree_map(own, arguments)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["without a message"])[0]


def _is_about_sizes(error: Exception) -> bool:
    text = str(error)
    return "specialized it to be a constant" in text or "Constraints violated" in text


_UNKNOWN_TYPE = re.compile(r"Found <class '(.+?)'> in output, which is not a known type")
_DATA_DEPENDENT = re.compile(r"Could not (?:guard on|extract).+data-dependent expression")
_FRAME = re.compile(r'File "(.+?)", line (\d+), in ')


_BEHIND = ("The error above occurred when calling", "Exception raised from")  # of the message


def _explained(error: Exception) -> Exception:
    text = str(error)
    for behind in _BEHIND:
        text = text.partition(behind)[0].strip()
    if unknown := _UNKNOWN_TYPE.search(text):
        return UnsupportedError(
            f"the model returns a {unknown[1]}, a class that torch.export does not know: return "
            "tensors, tuples, dicts or dataclasses, or register the class with torch.utils._pytree."
            "register_pytree_node (a cache of keys and values: switch it off, use_cache=False)"
        )
    if _DATA_DEPENDENT.search(text):
        frames = _FRAME.findall(text)
        where = f" at {frames[-1][0]}:{frames[-1][1]}" if frames else ""
        return UnsupportedError(
            f"the model decides by the values of a tensor{where}: what it computes must follow "
            f"from shapes alone; use torch.where ({text.splitlines()[0]})"
        )
    if _is_about_sizes(error):
        return InvalidModelError(
            f"a dimension that is declared dynamic is fixed by the model:\n{text}\nLeave it out of "
            "dynamic_shapes, or change the code that compares it with a constant"
        )
    return UnsupportedError(
        f"torch.export cannot capture the model: {type(error).__name__}: {text}"
    )

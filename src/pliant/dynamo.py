"""`torch.compile(model, backend="pliant")`: what TorchDynamo captures of a model, compiled.

    model -> Dynamo's graphs -> AOTAutograd: graphs of ATen operators, forwards and backwards
          -> one compilation each, at its first call; the graph itself, in eager PyTorch, where a
             part of it is not supported, around the parts that are

Where no gradients are wanted, weights are constants, laid out when the graph is compiled. If they
change after all (`load_state_dict`), the graph is compiled once more, with weights as inputs, as
those are that are trained. Dynamo guards what a graph was captured for; sizes that vary are
symbols, with one compilation for all of them. Numbers that vary and are no sizes are constants,
with a compilation for each, up to some.

    options: those of `pliant.compile` that say how: target, precision, numerics, threads,
             memory_limit
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import torch
from torch._decomp import core_aten_decompositions, get_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import TracingContext
from torch.fx import GraphModule
from torch.nn.attention import SDPBackend, sdpa_kernel

from pliant.base.errors import PliantError, UnsupportedError
from pliant.frontend.torch.captured import (
    Captured,
    Input,
    captured,
    image_results,
    images_of,
    is_channels_last,
    supported_parts,
)
from pliant.frontend.torch.decompose import fused_layers
from pliant.pipeline import compile as compile_model

OPTIONS: Final = ("target", "precision", "numerics", "threads", "memory_limit")
MOST: Final = 8  # compilations of a graph for values of its numbers; others run in eager PyTorch

_Run = Callable[..., Sequence[Any]]

_ATEN: Final = torch.ops.aten
_VIEWS: Final = (_ATEN.view.default, _ATEN._unsafe_view.default)
_BY_STRIDES: Final = (
    _ATEN.as_strided.default, _ATEN._reshape_alias.default, _ATEN.view.dtype,
)  # fmt: skip
"""Operators for which the strides of their operands make a difference."""
NORMS: Final = (
    _ATEN.native_batch_norm, _ATEN._native_batch_norm_legit_functional,
    _ATEN._native_batch_norm_legit_no_training, _ATEN._native_batch_norm_legit,
    _ATEN.native_layer_norm, _ATEN.native_group_norm,
)  # fmt: skip
"""What keeps statistics for the way back: written with primitives, these are values like others."""


def backend(
    graph: GraphModule,
    examples: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """A backend of torch.compile, by the entry point `pliant` of `torch_dynamo_backends`.

    `options` are those of `pliant.compile`: target, precision, numerics, threads, memory_limit.
    Raises UnsupportedError for others, and for a `mode`.
    """
    if mode not in (None, "default"):
        raise UnsupportedError(f"mode={mode!r} is for another backend; leave it out")
    chosen = dict(options or {})
    for name in chosen:
        if name not in OPTIONS:
            raise UnsupportedError(
                f"options={{{name!r}: ...}} is not available; there are: {', '.join(OPTIONS)}"
            )

    def metadata() -> Any:
        context = TracingContext.try_get()
        return context.fw_metadata if context else None

    def forwards(graph: GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        known, images = metadata(), image_results(graph, images_of(graph))
        kept = frozenset(k for k in images if known and k >= known.num_forward)
        return _boxed(_Part(graph, (), chosen, kept))

    def backwards(graph: GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        return _boxed(_Part(graph, (), chosen))

    def fixed(graph: GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        known = metadata()
        return _boxed(_Part(graph, known.static_input_indices if known else (), chosen))

    compiler = aot_autograd(fw_compiler=fixed, decompositions=fused_layers())
    if torch.is_grad_enabled():
        compiler = aot_autograd(
            fw_compiler=forwards, bw_compiler=backwards, inference_compiler=fixed,
            partition_fn=min_cut_rematerialization_partition,
            decompositions={**core_aten_decompositions(), **get_decompositions(NORMS)},
        )  # fmt: skip
    with sdpa_kernel(SDPBackend.MATH):  # attention of primitives, with a derivative of such
        made: Callable[..., Any] = compiler(graph, examples)
    return made


def _boxed(part: _Part) -> Callable[..., Any]:
    made: Callable[..., Any] = make_boxed_func(part)
    return made


class _Part:
    """A graph of ATen operators, compiled at its first call, and for some values of its numbers."""

    def __init__(
        self, graph: GraphModule, weights: Sequence[int], options: Mapping[str, Any],
        images: Collection[int] = (),
    ) -> None:  # fmt: skip
        self.graph, self.weights, self.options = graph, tuple(weights), options
        self.images = images  # results that lie with their channels last
        self.numbers: tuple[int, ...] = ()
        self.runs: dict[tuple[Any, ...], _Run] = {}
        self.marks: list[tuple[int, int]] = []
        self.lock = threading.Lock()

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        run = self._known(inputs)
        if run is None:
            with self.lock:
                run = self._known(inputs) or self._made(inputs)
        return run(*inputs)

    def _known(self, inputs: Sequence[Any]) -> _Run | None:
        if self.weights and self.marks != _marks(inputs, self.weights):
            return None
        return self.runs.get(tuple(inputs[k] for k in self.numbers))

    def _made(self, inputs: Sequence[Any]) -> _Run:
        marks = _marks(inputs, self.weights)
        if self.runs and marks != self.marks:  # weights change: never again constants
            self.weights, self.runs, marks = (), {}, []
        run = self._compiled(inputs) if len(self.runs) < MOST else _eager(self.graph)
        self.marks = marks
        self.runs[tuple(inputs[k] for k in self.numbers)] = run
        return run

    def _compiled(self, inputs: Sequence[Any]) -> _Run:
        tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
        others = [x for x in tensors if x.device.type != "cpu"]
        if others:
            warnings.warn(
                f"pliant compiles for the CPU; a tensor is on {others[0].device}, so this part of "
                "the model runs in eager PyTorch",
                stacklevel=2,
            )
        if others or not tensors:
            return _eager(self.graph)
        try:
            found = captured(self.graph, self.weights, inputs, self.images)
            self.numbers = found.numbers
            if not found.inputs:  # nothing but constants
                return _eager(self.graph)
            return _bound(found, inputs, self.options)
        except PliantError as error:
            parts = supported_parts(self.graph) if isinstance(error, UnsupportedError) else None
            warnings.warn(
                f"{'parts' if parts else 'a part'} of the model run{'' if parts else 's'} in eager "
                f"PyTorch: {error}",
                stacklevel=2,
            )
            self.numbers = ()
            return _eager(self.graph) if parts is None else self._in_parts(parts)

    def _in_parts(self, parts: GraphModule) -> _Run:
        """The graph with each of its parts compiled by itself."""
        inputs = [n.name for n in self.graph.graph.nodes if n.op == "placeholder"]
        weights = {inputs[k] for k in self.weights}
        as_traced = any(n.target in _BY_STRIDES for n in parts.graph.nodes)
        images = frozenset() if as_traced else images_of(self.graph)
        for node in parts.graph.nodes:
            if node.target in _VIEWS:  # of whatever comes of images that lie in another order
                node.target = _ATEN.reshape.default
        parts.recompile()
        (end,) = (n for n in parts.graph.nodes if n.op == "output")
        fixed_results = {x for k, x in enumerate(end.args[0]) if k not in self.images}
        for call in parts.graph.nodes:
            if call.op != "call_module":
                continue
            part = getattr(parts, call.target)
            names = [n.name for n in part.graph.nodes if n.op == "placeholder"]
            fixed = [k for k, n in enumerate(names) if n in weights]
            values = {0: call} if _is_alone(part) else {u.args[1]: u for u in call.users}
            free = frozenset(k for k, x in values.items() if x not in fixed_results)
            made = _Part(part, fixed, self.options, image_results(part, images) & free)
            setattr(parts, call.target, _Module(made, _is_alone(part)))
        return _eager(parts, as_traced=as_traced)


class _Module(torch.nn.Module):
    """A part as a submodule."""

    def __init__(self, part: _Part, alone: bool) -> None:
        super().__init__()
        self.part, self.alone = part, alone

    def forward(self, *inputs: Any) -> Any:
        made = self.part(*inputs)
        return made[0] if self.alone else made


def _is_alone(part: GraphModule) -> bool:
    """Whether the graph's result is one value, and not a tuple."""
    (end,) = (n for n in part.graph.nodes if n.op == "output")
    return not isinstance(end.args[0], tuple | list)


def _marks(inputs: Sequence[Any], weights: Sequence[int]) -> list[tuple[int, int]]:
    """What tells weights from those of an earlier call: their memory, and how often it changed."""
    return [
        (inputs[k].data_ptr(), -1 if inputs[k].is_inference() else inputs[k]._version)
        for k in weights
    ]


def _eager(graph: GraphModule, *, as_traced: bool = True) -> _Run:
    """The graph itself; `as_traced`: of images that lie as they did when it was captured."""
    places = [n.meta.get("val") for n in graph.graph.nodes if n.op == "placeholder"]
    plain = [isinstance(x, torch.Tensor) and x.is_contiguous() and as_traced for x in places]

    def run(*inputs: Any) -> Sequence[Any]:
        made = graph(
            *(
                x.contiguous() if row_major and x is not None and is_channels_last(x) else x
                for x, row_major in zip(inputs, plain, strict=True)
            )
        )
        return made if isinstance(made, tuple | list) else (made,)

    return run


def _bound(found: Captured, inputs: Sequence[Any], options: Mapping[str, Any]) -> _Run:
    """A function of the graph's inputs."""
    outputs = found.outputs
    if not found.computes:
        return lambda *given: [output(given, ()) for output in outputs]
    examples = _passed(found.inputs, inputs)
    with warnings.catch_warnings():  # Dynamo guards the sizes at which a graph is another one
        warnings.simplefilter("ignore")
        compiled = compile_model(
            found.module, examples, dynamic_shapes=found.dynamic_shapes, dims=found.dims, **options
        )

    def run(*given: Any) -> Sequence[Any]:
        made = compiled(*_passed(found.inputs, given))
        return [output(given, made) for output in outputs]

    return run


def _passed(places: Sequence[Input], inputs: Sequence[Any]) -> tuple[torch.Tensor, ...]:
    """What a module is called with."""
    return tuple(
        inputs[k].detach().permute(order) if order else inputs[k].detach() for k, order in places
    )

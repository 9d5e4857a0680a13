"""From a torch module and example arguments to an exported program that holds at every size."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from pliant.base.errors import InvalidModelError, UnsupportedError
from pliant.frontend.select import not_a_model
from pliant.frontend.torch.dims import (
    Forward,
    Leaf,
    Request,
    leaves_of,
    torch_spec,
)  # fmt: skip
from pliant.frontend.torch.guards import tight_symbols
from pliant.frontend.torch.mutation import functional
from pliant.graph.function import Dim

_PRIMES = (3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79)


@dataclass(frozen=True)
class Exported:
    """An exported program with what the user said of its dimensions.

    `requests` go with the leaves of the arguments in order. `notes` are findings that the user
    should see: cases in which the model behaves differently at size 0 or 1.
    """

    program: ExportedProgram
    names: tuple[str, ...]
    requests: tuple[Mapping[int, Request], ...]
    notes: tuple[str, ...] = ()


def export_program(
    model: torch.nn.Module | ExportedProgram,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    dims: Mapping[str, Dim] | None = None,
    probe_small: bool = True,
) -> Exported:
    """Export a module (or take an exported program as it is).

    Example sizes of 0 and 1 in dynamic dims are replaced by larger ones, since torch would take
    them for constants. With `probe_small`, the model and the exported program are run at sizes 1
    and 0 where these are legal, to find out whether the model takes another path there.
    """
    kwargs, dims = dict(kwargs or {}), dict(dims or {})
    if isinstance(model, ExportedProgram):
        return _given(model, dynamic_shapes, dims)
    _check_example(model, args, kwargs)
    forward = Forward(model.forward)
    flat = forward.flat(dynamic_shapes, len(args), kwargs)
    leaves = leaves_of(forward, args, kwargs, flat, dims)
    spec = None if dynamic_shapes is None else forward.nested(flat, len(args), kwargs)
    program = _trace_wide(model, args, kwargs, leaves, spec, dims)
    notes: list[str] = []
    if probe_small:
        notes += _probe(model, args, kwargs, leaves, program)
    requests = tuple(leaf.requests for leaf in leaves)
    return Exported(functional(program), tuple(forward.names(len(args))), requests, tuple(notes))


def _check_example(model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    if not isinstance(model, torch.nn.Module):
        raise not_a_model(model)
    try:
        inspect.signature(model.forward).bind(*args, **kwargs)
    except TypeError as error:
        raise InvalidModelError(
            f"the example inputs do not fit {type(model).__name__}.forward: {error}"
        ) from error


def _given(program: ExportedProgram, dynamic_shapes: Any, dims: Mapping[str, Dim]) -> Exported:
    entry = program.module_call_graph[0].signature
    names = tuple(entry.forward_arg_names or ()) if entry is not None else ()
    spec = program.call_spec.in_spec
    assert spec is not None
    values = [n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"]
    tail = values[len(values) - spec.num_leaves :]
    args, kwargs = pytree.tree_unflatten(tail, spec)
    names = names or tuple(f"arg{k}" for k in range(len(args)))
    forward = Forward(names)
    flat = forward.flat(dynamic_shapes, len(args), kwargs)
    leaves = leaves_of(forward, args, kwargs, flat, dims)
    for leaf in leaves:
        for axis in leaf.requests:
            if isinstance(leaf.value.shape[axis], int):
                raise InvalidModelError(
                    f"dynamic_shapes: dim {axis} of {leaf.name} is always "
                    f"{leaf.value.shape[axis]} in the exported program; export it again with "
                    "that dim dynamic"
                )
    return Exported(functional(program), names, tuple(leaf.requests for leaf in leaves))


def _trace_wide(
    model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any],
    leaves: Sequence[Leaf], spec: Any, dims: Mapping[str, Dim],
) -> ExportedProgram:  # fmt: skip
    """Trace with examples so large that no size computed inside is 0 or 1 by accident."""
    sizes = _example_sizes(leaves)
    program: ExportedProgram | None = None
    failure: InvalidModelError | None = None
    for _ in range(_GROWTHS):
        new_args, new_kwargs = _resized(args, kwargs, leaves, sizes)
        try:
            program = _trace(model, new_args, new_kwargs, spec, dims)
            grown = _grown(leaves, sizes, _tight_places(program))
        except InvalidModelError as error:  # fixed by the model, or by the example
            failure = failure or error
            grown = _grown(leaves, sizes, None)
        except UnsupportedError:  # the model does not like this size
            if failure is None and program is None:
                _run_example(model, args, kwargs)
                raise
            break
        if grown == sizes:
            break
        sizes = grown
    if program is None:
        assert failure is not None
        raise failure
    return program


_GROWTHS = 5


def _grown(
    leaves: Sequence[Leaf], sizes: Mapping[str, int], places: frozenset[tuple[int, int]] | None
) -> dict[str, int]:
    """Twice the size for the dims at these places (leaf, axis); for all of them without."""
    grown = dict(sizes)
    for k, leaf in enumerate(leaves):
        for axis, request in leaf.requests.items():
            key = request.name or f"{leaf.name}/{axis}"
            now = sizes.get(key, leaf.value.shape[axis])
            fits = request.known.max is None or 2 * now <= request.known.max
            if fits and (places is None or (k, axis) in places):
                grown[key] = 2 * now
    return grown


def _tight_places(program: ExportedProgram) -> frozenset[tuple[int, int]]:
    """The dims of inputs, as (leaf, axis), that made some inner size 0 or 1."""
    tight = tight_symbols(program)
    signature = program.graph_signature.input_specs
    inputs = [s.arg.name for s in signature if s.kind is InputKind.USER_INPUT]
    values = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
    return frozenset(
        (k, axis)
        for k, name in enumerate(inputs)
        if isinstance(values[name], torch.Tensor)
        for axis, size in enumerate(values[name].shape)
        if isinstance(size, torch.SymInt) and tight & {s.name for s in size.node.expr.free_symbols}
    )


def _trace(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    spec: Any,
    dims: Mapping[str, Dim],
) -> ExportedProgram:
    """Non-strict first (fast, follows Python), then through Dynamo."""
    shapes = torch_spec(spec, dims)
    first: Exception | None = None
    for strict in (False, True):
        try:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return torch.export.export(
                    model, args, kwargs, dynamic_shapes=shapes, strict=strict
                )
        except Exception as error:  # torch raises many kinds, some of them private
            first = first or error
            if _is_about_sizes(error):
                break
    assert first is not None
    raise _explained(first) from first


def _run_example(model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """What torch itself cannot run is no question of what can be exported."""
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model(*args, **kwargs)
    except Exception as error:  # torch raises many kinds
        raise InvalidModelError(
            f"the model fails on the example inputs: {type(error).__name__}: {_first_line(error)}"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["without a message"])[0]


def _is_about_sizes(error: Exception) -> bool:
    text = str(error)
    return "specialized it to be a constant" in text or "Constraints violated" in text


def _explained(error: Exception) -> Exception:
    text = str(error).split("The error above occurred when calling")[0].strip()
    if _is_about_sizes(error):
        return InvalidModelError(
            f"a dimension that is declared dynamic is fixed by the model:\n{text}\nLeave it out of "
            "dynamic_shapes, or change the code that compares it with a constant"
        )
    return UnsupportedError(
        f"torch.export cannot capture the model: {type(error).__name__}: {text}"
    )


# ---- sizes of the examples


def _groups(leaves: Iterable[Leaf]) -> dict[str, tuple[Dim, set[int]]]:
    """Per dimension (its name, or its place): what is known, the example's sizes."""
    found: dict[str, tuple[Dim, set[int]]] = {}
    for leaf in leaves:
        for axis, request in leaf.requests.items():
            key = request.name or f"{leaf.name}/{axis}"
            known, sizes = found.get(key, (request.known, set()))
            found[key] = known.merged(request.known), sizes | {leaf.value.shape[axis]}
    return found


def _example_sizes(leaves: Sequence[Leaf]) -> dict[str, int]:
    """New sizes for the dims whose example is 0 or 1."""
    taken = {
        int(d) for leaf in leaves if isinstance(leaf.value, torch.Tensor) for d in leaf.value.shape
    }
    chosen: dict[str, int] = {}
    for key, (known, sizes) in _groups(leaves).items():
        if len(sizes) > 1:
            raise InvalidModelError(f"the dimension {key!r} has different sizes: {sorted(sizes)}")
        if max(sizes) > known.multiple:
            (size,) = sizes
            if not known.allows(size):
                raise InvalidModelError(
                    f"the example has the size {size} in the dimension {key!r}, which {known} "
                    "does not allow"
                )
            continue
        if known.max is not None and known.max <= known.multiple:
            continue
        options = [p * known.multiple for p in _PRIMES] + [2 * known.multiple]
        fitting = [n for n in options if n >= known.min and (known.max is None or n <= known.max)]
        if not fitting and known.max is not None:
            fitting = [known.max // known.multiple * known.multiple]
        chosen[key] = next((n for n in fitting if n not in taken), fitting[0])
        taken.add(chosen[key])
    return chosen


def _resized(
    args: Sequence[Any], kwargs: Mapping[str, Any], leaves: Sequence[Leaf], sizes: Mapping[str, int]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The example with these dims resized."""
    flat, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
    for k, leaf in enumerate(leaves):
        for axis, request in leaf.requests.items():
            size = sizes.get(request.name or f"{leaf.name}/{axis}")
            if size is not None and flat[k].shape[axis] != size:
                flat[k] = _with_size(flat[k], axis, size)
    new_args, new_kwargs = pytree.tree_unflatten(flat, spec)
    return tuple(new_args), dict(new_kwargs)


def _with_size(x: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    shape = list(x.shape)
    shape[axis] = size
    if x.numel() == 0 or x.shape[axis] == 0:
        return x.new_zeros(shape)
    if size < x.shape[axis]:
        return x.narrow(axis, 0, size).contiguous()
    return x.narrow(axis, 0, 1).expand(shape).contiguous()


# ---- other paths at sizes 0 and 1


def _probe(
    model: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    leaves: Sequence[Leaf],
    program: ExportedProgram,
) -> list[str]:
    """Notes on the dims at whose size 0 or 1 the model computes something else.

    Tracing takes the path of larger sizes. Whether that path is right for the small ones is tried:
    the model and the exported graph run on the example cut down to that size.
    """
    small = [k for k, (known, _) in _groups(leaves).items() if known.multiple == 1]
    if not small or model.training or not _is_real(leaves):
        return []
    notes = []
    for size in (1, 0):
        names = [k for k in small if _groups(leaves)[k][0].min <= size]
        if not names or _agrees(model, args, kwargs, leaves, program, names, size):
            continue
        for name in names:
            if not _agrees(model, args, kwargs, leaves, program, [name], size):
                notes.append(
                    f"where {name} is {size} the model takes another path; the one of larger "
                    "sizes is used"
                )
    return notes


def _is_real(leaves: Iterable[Leaf]) -> bool:
    tensors = [leaf.value for leaf in leaves if isinstance(leaf.value, torch.Tensor)]
    return all(type(t) in (torch.Tensor, torch.nn.Parameter) and not t.is_meta for t in tensors)


def _agrees(
    model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any],
    leaves: Sequence[Leaf], program: ExportedProgram, names: Sequence[str], size: int,
) -> bool:  # fmt: skip
    """Model and graph compute the same there, or the model refuses the size."""
    sizes = {**_example_sizes(leaves), **dict.fromkeys(names, size)}
    new_args, new_kwargs = _resized(args, kwargs, leaves, sizes)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = pytree.tree_leaves(model(*new_args, **new_kwargs))
        except Exception:  # whatever the model raises: the size is not legal
            return True
        try:
            found = run_graph(program, pytree.tree_leaves((new_args, new_kwargs)))
        except Exception:  # as above: torch's operators raise many kinds
            return False
    return len(found) == len(expected) and all(map(_is_close, found, expected))


class _Unchecked(torch.fx.Interpreter):
    """Runs a graph without the assertions about sizes."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if str(target).startswith(("aten._assert", "aten.sym_constrain")):
            return None
        return super().call_function(target, args, kwargs)


def run_graph(program: ExportedProgram, inputs: Sequence[Any]) -> list[Any]:
    """The exported graph on these leaves of the arguments."""
    values = iter(inputs)
    everything: list[Any] = []
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            everything.append(next(values))
        elif spec.target in program.constants:
            everything.append(program.constants[spec.target])
        else:
            everything.append(program.state_dict[str(spec.target)])
    return list(_Unchecked(program.graph_module).run(*everything))


def _is_close(a: Any, b: Any) -> bool:
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return bool(a == b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not a.dtype.is_floating_point:
        return bool(torch.equal(a, b))
    finite = b[b.isfinite()]
    scale = float(finite.abs().max()) if finite.numel() else 1.0
    return torch.allclose(a, b, rtol=1e-3, atol=1e-4 * max(scale, 1e-3), equal_nan=True)

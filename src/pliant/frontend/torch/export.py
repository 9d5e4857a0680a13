"""From a torch module and example arguments to an exported program that holds at every size."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import logging
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
from pliant.frontend.torch.examples import (
    example_sizes,
    grown_sizes,
    key_of,
    resized,
    set_apart,
)  # fmt: skip
from pliant.frontend.torch.guards import assumed_equal, tight_symbols
from pliant.frontend.torch.mutation import functional
from pliant.frontend.torch.probe import Probe
from pliant.frontend.torch.recurrent import whole_recurrences
from pliant.frontend.torch.whole_sizes import WholeSizes
from pliant.graph.function import Dim


@dataclass(frozen=True)
class Exported:
    """An exported program with what the user said of its dimensions.

    `requests` go with the leaves of the arguments in order. `notes` are findings that the user
    should see: sizes 0 and 1 at which the model behaves differently. `needless` guards of the
    trace restrict nothing.
    """

    program: ExportedProgram
    names: tuple[str, ...]
    requests: tuple[Mapping[int, Request], ...]
    notes: tuple[str, ...] = ()
    needless: frozenset[Any] = frozenset()


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
    and 0 where these are legal, and beyond the sizes that the model's code asked about, to find
    out whether the model takes another path there.
    """
    kwargs, dims = dict(kwargs or {}), dict(dims or {})
    if isinstance(model, ExportedProgram):
        return _given(model, dynamic_shapes, dims)
    _check_example(model, args, kwargs)
    forward = Forward(model.forward)
    flat = forward.flat(dynamic_shapes, len(args), kwargs)
    leaves = leaves_of(forward, args, kwargs, flat, dims)
    spec = None if dynamic_shapes is None else forward.nested(flat, args, kwargs)
    program = _trace_wide(model, args, kwargs, leaves, spec, dims)
    stateless = functional(program)  # raises: running the model would change it
    probe = Probe(model, args, kwargs, leaves, program)
    least, needless = {}, frozenset[Any]()
    if probe_small and probe.possible:
        least, needless = probe.least(), probe.needless()
        missed = probe.missed(needless)
        if missed is not None:
            raise UnsupportedError(_missed(leaves, missed))
    requests = tuple(_raised(leaf, least) for leaf in leaves)
    notes = tuple(
        f"where {name} is below {size} the model takes another path: these sizes are refused"
        for name, size in least.items()
    )
    names = tuple(forward.names(len(args)))
    return Exported(stateless, names, requests, notes, needless)


def _missed(leaves: Sequence[Leaf], sizes: Mapping[str, int]) -> str:
    """What is said of a trace that is not the model, at these sizes of dims; at all for none."""
    if not sizes:
        return (
            "traced, the model does not compute what it computes otherwise: it asks whether it is "
            "being traced, or keeps something from call to call; compute that from the inputs"
        )
    words = {
        key_of(leaf, axis): f"dim {axis} of {leaf.name}"
        for leaf in leaves
        for axis in leaf.requests
    }
    places = ", ".join(f"{words[key]} = {size}" for key, size in sizes.items())
    return (
        f"traced once, the model does not compute the same at other sizes ({places}): it may keep "
        "what it computed in an earlier call (a mask, a table of positions); compute that from the "
        "inputs, or leave these dims out of dynamic_shapes"
    )


def _raised(leaf: Leaf, least: Mapping[str, int]) -> Mapping[int, Request]:
    """What was asked for, without the small sizes that the trace is wrong for."""
    return {
        axis: replace(r, known=r.known.merged(Dim(min=least.get(key_of(leaf, axis), 0))))
        for axis, r in leaf.requests.items()
    }


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
    """Trace with examples in which nothing is equal by accident.

    No two dims with names of their own have the same size, if the model takes such examples, and
    no size computed inside is 0 or 1, or equal to another one that it need not be.
    """
    sizes = example_sizes(leaves)
    apart = set_apart(leaves, sizes)
    begun = None
    if apart != sizes:
        begun = _tried(model, *resized(args, kwargs, leaves, apart), spec, dims)
    if begun is not None:
        functional(begun)  # raises: running the model would change it
        probe = Probe(model, args, kwargs, leaves, begun)
        if probe.possible and probe.verdict({}) == "differs":  # the example takes another path
            begun = None
    program, sizes = begun, sizes if begun is None else apart
    failure: InvalidModelError | None = None
    for growth in range(_GROWTHS):
        try:
            if growth or begun is None:
                new_args, new_kwargs = resized(args, kwargs, leaves, sizes)
                program = _trace(model, new_args, new_kwargs, spec, dims)
            assert program is not None
            grown = grown_sizes(leaves, sizes, _tight_places(program))
        except InvalidModelError as error:  # fixed by the model, by its code, or by the example
            if failure is None:
                failure = error
                program = _by_dynamo(model, args, kwargs, leaves, spec, dims, apart)
                if program is not None:
                    break
            if growth >= _GROWTHS_OF_ALL:
                break
            grown = grown_sizes(leaves, sizes, None)
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
    if failure is None and assumed_equal(program):
        return _less_assumed(model, args, kwargs, leaves, spec, dims, program, sizes, apart)
    return program


def _by_dynamo(
    model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any],
    leaves: Sequence[Leaf], spec: Any, dims: Mapping[str, Dim], apart: Mapping[str, int],
) -> ExportedProgram | None:  # fmt: skip
    """The trace of one that reads the code, if it does what the model does: at sizes set apart,
    else at the example's.

    It follows what plain Python makes of sizes (`int(n * 0.5)`, `math.sqrt(n)`), which is a number
    to one that runs the code.
    """
    sizes = example_sizes(leaves)
    found: list[ExportedProgram] = []
    for at in (apart, sizes) if apart != sizes else (sizes,):
        program = _tried(model, *resized(args, kwargs, leaves, at), spec, dims, strict=True)
        if program is None or _tight_places(program):
            continue
        functional(program)  # raises: running the model would change it
        probe = Probe(model, args, kwargs, leaves, program)
        if not probe.possible or probe.verdict({}) == "agrees":
            found.append(program)
            if not _takes_numbers(program):
                break
    return min(found, key=lambda p: len(assumed_equal(p)), default=None)


def _takes_numbers(program: ExportedProgram) -> bool:
    """Whether it holds only where some size, or what was computed of sizes, is a number."""
    return any(e.rhs.is_number or e.lhs.is_number for e in assumed_equal(program))


def _less_assumed(
    model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any],
    leaves: Sequence[Leaf], spec: Any, dims: Mapping[str, Dim],
    program: ExportedProgram, sizes: Mapping[str, int], apart: Mapping[str, int],
) -> ExportedProgram:  # fmt: skip
    """A trace that holds at more sizes than this one, if there is one: by Dynamo where a size was
    taken for a number; where sizes happened to be equal (n and n // 4 * 4 at 12) at others, which
    the model takes too."""
    best = program
    if _takes_numbers(program):
        best = _lesser(best, _by_dynamo(model, args, kwargs, leaves, spec, dims, apart))
    probe = Probe(model, args, kwargs, leaves, best)
    beyond = probe.taken(assumed_equal(best)) if probe.possible else iter(())
    for other in itertools.islice(beyond, _TRACES):
        at = resized(args, kwargs, leaves, {**sizes, **other})
        traced = _tried(model, *at, spec, dims)
        if traced is not None and not _tight_places(traced):
            verdict = Probe(model, args, kwargs, leaves, traced).verdict
            if all(verdict(s) == "agrees" for s in ({}, sizes)):
                best = _lesser(best, traced)
    return best


def _lesser(a: ExportedProgram, b: ExportedProgram | None) -> ExportedProgram:
    """The trace that assumes fewer equalities."""
    return a if b is None or len(assumed_equal(b)) >= len(assumed_equal(a)) else b


_GROWTHS = 5
_TRACES = 2  # at other sizes, to assume less
_GROWTHS_OF_ALL = 2  # what fixes all dims is seldom their size


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


def _tried(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], spec: Any,
    dims: Mapping[str, Dim], *, strict: bool = False,
) -> ExportedProgram | None:  # fmt: skip
    """A trace that may fail: of an example that the model need not take, or by Dynamo."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # Dynamo logs what it raises
    try:
        return _exported(model, args, kwargs, torch_spec(spec, dims), strict=strict)
    except Exception:  # torch raises many kinds, some of them private
        return None
    finally:
        logging.disable(disabled)


def _exported(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], shapes: Any, strict: bool
) -> ExportedProgram:
    args, kwargs = _unmarked(args, kwargs)
    # Dynamo would trace the mode as a part of the model.
    sizes = contextlib.nullcontext() if strict else WholeSizes()
    with torch.no_grad(), warnings.catch_warnings(), whole_recurrences(), sizes:
        warnings.simplefilter("ignore")
        return torch.export.export(model, args, kwargs, dynamic_shapes=shapes, strict=strict)


def _unmarked(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The examples as tensors of their own, over the same memory: torch marks dims on those that it
    gets, and does not take that back where it fails."""
    known: dict[int, torch.Tensor] = {}

    def own(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or isinstance(x, torch.nn.Parameter):
            return x
        return known.setdefault(id(x), x.detach())

    return pytree.tree_map(own, (args, kwargs))


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
            return _exported(model, args, kwargs, shapes, strict)
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


_UNKNOWN_TYPE = re.compile(r"Found <class '(.+?)'> in output, which is not a known type")
_DATA_DEPENDENT = re.compile(r"Could not (?:guard on|extract).+data-dependent expression")
_FRAME = re.compile(r'File "(.+?)", line (\d+), in ')


def _explained(error: Exception) -> Exception:
    text = str(error).split("The error above occurred when calling")[0].strip()
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

"""An exported program as a graph function. Every unsupported thing is reported at once."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from pliant.base.dtypes import boolean
from pliant.base.errors import InvalidModelError, PliantError, ShapeError, UnsupportedError
from pliant.base.spans import Span
from pliant.frontend.torch.aten import ATEN, WITH_PARTS
from pliant.frontend.torch.complex_parts import Parts, is_complex
from pliant.frontend.torch.constants import Constants
from pliant.frontend.torch.context import Context, Table
from pliant.frontend.torch.decompose import can_decompose, decomposed
from pliant.frontend.torch.dims import Request, sanitise
from pliant.frontend.torch.export import Exported, export_program
from pliant.frontend.torch.flex import attention_graph
from pliant.frontend.torch.guards import bounded_by_user, equalities, limits
from pliant.frontend.torch.lazy import Lazy
from pliant.frontend.torch.lower_complex import of_complex
from pliant.frontend.torch.mutation import functional_name, is_mutating, refuse_changes
from pliant.frontend.torch.naming import Naming
from pliant.frontend.torch.numbers import Numbers
from pliant.frontend.torch.places import span_of
from pliant.frontend.torch.promote import from_torch
from pliant.frontend.torch.selected import of_selected, refusal, selections
from pliant.frontend.torch.structure import Call, Template
from pliant.frontend.torch.templates import call_of, output_template
from pliant.frontend.torch.weights import to_array
from pliant.graph.builder import Builder
from pliant.graph.function import Dim, Function, TensorType, Value
from pliant.graph.operator import Operators
from pliant.sym.expr import Int, as_int


@dataclass(frozen=True)
class ImportedModel:
    """A graph function and how Python calls it.

    `call` and `output` are plain data; `rebuild` makes the model's own output types (in process).
    `input_names` are the user's words for the function's parameters.
    """

    function: Function
    weights: dict[str, np.ndarray]
    call: Call
    input_names: tuple[str, ...]
    output: Template
    rebuild: Callable[[Sequence[Any]], Any]
    notes: tuple[str, ...] = ()


SMALL_TABLE: Final = 1 << 16
"""Elements of tables of integers that torch computes while importing."""


@dataclass
class _Problem:
    """An operator that cannot be imported, where it was met first, and how often."""

    target: Any
    reason: str
    span: Span | None
    count: int = 1


@dataclass(frozen=True)
class _Item:
    """A result that is the element of a tensor, a Python number to the user."""

    value: Value


@dataclass
class _State:
    ctx: Context
    table: Table
    numbers: Numbers
    constants: Constants
    problems: dict[tuple[str, str], _Problem] = field(default_factory=dict)


def import_torch(
    model: torch.nn.Module | ExportedProgram,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    operators: Operators,
    dynamic_shapes: Any = None,
    dims: Mapping[str, Dim] | None = None,
    name: str = "main",
    probe_small: bool = True,
    extra: Table | None = None,
) -> ImportedModel:
    """Export and import. `extra` adds lowerings of operators (custom ones, say) by name."""
    exported = export_program(
        model, args, kwargs, dynamic_shapes=dynamic_shapes, dims=dims, probe_small=probe_small
    )
    return import_exported(exported, operators, name=name, dims=dims, extra=extra)


def import_exported(
    exported: Exported | ExportedProgram,
    operators: Operators,
    *,
    name: str = "main",
    dims: Mapping[str, Dim] | None = None,
    extra: Table | None = None,
) -> ImportedModel:
    """The graph function of an exported program.

    Raises UnsupportedError with all that cannot be imported, each with its first place.
    """
    if isinstance(exported, ExportedProgram):
        exported = export_program(exported, dims=dims)
    table = {**ATEN, **(extra or {})}
    model, problems = _attempt(exported, operators, name, dims or {}, table)
    if model is None:
        wider = decomposed(exported.program, table, {p.target for p in problems})
        if wider is not None:
            refuse_changes(wider)  # which torch says of some operators only now
            exported = exported.written_as(wider)
            first = problems
            model, left = _attempt(exported, operators, name, dims or {}, table)
            problems = _in_the_users_words(first, left)
    if model is None:
        raise _report(problems)
    return model


def _in_the_users_words(first: Sequence[_Problem], left: Sequence[_Problem]) -> Sequence[_Problem]:
    """What stands in the way after decomposing, by the operators that were there before: of those
    that are gone, the ones in whose places something new does."""
    stay = {(p.target, p.span) for p in first if not _is_gone(p)}
    spans = {p.span for p in left if (p.target, p.span) not in stay}
    return [p for p in first if p.span in spans or not _is_gone(p)] or left


def _is_gone(problem: _Problem) -> bool:
    """Whether decomposing took the operator away."""
    return problem.reason == _NO_RULE and can_decompose(problem.target)


def _attempt(
    exported: Exported, operators: Operators, name: str, dims: Mapping[str, Dim], table: Table
) -> tuple[ImportedModel | None, Sequence[_Problem]]:
    """The function, or all that stands in the way of it."""
    program = exported.program
    builder = Builder(name, operators)
    naming = _naming(exported, dims)
    for dim, known in naming.dims.items():
        builder.dim(dim, known)
    for a, b in naming.equalities:
        builder.equal(a, b)
    for a, b, why in equalities(program, naming.symbols, builder.facts, exported.needless):
        builder.equal(a, b, why)
    ctx = Context(builder, naming.symbols)
    state = _State(ctx, table, Numbers(naming.symbols), Constants(program))
    call = call_of(program, exported.names)
    env, input_names = _inputs(program, state, naming, call)
    leaves = _run(state, program.graph_module, dict(env))
    if state.problems:
        return None, tuple(state.problems.values())
    given = frozenset(v for v in env.values() if isinstance(v, Value))
    return _finish(program, state, leaves, given, call, input_names, exported.notes), ()


def _finish(
    program: ExportedProgram, state: _State, leaves: Sequence[Any],
    given: frozenset[Value], call: Call, input_names: Sequence[str], notes: tuple[str, ...],
) -> ImportedModel:  # fmt: skip
    ctx = state.ctx
    ctx.node, ctx.span = None, None
    results: dict[Value, int] = {}
    places: list[tuple[str, Any]] = []
    for leaf in leaves:
        if isinstance(leaf, Parts):
            raise UnsupportedError("a result is complex; return torch.view_as_real of it")
        kind = "size" if isinstance(leaf, Int | _Item) else "leaf"
        if isinstance(leaf, _Item):
            leaf = leaf.value
        if isinstance(leaf, Int) and leaf.is_const:
            leaf = leaf.value
        if isinstance(leaf, Int):
            leaf = ctx.call("size_value", value=leaf)
        if isinstance(leaf, Value):
            value = ctx.call("identity", leaf) if leaf in given else leaf
            places.append((kind, results.setdefault(value, len(results))))
        else:
            places.append(("constant", leaf))
    function, weights = ctx.builder.finish(list(results))
    spec = program.call_spec.out_spec
    assert spec is not None

    def rebuild(outputs: Sequence[Any]) -> Any:
        flat = [
            x if kind == "constant" else outputs[x].item() if kind == "size" else outputs[x]
            for kind, x in places
        ]
        return pytree.tree_unflatten(flat, spec)

    template = output_template(spec, places)
    return ImportedModel(
        function, weights, call, tuple(input_names), template, rebuild, tuple(notes)
    )


def _naming(exported: Exported, dims: Mapping[str, Dim]) -> Naming:
    program = exported.program
    naming = Naming(
        {sanitise(k): v for k, v in dims.items()},
        program.range_constraints,
        bounded_by_user(program),
        frozenset(e.lhs.name for e in limits(program) if e in exported.needless),
    )
    inputs = [s for s in program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
    values = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
    tensors: list[tuple[str, Any, Mapping[int, Request]]] = []
    for spec, requests in zip(inputs, exported.requests, strict=True):
        value = values[spec.arg.name]
        if isinstance(value, torch.Tensor):
            tensors.append((spec.arg.name, value, requests))
        elif isinstance(value, torch.SymInt):
            raise UnsupportedError(
                f"the integer argument {spec.arg.name!r} is dynamic; pass a tensor of that size"
            )
    naming.read(tensors)
    for name in dims:
        if sanitise(name) not in naming.dims:
            have = ", ".join(naming.dims) or "none"
            raise ShapeError(f"the model has no dim {name!r}; it has: {have}")
    return naming


def _inputs(
    program: ExportedProgram, state: _State, naming: Naming, call: Call
) -> tuple[dict[Node, Any], list[str]]:
    builder = state.ctx.builder
    specs = {s.arg.name: s for s in program.graph_signature.input_specs}
    env: dict[Node, Any] = {}
    names: list[str] = []
    for node in program.graph.nodes:
        if node.op != "placeholder":
            continue
        spec, value = specs[node.name], node.meta.get("val")
        if spec.kind is InputKind.USER_INPUT:
            if is_complex(value):
                raise UnsupportedError(
                    f"the argument {node.name!r}: tensors of {value.dtype} are not supported "
                    "there; take torch.view_as_real of it"
                )
            if isinstance(value, torch.Tensor):
                env[node] = builder.param(
                    node.name, from_torch(value.dtype), naming.shapes[node.name]
                )
                names.append(node.name)
            else:
                env[node] = value
        elif node.users:
            env[node] = _weight(state.ctx, spec.target or node.name, _stored(program, spec))
    return env, names


def _weight(ctx: Context, name: str, tensor: torch.Tensor) -> Any:
    """A value for a tensor, or one for each part of it."""
    if tensor.is_complex():
        parts = torch.view_as_real(tensor.detach().resolve_conj())
        each = (ctx.builder.weight(f"{name}.{k}", to_array(parts[..., k])) for k in range(2))
        return Parts(*each)
    return ctx.builder.weight(name, to_array(tensor))


def _stored(program: ExportedProgram, spec: Any) -> torch.Tensor:
    if spec.kind is InputKind.TOKEN:
        raise UnsupportedError(
            "the program has operators with effects, which run_decompositions() made of checks; "
            "compile what torch.export gives, without it"
        )
    if spec.target in program.constants:
        tensor = program.constants[spec.target]
    else:
        tensor = program.state_dict[spec.target]
    if not isinstance(tensor, torch.Tensor):
        raise UnsupportedError(f"the constant {spec.target!r} is no tensor")
    if tensor.is_meta:
        raise InvalidModelError(
            f"the weight {spec.target!r} has no values (it is on the meta device): load the "
            "model's weights first"
        )
    return tensor


# ---- the walk


def _run(state: _State, module: GraphModule, env: dict[Node, Any]) -> Sequence[Any]:
    """Lower every node; the flat results."""
    for node in module.graph.nodes:
        if node.op == "call_function":
            env[node] = _lower(state, module, node, env)
        elif node.op == "get_attr":
            env[node] = getattr(module, str(node.target))
        elif node.op == "output":
            return [_result(state, a, env) for a in pytree.tree_leaves(node.args[0])]
    raise InvalidModelError("the exported graph has no output")


def _result(state: _State, arg: Any, env: Mapping[Node, Any]) -> Any:
    value = arg.meta.get("val") if isinstance(arg, Node) else None
    try:
        found = _resolve(state, arg, env)
        if selections(found):
            raise refusal(state.ctx)
        is_item = isinstance(value, _NUMBERS) and isinstance(found, Value)
        return _Item(found) if is_item else found
    except UnsupportedError as error:  # a second result that is made only now
        state.ctx.span = span_of(arg)
        _record(state, arg, str(error))
        return _stand_in(arg.meta.get("val"))


def _lower(state: _State, module: GraphModule, node: Node, env: dict[Node, Any]) -> Any:
    value = node.meta.get("val")
    if isinstance(value, _NUMBERS):
        if str(node.target) in _ITEMS:
            state.numbers.take(node, _resolve(state, node.args[0], env))
        return None  # read from the metadata where it is used
    if not node.users and not is_mutating(node):
        return None
    ctx = state.ctx
    ctx.node, ctx.span = node, span_of(node)
    try:
        if _is_small_table(value) and node.all_input_nodes and state.constants.decides(node):
            return _constant(state, node)
        if node.target is operator.getitem:
            return _item(env[node.args[0]], node.args[1])  # type: ignore[index]
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            return _inline(state, node, env)
        return _operator(state, node, env)
    except UnsupportedError as error:
        if state.constants.decides(node):
            return _constant(state, node)
        _record(state, node, str(error))
        return _stand_in(value)
    except (PliantError, TypeError, KeyError, ValueError, IndexError, AssertionError) as error:
        if state.problems:  # an operand of a failed operator may be what is wrong
            return _stand_in(value)
        where = f"{ctx.span}: " if ctx.span else ""
        text = str(error).removeprefix(where)
        raise InvalidModelError(f"{where}cannot import {node.target}: {text}") from error


def _operator(state: _State, node: Node, env: dict[Node, Any]) -> Any:
    name = str(node.target)
    if name.startswith(_CHECKS):
        return None
    lowering = state.table.get(functional_name(node.target) if is_mutating(node) else name)
    lowering = lowering or state.table.get(name)  # some operators are in-place ones only
    args = [_resolve(state, a, env) for a in node.args]
    kwargs = {k: _resolve(state, a, env) for k, a in node.kwargs.items() if k not in _IGNORED}
    if name not in WITH_PARTS:
        lowering = of_complex(name, lowering, args, kwargs, node.meta.get("val"))
    if selections((args, kwargs)):
        lowering = of_selected(node.target, lowering, state.table)
    if lowering is None:
        raise UnsupportedError(_NO_RULE)
    try:
        result = lowering(state.ctx, *args, **kwargs)
    except TypeError as error:
        if _has_computed_size(node, args):
            raise UnsupportedError(
                "a size depends on the values of a tensor; make it depend on shapes only"
            ) from error
        raise
    _check(result, node.meta.get("val"))
    state.numbers.note(node, args, kwargs, result)
    if is_mutating(node) and isinstance(node.args[0], Node):
        env[node.args[0]] = result
    return result


def _has_computed_size(node: Node, args: Sequence[Any]) -> bool:
    """Whether an argument that is to be an integer is an element of a tensor."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    kinds = (str(a.type) for a in node.target._schema.arguments)
    given = zip(kinds, args, strict=False)
    whole = (x for kind, x in given if "int" in kind.lower() and "Tensor" not in kind)
    return any(isinstance(v, Value) for x in whole for v in (x if isinstance(x, list) else [x]))


def _is_small_table(value: Any) -> bool:
    """Whether these are indices, masks or counts, whose values a rule may ask for."""
    return (
        isinstance(value, torch.Tensor)
        and value.ndim > 0
        and not value.dtype.is_floating_point
        and all(isinstance(d, int) for d in value.shape)
        and value.numel() <= SMALL_TABLE
    )


def _constant(state: _State, node: Node) -> Any:
    """What torch makes of weights and numbers, as weights."""
    found = pytree.tree_map(lambda x: _weight(state.ctx, node.name, x), state.constants.value(node))
    result = tuple(found) if isinstance(found, tuple | list) else found
    state.numbers.note_sizes(result, node.meta.get("val"))
    return result


_NO_RULE = "there is no import rule for it"
_CHECKS = ("aten._assert", "aten.sym_constrain_range", "aten.sym_size", "aten.sym_numel",
           "aten.sym_stride", "aten.sym_storage_offset")  # fmt: skip
_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_ITEMS = frozenset({"aten.item.default", "aten._local_scalar_dense.default"})
_IGNORED = frozenset({"device", "layout", "pin_memory", "memory_format", "non_blocking"})
_LOOPS = frozenset({"while_loop", "scan", "associative_scan", "map_impl"})
_INLINED = frozenset({"wrap_with_set_grad_enabled", "wrap_with_autocast"})


def _inline(state: _State, node: Node, env: dict[Node, Any]) -> Any:
    """Regions with gradients off, or autocast off, are their bodies (`functional` has written the
    casts of those where it is on)."""
    name = str(node.target).rsplit(".", 1)[-1]
    if name == "cond":
        return _select(state, node, env)
    if name == "flex_attention":
        functions = (env[node.args[3]], env[node.args[4][-1]])  # type: ignore[index]
        graph, operands = attention_graph(node, *functions)
        return _body(state, graph, operands, env)
    if name not in _INLINED:
        what = "loops" if name in _LOOPS else "operators that take functions"
        raise UnsupportedError(
            f"{what} inside the model are not supported; only torch.cond and flex_attention are"
        )
    at = next(k for k, a in enumerate(node.args) if isinstance(a, Node) and a.op == "get_attr")
    return _body(state, env[node.args[at]], node.args[at + 1 :], env)  # type: ignore[index]


def _body(
    state: _State, body: GraphModule, operands: Sequence[Any], env: Mapping[Node, Any]
) -> Any:
    """The results of a graph of its own, of these operands."""
    inputs = [n for n in body.graph.nodes if n.op == "placeholder"]
    values = [_resolve(state, a, env) for a in operands]
    if selections(values):
        raise refusal(state.ctx)
    return tuple(_run(state, body, dict(zip(inputs, values, strict=True))))


def _select(state: _State, node: Node, env: dict[Node, Any]) -> Any:
    """Both branches are computed, as neither changes anything, and one is taken."""
    condition, then, otherwise, operands = node.args
    taken = _resolve(state, condition, env)
    results = [_body(state, env[graph], operands, env) for graph in (then, otherwise)]  # type: ignore[arg-type,index]
    ctx = state.ctx
    ctx.node, ctx.span = node, span_of(node)
    return tuple(ctx.call("where", taken, *pair) for pair in zip(*results, strict=True))


def _resolve(state: _State, arg: Any, env: Mapping[Node, Any]) -> Any:
    """The value of an argument: tensors, sizes, numbers, and lists of them."""
    if isinstance(arg, Node):
        value = arg.meta.get("val")
        if (tensor := state.numbers.tensor(value)) is not None:
            return tensor
        if isinstance(value, torch.SymInt):
            return _number(state.ctx.symbols.of(value))
        if isinstance(value, torch.SymFloat):
            return state.ctx.symbols.number(value)
        if isinstance(value, torch.SymBool):
            return _truth(state, arg, value, env)
        found = env[arg]
        return found.get() if isinstance(found, Lazy) else found
    if isinstance(arg, list | tuple):
        return type(arg)(_resolve(state, a, env) for a in arg)
    if isinstance(arg, torch.SymInt):
        return _number(state.ctx.symbols.of(arg))
    return arg


def _truth(state: _State, node: Node, value: torch.SymBool, env: Mapping[Node, Any]) -> Any:
    """What is said of sizes, or the element of a tensor of truth values."""
    if str(node.target) in _ITEMS:
        return _resolve(state, node.args[0], env)
    holds = state.ctx.symbols.truth(value)
    return bool(holds.value) if holds.is_const else state.ctx.tensor(holds, boolean)


def _number(size: Int) -> Int | int:
    return size.value if size.is_const else size


def _item(values: Any, index: Any) -> Any:
    value = values[index]
    if value is None:
        raise UnsupportedError("this result of the operator is not available")
    return value


# ---- checks and reports


def _check(result: Any, expected: Any) -> None:
    """Our types against torch's: rank, element type, constant sizes."""
    if isinstance(result, tuple | list) and isinstance(expected, tuple | list):
        for r, e in zip(result, expected, strict=True):
            _check(r, e)
        return
    if isinstance(result, Parts) and is_complex(expected):
        _check(result.re, expected.real)
        _check(result.im, expected.imag)
        return
    if not isinstance(result, Value) or not isinstance(expected, torch.Tensor):
        return
    same = from_torch(expected.dtype) is result.dtype and expected.ndim == len(result.shape)
    for ours, theirs in zip(result.shape, expected.shape, strict=False):
        if ours.is_const and isinstance(theirs, int) and ours.value != theirs:
            same = False
    if not same:
        raise AssertionError(
            f"the result is {result.type}, torch says {expected.dtype}{list(expected.shape)}"
        )


def _stand_in(value: Any) -> Any:
    """A value of the right type to go on with after a problem; it is never part of a function."""
    if is_complex(value):
        return Parts(_stand_in(value.real), _stand_in(value.imag))
    if isinstance(value, torch.Tensor):
        dtype = from_torch(value.dtype) if value.dtype in _KNOWN else from_torch(torch.float32)
        shape = tuple(as_int(d) if isinstance(d, int) else as_int(2) for d in value.shape)
        return Value("unsupported", TensorType(dtype, shape))
    if isinstance(value, tuple | list):
        return tuple(_stand_in(v) for v in value)
    return value


_KNOWN = frozenset({torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.float16})


def _record(state: _State, node: Node, reason: str) -> None:
    key = (str(node.target), reason)
    found = state.problems.get(key)
    if found is None:
        state.problems[key] = _Problem(node.target, reason, state.ctx.span)
    else:
        found.count += 1


def _report(problems: Sequence[_Problem]) -> UnsupportedError:
    lines = ["the model uses what Pliant does not support:"]
    for problem in problems:
        times = "once" if problem.count == 1 else f"{problem.count} times"
        where = f", first at {problem.span}" if problem.span else ""
        lines.append(f"  {problem.target} ({times}{where}): {problem.reason}")
    lines.append(
        "Rewrite these lines with other operators, or keep them outside the compiled part."
    )
    return UnsupportedError("\n".join(lines))

"""Programs as functions of their inputs: what a trace has around operators, and in-place ones.

`y = relu_(x)` on a fresh `x` is `relu(x)` from there on, if no view of `x` was taken before. All
else goes through torch's functionalisation, which keeps the operators as they are otherwise. It
also writes what comes of a transform of torch.func (`vmap`: products of rows are a batch of
products) and of a region under autocast (casts of what its products multiply), which a trace only
has as a mark around other operators.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from pliant.base.errors import UnsupportedError
from pliant.frontend.torch.decompose import run_decompositions

_HARMLESS = frozenset({"aten.detach_.default", "aten.requires_grad_.default"})


def functional(program: ExportedProgram) -> ExportedProgram:
    """A program without such marks, or mutation that we cannot read. Raises UnsupportedError on
    changed state."""
    what = next((m for g in _graphs(program) for n in g.nodes if (m := _mark(n))), "")
    if not what and any(_is_unsafe(g) for g in _graphs(program)):
        what = "an in-place operator"
    if what:
        try:
            program = run_decompositions(program, {})
        except Exception as error:
            first = str(error).strip().partition("\n")[0]
            raise UnsupportedError(
                f"{what} that torch itself cannot rewrite ({first}); write it without"
            ) from error
    refuse_changes(program)
    return program


def refuse_changes(program: ExportedProgram) -> None:
    """Raises UnsupportedError where the program changes state, or its inputs."""
    signature = program.graph_signature
    changed = [
        *getattr(signature, "buffers_to_mutate", {}).values(),
        *getattr(signature, "user_inputs_to_mutate", {}).values(),
        *getattr(signature, "parameters_to_mutate", {}).values(),
    ]
    if changed:
        raise UnsupportedError(
            "the model changes its state: " + ", ".join(map(str, changed)) + ". Return the new "
            "values as outputs and pass them in as inputs; or call model.eval() before exporting"
        )


def is_mutating(node: Node) -> bool:
    """Whether an ATen operator writes to one of its operands."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or str(target) in _HARMLESS:
        return False
    return target._schema.is_mutable


def functional_name(target: Any) -> str:
    """`aten.add_.Tensor` -> `aten.add.Tensor`."""
    head, name, overload = str(target).split(".")
    return f"{head}.{name.removesuffix('_')}.{overload}"


def _graphs(program: ExportedProgram) -> list[Graph]:
    modules = program.graph_module.modules()
    return [m.graph for m in modules if isinstance(m, torch.fx.GraphModule)]


def _mark(node: Node) -> str:
    """What it says of other operators, in words; empty if it is an operator itself."""
    if getattr(node.target, "__module__", "") == "torch._functorch.predispatch":
        return "a transform of torch.func (vmap, grad)"
    if str(node.target).endswith("wrap_with_autocast") and node.args[2]:
        return "a region under autocast"
    return ""


def _is_unsafe(graph: Graph) -> bool:
    fresh: set[Node] = set()
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if is_mutating(node):
            target = node.args[0] if node.args else None
            if not (isinstance(target, Node) and target in fresh) or not _ends_in_place(node):
                return True
            if not _is_last_use(target, node):
                return True
            fresh.add(node)
        elif not _is_view(node):
            fresh.add(node)
    return False


def _ends_in_place(node: Node) -> bool:
    """relu_ and the like, which return their changed operand (not copy_, which is rarely alone)."""
    assert isinstance(node.target, torch._ops.OpOverload)
    name = str(node.target).split(".")[1]
    return name.endswith("_") and not name.endswith("__") and name != "set_"


def _is_last_use(changed: Node, by: Node) -> bool:
    """No view was taken before, and nobody looks at the operand's name afterwards."""
    return all(user is by or (not _is_view(user) and _before(user, by)) for user in changed.users)


def _before(a: Node, b: Node) -> bool:
    return a < b


def _is_view(node: Node) -> bool:
    if not isinstance(node.target, torch._ops.OpOverload):
        return True  # getitem and calls of submodules may alias
    schema = node.target._schema
    if any(r.alias_info is not None for r in schema.returns):
        return True
    return (
        str(node.target).split(".")[1]
        in (
            "reshape contiguous to flatten dropout view_as expand_as type_as movedim chunk"
            " split tensor_split unflatten narrow squeeze numpy_T ravel pad"
        ).split()
    )

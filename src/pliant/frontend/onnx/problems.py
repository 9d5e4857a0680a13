"""Everything in a model that cannot be imported, reported at once."""

from __future__ import annotations

from dataclasses import dataclass, field

from pliant.base.errors import UnsupportedError
from pliant.frontend.onnx.site import NeedsValueError


@dataclass(frozen=True)
class Problem:
    """One node that cannot be imported."""

    op: str
    reason: str
    node: str


@dataclass
class Problems:
    """Collects them; `raise_any` makes one error of all."""

    model: str
    nodes: int
    found: list[Problem] = field(default_factory=list)
    inputs: set[str] = field(default_factory=set)

    def add(self, op: str, node: str, error: UnsupportedError) -> None:
        """Note one node."""
        reason = str(error).removeprefix(f"{self.model} ({node}): ")
        self.found.append(Problem(op, reason, node))
        if isinstance(error, NeedsValueError):
            self.inputs |= error.inputs

    def raise_any(self) -> None:
        """Raise UnsupportedError where there is anything to report."""
        if not self.found:
            return
        groups: dict[tuple[str, str], list[Problem]] = {}
        for p in self.found:
            groups.setdefault((p.op, p.reason), []).append(p)
        lines = [f"{self.model}: {len(self.found)} of {self.nodes} nodes cannot be imported"]
        for (op, reason), members in sorted(groups.items(), key=lambda g: -len(g[1])):
            lines.append(f"  {len(members)} x {op}: {reason}; first at {members[0].node}")
        lines.append(f"  what to do: {self._advice()}")
        text = "\n".join(lines)
        raise (
            NeedsValueError(text, frozenset(self.inputs)) if self.inputs else UnsupportedError(text)
        )

    def _advice(self) -> str:
        if self.inputs:
            names = ", ".join(sorted(self.inputs))
            return f"make the inputs that decide shapes or modes constants of the model: {names}"
        return (
            "export the model with standard operators, or split it so that these nodes stay outside"
        )

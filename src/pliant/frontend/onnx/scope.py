"""Names of values in a graph, in a graph inside of a node, in the body of a function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from onnx import AttributeProto

from pliant.base.errors import InvalidModelError
from pliant.base.spans import Span
from pliant.frontend.onnx.site import Item


@dataclass
class Scope:
    """The values of one graph or function body, by name; None: it could not be imported."""

    opsets: Mapping[str, int]
    names: dict[str, Item | None] = field(default_factory=dict)
    outer: Scope | None = None
    attributes: Mapping[str, AttributeProto] = field(default_factory=dict)
    origin: Span | None = None
    depth: int = 0

    def find(self, name: str) -> Item | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        raise InvalidModelError(f"{name!r} is read, but nothing writes it")

    def inside(self) -> Scope:
        """A scope that sees this one."""
        return Scope(
            self.opsets, outer=self, attributes=self.attributes, origin=self.origin,
            depth=self.depth,
        )  # fmt: skip

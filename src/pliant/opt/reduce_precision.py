"""Products with less precision inside; sums, results and everything else stay f32.

`bf16_products` and `int8_products` say what becomes of a product, `narrowing` what is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pliant.graph.function import Binding, Function
from pliant.graph.operator import Operators
from pliant.opt.bf16_products import Bf16Products
from pliant.opt.int8_products import Int8Products
from pliant.opt.narrowing import Explain, Narrowing

NARROWINGS: Final[Mapping[str, type[Narrowing]]] = {"bf16": Bf16Products, "int8": Int8Products}


def _silent(binding: Binding, reason: str) -> None:
    pass


def reduce_precision(
    function: Function, operators: Operators, precision: str, explain: Explain = _silent
) -> Function:
    """The function with the factors of its products in this precision. Parameters and results keep
    their types."""
    return NARROWINGS[precision](function, operators).narrowed(explain)

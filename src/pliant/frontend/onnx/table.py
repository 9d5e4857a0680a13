"""The table of operators: (domain, operator) -> lowering."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pliant.frontend.onnx.lower_attention import ATTENTION
from pliant.frontend.onnx.lower_contrib import CONTRIB
from pliant.frontend.onnx.lower_contrib_attention import CONTRIB_ATTENTION
from pliant.frontend.onnx.lower_contrib_quant import CONTRIB_QUANT
from pliant.frontend.onnx.lower_create import CREATE
from pliant.frontend.onnx.lower_data import DATA
from pliant.frontend.onnx.lower_index import INDEX
from pliant.frontend.onnx.lower_math import MATH
from pliant.frontend.onnx.lower_nn import NN
from pliant.frontend.onnx.lower_norm import NORM
from pliant.frontend.onnx.lower_quant import QUANT
from pliant.frontend.onnx.lower_recurrent import RECURRENT
from pliant.frontend.onnx.lower_reduce import REDUCE
from pliant.frontend.onnx.lower_resize import RESIZE
from pliant.frontend.onnx.lower_sample import SAMPLE
from pliant.frontend.onnx.lower_sequence import SEQUENCE
from pliant.frontend.onnx.lower_shape import SHAPE
from pliant.frontend.onnx.lower_signal import SIGNAL
from pliant.frontend.onnx.site import Lowering


def joined(*families: tuple[str, Mapping[str, Lowering]]) -> dict[tuple[str, str], Lowering]:
    """One table of families by domain. Raises ValueError for an operator given twice."""
    table: dict[tuple[str, str], Lowering] = {}
    for domain, family in families:
        for name, lowering in family.items():
            if (domain, name) in table:
                raise ValueError(f"operator {name!r} of domain {domain!r} is given twice")
            table[domain, name] = lowering
    return table


ONNX_OPS: Final[Mapping[tuple[str, str], Lowering]] = joined(
    ("", MATH), ("", REDUCE), ("", SHAPE), ("", INDEX), ("", CREATE), ("", NN), ("", NORM),
    ("", RESIZE), ("", QUANT), ("", ATTENTION), ("", RECURRENT), ("", SAMPLE), ("", SIGNAL),
    ("", SEQUENCE), ("", DATA),
    ("com.microsoft", CONTRIB), ("com.microsoft", CONTRIB_QUANT),
    ("com.microsoft", CONTRIB_ATTENTION),
)  # fmt: skip

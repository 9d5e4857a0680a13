"""The table of all operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pliant.graph.expression import EXPRESSION
from pliant.graph.operator import Operator, operator_table
from pliant.ops.attention import ATTENTION
from pliant.ops.conv import CONV
from pliant.ops.create import CREATE
from pliant.ops.elementwise import ELEMENTWISE
from pliant.ops.fourier import FOURIER
from pliant.ops.gather import GATHER
from pliant.ops.linalg import LINALG
from pliant.ops.matmul import MATMUL
from pliant.ops.normalize import NORMALIZE
from pliant.ops.pool import POOL
from pliant.ops.quantize import QUANTIZE
from pliant.ops.recurrent import RECURRENT
from pliant.ops.reduce import REDUCE
from pliant.ops.resize import RESIZE
from pliant.ops.shape import SHAPE
from pliant.ops.sort import SORT
from pliant.ops.special import SPECIAL
from pliant.ops.winograd import WINOGRAD

OPERATORS: Final[Mapping[str, Operator]] = operator_table(
    ELEMENTWISE, REDUCE, MATMUL, CONV, POOL, NORMALIZE, ATTENTION, SHAPE, CREATE, GATHER, RESIZE,
    SORT, RECURRENT, QUANTIZE, WINOGRAD, FOURIER, SPECIAL, LINALG, (EXPRESSION,),
)  # fmt: skip

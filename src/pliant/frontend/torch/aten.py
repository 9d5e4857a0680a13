"""The table of ATen operators: overload name -> lowering. A value, joined from the families."""

from __future__ import annotations

from typing import Final

from pliant.frontend.torch.context import Lowering, Table
from pliant.frontend.torch.lower_assemble import ASSEMBLE
from pliant.frontend.torch.lower_complex import COMPLEX
from pliant.frontend.torch.lower_conv import CONV
from pliant.frontend.torch.lower_create import CREATE
from pliant.frontend.torch.lower_elementwise import ELEMENTWISE
from pliant.frontend.torch.lower_fft import FFT
from pliant.frontend.torch.lower_index import INDEX
from pliant.frontend.torch.lower_linalg import LINALG
from pliant.frontend.torch.lower_matmul import MATMUL
from pliant.frontend.torch.lower_normalize import NORMALIZE
from pliant.frontend.torch.lower_order import ORDER
from pliant.frontend.torch.lower_quantized import QUANTIZED
from pliant.frontend.torch.lower_recurrent import RECURRENT
from pliant.frontend.torch.lower_reduce import REDUCE
from pliant.frontend.torch.lower_resize import RESIZE
from pliant.frontend.torch.lower_scatter import SCATTER
from pliant.frontend.torch.lower_shape import SHAPE
from pliant.frontend.torch.lower_special import SPECIAL


def join(*families: Table) -> dict[str, Lowering]:
    """One table. Raises ValueError where two families claim an operator."""
    table: dict[str, Lowering] = {}
    for family in families:
        for name, lowering in family.items():
            if name in table:
                raise ValueError(f"{name} is lowered twice")
            table[name] = lowering
    return table


WITH_PARTS: Final[Table] = join(COMPLEX, FFT)
"""Rules that know complex operands and results; others are of real numbers."""

ATEN: Final[Table] = join(
    ELEMENTWISE,
    SHAPE,
    CREATE,
    REDUCE,
    MATMUL,
    CONV,
    NORMALIZE,
    QUANTIZED,
    INDEX,
    RESIZE,
    RECURRENT,
    ORDER,
    SCATTER,
    SPECIAL,
    ASSEMBLE,
    LINALG,
    WITH_PARTS,
)

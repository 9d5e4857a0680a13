"""The catalogue, the table and the cases name the same operators."""

import importlib
import pathlib
import re

from pliant.graph.expression import EXPRESSION
from pliant.ops.table import OPERATORS

FAMILIES = (
    "elementwise", "reduce", "matmul", "conv", "normalize", "attention", "shape", "create",
    "gather", "resize", "sort", "recurrent", "quantize", "winograd",
    "special", "linalg", "fourier",
)  # fmt: skip
CATALOGUE = pathlib.Path(__file__).parents[2] / "docs" / "operators.md"


def test_every_operator_has_a_case() -> None:
    cases = [c.op for f in FAMILIES for c in importlib.import_module(f"tests.ops.data.{f}").CASES]
    assert set(OPERATORS) - {EXPRESSION.name} == set(cases)  # that one has no meaning of its own


def test_case_names_are_unique() -> None:
    for family in FAMILIES:
        ids = [c.id for c in importlib.import_module(f"tests.ops.data.{family}").CASES]
        assert len(ids) == len(set(ids)), sorted(i for i in ids if ids.count(i) > 1)


def test_catalogue_names_every_operator() -> None:
    text = CATALOGUE.read_text()
    words = set(re.findall(r"[a-z_0-9]+", text))
    assert set(OPERATORS) <= words

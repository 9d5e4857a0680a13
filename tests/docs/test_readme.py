"""The README's Python runs as it stands, and its commands exist."""

from __future__ import annotations

import linecache
import re
from pathlib import Path

import pytest

from pliant.cli import COMMANDS

README = Path(__file__).parents[2] / "README.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)


def test_there_are_snippets() -> None:
    assert SNIPPETS


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_a_snippet_runs(snippet: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    name = f"{README.name}[{SNIPPETS.index(snippet)}]"
    lines = snippet.splitlines(keepends=True)
    linecache.cache[name] = (len(snippet), None, lines, name)  # tensor programs are read there
    exec(compile(snippet, name, "exec"), {"__name__": "readme"})


def test_the_commands_are_those_there_are() -> None:
    assert set(re.findall(r"^\| `pliant (\w+)", README.read_text(), re.M)) == set(COMMANDS)

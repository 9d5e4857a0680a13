"""The README's Python runs as it stands, and its commands exist."""

from __future__ import annotations

import linecache
import re
from pathlib import Path

import pytest

import pliant
from pliant.cli import COMMANDS

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
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


def test_the_settings_are_those_that_are_read() -> None:
    section = README.read_text().split("## Settings")[1].split("\n## ")[0]
    sources = (p.read_text() for p in (ROOT / "src").rglob("*") if p.suffix in {".py", ".c"})
    read = re.findall(r'"(PLIANT_[A-Z_]+|OMP_[A-Z_]+|CC)"', "\n".join(sources))
    assert set(re.findall(r"`(PLIANT_[A-Z_]+|OMP_[A-Z_]+|CC)(?:=1)?`", section)) == set(read)


@pytest.mark.parametrize("text", [README, ROOT / "ARCHITECTURE.md"], ids=lambda p: p.name)
def test_the_files_that_are_named_exist(text: Path) -> None:
    there = {str(p.relative_to(ROOT)) for p in ROOT.rglob("*") if ".venv" not in p.parts}
    named = set(re.findall(r"`([a-z][a-z_0-9/]*(?:\.py|\.c|\.md|/))`", text.read_text()))
    whole = {f"/{path}" for path in there}
    ends = [n for n in named if not any(w.endswith(f"/{n.rstrip('/')}") for w in whole)]
    assert named and not ends


def test_the_dump_has_the_file_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    (named,) = re.findall(r'compile\("folder/([^"]+)"\)', README.read_text())
    monkeypatch.setenv("PLIANT_DUMP", str(tmp_path))
    linear, x = torch.nn.Linear(8, 40).eval(), torch.randn(3, 8)
    pliant.compile(linear, (x,))
    monkeypatch.delenv("PLIANT_DUMP")
    torch.testing.assert_close(pliant.compile(tmp_path / named)(x), linear(x))

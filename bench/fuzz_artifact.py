"""Damages files at random and gives them to Pliant, each in a child process.

python bench/fuzz_artifact.py [--onnx [--few]] [--minutes 10] [--count N] [--seed S] [--keep FOLDER]

Saved models are loaded and run; with --onnx, ONNX models are compiled and run. Whatever the file, a
child must end with a result or a PliantError: no crash, no other exception, no hang. Standard
output is a table; files that did harm are kept with --keep. Exit code 1 where there were any.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.fuzzing import artifacts, onnx_models
from bench.fuzzing.isolate import Verdict, isolated

Attempt = tuple[str, bytes, Callable[[Path], str]]  # what was done, the file, what to do with it

MEMORY = 4 << 30  # address space of a child: a model that asks for more is refused, not served


def main() -> int:
    """Fuzz; print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--onnx", action="store_true", help="ONNX models instead of saved ones")
    parser.add_argument("--few", action="store_true", help="damage few models, not all node tests")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--count", type=int, default=0, help="end after so many files")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60, help="after which a child hangs")
    parser.add_argument("--keep", type=Path, help="a folder for files that did harm")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pliant-fuzz-") as name:
        folder = Path(name)
        pick = random.Random(options.seed)
        few = options.few
        attempts = onnx_attempts(pick, few) if options.onnx else artifact_attempts(pick, folder)
        counts, bad = fuzz(
            attempts, folder, minutes=options.minutes, count=options.count,
            seconds=options.seconds, keep=options.keep,
        )  # fmt: skip
    for (what, kind), n in sorted(counts.items()):
        print(f"{what:28} {kind:9} {n:8}")
    print(f"{sum(counts.values())} files, {bad} did harm")
    return 1 if bad else 0


def artifact_attempts(pick: random.Random, folder: Path) -> Iterator[Attempt]:
    """Damaged artifacts, without end."""
    seeds = artifacts.seeds(folder)
    while True:
        seed, other = pick.choice(seeds), pick.choice(seeds)
        what, data = artifacts.damaged(pick, seed, other)
        yield what, data, lambda path, seed=seed: artifacts.load_and_run(path, seed)  # type: ignore[misc]


def onnx_attempts(pick: random.Random, few: bool) -> Iterator[Attempt]:
    """Damaged ONNX models, without end."""
    seeds = onnx_models.seeds(few)
    while True:
        what, data = onnx_models.damaged(pick, pick.choice(seeds), pick.choice(seeds))
        yield what, data, onnx_models.compile_and_run


def fuzz(
    attempts: Iterator[Attempt], folder: Path, *, minutes: float, count: int = 0,
    seconds: float = 60, keep: Path | None = None,
) -> tuple[Counter[tuple[str, str]], int]:  # fmt: skip
    """Tries files until the time or the count is over: outcomes by kind, and how many did harm."""
    counts: Counter[tuple[str, str]] = Counter()
    begun, bad, path = time.monotonic(), 0, folder / "damaged"
    for number, (what, data, work) in enumerate(attempts):
        if time.monotonic() - begun > 60 * minutes or (count and number >= count):
            break
        path.write_bytes(data)
        verdict = isolated(lambda work=work: work(path), seconds=seconds, memory=MEMORY)  # type: ignore[misc]
        counts[what, verdict.kind] += 1
        if verdict.is_bad:
            bad += 1
            _report(number, what, data, verdict, keep)
    return counts, bad


def _report(number: int, what: str, data: bytes, verdict: Verdict, keep: Path | None) -> None:
    print(f"file {number} ({what}): {verdict.kind}\n{verdict.text}", file=sys.stderr, flush=True)
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"{number}-{what}").write_bytes(data)


if __name__ == "__main__":
    sys.exit(main())

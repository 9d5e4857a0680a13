"""`pliant cache [info|trim|clear]`: the folder of compiled kernels."""

from __future__ import annotations

import argparse

from pliant.base.settings import settings
from pliant.cli.terminal import file_size, message
from pliant.codegen.cache import ObjectCache


def configure(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument(
        "action", nargs="?", default="info", choices=("info", "trim", "clear"),
        help="info: where it is and how large; trim: remove the oldest entries beyond the cap; "
        "clear: remove everything",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Do it; standard output says what is there afterwards."""
    cache = ObjectCache(settings().cache_dir)
    if cache.folder is None:
        print("folder   none (PLIANT_CACHE_DIR=off, or no home folder)")
        return 0
    if options.action != "info":
        gone = cache.clear() if options.action == "clear" else cache.trim()
        message(f"{gone} entries removed")
    print(f"folder   {cache.folder}")
    print(f"entries  {len(cache.entries())}")
    print(f"size     {file_size(cache.size())} of {file_size(cache.cap)}")
    print(f"writable {cache.probe() or 'yes'}")
    return 0

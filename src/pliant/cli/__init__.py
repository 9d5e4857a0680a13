"""The command line: `pliant COMMAND …`.

A command is a module with `configure(parser)` and `run(options) -> exit code`, loaded only when it
is asked for: `pliant --help` needs neither a compiler nor a framework. Standard output is data,
standard error is messages.

    0 ok · 1 failure · 2 usage · 3 unsupported model · 4 results are inaccurate
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from types import FrameType
from typing import Final, NoReturn

from pliant.base.errors import PliantError
from pliant.base.load import load_module
from pliant.base.settings import settings

__all__ = ["COMMANDS", "main"]

FAILURE: Final = 1
INTERRUPTED: Final = 130  # 128 + SIGINT, as shells have it

# The lazy seam: a command's name, its module, its line in --help.
COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "compile": ("pliant.cli.compile", "compile a model to a file that runs at every shape"),
    "run": ("pliant.cli.run", "run a compiled file or a model on arrays"),
    "bench": ("pliant.cli.bench", "time it over many shapes, beside other runtimes"),
    "inspect": ("pliant.cli.inspect", "say what is in a compiled file"),
    "doctor": ("pliant.cli.doctor", "check this installation and this machine"),
    "cache": ("pliant.cli.cache", "show, trim or clear the cache of compiled kernels"),
    "demo": ("pliant.cli.demo", "embed real sentences with MiniLM: one compilation, many shapes"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    with contextlib.suppress(ValueError):  # not in the main thread: the signal is another's
        signal.signal(signal.SIGTERM, _terminate)
    sys.unraisablehook = _again_if_interrupted
    try:
        return _dispatch(arguments)
    except PliantError as error:
        return _report(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _report("interrupted", INTERRUPTED)
    except BrokenPipeError:
        return FAILURE
    except ImportError as error:
        name = error.name or "a module"
        text = f"{name} cannot be imported ({error}); pip install 'pliant[all]' installs everything"
        return _report(f"{text}, `pliant doctor` says what is there", FAILURE)
    except (OSError, MemoryError) as error:
        return _report(str(error) or "out of memory", FAILURE)
    except Exception as error:
        text = f"internal error: {type(error).__name__}: {error}"
        return _report(f"{text}\nset PLIANT_DEBUG=1 to see where, and please report it", FAILURE)


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] not in COMMANDS:
        parser = _top_parser()
        parser.parse_args(arguments)
        parser.print_help(sys.stderr)
        return 2
    name = arguments[0]
    home, line = COMMANDS[name]
    command = load_module(home)
    parser = argparse.ArgumentParser(
        prog=f"pliant {name}", description=line[0].upper() + line[1:] + ".", allow_abbrev=False
    )
    command.configure(parser)
    code: int = command.run(parser.parse_args(arguments[1:]))
    return code


def _top_parser() -> argparse.ArgumentParser:
    width = max(map(len, COMMANDS))
    lines = "\n".join(f"  {name:{width}}  {line}" for name, (_, line) in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="pliant",
        description="Pliant compiles a model once and runs it at every shape.",
        epilog=f"commands:\n{lines}\n\n`pliant COMMAND --help` says more.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", nargs="?")
    return parser


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        print(load_module("pliant.version").VERSION)
        parser.exit(0)


def _report(text: str, code: int) -> int:
    if settings().debug:
        traceback.print_exc()
    print(f"pliant: {text}", file=sys.stderr)
    return code


def _again_if_interrupted(lost: sys.UnraisableHookArgs) -> None:
    """A signal that comes where Python cannot raise what it asks for, as in the callback of a weak
    reference, is sent again a little later: else nothing would end."""
    if lost.exc_type is KeyboardInterrupt:
        # Where SIGINT is ignored, as of a shell's background jobs, it was the other.
        is_handled = signal.getsignal(signal.SIGTERM) is _terminate
        again = signal.SIGTERM if is_handled else signal.SIGINT
        main = threading.main_thread().ident  # another thread would not wake it
        threading.Timer(0.2, signal.pthread_kill, (main, again)).start()
    else:
        sys.__unraisablehook__(lost)


def _terminate(_signal: int, _frame: FrameType | None) -> NoReturn:
    """A polite request to end unwinds the stack, so that temporary files go."""
    raise KeyboardInterrupt

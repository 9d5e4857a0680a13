"""Imports that a signal does not tear apart."""

import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn

import pytest

from pliant.base.load import load_module, signals_held

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StoppedError(Exception):
    """What the handlers of these tests raise."""


def stop(number: int, _: FrameType | None) -> NoReturn:
    raise StoppedError(number)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = [signal.signal(s, stop) for s in SIGNALS]
    yield
    for s, handler in zip(SIGNALS, before, strict=True):
        signal.signal(s, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_while_a_module_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    name = f"interrupted_{number.name}"
    (tmp_path / f"{name}.py").write_text(
        f"import signal\nsignal.raise_signal({int(number)})\nwhole = True\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(StoppedError) as caught:
        load_module(name)
    assert caught.value.args == (number,)
    assert sys.modules[name].whole
    assert load_module(name).whole
    assert [signal.getsignal(s) for s in SIGNALS] == [stop, stop]


def test_one_of_two_raises_and_the_handlers_are_back() -> None:
    def both() -> None:
        with signals_held():
            for s in SIGNALS:
                signal.raise_signal(s)

    with pytest.raises(StoppedError):
        both()
    assert [signal.getsignal(s) for s in SIGNALS] == [stop, stop]


def test_blocks_within_blocks() -> None:
    done = []

    def nested() -> None:
        with signals_held():
            with signals_held():
                signal.raise_signal(signal.SIGINT)
                done.append("inner")
            done.append("outer")

    with pytest.raises(StoppedError):
        nested()
    assert done == ["inner", "outer"]


def test_an_error_goes_on_beside_the_signal() -> None:
    def fails() -> None:
        with signals_held():
            signal.raise_signal(signal.SIGTERM)
            raise ImportError("no such module")

    with pytest.raises(StoppedError) as caught:
        fails()
    assert isinstance(caught.value.__context__, ImportError)


def test_what_an_import_sets_stays() -> None:
    with signals_held():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_other_threads_change_nothing() -> None:
    seen = []

    def work() -> None:
        with signals_held():
            seen.append([signal.getsignal(s) for s in SIGNALS])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [[stop, stop]]

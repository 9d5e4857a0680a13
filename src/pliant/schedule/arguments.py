"""What is given to a primitive, against its signature: errors name the argument and what it takes.

p.split("i", 2.5)       split of i: argument factor must be an integer, or an expression of
                        sizes, not 2.5
p.split("i", by=4)      split of i: there is no argument by; it takes loop, factor, tail,
                            tail_loop
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Any, ForwardRef, Literal, Union, get_args, get_origin, get_type_hints

from pliant.loop.stmt import For, Stmt, statements
from pliant.schedule.errors import SchedulingError
from pliant.sym.divide import divisors
from pliant.sym.expr import Int
from pliant.sym.facts import Facts

_WORDS = {
    str: "a name",
    Int: "an expression of sizes",
    int: "an integer",
    float: "a number",
    bool: "True or False",
    NoneType: "None",
}


@cache
def _signature(fn: Callable[..., Any]) -> tuple[inspect.Signature, Mapping[str, Any]]:
    """The parameters of a primitive but for the program, and their types."""
    whole = inspect.signature(fn)
    _, *own = whole.parameters.values()
    return whole.replace(parameters=own), get_type_hints(fn)


def check_arguments(
    fn: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any]
) -> None:
    """Refuses arguments that the primitive does not have, or of other types."""
    own, hints = _signature(fn)
    try:
        bound = own.bind(*args, **options)
    except TypeError as error:
        reason = _misfit(own, args, options)
        raise SchedulingError(fn.__name__, place_of(args), reason) from error
    for name, value in bound.arguments.items():
        kind = own.parameters[name].kind
        for one in value if kind is inspect.Parameter.VAR_POSITIONAL else (value,):
            if not _fits(one, hints[name]):
                reason = f"argument {name} must be {_wanted(hints[name])}, not {one!r}"
                raise SchedulingError(fn.__name__, place_of(args, but=one), reason)


def place_of(args: Sequence[Any], but: Any = None) -> str:
    """The names among the arguments, for an error's text."""
    names = [str(a) for a in args if isinstance(a, str) and a is not but]
    return ", ".join(names) or "the program"


def _misfit(own: inspect.Signature, args: Sequence[Any], options: Mapping[str, Any]) -> str:
    """Why the arguments cannot be the primitive's."""
    takes = f"it takes {', '.join(own.parameters) or 'nothing'}"
    strange = [name for name in options if name not in own.parameters]
    if strange:
        return f"there is no argument {strange[0]}; {takes}"
    kinds = inspect.Parameter
    places = [x for x in own.parameters.values() if x.kind == kinds.POSITIONAL_OR_KEYWORD]
    twice = [x.name for x in places[: len(args)] if x.name in options]
    if twice:
        return f"argument {twice[0]} is given twice; {takes}"
    missing = [
        x.name
        for k, x in enumerate(own.parameters.values())
        if x.default is x.empty and x.kind not in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD)
        if x.name not in options and (x.kind == kinds.KEYWORD_ONLY or k >= len(args))
    ]
    if missing:
        return f"argument {missing[0]} is missing; {takes}"
    by_name = [x.name for x in own.parameters.values() if x.kind == kinds.KEYWORD_ONLY]
    named = f", of these by name {', '.join(by_name)}" if by_name else ""
    return f"{len(args)} arguments are too many; {takes}{named}"


def _fits(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if hint is Any or isinstance(hint, ForwardRef):
        return True
    if origin in (Union, UnionType):
        return any(_fits(value, x) for x in get_args(hint))
    if origin is Literal:
        return isinstance(value, str)  # primitives say themselves which words they do not know
    if origin in (tuple, Sequence):
        of = get_args(hint)[0]
        return isinstance(value, tuple | list) and all(_fits(x, of) for x in value)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _wanted(hint: Any) -> str:
    """The type in words."""
    origin, of = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        first = [int] if int in of and float not in of else []
        given = [*first, *(x for x in of if x is not int)]
        return ", or ".join(_wanted(x) for x in given)
    if origin is Literal:
        return f"one of {', '.join(map(repr, of))}"
    if origin in (tuple, Sequence):
        return f"a sequence, each {_wanted(of[0])}"
    return _WORDS.get(hint, getattr(hint, "__name__", str(hint)))


# ---- divisions


def check_divisions(
    fn: Callable[..., Any],
    args: Sequence[Any],
    options: Mapping[str, Any],
    body: Stmt,
    facts: Facts,
) -> None:
    """Refuses integers that divide by what may be 0 (`n//m`, of any m). The primitive would put
    them where they are computed whatever m is. Loops may stand in them, of which none is
    negative."""
    found = [x for x in _ints((*args, *options.values())) for x in divisors(x)]
    if not found:
        return
    known = facts.copy()
    for s in statements(body):
        if isinstance(s, For):
            known.declare(s.var)
    for x in found:
        if not known.positive(x):
            reason = f"an argument divides by {x}, which is not known to be at least 1"
            raise SchedulingError(fn.__name__, place_of(args), reason)


def _ints(value: Any) -> Iterator[Int]:
    if isinstance(value, Int):
        yield value
    elif isinstance(value, tuple | list):
        for x in value:
            yield from _ints(x)

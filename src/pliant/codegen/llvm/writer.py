"""Text of one LLVM function: names, blocks, instructions. Knows nothing of our IR."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from pliant.runtime import abi

Lines = list["str | Lines"]  # holes are lists of lines

# Instructions of which a second one with the same operands gives nothing new.
_PURE: Final = frozenset(
    "add sub mul udiv urem sdiv srem and or xor shl lshr ashr fadd fsub fmul icmp fcmp select "
    "bitcast trunc zext sext getelementptr insertelement extractelement shufflevector".split()
)


@dataclass
class ModuleText:
    """What the functions of one LLVM module share."""

    declares: dict[str, None] = field(default_factory=dict)
    globals: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    defined: set[str] = field(default_factory=set)

    def declare(self, line: str) -> None:
        self.declares[line] = None

    def define(self, name: str, line: str) -> None:
        """A global or metadata, once."""
        if name not in self.defined:
            self.defined.add(name)
            self.globals.append(line)

    def render(self) -> str:
        return "\n".join([*self.declares, *self.globals, *self.functions, ""])


class FunctionText:
    """Instructions of a function under construction. Values are strings such as `%v3` or `7`."""

    def __init__(self, module: ModuleText) -> None:
        self.module = module
        self._lines: Lines = []
        self._entry: list[str] = []  # allocas, in the entry block so that they are promoted
        self._kept = 0  # bytes of memory that was asked for by `kept`
        self._nowhere: dict[str, str] = {}
        self._known: dict[str, str] = {}  # instructions of this block that need not come twice
        self._count = 0
        self.block = "entry"

    def hole(self) -> Lines:
        """A place here for instructions that become known later (`into`, or whole lines)."""
        lines: Lines = []
        self._lines.append(lines)
        return lines

    @contextmanager
    def into(self, hole: Lines) -> Iterator[None]:
        """Instructions, and no blocks, go to the end of a hole."""
        here, self._lines = self._lines, hole
        known, self._known = self._known, {}
        yield
        self._lines, self._known = here, known

    def name(self, hint: str = "v") -> str:
        self._count += 1
        return f"%{hint}{self._count}"

    def line(self, text: str) -> None:
        self._lines.append(f"  {text}")

    def assign(self, text: str, hint: str = "v") -> str:
        """The value of an instruction, which is written once in a block if that is enough."""
        pure = text.split(" ", 1)[0] in _PURE
        if pure and text in self._known:
            return self._known[text]
        result = self.name(hint)
        self._lines.append(f"  {result} = {text}")
        if pure:
            self._known[text] = result
        return result

    def alloca(self, type_: str, align: int) -> str:
        result = self.name("a")
        self._entry.append(f"  {result} = alloca {type_}, align {align}")
        return result

    def kept(self, size: int) -> str:
        """Memory on the stack from `abi.AMID` on in a page; what is asked for next lies behind, as
        far as pages go."""
        at = (abi.AMID + self._kept) % abi.PAGE
        self._kept += -(-size // abi.ALIGNMENT) * abi.ALIGNMENT
        room, result = self.alloca(f"[{at + size} x i8]", abi.PAGE), self.name("a")
        self._entry.append(f"  {result} = getelementptr i8, ptr {room}, i64 {at}")
        return result

    def nowhere(self, type_: str, align: int) -> str:
        """Memory that nobody reads, for what must not be stored. LLVM does not know: of a choice
        between this and another address it would make a branch."""
        if type_ not in self._nowhere:
            result, memory = self.name("a"), self.alloca(type_, align)
            self._entry.append(f'  {result} = call ptr asm "", "=r,0"(ptr {memory})')
            self._nowhere[type_] = result
        return self._nowhere[type_]

    def label(self, hint: str) -> str:
        self._count += 1
        return f"{hint}{self._count}"

    def start(self, label: str) -> None:
        """Begin a basic block."""
        self._lines.append(f"{label}:")
        self.block = label
        self._known = {}

    def jump(self, label: str) -> None:
        self.line(f"br label %{label}")

    def branch(self, cond: str, then: str, other: str) -> None:
        self.line(f"br i1 {cond}, label %{then}, label %{other}")

    def phi(self, type_: str, *incoming: tuple[str, str], hint: str = "p") -> str:
        arms = ", ".join(f"[ {value}, %{block} ]" for value, block in incoming)
        return self.assign(f"phi {type_} {arms}", hint)

    def intrinsic(
        self, name: str, result: str, args: list[tuple[str, str]], flags: str = ""
    ) -> str:
        """Call an LLVM intrinsic; args are (type, value). Void results give the empty string."""
        params = ", ".join(t.split()[0] if t.startswith("ptr") else t for t, _ in args)
        self.module.declare(f"declare {result} @{name}({params})")
        call = f"call {flags}{result} @{name}({', '.join(f'{t} {v}' for t, v in args)})"
        if result == "void":
            self.line(call)
            return ""
        return self.assign(call)

    def prefetch(self, address: str, cache: int, *, write: bool = False) -> None:
        """Ask for a line, to read or to write it, into the caches from this level on, as data."""
        how = [("i32", str(int(write))), ("i32", str(4 - cache)), ("i32", "1")]
        self.intrinsic("llvm.prefetch.p0", "void", [("ptr", address), *how])

    def render(self, header: str) -> str:
        """The whole function; the entry block holds the allocas and falls into the body."""
        return "\n".join([f"{header} {{", "entry:", *self._entry, *_flat(self._lines), "}"])


def _flat(lines: Lines) -> Iterator[str]:
    for line in lines:
        if isinstance(line, str):
            yield line
        else:
            yield from _flat(line)

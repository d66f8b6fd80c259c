"""Everything that somebody could look at after a run, as texts with the place where each was found.

An object is looked at in every way in which programs show, walk, copy and store objects. An exception is
looked at with all that hangs on it and with the locals of its frames. Where an object refuses (a credential
is never pickled), that is its answer.
"""

from __future__ import annotations

import copy
import json
import logging
import pickle
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

import afpool
import afpool.artifacts
import afpool.credentials
import afpool.runtime
import afpool.tools
from afpool import (
    Credential,
    HttpTransport,
    Plan,
    Pool,
    RuntimeConfig,
    Secret,
    Server,
    StdioTransport,
    ToolResult,
    Use,
    WebSocketTransport,
)
from afpool.artifacts import BoundArtifacts, MemoryArtifacts, SqliteArtifacts
from afpool.tools import ToolEvent
from afpool.tools._filled_arguments import FilledArguments
from tests.canary.forms import Finder, Found

if TYPE_CHECKING:
    from types import TracebackType

TESTS = Path(__file__).resolve().parents[1]
DEPTH = 8


class EveryRecord(logging.Handler):
    """Keeps what is logged by anybody, formatted as a program would and with all that a record carries."""

    def __init__(self) -> None:
        super().__init__(level=0)
        self.texts: list[tuple[str, str]] = []
        self.loggers: set[str] = set()
        self.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Take one."""
        self.loggers.add(record.name.partition(".")[0])
        place = f"log of {record.name}"
        self.texts.append((place, self.format(record)))
        self.texts.append((place, repr(record.__dict__)))
        if record.exc_info and record.exc_info[1] is not None:
            self.texts += exception_texts(record.exc_info[1], place)


@attrs.define(eq=False)
class Collected:
    """What was found where.

    Attributes:
        texts: Place and text, each pair once.
    """

    texts: dict[tuple[str, str], None] = attrs.field(factory=dict)

    def text(self, place: str, text: str) -> None:
        """Keep a text."""
        self.texts[place, text] = None

    def thing(self, place: str, thing: Any) -> None:
        """Keep an object in every form that it can be shown in."""
        for where, text in object_texts(thing, place):
            self.text(where, text)

    def raised(self, place: str, error: BaseException) -> None:
        """Keep an exception that was raised to a caller here; the frames of the tests are the caller's."""
        for where, text in exception_texts(error, place, skip=TESTS):
            self.text(where, text)

    def files(self, place: str, folder: Path) -> None:
        """Keep what files of a folder hold."""
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                self.text(f"{place} {file.name}", file.read_bytes().decode("latin-1"))

    def found(self, finder: Finder) -> set[Found]:
        """Look for the canaries in all of it."""
        places: dict[str, list[str]] = {}
        for place, text in self.texts:
            places.setdefault(text, []).append(place)
        return {
            Found(name, form, place)
            for text, told in places.items()
            for name, form in finder(text)
            for place in told
        }


def object_texts(thing: Any, place: str) -> Iterator[tuple[str, str]]:
    """An object as programs show it, and what it refers to."""
    yield from _object_texts(thing, place, {}, DEPTH)


def _object_texts(thing: Any, place: str, seen: dict[int, Any], depth: int) -> Iterator[tuple[str, str]]:
    if id(thing) in seen or thing is None or isinstance(thing, type):
        return
    seen[id(thing)] = thing  # kept, so that its id is not used again
    if isinstance(thing, BaseException):
        yield from exception_texts(thing, place)
        return
    if isinstance(thing, bytes | bytearray):
        yield place, bytes(thing).decode("latin-1")
        return
    yield f"{place}: repr", repr(thing)
    yield f"{place}: str", str(thing)
    yield f"{place}: format", format(thing) if type(thing).__format__ is not object.__format__ else ""
    if isinstance(thing, str | int | float):
        return
    if isinstance(thing, CONFIGURATION) or not _is_looked_into(thing) or _is_plain(thing):
        return
    for way, text in _stored(thing):
        yield f"{place}: {way}", text
    if depth == 0:
        return
    for name, value in _parts(thing):
        yield from _object_texts(value, f"{place}.{name}"[:200], seen, depth - 1)


def _stored(thing: Any) -> Iterator[tuple[str, str]]:
    ways = {
        "pickle": lambda: pickle.dumps(thing).decode("latin-1"),
        "copy": lambda: repr(copy.copy(thing)),
        "deepcopy": lambda: repr(copy.deepcopy(thing)) if isinstance(thing, COPIED) else "",
        "json": lambda: "" if isinstance(thing, FilledArguments) else json.dumps(thing, default=repr),
        "asdict": lambda: repr(attrs.asdict(thing)),
        "vars": lambda: repr(vars(thing)),
    }
    for way, store in ways.items():
        try:
            text = store()
        except Exception as refused:
            text = f"{type(refused).__name__}: {refused}"
        yield way, text


def _is_looked_into(thing: Any) -> bool:
    """Whether an object is a container, or of a public kind; of anything else only what it shows counts."""
    kind = type(thing)
    return isinstance(thing, Mapping | list | tuple | set | frozenset) or kind.__name__ in PUBLIC


def _is_plain(thing: Any) -> bool:
    """Whether its `repr` has shown all of it."""
    if type(thing) is dict:
        return all(map(_is_plain, thing)) and all(map(_is_plain, thing.values()))
    if type(thing) in (list, tuple):
        return all(map(_is_plain, thing))
    return thing is None or isinstance(thing, str | int | float)


def _parts(thing: Any) -> Iterator[tuple[str, Any]]:
    """What an object holds by its public names; what leads to the rest of the program is left out."""
    if isinstance(thing, FilledArguments):
        return  # a tool reads it as the dictionary that it is
    if isinstance(thing, Mapping):
        for key, value in thing.items():
            yield "key", key
            yield str(key), value
        return
    if isinstance(thing, list | tuple | set | frozenset):
        for number, value in enumerate(thing):
            yield str(number), value
        return
    kind = type(thing)
    names = [*getattr(thing, "__dict__", ())]
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else list(slots)
        names += [name for name, value in vars(base).items() if isinstance(value, property)]
    for name in dict.fromkeys(names):
        if not name.startswith("_") and name not in REVEALING:
            try:
                value = getattr(thing, name)
            except Exception as refused:
                value = refused
            if not callable(value) or isinstance(value, BaseException):
                yield name, value


PUBLIC = {
    name for module in (afpool, afpool.tools, afpool.runtime, afpool.artifacts, afpool.credentials)
    for name in module.__all__
} | {"FilledArguments", "Ticket"}  # fmt: skip
# What the host says itself, in clear to whoever asks it; and stores, whose contents are looked at apart.
CONFIGURATION = (
    BoundArtifacts, HttpTransport, MemoryArtifacts, Plan, Pool, RuntimeConfig, Server, SqliteArtifacts,
    StdioTransport, WebSocketTransport,
)  # fmt: skip
# What a copy of is only a copy of data; a runtime's would be of half the process.
COPIED = (
    ToolEvent,
    Use,
    ToolResult,
    Credential,
    Secret,
    FilledArguments,
    BaseException,
    str,
    dict,
    list,
    tuple,
)
# Who reads these asks for the secret by its name.
REVEALING = frozenset({"token", "key", "password", "headers", "httpx_transport", "env"})


def chain(error: BaseException) -> list[BaseException]:
    """An exception and all that hangs on it: causes, contexts, members of groups."""
    waiting: list[BaseException | None] = [error]
    found: list[BaseException] = []
    while waiting:
        one = waiting.pop()
        if one is None or any(one is other for other in found):
            continue
        found.append(one)
        waiting += [one.__cause__, one.__context__]
        waiting += getattr(one, "exceptions", ())
        waiting += [value for value in vars(one).values() if isinstance(value, BaseException)]
    return found


def exception_texts(
    error: BaseException, place: str, *, skip: Path | None = None
) -> Iterator[tuple[str, str]]:
    """An exception as it is printed, stored and shown with the locals of its frames."""
    for one in chain(error):
        yield f"{place}: exception", f"{one!r} {one} {one.args!r}"
        yield f"{place}: attributes", repr({key: _flat(value) for key, value in vars(one).items()})
        for kind in type(one).__mro__:
            for name in kind.__dict__.get("__slots__", ()):
                yield f"{place}: attribute {name}", repr(getattr(one, name, None))
        for note in getattr(one, "__notes__", ()):
            yield f"{place}: note", note
        for way, text in _stored(one):
            if way in {"pickle", "copy", "deepcopy"}:
                yield f"{place}: {way} of exception", text
        printed: Any = traceback.TracebackException(
            type(one), one, _without(one.__traceback__, skip), capture_locals=True, compact=False
        )
        printed.exceptions = None  # each is looked at by itself
        yield f"{place}: traceback with locals", "".join(printed.format(chain=False))
        for frame in printed.stack:
            yield f"{place}: frame {frame.name}", repr(frame.locals)


def _flat(value: Any) -> Any:
    """What an attribute holds; a result that hangs on an error is opened."""
    return value.document if hasattr(value, "document") else value


def _without(tb: TracebackType | None, skip: Path | None) -> TracebackType | None:
    """A traceback without the frames of a folder."""
    if tb is None or skip is None:
        return tb
    rest = _without(tb.tb_next, skip)
    if Path(tb.tb_frame.f_code.co_filename).is_relative_to(skip):
        return rest
    tb.tb_next = rest
    return tb

"""What is true in a simulated world, and what happened in it: facts in the order in which they came about.

A fact is filed in the synchronous step in which it comes about, so the order of facts is the order of the
run, also where the clock stands still. What the checks (`checks_*.py`) need of the world's state at some
instant they read from the facts before it, and never from the pool.

Whence facts come:

* the host: what the app was asked and said, what it asked of the pool and what it got;
* the wire: bytes that the network took from a client, and bytes that a client took from the network, both
  read by `oracle_wire.py`, which knows nothing of afpool;
* the servers: what really ran.

A `Request` is filed at its first byte, when nothing is known of it yet; what it is is filled in as the rest
comes. It belongs to the instant of its first byte.

`key` is a server and an identity cut to what the server keys on, written down by the driver and not by the
pool.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

T = TypeVar("T", bound="Fact")

RAISES: Final = "(raises)"
"""Stands for the authorization name where `share` raises, or gives what is none."""

NOBODY: Final = "(nobody)"
"""Stands for the key of a caller identity that names nobody, or cannot be asked."""


@attrs.define(eq=False, kw_only=True)
class Fact:
    """Something that happened; `seq` counts facts, `at` is the simulated time."""

    seq: int = -1
    at: float = -1.0


# ------------------------------------------------------------------------------------------ host: truths


@attrs.define(eq=False, kw_only=True)
class PlanTold(Fact):
    """The app has answered what the plan of a key is: under this context; `place` is the mark of the plan."""

    key: str
    context: str
    place: str


@attrs.define(eq=False, kw_only=True)
class Shared(Fact):
    """From now on `share` gives this name for a key (or raises)."""

    key: str
    name: str | None


@attrs.define(eq=False, kw_only=True)
class Named(Fact):
    """From now on a live caller identity encodes to these keys, one per server, and to nobody elsewhere.

    Attributes:
        scope: The whole of it; None for nobody, or for one who cannot be asked.
    """

    caller: str
    keys: frozenset[str]
    scope: str | None = None


@attrs.define(eq=False, kw_only=True)
class Vended(Fact):
    """A credential exists: its value, and whose it is (`server:tenant/principal` or `server:machine`)."""

    owner: str
    value: str


@attrs.define(eq=False, kw_only=True)
class Revoked(Fact):
    """`invalidate` has named these keys."""

    keys: frozenset[str]


@attrs.define(eq=False, kw_only=True)
class Reconfigured(Fact):
    """Another configuration has come into force, by which all that these keys were bound under ends."""

    keys: frozenset[str]


@attrs.define(eq=False, kw_only=True)
class Killed(Fact):
    """`kill` was told the client that a key had, by its number."""

    key: str
    client: int = -1


@attrs.define(eq=False, kw_only=True)
class Crashed(Fact):
    """A turn of a key raised."""

    key: str


@attrs.define(eq=False, kw_only=True)
class Paused(Fact):
    """Admission of a key is held."""

    key: str


@attrs.define(eq=False, kw_only=True)
class Resumed(Fact):
    """Admission of a key goes on."""

    key: str


@attrs.define(eq=False, kw_only=True)
class Withdrawn(Fact):
    """`pool.cancel` of a call; `found` is what it answered."""

    call: str
    found: bool


@attrs.define(eq=False, kw_only=True)
class Hung(Fact):
    """The scope of whoever made a call was cancelled."""

    call: str


@attrs.define(eq=False, kw_only=True)
class Closing(Fact):
    """The pool is being left."""


@attrs.define(eq=False, kw_only=True)
class Closed(Fact):
    """The pool has been left."""


# ------------------------------------------------------------------------------------------ host: calls


@attrs.define(eq=False, kw_only=True)
class Bound(Fact):
    """Tools were handed out.

    Attributes:
        tools: The driver's number of what was handed out.
        key: Whom they were listed for.
        context: The plan context that they stand on, and `name` the authorization name, as the binding says.
        shared: Whether the list is a shared one.
        epoch_from: The number of the last fact when they were asked for: what happened before it is behind
        them.
        definitions: Tool to the definition's canonical text, as handed out.
    """

    tools: int
    key: str
    context: str
    name: str | None
    shared: bool
    epoch_from: int
    definitions: Mapping[str, str]


@attrs.define(eq=False, kw_only=True)
class Began(Fact):
    """A call began.

    Attributes:
        call: Its id.
        tools: What was handed out, of which it is a tool; -1 for an operation on a bound server, -2 for a
            call by name that lists for itself.
        key: The key of its binding.
        tool: The tool's name, or the JSON-RPC method of an operation.
        caller: The label of a live caller identity; None for a fixed one.
        who: The key of a fixed caller identity.
        deadline: Absolute.
        mark: What its arguments hold and no other call's do.
        repeats: Its server recognises call ids, so that it may be asked for again while in doubt.
    """

    call: str
    tools: int
    key: str
    tool: str
    caller: str | None
    who: str | None
    deadline: float
    mark: str = ""
    repeats: bool = False

    @property
    def is_operation(self) -> bool:
        """Whether it is no call of a tool but an operation on a bound server."""
        return self.tools == -1


@attrs.define(eq=False, kw_only=True)
class Ended(Fact):
    """A call ended in its caller's hands.

    Attributes:
        call: Its id.
        code: `ok`, `tool-error` of a result; the code of an error; `caller-cancelled` for a trio
        cancellation.
        delivery: The verdict; None for a trio cancellation.
        text: Of a result.
        error: The class of the error.
        status: The error's HTTP status.
        retry_after: The error's.
        error_code: Of a server's JSON-RPC error.
    """

    call: str
    code: str
    delivery: str | None
    text: str | None = None
    error: str | None = None
    status: int | None = None
    retry_after: float | None = None
    error_code: int | None = None


@attrs.define(eq=False, kw_only=True)
class Filed(Fact):
    """The pool filed the use of a call."""

    call: str
    outcome: str | None
    code: str | None
    delivery: str | None


# ------------------------------------------------------------------------------------------ the wire


@attrs.define(eq=False, kw_only=True)
class Linked(Fact):
    """A client opened a link: a connection, or a child.

    Attributes:
        link: Its number.
        server: The server that the place belongs to, and `place` which.
        kind: `http`, `ws` or `lines`.
        key: Whom it belongs to, where that is known when it opens (the environment of a child).
        plan: The plan's mark, likewise.
    """

    link: int
    server: str
    place: str
    kind: str
    key: str | None = None
    plan: str | None = None


@attrs.define(eq=False, kw_only=True)
class Unlinked(Fact):
    """A link ended for its client, by whom: `client`, `server`, `network`."""

    link: int
    by: str


@attrs.define(eq=False, kw_only=True)
class Answer(Fact):
    """A client took the last byte of an answer, or of as much of one as ever came.

    Attributes:
        status: Of HTTP; None on a stream.
        headers: Of HTTP, names in lower case.
        message: The JSON-RPC response in it, if one could be read.
        hint: The first bytes of a body without one.
        kind: `json`, `sse`, `text` or `empty`: what the body says it is.
        whole: Whether it ended in order.
        open: It is a whole message whose line has not ended: an answer only if nothing comes after it.
    """

    request: Request | None
    status: int | None = None
    headers: Mapping[str, str] = attrs.field(factory=dict)
    message: Mapping[str, Any] | None = None
    hint: bytes = b""
    kind: str = "json"
    whole: bool = True
    open: bool = False


@attrs.define(eq=False, kw_only=True)
class Request(Fact):
    """A message left a client: this is the instant of its first byte.

    Attributes:
        link: Where.
        server: The server of the link's place, and `place` which.
        verb: The HTTP method, or `LINE`, `FRAME` on a stream.
        whole: The number of the fact after which it had left whole, or -1; `whole_at` the time.
        method: The JSON-RPC method; None where it is a response, has no body, or is not whole.
        id: Its JSON-RPC id.
        call: The id of the call that it belongs to.
        params: Its parameters.
        key: Whom the marks that it carries name, and `plan` the plan's mark.
        session: The session id that it carries.
        headers: Of HTTP.
        hinted: Whose task wrote its first byte, where that is a call's.
        again: It is of the second call that a door makes where nothing ran, on a list of its own.
        answers: What came back, in order.
    """

    link: int
    server: str
    place: str
    verb: str
    whole: int = -1
    whole_at: float = -1.0
    method: str | None = None
    id: Any = None
    call: str | None = None
    params: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    key: str | None = None
    plan: str | None = None
    session: str | None = None
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    hinted: str | None = None
    again: bool = False
    answers: list[Answer] = attrs.field(factory=list, repr=False)

    @property
    def is_call(self) -> bool:
        """Whether it asks for what a call asks for (and is no cancel notice, list or handshake)."""
        return self.call is not None


@attrs.define(eq=False, kw_only=True)
class Heard(Fact):
    """A client took the last byte of a notification or of a request of the server's.

    `request` is the one in whose answer, or on whose stream, it came; None on a shared stream.
    """

    link: int
    place: str
    key: str | None
    method: str
    request: Request | None = None
    params: Mapping[str, Any] = attrs.field(factory=dict)
    id: Any = None


# ------------------------------------------------------------------------------------------ the servers


@attrs.define(eq=False, kw_only=True)
class Ran(Fact):
    """A tool starts to run; `args` are those that it got."""

    server: str
    place: str
    tool: str
    call: str | None
    key: str | None
    mark: str | None
    args: Mapping[str, Any] = attrs.field(factory=dict, repr=False)


@attrs.define(eq=False, kw_only=True)
class Stopped(Fact):
    """A tool has ended (`done`) or was cut short; `ran` is the number of the fact that it had begun."""

    ran: int
    done: bool = True


# ------------------------------------------------------------------------------------------ the end


@attrs.define(eq=False, kw_only=True)
class Rest(Fact):
    """What is there at some point of the end.

    Attributes:
        when: `quiet`: nothing runs any more; `dropped`: everything is dropped and idle time has passed;
        `closed`.
        what: Name to number (or text); nothing but zeros, and nothing unnamed, is wanted.
    """

    when: str
    what: Mapping[str, Any]


class Ground:
    """Files facts.

    Args:
        now: The simulated clock.
        say: Is given one line of text per fact, for the trace of the run; None says nothing.

    Attributes:
        facts: All of them, in order.
        muted: What comes about now is not filed.
    """

    def __init__(self, now: Callable[[], float], say: Callable[[str], None] | None = None) -> None:
        self.facts: list[Fact] = []
        self.muted = False
        self.now = now
        self._say = say

    def file(self, fact: T) -> T:
        """File a fact: give it its number and time."""
        if self.muted:
            return fact
        fact.seq = len(self.facts)
        fact.at = self.now()
        self.facts.append(fact)
        if self._say is not None:
            self._say(line(fact))
        return fact


@functools.cache
def _worded(kind: type[Fact]) -> tuple[tuple[str, Any], ...]:
    """The members of a fact that stand in its line, and what they are by default."""
    silent = {"seq", "at", "answers", "params", "headers", "told", "words"}
    fields = [field for field in attrs.fields(kind) if field.repr and field.name not in silent]
    return tuple((field.name, field.default) for field in fields)


def line(fact: Fact) -> str:
    """One fact as a line of text."""
    words = []
    for name, default in _worded(type(fact)):
        value = getattr(fact, name)
        if value is None or value == default:
            continue
        if isinstance(value, Request):
            value = f"#{value.seq}"
        elif isinstance(value, frozenset):
            value = ",".join(sorted(value))
        words.append(f"{name}={value}")
    text = f"{fact.at:10.4f} {type(fact).__name__} {' '.join(words)}"[:400]
    return text.encode("utf-8", "backslashreplace").decode()  # servers send lone surrogates


def of(facts: list[Fact], kind: type[T]) -> Iterator[T]:
    """The facts of one kind, in order."""
    return (fact for fact in facts if isinstance(fact, kind))

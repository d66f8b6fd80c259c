"""What a simulated world is made of: people, servers, how one gets to them, limits, the weather.

A world is what is true when a run begins; the steps of a story (`steps.py`) change it. It is data only: the
driver builds servers, plans and providers from it. Names are labels that steps refer to.

Rules:

* Everything that an app decides about an identity is kept by *projection*, as the pool asks for it. Two
  people whose projections at a server are equal have the same plan, share and credential there; where the
  world says two different things, the person who stands first counts.
* A server has one or more *places*: fake servers of the same kind, tools and manners, each at an address of
  its own. A plan leads to one of them.
* Seconds are floats on the simulated clock, sizes bytes.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 -- read at run time, when a file is read
from typing import Any, Literal, TypeAlias

import attrs

from afpool import Identity
from tests.simulation.plain import from_plain, to_plain
from tests.simulation.world_door import DoorSpec  # noqa: TC001 -- read at run time, when a file is read
from tests.simulation.world_service import ServiceSpec  # noqa: TC001 -- likewise

Kind: TypeAlias = Literal[
    "http",  # Streamable HTTP, answers as JSON
    "http-sse-answers",  # Streamable HTTP, answers as event streams
    "http-chunked",  # Streamable HTTP, JSON without a content length
    "sse",  # HTTP+SSE of 2024-11-05; handshake only
    "websocket",
    "stdio",  # a child in memory
    "memory",  # a `MemoryTransport` over an in-memory wire
]
Era: TypeAlias = Literal["handshake", "stateless", "both"]
Version: TypeAlias = Literal["", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
Field: TypeAlias = Literal["tenant", "principal", "conversation_id"]
ToolKind: TypeAlias = Literal[
    "echo",  # answers its arguments and who asked, at once
    "sleep",  # waits `seconds` (of the arguments) first
    "progress",  # `steps` progress notifications, one each `seconds`
    "chatty",  # log messages and progress, then the answer
    "big",  # a text of `size` bytes
    "fail",  # a result with `isError`
    "error",  # a JSON-RPC error of its own
    "ask",  # handshake: asks its client `method` in the middle; stateless: one round of `input_required`
    "rounds",  # stateless: `rounds` rounds of `input_required`; handshake: as echo
    "address",  # answers -32042, elicitation of an address
    "structured",  # has an output schema; `{"bad": true}` answers what does not fit it, `{"none": true}` none
    "strange",  # its listed definition cannot be read: it is quarantined
    "wordy",  # its definition is larger than what is read in one go
    "badschema",  # as structured, with an output schema that is none
    "vault",  # declares what hosts fill, want and hide, and says all that it got, as `how` has it
]


Signing: TypeAlias = Literal[
    "none",
    "at-once",  # a signer whose answer is no awaitable
    "waits",
    "signs-again",  # is shown a 401, once
    "raises",
    "rubbish",  # gives what is no mapping
    "bad-header",  # gives a header that is not its own to say
    "httpx-auth",  # `HttpxAuth` of a flow with one request
    "httpx-challenged",  # of a flow that answers a 401 by a second request
    "httpx-meddles",  # of a flow that wants to send another request
]


Listening: TypeAlias = Literal["hears", "deaf", "raises", "traces"]
"""What an app does with what it is told: of logs, changes, uses, events. Who traces hears, too."""


@attrs.frozen(kw_only=True)
class Person:
    """An identity. `name` is the label; the identity's fields may be absent (`""`)."""

    name: str
    tenant: str = ""
    principal: str = ""
    conversation: str = ""

    @property
    def identity(self) -> Identity:
        """As the pool gets it."""
        return Identity(tenant=self.tenant, principal=self.principal, conversation_id=self.conversation)


@attrs.frozen(kw_only=True)
class ToolSpec:
    """A tool as it is listed when the world begins. `schema` is JSON text, of a vault's input schema."""

    name: str
    kind: ToolKind = "echo"
    schema: str = ""


@attrs.frozen(kw_only=True)
class Manners:
    """How a server's places behave without any fault.

    Attributes:
        sessions: Whether the handshake era has session ids (Streamable HTTP).
        dialect: Whose way of refusing is imitated.
        get_stream: Whether the handshake era's GET stream exists.
        list_changed: Whether it says that it announces changes.
        announces_at_once: Announces a change as soon as a session is initialized.
        ttl: Seconds of `ttlMs` (stateless); None leaves it out.
        page_size: Tools per page; None is one page.
        cursors: See `Advertise.cursors`.
        keep_alive: Requests per connection; None is no limit.
        wants_credential: Answers 401 to a request without the credential that is current for its bearer.
        strict: Checks content type and accepted types.
        knows_resume: Answers may be asked for again with `Last-Event-ID`.
        resources: URIs that can be listed, read and subscribed to.
        prompts: Names of prompts.
        completes: Whether it completes arguments.
        logs: Whether the log level can be set.
        slow_start: Seconds that each request of an opening takes.
        posts: Where the stream of HTTP+SSE says that messages go: as usual, to another origin, nowhere.
        accepts_late: HTTP+SSE: a POST is answered only after its answer went out on the stream.
    """

    sessions: bool = True
    dialect: Literal["python", "typescript"] = "python"
    get_stream: bool = True
    list_changed: bool = True
    announces_at_once: bool = False
    ttl: float | None = None
    page_size: int | None = None
    cursors: Literal["strict", "lenient", "loop", "empty-string"] = "strict"
    keep_alive: int | None = None
    wants_credential: bool = True
    strict: bool = True
    knows_resume: bool = False
    resources: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    completes: bool = False
    logs: bool = False
    slow_start: float = 0.0
    posts: Literal["usual", "foreign", "gibberish"] = "usual"
    accepts_late: bool = False


@attrs.frozen(kw_only=True)
class Way:
    """How the plans of a server get there, and what they say beside the place.

    Attributes:
        over: `direct`; `insecure`, which verifies nothing; `proxy` by CONNECT; `proxy-with-credential`;
            `httpx`, an `httpx` transport below; `unix`, a Unix socket. Only for the HTTP kinds.
        streaming: `HttpTransport.streaming`.
        credential: `none`; `machine`; `user`; `anonymous-first`: the provider lets the first request go bare.
        form: The form of the credential.
        answers: What the host answers when a server asks: of `roots`, `sample`, `elicit`, `url`.
        answering: How: at once; after a second; by raising; with what does not fit; never.
        scopes: Scopes of the credential requirement.
        version: The protocol version that plans pin; none where it is empty.
        own_key: Plans authenticate by a header of their own, a secret like any other.
    """

    over: Literal["direct", "insecure", "proxy", "proxy-with-credential", "httpx", "unix"] = "direct"
    streaming: Literal["auto", "streamable", "sse"] = "auto"
    credential: Literal["none", "machine", "user", "anonymous-first"] = "none"
    form: Literal["bearer", "basic", "api-key", "headers"] = "bearer"
    answers: tuple[Literal["roots", "sample", "elicit", "url"], ...] = ()
    answering: Literal["at-once", "slowly", "raises", "misfit", "never", "declines"] = "at-once"
    scopes: tuple[str, ...] = ()
    version: Version = ""
    own_key: bool = False


@attrs.frozen(kw_only=True)
class ServerSpec:
    """One server of the pool.

    Attributes:
        name: As the pool knows it.
        kind: The transport.
        era: What its places speak; `sse` and sessions of other kinds know what they know.
        places: How many places there are.
        keyed_on: See `Server.keyed_on`.
        tools: What is listed first.
        manners: How the places behave.
        way: How plans get there.
        on_list_change: See `Server.on_list_change`.
        pinned: Names of tools whose first definition is pinned.
        compare_without: See `Server.compare_without`.
        repeat: See `Server.repeat`; the places then recognise call ids.
        host_repeats: What `on_in_doubt` answers: repeat, or raise.
        max_repeats: See `Server.max_repeats`.
        validate_output: See `Server.validate_output`.
        leads: Person's name to the number of the place that the plan leads to; others go to place 0.
        share: Person's name to the authorization name that `share` gives; others get None.
        fixed_plan: It has a plan of its own, so that the pool's plan function is not asked; only where it is
            keyed on nothing.
    """

    name: str
    kind: Kind = "http"
    era: Era = "handshake"
    places: int = 1
    keyed_on: tuple[Field, ...] = ("tenant", "principal", "conversation_id")
    tools: tuple[ToolSpec, ...] = (ToolSpec(name="echo"),)
    manners: Manners = Manners()
    way: Way = Way()
    on_list_change: Literal["refuse", "recheck"] = "refuse"
    pinned: tuple[str, ...] = ()
    compare_without: tuple[str, ...] = ()
    repeat: Literal["never", "recognised"] = "never"
    host_repeats: bool = True
    max_repeats: int = 1
    validate_output: bool = False
    leads: Mapping[str, int] = attrs.field(factory=dict)
    share: Mapping[str, str] = attrs.field(factory=dict)
    fixed_plan: bool = False

    @property
    def over_http(self) -> bool:
        """Whether requests are HTTP exchanges (Streamable HTTP or HTTP+SSE)."""
        return self.kind in {"http", "http-sse-answers", "http-chunked", "sse"}

    @property
    def shared_stream(self) -> bool:
        """Whether all requests of a client share one stream."""
        return self.kind in {"websocket", "stdio", "memory"}


@attrs.frozen(kw_only=True)
class Weather:
    """The network between pool and places.

    Attributes:
        latency: Seconds that bytes are on their way, at least.
        jitter: Seconds more, at most, for each piece; pieces stay in order.
        piece: Bytes become visible in pieces of at most this many; 0 is as they were written.
        short_writes: Share of writes of which only a part is taken.
        buffer: Bytes that may be on their way in one direction; then a write takes nothing.
        connect: Seconds that connecting takes, at most.
        resolve: Seconds that an address look-up takes, at most.
    """

    latency: float = 0.001
    jitter: float = 0.0
    piece: int = 0
    short_writes: float = 0.0
    buffer: int = 65536
    connect: float = 0.001
    resolve: float = 0.0


@attrs.frozen(kw_only=True)
class World:
    """A world at its beginning.

    Attributes:
        people: Who there is.
        servers: What the pool is opened with.
        limits: Fields of `Limits`, by name; others are the defaults of `open_pool`.
        signer: What signs each HTTP request. See `Signing`.
        weather: The network.
        plan_waits: The plan function is asynchronous.
        shares: There is a share function at all.
        app: How it takes what it is told.
        door: The runtime around the pool; None where there is the pool alone.
        service: What stands beside it, with clients of its own.
    """

    people: tuple[Person, ...]
    servers: tuple[ServerSpec, ...]
    limits: Mapping[str, Any] = attrs.field(factory=dict)
    signer: Signing = "none"
    weather: Weather = Weather()
    plan_waits: bool = True
    shares: bool = True
    app: Listening = "hears"
    door: DoorSpec | None = None
    service: ServiceSpec | None = None

    def person(self, name: str) -> Person:
        """Who has that label."""
        return next(person for person in self.people if person.name == name)

    def server(self, name: str) -> ServerSpec:
        """The server of that name."""
        return next(server for server in self.servers if server.name == name)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        plain: dict[str, Any] = to_plain(self)
        return plain

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> World:
        """The inverse of `to_json`. Raises ValueError."""
        return from_plain(cls, plain)

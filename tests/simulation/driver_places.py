"""The servers of a simulated world: fake servers behind the network, whose tools, rules and credentials
steps change.

A place is one fake server. Whom an arrival names is read from the marks that the plan put there: headers, or
the environment of a child.
"""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from afpool import MemoryTransport, StdioTransport
from afpool._base.definition import build_definition
from afpool.testing import (
    Advertise,
    Delay,
    Drop,
    FakePrompt,
    FakeResource,
    FakeServer,
    FakeTool,
    Hang,
    JsonRpcError,
    RawBytes,
    Rule,
    Status,
)
from afpool.testing._actions import Wait
from tests.simulation.door_vault import schema_as
from tests.simulation.driver_secrets import carried
from tests.simulation.driver_tools import Runs, listed_tool
from tests.simulation.driver_ways import Door
from tests.simulation.faulty_rules import Spot, rule_of
from tests.simulation.oracle_law import REFUSING_CODES, REFUSING_STATUS
from tests.simulation.oracle_wire import CALL_ID, PLAN, WHO
from tests.simulation.world import ToolSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from afpool.testing import Arrival
    from tests.simulation import steps as s
    from tests.simulation.children import Program, Started
    from tests.simulation.ground import Ground
    from tests.simulation.kernel import Sim
    from tests.simulation.network import Link, Listening
    from tests.simulation.world import ServerSpec

LIST_CHANGED: Final = "notifications/tools/list_changed"


@attrs.define(eq=False)
class Listing:
    """A list of tools as it stands now.

    Attributes:
        specs: Tools in their order.
        revisions: How often each definition has changed.
        strange: Tools whose definition nobody can read.
        scope: Is in every definition's `_meta`, once it is more than 0.
    """

    specs: list[ToolSpec]
    revisions: dict[str, int] = attrs.field(factory=dict)
    strange: set[str] = attrs.field(factory=set)
    scope: int = 0

    def copy(self) -> Listing:
        """Another one that is equal."""
        return Listing(list(self.specs), dict(self.revisions), set(self.strange), self.scope)


class Place:
    """One place of a server.

    Args:
        sim: The world's kernel.
        ground: Where facts go.
        spec: The server.
        number: Which place.

    Attributes:
        name: `files-0`: the place's name, its host and the mark of plans that lead to it.
        accepted: Credentials that it takes; None takes everything.
        fake: The server; of children the one that they all are.
        dies_at_once: Children exit before they have read anything.
    """

    def __init__(self, sim: Sim, ground: Ground, spec: ServerSpec, number: int) -> None:
        self.spec = spec
        self.number = number
        self.name = f"{spec.name}-{number}"
        self.accepted: set[str] | None = None
        self.runs = Runs(ground, spec.name, self.name, self.whose)
        self.listing = Listing(list(spec.tools))
        self.special: dict[str, Listing] = {}
        self._made: dict[tuple[ToolSpec, int, int, bool], FakeTool] = {}
        self._sim = sim
        self._revision = itertools.count(1)
        self._ids = itertools.count(1)
        self._last = len(list(self._last_rules()))
        self._listening: Listening | None = None
        self._program: Program | None = None
        self.dies_at_once = False
        self._away = 0
        self.fake = self._server()
        self.door = Door(sim, self)
        self.furnish(self.fake)

    # ------------------------------------------------------------------ what it is

    @property
    def url(self) -> str:
        """Where it is."""
        scheme = "ws" if self.spec.kind == "websocket" else "http"
        return f"{scheme}://{self.name}.sim/mcp"

    @property
    def host(self) -> str:
        """Its name in the network."""
        return f"{self.name}.sim"

    @staticmethod
    def whose(arrival: Arrival) -> str | None:
        """The key that an arrival names."""
        return arrival.headers.get(WHO)

    def _server(self) -> FakeServer:
        spec, manners = self.spec, self.spec.manners
        common: dict[str, Any] = {
            "era": spec.era,
            "tools": [],
            "host": self.host,
            "port": 80,
            "dialect": manners.dialect,
            "advertise": self._advertise(),
            "memory": True,
        }
        if spec.kind == "websocket":
            return FakeServer.ws(**common)
        if spec.kind in {"stdio", "memory"}:
            script = {"dialect": manners.dialect}
            server = FakeServer.stdio(script, era=spec.era, tools=[], name=self.host)
            server.engine.advertise = server.advertise = common["advertise"]
            return server
        return FakeServer.http(
            answer={"http-sse-answers": "sse", "http-chunked": "json-chunked"}.get(spec.kind, "json"),
            sessions=manners.sessions,
            strict=manners.strict,
            streaming="sse" if spec.kind == "sse" else "streamable",
            ids=lambda: f"session-{self.name}-{next(self._ids)}",
            **common,
        )

    def _advertise(self) -> Advertise:
        manners = self.spec.manners
        return Advertise(
            list_changed=manners.list_changed,
            list_changed_after_initialized=manners.announces_at_once,
            page_size=manners.page_size,
            cursors=manners.cursors,
            ttl_ms=None if manners.ttl is None else int(manners.ttl * 1000),
        )

    def furnish(self, server: FakeServer) -> None:
        """Give a fake server tools, offers and rules."""
        manners = self.spec.manners
        server.engine.tools_for = self._tools_for
        if self.spec.repeat == "recognised":
            server.engine.repeats.key = CALL_ID
        offers = server.engine.offers
        offers.resources += [FakeResource(uri, f"text of {uri}") for uri in manners.resources]
        if manners.resources:
            offers.templates.append({"uriTemplate": "doc://{name}", "name": "documents"})
        offers.prompts += [FakePrompt(name, "Say {what}", ["what"]) for name in manners.prompts]
        if manners.completes:
            offers.complete = lambda params: [f"value-{number}" for number in range(3)]
        offers.logging = manners.logs
        server.get_stream = manners.get_stream
        server.keep_alive_max_requests = manners.keep_alive
        if server.sse is not None:
            server.sse.accept_late = manners.accepts_late
            if manners.posts != "usual":
                server.sse.endpoint = {
                    "foreign": "http://elsewhere.sim/post?s={}",
                    "gibberish": "http://[{}",
                }[manners.posts]
        for rule in [*self._own_rules(), *self._last_rules()]:
            server.engine.rules.add(rule)

    def _own_rules(self) -> Iterator[Rule]:
        if self.spec.kind not in {"stdio", "memory"} and self.spec.manners.wants_credential:
            refusal = Status(401, headers={"www-authenticate": 'Bearer realm="sim"'})
            method = "GET" if self.spec.kind == "websocket" else "*"
            yield Rule(method, refusal, when=self._unknown_bearer)
        if self.spec.manners.slow_start:
            for method in ("initialize", "server/discover"):
                yield Rule(method, Delay(self.spec.manners.slow_start))

    def _last_rules(self) -> Iterator[Rule]:
        """What decides where no fault does: tools that answer errors of their own."""
        for tool in self.spec.tools:
            if tool.kind == "error":
                error = JsonRpcError(-32050, "it went wrong", after_execution=True)
                yield Rule("tools/call", error, tool.name)
            elif tool.kind == "address":
                visit = {
                    "mode": "url",
                    "message": "Visit",
                    "url": "https://consent.test/x",
                    "elicitationId": "e-1",
                }
                data = {"elicitations": [visit]}
                yield Rule("tools/call", JsonRpcError(-32042, data=data, after_execution=True), tool.name)

    def _unknown_bearer(self, arrival: Arrival) -> bool:
        return self.accepted is not None and carried(self.spec.way.form, arrival.headers) not in self.accepted

    # ------------------------------------------------------------------ tools

    def _tools_for(self, arrival: Arrival) -> list[FakeTool]:
        listing = self.special.get(self.whose(arrival) or "", self.listing)
        return [self._tool(spec, listing) for spec in listing.specs]

    def _tool(self, spec: ToolSpec, listing: Listing) -> FakeTool:
        kind = (spec, listing.revisions.get(spec.name, 0), listing.scope, spec.name in listing.strange)
        tool = self._made.get(kind)
        if tool is None:
            tool = self._made[kind] = listed_tool(
                spec, self.runs, revision=kind[1], scope=kind[2], strange=kind[3]
            )
        return tool

    def change_tools(self, step: s.ChangeTools, key: str | None) -> None:
        """The list becomes another one; of one key's only where `key` is given."""
        listing = self.listing
        if key is not None:
            listing = self.special.setdefault(key, self.listing.copy())
        number = next(self._revision)
        listings = [listing] if key is not None else [self.listing, *self.special.values()]
        for each in listings:
            self._change(each, step, number)

    def _change(self, listing: Listing, step: s.ChangeTools, number: int) -> None:
        match step.how:
            case "revise":
                listing.revisions[step.tool] = number
            case "restore":
                listing.specs = list(self.spec.tools)
                listing.revisions.clear()
                listing.strange.clear()
                listing.scope = 0
            case "remove":
                listing.specs = [spec for spec in listing.specs if spec.name != step.tool]
            case "add":
                listing.specs.append(ToolSpec(name=f"extra-{number}"))
            case "reorder":
                listing.specs = listing.specs[1:] + listing.specs[:1]
            case "request-scoped":
                listing.scope = number
            case "strange":
                listing.strange.add(step.tool)

    def change_schema(self, step: s.ChangeSchema) -> int:
        """Its filled tool is listed with another schema; whether there is one."""
        for listing in (self.listing, *self.special.values()):
            listing.specs = [
                attrs.evolve(spec, schema=schema_as(step.how, self._first(spec).schema, step.seed))
                if spec.kind == "vault"
                else spec
                for spec in listing.specs
            ]
        return sum(spec.kind == "vault" for spec in self.listing.specs)

    def _first(self, spec: ToolSpec) -> ToolSpec:
        return next(each for each in self.spec.tools if each.name == spec.name)

    def pins(self, names: tuple[str, ...], without: tuple[str, ...]) -> dict[str, str]:
        """The digests of the definitions as they are in the beginning."""
        pins = {}
        for spec in self.spec.tools:
            if spec.name in names and spec.kind != "strange":
                raw = json.dumps(listed_tool(spec, self.runs).listed).encode()
                pins[spec.name] = build_definition(raw, without).digest
        return pins

    @property
    def engines(self) -> list[Any]:
        """What serves now: one engine, or one per child."""
        return [self.fake.engine]

    def announce(self, method: str = LIST_CHANGED, params: Mapping[str, Any] | None = None) -> int:
        """Say something on every open stream; on how many."""
        return sum(engine.streams.broadcast(method, params) for engine in self.engines)

    # ------------------------------------------------------------------ what befalls it

    async def start(self) -> None:
        """Begin to serve."""
        network = self._sim.network
        await self._sim.nursery.start(self.fake.run)
        if self.spec.kind == "stdio":
            self._program = network.children.program(self.host, self.fake)
        elif self.spec.kind != "memory":
            self._listening = await self.door.open()

    def opened(self, link: Link) -> None:
        """A client has opened a link."""
        if self.dies_at_once:
            mine = [each.child for each in self._children(None) if each.link is link]
            self._sim.network.at(trio.current_time(), lambda: [child.exit(1) for child in mine])

    async def restart(self, down: float) -> None:
        """It dies, and comes back after a while."""
        self.fake.refuse_connections()
        await self.fake.restart()
        await trio.sleep(down)
        await self.fake.accept_connections()

    async def refuse(self, how: str, seconds: float) -> None:
        """Whoever connects is refused, or worse, for so many seconds."""
        if self._listening is None:
            return
        listening = self._listening
        self._away += 1
        if how == "unresolvable" and self.door.proxy is not None:
            self.door.proxy.refuse = 502
        elif how == "unresolvable":
            listening.resolvable = False
        else:
            listening.how, listening.seconds = how, seconds
        await trio.sleep(seconds)
        self._away -= 1
        if not self._away:
            listening.how, listening.resolvable = "accept", True
            if self.door.proxy is not None:
                self.door.proxy.refuse = None

    def heal(self) -> None:
        """Let everything be as in the beginning."""
        self.listing, self.special = Listing(list(self.spec.tools)), {}
        self.dies_at_once = False
        self.fake.engine.rules.rules[:] = [*self._own_rules(), *self._last_rules()]
        script, program = self.fake.child, self._program
        if script is not None and program is not None:
            script.ignore_eof = script.ignore_sigterm = False
            script.stderr_flood, script.garbage, program.fails = 0, [], ""

    def _children(self, key: str | None) -> list[Started]:
        running = self._sim.network.children.running(self.host)
        return [each for each in running if key in {None, (each.child.config.env or {}).get(WHO)}]

    def kill_children(self, key: str | None, code: int, *, killed: bool) -> int:
        """End the children of a key, or all; says how many."""
        children = self._children(key)
        for each in children:
            each.child.exit(-9 if killed else code)
        return len(children)

    def child_manners(self, step: s.ChildManners) -> bool:
        """How the next children behave; whether there are such."""
        script, program = self.fake.child, self._program
        if script is None or program is None:
            return False
        script.ignore_eof, script.ignore_sigterm = step.ignores_eof, step.ignores_term
        script.stderr_flood = 200 * step.noise
        script.garbage = [f"garbage {number}" for number in range(step.garbage)]
        program.fails = "a bad day" if step.start_fails else ""
        self.dies_at_once = step.dies_at_once
        return True

    @property
    def children_left(self) -> int:
        """How many children there are that the pool has not reaped, or whose pipes it holds."""
        children = self._sim.network.children.unreaped()
        return sum(each.child.config.command[0] == self.host for each in children)

    def child_transport(self, marks: Mapping[str, str], *, nowhere: bool) -> Any:
        """How a plan gets to a child, or to a server in memory."""
        if self.spec.kind == "stdio":
            return StdioTransport.of("nowhere.sim" if nowhere else self.host, env=marks)

        async def connect() -> Any:
            await trio.lowlevel.checkpoint()
            if nowhere:
                raise OSError("there is no such server")
            return self._sim.network.children.attach(self.fake, self.host, dict(marks))

        return MemoryTransport(name=marks[PLAN], connect=connect)

    def way_there(self) -> dict[str, Any]:
        """Proxy, socket path or httpx transport of the plans that lead here."""
        return self.door.members

    # ------------------------------------------------------------------ scripted faults

    def script(
        self, step: s.Scripted, elsewhere: str, whose: Callable[[Arrival, str], bool], cap: int
    ) -> bool:
        """Have a fault wait for the next arrivals; whether it means anything here."""
        spot = Spot(
            spec=self.spec,
            whose=whose,
            url=self.url,
            elsewhere=elsewhere,
            unix_now=self._sim.seams.unix_now,
            max_message=cap,
        )
        rule = rule_of(honest(step), spot)
        if rule is None:
            return False
        if self.spec.kind == "websocket" and not isinstance(
            rule.action, Wait | Status | Drop | Hang | RawBytes
        ):
            # the upgrade is no message, and cannot be answered by one
            given = rule.when
            rule.when = lambda arrival: arrival.http_method != "GET" and (given is None or given(arrival))
        engines = self.engines
        for engine in engines:
            rules = engine.rules.rules
            rules.insert(len(rules) - self._last, rule)
        return bool(engines)


def honest(step: s.Scripted) -> s.Scripted:
    """A server that says that it ran nothing has run nothing: one that lies proves nothing of its client."""
    status, code = getattr(step, "status", None), getattr(step, "code", None)
    refuses = status in REFUSING_STATUS or status in {307, 308, 400, 403, 404} or code in REFUSING_CODES
    return attrs.evolve(step, executed=False) if step.executed and refuses else step

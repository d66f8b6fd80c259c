"""A runtime with servers of every transport and credentials of every kind, all of whose secrets are canaries.

Each server has a tool `give`, which gives back a secret that reached it, in the form and the place that the
call names: the credential of its connection, or the one that the host filled in. `report` does so in its
progress, `say` in a log message.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import attrs
import httpx
import trio

from afpool import (
    Anonymous,
    CredentialFailed,
    CredentialRequest,
    CredentialRequirement,
    HttpTransport,
    Identity,
    Issued,
    NeedsAuthorization,
    Plan,
    Server,
    ServerRules,
    StdioTransport,
    ToolResult,
    Use,
    WebSocketTransport,
    api_key,
    basic,
    bearer,
    header_map,
    open_runtime,
)
from afpool._base.secret import Credential, Secret
from afpool.credentials import (
    CachedCredentials,
    EnvironmentCredentials,
    FileCredentials,
    OAuth,
    OAuthClient,
    OAuthSettings,
    RetryingCredentials,
)
from afpool.record import event_as_json, unix_offset, use_as_json
from afpool.testing import FakeAuthorizationServer, FakeServer, FakeTool, Notice, big_tool, echo_tool
from afpool.testing import Progress as Reported
from afpool.tools import Hook, RedactionPolicy, ResultLimits, from_credential, from_identity
from tests.canary.collecting import Collected, EveryRecord
from tests.canary.forms import CANARIES, CONNECTION, PLAIN, canary
from tests.tools.test_host_filled_nowhere import BLOCKS, TEXTS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from afpool.runtime import Runtime

ALICE = Identity(
    tenant=CANARIES["tenant"], principal=CANARIES["principal"], conversation_id=CANARIES["conversation"]
)
ISSUER = "https://login.example"
# Whom a use is about, in clear, and a definition as its server wrote it: shown by digest only.
UNSHOWN = frozenset({"key", "who", "span", "became"})
BACK = "http://127.0.0.1:9/callback"
TEXT = {"type": "string"}
PATIENCE = 240.0


class Ticket(Credential):
    """A kind of the host's own."""

    __slots__ = ("_ticket",)

    kind = "ticket"

    def __init__(self, ticket: str) -> None:
        self._ticket = Secret(ticket)

    def to_headers(self) -> list[tuple[str, str]]:
        return [("x-ticket", self._ticket.reveal())]

    def secrets(self) -> tuple[str, ...]:
        return (self._ticket.reveal(),)


def credential(kind: str, use: str) -> Credential:
    """The credential of a kind that authenticates a connection, or fills an argument."""
    secret = canary(f"{use} {kind}")
    if kind == "bearer":
        return bearer(secret)
    if kind == "api_key":
        return api_key(secret, "x-key")
    if kind == "basic":
        return basic("user", secret)
    if kind == "headers":
        return header_map({"x-one": secret, "authorization": f"Own {canary(f'{use} headers, the second')}"})
    return Ticket(secret)


READ: Mapping[str, Callable[[Any], str] | None] = {
    "bearer": None,
    "api_key": None,
    "basic": lambda held: held.password,
    "headers": lambda held: held.headers["x-one"],
    "ticket": lambda held: dict(held.to_headers())["x-ticket"],
}
SCHEMA = {
    "type": "object",
    "properties": {
        "form": TEXT, "block": TEXT, "what": TEXT, "token": TEXT, "tenant": TEXT, "card": {}, "my_secret": {},
        "person": {"type": "object"}, "order": {}, "rows": {},
    },
    "required": ["form", "token"],
}  # fmt: skip
RULES = {
    "redact": RedactionPolicy(keys=["card"], patterns=["secret$"], fields={"person": ["ssn"]}),
    "deep": RedactionPolicy(keys=["iban"], deep=True),
}
HIDDEN_ARGS = {
    "card": CANARIES["redacted by key"],
    "my_secret": {"a": [CANARIES["redacted by pattern"]]},
    "person": {"name": "Ada", "ssn": CANARIES["redacted by field"]},
}
DEEP_ARGS = {"order": {"lines": [{"n": 1, "iban": CANARIES["redacted deep"]}]}}


def given_back(arguments: Mapping[str, Any], arrival: Any) -> str:
    """The secret that a call names, as the server got it: `token`, or what authenticates its connection."""
    if arguments.get("what", "token") == "token":
        return str(arguments["token"])
    headers = arrival.headers
    for name in ("x-key", "x-ticket", "x-one"):
        if name in headers:
            return str(headers[name])
    scheme, _, rest = headers.get("authorization", "none").partition(" ")
    return canary("connection basic") if scheme == "Basic" else str(rest)


def give(arguments: Mapping[str, Any], arrival: Any) -> Any:
    text = TEXTS[arguments["form"]](given_back(arguments, arrival))
    return BLOCKS[arguments["block"]](text) if arguments.get("block") in BLOCKS else text


async def report(arguments: Mapping[str, Any], arrival: Any) -> Any:
    yield Reported(1, message=TEXTS[arguments["form"]](given_back(arguments, arrival)))
    yield "reported"


async def say(arguments: Mapping[str, Any], arrival: Any) -> Any:
    text = given_back(arguments, arrival)
    yield Notice("notifications/message", {"level": "error", "logger": text, "data": {"text": text}})
    yield "said"


def fail(arguments: Mapping[str, Any], arrival: Any) -> str:
    raise LookupError(TEXTS[arguments["form"]](given_back(arguments, arrival)))


def large(arguments: Mapping[str, Any], arrival: Any) -> str:
    return "x" * 3_000 + TEXTS[arguments["form"]](given_back(arguments, arrival)) + "y" * 3_000


def served() -> list[FakeTool]:
    """The tools of a server."""
    handlers = {"give": give, "report": report, "say": say, "fail": fail, "large": large}
    tools = [FakeTool(name, handler, input_schema=SCHEMA) for name, handler in handlers.items()]
    return [*tools, echo_tool("repeat", input_schema=SCHEMA), big_tool()]


class Vault:
    """The provider of the run: each service has a canary of its own."""

    def __init__(self, folder: Path, oauth: OAuth) -> None:
        (folder / "token").write_text(CANARIES["fill from a file"])
        os.environ["AFPOOL_TEST_CANARY"] = CANARIES["fill from the environment"]
        self._oauth = oauth
        self._elsewhere = {
            "environment": EnvironmentCredentials({"environment": "AFPOOL_TEST_CANARY"}),
            "file": FileCredentials({"file": folder / "token"}),
        }
        self.asked: list[CredentialRequest] = []
        self.fails = False

    async def get(self, request: CredentialRequest) -> Issued | NeedsAuthorization | Anonymous:
        self.asked.append(request)
        await trio.lowlevel.checkpoint()
        service = request.service
        if service == "oauth":
            return await self._oauth.get(request)
        if service in self._elsewhere:
            return await self._elsewhere[service].get(request)
        if service == "consent":
            return NeedsAuthorization(
                f"https://login.example/?state={CANARIES['consent address']}", "session-1"
            )
        if service == "broken" or self.fails:
            held = CANARIES["provider's words"]
            raise RuntimeError(f"the vault answered {held}", {"token": held})
        if service == "refusing":
            raise CredentialFailed("not with " + CANARIES["provider's own refusal"])
        if service == "asked":
            return Issued(bearer(CANARIES["asked for by a tool"]))
        use, _, kind = service.partition(" ")
        return Issued(credential(kind, use))


class Signer:
    """Signs with a canary, or fails with one."""

    fails = False

    def sign(self, request: Any) -> dict[str, str]:
        if self.fails:
            words = CANARIES["signer's words"]
            raise RuntimeError(f"signing with {words}")
        return {"x-signature": CANARIES["signature"]}


@attrs.define(eq=False)
class Town:
    """A runtime, its servers, and everything that it let out."""

    runtime: Runtime
    servers: dict[str, FakeServer]
    login: FakeAuthorizationServer
    oauth: OAuth
    vault: Vault
    signer: Signer
    collected: Collected
    needs: list[tuple[str, NeedsAuthorization]]
    denies: list[str] = attrs.field(factory=list)
    codes: dict[str, str] = attrs.field(factory=dict)
    uncovered: set[tuple[str, str]] = attrs.field(factory=set)
    more: dict[str, str] = attrs.field(factory=dict)

    async def call(self, label: str, name: str, args: Any = None, **options: Any) -> ToolResult:
        """Make a call through the door and look at all that comes of it."""
        told: list[Any] = []
        options.setdefault("deadline", trio.current_time() + 20)
        result = await self.runtime.dispatch(
            ALICE, name, args, call_id=label, on_progress=told.append, **options
        )
        self.see(label, result)
        self.collected.thing(f"progress of {label}", told)
        self.codes[label] = result.code
        return result

    def see(self, label: str, result: ToolResult) -> None:
        """Look at a result, and at what it raises."""
        self.collected.text(f"result of {label}", result.raw.decode())
        self.collected.text(f"result of {label}", result.text)
        for resource in result.resources if result.has_form else ():
            self.collected.text(f"result of {label}", str(resource.text))
            self.collected.text(f"result of {label}", (resource.blob or b"").decode("latin-1"))
        self.collected.thing(f"object of {label}", repr(result))
        try:
            result.raise_for_error()
        except Exception as error:
            self.collected.raised(f"error of {label}", error)

    async def attempt(self, label: str, doing: Callable[[], Any]) -> BaseException | None:
        """Do what raises to whoever called it, and look at what it raises."""
        try:
            got = await doing()
        except Exception as error:
            self.collected.raised(f"error of {label}", error)
            return error
        self.collected.thing(f"object of {label}", got)
        return None


TRANSPORTS = ("http", "http", "ws", "http", "http")


def plan_for(kind: str, server: FakeServer) -> Plan:
    needs = CredentialRequirement(f"connection {kind}")
    if kind == "basic":
        return Plan(transport=WebSocketTransport(url=server.url), credential=needs)
    if kind == "ticket":
        transport = HttpTransport(url=server.url, httpx_transport=httpx.AsyncHTTPTransport)
        return Plan(transport=transport, credential=needs)
    if kind == "headers":
        # what stands in an address may open something, too
        url = f"{server.url}?key={quote(CANARIES['query of a plan'], safe='')}"
        return Plan(transport=HttpTransport(url=url), credential=needs)
    static = {"x-static": CANARIES["header of a plan"]} if kind == "bearer" else {}
    return Plan(transport=HttpTransport(url=server.url, headers=static), credential=needs)


def no_plan(server: str, identity: Identity) -> Plan:
    headers = {"x-static": CANARIES["header of a plan"]}
    raise LookupError(f"no plan of {len(headers)} headers for {server}")


def rules_for(kind: str) -> ServerRules:
    """A server's token is filled from a credential of the next kind."""
    fills = CONNECTION[(CONNECTION.index(kind) + 1) % len(CONNECTION)]
    return ServerRules(
        fill={"token": from_credential(f"fill {fills}", read=READ[fills]), "tenant": from_identity("tenant")},
        redact=RULES["deep" if kind == "api_key" else "redact"],
    )


@contextlib.asynccontextmanager
async def town(
    folder: Path,
    store: Any,
    *,
    local: tuple[Any, ...] = (),
    collected: Collected | None = None,
    fields: Mapping[str, Any] | None = None,
) -> AsyncIterator[Town]:
    """Open the town; what it lets out until it is closed is collected. `fields` are its runtime's, too."""
    collected = Collected() if collected is None else collected
    needs: list[tuple[str, NeedsAuthorization]] = []
    login = FakeAuthorizationServer(
        ISSUER, clients={"host": CANARIES["oauth client secret"]}, secret=CANARIES["oauth tokens"]
    )
    settings = OAuthSettings(
        clients=(
            OAuthClient(client_id="host", client_secret=CANARIES["oauth client secret"], issuer=ISSUER),
        ),
        redirect_uri=BACK,
        backoff=0.001,
        backoff_max=0.002,
    )
    events: list[Any] = []
    uses: list[Any] = []
    denies: list[str] = []

    def before(call: Any) -> None:
        collected.thing("hook", repr(call))
        for use in here.runtime.running.values():
            for name in Use.__slots__:
                if name not in UNSHOWN:
                    collected.text(f"running use of {use.call_id}: {name}", repr(getattr(use, name)))
            collected.text(
                f"explanation of running {use.call_id}", here.runtime.record.explained(use).words()
            )
        if call.call_id in denies:
            raise RuntimeError(f"the hook fails at {dict(call.args)}")

    async with contextlib.AsyncExitStack() as stack:
        oauth = await stack.enter_async_context(OAuth(settings, transport=login.transport))
        vault, signer = Vault(folder, oauth), Signer()
        servers = {
            kind: await stack.enter_async_context(
                FakeServer.ws(tools=served(), era="both")
                if way == "ws"
                else FakeServer.http(tools=served(), era="both")
            )
            for kind, way in zip(CONNECTION, TRANSPORTS, strict=True)
        }
        servers["oauth"] = await stack.enter_async_context(FakeServer.http(tools=served(), era="stateless"))
        login.protect(servers["oauth"], scope="read")
        child = {
            "tools": [
                {"name": name, "builtin": builtin, "input_schema": SCHEMA}
                for name, builtin in (("give", "echo"), ("fail", "fail"), ("sleep", "sleep"))
            ],
            "stderr_flood": 100,
        }
        desk = StdioTransport.of(
            *FakeServer.stdio_command(child), env={"CANARY": CANARIES["environment of a child"]}
        )
        rules = {kind: rules_for(kind) for kind in CONNECTION}
        for name, service in (("oauth", "file"), ("desk", "environment")):
            rules[name] = ServerRules(fill={"token": from_credential(service)}, redact=RULES["redact"])
        listed = [Server(name=kind, plan=plan_for(kind, servers[kind])) for kind in CONNECTION]
        listed.append(Server(name="unplanned"))
        listed.append(Server(name="desk", plan=Plan(transport=desk)))
        listed.append(
            Server(
                name="oauth",
                plan=Plan(
                    transport=HttpTransport(url=servers["oauth"].url),
                    credential=CredentialRequirement("oauth", mode="user"),
                ),
            )
        )
        runtime = await stack.enter_async_context(
            open_runtime(
                servers=listed,
                tools=local,
                plan=no_plan,
                rules=rules,
                qualify="always",
                credentials=CachedCredentials(RetryingCredentials(vault, attempts=1)),
                signer=signer,
                secret=CANARIES["secret of checkpoints"].encode(),
                artifacts=store,
                results=ResultLimits(max_inline_chars=4_000),
                hooks=[Hook("watch", before=before)],
                on_event=events.append,
                on_use=uses.append,
                on_authorization=lambda service, who, need: needs.append((service, need)),
                pool={"backoff": 0.001, "backoff_max": 0.002},
                **(fields or {}),
            )
        )
        runtime.on_minted = lambda meta, scope, use: collected.thing("told of an artifact", meta)
        here = Town(runtime, servers, login, oauth, vault, signer, collected, needs, denies)
        with trio.fail_after(PATIENCE):
            yield here
        collected.thing("runtime", runtime)
        collected.text("runtime: repr of its configuration", repr(runtime.config))
        collected.thing("statistics", runtime.pool.statistics() if runtime.pool else None)
        for part in (
            oauth,
            vault,
            signer,
            settings,
            runtime.config.credentials,
            runtime.pool,
            store,
            listed,
            rules,
        ):
            collected.text(f"repr of {type(part).__name__}", f"{part!r} {part}")
        for request in vault.asked:
            collected.thing("what a provider was asked", request)
    assert runtime.pool is not None
    filed = list(runtime.pool.records.uses)
    # all of them are looked at: each call has one, nothing else reaches whoever listens, and nothing is left
    assert len(filed) == len(uses) == len({id(use) for use in (*filed, *uses)})
    assert here.codes.keys() <= {use.call_id for use in filed}
    assert not runtime.running
    digests, unix = runtime.record.digests, unix_offset(runtime.seams)
    for use in filed:
        collected.thing(f"use of {use.call_id}", use)
        for name in Use.__slots__:
            if name not in UNSHOWN:
                collected.text(f"use of {use.call_id}: {name}", repr(getattr(use, name)))
        collected.text(f"use of {use.call_id}: as JSON", repr(use_as_json(use, digest=digests, unix=unix)))
        explained = runtime.record.explained(use)
        collected.text(f"explanation of {use.call_id}", explained.words())
        collected.text(f"explanation of {use.call_id}: as JSON", repr(explained.as_json()))
        assert runtime.record.explain(use.call_id).headline
    for event in runtime.pool.records.events:
        collected.thing("event of the pool", event)
        collected.text("event of the pool: as JSON", repr(event_as_json(event, unix=unix)))
    for event in events:
        collected.thing(f"event {event.kind} of {event.call_id}", event)


@contextlib.contextmanager
def everything_logged() -> Any:
    """Keep what anybody logs at any level."""
    import logging

    handler = EveryRecord()
    root = logging.getLogger()
    before = root.level
    levels = {name: logging.getLogger(name).level for name in list(logging.root.manager.loggerDict)}
    root.addHandler(handler)
    root.setLevel(1)
    for name in levels:
        logging.getLogger(name).setLevel(logging.NOTSET)
    try:
        yield handler
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


__all__ = ["ALICE", "DEEP_ARGS", "HIDDEN_ARGS", "PLAIN", "Town", "everything_logged", "town"]

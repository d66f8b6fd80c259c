"""What an app, its configuration and its servers can get wrong: one typed error each, and the pool serves on."""

from __future__ import annotations

import contextlib
import math
import socket
import ssl
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trustme

import afpool
from afpool import (
    CredentialRequirement,
    HttpTransport,
    Identity,
    MemoryTransport,
    Plan,
    Server,
    StdioTransport,
    TlsConfig,
)
from afpool.testing import Body, FakeServer, Hang, JsonRpcError, RawBytes, Result, Status
from tests.pool.kit import ALICE, BOB, quiet, raises, refused, world

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

SECRET = "s3cr3t-value"


# ---------------------------------------------------------------------------- names and identities


async def test_names_that_do_not_exist():
    async with world() as w:
        for ask in (
            lambda: w.pool.tools(ALICE, "no-such"),
            lambda: w.pool.refresh(ALICE, "no-such"),
            lambda: w.pool.warm(ALICE, ["files", "no-such"]),
        ):
            with pytest.raises(LookupError, match=r"no-such.*files"):
                await ask()
        assert w.server.log == []
        tools = await w.pool.tools(ALICE, "files")
        with pytest.raises(KeyError, match="no-such-tool"):
            tools["no-such-tool"]
        with pytest.raises(LookupError, match="no-such"):
            w.pool.key_of(ALICE, "no-such")
        with pytest.raises(LookupError):
            w.pool.pause(w.pool.key_of(BOB, "files"))
        await tools["echo"].call(identity=ALICE)
        quiet(w.pool)


@pytest.mark.parametrize(
    "who",
    [
        None,
        Identity(),
        Identity(tenant=""),
        lambda: None,
        raises(ValueError(SECRET)),
        lambda: "alice",
        "alice",
        7,
    ],
    ids=[
        "none",
        "nobody",
        "empty",
        "asked: none",
        "asked: raises",
        "asked: a string",
        "a string",
        "a number",
    ],
)
async def test_identities_that_are_none(who: Any):
    async with world() as w:
        for ask in (w.pool.tools, w.pool.refresh, w.pool.warm):
            error = await refused(ask(who), "identity-missing")
            assert SECRET not in str(error)
        assert w.server.log == []
        assert not w.pool.actors()
        await (await w.tool()).call(identity=ALICE)


# ---------------------------------------------------------------------------- arguments


class Weird(dict):  # noqa: FURB189 -- a mapping that lies
    def items(self) -> Any:
        raise RuntimeError(SECRET)


BAD = {
    "a list": ["a"],
    "a string": "a",
    "a number": 7,
    "NaN": {"n": math.nan},
    "infinity": {"n": [1, {"m": -math.inf}]},
    "a set": {"n": {1, 2}},
    "bytes": {"n": b"bytes"},
    "an object": {"n": object()},
    "a key that is no string": {7: "n"},
    "a key that is none": {None: "n"},
    "a lone surrogate": {"n": "\ud800"},
    "a lone surrogate as a key": {"\udfff": 1},
    "a complex number": {"n": 1j},
    "itself": None,
    "very deep": None,
}


def bad(name: str) -> Any:
    value = BAD[name]
    if name == "itself":
        value = {"n": SECRET}
        value["self"] = value
    elif name == "very deep":
        value = {}
        for _ in range(100_000):
            value = {"n": value}
    return value


@pytest.mark.parametrize("name", BAD)
async def test_arguments_that_are_no_json_object(name: str):
    async with world() as w:
        tool = await w.tool()
        await tool.call({"n": 1}, identity=ALICE)
        before = w.sent()
        try:
            with trio.fail_after(10):
                result = await tool.call(bad(name), identity=ALICE, call_id="c")
        except afpool.InvalidArguments as error:
            assert (error.code, error.delivery, error.call_id) == ("invalid-arguments", "not-sent", "c")
            assert SECRET not in str(error)
            assert w.sent() == before
        else:
            # a lone surrogate can be said in JSON, by its escape
            assert "surrogate" in name, result.text
            assert w.sent() == before + 1
        await tool.call({"n": 2}, identity=ALICE)
        quiet(w.pool)


async def test_a_value_that_is_refused_is_not_shown():
    async with world() as w:
        tool = await w.tool()
        for value in (
            {"deep": [{"n": {SECRET}}]},
            {"n": SECRET.encode()},
            {"n": [SECRET, math.nan]},
            SECRET,
            [SECRET],
        ):
            error = await refused(tool.call(value, identity=ALICE), "invalid-arguments")
            assert SECRET not in str(error)
            assert SECRET not in repr(error.__cause__)
            assert SECRET not in repr(w.pool.records.uses[-1])


# ---------------------------------------------------------------------------- the app's own code


def http(server: FakeServer, **options: Any) -> Plan:
    return Plan(transport=HttpTransport(url=server.url), **options)


async def slowly_none(server: str, who: Identity) -> Any:
    await trio.lowlevel.checkpoint()


PLANS: dict[str, Callable[..., Any]] = {
    "raises": lambda server, who: raises(ValueError(SECRET))(),
    "gives nothing": lambda server, who: None,
    "gives nothing slowly": slowly_none,
    "gives a mapping": lambda server, who: {"url": SECRET},
    "gives no transport": lambda server, who: Plan(transport=None),  # type: ignore[arg-type]
    "gives another transport": lambda server, who: Plan(transport="https://example.invalid"),  # type: ignore[arg-type]
    "gives no url": lambda server, who: Plan(transport=HttpTransport(url="not a url " + SECRET)),
    "takes too few arguments": lambda server: None,
    "gives a credential per user to a server for everybody": lambda server, who: Plan(
        transport=HttpTransport(url="http://127.0.0.1:1/"), credential=CredentialRequirement("s", mode="user")
    ),
}


@pytest.mark.parametrize("name", PLANS)
async def test_plans_that_are_none(name: str):
    async with FakeServer.http() as fake:

        def plan(server: str, who: Identity) -> Any:
            return http(fake) if who.tenant == "globex" else PLANS[name](server, who)

        async with afpool.open_pool([Server(name="files", keyed_on=("tenant",))], plan=plan) as pool:
            for _ in range(2):
                error = await refused(pool.tools(ALICE), "plan-failed")
                assert SECRET not in str(error)
                assert "nothing was sent" in str(error)
            other = Identity(tenant="globex")
            await (await pool.tools(other))["echo"].call(identity=other)
            quiet(pool)


async def test_a_plan_that_begins_to_fail_costs_no_call_on_a_living_client():
    async with world() as w:
        tool = await w.tool()

        def fails(server: str, who: Identity) -> Plan:
            raise ValueError(SECRET)

        w.pool.plan = fails
        await tool.call(identity=ALICE)
        await refused(w.pool.refresh(ALICE), "plan-failed")
        await w.evict()
        await refused(tool.call(identity=ALICE), "plan-failed")
        assert w.sent() == 1
        quiet(w.pool)


@pytest.mark.parametrize("answer", [raises(ValueError(SECRET)), lambda: 7, lambda: b"name", lambda: ["a"]])
async def test_a_share_that_is_none(answer: Callable[[], Any]):
    async with world() as w:
        tool, bobs = await w.tool(), await w.tool(BOB)
        w.host.names["alice"] = answer
        error = await refused(tool.call(identity=ALICE), "share-failed")
        assert SECRET not in str(error)
        await refused(w.pool.tools(ALICE), "share-failed")
        await bobs.call(identity=BOB)
        del w.host.names["alice"]
        await tool.call(identity=ALICE)
        assert w.sent() == 2
        quiet(w.pool)


# ---------------------------------------------------------------------------- servers that are none


@contextlib.asynccontextmanager
async def only(transport: Any, **plan: Any) -> AsyncIterator[afpool.Pool]:
    """A pool in which alice's server is the one given and bob's is in order."""
    async with FakeServer.http() as fake:

        def choose(server: str, who: Identity) -> Plan:
            return Plan(transport=transport, **plan) if who == ALICE else http(fake)

        async with afpool.open_pool([Server(name="files")], plan=choose, open_timeout=5) as pool:
            yield pool
            await (await pool.tools(BOB))["echo"].call(identity=BOB)
            quiet(pool)
            assert pool.records.failures == 0


async def unusable(transport: Any, word: str = "", **plan: Any) -> None:
    if plan.get("protocol_version") == "2026-07-28":
        await unlisted(transport, **plan)
        return
    async with only(transport, **plan) as pool:
        for _ in range(2):
            error = await refused(pool.refresh(ALICE), "open-failed")
            assert word in str(error), error
            assert "nothing" in str(error)
            assert SECRET not in str(error)
            assert error.retry_after is not None
        # a call or list that does not insist is told when the next opening is tried
        error = await refused(pool.tools(ALICE), "open-backoff")
        assert error.retry_after is not None


async def unlisted(transport: Any, **plan: Any) -> None:
    """A pinned version without a handshake needs no request to be open: the first list says what is wrong."""
    async with only(transport, **plan) as pool:
        for _ in range(2):
            with pytest.raises(afpool.AfpoolError) as caught, trio.fail_after(10):
                await pool.refresh(ALICE)
            error = caught.value
            assert SECRET not in str(error)
            assert error.code in {
                "open-failed", "open-backoff", "server-failed", "server-error", "server-refused", "protocol-error",
                "connection-lost", "session-handle-lost",
            }, error  # fmt: skip


@pytest.mark.parametrize("version", [None, "2025-11-25", "2026-07-28"])
@pytest.mark.parametrize(
    ("command", "word"),
    [
        (("/no/such/command", "--token", "x"), "was not found"),
        (("/etc/passwd",), "not executable"),
        ((sys.executable, "-c", "pass"), ""),
        ((sys.executable, "-c", "import sys; sys.exit(3)"), ""),
        ((sys.executable, "-c", "print('Listening on port 80')"), ""),
        (("cat",), ""),
        (("true",), ""),
        (("head", "-c", "10"), ""),
    ],
    ids=["missing", "not executable", "ends", "fails", "says something and ends", "cat", "true", "head"],
)
async def test_commands_that_are_no_servers(command: tuple[str, ...], word: str, version: str | None):
    await unusable(StdioTransport.of(*command), word, protocol_version=version)


async def test_a_folder_that_does_not_exist():
    await unusable(StdioTransport.of("cat", cwd="/no/such/folder/" + SECRET), "working directory")


async def test_a_port_where_nobody_listens():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    await unusable(HttpTransport(url=f"http://127.0.0.1:{port}/mcp?key={SECRET}"))


async def test_a_name_that_does_not_exist():
    await unusable(HttpTransport(url=f"http://no-such-host.invalid/mcp?key={SECRET}"))


ANSWERS = {
    "a page": Body(b"<!doctype html><title>Welcome</title>", "text/html"),
    "a text": Body(b"OK", "text/plain"),
    "half a JSON text": Body(b'{"jsonrpc": "2.0", "id"'),
    "JSON that is no message": Body(b'{"status": "ok"}'),
    "another result": Result({"status": "ok"}),
    "a result that is no object": Result([1, 2]),
    "an error": JsonRpcError(-32000, "no"),
    "404": Status(404, body=b"Not Found"),
    "500": Status(500, body=b"Internal Server Error"),
    "empty": Status(200),
    "202": Status(202),
    "redirect elsewhere": Status(302, headers={"location": "https://login.example.invalid/"}),
    "no HTTP": RawBytes(b"220 mail ESMTP ready\r\n\r\n"),
    "nothing": RawBytes(b""),
    "an event stream that ends": Body(b": hello\n\n", "text/event-stream"),
}


@pytest.mark.parametrize("version", [None, "2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("name", ANSWERS)
async def test_http_servers_that_speak_no_mcp(name: str, version: str | None):
    async with FakeServer.http(strict=False) as fake:
        fake.on("*", ANSWERS[name])
        await unusable(HttpTransport(url=fake.url), protocol_version=version)


async def test_a_server_that_never_answers(autojump_clock):
    async with FakeServer.http() as fake:
        fake.on("*", Hang())
        async with only(HttpTransport(url=fake.url)) as pool:
            began = trio.current_time()
            await refused(pool.tools(ALICE), "open-failed")
            assert trio.current_time() - began <= 5.1


@pytest.mark.parametrize("wants", [Status(401), Status(401, headers={"www-authenticate": "Bearer"})])
async def test_a_server_that_wants_a_credential_nobody_planned(wants: Status):
    async with FakeServer.http() as fake:
        fake.on("*", wants)
        async with only(HttpTransport(url=fake.url)) as pool:
            error = await refused(pool.tools(ALICE), "authorization-required")
            assert error.http_status == 401


async def test_tls_that_fails():
    ca, other = trustme.CA(), trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    pem = {each: each.cert_pem.bytes().decode() for each in (ca, other)}
    async with FakeServer.http(ssl_context=context) as secure, FakeServer.http() as plain:
        good = TlsConfig(ca_data=pem[ca])
        await unusable(HttpTransport(url=secure.url, tls=TlsConfig(ca_data=pem[other])), "certificate")
        await unusable(HttpTransport(url=secure.url), "certificate")
        await unusable(HttpTransport(url=plain.url.replace("http:", "https:"), tls=good), "TLS")
        await unusable(HttpTransport(url=secure.url.replace("https:", "http:")))
        await unusable(HttpTransport(url=secure.url, tls=TlsConfig(ca_file="/no/such/" + SECRET)), "TLS")
        async with only(HttpTransport(url=secure.url, tls=good)) as pool:
            await (await pool.tools(ALICE))["echo"].call(identity=ALICE)


async def test_a_server_in_memory_that_cannot_be_reached():
    async def connect() -> Any:
        await trio.lowlevel.checkpoint()
        raise OSError(SECRET)

    await unusable(MemoryTransport(name="m", connect=connect), "OSError")


# ---------------------------------------------------------------------------- answers that cannot be used


@pytest.mark.parametrize(
    "answer",
    [
        Body(b"<html>"), Result({"tools": 7}), Result([]), Status(500), Result({"tools": [], "nextCursor": 7}),
        JsonRpcError(-32603),
    ],
    ids=["a page", "no list", "an array", "500", "a strange cursor", "an error"],
)  # fmt: skip
@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_lists_that_cannot_be_read(answer: Any, era: str):
    async with world(http={"era": era}) as w:
        w.server.on("tools/list", answer, times=1)
        with pytest.raises(afpool.AfpoolError) as caught, trio.fail_after(5):
            await w.pool.tools(ALICE)
        assert caught.value.code in {"protocol-error", "server-failed", "server-error"}
        await (await w.tool()).call(identity=ALICE)
        quiet(w.pool)


@pytest.mark.parametrize("value", [7, "text", [], None])
async def test_results_that_are_no_object(value: Any):
    """In the era of the handshake a result is read when it is looked at, and then says so."""
    async with world() as w:
        w.server.on("tools/call", Result(value), times=1)
        tool = await w.tool()
        try:
            result = await tool.call(identity=ALICE)
            with pytest.raises(afpool.ProtocolError):
                _ = result.document
        except afpool.ProtocolError as error:
            assert error.delivery == "answered"
        assert (await tool.call({"n": 1}, identity=ALICE)).text == '{"n": 1}'
        quiet(w.pool)


# ---------------------------------------------------------------------------- configuration


def configurations() -> Iterator[tuple[Mapping[str, Any], str]]:
    yield {"max_operations": 0}, "max_operations"
    yield {"deadline": -1.0}, "deadline"
    yield {"close_timeout": 0}, "close_timeout"


@pytest.mark.parametrize(("limits", "word"), list(configurations()))
async def test_limits_that_are_none(limits: Mapping[str, Any], word: str):
    with pytest.raises(ValueError, match=word):
        async with afpool.open_pool([Server(name="files")], plan=lambda server, who: None, **limits):
            pass


async def test_servers_that_are_none():
    with pytest.raises(ValueError, match="at least one"):
        async with afpool.open_pool([]):
            pass
    with pytest.raises(ValueError, match="needs a name"):
        Server(name="")
    with pytest.raises(ValueError, match="must be keyed on 'principal'"):
        Server(
            name="files",
            keyed_on=("tenant",),
            plan=Plan(
                transport=HttpTransport(url="http://127.0.0.1:1/"),
                credential=CredentialRequirement("s", mode="user"),
            ),
        )

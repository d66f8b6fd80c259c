"""Servers that are none, and answers that cannot be used: one typed error each, and the pool serves on."""

from __future__ import annotations

import contextlib
import socket
import ssl
import sys
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trustme

import afpool
from afpool import HttpTransport, Identity, MemoryTransport, Plan, Server, StdioTransport, TlsConfig
from afpool.testing import Body, FakeServer, Hang, JsonRpcError, RawBytes, Result, Status
from tests.pool.kit import ALICE, BOB, quiet, refused, world

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SECRET = "s3cr3t-value"


@contextlib.asynccontextmanager
async def only(transport: Any, **plan: Any) -> AsyncIterator[afpool.Pool]:
    """A pool in which alice's server is the one given and bob's is in order."""
    async with FakeServer.http() as fake:
        good = Plan(transport=HttpTransport(url=fake.url))

        def choose(server: str, who: Identity) -> Plan:
            return Plan(transport=transport, **plan) if who == ALICE else good

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
                "open-failed", "open-backoff", "server-failed", "server-error", "server-refused",
                "protocol-error", "connection-lost", "session-handle-lost",
                "deadline-exceeded",  # `cat` asks what it was asked, which nobody answers without a session
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
        Body(b"<html>"), Result({"tools": 7}), Result([]), Status(500),
        Result({"tools": [], "nextCursor": 7}), JsonRpcError(-32603),
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
        result = await tool.call(identity=ALICE)
        with pytest.raises(afpool.ProtocolError) as caught:
            _ = result.document
        assert caught.value.delivery == "answered"
        assert (await tool.call({"n": 1}, identity=ALICE)).text == '{"n": 1}'
        quiet(w.pool)

"""A pool over WebSocket: openings of every kind, verdicts, and what a credential means there (I3, I10).

What ran and what was sent is read from the server's own ledger.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trustme

import afpool
from afpool import (
    AuthorizationRequired,
    CredentialRequirement,
    Issued,
    NeedsAuthorization,
    OpenFailed,
    Server,
    TlsConfig,
    WebSocketTransport,
    bearer,
)
from afpool.testing import (
    Body,
    CloseFrame,
    Drop,
    FakeServer,
    FakeTool,
    Hang,
    JsonRpcError,
    RawBytes,
    Result,
    Status,
    Truncate,
    big_tool,
    counter_tool,
    echo_tool,
    progress_tool,
    sleep_tool,
    whoami_tool,
)
from tests.pool.kit import ALICE, BOB, quiet, start, until
from tests.pool.test_pool_verdicts import ends, nursery_call

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from afpool import CredentialRequest

ERAS = ("handshake", "stateless", "both")
TOOLS = [echo_tool(), sleep_tool(), counter_tool(), progress_tool(), whoami_tool()]


@contextlib.asynccontextmanager
async def fake(**options: Any) -> AsyncIterator[FakeServer]:
    with trio.fail_after(options.pop("seconds", 30)):
        async with FakeServer.ws(**{"tools": TOOLS, **options}) as server:
            yield server


@contextlib.asynccontextmanager
async def pool_to(url: str, *, credential: Any = None, transport: Any = None, version: str | None = None,
                  **limits: Any) -> AsyncIterator[afpool.Pool]:  # fmt: skip
    plan = afpool.Plan(
        transport=transport or WebSocketTransport(url=url), credential=credential, protocol_version=version
    )
    async with afpool.open_pool([Server(name="files", plan=plan)], **limits) as pool:
        yield pool


# ---------------------------------------------------------------------------- what works


@pytest.mark.parametrize("era", ERAS)
async def test_it_lists_calls_reports_progress_and_hears_of_changes(era):
    async with fake(era=era) as server, pool_to(server.url) as pool:
        tools = await pool.tools(ALICE)
        seen: list[float] = []
        progress = lambda p: seen.append(p.progress)  # noqa: E731
        assert (await tools["echo"].call({"n": 1}, identity=ALICE)).text == '{"n": 1}'
        await tools["progress"].call({"steps": 3}, identity=ALICE, on_progress=progress)
        assert seen
        server.set_tools([*TOOLS, FakeTool("more")])
        with trio.fail_after(5):
            while "more" not in await pool.tools(ALICE):  # noqa: ASYNC110 -- nothing announces it here
                await trio.sleep(0.01)
        assert server.connections_total == 1
        assert [arrival.name for arrival in server.log[:2]] == ["GET", "server/discover"]
        assert server.count("initialize") == (era == "handshake")
        (upgrade,) = server.arrivals("GET")
        assert upgrade.headers["sec-websocket-protocol"] == "mcp"
        quiet(pool)


@pytest.mark.parametrize("chosen", ["mcp", None])
async def test_a_server_may_choose_the_subprotocol_or_none(chosen):
    async with fake(subprotocol=chosen) as server, pool_to(server.url) as pool:
        assert (await (await pool.tools(ALICE))["echo"].call(identity=ALICE)).text == "{}"


async def test_two_identities_have_two_connections():
    async with fake() as server, pool_to(server.url) as pool:
        for who in (ALICE, BOB):
            await (await pool.tools(who))["echo"].call(identity=who)
        assert server.connections_total == 2


async def test_over_tls():
    ca = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    async with fake(ssl_context=context) as server:
        assert server.url.startswith("wss://")
        trusting = TlsConfig(ca_data=ca.cert_pem.bytes().decode())
        transport = WebSocketTransport(url=server.url, tls=trusting)
        async with pool_to(server.url, transport=transport) as pool:
            tools = await pool.tools(ALICE)
            assert len((await tools["echo"].call({"x": "y" * 300_000}, identity=ALICE)).text) > 300_000
        async with pool_to(server.url) as pool:
            with pytest.raises(OpenFailed, match="certificate"):
                await pool.tools(ALICE)


async def test_calls_run_at_once_and_a_cancel_is_a_notice():
    async with (
        fake() as server,
        pool_to(server.url, cancel_grace=0.5) as pool,
        trio.open_nursery() as nursery,
    ):
        tools = await pool.tools(ALICE)
        sibling = start(nursery, lambda: tools["sleep"].call({"seconds": 0.4}, identity=ALICE))
        with trio.move_on_after(0.1) as scope:
            await tools["sleep"].call({"seconds": 30}, identity=ALICE)
        assert scope.cancelled_caught
        await server.wait_until(lambda: len(server.cancelled) == 1)
        assert (await sibling.answer()).text == "slept 0.4"
        await until(lambda: pool.settling == 0)
        assert server.connections_total == 1
        quiet(pool)


async def test_a_closed_pool_says_goodbye():
    async with fake() as server:
        async with pool_to(server.url) as pool:
            await pool.tools(ALICE)
            (connection,) = server._open
        assert connection._socket.closed.code == 1000
        await server.wait_until(lambda: server.connections == 0)


# ---------------------------------------------------------------------------- eras


async def test_a_server_that_is_silent_on_the_probe_is_connected_anew(autojump_clock):
    async with fake(seconds=100) as server, pool_to(server.url) as pool:
        server.on("server/discover", Hang())
        assert "echo" in await pool.tools(ALICE)
        assert server.connections_total == 2
        names = [(a.connection, a.name) for a in server.log if a.connection]
        assert names[:4] == [(1, "GET"), (1, "server/discover"), (2, "GET"), (2, "initialize")]


@pytest.mark.parametrize("action", [Drop(), CloseFrame(1011), CloseFrame(1000), Drop(reset=True)])
async def test_a_server_that_ends_on_the_probe_is_connected_anew(action):
    async with fake() as server, pool_to(server.url) as pool:
        server.on("server/discover", action)
        assert "echo" in await pool.tools(ALICE)
        assert server.connections_total == 2
        assert server.arrivals("initialize")[0].connection == 2


async def test_a_pinned_version_is_not_probed():
    async with fake(era="both") as server, pool_to(server.url, version="2025-11-25") as pool:
        await (await pool.tools(ALICE))["echo"].call(identity=ALICE)
        assert server.count("server/discover") == 0
        assert server.log[1].name == "initialize"


# ---------------------------------------------------------------------------- verdicts


RESULT = {"content": [{"type": "text", "text": "another's"}], "resultType": "complete"}


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_answers_that_are_none_leave_a_call_waiting_and_hurt_nobody(era):
    names = ("garbage", "half", "wrong", "null", "other", "binary")
    tools = [*TOOLS, *(FakeTool(name) for name in (*names, "error", "unknown"))]
    async with fake(era=era, tools=tools) as server:
        for name, action in {
            "error": JsonRpcError(-32050, "no luck"),
            "unknown": JsonRpcError(-32601),
            "garbage": Body(b"not json"),
            "half": Body(b'{"jsonrpc": "2.0", "id": 1, "resu'),
            "wrong": Result(RESULT, id=4711),
            "null": JsonRpcError(-32603, id=None),
            "other": Result(RESULT, id="1"),
            "binary": RawBytes(b"\x82\x02{}", close=False),
        }.items():
            server.on("tools/call", action, tool=name)
        async with pool_to(server.url, cancel_grace=0.05) as pool, trio.open_nursery() as nursery:
            listed = await pool.tools(ALICE)
            sibling = start(nursery, lambda: listed["sleep"].call({"seconds": 3}, identity=ALICE))
            _, error = await ends(listed["error"].call(identity=ALICE))
            assert (error.code, error.delivery, error.error_code) == ("server-error", "answered", -32050)
            _, error = await ends(listed["unknown"].call(identity=ALICE))
            assert (error.code, error.delivery) == ("server-refused", "refused")
            for name in names:
                deadline = trio.current_time() + 0.4
                _, error = await ends(listed[name].call(identity=ALICE, deadline=deadline))
                assert error is not None, name
                assert (error.code, error.delivery) == ("deadline-exceeded", "in-doubt"), name
                assert (await listed["echo"].call({"n": 1}, identity=ALICE)).text == '{"n": 1}'
            assert (await sibling.answer()).text == "slept 3"
            assert server.connections_total == 1
            await until(lambda: not pool.settling)
            quiet(pool)


@pytest.mark.parametrize(
    ("action", "ran"),
    [
        (Drop(), 0),
        (Drop(reset=True), 0),
        (Drop(after_execution=True), 1),
        (Truncate(), 1),
        (CloseFrame(1000), 0),
        (CloseFrame(1011, "token"), 0),
        (RawBytes(b"\xff\xff\xff\xff"), 0),
    ],
    ids=["dropped", "reset", "after it ran", "half a frame", "closed", "failed", "no frame"],
)
async def test_a_connection_that_ends_leaves_its_calls_in_doubt_and_sends_none_again(action, ran):
    async with fake() as server, pool_to(server.url) as pool, trio.open_nursery() as nursery:
        listed = await pool.tools(ALICE)
        server.on("tools/call", action, tool="counter")
        sibling = nursery_call(nursery, listed["sleep"].call({"seconds": 60}, identity=ALICE))
        await server.wait_until(lambda: server.executions["sleep"] == 1)
        for _, error in (await ends(listed["counter"].call(identity=ALICE)), await sibling()):
            assert error is not None
            assert (error.code, error.delivery) == ("session-handle-lost", "in-doubt")
            assert "token" not in str(error)
        assert (len(server.arrivals("tools/call", "counter")), server.executions["counter"]) == (1, ran)
        # the next call opens another connection, whose list shows the same tool
        assert (await listed["echo"].call({"n": 2}, identity=ALICE)).text == '{"n": 2}'
        assert server.connections_total == 2
        assert server.executions["sleep"] == 1
        quiet(pool)


async def test_an_answer_beyond_the_cap_ends_the_incarnation():
    async with (
        fake(tools=[big_tool(), echo_tool()]) as server,
        pool_to(server.url, max_message=20_000) as pool,
    ):
        listed = await pool.tools(ALICE)
        _, error = await ends(listed["big"].call({"size": 50_000}, identity=ALICE))
        assert (error.code, error.delivery) == ("session-handle-lost", "in-doubt")
        assert "longer than 20000 bytes" in error.message
        assert (await listed["echo"].call(identity=ALICE)).text == "{}"
        assert server.connections_total == 2


async def test_a_server_that_answers_no_pings_is_lost(autojump_clock):
    async with fake(seconds=1000) as server, pool_to(server.url) as pool:
        listed = await pool.tools(ALICE)
        server.websocket.pongs = False
        server.on("tools/call", Hang(), tool="counter")
        start_at = trio.current_time()
        _, error = await ends(listed["counter"].call(identity=ALICE, deadline=start_at + 500))
        assert (error.code, error.delivery) == ("session-handle-lost", "in-doubt")
        assert "did not answer a ping within 20 s" in error.message
        assert trio.current_time() - start_at <= 45


async def test_no_call_leaves_after_a_revocation():
    """The gate under the library, asked for a call that has everything else behind it."""
    async with fake() as server, pool_to(server.url) as pool:
        listed = await pool.tools(ALICE)
        (client,) = pool.openings.clients.values()
        ask = client.channel.link._stream._wire.push

        def push(batch: Any) -> int:
            pool.revoke(ALICE)
            return ask(batch)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(client.channel.link._stream._wire), "push", lambda self, batch: push(batch))
            _, error = await ends(listed["counter"].call(identity=ALICE))
        assert error.delivery == "not-sent"
        assert server.count("tools/call") == 0


# ---------------------------------------------------------------------------- openings that fail


WRONG_ACCEPT = (
    b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n"
    b"connection: upgrade\r\nsec-websocket-accept: c2VjcmV0\r\n\r\n"
)


async def refused(url: str, **options: Any) -> Any:
    async with pool_to(url, **options) as pool:
        with pytest.raises(afpool.AfpoolError) as caught:
            await pool.tools(ALICE)
        assert caught.value.delivery == "not-sent"
        assert "secret" not in str(caught.value)
        assert "secret" not in repr(caught.value)
        quiet(pool)
    return caught.value


@pytest.mark.parametrize("status", [299, 300, 307, 399, 400, 404, 426, 429, 500, 503])
async def test_an_upgrade_that_is_answered_with_a_status(status):
    async with fake() as server:
        headers = {"location": "ws://127.0.0.1/secret", "set-cookie": "secret", "retry-after": "7"}
        server.on("GET", Status(status, headers, b"secret " * 100))
        error = await refused(server.url)
        assert isinstance(error, OpenFailed)
        assert (error.http_status, error.retry_after) == (status, 7.0)
        assert ("redirect" in error.message) == (300 <= status < 400)
        assert server.connections_total == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        WRONG_ACCEPT,
        b"HTTP/1.1 103 Early Hints\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"HTTP/1.1 401 Unauthorized\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 403 Forbidden\r\n\r\nuntil the end",
        b"HTTP/1.1 200 OK\r\nx: " + b"secret" * 50_000,
    ],
    ids=[
        "nothing",
        "200",
        "bare 101",
        "wrong accept",
        "103",
        "ssh",
        "tls",
        "401 open",
        "403 open",
        "endless",
    ],
)
@pytest.mark.parametrize("close", [True, False])
async def test_a_peer_that_is_no_websocket(answer, close, autojump_clock):
    async with fake(seconds=200) as server:
        server.on("GET", RawBytes(answer, close=close))
        error = await refused(server.url)
        if b" 401 " in answer:
            assert isinstance(error, AuthorizationRequired)
        else:
            assert isinstance(error, OpenFailed)
        assert server.connections_total == 1


async def test_an_upgrade_that_is_never_answered(autojump_clock):
    async with fake(seconds=200) as server:
        server.on("GET", Hang())
        start_at = trio.current_time()
        error = await refused(server.url, open_timeout=100.0)
        assert "within 30 s" in error.message
        assert trio.current_time() - start_at == pytest.approx(30, abs=1)


async def test_a_subprotocol_that_nobody_offered():
    async with fake(subprotocol="graphql-secret") as server:
        error = await refused(server.url)
        assert isinstance(error, OpenFailed)
        assert "does not speak WebSocket as agreed" in error.message
    async with fake(subprotocol="mcp") as server:
        error = await refused(server.url, transport=WebSocketTransport(url=server.url, subprotocols=()))
        assert isinstance(error, OpenFailed)


async def test_nobody_is_there():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        error = await refused(f"ws://127.0.0.1:{taken.getsockname()[1]}/?key=secret")
    assert isinstance(error, OpenFailed)
    assert "no connection" in error.message


async def test_tls_with_a_server_that_speaks_none():
    async with fake() as server:
        error = await refused(server.url.replace("ws://", "wss://"))
        assert isinstance(error, OpenFailed)
        assert "TLS" in error.message


async def test_an_opening_that_is_given_up_leaves_nothing_behind(autojump_clock):
    async with fake(seconds=200) as server, pool_to(server.url) as pool:
        server.on("GET", Hang())
        with trio.move_on_after(1):
            await pool.tools(ALICE)
        await server.wait_until(lambda: server.connections == 0)
        quiet(pool)


# ---------------------------------------------------------------------------- credentials


NEEDS = CredentialRequirement(service="files")


class Vending:
    """A provider that hands out what it is given, and remembers what it was asked."""

    def __init__(self, *tokens: str) -> None:
        self.tokens = list(tokens)
        self.asked: list[CredentialRequest] = []

    async def get(self, request: CredentialRequest) -> Issued | NeedsAuthorization:
        self.asked.append(request)
        token = self.tokens[min(len(self.asked), len(self.tokens)) - 1]
        if token == "ask":
            return NeedsAuthorization("https://auth.invalid/secret", "session")
        return Issued(credential=bearer(token))


async def test_the_credential_goes_out_once_with_the_upgrade():
    vending = Vending("secret-1", "secret-2")
    async with (
        fake() as server,
        pool_to(
            server.url,
            credential=NEEDS,
            credentials=vending,
            transport=WebSocketTransport(url=server.url, headers={"X-Static": "s"}),
        ) as pool,
    ):
        listed = await pool.tools(ALICE)
        for _ in range(3):
            await listed["echo"].call(identity=ALICE)
        (upgrade,) = server.arrivals("GET")
        assert (upgrade.headers["authorization"], upgrade.headers["x-static"]) == ("Bearer secret-1", "s")
        assert len(vending.asked) == 1
        # another credential means another incarnation
        server.close_connections()
        await until(lambda: not pool.openings.clients)
        await listed["echo"].call(identity=ALICE)
        assert [a.headers["authorization"] for a in server.arrivals("GET")] == [
            "Bearer secret-1",
            "Bearer secret-2",
        ]
        assert "secret" not in repr(pool.records.events)


async def test_a_401_at_the_upgrade_is_tried_once_more_with_a_new_credential():
    vending = Vending("old-secret", "new-secret")
    async with fake() as server:
        server.on("GET", Status(401), when=lambda a: "old" in a.headers["authorization"])
        async with pool_to(server.url, credential=NEEDS, credentials=vending) as pool:
            assert "echo" in await pool.tools(ALICE)
        assert [request.reason for request in vending.asked] == ["call", "refresh"]
        assert [request.rejected for request in vending.asked] == [False, True]
        assert server.count("GET") == 2


async def test_a_401_that_stays_asks_for_authorization():
    challenge = 'Bearer resource_metadata="https://auth.invalid/r"'
    async with fake() as server:
        server.on("GET", Status(401, {"www-authenticate": challenge}))
        vending = Vending("secret")
        error = await refused(server.url, credential=NEEDS, credentials=vending)
        assert isinstance(error, AuthorizationRequired)
        assert (error.http_status, error.www_authenticate) == (401, challenge)
        assert (server.count("GET"), len(vending.asked)) == (2, 2)
        error = await refused(server.url)
        assert isinstance(error, AuthorizationRequired)
        assert server.count("GET") == 3


async def test_a_403_with_a_challenge_steps_up_and_without_one_is_final():
    challenge = {"www-authenticate": 'Bearer error="insufficient_scope", scope="more"'}
    async with fake() as server:
        server.on("GET", Status(403, challenge), times=1)
        vending = Vending("secret")
        async with pool_to(server.url, credential=NEEDS, credentials=vending) as pool:
            assert "echo" in await pool.tools(ALICE)
        assert [request.scopes for request in vending.asked] == [(), ("more",)]
        server.on("GET", Status(403))
        error = await refused(server.url, credential=NEEDS, credentials=Vending("secret"))
        assert isinstance(error, OpenFailed)
        assert error.http_status == 403


async def test_a_person_has_to_authorize_first():
    async with fake() as server:
        told: list[Any] = []
        error = await refused(
            server.url,
            credential=NEEDS,
            credentials=Vending("ask"),
            on_authorization=lambda *args: told.append(args),
        )
        assert isinstance(error, AuthorizationRequired)
        assert len(told) == 1
        assert server.connections_total == 0


# ---------------------------------------------------------------------------- configuration


@pytest.mark.parametrize(
    "bad",
    [
        {"url": "http://h/"},
        {"url": "ws://user:secret@h/"},
        {"url": "ws://h/#secret"},
        {"url": "ws://"},
        {"url": "ws://h/", "headers": {"Host": "secret"}},
        {"url": "ws://h/", "headers": {"Sec-WebSocket-Protocol": "secret"}},
        {"url": "ws://h/", "headers": {"x y": "secret"}},
        {"url": "ws://h/", "headers": {"x": "secret\u20ac"}},
        {"url": "ws://h/", "headers": {"x": " secret"}},
        {"url": "ws://h/", "headers": {"x": "secret\r\ny: z"}},
        {"url": "ws://h/", "subprotocols": ("secret secret",)},
        {"url": "ws://h/", "subprotocols": ("mcp", "mcp")},
    ],
)
def test_a_transport_that_cannot_be(bad):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 -- each has words of its own
        WebSocketTransport(**bad)
    assert "secret" not in str(caught.value)


def test_one_string_is_not_several_subprotocols():
    with pytest.raises(TypeError):
        WebSocketTransport(url="ws://h/", subprotocols="mcp")  # type: ignore[arg-type]


def test_what_decides_whom_and_how_is_the_context_and_no_secret_is_shown():
    plain = WebSocketTransport(url="ws://h/mcp")
    assert plain.endpoint == "ws://h/mcp"
    other = [
        WebSocketTransport(url="wss://h/mcp"),
        WebSocketTransport(url="ws://h/mcp", headers={"x": "secret"}),
        WebSocketTransport(url="ws://h/mcp", subprotocols=("mcp", "mcp.auth.secret")),
        WebSocketTransport(url="ws://h/mcp", tls=TlsConfig(insecure=True)),
    ]
    assert len({afpool.Plan(transport=t).context(b"k") for t in [plain, *other]}) == 5
    assert not any("secret" in repr(transport) for transport in other)

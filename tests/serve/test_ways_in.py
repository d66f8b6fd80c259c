"""WebSocket, TLS and a Unix socket: the same door, the same caller, the same end."""

from __future__ import annotations

import contextlib
import json
import ssl
import stat

import pytest
import trio
import trustme
from trio_websocket import ConnectionClosed, open_websocket_url

from afpool.config import ServeLimits, TlsFiles
from afpool.serve import BadCertificate, CannotListen
from afpool.testing import FakeTool, Progress, echo_tool
from tests.serve.serve_kit import ALICE, BOB, META, STATELESS, envelope, place, until


@contextlib.asynccontextmanager
async def talking(here, who=ALICE, token=None, **options):
    url = here.service.addresses[0].replace("http", "ws", 1).removesuffix("/mcp") + "/ws"
    headers = [("authorization", f"Bearer {token or here.texts[who]}")]
    with trio.fail_after(20):
        async with open_websocket_url(url, extra_headers=headers, subprotocols=["mcp"], **options) as socket:
            try:
                yield Talk(socket)
            finally:
                # where the service ends it, the client's library leaves its own end open
                with trio.CancelScope(shield=True):
                    await trio.aclose_forcefully(socket._stream)


class Talk:
    def __init__(self, socket):
        self.socket = socket
        self.number = 0

    async def say(self, message):
        await self.socket.send_message(message if isinstance(message, str | bytes) else json.dumps(message))

    async def hear(self):
        with trio.fail_after(5):
            return json.loads(await self.socket.get_message())

    async def repeat(self, said):
        """Say it again and again; each time the answer is an error."""
        for _ in range(20):
            await self.say(said)
            assert (await self.hear())["error"]["code"] in (-32700, -32600)

    async def rpc(self, method, params=None):
        self.number += 1
        await self.say({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params or {}})
        while (heard := await self.hear()).get("id") != self.number:
            pass
        return heard

    async def open(self):
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        answer = await self.rpc("initialize", params)
        await self.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer["result"]


def hanging():
    async def hang(arguments, arrival):
        yield Progress(1)
        await trio.sleep_forever()

    return FakeTool("hang", hang)


async def test_a_session_over_websocket(tmp_path):
    async with (
        place(tmp_path, servers={"desk": [echo_tool(), hanging()]}, listen=True) as here,
        talking(here) as talk,
    ):
        assert talk.socket.subprotocol == "mcp"
        assert (await talk.rpc("tools/list"))["error"]["code"] == -32600  # not before it has begun
        assert (await talk.open())["protocolVersion"] == "2025-11-25"
        tools = (await talk.rpc("tools/list"))["result"]["tools"]
        assert [tool["name"] for tool in tools] == ["echo", "hang"]
        result = (await talk.rpc("tools/call", {"name": "echo", "arguments": {"n": 1}}))["result"]
        assert result["content"][0]["text"] == '{"n": 1}'
        params = {"name": "hang", "arguments": {}, "_meta": {"progressToken": "p"}}
        await talk.say({"jsonrpc": "2.0", "id": "h", "method": "tools/call", "params": params})
        assert (await talk.hear())["params"]["progressToken"] == "p"
        await talk.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "h"}})
        await until(lambda: len(here.server.cancelled) == 1)
        here.server.set_tools([echo_tool("other")])
        assert (await talk.hear())["method"] == "notifications/tools/list_changed"


async def test_the_stateless_era_over_websocket(tmp_path):
    async with place(tmp_path, listen=True) as here, talking(here) as talk:
        found = (await talk.rpc("server/discover", {"_meta": envelope()}))["result"]
        assert found["supportedVersions"] == [STATELESS]
        params = {"name": "echo", "arguments": {}, "_meta": envelope()}
        result = (await talk.rpc("tools/call", params))["result"]
        assert result["_meta"][f"{META}serverInfo"]["name"] == "afpool"
        await talk.rpc("tools/list", {"_meta": envelope()})
        assert (await talk.rpc("initialize", {"_meta": envelope()}))["error"]["code"] == -32022
        await until(lambda: here.server.streams == 1)
        here.server.set_tools([echo_tool("other")])
        # what belongs to no request is not said in this era
        assert "result" in await talk.rpc("tools/list", {"_meta": envelope()})


async def test_a_socket_that_closes_takes_its_calls_with_it(tmp_path):
    async with place(tmp_path, servers={"desk": [hanging()]}, listen=True) as here:
        async with talking(here) as talk:
            await talk.open()
            await talk.say({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "hang"}})
            with trio.fail_after(5):
                await here.server.wait_for("tools/call", 1)
        await until(lambda: len(here.server.cancelled) == 1)
        await until(lambda: here.service.calls == 0 and here.service.sessions == 0)


async def test_who_proves_nothing_gets_no_socket(tmp_path):
    async with place(tmp_path, listen=True) as here:
        port = int(here.service.addresses[0].removesuffix("/mcp").rpartition(":")[2])
        for token, origin, status in [("nonsense", None, 401), (here.texts[ALICE], "null", 403)]:
            lines = [
                "GET /ws HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {token}", "Upgrade: websocket",
                "Connection: Upgrade", "Sec-WebSocket-Version: 13",
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            ]  # fmt: skip
            lines += [] if origin is None else [f"Origin: {origin}"]
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            async with stream:
                await stream.send_all("\r\n".join([*lines, "", ""]).encode())
                heard = b""
                with trio.fail_after(5):
                    while piece := await stream.receive_some(10_000):
                        heard += piece
            assert heard.startswith(b"HTTP/1.1 %d" % status)
            assert b"nonsense" not in heard
        assert here.service.sessions == 0


async def test_garbage_on_a_socket_costs_its_sender_the_socket_and_nobody_else_anything(tmp_path):
    limits = ServeLimits(body=100_000)
    async with place(tmp_path, listen=True, serve={"limits": limits}) as here, talking(here, BOB) as other:
        await other.open()
        for said in ["{" * 10, "[]", '{"jsonrpc":"2.0"}']:
            async with talking(here) as talk:
                with pytest.raises(ConnectionClosed):
                    await talk.repeat(said)
        for said in [b"binary", "x" * 200_000]:
            async with talking(here) as talk:
                with pytest.raises(ConnectionClosed):
                    await talk.repeat(said)
        # frames that are none
        async with talking(here) as talk:
            with contextlib.suppress(ConnectionClosed):
                await talk.socket._stream.send_all(b"\xff" * 100)
                await talk.hear()
        assert (await other.rpc("tools/call", {"name": "echo"}))["result"]["content"]
        await until(lambda: here.service.sessions == 1)


async def test_only_so_many_requests_at_once_on_one_socket(tmp_path):
    limits = ServeLimits(calls_per_principal=500, calls_per_tenant=500)
    async with (
        place(tmp_path, servers={"desk": [hanging()]}, listen=True, serve={"limits": limits}) as here,
        talking(here) as talk,
    ):
        await talk.open()
        for number in range(65):
            await talk.say(
                {"jsonrpc": "2.0", "id": f"n{number}", "method": "tools/call", "params": {"name": "hang"}}
            )
        refused = await talk.hear()
        assert refused["id"] == "n64"
        assert "at once" in refused["error"]["message"]


async def test_over_tls(tmp_path):
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    pem = tmp_path / "cert.pem"
    for blob in (certificate.private_key_pem, *certificate.cert_chain_pems):
        blob.write_to_path(pem, append=True)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    async with place(tmp_path, listen=True, serve={"tls": TlsFiles(certificate=str(pem))}) as here:
        assert here.service.addresses[0].startswith("https://127.0.0.1:")
        port = int(here.service.addresses[0].removesuffix("/mcp").rpartition(":")[2])
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        tls = trio.SSLStream(stream, context, server_hostname="127.0.0.1", https_compatible=True)
        async with tls:
            await tls.send_all(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            with trio.fail_after(5):
                assert b" 200" in (await tls.receive_some(1000)).split(b"\r\n")[0]
        # who speaks no TLS is let go of
        plain = await trio.open_tcp_stream("127.0.0.1", port)
        async with plain:
            with trio.fail_after(5), contextlib.suppress(trio.BrokenResourceError):
                await plain.send_all(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                assert b"200" not in await plain.receive_some(1000)
        assert here.service.health.report()["ready"]


async def test_a_certificate_that_is_none_is_refused_before_anything_listens(tmp_path):
    pem = tmp_path / "cert.pem"
    pem.write_text("nothing")
    with pytest.raises(BadCertificate, match="cannot be used"):
        async with place(tmp_path, listen=True, serve={"tls": TlsFiles(certificate=str(pem))}):
            pass


async def test_on_a_unix_socket(tmp_path):
    path = tmp_path / "s"
    path.touch()
    with pytest.raises(CannotListen, match="something else"):
        async with place(tmp_path, listen=True, bind=f"unix:{path}"):
            pass
    path.unlink()
    async with place(tmp_path, listen=True, bind=f"unix:{path}") as here:
        assert here.service.addresses == (f"unix:{path}",)
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        stream = await trio.open_unix_socket(str(path))
        async with stream:
            await stream.send_all(b"GET /readyz HTTP/1.1\r\nHost: anything\r\n\r\n")
            with trio.fail_after(5):
                assert b" 200" in (await stream.receive_some(1000)).split(b"\r\n")[0]
        with pytest.raises(CannotListen, match="another service"):
            async with place(tmp_path, listen=True, bind=f"unix:{path}"):
                pass
    assert not path.exists()
    # one that was left over is nobody's
    sock = trio.socket.socket(trio.socket.AF_UNIX)
    await sock.bind(str(path))
    sock.close()
    async with place(tmp_path, listen=True, bind=f"unix:{path}") as here:
        assert here.service.health.report()["ready"]


async def test_an_address_that_is_taken_is_told(tmp_path):
    async with place(tmp_path, listen=True) as here:
        bind = here.service.addresses[0].removeprefix("http://").removesuffix("/mcp")
        with pytest.raises(CannotListen, match="the address is taken"):
            async with place(tmp_path, listen=True, bind=bind):
                pass

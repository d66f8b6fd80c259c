"""Redirects: 307 and 308 within the origin, three times, on every path; nothing else, nowhere else."""

from __future__ import annotations

import ssl
from typing import Any

import httpx
import pytest
import trio
import trustme

import afpool
from afpool import CredentialRequirement, HttpTransport, Plan, Server, StaticCredentials, TlsConfig
from afpool._base.seams import Seams
from afpool.testing import FakeServer, Status
from tests.pool.kit import ALICE, refused, until, world

CA = trustme.CA()
PATHS = ["initialize", "notifications/initialized", "tools/list", "tools/call", "GET", "DELETE"]


async def everything(w: Any) -> None:
    """Use every path once."""
    await (await w.tool()).call(identity=ALICE)
    await w.server.wait_for("GET")
    await trio.testing.wait_all_tasks_blocked()
    await w.pool.aclose()


@pytest.mark.parametrize("status", [307, 308])
@pytest.mark.parametrize("path", PATHS)
async def test_a_redirect_within_the_origin_is_followed_on_every_path(path, status):
    with trio.fail_after(20):
        async with world(credential=True, signer=True) as w:
            w.server.on(
                path, Status(status, {"location": "/mcp?moved"}), when=lambda seen: seen.target == "/mcp"
            )
            await everything(w)
            seen = w.server.arrivals(path)
            assert [arrival.target for arrival in seen][:2] == ["/mcp", "/mcp?moved"]
            assert all(arrival.headers["authorization"] == "Bearer token" for arrival in seen)
            assert all(arrival.headers["x-signature"] == "signed" for arrival in seen)
            assert seen[0].body.partition(b'"id"')[0] == seen[1].body.partition(b'"id"')[0]


@pytest.mark.parametrize("path", PATHS)
async def test_a_chain_of_redirects_ends(path):
    with trio.fail_after(20):
        async with world() as w:
            w.server.on(path, Status(307, {"location": "/mcp?on"}))
            if path in ("initialize", "notifications/initialized", "tools/list"):
                with pytest.raises(afpool.AfpoolError):
                    await w.tool()
            elif path == "tools/call":
                tool = await w.tool()
                await refused(tool.call(identity=ALICE), "server-refused", "refused")
            else:
                await everything(w)
            assert 1 <= len(w.server.arrivals(path)) <= 4


@pytest.mark.parametrize(
    ("status", "location"),
    [
        *((status, "/mcp?other") for status in (300, 301, 302, 303, 304, 305, 306)),
        (307, "http://127.0.0.2:1/mcp"),
        (307, "https://127.0.0.1:1/mcp"),
        (307, "//evil.example/mcp"),
        (307, "http://user@127.0.0.1/mcp"),
        (307, "/mcp\\..\\x"),
        (307, ""),
        (308, "ftp://127.0.0.1/"),
    ],
)
@pytest.mark.parametrize("path", PATHS)
async def test_what_is_never_followed(path, status, location):
    """Neither another status, nor to another origin, where the credential would go along."""
    with trio.fail_after(20):
        async with world(credential=True) as w:
            if status == 307 and location.startswith("https"):
                location = f"https://127.0.0.1:{w.server.port}/mcp"
            w.server.on(path, Status(status, {"location": location}))
            if path in ("initialize", "notifications/initialized", "tools/list"):
                with pytest.raises(afpool.AfpoolError):
                    await w.tool()
            elif path == "tools/call":
                tool = await w.tool()
                await refused(tool.call(identity=ALICE), "server-failed", "in-doubt")
            else:
                await everything(w)
            assert {arrival.target for arrival in w.server.log} == {"/mcp"}
            assert len(w.server.arrivals(path)) == 1
            assert w.server.connections_total <= 3


@pytest.mark.parametrize("path", ["initialize", "tools/call"])
async def test_http_may_become_https_on_the_same_host(path):
    """The usual ports only; everything from then on goes there, and the old connections end."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    CA.issue_cert("127.0.0.1").configure_cert(context)
    with trio.fail_after(20):
        async with (
            FakeServer.http() as plain,
            FakeServer.http(ssl_context=context) as secure,
        ):
            ports = {80: plain.port, 443: secure.port}

            async def connect(family: int, address: Any) -> Any:
                return await Seams().connect(family, (address[0], ports[address[1]]))

            # one server behind both doors
            secure.engine.sessions = plain.engine.sessions
            plain.on(path, Status(308, {"location": "https://127.0.0.1/mcp"}))
            tls = TlsConfig(ca_data=CA.cert_pem.bytes().decode())
            plan = Plan(
                transport=HttpTransport(url="http://127.0.0.1/mcp", tls=tls),
                credential=CredentialRequirement("files"),
            )
            async with afpool.open_pool(
                [Server(name="files", plan=plan)],
                seams=Seams(connect=connect),
                credentials=StaticCredentials({"files": "token"}),
            ) as pool:
                tool = (await pool.tools(ALICE))["echo"]
                await tool.call(identity=ALICE)
                await tool.call(identity=ALICE)
            assert plain.count(path) == 1
            assert secure.count("tools/call") == 2
            assert secure.count("DELETE") + len(secure.arrivals("DELETE")) >= 1
            assert secure.arrivals("tools/call")[0].headers["authorization"] == "Bearer token"
            await until(lambda: plain.connections == 0)


@pytest.mark.parametrize("way", ["our own", "httpx"])
async def test_a_unix_socket_has_no_other_scheme(way, tmp_path):
    path = str(tmp_path / "s")
    how = (
        {"uds": path} if way == "our own" else {"httpx_transport": lambda: httpx.AsyncHTTPTransport(uds=path)}
    )
    with trio.fail_after(10):
        async with FakeServer.http(uds=path) as server:
            server.on("tools/call", Status(307, {"location": "https://localhost/mcp"}))
            plan = Plan(transport=HttpTransport(url=server.url, **how))
            async with afpool.open_pool([Server(name="files", plan=plan)]) as pool:
                tool = (await pool.tools(ALICE))["echo"]
                await refused(tool.call(identity=ALICE), "server-failed", "in-doubt")
                assert server.count("tools/call") == 1

"""The example behind nginx, for real: TLS, who calls, streams, WebSocket, and headers that callers forge."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import shutil
import socket
import ssl
import subprocess

import httpx2
import pytest
import trio
import trio_websocket
import trustme
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from afpool.testing import FakeServer, FakeTool, Progress, whoami_tool
from tests.cli.cli_kit import ROOT, Running

# on trio the SDK's client leaves the generators of its streams to the collector
pytestmark = [
    pytest.mark.peer,
    pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning"),
]
DEPLOY = ROOT / "examples" / "deploy"
NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
PASSWORDS = {"alice": "a-word", "bob": "b-word"}
AROUND = """
daemon off; worker_processes 1; pid {place}/nginx.pid; error_log {place}/error.log notice; {user}
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {place}/t1; proxy_temp_path {place}/t2; fastcgi_temp_path {place}/t3;
    uwsgi_temp_path {place}/t4; scgi_temp_path {place}/t5;
    include {place}/site.conf;
}}
"""


def replaced(text, **words):
    for old, new in words.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


def hashed(password):
    return "{SSHA}" + base64.b64encode(hashlib.sha1(password.encode() + b"salt").digest() + b"salt").decode()


def put_up(place, authority, port, server_url):
    """Write the files of the example with the paths of this place."""
    certificate = authority.issue_cert("localhost")
    certificate.private_key_pem.write_to_path(str(place / "key.pem"))
    for number, blob in enumerate(certificate.cert_chain_pems):
        blob.write_to_path(str(place / "fullchain.pem"), append=number > 0)
    users = "".join(f"{name}:{hashed(word)}\n" for name, word in PASSWORDS.items())
    (place / "users").write_text(users)
    config = (DEPLOY / "afpool.toml").read_text()
    config = replaced(
        config,
        **{
            "http://127.0.0.1:9000/mcp": server_url,
            "/var/lib/afpool/artifacts.db": f"{place}/artifacts.db",
            "/run/afpool/afpool.sock": f"{place}/afpool.sock",
            "tools.example.com": "localhost",
        },
    )
    (place / "afpool.toml").write_text(config)
    site = replaced(
        (DEPLOY / "nginx-site.conf").read_text(),
        **{
            "/run/afpool/afpool.sock": f"{place}/afpool.sock",
            "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
            "server_name tools.example.com": "server_name localhost",
            "/etc/afpool/tls/": f"{place}/",
            "/etc/afpool/users": f"{place}/users",
        },
    )
    (place / "site.conf").write_text(site)
    user = "user root;" if os.geteuid() == 0 else ""
    (place / "nginx.conf").write_text(AROUND.format(place=place, user=user))


def stepping(gate):
    async def steps(arguments, arrival):
        yield Progress(1, total=2, message="half")
        await gate.wait()
        yield "done"

    return FakeTool("steps", steps)


@contextlib.asynccontextmanager
async def behind_nginx(place, gate):
    if NGINX is None:
        if os.environ.get("AFPOOL_REQUIRE_PEERS"):
            pytest.fail("nginx is not installed; `make test` as root installs it")
        pytest.skip("nginx is not installed; `make test` as root on Debian installs it")
    authority = trustme.CA()
    tools = [whoami_tool(headers=["x-tenant", "x-user"]), stepping(gate)]
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        async with FakeServer.http(era="both", tools=tools) as server:
            put_up(place, authority, port, server.url)
            with Running(place, "serve") as afpool:
                await trio.to_thread.run_sync(afpool.line, lambda line: line.startswith("serving unix:"))
                context = ssl.create_default_context()
                authority.configure_trust(context)
                nginx = await trio.to_thread.run_sync(started, place, listening)
                try:
                    yield f"https://localhost:{port}", context
                finally:
                    nginx.terminate()
                    with trio.CancelScope(shield=True):
                        await trio.to_thread.run_sync(nginx.wait, 20)


def started(place, listening):
    """Start nginx. It inherits the socket, as from an older one of its kind: whoever connects waits there."""
    command = [NGINX, "-p", place, "-c", place / "nginx.conf", "-e", place / "error.log"]
    number = listening.fileno()
    environment = {**os.environ, "NGINX": f"{number};"}
    checked = subprocess.run([*command, "-t"], capture_output=True, text=True, timeout=30, check=False)
    assert checked.returncode == 0, checked.stderr
    return subprocess.Popen(command, env=environment, pass_fds=(number,), stdin=subprocess.DEVNULL)


def basic(name, word=None):
    return "Basic " + base64.b64encode(f"{name}:{word or PASSWORDS[name]}".encode()).decode()


@contextlib.asynccontextmanager
async def connected(url, context, name, mode, **headers):
    said = {"authorization": basic(name), **headers}
    async with (
        httpx2.AsyncClient(headers=said, timeout=20, verify=context, trust_env=False) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_two_tenants_list_call_and_get_progress_through_nginx(tmp_path, mode):
    gate = trio.Event()
    async with behind_nginx(tmp_path, gate) as (url, context):
        heard = {}

        async def one(name, tenant):
            async with connected(url, context, name, mode) as client:
                assert {tool.name for tool in (await client.list_tools()).tools} == {"whoami", "steps"}
                who = await client.call_tool("whoami", {})
                assert tenant in who.content[0].text
                assert name in who.content[0].text

                async def on_progress(progress, total, message):
                    # it comes while the call goes on: nothing on the way has kept it
                    heard[name] = message
                    if len(heard) == 2:
                        gate.set()

                done = await client.call_tool("steps", {}, progress_callback=on_progress)
                assert done.content[0].text == "done"

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(one, "alice", "acme")
                nursery.start_soon(one, "bob", "globex")
        assert heard == {"alice": "half", "bob": "half"}


FORGED = {"x-tenant": "globex", "x-user": "root", "x-conversation": "theirs", "x_tenant": "globex"}


async def test_headers_that_a_caller_forges_are_overwritten(tmp_path):
    async with behind_nginx(tmp_path, trio.Event()) as (url, context):
        with trio.fail_after(60):
            async with connected(url, context, "alice", "auto", **FORGED) as client:
                text = (await client.call_tool("whoami", {})).content[0].text
        assert "acme" in text
        assert "alice" in text
        for value in ("globex", "root"):
            assert value not in text


async def test_whoever_proves_nothing_is_refused_by_nginx_and_the_probe_is_open(tmp_path):
    async with behind_nginx(tmp_path, trio.Event()) as (url, context):
        http = httpx2.AsyncClient(verify=context, trust_env=False, timeout=20)
        with trio.fail_after(60):
            async with http:
                ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
                assert (await http.post(f"{url}/mcp", json=ping, headers=FORGED)).status_code == 401
                wrong = {"authorization": basic("alice", "wrong"), **FORGED}
                assert (await http.post(f"{url}/mcp", json=ping, headers=wrong)).status_code == 401
                assert (await http.get(f"{url}/readyz")).json()["ready"] is True
                bobs = {"authorization": basic("bob")}
                assert (await http.get(f"{url}/metrics", headers=bobs)).status_code == 404


async def test_a_websocket_goes_through_nginx(tmp_path):
    async with behind_nginx(tmp_path, trio.Event()) as (url, context):
        said = [(b"authorization", basic("bob").encode()), (b"x-tenant", b"acme")]
        with trio.fail_after(60):
            async with trio_websocket.open_websocket_url(
                url.replace("https", "wss") + "/ws", context, subprotocols=["mcp"], extra_headers=said
            ) as ws:

                async def ask(number, method, params):
                    await ws.send_message(
                        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
                    )
                    while True:
                        told = json.loads(await ws.get_message())
                        if told.get("id") == number:
                            return told["result"]

                info = {"name": "test", "version": "1"}
                hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
                await ask(1, "initialize", hello)
                await ws.send_message('{"jsonrpc": "2.0", "method": "notifications/initialized"}')
                who = await ask(2, "tools/call", {"name": "whoami", "arguments": {}})
        assert "globex" in who["content"][0]["text"]

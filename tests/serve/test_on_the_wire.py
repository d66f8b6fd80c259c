"""Requests that two readers could read differently: each is refused, or read by its own head alone."""

from __future__ import annotations

import contextlib
import gzip
import json

import pytest
import trio

from afpool.config import ProxyConfig
from tests.serve.serve_kit import ALICE, BOB, STATELESS, envelope, place

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": envelope()}}
COMMON = f"mcp-protocol-version: {STATELESS}\r\nmcp-method: tools/list\r\naccept: application/json\r\n"


@contextlib.asynccontextmanager
async def wire(here):
    host, port = here.service.addresses[0].removeprefix("http://").removesuffix("/mcp").split(":")
    stream = await trio.open_tcp_stream(host, int(port))
    async with stream:
        yield stream, f"{host}:{port}"


async def everything(stream):
    said = b""
    with trio.fail_after(10):
        while piece := await stream.receive_some():
            said += piece
    return said


def head(line, host, token, *more, body=b""):
    who = "" if token is None else f"authorization: Bearer {token}\r\n"
    rest = "".join(f"{one}\r\n" for one in more)
    length = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n" if body else ""
    return f"{line}\r\nhost: {host}\r\n{who}{rest}{length}\r\n".encode() + body


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("GET /mcp/../healthz HTTP/1.1", b"404"),
        ("GET //mcp HTTP/1.1", b"404"),
        ("GET /mcp/ HTTP/1.1", b"404"),
        ("GET /mcp%00 HTTP/1.1", b"404"),
        ("GET /healthz/../mcp HTTP/1.1", b"404"),
        ("GET /healthz;/mcp HTTP/1.1", b"404"),
        ("GET /mcp#/healthz HTTP/1.1", b"404"),
        ("GET /MCP HTTP/1.1", b"404"),
        ("GET http://127.0.0.1/healthz HTTP/1.1", b"404"),
        ("GET http://evil.example/mcp HTTP/1.1", b"404"),
        ("GET /%6dcp HTTP/1.1", b"401"),  # what it says is the path, and that proves nothing
        ("HEAD /mcp HTTP/1.1", b"405"),
        ("OPTIONS /mcp HTTP/1.1", b"405"),
        ("OPTIONS * HTTP/1.1", b"405"),
        ("TRACE /mcp HTTP/1.1", b"405"),
        ("PUT /mcp HTTP/1.1", b"405"),
        ("CONNECT 127.0.0.1:1 HTTP/1.1", b"405"),
        ("POST /healthz HTTP/1.1", b"405"),
        ("GET /mcp HTTP/1.0", b"401"),
    ],
)
async def test_a_target_is_what_it_says_and_nothing_near_it(tmp_path, line, status):
    async with place(tmp_path, listen=True) as here, wire(here) as (stream, host):
        await stream.send_all(head(line, host, None, "connection: close"))
        assert (await everything(stream)).split(b"\r\n")[0].split(b" ")[1] == status


@pytest.mark.parametrize(
    "lines",
    [
        ["host: {host}", "host: {host}"],
        ["host: {host}", "host: evil.example"],
        [],
        ["host: {host}", "authorization: Bearer {alice}", "authorization: Bearer {bob}"],
        ["host: {host}", "authorization: Bearer {alice}", "mcp-session-id: a", "mcp_session_id: b"],
        ["host: {host}", "authorization: Bearer {alice}", "content-length: 5", "transfer-encoding: chunked"],
        ["host: {host}", "authorization: Bearer {alice}", "content-length: 5", "content-length: 6"],
        ["host: {host}", "authorization: Bearer {alice}", "transfer-encoding: gzip, chunked"],
        [
            "host: {host}",
            "authorization: Bearer {alice}",
            "transfer-encoding: chunked",
            "transfer-encoding: x",
        ],
        ["host: {host}", "authorization : Bearer {alice}"],
        ["host: {host}", "x: a\rhost: evil"],
    ],
)
async def test_a_head_that_could_be_read_in_two_ways_ends_its_connection(tmp_path, lines):
    async with place(tmp_path, listen=True) as here, wire(here) as (stream, host):
        said = [line.format(host=host, alice=here.texts[ALICE], bob=here.texts[BOB]) for line in lines]
        raw = "\r\n".join(["POST /mcp HTTP/1.1", *said, "content-type: application/json", "", ""]).encode()
        second = head("GET /healthz HTTP/1.1", host, None)
        await stream.send_all(raw + b"0\r\n\r\n" + second)
        answered = await everything(stream)
        assert answered.split(b" ")[1].startswith((b"4", b"5"))
        assert answered.count(b"HTTP/1.1") == 1
        assert b"alive" not in answered


async def test_requests_one_behind_the_other_are_each_of_their_own_caller(tmp_path):
    async with place(tmp_path, listen=True) as here, wire(here) as (stream, host):
        body = json.dumps(LIST).encode()
        alice = head("POST /mcp HTTP/1.1", host, here.texts[ALICE], *COMMON.strip().split("\r\n"), body=body)
        nobody = head("POST /mcp HTTP/1.1", host, None, *COMMON.strip().split("\r\n"), body=body)
        last = head("GET /healthz HTTP/1.1", host, None, "connection: close")
        await stream.send_all(alice + alice + nobody + last)
        answered = await everything(stream)
        statuses = [part.split(b" ")[0] for part in answered.split(b"HTTP/1.1 ")[1:]]
        assert statuses == [b"200", b"200", b"401"]  # and what is refused ends the connection


async def test_a_proxy_names_each_caller_anew_and_nobody_else_does(tmp_path):
    headers = {"tenant": "x-tenant", "principal": "x-principal"}
    proxy = ProxyConfig(trusted=("10.9.9.9",), headers=headers)
    async with place(tmp_path, listen=True, identity={"proxy": proxy}) as here, wire(here) as (stream, host):
        body = json.dumps(LIST).encode()
        spoofed = [*COMMON.strip().split("\r\n"), "x-tenant: globex", "x-principal: bob"]
        spoofed += ["x-forwarded-for: 10.9.9.9", "forwarded: for=10.9.9.9", "x-real-ip: 10.9.9.9"]
        await stream.send_all(head("POST /mcp HTTP/1.1", host, here.texts[ALICE], *spoofed, body=body))
        answered = await everything(stream)
        assert answered.startswith(b"HTTP/1.1 403")
        assert b"globex" not in answered


@pytest.mark.parametrize("upgrade", ["h2c", "H2C", "tls/1.0", "nonsense"])
async def test_who_offers_another_protocol_is_answered_in_this_one(tmp_path, upgrade):
    async with place(tmp_path, listen=True) as here, wire(here) as (stream, host):
        more = (
            f"upgrade: {upgrade}",
            "connection: upgrade, http2-settings, close",
            "http2-settings: AAMAAABk",
        )
        await stream.send_all(head("GET /healthz HTTP/1.1", host, None, *more))
        answered = await everything(stream)
        assert answered.startswith(b"HTTP/1.1 200")
        assert answered.endswith(b'{"alive":true}')


async def test_a_packed_body_is_not_unpacked(tmp_path):
    async with place(tmp_path, listen=True) as here, wire(here) as (stream, host):
        body = gzip.compress(b" " * 50_000_000 + json.dumps(LIST).encode())
        more = [*COMMON.strip().split("\r\n"), "content-encoding: gzip", "connection: close"]
        await stream.send_all(head("POST /mcp HTTP/1.1", host, here.texts[ALICE], *more, body=body))
        assert (await everything(stream)).startswith(b"HTTP/1.1 400")


async def test_a_body_in_very_many_pieces_costs_its_bytes(tmp_path):
    async with place(tmp_path, listen=True) as here, wire(here) as (stream, host):
        body = json.dumps(LIST).encode()
        pieces = b"".join(b"1\r\n%c\r\n" % one for one in b" " * 20_000 + body) + b"0\r\n\r\n"
        more = [*COMMON.strip().split("\r\n"), "transfer-encoding: chunked", "connection: close"]
        more.append("content-type: application/json")
        await stream.send_all(head("POST /mcp HTTP/1.1", host, here.texts[ALICE], *more) + pieces)
        answered = await everything(stream)
        assert answered.startswith(b"HTTP/1.1 200")
        assert b'"tools"' in answered

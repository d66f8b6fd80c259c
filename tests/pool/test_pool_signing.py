"""What a signer is shown is what is sent, byte for byte, on every path and in every attempt."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import json
from typing import Any
from urllib.parse import quote, unquote

import httpx
import pytest
import trio

import afpool
from afpool import HttpTransport, HttpxAuth
from afpool.testing import Status
from tests.pool.kit import ALICE, refused, start, world

KEY = b"the-shared-key-c4n4ry"
SECRET = "the-secret-access-key"


class Hmac:
    """Signs method, target, host, length and body, as webhooks and gateways do."""

    def __init__(self) -> None:
        self.shown: list[httpx.Request] = []

    def sign(self, request: httpx.Request) -> dict[str, str]:
        self.shown.append(request)
        return {
            "x-signature": self.mac(request.method, request.url.raw_path, request.headers, request.content)
        }

    @staticmethod
    def mac(method: str, target: bytes, headers: Any, body: bytes) -> str:
        said = [method, target.decode(), headers["host"], headers.get("content-length", "-")]
        said += [headers.get("mcp-session-id", "-"), headers.get("authorization", "-")]
        return hmac.new(KEY, "\n".join(said).encode() + b"\n" + body, hashlib.sha256).hexdigest()


def sigv4(method: str, url: httpx.URL, headers: dict[str, str], body: bytes, when: str) -> str:
    """AWS Signature Version 4, as its manual describes it; all given headers are signed."""
    scope = f"{when[:8]}/eu-central-1/execute-api/aws4_request"
    names = ";".join(sorted(headers))
    path = quote(quote(unquote(url.path), safe="/-_.~"), safe="/-_.~")
    query = "&".join(
        sorted(f"{quote(k, safe='-_.~')}={quote(v, safe='-_.~')}" for k, v in url.params.multi_items())
    )
    lines = "".join(f"{name}:{' '.join(headers[name].split())}\n" for name in sorted(headers))
    canonical = "\n".join([method, path, query, lines, names, hashlib.sha256(body).hexdigest()])
    to_sign = f"AWS4-HMAC-SHA256\n{when}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{SECRET}".encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    mac = hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()
    return f"AWS4-HMAC-SHA256 Credential=AKID/{scope}, SignedHeaders={names}, Signature={mac}"


class SigV4:
    def sign(self, request: httpx.Request) -> dict[str, str]:
        when = dt.datetime.now(dt.UTC).strftime("%Y%m%dT%H%M%SZ")
        signed = {**request.headers, "x-amz-date": when}
        value = sigv4(request.method, request.url, signed, request.content, when)
        return {**signed, "authorization": value}  # as botocore does: all of them come back


async def test_everything_that_is_sent_is_signed_as_it_is_sent():
    signer = Hmac()
    async with world(credential=True, pool={"signer": signer}) as w:
        tool = await w.tool()
        for number in range(3):
            await tool.call({"n": number, "text": "grüße"}, identity=ALICE, on_progress=print)
        await w.server.wait_for("GET")
        await w.pool.aclose()
        assert {"initialize", "notifications/initialized", "tools/list", "tools/call", "GET", "DELETE"} <= {
            arrival.method or arrival.http_method for arrival in w.server.log
        }
        for arrival in w.server.log:
            given = arrival.headers["x-signature"]
            assert given == Hmac.mac(
                arrival.http_method, arrival.target.encode(), arrival.headers, arrival.body
            ), arrival.method
        calls = [json.loads(shown.content) for shown in signer.shown if b"tools/call" in shown.content]
        assert [call["method"] for call in calls] == ["tools/call"] * 3
        assert len({call["id"] for call in calls}) == 3, "the id is in what is signed"
        call = next(shown for shown in signer.shown if b"tools/call" in shown.content)
        sent = w.server.arrivals("tools/call")[0]
        theirs = {name: value for name, value in sent.headers.items() if name != "x-signature"}
        assert dict(call.headers) == theirs, "not a header more or less"


async def test_the_stateless_era_is_signed_as_well():
    signer = Hmac()
    async with world(http={"era": "stateless"}, pool={"signer": signer}) as w:
        await (await w.tool()).call({"n": 1}, identity=ALICE)
        await w.server.wait_for("subscriptions/listen")
        for arrival in w.server.log:
            mac = Hmac.mac(arrival.http_method, arrival.target.encode(), arrival.headers, arrival.body)
            assert arrival.headers["x-signature"] == mac, arrival.method


@pytest.mark.parametrize("path", ["/mcp?b=2&a=1%2B1", "/m%20cp/é", "/mcp"])
async def test_sigv4(path):
    async with world(pool={"signer": SigV4()}) as w:
        base = f"http://127.0.0.1:{w.server.port}"
        w.server.path = httpx.URL(base + path).raw_path.decode().partition("?")[0]
        w.host.transport = lambda host, projection: HttpTransport(url=base + path)
        await (await w.tool()).call({"n": 1}, identity=ALICE)
        for arrival in w.server.log:
            signed = arrival.headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0]
            headers = {name: arrival.headers[name] for name in signed.split(";")}
            assert {"host", "accept", "x-amz-date"} <= set(headers)
            again = sigv4(
                arrival.http_method, httpx.URL(base + arrival.target), headers, arrival.body,
                headers["x-amz-date"],
            )  # fmt: skip
            assert again == arrival.headers["authorization"]


async def test_every_attempt_is_signed_anew_and_the_gate_is_asked_afterwards():
    class Slow(Hmac):
        hold: trio.Event | None = None

        async def sign(self, request: httpx.Request) -> dict[str, str]:  # type: ignore[override]
            if self.hold is not None:
                await self.hold.wait()
            return super().sign(request)

    signer = Slow()
    async with world(pool={"signer": signer}) as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        w.server.on("tools/call", Status(307, {"location": "/mcp?again"}), times=1)
        await tool.call(identity=ALICE)
        first, second = w.server.arrivals("tools/call")
        assert (first.target, second.target) == ("/mcp", "/mcp?again")
        assert first.headers["x-signature"] != second.headers["x-signature"]
        mac = Hmac.mac("POST", b"/mcp?again", second.headers, second.body)
        assert second.headers["x-signature"] == mac
        signer.hold = trio.Event()
        call = start(nursery, lambda: tool.call(identity=ALICE))
        await trio.testing.wait_all_tasks_blocked()
        w.host.names["alice"] = "other"
        signer.hold.set()
        await call.refusal("binding-changed")
        assert w.sent() == 2


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"x-signature": "a\r\nx-evil: c4n4ry"}, "control"),
        ({"x-signature": "c4n4ry\x00"}, "control"),
        ({"x-signature": "c4n4ry €"}, "Latin-1"),
        ({"x-signature": "c4n4ry" * 10_000}, "larger"),
        ({"x-signature": " c4n4ry"}, "blank"),
        ({"x-signature": b"c4n4ry"}, "bytes, not a string"),
        ({"x signature": "c4n4ry"}, "token"),
        ({"": "c4n4ry"}, "token"),
        ({"host": "c4n4ry.example"}, "own to say"),
        ({"Content-Length": "3"}, "own to say"),
        ({"Transfer-Encoding": "chunked"}, "own to say"),
        ({"Mcp-Session-Id": "c4n4ry"}, "own to say"),
        ({"mcp-param-user": "c4n4ry"}, "own to say"),
        ({"X-A": "1", "x-a": "2"}, "twice"),
        (None, "NoneType"),
        ("c4n4ry", "str"),
    ],
)
async def test_what_a_signer_gives_is_checked_before_anything_is_sent(given, words):
    class Signer:
        broken = False

        def sign(self, request: httpx.Request) -> Any:
            return given if self.broken else {}

    signer = Signer()
    async with world(pool={"signer": signer}) as w:
        tool = await w.tool()
        signer.broken = True
        error = await refused(tool.call(identity=ALICE), "credential-failed")
        assert words in str(error)
        assert w.sent() == 0
        chain: BaseException | None = error
        while chain is not None:
            assert "c4n4ry" not in repr(vars(chain)) + repr(chain.args) + str(chain)
            chain = chain.__cause__ or chain.__context__


async def test_a_credential_and_a_signature_replace_what_stands_below():
    class Signer:
        def sign(self, request: httpx.Request) -> dict[str, str]:
            assert request.headers.get_list("authorization") == ["Bearer token"]
            return {"Authorization": "Signed"}

    async with world(credential=True, pool={"signer": Signer()}) as w:
        w.host.transport = lambda host, projection: HttpTransport(
            url=w.server.url, headers={"Authorization": "Static"}
        )
        await (await w.tool()).call(identity=ALICE)
        assert {arrival.headers["authorization"] for arrival in w.server.log} == {"Signed"}


# ---------------------------------------------------------------------------- httpx.Auth


async def test_an_auth_that_needs_no_answer():
    async with world(pool={"signer": HttpxAuth(httpx.BasicAuth("alice", "pw"))}) as w:
        await (await w.tool()).call(identity=ALICE)
        await w.server.wait_for("GET")
        assert {arrival.headers["authorization"] for arrival in w.server.log} == {"Basic YWxpY2U6cHc="}


@pytest.mark.parametrize("when", ["initialize", "tools/call"])
async def test_an_auth_that_answers_a_challenge_gets_one_more_attempt(when):
    """Digest: the first request goes without, and a 401 holds what the next one needs."""
    auth = httpx.DigestAuth("alice", "pw")
    challenge = {"www-authenticate": 'Digest realm="r", nonce="n", qop="auth", algorithm=SHA-256'}
    async with world(pool={"signer": HttpxAuth(auth)}) as w:
        tool = None if when == "initialize" else await w.tool()
        w.server.on(when, Status(401, challenge), when=lambda arrival: "authorization" not in arrival.headers)
        tool = tool or await w.tool()
        await tool.call(identity=ALICE)
        before, after = w.server.arrivals(when)[:2]
        assert "authorization" not in before.headers
        assert after.headers["authorization"].startswith('Digest username="alice"')


async def test_a_challenge_that_comes_again_ends_the_call():
    challenge = {"www-authenticate": 'Digest realm="r", nonce="n", qop="auth", algorithm=SHA-256'}
    async with world(pool={"signer": HttpxAuth(httpx.DigestAuth("alice", "pw"))}) as w:
        tool = await w.tool()
        w.server.on("tools/call", Status(401, challenge))
        await refused(tool.call(identity=ALICE), "authorization-required", "refused")
        assert w.sent() == 2


class Fetching(httpx.Auth):
    """Asks another server for a token first."""

    broken = False

    def auth_flow(self, request: httpx.Request) -> Any:
        if self.broken:
            response = yield httpx.Request("POST", "https://login.example/token")
            request.headers["authorization"] = response.text
        yield request


class Rewriting(Fetching):
    def auth_flow(self, request: httpx.Request) -> Any:
        if self.broken:
            request = httpx.Request(request.method, request.url, headers=request.headers, content=b"other")
        yield request


@pytest.mark.parametrize(("auth", "words"), [(Fetching(), "of its own"), (Rewriting(), "body")])
async def test_an_auth_that_a_signer_cannot_serve(auth, words):
    async with world(pool={"signer": HttpxAuth(auth)}) as w:
        tool = await w.tool()
        auth.broken = True
        error = await refused(tool.call(identity=ALICE), "credential-failed")
        assert words in str(error)
        assert w.sent() == 0
        assert "login.example" not in str(error)


# ---------------------------------------------------------------------------- static headers and credentials


@pytest.mark.parametrize(
    "name",
    ["Host", "content-length", "Transfer-Encoding", "connection", "Mcp-Session-Id", "mcp-protocol-version",
     "mcp-name", "mcp-param-x", "accept", "accept-encoding", "content-type", "proxy-authorization", "te",
     "upgrade", "x y", "", "x:y", "x\n"],
)  # fmt: skip
def test_a_header_that_cannot_be_configured(name):
    with pytest.raises(ValueError, match="header"):
        HttpTransport(url="http://mcp.example/mcp", headers={name: "v"})


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "a\x00b", "a\x7f", "€", " a!", "a" * 40_000])
def test_a_value_that_cannot_be_configured(value):
    with pytest.raises(ValueError, match="header 'x-a'") as caught:
        HttpTransport(url="http://mcp.example/mcp", headers={"X-A": value})
    assert value not in str(caught.value)


@pytest.mark.parametrize("name", ["Mcp-Session-Id", "host"])
async def test_a_credential_of_a_name_that_is_not_its_own(name):
    async with world(credential=True) as w:
        tool = await w.tool()

        async def get(request: Any) -> Any:
            await trio.lowlevel.checkpoint()
            return afpool.Issued(afpool.api_key("c4n4ry", name))

        w.host.get = get  # type: ignore[method-assign]
        error = await refused(tool.call(identity=ALICE), "credential-failed")
        assert "own to say" in str(error)
        assert "c4n4ry" not in str(error)
        assert w.sent() == 0

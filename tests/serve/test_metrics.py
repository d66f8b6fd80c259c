"""`/metrics` of the service: who may read it, what it says, and that nobody reads anything else by it."""

from __future__ import annotations

import hashlib

import pytest
import trio
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_text

from afpool._base.secret import Secret
from afpool.config import MetricsConfig
from tests.serve.serve_kit import Caller, place

TOKEN = "metrics-token-of-the-operator"


def scraper(service, nursery, **headers):
    caller = Caller(service.app, None, nursery)

    def ask(method="GET", **more):
        said = {"accept": None, "content-type": None, "host": "127.0.0.1:8765", **headers, **more}
        return caller.ask(method, "/metrics", headers=said)

    return ask


def value(text: bytes, name: str, **labels: str) -> float:
    return next(
        sample.value
        for family in plain_text(text.decode())
        for sample in family.samples
        if sample.name == name and sample.labels == labels
    )


async def test_who_is_on_this_machine_reads_the_numbers(tmp_path) -> None:
    async with place(tmp_path) as here:
        client = await here.opened()
        for _ in range(3):
            await client.call("echo", {"text": "hello"})
        ask = scraper(here.service, here.nursery)
        answer = await ask()
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert answer.headers["cache-control"] == "no-store"
        assert value(answer.body, "afpool_calls_total", server="desk", outcome="ok") == 3
        assert value(answer.body, "afpool_loop_lag_seconds", stat="now") >= 0
        again = await ask(accept="application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
        assert again.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
        assert list(open_metrics(again.body.decode()))
        head = await ask("HEAD")
        assert head.status == 200
        wrong = await ask("POST")
        assert (wrong.status, wrong.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    ("peer", "headers", "status"),
    [
        ("127.0.0.1", {}, 200),
        ("127.9.9.9", {}, 200),
        ("::1", {}, 200),
        ("::ffff:127.0.0.1", {}, 200),
        ("10.0.0.1", {}, 403),
        ("::ffff:10.0.0.1", {}, 403),
        (None, {}, 403),
        ("127.0.0.1", {"x-forwarded-for": "127.0.0.1"}, 403),
        ("127.0.0.1", {"forwarded": "for=127.0.0.1"}, 403),
        ("127.0.0.1", {"x-real-ip": "127.0.0.1"}, 403),
        ("127.0.0.1", {"via": "1.1 proxy"}, 403),
        ("127.0.0.1", {"host": "rebound.example"}, 421),
        ("127.0.0.1", {"origin": "https://evil.example"}, 403),
        ("127.0.0.1", {"sec-fetch-site": "cross-site"}, 403),
        ("127.0.0.1", {"authorization": f"Bearer {TOKEN}"}, 200),
    ],
)
async def test_without_a_token_nobody_from_elsewhere(tmp_path, peer, headers, status) -> None:
    async with place(tmp_path) as here:

        async def app(scope, receive, send) -> None:
            client = None if peer is None else (peer, 1)
            await here.service.app({**scope, "client": client}, receive, send)

        caller = Caller(app, None, here.nursery)
        answer = await caller.ask(
            "GET", "/metrics", headers={"host": "127.0.0.1", "accept": None, "content-type": None, **headers}
        )
        assert answer.status == status
        assert (b"afpool_" in answer.body) is (status == 200)


@pytest.mark.parametrize("written", [TOKEN, "sha256:" + hashlib.sha256(TOKEN.encode()).hexdigest()])
async def test_with_a_token_whoever_has_it_and_nobody_else(tmp_path, written) -> None:
    metrics = MetricsConfig(token=Secret(written))
    async with place(tmp_path, serve={"metrics": metrics}) as here:
        ask = scraper(here.service, here.nursery)
        assert (await ask(authorization=f"Bearer {TOKEN}")).status == 200
        assert (await ask(authorization=f"bearer {TOKEN}", host="10.1.2.3:9")).status == 200
        said = [None, f"Bearer {TOKEN}x", "Bearer ", f"Basic {TOKEN}", TOKEN, f"Bearer {written[:-1]}"]
        if written != TOKEN:
            said.append(f"Bearer {written}")  # its digest opens nothing
        for wrong in said:
            answer = await ask(authorization=wrong)
            assert answer.status == 401
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert TOKEN.encode() not in answer.body
        # a token of a caller is none of metrics, and the one of metrics none of a caller
        assert (await ask(authorization=f"Bearer {here.texts[next(iter(here.texts))]}")).status == 401
        stranger = Caller(here.service.app, TOKEN, here.nursery)
        assert (await stranger.ask(message=stranger.request("tools/list"))).status == 401


async def test_switched_off_it_is_not_there_and_nothing_is_counted(tmp_path) -> None:
    async with place(tmp_path, serve={"metrics": MetricsConfig(enabled=False)}) as here:
        answer = await scraper(here.service, here.nursery)()
        assert answer.status == 404
        assert here.service.runtime.sinks.counted is None


async def test_it_is_answered_while_the_service_drains(tmp_path) -> None:
    async with place(tmp_path) as here:
        await here.service.drain(trio.current_time() + 1)
        assert (await scraper(here.service, here.nursery)()).status == 200


async def test_many_scrapes_at_once_take_turns_or_are_told_to_come_again(tmp_path) -> None:
    async with place(tmp_path) as here:
        ask = scraper(here.service, here.nursery)
        statuses = []

        async def one() -> None:
            statuses.append((await ask()).status)

        async with trio.open_nursery() as nursery:
            for _ in range(30):
                nursery.start_soon(one)
        assert set(statuses) == {200, 503}
        assert 1 <= statuses.count(200) <= 8 + 30
        assert (await ask()).status == 200


async def test_a_unix_socket_is_of_this_machine(tmp_path) -> None:
    bind = f"unix:{tmp_path}/s"
    async with place(tmp_path, bind=bind, listen=True):
        stream = await trio.open_unix_socket(f"{tmp_path}/s")
        async with stream:
            await stream.send_all(b"GET /metrics HTTP/1.1\r\nHost: anything\r\nConnection: close\r\n\r\n")
            body = b""
            with trio.fail_after(10):
                async for piece in stream:
                    body += piece
        assert body.startswith(b"HTTP/1.1 200")
        assert b"afpool_sessions_max" in body

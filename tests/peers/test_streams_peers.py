"""Streams against real servers: HTTP+SSE, and an answer asked for again after its connection broke."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from afpool import AfpoolError, HttpTransport, Plan, Progress, Server, open_pool
from tests.peers.pool_peer_kit import ALICE, BOB, Tunnel, only_client, proxied, until

if TYPE_CHECKING:
    from typing import Literal


def named_an_event(tunnel: Tunnel) -> bool:
    """Whether the answer to the last request through a tunnel has begun, with an event that has an id."""
    begun = tunnel.up.count(b" HTTP/1.1\r\n") == tunnel.down.count(b"HTTP/1.1 2")
    return begun and b"\nid: " in tunnel.down[tunnel.down.rfind(b"HTTP/1.1 2") :]


@pytest.mark.parametrize("streaming", ["auto", "sse"])
async def test_http_sse_opens_calls_reports_progress_and_closes(
    everything_sse_url: str, streaming: Literal["auto", "sse"]
) -> None:
    transport = HttpTransport(url=everything_sse_url, streaming=streaming)
    async with open_pool([Server(name="old", plan=Plan(transport=transport))]) as pool:
        with trio.fail_after(20):
            tools = await pool.tools(ALICE)
            client = only_client(pool)
            assert client.carries_headers
            assert client.shared_stream
            answer = await tools["echo"].call({"message": "grüße"}, identity=ALICE)
            assert "grüße" in answer.text
            told: list[Progress] = []
            await tools["trigger-long-running-operation"].call(
                {"duration": 0.3, "steps": 3}, identity=ALICE, on_progress=told.append
            )
            assert [progress.progress for progress in told] == [1, 2, 3]
            async with trio.open_nursery() as nursery:
                for number in range(8):

                    async def call(text: str = f"n{number}") -> None:
                        assert text in (await tools["echo"].call({"message": text}, identity=ALICE)).text

                    nursery.start_soon(call)
            assert (await (await pool.tools(BOB))["echo"].call({"message": "b"}, identity=BOB)).text
            assert pool.statistics().opened == 2


async def test_http_sse_a_lost_stream_is_a_lost_incarnation(everything_sse_url: str) -> None:
    transport = HttpTransport(url=everything_sse_url, streaming="sse")
    async with open_pool([Server(name="old", plan=Plan(transport=transport))]) as pool:
        with trio.fail_after(20):
            tools = await pool.tools(ALICE)
            client = only_client(pool)
            failed: list[AfpoolError] = []

            async def work() -> None:
                try:
                    await tools["trigger-long-running-operation"].call(
                        {"duration": 10, "steps": 1}, identity=ALICE
                    )
                except AfpoolError as error:
                    failed.append(error)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(work)
                await until(lambda: pool.statistics().in_flight == 1)
                await trio.sleep(0.2)
                client.channel.kill()
            assert failed[0].delivery == "in-doubt"
            assert (await tools["echo"].call({"message": "again"}, identity=ALICE)).text
            assert pool.statistics().opened == 2


async def test_an_answer_is_taken_up_again_after_its_connection_broke(everything_url: str) -> None:
    async with proxied(everything_url) as proxy:
        plan = Plan(transport=HttpTransport(url=proxy.url))
        async with open_pool([Server(name="new", plan=plan)]) as pool:
            with trio.fail_after(20):
                tools = await pool.tools(ALICE)
                answers: list[str] = []

                async def work() -> None:
                    answer = await tools["trigger-long-running-operation"].call(
                        {"duration": 0.5, "steps": 1}, identity=ALICE
                    )
                    answers.append(answer.text)

                async with trio.open_nursery() as nursery:
                    nursery.start_soon(work)
                    await until(lambda: proxy.count("tools/call") == 1)
                    (busy,) = (t for t in proxy.tunnels if b"tools/call" in t.up)
                    await until(lambda: named_an_event(busy))
                    busy.cut()
                assert "completed" in answers[0]
                assert proxy.count("tools/call") == 1
                assert any(proxy.header_values("last-event-id"))
                assert pool.statistics().opened == 1

"""Calls given up at any moment, on real servers that count what ran: no verdict lies, nothing runs twice."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

import pytest
import trio

from afpool import AfpoolError, DeadlineExceeded, HttpTransport
from tests.peers.pool_peer_kit import ALICE, TARGETS, Target, own_transport, pool_of, server_of, until

if TYPE_CHECKING:
    from tests.peers.conftest import StartHttpPeer

CALLS = 120
# In line 1 of the SDK a session ends, with all that runs in it, when a cancel notice crosses the answer.
# Over HTTP its other calls are then in doubt, and the next one opens a session; over stdio the process ends,
# and with it the count of what ran.
COUNTING = [target for target in TARGETS if target.python and target != Target("mcp1", "stdio")]


@pytest.mark.parametrize("target", COUNTING, ids=str)
@pytest.mark.parametrize("seed", [1])
async def test_what_ran_is_what_the_verdicts_say(
    start_http_peer: StartHttpPeer, target: Target, seed: int
) -> None:
    chance = random.Random(seed)
    transport = own_transport(start_http_peer, target)
    # few places, so that calls are given up while they wait for one, too
    async with pool_of(
        server_of(target, transport), max_operations=4, cancel_grace=0.2, settle_timeout=2.0
    ) as pool:
        tools = await pool.tools(ALICE)
        failures: list[AfpoolError] = []

        async def one(number: int) -> None:
            patience = chance.choice([0.0, 0.002, 0.01, 0.05, 0.2, 5.0, 5.0])
            await trio.sleep(chance.random() * 0.2)
            call = tools["append"].call
            by_deadline = chance.random() < 0.5
            with trio.CancelScope(deadline=math.inf if by_deadline else trio.current_time() + patience):
                try:
                    deadline = trio.current_time() + patience if by_deadline else None
                    await call({"text": f"{number}"}, identity=ALICE, call_id=f"{number}", deadline=deadline)
                except AfpoolError as error:
                    failures.append(error)

        async with trio.open_nursery() as nursery:
            for number in range(CALLS):
                nursery.start_soon(one, number)
        await until(lambda: pool.settling == 0 and pool.statistics().in_flight == 0)
        assert pool.statistics().actors[0].in_flight == 0
        with trio.fail_after(10):
            while True:  # what is in doubt may still arrive
                kept: list[str] = (await tools["kept"].call(identity=ALICE)).structured["result"]
                await trio.sleep(0.2)
                if kept == (await tools["kept"].call(identity=ALICE)).structured["result"]:
                    break
        verdicts = {use.call_id: use.delivery for use in pool.records.uses if use.tool == "append"}
    assert len(kept) == len(set(kept)), "a call ran twice"
    ran = set(kept)
    assert len(verdicts) == CALLS
    assert {number for number, verdict in verdicts.items() if verdict == "answered"} <= ran
    assert not {number for number, verdict in verdicts.items() if verdict == "not-sent"} & ran
    assert set(verdicts.values()) >= {"answered", "not-sent"}
    others = {error.code for error in failures if not isinstance(error, DeadlineExceeded)}
    # A session of this peer may die of a cancel notice that crosses its answer: then the calls on it end so.
    lost = {"server-failed", "session-expired", "connection-lost", "session-handle-lost"}
    assert others <= (lost if target.peer == "mcp1" else set())


async def test_a_withdrawn_call_says_whether_it_was_sent(start_http_peer: StartHttpPeer) -> None:
    url = start_http_peer("mcp1").url
    async with pool_of(server_of(Target("mcp1", "http"), HttpTransport(url=url)), max_operations=1) as pool:
        tools = await pool.tools(ALICE)
        said: dict[str, str] = {}

        async def one(call_id: str) -> None:
            with pytest.raises(AfpoolError) as caught:
                await tools["sleep"].call({"seconds": 20}, identity=ALICE, call_id=call_id)
            said[call_id] = f"{caught.value.code} {caught.value.delivery}"

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one, "sent")
            await until(lambda: any(call.begun for call in pool.running.values()))
            nursery.start_soon(one, "waiting")
            await until(lambda: pool.waiting == 1)
            assert pool.cancel("waiting")
            assert pool.cancel("sent")
        assert said == {"sent": "cancelled in-doubt", "waiting": "cancelled not-sent"}
        assert not pool.cancel("sent")

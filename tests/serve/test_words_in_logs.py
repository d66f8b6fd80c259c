"""What callers send is in no log line, at any level, of any library in the service."""

from __future__ import annotations

import json
import logging

import trio

from afpool.serve import _kernel
from afpool.testing import FakeTool, echo_tool
from tests.serve.serve_kit import STATELESS, place
from tests.serve.test_ways_in import talking

CANARY = "cAnArY-7d1e"


def message(method=CANARY, params=None, **more):
    return {"jsonrpc": "2.0", "id": CANARY, "method": method, "params": params or {CANARY: CANARY}, **more}


def messages():
    meta = {"progressToken": CANARY, CANARY: CANARY}
    yield message()
    yield message("tools/call", {"name": CANARY, "arguments": {CANARY: CANARY}, "_meta": meta})
    yield message("tools/call", {"name": "echo", "arguments": {"text": CANARY}, "_meta": meta})
    yield message("tools/call", {"name": "fails", "arguments": {"text": CANARY}, "_meta": meta})
    yield message("tools/call", {"name": [CANARY]})
    yield message("tools/list", {"cursor": CANARY})
    yield message("resources/list", {"cursor": CANARY})
    yield message("resources/read", {"uri": f"afpool://artifact/{CANARY}"})
    yield message("resources/read", {"uri": [CANARY]})
    yield message("resources/read", {"uri": f"{CANARY}://x"})
    yield message("prompts/get", {"name": CANARY})
    yield message("completion/complete", {"ref": {"type": CANARY}})
    yield message("logging/setLevel", {"level": CANARY})
    yield message("initialize", {"protocolVersion": CANARY, "clientInfo": CANARY})
    yield message("subscriptions/listen", {"notifications": CANARY})
    yield {"jsonrpc": "2.0", "method": f"notifications/{CANARY}", "params": {CANARY: CANARY}}
    yield {"jsonrpc": "2.0", "method": "notifications/initialized", "params": {"_meta": CANARY}}
    yield {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": [CANARY]}}
    yield {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": CANARY}}
    yield {"jsonrpc": "2.0", "method": CANARY, "params": [CANARY]}
    yield {"jsonrpc": "2.0", "id": "afpool-1", "result": {"action": CANARY}}
    yield {"jsonrpc": "2.0", "id": CANARY, "error": {"code": 1, "message": CANARY}}
    yield [message()]


def failing():
    async def fail(arguments, arrival):
        raise RuntimeError("the tool fails")
        yield

    return FakeTool("fails", fail)


def shown(caplog):
    told = [
        logging.Formatter().format(record)
        for record in caplog.records
        if record.name.partition(".")[0] not in ("trio-websocket", "wsproto")
    ]
    return [line for line in told if CANARY.lower() in line.lower()]


async def test_no_word_of_a_caller_is_logged(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    for name in ("mcp", "hypercorn", "starlette", "joserfc", "httpx", "httpcore", "afpool"):
        caplog.set_level(logging.DEBUG, logger=name)
    async with place(tmp_path, servers={"desk": [echo_tool(), failing()]}, listen=True) as here:
        client = here.client()
        modern = {"mcp-protocol-version": STATELESS, "mcp-session-id": None}
        await client.open()
        for each in messages():
            for headers in ({}, modern, {"mcp-session-id": CANARY}, {"x-tenant": CANARY, "x-x": CANARY}):
                await client.ask(message=each, headers=headers)
            said = (
                {**each, "params": {**(each["params"] if isinstance(each.get("params"), dict) else {})}}
                if isinstance(each, dict)
                else None
            )
            if said is not None and "method" in said:
                opened = client.modern(said["method"], said["params"], headers={"mcp-name": CANARY})
                with trio.fail_after(5):
                    await opened.ended.wait()
        for headers in (
            {"authorization": f"Bearer {CANARY}"}, {"authorization": CANARY}, {"host": CANARY},
            {"origin": f"https://{CANARY}"}, {"mcp-protocol-version": CANARY}, {"accept": CANARY},
            {"content-type": CANARY}, {"authorization": f"Bearer {CANARY}.{CANARY}.{CANARY}"},
        ):  # fmt: skip
            await client.ask(message=message(), headers=headers)
        await client.ask("GET", f"/{CANARY}")
        await client.ask(CANARY.upper())
        await client.ask(body=f'{{"{CANARY}'.encode())
        async with talking(here) as talk:
            for each in messages():
                await talk.say(each)
            await talk.rpc("ping")
        async with talking(here) as talk:
            await talk.open()
            for each in messages():
                await talk.say(each)
            await talk.rpc("ping")
        host, port = here.service.addresses[0].removeprefix("http://").removesuffix("/mcp").split(":")
        for raw in (
            f"{CANARY}\r\n\r\n",
            f"GET /{CANARY} HTTP/1.1\r\n{CANARY}\r\n\r\n",
            f"GET / HTTP/{CANARY}\r\n\r\n",
        ):
            stream = await trio.open_tcp_stream(host, int(port))
            async with stream:
                await stream.send_all(raw.encode())
                with trio.fail_after(5):
                    while await stream.receive_some():
                        pass
    assert caplog.text
    assert shown(caplog) == []


async def test_a_fault_of_ours_is_logged_by_its_kind_and_place(tmp_path, caplog, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError(CANARY)

    async with place(tmp_path) as here:
        client = await here.opened()
        monkeypatch.setattr(_kernel.Kernel, "_result", broken)
        answer = await client.ask(message=client.request("tools/list"))
        assert answer.json["error"]["code"] == -32603
        assert CANARY not in json.dumps(answer.json)
    assert "RuntimeError" in caplog.text
    assert "in broken" in caplog.text
    assert shown(caplog) == []


async def test_a_part_that_crashes_is_logged_by_its_kind_and_place(caplog, autojump_clock):
    from afpool.serve._health import Health

    async def crash():
        raise RuntimeError(CANARY)

    health = Health()
    with trio.move_on_after(1):
        await health.keep("news", crash)
    assert "'news'" in caplog.text
    assert "in crash" in caplog.text
    assert shown(caplog) == []

"""A console to try the page against: serves the page, speaks its protocol, holds a made-up world.

    python tests/browser/stand_in.py --keys 10000 --rate 1000

prints `ready http://127.0.0.1:PORT` and lives until it is killed. Tokens: `read-token`, `operate-token`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import time
from functools import partial
from typing import Any

import stand_in_answers as answers
import trio
from stand_in_answers import Refusal
from stand_in_world import World
from trio_websocket import ConnectionClosed, WebSocketConnection, WebSocketRequest, wrap_server_stream

from afpool.console.page import headers, page

TOKENS = {"read-token": "read", "operate-token": "operate"}
PROTOCOL = "afpool.console.1"
FRAME = 0.02
CHUNK = 2000
CONTROL = ("pause", "resume", "drain", "evict", "kill", "refresh", "invalidate", "cancel")


class Replayed(trio.abc.Stream):
    """A stream that first gives what was read of it already."""

    def __init__(self, head: bytes, stream: trio.SocketStream) -> None:
        self.head, self.stream = head, stream

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if self.head:
            head, self.head = self.head, b""
            return head
        return await self.stream.receive_some(max_bytes)

    async def send_all(self, data: Any) -> None:
        await self.stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self.stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self.stream.aclose()


class Session:
    """One connected page."""

    def __init__(self, world: World, ws: WebSocketConnection, level: str, nursery: trio.Nursery) -> None:
        self.world, self.ws, self.level, self.nursery = world, ws, level, nursery
        self.streams: dict[int, trio.CancelScope] = {}
        self.last = 0

    async def send(self, frame: dict[str, Any]) -> None:
        await self.ws.send_message(json.dumps(frame))

    async def hello(self) -> None:
        columns = answers.described(answers.COLUMNS)
        names = ("actors", "servers", "waiting")
        tables = [{"name": name, "help": f"All {name}.", "columns": columns} for name in names]
        commands = [
            {"words": [word], "usage": f"{word} KEY", "help": "", "level": "operate"} for word in CONTROL
        ]
        await self.send({"hello": {
            "protocol": 1, "name": "stand-in", "pid": os.getpid(), "version": "0.1.0", "level": self.level,
            "now": time.monotonic(), "unix": time.time(), "commands": commands, "tables": tables,
        }})  # fmt: skip

    async def take(self, frame: dict[str, Any]) -> None:
        if "stop" in frame:
            scope = self.streams.pop(frame["stop"], None)
            if scope is not None:
                scope.cancel()
            return
        try:
            words = frame["do"] if isinstance(frame["do"], list) else frame["do"].split()
            result = await self.run([str(word) for word in words], frame.get("with", {}))
        except Refusal as no:
            error = {"code": no.code, "message": str(no), "try": list(no.tries)}
            await self.send({"id": frame["id"], "error": error})
        else:
            await self.send({"id": frame["id"], "ok": result})

    async def run(self, words: list[str], options: dict[str, str]) -> dict[str, Any]:
        world = self.world
        match words:
            case ["watch", "overview"]:
                return self.start(self.overviews)
            case ["watch", "actors"]:
                return self.start(self.grid)
            case ["tail", *what]:
                return self.start(partial(self.tail, what[0] if what else "all", options))
            case ["show", "actor", key]:
                return answers.actor(world, key)
            case ["show", "servers"]:
                return answers.servers(world)
            case ["show", name]:
                return answers.actors(world, name, options)
            case ["why", call_id]:
                return answers.why(world, call_id)
            case ["check"]:
                return answers.check()
            case [word, target, *_] if word in CONTROL:
                return self.control(word, target)
        raise Refusal("unknown-command", f"there is no command {' '.join(words)[:60]!r}", "help")

    def control(self, word: str, target: str) -> dict[str, Any]:
        if self.level != "operate":
            raise Refusal("not-allowed", "this token may read only")
        self.world.asked.append([word, target])
        before = "paused" if target in self.world.paused else "open"
        if word == "pause":
            self.world.paused.add(target)
        elif word == "resume":
            self.world.paused.discard(target)
        after = "paused" if target in self.world.paused else "open"
        until = time.time() + 600 if word == "pause" else None
        return {
            "kind": "done",
            "what": f"{word} {target}",
            "before": {"state": before},
            "after": {"state": after},
            "until": until,
        }

    # ------------------------------------------------------------------ streams

    def start(self, run: Any) -> dict[str, Any]:
        self.last += 1
        scope = trio.CancelScope()
        self.streams[self.last] = scope
        self.nursery.start_soon(self.follow, self.last, scope, run)
        return {"kind": "stream", "stream": self.last}

    async def follow(self, number: int, scope: trio.CancelScope, run: Any) -> None:
        with scope:
            await run(number)

    async def overviews(self, number: int) -> None:
        while True:
            await self.send({"stream": number, "overview": self.world.overview()})
            await trio.sleep(1)

    async def grid(self, number: int) -> None:
        rows = [list(row) for row in self.world.actors.values()]
        with _listening(self.world) as heard:
            for start in range(0, max(1, len(rows)), CHUNK):
                await self.send(
                    {"stream": number, "actors": {"set": rows[start : start + CHUNK], "gone": []}}
                )
            async for changed, gone, _ in heard:
                await self.send({"stream": number, "actors": {"set": changed, "gone": gone}})

    async def tail(self, what: str, options: dict[str, str], number: int) -> None:
        wanted = {name: set(value.split(",")) for name, value in options.items() if name != "last"}
        kinds = {"all": ("call", "event"), "events": ("event",)}.get(what, ("call",))
        if what == "refusals":
            wanted["outcome"] = {"refused", "failed"}
        first = True
        with _listening(self.world) as heard:
            async for _, _, happened in heard:
                events = [
                    one for one in happened
                    if ("call" if one["kind"] == "call" else "event") in kinds
                    and all(one.get(name) in values for name, values in wanted.items())
                ]  # fmt: skip
                if events:
                    await self.send({"stream": number, "events": events, "dropped": 3 if first else 0})
                    first = False


_heard: list[trio.MemorySendChannel[Any]] = []


@contextlib.contextmanager
def _listening(world: World) -> Any:
    send, receive = trio.open_memory_channel[Any](1000)
    _heard.append(send)
    try:
        yield receive
    finally:
        _heard.remove(send)


async def run_world(world: World) -> None:
    """Let the world go on, a frame's time at once, and tell whoever listens."""
    before = trio.current_time()
    while True:
        await trio.sleep(FRAME)
        now = trio.current_time()
        told = world.step(now - before)
        before = now
        for channel in _heard:
            with contextlib.suppress(trio.WouldBlock):
                channel.send_nowait(told)


async def serve_ws(world: World, stream: trio.abc.Stream) -> None:
    async with trio.open_nursery() as nursery:
        request: WebSocketRequest = await wrap_server_stream(nursery, stream)
        ws = await request.accept(subprotocol=PROTOCOL)
        with contextlib.suppress(ConnectionClosed):
            token = json.loads(await ws.get_message()).get("token")
            level = TOKENS.get(token)
            if level is None:
                await ws.send_message(
                    json.dumps(
                        {"error": {"code": "not-allowed", "message": "This token opens nothing here."}}
                    )
                )
                await ws.aclose(4401, "not-allowed")
                nursery.cancel_scope.cancel()
                return
            session = Session(world, ws, level, nursery)
            await session.hello()
            while True:
                await session.take(json.loads(await ws.get_message()))
        nursery.cancel_scope.cancel()


async def serve(world: World, stream: trio.SocketStream) -> None:
    """Answer one connection: the page, or the protocol."""
    head = b""
    try:
        async with stream:
            while b"\r\n\r\n" not in head:
                got = await stream.receive_some(8192)
                if not got:
                    return
                head += got
            if b"upgrade: websocket" in head.lower():
                await serve_ws(world, Replayed(head, stream))
                return
            body = page() if head.startswith(b"GET / ") else b""
            lines = [b"HTTP/1.1 200 OK" if body else b"HTTP/1.1 404 Not Found"]
            lines += [b"%s: %s" % pair for pair in headers()] if body else []
            lines += [b"content-length: %d" % len(body), b"connection: close", b"", b""]
            await stream.send_all(b"\r\n".join(lines) + body)
    except* (trio.BrokenResourceError, ConnectionClosed):
        pass


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--keys", type=int, default=60)
    parser.add_argument("--rate", type=float, default=40)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--hostile", action="store_true")
    given = parser.parse_args()
    world = World(given.keys, given.rate, hostile=given.hostile)
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(given.port, host="127.0.0.1")
        nursery.start_soon(run_world, world)
        nursery.start_soon(partial(trio.serve_listeners, partial(serve, world), listeners))
        print(f"ready http://127.0.0.1:{listeners[0].socket.getsockname()[1]}", flush=True)
        await trio.sleep_forever()


if __name__ == "__main__":
    trio.run(main)

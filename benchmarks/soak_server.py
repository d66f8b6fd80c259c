"""One server of the soak, in a process of its own: `python soak_server.py KIND PORT LOG`.

The one on stdio is `soak_child.py`.

* What a call meets is in its arguments: `how`. So whoever asked knows what has to come of it.
* All that comes in is written to the log before anything is decided, and a run in the step in which it
  starts, each in one write: a server that is killed leaves a true log.
* It is steered by lines of JSON on its stdin, `{"do": ...}`, and ends with it.
* 401, 429 and 500 to everything is a mood, for some seconds. A refused credential is refused for good.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from afpool.testing import (
    Body,
    Drop,
    FakeServer,
    FakeTool,
    Hang,
    JsonRpcError,
    Progress,
    Status,
    Truncate,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from afpool.testing import Action, Arrival
    from afpool.testing._engine import Engine

CREDENTIAL: Final = "SOAK_CREDENTIAL"
WAIT: Final = 0.05  # what a 429 asks for, in seconds

# What a rule answers to, by the `how` of a call.
SCRIPTED: Final[Mapping[str, Action]] = {
    "drop": Drop(),
    "drop-after": Drop(after_execution=True),
    "reset": Drop(reset=True),
    "truncate": Truncate(),
    "hang": Hang(),
    "rpc-error": JsonRpcError(-32000, "no such thing"),
    "garbage": Body(b'{"jsonrpc": "2.0", "id": @request-id@, "result": '),
    "500": Status(500),
    "503-after": Status(503, after_execution=True),
    "429": Status(429, {"retry-after": str(WAIT)}),
    "429-once": Status(429, {"retry-after": "0"}),
    "401": Status(401, {"www-authenticate": "Bearer"}),
    "401-once": Status(401, {"www-authenticate": "Bearer"}),
}
ONCE: Final = ("429-once", "401-once")
ON_STREAMS: Final = ("drop", "drop-after", "truncate", "hang", "rpc-error", "garbage")
"""What has a meaning where all calls of a client share one stream."""


class Log:
    """Appends to the log, one line of JSON in one write."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def take(self, entry: Mapping[str, Any]) -> None:
        """Write down what the ledger files: arrivals and runs, with what is judged of them."""
        if "execution" in entry:
            run = entry["execution"]
            self._write({"run": run["arguments"].get("n"), "who": run["arguments"].get("who")})

    def arrived(self, arrival: Arrival) -> None:
        """Write down an arrival."""
        line = {
            "pid": os.getpid(),
            "came": arrival.name,
            "session": arrival.session_id,
            "connection": arrival.connection,
            "credential": arrival.headers.get("authorization"),
        }
        if arrival.tool is not None:
            line |= {"n": arrival.arguments.get("n"), "who": arrival.arguments.get("who")}
        self._write(line)

    def refused(self, arrival: Arrival) -> None:
        """Write down that a call was answered so that it proves that nothing ran."""
        if arrival.tool is not None:
            self._write({"refused": arrival.arguments.get("n")})

    def _write(self, line: Mapping[str, Any]) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")


def tools(version: int) -> list[FakeTool]:
    """The list of a version: one tool is always described anew, the other never."""
    return [
        FakeTool("do", act, f"Does as it is told, version {version}."),
        FakeTool("same", act, "Does as it is told, and is never described otherwise."),
    ]


async def act(arguments: Mapping[str, Any], arrival: Arrival) -> AsyncGenerator[Any, None]:
    """Do what the call says."""
    del arrival
    how, number = arguments.get("how"), arguments.get("n")
    if how == "slow":
        await trio.sleep(float(arguments.get("seconds", 0.1)))
    elif how == "error":
        yield {"content": [{"type": "text", "text": f"call {number} failed"}], "isError": True}
        return
    elif how == "raise":
        raise RuntimeError(f"call {number} raised")
    elif how == "progress":
        for step in range(1, 5):
            yield Progress(step, 4, f"call {number}")
            await trio.sleep(0.02)
    elif how == "big":
        yield "x" * int(arguments.get("size", 100_000))
        return
    yield f"call {number} of {arguments.get('who')}"


class Moods:
    """What the server answers to everything for a while, and whose credentials it refuses for good."""

    def __init__(self, server: FakeServer, log: Log) -> None:
        self._log = log
        self._until = dict.fromkeys((401, 429, 500), 0.0)
        self._refused: set[str] = set()
        self._once: set[Any] = set()
        for status in self._until:
            server.on("*", Status(status, {"retry-after": str(WAIT)}), when=self._in_mood(status))
        server.on("*", Status(401, {"www-authenticate": "Bearer"}), when=self._is_refused)
        for how, action in SCRIPTED.items():
            server.on("tools/call", action, when=self._asks_for(how))

    def begin(self, status: int, seconds: float) -> None:
        self._until[status] = trio.current_time() + seconds

    def refuse(self, credential: str) -> None:
        self._refused.add(credential)

    def _in_mood(self, status: int) -> Any:
        def applies(arrival: Arrival) -> bool:
            now = self._until[status] > trio.current_time() and arrival.http_method in {"POST", "GET"}
            if now and status != 500:
                self._log.refused(arrival)
            return now

        return applies

    def _is_refused(self, arrival: Arrival) -> bool:
        # over WebSocket it is the upgrade that is refused, and nothing later
        now = arrival.http_method != "" and arrival.headers.get("authorization") in self._refused
        if now:
            self._log.refused(arrival)
        return now

    def _asks_for(self, how: str) -> Any:
        def asks(arrival: Arrival) -> bool:
            if arrival.arguments.get("how") != how:
                return False
            if how in ONCE:
                number = arrival.arguments.get("n")
                if number in self._once:
                    return False
                self._once.add(number)
            if how.startswith("4"):
                self._log.refused(arrival)
            return True

        return asks


def watched(engine: Engine, log: Log) -> None:
    """Write everything down as it comes."""
    ledger = engine.ledger
    ledger.sink = log.take
    arrive = ledger.arrive

    def filed(*arguments: Any, **named: Any) -> Arrival:
        arrival = arrive(*arguments, **named)
        log.arrived(arrival)
        return arrival

    ledger.arrive = filed  # type: ignore[method-assign]


def made(kind: str, port: int) -> FakeServer:
    """The server of a kind."""
    if kind == "wire":
        return FakeServer.ws(tools=tools(1), port=port)
    return FakeServer.http(
        era="stateless" if kind == "open" else "handshake",
        answer="sse" if kind == "feed" else "json",
        tools=tools(1),
        port=port,
    )


async def serve(kind: str, port: int, log: Log) -> None:
    """Serve until the end of stdin."""
    server = made(kind, port)
    watched(server.engine, log)
    moods = Moods(server, log)
    async with server, trio.open_nursery() as nursery:
        print(json.dumps({"url": server.url}), flush=True)
        nursery.start_soon(forget, server)
        async with trio.lowlevel.FdStream(os.dup(0)) as stdin:
            rest = b""
            while data := await stdin.receive_some(65536):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    obey(server, moods, json.loads(line))
        nursery.cancel_scope.cancel()


async def forget(server: FakeServer) -> None:
    """What was written down need not be remembered."""
    while True:
        await trio.sleep(5)
        server.clear_log()


def obey(server: FakeServer, moods: Moods, order: dict[str, Any]) -> None:
    """Do what a line of stdin says."""
    match order:
        case {"do": "forget", "spelling": spelling}:
            server.forget_sessions(spelling)
        case {"do": "list", "version": version}:
            server.set_tools(tools(version))
        case {"do": "end-streams", "graceful": graceful}:
            server.end_streams(graceful=graceful)
        case {"do": "cut", "reset": reset}:
            server.close_connections(reset=reset)
        case {"do": "cut-idle"}:
            server.close_idle_connections()
        case {"do": "mood", "status": status, "seconds": seconds}:
            moods.begin(status, seconds)
        case {"do": "refuse", "credential": credential}:
            moods.refuse(credential)
        case _:
            raise ValueError(f"unknown order {order}")


def main() -> None:
    kind, port, path = sys.argv[1:]
    trio.run(serve, kind, int(port), Log(path))


if __name__ == "__main__":
    main()

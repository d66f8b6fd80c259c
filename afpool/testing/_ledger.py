"""What the server saw and did: arrivals, executions, cancellations.

Every claim about a client under test is read from here, never from the client. Rules:

* An arrival is filed before anything is decided about it, so that a request whose answer is scripted,
  refused or lost stands in the ledger as well.
* An execution is filed in the step in which the tool starts to run, before its first wait.
* The ledger keeps what came, credentials included. It is made for tests; do not point real users at it.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import attrs
import trio

from ._envelope import Message, RpcId, encode

Kind: TypeAlias = Literal["request", "notification", "response", "http", "invalid"]


@attrs.frozen(eq=False)
class Arrival:
    """One HTTP request or stdio message that reached the server.

    Attributes:
        number: Position in the log, from 0.
        time: Seconds on trio's clock when it had been read in full.
        connection: Number of the TCP connection, from 1; 0 on stdio.
        http_method: `POST`, `GET`, ...; empty on stdio.
        target: The request target; empty on stdio.
        headers: Lower-case names; the values of a repeated header are joined by `", "`.
        body: As it came.
        kind: `request`, `notification` or `response` by its JSON-RPC form; `http` without a body to read
            (GET, DELETE); `invalid` if no JSON-RPC message could be read.
        method: JSON-RPC method, None if there is none.
        id: JSON-RPC id.
        params: JSON-RPC parameters, empty if there are none.
        session_id: The session header.
        tool: The name in a `tools/call`.
    """

    number: int
    time: float
    connection: int
    http_method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    kind: Kind
    method: str | None
    id: RpcId
    params: Mapping[str, Any] = attrs.field(repr=False)
    session_id: str | None
    tool: str | None

    @property
    def name(self) -> str:
        """What rules and queries call it: the JSON-RPC method, else `response`, else the HTTP method."""
        return name_of(self.kind, self.method, self.http_method)

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments of a `tools/call`, else empty."""
        arguments = self.params.get("arguments")
        return arguments if isinstance(arguments, Mapping) else {}


def name_of(kind: Kind, method: str | None, http_method: str) -> str:
    """See `Arrival.name`."""
    if method is not None:
        return method
    return "response" if kind == "response" else http_method


@attrs.frozen(eq=False)
class Execution:
    """One run of a tool: it happened, whatever became of the answer."""

    tool: str
    arguments: Mapping[str, Any]
    session_id: str | None
    arrival: Arrival


def classify(message: Any) -> tuple[Kind, str | None, RpcId, Mapping[str, Any]]:
    """Kind, method, id and parameters of a decoded body."""
    if not isinstance(message, dict):
        return "invalid", None, None, {}
    rpc_id = message.get("id")
    method = message.get("method")
    params = message.get("params")
    if not isinstance(params, Mapping):
        params = {}
    if isinstance(method, str):
        return ("request" if "id" in message else "notification"), method, rpc_id, params
    if "result" in message or "error" in message:
        return "response", None, rpc_id, {}
    return "invalid", None, rpc_id, {}


class Ledger:
    """Files what happens, answers questions about it, and wakes those who wait for it."""

    def __init__(self) -> None:
        self.arrivals: list[Arrival] = []
        self.executed: list[Execution] = []
        self.executions: Counter[str] = Counter()
        self.cancelled: list[RpcId] = []
        self.client_answers: list[Message] = []
        self.violations: list[str] = []
        self.sink: Callable[[Mapping[str, Any]], None] | None = None
        self._counts: Counter[str] = Counter()
        self._number = 0
        self._waiting = trio.lowlevel.ParkingLot()

    def arrive(
        self,
        message: Any,
        body: bytes,
        *,
        connection: int = 0,
        http_method: str = "",
        target: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Arrival:
        """File what has just been read. `message` is the decoded body, None where there is none."""
        headers = headers or {}
        kind, method, rpc_id, params = classify(message)
        if message is None and http_method in {"GET", "DELETE"}:
            kind = "http"
        tool = params.get("name") if method == "tools/call" else None
        arrival = Arrival(
            number=self._number,
            time=trio.current_time(),
            connection=connection,
            http_method=http_method,
            target=target,
            headers=headers,
            body=body,
            kind=kind,
            method=method,
            id=rpc_id,
            params=params,
            session_id=headers.get("mcp-session-id"),
            tool=tool if isinstance(tool, str) else None,
        )
        self._number += 1
        self.arrivals.append(arrival)
        self._counts[arrival.name] += 1
        if self.sink is not None:
            self.sink({"arrival": arrival_to_json(arrival)})
        self._waiting.unpark_all()
        return arrival

    def execute(
        self, tool: str, arguments: Mapping[str, Any], session_id: str | None, arrival: Arrival
    ) -> None:
        """File that a tool starts to run now."""
        self.executed.append(Execution(tool, arguments, session_id, arrival))
        self.executions[tool] += 1
        if self.sink is not None:
            self.sink({"execution": {"tool": tool, "arguments": arguments, "arrival": arrival.number}})
        self._waiting.unpark_all()

    def cancel(self, rpc_id: RpcId) -> None:
        """File that the client gave a call up."""
        self.cancelled.append(rpc_id)
        if self.sink is not None:
            self.sink({"cancelled": rpc_id})
        self._waiting.unpark_all()

    def find(self, method: str | None, tool: str | None) -> list[Arrival]:
        """The arrivals of that name and tool; None matches all."""
        return [
            arrival
            for arrival in self.arrivals
            if (method is None or arrival.name == method) and (tool is None or arrival.tool == tool)
        ]

    def count(self, method: str) -> int:
        """How many arrivals of that name there were since the last `clear`."""
        return self._counts[method]

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds; it is asked again after each filing."""
        await trio.lowlevel.checkpoint()
        while not condition():
            await self._waiting.park()

    def wake(self) -> None:
        """Ask the conditions of all who wait again, after something that is not filed here."""
        self._waiting.unpark_all()

    def clear(self) -> None:
        """Forget everything filed so far. Arrivals keep counting up."""
        self.arrivals.clear()
        self.executed.clear()
        self.executions.clear()
        self.cancelled.clear()
        self.client_answers.clear()
        self.violations.clear()
        self._counts.clear()


def arrival_to_json(arrival: Arrival) -> Message:
    """The form of an arrival in a log file; a body that is no UTF-8 goes as base64."""
    entry: Message = {
        "number": arrival.number,
        "time": arrival.time,
        "connection": arrival.connection,
        "http_method": arrival.http_method,
        "target": arrival.target,
        "headers": dict(arrival.headers),
    }
    try:
        entry["body"] = arrival.body.decode()
    except UnicodeDecodeError:
        entry["body_base64"] = base64.b64encode(arrival.body).decode()
    return entry


def arrival_from_json(entry: Mapping[str, Any]) -> Arrival:
    """The inverse of `arrival_to_json`."""
    body = base64.b64decode(entry["body_base64"]) if "body_base64" in entry else entry["body"].encode()
    try:
        message = json.loads(body) if body else None
    except ValueError:
        message = None
    kind, method, rpc_id, params = classify(message)
    if message is None and entry["http_method"] in {"GET", "DELETE"}:
        kind = "http"
    tool = params.get("name") if method == "tools/call" else None
    return Arrival(
        number=entry["number"],
        time=entry["time"],
        connection=entry["connection"],
        http_method=entry["http_method"],
        target=entry["target"],
        headers=entry["headers"],
        body=body,
        kind=kind,
        method=method,
        id=rpc_id,
        params=params,
        session_id=entry["headers"].get("mcp-session-id"),
        tool=tool if isinstance(tool, str) else None,
    )


@attrs.frozen(eq=False)
class ChildLog:
    """What a server in another process has written down so far.

    Attributes:
        arrivals: As in `FakeServer.log`.
        executed: As in `FakeServer.executed`.
        cancelled: As in `FakeServer.cancelled`.
        processes: Process ids by role: `server`, and `child` where the script asked for one.
    """

    arrivals: list[Arrival]
    executed: list[Execution]
    cancelled: list[RpcId]
    processes: Mapping[str, int]


def ledger_lines(ledger: Ledger) -> Iterator[bytes]:
    """The ledger as lines of JSON, as a log file would hold it."""
    for arrival in ledger.arrivals:
        yield encode({"arrival": arrival_to_json(arrival)}) + b"\n"
    for execution in ledger.executed:
        entry = {
            "tool": execution.tool,
            "arguments": execution.arguments,
            "arrival": execution.arrival.number,
        }
        yield encode({"execution": entry}) + b"\n"
    for rpc_id in ledger.cancelled:
        yield encode({"cancelled": rpc_id}) + b"\n"


def parse_log(lines: Iterable[str]) -> ChildLog:
    """Read lines of JSON; an unfinished last line, which is still being written, is left out."""
    arrivals: list[Arrival] = []
    executed: list[Execution] = []
    cancelled: list[RpcId] = []
    processes: dict[str, int] = {}
    by_number: dict[int, Arrival] = {}
    for line in lines:
        if not line.endswith("\n"):
            break
        entry = json.loads(line)
        if "arrival" in entry:
            arrival = arrival_from_json(entry["arrival"])
            arrivals.append(arrival)
            by_number[arrival.number] = arrival
        elif "execution" in entry:
            run = entry["execution"]
            arrival = by_number[run["arrival"]]
            executed.append(Execution(run["tool"], run["arguments"], arrival.session_id, arrival))
        elif "cancelled" in entry:
            cancelled.append(entry["cancelled"])
        elif "process" in entry:
            processes[entry["process"]["role"]] = entry["process"]["pid"]
    return ChildLog(arrivals, executed, cancelled, processes)


def read_log_file(path: str | Path) -> ChildLog:
    """Read a log file; one that does not exist yet is empty."""
    try:
        with Path(path).open(encoding="utf-8", newline="\n") as lines:
            return parse_log(lines)
    except FileNotFoundError:
        return ChildLog([], [], [], {})

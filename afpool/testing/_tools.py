"""Tools to serve: `FakeTool` and a handful of ready ones."""

from __future__ import annotations

import inspect
import itertools
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs
import trio

from ._envelope import Message
from ._ledger import Arrival

Outcome: TypeAlias = str | Message


@attrs.frozen
class Progress:
    """Yielded by an asynchronous generator: one progress notification of the call.

    It is sent if the caller gave a progress token, and left out otherwise.
    """

    progress: float
    total: float | None = None
    message: str | None = None


@attrs.frozen
class Notice:
    """Yielded by an asynchronous generator: any notification, on the stream of the call."""

    method: str
    params: Mapping[str, Any] | None = None


@attrs.frozen
class Ask:
    """Yielded by an asynchronous generator: a request to the client, on the stream of the call.

    The `yield` returns the client's JSON-RPC response. Handshake era only.
    """

    method: str
    params: Mapping[str, Any] | None = None


Yielded: TypeAlias = Progress | Notice | Ask | Outcome
Handler: TypeAlias = Callable[
    [Mapping[str, Any], Arrival], Outcome | Awaitable[Outcome] | AsyncGenerator[Yielded, Any]
]


def text_result(text: str, *, is_error: bool = False) -> Message:
    """A tool result of one text block."""
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


def _echo(arguments: Mapping[str, Any], arrival: Arrival) -> str:
    del arrival
    return json.dumps(arguments, ensure_ascii=False)


class FakeTool:
    """One tool of a server.

    Args:
        name: As listed and called.
        handler: Called with the arguments and the arrival. It returns a text or a whole result object, or
            an awaitable of one, or is an asynchronous generator that yields `Progress`, `Notice`, `Ask`
            and, last, its outcome. Without a handler the tool answers its arguments as JSON text. An
            exception becomes a result with `isError`.
        description: As listed.
        input_schema: As listed; an object without further rules by default. It is never enforced.
        delay: Seconds to wait before the handler is called. The execution counts from before the wait.
        cancellable: False makes the tool run to its end whatever the client withdraws, as many do.
        **members: Further members of the listed object, such as `title` or `outputSchema`.
    """

    __slots__ = ("cancellable", "delay", "handler", "input_schema", "listed", "name")

    def __init__(
        self,
        name: str,
        handler: Handler | None = None,
        description: str = "",
        input_schema: Mapping[str, Any] | None = None,
        delay: float = 0.0,
        *,
        cancellable: bool = True,
        **members: Any,
    ) -> None:
        self.name = name
        self.handler: Handler = _echo if handler is None else handler
        self.delay = delay
        self.cancellable = cancellable
        self.input_schema: Mapping[str, Any] = {"type": "object"} if input_schema is None else input_schema
        self.listed: Message = {
            "name": name,
            "description": description,
            "inputSchema": self.input_schema,
            **members,
        }

    def __repr__(self) -> str:
        return f"FakeTool({self.name!r})"

    async def run(
        self,
        arguments: Mapping[str, Any],
        arrival: Arrival,
        say: Callable[[Progress | Notice | Ask], Awaitable[Any]],
    ) -> Message:
        """Run the handler; no checkpoint if neither it nor `delay` has one.

        Args:
            arguments: Of the call.
            arrival: The call as it came.
            say: Takes what a generator yields on the way.
        """
        if self.delay > 0:
            await trio.sleep(self.delay)
        try:
            outcome = self.handler(arguments, arrival)
            if isinstance(outcome, AsyncGenerator):
                value = await _drive(outcome, say)
            elif inspect.isawaitable(outcome):
                value = await outcome
            else:
                value = outcome
        except Exception as error:  # noqa: BLE001 - a server answers for its tools, whatever they raise
            return text_result(f"{type(error).__name__}: {error}", is_error=True)
        return text_result(value) if isinstance(value, str) else value


async def _drive(
    generator: AsyncGenerator[Yielded, Any],
    say: Callable[[Progress | Notice | Ask], Awaitable[Any]],
) -> Outcome:
    outcome: Outcome = ""
    reply: Any = None
    try:
        while True:
            item = await generator.asend(reply)
            reply = None
            if isinstance(item, (Progress, Notice, Ask)):
                reply = await say(item)
            else:
                outcome = item
    except StopAsyncIteration:
        return outcome
    finally:
        await generator.aclose()


def echo_tool(name: str = "echo", **members: Any) -> FakeTool:
    """Answers its arguments as JSON text."""
    return FakeTool(name, description="Answers its arguments.", **members)


def sleep_tool(name: str = "sleep", **members: Any) -> FakeTool:
    """Waits for `seconds` on trio's clock, then answers."""

    async def handler(arguments: Mapping[str, Any], arrival: Arrival) -> str:
        del arrival
        seconds = float(arguments.get("seconds", 0))
        await trio.sleep(seconds)
        return f"slept {seconds:g}"

    schema = {"type": "object", "properties": {"seconds": {"type": "number"}}}
    return FakeTool(name, handler, "Waits, then answers.", schema, **members)


def counter_tool(name: str = "counter", **members: Any) -> FakeTool:
    """Answers how often it has run: 1, 2, and so on."""
    numbers = itertools.count(1)

    def handler(arguments: Mapping[str, Any], arrival: Arrival) -> str:
        del arguments, arrival
        return str(next(numbers))

    return FakeTool(name, handler, "Counts its runs.", **members)


def whoami_tool(
    name: str = "whoami", headers: Sequence[str] = ("authorization", "mcp-session-id"), **members: Any
) -> FakeTool:
    """Answers, as JSON text, the session id, the connection number and the `headers` that are named."""

    def handler(arguments: Mapping[str, Any], arrival: Arrival) -> str:
        del arguments
        seen = {wanted: arrival.headers[wanted] for wanted in headers if wanted in arrival.headers}
        return json.dumps({"session": arrival.session_id, "connection": arrival.connection, "headers": seen})

    return FakeTool(name, handler, "Says who is calling.", **members)


def fail_tool(name: str = "fail", **members: Any) -> FakeTool:
    """Answers a result with `isError`."""

    def handler(arguments: Mapping[str, Any], arrival: Arrival) -> Message:
        del arrival
        return text_result(str(arguments.get("message", "it failed")), is_error=True)

    return FakeTool(name, handler, "Fails.", **members)


def progress_tool(name: str = "progress", **members: Any) -> FakeTool:
    """Reports `steps` (3 by default) steps of progress, one each `seconds` (0 by default), then answers."""

    async def handler(arguments: Mapping[str, Any], arrival: Arrival) -> AsyncGenerator[Yielded, Any]:
        del arrival
        steps = int(arguments.get("steps", 3))
        for step in range(1, steps + 1):
            await trio.sleep(float(arguments.get("seconds", 0)))
            yield Progress(step, steps, f"step {step}")
        yield f"did {steps} steps"

    return FakeTool(name, handler, "Reports progress.", **members)


def big_tool(name: str = "big", **members: Any) -> FakeTool:
    """Answers a text of `size` bytes."""

    def handler(arguments: Mapping[str, Any], arrival: Arrival) -> str:
        del arrival
        return "x" * int(arguments.get("size", 1 << 20))

    return FakeTool(name, handler, "Answers a large text.", **members)

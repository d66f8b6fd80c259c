"""What the tests of the door share: a door, what it records, and tools to send through it."""

from __future__ import annotations

import json
from typing import Any

import attrs
import trio

from afpool import AfpoolError, Identity, Seams, Tool, ToolContext, ToolResult, Use
from afpool.tools import define_tool
from afpool.tools._asking import Asking
from afpool.tools._dispatch import Door

ALICE = Identity(tenant="acme", principal="alice")
SECRET = "s3cr3t-t0ken-value"


class Events(list[Any]):
    """A sink that keeps what it is told."""

    def __call__(self, event: Any) -> None:
        self.append(event)

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self]

    def of(self, kind: str) -> dict[str, Any]:
        """The payload of the only event of a kind."""
        (event,) = [event for event in self if event.kind == kind]
        return event.payload

    @property
    def text(self) -> str:
        """Everything that was recorded, as text."""
        return json.dumps([[event.kind, repr(event), event.payload] for event in self], ensure_ascii=False)


@attrs.define(eq=False)
class Through:
    """A door, and what went through it."""

    door: Door
    events: Events
    uses: list[Use]

    async def __call__(self, tool: Tool | None, args: Any = None, **asking: Any) -> ToolResult:
        """Dispatch one call, bounded."""
        name = asking.pop("name", None) or ("missing" if tool is None else tool.name)
        asking.setdefault("identity", ALICE)
        with trio.fail_after(100):
            return await self.door.dispatch(Asking(name=name, tool=tool, args=args, **asking))


def door(**options: Any) -> Through:
    events = Events()
    uses: list[Use] = []
    options.setdefault("on_event", events)
    options.setdefault("file", uses.append)
    return Through(Door(seams=options.pop("seams", None) or Seams(), **options), events, uses)


class Ran:
    """A tool of the host's own that keeps what it was called with."""

    def __init__(self, answer: Any = "done", **declared: Any) -> None:
        self.calls: list[tuple[Any, ToolContext]] = []
        self.answer = answer
        declared.setdefault("name", "work")
        declared.setdefault("input_schema", {"type": "object"})
        self.tool = define_tool(execute=self._run, **declared)

    async def _run(self, args: Any, ctx: ToolContext) -> Any:
        self.calls.append((args, ctx))
        await trio.lowlevel.checkpoint()
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer(args, ctx) if callable(self.answer) else self.answer

    @property
    def args(self) -> Any:
        (call,) = self.calls
        return call[0]

    @property
    def ctx(self) -> ToolContext:
        (call,) = self.calls
        return call[1]


def refused(result: ToolResult, code: str, delivery: str = "not-sent") -> AfpoolError:
    """The result must be this refusal; gives the error behind it."""
    assert (result.code, result.delivery, result.is_error) == (code, delivery, True), result.text
    assert result.error is not None
    assert result.error.call_id == result.call_id
    assert result.text == result.error.message
    return result.error

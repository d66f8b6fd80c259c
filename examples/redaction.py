"""What a record may hold of a call's arguments, for tools of a server and for one's own.

    python examples/redaction.py

The tools run with the real values. What is recorded of the call, what a refusal says and what a traceback
shows goes by the policy: whole arguments by name or pattern, members inside of them by path, or names at any
depth.
"""

from __future__ import annotations

import json
import traceback
from typing import TYPE_CHECKING, Any

import trio

from afpool import HttpTransport, Identity, Plan, Server, ServerRules, define_tool, open_runtime
from afpool.testing import FakeServer, FakeTool
from afpool.tools import RedactionPolicy, changed_arg_keys, redacted, shown_args_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from afpool.tools import ToolEvent

ANN = Identity(tenant="acme", principal="ann")
CARD = "4111 1111 1111 1111"
PIN = "7302-9948"


def book(arguments: Mapping[str, Any], _: object) -> str:
    """Answer for a server that is somebody else's: it gets everything."""
    return f"booked {arguments['city']}, paid with a card that ends in {arguments['card']['number'][-4:]}"


BOOK = FakeTool(
    "book",
    book,
    inputSchema={
        "type": "object",
        "properties": {"city": {"type": "string"}, "card": {"type": "object"}, "door_secret": {}},
        "required": ["city", "card"],
    },
)
POLICY = RedactionPolicy(patterns=["secret$"], fields={"card": ["number", "owner.birthday"]})


def open_door(door: str, pin: str) -> str:
    """Open a door, which fails."""
    if pin != door:
        raise PermissionError("the lock did not open")
    return "open"


# one of the host's own: by name, at any depth
OPEN_DOOR = redacted(define_tool(open_door), RedactionPolicy(keys=["pin"], deep=True))


async def main() -> None:
    """Call with secrets, and look at what was written down."""
    events: list[ToolEvent] = []
    args = {"city": "Ulm", "card": {"number": CARD, "month": 3}, "door_secret": {"pin": PIN}}
    async with (
        FakeServer.http(tools=[BOOK]) as server,
        open_runtime(
            servers=[Server(name="hotel", plan=Plan(transport=HttpTransport(url=server.url)))],
            tools=[OPEN_DOOR],
            rules={"hotel": ServerRules(redact=POLICY)},
            on_event=events.append,
        ) as runtime,
    ):
        toolset = await runtime.toolset(ANN)
        print("the model reads:", (await toolset.call("book", args)).text)
        print("the server got all of it:", server.executed[0].arguments == args)

        wrong = await toolset.call("book", {**args, "city": 7})
        print("a refusal says:", wrong.text.splitlines()[1])

        failed = await toolset.call("open_door", {"door": "12", "pin": PIN})
        assert failed.error is not None
        shown = "".join(
            traceback.TracebackException.from_exception(failed.error, capture_locals=True).format()
        )
        print("a failure says:", failed.text, "- the PIN in its traceback:", PIN in shown)

        tool = toolset["book"]
        print(
            "by hand:",
            shown_args_of(tool, {"city": "Ulm"}),
            changed_arg_keys(args, shown_args_of(tool, args)),
        )

    print("recorded:", next(event.payload["args"] for event in events if event.kind == "tool_start"))
    recorded = json.dumps([event.payload for event in events])
    print("secrets on the record:", sum(secret in recorded for secret in (CARD, PIN)))


if __name__ == "__main__":
    trio.run(main)

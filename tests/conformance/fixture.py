"""The server that stands behind `afpool serve` when its own conformance is measured.

    python tests/conformance/fixture.py handshake | stateless | both

It offers what the suite's server scenarios ask for by name, prints `ready URL`, and ends with its stdin. A
tool that asks its client asks in the way of the era that the call came in: by a request, or by a result that
needs input.
"""

from __future__ import annotations

import base64
import json
import os
import struct
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from afpool.testing import (
    Ask,
    FakeServer,
    FakeTool,
    JsonRpcError,
    Notice,
    Progress,
    input_required,
    text_result,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from afpool.testing import Arrival

STATELESS: Final = "2026-07-28"
MISSING: Final = "test_missing_capability"
MISSING_CAPABILITY: Final = -32021
PAUSE: Final = 0.02  # seconds between two steps of a tool that is watched
Object = dict[str, Any]


def chunk(kind: bytes, data: bytes) -> bytes:
    """One chunk of a PNG."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


PNG: Final = base64.b64encode(
    b"\x89PNG\r\n\x1a\n"
    + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    + chunk(b"IDAT", zlib.compress(b"\x00\xff\x00\x00"))
    + chunk(b"IEND", b"")
).decode()
WAV: Final = base64.b64encode(
    struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 38, b"WAVE", b"fmt ", 16, 1, 1, 8000, 16000, 2, 16, b"data", 2)
    + b"\0\0"
).decode()

TEXT: Final = {"type": "text", "text": "Multiple content types test:"}
IMAGE: Final = {"type": "image", "data": PNG, "mimeType": "image/png"}
AUDIO: Final = {"type": "audio", "data": WAV, "mimeType": "audio/wav"}


def resource(uri: str, mime: str, text: str) -> Object:
    """A resource inside of a result."""
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime, "text": text}}


def constant(name: str, *content: Object, is_error: bool = False) -> FakeTool:
    """A tool that always answers the same."""
    result = {"content": list(content), "isError": is_error}
    return FakeTool(name, lambda _args, _arrival: result, f"Answers {len(content)} parts.")


# ---------------------------------------------------------------------- asking


def form(message: str, properties: Object, required: list[str] | None = None) -> Object:
    """A question with a form."""
    schema: Object = {"type": "object", "properties": properties}
    if required is not None:
        schema["required"] = required
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


SAMPLE: Final = {
    "method": "sampling/createMessage",
    "params": {
        "messages": [{"role": "user", "content": {"type": "text", "text": "What is the capital of France?"}}],
        "maxTokens": 100,
    },
}
ROOTS: Final = {"method": "roots/list", "params": {}}


def is_stateless(arrival: Arrival) -> bool:
    """Whether a call came in the era without sessions."""
    return arrival.headers.get("mcp-protocol-version") == STATELESS


def asking(
    name: str,
    rounds: Callable[[Mapping[str, Any]], list[dict[str, Object]]],
    answer: Callable[[list[Object]], str],
    schema: Object | None = None,
    *,
    state: bool = False,
) -> FakeTool:
    """A tool that asks in rounds and answers from what it was told.

    Args:
        name: Of the tool.
        rounds: Makes, of the arguments, the requests of each round by their keys.
        answer: Makes the text, of what was told in each round, by keys.
        schema: Of its arguments.
        state: Whether its results carry a state although one round needs none.
    """

    async def run(arguments: Mapping[str, Any], arrival: Arrival) -> AsyncGenerator[Any, Any]:
        asked = rounds(arguments)
        if is_stateless(arrival):
            told = json.loads(arrival.params.get("requestState") or "[]")
            said = arrival.params.get("inputResponses")
            if isinstance(said, dict) and asked[len(told)].keys() <= said.keys():
                told.append(said)
            if len(told) < len(asked):
                carried = json.dumps(told) if state or len(asked) > 1 else None
                yield input_required(asked[len(told)], carried)
                return
            yield answer(told)
            return
        told = []
        for requests in asked:
            said = {}
            for key, request in requests.items():
                reply = yield Ask(request["method"], request["params"])
                if "result" not in reply:
                    yield text_result(f"the client cannot be asked: {reply.get('error')}", is_error=True)
                    return
                said[key] = reply["result"]
            told.append(said)
        yield answer(told)

    return FakeTool(name, run, "Asks its client, then answers.", schema)


def completed(told: list[Object]) -> str:
    """What the tools with one form answer."""
    (said,) = told[0].values()
    return f"Elicitation completed: action={said['action']}, content={json.dumps(said.get('content'))}"


def one(key: str, request: Object) -> Callable[[Mapping[str, Any]], list[dict[str, Object]]]:
    """One round of one question."""
    return lambda _arguments: [{key: request}]


USER: Final = {
    "username": {"type": "string", "description": "User's response"},
    "email": {"type": "string", "description": "User's email address"},
}
DEFAULTS: Final = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}


def options(key: str, word: str) -> list[Object]:
    """Three choices with titles."""
    return [
        {key: f"value{number}", "title": f"{nth} {word}"}
        for number, nth in enumerate(("First", "Second", "Third"), 1)
    ]


THREE: Final = ["option1", "option2", "option3"]
ENUMS: Final = {
    "untitledSingle": {"type": "string", "enum": THREE},
    "titledSingle": {"type": "string", "oneOf": options("const", "Option")},
    "legacyEnum": {
        "type": "string", "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": THREE}},
    "titledMulti": {"type": "array", "items": {"anyOf": options("const", "Choice")}},
}  # fmt: skip

NAME: Final = form("What is your name?", {"name": {"type": "string"}}, ["name"])
CONFIRM: Final = form("Please confirm", {"ok": {"type": "boolean"}}, ["ok"])
STEPS: Final = [
    {"step1": form("Step 1: What is your name?", {"name": {"type": "string"}}, ["name"])},
    {"step2": form("Step 2: What is your favorite color?", {"color": {"type": "string"}}, ["color"])},
]


def strings(*names: str) -> Object:
    """The schema of arguments that are strings and required."""
    return {
        "type": "object",
        "properties": {name: {"type": "string"} for name in names},
        "required": list(names),
    }


def asking_tools() -> list[FakeTool]:
    """The tools that ask."""
    elicit = asking(
        "test_elicitation",
        lambda args: [{"user": form(str(args.get("message")), USER, ["username", "email"])}],
        lambda told: f"User response: {json.dumps(told[0]['user'])}",
        strings("message"),
    )
    sample = asking(
        "test_sampling",
        lambda _args: [{"reply": SAMPLE}],
        lambda told: f"LLM response: {told[0]['reply']['content'].get('text')}",
        strings("prompt"),
    )
    several = {"user_name": NAME, "greeting": SAMPLE, "client_roots": ROOTS}
    prefix = "test_input_required_result"
    return [
        elicit,
        sample,
        asking("test_elicitation_sep1034_defaults", one("form", form("All kinds", DEFAULTS)), completed),
        asking("test_elicitation_sep1330_enums", one("form", form("All choices", ENUMS)), completed),
        asking(
            f"{prefix}_elicitation",
            one("user_name", NAME),
            lambda told: f"Hello, {told[0]['user_name']['content']['name']}!",
        ),
        asking(f"{prefix}_sampling", one("capital_question", SAMPLE), json.dumps),
        asking(f"{prefix}_list_roots", one("client_roots", ROOTS), json.dumps),
        asking(f"{prefix}_request_state", one("confirm", CONFIRM), lambda _told: "state-ok", state=True),
        asking(f"{prefix}_tampered_state", one("confirm", CONFIRM), lambda _told: "state-ok", state=True),
        asking(f"{prefix}_multiple_inputs", lambda _args: [several], json.dumps, state=True),
        asking(f"{prefix}_multi_round", lambda _args: STEPS, json.dumps),
        asking(f"{prefix}_capabilities", one("capital_question", SAMPLE), json.dumps),
        asking("test_streaming_elicitation", one("user_name", NAME), json.dumps),
    ]


# ---------------------------------------------------------------------- the others


async def with_progress(_arguments: Mapping[str, Any], _arrival: Arrival) -> AsyncGenerator[Any, Any]:
    """Three steps."""
    for step in (0, 50, 100):
        yield Progress(step, 100)
        await trio.sleep(PAUSE)
    yield "done, with progress"


async def with_logging(_arguments: Mapping[str, Any], _arrival: Arrival) -> AsyncGenerator[Any, Any]:
    """Three messages."""
    for said in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        yield Notice("notifications/message", {"level": "info", "data": said})
        await trio.sleep(PAUSE)
    yield "done, with messages"


async def slowly(_arguments: Mapping[str, Any], _arrival: Arrival) -> str:
    """Answer after a while."""
    await trio.sleep(PAUSE)
    return "Reconnection test completed"


SCHEMA_2020: Final = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
MIRRORED: Final = {
    "type": "object",
    "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
    "required": ["region"],
}


def tools() -> list[FakeTool]:
    """All tools that the suite knows by name."""
    return [
        constant("test_simple_text", {"type": "text", "text": "This is a simple text response for testing."}),
        constant("test_image_content", IMAGE),
        constant("test_audio_content", AUDIO),
        constant(
            "test_embedded_resource",
            resource("test://embedded-resource", "text/plain", "This is an embedded resource content."),
        ),
        constant(
            "test_multiple_content_types",
            TEXT,
            IMAGE,
            resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
        ),
        constant(
            "test_error_handling",
            {"type": "text", "text": "This tool intentionally returns an error for testing"},
            is_error=True,
        ),
        FakeTool("test_tool_with_progress", with_progress, "Reports progress."),
        FakeTool("test_tool_with_logging", with_logging, "Writes to the log."),
        FakeTool("test_logging_tool", with_logging, "Writes to the log."),
        FakeTool(MISSING, None, "Wants a client that samples."),
        FakeTool("test_reconnection", slowly, "Answers after a while."),
        FakeTool("json_schema_2020_12_tool", None, "Has a schema of 2020-12.", SCHEMA_2020),
        FakeTool("test_x_mcp_header", None, "Has an argument that is a header, too.", MIRRORED),
        *asking_tools(),
    ]


def changing(server: FakeServer) -> FakeTool:
    """A tool that changes the list that it stands in."""
    offered = tools()
    extra = FakeTool("test_extra", None, "There for a while.")

    def change(_arguments: Mapping[str, Any], _arrival: Arrival) -> str:
        there = any(tool is extra for tool in server.engine.tools)
        server.set_tools([*offered, tool] if there else [*offered, tool, extra])
        return "changed"

    tool = FakeTool("test_trigger_tool_change", change, "Changes the list of tools.")
    return tool


async def main() -> None:
    """Serve until stdin closes."""
    async with FakeServer.http(era=sys.argv[1], tools=[]) as server:  # type: ignore[arg-type]  # as it is run
        server.set_tools([*tools(), changing(server)], notify=False)
        wanted = {"requiredCapabilities": {"sampling": {}}}
        server.on("tools/call", JsonRpcError(MISSING_CAPABILITY, "no", wanted, status=400), tool=MISSING)
        print(f"ready {server.url}", flush=True)
        while await trio.to_thread.run_sync(os.read, 0, 4096, abandon_on_cancel=True):
            pass


if __name__ == "__main__":
    trio.run(main)

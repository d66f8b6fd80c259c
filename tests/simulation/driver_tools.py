"""The tools of simulated servers: each run is filed, and each answer says whose it was.

A tool's text is a JSON object with the mark that the call's arguments held, and whom the request named. So
an answer that went astray is seen by its text.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from afpool.testing import Ask, FakeTool, Notice, Progress, input_required, text_result
from tests.simulation.door_vault import play_vault, vault_schema
from tests.simulation.faulty_rules import question
from tests.simulation.ground import Ground, Ran, Stopped
from tests.simulation.ground_door import base_call
from tests.simulation.oracle_wire import CALL_ID

if TYPE_CHECKING:
    from afpool.testing import Arrival
    from tests.simulation.world import ToolSpec

STATELESS: Final = "io.modelcontextprotocol/protocolVersion"


@attrs.define(eq=False)
class Runs:
    """Files runs of one place's tools.

    Attributes:
        ground: Where they are filed.
        server: The server, and `place` which of its places.
        whose: The key that an arrival names.
    """

    ground: Ground
    server: str
    place: str
    whose: Callable[[Arrival], str | None]

    def begin(self, tool: str, arguments: Mapping[str, Any], arrival: Arrival) -> Ran:
        """A tool starts to run now."""
        meta = arrival.params.get("_meta")
        call = meta.get(CALL_ID) if isinstance(meta, Mapping) else None
        mark = arguments.get("mark")
        return self.ground.file(
            Ran(
                server=self.server,
                place=self.place,
                tool=tool,
                call=base_call(call) if isinstance(call, str) else None,
                key=self.whose(arrival),
                mark=mark if isinstance(mark, str) else None,
                args=dict(arguments),
            )
        )

    def end(self, ran: Ran, *, done: bool) -> None:
        """It has ended, or was cut short."""
        self.ground.file(Stopped(ran=ran.seq, done=done))


def listed_tool(
    spec: ToolSpec, runs: Runs, *, revision: int = 0, scope: int = 0, strange: bool = False
) -> FakeTool:
    """A tool as it is listed.

    Args:
        spec: What the world says of it.
        runs: Files its runs.
        revision: Counts its definitions.
        scope: Is in its `_meta`, where there is one.
        strange: Nobody can read its definition.
    """
    members: dict[str, Any] = {}
    if scope:
        members["_meta"] = {"request": scope}
    if spec.kind == "badschema":
        members["outputSchema"] = {"type": "object", "properties": {"n": {"type": "no such type"}}}
    if spec.kind == "wordy":
        members["title"] = f"many words {revision} " * 6000
    if spec.kind == "structured":
        members["outputSchema"] = {
            "type": "object",
            "properties": {"n": {"type": "integer"}, "mark": {"type": "string"}},
            "required": ["n"],
        }
    if strange or spec.kind == "strange":
        members["annotations"] = {"weight": float("nan")}
    properties: dict[str, Any] = {"mark": {"type": "string"}, "region": {"type": "string"}}
    if revision % 2:
        properties["region"]["x-mcp-header"] = (
            "Region"  # stateless HTTP: a call by an older list is a mismatch
        )
    schema: Any = {"type": "object", "properties": properties}
    if spec.kind == "vault":
        schema = json.loads(spec.schema) if spec.schema else vault_schema()
    return FakeTool(
        spec.name,
        _handler(spec, runs),
        f"{spec.name}, definition {revision}",
        schema,
        cancellable=spec.kind != "big",
        **members,
    )


def _handler(spec: ToolSpec, runs: Runs) -> Callable[[Mapping[str, Any], Arrival], AsyncGenerator[Any, Any]]:
    play = _PLAYS.get(spec.kind, _plain)

    async def handler(arguments: Mapping[str, Any], arrival: Arrival) -> AsyncGenerator[Any, Any]:
        ran = runs.begin(spec.name, arguments, arrival)
        said = {"mark": ran.mark, "who": ran.key, "tool": spec.name}
        inner = play(said, arguments, arrival)
        reply: Any = None
        done = False
        try:
            while True:
                reply = yield await inner.asend(reply)
        except StopAsyncIteration:
            done = True
        finally:
            runs.end(ran, done=done)
            await inner.aclose()

    return handler


async def _plain(
    said: dict[str, Any], arguments: Mapping[str, Any], arrival: Arrival
) -> AsyncGenerator[Any, Any]:
    yield json.dumps(said)


async def _sleep(
    said: dict[str, Any], arguments: Mapping[str, Any], arrival: Arrival
) -> AsyncGenerator[Any, Any]:
    await trio.sleep(float(arguments.get("seconds", 0.5)))
    yield json.dumps(said)


async def _progress(
    said: dict[str, Any], arguments: Mapping[str, Any], arrival: Arrival
) -> AsyncGenerator[Any, Any]:
    steps = int(arguments.get("steps", 3))
    for step in range(1, steps + 1):
        await trio.sleep(float(arguments.get("seconds", 0.1)))
        yield Progress(step, steps, f"step {step}")
    yield json.dumps(said)


async def _chatty(
    said: dict[str, Any], arguments: Mapping[str, Any], arrival: Arrival
) -> AsyncGenerator[Any, Any]:
    yield Notice("notifications/message", {"level": "info", "data": f"{said['mark']} begins"})
    yield Progress(1, None, "on it")
    yield Notice("notifications/sim/unknown", {"x": [1, 2]})
    yield json.dumps(said)


async def _big(
    said: dict[str, Any], arguments: Mapping[str, Any], arrival: Arrival
) -> AsyncGenerator[Any, Any]:
    yield json.dumps({**said, "pad": "x" * int(arguments.get("size", 20_000))})


async def _fail(
    said: dict[str, Any], arguments: Mapping[str, Any], arrival: Arrival
) -> AsyncGenerator[Any, Any]:
    yield text_result(json.dumps(said), is_error=True)


async def _structured(
    said: dict[str, Any], arguments: Mapping[str, Any], arrival: Arrival
) -> AsyncGenerator[Any, Any]:
    if arguments.get("none"):
        yield text_result(json.dumps(said))
        return
    number: Any = "no number" if arguments.get("bad") else 1
    said = {**said, "pad": "x" * int(arguments.get("size", 0))}
    yield {**text_result(json.dumps(said)), "structuredContent": {"n": number, "mark": said["mark"]}}


async def _ask(
    said: dict[str, Any], arguments: Mapping[str, Any], arrival: Arrival
) -> AsyncGenerator[Any, Any]:
    asked = question(str(arguments.get("method", "form")))
    if _is_stateless(arrival):
        if "inputResponses" not in arrival.params:
            yield input_required({"q": asked}, f"state of {said['mark']}")
            return
        yield json.dumps({**said, "told": arrival.params["inputResponses"]})
        return
    reply = yield Ask(asked["method"], asked["params"])
    yield json.dumps({**said, "told": reply.get("result", reply.get("error"))})


async def _rounds(
    said: dict[str, Any], arguments: Mapping[str, Any], arrival: Arrival
) -> AsyncGenerator[Any, Any]:
    if not _is_stateless(arrival):
        yield json.dumps(said)
        return
    state = arrival.params.get("requestState")
    done = int(state.partition(" ")[0]) if isinstance(state, str) else 0
    if done < int(arguments.get("rounds", 2)):
        asked = {"q": question(str(arguments.get("method", "form")))} if done % 2 == 0 else None
        yield input_required(asked, f"{done + 1} of {said['mark']}")
        return
    yield json.dumps(said)


async def _vault(
    said: dict[str, Any], arguments: Mapping[str, Any], arrival: Arrival
) -> AsyncGenerator[Any, Any]:
    how = arguments.get("how")
    if how == "sleep":
        await trio.sleep(0.5)
    if how == "progress":
        yield Progress(1, 2, json.dumps(dict(arguments)))
    async for answer in play_vault(how, said, arguments):
        yield answer


_PLAYS: Final[Mapping[str, Callable[..., AsyncGenerator[Any, Any]]]] = {
    "sleep": _sleep,
    "progress": _progress,
    "chatty": _chatty,
    "big": _big,
    "fail": _fail,
    "ask": _ask,
    "rounds": _rounds,
    "structured": _structured,
    "badschema": _structured,
    "vault": _vault,
}


def _is_stateless(arrival: Arrival) -> bool:
    meta = arrival.params.get("_meta")
    return isinstance(meta, Mapping) and STATELESS in meta

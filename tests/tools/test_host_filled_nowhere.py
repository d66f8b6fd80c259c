"""A credential that fills an argument is in the tool's arguments and nowhere else, whatever the tool does.

Which ways of giving it back are covered, and which cannot be, is told in `docs/host-filled.md`; the table
there is held to what is found here.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import html
import json
import logging
import pickle
import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx
import pytest
import trio

from afpool import AfpoolError, Progress, ScriptedCredentials, ToolContext, bearer
from afpool.testing import Drop, FakeTool, Hang, JsonRpcError, RawBytes, Status
from afpool.testing import Progress as Reported
from afpool.tools import define_tool, from_credential, from_identity, host_filled
from tests.credentials.test_secrets_nowhere import shown
from tests.pool.kit import ALICE, start, until, world
from tests.tools.door_kit import door

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = Path(__file__).resolve().parents[2] / "docs" / "host-filled.md"
# It has what every way of writing it changes: a slash, signs, letters of both cases.
SECRET = "caNary/7d41b0+Zz=&q"
SCHEMA = {"type": "object", "properties": {"q": {}, "token": {"type": "string"}, "tenant": {}}}
FILLS = {"token": from_credential("crm"), "tenant": from_identity("tenant")}


def in_base64(text: str) -> list[str]:
    """What base64 makes of a text behind any other, without the edges that depend on its neighbours."""
    return [base64.b64encode(b"x" * number + text.encode()).decode()[4:-4] for number in range(3)]


def escaped(text: str) -> str:
    return "".join(f"\\u{ord(char):04x}" for char in text)


TEXTS: dict[str, Callable[[str], str]] = {
    "as it is": lambda secret: secret,
    "within other text, more than once": lambda secret: f"<{secret}>{secret}, Bearer {secret}.",
    "JSON in a text": lambda secret: json.dumps({"token": secret, secret: [secret]}),
    "JSON in JSON in a text": lambda secret: json.dumps({"body": json.dumps({"token": secret})}),
    "with escaped slashes": lambda secret: json.dumps(secret).replace("/", "\\/"),
    "with every character escaped": escaped,
    "percent-encoded, as in a URL": lambda secret: f"https://x.example/?token={quote(secret, safe='')}&b=1",
    "with HTML entities": lambda secret: f"<td>{html.escape(secret)}</td>",
    "reversed": lambda secret: secret[::-1],
    "cut in two": lambda secret: f"{secret[:9]} {secret[9:]}",
    "in another case": lambda secret: secret.swapcase(),
    "base64 in a text": lambda secret: base64.b64encode(secret.encode()).decode(),
    "hexadecimal": lambda secret: secret.encode().hex(),
    "hashed": lambda secret: hashlib.sha256(secret.encode()).hexdigest(),
    "compressed": lambda secret: base64.b64encode(zlib.compress(secret.encode())).decode(),
}
"""Ways in which a tool may give a value back in a text; those from `reversed` on cannot be covered."""

COVERED = list(TEXTS)[: list(TEXTS).index("reversed")]
BLOCKS: dict[str, Callable[[str], Any]] = {
    "a text block": lambda text: {"content": [{"type": "text", "text": text}]},
    "structured content, as value and key": lambda text: {
        "content": [], "structuredContent": {"a": [{text: [text]}]},
    },
    "an embedded resource's text": lambda text: {
        "content": [{"type": "resource", "resource": {"uri": "x:", "text": text}}],
    },
    "an embedded resource's bytes": lambda text: {
        "content": [
            {"type": "resource", "resource": {"uri": "x:", "blob": base64.b64encode(text.encode()).decode()}}
        ]
    },
    "a resource link": lambda text: {
        "content": [{"type": "resource_link", "uri": f"x:{text}", "name": text, "description": text}],
    },
    "annotations and `_meta`": lambda text: {
        "content": [{"type": "text", "text": "x", "annotations": {"by": text}, "_meta": {text: text}}],
        "_meta": {"trace": text},
    },
    "an error of the tool": lambda text: {"content": [{"type": "text", "text": text}], "isError": True},
    "the `toolResult` of old": lambda text: {"toolResult": {"deep": [text]}},
}  # fmt: skip


def holds(found: str, secret: str) -> bool:
    """Whether a text gives a secret away to whoever undoes escapes, entities and base64."""
    for coded in re.findall(r"[A-Za-z0-9+/]{12,}={0,2}", found):
        with contextlib.suppress(ValueError):
            found += "\n" + base64.b64decode(coded, validate=True).decode()
    flat = html.unescape(found.replace("\\\\", "\\").replace("\\\\", "\\").replace("\\/", "/"))
    flat = re.sub(r"\\u([0-9a-fA-F]{4})", lambda match: chr(int(match[1], 16)), flat)
    return any(
        one in text
        for text in (found, flat)
        for one in (secret, quote(secret, safe=""), html.escape(secret), *in_base64(secret))
    )


def test_what_is_looked_at_here_would_be_seen() -> None:
    for form in COVERED:
        for block in BLOCKS.values():
            raw = json.dumps(block(TEXTS[form](SECRET)))
            assert holds(raw, SECRET), (form, raw)


def serves(answer: Callable[[Any], Any]) -> FakeTool:
    return FakeTool("search", lambda arguments, _: answer(arguments), input_schema=SCHEMA)


@pytest.mark.parametrize("block", BLOCKS)
async def test_no_result_of_a_server_gives_it_back(block: str) -> None:
    answers = iter(COVERED)
    async with world(
        tools=[serves(lambda arguments: BLOCKS[block](TEXTS[next(answers)](arguments["token"])))]
    ) as here:
        tool = host_filled(await here.tool(name="search"), FILLS)
        through = door(credentials=ScriptedCredentials(lambda _: bearer(SECRET)))
        for number, form in enumerate(COVERED):
            if number % 2:
                result = await through(tool, {"q": "x"})
            else:
                ctx = ToolContext(identity=ALICE, credential=bearer(SECRET), call_id="c")
                result = await tool.execute({"q": "x"}, ctx)
            assert not holds(result.raw.decode(), SECRET), form
            assert not holds(json.dumps(result.document), SECRET), form
            if block == "an embedded resource's bytes":
                assert SECRET.encode() not in (result.resources[0].blob or b""), form
            elif result.code in {"ok", "tool-error"}:
                assert "[host-filled]" in json.dumps(result.document), form
        assert not holds(through.events.text, SECRET)
        arrivals = here.server.arrivals("tools/call", "search")
        assert len(arrivals) == len(COVERED)
        assert all(arrival.params["arguments"]["token"] == SECRET for arrival in arrivals)


@pytest.mark.parametrize("form", [form for form in TEXTS if form not in COVERED])
async def test_what_cannot_be_covered_is_given_back(form: str) -> None:
    """Not wanted, and told: this test fails on the day when the page has to say otherwise."""
    changed = TEXTS[form](SECRET)
    tool = host_filled(define_tool(lambda token: changed, name="search", input_schema=SCHEMA), TOKEN)
    result = await tool.execute({}, ToolContext(credential=bearer(SECRET), call_id="c"))
    assert changed in result.text


TOKEN = {"token": from_credential("crm")}


def test_the_page_tells_the_same() -> None:
    rows = re.findall(r"^\| ([^|]+?) \| (yes|no)[^|]* \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [(form, covered == "yes") for form, covered in rows] == [(form, form in COVERED) for form in TEXTS]


# -- everything besides the result


class Collected:
    """Whatever somebody could look at after a call."""

    def __init__(self) -> None:
        self.things: list[Any] = []

    async def __call__(self, call: Callable[[], Any]) -> None:
        try:
            self.things.append(await call())
        except AfpoolError as error:
            self.things.append(error)
        except Exception as error:
            self.things.append(error)

    def assert_clean(self, caplog: pytest.LogCaptureFixture) -> None:
        texts = [text for thing in self.things for text in shown(thing)]
        texts += [thing.raw.decode() for thing in self.things if hasattr(thing, "raw")]
        texts += [caplog.text, *(repr(record.__dict__) for record in caplog.records)]
        for text in texts:
            assert not holds(text, SECRET), text[:2000]


FAILURES: dict[str, Any] = {
    "JSON-RPC error": JsonRpcError(-32000, f"denied {SECRET}", {"request": {"token": SECRET}}),
    "JSON-RPC error, escaped": JsonRpcError(-32602, escaped(SECRET)),
    "500": Status(500, body=SECRET.encode()),
    "401": Status(401, headers={"www-authenticate": f'Bearer error="{SECRET}"'}),
    "unreadable": RawBytes(b'{"jsonrpc":"2.0","result":' + SECRET.encode()),
    "cut": Drop(),
}


@pytest.mark.parametrize("failure", FAILURES)
async def test_no_failure_of_a_server_tells_it(failure: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    collected = Collected()
    async with world(tools=[serves(lambda arguments: f"with {arguments['token']}")]) as here:
        tool = host_filled(await here.tool(name="search"), FILLS)
        here.server.on("tools/call", FAILURES[failure])
        ctx = ToolContext(identity=ALICE, credential=bearer(SECRET), call_id="c")
        await collected(lambda: tool.execute({"q": "x"}, ctx))
        (error,) = collected.things
        assert isinstance(error, AfpoolError), error
        through = door(credentials=ScriptedCredentials(lambda _: bearer(SECRET)))
        await collected(lambda: through(tool, {"q": "x"}))
        collected.things += [
            tool,
            ctx,
            *through.events,
            *here.pool.records.uses,
            *here.pool.records.events,
            here.pool.statistics(),
        ]
        collected.things.append(json.dumps([event.payload for event in through.events], default=repr))
    collected.assert_clean(caplog)


@pytest.mark.parametrize("ended", ["cancel", "kill"])
async def test_no_call_that_is_ended_from_outside_tells_it(
    ended: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    collected = Collected()
    async with world(tools=[serves(lambda _: "x")]) as here, trio.open_nursery() as nursery:
        bound = await here.tool(name="search")
        tool = host_filled(bound, FILLS)
        here.server.on("tools/call", Hang())
        ctx = ToolContext(identity=ALICE, credential=bearer(SECRET), call_id="c")
        call = start(nursery, lambda: tool.execute({"q": "x"}, ctx))
        await here.server.wait_for("tools/call")
        if ended == "cancel":
            here.pool.cancel("c")
            await until(call.done.is_set)
        here.pool.kill(bound.binding.client_id)
        await until(call.done.is_set)
        assert isinstance(call.error, AfpoolError)
        collected.things += [call.error, *here.pool.records.uses, here.pool.statistics()]
    collected.assert_clean(caplog)


def bug(token: str) -> Any:
    return {}[token]


def echoing(token: str) -> Any:
    request = httpx.Request("POST", f"https://x.example/?t={token}", headers={"authorization": token})
    raise httpx.HTTPStatusError(f"401 for {request.url}", request=request, response=httpx.Response(401))


def chained(token: str) -> Any:
    try:
        bug(token)
    except KeyError as error:
        error.add_note(token)
        raise ValueError("outer") from error


def grouped(token: str) -> Any:
    raise ExceptionGroup(token, [ValueError(token), ExceptionGroup("x", [LookupError(token)])])


def dumped(token: str) -> Any:
    raise RuntimeError(repr(locals()), {"locals": locals()})


@pytest.mark.parametrize("fails", [bug, echoing, chained, grouped, dumped])
async def test_no_failure_of_a_tool_of_the_hosts_own_tells_it(
    fails: Callable[[str], Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def search(token: str) -> str:
        await trio.lowlevel.checkpoint()
        fails(token)
        return token

    tool = host_filled(define_tool(search), TOKEN)
    collected = Collected()
    ctx = ToolContext(credential=bearer(SECRET), call_id="c")
    await collected(lambda: tool.execute({}, ctx))
    through = door(credentials=ScriptedCredentials(lambda _: bearer(SECRET)))
    await collected(lambda: through(tool, {}))
    assert isinstance(collected.things[0], Exception)
    collected.things += [tool, ctx, *through.events]
    collected.assert_clean(caplog)


@pytest.mark.parametrize("form", COVERED)
async def test_no_report_tells_it(form: str) -> None:
    async def handler(arguments: Any, _: Any) -> Any:
        yield Reported(1, message=TEXTS[form](arguments["token"]))
        yield "done"

    told: list[Any] = []
    async with world(tools=[FakeTool("search", handler, input_schema=SCHEMA)]) as here:
        tool = host_filled(await here.tool(name="search"), FILLS)
        ctx = ToolContext(identity=ALICE, credential=bearer(SECRET), call_id="c", on_progress=told.append)
        assert (await tool.execute({}, ctx)).text == "done"
        through = door(credentials=ScriptedCredentials(lambda _: bearer(SECRET)))
        assert (await through(tool, {}, on_progress=told.append)).text == "done"
    assert [type(one) for one in told] == [Progress, Progress]
    assert not holds(repr(told) + through.events.text, SECRET)
    assert "[host-filled]" in repr(told)


async def test_nothing_that_is_made_of_it_can_be_stored_or_shown() -> None:
    kept: list[Any] = []

    def search(args: Any, ctx: ToolContext) -> str:
        kept.extend((args, ctx, ctx.credential))
        return "x"

    tool = host_filled(define_tool(execute=search, name="search", input_schema=SCHEMA), TOKEN)
    await tool.execute({}, ToolContext(credential=bearer(SECRET), call_id="c"))
    for thing in (*kept, tool, FILLS):
        assert not holds(repr(thing) + str(thing), SECRET)
        stored = b""
        with contextlib.suppress(TypeError, AttributeError, pickle.PicklingError):
            stored = pickle.dumps(thing)
        assert SECRET.encode() not in stored


async def test_a_call_that_is_given_up_leaves_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    caught: list[BaseException] = []

    async def search(token: str) -> str:
        try:
            bug(token)
        except KeyError:
            await trio.sleep_forever()
        return token

    tool = host_filled(define_tool(search), TOKEN)
    with trio.move_on_after(0.01) as scope:
        try:
            await tool.execute({}, ToolContext(credential=bearer(SECRET), call_id="c"))
        except trio.Cancelled as error:
            caught.append(error)
            raise
    assert scope.cancelled_caught
    assert not holds("".join(shown(caught[0])), SECRET)
    assert not holds(caplog.text, SECRET)

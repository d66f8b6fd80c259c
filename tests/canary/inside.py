"""Consoles that follow everything while the town is toured, and then ask for everything that there is.

They come by the real listener: by the Unix socket, by TCP with a token in a header, and with one in the first
message. What somebody types is a canary as well: it may come back to whoever typed it, and to nobody else.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from typing import TYPE_CHECKING, Any, cast

import trio
import trio.testing

from afpool._base.console_place import hang_path
from tests.canary.forms import CANARIES
from tests.console.server_kit import attached, exchange, request, tcp, unix, upgrade

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from afpool.console import Console
    from tests.canary.collecting import Collected
    from tests.canary.town import Town
    from tests.console.server_kit import Client

FOLLOWED = ("tail", "watch overview every=1", "watch actors")
ANSWERS = 20.0
TRACED = 10
TYPED = (
    "{}", "'{}'", "show {}", "show actors {}", "show actors server={}", "show actors tenant={}",
    "show actors principal={} conversation={}", "show actors columns={}", "show actors sort={}",
    "show actors waiting>{}", "show recent limit={}", "show recent older={}", "show recent {}={}",
    "show actor {}", "show actor k:{}", "show call {}", "why {}", "why art_{}", "tail {}", "tail tenant={}",
    "tail kind={}", "tail slower={}", "tail last={}", "watch {}", "watch overview every={}", "trace {} on",
    "trace k:{} on", "trace k:{} {}", "pause {}", "pause desk for={}", "resume {}", "drain {} for={}",
    "drain desk for={}", "kill {}", "evict {}", "refresh {}", "invalidate {}", "cancel {}",
    "shutdown drain={}", "reload {}", "check {}", "tree depth={}", "help {}", "complete {}",
    "complete line={}", "show config name={}", "show events by={}", "show consoles who={}",
)  # fmt: skip


@contextlib.asynccontextmanager
async def looked_into(here: Town) -> AsyncIterator[None]:
    """Follow the town for the time of the block, and ask for everything at its end."""
    console, collected = here.runtime.console, here.collected
    assert console is not None
    settings = console.settings
    collected.text("console settings", f"{settings!r} {settings} {vars(console)!r} {vars(console.door)!r}")
    read = f"Bearer {CANARIES['console read']}".encode()
    async with (
        attached(await unix(console)) as operator,
        attached(await tcp(console), headers=[(b"authorization", read)]) as reader,
        attached(await tcp(console), token=CANARIES["console operate"]) as page,
        trio.open_nursery() as nursery,
    ):
        assert [one.hello["level"] for one in (operator, reader, page)] == ["operate", "read", "operate"]
        for client in (operator, reader, page):
            await nursery.start(_follow, client, collected)
        yield
        await _ask_levels(here, console)
        await _type(console, collected)
        await _operate(console, collected)
        await _beside(console, collected)
        await trio.testing.wait_all_tasks_blocked(0.005)
        nursery.cancel_scope.cancel()
    frames = [text for place, text in collected.texts if place == "console frame"]
    assert sum(text.count('"kind":"call"') for text in frames) > 5
    assert any('"kind":"turn"' in text for text in frames)
    assert any('"overview"' in text for text in frames)


async def _follow(client: Client, collected: Collected, task_status: Any) -> None:
    """Follow everything, and trace actors as they appear, where that is allowed."""
    collected.text("console frame", json.dumps(client.hello))
    for asked in FOLLOWED:
        assert "ok" in await client.ask(asked)
    task_status.started()
    traced: set[str] = set()
    while True:
        text = await client.socket.get_message()
        collected.text("console frame", text)
        for row in json.loads(text).get("actors", {}).get("set", ()):
            if row[0] not in traced and len(traced) < TRACED and client.hello["level"] == "operate":
                traced.add(row[0])
                await client.send({"id": 1_000 + len(traced), "do": f"trace {row[0]} on"})


# ------------------------------------------------------------------ asking for all that there is


async def _ask_levels(here: Town, console: Console) -> None:
    """Ask as somebody who may look, as somebody who may act, and as one who has identities shown."""
    collected = here.collected
    async with attached(await tcp(console), token=CANARIES["console read"]) as client:
        await _ask_everything(client, collected, "console answer", {})
        for do in (["show", "actors"], ["show", "recent"], ["show", "actor", await _a_key(client)]):
            collected.text("console answer", json.dumps(await client.ask(do, reveal="yes")))
    async with attached(await unix(console)) as client:
        await _ask_everything(client, collected, "console answer", {}, whole=True)
        await _ask_everything(client, collected, "console revealed", {"reveal": "yes"})
        refs = [minted.meta.ref for minted in here.runtime.record.minted]
        assert refs
        for ref in refs:
            collected.text("console answer", json.dumps(await client.ask(["why", ref])))
            explained = await here.runtime.record.why(ref)
            collected.text("explanation of an artifact", explained.words())
            collected.text("explanation of an artifact: as JSON", json.dumps(explained.as_json()))
        assert "ok" in await client.ask(["tail"], last="2000")
        with trio.move_on_after(1):
            while True:
                collected.text("console frame", await client.socket.get_message())


async def _a_key(client: Client) -> str:
    found = await client.ask(["show", "actors"], columns="key", limit="1")
    return cast("str", found["ok"]["rows"][0][0])


async def _ask_everything(
    client: Client, collected: Collected, place: str, more: dict[str, str], *, whole: bool = False
) -> None:
    """Ask for every table, and of each kind of what is in them for one, whole."""
    collected.text(place, json.dumps(client.hello))

    async def ask(do: list[str], **options: str) -> dict[str, Any]:
        answer = await client.ask(do, **options)
        collected.text(place, json.dumps(answer))
        assert "error" not in answer or do[-1] == "nothing", answer
        return cast("dict[str, Any]", answer.get("ok", answer))

    seen: set[Any] = set()
    asked = 0
    for table in client.hello["tables"]:
        name, columns = table["name"], [column["name"] for column in table["columns"]]
        revealed = more if "reveal" in table["filters"] else {}
        found = await ask(["show", name], limit="5000", **revealed)
        asked += len(found["rows"])
        for row in found["rows"] if whole or name == "actors" else ():
            named = dict(zip(columns, row, strict=False))
            # one of each kind says what all of them do
            kind = (name, *(named.get(column) for column in ("server", "tool", "state", "outcome", "code")))
            if kind in seen:
                continue
            seen.add(kind)
            if name == "actors":
                await ask(["show", "actor", named["key"]], **more)
            if name == "recent":
                await ask(["why", named["call"]])
                await ask(["show", "call", named["call"]])
    assert asked > 50
    for do in ("check", "tree", "show overview", "show memory", "help", "show nothing", "why nothing"):
        await ask(do.split())
    for line in ("", "show ", "show actor ", "why ", "show recent code=", "show config name=", "trace "):
        await ask(["complete"], line=line)
    if client.hello["level"] == "operate":
        for name, word in (("tenant", "tenant"), ("principal", "principal")):
            found = await ask(["show", "recent"], **{name: CANARIES[word], "limit": "5000"})
            assert found["rows"], "whoever is asked for by name is found"


# ------------------------------------------------------------------ what somebody types


async def _type(console: Console, collected: Collected) -> None:
    """Type a canary wherever something can be typed, while the others go on following."""
    word = CANARIES["typed"]
    async with (
        attached(await unix(console)) as operator,
        attached(await tcp(console), token=CANARIES["console read"]) as reader,
    ):
        for client in (operator, reader):
            for line in TYPED:
                answer = await client.ask(line.replace("{}", word))
                collected.text("console own answer", json.dumps(answer))
                if answer.get("ok", {}).get("kind") == "stream":
                    number = answer["ok"]["stream"]
                    await client.send({"id": 10**6, "stop": number})
            for frame in (
                f"{word}", f'{{"id": 1, "{word}": 1}}', {"id": word, "do": "show servers"},
                {"id": 2, "do": ["show", word], "with": {word: word}}, {"id": 3, "do": [word, {"x": word}]},
                {"id": 4, "do": "show servers " + word * 400}, {"id": 5, "stop": word},
                {"id": 6, "do": "show servers", "with": {"server": word, "columns": [word]}},
                {"token": word}, {"id": 7, "do": f"show \x07{word}"}, {"id": 8, "do": f"show '{word}"},
            ):  # fmt: skip
                await client.send(frame)
            answer = await client.ask("show version")
            client.frames.append(answer)
            for frame in client.frames:
                collected.text("console own answer", json.dumps(frame))
        await operator.send(word.encode())  # no text: it ends the session
        collected.text("console own answer", f"{await operator.closed()} {operator.frames}")
    await _wrong_tokens(console, collected)


async def _wrong_tokens(console: Console, collected: Collected) -> None:
    """Show a token that opens nothing, in every way; nobody is told of it, not even who showed it."""
    wrong = CANARIES["typed token"]
    for head in (
        upgrade(f"Authorization: Bearer {wrong}"), upgrade(f"Authorization: Basic {wrong}"),
        upgrade(f"Authorization: {wrong}"), upgrade(f"Authorization: Bearer {CANARIES['console operate']}x"),
        request(f"/console?token={wrong}"), request(f"/{wrong}"), request("/", f"X-Token: {wrong}"),
        upgrade(f"Origin: https://{wrong[1:9]}.example", f"Cookie: token={wrong}"),
        upgrade(f"Authorization: Bearer {wrong}", f"Authorization: Bearer {wrong}"),
        request("/", f"Host: {wrong}", host=None), request("/", method=wrong[1:9]),
    ):  # fmt: skip
        code, headers, body = await exchange(await tcp(console), head)
        collected.text("console refusal", f"{code} {headers} {body.decode()}")
    for first in ({"token": wrong}, {"token": wrong * 40}, {"token": {"a": wrong}}, wrong, f'"{wrong}'):
        async with attached(await tcp(console), hello=False) as client:
            await client.send(first)
            collected.text("console refusal", f"{await client.closed()} {client.frames}")
            assert client.frames[0]["error"]["code"] == "not-allowed"
    from trio_websocket import ConnectionRejected

    header = [(b"authorization", f"Bearer {wrong}".encode())]
    with contextlib.suppress(ConnectionRejected):
        async with attached(await tcp(console), headers=header, hello=False):
            raise AssertionError("a wrong token was taken")


# ------------------------------------------------------------------ acting


async def _operate(console: Console, collected: Collected) -> None:
    """Do what changes something; each is filed with who asked, and followed by the others."""
    async with attached(
        await tcp(console), headers=[(b"authorization", f"Bearer {CANARIES['console operate']}".encode())]
    ) as client:

        async def ask(line: str) -> dict[str, Any]:
            answer = await client.ask(line)
            collected.text("console answer", json.dumps(answer))
            return cast("dict[str, Any]", answer.get("ok", {}))

        key = await _a_key(client)
        for line in (
            "pause desk", "resume desk", f"pause {key} for=10s", f"resume {key}", f"refresh {key}",
            f"evict {key}", f"invalidate {key}", "cancel nothing", f"trace {key} off", "reload",
            "shutdown drain=1s", "pause bearer hold", "resume bearer", f"drain {key} for=1s",
        ):  # fmt: skip
            await ask(line)
        for number in (await ask("show clients columns=client")).get("rows", [])[:2]:
            await ask(f"kill {number[0]}")
        acted = await ask("show events by=console*")
        assert acted["rows"]


# ------------------------------------------------------------------ beside what is asked


async def _beside(console: Console, collected: Collected) -> None:
    """The page as it is served, and what the watchdog says while canaries are in locals."""
    assert console.path is not None
    for connect in (unix, tcp):
        code, headers, page = await exchange(await connect(console), request("/"))
        assert code == 200
        collected.text("page as served", f"{headers} {page.decode()}")
    collected.text("stacks", _while_held(CANARIES["fill bearer"], hang_path(console.path)))


def _while_held(secret: str, path: Path) -> str:
    """Ask where the threads are, from the loop's own, while it and another one hold secrets."""
    at_work, done = threading.Event(), threading.Event()

    def work(held: str) -> None:
        kept = {held: [held]}
        at_work.set()
        done.wait(ANSWERS)
        assert kept

    thread = threading.Thread(target=work, args=(secret[::1],), name="at work")
    thread.start()
    try:
        at_work.wait(ANSWERS)
        said = _hang(path, b"ping\n") + _hang(path, b"stacks\n") + _hang(path, f"{secret}\n".encode())
    finally:
        done.set()
        thread.join(ANSWERS)
    assert "_while_held" in said, "the loop's own thread is seen where it holds a secret"
    assert "work" in said
    return said


def _hang(path: Path, line: bytes) -> str:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(ANSWERS)
        sock.connect(str(path))
        sock.sendall(line)
        raw = b""
        while more := sock.recv(65536):
            raw += more
    return raw.decode()

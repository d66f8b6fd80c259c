"""A console that follows everything while the town is toured, and then asks for everything that there is."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import TYPE_CHECKING, Any, cast

import trio
import trio.testing

from afpool._base.console_place import hang_path
from afpool.console import ConsoleSettings, open_console
from afpool.runtime._console_tables import register
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


@contextlib.asynccontextmanager
async def looked_into(here: Town, folder: Path) -> AsyncIterator[None]:
    """Follow the town for the time of the block, and ask for everything at its end."""
    runtime, collected = here.runtime, here.collected
    assert runtime.pool is not None
    settings = ConsoleSettings(
        directory=folder, bind="127.0.0.1:0",
        read_token=CANARIES["console read"], operate_token=CANARIES["console operate"],
    )  # fmt: skip
    async with open_console(runtime.pool, record=runtime.record, settings=settings) as console:
        assert console is not None
        collected.text(
            "console settings", f"{settings!r} {settings} {vars(console)!r} {vars(console.door)!r}"
        )
        register(runtime, console.registry)
        async with attached(await unix(console)) as client:
            for asked in FOLLOWED:
                assert "ok" in await client.ask(asked)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_keep, client, collected)
                yield
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
        async with attached(await unix(console)) as client:
            collected.text("console frame", json.dumps(client.hello))
            await _ask_everything(client, collected)
        await _beside(console, collected)
    frames = [text for place, text in collected.texts if place == "console frame"]
    assert sum(text.count('"kind":"call"') for text in frames) > 5


async def _keep(client: Client, collected: Collected) -> None:
    while True:
        collected.text("console frame", await client.socket.get_message())


async def _ask_everything(client: Client, collected: Collected) -> None:
    async def ask(do: list[str], **options: str) -> dict[str, Any]:
        answer = await client.ask(do, **options)
        collected.text("console answer", json.dumps(answer))
        return cast("dict[str, Any]", answer.get("ok", answer))

    seen: set[Any] = set()
    for table in client.hello["tables"]:
        name, columns = table["name"], [column["name"] for column in table["columns"]]
        found = await ask(
            ["show", name], limit="5000", **({"reveal": "yes"} if "reveal" in table["filters"] else {})
        )
        for row in found["rows"]:
            named = dict(zip(columns, row, strict=False))
            # one of each kind says what all of them do
            kind = (name, *(named.get(column) for column in ("server", "tool", "state", "outcome", "code")))
            if kind in seen:
                continue
            seen.add(kind)
            if name == "actors":
                await ask(["show", "actor", named["key"]], reveal="yes")
            if name == "recent":
                await ask(["why", named["call"]])
                await ask(["show", "call", named["call"]])
    for do in (["check"], ["tree"], ["show", "overview"], ["help"], ["show", "nothing"], ["why", "nothing"]):
        await ask(do)
    await ask(["tail"], last="2000")
    with trio.move_on_after(1):
        while True:
            collected.text("console frame", await client.socket.get_message())


async def _beside(console: Console, collected: Collected) -> None:
    """The page, refusals, and what the watchdog says of the threads."""
    assert console.path is not None
    _, headers, page = await exchange(await unix(console), request("/"))
    collected.text("console page", f"{headers} {page.decode()}")
    wrong = upgrade(f"Authorization: Bearer {CANARIES['console operate']}x")
    code, headers, body = await exchange(await tcp(console), wrong)
    assert code == 401
    collected.text("console refusal", f"{headers} {body.decode()}")
    said = await trio.to_thread.run_sync(_stacks, hang_path(console.path))
    assert '"frames"' in said
    collected.text("console stacks", said)


def _stacks(path: Path) -> str:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(ANSWERS)
        sock.connect(str(path))
        sock.sendall(b"stacks\n")
        raw = b""
        while more := sock.recv(65536):
            raw += more
    return raw.decode()

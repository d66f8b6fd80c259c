"""The client of a console, pointed at the town: what it writes, what it keeps, what it raises.

Its token comes from the environment. It runs in a thread of this process, so that what it raises can be
looked at; at a prompt, with a history, it runs as people run it.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock
from urllib.parse import quote

import trio

from afpool.cli._main import main
from afpool.cli._output import Output
from afpool.cli.console._link import Link, Refused
from afpool.cli.console._session import Session, token_of
from afpool.cli.console._target import choose
from tests.canary.collecting import exception_texts
from tests.canary.forms import CANARIES
from tests.cli.terminal_kit import END_OF_FILE, Terminal
from tests.console.server_kit import port_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.canary.collecting import Collected
    from tests.canary.town import Town

READ, OPERATE = CANARIES["console read"], CANARIES["console operate"]
TYPED, WRONG = CANARIES["typed"], CANARIES["typed token"]


async def used(here: Town, folder: Path) -> None:
    """Use the client in every way; `folder` is where it keeps its history."""
    console = here.runtime.console
    assert console is not None
    tables = [table["name"] for table in console.registry.describe()["tables"]]
    client = _Client(here.collected, folder, str(console.path), f"http://127.0.0.1:{port_of(console)}")
    calls = [use.call_id for use in list(here.runtime.pool.records.uses)[-3:]]
    await trio.to_thread.run_sync(client.everything, tables, calls)
    await trio.to_thread.run_sync(client.at_a_prompt)


class _Client:
    def __init__(self, collected: Collected, folder: Path, path: str, url: str) -> None:
        self.collected = collected
        self.folder = folder
        self.path = path
        self.url = url

    def run(self, place: str, *words: str, token: str | None = None, stdin: str = "") -> int:
        """Run a command, and keep all that it writes."""
        out = io.StringIO()
        surroundings = {"XDG_STATE_HOME": str(self.folder), "COLUMNS": "250"}
        if token is not None:
            surroundings["AFPOOL_CONSOLE_TOKEN"] = token
        with (
            mock.patch.dict(os.environ, surroundings),
            mock.patch.object(sys, "stdin", io.StringIO(stdin)),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(out),
        ):
            code = main(list(words))
        self.collected.text(place, out.getvalue())
        return code

    def everything(self, tables: list[str], calls: list[str]) -> None:
        """Ask for everything, as words and as JSON, by the socket and over TCP, and what cannot be."""
        lines = [f"show {table} limit=500" for table in tables]
        lines += [f"{word} {call}" for call in calls for word in ("why", "show call")]
        lines += ["show overview", "tree", "help", "ping", "stacks", "show nothing", "why nothing", "nothing"]
        asked = [word for line in lines for word in ("-c", line)]
        for where, token in ((self.path, None), (self.url, READ), (self.url, OPERATE)):
            for how in ((), ("--json",)):
                self.run("client output", "console", where, *asked, *how, token=token)
        assert any(calls[-1] in text for place, text in self.collected.texts if place == "client output")
        revealed = [word for table in ("actors", "recent") for word in ("-c", f"show {table} --reveal")]
        assert self.run("client revealed", "console", self.url, *revealed, token=OPERATE) == 0
        assert self.run("client output", "console", self.url, *revealed, token=READ) == 1
        self.run("client output", "tail", "last=30", "-n", "30", "--process", self.url, token=READ)
        self.run("client output", "watch", "overview", "-n", "2", "--process", self.url, token=READ)
        self.run("client output", "check", "--json", "--process", self.path)
        self.run("client output", "console", self.url, token=OPERATE, stdin="show servers\nshow nothing\n")
        typed = ("-c", f"show {TYPED}", "-c", f"pause {TYPED}", "-c", f"show actors tenant={TYPED}")
        self.run("client own output", "console", self.url, *typed, token=OPERATE)
        self.run("client own output", TYPED)
        for token in (WRONG, f"{WRONG} {WRONG}", f"Bearer {WRONG}", OPERATE[:-1], f"{OPERATE}\u00e4"):
            for debug in ((), ("--debug",)):
                assert self.run("client output", "console", self.url, "-c", "ping", *debug, token=token) != 0
        for where in (
            f"http://{quote(OPERATE, safe='')}@127.0.0.1:1/",
            f"ftp://{quote(OPERATE)}",
            "127.0.0.1:1",
        ):
            assert self.run("client output", "console", where, "-c", "ping", token=OPERATE) != 0
        token_file = self.folder / "token"
        token_file.write_text(f"{OPERATE}\n{OPERATE}\n")
        options = ("--token-file", str(token_file))
        assert self.run("client output", "console", self.url, *options, "-c", "ping") == 2
        self._raise()

    def _raise(self) -> None:
        """What its parts raise, with the locals of their frames."""
        target = choose(self.url)
        out = Output(stdout=io.StringIO(), stderr=io.StringIO())
        held = {name: token_of(None, {"AFPOOL_CONSOLE_TOKEN": token}, out)
                for name, token in (("wrong", WRONG), ("operate", OPERATE))}  # fmt: skip
        link = Link(target, held["operate"], timeout=20.0)
        session = Session(out, self.url, token=held["operate"], timeout=20.0)
        for part in (link, session, target, session.target):
            self.collected.text(
                "client object", f"{part!r} {part} {vars(part) if hasattr(part, '__dict__') else ''}"
            )
        with self._raised():
            link.ask("show nothing")
        with self._raised():
            Link(target, held["wrong"], timeout=20.0)
        with self._raised():
            Session(out, "127.0.0.1:1", token=held["operate"])
        for text in (f"{OPERATE} {OPERATE}", OPERATE + "\u00e4"):
            with self._raised():
                token_of(None, {"AFPOOL_CONSOLE_TOKEN": text}, out)
        session.link.close()
        with self._raised(), mock.patch.object(session, "_linked", side_effect=ConnectionError("gone")):
            session.ask("show servers")
        session.close()
        link.close()
        with self._raised():
            link.ask("show servers")

    @contextlib.contextmanager
    def _raised(self) -> Iterator[None]:
        try:
            yield
        except (Exception, Refused) as error:
            here = Path(__file__).parent
            for place, text in exception_texts(error, "client exception", skip=here):
                self.collected.text(place, text)
            return
        raise AssertionError("nothing was raised")

    def at_a_prompt(self) -> None:
        """Type lines at a terminal: what looks like a secret is not kept."""
        folder = self.folder / "home"
        folder.mkdir(exist_ok=True)
        with Terminal(
            folder, "console", self.url, columns=160, name="town", AFPOOL_CONSOLE_TOKEN=OPERATE
        ) as terminal:
            terminal.prompt()
            terminal.do("show servers columns=server")
            screen = terminal.seen
            for line in (
                f"token={OPERATE}", f" show {OPERATE}", f"bearer {READ}", f"--token-file={OPERATE}",
                f"show config secret={READ}", f"https://{OPERATE}@host", f"authorization: {READ}",
                f"why {OPERATE}",
            ):  # fmt: skip
                terminal.do(line)
            terminal.type(END_OF_FILE)
            terminal.end()
        self.collected.text("client screen", screen.decode("utf-8", "replace"))
        history = folder / "state" / "afpool" / "console-history"
        assert "show servers columns=server" in history.read_text()
        for file in folder.rglob("*"):
            if file.is_file():
                self.collected.text("client history", file.read_text("utf-8", "replace"))

"""The search of what is told of calls can fail: leaks that are made by hand are found where they come out.

Several are made for one tour; each has a place, or a canary, of its own.
"""

from __future__ import annotations

import logging
import re
import sys
import traceback
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from afpool._base.identity import identity_namespace
from afpool.cli.console import _link, _wire
from afpool.cli.console._session import Session
from afpool.console import _ask, _door, _listener, _open, _tree, _watchdog
from afpool.console._registry import Registry
from afpool.record import _explain_definition, _json, _otel
from afpool.serve import _scrape
from tests.canary import client
from tests.canary.forms import CANARIES
from tests.canary.test_canary_plants import on_the_way, secret_of, shows_arguments
from tests.canary.test_canary_run import Told, told_apart, toured
from tests.canary.tour import briefly

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.canary.town import Town


def facts(patch: pytest.MonkeyPatch) -> None:
    """A use and an event of the pool say what a call carries."""

    def leak(call: Any, held: Any) -> None:
        call.use.note("credential", secret_of(held), 0.0)
        call.actor.pool.event("noted", call.actor, why=secret_of(held))

    on_the_way(patch, leak)


def spans(patch: pytest.MonkeyPatch) -> None:
    """Where a call went is told by a secret, its arguments as they are, and its server of the host's."""
    patch.setattr(_otel, "attributes_of", lambda _: {"server.address": CANARIES["fill bearer"]})
    shows_arguments(patch)

    class Propagates:
        def inject(self, told: dict[str, str], _: object) -> None:
            told["traceparent"] = f"00-{'1' * 32}-{'2' * 16}-01"
            told["tracestate"] = f"whose={CANARIES['baggage']}"

    patch.setattr(_otel, "W3C", Propagates())


def identities(patch: pytest.MonkeyPatch) -> None:
    """Whom a call acts for stands there in clear; whoever may look has it shown."""
    patch.setattr(
        _json.Digests, "person", lambda _, who: (who, identity_namespace(who), f"{who.tenant}"), raising=True
    )
    patch.setattr(_ask.Ask, "reveal", property(lambda ask: ask.flag("reveal")))


def consoles(patch: pytest.MonkeyPatch) -> None:
    """Each part of the console says one thing too many."""
    by_token, hello, answer = _door.Door.by_token, _open.Console.hello, _listener.answer
    run, stacks, chain = Registry.run, _watchdog.Watchdog._stacks, _tree._chain

    def judged(door: Any, token: str, where: str) -> Any:
        found = by_token(door, token, where)
        if isinstance(found, _door.Refused):
            return attrs.evolve(found, sentence=f"{found.sentence}: {token}")
        return attrs.evolve(found, who=f"{found.who} with {token}")

    def greeted(console: Any, asker: Any) -> Any:
        told = hello(console, asker)
        told["hello"]["settings"] = console.settings.read_token.reveal()
        return told

    async def ran(registry: Any, asked: Any, asker: Any, options: Any = None) -> Any:
        logging.getLogger("afpool.console").debug("asked: %s %s", asked, options)
        registry.sources.pool.event("asked", None, why=str(asked))
        return await run(registry, asked, asker, options)

    def with_locals(watchdog: Any) -> Any:
        held = []
        for frame in sys._current_frames().values():
            held += [repr(each.f_locals) for each, _ in traceback.walk_stack(frame)]
        return [*stacks(watchdog), {"locals": held}]

    def waits(coro: Any) -> tuple[str, str]:
        name, where = chain(coro)
        return name, f"{where} {CANARIES['fill api_key']}"

    patch.setattr(_door.Door, "by_token", judged)
    patch.setattr(_open.Console, "hello", greeted)
    patch.setattr(Registry, "run", ran)
    patch.setattr(_watchdog.Watchdog, "_stacks", with_locals)
    patch.setattr(_tree, "_chain", waits)
    patch.setattr(_listener, "answer", lambda head: answer(head) + CANARIES["fill basic"].encode())


def services(patch: pytest.MonkeyPatch) -> None:
    """The service logs what metrics are asked with, and repeats it."""
    refuse, holds = _scrape.refuse, _scrape._holds

    def held(head: Any, token: Any) -> bool:
        logging.getLogger("afpool.serve").debug("asked with %s", token.reveal())
        return holds(head, token)

    def said(status: int, code: str, words: str, **more: Any) -> Any:
        return refuse(status, code, f"{words}; not {CANARIES['typed token']}", **more)

    patch.setattr(_scrape, "_holds", held)
    patch.setattr(_scrape, "refuse", said)


def all_of(names: tuple[str, ...], *places: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, place) for name in names for place in places)


def definitions(patch: pytest.MonkeyPatch) -> None:
    """Where a definition differs is told by every name that is in it."""
    patch.setattr(_explain_definition, "_known", lambda name: name)


PLANTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], tuple[tuple[str, str], ...]]] = {
    "facts": (facts, all_of(
        ("connection bearer",),
        r"use as JSON", r"event as JSON", r"event of the pool: as JSON", r"record told",
        r"record in calls\.jsonl", r"explanation of", r"console frame", r"console answer",
    )),
    "spans": (spans, (
        ("fill bearer", r"span"), ("fill bearer", r"metric"), ("redacted by key", r"span"),
        ("baggage", r"traceparent"),
    )),
    "identities": (identities, (
        *all_of(
            ("tenant", "principal"),
            r"use as JSON", r"record told", r"record in", r"console frame", r"console answer",
            r"explanation of",
        ),
        ("tenant", r"prometheus"),
        ("conversation", r"console answer"),
    )),
    "consoles": (consoles, (
        ("typed token", r"console refusal"), ("console operate", r"log of afpool\.console"),
        ("console operate", r"console answer"), ("console read", r"console frame"),
        ("typed", r"console frame"), ("typed", r"log of afpool\.console"), ("typed", r"event as JSON"),
        ("typed", r"record in calls"), ("fill bearer", r"stacks"), ("fill api_key", r"console answer"),
        ("fill basic", r"page as served"),
    )),
    "definitions": (definitions, all_of(("connection bearer",), r"explanation of", r"console answer")),
    "services": (services, (
        ("metrics token", r"log of afpool\.serve"), ("typed token", r"refusal of the service"),
    )),
}  # fmt: skip


@pytest.mark.parametrize("plant", PLANTS)
async def test_planted_leaks_are_found(
    plant: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: Any
) -> None:
    leak, expected = PLANTS[plant]
    leak(monkeypatch)
    found, here, _ = await toured("memory", tmp_path, capfd, briefly)
    leaks = told_apart(found, here).leaks
    missed = [
        (name, place)
        for name, place in expected
        if not any(one.name == name and re.match(place, one.place) for one in leaks)
    ]
    assert not missed


async def test_leaks_of_the_client_are_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: Any
) -> None:
    shown, init = _wire._shown, _link.Link.__init__

    def printed(token: Any) -> Any:
        print(token.reveal())
        return shown(token)

    def noted(link: Any, target: Any, token: Any = None, **more: Any) -> None:
        try:
            init(link, target, token, **more)
        except Exception as error:
            if token is not None:
                error.add_note(token.reveal())
            raise

    monkeypatch.setattr(_wire, "_shown", printed)
    monkeypatch.setattr(_link.Link, "__init__", noted)
    monkeypatch.setattr(Session, "__repr__", lambda session: f"<{session.token.reveal()}>")
    kept = tmp_path / "client" / "home" / "state" / "afpool"
    kept.mkdir(parents=True)
    (kept / "console-history").write_text(f"show config name={CANARIES['console read']}\n")

    async def beside(here: Town) -> None:
        await client.used(here, tmp_path / "client")

    found, here, _ = await toured("memory", tmp_path, capfd, briefly, beside=beside)
    leaks = told_apart(found, here).leaks
    for name, place in (
        ("console operate", r"client output"),
        ("console operate", r"client object"),
        ("typed token", r"client exception: note"),
        ("console read", r"client history"),
    ):
        assert any(one.name == name and re.match(place, one.place) for one in leaks), (name, place)


async def test_the_brief_tour_finds_nothing_where_nothing_was_planted(tmp_path: Path, capfd: Any) -> None:
    found, here, _ = await toured("memory", tmp_path, capfd, briefly)
    told = told_apart(found, here)
    assert told == Told()

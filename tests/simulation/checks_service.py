"""N1 to N9: what a service gives is for whoever asked, and what it sends is in his name.

* N1 Whatever runs at a server runs for the identity of the token that asked for it.
* N2 An answer holds what belongs to its own request: no mark, no progress and no question of another's.
* N3 A token that proves nobody is answered 401, and nothing runs for it; one that proves somebody is not.
* N4 Nothing leaves for a token once the service has been told that it ends (the gate).
* N5 Every request is answered exactly once, in bounded time.
* N6 What was proven under a token that ended is over soon after; a service that is left leaves nothing.
* N7 A session is its own identity's: named by another one it is not there, and nothing runs.
* N8 No token and no session's name stands in a record or a log (`driver_service.py` looks).
* N9 What is offered is what is configured; what comes once the service drains is not run.

Written from `docs/serve.md`. Facts are those of the ground of the service: of clients, wires and servers.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import attrs

from tests.simulation.driver_host import key_of
from tests.simulation.driver_service_client import messages_of
from tests.simulation.ground import Fact, Ran, Request, of
from tests.simulation.ground_service import (
    Draining,
    Left,
    Over,
    Piece,
    Presented,
    Served,
    TokenBack,
    TokenEnds,
    WentAway,
)
from tests.simulation.oracle_law import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.world import World
    from tests.simulation.world_service import ServiceSpec

SWEPT: Final = 3.5
"""Seconds within which what runs under a void proof is ended: a look each two seconds, and the way back."""

BOUND: Final = 80.0
"""Seconds within which a request is answered, for a client that reads at once."""

ASKING: Final = frozenset({"open", "call", "list", "ping", "resources"})
_MARK: Final = re.compile(r"(?:mark|progress)-of-([\w-]+?)\.")
_NOTICES: Final = frozenset({"notifications/tools/list_changed", "notifications/subscriptions/acknowledged"})


@attrs.define(eq=False)
class Story:
    """One request, with all that came of it.

    Attributes:
        asked: How it came, `over` when the application was done with it.
        pieces: What it was given.
        away: When its client went, or said that it does not want the answer.
    """

    asked: Presented
    pieces: list[Piece] = attrs.field(factory=list)
    over: Over | None = None
    away: WentAway | None = None

    @property
    def slow(self) -> float:
        """Seconds that its client took to read."""
        return self.asked.slow * len(self.pieces)

    @property
    def status(self) -> int | None:
        """The status of its answer."""
        return next((piece.status for piece in self.pieces if piece.status is not None), None)

    @property
    def body(self) -> bytes:
        """The bytes of its answer."""
        return b"".join(piece.body for piece in self.pieces)

    @property
    def messages(self) -> list[Any]:
        """The messages of its answer."""
        events = b"data:" in self.body[:200] or self.body.startswith(b":")
        return messages_of("text/event-stream" if events else "", self.body)


class Told:
    """The facts of one service, by request and by token."""

    def __init__(self, facts: list[Fact], spec: ServiceSpec, world: World) -> None:
        self.facts, self.spec, self.world = facts, spec, world
        self.stories: dict[str, Story] = {}
        self.openers: dict[str, Presented] = {}
        self.runs: dict[str, list[Ran]] = {}
        for fact in facts:
            if isinstance(fact, Presented):
                self.stories[fact.request] = Story(fact)
                if fact.what == "open":
                    self.openers.setdefault(fact.client, fact)
            elif isinstance(fact, Piece):
                self.stories[fact.request].pieces.append(fact)
            elif isinstance(fact, Over):
                self.stories[fact.request].over = fact
            elif isinstance(fact, WentAway):
                self.stories[fact.request].away = fact
            elif isinstance(fact, Ran):
                self.runs.setdefault(_label(fact.mark), []).append(fact)

    def key(self, server: str, who: str) -> str:
        """The key of a person at a server."""
        return key_of(self.world.server(server), self.world.person(who).identity)

    def ends(self, token: str, at: float) -> tuple[float, float]:
        """When a token ends that is presented at some time: since when it may be known, and must be."""
        never = (float("inf"), float("inf"))
        for_good, meanwhile = never, never
        for fact in self.facts:
            if isinstance(fact, TokenEnds) and fact.token == token:
                before = for_good if fact.for_good else meanwhile
                ends = (min(before[0], fact.at), min(before[1], fact.known))
                for_good, meanwhile = (ends, meanwhile) if fact.for_good else (for_good, ends)
            elif isinstance(fact, TokenBack) and fact.token == token and fact.at <= at:
                meanwhile = never
        return min(for_good[0], meanwhile[0]), min(for_good[1], meanwhile[1])

    def bad(self, asked: Presented) -> bool | None:
        """Whether its token proves nobody when it comes; None where that is open."""
        if asked.who is None:
            return True
        since, known = self.ends(asked.token, asked.at)
        return True if asked.at > known else None if asked.at >= since else False


def judge_service(facts: list[Fact], spec: ServiceSpec, world: World) -> list[Violation]:
    """Every rule that a service broke, in the order of its run."""
    told = Told(facts, spec, world)
    found: list[Violation] = []
    for check in CHECKS:
        found += check(told)
    return sorted(found, key=lambda each: each.seq)


def _label(mark: str | None) -> str:
    found = None if mark is None else _MARK.search(mark)
    return "" if found is None else found.group(1)


def check_ran(told: Told) -> Iterator[Violation]:
    """N1: see the module."""
    for label, runs in told.runs.items():
        story = told.stories.get(label)
        for ran in runs:
            if story is None or story.asked.who is None:
                yield Violation(
                    "N1", ran.seq, f"{ran.tool} ran at {ran.place} for {label}, which nobody asked"
                )
            elif ran.key != told.key(ran.server, story.asked.who):
                text = f"{label} of {story.asked.who} ran at {ran.place} for {ran.key}"
                yield Violation("N1", ran.seq, text)


def check_given(told: Told) -> Iterator[Violation]:
    """N2: see the module."""
    for label, story in told.stories.items():
        asked = story.asked
        for piece in story.pieces:
            for other in set(_MARK.findall(piece.body.decode("utf-8", "replace"))) - {label}:
                yield Violation("N2", piece.seq, f"{label} of {asked.client} is told of {other}")
        for message in story.messages:
            method = message.get("method")
            if method == "elicitation/create" and asked.tool != "ask":
                yield Violation("N2", asked.seq, f"{label} ({asked.what} {asked.tool}) is asked a question")
            if asked.what == "hear" and method is not None and method not in _NOTICES:
                yield Violation("N2", asked.seq, f"the stream {label} says {method}")
        text = _text(story)
        if text is not None and asked.who is not None and isinstance(text.get("who"), str):
            server = text["who"].partition("|")[0]
            if text["who"] != told.key(server, asked.who):
                yield Violation("N2", asked.seq, f"{label} of {asked.who} is given what is {text['who']}'s")


def _text(story: Story) -> dict[str, Any] | None:
    """What a tool said, where a request was answered with a tool's result."""
    for message in story.messages:
        content = ((message.get("result") or {}).get("content") or [{}]) if "result" in message else [{}]
        try:
            said = json.loads(content[0].get("text", ""))
        except (ValueError, AttributeError, IndexError, TypeError):
            continue
        if isinstance(said, dict):
            return said
    return None


def check_door(told: Told) -> Iterator[Violation]:
    """N3 and N7: see the module."""
    draining = next((fact.at for fact in of(told.facts, Draining)), float("inf"))
    for label, story in told.stories.items():
        asked, status = story.asked, story.status
        bad = told.bad(asked)
        if bad and told.runs.get(label):
            yield Violation("N3", asked.seq, f"{label} ran by the token {asked.token}, which proves nobody")
        if asked.at >= draining or status is None:
            continue
        if bad and status != 401:
            yield Violation("N3", asked.seq, f"{label} by the token {asked.token} is answered {status}")
        if bad is False and status == 401:
            yield Violation("N3", asked.seq, f"{label} by the good token {asked.token} is answered 401")
        owner = told.openers.get(asked.session or "")
        if owner is None or owner.who == asked.who or bad:
            continue
        if told.runs.get(label):
            yield Violation("N7", asked.seq, f"{label} of {asked.who} ran in a session of {owner.who}")
        if bad is False and status != 404:
            text = f"{label} of {asked.who} in a session of {owner.who} is answered {status}"
            yield Violation("N7", asked.seq, text)


def check_sent(told: Told) -> Iterator[Violation]:
    """N4: see the module."""
    for request in of(told.facts, Request):
        arguments = request.params.get("arguments")
        mark = arguments.get("mark") if isinstance(arguments, dict) else None
        story = told.stories.get(_label(mark if isinstance(mark, str) else None))
        if story is None:
            continue
        known = told.ends(story.asked.token, story.asked.at)[1]
        if request.at > known:
            text = f"{story.asked.request} left {request.at - known:.3f} s after its token's end was told"
            yield Violation("N4", request.seq, text)


def check_once(told: Told) -> Iterator[Violation]:
    """N5: see the module."""
    for label, story in told.stories.items():
        asked = story.asked
        statuses = [piece for piece in story.pieces if piece.status is not None]
        lasts = [piece for piece in story.pieces if piece.last]
        if len(statuses) > 1 or len(lasts) > 1:
            yield Violation("N5", asked.seq, f"{label} is answered {len(statuses)} times, ended {len(lasts)}")
        if story.over is None:
            yield Violation("N5", asked.seq, f"{label} ({asked.what}) of {asked.client} never ended")
            continue
        took = story.over.at - asked.at - story.slow
        if asked.what in ASKING and took > BOUND:
            yield Violation("N5", story.over.seq, f"{label} ({asked.what}) took {took:.1f} s")
        if story.away is not None and not story.away.told:
            continue
        if not statuses or not lasts:
            if story.away is None:
                yield Violation("N5", asked.seq, f"{label} ({asked.what}) was given no whole answer")
            continue
        if asked.what in ASKING and story.status == 200:
            answers = [each for each in story.messages if "method" not in each]
            if [each.get("id") for each in answers] != [asked.rpc]:
                ids = [each.get("id") for each in answers]
                yield Violation("N5", asked.seq, f"{label}, whose id is {asked.rpc}, has the answers {ids}")


def check_ended(told: Told) -> Iterator[Violation]:
    """N6: see the module."""
    for label, story in told.stories.items():
        asked = story.asked
        if asked.who is None or story.over is None:
            continue
        known = told.ends(asked.token, asked.at)[1]
        if known <= asked.at or asked.what not in {"call", "hear"}:
            continue
        if story.over.at > known + SWEPT + story.slow:
            text = f"{label} ({asked.what}) went on {story.over.at - known:.1f} s after its token's end"
            yield Violation("N6", story.over.seq, text)
    for left in of(told.facts, Left):
        if any(left.what.values()):
            yield Violation("N6", left.seq, f"a service that was left has {left.what}")
        for piece in of(told.facts, Piece):
            if piece.at > left.at + 1.0 and not told.stories[piece.request].slow:
                yield Violation(
                    "N6", piece.seq, f"{piece.request} is told something by a service that was left"
                )


def check_offered(told: Told) -> Iterator[Violation]:
    """N9: see the module."""
    served = list(of(told.facts, Served))
    names = {behind.name for behind in told.spec.behind}
    draining = next((fact for fact in of(told.facts, Draining)), None)
    for label, story in told.stories.items():
        asked = story.asked
        if draining is not None and asked.seq > draining.seq and told.runs.get(label):
            yield Violation("N9", asked.seq, f"{label} came when the service drained, and ran")
        if asked.what != "list" or story.over is None:
            continue
        before = [fact for fact in served if fact.seq < asked.seq][-1:]
        during = [fact for fact in served if asked.seq < fact.seq < story.over.seq]
        offered = {name for fact in (*before, *during) for name in fact.servers}
        for message in story.messages:
            for tool in (message.get("result") or {}).get("tools", ()):
                server = tool["name"].partition("__")[0]
                if server in names - offered:
                    yield Violation("N9", asked.seq, f"{label} is offered {tool['name']}")


CHECKS: Final = (
    check_ran,
    check_given,
    check_door,
    check_sent,
    check_once,
    check_ended,
    check_offered,
)

"""Whether an event that an explanation tells of happened, then, and to that key.

One rule for each kind of event that the record knows, read from what the world holds. An event of a kind that
stands here under none is a violation: somebody invented it. Rules say what is wrong, or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from tests.simulation.checks_lists import LIST_CHANGED
from tests.simulation.ground import (
    Answer,
    Closing,
    Crashed,
    Killed,
    Linked,
    Paused,
    PlanTold,
    Reconfigured,
    Request,
    Resumed,
    Revoked,
    Shared,
    Withdrawn,
)
from tests.simulation.ground_host import ServerFreed, ServerHeld
from tests.simulation.ground_why import Drained, Draining, Evicted
from tests.simulation.oracle_law import CODES
from tests.simulation.why_reading import NEAR

if TYPE_CHECKING:
    from tests.simulation.why_reading import Told
    from tests.simulation.why_world import Around

LAG: Final = 0.05
"""Seconds that what came may wait to be read, where it is long."""

LONG: Final = 64
"""Bytes of a call's id that an event holds."""

OPENINGS: Final = ("plan", "room", "connect", "credential", "sign", "initialize")
"""What an opening spends its time on."""

ENDS: Final = frozenset({"evicted", "silent", "client-lost", "killed", "aged", "closed"})
"""Kinds that end a client."""


@attrs.frozen
class Happened:
    """An event as an explanation tells it.

    Attributes:
        kind: Its kind.
        at: On the clock of the run.
        key: Whose it is; empty for one of a server or of the whole pool.
        facts: What is told with it.
        told: The explanation.
        text: How it is told.
    """

    kind: str
    at: float
    key: str
    facts: Mapping[str, Any]
    told: Told
    text: str = ""


Rule: TypeAlias = Callable[["Around", Happened], str]


def false_event(around: Around, event: Happened) -> str:
    """What is wrong about it; empty where it is true."""
    rule = RULES.get(event.kind)
    if rule is None:
        return f"nothing in the world is called {event.kind!r}"
    if event.kind in OF_A_SERVER and _whole_server(around, event):
        return ""
    if event.kind not in _OF_ALL and not event.key:
        return "it does not say whose key it befell"
    if event.at > event.told.fact.at + NEAR:
        return "it lies in the future"
    return rule(around, event)


def _whole_server(around: Around, event: Happened) -> bool:
    held = around.at(ServerHeld, event.at, lambda fact: fact.server == event.told.server)
    freed = around.at(ServerFreed, event.at, lambda fact: fact.server == event.told.server)
    return held if event.kind == "paused" else freed


def _fact(kind: type[Any], what: str) -> Rule:
    """There is a fact of that kind in that instant, about that key."""

    def rule(around: Around, event: Happened) -> str:
        found = around.at(
            kind,
            event.at,
            lambda fact: event.key == fact.key if hasattr(fact, "key") else event.key in fact.keys,
        )
        return "" if found else f"nothing {what} that key then"

    return rule


# ------------------------------------------------------------------------------------------ lists


def _list_changed(around: Around, event: Happened) -> str:
    if around.heard(event.key, LIST_CHANGED, event.at - LAG, event.at):
        return ""
    return "no such notice came to that key then"


def _stream_lost(around: Around, event: Happened) -> str:
    since, until = event.at - LAG, event.at
    if event.facts.get("why") == "anew":
        asked = ("subscriptions/listen", "notifications/cancelled")
        gone = around.since(
            Request, since, until + LAG, lambda fact: fact.key == event.key and fact.method in asked
        )
        return "" if gone or around.unlinked(event.key, since, until) else "that key gave no stream up then"
    if event.facts.get("why") in {"again", "late"}:
        came = around.heard(event.key, "notifications/subscriptions/acknowledged", since, until)
        return "" if came or around.taken(event.key, since, until) else "no stream of that key began then"
    ended = (
        around.unlinked(event.key, since, until)
        or around.answered(event.key, since, until, lambda answer: True)
        or around.heard(event.key, "notifications/cancelled", since, until)
    )
    return "" if ended else "no stream of that key ended then"


def _list(around: Around, event: Happened) -> str:
    def is_list(answer: Answer) -> bool:
        request = answer.request
        return request is not None and request.method == "tools/list"

    if not around.answered(event.key, event.at - LAG, event.at, is_list):
        return "no list came to that key then"
    generation, lists = event.facts.get("generation"), 0
    for answer in around.within(Answer, 0.0, event.at):
        request = answer.request
        if is_list(answer) and request is not None and request.server == event.key.partition("|")[0]:
            lists += 1
    if not isinstance(generation, int) or not 1 <= generation <= lists:
        return f"it was generation {generation} after {lists} lists"
    return _took(around, event, "")


def _unshared(around: Around, event: Happened) -> str:
    return "" if any(fact.shared for fact in around.bound.values()) else "no list was shared"


# ------------------------------------------------------------------------------------------ clients


def _lived(around: Around, event: Happened, until: float) -> bool:
    """Whether the key can have had a client by then."""
    server = event.key.partition("|")[0]
    if around.since(Linked, 0.0, until, lambda fact: fact.server == server):
        return True
    law = around.law.servers.get(server)
    # one that is opened without a word is there as soon as its plan is
    unseen = law is not None and law.unseen
    return unseen and around.since(PlanTold, 0.0, until, lambda fact: fact.key == event.key)


def _opened(around: Around, event: Happened) -> str:
    if not _lived(around, event, event.at):
        return "nobody ever connected to that server"
    return _took(around, event, "opened")


def _open_failed(around: Around, event: Happened) -> str:
    if event.facts.get("why") not in CODES:
        return f"{event.facts.get('why')!r} is no code"
    return _took(around, event, "failed")


def _took(around: Around, event: Happened, opening: str) -> str:
    """What is told of how long it took, and of the call that it was begun for."""
    took = event.facts.get("took")
    if not isinstance(took, int | float) or took < 0 or took > event.at + NEAR:
        return f"it took {took}"
    spent = [event.facts[name] for name in OPENINGS if name in event.facts]
    if sum(spent) > took + NEAR or any(part < 0 for part in spent):
        return f"its parts {spent} are more than {took}"
    call = event.facts.get("call")
    if not opening or call is None:
        return ""
    began = around.call(call)
    if around.is_own(call) or (began is not None and began.call != call):
        return ""  # by the pool itself, or for a part of a call
    if began is None:
        return f"it was begun for {call}, which nobody made"
    begun = event.at - took
    ended = around.ended.get(call)
    if began.key != event.key or began.at > begun + NEAR or (ended is not None and ended.at < begun - NEAR):
        return f"it was begun for {call}, which was not under way then, or is another key's"
    return ""


def _evicted(around: Around, event: Happened) -> str:
    why = event.facts.get("why")
    if why == "asked":
        return "" if around.at(Evicted, event.at, lambda fact: fact.key == event.key) else "nobody asked"
    if why == "idle":
        idle = around.law.idle_timeout
        busy = around.since(
            Request, event.at - idle + 1e-3, event.at, lambda fact: fact.is_call and fact.key == event.key
        )
        return "it was not idle" if busy else ""
    room_for = event.facts.get("room_for")
    if why != "room" or room_for is None:
        return f"it was for {why!r}"
    if room_for not in around.law.shown or around.law.shown[room_for] == event.key:
        return f"it made room for {room_for}, who is nobody else's key"
    return ""


def _killed(around: Around, event: Happened) -> str:
    client = event.facts.get("client")
    for fact in around.within(Killed, event.at, event.at):
        if event.key in {fact.key, ""} and fact.client == client:
            return ""
    return f"nobody killed client {client} then"


def _client_lost(around: Around, event: Happened) -> str:
    """Its link ended, or an answer said that its session is over."""
    since, until = event.at - LAG, event.at
    if around.unlinked(event.key, since, until) or around.answered(
        event.key, since, until, lambda answer: True
    ):
        return ""
    return "nothing ended at that key then"


def _closed(around: Around, event: Happened) -> str:
    # one that is killed may not have come as far as a link
    killed = any(event.key in {fact.key, ""} for fact in around.within(Killed, event.at, event.at))
    return "" if killed or _lived(around, event, event.at) else "it never had a client"


def _suspect(around: Around, event: Happened) -> str:
    limits = around.law
    since = event.at - limits.settle_timeout - limits.cancel_grace - limits.longest
    silent = around.active(event.key, max(0.0, since), event.at)
    return "" if silent else "nothing was asked that it could have been silent about"


def _silent(around: Around, event: Happened) -> str:
    if event.facts.get("why") not in CODES:
        return f"{event.facts.get('why')!r} is no code"
    return ""


def _aged(around: Around, event: Happened) -> str:
    since = max(0.0, event.at - around.law.max_age * 0.5)
    return "" if _lived(around, event, since) else "no client of that server was old then"


# ------------------------------------------------------------------------------------------ bindings


def _plan_changed(around: Around, event: Happened) -> str:
    told = [fact for fact in around.within(PlanTold, 0.0, event.at) if fact.key == event.key]
    for before, fact in pairwise(told):
        if fact.at >= event.at - LAG and fact.context != before.context:
            return ""
    return "the app's plan for that key was the same as before"


def _share_changed(around: Around, event: Happened) -> str:
    names = {fact.name for fact in around.within(Shared, 0.0, event.at) if fact.key == event.key}
    bound = event.told.bound
    if names - {None if bound is None else bound.name}:
        return ""
    return "`share` always gave the same name for that key"


def _reconfigured(around: Around, event: Happened) -> str:
    return "" if around.at(Reconfigured, event.at) else "no configuration came into force then"


def _revoked(around: Around, event: Happened) -> str:
    found = around.at(Revoked, event.at, lambda fact: event.key in fact.keys)
    return "" if found else "that key was not revoked then"


def _drained(around: Around, event: Happened) -> str:
    took = event.facts.get("took")
    if not isinstance(took, int | float):
        return "it does not say how long it took"
    begun = around.at(Draining, event.at - took, lambda fact: fact.key == event.key)
    done = around.at(Drained, event.at, lambda fact: fact.key == event.key)
    return "" if begun and done else "nobody drained that key then"


def _withdrawn(around: Around, event: Happened) -> str:
    call = event.facts.get("call")
    # an id that is too long is left out
    found = [
        fact.call
        for fact in around.within(Withdrawn, event.at, event.at)
        if fact.found and (fact.call == call or (call is None and len(fact.call) > LONG))
    ]
    if not found:
        return f"call {call} was not withdrawn then"
    its_own = event.told.began.call in found
    return (
        "" if its_own or "withdrew the call" not in event.text else "it was another call that was withdrawn"
    )


def _closing(around: Around, event: Happened) -> str:
    # a block that is cancelled is left in the step after
    return (
        "" if around.since(Closing, event.at - LAG, event.at, lambda fact: True) else "the pool was not left"
    )


OF_A_SERVER: Final = frozenset({"paused", "resumed"})
"""Kinds that may be about all keys of a server."""

_OF_ALL: Final = frozenset({"reconfigured", "closing", "killed"})
"""Kinds that may be about no key in particular."""

RULES: Final[Mapping[str, Rule]] = {
    "list-changed": _list_changed,
    "stream-lost": _stream_lost,
    "list": _list,
    "unshared": _unshared,
    "opened": _opened,
    "open-failed": _open_failed,
    "evicted": _evicted,
    "killed": _killed,
    "client-lost": _client_lost,
    "closed": _closed,
    "suspect": _suspect,
    "silent": _silent,
    "aged": _aged,
    "actor-crashed": _fact(Crashed, "crashed"),
    "revoked": _revoked,
    "reconfigured": _reconfigured,
    "plan-changed": _plan_changed,
    "share-changed": _share_changed,
    "paused": _fact(Paused, "paused"),
    "resumed": _fact(Resumed, "resumed"),
    "draining": _fact(Draining, "began to drain"),
    "drained": _drained,
    "withdrawn": _withdrawn,
    "closing": _closing,
}

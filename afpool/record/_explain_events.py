"""Events of the pool in words: what happened, to which client, asked for by whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ._explain_words import listed, plain, quoted, took

if TYPE_CHECKING:
    from ..pool import Event

_SENTENCES: Final[dict[str, str]] = {
    "list-changed": "the server announced a changed tool list",
    "stream-lost": "the notification stream of client {client} was lost, so that its list was in doubt",
    "list": "a changed list, generation {generation}, came",
    "opened": "client {client} was opened",
    "open-failed": "an opening of a client failed",
    "evicted": "client {client} was evicted",
    "silent": "client {client} did not answer a ping",
    "invalidated": "the key was invalidated",
    "closed": "client {client} was closed",
    "killed": "client {client} was killed",
    "client-lost": "client {client} ended",
    "suspect": "client {client} was pinged, since nothing had come from it",
    "aged": "client {client} reached the greatest age of a client",
    "unshared": "the shared list was taken out of sharing",
    "actor-crashed": "the actor of the key crashed",
    "revoked": "the key was revoked",
    "reconfigured": "another configuration of the server took effect",
    "plan-changed": "the app's plan for this identity became another one",
    "share-changed": "the app's `share` gave another authorization name",
    "paused": "{held} was paused",
    "resumed": "{held} was resumed",
    "draining": "the key began to drain",
    "drained": "the key was drained",
    "closing": "the pool began to close",
    "pool-closed": "the pool began to close",
    "withdrawn": "the host withdrew the call",
    "refreshed": "the key's list was asked for anew",
    "traced": "a trace of the key was switched",
    "reload-asked": "the configuration was to be read anew, as was asked for",
    "shutdown": "the process was to end, as was asked for",
}
_OTHERWISE: Final[dict[tuple[str, str], str]] = {
    (
        "stream-lost",
        "anew",
    ): "the notification stream of client {client} was asked for anew, so that its list was in doubt",
    ("stream-lost", "again"): "the notification stream of client {client} was there again, so that its list "
    "was in doubt",
    ("stream-lost", "late"): "the notification stream of client {client} came later than its list, which so "
    "was in doubt",
    ("stream-lost", "lost"): _SENTENCES["stream-lost"],
}
"""What an event is called that came about for one of several reasons."""
_WHY: Final[dict[tuple[str, str], str]] = {
    ("evicted", "idle"): ", since nobody used it",
    ("evicted", "room"): ", since there was no room for another one",
    ("evicted", "asked"): ", which was asked for",
}
"""What some words say; others stand as they are."""
_WORTH_TELLING: Final = 0.00005  # seconds
_SPENT: Final[dict[str, str]] = {
    "plan": "the plan",
    "room": "waiting for room for a client",
    "credential": "the credential",
    "sign": "the signer",
    "connect": "connecting",
    "initialize": "initializing",
}


def told_event(event: Event, *, subject: str = "", brief: bool = False) -> str:
    """Write one event as part of a sentence.

    Args:
        event: The event.
        subject: Put in front of it, such as "meanwhile ".
        brief: Leave out what it took, and what it was begun for.
    """
    facts = event.facts
    otherwise = _OTHERWISE.get((event.kind, str(facts.get("why"))))
    template = otherwise or _SENTENCES.get(event.kind, "")
    if event.kind == "list" and facts.get("generation") == 1:
        template = "a first list of its client came"
    held = "the key" if event.key else f"the server {quoted(event.server)}"
    if not template:
        text = f"{quoted(event.kind)} was filed"
    elif "{client}" in template and "client" not in facts:
        text = template.replace(" {client}", " of the key").replace("client of the key", "the key's client")
    else:
        text = template.format_map(_Facts(facts, held=held))
    if facts.get("by"):
        text += f" by {plain(facts['by'])}"
    if facts.get("why") and otherwise is None:
        text += _WHY.get((event.kind, str(facts["why"]))) or f" ({plain(facts['why'], 200)})"
    if brief:
        return subject + text
    if facts.get("call") and event.kind in ("opened", "open-failed"):
        text += f", begun for call {quoted(facts['call'], 60)}"
    if facts.get("room_for"):
        text += f", and one was wanted for {plain(facts['room_for'])}"
    if isinstance(facts.get("took"), int | float):
        spent_by = "after it was asked for" if event.kind == "list" else ""
        text += (
            f", {_seconds(facts, 'took')} {spent_by}" if spent_by else f", after {_seconds(facts, 'took')}"
        )
        spent = [
            f"{words} {_seconds(facts, name)}" for name, words in _SPENT.items() if _worth(facts.get(name))
        ]
        if spent:
            text += f" ({listed(spent, len(_SPENT))})"
    if facts.get("after") is not None:
        text += f"; event {plain(facts['after'])} had ended the client before"
    return subject + text


def _worth(filed: object) -> bool:
    return isinstance(filed, int | float) and not abs(filed) < _WORTH_TELLING


def _seconds(facts: dict[str, object], name: str) -> str:
    filed = facts[name]
    return took(filed) if isinstance(filed, int | float) else "?"


def facts_of(event: Event) -> dict[str, Any]:
    """Give what an event files as plain data: its number, its kind, its facts."""
    told = {"event": event.number, "kind": event.kind}
    if event.key:
        told["key"] = event.key
    for name, value in event.facts.items():
        told.setdefault(name, value)
    return told


class _Facts(dict[str, object]):
    """Facts of an event, of which any may be missing."""

    def __missing__(self, name: str) -> str:
        return "?"

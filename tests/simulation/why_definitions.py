"""Whether two definitions of a tool differ where an explanation says so, and nowhere else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.simulation.why_reading import Told
    from tests.simulation.why_world import Around

_GONE: Final = "does not hold"
_UNREAD: Final = "that can be read"
_AS_BEFORE: Final = "is defined as before"


def wrong_definition(around: Around, told: Told) -> Iterator[str]:
    """What is wrong about what is said of the tool's definition."""
    for clause in told.clauses("definition"):
        if told.bound is None:
            yield "what was asked of a server stands on no definition"
            return
        wrong = _wrong(around, told, clause)
        if wrong:
            yield f"it tells {clause['text']!r}, and {wrong}"


def _wrong(around: Around, told: Told, clause: Mapping[str, Any]) -> str:
    assert told.bound is not None
    tool, text, facts = told.began.tool, clause["text"], clause["facts"]
    was = told.bound.definitions.get(tool)
    if was is None:
        return "the tool was not listed"
    # lists that were received by then for that server, newest last
    lists = [each for each in around.received(told.server) if each.seq < told.fact.seq]
    now = [each.tools.get(tool) for each in lists]
    generations = facts.get("generation")
    if generations is not None and not 1 <= generations[0] <= generations[1] <= len(lists):
        return f"{len(lists)} lists had come"
    if _GONE in text:
        return "" if None in now else "every list holds it"
    if _UNREAD in text:
        unread = any(each.twice or "NaN" in str(each.tools) for each in lists)
        return "" if unread else "every list shows it so that it can"
    if _AS_BEFORE in text:
        return "" if was in now else "no list holds it so"
    others = {each for each in now if each is not None and each != was}
    if not others:
        return "no list shows it otherwise"
    if not facts.get("differs"):
        return "" if not facts.get("complete", True) else "it does not say where"
    hidden = any("…" in each["pointer"] for each in facts["differs"])
    whole = facts.get("complete", False) and not facts.get("more") and not hidden
    wrongs = [
        _apart(json.loads(was), json.loads(other), facts["differs"], whole=whole) for other in sorted(others)
    ]
    return "" if hidden or "" in wrongs else wrongs[0]


def _apart(was: Any, now: Any, places: Sequence[Mapping[str, str]], *, whole: bool) -> str:
    """What is wrong about these being the places where two documents differ."""
    for place in places:
        before, after = _at(was, place["pointer"]), _at(now, place["pointer"])
        how = "added" if before is _ABSENT else "removed" if after is _ABSENT else "changed"
        if before == after or how != place["how"]:
            return f"at {place['pointer']} it is {how if before != after else 'the same'}"
    if whole:
        rest = [_without(document, [place["pointer"] for place in places]) for document in (was, now)]
        if rest[0] != rest[1]:
            return "it differs elsewhere, too"
    return ""


_ABSENT: Final = object()


def _names(pointer: str) -> list[str]:
    return [name.replace("~1", "/").replace("~0", "~") for name in pointer.split("/")[1:]]


def _at(document: Any, pointer: str) -> Any:
    for name in _names(pointer):
        if isinstance(document, dict) and name in document:
            document = document[name]
        elif isinstance(document, list) and name.isdigit() and int(name) < len(document):
            document = document[int(name)]
        else:
            return _ABSENT
    return document


def _without(document: Any, pointers: list[str]) -> Any:
    """A document less what stands at some places."""
    document = json.loads(json.dumps(document))
    for pointer in sorted(pointers, reverse=True):
        *above, last = _names(pointer) or [""]
        inner = document
        for name in above:
            inner = inner.get(name) if isinstance(inner, dict) else None
        if isinstance(inner, dict):
            inner.pop(last, None)
    return document

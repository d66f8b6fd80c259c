"""D1 to D7: what holds of every call through the door, whatever came of it.

* D1 What the host fills is filled with what is the caller's: the field of the identity that he had when the
  call began, a credential that was vended for that very person. What a model or a hook says for it never
  leaves.
* D2 A call sees the artifacts of its own scope: the store is asked in no other, and nothing of anybody else's
  comes to its tool or back to its caller.
* D3 What a caller is told is the answer to that very call: by its marks, and by the tool that ran.
* D4 A tool runs a call once at most, one of the host's own as well, and a name means the tool that it is the
  name of.
* D5 Verdicts of calls of the host's own tools are true.
* D6 Every call through the door comes back, once, in time.
* D7 A tool of the host's own gets the caller's credential, and runs for whoever called.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import attrs

from tests.simulation.ground import Fact, Ran, Request, Vended, of
from tests.simulation.ground_door import (
    Acknowledged,
    Asked,
    HookSaid,
    LocalEnded,
    LocalRan,
    Refilled,
    SchemaChanged,
    ShelfAsked,
    Shelved,
    Told,
)
from tests.simulation.oracle_law import SLACK, Law, Violation
from tests.simulation.world_door import DEEP

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MARK: Final = re.compile(r"mark-of-([a-z][0-9]+(?::inner:[0-9]+)*)\.")
OWNED: Final = re.compile(r"owned-by:([^;/]+/[^;/]+/[^;/]+);")
MODEL: Final = re.compile(r"model-value-|hook-value")
REF: Final = re.compile(r"art_[0-9A-Za-z]{22}")
NOBODY: Final = "-/-/-"
VAULT: Final = "vault"
"""The tool of a server that declares what is filled."""

PLACES: Final = {"tenant": 0, "principal": 1, "conversation_id": 2}


@attrs.frozen
class Doors:
    """The facts of a run's door, by call.

    Attributes:
        asked: How each call was made, and `told` how it came back.
        fills: Server to what is filled there, as each change left it.
        loose: Servers at which what a name means for a fill has been changed: by a schema or by the host.
        vended: Value to the owners that it was vended for, and when.
        stored: Ref to how it was stored.
        misled: Calls whose own tool looked through a store that mixed in what is another's: a ticket names no
            scope, so that what such a store lists is the tool's to tell.
    """

    asked: Mapping[str, Asked]
    told: Mapping[str, Told]
    fills: Mapping[str, list[Refilled]]
    loose: frozenset[str]
    vended: Mapping[str, Vended]
    stored: Mapping[str, Shelved]
    misled: frozenset[str]

    @classmethod
    def of(cls, facts: list[Fact]) -> Doors:
        """Read them."""
        fills: dict[str, list[Refilled]] = {}
        for fact in of(facts, Refilled):
            fills.setdefault(fact.server, []).append(fact)
        loose = {fact.server for fact in of(facts, Acknowledged)}
        loose |= {server for server, each in fills.items() if len(each) > 1}
        return cls(
            {fact.call: fact for fact in of(facts, Asked)},
            {fact.call: fact for fact in of(facts, Told)},
            fills,
            frozenset(loose),
            {fact.value: fact for fact in of(facts, Vended) if fact.owner.startswith(f"{DEEP}:")},
            {fact.ref: fact for fact in of(facts, Shelved)},
            frozenset(_misled(facts)),
        )


def _misled(facts: list[Fact]) -> Iterator[str]:
    inside: set[str] = set()
    for fact in facts:
        if isinstance(fact, LocalRan):
            inside.add(fact.call)
        elif isinstance(fact, LocalEnded):
            inside.discard(fact.call)
        elif isinstance(fact, ShelfAsked) and (fact.verb, fact.mood) == ("list", "strays"):
            yield from inside & {fact.call}


def _is_there(facts: list[Fact]) -> bool:
    return any(isinstance(fact, Asked) for fact in facts)


# ------------------------------------------------------------------------------------------ D1


def check_fills(facts: list[Fact], law: Law) -> Iterator[Violation]:
    """D1: see the module."""
    if law.door is None or not _is_there(facts):
        return
    doors = Doors.of(facts)
    for ran in of(facts, Ran):
        asked = doors.asked.get(ran.call or "")
        fills = doors.fills.get(ran.server)
        if asked is None or not fills or not ran.tool.startswith(VAULT):
            continue
        for why in _filled_wrong(doors, asked, fills, ran.server, ran.args):
            yield Violation("D1", ran.seq, f"call {asked.call} at {ran.server}: {why}")
    for request in of(facts, Request):
        asked = doors.asked.get(request.call or "")
        if asked is None or request.server in doors.loose or request.server not in doors.fills:
            continue
        if not str(request.params.get("name")).startswith(VAULT):
            continue
        given = request.params.get("arguments")
        for name in doors.fills[request.server][0].fill:
            if isinstance(given, dict) and MODEL.search(str(given.get(name))):
                text = f"call {asked.call}: what the model says for {name} left"
                yield Violation("D1", request.seq, text)
    for local in of(facts, LocalRan):
        asked = doors.asked.get(local.call)
        spec = law.door.local(local.tool)
        if asked is None or spec is None or spec.kind != "filled":
            continue
        fill = Refilled(server="", fill={"account": "principal", "token": "credential"})
        for why in _filled_wrong(doors, asked, [fill], "", local.args):
            yield Violation("D1", local.seq, f"call {asked.call} of the host's own: {why}")
        for name in fill.fill:
            if not isinstance(local.args, dict) or name not in local.args:
                yield Violation("D1", local.seq, f"call {asked.call} ran without {name}")


def _filled_wrong(
    doors: Doors, asked: Asked, fills: list[Refilled], server: str, args: Mapping[str, Any]
) -> Iterator[str]:
    for name, value in args.items():
        sources = {each.fill[name] for each in fills if name in each.fill}
        if not sources or (server in doors.loose and MODEL.search(str(value))):
            continue
        if not any(_is_theirs(doors, asked, source, value) for source in sources):
            yield f"{name} is filled with {value!r}, which is not the caller's ({asked.scope}, {sources})"


def _is_theirs(doors: Doors, asked: Asked, source: str, value: Any) -> bool:
    if asked.scope is None:
        return False
    fields = asked.scope.split("/")
    if source in PLACES:
        theirs: bool = value == fields[PLACES[source]]
        return theirs and value != "-"
    vended = doors.vended.get(value) if isinstance(value, str) else None
    if vended is None:
        return value == "abc"  # a short one, which is everybody's
    owner = f"{DEEP}:machine" if source == "machine" else f"{DEEP}:{fields[0]}/{fields[1]}"
    return vended.owner == owner


# ------------------------------------------------------------------------------------------ D2


def check_artifacts(facts: list[Fact], law: Law) -> Iterator[Violation]:
    """D2: see the module."""
    if law.door is None or not _is_there(facts):
        return
    doors = Doors.of(facts)
    own: dict[str, str] = {}  # scope that the runtime made up to the outermost call that it was made for
    for fact in facts:
        if isinstance(fact, ShelfAsked | Shelved) and fact.call is not None:
            asked = doors.asked.get(fact.call)
            if asked is None or asked.scope is None:
                continue
            if asked.scope != NOBODY:
                if fact.scope != asked.scope:
                    text = f"call {fact.call} of {asked.scope} asked the store in the scope of {fact.scope}"
                    yield Violation("D2", fact.seq, text)
                continue
            outer = fact.call.partition(":")[0]
            if own.setdefault(fact.scope, outer) != outer:
                text = f"call {fact.call} of nobody's shares a scope with {own[fact.scope]}"
                yield Violation("D2", fact.seq, text)
        texts: tuple[str, str] | None = None
        if isinstance(fact, Ran | LocalRan) and fact.call in doors.asked:
            texts = (fact.call or "", json.dumps(fact.args, default=repr))
        elif isinstance(fact, Told):
            texts = (fact.call, fact.text)
        if texts is None:
            continue
        for why in _not_theirs(doors, *texts):
            yield Violation("D2", fact.seq, why)


def _not_theirs(doors: Doors, call: str, text: str) -> Iterator[str]:
    asked = doors.asked[call]
    for found in OWNED.finditer(text):
        if asked.scope not in {None, found.group(1)}:
            yield f"call {call} of {asked.scope} is given what belongs to {found.group(1)}"
    said = json.dumps(asked.args, default=repr)
    for ref in dict.fromkeys(REF.findall(text)):
        stored = doors.stored.get(ref)
        if stored is None or ref in said or asked.scope in {None, NOBODY} or call in doors.misled:
            continue
        if stored.scope != asked.scope:
            whose = f"{stored.scope}, which it did not name"
            yield f"call {call} of {asked.scope} is told of an artifact of {whose}"


# ------------------------------------------------------------------------------------------ D3


def check_told(facts: list[Fact], law: Law) -> Iterator[Violation]:
    """D3: see the module."""
    if law.door is None or not _is_there(facts):
        return
    doors = Doors.of(facts)
    for fact in facts:
        if isinstance(fact, Told) and fact.call in doors.asked:
            asked = doors.asked[fact.call]
            for mark in dict.fromkeys(MARK.findall(fact.text)):
                if mark == fact.call or mark.startswith(f"{fact.call}:"):
                    continue
                other = doors.asked.get(mark)
                if other is not None and other.scope == asked.scope and _may_hold(doors, asked, mark):
                    continue
                if fact.call.startswith(f"{mark}:"):
                    continue  # from inside of it
                text = f"call {fact.call} of {asked.scope} is told what {mark} was told: {fact.text[:200]}"
                yield Violation("D3", fact.seq, text)
        if isinstance(fact, Ran | LocalRan) and fact.call in doors.asked:
            asked = doors.asked[fact.call or ""]
            mark = fact.args.get("mark") if isinstance(fact.args, dict) else None
            if isinstance(mark, str) and mark != f"mark-of-{asked.call}.":
                text = f"call {asked.call} ran with the arguments of another: {mark}"
                yield Violation("D3", fact.seq, text)


def _may_hold(doors: Doors, asked: Asked, mark: str) -> bool:
    """Whether a call may come upon what another one of the same scope has left in an artifact."""
    left = any(f"mark-of-{mark}." in each.text for each in doors.stored.values())
    return left and bool(REF.search(json.dumps(asked.args, default=repr)))


# ------------------------------------------------------------------------------------------ D4, D5, D7


def check_runs(facts: list[Fact], law: Law) -> Iterator[Violation]:
    """D4, D5 and D7: see the module."""
    if law.door is None or not _is_there(facts):
        return
    doors = Doors.of(facts)
    ran: dict[str, list[LocalRan]] = {}
    at_servers: set[str] = set()
    for fact in facts:
        if isinstance(fact, LocalRan):
            ran.setdefault(fact.call, []).append(fact)
            yield from _local_run(doors, fact, law)
        elif isinstance(fact, Ran) and fact.call in doors.asked:
            asked = doors.asked[fact.call or ""]
            at_servers.add(asked.call)
            if asked.intended and (fact.server, fact.tool) != (asked.server, asked.tool):
                there = f"{fact.server}/{fact.tool}"
                text = f"call {asked.call} of {asked.server}/{asked.tool} ran at {there}"
                yield Violation("D4", fact.seq, text)
    for call, runs in ran.items():
        if len(runs) > 1:
            yield Violation("D4", runs[-1].seq, f"call {call} of the host's own ran {len(runs)} times")
    for told in of(facts, Told):
        asked = doors.asked[told.call]
        if asked.server is not None:
            continue
        spec = law.door.local(asked.tool)
        has_run = told.call in ran or told.call in at_servers
        if told.delivery in {"not-sent", "refused"} and has_run:
            yield Violation("D5", told.seq, f"call {told.call} ({told.code}, {told.delivery}): it ran")
        if told.delivery == "answered" and not has_run and spec is not None and asked.intended:
            text = f"call {told.call} ({told.code}, {told.delivery}): it did not run"
            yield Violation("D5", told.seq, text)


def _local_run(doors: Doors, fact: LocalRan, law: Law) -> Iterator[Violation]:
    asked = doors.asked.get(fact.call)
    if asked is None:
        yield Violation("D4", fact.seq, f"{fact.tool} ran for {fact.call}, which nobody called")
        return
    if asked.intended and (asked.server is not None or asked.tool != fact.tool):
        yield Violation("D4", fact.seq, f"call {fact.call} of {asked.server}/{asked.tool} ran {fact.tool}")
    of_its_own = asked.run is not None and (asked.scope or "").endswith(asked.run)
    named = NOBODY if of_its_own else asked.scope
    if fact.scope != named and asked.scope is not None:
        yield Violation("D7", fact.seq, f"call {fact.call} of {asked.scope} ran for {fact.scope}")
    if fact.credential is not None and asked.scope is not None:
        owner = doors.vended.get(fact.credential)
        fields = asked.scope.split("/")
        theirs = {f"{DEEP}:machine", f"{DEEP}:{fields[0]}/{fields[1]}"}
        if owner is not None and owner.owner not in theirs:
            yield Violation("D7", fact.seq, f"call {fact.call} of {asked.scope} got that of {owner.owner}")


# ------------------------------------------------------------------------------------------ D6


def check_back(facts: list[Fact], law: Law) -> Iterator[Violation]:
    """D6: see the module."""
    if law.door is None:
        return
    told: dict[str, list[Told]] = {}
    for fact in of(facts, Told):
        told.setdefault(fact.call, []).append(fact)
    for asked in of(facts, Asked):
        found = told.get(asked.call, [])
        if len(found) != 1:
            yield Violation("D6", asked.seq, f"call {asked.call} ({asked.said}) came back {len(found)} times")
        elif found[0].at > max(asked.deadline, asked.at) + SLACK:
            late = found[0].at - asked.deadline
            text = f"call {asked.call} came back {late:.3f} s after its deadline ({found[0].code})"
            yield Violation("D6", found[0].seq, text)


def hooked(facts: list[Fact], call: str) -> list[HookSaid]:
    """What hooks have done about a call."""
    return [fact for fact in of(facts, HookSaid) if fact.call == call]


def changed_schema(facts: list[Fact], server: str | None) -> bool:
    """Whether a server has ever listed its filled tool otherwise."""
    return any(fact.server == server for fact in of(facts, SchemaChanged))

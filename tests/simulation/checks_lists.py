"""I5: no bound tool runs once its client has received a list that shows another definition.

What a client has received is put together here from the pages that it took off the wire. A list counts when
the clock has moved on since its last byte was taken: until then it is being read.

An incarnation is told by its link (shared streams), by its session (HTTP with sessions), and where there is
none, by its key and the number of its openings: what is not known for sure is not judged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import attrs

from tests.simulation.ground import Began, Bound, Fact, Heard, Request, of
from tests.simulation.oracle_law import Law, ServerLaw, Violation

Incarnation: TypeAlias = tuple[str, str, object]
LIST_CHANGED = "notifications/tools/list_changed"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


def canonical(definition: Any, without: tuple[str, ...] = ()) -> str:
    """One text for one definition, less what is not compared."""
    if without and isinstance(definition, dict):
        definition = json.loads(json.dumps(definition))
        for pointer in without:
            _drop(definition, pointer.split("/")[1:])
    return json.dumps(definition, sort_keys=True)


def _drop(value: Any, path: list[str]) -> None:
    *above, last = path
    for name in above:
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, dict):
        value.pop(last, None)


@attrs.define
class Listed:
    """A list as it came: when it was asked for, when its last byte was taken."""

    asked: int
    seq: int = -1
    at: float = -1.0
    tools: dict[str, str] = attrs.field(factory=dict)
    twice: set[str] = attrs.field(factory=set)


class Received:
    """The lists of one run by incarnation, oldest first."""

    def __init__(self, facts: list[Fact], law: Law) -> None:
        self.lists: dict[Incarnation, list[Listed]] = {}
        self.began: dict[Incarnation, int] = {}
        self.notices: dict[Incarnation, list[Heard]] = {}
        self._law = law
        self._openings: dict[str, int] = {}
        self._ids: dict[str, set[Any]] = {}
        self._of_request: dict[int, Incarnation] = {}
        self._pages: dict[tuple[Incarnation, str], Listed] = {}
        self._listens: dict[tuple[Incarnation, Any], int] = {}
        for request in of(facts, Request):
            self._see(request)
        for heard in of(facts, Heard):
            self._hear(heard)
        for lists in self.lists.values():
            lists.sort(key=lambda each: each.seq)

    def of(self, request: Request) -> Incarnation | None:
        """The incarnation that a request belongs to."""
        return self._of_request.get(request.seq)

    def _see(self, request: Request) -> None:
        if request.key is None:
            return
        used = self._ids.setdefault(request.key, set())
        if request.method in {"initialize", "server/discover"} or request.id in used:
            # a client uses each id once, so another one is at work, which need not have asked for anything
            self._openings[request.key] = self._openings.get(request.key, 0) + 1
            used.clear()
        if request.id is not None and request.method is not None:
            used.add(request.id)
        which: object
        if request.verb in {"LINE", "FRAME"}:
            which = request.link
        elif request.session is not None:
            which = request.session
        else:
            which = self._openings.get(request.key, 0)
        incarnation = (request.key, request.place, which)
        self._of_request[request.seq] = incarnation
        self.began.setdefault(incarnation, request.seq)
        if request.method == "tools/list":
            self._page(incarnation, request)

    def _page(self, incarnation: Incarnation, request: Request) -> None:
        for answer in request.answers:
            result = (answer.message or {}).get("result")
            if not isinstance(result, dict) or not isinstance(result.get("tools"), list):
                continue
            cursor = request.params.get("cursor")
            page = Listed(request.seq) if cursor is None else self._pages.pop((incarnation, cursor), None)
            if page is None:
                return
            for tool in result["tools"]:
                self._tool(page, tool, self._law.servers.get(request.server))
            following = result.get("nextCursor")
            if isinstance(following, str):
                self._pages[incarnation, following] = page
                return
            page.seq, page.at = answer.seq, answer.at
            self.lists.setdefault(incarnation, []).append(page)
            return

    @staticmethod
    def _tool(page: Listed, tool: Any, server: ServerLaw | None) -> None:
        name = tool.get("name") if isinstance(tool, dict) else None
        if isinstance(name, str):
            if name in page.tools:
                page.twice.add(name)
            page.tools[name] = canonical(tool, () if server is None else server.without)

    def _hear(self, heard: Heard) -> None:
        request = heard.request
        if heard.method != LIST_CHANGED or heard.key is None:
            return
        incarnation: Incarnation | None = (heard.key, heard.place, heard.link)
        if request is not None:
            incarnation = self._of_request.get(request.seq)
        if incarnation is not None:
            self.notices.setdefault(incarnation, []).append(heard)

    def newest(self, incarnation: Incarnation, request: Request) -> list[Listed]:
        """The last list that had been received before a request left, and what came in the very instant.

        Any of them may be the one that is known: an answer that has just come is still being read.
        """
        found: list[Listed] = []
        for each in self.lists.get(incarnation, ()):
            if each.at < request.at:
                found = [each]
            elif each.seq < request.seq:
                found.append(each)
        return found

    def elsewhere(
        self, incarnation: Incarnation, newest: Listed, request: Request, tool: str, wanted: str | None
    ) -> bool:
        """Whether another client of the server has received a list since then that shows a tool so."""
        server = incarnation[0].partition("|")[0]
        return any(
            each.tools.get(tool) == wanted
            for other, lists in self.lists.items()
            if other != incarnation and other[0].partition("|")[0] == server
            for each in lists
            if newest.seq < each.seq < request.seq
        )

    def asked(self, incarnation: Incarnation, seq: int) -> int:
        """When the last list was asked for that had been received before some fact; -1 for none."""
        return max((each.asked for each in self.lists.get(incarnation, ()) if each.seq < seq), default=-1)


def check_lists(facts: list[Fact], law: Law) -> Iterator[Violation]:
    """I5, and of I2: a list that is known to have changed closes the gate."""
    received = Received(facts, law)
    bound = {fact.tools: fact for fact in of(facts, Bound)}
    began = {fact.call: fact for fact in of(facts, Began)}
    for request in of(facts, Request):
        call = began.get(request.call or "")
        if call is None or call.tools not in bound or request.method != "tools/call":
            continue
        if law.weak(request.server):
            continue
        incarnation = received.of(request)
        if incarnation is None:
            continue
        for rule, why in _untrue(received, incarnation, bound[call.tools], call, request, law):
            yield Violation(rule, request.seq, f"call {call.call} ({call.key} → {call.tool}): {why}")


def _untrue(
    received: Received, incarnation: Incarnation, bound: Bound, call: Began, request: Request, law: Law
) -> Iterator[tuple[str, str]]:
    newest = received.newest(incarnation, request)
    wanted = bound.definitions.get(call.tool)
    if bound.shared and all(each.at == request.at for each in newest):
        newest = []  # the client's first list is still being read: the shared one counts as it stands
    if bound.shared:
        # an older one of the client's own says nothing: another member has listed for the entry since
        newest = [each for each in newest if each.seq > bound.seq]
        if newest and received.elsewhere(incarnation, newest[-1], request, call.tool, wanted):
            newest = []  # nor does one that another member's list has come after
    known = [each for each in newest if call.tool not in each.twice]
    if known and len(known) == len(newest) and all(each.tools.get(call.tool) != wanted for each in known):
        what = "not at all" if known[0].tools.get(call.tool) is None else "otherwise"
        yield "I5", f"left though the list received as #{known[0].seq} shows it {what}"
    if bound.shared:
        return
    server = law.servers.get(request.server)
    same_client = received.began[incarnation] < bound.epoch_from
    if newest and server is not None and server.refuses and same_client and not request.again:
        changed = all(each.seq > bound.seq and _differs(each, bound.definitions) for each in newest)
        if changed:
            yield "I5", f"left though the list has changed since (#{newest[0].seq})"
    asked = received.asked(incarnation, request.seq)
    for heard in received.notices.get(incarnation, ()):
        if -1 < asked < heard.seq and heard.at < request.at and _counts(heard, server):
            yield (
                "I2",
                f"left on a list whose change was announced (#{heard.seq}) and that was not asked for since",
            )
            return


def _counts(heard: Heard, server: ServerLaw | None) -> bool:
    if server is None or server.era == "handshake":
        return True
    if server.era == "both":
        return False
    meta = heard.params.get("_meta")
    request = heard.request
    wanted = request.id if request is not None and request.method == "subscriptions/listen" else None
    return wanted is not None and isinstance(meta, Mapping) and meta.get(SUBSCRIPTION) == wanted


def _differs(newest: Listed, definitions: Mapping[str, str]) -> bool:
    if newest.twice:
        return False
    return {name: newest.tools.get(name) for name in definitions} != dict(definitions)

"""What happened around calls, by kind and key, as the checks of explanations ask for it."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final, TypeVar

from tests.simulation.checks_lists import Received
from tests.simulation.ground import (
    Answer,
    Began,
    Bound,
    Ended,
    Fact,
    Filed,
    Heard,
    Linked,
    Request,
    Unlinked,
    of,
)
from tests.simulation.ground_door import AGAIN, Asked, base_call
from tests.simulation.why_reading import NEAR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.simulation.checks_lists import Listed
    from tests.simulation.oracle_law import Law

T = TypeVar("T", bound=Fact)

FURTHER: Final = re.compile(r"(:again|\.\d+)$")
"""Ends of ids that are made of another call's."""

OWN: Final = re.compile(r"call-\d+$")
"""Ids of calls that the pool makes by itself."""


class Around:
    """The facts of one run, to be looked at by kind and time.

    Args:
        facts: All of them, in order.
        law: What the run is held to.

    Attributes:
        began: How each call began, `ended` how it ended, `bound` what was handed out.
        requests: The requests of each call.
        at_doors: Calls by name of which it is not certain whose tool they meant.
    """

    def is_own(self, call: str) -> bool:
        """Whether how a call ended is not the world's to know: the pool's own, or one by a name."""
        return OWN.match(call) is not None or base_call(call) in self.at_doors

    def __init__(self, facts: list[Fact], law: Law) -> None:
        self.facts = facts
        self.law = law
        self.began = {fact.call: fact for fact in of(facts, Began)}
        self.ended = {fact.call: fact for fact in of(facts, Ended)}
        self.bound = {fact.tools: fact for fact in of(facts, Bound)}
        self.at_doors = {fact.call for fact in of(facts, Asked)} - set(self.began)
        self.requests: dict[str, list[Request]] = {}
        self._filed = {fact.call: fact for fact in of(facts, Filed)}
        self._lists: Received | None = None
        self.links: dict[int, Linked] = {}
        self.link_keys: dict[int, set[str]] = {}
        self._kinds: dict[type[Fact], tuple[list[float], list[Fact]]] = {}
        for fact in facts:
            times, same = self._kinds.setdefault(type(fact), ([], []))
            times.append(fact.at)
            same.append(fact)
            if isinstance(fact, Request):
                if fact.call is not None:
                    self.requests.setdefault(fact.call, []).append(fact)
                if fact.key is not None:
                    self.link_keys.setdefault(fact.link, set()).add(fact.key)
            elif isinstance(fact, Linked):
                self.links[fact.link] = fact
                if fact.key is not None:
                    self.link_keys.setdefault(fact.link, set()).add(fact.key)

    def call(self, name: str) -> Began | None:
        """How a call began that another one names: also a second attempt, or a further call of a context."""
        return self.began.get(name) or self.began.get(FURTHER.sub("", name))

    def in_doubt(self, name: str) -> bool:
        """Whether a call that has ended may have begun to leave; of a cancelled one the record says so."""
        ended, filed = self.ended.get(name), self._filed.get(name)
        verdict = None if ended is None else ended.delivery
        return (verdict or (None if filed is None else filed.delivery)) == "in-doubt"

    def first_pass(self, name: str) -> Filed | None:
        """How a call ended that its door made once more, under an id of its own, since nothing had run."""
        return self._filed.get(name) if name + AGAIN in self._filed else None

    def within(self, kind: type[T], since: float, until: float) -> Iterator[T]:
        """The facts of a kind from one time to another, both of them included, in order."""
        times, same = self._kinds.get(kind, ([], []))
        first, last = bisect_left(times, since - NEAR), bisect_right(times, until + NEAR)
        return (fact for fact in same[first:last] if isinstance(fact, kind))

    def at(self, kind: type[T], when: float, fits: Callable[[T], bool] = lambda fact: True) -> bool:
        """Whether such a fact came about in that instant."""
        return any(map(fits, self.within(kind, when, when)))

    def since(self, kind: type[T], first: float, until: float, fits: Callable[[T], bool]) -> bool:
        """Whether such a fact came about in between."""
        return any(map(fits, self.within(kind, first, until)))

    def received(self, server: str) -> list[Listed]:
        """The lists of a server that came, in order."""
        if self._lists is None:
            self._lists = Received(self.facts, self.law)
        lists = self._lists.lists
        found = [
            each for (key, _, _), same in lists.items() if key.partition("|")[0] == server for each in same
        ]
        return sorted(found, key=lambda each: each.seq)

    # ------------------------------------------------------------------ of a key

    def heard(self, key: str, method: str, since: float, until: float) -> bool:
        """Whether a client of a key took such a message."""
        return self.since(
            Heard, since, until, lambda fact: fact.method == method and self._of(fact.link, fact.key, key)
        )

    def answered(self, key: str, since: float, until: float, fits: Callable[[Answer], bool]) -> bool:
        """Whether a client of a key took such an answer."""

        def of_key(fact: Answer) -> bool:
            request = fact.request
            return request is not None and self._of(request.link, request.key, key) and fits(fact)

        return self.since(Answer, since, until, of_key)

    def taken(self, key: str, since: float, until: float) -> bool:
        """Whether a key may have begun to listen: a stream of the handshake era says so by its head alone."""
        return self.since(
            Request, 0.0, until, lambda fact: fact.verb == "GET" and self._of(fact.link, fact.key, key)
        )

    def unlinked(self, key: str, since: float, until: float) -> bool:
        """Whether a link of a key ended."""
        return self.since(Unlinked, since, until, lambda fact: self._of(fact.link, None, key))

    def active(self, key: str, since: float, until: float) -> bool:
        """Whether anything of a key went over the wire, or tried to."""
        return (
            self.since(Request, since, until, lambda fact: self._of(fact.link, fact.key, key))
            or self.since(Linked, since, until, lambda fact: self._of(fact.link, fact.key, key))
            or self.unlinked(key, since, until)
            or self.answered(key, since, until, lambda fact: True)
        )

    def _of(self, link: int, named: str | None, key: str) -> bool:
        if named is not None:
            return named == key
        known = self.link_keys.get(link)
        if known is None:  # nothing on it ever said whose it is
            return link in self.links and self.links[link].server == key.partition("|")[0]
        return key in known

"""The books of the soak: what callers asked for and were told, beside what the servers' logs say.

* Every call has a number, which stands in its arguments. By the logs: it came to the server that it was meant
  for, as who asked, under a credential of theirs that was not older than the call; it ran at most once.
* What the caller was told is true: `not-sent` never came, `refused` came and did not run, `answered` came, a
  good answer ran once and is the answer to that call. Every call ends, and files a use that says the same.
* No session and no connection carries two projections.
* Calls are judged at quiet moments, when nothing is under way; what is judged is forgotten but for three
  bytes each, so that a run that comes later still is found.
"""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final

import attrs
from soak_world import owner, projection, spelled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from soak_world import World

    from afpool import Identity
    from afpool._base.use import Use

VERDICTS: Final = ("", "not-sent", "refused", "in-doubt", "answered")
KEPT: Final = 200
ALIKE: Final = 3
"""How many violations are shown that differ in numbers and names of people only."""
_NUMBERS: Final = re.compile(r"[tpc]?[0-9][0-9.,]*|quick|slow|progress|big|do|same")


@attrs.define(eq=False)
class Asked:
    """One call.

    Attributes:
        version: Of the credential, when the call began.
        heard: What the caller was told: `ok`, an error's code, or `left` where the caller went first.
        delivery: The verdict, `None` while nothing was told.
        wrong: An answer that is not the answer to this call.
        uses: Delivery and attempts of each use that was filed.
        refused: How often a server answered it so that it proves that nothing ran.
        inner: It was made from inside of another call.
    """

    number: int
    who: Identity
    server: str
    how: str
    version: int
    heard: str = ""
    delivery: str | None = None
    wrong: str | None = None
    uses: list[tuple[str | None, int]] = attrs.field(factory=list)
    refused: int = 0
    inner: bool = False


class Books:
    """All calls, and what the logs say of them.

    Attributes:
        open: Calls whose callers have not come back.
        violations: What was broken, in words.
        events: The last things that were done, for whoever reads a violation.
        heard: How calls ended.
        hows: What calls asked for, and what became of it.
    """

    def __init__(self, world: World, now: Callable[[], float]) -> None:
        self._world = world
        self._now = now
        self._calls: dict[int, Asked] = {}
        self._runs = bytearray()
        self._came = bytearray()
        self._told = bytearray()
        self._offsets: Counter[str] = Counter()
        self._rests: dict[str, bytes] = {}
        self._owners: dict[tuple[str, str, Any], str] = {}
        self.open = 0
        self.made = 0
        self.arrivals = 0
        self.runs = 0
        self.doubtful = Counter[str]()
        self.heard: Counter[str] = Counter()
        self.violations: list[str] = []
        self._alike: Counter[str] = Counter()
        self._shown: list[str] = []
        self.events: deque[str] = deque(maxlen=KEPT)

    # ------------------------------------------------------------------ callers

    def note(self, text: str) -> None:
        """Remember what was done."""
        self.events.append(f"{self._now():9.3f} {text}")

    def broken(self, text: str) -> None:
        """A rule was broken."""
        self.violations.append(f"{self._now():9.3f} {text}")
        kind = _NUMBERS.sub("#", text)
        self._alike[kind] += 1
        if self._alike[kind] <= ALIKE:  # of a flood the first say it, and what led to it stays readable
            self.note(f"BROKEN {text}")
            self._shown.append(f"VIOLATION {self.violations[-1]}")

    def ask(self, who: Identity, server: str, how: str, *, inner: bool = False) -> Asked:
        """Number a call that begins now."""
        self.made += 1
        number = self.made
        for book in (self._runs, self._came, self._told):
            if len(book) <= number:
                book.extend(bytes(4096))
        version = self._world.vault.version[owner(server, who)]
        asked = self._calls[number] = Asked(number, who, server, how, version, inner=inner)
        self.open += 1
        return asked

    def end(self, asked: Asked, heard: str, delivery: str | None, text: str | None = None) -> None:
        """The caller has come back."""
        self.open -= 1
        asked.heard, asked.delivery = heard, delivery
        self.heard[heard] += 1
        if heard == "ok" and text is not None and asked.how != "big":
            meant = f"call {asked.number} of {spelled(asked.who)}"
            if text != meant:
                asked.wrong = text[:100]
        if delivery in VERDICTS:
            self._told[asked.number] = VERDICTS.index(delivery)
        if delivery == "in-doubt":
            self.doubtful[asked.how] += 1

    def use(self, use: Use) -> None:
        """A use was filed: of a call, or of its repeat."""
        name = use.repeated_of or use.call_id
        if not name.isdigit() or (asked := self._calls.get(int(name))) is None:
            return
        asked.uses.append((use.delivery, use.attempts))

    # ------------------------------------------------------------------ logs

    def read(self, logs: Iterable[tuple[str, Path]]) -> int:
        """Take in what servers have written since; gives how many lines that were."""
        lines = 0
        for server, path in logs:
            if not path.exists():
                continue
            with path.open("rb") as file:
                file.seek(self._offsets[server])
                data = file.read()
            self._offsets[server] += len(data)
            *whole, self._rests[server] = (self._rests.get(server, b"") + data).split(b"\n")
            for line in whole:
                entry = json.loads(line)
                if "run" in entry:
                    self.ran(server, entry)
                elif "refused" in entry:
                    if entry["refused"] in self._calls:
                        self._calls[entry["refused"]].refused += 1
                else:
                    self._arrived(server, entry)
            lines += len(whole)
        return lines

    def ran(self, server: str, entry: dict[str, Any]) -> None:
        """A server's log says that a call ran."""
        number = entry["run"]
        if not isinstance(number, int) or not 0 < number <= self.made:
            self.broken(f"{server} ran a call that nobody made: {entry}")
            return
        self.runs += 1
        self._runs[number] = min(255, self._runs[number] + 1)
        if self._runs[number] > 1:
            self.broken(f"call {number} ran {self._runs[number]} times at {server}")
        told = VERDICTS[self._told[number]]
        if told in {"not-sent", "refused"}:
            self.broken(f"call {number} ran at {server}, and its caller was told `{told}`")

    def _arrived(self, server: str, entry: dict[str, Any]) -> None:
        self.arrivals += 1
        read = None if entry["credential"] is None else self._world.vault.read(entry["credential"])
        if read is None:
            self.broken(f"{server}: {entry['came']} came without a credential that was ever vended: {entry}")
            return
        whose, version = read
        if whose[0] != server:
            self.broken(f"{server}: {entry['came']} came with a credential for {whose[0]}")
        self._belongs(server, entry, "/".join(whose[1:]))
        number = entry.get("n")
        if entry["came"] != "tools/call":
            return
        asked = self._calls.get(number) if isinstance(number, int) else None
        if asked is None:
            if not isinstance(number, int) or not 0 < number <= self.made:
                self.broken(f"{server}: a call that nobody made: {entry}")
            elif VERDICTS[self._told[number]] == "not-sent":
                self.broken(f"call {number} came to {server} after all, and was told `not-sent`")
            return
        self._came[asked.number] = min(255, self._came[asked.number] + 1)
        if (asked.server, spelled(asked.who)) != (server, entry["who"]):
            self.broken(
                f"call {number} of {spelled(asked.who)} at {asked.server} came as {entry} to {server}"
            )
        if whose != owner(server, asked.who):
            self.broken(f"call {number} of {spelled(asked.who)} came with a credential of {'/'.join(whose)}")
        if server in {"files", "feed", "open"} and version < asked.version:
            self.broken(
                f"call {number} came with credential {version} of {'/'.join(whose)}; "
                f"{asked.version} was there before it began"
            )
        kept = spelled(projection(server, asked.who))
        self._belongs(server, entry, kept, "callers")

    def _belongs(self, server: str, entry: dict[str, Any], whom: str, what: str = "credentials") -> None:
        """A session and a connection belong to one projection, and show one owner's credentials."""
        carriers = [("connection", f"{entry['pid']}.{entry['connection']}")]
        if entry["session"] is not None:
            carriers.append(("session", entry["session"]))
        for kind, name in carriers:
            first = self._owners.setdefault((server, kind, (what, name)), whom)
            if first != whom:
                self.broken(f"a {kind} of {server} carried {what} of {first} and of {whom}: {entry['came']}")

    # ------------------------------------------------------------------ judging

    def judge(self) -> int:
        """Judge all calls, now that nothing is under way; gives how many."""
        calls = list(self._calls.values())
        for asked in calls:
            for why in self._false(asked):
                self.broken(
                    f"call {asked.number} ({asked.how} at {asked.server}, {asked.heard}, {asked.delivery}, "
                    f"came {self._came[asked.number]}, ran {self._runs[asked.number]}): {why}"
                )
        self._calls.clear()
        self._owners.clear()  # no connection and no session outlives a quiet moment
        return len(calls)

    def _false(self, asked: Asked) -> Iterable[str]:
        came, ran = self._came[asked.number], self._runs[asked.number]
        if not asked.heard:
            yield "its caller has not come back"
            return
        delivery = asked.delivery
        if not asked.uses:
            # a caller that left before the call had begun has none
            if asked.heard != "left" or (came and not asked.inner):
                yield "no use of it was filed"
        elif asked.heard == "left":
            delivery = asked.uses[-1][0]
            self._told[asked.number] = VERDICTS.index(delivery or "")
        elif all(each != delivery for each, _ in asked.uses):
            yield f"its use says {asked.uses[-1][0]}"
        if delivery not in VERDICTS[1:] and asked.heard != "left":
            yield "it has no verdict"
        if delivery in {"not-sent", "refused"} and ran:
            yield "it ran"
        if delivery == "not-sent" and came > asked.refused and len(asked.uses) == 1 and not asked.inner:
            yield "it came"
        if delivery in {"refused", "answered"} and not came and asked.how != "nest":
            yield "it never came"
        if asked.heard in {"ok", "tool-error"} and ran != 1:
            yield "it was answered, and did not run once"
        if asked.wrong is not None:
            yield f"the answer was another one's: {asked.wrong!r}"

    def report(self) -> list[str]:
        """What was broken and what was done last, for whoever reads it."""
        lines = list(self._shown)
        if len(self.violations) > len(lines):
            lines.append(f"and {len(self.violations) - len(lines)} more that are like these")
        return [*lines, "the last events:", *(f"  {text}" for text in self.events)]

"""What a scene has: servers that are real, a record to ask, and checks of what it says.

A scene does one thing to one call and asks why the call ended as it did. What the record says is compared
with what the scene has done: the outcome with what the caller got, the cause with the event that the scene
brought about, facts with words that only the truth holds.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, final

import trio

import afpool.artifacts
import afpool.tools
from afpool import AfpoolError, ToolResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from afpool import Pool, Use
    from afpool.record import Explanation, Record

NEVER_OF_A_CALL = {
    ("afpool-error", None): "the root of all errors; nothing raises it",
    ("not-owner", None): "raised where several processes share keys",
    ("actor-crashed", "in-doubt"): "what was sent when its actor crashes keeps its own answer and verdict",
    ("lease-returned-twice", None): "a fault of afpool's own, which no call can bring about",
    ("cannot-hide-argument", None): "raised where tools are listed, before there is a call",
    ("ERR_ARTIFACT", None): "the root of what stores raise; nothing raises it",
    ("ERR_UNREADABLE_ARTIFACT_STORE", None): "raised where a store is opened, before there is a call",
}
"""Codes (and verdicts; `None` for all) that no call ends with, and why."""


@final
class Play:
    """The scenes' stage: asks, checks, prints.

    Args:
        say: Where lines go.
    """

    def __init__(self, say: Callable[[str], object] = print) -> None:
        self._say = say
        self.wrong: list[str] = []
        self.shown: set[tuple[str, str]] = set()
        self.scenes = 0

    def title(self, text: str) -> None:
        self._say(f"\n{text}\n{'=' * len(text)}")

    async def why(
        self,
        did: str,
        record: Record,
        call_id: str,
        ending: tuple[str, str, str],
        *cause: str,
        event: str | None = None,
        told: tuple[str, ...] = (),
        instead_of: tuple[str, str] | None = None,
    ) -> Explanation:
        """Ask why a call ended and check the answer.

        Args:
            did: What was done.
            record: Whom to ask.
            call_id: The call.
            ending: Outcome, code and verdict that the scene saw (code empty for none).
            cause: Patterns that the headline must match.
            event: The kind of the event that caused it; the newest of that kind in the pool.
            told: Patterns that some clause must match.
            instead_of: Code and verdict of an error that a tool met inside of the call, where a call's own
                error is always another one.
        """
        explanation = await record.why(call_id)
        use = record.call(call_id)[0]
        self.show(did, explanation)
        outcome, code, delivery = ending
        self._is(did, "outcome", (use.outcome, use.code or "", use.delivery), ending)
        self.shown.add((code, delivery) if instead_of is None else instead_of)
        if code and instead_of is None and outcome != "cancelled":
            self._holds(did, explanation.headline, f"`{code}`")
        for pattern in cause:
            self._matches(did, [explanation.headline], pattern)
        texts = [clause.text for clause in explanation.clauses]
        for pattern in told:
            self._matches(did, texts, pattern)
        self._caused(did, record.pool, use, event, explanation)
        self._stages(did, use, explanation)
        return explanation

    def show(self, did: str, explanation: Explanation) -> None:
        """Print an explanation that is checked by its scene."""
        self.scenes += 1
        self._say(f"\n* {did}")
        self._say("".join(f"    {line}\n" for line in explanation.words(104).splitlines()).rstrip())

    def check(self, what: str, *, holds: bool) -> None:
        """Note what does not hold."""
        if not holds:
            self._wrong(what)

    # ------------------------------------------------------------------ checks

    def _wrong(self, what: str) -> None:
        self.wrong.append(what)
        self._say(f"    WRONG: {what}")

    def _is(self, did: str, what: str, found: object, expected: object) -> None:
        if found != expected:
            self._wrong(f"{did}: {what} is {found!r}, not {expected!r}")

    def _holds(self, did: str, text: str, part: str) -> None:
        if part not in text:
            self._wrong(f"{did}: {part!r} is not in {text!r}")

    def _matches(self, did: str, texts: list[str], pattern: str) -> None:
        if not any(re.search(pattern, text) for text in texts):
            self._wrong(f"{did}: nothing matches {pattern!r} in {texts!r}")

    def _caused(self, did: str, pool: Pool, use: Use, kind: str | None, explanation: Explanation) -> None:
        """The event that is named is the one that the scene brought about, and no refusal claims another."""
        causes = [clause for clause in explanation.clauses if "which caused the outcome" in clause.text]
        if kind is None:
            if causes:
                self._wrong(f"{did}: {causes[0].text!r}, and the scene brought no event about")
            return
        newest = next((each for each in reversed(list(pool.records.events)) if each.kind == kind), None)
        if newest is None:
            self._wrong(f"{did}: the pool filed no event `{kind}`")
            return
        self._is(did, "the number of the cause", use.cause, newest.number)
        if len(causes) != 1 or causes[0].facts.get("event") != newest.number:
            self._wrong(f"{did}: event {newest.number} (`{kind}`) is not told as the cause")

    def _stages(self, did: str, use: Use, explanation: Explanation) -> None:
        """Nothing of a call that sent nothing says otherwise, and its parts make up the whole."""
        stages = [stage for stage, _ in use.stages]
        if use.delivery == "not-sent" and use.attempts <= 1 and "sent" in stages:
            self._wrong(f"{did}: the verdict is not-sent, and a first byte is filed")
        spent = next(
            (clause.facts["spent"] for clause in explanation.clauses if "spent" in clause.facts), None
        )
        if spent is not None and use.ended_at is not None:
            total, whole = sum(spent.values()), use.ended_at - use.began_at
            if abs(total - whole) > 0.001:
                self._wrong(f"{did}: the stages make {total:.4f} s, the call took {whole:.4f} s")

    def missing(self) -> list[str]:
        """Name the codes and verdicts of calls that no scene has shown."""
        return sorted(
            f"{code} ({delivery})"
            for code, delivery in promised()
            if (code, delivery) not in self.shown
            and (code, delivery) not in NEVER_OF_A_CALL
            and (code, None) not in NEVER_OF_A_CALL
        )


def promised() -> set[tuple[str, str]]:
    """Every code that an error of the runtime has, with each verdict that it may have."""
    for package in (afpool.artifacts, afpool.tools):
        for name in package.__all__:  # their classes are loaded when they are touched
            getattr(package, name)
    own = ("afpool._base", "afpool.client", "afpool.pool", "afpool.tools", "afpool.artifacts")
    found = set()
    classes = [AfpoolError]
    while classes:
        each = classes.pop()
        classes += each.__subclasses__()
        if each.__module__.startswith(own):
            found |= {(each.code, delivery) for delivery in each.deliveries}
    return found


async def ended(call: Awaitable[Any], within: float = 15.0) -> AfpoolError | None:
    """Await a call to its end; give the error that it ended with."""
    with trio.fail_after(within):
        try:
            result = await call
        except AfpoolError as error:
            return error
    return result.error if isinstance(result, ToolResult) else None

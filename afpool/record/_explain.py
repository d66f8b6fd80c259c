"""An outcome explained: from the facts that a call filed back to the one that caused it.

Rules:

* Each clause comes from something that was filed: in the call's use, in an event, in a definition, in the use
  of another call. Nothing is guessed; what has left the record, or was never filed, is said to be so.
* Any use is explained, also one that holds what nobody expected; in never more than `CLAUSES` clauses, and in
  one step of a few milliseconds.
* Keys stand by their digest. Whom a run acts for, values of arguments and texts of errors stand nowhere: of
  an error its code, of what somebody's code raised the name of the class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

from ._explain_advice import advice, verdict
from ._explain_causes import note_words
from ._explain_definition import changed
from ._explain_events import facts_of, told_event
from ._explain_headline import headline
from ._explain_others import siblings_of
from ._explain_stages import STAGES_TOLD, Stage, shares_of
from ._explain_view import View
from ._explain_words import after, listed, plain, quoted, share, took
from ._explained import Clause, Explanation

if TYPE_CHECKING:
    from .._base.use import Use
    from ..pool import Event
    from ._explain_sources import Sources
    from ._explained import Source
    from ._pointers import Difference

CLAUSES: Final = 48
EVENTS_TOLD: Final = 8
NOTES_TOLD: Final = 8
_WORTH_TELLING: Final = 0.0005  # seconds
_ALWAYS_TOLD: Final = frozenset({"leased", "sent", "answered", "adopted", "renegotiation"})
_OFTEN: Final = 8


def explain_use(use: Use, sources: Sources, found: Difference | None = None) -> Explanation:
    """Explain one call.

    Args:
        use: Its facts; also of a call that still runs.
        sources: Where the other facts stand.
        found: Where the two definitions differ, where that was looked for already.

    Raises nothing for what a use may hold.
    """
    view = View(use, sources)
    told = _Told(view)
    words, facts = changed(view, found)
    told.began()
    told.stages()
    told.waiting()
    told.opening()
    told.siblings()
    told.events()
    told.cause()
    if words:
        told.say(None, words, facts, "definition")
    told.notes()
    return Explanation(headline(view, words), told.clauses())


@final
class _Told:
    """The clauses of one explanation."""

    __slots__ = ("_clauses", "_view")

    def __init__(self, view: View) -> None:
        self._view = view
        self._clauses: list[Clause] = []

    def say(self, at: float | None, text: str, facts: dict[str, Any], source: Source = "use") -> None:
        self._clauses.append(Clause(None if at is None else round(at, 6), text, facts, source))

    def clauses(self) -> tuple[Clause, ...]:
        """Give them in the order of time, bounded; what has no time stands behind, and the verdict last."""
        clauses = sorted((clause for clause in self._clauses if clause.at is not None), key=_at)
        clauses += [clause for clause in self._clauses if clause.at is None]
        last = self._last()
        return (*_bounded(clauses, CLAUSES - len(last)), *last)

    # ------------------------------------------------------------------ the call itself

    def began(self) -> None:
        view, use = self._view, self._view.use
        facts: dict[str, Any] = {"call_id": use.call_id, "tool": use.tool, "server": use.server}
        text = f"{view.what} was called"
        if use.tool and use.name != use.tool:
            text += f" as {quoted(use.name)}"
        if use.server:
            text += f" on {quoted(use.server)}"
        if view.key:
            text += f" for key {view.key}"
            facts["key"] = view.key
        if use.run_id is not None:
            text += f", in run {quoted(use.run_id)}"
            facts["run_id"] = use.run_id
        if use.parent is not None:
            text += f", from inside of call {quoted(use.parent)}"
            facts["parent"] = use.parent
        self.say(0.0, text, facts)
        if use.repeat:
            number = "the first" if use.repeat == 1 else f"number {use.repeat}"
            text = f"it is {number} of the repeats of a call that ended in doubt, under the same call id"
            self.say(0.0, text, {"repeat": use.repeat, "call_id": use.call_id})
        if use.repeated_of is not None:
            self._second(use.repeated_of)
        if use.changed:
            text = f"a hook changed, or a view hides, {listed([quoted(name) for name in use.changed])}"
            self.say(None, text, {"changed": list(use.changed)})

    def _second(self, first: str) -> None:
        uses = self._view.sources.calls(first)
        text = f"it is the second attempt of call {quoted(first)}"
        if uses and uses[0].code:
            text += f", which ended with {quoted(uses[0].code)}, after which nothing had run"
        self.say(0.0, text, {"repeated_of": first}, "sibling" if uses else "use")

    def stages(self) -> None:
        told = [stage for stage in self._view.stages if self._worth(stage)]
        left_out = len(told) - STAGES_TOLD
        if left_out > 0:
            told = [*told[: STAGES_TOLD - _OFTEN], *told[-_OFTEN:]]
            self.say(None, f"{left_out} more stages are not told here", {"stages": len(self._view.stages)})
        for stage in told:
            facts: dict[str, Any] = {"stage": stage.name, "took": round(stage.took, 6)}
            if stage.attempt:
                facts["attempt"] = stage.attempt
            self.say(stage.ended, self._stage(stage), facts)

    def _worth(self, stage: Stage) -> bool:
        if stage.name in _ALWAYS_TOLD or (stage.name == "attempt" and stage.attempt > 1):
            return True
        return stage.waits and (stage is self._view.stages[-1] or not stage.took < _WORTH_TELLING)

    def _stage(self, stage: Stage) -> str:
        use = self._view.use
        several = use.attempts > 1 and stage.attempt
        if stage.name == "leased":
            return f"got its place{'' if use.client_id is None else f', on client {use.client_id}'}"
        if stage.name == "sent":
            of = f" of attempt {stage.attempt}" if several else ""
            return f"the first byte{of} left, after which nothing refuses"
        if stage.name == "attempt":
            return f"attempt {stage.attempt} began"
        if not stage.waits:
            return stage.words.doing
        part = share(stage.took, self._view.whole)
        of = f"attempt {stage.attempt}, " if several else ""
        return f"{of}{stage.words.doing}: {took(stage.took)}{f', {part}' if part else ''}"

    def waiting(self) -> None:
        """Tell where a running call waits, and what its pool says of that now."""
        view = self._view
        if view.waits is None:
            return
        name, since, _ = view.waits
        at = view.since(since)
        self.say(
            at,
            f"began to wait at {quoted(name)}, and waits still",
            {"waits_for": name, "since": round(at, 6)},
        )
        if name != "admission":
            return
        for event in view.holding:
            self.say(view.since(event.at), f"{told_event(event)}, and is so still", facts_of(event), "event")
        opening = view.sources.opening(view.use)
        if opening is not None:
            call_id, stage, began = opening
            text = "an opening of its client is under way"
            text += "" if call_id is None else f", begun for call {quoted(call_id, 60)}"
            text += f", for {took(view.now - began)}, at {quoted(stage)} now"
            facts: dict[str, Any] = {"opening": stage, "took": round(view.now - began, 6)}
            self.say(view.since(began), text, facts | ({} if call_id is None else {"call": call_id}), "now")

    def notes(self) -> None:
        use = self._view.use
        told = [each for each in use.facts or () if each[1] != use.code]
        for stage, word, at in told[:NOTES_TOLD]:
            facts = {"fact": [plain(stage), plain(word)]}
            self.say(self._view.since(float(at)), f"noted: {note_words(stage, word)}", facts)
        if use.reports:
            text = f"{use.reports} report{'' if use.reports == 1 else 's'} of progress came"
            if use.reported is not None:
                done, whole = use.reported
                text += f", the last at {done:g}" + ("" if whole is None else f" of {whole:g}")
            self.say(None, text, {"reports": use.reports})

    # ------------------------------------------------------------------ what else there was

    def opening(self) -> None:
        view, number = self._view, self._view.use.opening
        if number is None:
            self._opening_it_left()
            return
        event = view.sources.event(number)
        if event is None:
            text = f"event {number} ended the opening that it waited for, and has left the record since"
            self.say(None, text, {"opening": number})
        elif view.event is None or event.number != view.event.number:
            text = told_event(event, subject="the opening that it waited for: ")
            self.say(view.since(event.at), text, facts_of(event), "event")

    def _opening_it_left(self) -> None:
        """Tell of the opening that a call gave up to wait for, where it has ended since."""
        view = self._view
        if view.runs or not view.stages or view.stages[-1].name != "admission" or view.use.held_by:
            return
        for event in view.sources.events_between(view.key, view.use.server, view.end, view.now):
            spent = event.facts.get("took")
            if event.kind in ("opened", "open-failed") and isinstance(spent, int | float):
                if event.at - spent <= view.end:
                    text = told_event(event, subject="the opening that it had waited for went on: ")
                    self.say(view.since(event.at), text, facts_of(event), "event")
                return

    def siblings(self) -> None:
        view = self._view
        began = next(
            (stage.began for stage in view.stages if "admission" in stage.name and stage.took > 0), None
        )
        if began is None and view.waits is not None:
            began = view.since(view.waits[1])
        self._clauses += siblings_of(view, began)

    def events(self) -> None:
        """Tell what else happened to the key while the call was under way."""
        view = self._view
        if not view.key:
            return
        known = {view.use.opening, None if view.event is None else view.event.number}
        between = view.sources.events_between(view.key, view.use.server, view.use.began_at, view.end)
        others = [event for event in between if event.number not in known]
        for event in others[:EVENTS_TOLD]:
            text = told_event(event, subject="meanwhile ")
            if event.kind == "withdrawn" and event.facts.get("call") != self._view.use.call_id:
                text = text.replace("withdrew the call", f"withdrew {_another(event)}", 1)
            self.say(view.since(event.at), text, facts_of(event), "event")
        if len(others) > EVENTS_TOLD:
            text = f"{len(others) - EVENTS_TOLD} more events of its key happened meanwhile"
            self.say(None, text, facts_of(others[EVENTS_TOLD]), "event")

    def cause(self) -> None:
        view = self._view
        if view.event is not None:
            text = f"event {view.event.number}, which caused the outcome: {told_event(view.event)}"
            self.say(view.since(view.event.at), text, facts_of(view.event), "event")
        elif view.use.cause is not None:
            text = f"event {view.use.cause} caused the outcome, and has left the record since"
            self.say(None, text, {"cause": view.use.cause})

    # ------------------------------------------------------------------ the end

    def _last(self) -> list[Clause]:
        view, use = self._view, self._view.use
        found = []
        if not view.runs:
            sent = any(stage.name == "sent" for stage in view.stages)
            facts: dict[str, Any] = {
                "delivery": use.delivery,
                "attempts": use.attempts,
                "bytes_out": use.bytes_out,
            }
            found.append(Clause(None, verdict(use, sent=sent), facts, "use"))
        spent = shares_of(view.stages, view.whole, use.waits_for if view.runs else None)
        told = [
            f"{quoted(name)} {took(seconds)} ({part})"
            for name, seconds in spent[:6]
            if seconds >= _WORTH_TELLING and (part := share(seconds, view.whole))
        ]
        if told:
            facts = {"took": round(view.whole, 6), "spent": {name: round(part, 6) for name, part in spent}}
            found.append(Clause(None, f"where the time went: {', '.join(told)}", facts, "use"))
        now = "" if view.runs else advice(use)
        if now:
            found.append(Clause(None, f"now: {now}", {"code": use.code, "delivery": use.delivery}, "use"))
        return found


def _another(event: Event) -> str:
    call = event.facts.get("call")
    return "a call of its key" if call is None else f"call {quoted(call, 60)}"


def _at(clause: Clause) -> float:
    return clause.at or 0.0


def _bounded(clauses: list[Clause], most: int) -> list[Clause]:
    """Leave out the middle of what is too much, and say so."""
    if len(clauses) <= most:
        return clauses
    half = most // 2
    gap = clauses[half]
    left_out = len(clauses) - most + 1
    text = f"{left_out} more facts are not told here, from {after(gap.at or 0.0)} on"
    return [*clauses[:half], Clause(gap.at, text, gap.facts, gap.source), *clauses[half - most + 1 :]]

"""The one or two sentences that an explanation begins with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._explain_causes import meaning, notes
from ._explain_events import told_event
from ._explain_stages import at_time, shares_of, words_of
from ._explain_words import listed, quoted, share, size, took

if TYPE_CHECKING:
    from ..pool import Event
    from ._explain_view import View

_HOLDERS_TOLD = 3
_AT_ONCE = 0.00005  # seconds
_OWN_WORDS = frozenset({"session-expired"})
"""Codes whose event is what came of it, and not what it came from."""
_FOR_A_PLACE = frozenset({"admission", "runtime-admission"})
_BEHIND_AN_ANSWER = frozenset({"input", "after", "limits"})
_BY_THE_SERVER = frozenset({"sent", "server", "answered"})


def headline(view: View, changed: str) -> str:
    """Say how a call ended and what caused it, or what it waits for now.

    Args:
        view: The call.
        changed: What became of the tool's definition, as `changed` says it.
    """
    use = view.use
    if view.runs:
        return _running(view)
    if use.outcome == "ok":
        return _ok(view)
    if use.outcome == "cancelled":
        head = "cancelled"
    elif use.outcome == "refused":
        head = f"refused {quoted(use.code)}"
    elif use.outcome is None:
        head = "ended, and was not filed yet"
    else:
        head = f"failed {quoted(use.code)}" + (", in doubt" if use.delivery == "in-doubt" else "")
    where = _where(view)
    if where and use.delivery == "in-doubt" and use.outcome == "failed":
        where = f",{where}"
    cause = _without_event(view) if view.event is None else _caused(view, view.event)
    tail = "; ".join(part for part in (changed, notes(use), _held(view)) if part)
    text = f"{head}{where}, {took(view.whole)} after the call began: {cause}"
    return f"{text}; {tail}" if tail else text


def _ok(view: View) -> str:
    use = view.use
    text = f"{'answered' if use.server else 'returned'} {took(view.whole)} after the call began"
    if use.tool_error:
        text += ", and the tool said that it failed"
    more = [_most(view), _held(view) or _opened(view)]
    return "; ".join([text, *filter(None, more)])


def _opened(view: View) -> str:
    """Say that a client had to be opened first, where that is what took most of the time."""
    event = None if view.use.opening is None else view.sources.event(view.use.opening)
    spent = shares_of(view.stages, view.whole)
    if event is None or event.kind != "opened" or not spent or spent[0][0] != "admission":
        return ""
    return f"{told_event(event, brief=True)} meanwhile"


def _running(view: View) -> str:
    text = f"{view.what} has run for {took(view.whole)}"
    if view.waits is None:
        return f"{text}; it waits for nothing that is filed"
    name, since, door = view.waits
    text += f", and for {took(view.now - since)} now has been {words_of(name, door=door).doing}"
    if name == "admission":
        text += "".join(f"; {told_event(event, brief=True)} {_ago(view, event)}" for event in view.holding)
        opening = view.sources.opening(view.use)
        if opening is not None:
            text += f"; an opening of its client is under way, at {quoted(opening[1])} now"
    held = _held(view)
    return f"{text}; {held}" if held else text


def _ago(view: View, event: Event) -> str:
    at = view.since(event.at)
    return f"{took(-at)} before the call began" if at < 0 else f"{took(view.now - event.at)} ago"


def _where(view: View) -> str:
    """Say at which stage it ended; not of a repeat that proved nothing about what was sent before."""
    use = view.use
    if any(stage == "repeat" for stage, _, _ in use.facts or ()):
        return ""
    stages = [stage for stage in view.stages if stage.name != "woken"]
    if not stages:
        return ""
    last = stages[-1]
    if use.attempts and use.delivery in ("refused", "answered") and last.name not in _BEHIND_AN_ANSWER:
        return ""
    if last.name in _BY_THE_SERVER:
        # an answer says by itself whose it is
        return " while the server worked" if use.delivery == "in-doubt" or use.outcome == "cancelled" else ""
    if use.outcome == "refused" and use.delivery == "not-sent":
        return f" at {'the door, at' if last.door else 'the gate'} {quoted(last.name)}"
    return f" while {last.words.during}" if last.waits else f" at {quoted(last.name)}"


def _caused(view: View, event: Event) -> str:
    text = told_event(event, brief=True)
    if view.use.code in _OWN_WORDS:
        return f"{meaning(view.use, view.key)}; {text}"
    at = view.since(event.at)
    if at < 0:
        return f"{text} {took(-at)} before the call began"
    before = view.end - event.at
    when = "in that instant" if before < _AT_ONCE else f"{took(before)} earlier"
    stage = at_time(view.stages, at)
    meanwhile = "" if stage is None else f", while {stage.words.during} ({took(stage.took)})"
    return f"{text} {when}{meanwhile}"


def _without_event(view: View) -> str:
    use = view.use
    text = meaning(use, view.key)
    if use.cause is not None:
        text += f"; event {use.cause} caused it, and has left the record since"
    if use.code in ("deadline-exceeded", "cancelled"):
        spent = _most(view)
        text += f"; {spent}" if spent else ""
    opened = None if use.opening is None else view.sources.event(use.opening)
    if opened is not None and opened.kind == "open-failed":
        text += f"; {told_event(opened, brief=True)}"
    if use.outcome == "failed" and use.bytes_in:
        text += f"; {size(use.bytes_in)} of an answer had come"
    return text


def _most(view: View) -> str:
    """Say where most of the time went; empty where no time did."""
    spent = shares_of(view.stages, view.whole)
    part = share(spent[0][1], view.whole) if spent else ""
    if not part:
        return ""
    name, seconds = spent[0]
    if name == "end":
        return f"{took(seconds)} of it ({part}) after its last stage"
    door = all(stage.door for stage in view.stages if stage.name == name)
    return f"{took(seconds)} of it ({part}) while {words_of(name, door=door).during}"


def _held(view: View) -> str:
    """Name the calls that held what it waited for."""
    held = view.use.held_by
    if not held:
        return ""
    names = listed([f"call {quoted(one, 60)}" for one in held], _HOLDERS_TOLD)
    if view.runs and view.use.waits_for in _FOR_A_PLACE:
        return f"the place that it waits for {'is' if len(held) == 1 else 'is one of those'} held by {names}"
    return f"the place that it waited for was {'' if len(held) == 1 else 'one of those '}held by {names}"

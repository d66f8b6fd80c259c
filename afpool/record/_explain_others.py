"""What other calls had to do with one: those that held the places which it waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ._explain_stages import stages_of
from ._explain_words import after, quoted, took
from ._explained import Clause

if TYPE_CHECKING:
    from .._base.use import Use
    from ._explain_view import View

SIBLINGS_TOLD: Final = 6
_NAMED: Final = 20


def siblings_of(view: View, began: float | None) -> list[Clause]:
    """Tell of each call that held a place which the call waited for.

    Args:
        view: The call that waited.
        began: When it began to wait, in seconds since it began.
    """
    told = []
    held_by = view.use.held_by
    known = view.sources.holders(view.use) if held_by else {}
    for call_id in held_by[:SIBLINGS_TOLD]:
        holder = known.get(call_id)
        if holder is not None:
            text, facts = _holder(holder, view)
            told.append(Clause(began, text, facts, "sibling"))
        else:
            text = f"call {quoted(call_id, 60)} held a place; its facts have left the record"
            told.append(Clause(began, text, {"held_by": call_id}, "use"))
    more = held_by[SIBLINGS_TOLD:]
    if more:
        text = f"{len(more)} more call{'' if len(more) == 1 else 's'} held places"
        told.append(Clause(began, text, {"held_by": list(more[:_NAMED])}, "use"))
    return told


def _holder(holder: Use, view: View) -> tuple[str, dict[str, Any]]:
    what = quoted(holder.tool or holder.method)
    facts: dict[str, Any] = {"held_by": holder.call_id, "tool": holder.tool, "outcome": holder.outcome}
    text = f"call {quoted(holder.call_id, 60)} of {what} held a place"
    if holder.run_id is not None:
        text += f", in run {quoted(holder.run_id, 60)}"
        facts["run_id"] = holder.run_id
    leased = next((stage.ended for stage in stages_of(holder) if stage.name == "leased"), None)
    if leased is not None:
        at = view.since(holder.began_at + leased)
        facts["leased"] = round(at, 6)
        text += f", since {took(-at)} before this call began" if at < 0 else f", since {after(at)}"
    if holder.ended_at is None:
        waits = "" if holder.waits_for is None else f", at {quoted(holder.waits_for)} now"
        return f"{text}; it runs still, for {took(view.now - holder.began_at)}{waits}", facts
    facts["ended"] = round(view.since(holder.ended_at), 6)
    later = holder.ended_at - view.end
    how = " ".join(filter(None, (holder.outcome, holder.code)))
    when = "ago" if view.runs else "before this call ended" if later <= 0 else "after this call had ended"
    return f"{text}; it ended {took(abs(later))} {when}" + (f" ({how})" if how else ""), facts

"""What became of a tool's definition, where that refused a call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._explain_words import listed, quoted
from ._pointers import Difference, difference

if TYPE_CHECKING:
    from ._explain_view import View

_TOLD = 3
_VOCABULARY = frozenset(
    {
        "", "$defs", "additionalProperties", "allOf", "annotations", "anyOf", "default", "definitions",
        "description", "enum", "execution", "format", "inputSchema", "items", "maximum", "minimum", "oneOf",
        "outputSchema", "pattern", "properties", "required", "title", "type",
    }
)  # fmt: skip
"""Members that stand in any definition."""


def changed(view: View, found: Difference | None) -> tuple[str, dict[str, Any]]:
    """Say what became of the definition, as part of a sentence, and as plain data; empty where nothing did.

    Args:
        view: The call.
        found: Where the two definitions differ, where that was looked for already.

    Where the call was refused because a change was announced that nobody had seen yet, the list that came
    later is told; who files it notes its generation.
    """
    use, event = view.use, view.event
    if use.was is None:
        return "", {}
    tool, became = quoted(use.tool), use.became
    facts: dict[str, Any] = {"was": use.was.digest[:12], "became": None}
    seen = event is not None and event.kind == "list"
    generation = event.facts.get("generation") if event is not None and seen else _noted(view)
    if became is None and generation is None:
        return "", {}  # nobody has seen yet what the list holds instead
    moved = "" if seen else "since then "
    if isinstance(generation, int) and use.generation is not None and _same_list(view):
        # lists count their changes for themselves: of another one it says nothing
        facts["generation"] = [use.generation, generation]
        if generation != use.generation:
            moved += f"generation {use.generation} → {generation}; "
    if became is None:
        gone = f"holds no {tool} that can be read" if _unread(view) else f"does not hold {tool} any more"
        return f"{moved}the list {gone}", facts
    facts["became"] = became.digest[:12]
    if became.digest == use.was.digest:
        return f"{moved}{tool} is defined as before, but any change of its list ends what was listed", facts
    if found is None:
        found = difference(use.was, became, view.sources.without(use.server))
    if any(stage == "definition" for stage, _, _ in use.facts or ()):
        found = found.cleaned(_known)  # a server names members as it likes: also by what proves who asks
    return moved + _differs(tool, found), facts | found.as_json()


def _known(name: str) -> str:
    return name if name in _VOCABULARY or name.isdigit() else "…"


def _same_list(view: View) -> bool:
    moved = None if view.event is None else view.event.facts.get("list")
    return None in (moved, view.use.list_id) or moved == view.use.list_id


def _unread(view: View) -> bool:
    return any(stage == "quarantined" for stage, _, _ in view.use.facts or ())


def _noted(view: View) -> int | None:
    """Give the generation of the list that came later."""
    words = [word for stage, word, _ in view.use.facts or () if stage == "generation"]
    return int(words[-1]) if words and words[-1].isascii() and words[-1].isdigit() else None


def _differs(tool: str, found: Difference) -> str:
    text = f"the definition of {tool} differs"
    if not found.places:
        return f"{text} ({found.reason})" if found.reason else text
    words = [
        quoted(place.pointer or "/", 200) + ("" if place.how == "changed" else f" ({place.how})")
        for place in found.places
    ]
    more = len(words) - _TOLD + found.more
    if more > 0:
        text += f" at {', '.join(words[:_TOLD])} and {more} other place{'' if more == 1 else 's'}"
    else:
        text += f" at {listed(words, _TOLD)}"
    return text if found.complete else f"{text} ({found.reason})"

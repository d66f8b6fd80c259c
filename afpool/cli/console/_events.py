"""Events as they come: one line each.

`13:04:05.123  refused  desk/search  stale-tools  412 ms  k:3f9a…  c-17`: when, what, of which server and
tool, how long it took, whose, and the id that `why` takes. What else an event says follows as `name=value`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .._text import one_line
from ._cells import clock, color_of, duration, plain

if TYPE_CHECKING:
    from ._look import Look

_CALL: Final = 9
_PLACE: Final = 24
_TOLD: Final = frozenset({"at", "kind", "n", "key", "server", "stages", "took", "unix"})
_COLORS: Final = {
    "open-failed": "red", "crashed": "red", "killed": "red", "evicted": "yellow", "paused": "yellow",
    "draining": "yellow", "opened": "green", "resumed": "green",
}  # fmt: skip


def event_line(event: dict[str, Any], look: Look) -> str:
    """Write one event.

    Args:
        event: As a stream tells it.
        look: Who looks at it.
    """
    kind = one_line(str(event.get("kind", "event")))
    if kind == "call":
        word, parts = _call(event, look)
        color = color_of("outcome", "text", word)
    elif kind == "turn":
        word, parts = kind, _turn(event, look)
        color = "dim"
    else:
        word, parts = kind, _other(event, look)
        color = _COLORS.get(kind)
    at = event.get("at")
    when = "-"
    if isinstance(at, int | float):
        when = clock(at - look.skew) if look.people else plain(float(at))
    shown = f"{word:<{_CALL}}"
    line = f"{when}  {shown}  {'  '.join(part for part in parts if part)}".rstrip()
    line = look.clip(line)
    head = f"{when}  {shown}"
    if color is None or not line.startswith(head.rstrip()):
        return line
    return f"{when}  {look.paint(shown, color)}{line[len(head) :]}"


def _call(event: dict[str, Any], look: Look) -> tuple[str, list[str]]:
    outcome = event.get("outcome")
    server, tool = str(event.get("server") or ""), str(event.get("tool") or event.get("method") or "")
    place = one_line(f"{server}/{tool}" if server else tool)
    took = event.get("took")
    parts = [
        f"{place:<{_PLACE}}",
        plain(event.get("code")) if event.get("code") else "tool_error" if event.get("tool_error") else "",
        _seconds(took, look),
        plain(event.get("key")) if event.get("key") else "",
        plain(event.get("call_id")) if event.get("call_id") else "",
    ]
    if event.get("waits_for"):
        parts.append(f"waits_for={plain(event['waits_for'])}")
    return one_line(str(outcome or "running")), parts


def _turn(event: dict[str, Any], look: Look) -> list[str]:
    return [
        plain(event.get("actor") or event.get("key")),
        plain(event.get("message")),
        _seconds(event.get("took"), look),
    ]


def _other(event: dict[str, Any], look: Look) -> list[str]:
    server = event.get("server")
    parts = [f"{plain(server) if server else '-':<{_PLACE}}"]
    if event.get("key"):
        parts.append(plain(event["key"]))
    parts += [
        f"{one_line(str(name))}={_seconds(value, look) if isinstance(value, float) else plain(value)}"
        for name, value in event.items()
        if name not in _TOLD and value not in (None, "", [], {})
    ]
    return parts


def _seconds(value: Any, look: Look) -> str:
    if not isinstance(value, int | float):
        return ""
    return duration(value) if look.people else plain(float(value))

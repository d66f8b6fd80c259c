"""What goes on telling: `tail`, `trace`, and frames of `watch` for programs. ^C ends it, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._failures import DONE, FAILED
from .._text import one_line
from ._cells import plain
from ._events import event_line
from ._overview import overview
from ._screen import Screen
from ._wire import Lost

if TYPE_CHECKING:
    from ._session import Session


def follow(session: Session, stream: object) -> int:
    """Write a stream until it ends, or until ^C.

    Args:
        session: Who asked for it.
        stream: Its number.

    Raises:
        KeyboardInterrupt: ^C; the stream is ended.
    """
    screen = Screen(session.out)
    left = session.count
    try:
        for frame in session.link.frames(stream):
            written = _frame(session, frame, screen, left)
            if left is not None:
                left -= written
            if "end" in frame:
                _ended(session, frame)
                return DONE
            if left is not None and left <= 0:
                session.link.stop(stream)
                return DONE
    except KeyboardInterrupt:
        session.link.stop(stream)
        raise
    except Lost as lost:
        session.out.error(str(lost))
        return FAILED
    finally:
        screen.close()
    return DONE


def _frame(session: Session, frame: dict[str, Any], screen: Screen, most: int | None) -> int:
    """Write a frame, and give how many things were in it; of events so many at most."""
    out = session.out
    written = 0
    events = frame.get("events")
    dropped = frame.get("dropped")
    if isinstance(frame.get("overview"), dict):
        told = frame["overview"]
        if out.json:
            out.line(told)
        else:
            screen.draw(overview(told, session.look), f"{session.name}   ^C ends")
        written = 1
    if isinstance(frame.get("actors"), dict):
        _grid(session, frame["actors"])
        written = 1
    if isinstance(events, list):
        look = session.look
        for event in events:
            if not isinstance(event, dict) or (most is not None and written >= most):
                continue
            written += 1
            if out.json:
                out.line(event)
            else:
                out.data(event_line(event, look))
        out.flush()
    if isinstance(dropped, int) and dropped > 0:
        if out.json:
            out.line({"dropped": dropped})
        out.say(f"{dropped:,} events were left out: they came faster than they could be taken")
    return written


_GRID = ("key", "server", "state", "in_flight", "max", "waiting", "client", "generation")


def _grid(session: Session, actors: dict[str, Any]) -> None:
    rows, gone = actors.get("set"), actors.get("gone")
    changed = [row for row in rows if isinstance(row, list)] if isinstance(rows, list) else []
    for row in changed:
        one = dict(zip(_GRID, row, strict=False))
        if session.out.json:
            session.out.line(one)
        else:
            session.out.data("  ".join(f"{name}={plain(value)}" for name, value in one.items()))
    for key in gone if isinstance(gone, list) else []:
        if session.out.json:
            session.out.line({"key": key, "gone": True})
        else:
            session.out.data(f"key={plain(key)}  gone")
    session.out.flush()


def _ended(session: Session, frame: dict[str, Any]) -> None:
    why = one_line(str(frame.get("end") or ""))
    if why:
        session.out.say(f"it ended: {why}")

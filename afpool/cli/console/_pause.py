"""`afpool pause`: for as long as it is held, or for as long as this command runs.

The pause of a console ends soon after the console has gone, so that nobody forgets it. A command of its own
is gone at once; so it either has the pause held until somebody resumes, and says so, or (`for=10m`) stays
until the pause is over, and resumes when it is interrupted.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .._failures import DONE
from ._cells import duration

if TYPE_CHECKING:
    from ._session import Session


def pause(session: Session, line: str) -> int:
    """Pause, and stay where the pause is for a time.

    Args:
        session: Who asks.
        line: The line as it was given.

    Raises:
        KeyboardInterrupt: ^C; it is resumed.
    """
    words = line.split()
    timed = any(word.startswith(("for=", "--for=")) for word in words)
    if not timed and "hold" not in words:
        line += " hold"
    code = session.run(line)
    if code != DONE or not timed:
        return code
    until = session.last.get("until")
    if not isinstance(until, int | float):
        return code
    out = session.out
    out.flush()
    out.say("it is paused for as long as this runs; ^C resumes")
    try:
        while (left := until - session.look.now()) > 0:
            if out.watched:
                out.show(f"paused for {duration(left)} more")
            session.link.rest(time.monotonic() + min(left, 1.0))
    except KeyboardInterrupt:
        out.show("") if out.watched else None
        session.run(f"resume {words[1]}")
        raise
    if out.watched:
        out.show("")
    out.say("the pause is over")
    return DONE

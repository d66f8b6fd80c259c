"""Which runs are open: those that somebody still holds.

A run has no end of its own: it is over when nobody can call through it any more. So it is known by a weak
reference, which costs it nothing and keeps nothing alive. A run may be begun in any thread; it is noted in
one step that no other thread can come between.
"""

from __future__ import annotations

import itertools
import weakref
from collections import Counter
from typing import TYPE_CHECKING, final

import attrs

from .._base.identity import Identity, is_nobody

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._base.use import Use
    from ._run import Run


@final
@attrs.frozen(kw_only=True)
class OpenRun:
    """A run as an operator sees it. Given by `Runtime.runs`.

    Attributes:
        run_id: Its id. Two of them may have the same: one that was paused, and one that went on from there.
        who: Whom it acts for, as far as its caller has said so by now; `None` for nobody.
        began_at: When it was begun or gone on with here, in seconds on the runtime's clock.
        calls: How many calls it has made here, those from inside of a tool not counted.
        running: How many calls with its id are under way, those from inside of a tool counted.
        last_call_at: When its last call began; `None` before the first.
    """

    run_id: str
    who: Identity | None
    began_at: float
    calls: int
    running: int
    last_call_at: float | None


@final
class OpenRuns:
    """The open runs of one runtime."""

    __slots__ = ("_number", "_runs")

    def __init__(self) -> None:
        self._number = itertools.count()
        self._runs: dict[int, weakref.ref[Run]] = {}

    def add(self, run: Run) -> Run:
        """Note a run for as long as somebody holds it. Synchronous; of any thread."""
        number, runs = next(self._number), self._runs

        def gone(_: object) -> None:
            runs.pop(number, None)

        runs[number] = weakref.ref(run, gone)
        return run

    def __len__(self) -> int:
        return len(self._runs)

    def listed(self, running: Mapping[int, Use]) -> list[OpenRun]:
        """Give them, the oldest first.

        Args:
            running: The uses of the calls under way.
        """
        under_way = Counter(use.run_id for use in list(running.values()))
        # made by one call into C, so that no other thread changes the dictionary meanwhile
        runs = [run for run in (known() for known in list(self._runs.values())) if run is not None]
        return [
            OpenRun(
                run_id=run.run_id,
                who=run.who,
                began_at=run.began_at,
                calls=run.calls,
                running=under_way[run.run_id],
                last_call_at=run.last_call_at,
            )
            for run in runs
        ]


def named(identity: object) -> Identity | None:
    """Give whom a caller names without being asked; `None` where that is nobody, or has to be asked for."""
    return identity if isinstance(identity, Identity) and not is_nobody(identity) else None

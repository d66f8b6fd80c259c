"""`trace KEY on`: every message of one actor, and every call and event of its key, for a while.

Nothing of a message is shown but its kind: what it carries may be anybody's. A trace ends with its session,
when it has told `MESSAGES`, or when its time is up; until then its actor is kept, as it is by a tool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import trio

from actors import TurnTrace

from ._ask import CommandError
from ._parse import unknown
from ._spec import Command
from ._tail import Tail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..pool._actor import KeyActor
    from ._ask import Ask
    from ._registry import Registry
    from ._sources import Sources

MESSAGES: Final = 10_000
FOR: Final = 300.0
LONGEST: Final = 3600.0


def register(registry: Registry, sources: Sources) -> None:
    """Add the command."""
    traces: dict[Trace, None] = {}

    async def trace(ask: Ask) -> Any:
        word = ask.words[1]
        if word not in ("on", "off"):
            told = ask.line(words=(ask.words[0],)) + " {}"
            raise unknown("bad-option", "way to trace", word, ["on", "off"], tries=told)
        actor = await sources.actor(ask)
        if word == "on":
            for_ = ask.seconds("for", FOR, most=LONGEST, least=1.0)
            most = ask.count("limit", MESSAGES, most=MESSAGES)
            sources.pool.event("traced", actor, why="on", by=ask.asker.who)
            return Trace(sources, actor, ask.asker.who, traces, seconds=for_, most=most)
        ended = [one for one in list(traces) if one.actor is actor]
        if not ended:
            raise CommandError("failed", f"nobody traces {actor.shown}; nothing was changed")
        for one in ended:
            one.close(f"ended by {ask.asker.who}")
        return {
            "kind": "done", "what": f"traced no longer {actor.shown}", "before": {"traces": len(ended)},
            "after": {"traces": 0}, "until": None,
        }  # fmt: skip

    async def complete(word: str, before: Sequence[str]) -> list[str]:
        return ["on", "off"] if before else await sources.keys_like(word)

    registry.command(
        Command(
            words=("trace",),
            usage="trace KEY on|off [for=5m] [limit=10000]",
            help="every message of one actor, and the calls and events of its key",
            run=trace,
            options=("for", "limit"),
            takes=(2, 2),
            complete=complete,
            level="operate",
        )
    )


@final
class Trace(Tail):
    """Follows one actor.

    Args:
        sources: Of which pool.
        actor: Whom.
        who: Who asked.
        traces: Where it stands while it goes on.
        seconds: How long at most.
        most: How many messages at most.
    """

    def __init__(
        self,
        sources: Sources,
        actor: KeyActor,
        who: str,
        traces: dict[Trace, None],
        *,
        seconds: float,
        most: int,
    ) -> None:
        key, shown = actor.key, actor.shown
        super().__init__(sources, lambda use: use.key == key, lambda event: event.key == shown)
        self.actor = actor
        self._who = who
        self._left = most
        self._traces = traces
        self._until = trio.current_time() + seconds
        traces[self] = None
        self._unsubscribe = actor.subscribe(self._turn)

    def _turn(self, turn: TurnTrace) -> None:
        self.put(turn)
        self._left -= 1
        if self._left <= 0:
            self.close("it has told as many messages as it may")

    def _line(self, thing: Any) -> Any:
        if not isinstance(thing, TurnTrace):
            return super()._line(thing)
        return {
            "at": thing.at + self._unix, "kind": "turn", "actor": self.actor.shown, "message": thing.message,
            "took": thing.duration_ns / 1e9, "verdict": thing.verdict,
        }  # fmt: skip

    async def wait(self) -> None:
        """Wait for news, until its time is up."""
        with trio.CancelScope(deadline=self._until) as scope:
            await super().wait()
        if scope.cancelled_caught:
            self.close("its time is up")

    def let_go(self) -> None:
        """Follow no longer."""
        super().let_go()
        self._unsubscribe()
        self._traces.pop(self, None)
        pool = self._sources.pool
        pool.event("traced", self.actor, why=f"off: {self.ended}", by=self._who)

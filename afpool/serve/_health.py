"""What the probes are told: whether the service takes requests, and which of its parts is not well.

* `/healthz`: the process answers. Nothing else: a supervisor that restarts what is only not ready makes it
  worse.
* `/readyz`: 200 while requests are taken and no part is broken that would keep them from being answered.
* A part that crashes is started again, after a while that grows; meanwhile it stands here, by name and by the
  kind of its failure, without a word of its text.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, final

import trio

from .._base.untraced import place_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

logger = logging.getLogger("afpool.serve")

STARTING: Final = "starting"
READY: Final = "ready"
DRAINING: Final = "draining"
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0


@final
class Health:
    """The state of one service.

    Attributes:
        state: `starting`, `ready` or `draining`.
    """

    def __init__(self) -> None:
        self.state = STARTING
        self._broken: dict[str, str] = {}
        self._notes: dict[str, Callable[[], tuple[str, ...]]] = {}

    @property
    def draining(self) -> bool:
        """Whether nothing new is taken any more."""
        return self.state == DRAINING

    def watch(self, part: str, problems: Callable[[], tuple[str, ...]]) -> None:
        """Ask a part at each report whether anything is wrong with it that it can live with."""
        self._notes[part] = problems

    def note(self, part: str, problem: str | None) -> None:
        """Note what is wrong with a part that goes on, or that nothing is any more."""
        if problem is None:
            self._notes.pop(part, None)
        else:
            self._notes[part] = lambda: (problem,)

    def broken(self, part: str, kind: str) -> None:
        """A part is not well."""
        self._broken[part] = kind

    def mended(self, part: str) -> None:
        """It is well again."""
        self._broken.pop(part, None)

    def report(self) -> dict[str, Any]:
        """Say how everything is, without a value in it."""
        told: dict[str, Any] = {"ready": self.state == READY and not self._broken, "state": self.state}
        if self._broken:
            told["broken"] = dict(self._broken)
        notes = {part: len(found) for part, problems in self._notes.items() if (found := problems())}
        if notes:
            told["problems"] = notes
        return told

    async def keep(self, part: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run a part of the service, again and again where it crashes. Raises nothing but cancellation."""
        pause = _FIRST_PAUSE
        while True:
            began = trio.current_time()
            try:
                await run()
            except Exception as error:  # noqa: BLE001 -- whatever it is; its text may hold anything
                kind, where = type(error).__name__, place_of(error.__traceback__)
                logger.error("the part %r of the service crashed: %s (%s)", part, kind, where)  # noqa: TRY400 -- its text may hold anything
                self.broken(part, kind)
            else:
                return
            if trio.current_time() - began > _LONGEST_PAUSE:
                pause = _FIRST_PAUSE
            await trio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            self.mended(part)

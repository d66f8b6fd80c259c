"""A server that recognises repeats: a call's answer is kept under the id that the call carries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ._envelope import Message


class Repeats:
    """Runs each call id once; whoever asks again waits for that run and gets its answer.

    Attributes:
        key: The `_meta` member that holds a call's id; None recognises nothing.
        recognised: The ids that were asked for again, in order.
    """

    def __init__(self) -> None:
        self.key: str | None = None
        self.recognised: list[str] = []
        self._runs: dict[str, tuple[trio.Event, list[Message]]] = {}

    async def once(self, meta: Mapping[str, object], run: Callable[[], Awaitable[Message]]) -> Message:
        """Run a call, or answer what the first run of its id answered.

        A run that did not end, since it was cancelled, is no run: the next of its id begins anew.
        """
        call_id = None if self.key is None else meta.get(self.key)
        if not isinstance(call_id, str):
            return await run()
        if call_id in self._runs:
            self.recognised.append(call_id)
        while (known := self._runs.get(call_id)) is not None:
            done, results = known
            await done.wait()
            if results:
                return dict(results[0])
        done, results = self._runs[call_id] = (trio.Event(), [])
        try:
            results.append(await run())
        finally:
            if not results:
                del self._runs[call_id]
            done.set()
        return dict(results[0])

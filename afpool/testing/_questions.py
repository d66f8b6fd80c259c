"""What the fake asks its client, on whatever stream, and the answers that come back.

An answer is filed in the ledger whether anybody waits for it or not. Whoever gives up forgets the question,
so a late answer is one for nobody.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ._envelope import Message, RpcId
    from ._ledger import Ledger


class Questions:
    """The requests of one fake server to its clients."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._asked: dict[RpcId, tuple[trio.Event, list[Message]]] = {}
        self._ids = itertools.count(1)

    def resolve(self, message: Message) -> None:
        """Take in a client's answer to a request of ours."""
        self._ledger.client_answers.append(message)
        slot = self._asked.get(message.get("id"))
        if slot is not None:
            slot[1].append(message)
            slot[0].set()
        self._ledger.wake()

    async def ask(
        self, send: Callable[[Message], Awaitable[None]], method: str, params: Mapping[str, Any] | None
    ) -> Message:
        """Send a request to a client by `send` and wait for its response."""
        request: Message = {"jsonrpc": "2.0", "id": f"srv-{next(self._ids)}", "method": method}
        if params is not None:
            request["params"] = dict(params)
        slot: tuple[trio.Event, list[Message]] = (trio.Event(), [])
        self._asked[request["id"]] = slot
        try:
            await send(request)
            await slot[0].wait()
        finally:
            del self._asked[request["id"]]
        return slot[1][0]

"""The script of a fake server: what it answers, lists, announces, asks and forgets, changed while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from ._rules import Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ._actions import Action
    from ._engine import Engine
    from ._envelope import Message
    from ._exchange import LostSpelling
    from ._ledger import Arrival
    from ._tools import FakeTool


class Scripted:
    """The half of a fake server that a test writes its script with. A change counts from the next request on.

    Attributes:
        engine: The MCP half, which plays the script.
    """

    engine: Engine

    def add(self, rule: Rule) -> Rule:
        """Append a rule and return it; the first rule that matches an arrival decides."""
        return self.engine.rules.add(rule)

    def on(
        self,
        method: str,
        action: Action,
        *,
        tool: str | None = None,
        times: int | None = None,
        when: Callable[[Arrival], bool] | None = None,
    ) -> Rule:
        """Append a rule made from its parts; see `Rule`."""
        return self.add(Rule(method, action, tool, times, when))

    def remove(self, rule: Rule) -> None:
        """Take a rule out."""
        self.engine.rules.remove(rule)

    def clear_rules(self) -> None:
        """Take all rules out."""
        self.engine.rules.rules.clear()

    def set_tools(self, tools: Sequence[FakeTool], *, notify: bool = True) -> None:
        """Change the list of tools; `notify` announces it on every open stream."""
        self.engine.set_tools(tools, notify=notify)

    def recognise_repeats(self, call_id_key: str | None) -> None:
        """Run each call id once, from now on, and answer a repeat with what the first run answered.

        Args:
            call_id_key: The `_meta` member that holds a call's id; None recognises nothing.
        """
        self.engine.repeats.key = call_id_key

    def update_resource(self, uri: str, contents: str | bytes) -> int:
        """Change what a resource holds and tell every stream that is subscribed to it; says how many.

        Raises:
            LookupError: There is no such resource.
        """
        return self.engine.update_resource(uri, contents)

    def set_tools_for(self, choose: Callable[[Arrival], Sequence[FakeTool]] | None) -> None:
        """Let each arrival have its own list, by its headers or session; None goes back to one list."""
        self.engine.tools_for = choose

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> int:
        """Send a notification on every open stream that wants it.

        Returns:
            The number of streams. They have it queued; their connections write it as the loop goes on.
        """
        await trio.lowlevel.checkpoint()
        return self.engine.streams.broadcast(method, params)

    async def request_client(
        self, method: str, params: Mapping[str, Any] | None = None, *, session_id: str | None = None
    ) -> Message:
        """Send a request to the client on a session's GET stream and wait for its JSON-RPC response.

        Args:
            method: Such as `ping` or `elicitation/create`.
            params: Its parameters.
            session_id: Whose stream; the oldest open one by default.

        Raises:
            RuntimeError: There is no such stream.
        """
        for listener in self.engine.streams.open:
            session = listener.session
            if session is not None and session_id in {None, session.id}:
                deliver = listener.deliver
                break
        else:
            raise RuntimeError("no GET stream is open to send a request on")

        async def send(message: Message) -> None:
            deliver(message)

        return await self.engine.questions.ask(send, method, params)

    def end_streams(self, *, graceful: bool = True) -> int:
        """End every notification stream from our side; says how many.

        A graceful end of a `subscriptions/listen` is its result; without one the stream just ends.
        """
        return self.engine.end_streams(graceful=graceful)

    def forget_sessions(self, spelling: LostSpelling = "404") -> None:
        """Forget every session and end its stream.

        Args:
            spelling: How requests for a lost session are answered from now on: `404` (JSON-RPC error),
                `404-text`, `400-json` (an error without an id) or `400-text`.
        """
        self.engine.forget_sessions(spelling)

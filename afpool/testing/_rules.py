"""The script of a server: an ordered list of rules, of which the first that matches decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs
import trio

from ._actions import Action, Answering, Delay, Hold, Result

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._ledger import Arrival


@attrs.define(eq=False)
class Rule:
    """When to do what.

    Args:
        method: JSON-RPC method, `GET`, `DELETE`, `response` (an answer of the client's), or `*` for all.
        action: What to do.
        tool: Only for calls of this tool.
        times: How many matching arrivals it serves; None serves all.
        when: Further condition, called with the arrival; must not block.

    Attributes:
        used: How many arrivals it has served.
    """

    method: str
    action: Action
    tool: str | None = None
    times: int | None = None
    when: Callable[[Arrival], bool] | None = None
    used: int = attrs.field(default=0, init=False)

    def matches(self, arrival: Arrival) -> bool:
        """Whether it applies to this arrival and has not been used up."""
        return (
            (self.times is None or self.used < self.times)
            and self.method in {"*", arrival.name}
            and (self.tool is None or self.tool == arrival.tool)
            and (self.when is None or self.when(arrival))
        )


class Rules:
    """An ordered list of rules that may change at any time."""

    def __init__(self) -> None:
        self.rules: list[Rule] = []
        self.states_given: list[Any] = []  # the `requestState`s of scripted results

    def add(self, rule: Rule) -> Rule:
        """Append a rule and return it."""
        self.rules.append(rule)
        return rule

    def remove(self, rule: Rule) -> None:
        """Take a rule out; nothing happens if it is not there."""
        if rule in self.rules:
            self.rules.remove(rule)

    def concern(self, arrival: Arrival) -> bool:
        """Whether any rule matches now; none is used up by asking."""
        return any(rule.matches(arrival) for rule in self.rules)

    def _given(self, result: Mapping[str, Any]) -> None:
        state = result.get("requestState")
        if state is not None and state not in self.states_given:
            self.states_given.append(state)

    async def decide(self, arrival: Arrival) -> Answering | None:
        """Carry out the waits that match, up to the first action that decides the answer.

        Returns:
            That action, or None to answer as usual. No checkpoint where nothing has to wait.
        """
        if not self.rules:
            return None
        for rule in tuple(self.rules):
            if not rule.matches(arrival):
                continue
            rule.used += 1
            action = rule.action
            if isinstance(action, Answering):
                if isinstance(action, Result) and isinstance(action.result, Mapping):
                    self._given(action.result)
                return action
            if isinstance(action, Delay):
                await trio.sleep(action.seconds)
            elif isinstance(action, Hold):
                await action.event.wait()
        return None

"""The plain loop over a vendor's own client: ask the model, make its calls, ask again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ..tools import ANTHROPIC, OPENAI_CHAT, OPENAI_RESPONSES

if TYPE_CHECKING:
    from .._base.identity import CallerIdentity
    from ..aio import AsyncRuntime
    from ..tools import ToolFormat

Ask: TypeAlias = Callable[[list[dict[str, Any]], list[dict[str, Any]]], Awaitable[Any]]


class TooManyRounds(RuntimeError):
    """The model went on calling tools.

    Attributes:
        messages: The conversation up to there, to go on with.
    """

    def __init__(self, rounds: int, messages: list[dict[str, Any]]) -> None:
        super().__init__(f"the model still calls tools after {rounds} rounds")
        self.messages = messages


async def message_loop(
    runtime: AsyncRuntime,
    ask: Ask,
    messages: Sequence[dict[str, Any]],
    tool_format: ToolFormat,
    *,
    identity: CallerIdentity,
    max_rounds: int = 16,
    at_once: int = 8,
    timeout: float | None = None,
) -> list[dict[str, Any]]:
    """Ask a model and make its calls, until it makes none.

    Args:
        runtime: The runtime.
        ask: `await ask(messages, tools)` asks the model with the vendor's client and gives its whole answer,
            the client's object or plain JSON.
        messages: The conversation so far; it is not changed.
        tool_format: `ANTHROPIC`, `OPENAI_CHAT` or `OPENAI_RESPONSES`.
        identity: Who it acts for.
        max_rounds: How often the model is asked at most.
        at_once: How many calls of one answer run at once.
        timeout: Seconds of each round's calls.

    Returns:
        The conversation, the model's last answer included.

    Raises:
        TooManyRounds: The model still called tools then.
        ValueError: Another format, or a bound that is not positive.
        AfpoolError: The tools could not be listed.

    What `ask` raises leaves as itself. A call that is refused or fails is the model's to read.
    """
    if tool_format not in (ANTHROPIC, OPENAI_CHAT, OPENAI_RESPONSES):
        raise ValueError("message_loop knows ANTHROPIC, OPENAI_CHAT and OPENAI_RESPONSES")
    if max_rounds < 1:
        raise ValueError(f"max_rounds is at least 1, not {max_rounds}")
    run = runtime.run(identity)
    said = list(messages)
    for _ in range(max_rounds):
        toolset = await run.toolset(timeout=timeout)
        answer = await ask(list(said), tool_format.tools(toolset))
        plain = answer.model_dump(mode="json", exclude_none=True) if hasattr(answer, "model_dump") else answer
        said += _spoken(plain, tool_format)
        results = await run.answer(plain, tool_format, at_once=at_once, timeout=timeout)
        if not results:
            return said
        said += results
    raise TooManyRounds(max_rounds, said)


def _spoken(answer: dict[str, Any], tool_format: ToolFormat) -> list[dict[str, Any]]:
    """Give what the next request repeats of a model's answer."""
    if tool_format is ANTHROPIC:
        return [{"role": "assistant", "content": answer["content"]}]
    if tool_format is OPENAI_CHAT:
        return [answer["choices"][0]["message"]]
    return list(answer["output"])

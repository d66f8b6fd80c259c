"""A tool as somebody who subclasses `Tool` writes it, which keeps what it ran with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from afpool import Tool, ToolContext, ToolResult

if TYPE_CHECKING:
    from afpool import CredentialRequirement


class Recording(Tool):
    """Keeps what it ran with, and answers what it is told to.

    Args:
        schema: Of its arguments.
        name: Its name.
        description: Its description.
        needs: The credential that it needs.
        answer: What it gives: raised where that is an exception, called with arguments and context where that
            is a function; an empty result where absent.

    Attributes:
        ran: Arguments and context of every run.
    """

    def __init__(
        self,
        schema: Any,
        name: str = "plain",
        *,
        description: str = "what it does",
        needs: CredentialRequirement | None = None,
        answer: Any = None,
    ) -> None:
        self._schema = schema
        self._name = name
        self._description = description
        self._needs = needs
        self._answer = answer
        self.ran: list[tuple[Any, ToolContext]] = []

    @property
    def name(self) -> str:
        return self._name

    @property
    def description(self) -> str:
        return self._description

    @property
    def input_schema(self) -> Any:
        return self._schema

    @property
    def needs(self) -> CredentialRequirement | None:
        return self._needs

    @property
    def given(self) -> list[Any]:
        """The arguments of every run."""
        return [args for args, _ in self.ran]

    async def execute(self, args: Any, ctx: ToolContext) -> Any:
        self.ran.append((args, ctx))
        await trio.lowlevel.checkpoint()
        answer = self._answer
        if callable(answer):
            answer = answer(args, ctx)
        if isinstance(answer, BaseException):
            raise answer
        return ToolResult(b'{"content":[]}', ctx.call_id or "") if answer is None else answer

"""Structured results against the schema that their tool was listed with, where the host asks for it.

* A schema is compiled once per definition and kept as long as the definition is.
* What a schema may do to a value, and to whoever waits, is bounded before the two meet (`_base/compiled.py`);
  a value beyond the bound is refused unseen.
* A schema that cannot be compiled is the server's fault and no reason to lose answers: results of that tool
  are not validated, and one warning says so. Of a pattern that cannot be matched in linear time only the
  pattern is left out, with the same warning.
* What is large is decoded and checked in a thread, one after the other: tenants take turns, then their keys.
* A failure tells where the schema is broken, never a value.
"""

from __future__ import annotations

import logging
import weakref
from functools import partial
from typing import TYPE_CHECKING, Final, final

import jsonschema_rs
import trio

from .._base.compiled import Compiled
from .._base.errors import InvalidOutput, Overloaded
from .._base.fair import FairPlaces

if TYPE_CHECKING:
    from .._base.definition import Definition
    from .._base.model import ToolResult
    from .._base.seams import Seams

logger = logging.getLogger("afpool")

THREAD_BYTES: Final = 64 * 1024


@final
class Outputs:
    """The compiled schemas of a pool's tools."""

    __slots__ = ("_compiled", "_lane", "_limiter", "_seams")

    def __init__(self, seams: Seams) -> None:
        self._seams = seams
        self._limiter = trio.CapacityLimiter(1)
        self._lane = FairPlaces(1)
        self._compiled: weakref.WeakKeyDictionary[Definition, Compiled | None] = weakref.WeakKeyDictionary()

    async def check(
        self,
        server: str,
        definition: Definition,
        result: ToolResult,
        tenant: str | None = None,
        key: str = "",
    ) -> None:
        """Validate one result; one that says `isError` may hold anything.

        Args:
            server: The name of the tool's server.
            definition: The tool's.
            result: What it answered.
            tenant: Whose tool it is, and of which key.
            key: See `tenant`.

        Raises:
            InvalidOutput: It holds no structured content although its tool has a schema, or one that the
                schema does not allow. The answer is the error's `result`.

        A checkpoint only where something is large.
        """
        if b'"outputSchema"' not in definition.raw:
            return
        if len(result.raw) + len(definition.raw) > THREAD_BYTES:
            judge = partial(self._judge, server, definition, result)
            async with self._lane.place("", tenant, key):
                try:
                    why = await self._seams.in_thread(judge, self._limiter)
                except Overloaded:  # no thread is left: the tool has run, and its answer is the caller's
                    why = judge()
        else:
            why = self._judge(server, definition, result)
        if why is not None:
            error = InvalidOutput(f"{why}; the tool has run")
            error.call_id = result.call_id
            error.result = result
            raise error

    def _judge(self, server: str, definition: Definition, result: ToolResult) -> str | None:
        if definition not in self._compiled:
            self._compiled[definition] = self._compile(server, definition)
        compiled = self._compiled[definition]
        if compiled is None or compiled.validator is None or result.is_error:
            return None
        if not result.has_structured:
            return "the tool was listed with an output schema and answered no structured content"
        value = result.structured
        costly = compiled.too_costly(value)
        if costly is not None:
            return f"the structured content is not validated: it is {costly}"
        try:
            compiled.validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            path = "/".join(map(str, error.schema_path))
            return f"the structured content is not what the tool's output schema allows, at {path!r} of it"
        except ValueError:
            return "the structured content is too deep to be validated"
        return None

    @staticmethod
    def _compile(server: str, definition: Definition) -> Compiled | None:
        schema = definition.output_schema
        if schema is None:
            return None
        compiled = Compiled(schema)
        if compiled.problem is not None:
            logger.warning(
                "the output schema of %s/%s: %s; its results are validated %s",
                server,
                definition.name,
                compiled.problem,
                "not at all" if compiled.validator is None else "without them",
            )
        return compiled

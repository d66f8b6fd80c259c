"""Arguments against the schema that the model saw, and structured results against theirs.

Rules:

* A schema is compiled once for whoever holds it: a listed definition, a tool of the host's own, a derivation.
  Derivations are made anew at every listing, so theirs are found again by their text.
* What a schema may do to a value, and to whoever waits, is bounded before the two meet (`_base/compiled.py`).
* A pattern that cannot be compiled is left out. A schema that cannot be compiled is its server's fault and no
  reason to lose the tool: its arguments are not validated. Either is said once, as a warning.
* Accepted arguments are passed on as they are: nothing is coerced and nothing is taken away.
"""

from __future__ import annotations

import hashlib
import logging
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, final

import trio

from .._base.compiled import Compiled
from .._base.definition import Definition
from ..protocol import NotJson, encode_json
from ._derive import HoldsSchemas, held_input_schema, held_output_schema, output_holder, schema_holder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._base.model import Tool
    from .._base.seams import Seams

logger = logging.getLogger("afpool")

KEPT_BY_TEXT: Final = 1024
THREAD_BYTES: Final = 64 * 1024


@final
class Validators:
    """The compiled schemas of a runtime's tools."""

    __slots__ = ("_by_text", "_inputs", "_limiter", "_outputs")

    def __init__(self) -> None:
        self._limiter = trio.CapacityLimiter(1)
        self._inputs: weakref.WeakKeyDictionary[Any, Compiled] = weakref.WeakKeyDictionary()
        self._outputs: weakref.WeakKeyDictionary[Any, Compiled | None] = weakref.WeakKeyDictionary()
        self._by_text: OrderedDict[bytes, Compiled] = OrderedDict()

    def of(self, tool: Tool) -> Compiled:
        """Give the compiled schema of a tool's arguments."""
        holder = schema_holder(tool)
        known = self._inputs.get(holder)
        if known is None:
            known = self._inputs[holder] = self._compiled(tool, "input schema", held_input_schema(tool))
        return known

    def known(self, tool: Tool) -> Compiled | None:
        """Give what was compiled before; `None` the first time."""
        return self._inputs.get(schema_holder(tool))

    async def ready(self, tool: Tool, seams: Seams) -> Compiled:
        """Give what `of` gives; what is large is compiled in a thread, the first time.

        A checkpoint only then.
        """
        holder = schema_holder(tool)
        known = self._inputs.get(holder)
        if known is not None:
            return known
        if not isinstance(holder, Definition) or len(holder.raw) < THREAD_BYTES:
            return self.of(tool)
        compiled = await seams.in_thread(lambda: Compiled(holder.input_schema or {}), self._limiter)
        self._say(tool, "input schema", compiled)
        self._inputs[holder] = compiled
        return compiled  # type: ignore[no-any-return]

    def of_output(self, tool: Tool) -> Compiled | None:
        """Give the compiled schema of a tool's structured result; `None` where it was listed without one."""
        holder = output_holder(tool)
        if isinstance(holder, HoldsSchemas) and holder._output_schema is None:  # noqa: SLF001 -- most have none
            return None
        try:
            return self._outputs[holder]
        except KeyError:
            schema = held_output_schema(tool)
            known = None if schema is None else self._compiled(tool, "output schema", schema)
            self._outputs[holder] = known
            return known

    def _compiled(self, tool: Tool, what: str, schema: Mapping[str, Any]) -> Compiled:
        try:
            text = hashlib.sha256(encode_json(schema)).digest()
        except NotJson:
            text = None
        known = None if text is None else self._by_text.get(text)
        if known is not None and text is not None:
            self._by_text.move_to_end(text)
            return known
        compiled = Compiled(schema)
        if text is not None:
            self._by_text[text] = compiled
            if len(self._by_text) > KEPT_BY_TEXT:
                self._by_text.popitem(last=False)
        self._say(tool, what, compiled)
        return compiled

    @staticmethod
    def _say(tool: Tool, what: str, compiled: Compiled) -> None:
        if compiled.problem is not None:
            effect = "is validated without them" if compiled.validator is not None else "is not validated"
            name = tool.name if tool.source is None else f"{tool.source}/{tool.name}"
            logger.warning("the %s of %s %s: %s", what, name[:128], effect, compiled.problem)


def check_schema(schema: Mapping[str, Any]) -> str | None:
    """Say why a schema of the host's own is not usable as it stands; `None` where it is."""
    return Compiled(schema).problem

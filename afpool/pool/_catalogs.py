"""Listed tools as interned definitions: of a list that came, to the catalog that bindings compare.

* Equal definitions and equal lists of all keys are one object, for as long as somebody holds them.
* A tool that cannot be read is quarantined with the reason; the others of its list live.
* A large one is canonicalised in a thread, so that the loop is not held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

from .._base.canonical import ContentError
from .._base.definition import Definition, DefinitionTable, build_definition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._base.definition import Catalog
    from .._base.seams import Seams
    from ..client import ListAnswer

THREAD_BYTES: Final = 64 * 1024


@final
class Catalogs:
    """The definitions of a pool.

    Attributes:
        table: Where they are kept once.
    """

    __slots__ = ("_limiter", "_seams", "table")

    def __init__(self, seams: Seams) -> None:
        self._seams = seams
        self._limiter = trio.CapacityLimiter(1)
        self.table = DefinitionTable()

    async def catalog(self, answer: ListAnswer, without: tuple[str, ...]) -> Catalog:
        """Intern a list.

        Args:
            answer: The list as its server sent it.
            without: JSON pointers that are left out when definitions are compared.

        A checkpoint only where something large and new is in it.
        """
        built: dict[bytes, Definition | ContentError] = {}
        for raw in answer.tools:
            if len(raw) > THREAD_BYTES and self.table.find(raw, without) is None:
                built[raw] = await self._build(raw, without)
        return self._interned(answer, without, built)

    async def _build(self, raw: bytes, without: tuple[str, ...]) -> Definition | ContentError:
        def build() -> Definition | ContentError:
            try:
                return build_definition(raw, without)
            except ContentError as error:
                return error

        built: Definition | ContentError = await self._seams.in_thread(build, self._limiter)
        return built

    def _interned(
        self,
        answer: ListAnswer,
        without: tuple[str, ...],
        built: Mapping[bytes, Definition | ContentError],
    ) -> Catalog:
        definitions = []
        quarantined = list(answer.left_out)
        for index, raw in enumerate(answer.tools):
            try:
                ready = built.get(raw)
                if isinstance(ready, ContentError):
                    raise ready
                definition = (
                    self.table.intern(raw, without) if ready is None else self.table.keep(ready, without)
                )
            except ContentError as error:
                quarantined.append((f"#{index}", str(error)))
            else:
                definitions.append(definition)
        return self.table.catalog(definitions, quarantined)

"""Tools and lists, each kept once however many keys hold it.

Rules:

* A tool is in the indexes for as long as a list that somebody holds has it. That is counted, list by list: a
  weak reference to each tool would be as many objects for the collector of cycles, and thousands of tools may
  come with one list and go with the next.
* Tables hold lists weakly. What went with a list leaves the indexes at once, or in steps where somebody has
  said that he takes them (`slowly`, then `leave_steps`).
* What very same bytes have given before is found without reading them. A definition may be spelled in any
  number of ways; the first `SPELLINGS` are known again.
* A definition that was asked for by name is one object for as long as a list has it, and after that for as
  long as somebody holds it.
* A table belongs to the thread of its loop.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary, getweakrefs, ref

from .canonical import canonical_json
from .definition import Catalog, build_tool, definition_of, spelling_of
from .steps import at_once

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from .definition import Definition, ListedTool

STEP: Final = 256
"""Tools that are gone through in one step of `catalog_steps` and of `leave_steps`."""
SPELLINGS: Final = 4
"""Ways of writing one definition that are known again without reading it."""
_DIGEST: Final = hashlib.sha256().digest_size


class Watched(ref[Catalog]):
    """The one weak reference to a list, and what goes with it.

    Attributes:
        key: What the list stands under.
        tools: What it has.
        slowly: Whether somebody lets go of what it had in steps.
    """

    __slots__ = ("key", "slowly", "tools")

    key: bytes
    tools: list[ListedTool]
    slowly: bool


class DefinitionTable:
    """Keeps equal tools and equal lists once, for as long as somebody holds a list.

    Every method is synchronous. For a large tool, `find`, and run `build_tool` in a thread when that gave
    nothing.
    """

    __slots__ = ("__weakref__", "_index")

    def __init__(self) -> None:
        self._index = _Index()

    def find(self, raw: bytes, compare_without: tuple[str, ...] = ()) -> ListedTool | None:
        """Give the tool that these very bytes have given before, if a list that somebody holds has it."""
        return self._index.spelled.get(spelling_of(raw, compare_without))

    def intern(self, raw: bytes, compare_without: tuple[str, ...] = ()) -> ListedTool:
        """Give the tool in `raw`: `find`, else `build_tool`. It is kept once a list with it is made.

        Raises:
            ContentError: As `build_tool` does.
        """
        return self.find(raw, compare_without) or build_tool(raw, compare_without)

    def catalog(self, tools: Iterable[ListedTool], quarantined: Iterable[tuple[str, str]] = ()) -> Catalog:
        """Give the one object for this list.

        Args:
            tools: In listed order, found here or built. The second of one name is quarantined.
            quarantined: Name or `#index`, and reason, of what could not be read.
        """
        return at_once(self.catalog_steps(tools, quarantined))

    def catalog_steps(
        self, tools: Iterable[ListedTool], quarantined: Iterable[tuple[str, str]] = ()
    ) -> Generator[None, None, Catalog]:
        """`catalog` in steps, for a list of thousands. Closed before its end, it leaves nothing behind."""
        index = self._index
        by_name: dict[str, ListedTool] = {}
        held: list[ListedTool] = []
        refused = list(quarantined)
        listing = hashlib.sha256()
        try:
            for number, tool in enumerate(tools, 1):
                if tool.name in by_name:
                    refused.append((tool.name, "another tool of this name is listed before it"))
                else:
                    kept = by_name[tool.name] = index.hold(tool)
                    held.append(kept)
                    listing.update((kept.digest + kept.whole).encode())
                if number % STEP == 0:
                    yield
            listing.update(canonical_json(refused))
            key = listing.digest()
            known = index.known(key)
            if known is None:
                compared = hashlib.sha256()
                for number, name in enumerate(sorted(by_name), 1):
                    compared.update(by_name[name].digest.encode())
                    if number % STEP == 0:
                        yield
                known = index.known(key)  # somebody may have made it between two steps
                if known is None:
                    made = Catalog(tuple(refused), compared.hexdigest(), by_name, index.define)
                    index.watch(key, made, held)
                    held = []
                    return made
            yield from index.release_steps(held)
            return known
        finally:
            index.release(held)

    def slowly(self, catalog: Catalog) -> Watched:
        """Have the tools of a list leave in steps, when it goes; `leave_steps` takes them."""
        watched = self._index.of(catalog)
        watched.slowly = True
        return watched

    def leave_steps(self, lists: Iterable[Watched]) -> Generator[None, None, None]:
        """Take out of the indexes what has gone with lists, in steps; those that live go as any other later.

        Args:
            lists: What `slowly` gave.

        Closed before its end, it does the rest at once.
        """
        gone = []
        for each in lists:
            each.slowly = False
            if each() is None:
                gone.append(each.tools)
        try:
            for tools in gone:
                yield from self._index.release_steps(tools)
        finally:
            for tools in gone:
                self._index.release(tools)

    def tools(self) -> Iterator[ListedTool]:
        """Go through the tools that a list has which somebody holds. Lazily, but for a copy of the index."""
        return iter(tuple(self._index.placed.values()))

    def catalogs(self) -> Iterator[Catalog]:
        """Go through the lists that somebody holds, likewise."""
        for watched in tuple(self._index.lists.values()):
            catalog = watched()
            if catalog is not None:
                yield catalog

    @property
    def catalog_count(self) -> int:
        """How many lists somebody holds."""
        return len(self._index.lists)

    def __len__(self) -> int:
        return len(self._index.placed)


class _Index:
    """What a table knows.

    Attributes:
        spelled: Tools by the digests of their spellings.
        placed: Tools by what tells them from all others.
        lists: Lists by what they hold.
        shown: Definitions that were asked for by name.
    """

    __slots__ = ("lists", "placed", "shown", "spelled")

    def __init__(self) -> None:
        self.spelled: dict[bytes, ListedTool] = {}
        self.placed: dict[str, ListedTool] = {}
        self.lists: dict[bytes, Watched] = {}
        self.shown: WeakValueDictionary[str, Definition] = WeakValueDictionary()

    def define(self, tool: ListedTool) -> Definition:
        """Give the one definition of a tool that was not touched yet."""
        found = self.shown.get(tool.place)
        if found is None:
            found = self.shown[tool.place] = definition_of(tool)
        tool.touched = found
        return found

    def hold(self, tool: ListedTool) -> ListedTool:
        """Count one more list that has a tool; gives the one that is kept for it."""
        kept = self.placed.setdefault(tool.place, tool)
        kept.holders += 1
        known = self.spelled
        if kept.holders == 1 and len(kept.spellings) == _DIGEST:
            known[kept.spellings] = kept
        elif kept.holders == 1:  # it had been let go of while whoever brings it held it
            for spelling in _spellings(kept):
                known[spelling] = kept
        elif kept is not tool and len(kept.spellings) < SPELLINGS * _DIGEST:
            spelling = tool.spellings[:_DIGEST]
            if spelling not in known:
                known[spelling] = kept
                kept.spellings += spelling
        return kept

    def release(self, tools: list[ListedTool]) -> None:
        """Count one list less for each tool, and empty the list."""
        placed, spelled = self.placed, self.spelled
        for tool in tools:
            tool.holders -= 1
            if tool.holders == 0:
                del placed[tool.place]
                if len(tool.spellings) == _DIGEST:
                    del spelled[tool.spellings]
                else:
                    for spelling in _spellings(tool):
                        del spelled[spelling]
        tools.clear()

    def release_steps(self, tools: list[ListedTool]) -> Generator[None, None, None]:
        """`release` in steps; closed before its end, it does the rest at once."""
        try:
            while tools:
                part = tools[-STEP:]
                del tools[-STEP:]
                self.release(part)
                if tools:
                    yield
        finally:
            self.release(tools)

    def known(self, key: bytes) -> Catalog | None:
        """The list under a key."""
        watched = self.lists.get(key)
        return None if watched is None else watched()

    def watch(self, key: bytes, catalog: Catalog, tools: list[ListedTool]) -> None:
        """Keep a list for as long as somebody holds it, and its tools with it."""
        watched = self.lists[key] = Watched(catalog, self.gone)
        watched.key, watched.tools, watched.slowly = key, tools, False

    def of(self, catalog: Catalog) -> Watched:
        """The reference to a list that somebody holds."""
        for reference in getweakrefs(catalog):
            if type(reference) is Watched:
                return reference
        raise LookupError("a list of another table")

    def gone(self, watched: ref[Catalog]) -> None:
        """Nobody holds a list any more."""
        assert type(watched) is Watched
        if self.lists.get(watched.key) is watched:
            del self.lists[watched.key]
        if not watched.slowly:
            self.release(watched.tools)


def _spellings(tool: ListedTool) -> Iterator[bytes]:
    known = tool.spellings
    return (known[start : start + _DIGEST] for start in range(0, len(known), _DIGEST))

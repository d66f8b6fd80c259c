"""What a server listed: tool definitions and whole lists, each kept once however many keys hold it.

Rules:

* A definition is the whole listed tool object. Two are the same when their `digest` is: SHA-256 over the
  canonical bytes with the pointers in `compare_without` left out.
* The bytes as listed are the truth and all that is kept. Reading `document` or one of the other
  properties decodes anew, so no holder can change what another one sees.
* Objects are shared only between tools that are equal in **every** value. Where `compare_without` left
  something out, the rest may be one holder's own (a server puts request-scoped values there), and
  sharing by `digest` alone would show one tenant's to another.
* Tables hold weakly: a definition or a list that nobody holds is gone from every index.
* A list may hold thousands of definitions, and thousands may come a second later. Each is one object and one
  weak reference for all indices: whatever else the collector of cycles counts brings its next whole round.
* `build_definition` is pure and may run in any thread. A table belongs to the thread of its loop.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast
from weakref import WeakValueDictionary, ref

import attrs

from .canonical import ContentError, canonical_json, parse_strict
from .steps import at_once

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

STEP: Final = 256
"""Definitions that are gone through in one step of `DefinitionTable.catalog_steps`."""

_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)+", re.DOTALL)
_INDEX = re.compile(r"0|[1-9][0-9]*", re.ASCII)


@attrs.frozen(eq=False)
class Definition:
    """One listed tool.

    Attributes:
        name: The tool's name, as the server calls it.
        digest: SHA-256, hexadecimal, of what is compared.
        raw: The listed object as the server wrote it.
        whole: SHA-256, hexadecimal, of the whole canonical object; equal to `digest` where nothing was
            left out of the comparison.

    Compared by identity: a `DefinitionTable` gives one object for equal ones. Compare `digest` otherwise.
    """

    name: str
    digest: str
    raw: bytes = attrs.field(repr=False)
    whole: str = attrs.field(repr=False)

    @property
    def document(self) -> dict[str, Any]:
        """The listed object, decoded anew at every touch: the caller's own to change."""
        return cast("dict[str, Any]", json.loads(self.raw))

    @property
    def description(self) -> str | None:
        """What the server says the tool does; `None` where it says nothing or no string."""
        value = self.document.get("description")
        return value if isinstance(value, str) else None

    @property
    def input_schema(self) -> dict[str, Any] | None:
        """`inputSchema` verbatim; `None` where there is none or no object."""
        return self._member("inputSchema")

    @property
    def output_schema(self) -> dict[str, Any] | None:
        """`outputSchema` verbatim; `None` where there is none or no object."""
        return self._member("outputSchema")

    @property
    def annotations(self) -> dict[str, Any] | None:
        """`annotations` verbatim: hints of the server, no promises; `None` where there are none."""
        return self._member("annotations")

    @property
    def meta(self) -> dict[str, Any] | None:
        """`_meta` verbatim; `None` where there is none or no object."""
        return self._member("_meta")

    def _member(self, key: str) -> dict[str, Any] | None:
        value = self.document.get(key)
        return value if isinstance(value, dict) else None


@attrs.frozen(eq=False)
class Catalog:
    """One tool list as a server gave it.

    Attributes:
        definitions: The usable tools in listed order, each name once.
        quarantined: Pairs of a name, or `#` and the index in the list, and the reason.
        digest: SHA-256, hexadecimal, over the definitions' digests by name: the order of listing and
            what is quarantined make no difference.

    Made by `DefinitionTable.catalog`. Reads like a mapping from name to definition.
    """

    definitions: tuple[Definition, ...] = attrs.field(repr=False)
    quarantined: tuple[tuple[str, str], ...]
    digest: str
    _by_name: dict[str, Definition] = attrs.field(repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The tools' names in listed order."""
        return tuple(self._by_name)

    def get(self, name: str) -> Definition | None:
        """Give the definition of the tool `name`, or `None`."""
        return self._by_name.get(name)

    def __getitem__(self, name: str) -> Definition:
        return self._by_name[name]

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[Definition]:
        return iter(self.definitions)

    def __len__(self) -> int:
        return len(self.definitions)


def check_compare_without(pointers: Iterable[str]) -> tuple[str, ...]:
    """Give `pointers` as a sorted tuple without repeats.

    Raises:
        ValueError: One is no JSON pointer (RFC 6901), or leaves out the whole tool or its name.
    """
    if isinstance(pointers, str):
        # a string is a sequence of strings too: the value is wrong, not its kind
        raise ValueError(  # noqa: TRY004
            f"compare_without must be a sequence of JSON pointers, such as ({pointers!r},)"
        )
    checked = tuple(sorted(set(pointers)))
    for pointer in checked:
        if pointer in {"", "/name"}:
            raise ValueError(
                f"compare_without cannot leave out {'the name' if pointer else 'the whole tool'}"
            )
        if _POINTER.fullmatch(pointer) is None:
            raise ValueError(f"{pointer!r} is no JSON pointer (RFC 6901)")
    return checked


def _remove(document: Any, pointers: Iterable[str]) -> bool:
    """Take what `pointers` name out of `document`, in place; say whether anything was there.

    All are looked up before anything goes, so that each means the document as listed.
    """
    found: list[tuple[Any, str | int]] = []
    for pointer in pointers:
        *path, last = (part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])
        holder = document
        for part in path:
            key = _find(holder, part)
            if key is None:
                break
            holder = holder[key]
        else:
            key = _find(holder, last)
            if key is not None:
                found.append((holder, key))
    # The highest index of an array first: what stands behind a removed element moves.
    indices = {(id(holder), key): (holder, key) for holder, key in found if isinstance(key, int)}
    for holder, key in sorted(indices.values(), key=lambda pair: pair[1], reverse=True):
        del holder[key]
    for holder, key in found:
        if isinstance(key, str):
            holder.pop(key, None)
    return bool(found)


def _find(holder: Any, part: str) -> str | int | None:
    if isinstance(holder, dict):
        return part if part in holder else None
    # More digits than any array has elements; and Python refuses to read a number of thousands of them.
    if isinstance(holder, list) and len(part) < 19 and _INDEX.fullmatch(part) and int(part) < len(holder):
        return int(part)
    return None


def build_definition(raw: bytes, compare_without: tuple[str, ...] = ()) -> Definition:
    """Read one listed tool: pure, for any thread. About 150 ms a megabyte.

    Args:
        raw: The tool object as listed, one JSON document in UTF-8.
        compare_without: JSON pointers as `check_compare_without` gives them. One that names nothing in
            this tool is ignored.

    Raises:
        ContentError: The tool must be quarantined: not strict JSON, no object, no usable name, too deep.
    """
    document = parse_strict(raw)
    if not isinstance(document, dict):
        raise ContentError("the tool is not an object")
    name = document.get("name")
    if not isinstance(name, str) or not name:
        raise ContentError("the tool has no name")
    if any("\ud800" <= char <= "\udfff" for char in name):
        raise ContentError("the tool's name holds an unpaired surrogate")
    digest = whole = hashlib.sha256(canonical_json(document)).hexdigest()
    if _remove(document, compare_without):
        digest = hashlib.sha256(canonical_json(document)).hexdigest()
    return Definition(name, digest, bytes(raw), whole)


_Spelling: TypeAlias = tuple[bytes, tuple[str, ...]]
"""The digest of what was listed, and what was left out of the comparison."""


class _Kept(ref[Definition]):
    """The one weak reference to a definition, and what it stands under."""

    __slots__ = ("place", "spellings")

    place: tuple[str, str]
    spellings: tuple[_Spelling, ...]


class DefinitionTable:
    """Keeps equal definitions and equal lists once, for as long as somebody holds them.

    Every method is synchronous and belongs to one thread. For a large tool, `find`, run
    `build_definition` in a thread when that gave nothing, then `keep`.
    """

    __slots__ = ("__weakref__", "_catalogs", "_definitions", "_gone", "_raw")

    def __init__(self) -> None:
        raw: dict[_Spelling, _Kept] = {}
        definitions: dict[tuple[str, str], _Kept] = {}

        def gone(kept: ref[Definition]) -> None:
            assert type(kept) is _Kept
            for spelling in kept.spellings:
                if raw.get(spelling) is kept:
                    del raw[spelling]
            if definitions.get(kept.place) is kept:
                del definitions[kept.place]

        self._raw, self._definitions, self._gone = raw, definitions, gone
        self._catalogs: WeakValueDictionary[bytes, Catalog] = WeakValueDictionary()

    def find(self, raw: bytes, compare_without: tuple[str, ...] = ()) -> Definition | None:
        """Give the definition that these very bytes have given before, if somebody still holds it."""
        kept = self._raw.get((hashlib.sha256(raw).digest(), compare_without))
        return None if kept is None else kept()

    def keep(self, built: Definition, compare_without: tuple[str, ...] = ()) -> Definition:
        """Give the one object for what `built` defines: an older equal one, or `built` itself.

        Args:
            built: What `build_definition` gave.
            compare_without: The pointers that it was built with.
        """
        place = (built.digest, built.whole)
        spelling = (hashlib.sha256(built.raw).digest(), compare_without)
        kept = self._definitions.get(place)
        found = None if kept is None else kept()
        if kept is None or found is None:
            found, kept = built, _Kept(built, self._gone)
            kept.place, kept.spellings = place, (spelling,)
            self._definitions[place] = kept
        elif spelling not in kept.spellings:
            kept.spellings = (*kept.spellings, spelling)
        self._raw[spelling] = kept
        return found

    def intern(self, raw: bytes, compare_without: tuple[str, ...] = ()) -> Definition:
        """Give the one object for the tool in `raw`: `find`, else `build_definition` and `keep`.

        Raises:
            ContentError: As `build_definition` does. Nothing is remembered then.
        """
        known = self.find(raw, compare_without)
        if known is not None:
            return known
        return self.keep(build_definition(raw, compare_without), compare_without)

    def catalog(
        self, definitions: Iterable[Definition], quarantined: Iterable[tuple[str, str]] = ()
    ) -> Catalog:
        """Give the one object for this list.

        Args:
            definitions: In listed order, from this table. The second of one name is quarantined.
            quarantined: Name or `#index`, and reason, of the tools that `intern` refused.
        """
        return at_once(self.catalog_steps(definitions, quarantined))

    def catalog_steps(
        self, definitions: Iterable[Definition], quarantined: Iterable[tuple[str, str]] = ()
    ) -> Generator[None, None, Catalog]:
        """`catalog` in steps, for a list of thousands; what it is given must be held meanwhile."""
        by_name: dict[str, Definition] = {}
        refused = list(quarantined)
        listing = hashlib.sha256()
        for number, definition in enumerate(definitions, 1):
            if definition.name in by_name:
                refused.append((definition.name, "another tool of this name is listed before it"))
            else:
                by_name[definition.name] = definition
                listing.update((definition.digest + definition.whole).encode())
            if number % STEP == 0:
                yield
        listing.update(canonical_json(refused))
        key = listing.digest()
        known = self._catalogs.get(key)
        if known is None:
            compared = hashlib.sha256()
            for number, name in enumerate(sorted(by_name), 1):
                compared.update(by_name[name].digest.encode())
                if number % STEP == 0:
                    yield
            made = Catalog(tuple(by_name.values()), tuple(refused), compared.hexdigest(), by_name)
            known = self._catalogs.setdefault(key, made)  # somebody may have made it between two steps
        return known

    def definitions(self) -> Iterator[Definition]:
        """Go through the definitions that somebody holds. Lazily, but for a copy of the index."""
        for kept in tuple(self._definitions.values()):
            definition = kept()
            if definition is not None:
                yield definition

    def catalogs(self) -> Iterator[Catalog]:
        """Go through the lists that somebody holds, likewise."""
        return self._catalogs.values()

    @property
    def catalog_count(self) -> int:
        """How many lists somebody holds."""
        return len(self._catalogs)

    def __len__(self) -> int:
        return len(self._definitions)

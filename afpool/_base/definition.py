"""What a server listed: tool definitions and whole lists; `definition_table` keeps each once.

Rules:

* A definition is the whole listed tool object. Two are the same when their `digest` is: SHA-256 over the
  canonical bytes with the pointers in `compare_without` left out.
* The bytes as listed are the truth and all that is kept. Reading `document` or one of the other
  properties decodes anew, so no holder can change what another one sees.
* Objects are shared only between tools that are equal in **every** value. Where `compare_without` left
  something out, the rest may be one holder's own (a server puts request-scoped values there), and
  sharing by `digest` alone would show one tenant's to another.
* A list may hold thousands of tools, and thousands others a second later. What is kept for each is a
  `ListedTool`, text and bytes that the collector of cycles need not know of: a list of any length is a few
  objects to it, and brings none of its rounds. A `Definition`, which it does look after, is made when a tool
  is touched, and is one object for as long as somebody holds it or a list that has the tool: what is compiled
  for it is kept for as long.
* `build_tool` is pure and may run in any thread. Asking a list for a definition by name belongs to the thread
  of its table; to go through all of them touches no table, and may be done anywhere.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any, cast

import attrs
import msgspec

from .canonical import ContentError, canonical_json, parse_strict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)+", re.DOTALL)
_INDEX = re.compile(r"0|[1-9][0-9]*", re.ASCII)


class ListedTool(msgspec.Struct, gc=False, eq=False):
    """One listed tool as a table keeps it. Nothing in it can be part of a cycle: a definition is text, too.

    Attributes:
        name: As for `Definition`, and so are `digest`, `raw` and `whole`.
        place: What tells it from all that differ in any value.
        spellings: The digests, one behind the other, of the spellings that it is known by.
        holders: How many of the lists that somebody holds have it.
        touched: Its definition, once it was asked for by name.
    """

    name: str
    digest: str
    raw: bytes
    whole: str
    place: str
    spellings: bytes
    holders: int = 0
    touched: Definition | None = None

    def __repr__(self) -> str:
        return f"<ListedTool {self.name}>"


@attrs.frozen(eq=False)
class Definition:
    """One listed tool.

    Attributes:
        name: The tool's name, as the server calls it.
        digest: SHA-256, hexadecimal, of what is compared.
        raw: The listed object as the server wrote it.
        whole: SHA-256, hexadecimal, of the whole canonical object; equal to `digest` where nothing was
            left out of the comparison.

    Compared by identity: a list gives one object for equal ones that are asked for by name, for as long as
    somebody holds it. Compare `digest` otherwise.
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
        quarantined: Pairs of a name, or `#` and the index in the list, and the reason.
        digest: SHA-256, hexadecimal, over the definitions' digests by name: the order of listing and
            what is quarantined make no difference.

    Made by `DefinitionTable.catalog`. Reads like a mapping from name to definition. A definition that is
    asked for by name is one object; going through all makes them one by one, each for this look only.
    """

    quarantined: tuple[tuple[str, str], ...]
    digest: str
    _by_name: dict[str, ListedTool] = attrs.field(repr=False)
    _define: Callable[[ListedTool], Definition] = attrs.field(repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The tools' names in listed order."""
        return tuple(self._by_name)

    @property
    def definitions(self) -> tuple[Definition, ...]:
        """The usable tools in listed order, each name once; made anew at every touch."""
        return tuple(self)

    def get(self, name: str) -> Definition | None:
        """Give the definition of the tool `name`, or `None`."""
        tool = self._by_name.get(name)
        return None if tool is None else tool.touched or self._define(tool)

    def shows(self, name: str, digest: str) -> bool:
        """Whether it has exactly this definition under this name; makes none."""
        tool = self._by_name.get(name)
        return tool is not None and tool.digest == digest

    def __getitem__(self, name: str) -> Definition:
        tool = self._by_name[name]
        return tool.touched or self._define(tool)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[Definition]:
        return map(definition_of, self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)


def definition_of(tool: ListedTool) -> Definition:
    """Make the definition of a listed tool: for any thread."""
    return Definition(tool.name, tool.digest, tool.raw, tool.whole)


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


def build_tool(raw: bytes, compare_without: tuple[str, ...] = ()) -> ListedTool:
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
    digest = whole = place = hashlib.sha256(canonical_json(document)).hexdigest()
    if _remove(document, compare_without):
        digest = hashlib.sha256(canonical_json(document)).hexdigest()
        place = digest + whole
    return ListedTool(name, digest, bytes(raw), whole, place, spelling_of(raw, compare_without))


def build_definition(raw: bytes, compare_without: tuple[str, ...] = ()) -> Definition:
    """Give the definition of one listed tool, as `build_tool` reads it; raises as that does."""
    return definition_of(build_tool(raw, compare_without))


def spelling_of(raw: bytes, compare_without: tuple[str, ...]) -> bytes:
    """Give the digest of what was listed, and of what was left out of the comparison."""
    listed = hashlib.sha256(raw)
    if compare_without:
        listed = hashlib.sha256(listed.digest() + canonical_json(compare_without))
    return listed.digest()

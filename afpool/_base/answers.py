"""Answers to what is no tool call: resources, prompts, completions; kept as they came, decoded when read."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, final, overload

import attrs
import msgspec

from .errors import ProtocolError

CacheScope: TypeAlias = Literal["public", "private"]

_decode = msgspec.json.Decoder().decode


class RawAnswer:
    """One answer, kept as the bytes that came.

    Attributes:
        raw: The JSON of the result object.
        call_id: Of the operation that it answers.
    """

    __slots__ = ("_document", "call_id", "raw")

    def __init__(self, raw: bytes, call_id: str) -> None:
        self.raw = raw
        self.call_id = call_id
        self._document: dict[str, Any] | None = None

    @property
    def document(self) -> dict[str, Any]:
        """The whole result object.

        Raises:
            ProtocolError: It is no JSON object.
        """
        if self._document is None:
            self._document = _object(self.raw, self.call_id)
        return self._document

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of call {self.call_id}: {len(self.raw)} bytes>"


@final
@attrs.frozen(repr=False)
class ResourceContents:
    """One part of what a resource holds.

    Attributes:
        block: The object as it came.
    """

    block: dict[str, Any]

    @property
    def uri(self) -> str:
        """Whose contents; may be one below the resource that was read."""
        return _text(self.block.get("uri")) or ""

    @property
    def mime_type(self) -> str | None:
        """As the server names it."""
        return _text(self.block.get("mimeType"))

    @property
    def text(self) -> str | None:
        """The text, or `None` where the contents are binary."""
        return _text(self.block.get("text"))

    @property
    def blob(self) -> bytes | None:
        """The bytes, or `None` where the contents are a text.

        Raises:
            ProtocolError: They are no base64.
        """
        blob = self.block.get("blob")
        if not isinstance(blob, str):
            return None
        try:
            return base64.b64decode(blob, validate=True)
        except (binascii.Error, ValueError):
            raise ProtocolError("a resource's blob is no base64") from None

    def __repr__(self) -> str:
        return f"<ResourceContents {self.mime_type or 'of no type'}>"


@final
class ResourceResult(RawAnswer):
    """What `resources/read` answered.

    Attributes:
        ttl: Seconds for which the server lets it be kept; `None` where its era knows no such hint.
        cache_scope: `public`, or `private` to the authorization that it was read under.
    """

    __slots__ = ("cache_scope", "ttl")

    def __init__(self, raw: bytes, call_id: str, ttl: float | None, cache_scope: CacheScope) -> None:
        super().__init__(raw, call_id)
        self.ttl = ttl
        self.cache_scope: CacheScope = cache_scope

    @property
    def contents(self) -> list[ResourceContents]:
        """The parts; an absent list is an empty one."""
        return [ResourceContents(block) for block in _objects(self.document.get("contents"))]

    @property
    def text(self) -> str:
        """The texts of all parts, joined by newlines; a binary part reads as its type in brackets."""
        parts = []
        for part in self.contents:
            text = part.text
            parts.append(f"[{part.mime_type or 'blob'}]" if text is None else text)
        return "\n".join(parts)


@final
class PromptResult(RawAnswer):
    """What `prompts/get` answered."""

    __slots__ = ()

    @property
    def description(self) -> str | None:
        """The server's own."""
        return _text(self.document.get("description"))

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages, each with `role` and `content`; an absent list is an empty one."""
        return _objects(self.document.get("messages"))


@final
class Completion(RawAnswer):
    """What `completion/complete` answered."""

    __slots__ = ()

    @property
    def values(self) -> list[str]:
        """The proposed values; what is no string is left out."""
        values = self._inner.get("values")
        return [value for value in values if isinstance(value, str)] if isinstance(values, list) else []

    @property
    def total(self) -> int | None:
        """How many there are in all, where the server says so."""
        total = self._inner.get("total")
        return total if isinstance(total, int) and not isinstance(total, bool) else None

    @property
    def has_more(self) -> bool:
        """Whether the server has more than it sent."""
        return self._inner.get("hasMore") is True

    @property
    def _inner(self) -> dict[str, Any]:
        inner = self.document.get("completion")
        return inner if isinstance(inner, dict) else {}


@final
class Items(Sequence[dict[str, Any]]):
    """A whole list of resources, templates or prompts: raw objects, each decoded when it is touched.

    Attributes:
        raw: The objects as they came, in the server's order.
        call_id: Of the operation that fetched them.
        ttl: Seconds for which the server lets the list be kept; `None` where its era knows no such hint.
        cache_scope: `public`, or `private` to the authorization that it was listed under.
    """

    __slots__ = ("_decoded", "cache_scope", "call_id", "raw", "ttl")

    def __init__(
        self, raw: list[bytes], call_id: str, ttl: float | None = None, cache_scope: CacheScope = "private"
    ) -> None:
        self.raw = raw
        self.call_id = call_id
        self.ttl = ttl
        self.cache_scope: CacheScope = cache_scope
        self._decoded: list[dict[str, Any] | None] = [None] * len(raw)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        found = self._decoded[index]
        if found is None:
            found = self._decoded[index] = _object(self.raw[index], self.call_id)
        return found

    def __len__(self) -> int:
        return len(self.raw)

    def __repr__(self) -> str:
        return f"<Items of call {self.call_id}: {len(self.raw)}>"


def _object(raw: bytes, call_id: str) -> dict[str, Any]:
    try:
        document = _decode(raw)
    except (msgspec.DecodeError, RecursionError):
        document = None
    if not isinstance(document, dict):
        error = ProtocolError(f"what the server sent is no readable JSON object ({len(raw)} bytes)")
        error.call_id = call_id
        raise error
    return document


def _objects(value: object) -> list[dict[str, Any]]:
    return [block for block in value if isinstance(block, dict)] if isinstance(value, list) else []


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None

"""Reading results: only the members that decide something; the payload stays as it came.

Tolerant to members that are extra and to optional ones of an odd type; a member without which the result
means nothing makes it a `MalformedMessage`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from ._eras import SERVER_INFO_KEY, Era
from ._json import MalformedMessage, RawJson, decode_json, decode_members, split_array

COMPLETE = "complete"
INPUT_REQUIRED = "input_required"

_NULL = b"null"


class ListPage(NamedTuple):
    """One page of `tools/list`.

    `tools` are the raw definitions; `next_cursor` is `None` at the end, and the empty string is a cursor;
    `ttl_ms` is 0 where the server says nothing; `cache_scope` is `public` or `private`.
    """

    tools: list[Raw]
    next_cursor: str | None
    ttl_ms: int
    cache_scope: str


class ItemsPage(NamedTuple):
    """One page of resources, templates or prompts; as `ListPage`, whose items are `items`."""

    items: list[Raw]
    next_cursor: str | None
    ttl_ms: int
    cache_scope: str


class CallResult(NamedTuple):
    """What decides about a `tools/call` result, and the result itself, raw.

    `input_required` says that the server wants answers first: `input_requests` (raw object or `None`) and
    `request_state` (raw, to be echoed byte for byte, or `None`).
    """

    is_error: bool
    input_required: bool
    input_requests: bytes | None
    request_state: bytes | None
    payload: RawJson


class Discovered(NamedTuple):
    """The result of `server/discover`."""

    versions: tuple[str, ...]
    server_name: str | None
    server_version: str | None
    capabilities: dict[str, Any]
    instructions: str | None
    ttl_ms: int
    cache_scope: str


class Initialized(NamedTuple):
    """The result of `initialize`."""

    version: str
    server_name: str | None
    server_version: str | None
    capabilities: dict[str, Any]
    instructions: str | None


class _PageMembers(msgspec.Struct, rename="camel"):
    tools: Raw = Raw()
    next_cursor: Raw = Raw()
    ttl_ms: Raw = Raw()
    cache_scope: Raw = Raw()
    result_type: Raw = Raw()


class _ListMembers(msgspec.Struct, rename="camel"):
    """The same, whose tools are cut while it is read: a long list is gone through once, not twice."""

    tools: list[Raw] | msgspec.UnsetType = msgspec.UNSET
    next_cursor: Raw = Raw()
    ttl_ms: Raw = Raw()
    cache_scope: Raw = Raw()
    result_type: Raw = Raw()


class _ItemMembers(msgspec.Struct, rename="camel"):
    resources: Raw = Raw()
    resource_templates: Raw = Raw()
    prompts: Raw = Raw()
    next_cursor: Raw = Raw()
    ttl_ms: Raw = Raw()
    cache_scope: Raw = Raw()
    result_type: Raw = Raw()


class _CallMembers(msgspec.Struct, rename="camel"):
    is_error: Raw = Raw()
    result_type: Raw = Raw()
    input_requests: Raw = Raw()
    request_state: Raw = Raw()


class _OpeningMembers(msgspec.Struct, rename="camel"):
    protocol_version: Raw = Raw()
    supported_versions: Raw = Raw()
    capabilities: Raw = Raw()
    instructions: Raw = Raw()
    server_info: Raw = Raw()
    ttl_ms: Raw = Raw()
    cache_scope: Raw = Raw()
    result_type: Raw = Raw()
    meta: Raw = msgspec.field(default=Raw(), name="_meta")


_decode_list = msgspec.json.Decoder(_ListMembers).decode
_decode_page = msgspec.json.Decoder(_PageMembers).decode
_decode_items = msgspec.json.Decoder(_ItemMembers).decode
_decode_call = msgspec.json.Decoder(_CallMembers).decode
_decode_opening = msgspec.json.Decoder(_OpeningMembers).decode


def _value(raw: Raw) -> Any:
    return decode_json(raw) if raw else None


def _lenient(raw: Raw, kind: type) -> Any:
    """Read an optional member; `None` where it is not of its type."""
    try:
        value = _value(raw)
    except MalformedMessage:
        return None
    return value if isinstance(value, kind) else None


def read_ttl_ms(raw: Raw) -> int:
    """Read `ttlMs`: absent, negative and odd are 0."""
    try:
        value = _value(raw)
    except MalformedMessage:
        return 0
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return 0
    return max(0, int(value))


def _scope(raw: Raw) -> str:
    return "public" if _lenient(raw, str) == "public" else "private"


def _result_type(raw: Raw, era: Era) -> str:
    # Before 2026-07-28 the member did not exist, so an older server's is its own affair.
    if not raw or era is Era.HANDSHAKE or bytes(raw) == _NULL:
        return COMPLETE
    kind = _lenient(raw, str)
    if kind not in (COMPLETE, INPUT_REQUIRED):
        raise MalformedMessage("a result of a type that is not known")
    return str(kind)


def read_list_page(raw: RawJson, era: Era = Era.STATELESS) -> ListPage:
    """Read one page of `tools/list`.

    Raises:
        MalformedMessage: No list of tools, a cursor that is no string, a result type that is not known.
    """
    members: _ListMembers | _PageMembers
    try:
        members = _decode_list(raw)
    except (msgspec.DecodeError, RecursionError):  # what is wrong is said by a reader that takes it apart
        members = decode_members(raw, _decode_page, _PageMembers)
    if _result_type(members.result_type, era) != COMPLETE:
        raise MalformedMessage("a list that asks for input")
    found = members.tools
    if found is msgspec.UNSET or (isinstance(found, Raw) and not found):
        raise MalformedMessage("a list without `tools`")
    cursor = _value(members.next_cursor)
    if cursor is not None and not isinstance(cursor, str):
        raise MalformedMessage(f"a cursor of type {type(cursor).__name__}")
    tools = split_array(found) if isinstance(found, Raw) else found
    return ListPage(tools, cursor, read_ttl_ms(members.ttl_ms), _scope(members.cache_scope))


def read_items_page(raw: RawJson, member: str, era: Era = Era.STATELESS) -> ItemsPage:
    """Read one page of `resources/list`, `resources/templates/list` or `prompts/list`.

    Args:
        raw: The result.
        member: What its items stand under: `resources`, `resourceTemplates` or `prompts`.
        era: Whose result it is.

    Raises:
        MalformedMessage: No list under that name, a cursor that is no string, a result type that is not
            known.
    """
    members = decode_members(raw, _decode_items, _ItemMembers)
    if _result_type(members.result_type, era) != COMPLETE:
        raise MalformedMessage("a list that asks for input")
    items = {
        "resources": members.resources,
        "resourceTemplates": members.resource_templates,
        "prompts": members.prompts,
    }[member]
    if not items:
        raise MalformedMessage(f"a list without `{member}`")
    cursor = _value(members.next_cursor)
    if cursor is not None and not isinstance(cursor, str):
        raise MalformedMessage(f"a cursor of type {type(cursor).__name__}")
    return ItemsPage(split_array(items), cursor, read_ttl_ms(members.ttl_ms), _scope(members.cache_scope))


def read_cache_hint(raw: RawJson) -> tuple[int, str]:
    """Read `ttlMs` and `cacheScope` of a result that is no list; what cannot be read is 0 and `private`."""
    try:
        members = decode_members(raw, _decode_items, _ItemMembers)
    except MalformedMessage:
        return 0, "private"
    return read_ttl_ms(members.ttl_ms), _scope(members.cache_scope)


def read_call_result(raw: RawJson, era: Era = Era.STATELESS) -> CallResult:
    """Read what decides about a `tools/call` result; the payload is kept as it is.

    Raises:
        MalformedMessage: Not an object, or a result type that is not known.
    """
    members = decode_members(raw, _decode_call, _CallMembers)
    if _result_type(members.result_type, era) == INPUT_REQUIRED:
        return CallResult(
            is_error=False,
            input_required=True,
            input_requests=_present(members.input_requests),
            request_state=_present(members.request_state),
            payload=raw,
        )
    return CallResult(bytes(members.is_error) == b"true", False, None, None, raw)


def _present(raw: Raw) -> bytes | None:
    data = bytes(raw)
    return None if not data or data == _NULL else data


class _TypeMember(msgspec.Struct, rename="camel"):
    result_type: str | None = None


_decode_type = msgspec.json.Decoder(_TypeMember).decode


def is_complete(raw: RawJson) -> bool:
    """Say quickly whether a stateless result is plainly a complete one; `False` means: read it in full."""
    try:
        kind = _decode_type(raw).result_type
    except (msgspec.DecodeError, RecursionError):
        return False
    return kind is None or kind == COMPLETE


def read_discovered(raw: RawJson) -> Discovered:
    """Read a `server/discover` result.

    Raises:
        MalformedMessage: No list of versions.
    """
    members = decode_members(raw, _decode_opening, _OpeningMembers)
    if _result_type(members.result_type, Era.STATELESS) != COMPLETE:
        raise MalformedMessage("a description that asks for input")
    versions = _lenient(members.supported_versions, list)
    if versions is None:
        raise MalformedMessage("a description without `supportedVersions`")
    meta = _lenient(members.meta, dict) or {}
    name, version = _info(meta.get(SERVER_INFO_KEY) or _lenient(members.server_info, dict))
    return Discovered(
        tuple(v for v in versions if isinstance(v, str)),
        name,
        version,
        _lenient(members.capabilities, dict) or {},
        _lenient(members.instructions, str),
        read_ttl_ms(members.ttl_ms),
        _scope(members.cache_scope),
    )


def read_initialized(raw: RawJson) -> Initialized:
    """Read an `initialize` result.

    Raises:
        MalformedMessage: No protocol version.
    """
    members = decode_members(raw, _decode_opening, _OpeningMembers)
    protocol_version = _lenient(members.protocol_version, str)
    if protocol_version is None:
        raise MalformedMessage("an `initialize` result without `protocolVersion`")
    name, version = _info(_lenient(members.server_info, dict))
    return Initialized(
        protocol_version,
        name,
        version,
        _lenient(members.capabilities, dict) or {},
        _lenient(members.instructions, str),
    )


def _info(value: Any) -> tuple[str | None, str | None]:
    if not isinstance(value, dict):
        return None, None
    name, version = value.get("name"), value.get("version")
    return (name if isinstance(name, str) else None, version if isinstance(version, str) else None)


def read_supported(data: RawJson | None) -> tuple[str, ...] | None:
    """Read `data.supported` of a -32022 error; `None` where it says nothing."""
    if not data:
        return None
    try:
        value = decode_json(data)
    except MalformedMessage:
        return None
    supported = value.get("supported") if isinstance(value, dict) else None
    if not isinstance(supported, list):
        return None
    return tuple(v for v in supported if isinstance(v, str))


class PageGuard:
    """Stops a walk over pages that would not end: a cursor that comes again, or too many pages.

    Args:
        max_pages: How many pages one walk may take.

    Attributes:
        pages: How many pages were read.
    """

    __slots__ = ("_seen", "max_pages", "pages")

    def __init__(self, max_pages: int = 100) -> None:
        self.max_pages = max_pages
        self.pages = 0
        self._seen: set[str] = set()

    def follow(self, page: ListPage | ItemsPage) -> str | None:
        """Count a page and return the cursor of the next, or `None` at the end.

        Raises:
            MalformedMessage: The cursor was given before, or the page cap is reached and there is more.
        """
        self.pages += 1
        cursor = page.next_cursor
        if cursor is None:
            return None
        if cursor in self._seen:
            raise MalformedMessage("a list whose cursor comes again")
        if self.pages >= self.max_pages:
            raise MalformedMessage(f"a list of more than {self.max_pages} pages")
        self._seen.add(cursor)
        return cursor

"""Parameters of the requests that are neither an opening nor a tool call, and the notices about their things.

Builders join bytes: `members` are what the method itself takes, without the braces around them; `_meta` and
what an `input_required` round adds are put beside them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ._eras import SUBSCRIPTION_KEY, join_meta, meta_member
from ._json import MalformedMessage, RawJson, decode_json, encode_json

if TYPE_CHECKING:
    from collections.abc import Mapping

LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""Levels of `logging/setLevel`, least severe first (RFC 5424)."""

LOG_NOTICE: Final = "notifications/message"
UPDATED_NOTICE: Final = "notifications/resources/updated"
RESOURCES_CHANGED: Final = "notifications/resources/list_changed"
PROMPTS_CHANGED: Final = "notifications/prompts/list_changed"


def request_params(
    members: bytes = b"",
    *,
    meta: bytes = b"",
    cursor: str | None = None,
    progress_token: int | None = None,
    call_id_key: str | None = None,
    call_id: str | None = None,
    input_responses: bytes | None = None,
    request_state: bytes | None = None,
) -> bytes | None:
    """Build the parameters of a request; `None` where there are none.

    Args:
        members: Members of the method's own, without braces.
        meta: Members of `_meta`, without braces.
        cursor: Of the page that is asked for; the empty string is one.
        progress_token: Unique among the requests in flight, or `None` for no progress.
        call_id_key: Under which `_meta` key the call id goes out; `None` sends it nowhere.
        call_id: The operation's id, the same on every attempt.
        input_responses: Answers to an `input_required` result, a raw JSON object.
        request_state: The state that came with it, raw and echoed byte for byte.

    Raises:
        NotJson: A text holds a lone surrogate.
    """
    if progress_token is not None:
        meta = join_meta(meta, b'"progressToken":%d' % progress_token)
    if call_id_key is not None and call_id is not None:
        meta = join_meta(meta, meta_member(call_id_key, call_id))
    parts = [members] if members else []
    if cursor is not None:
        parts.append(b'"cursor":%b' % encode_json(cursor))
    if input_responses is not None:
        parts.append(b'"inputResponses":%b' % input_responses)
    if request_state is not None:
        parts.append(b'"requestState":%b' % request_state)
    if meta:
        parts.append(b'"_meta":{%b}' % meta)
    return b"{%b}" % b",".join(parts) if parts else None


def uri_members(uri: str) -> bytes:
    """What `resources/read`, `resources/subscribe` and `resources/unsubscribe` take."""
    return b'"uri":%b' % encode_json(uri)


def prompt_members(name: str, arguments: Mapping[str, str] | None) -> bytes:
    """What `prompts/get` takes; arguments are strings by the specification."""
    if arguments is None:
        return b'"name":%b' % encode_json(name)
    return b'"name":%b,"arguments":%b' % (encode_json(name), encode_json(arguments))


def completion_members(
    ref: Mapping[str, Any], argument: Mapping[str, Any], context: Mapping[str, str] | None
) -> bytes:
    """What `completion/complete` takes; `context` are arguments that are decided already."""
    members = b'"ref":%b,"argument":%b' % (encode_json(ref), encode_json(argument))
    if context is None:
        return members
    return b'%b,"context":{"arguments":%b}' % (members, encode_json(context))


def level_members(level: str) -> bytes:
    """What `logging/setLevel` takes."""
    return b'"level":%b' % encode_json(level)


class LogNotice(NamedTuple):
    """One `notifications/message`. `data` is any JSON value, raw."""

    level: str
    logger: str | None
    data: bytes


def read_log(params: RawJson | None) -> LogNotice | None:
    """Read a log notification; `None` where its level is none that is known or it cannot be read."""
    if not params:
        return None
    try:
        document = decode_json(params)
        if not isinstance(document, dict) or document.get("level") not in LOG_LEVELS:
            return None
        logger = document.get("logger")
        data = encode_json(document.get("data"))
    except (MalformedMessage, TypeError):
        return None
    return LogNotice(str(document["level"]), logger if isinstance(logger, str) else None, data)


def read_updated(params: RawJson | None) -> str | None:
    """Read whose contents a `notifications/resources/updated` is about."""
    if not params:
        return None
    try:
        document = decode_json(params)
    except MalformedMessage:
        return None
    uri = document.get("uri") if isinstance(document, dict) else None
    return uri if isinstance(uri, str) else None


def honoured_uris(params: RawJson | None) -> frozenset[str] | None:
    """Read the subscriptions that an acknowledgement grants; `None` where it does not say which."""
    if not params:
        return None
    try:
        document = decode_json(params)
    except MalformedMessage:
        return None
    granted = document.get("notifications") if isinstance(document, dict) else None
    uris = granted.get("resourceSubscriptions") if isinstance(granted, dict) else None
    return frozenset(uri for uri in uris if isinstance(uri, str)) if isinstance(uris, list) else None


def subscription_id(params: RawJson | None) -> object:
    """Read which `subscriptions/listen` a notification belongs to; `None` where it does not say."""
    if not params:
        return None
    try:
        document = decode_json(params)
    except MalformedMessage:
        return None
    meta = document.get("_meta") if isinstance(document, dict) else None
    return meta.get(SUBSCRIPTION_KEY) if isinstance(meta, dict) else None

"""What the messages of a `subscriptions/listen` say (2026-07-28): whose they are, and what was granted.

A server may leave out what it does not mind: a message that names no subscription is for the one under way,
and a member of the honoured subset that is not named is taken for granted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..protocol import MalformedMessage, decode_json, subscription_id

if TYPE_CHECKING:
    from ..protocol import Message


def _document(message: Message) -> dict[str, Any]:
    try:
        params = decode_json(message.params)
    except MalformedMessage:
        return {}
    return params if isinstance(params, dict) else {}


def subscription_of(message: Message) -> object:
    """The subscription that a notification names, as the integer that we sent; `None` where it names none."""
    value = subscription_id(message.params)
    if isinstance(value, str) and len(value) < 20 and value.isascii() and value.isdigit():
        return int(value)
    return value


def acknowledges(message: Message, what: str | None = None) -> bool:
    """Whether the honoured subset holds `what`, or anything; one that is not named is taken for all."""
    honoured = _document(message).get("notifications")
    if not isinstance(honoured, dict):
        return True
    return any(honoured.values()) if what is None else bool(honoured.get(what))


def cancelled_id(message: Message) -> object:
    """The request that a `notifications/cancelled` names."""
    return _document(message).get("requestId")

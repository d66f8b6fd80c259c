"""What is said when no connection comes about."""

from __future__ import annotations

from typing import Literal, TypeAlias

ConnectReason: TypeAlias = Literal["resolve", "refused", "unreachable", "proxy", "tls", "timeout"]
Address: TypeAlias = tuple[int, object]


class ConnectFailed(Exception):
    """No connection came about. Nothing of any request was sent.

    Args:
        reason: Which step failed.
        message: What happened, without secrets.
    """

    def __init__(self, reason: ConnectReason, message: str) -> None:
        super().__init__(message)
        self.reason: ConnectReason = reason

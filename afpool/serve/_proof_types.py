"""What a request shows before its body, who it is proven to come from, and how it is refused.

Rules:

* A refusal is made of words that stand in our code. Nothing that the caller sent is ever part of one: not a
  name, not a host, not a piece of a token.
* None of these objects shows a value by `repr`: heads and proofs are locals of frames that may be printed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

from .._base.errors import AfpoolError, IdentityMissing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .._base.identity import Identity

Header: TypeAlias = tuple[bytes, bytes]
UNIX: Final = "unix"
# JSON-RPC leaves -32000 to -32099 to servers; the word that programs read is `data.code`.
_RPC_CODE: Final = -32000


class UnsafeDoor(AfpoolError):
    """The configuration would open a door to whom nobody meant. Nothing listens."""

    code = "unsafe-door"
    deliveries = ("not-sent",)


def _lowered(headers: Iterable[Header]) -> tuple[Header, ...]:
    return tuple((name.lower(), value) for name, value in headers)


@attrs.frozen(repr=False, eq=False)
class RequestHead:
    """The head of a request, as it came.

    Args:
        method: As sent, upper case.
        path: Without the query.
        headers: Names and values as sent, in their order, repeated ones repeated; names are put in lower
            case.
        peer: The address of whoever holds the other end of this connection, without a port; `"unix"` for a
            Unix socket; `None` where it is not known, which is never trusted. Never what a header says.
    """

    method: str
    path: str
    headers: tuple[Header, ...] = attrs.field(converter=_lowered)
    peer: str | None = None

    def all(self, name: bytes) -> list[bytes]:
        """Every value of a header, by its name in lower case."""
        return [value for key, value in self.headers if key == name]

    def __repr__(self) -> str:
        return f"<RequestHead {len(self.headers)} headers>"


def _always() -> bool:
    return True


@attrs.frozen(repr=False, eq=False)
class Proven:
    """Who a request comes from.

    Attributes:
        identity: Whom it acts for.
        subject: What proved it, in a form that may be logged: `token` and the token's id, `jwt` or `proxy`
            and a digest. Two proofs of the same subject are of the same caller.
        expires_at: Seconds since 1970 after which the proof is void, leeway included; `None` is never.
        still_holds: Whether the proof is good now. Synchronous, without I/O; false once the token has
            expired or was revoked, or its signing key or its source was withdrawn.
    """

    identity: Identity
    subject: str
    expires_at: float | None = None
    still_holds: Callable[[], bool] = _always

    def caller(self) -> Identity:
        """The identity, as long as the proof holds.

        This is what a call gets as its `identity`: it is asked anew at every recheck, so that a call whose
        token is revoked while it waits is refused at the next gate. It raises then and gives no `None`: that
        would be nobody, and what is there for everybody nobody may list, too.

        Raises:
            IdentityMissing: It holds no longer.
        """
        if not self.still_holds():
            raise IdentityMissing("what proved who calls holds no longer; nothing was sent; prove it anew")
        return self.identity

    def __repr__(self) -> str:
        return f"<Proven by {self.subject}>"


@attrs.frozen
class Refused:
    """An answer to a request that goes no further.

    Attributes:
        status: Of HTTP.
        code: A stable word for programs; also in the body as `error.data.code`.
        message: For people; holds nothing of what the caller sent.
        headers: Everything that the answer needs, `content-type` included.
        body: A JSON-RPC error without an id.
    """

    status: int
    code: str
    message: str
    headers: tuple[Header, ...] = ()
    body: bytes = b""


def refuse(
    status: int,
    code: str,
    message: str,
    *,
    headers: tuple[Header, ...] = (),
    retry_after: float | None = None,
) -> Refused:
    """Make a refusal.

    Args:
        status: Of HTTP.
        code: A word in lower case with dashes.
        message: What is wrong and what to do, in words of our own only.
        headers: Besides `content-type`, `cache-control` and `retry-after`.
        retry_after: Seconds; rounded up to whole ones, at least one.
    """
    data: dict[str, object] = {"code": code}
    if retry_after is not None:
        data["retry_after"] = round(retry_after, 3)
        headers = (*headers, (b"retry-after", b"%d" % max(1, -int(-retry_after // 1))))
    body = json.dumps(
        {"jsonrpc": "2.0", "id": None, "error": {"code": _RPC_CODE, "message": message, "data": data}},
        separators=(",", ":"),
    ).encode()
    fixed = ((b"content-type", b"application/json"), (b"cache-control", b"no-store"))
    return Refused(status, code, message, (*fixed, *headers), body)

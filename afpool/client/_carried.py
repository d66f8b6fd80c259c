"""What a client's requests carry that is for its server alone, and its server's words without it.

A server may quote what it was sent: an error that names the token, a challenge that repeats it. Here is noted
what goes out, so that it is taken out of what errors say. Results are the server's answer and stay as they
came; a runtime, which hands them to models, takes it out of those too (`ToolContext.on_credential`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, final

from .._base.secret import Credential, Secret
from .._base.spellings import PLACEHOLDER, Words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .._base.errors import AfpoolError

# Headers of a plan's or a signer's own that authenticate, by their names.
_AUTHENTICATES: Final = frozenset({"authorization", "proxy-authorization", "cookie", "x-api-key"})
_WITH_SCHEME: Final = frozenset({"authorization", "proxy-authorization"})
_KEPT: Final = 4


@final
class Carried:
    """The last few credentials that requests of one client carried; all are of one identity.

    Args:
        headers: What every request carries: the plan's own headers.
    """

    __slots__ = ("_latest", "_own", "_words")

    def __init__(self, headers: Iterable[tuple[str, str]] = ()) -> None:
        self._own = _of_headers(headers)
        self._latest: tuple[Credential, ...] = ()
        self._words: Words | None = None

    def __iter__(self) -> Iterator[Credential]:
        if self._own is not None:
            yield self._own
        yield from self._latest

    def __bool__(self) -> bool:
        return bool(self._latest) or self._own is not None

    def note(self, credential: Credential) -> None:
        """Take note of what a provider vended."""
        if not self._latest or self._latest[-1] is not credential:
            others = (one for one in self._latest if one is not credential)
            self._latest = (*others, credential)[-_KEPT:]
            self._words = None

    def note_headers(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Take note of what a signer added."""
        credential = _of_headers((name.decode("ascii"), value.decode("latin-1")) for name, value in headers)
        if credential is not None:
            self.note(credential)

    def text(self, text: str) -> str:
        """Give a text of the server's without them."""
        return self._spelled().cleaned(text) if self else text

    def stands_in(self, document: bytes) -> bool:
        """Whether a JSON document of the server's holds any of them."""
        return bool(self) and bool(self._spelled().spans(document, raw=False))

    def clean(self, error: AfpoolError) -> AfpoolError:
        """Take them out of what an error quotes of the server, in place."""
        if self:
            error.message = self.text(error.message)
            error.args = (error.message, *error.args[1:])
            if error.www_authenticate is not None:
                error.www_authenticate = self.text(error.www_authenticate)
            data: Any = getattr(error, "data", None)
            if data is not None and self._in(data):
                error.data = PLACEHOLDER  # type: ignore[attr-defined]
        return error

    def _in(self, data: object) -> bool:
        return bool(
            self._spelled().spans(
                json.dumps(data, ensure_ascii=False).encode("utf-8", "surrogatepass"), raw=False
            )
        )

    def _spelled(self) -> Words:
        if self._words is None:
            self._words = Words(secret for credential in self for secret in credential.secrets())
        return self._words

    def __repr__(self) -> str:
        return "<Carried>"


@final
class _OfHeaders(Credential):
    """Headers as they go out; whoever says them answers for their form, so nothing is checked here."""

    __slots__ = ("_pairs",)

    kind = "headers"

    def __init__(self, pairs: tuple[tuple[str, Secret], ...]) -> None:
        self._pairs = pairs

    def to_headers(self) -> list[tuple[str, str]]:
        """Give them."""
        return [(name, secret.reveal()) for name, secret in self._pairs]

    def secrets(self) -> tuple[str, ...]:
        """Give every value, and what follows the scheme where one begins with it."""
        values = [value for _, value in self.to_headers()]
        rests = [value.partition(" ")[2].strip() for name, value in self.to_headers() if name in _WITH_SCHEME]
        return tuple(value for value in (*values, *rests) if value)


def _of_headers(headers: Iterable[tuple[str, str]]) -> Credential | None:
    named = ((name.lower(), value) for name, value in headers)
    pairs = tuple((name, Secret(value)) for name, value in named if value and name in _AUTHENTICATES)
    return _OfHeaders(pairs) if pairs else None

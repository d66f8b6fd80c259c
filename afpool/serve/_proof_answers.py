"""How a request that proves nobody is answered: the challenge of RFC 6750, pointing to RFC 9728 where told.

Rules:

* Whoever sent no token at all is told that one is needed, and no error (RFC 6750 § 3.1).
* An `error_description` is one of our own sentences. What is wrong with a token is said in kinds: its time,
  its audience, its signature. What would have been right is never said.
"""

from __future__ import annotations

from typing import Final, final

from ._proof_types import Refused, refuse

UNAUTHENTICATED: Final = "unauthenticated"
INVALID: Final = "invalid-token"
INVALID_REQUEST: Final = "invalid-request"
IDENTITY_HEADER: Final = "identity-header-refused"
KEYS_UNAVAILABLE: Final = "keys-unavailable"
PROOF_FAILED: Final = "proof-failed"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@final
class Challenges:
    """Makes refusals.

    Args:
        resource_metadata: URL of the document that says where tokens come from (RFC 9728), if there is one.
    """

    __slots__ = ("_metadata",)

    def __init__(self, resource_metadata: str | None = None) -> None:
        self._metadata = resource_metadata

    def _header(self, error: str | None, words: str) -> tuple[bytes, bytes]:
        parts = ['Bearer realm="afpool"']
        if self._metadata is not None:
            parts.append(f"resource_metadata={_quoted(self._metadata)}")
        if error is not None:
            parts += [f"error={_quoted(error)}", f"error_description={_quoted(words)}"]
        return b"www-authenticate", ", ".join(parts).encode("ascii")

    def nobody(self) -> Refused:
        """No proof came at all."""
        words = "this service needs a bearer token, and none came; nothing was run"
        return refuse(401, UNAUTHENTICATED, words, headers=(self._header(None, words),))

    def invalid_token(self, words: str) -> Refused:
        """A token came that proves nobody."""
        message = f"{words}; nothing was run"
        return refuse(401, INVALID, message, headers=(self._header("invalid_token", words),))

    def invalid_request(self, words: str) -> Refused:
        """The head can be read in more than one way, or in none."""
        message = f"{words}; nothing was run"
        return refuse(400, INVALID_REQUEST, message, headers=(self._header("invalid_request", words),))

    def unproven_header(self, words: str) -> Refused:
        """A header that only the proxy may set came from somebody else."""
        return refuse(403, IDENTITY_HEADER, f"{words}; nothing was run")

    def not_now(self, words: str, retry_after: float) -> Refused:
        """The proof cannot be checked at the moment, through no fault of the caller's."""
        return refuse(503, KEYS_UNAVAILABLE, f"{words}; nothing was run", retry_after=retry_after)

    def failed(self) -> Refused:
        """Our own fault."""
        return refuse(500, PROOF_FAILED, "who calls could not be proven; nothing was run")

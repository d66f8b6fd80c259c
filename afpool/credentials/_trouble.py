"""What goes wrong on the way to a credential, in words that hold no secret.

`Trouble` never leaves the package. It is data that happens to be raised: whoever waits gets a new
`CredentialFailed` made of its words, so that no frame that saw a code, a secret or a token hangs on what is
shown to anybody. Words of a peer are not among ours: of an answer only codes that a specification names are
quoted.
"""

from __future__ import annotations

from typing import Final, final

from .._base.errors import CredentialFailed

# RFC 6749 § 4.1.2.1 and § 5.2, RFC 7591 § 3.2.2, RFC 8707 § 2, OpenID Connect Core § 3.1.2.6.
KNOWN_CODES: Final = frozenset(
    {
        "access_denied", "consent_required", "interaction_required", "invalid_client",
        "invalid_client_metadata", "invalid_grant", "invalid_redirect_uri", "invalid_request",
        "invalid_scope", "invalid_target", "login_required", "server_error", "slow_down",
        "temporarily_unavailable", "unapproved_software_statement", "unauthorized_client",
        "unsupported_grant_type", "unsupported_response_type",
    }
)  # fmt: skip
PASSING_CODES: Final = frozenset({"server_error", "slow_down", "temporarily_unavailable"})


@final
class Trouble(Exception):
    """Why there is no credential.

    Args:
        text: What happened, without a subject's secrets and without a peer's words.
        passing: Trying again later may succeed; what is still valid stays in use.
        retry_after: Seconds that a peer asks to wait.
        error_code: The OAuth error code, where it is a known one.
    """

    def __init__(
        self,
        text: str,
        *,
        passing: bool = False,
        retry_after: float | None = None,
        error_code: str | None = None,
    ) -> None:
        super().__init__(text)
        self.text = text
        self.passing = passing
        self.retry_after = retry_after
        self.error_code = error_code

    def again(self) -> Trouble:
        """A new one of the same words, without the frames of this one."""
        return Trouble(
            self.text, passing=self.passing, retry_after=self.retry_after, error_code=self.error_code
        )

    def to_error(self, service: str) -> CredentialFailed:
        """What a caller is told."""
        return CredentialFailed(
            f"no credential for {service!r}: {self.text}; nothing was sent", retry_after=self.retry_after
        )


def known_code(code: object) -> str | None:
    """Give an error code of a peer back if a specification names it."""
    return code if isinstance(code, str) and code in KNOWN_CODES else None

"""A text as somebody wrote it: literal pieces, what variables gave, and places for fields of an identity.

* What a text says is read by name (`reveal`, `for_identity`) and by nothing that prints or walks objects.
* Equal are two texts that say the same. What is compared are fingerprints under a key of the process, so that
  no plain value lies about in an object that somebody may print.
* `written` is what stands in the file, with every `${…}` still in it. Whether that may be shown is for the
  setting to say: a token that stands there in clear is written, too.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

from .._base.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .._base.identity import Identity

_KEY: Final = secrets.token_bytes(32)

Piece: TypeAlias = Secret | str
"""A literal piece, or the name of an identity field that stands there."""


def fingerprint(secret: Secret | None) -> bytes | None:
    """What two secrets of the same value have in common, within this process."""
    if secret is None:
        return None
    value = secret.reveal().encode("utf-8", "surrogatepass")
    return hashlib.blake2b(value, key=_KEY, digest_size=16).digest()


def fingerprints(held: Mapping[str, Secret]) -> dict[str, bytes | None]:
    """Do so for each value of a mapping."""
    return {name: fingerprint(secret) for name, secret in held.items()}


def _marks(pieces: tuple[Piece, ...]) -> tuple[object, ...]:
    return tuple(piece if isinstance(piece, str) else fingerprint(piece) for piece in pieces)


@attrs.frozen(repr=False)
class Written:
    """One text of a file.

    Attributes:
        pieces: Literal pieces, and names of identity fields (`tenant`, `principal`, `conversation_id`).
        written: What stands in the file.
        variables: The variables that were read for it.
    """

    pieces: tuple[Piece, ...] = attrs.field(eq=_marks)
    written: Secret = attrs.field(eq=False)
    variables: tuple[str, ...] = ()

    @classmethod
    def plain(cls, text: str) -> Written:
        """Make one that says just this."""
        secret = Secret(text)
        return cls((secret,) if text else (), secret)

    @property
    def fields(self) -> tuple[str, ...]:
        """The identity fields in it, in order; one that stands twice is there twice."""
        return tuple(piece for piece in self.pieces if isinstance(piece, str))

    def reveal(self) -> str:
        """Give what it says.

        Raises:
            ValueError: It differs from identity to identity.
        """
        if self.fields:
            raise ValueError("this text is another one for each identity")
        return "".join(piece.reveal() for piece in self.pieces if isinstance(piece, Secret))

    def for_identity(self, identity: Identity, quote: Callable[[str, str], str]) -> str:
        """Give what it says for one identity.

        Args:
            identity: Whose fields are filled in.
            quote: Given a field's name and value, makes what may stand in the text, or raises.

        Raises:
            LookupError: The identity has no such field; the text names it.
        """
        parts: list[str] = []
        for piece in self.pieces:
            if isinstance(piece, Secret):
                parts.append(piece.reveal())
                continue
            value = getattr(identity, piece)
            if value is None:
                raise LookupError(piece)
            parts.append(quote(piece, value))
        return "".join(parts)

    def __repr__(self) -> str:
        return f"Written({', '.join(self.fields)})" if self.fields else "Written(…)"

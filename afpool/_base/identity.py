"""Who a run acts for, and the key under which a server's connection is kept for them.

Rules:

* A field that is absent and a field that is `""` are the same absence. Nothing is ever defaulted.
* `encode_key` is injective: two different pairs of (server, keyed fields) never give one string, and
  `decode_key` is its left inverse. The whole string is the map key; it is never cut and never hashed.
* What is shown instead of a key is a digest under a secret (`KeyDigest`): names and addresses can be
  guessed, so a plain hash of them would be an answer book.
* Well-behaved keys never move between releases; a test pins them.
"""

from __future__ import annotations

import functools
import hmac
import secrets
from collections.abc import Callable, Iterable
from typing import Any, NewType, NoReturn, SupportsIndex, TypeAlias

import attrs

from . import errors

FIELDS = ("tenant", "principal", "conversation_id")

PoolKey = NewType("PoolKey", str)

_ABSENT = "_"
_LITERAL_UNDERSCORE = "%5F"
_CACHED_KEYS = 16
_MIN_SECRET = 16


def _text(raw: object, what: str) -> str:
    """Give `raw` as an exact `str`; neither error quotes it."""
    if not isinstance(raw, str):
        raise TypeError(f"{what} must be a string or None, not {type(raw).__name__}")
    # A subclass may compare or hash as it likes; the boundary between tenants is drawn with plain strings.
    text = str.__str__(raw)
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise ValueError(f"{what} holds an unpaired surrogate, which is not text")
    return text


def _read_field(raw: object) -> str | None:
    if raw is None:
        return None
    return _text(raw, "an identity field") or None


class _KeyCache:
    """Holds the keys that an identity encoded to; no attrs field, so never compared, shown or evolved."""

    __slots__ = ("_keys",)

    # server, keyed_on, key and so on, flat: most identities have one, and a dict takes three times as much
    _keys: tuple[Any, ...]


@attrs.frozen(repr=False)
class Identity(_KeyCache):
    """Who a run acts for, as its caller named them.

    Args:
        tenant: The organisation, or `None`.
        principal: The person or service, or `None`.
        conversation_id: The conversation, or `None`.

    `""` becomes `None`. `repr` shows which fields are present and none of their values.

    Raises:
        TypeError: A field is neither a string nor `None`.
        ValueError: A field holds an unpaired surrogate.
    """

    tenant: str | None = attrs.field(default=None, converter=_read_field)
    principal: str | None = attrs.field(default=None, converter=_read_field)
    conversation_id: str | None = attrs.field(default=None, converter=_read_field)

    def __repr__(self) -> str:
        present = ", ".join(f"{name}=…" for name in FIELDS if getattr(self, name) is not None)
        return f"Identity({present})"


def is_nobody(who: Identity) -> bool:
    """Say whether an identity names nothing at all."""
    return who.principal is None and who.tenant is None and who.conversation_id is None


CallerIdentity: TypeAlias = Identity | Callable[[], Identity | None] | None
"""An identity, or a synchronous callable asked anew at every recheck, so that a host can withdraw it."""


def encode_field(raw: object) -> str:
    """Encode one field so that it contains no `/` and no two values collide.

    `None` and `""` give `_`; `%` becomes `%25`, then `/` becomes `%2F`; a value that would read `_`
    becomes `%5F`. Everything else stays as it is.

    Raises:
        TypeError: `raw` is neither a string nor `None`.
        ValueError: `raw` holds an unpaired surrogate.
    """
    if raw is None:
        return _ABSENT
    return _escape_field(_text(raw, "an identity field"))


def _escape_field(text: str | None) -> str:
    if not text:
        return _ABSENT
    if "%" in text:
        text = text.replace("%", "%25")
    if "/" in text:
        text = text.replace("/", "%2F")
    return _LITERAL_UNDERSCORE if text == _ABSENT else text


def decode_field(encoded: str) -> str | None:
    """Undo `encode_field`; absence comes back as `None`.

    Raises:
        ValueError: `encoded` is nothing that `encode_field` gives.
    """
    if encoded == _ABSENT:
        return None
    if encoded == _LITERAL_UNDERSCORE:
        return _ABSENT
    decoded = encoded.replace("%2F", "/").replace("%25", "%")
    if encode_field(decoded) != encoded:
        raise ValueError("not an encoded identity field")
    return decoded


def identity_namespace(identity: Identity) -> str:
    """Give the three encoded fields joined by `/`: always three segments."""
    return (
        f"{_escape_field(identity.tenant)}/{_escape_field(identity.principal)}"
        f"/{_escape_field(identity.conversation_id)}"
    )


@functools.lru_cache(maxsize=1024)
def _escape_server(server: str) -> str:
    text = _text(server, "a server name")
    if not text:
        raise ValueError("a server name must not be empty")
    return text.replace("%", "%25").replace("/", "%2F").replace("|", "%7C")


def encode_key(server: str, identity: Identity, keyed_on: tuple[str, ...] = FIELDS) -> PoolKey:
    """Encode (server, the identity fields that the server keys on) as one string, `server|t/p/c`.

    Args:
        server: The server's name in the configuration.
        identity: Whom the call is for.
        keyed_on: The fields that count, as `check_keyed_on` gives them; the others read as absent. `()`
            means one key for everybody.

    The answer is remembered on the identity, since every recheck asks for it.

    Raises:
        IdentityMissing: `keyed_on` names fields and the identity has none of them.
        TypeError: `identity` is no `Identity`.
        ValueError: `server` is empty or no text, or `keyed_on` names an unknown field.
    """
    key: PoolKey
    try:
        known = identity._keys  # noqa: SLF001 -- the cache belongs to this module
        if known[0] == server and known[1] == keyed_on:  # the usual one, without a loop
            key = known[2]
            return key
    except AttributeError:
        if not isinstance(identity, Identity):
            raise TypeError(f"an identity must be an Identity, not {type(identity).__name__}") from None
        known = ()
    for at in range(3, len(known), 3):
        if known[at] == server and known[at + 1] == keyed_on:
            key = known[at + 2]
            return key
    key = _build_key(server, identity, keyed_on)
    kept = known[: 3 * (_CACHED_KEYS - 1)]
    object.__setattr__(identity, "_keys", (server, keyed_on, key, *kept))
    return key


def _build_key(server: str, identity: Identity, keyed_on: tuple[str, ...]) -> PoolKey:
    if keyed_on is not FIELDS:
        identity = project(identity, check_keyed_on(keyed_on))
    namespace = identity_namespace(identity)
    if keyed_on and namespace == "_/_/_":
        raise errors.IdentityMissing(
            f"server {server!r} keys on {', '.join(keyed_on)} and the caller identity has none of them; "
            "nothing was sent; name at least one of these fields, or configure the server with keyed_on=()"
        )
    return PoolKey(f"{_escape_server(server)}|{namespace}")


def decode_key(key: str) -> tuple[str, Identity]:
    """Undo `encode_key`: the server's name and the identity cut to the keyed fields.

    Raises:
        ValueError: `key` is nothing that `encode_key` gives.
    """
    escaped, bar, namespace = key.partition("|")
    server = escaped.replace("%7C", "|").replace("%2F", "/").replace("%25", "%")
    fields = namespace.split("/")
    if not bar or len(fields) != len(FIELDS) or not server or _escape_server(server) != escaped:
        raise ValueError("not a pool key")
    return server, Identity(*map(decode_field, fields))


def project(identity: Identity, keyed_on: tuple[str, ...]) -> Identity:
    """Cut `identity` to the fields in `keyed_on`; an identity that has no others is returned itself."""
    cut = [getattr(identity, name) if name in keyed_on else None for name in FIELDS]
    if cut == [identity.tenant, identity.principal, identity.conversation_id]:
        return identity
    return Identity(*cut)


def check_keyed_on(keyed_on: Iterable[str]) -> tuple[str, ...]:
    """Give `keyed_on` as a tuple in the order of `FIELDS`.

    Raises:
        ValueError: A name is unknown or stands twice, or a bare string was given.
    """
    if keyed_on is FIELDS:
        return FIELDS
    if isinstance(keyed_on, str):
        # a string is a sequence of strings too: the value is wrong, not its kind
        raise ValueError(  # noqa: TRY004
            f"keyed_on must be a sequence of field names, such as ({keyed_on!r},)"
        )
    names = tuple(keyed_on)
    unknown = [name for name in names if name not in FIELDS]
    if unknown:
        raise ValueError(f"keyed_on names unknown fields {unknown!r}; known are {', '.join(FIELDS)}")
    if len(set(names)) != len(names):
        raise ValueError(f"keyed_on names a field twice: {names!r}")
    return tuple(name for name in FIELDS if name in names)


class KeyDigest:
    """What is shown instead of a key: HMAC-SHA-256 under a secret, cut to 12 hexadecimal digits.

    Args:
        secret: At least 16 bytes, for digests that several processes agree on; drawn anew when `None`.

    Raises:
        ValueError: `secret` is too short.
    """

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes | None = None) -> None:
        if secret is None:
            secret = secrets.token_bytes(32)
        elif len(secret) < _MIN_SECRET:
            raise ValueError(f"a key for digests needs at least {_MIN_SECRET} bytes, got {len(secret)}")
        self._secret = bytes(secret)

    def show(self, key: str, prefix: str = "k") -> str:
        """Give `prefix:` and 12 hexadecimal digits: for joining records, never for equality of keys."""
        return f"{prefix}:{hmac.digest(self._secret, key.encode(), 'sha256').hex()[:12]}"

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> NoReturn:
        raise TypeError("a KeyDigest holds a secret and is never copied or pickled")

"""How a secret is held and put on a request: `Secret` and the kinds of credential.

Rules:

* A secret value lives in a `Secret` and nowhere else. It is read by name (`.token`, `.reveal()`), and by
  nothing that walks, prints, copies or stores objects: not `repr`, `str`, `format`, `vars`, `json`,
  `attrs.asdict`, `copy`, `pickle`, nor a traceback that shows locals.
* So no frame of this module keeps a plain value in a local while something can raise: what comes in is
  wrapped first, and checks answer with words instead of raising where the value is in sight.
* What goes into a header is checked when the credential is made, and the refusal does not quote it.
"""

from __future__ import annotations

import base64
import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, NoReturn, SupportsIndex, final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_WITH_SCHEME = frozenset({"authorization", "proxy-authorization"})


class _NeverCopied:
    """Refuses `copy`, `deepcopy` and `pickle`, also for subclasses that bring their own state."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> NoReturn:
        raise TypeError(f"{type(self).__name__} holds a secret and is never copied or pickled")

    def __getstate__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} holds a secret and is never copied or pickled")


@final
class Secret(_NeverCopied):
    """One secret string. Only `reveal` gives it; two are equal only when they are the same object.

    Args:
        value: The secret; a `Secret` gives its value on.

    Raises:
        TypeError: `value` is no string. The text does not quote it.
    """

    __slots__ = ("_open",)

    def __init__(self, value: str | Secret) -> None:
        kind = type(value).__name__
        opener = _opener(value)
        del value
        if opener is None:
            raise TypeError(f"a secret must be a string, not {kind}")
        self._open = opener

    def reveal(self) -> str:
        """Give the secret."""
        return self._open()

    def __repr__(self) -> str:
        return "Secret(…)"

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)


def _opener(value: object) -> Callable[[], str] | None:
    if isinstance(value, Secret):
        return value._open  # noqa: SLF001 -- the one reader of it
    if not isinstance(value, str):
        return None
    plain = str.__str__(value)
    # A closure, since what walks `__slots__` then finds a function and no string.
    return lambda: plain


def _header_problem(secret: Secret) -> str | None:
    """Say why the value cannot stand in a header (RFC 9110 § 5.5), without quoting it."""
    value = secret.reveal()
    if not value:
        return "is empty"
    if _CONTROL.search(value):
        return "holds a control character or a line break"
    if value != value.strip(" "):
        return "begins or ends with a space"
    if any(char > "\xff" for char in value):
        return "holds a character beyond Latin-1"
    return None


def _check_header_name(name: str) -> None:
    if not isinstance(name, str) or _HEADER_NAME.fullmatch(name) is None:
        raise ValueError("a header name must be a token (RFC 9110 § 5.6.2)")


class Credential(_NeverCopied, ABC):
    """What authenticates a request.

    A kind of your own subclasses this, sets `kind`, and keeps every value in a `Secret`. `repr` shows the
    kind only; `copy`, `deepcopy` and `pickle` raise `TypeError`.
    """

    __slots__ = ("__weakref__",)

    kind: ClassVar[str]

    @abstractmethod
    def to_headers(self) -> list[tuple[str, str]]:
        """Give the header pairs that carry this credential, values in clear."""

    @abstractmethod
    def secrets(self) -> tuple[str, ...]:
        """Give every string that must not appear in what is recorded or returned."""

    def __repr__(self) -> str:
        return f"<credential {getattr(self, 'kind', 'custom')}>"

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)


@final
class Bearer(Credential):
    """`Authorization: Bearer …` (RFC 6750). Make it with `bearer`."""

    __slots__ = ("_token",)

    kind = "bearer"

    def __init__(self, token: Secret) -> None:
        problem = _header_problem(token)
        if problem is not None:
            raise ValueError(f"the bearer token {problem}")
        self._token = token

    @property
    def token(self) -> str:
        """The token, in clear."""
        return self._token.reveal()

    def to_headers(self) -> list[tuple[str, str]]:
        """Give the `authorization` header."""
        return [("authorization", f"Bearer {self.token}")]

    def secrets(self) -> tuple[str, ...]:
        """Give the token."""
        return (self.token,)


@final
class ApiKey(Credential):
    """One header of a chosen name. Make it with `api_key`."""

    __slots__ = ("_key", "header_name")

    kind = "api_key"

    def __init__(self, key: Secret, header_name: str) -> None:
        _check_header_name(header_name)
        problem = _header_problem(key)
        if problem is not None:
            raise ValueError(f"the API key {problem}")
        self._key = key
        self.header_name = header_name

    @property
    def key(self) -> str:
        """The key, in clear."""
        return self._key.reveal()

    def to_headers(self) -> list[tuple[str, str]]:
        """Give the one header."""
        return [(self.header_name, self.key)]

    def secrets(self) -> tuple[str, ...]:
        """Give the key."""
        return (self.key,)


@final
class Basic(Credential):
    """`Authorization: Basic …` (RFC 7617), in UTF-8. Make it with `basic`."""

    __slots__ = ("_password", "username")

    kind = "basic"

    def __init__(self, username: str, password: Secret) -> None:
        problem = _basic_problem(username, password)
        if problem is not None:
            raise ValueError(problem)
        self.username = username
        self._password = password

    @property
    def password(self) -> str:
        """The password, in clear."""
        return self._password.reveal()

    def _encoded(self) -> str:
        return base64.b64encode(f"{self.username}:{self.password}".encode()).decode()

    def to_headers(self) -> list[tuple[str, str]]:
        """Give the `authorization` header."""
        return [("authorization", f"Basic {self._encoded()}")]

    def secrets(self) -> tuple[str, ...]:
        """Give the encoded pair and the password."""
        return tuple(value for value in (self._encoded(), self.password) if value)


def _basic_problem(username: str, password: Secret) -> str | None:
    if not isinstance(username, str) or ":" in username:
        return "a user name must be a string without a colon"
    value = password.reveal()
    if _CONTROL.search(username) or _CONTROL.search(value):
        return "a user name or password holds a control character or a line break"
    if any("\ud800" <= char <= "\udfff" for char in username + value):
        return "a user name or password holds an unpaired surrogate"
    return None


@final
class Headers(Credential):
    """Several headers, every value secret. Make it with `header_map`."""

    __slots__ = ("_pairs",)

    kind = "headers"

    def __init__(self, pairs: tuple[tuple[str, Secret], ...]) -> None:
        seen: set[str] = set()
        for name, secret in pairs:
            _check_header_name(name)
            if name.lower() in seen:
                raise ValueError(f"the header {name!r} is given twice")
            seen.add(name.lower())
            problem = _header_problem(secret)
            if problem is not None:
                raise ValueError(f"the value of header {name!r} {problem}")
        self._pairs = pairs

    @property
    def headers(self) -> dict[str, str]:
        """A new dictionary of the headers, values in clear."""
        return dict(self.to_headers())

    def to_headers(self) -> list[tuple[str, str]]:
        """Give the headers in the order in which they were given."""
        return [(name, secret.reveal()) for name, secret in self._pairs]

    def secrets(self) -> tuple[str, ...]:
        """Give every value, and of an authorization header also what follows the scheme."""
        values: list[str] = []
        for name, value in self.to_headers():
            values.append(value)
            scheme, _, rest = value.partition(" ")
            if scheme and rest and name.lower() in _WITH_SCHEME:
                values.append(rest.strip(" "))
        return tuple(values)


def secrets_of(credential: Credential) -> tuple[Secret, ...] | str:
    """Give what must not be told of a credential; words where its kind, which may be anybody's, does not say.

    One that gives a single string is no exception: what is looked for is not its letters.
    """
    try:
        values: object = credential.secrets()
        wrapped = [wrap(value) for value in values] if isinstance(values, list | tuple) else None
    except Exception as error:  # noqa: BLE001 -- the code of a kind of the host's own; its words may hold it
        return f"its secrets() raised {type(error).__name__}"
    del values
    if wrapped is None or None in wrapped:
        return "its secrets() gives no sequence of strings"
    return tuple(secret for secret in wrapped if secret is not None)


def wrap(value: object) -> Secret | None:
    """Wrap a string or a `Secret`; `None` for anything else, so that the caller forgets it, then raises."""
    return Secret(value) if isinstance(value, str | Secret) else None


def _given(secret: Secret | None, what: str) -> Secret:
    if secret is None:
        raise TypeError(f"the {what} must be a string")
    return secret


def bearer(token: str | Secret) -> Bearer:
    """Make a bearer credential.

    Raises:
        TypeError: `token` is no string.
        ValueError: `token` cannot stand in a header. Neither text quotes it.
    """
    secret = wrap(token)
    del token
    return Bearer(_given(secret, "token"))


def api_key(key: str | Secret, header_name: str = "x-api-key") -> ApiKey:
    """Make a credential that is one header.

    Raises:
        TypeError: `key` is no string.
        ValueError: `key` or `header_name` cannot stand in a header. Neither text quotes the key.
    """
    secret = wrap(key)
    del key
    return ApiKey(_given(secret, "API key"), header_name)


def basic(username: str, password: str | Secret) -> Basic:
    """Make a user name and password credential.

    Raises:
        TypeError: `password` is no string.
        ValueError: A colon in the user name, or a control character in either. Neither text quotes them.
    """
    secret = wrap(password)
    del password
    return Basic(username, _given(secret, "password"))


def header_map(headers: Mapping[str, str | Secret]) -> Headers:
    """Make a credential of several headers; the mapping is copied.

    Raises:
        TypeError: A value is no string.
        ValueError: A name or a value cannot stand in a header, or a name is given twice in another case.
            Neither text quotes a value.
    """
    names = list(headers)
    secrets = _wrap_all(headers)
    del headers
    pairs = [
        (name, _given(secret, f"value of header {name!r}"))
        for name, secret in zip(names, secrets, strict=True)
    ]
    return Headers(tuple(pairs))


def _wrap_all(headers: Mapping[str, str | Secret]) -> list[Secret | None]:
    return [wrap(value) for value in headers.values()]

"""Where the value of an argument comes from that the host fills, and what is said when it has none.

Rules:

* A value is read once per call, at the last moment, and is never empty and never guessed: where there is none
  the call is refused by the argument's name.
* A credential's value is a `Secret` from the moment it is read. No message holds a value of either kind, and
  what a reader of the host's own raises is named by its class only.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast, final

import attrs

from .._base.credential import CredentialRequirement, Mode
from .._base.errors import NOT_SENT, AfpoolError
from .._base.identity import FIELDS, Identity
from .._base.secret import ApiKey, Bearer, Credential, Secret, wrap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .._base.model import ToolContext

IdentityField: TypeAlias = Literal["principal", "tenant", "conversation_id"]

_MAX_NAMED: Final = 20


class HostFilledArgumentError(AfpoolError):
    """The call brings a value for arguments that the host fills. The tool was not run.

    Args:
        tool_name: The tool's name.
        fields: The arguments, as the host names them.
        spellings: How the call spelled them, where that differs; by the host's name.

    Attributes:
        tool_name: The tool's name.
        fields: The arguments, as the host names them. The values are nowhere.
    """

    code = "ERR_HOST_FILLED_ARGUMENT"
    deliveries = (NOT_SENT,)

    def __init__(
        self, tool_name: str, fields: Iterable[str], *, spellings: dict[str, str] | None = None
    ) -> None:
        self.tool_name = tool_name
        self.fields = tuple(fields)
        told = []
        for field in self.fields[:_MAX_NAMED]:
            spelled = (spellings or {}).get(field, field)
            told.append(repr(field) if spelled == field else f"{field!r} (sent as {_short(spelled)})")
        if len(self.fields) > _MAX_NAMED:
            told.append(f"{len(self.fields) - _MAX_NAMED} more")
        super().__init__(
            f"the host fills {_joined(told)} of the tool {tool_name!r} itself, and nobody else can set "
            f"{'it' if len(self.fields) == 1 else 'them'}; the tool was not run; call it again without"
        )

    def __reduce__(self) -> Any:
        return type(self), (self.tool_name, self.fields), self.__dict__


class HostFilledValueMissingError(AfpoolError):
    """There is no value for an argument that the host fills. The tool was not run.

    Args:
        tool_name: The tool's name.
        field: The argument.
        why: What is missing, in words that hold no value.

    Attributes:
        tool_name: The tool's name.
        field: The argument.
    """

    code = "ERR_HOST_FILLED_VALUE_MISSING"
    deliveries = (NOT_SENT,)

    def __init__(self, tool_name: str, field: str, why: str) -> None:
        self.tool_name = tool_name
        self.field = field
        self.why = why
        super().__init__(
            f"the host fills {field!r} of the tool {tool_name!r} itself and has no value for it: {why}; the "
            "tool was not run, and sending the argument does not help; its host has to provide for it"
        )

    def __reduce__(self) -> Any:
        return type(self), (self.tool_name, self.field, self.why), self.__dict__


class CannotHideArgumentError(AfpoolError, TypeError):
    """An argument cannot be taken out of a tool's schema without changing what else it accepts.

    The tool is not to be offered: its model would see the argument, or calls would be refused that are good.

    Attributes:
        tool_name: The tool's name.
        fields: The arguments.
        reason: What in the schema stands in the way.
    """

    code = "cannot-hide-argument"
    deliveries = (NOT_SENT,)

    def __init__(self, tool_name: str, fields: Iterable[str], reason: str) -> None:
        self.tool_name = tool_name
        self.fields = tuple(fields)
        self.reason = reason
        super().__init__(
            f"{_joined(map(repr, self.fields))} cannot be taken out of the input schema of the tool "
            f"{tool_name!r}: {reason}; do not offer the tool, or do not have the host fill the argument"
        )

    def __reduce__(self) -> Any:
        return type(self), (self.tool_name, self.fields, self.reason), self.__dict__


@final
@attrs.frozen
class HostFillFromCredential:
    """The value of an argument is the call's credential. Made by `from_credential`."""

    service: str | None = None
    scopes: tuple[str, ...] = ()
    mode: Mode = "machine"
    read: Callable[[Credential], str] | None = attrs.field(default=None, repr=False)


@final
@attrs.frozen
class HostFillFromIdentity:
    """The value of an argument is a field of the caller's identity. Made by `from_identity`."""

    field: IdentityField


HostFill: TypeAlias = HostFillFromCredential | HostFillFromIdentity


def from_credential(
    service: str | None = None,
    *,
    scopes: Iterable[str] = (),
    mode: Mode = "machine",
    read: Callable[[Credential], str] | None = None,
) -> HostFillFromCredential:
    """Fill an argument from the credential that was resolved for the call.

    Args:
        service: What the credential provider knows it by. It becomes the tool's `needs`; a tool that has one
            already must name the same service, or it is left out here.
        scopes: Of the `needs` that is declared so; ignored where the tool has its own.
        mode: Likewise: `machine` for a credential of the host's own, `user` for one of the principal's.
        read: Gives the argument's value, synchronously. Without it: a bearer's `token`, an API key's `key`;
            other kinds have no single value.

    Raises:
        TypeError: An argument is not of its kind.
    """
    if service is not None and (not isinstance(service, str) or not service):
        raise TypeError("the service of a credential fill is a string that is not empty, or left out")
    if read is not None and (not callable(read) or inspect.iscoroutinefunction(read)):
        raise TypeError("read of a credential fill is a synchronous function from a credential to a string")
    try:
        checked = CredentialRequirement(service or "any", cast("tuple[str, ...]", scopes), mode)
    except ValueError:
        raise TypeError("the mode of a credential fill is 'machine' or 'user'") from None
    return HostFillFromCredential(service, checked.scopes, checked.mode, read)


def from_identity(field: IdentityField) -> HostFillFromIdentity:
    """Fill an argument from the identity that the run's caller named.

    Args:
        field: `principal`, `tenant` or `conversation_id`. What the caller did not name is not made up.

    Raises:
        TypeError: There is no such field.
    """
    if field not in FIELDS:
        raise TypeError(f"an identity fill reads one of {', '.join(FIELDS)}")
    return HostFillFromIdentity(field)


def credential_value(fill: HostFillFromCredential, ctx: ToolContext, tool_name: str, field: str) -> Secret:
    """Read the value of a credential fill.

    Raises:
        HostFilledValueMissingError: There is none.
    """
    credential = ctx.credential
    value: Secret | str
    if credential is None:
        value = "no credential was resolved for this call"
    elif fill.read is not None:
        value = _read(fill.read, credential)
    elif isinstance(credential, Bearer):
        value = Secret(credential.token)
    elif isinstance(credential, ApiKey):
        value = Secret(credential.key)
    else:
        kind = getattr(credential, "kind", "custom")
        value = f"its credential is of the kind {kind!r}, which has no single value; give the fill a read="
    if isinstance(value, Secret) and not value.reveal():
        value = "the value is empty"
    if isinstance(value, str):
        raise HostFilledValueMissingError(tool_name, field, value)
    return value


def _read(read: Callable[[Credential], str], credential: Credential) -> Secret | str:
    """Give what a reader of the host's own reads, or say why there is nothing."""
    try:
        return _wrapped(read(credential))
    except Exception as error:  # noqa: BLE001 -- the host's own code; its words may hold the secret
        return f"the fill's read raised {type(error).__name__}"


def _wrapped(value: object) -> Secret | str:
    secret = wrap(value)
    if secret is not None:
        return secret
    if inspect.iscoroutine(value):
        value.close()
    return f"the fill's read gave {type(value).__name__} and no string"


def identity_value(fill: HostFillFromIdentity, ctx: ToolContext, tool_name: str, field: str) -> str:
    """Read the value of an identity fill.

    Raises:
        HostFilledValueMissingError: There is none.
    """
    identity = ctx.identity
    why = None
    if callable(identity):
        try:
            identity = identity()
        except Exception as error:  # noqa: BLE001 -- the host's own code
            why = f"asking for the caller's identity raised {type(error).__name__}"
    if why is None:
        if isinstance(identity, Identity):
            value: str | None = getattr(identity, fill.field)
            if value:
                return value
            why = f"the run's caller named no {fill.field}"
        else:
            why = "the run's caller named no identity"
    raise HostFilledValueMissingError(tool_name, field, why)


def _short(name: str) -> str:
    return repr(name) if len(name) <= 64 else f"{name[:32]!r}…"


def _joined(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last

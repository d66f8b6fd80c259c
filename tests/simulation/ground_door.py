"""Facts about calls through the door; see `ground.py`.

`Began` and `Ended` are filed of them as well where they are meant for a server's tool, so that whatever holds
of a call of a pool holds of them. Here stands what is known of them beside that, from those who were asked:
the host's own tools, its hooks, its vault, its shelf of artifacts; and never from the runtime.

A scope is written `tenant/principal/conversation`, absent fields as `-`.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 -- read at run time, of its fields
from typing import TYPE_CHECKING, Any, Final

import attrs

from tests.simulation.ground import Fact

if TYPE_CHECKING:
    from afpool import Identity

ANY: Final = -2
"""Stands for `Began.tools` where a call lists for itself what it is made of."""

AGAIN: Final = ":again"


def base_call(call: str) -> str:
    """The id of a call, of which a second one may be made where nothing ran."""
    return call.removesuffix(AGAIN)


def scope_of(identity: Identity | None) -> str:
    """An identity, written down."""
    if identity is None:
        return "-/-/-"
    return "/".join(getattr(identity, name) or "-" for name in ("tenant", "principal", "conversation_id"))


@attrs.define(eq=False, kw_only=True)
class Asked(Fact):
    """A call was made through the door.

    Attributes:
        call: Its id.
        outer: The call that it is made from inside of.
        scope: Whom its caller named when it began; `-/-/-` for nobody, None for one who cannot be asked.
        caller: The label of a live caller identity.
        run: The id of the run that it belongs to.
        server: Whose tool is meant, and `tool` which; None for the host's own.
        said: The name that was said.
        intended: Whether the name is the tool's.
        args: What the model sent.
        shape: What it is, where it is no object.
        sets: Names by which it brings a value for an argument that the host fills.
        ref: The reference in `doc`, where there is one.
        deadline: Absolute.
        way: How it was made.
        bare: It is executed without a door.
    """

    call: str
    outer: str | None = None
    scope: str | None
    caller: str | None = None
    run: str | None = None
    server: str | None
    tool: str
    said: str
    intended: bool = True
    args: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    shape: str = "object"
    sets: tuple[str, ...] = ()
    ref: Any = None
    deadline: float
    way: str = "dispatch"

    @property
    def bare(self) -> bool:
        """Whether the tool itself is executed, without a door."""
        return self.way == "execute"


@attrs.define(eq=False, kw_only=True)
class Told(Fact):
    """A call through the door came back.

    Attributes:
        call: Its id.
        code: Of the result or error; `caller-cancelled` for a cancellation.
        delivery: The verdict.
        text: Everything that a model could read of it.
        is_error: Of the result.
    """

    call: str
    code: str
    delivery: str | None
    text: str = attrs.field(default="", repr=False)
    is_error: bool = False


@attrs.define(eq=False, kw_only=True)
class LocalRan(Fact):
    """A tool of the host's own starts to run: what it got.

    Attributes:
        call: The call's id, `tool` the tool's name.
        scope: Whom its context names.
        args: As they came.
        credential: The value of its context's credential.
    """

    call: str
    tool: str
    scope: str
    args: Any = attrs.field(repr=False)
    credential: str | None = None


@attrs.define(eq=False, kw_only=True)
class LocalEnded(Fact):
    """It has returned, raised, or was cancelled."""

    call: str
    how: str


@attrs.define(eq=False, kw_only=True)
class HookSaid(Fact):
    """A hook was asked about a call: before it or after it, and does this."""

    call: str
    hook: int
    after: bool
    how: str


@attrs.define(eq=False, kw_only=True)
class VaultSaid(Fact):
    """Who vends credentials for the door was asked, within this call, for this owner, and does this."""

    call: str | None
    owner: str
    how: str


@attrs.define(eq=False, kw_only=True)
class Shelved(Fact):
    """An artifact was stored.

    Attributes:
        scope: Whose.
        ref: Its name.
        kind: Of it.
        call: The call within which it was.
        expires: When it is gone, on the simulated clock; None for never.
        text: What it holds.
    """

    scope: str
    ref: str
    kind: str
    call: str | None
    expires: float | None
    text: str = attrs.field(repr=False)


@attrs.define(eq=False, kw_only=True)
class Unshelved(Fact):
    """An artifact is there no more: deleted, or given up for room."""

    ref: str


@attrs.define(eq=False, kw_only=True)
class ShelfAsked(Fact):
    """The store was asked for something in a scope, within a call; `mood` is what it does then."""

    scope: str
    verb: str
    ref: str | None
    call: str | None
    mood: str = "good"


@attrs.define(eq=False, kw_only=True)
class Refilled(Fact):
    """The host fills these arguments of a server's tools from now on, or hides and takes others."""

    server: str
    fill: Mapping[str, str]


@attrs.define(eq=False, kw_only=True)
class Acknowledged(Fact):
    """The host has accepted that a server's tools declare filled arguments no more."""

    server: str


@attrs.define(eq=False, kw_only=True)
class SchemaChanged(Fact):
    """A server lists its filled tool otherwise."""

    server: str
    how: str


@attrs.define(eq=False, kw_only=True)
class DoorChanged(Fact):
    """The runtime is configured otherwise."""

    how: str
    server: str

"""Steps of the host: what the app, its users and its operators do. See `steps.py`."""

from __future__ import annotations

from typing import Literal, TypeAlias

import attrs

from tests.simulation.step import Host


@attrs.frozen(kw_only=True)
class CancelCall(Host):
    """`pool.cancel` of a call."""

    call: str


@attrs.frozen(kw_only=True)
class RotateCredential(Host):
    """What the provider vends to a person at a server changes.

    Args:
        who: Whose; everybody's when absent.
        server: Of which server.
        how: `new`: another value, which the server takes as well as the old one; `revoked`: the server takes
            only another value, which the provider gives from then on; `stale`: the same, but the provider
            gives the old value until it is told that it was rejected; `raises`, `bad-header`,
            `needs-consent`, `anonymous`, `hangs`, `slow` (a second), `rubbish`: what the provider does from
            then on; `good`: as in the beginning.
    """

    who: str | None = None
    server: str
    how: Literal[
        "new",
        "revoked",
        "stale",
        "raises",
        "bad-header",
        "needs-consent",
        "anonymous",
        "hangs",
        "slow",
        "rubbish",
        "good",
    ] = "new"


@attrs.frozen(kw_only=True)
class ChangePlan(Host):
    """What `plan` says for a person at a server from now on.

    Args:
        who: For whom.
        server: At which server.
        how: `place`: leads to another place; `context`: the same place, another header, environment or
            subprotocol; `raises`; `rubbish`: gives no plan; `nowhere`: leads where nobody listens; `slow`:
            takes a second; `hangs`; `good`: as in the beginning.
        place: Where to.
        invalidate: Whether the app says `invalidate` with it.
    """

    who: str
    server: str
    how: Literal["place", "context", "raises", "rubbish", "nowhere", "slow", "hangs", "good"] = "place"
    place: int = 0
    invalidate: bool = False


@attrs.frozen(kw_only=True)
class ChangeShare(Host):
    """What `share` gives for a person at a server from now on: a name, `None`, an exception, rubbish."""

    who: str
    server: str
    name: str | None = None
    how: Literal["name", "raises", "rubbish"] = "name"


@attrs.frozen(kw_only=True)
class WithdrawCaller(Host):
    """The live caller identities of a person say something else from now on; `back` restores them."""

    who: str
    how: Literal["none", "raises", "other", "back"] = "none"


@attrs.frozen(kw_only=True)
class Invalidate(Host):
    """`pool.invalidate` of an identity, a server, both, or (`exact`) of their key.

    Args:
        who: Whose identity.
        server: Which server.
        exact: The key of both.
        wide: Only tenant and principal of the identity are named.
    """

    who: str | None = None
    server: str | None = None
    exact: bool = False
    wide: bool = False


Reconfiguring: TypeAlias = Literal[
    "bindings", "named", "clients", "remove", "add", "plan", "replan", "share", "credentials", "limits",
    "nothing", "wrong",
]  # fmt: skip


@attrs.frozen(kw_only=True)
class Reconfigure(Host):
    """`pool.reconfigure`: another configuration comes into force.

    Args:
        server: Which server is configured otherwise.
        how: `bindings`: so that only they end; `named`: they end by `rebind`; `clients`: so that its clients
            end, too; `remove`; `add`: it comes back; `plan`: another plan function, which gives the same
            plans; `replan`: this server only is said to have other plans; `share`: another share function;
            `credentials`: another provider, which vends the same; `limits`: some of them; `nothing`: all is
            as it was; `wrong`: what is refused.
    """

    server: str
    how: Reconfiguring = "bindings"


@attrs.frozen(kw_only=True)
class PauseKey(Host):
    """`pool.pause`."""

    who: str
    server: str


@attrs.frozen(kw_only=True)
class ResumeKey(Host):
    """`pool.resume`."""

    who: str
    server: str


@attrs.frozen(kw_only=True)
class HoldServer(Host):
    """`pool.pause_server`, and `resume_server` after so many seconds."""

    server: str
    seconds: float = 1.0


@attrs.frozen(kw_only=True)
class Look(Host):
    """An operator looks at the pool: its numbers, its keys by what is shown of them, its record."""

    call: str = ""


@attrs.frozen(kw_only=True)
class KillKey(Host):
    """`pool.kill` of the client that the key has now."""

    who: str
    server: str


@attrs.frozen(kw_only=True)
class EvictKey(Host):
    """`pool.evict`."""

    who: str
    server: str


@attrs.frozen(kw_only=True)
class EvictPressure(Host):
    """So many strangers list a server's tools at once, each with an identity of its own."""

    server: str
    strangers: int = 3


Turn: TypeAlias = Literal[
    "any", "Admit", "PlanChanged", "Opened", "OpenFailed", "Listed", "ListChanged", "Settle", "Abandon",
    "ClientLost", "Evict", "Revoke", "Reconfigure", "Pause", "Resume", "Limit", "Drain", "Close",
]  # fmt: skip


@attrs.frozen(kw_only=True)
class CrashActor(Host):
    """A fault of the pool's own: a turn of the key raises.

    Args:
        who: Whose key.
        server: At which server.
        turn: The message whose next turn raises: a class of `pool/_messages.py`, or any.
        after: The turn raises after it has changed the state, instead of before.
        times: How many turns in a row.
    """

    who: str
    server: str
    turn: Turn = "any"
    after: bool = False
    times: int = 1


@attrs.frozen(kw_only=True)
class DropTools(Host):
    """Bound tools, servers and subscriptions are forgotten by who held them, or by everybody."""

    who: str | None = None


@attrs.frozen(kw_only=True)
class ClosePool(Host):
    """The pool is left: by `aclose`, or by cancelling the block that it was opened in."""

    how: Literal["aclose", "cancelled"] = "aclose"

"""Another configuration while the pool runs: what is new in it, and what ends for it.

Rules:

* One step, and all or nothing: what is wrong with the new configuration is raised before anything changes.
* A server that stays as it is keeps everything: actors, clients, lists, bindings, calls, back-off. Of one
  that does not, every binding ends in that instant (a new epoch of each of its keys): whoever waits, or has
  sent nothing, is refused `binding-changed`, and no gate lets a byte of it through. What has been sent keeps
  its own answer.
* A key has one actor whatever becomes of its server, so that its places are counted on and no second opening
  begins beside one that is there. An actor that no server leads to any more (it was removed, or is keyed on
  other fields now) admits nobody until one does again. Its epoch only ever grows: what was bound before
  matches nothing that comes later under the same name.
* What decides whom and how we talk to, who shares a connection, or how an incarnation's lists are compared
  (`REOPEN`, and the plan) is a property of a client: another one is opened, the old one drains. All the rest
  (`REBIND`) is a property of bindings: they are made anew, on the same client.
* Nobody but the host can tell whether two functions give the same plans. Where it does not (`replan`),
  another `plan` counts as other plans, for every server that has none of its own; another provider of
  credentials counts for every server that may need one. Another `share` ends nothing by itself: every gate
  asks it from now on.
* Configuration is no revocation: what the credential provider keeps is left to it.
"""

from __future__ import annotations

from types import EllipsisType
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

import attrs

from .._base.errors import NOT_SENT, AfpoolError, IdentityMissing, PoolClosed
from .._base.identity import encode_key
from . import _messages as m
from ._admission import share_of
from ._key_state import KeyLimits
from ._refusals import reconfigured
from ._server import Limits, Server

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from ._actor import KeyActor
    from ._events import Event
    from ._pool import Pool
    from ._server import PlanFunction

T = TypeVar("T")

REOPEN: Final = ("keyed_on", "compare_without")
REBIND: Final = ("on_list_change", "pins", "call_id_key", "repeat", "max_repeats", "validate_output")

LATER: Final = frozenset({"keepalive_expiry", "max_message", "max_pages"})
"""Limits that clients are opened with: they hold for those that are opened from now on."""

LIVE: Final = LATER | {
    "backoff", "backoff_max", "cancel_grace", "close_timeout", "deadline", "idle_timeout", "list_ttl",
    "max_age", "max_subscriptions", "min_list_ttl", "open_timeout", "ping_timeout", "settle_timeout",
}  # fmt: skip
"""Limits that may be others while the pool is open."""


@final
@attrs.frozen
class Reconfigured:
    """What came of another configuration: names of servers, in its order, and those that went.

    Attributes:
        added: New ones.
        removed: Those that are not there any more.
        changed: Those whose bindings of before are refused.
        unchanged: Those that noticed nothing.
        event: The number of the event; refusals for it name it as their cause.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    unchanged: tuple[str, ...]
    event: int


@attrs.frozen
class _Wanted:
    """A configuration that may come into force; `reopen` and `rebind` are the changed ones."""

    servers: Mapping[str, Server]
    plan: PlanFunction | None
    share: Any
    credentials: Any
    limits: Limits
    added: frozenset[str]
    removed: frozenset[str]
    reopen: frozenset[str]
    rebind: frozenset[str]

    @property
    def ended(self) -> tuple[str, ...]:
        """Servers whose clients end, or that begin anew; in order, so that every run is the same."""
        return tuple(sorted(self.added | self.removed | self.reopen))

    def result(self, pool: Pool, event: int) -> Reconfigured:
        changed = self.reopen | self.rebind
        return Reconfigured(
            added=tuple(name for name in self.servers if name in self.added),
            removed=tuple(name for name in pool.servers if name in self.removed),
            changed=tuple(name for name in self.servers if name in changed),
            unchanged=tuple(name for name in self.servers if name not in changed | self.added),
            event=event,
        )


# ---------------------------------------------------------------------------- what is wanted


def checked_servers(servers: Iterable[Server], plan: PlanFunction | None) -> dict[str, Server]:
    """Servers by name.

    Raises:
        TypeError: One is none.
        ValueError: Two of one name, or one that nobody gives a plan for.
    """
    named: dict[str, Server] = {}
    for server in servers:
        if not isinstance(server, Server):
            raise TypeError(f"a pool takes Server objects, not {type(server).__name__}")
        if server.name in named:
            raise ValueError(f"two servers are named {server.name!r}")
        if server.plan is None and plan is None:
            raise ValueError(
                f"server {server.name!r} has no plan of its own and the pool has no plan function"
            )
        named[server.name] = server
    return named


def limits_of(
    pool_limits: Limits, servers: Mapping[str, Server], halted: Container[str] = ()
) -> dict[str, KeyLimits]:
    """What a key of each server may hold; `halted` are the servers that an operator holds."""
    return {
        name: KeyLimits(
            max_operations=pool_limits.max_operations,
            max_waiting=pool_limits.max_waiting,
            recheck_lists=server.on_list_change == "recheck",
            halted=name in halted,
        )
        for name, server in servers.items()
    }


def per_server(limits: Limits, servers: Mapping[str, Server]) -> int:
    """How many of the runtime's places one server may have: all, where it is alone."""
    return share_of(limits.max_in_flight, limits.max_share) if len(servers) > 1 else limits.max_in_flight


def _wanted(
    pool: Pool,
    servers: Iterable[Server],
    plan: Any,
    share: Any,
    credentials: Any,
    limits: Limits | None,
    replan: Iterable[str] | None,
    rebind: Iterable[str],
) -> _Wanted:
    plan = _or_kept(plan, pool.plan)
    share = _or_kept(share, pool.share)
    for what, given in (("plan", plan), ("share", share)):
        if given is not None and not callable(given):
            raise TypeError(f"{what} is a function, not {type(given).__name__}")
    news = checked_servers(servers, plan)
    again = _named("rebind", rebind, news)
    kept = pool.client_settings.credentials
    credentials = _or_kept(credentials, kept)
    if replan is not None:
        planned = _named("replan", replan, news)
    else:
        planned = frozenset(news) if plan != pool.plan else frozenset()
    others = frozenset(
        name
        for name in news.keys() & pool.servers.keys()
        if _wants_another_client(
            pool,
            pool.servers[name],
            news[name],
            planned=name in planned,
            credentials=bool(credentials != kept),
        )
    )
    return _Wanted(
        servers=news,
        plan=plan,
        share=share,
        credentials=credentials,
        limits=_checked_limits(pool.limits, limits),
        added=frozenset(news.keys() - pool.servers.keys()),
        removed=frozenset(pool.servers.keys() - news.keys()),
        reopen=others,
        rebind=frozenset(
            name
            for name in (news.keys() & pool.servers.keys()) - others
            if name in again or _differ(pool.servers[name], news[name], REBIND)
        ),
    )


def _or_kept(given: T | EllipsisType, kept: T) -> T:
    return kept if isinstance(given, EllipsisType) else given


def _named(what: str, names: Iterable[str], servers: Mapping[str, Server]) -> frozenset[str]:
    named = frozenset(names)
    if not named <= servers.keys():
        raise ValueError(f"{what} names servers that there are none of: {sorted(named - servers.keys())}")
    return named


def _wants_another_client(pool: Pool, old: Server, new: Server, *, planned: bool, credentials: bool) -> bool:
    if _differ(old, new, REOPEN):
        return True
    if old.plan is None or new.plan is None:
        return old.plan is not new.plan or credentials or planned
    if credentials and (old.plan.credential is not None or new.plan.credential is not None):
        return True
    # what a context leaves out (whom to ask when a server asks) clients keep as they were opened with it
    secret = pool.context_secret
    return old.plan is not new.plan and old.plan.context(secret) != new.plan.context(secret)


def _differ(old: Server, new: Server, fields: Iterable[str]) -> bool:
    return any(getattr(old, name) != getattr(new, name) for name in fields)


def _checked_limits(old: Limits, new: Limits | None) -> Limits:
    if new is None:
        return old
    if not isinstance(new, Limits):
        raise TypeError(f"limits are Limits, not {type(new).__name__}")
    fixed = [
        field.name
        for field in attrs.fields(Limits)
        if field.name not in LIVE and getattr(old, field.name) != getattr(new, field.name)
    ]
    if fixed:
        raise ValueError(f"{', '.join(fixed)} cannot be changed while the pool is open")
    return new


# ---------------------------------------------------------------------------- putting it into force


def reconfigure(
    pool: Pool,
    servers: Iterable[Server],
    *,
    plan: Any,
    share: Any,
    credentials: Any,
    limits: Limits | None,
    replan: Iterable[str] | None,
    rebind: Iterable[str],
    by: str | None,
) -> Reconfigured:
    """See `Pool.reconfigure`."""
    if pool.closing:
        raise PoolClosed("the pool is closed; its configuration is what it was", delivery=NOT_SENT)
    wanted = _wanted(pool, servers, plan, share, credentials, limits, replan, rebind)
    # From here on nothing raises, waits, or calls the app before all of it holds.
    with pool.records.told_later():
        event = pool.event("reconfigured", None, why=_why(wanted), by=by)
        result = wanted.result(pool, event.number)
        shared_otherwise = bool(pool.share != wanted.share)
        _put(pool, wanted)
        hit = [actor for actor in pool.actors() if _turn_over(pool, actor, wanted, event)]
        _end_calls(pool, set(hit), event)
        for name in wanted.ended:
            pool.shares.end_server(name)
        pool.openings.forget(wanted.ended)
        pool.herald.forget(wanted.removed)
    if shared_otherwise:
        _ask_names(pool, event)
    return result


def _put(pool: Pool, wanted: _Wanted) -> None:
    pool.reconfigured += 1
    pool.servers = dict(wanted.servers)
    pool.plan, pool.share, pool.limits = wanted.plan, wanted.share, wanted.limits
    for name in wanted.removed:
        pool.held_servers.pop(name, None)
    pool.key_limits = limits_of(wanted.limits, wanted.servers, pool.held_servers)
    pool.admission.divide(per_server(wanted.limits, wanted.servers))
    pool.client_settings = attrs.evolve(
        pool.client_settings,
        credentials=wanted.credentials,
        control_timeout=wanted.limits.close_timeout,
        **{name: getattr(wanted.limits, name) for name in LATER},
    )
    pool.janitor.wake()


def _turn_over(pool: Pool, actor: KeyActor, wanted: _Wanted, event: Event) -> bool:
    """Let the configuration be that of one key; whether that ends its bindings."""
    name = actor.server.name
    machine = actor.machine
    new = wanted.servers.get(name)
    led_to = new is not None and _leads_to(new, actor)
    if name not in wanted.ended and name not in wanted.rebind:
        if new is not None and led_to and not machine.removed:
            actor.server = new  # equal, or as good as that
        return False
    if not led_to and machine.removed:
        return False
    keep = name in wanted.rebind
    actor.cause = event
    if new is not None and led_to:
        actor.server = new
    if not keep:
        actor.log_level = None  # said to a server that this may not be any more
    actor.tell(m.Reconfigure(pool.key_limits[name] if led_to else None, keep, event))
    for subscription in [each for same in (actor.watchers or {}).values() for each in same]:
        if keep:
            subscription.refuse(reconfigured())
        else:
            subscription.fail(reconfigured())
    return True


def _leads_to(server: Server, actor: KeyActor) -> bool:
    """Whether any identity's key at this server is the actor's."""
    try:
        return encode_key(server.name, actor.projection, server.keyed_on) == actor.key
    except IdentityMissing:
        return False


def _end_calls(pool: Pool, hit: set[KeyActor], event: Event) -> None:
    for call in list(pool.running.values()):
        if call.actor in hit and not call.begun:
            call.interrupt(reconfigured().because(event))
    for passes in list(pool.between):
        if passes.call is not None and passes.call.actor in hit:
            passes.withdraw(reconfigured().because(event))


def _ask_names(pool: Pool, event: Event) -> None:
    """Refuse now who waits under an authorization name that another `share` does not give any more."""
    for call in list(pool.running.values()):
        if call.begun:
            continue
        try:
            call.check_share(event)
        except AfpoolError as refusal:
            call.interrupt(refusal.because(event))


def _why(wanted: _Wanted) -> str:
    parts = [
        f"{what}: {', '.join(sorted(names))}"
        for what, names in (
            ("added", wanted.added),
            ("removed", wanted.removed),
            ("changed", wanted.reopen | wanted.rebind),
        )
        if names
    ]
    return "; ".join(parts) or "nothing changed"

"""What ends calls from outside, at once: a revocation, a host that withdraws, an operator that kills.

All of it is synchronous and holds from the instant in which it returns. A call whose bytes have left is told
so in its verdict; one that has sent nothing will not.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from .._base.errors import IN_DOUBT, NOT_SENT, CallCancelled, ClientClosed
from .._base.identity import Identity
from . import _messages as m
from ._refusals import revoked

if TYPE_CHECKING:
    from .._base.identity import PoolKey
    from .._base.use import Use
    from ._actor import KeyActor
    from ._pool import Pool

logger = logging.getLogger("afpool")


def invalidate(
    pool: Pool,
    identity: Identity | None,
    server: str | None,
    key: PoolKey | None,
    reason: str,
    by: str | None,
) -> int:
    """See `Pool.invalidate`."""
    if identity is None and server is None and key is None:
        raise ValueError("name an identity, a server or a key to invalidate")
    hit = [
        actor
        for actor in pool.actors()
        if (key is None or actor.key == key)
        and (server is None or actor.server.name == server)
        and (identity is None or _covers(identity, actor.projection))
    ]
    for actor in hit:
        actor.cause = pool.event("revoked", actor, why=reason, by=by)
        actor.tell(m.Revoke(reason, actor.cause))
    _drop_credentials(pool, identity, hit)
    gone = set(hit)
    for call in list(pool.running.values()):
        if call.actor in gone and not call.begun:
            call.interrupt(revoked().because(call.actor.cause))
    return len(hit)


def _drop_credentials(pool: Pool, identity: Identity | None, hit: list[KeyActor]) -> None:
    """Tell a provider that keeps what it vended; what it raises costs nobody the revocation."""
    drop = getattr(pool.client_settings.credentials, "drop", None)
    if drop is None:
        return
    whose: dict[tuple[str | None, Identity], None] = {}
    if identity is not None:
        whose[None, identity] = None
    else:
        for actor in hit:
            client = actor.machine.client
            requirement = None if client is None else client.handle.requirement
            if requirement is not None:
                whose[requirement.service, actor.projection] = None
            elif actor.projection != Identity():  # nobody in particular would be everybody
                whose[None, actor.projection] = None
    for service, who in whose:
        try:
            drop(service=service, identity=who)
        except Exception as error:  # noqa: BLE001 -- the app's code; its text may hold what it kept
            logger.error("drop of the credential provider raised %s", type(error).__name__)  # noqa: TRY400


def cancel(pool: Pool, call_id: str, reason: str, by: str | None) -> bool:
    """See `Pool.cancel`."""
    calls = [call for call in pool.running.values() if _is_of(call.use, call_id)]
    between = [each for each in pool.between if each.call is not None and _is_of(each.call.use, call_id)]
    found = calls + [passes.call for passes in between if passes.call is not None]
    if not found:
        return False
    event = pool.event("withdrawn", found[0].actor, call=call_id, why=reason, by=by)
    for call in calls:
        sent = "it was sent and may take effect" if call.begun else "nothing was sent"
        error = CallCancelled(f"{reason}; {sent}", delivery=IN_DOUBT if call.begun else NOT_SENT)
        call.interrupt(error.because(event))
    for passes in between:
        text = f"{reason}; it was sent before and may take effect"
        passes.withdraw(CallCancelled(text, delivery=IN_DOUBT).because(event))
    return True


def kill(pool: Pool, client_id: int, by: str | None) -> bool:
    """See `Pool.kill`."""
    client = pool.openings.clients.get(client_id)
    if client is None:
        return False
    owner = next((actor for actor in pool.kept if _has(actor, client_id)), None)
    if owner is None:
        event = pool.event("killed", None, server=client.server, client=client_id, by=by)
    else:
        event = pool.event("killed", owner, client=client_id, by=by)
        owner.ended = event.number
    client.ended = event
    for call in list(pool.running.values()):
        if call.client is client:
            sent = "it was sent and may take effect" if call.begun else "nothing was sent"
            delivery = IN_DOUBT if call.begun else NOT_SENT
            error = ClientClosed(f"its client was killed; {sent}", delivery=delivery)
            call.interrupt(error.because(event))
    client.retire("killed")
    client.kill()
    for actor in list(pool.kept):
        current = actor.machine.client
        if current is not None and current.id == client_id:
            actor.tell(m.ClientLost(client_id, "killed"))
    return True


def _is_of(use: Use, call_id: str) -> bool:
    """Whether a use is that of a call, or of a further one that was made with its context."""
    return use.call_id == call_id or (use.parent == call_id and use.call_id.startswith(f"{call_id}."))


def _has(actor: KeyActor, client_id: int) -> bool:
    machine = actor.machine
    current = machine.client
    return (current is not None and current.id == client_id) or client_id in (machine.old or ())


def _covers(pattern: Identity, projection: Identity) -> bool:
    named = [
        (getattr(pattern, field), getattr(projection, field))
        for field in ("tenant", "principal", "conversation_id")
        if getattr(pattern, field) is not None
    ]
    return bool(named) and all(wanted == there for wanted, there in named)

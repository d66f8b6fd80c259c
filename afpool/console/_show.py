"""`show actor KEY` and `show call CALL`: one thing, whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ..artifacts import is_artifact_ref
from ._ask import CommandError, quoted
from ._sources import list_state_of, mark_of, place_shown, state_of, waits_since
from ._spec import Command
from ._tables_servers import list_word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._base.use import Use
    from ..pool._actor import KeyActor
    from ._ask import Ask
    from ._registry import Registry
    from ._sources import Sources

EVENTS: Final = 20
QUEUE: Final = 100
_ADDRESS: Final = "afpool://artifact/"


def register(registry: Registry, sources: Sources) -> None:
    """Add the commands."""

    async def show_actor(ask: Ask) -> dict[str, Any]:
        return await actor_shown(sources, await sources.actor(ask), ask)

    async def show_call(ask: Ask) -> dict[str, Any]:
        return await call_shown(sources, ask)

    async def explain(ask: Ask) -> dict[str, Any]:
        return await explained(sources, ask)

    async def keys(word: str, _: Sequence[str]) -> list[str]:
        return await sources.keys_like(word)

    registry.command(
        Command(
            words=("show", "actor"),
            usage="show actor KEY [--reveal]",
            help="one key: client, list, places, queue, its last turns, events and refusal",
            run=show_actor,
            options=("reveal",),
            takes=(1, 1),
            complete=keys,
        )
    )
    registry.command(
        Command(
            words=("show", "call"),
            usage="show call CALL",
            help="one call: every stage with its times, and each pass of it",
            run=show_call,
            takes=(1, 1),
            complete=lambda word, _: sources.calls_like(word),
        )
    )
    registry.command(
        Command(
            words=("why",),
            usage="why CALL|ARTIFACT",
            help="how a call ended and what caused it; or where an artifact comes from",
            run=explain,
            takes=(1, 1),
            complete=lambda word, _: sources.calls_like(word),
        )
    )


async def actor_shown(sources: Sources, actor: KeyActor, ask: Ask) -> dict[str, Any]:
    """Everything of one key."""
    pool = sources.pool
    machine = actor.machine
    client = machine.client
    info = actor.info()
    key = sources.key_of(actor)
    backoff = sources.backoffs().get(actor.key)
    listed = list_state_of(actor)
    shown: dict[str, Any] = {
        "kind": "actor",
        "key": key,
        "server": actor.server.name,
        "state": state_of(actor, {} if backoff is None else {actor.key: backoff}),
        "client": None if client is None else client.id,
        "generation": None if listed is None else listed.generation,
        "epoch": machine.epoch,
        "in_flight": machine.in_flight,
        "max": machine.limits.max_operations,
        "waiting": len(machine.waiting or ()),
        "maxwait": sources.oldest_waiter(actor, ask.now),
        "abandoned": machine.abandoned,
        "crashes": actor.epoch,
        "old_clients": sorted(machine.old or ()),
        "subscriptions": len(actor.watchers or ()),
        "running": [_lease(sources, ticket, ask.now) for ticket in list(machine.leases or ())],
        "queue": _queue(sources, actor, ask.now),
        "turn_count": info.turns,
        "turn_p50": None if info.turn_p50_us is None else info.turn_p50_us / 1e6,
        "turn_p99": None if info.turn_p99_us is None else info.turn_p99_us / 1e6,
        "turns": [
            {
                "at": ask.unix_of(turn.at), "message": turn.message, "took": turn.duration_ns / 1e9,
                "verdict": turn.verdict,
            }
            for turn in info.recent
        ],
    }  # fmt: skip
    if client is not None:
        shown["connection"] = _connection(client.handle, ask.now)
    if listed is not None:
        shown["list"] = {
            "id": listed.id,
            "state": list_word(listed, ask.now),
            "shared": listed.entry is not None,
            "tools": None if listed.catalog is None else len(listed.catalog),
            "expires_in": max(0.0, listed.expires_at - ask.now),
        }
    if backoff is not None:
        shown["backoff"] = {"failures": backoff.failures, "left": max(0.0, backoff.until - ask.now)}
    held = pool.held_servers.get(actor.server.name) or actor.held_since
    if held is not None:
        shown["held_since"] = sources.event_plain(held)
    shown["events"] = await _events(sources, key, ask)
    shown["last_refusal"] = await _last_refusal(sources, actor, ask)
    if ask.reveal:
        who = actor.projection
        shown["identity"] = {
            "tenant": who.tenant, "principal": who.principal, "conversation": who.conversation_id
        }  # fmt: skip
    return shown


def _lease(sources: Sources, ticket: int, now: float) -> dict[str, Any]:
    pool = sources.pool
    call = pool.running.get(ticket)
    if call is not None:
        use = call.use
        held_at = mark_of(use, "leased") or mark_of(use, "admission") or use.began_at
        return {
            "call_id": use.call_id, "tool": use.tool or use.method, "waits_for": use.waits_for,
            "since": now - waits_since(use), "age": now - held_at, "left": call.deadline - now,
            "sent": call.begun, "state": "running",
        }  # fmt: skip
    use_of = pool.handed.get(ticket)
    if use_of is None:
        return {"call_id": None, "tool": None, "waits_for": None, "since": None, "state": "ending"}
    ended = now if use_of.ended_at is None else use_of.ended_at
    return {
        "call_id": use_of.call_id, "tool": use_of.tool or use_of.method, "waits_for": "server",
        "since": now - ended, "age": now - use_of.began_at, "left": None, "sent": True, "state": "settling",
    }  # fmt: skip


def _queue(sources: Sources, actor: KeyActor, now: float) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for ticket in list(actor.machine.waiting or ())[:QUEUE]:
        call = sources.pool.running.get(ticket)
        if call is None:
            found.append({"call_id": None, "tool": "tool list", "waited": None})
        else:
            use = call.use
            found.append(
                {
                    "call_id": use.call_id, "tool": use.tool or use.method, "waited": now - waits_since(use),
                    "left": call.deadline - now,
                }
            )  # fmt: skip
    return found


def _connection(client: Any, now: float) -> dict[str, Any]:
    negotiated = client.negotiated
    return {
        "id": client.id,
        "place": place_shown(client.plan.transport),
        "version": None if negotiated is None else negotiated.version,
        "age": now - client.opened_at,
        "ends_in": max(0.0, client.ends_at - now),
        "stream": client.stream_state,
        "pid": None if client.process is None else client.process.pid,
        "why": client.retired or client.lost,
    }


async def _events(sources: Sources, key: str, ask: Ask) -> list[dict[str, Any]]:
    """The last events of a key, oldest first."""
    ring = sources.pool.records.events
    found: list[dict[str, Any]] = []
    async for number in ask.slices.each(range(ring.filed, max(0, ring.filed - len(ring)), -1)):
        event = ring.get(number)
        if event is not None and event.key == key:
            found.append(sources.event_plain(event))
            if len(found) == EVENTS:
                break
    return found[::-1]


async def _last_refusal(sources: Sources, actor: KeyActor, ask: Ask) -> dict[str, Any] | None:
    async for use in ask.slices.each(reversed(list(sources.pool.records.uses))):
        if use.outcome in ("refused", "failed") and use.key == actor.key:
            return sources.use_plain(use)
    return None


async def call_shown(sources: Sources, ask: Ask) -> dict[str, Any]:
    """Everything of one call: the newest pass of it, and the passes before."""
    uses = await sources.uses(ask)
    shown = [_use(sources, use, ask.now) for use in uses]
    return {"kind": "call", "call_id": uses[0].call_id, "use": shown[0], "before": shown[1:]}


def _use(sources: Sources, use: Use, now: float) -> dict[str, Any]:
    plain = sources.use_plain(use)
    if use.ended_at is None:
        plain["age"] = now - use.began_at
        plain["since"] = now - waits_since(use)
    return plain


async def explained(sources: Sources, ask: Ask) -> dict[str, Any]:
    """What `Record.why` says, beside the call's own facts."""
    record = sources.record
    if record is None:
        raise CommandError(
            "failed", "this process keeps no record that explains", [f"show call {quoted(ask.words[0])}"]
        )
    what = ask.words[0].removeprefix(_ADDRESS)
    uses: list[Use] = []
    unknown: CommandError | None = None
    try:
        if not is_artifact_ref(what):
            uses = await sources.uses(ask)
            what = uses[0].call_id
    except CommandError as error:
        unknown = error
    try:
        explanation = await record.why(what)
    except LookupError as error:
        if unknown is not None and unknown.tries:
            raise unknown from None
        tries = ["show artifacts"] if is_artifact_ref(what) else ["show recent", "show calls"]
        raise CommandError("unknown-id", str(error), tries) from None
    result = {"kind": "explanation", **explanation.as_json()}
    if uses:
        result["use"] = _use(sources, uses[0], ask.now)
    return result

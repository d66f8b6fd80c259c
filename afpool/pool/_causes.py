"""What a call's use says beside its times: whose it is, who held what it waited for, what caused its end.

Rules:

* A call that somebody dispatched by name writes into the use that he made, and he files it. One use is
  written by one bound call: a further one that is made with the same context has its own, under an id of
  its own. So has one that begins when his has been filed, or goes on after that: what is filed is not
  written any more.
* A repeat goes on under the id of the pass before, whosever that was: the server knows the call by it.
* Who makes a refusal and knows the event behind it says so on the error (`AfpoolError.because`). For the rest
  it is looked up here, in the step in which the call ends: what is true then of the client, the key and the
  pool caused it, or it was not caused by an event at all.
* Who holds what a call waits for is written down when it begins to wait, and not before: a call that waits
  for nothing pays nothing. At most `HOLDERS_NAMED` are named; none where it waits for something else, such as
  an opening or the end of a pause.
* Nothing here is a secret, and nothing here keeps a key, a client or a call alive.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from actors import ActorError

from .._base.errors import (
    ActorCrashed,
    AfpoolError,
    BindingChanged,
    ClientClosed,
    DeadlineExceeded,
    LocalSessionHandleLostError,
    OpenBackoff,
    PoolClosed,
    SessionExpiredError,
    StaleTools,
)
from .._base.identity import Identity
from .._base.use import Use, note_refusal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .._base.definition import Definition
    from .._base.model import ToolContext, ToolResult
    from ..client import Errand
    from ..client._carried import Carried
    from ._again import Passes
    from ._bound import Binding
    from ._bound_server import ServerBinding
    from ._call import Call
    from ._events import Event
    from ._lists import ListState
    from ._records import Records

HOLDERS_NAMED: Final = 16
CURIOUS_KEPT: Final = 32
QUARANTINED: Final = "quarantined"
OPEN_FAILED: Final = "open-failed"
GONE: Final = (ClientClosed, LocalSessionHandleLostError, SessionExpiredError)
"""What an ended client answers."""
_IS_ERROR: Final = b'"isError"'


# ---------------------------------------------------------------------------- whose use it is


def use_of(
    binding: Binding | ServerBinding,
    ctx: ToolContext,
    call_id: str,
    errand: Errand | None,
    passes: Passes | None,
    now: float,
) -> Use:
    """The use that a call writes into: that of its door, that of its pass before, or a new one."""
    actor = binding.actor
    given = ctx.use
    before = None if passes is None or passes.call is None else passes.call.use
    first = before is given if before is not None else given is not None and given.reached == 0
    if given is not None and first and given.ended_at is None:
        use = given
        use.server = actor.server.name
    elif passes is not None and passes.follows is not None:
        use = passes.follows
    else:
        named = "" if errand is None else errand.named
        use = Use(call_id, actor.server.name, named, now)
        use.run_id = ctx.run_id
        if isinstance(ctx.identity, Identity):
            use.who = ctx.identity
        if before is not None:
            use.call_id = before.call_id
            use.parent = before.parent
        elif given is not None:
            _further(use, given)
    if given is not None and before is None:
        given.reached += 1
    if errand is not None:
        use.method = errand.method
    else:
        assert binding.definition is not None
        if not use.tool:
            use.name = binding.definition.name
        use.tool = binding.definition.name
    use.key = actor.key  # not the actor: a record must not keep a forgotten key alive
    use.epoch = binding.epoch
    use.context = binding.context
    if binding.list is not None:
        use.list_id = binding.list.id
        use.generation = binding.generation
    return use


def file_refused(binding: ServerBinding, method: str, call_id: str | None, error: AfpoolError) -> None:
    """File an operation that was refused before its first step."""
    actor = binding.actor
    pool = actor.pool
    use = Use(call_id or f"call-{pool.seams.next_id()}", actor.server.name, "", pool.seams.now())
    use.method = method
    use.key = actor.key
    use.epoch, use.context = binding.epoch, binding.context
    error.call_id = use.call_id
    note_refusal(use, error)
    if error.noted is not None:
        use.note(*error.noted, pool.seams.now())
    pool.records.begin(use)
    pool.records.file(use)


def _further(use: Use, given: Use) -> None:
    """Let a use be that of a further call with a context."""
    use.call_id = f"{given.call_id}.{given.reached + 1}"
    use.parent = given.call_id


def use_left_behind(call: Call, filed: Use) -> Use:
    """Give a call that went on after whoever dispatched it had ended a use of its own, with what it did."""
    use = filed.copy()
    use.outcome = use.code = use.delivery = use.cause = use.happened = use.ended_at = None
    use.minted = use.took = use.was = use.became = None
    _further(use, filed)
    filed.reached += 1
    call.use = use
    return use


def may_say_that_it_failed(raw: bytes) -> bool:
    """Whether the raw result of a tool may say so: whether `isError` stands in it, and is not `false`."""
    at = raw.find(_IS_ERROR)
    while at >= 0:  # what a tool answers may hold members of that name, too
        at += len(_IS_ERROR)
        if raw[at : at + 16].lstrip(b" \t\r\n:")[:1] != b"f":
            return True
        at = raw.find(_IS_ERROR, at)
    return False


def says_that_it_failed(result: ToolResult) -> bool:
    """Whether a result says that the tool failed; one that cannot be read says nothing."""
    try:
        return result.is_error
    except AfpoolError:
        return False


def end_wait(use: Use, now: float) -> None:
    """A wait ended with the call: mark where it was."""
    stage = use.waits_for
    use.waits_for = None
    if stage is not None and (not use.marks or use.marks[-2] != stage):
        use.marks += (stage, now)


def note_opening(call: Call, error: BaseException) -> None:
    """A call waits no more for a client, and has none: which opening failed, or how far the one was.

    An opening that nobody waits for is cancelled, and files no event.
    """
    actor = call.actor
    event: Event | None = getattr(error, "happened", None)
    if event is not None and event.kind == OPEN_FAILED and not isinstance(error, OpenBackoff):
        call.use.opening = event.number
    opening = actor.machine.opening
    under_way = None if opening is None else actor.pool.openings.under_way.get(opening.token)
    if under_way is not None:
        call.use.note("opening", under_way.stages.stage, actor.pool.seams.now())


# ---------------------------------------------------------------------------- who holds what


def holders_of_key(call: Call) -> None:
    """Write down who holds the places of the call's key, where none is left for it."""
    machine = call.actor.machine
    leases = machine.leases
    if leases and len(leases) >= machine.limits.max_operations:
        call.use.held_by = _named(call, leases)


def holders_of_pool(call: Call) -> None:
    """Write down who holds the places of the runtime that this call could have."""
    pool = call.actor.pool
    places, server = pool.admission, call.actor.server.name
    tenant = call.tenant if places.has_share(call.tenant) else None
    at = server if places.has_share_at(server) else None
    holders = (
        use.call_id
        for use in pool.inside.values()  # and not those that run: most of them may be waiting
        if (tenant is None or (use.who is not None and use.who.tenant == tenant))
        and (at is None or use.server == at)
    )
    call.use.held_by = tuple(islice(holders, HOLDERS_NAMED))


def _named(call: Call, tickets: Iterable[int]) -> tuple[str, ...]:
    pool = call.actor.pool
    running, handed = pool.running, pool.handed
    named = []
    for ticket in islice(tickets, HOLDERS_NAMED):
        holder = running.get(ticket)
        # one that went over to another client has another ticket than the one that it runs under
        use = handed.get(ticket) or pool.inside.get(ticket) if holder is None else holder.use
        if use is not None:
            named.append(use.call_id)
    return tuple(named)


# ---------------------------------------------------------------------------- what caused it


def compare(call: Call, listed: ListState) -> None:
    """Write down what a call's tool was listed as, and what the list that refused it holds instead.

    A change that was announced and not looked at refuses as well. What it was is written when the list is
    there, also into a use that is filed already.
    """
    definition = call.binding.definition
    if definition is None or not listed.alive:
        return
    use = call.use
    if listed.generation != call.generation or not listed.shows(definition.name, definition.digest):
        _became(use, definition, listed, call.actor.pool.seams.now())
        _look_through(use, _carried(call), call.actor.pool.seams.now())
    elif listed.noticed:
        if listed.curious is None:
            listed.curious = []
        if len(listed.curious) < CURIOUS_KEPT and all(known is not use for known, _, _ in listed.curious):
            listed.curious.append((use, definition, _carried(call)))


def tell_curious(listed: ListState, records: Records, now: float) -> None:
    """A list is there: write down what has become of the tools that its announcement refused."""
    curious, listed.curious = listed.curious, None
    for use, definition, carried in curious or ():
        if use.code != StaleTools.code:
            continue  # what stands around the tool got over it, or it ended otherwise
        _became(use, definition, listed, now)
        use.note("generation", str(listed.generation), now)
        _look_through(use, carried, now)
        records.grown(use)


def _became(use: Use, definition: Definition, listed: ListState, now: float) -> None:
    use.was, use.became = definition, listed.find(definition.name)
    catalog = listed.catalog
    if use.became is None and catalog is not None and catalog.quarantined:
        # of what cannot be read nobody knows whether it is that tool
        use.note(QUARANTINED, str(len(catalog.quarantined)), now)


def _carried(call: Call) -> Carried | None:
    """What the requests of a call's client carry."""
    client = call.actor.machine.client
    return None if client is None else client.handle.carried


def _look_through(use: Use, carried: Carried | None, now: float) -> None:
    """Note where a definition repeats what its server was sent: then nothing of its names may be told.

    Looked for here, since whoever explains the call may do so when nobody knows any more what was sent.
    """
    for definition in (use.was, use.became):
        if definition is not None and (carried is None or carried.stands_in(definition.raw)):
            use.note(
                "definition",
                "may repeat what its server was sent"
                if carried is None
                else "repeats what its server was sent",
                now,
            )
            return


def cause_of(call: Call, error: AfpoolError) -> Event | None:
    """Find the event that ended a call with an error whose maker did not know it."""
    actor = call.actor
    behind = error.__cause__
    if isinstance(error, StaleTools):
        listed = call.list or call.binding.list
        if listed is None:
            return None
        compare(call, listed)
        return listed.event
    if isinstance(error, BindingChanged):
        return _bound_otherwise(call)
    if isinstance(error, PoolClosed):
        return actor.pool.closed_by
    if isinstance(error, GONE):
        return None if call.client is None else call.client.ended
    if isinstance(error, DeadlineExceeded):
        return _held_up(call)
    if isinstance(error, ActorCrashed) and (behind is None or isinstance(behind, ActorError)):
        return actor.crashed
    event: Event | None = getattr(behind, "happened", None)
    return event


def _bound_otherwise(call: Call) -> Event | None:
    """What ended the binding of a call that was refused when it asked for a place."""
    actor, binding, machine = call.actor, call.binding, call.actor.machine
    if machine.removed or machine.epoch != binding.epoch:
        return actor.cause
    client = machine.client
    opening = None if machine.opening is None else machine.opening.context
    if binding.context != (opening if client is None else client.context):
        return actor.replanned
    return None


def _held_up(call: Call) -> Event | None:
    """What held admission of a call that waited for it until its time was up."""
    actor, machine = call.actor, call.actor.machine
    if call.held or call.use.marks[-2:-1] != ["admission"]:
        return None
    if machine.paused:
        return actor.held_since
    if machine.limits.halted:
        return actor.pool.held_servers.get(actor.server.name)
    return actor.drained_since if machine.draining is not None else None

"""The five steps of an operation on a bound tool or a bound server, in the task of its asker.

1. The caller identity must encode to the binding's key.
2. The binding must be current; an unsettled list is asked for again first.
3. (What is asked of a bound server stands on no list: of this and the next step the lists are left out.)
   Admission, then a place on the key's client, which is opened if there is none. A client that is not the
   incarnation that the tool was listed from is checked against its own fresh list, which is then adopted.
4. After every wait before the first byte: `recheck`.
5. Through the send gate at every boundary; the outcome is classified, the use filed, the place given back
   once the request's own work has settled.

Steps 3 to 5 are gone through a second time, with another place and another client, where the server turns out
to speak another protocol version than the client and the verdict proves that nothing ran.

`through` is the only place in this package that awaits on behalf of a call, so a wait without a recheck
cannot be written by accident; a test parses this file and fails on any other await.

The whole operation runs protected from KeyboardInterrupt, so that ^C arrives as a cancellation at a
checkpoint and never between taking a place and noting it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from .._base.errors import (
    NOT_SENT,
    ActorCrashed,
    AfpoolError,
    InputRequired,
    InvalidArguments,
    NotApproved,
    OpenFailed,
)
from .._base.model import JsonObject, ToolContext, ToolResult
from .._base.use import note_refusal
from ..protocol import NotJson, encode_json
from . import _messages as m
from ._asking import check_identity, resolve_plan
from ._call import Call
from ._causes import (
    GONE,
    cause_of,
    end_wait,
    holders_of_key,
    holders_of_pool,
    may_say_that_it_failed,
    note_opening,
    says_that_it_failed,
    use_left_behind,
    use_of,
)
from ._circles import check_places
from ._flights import ensure_settled
from ._posting import post, taken
from ._refusals import other_plan
from ._settle import give_back, hand_over

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..client import Client, Errand
    from ._again import Passes
    from ._bound import Binding
    from ._bound_server import ServerBinding
    from ._lists import ListState

T = TypeVar("T")


@trio.lowlevel.enable_ki_protection
async def execute(
    binding: Binding | ServerBinding,
    args: JsonObject,
    ctx: ToolContext,
    errand: Errand | None = None,
    read: Callable[[Any, Call], Any] | None = None,
    passes: Passes | None = None,
) -> Any:
    """Run one operation; see the module for the steps, `BoundTool.execute` for the promises.

    Args:
        binding: What it stands on.
        args: Of a tool call.
        ctx: Who asks, until when.
        errand: What is asked of a bound server; `None` for a tool call.
        read: Makes the errand's result of what was received.
        passes: Told of this pass, where one that ends in doubt may be followed by another.

    Returns:
        A `ToolResult`, or what `read` makes.
    """
    actor = binding.actor
    pool = actor.pool
    now = pool.seams.now()
    ticket = pool.seams.next_id()
    call_id = ctx.call_id or f"call-{ticket}"
    use = use_of(binding, ctx, call_id, errand, passes, now)
    deadline = now + pool.limits.deadline if ctx.deadline is None else ctx.deadline
    call = Call(binding, b"", ctx, deadline, use, ticket)
    if errand is not None:
        call.errand = errand
    if passes is not None:
        passes.begin(call)
    entry = pool.deadlines.add(deadline, call)
    pool.running[ticket] = call
    if pool.records.tracers and use is not ctx.use:
        pool.records.begin(use)  # from here on it is filed, whatever comes
    outcome: str | None = "failed"
    try:
        await trio.lowlevel.checkpoint_if_cancelled()
        if errand is None:
            call.args = _encode(args) if passes is None else passes.encoded or _encode(args)
        if call.call_id_key is not None:
            _check_call_id(call_id)
        try:
            raw = await _steps(call)
        finally:
            if use.ended_at is not None:  # whoever dispatched the call has not waited for it
                use = use_left_behind(call, use)
    except AfpoolError as error:
        error.call_id = call_id
        if error.happened is None:
            error.because(cause_of(call, error))
        note_refusal(use, error)
        noted: tuple[str, str] | None = error.noted or getattr(error.__cause__, "noted", None)
        if noted is not None:
            use.note(noted[0], noted[1], pool.seams.now())
        outcome = use.outcome
        cause = error.__cause__
        if cause is not None and isinstance(error, InputRequired):
            word = cause.code if isinstance(cause, AfpoolError) else type(cause).__name__
            use.note("input", word, pool.seams.now())
        if not call.begun:
            # a refusal may have met no checkpoint yet; every public call passes one
            await trio.lowlevel.cancel_shielded_checkpoint()
        raise
    except trio.Cancelled:
        outcome = "cancelled"
        use.code = "cancelled"
        # a round that was answered with a question may have run part of the tool
        use.delivery = "in-doubt" if call.begun or call.questions else "not-sent"
        raise
    else:
        outcome = "ok"
        use.delivery = "answered"
        if read is not None:
            use.bytes_in = raw.size
            return read(raw, call)
        use.bytes_in = len(raw)
        result = ToolResult(raw, call_id)
        if may_say_that_it_failed(raw):
            use.tool_error = says_that_it_failed(result)
        return result
    finally:
        # No checkpoint from here on: the place is given back or handed over in this very step.
        del pool.running[ticket]
        pool.deadlines.done(entry)
        use.outcome = outcome
        if use.waits_for is not None:
            end_wait(use, pool.seams.now())
        trip = call.trip
        call.trip = None  # which holds the call as its gate: what is over goes with its last reference
        if trip is not None and trip.begun and not trip.over:
            hand_over(call, trip, answered=False)
        else:
            give_back(call, answered=outcome == "ok" or (trip is not None and trip.answered))
        if use is ctx.use:
            pass  # whoever dispatched the call files it, when all of it is over
        elif passes is None:
            pool.records.file(use)
        else:
            passes.over(use, pool.records)
        if pool.closing:
            pool.background.look()


def _encode(args: JsonObject) -> bytes:
    if not isinstance(args, Mapping):
        raise InvalidArguments(f"arguments are a JSON object, not {type(args).__name__}; nothing was sent")
    try:
        return encode_json(args)
    except NotJson as error:
        raise InvalidArguments(f"{error}; nothing was sent") from None


def _check_call_id(call_id: str) -> None:
    try:
        encode_json(call_id)
    except NotJson:
        raise InvalidArguments("a call id that JSON cannot carry; nothing was sent") from None


async def _steps(call: Call) -> Any:
    actor = call.actor
    pool = actor.pool
    definition = call.binding.definition
    # 1, 2
    who = check_identity(actor, call.identity, call.binding.keyed_on)
    call.tenant = who.tenant
    if call.use.who is None:
        call.use.who = who
    call.recheck("start", gate=False)
    if definition is not None:
        pin = actor.server.pins.get(definition.name)
        if pin is not None and pin != definition.digest:
            raise NotApproved("the tool's definition is not the one that was approved; nothing was sent")
    restless = False
    live = actor.machine.client
    if call.list is not None and live is not None:
        call.list.look_at(live.handle.shown)
    if call.list is not None and not call.list.settled(call.checked_at):
        await _relist(call, call.list)
        restless = (
            call.list is not None and call.list.noticed
        )  # it kept changing; asked for as often as may be
    try:
        return await _on_client(call, restless=restless)
    except AfpoolError as error:
        if not call.may_move(error):
            raise
        call.use.note("renegotiation", error.code, pool.seams.now())
    _let_go(call)
    return await _on_client(call, restless=restless)


def _let_go(call: Call) -> None:
    """Give the place on the outdated client back and stand where step 3 begins."""
    give_back(call, answered=True)
    call.ticket = call.actor.pool.seams.next_id()
    call.held = call.begun = False
    call.client = call.trip = None
    call.recheck("renegotiation", gate=False)


async def _on_client(call: Call, *, restless: bool) -> Any:
    actor = call.actor
    pool = actor.pool
    # 3
    client = await _admitted(call)
    call.client = client
    call.use.client_id = client.id
    if not pool.admission.try_enter(actor.server.name, call.tenant, actor.key):
        await _seated(call)
    call.entered = True
    pool.inside[call.ticket] = call.use
    # every wait above came back through a recheck; the place itself was none
    call.use.marks += ("leased", call.checked_at)
    if call.binding.definition is None:
        received = await client.errand(call)
        call.look_back()
        return received
    if call.list is None:
        await _adopt(call)
    elif call.list.noticed and not restless:
        await _relist(call, call.list)
    elif call.list.entry is not None and client.entry is None:
        client.entry = call.list.entry  # what this client hears of changes is about the shared list
    # 4 and 5: the client asks the gate at each boundary of each attempt
    raw = await client.call(call)
    call.look_back()
    return raw


async def _relist(call: Call, state: ListState) -> None:
    actor = call.actor
    if state.asked_before and state.flight is None and actor.machine.client is not None:
        # a list that goes to the wire asks for the plan; a list's first asking follows an opening, which has
        resolved = await through(call, "plan", resolve_plan(actor))
        actor.plan_is(resolved.context)
        # told also where it is the binding's: the live client may have been opened under another one since
        post(actor, m.PlanChanged(resolved.context))
        if resolved.context != call.binding.context:
            raise other_plan().because(actor.replanned)
    try:
        await through(
            call,
            "list",
            ensure_settled(actor, state, call.binding.context, call.binding.authorization, call.client),
        )
    except AfpoolError as error:
        let_go = isinstance(error, GONE) and error.delivery == NOT_SENT and error.happened is None
        if call.client is None and (let_go or not state.alive):
            # its client went with it, or the lister's was let go before it asked, by no event that ended it:
            # step 3 decides, unless what failed was the call itself
            call.recheck("list", gate=False)
            return
        if error.delivery == NOT_SENT:
            raise
        raise _list_failed(error) from error


async def _admitted(call: Call) -> Client:
    """Step 3: a place on the key's client."""
    actor = call.actor
    binding = call.binding
    pool = actor.pool
    definition = binding.definition
    admit = m.Admit(
        call.ticket,
        True,
        binding.context,
        binding.epoch,
        call.list,
        call.generation,
        None if definition is None else definition.name,
        None if definition is None else definition.digest,
        call.chain,
    )
    if not actor.machine.would_grant:
        holders_of_key(call)
        pool.room.check(call.tenant, "the key has no place free")
    call.ticket_out = True
    reply = post(actor, admit)
    client: Client
    if reply.done:
        client = taken(reply)
    else:
        opens = actor.machine.client is None
        call.reply = reply
        pool.waiting += 1
        if call.chain:
            pool.openings.refuse_circles(actor)
        try:
            with pool.room.seat(call.tenant):
                client = await through(call, "admission", reply.wait(), holds=True)
        except BaseException as error:
            note_opening(call, error)
            raise
        finally:
            call.reply = None
            pool.waiting -= 1
        if opens:
            call.use.opening = client.opening
    call.held = True
    return client


async def _seated(call: Call) -> None:
    """Wait for the runtime's admission while holding the key's place."""
    actor = call.actor
    pool = actor.pool
    places = pool.admission
    holders_of_pool(call)
    check_places(call)
    pool.room.check(call.tenant, f"{places.used} calls run (max_in_flight {pool.limits.max_in_flight})")
    seat = places.wait(actor.server.name, call.tenant, actor.key, call.chain)
    call.reply = seat.reply
    try:
        with pool.room.seat(call.tenant):
            await through(call, "runtime-admission", seat.reply.wait())
    except BaseException:
        places.give_up(seat)
        raise
    finally:
        call.reply = None


async def _adopt(call: Call) -> None:
    """The client is not the incarnation that the tool was listed from: decide by its own fresh list."""
    actor = call.actor
    definition = call.definition
    current = actor.machine.client
    if current is None or current.handle is not call.client:
        # It went between the grant of the place and this step, when the call had no client to look at yet.
        call.recheck("granted", gate=False)
    assert current is not None
    state = current.list
    assert state is not None
    state.look_at(current.handle.shown)
    if not state.settled(actor.pool.seams.now()):
        await _relist(call, state)
    if not state.shows(definition.name, definition.digest):
        raise call.stale(state)
    call.list = state
    call.generation = state.generation
    call.use.list_id = state.id
    call.use.generation = state.generation
    call.recheck("adopted", gate=False)


def _list_failed(error: AfpoolError) -> OpenFailed:
    return OpenFailed(
        f"the tool list had to be asked for again and was not received ({error.code}); "
        "nothing of the call was sent",
        retry_after=error.retry_after,
        http_status=error.http_status,
    )


async def through(call: Call, stage: str, waiting: Awaitable[T], *, holds: bool = False) -> T:
    """Wait for something on behalf of a call, and come back through a recheck.

    Where the awaited thing failed and the call's ground is gone as well, the refusal is the outcome and the
    failure a fact of it. `holds` marks a wait whose value is a place: it is noted before anything can raise.
    """
    try:
        if call.reply is not None:
            call.use.waits_for = stage
            value = await waiting  # a reply slot: the deadline and every interruption fail it directly
            call.use.waits_for = None
        else:
            with call.bounded(stage, gate=False):
                value = await waiting
    except AfpoolError as error:
        try:
            call.recheck(stage, gate=False)
        except AfpoolError as refusal:
            if error is not call.interrupted and refusal.code != error.code:
                call.use.note(stage, error.code, call.actor.pool.seams.now())
            raise
        call.use.note(stage, error.code, call.actor.pool.seams.now())
        raise
    except Exception as error:
        call.use.note(stage, type(error).__name__, call.actor.pool.seams.now())
        call.recheck(stage, gate=False)
        raise ActorCrashed(f"afpool failed while the call waited ({stage}); nothing was sent") from error
    if holds:
        call.held = True
    call.recheck(stage, gate=False)
    return value

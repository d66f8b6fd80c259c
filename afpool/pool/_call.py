"""One call of a bound tool: what it was listed under, what it holds, and the recheck.

`recheck` is one synchronous read of committed state. It is used after every wait and as every gate; it
never queues and no pause blocks it. The first predicate that fails is the refusal. In this order:

1. the pool is open
2. the key was not closed, revoked or reconfigured (epoch), and has not crashed
3. the leased client is still the key's, and alive
4. the caller identity, asked again, encodes to the key
5. the list that decides is current: the one that the tool was listed from, or the one adopted since
6. `share` gives the recorded name
7. the plan context is equal
8. the call was not withdrawn
9. the deadline lies ahead

Before the first byte a recheck refuses. After it, it only files facts: an answer that came is the caller's.

Invariants held here: I2 (nothing leaves after a gate has closed: `ask` is this recheck), I5 (predicate 5),
and that a place is given back once (`ticket_out`, `held`).
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, final

import trio

from .._base.errors import (
    IN_DOUBT,
    NOT_SENT,
    REFUSED,
    ActorCrashed,
    AfpoolError,
    BindingChanged,
    ClientClosed,
    DeadlineExceeded,
    LocalSessionHandleLostError,
    PoolClosed,
    ServerRefused,
    StaleTools,
)
from ._asking import ask_share, check_identity
from ._causes import compare
from ._refusals import epoch_over, other_plan, pool_closing, revoked, shown_otherwise, stale

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

    from actors import Reply

    from .._base.credential import Credential
    from .._base.definition import Definition
    from .._base.model import ToolContext
    from .._base.use import Use
    from ..client import Client, Errand, Trip
    from ..client._running import Running
    from ._actor import KeyActor
    from ._bound import Binding
    from ._bound_server import ServerBinding
    from ._events import Event
    from ._lists import ListState, Shown


@final
class Call:
    """A call on its way. Implements the gate that the wire asks, and the caller that an attempt works for.

    Attributes:
        begun: The kernel took a byte of the last attempt's request.
        client: The leased client, once there is one.
        errand: What is asked instead of a tool call, on a bound server; such a call stands on no list.
        call_id_key: Under which `_meta` key the call's id goes out; `None` sends it nowhere.
        list: The list that decides now, and `generation`, what it was when it was taken for true.
        trip: The request under way, or the last one.
        questions: How many rounds were answered with a question; after one, part of the tool may have run.
        tenant: Whose places it takes, as its caller identity said.
        operation: What requests of the server belong to, where its client is asked to keep that.
        interrupted: Set when somebody ends the call from outside; raised where it waits.
    """

    __slots__ = (
        "actor",
        "actor_epoch",
        "args",
        "begun",
        "binding",
        "call_id_key",
        "chain",
        "checked_at",
        "client",
        "deadline",
        "entered",
        "errand",
        "generation",
        "held",
        "identity",
        "interrupted",
        "list",
        "on_credential",
        "on_progress",
        "operation",
        "questions",
        "reply",
        "scope",
        "tenant",
        "ticket",
        "ticket_out",
        "trip",
        "use",
    )  # fmt: skip

    def __init__(
        self,
        binding: Binding | ServerBinding,
        args: bytes,
        ctx: ToolContext,
        deadline: float,
        use: Use,
        ticket: int,
    ) -> None:
        self.binding = binding
        self.actor: KeyActor = binding.actor
        self.actor_epoch = self.actor.epoch
        self.args = args
        self.identity = ctx.identity
        self.tenant: str | None = None
        self.on_progress = ctx.on_progress
        self.on_credential = ctx.on_credential
        self.chain = ctx.chain
        self.deadline = deadline
        self.checked_at = 0.0  # when the last recheck was, on the runtime's clock
        self.use = use
        self.ticket = ticket
        self.ticket_out = False  # the actor knows the ticket: it has to be settled
        self.held = False  # the ticket is a place
        self.entered = False  # the runtime's admission counts it
        self.begun = False
        self.questions = 0
        self.operation: Running | None = None
        self.client: Client | None = None
        self.trip: Trip | None = None
        self.reply: Reply[Any] | None = None
        self.scope: trio.CancelScope | None = None
        self.interrupted: AfpoolError | None = None
        self.errand: Errand | None = None
        self.call_id_key = self.actor.server.call_id_key
        listed = binding.list
        self.list: ListState | None = listed if listed is not None and listed.alive else None
        self.generation = binding.generation

    # ------------------------------------------------------------------ the recheck

    def recheck(self, stage: str, *, gate: bool = True) -> None:
        """Raise the refusal if anything that the call stands on has changed.

        Args:
            stage: What was waited for, or the boundary that is asked.
            gate: Whether an announced but unseen list change refuses too. Not so before admission, where
                the list is asked for again instead.
        """
        actor = self.actor
        pool = actor.pool
        now = self.checked_at = pool.seams.now()
        self.use.marks += (stage, now)
        if pool.closing:
            raise pool_closing(pool)
        binding = self.binding
        machine = actor.machine
        if actor.epoch != self.actor_epoch:
            raise ActorCrashed(
                "the actor of this key crashed; nothing was sent; call again", delivery=NOT_SENT
            ).because(actor.crashed)
        if machine.closed:
            raise PoolClosed("the key is closed; nothing was sent", delivery=NOT_SENT).because(pool.closed_by)
        if machine.epoch != binding.epoch:
            raise epoch_over(machine, binding.epoch).because(actor.cause)
        client = self.client
        if client is not None:
            live = machine.client
            if live is None or live.handle is not client or client.lost is not None:
                raise self._client_gone(client)
        if callable(self.identity):
            check_identity(actor, self.identity, binding.keyed_on)
        listed = self.list
        if listed is not None:
            self.check_list(listed, gate=gate)
        if pool.share is not None or binding.authorization is not None:
            self.check_share()
        if client is not None and client.context != binding.context:
            raise other_plan().because(actor.replanned)
        if self.interrupted is not None:
            raise self.interrupted
        if now >= self.deadline:
            raise self.late()

    def check_list(self, listed: ListState, *, gate: bool) -> None:
        """Raise unless the list still stands behind the call."""
        if not listed.alive:
            if self.client is None:
                self.list = None  # its client was replaced while the call waited: decided by definition
                return
            raise self.stale(listed)
        if listed.generation != self.generation:
            definition = self.definition
            if not self.actor.machine.limits.recheck_lists or not listed.shows(
                definition.name, definition.digest
            ):
                raise self.stale(listed)
        if gate and listed.noticed:
            raise self.stale(listed)
        client = self.client
        if client is not None and listed.contradicted(client.shown):
            self._check_shown(client.shown)

    def _check_shown(self, shown: Shown) -> None:
        """Raise unless what the client received last, for another name, shows the same tool (L5)."""
        definition = self.definition
        if not shown.catalog.shows(definition.name, definition.digest):
            compare(self, shown.filed)
            raise shown_otherwise().because(shown.filed.event)

    def stale(self, listed: ListState) -> StaleTools:
        """Make the refusal of a call whose list is not true any more, or not known to be."""
        client = self.client
        gone = None if listed.alive or client is None else client.ended
        compare(self, listed)
        return stale(self.generation, listed.generation).because(listed.event if gone is None else gone)

    def check_share(self, event: Event | None = None) -> None:
        """Raise unless the app's `share` still gives the name that the tool was listed under.

        `event` is what made it give another one, where that is known.
        """
        actor = self.actor
        name = ask_share(actor)
        if name != self.binding.authorization:
            raise BindingChanged(
                "the authorization name of this identity has changed; nothing was sent; list the tools again"
            ).because(actor.share_is(name, event))

    def _client_gone(self, client: Client) -> AfpoolError:
        # a place is held on it, so nobody retired it in order: it was killed, lost, or another plan took over
        if client.retired is not None:
            return ClientClosed(
                f"the client was closed ({client.retired}); nothing was sent; call again", delivery=NOT_SENT
            ).because(client.ended)
        if client.lost is not None:
            return LocalSessionHandleLostError(
                f"the client ended before the request was sent ({client.lost}); nothing was sent; call again",
                delivery=NOT_SENT,
            ).because(client.ended)
        return BindingChanged(
            "the plan for this identity has changed while the call waited; nothing was sent; "
            "list the tools again"
        ).because(self.actor.replanned)

    # ------------------------------------------------------------------ the gate

    def ask(self, stage: str, /) -> None:
        """Be the send gate: raise if the request may not cross this boundary."""
        # only asked before an attempt's first byte; what an earlier attempt sent was answered `refused`
        self.begun = False
        if self.use.waits_for == "server":
            self.use.waits_for = None
        self.recheck(stage)

    def failed(self, stage: str, word: str) -> None:
        """Raise the refusal if the gate is closed too after a failed wait; the failure is then a fact."""
        try:
            self.recheck(stage)
        except AfpoolError as refusal:
            if refusal.code != word:
                self.use.note(stage, word, self.actor.pool.seams.now())
            raise

    def look_back(self) -> None:
        """File what has changed since the request left; the answer that came is the caller's all the same."""
        self.use.waits_for = None
        try:
            self.recheck("answered")
        except AfpoolError as change:
            self.use.note("answered", change.code, self.actor.pool.seams.now())

    def began(self) -> None:
        """Take note that the first byte left; from here on nothing refuses."""
        self.begun = True
        use = self.use
        use.marks += ("sent", self.actor.pool.seams.now())
        use.waits_for = "server"

    def still_wanted(self) -> None:
        """Raise where the rest of an answer that broke off may not be asked for: nobody stands behind it.

        The request has left, so nothing of a list or of the configuration counts here, and no error of this
        leaves the client layer.
        """
        if self.actor.machine.revoked > self.binding.epoch:
            raise revoked().because(self.actor.cause)
        who = self.identity
        if callable(who):
            check_identity(self.actor, who, self.binding.keyed_on)

    @property
    def definition(self) -> Definition:
        """The tool's listed definition."""
        definition = self.binding.definition
        assert definition is not None
        return definition

    def started(self, body_bytes: int) -> None:
        """A further attempt begins: its first phase starts anew."""
        self.begun = False
        use = self.use
        use.attempts += 1
        use.bytes_out = body_bytes
        use.request_id = getattr(self.trip, "request_id", None)
        assert self.client is not None
        use.waits_for = self.client.channel.first_wait

    def carries(self, credential: Credential, /) -> None:
        """Tell whoever shows the answer to others what its server was sent."""
        if self.on_credential is not None:
            self.on_credential(credential)

    def noted(self, stage: str, word: str, /) -> None:
        """Take note of something that does not decide by itself how the call ends."""
        self.use.note(stage, word, self.actor.pool.seams.now())

    def questioned(self) -> None:
        """Take note that the server answered with a question."""
        self.questions += 1

    def relist(self) -> Awaitable[None] | None:
        """Get a fresh list after the server found headers and body to differ; the gate then compares."""
        from ._flights import ensure_settled

        listed = self.list
        if listed is None or not listed.alive:
            return None
        listed.unsettle("header mismatch")
        return ensure_settled(
            self.actor, listed, self.binding.context, self.binding.authorization, self.client
        )

    # ------------------------------------------------------------------ ends from outside

    def late(self) -> DeadlineExceeded:
        """Make the error of a passed deadline, with the verdict of this moment."""
        if self.begun:
            return DeadlineExceeded(
                "the deadline passed while the server worked; the request was sent and may take effect",
                delivery=IN_DOUBT,
            )
        return DeadlineExceeded(
            "the deadline passed before the request was sent; nothing was sent", delivery=NOT_SENT
        )

    def on_deadline(self) -> None:
        """Wake the call where it waits; called by the runtime's heap."""
        self.interrupt(self.late())

    def may_move(self, error: AfpoolError) -> bool:
        """Whether it may go on on another incarnation after this failure.

        So it is where the server speaks another protocol version than its client, and where the verdict
        proves that nothing ran: the server refused it for that, or it never left since its client was over.
        """
        return (
            self.client is not None
            and self.client.outdated
            and self.interrupted is None
            and error.delivery in (NOT_SENT, REFUSED)
            and isinstance(error, (ServerRefused, LocalSessionHandleLostError))
        )

    def interrupt(self, error: AfpoolError) -> None:
        """End the call from outside, synchronously; the task of the call raises `error` where it waits."""
        if self.interrupted is not None:
            return
        self.interrupted = error
        if self.reply is not None:
            self.reply.fail(error)
        if self.scope is not None:
            self.scope.cancel()
        elif self.trip is not None and self.reply is None:
            self.trip.wake()

    def woken(self, *, gate: bool = True) -> AfpoolError:
        """Say why the call was woken out of a wait; called where the wake-up arrives."""
        if not self.begun:
            try:
                # the first predicate that fails is the refusal, also now
                self.recheck(self.use.waits_for or "woken", gate=gate)
            except AfpoolError as refusal:
                return refusal
        return self.interrupted or self.late()

    @contextlib.contextmanager
    def bounded(self, stage: str, *, gate: bool = True) -> Iterator[None]:
        """Bound a wait that afpool does not do itself by the deadline, and let it be interrupted.

        `gate` as for `recheck`, whichever follows the wait.
        """
        self.begun = False  # as in `ask`
        self.use.waits_for = stage
        with trio.CancelScope(deadline=self.deadline) as scope:
            self.scope = scope
            try:
                yield
                self.use.waits_for = None
            finally:
                self.scope = None
        if scope.cancelled_caught:
            raise self.woken(gate=gate)

    def __repr__(self) -> str:
        what = self.use.tool if self.errand is None else self.errand.method
        return f"<Call {self.use.call_id} {self.use.server}/{what}{' begun' if self.begun else ''}>"

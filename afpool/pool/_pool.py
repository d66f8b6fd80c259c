"""The pool: the map from key to actor, and what the app does with it."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

import trio

from .._base.errors import (
    NOT_SENT,
    PoolClosed,
)
from .._base.fair import FairPlaces
from .._base.identity import CallerIdentity, Identity, KeyDigest, PoolKey, encode_key, project
from ..client import ClientSettings
from . import _ends, _operators
from ._actor import KeyActor
from ._admission import WaitingRoom, share_of
from ._asking import ask_identity
from ._background import Background
from ._bound_server import BoundServer, bind_server
from ._catalogs import Catalogs
from ._deadlines import Deadlines
from ._herald import Herald
from ._janitor import Janitor
from ._listing import list_servers, warm_up
from ._openings import Openings
from ._outputs import Outputs
from ._records import Records
from ._reload import checked_servers, limits_of, per_server, reconfigure
from ._shares import Shares
from ._statistics import CloseReport, PoolStatistics, statistics

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from types import EllipsisType

    from .._base.credential import CredentialProvider, NeedsAuthorization, Signer
    from .._base.seams import Seams
    from .._base.use import Use
    from ._again import InDoubtCallback, Passes
    from ._bound import Toolset
    from ._call import Call
    from ._events import Event
    from ._herald import ChangeCallback, LogCallback, ToolsCallback
    from ._reload import Reconfigured
    from ._server import Limits, PlanFunction, Server, ShareFunction

T = TypeVar("T")


MAP_KEPT: Final = 1024  # keys that a map may be sized for without being made anew


@final
class Pool:
    """Key actors of several servers. Made by `open_pool`; every method belongs to its trio thread.

    Attributes:
        limits: As given.
        closing: No call is accepted any more.
        records: Rings of uses and events.
        background: Its nursery, and how it is left.
    """

    def __init__(
        self,
        servers: Iterable[Server],
        *,
        plan: PlanFunction | None,
        share: ShareFunction | None,
        credentials: CredentialProvider | None,
        signer: Signer | None,
        secret: bytes | None,
        on_use: Callable[[Use], object] | None,
        on_authorization: Callable[[str, Identity, NeedsAuthorization], object] | None,
        on_in_doubt: InDoubtCallback | None,
        on_log: LogCallback | None,
        on_change: ChangeCallback | None,
        on_tools: ToolsCallback | None = None,
        client_name: str,
        client_version: str,
        seams: Seams,
        limits: Limits,
    ) -> None:
        self.servers = checked_servers(servers, plan)
        self.plan = plan
        self.share = share
        self.on_in_doubt = on_in_doubt
        self.herald = Herald(self, on_log, on_change, on_tools)
        self.limits = limits
        self.seams = seams
        self.digest = KeyDigest(secret)
        self.context_secret = secret or os.urandom(32)
        self.catalogs = Catalogs(seams)
        self.outputs = Outputs(seams)
        self.running: dict[int, Call] = {}
        self.records = Records(limits.records, limits.record_bytes, seams.now, self.running, on_use)
        self.deadlines = Deadlines()
        self.admission = FairPlaces(
            limits.max_in_flight,
            per_tenant=share_of(limits.max_in_flight, limits.max_share),
            per_server=per_server(limits, self.servers),
        )
        self.room = WaitingRoom(limits.max_waiting_total, limits.max_share)
        self.shares = Shares(seams.next_id)
        self.openings = Openings(self)
        # Dicts where a set would do: what is gone through in order has the same order in every run.
        self.between: dict[Passes, None] = {}  # of calls in doubt that wait to be asked for again
        self.waiting = 0
        self.settling = 0
        self.handed: dict[int, Use] = {}  # by ticket: calls that have ended and whose place has not
        self.inside: dict[int, Use] = {}  # by ticket: calls that hold one of the runtime's places
        self.abandoned = 0
        self.closing = False
        self.closed_by: Event | None = None
        self.held_servers: dict[str, Event] = {}
        self.reconfigured = 0
        # Actors with something to live for; the others live by their tools.
        self.kept: dict[KeyActor, None] = {}
        self._actors: weakref.WeakValueDictionary[PoolKey, KeyActor] = weakref.WeakValueDictionary()
        self._most_keys = 0
        self.janitor = Janitor(self)
        self.background = Background(self)
        self.key_limits = limits_of(limits, self.servers)  # one object per server, shared by its keys
        self.client_settings = ClientSettings(
            seams=seams,
            credentials=credentials,
            signer=signer,
            on_authorization=on_authorization,
            client_name=client_name,
            client_version=client_version,
            max_operations=limits.max_operations,
            max_message=limits.max_message,
            max_pages=limits.max_pages,
            keepalive_expiry=limits.keepalive_expiry,
            control_timeout=limits.close_timeout,
            notices=self.herald.notices,
        )

    # ------------------------------------------------------------------ the public face

    @trio.lowlevel.enable_ki_protection
    async def tools(
        self,
        identity: CallerIdentity,
        server: str | None = None,
        *,
        deadline: float | None = None,
        refresh: bool = False,
    ) -> Toolset:
        """List the tools of an identity; from memory where the lists in hand are settled.

        Args:
            identity: Who the tools are for: an `Identity`, or a callable that returns one.
            server: One server's name; all servers, at once, when absent. Of several, one that cannot be
                listed costs its own tools only and is named in `Toolset.problems`.
            deadline: Absolute, seconds on trio's clock; the pool's default from now when absent.
            refresh: Ask the server again whatever is known, and try a failed opening at once.

        Raises:
            AfpoolError: `identity-missing`, `identity-mismatch`, `plan-failed`, `open-failed` and the other
                refusals; of several servers only when none could be listed.
            LookupError: There is no server of that name.

        A checkpoint. Cancelled while it waits, it leaves a running opening or listing to whoever else waits.
        """
        await trio.lowlevel.checkpoint()
        until = self.seams.now() + self.limits.deadline if deadline is None else deadline
        names = list(self.servers) if server is None else [server]
        return await list_servers(self, names, identity, until, refresh=refresh)

    async def refresh(
        self, identity: CallerIdentity, server: str | None = None, *, deadline: float | None = None
    ) -> Toolset:
        """Ask the server for the list again, and try a failed opening at once; otherwise as `tools`."""
        return await self.tools(identity, server, deadline=deadline, refresh=True)

    @trio.lowlevel.enable_ki_protection
    async def bind(
        self, identity: CallerIdentity, server: str, *, deadline: float | None = None
    ) -> BoundServer:
        """Bind a server for an identity: its resources, prompts, completions and log level.

        Opens the identity's client if there is none, so that the server's capabilities are known.

        Args:
            identity: Who it is for: an `Identity`, or a callable that returns one.
            server: The server's name.
            deadline: Absolute, seconds on trio's clock; the pool's default from now when absent.

        Raises:
            AfpoolError: `identity-missing`, `identity-mismatch`, `plan-failed`, `open-failed` and the other
                refusals.
            LookupError: There is no server of that name.

        A checkpoint. Cancelled while it waits, it leaves a running opening to whoever else waits.
        """
        await trio.lowlevel.checkpoint()
        until = self.seams.now() + self.limits.deadline if deadline is None else deadline
        return await bind_server(self.actor_for(server, identity), identity, until)

    @trio.lowlevel.enable_ki_protection
    async def warm(self, identity: CallerIdentity, servers: Iterable[str] | None = None) -> None:
        """Open the clients of an identity ahead of need, all at once.

        Raises:
            AfpoolError: The first failure, after all were tried.
            LookupError: There is no server of one of the names; nothing was opened.
        """
        names = list(self.servers if servers is None else servers)
        await trio.lowlevel.checkpoint()
        await warm_up(self, names, identity)

    @trio.lowlevel.enable_ki_protection
    def invalidate(
        self,
        *,
        identity: Identity | None = None,
        server: str | None = None,
        key: PoolKey | None = None,
        reason: str = "invalidated",
        by: str | None = None,
    ) -> int:
        """Close every gate of what is named, in this instant; returns how many keys were hit.

        Raises the epoch of each key, so that every binding of it refuses `binding-changed`; ends calls that
        have not been sent; closes clients once what was sent has settled. Synchronous.

        Args:
            identity: Every key whose fields equal the fields that this identity names. Fields that it does
                not name match anything: a user without a conversation is all conversations of that user.
            server: Every key of that server (of that identity, when both are given).
            key: Exactly that key.
            reason: A word for the record.
            by: Who asked, for the record.

        Raises:
            ValueError: Nothing was named.
        """
        return _ends.invalidate(self, identity, server, key, reason, by)

    @trio.lowlevel.enable_ki_protection
    def reconfigure(
        self,
        servers: Iterable[Server],
        *,
        plan: PlanFunction | EllipsisType | None = ...,
        share: ShareFunction | EllipsisType | None = ...,
        credentials: CredentialProvider | EllipsisType | None = ...,
        limits: Limits | None = None,
        replan: Iterable[str] | None = None,
        rebind: Iterable[str] = (),
        by: str | None = None,
    ) -> Reconfigured:
        """Put another configuration into force, in this instant. Synchronous, all or nothing.

        Servers that stay as they are notice nothing. Bindings of one that changes refuse `binding-changed`,
        calls of it that were not sent are refused, what was sent keeps its answer; unless only what concerns
        bindings has changed, its clients are closed once that has settled. One that is not named any more
        ends likewise, and cannot be listed; a new one is there at the next listing.

        Args:
            servers: All of them, as `open_pool`; none are allowed.
            plan: As `open_pool`, `...` as it is.
            share: As `open_pool`, `...` as it is. Asked at every gate from now on.
            credentials: As `open_pool`, `...` as it is. Another one changes every server that may need one.
            limits: Those from now on; `max_message`, `max_pages` and `keepalive_expiry` are of clients that
                are opened from now on.
            replan: Names of servers without a plan of their own for which `plan` gives other plans from now
                on. Absent: all of them if `plan` is another one (by `==`), else none.
            rebind: Names of servers whose bindings end although nothing that the pool knows of has changed.
            by: Who asked, for the record.

        Raises:
            PoolClosed: The pool is closed.
            ValueError: Two servers of one name, one without a plan, or a limit that cannot be changed while
                the pool is open.
            TypeError: Something is not of its kind.
        """
        others: dict[str, Any] = {"plan": plan, "share": share, "credentials": credentials}
        return reconfigure(self, servers, **others, limits=limits, replan=replan, rebind=rebind, by=by)

    def cancel(self, call_id: str, reason: str = "withdrawn by its host", *, by: str | None = None) -> bool:
        """Withdraw a running call; its caller gets `cancelled` with the true verdict. Synchronous.

        Args:
            call_id: Of the call.
            reason: What the caller and the record are told.
            by: Who asked, for the record.

        Returns:
            Whether there was such a call.
        """
        return _ends.cancel(self, call_id, reason, by)

    # What operators do: each is filed as an event, with `by`, who asked. All raise `LookupError` where there
    # is no such key, or no such server.

    @trio.lowlevel.enable_ki_protection
    def pause(self, key: PoolKey, *, by: str | None = None) -> None:
        """Hold admission of a key; what runs goes on."""
        _operators.pause(self, self._existing(key), by)

    @trio.lowlevel.enable_ki_protection
    def resume(self, key: PoolKey, *, by: str | None = None) -> None:
        """End `pause`: admit again, unless the whole server is held."""
        _operators.resume(self, self._existing(key), by)

    @trio.lowlevel.enable_ki_protection
    def pause_server(self, name: str, *, by: str | None = None) -> int:
        """Hold admission of every key of a server, also of those that do not exist yet.

        What runs goes on, and lists are still answered.

        Returns:
            How many keys there are now.
        """
        return _operators.pause_server(self, name, by)

    @trio.lowlevel.enable_ki_protection
    def resume_server(self, name: str, *, by: str | None = None) -> int:
        """End `pause_server`; a key that is held by itself stays so."""
        return _operators.resume_server(self, name, by)

    async def drain(self, key: PoolKey, *, by: str | None = None) -> None:
        """Hold admission of a key until what runs has settled, then replace its client on demand."""
        await _operators.drain(self, self._existing(key), by)

    @trio.lowlevel.enable_ki_protection
    def evict(self, key: PoolKey, *, by: str | None = None) -> bool:
        """Close the client of a key if nobody uses it; returns whether it is being closed."""
        return _operators.evict(self, self._existing(key), by)

    @trio.lowlevel.enable_ki_protection
    def kill(self, client_id: int, *, by: str | None = None) -> bool:
        """Close a client at once; calls on it end with `client-closed` and their true verdict."""
        return _ends.kill(self, client_id, by)

    def actor_shown(self, shown: str) -> KeyActor:
        """The actor of the key that is shown as this digest; the beginning of one is enough where it is one.

        Raises:
            LookupError: There is none, or several begin so.
        """
        return _operators.shown_as(self, shown)

    def key_of(self, identity: Identity, server: str) -> PoolKey:
        """Encode the key of an identity at a server.

        Raises:
            IdentityMissing: It names none of the fields that the server is keyed on.
            LookupError: There is no server of that name.
        """
        named = self.server(server)
        return encode_key(named.name, identity, named.keyed_on)

    def statistics(self) -> PoolStatistics:
        """Numbers of this moment; synchronous, no key in clear."""
        self._tidy()
        return statistics(self, list(self._actors.values()))

    @trio.lowlevel.enable_ki_protection
    async def aclose(self) -> CloseReport:
        """Leave: refuse new calls, let sent ones settle, close clients, within `close_timeout`.

        Shielded: it is done within the bound also when the caller is cancelled, even again. A ^C while it
        waits ends what is left at once, and is raised when all is closed. Idempotent; a checkpoint.
        """
        return await self.background.leave()

    # ------------------------------------------------------------------ keys

    def server(self, name: str) -> Server:
        """The server of a name.

        Raises:
            LookupError: There is none.
        """
        try:
            return self.servers[name]
        except KeyError:
            raise LookupError(f"there is no server {name!r}; there are {sorted(self.servers)}") from None

    def actor_for(self, name: str, identity: CallerIdentity) -> KeyActor:
        """The actor of an identity's key at a server, made if there is none."""
        server = self.server(name)
        if self.closing:
            raise PoolClosed("the pool is closed; nothing was sent", delivery=NOT_SENT)
        identity = ask_identity(identity)
        key = encode_key(server.name, identity, server.keyed_on)
        actor = self._actors.get(key)
        if actor is None:
            self._tidy()
            actor = self._actors[key] = KeyActor(self, server, key, project(identity, server.keyed_on))
        return actor

    def _tidy(self) -> None:
        """Make the map of keys anew when nearly all that it was made for are forgotten: dicts only grow."""
        alive = len(self._actors)
        self._most_keys = max(self._most_keys, alive)
        if self._most_keys > MAP_KEPT and alive * 4 < self._most_keys:
            self._actors = weakref.WeakValueDictionary(self._actors)
            self._most_keys = alive

    def _existing(self, key: PoolKey) -> KeyActor:
        actor = self._actors.get(key)
        if actor is None:
            raise LookupError("there is no such key now")
        return actor

    def actor_of(self, key: PoolKey) -> KeyActor | None:
        """The actor of a key, if it has one now."""
        return self._actors.get(key)

    def actors(self) -> list[KeyActor]:
        """Every key actor that lives now."""
        return list(self._actors.values())

    def forget(self, actor: KeyActor) -> None:
        """Let go of an actor that takes nothing any more: its key gets another when it is asked for again."""
        self.keep(actor, keep=False)
        if self.knows(actor):
            del self._actors[actor.key]

    def knows(self, actor: KeyActor) -> bool:
        """Whether it is the actor of its key."""
        return self._actors.get(actor.key) is actor

    def keep(self, actor: KeyActor, *, keep: bool) -> None:
        """Hold an actor while it has something to live for; inspect it only then."""
        if keep:
            self.kept[actor] = None
        else:
            self.kept.pop(actor, None)
        actor.observe(keep)

    # ------------------------------------------------------------------ record

    def file(self, use: Use) -> None:
        """File the facts of an ended call; it has given back what it held."""
        self.records.file(use)
        if self.closing:
            self.background.look()

    def event(self, kind: str, actor: KeyActor | None, *, server: str = "", **facts: Any) -> Event:
        """File a numbered event of a key, of a server or of the whole pool; facts as `Event` names them."""
        if actor is None:
            return self.records.event(kind, "", server, **facts)
        return self.records.event(kind, actor.shown, actor.server.name, **facts)

    # ------------------------------------------------------------------ tasks

    @property
    def closed(self) -> trio.Event:
        """Set when the pool has been left."""
        return self.background.closed

    @property
    def can_spawn(self) -> bool:
        """Whether the runtime still takes tasks."""
        return self.background.running

    def spawn(self, fn: Callable[..., Awaitable[object]], *args: object) -> None:
        """Run background work; see `Background.spawn`."""
        self.background.spawn(fn, *args)

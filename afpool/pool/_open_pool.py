"""Opening a pool: for the time of a block, or in a task of somebody's nursery.

* The app's block and the background work are in different nurseries. Leaving ends the background work and
  never the block; a cancelled block does not cancel what has to settle behind it.
* An exception of the block leaves as itself, never in a group, after everything is closed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import trio

from .._base.entering import protected_block
from .._base.seams import Seams
from .._base.version import own_version
from ._pool import Pool
from ._server import Limits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from .._base.credential import CredentialProvider, NeedsAuthorization, Signer
    from .._base.identity import Identity
    from .._base.use import Use
    from ._again import InDoubtCallback
    from ._herald import ChangeCallback, LogCallback, ToolsCallback
    from ._server import PlanFunction, Server, ShareFunction


@protected_block
async def open_pool(
    servers: Iterable[Server],
    *,
    plan: PlanFunction | None = None,
    share: ShareFunction | None = None,
    credentials: CredentialProvider | None = None,
    signer: Signer | None = None,
    secret: bytes | None = None,
    on_use: Callable[[Use], object] | None = None,
    on_authorization: Callable[[str, Identity, NeedsAuthorization], object] | None = None,
    on_in_doubt: InDoubtCallback | None = None,
    on_log: LogCallback | None = None,
    on_change: ChangeCallback | None = None,
    on_tools: ToolsCallback | None = None,
    client_name: str = "afpool",
    client_version: str | None = None,
    seams: Seams | None = None,
    **limits: Any,
) -> AsyncIterator[Pool]:
    """Open a pool for the time of the block.

    Args:
        servers: What the app says about each server.
        plan: `plan(server, projection)` gives the `Plan` for an identity; sync or async. Asked at each
            opening and at each list that goes to the wire.
        share: `share(server, projection)` gives an authorization name or `None`; synchronous. Those who
            have the name see the same tools, by the app's promise.
        credentials: Vends what plans require.
        signer: Adds headers to each HTTP request, last of all.
        secret: Key of the digests that stand for keys and contexts; made up for the process when absent.
        on_use: Called with the `Use` of every ended call.
        on_authorization: Called with the server's name, the projection and what is needed when somebody has
            to authorize first; the only place where the address goes. Synchronous.
        on_in_doubt: Called with the `Use` of a tool call that ended in doubt, of a server with
            `repeat="recognised"`; answers `raise` or `repeat`. Synchronous.
        on_log: Called with the server's name, the projection and each `LogMessage`. Synchronous; runs in a
            task of the pool's. Of a flood the newest are kept.
        on_change: Called with the server's name, the projection and `resources` or `prompts` when a server
            announces that this list of its has changed; several announcements may be one call.
        on_tools: Called with the server's name and a projection when that identity's tools may be others now:
            its server announced so, or what would have announced it was lost. For a list that several share,
            once for each. Nothing has been asked for yet. A runtime calls it also when a server has answered
            that somebody's list had to go without (`list_patience`).
        client_name: Told to servers.
        client_version: Told to servers.
        seams: Clock, random, ids, network, threads.
        limits: Fields of `Limits`.

    Leaving refuses new calls, lets sent ones settle and closes clients, within `close_timeout`, also when
    the block is cancelled. An exception of the block leaves as itself, never in a group.
    """
    pool = Pool(
        servers,
        plan=plan,
        share=share,
        credentials=credentials,
        signer=signer,
        secret=secret,
        on_use=on_use,
        on_authorization=on_authorization,
        on_in_doubt=on_in_doubt,
        on_log=on_log,
        on_change=on_change,
        on_tools=on_tools,
        client_name=client_name,
        client_version=client_version or own_version(),
        seams=_on_this_clock(Seams() if seams is None else seams),
        limits=Limits(**limits),
    )
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        try:
            await pool.background.begin(nursery)
            yield pool
        except BaseException as error:  # noqa: BLE001 -- raised below, as itself and after all is closed
            failure = error
        try:
            await pool.aclose()
        except KeyboardInterrupt as error:
            error.__context__ = failure
            failure = error
    # The nursery's one task has ended, so that leaving it neither waits nor raises.
    if failure is not None:
        try:
            raise failure
        finally:
            failure = None


async def run_pool(
    servers: Iterable[Server],
    options: Mapping[str, Any] | None = None,
    *,
    task_status: trio.TaskStatus[Pool] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Keep a pool open in a task, for callers that cannot nest: `await nursery.start(run_pool, servers)`.

    Args:
        servers: As `open_pool`.
        options: The other arguments of `open_pool`.
        task_status: Given the pool.

    Runs until cancelled or until `Pool.aclose` was called.
    """
    async with open_pool(servers, **(options or {})) as pool:
        task_status.started(pool)
        await pool.closed.wait()


def _on_this_clock(seams: Seams) -> Seams:
    """Ask the run's clock directly: `trio.current_time` looks it up at every call."""
    if seams.now is trio.current_time:
        seams = attrs.evolve(seams, now=trio.lowlevel.current_clock().current_time)
    return seams

"""Tool calls of clients: through the one door of the runtime, for whoever proved who they are.

Rules:

* A call is made for the caller as the proof says him, asked anew at every recheck: a token that is revoked
  meanwhile is refused at the next gate.
* A name means the tool that this client was shown. A session keeps its list; in the stateless era the
  identity's latest list counts. What was shown and is another tool by now is refused (`stale-tools`) until
  the client has listed again; where only the list around it changed, the next call finds the fresh one.
* Whatever becomes of a call is a result, with its word and its verdict; errors of the protocol are left to
  what is no call at all.
* A call ends with its client. What it held is given back by then, whichever way it ended.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import secrets
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, final

import trio
from mcp.shared.inbound import InboundLadderRejection, find_invalid_x_mcp_header, validate_mcp_param_headers
from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY, URL_ELICITATION_REQUIRED
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from .._base.errors import ElicitationRequired, Overloaded, ServerError
from .._base.untraced import place_of
from .._base.use import Use
from ..runtime._run import OUTDATED, as_problem
from ..tools import binding_of
from ..tools._derive import held_input_schema
from ..tools._results import error_result
from ._asked import Asked
from ._questions import Waiting, can_be_asked
from ._results import write_result
from ._rpc import INTERNAL_ERROR, INVALID_PARAMS, REFUSED, RpcError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from .._base.identity import Identity
    from .._base.model import ToolResult
    from ..runtime import Runtime, RuntimeToolset
    from ._door_limits import DoorLimits
    from ._links import Links
    from ._questions import Questions

logger = logging.getLogger("afpool.serve")

VIEWS_KEPT: Final = 10_000
VIEW_IDLE: Final = 600.0
REFUSED_EVERY: Final = 1.0
REFUSED_KEPT: Final = 1_000

_X_HEADER: Final = b"x-mcp-header"


@final
class Offer:
    """What a client, or an identity, was last shown.

    Attributes:
        toolset: The tools.
        mirrored: Tool to the schema by which its arguments are mirrored in headers, once it was looked for.
        used_at: On trio's clock.
    """

    __slots__ = ("mirrored", "toolset", "used_at")

    def __init__(self, toolset: RuntimeToolset) -> None:
        self.toolset = toolset
        self.mirrored: dict[str, Any] = {}
        self.used_at = trio.current_time()


@final
class Calls:
    """The calls of one service.

    Args:
        runtime: Whose tools are called.
        limits: How many at once, and how often.
        questions: Who is asked what a server wants to know.
        links: Names of linked resources.
        nursery: Where calls run that may outlive the request that began them.
        info: What the service says about itself.
    """

    def __init__(
        self,
        runtime: Runtime,
        limits: DoorLimits,
        questions: Questions,
        links: Links,
        nursery: trio.Nursery,
        info: Mapping[str, Any],
    ) -> None:
        self.runtime = runtime
        self.limits = limits
        self.running = 0
        self._questions = questions
        self._links = links
        self._nursery = nursery
        self._info = info
        self._prefix = secrets.token_hex(6)
        self._number = 0
        self._views: OrderedDict[Identity, Offer] = OrderedDict()
        self._idle: trio.Event | None = None
        self._refused_at: OrderedDict[tuple[str | None, str | None, str], float] = OrderedDict()

    # ------------------------------------------------------------------ lists

    async def offer(self, asked: Asked, *, shown: bool) -> Offer:
        """Give the tools of a request's caller.

        Args:
            asked: The request.
            shown: Whether they are listed to the client, and are what it means from now on.

        Raises:
            AfpoolError: As `Runtime.toolset`.
            TypeError: As `Runtime.toolset`.
        """
        session = asked.session
        identity = asked.proven.identity
        if not shown:
            if session is not None and session.offer is not None:
                return session.offer
            view = self._views.get(identity)
            if view is not None:
                view.used_at = trio.current_time()
                return view
        offer = Offer(await self.runtime.toolset(asked.proven.caller))
        if shown and session is not None:
            session.offer = offer
        self._views[identity] = offer
        self._views.move_to_end(identity)
        if len(self._views) > VIEWS_KEPT:
            self._views.popitem(last=False)
        return offer

    def sweep(self, now: float) -> None:
        """Forget what identities were shown that nobody has been for a while."""
        for identity in [who for who, view in self._views.items() if now - view.used_at > VIEW_IDLE]:
            del self._views[identity]

    def forget(self) -> None:
        """Let every identity of the stateless era find its tools afresh."""
        self._views.clear()

    async def idle(self) -> None:
        """Wait until no call is under way."""
        while self.running:
            self._idle = trio.Event()
            await self._idle.wait()

    # ------------------------------------------------------------------ calls

    async def call(self, asked: Asked) -> bytes:
        """Answer `tools/call`; see the module.

        Returns:
            The result, raw JSON.

        Raises:
            RpcError: It is no call, or a limit is reached.
        """
        params = asked.message.params
        name = params.get("name")
        args = params.get("arguments")
        if not isinstance(name, str):
            raise RpcError(INVALID_PARAMS, "a call names its tool; nothing was run")
        if args is not None and not isinstance(args, dict):
            raise RpcError(INVALID_PARAMS, "the arguments of a call are an object; nothing was run")
        if asked.version not in MODERN_PROTOCOL_VERSIONS:
            return await self._run(asked, asked, name, args)
        if params.get("requestState") is not None:
            return await self._follow(self._questions.resume(params["requestState"], asked, name))
        if asked.headers is not None:
            await self._check_headers(asked, asked.headers, name, args or {})
        if not (can_be_asked(asked, "form") or can_be_asked(asked, "url")):
            return await self._run(asked, asked, name, args)
        waiting = Waiting(asked)
        self._nursery.start_soon(self._run_waiting, waiting, name, args)
        return await self._follow(waiting)

    async def _follow(self, waiting: Waiting) -> bytes:
        try:
            return await waiting.outcome()
        except trio.Cancelled:
            # its client has gone, and has no question that it could come back with an answer to
            waiting.scope.cancel()
            raise

    async def _run_waiting(self, waiting: Waiting, name: str, args: Any) -> None:
        failure: RpcError | None = RpcError(REFUSED, "the call was ended; whether it ran is not known")
        result: bytes | None = None
        try:
            with waiting.scope:
                result = await self._run(waiting.asked, waiting, name, args)
                failure = None
        except RpcError as error:
            failure = error
        except Exception as error:  # noqa: BLE001 -- a fault of ours; its text may hold anything
            kind, where = type(error).__name__, place_of(error.__traceback__)
            logger.error("a call failed outside of the door: %s (%s)", kind, where)  # noqa: TRY400 -- its text may hold anything
            failure = RpcError(INTERNAL_ERROR, "the service failed at this request; it may have run")
        finally:
            waiting.end(result, failure)

    @contextlib.asynccontextmanager
    async def counted(self, asked: Asked, call: tuple[str, str, float] | None = None) -> AsyncIterator[None]:
        """Hold a place of the caller's for the time of the block, and let a drain wait for it.

        Args:
            asked: What the caller asked.
            call: Its id, the name of its tool and when it began, for the record, if a limit refuses it.

        Raises:
            RpcError: A limit is reached. Nothing was run.
        """
        self.running += 1
        try:
            async with self.limits.call(asked.proven.identity):
                yield
        except Overloaded as error:
            if call is not None:
                self._file_refused(asked.proven.identity, *call, error)
            raise RpcError(
                REFUSED, error.message, {"code": error.code}, status=429, retry_after=error.retry_after
            ) from None
        finally:
            self.running -= 1
            if not self.running and self._idle is not None:
                self._idle.set()

    def _file_refused(
        self, who: Identity, call_id: str, name: str, began_at: float, error: Overloaded
    ) -> None:
        """Put a call that a limit of the service refused on record, at most one a second of each caller.

        Whoever hammers at the door would push everybody else's calls out. `show door` counts all of them.
        """
        stage, limit = error.noted or ("limit", "")
        now = self.runtime.seams.now()
        caller = (who.tenant, who.principal, limit)
        if now < self._refused_at.get(caller, float("-inf")) + REFUSED_EVERY:
            return
        self._refused_at[caller] = now
        self._refused_at.move_to_end(caller)
        while len(self._refused_at) > REFUSED_KEPT:
            self._refused_at.popitem(last=False)
        use = Use(call_id, "", "", began_at)
        # whether there is such a tool nobody has looked: no metric is to be named after it
        use.name, use.who = name, who
        use.outcome, use.code, use.delivery = "refused", error.code, error.delivery
        use.note(stage, limit, now)
        records = self.runtime.pool.records
        records.begin(use)
        records.file(use)

    async def _run(self, asked: Asked, call: Asked | Waiting, name: str, args: Any) -> bytes:
        self._number += 1
        call_id = f"{self._prefix}-{self._number}"
        began_at = self.runtime.seams.now()
        self._questions.begin(call_id, call)
        try:
            async with self.counted(asked, (call_id, name, began_at)):
                result, source = await self._dispatch(asked, call, name, args, call_id)
        finally:
            self._questions.end(call_id)
        return self._written(asked, result, source)

    async def _dispatch(
        self, asked: Asked, call: Asked | Waiting, name: str, args: Any, call_id: str
    ) -> tuple[ToolResult, str | None]:
        try:
            offer = await self.offer(asked, shown=False)
            if asked.session is None and name not in offer.toolset:
                # the identity may have been given other tools since it was last shown any
                self._views.pop(asked.proven.identity, None)
                offer = await self.offer(asked, shown=False)
        except Exception as error:  # noqa: BLE001 -- a call gives a result, whatever the listing ran into
            return error_result(as_problem(error), call_id), None
        tell = asked.tell_progress if isinstance(call, Asked) else call.tell_progress
        toolset = offer.toolset
        result = await self.runtime.through(
            toolset,
            name,
            args,
            identity=asked.proven.caller,
            call_id=call_id,
            on_progress=tell if asked.wants_progress else None,
        )
        asked.tool = name if name in toolset else None
        if result.is_error:
            asked.failed = "tool_error" if result.error is None else result.code
        source = None if asked.tool is None else toolset[name].source
        if result.code in OUTDATED:
            await self._outdated(asked, offer, name)
        return result, source

    async def _outdated(self, asked: Asked, offer: Offer, name: str) -> None:
        """See that a client finds its tools again, unless the one that it meant is another one now."""
        identity = asked.proven.identity
        if self._views.get(identity) is offer:
            del self._views[identity]
        session, toolset = asked.session, offer.toolset
        if session is None or session.offer is not offer or name not in toolset:
            return
        before = binding_of(toolset[name])
        try:
            fresh = await self.runtime.toolset(asked.proven.caller)
        except Exception:  # noqa: BLE001 -- the call has its result; the next one says what is wrong
            return
        again = fresh.at(toolset.place_of(name))
        binding = None if again is None else binding_of(again)
        if before is None or binding is None or session.offer is not offer:
            return
        if binding.definition.digest == before.definition.digest:
            session.offer = Offer(fresh)

    def _written(self, asked: Asked, result: ToolResult, source: str | None) -> bytes:
        error = result.error
        if isinstance(error, ElicitationRequired) and can_be_asked(asked, "url"):
            told = [
                {"mode": "url", "elicitationId": one.elicitation_id, "url": one.url, "message": one.message}
                for one in error.elicitations
            ]
            raise RpcError(
                URL_ELICITATION_REQUIRED, "an address has to be visited first", {"elicitations": told}
            )
        if isinstance(error, ServerError) and error.error_code == MISSING_REQUIRED_CLIENT_CAPABILITY:
            _ask_for_capabilities(asked, error.data)
        link: Callable[[str], str] | None = None
        if source is not None:
            link = functools.partial(self._links.make, asked.proven.identity, source)
        return write_result(result, asked.version, self._info, link)

    async def _check_headers(
        self, asked: Asked, headers: Mapping[str, str], name: str, args: Mapping[str, Any]
    ) -> None:
        """Refuse a call whose headers say something else than its arguments (2026-07-28, over HTTP).

        Raises:
            RpcError: They do.
        """
        try:
            offer = await self.offer(asked, shown=False)
        except Exception:  # noqa: BLE001 -- the call itself says what is wrong
            return
        known = offer.mirrored
        if name not in known:
            known[name] = None
            tool = offer.toolset.get(name)
            binding = None if tool is None else binding_of(tool)
            if tool is not None and (binding is None or _X_HEADER in binding.definition.raw):
                schema = held_input_schema(tool)
                known[name] = schema if find_invalid_x_mcp_header(schema) is None else None
        if known[name] is None:
            return
        verdict = validate_mcp_param_headers(known[name], args, headers)
        if isinstance(verdict, InboundLadderRejection):
            raise RpcError(verdict.code, verdict.message, verdict.data)


def _ask_for_capabilities(asked: Asked, data: object) -> None:
    """Tell a client which capability a server wants of it, in the way of its era, where it has not said it.

    Raises:
        RpcError: It has not.
    """
    wanted = data.get("requiredCapabilities") if isinstance(data, dict) else None
    if asked.version not in MODERN_PROTOCOL_VERSIONS or not isinstance(wanted, dict):
        return
    missing = {name: value for name, value in wanted.items() if name not in asked.capabilities}
    if missing:
        raise RpcError(
            MISSING_REQUIRED_CLIENT_CAPABILITY,
            "the tool's server wants a capability that this client has not declared",
            {"requiredCapabilities": missing},
        )

"""What each method of MCP is answered with. What it came by, and who sent it, is known by then.

The SDK's server says what the protocol says: the handshake and its versions, `server/discover`, capabilities,
the form of parameters and results in each revision, what is not a method. Two methods have lanes past it,
since they are nearly all the traffic: `tools/call`, whose result goes out as the bytes that came, and
`tools/list`, where one tool without a form must not cost the others.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, cast, final

import msgspec
import trio
from mcp.server.connection import Connection
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.runner import ServerRunner
from mcp.shared.exceptions import MCPError
from mcp_types import SERVER_INFO_META_KEY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from .._base.errors import IdentityMissing
from .._base.untraced import place_of
from .._base.version import own_version
from ..runtime._run import as_problem
from ._listed import list_toolset
from ._rpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    REFUSED,
    RpcError,
    error_message,
    result_message,
)
from ._turns import Turns

if TYPE_CHECKING:
    from ._asked import Asked
    from ._calls import Calls
    from ._kept import Resources
    from ._listening import Listening
    from ._spans import Spans

logger = logging.getLogger("afpool.serve")

NAME: Final = "afpool"
LISTS_AT_ONCE: Final = 16
"""Of one principal; what he asks for beyond waits."""
_CALL: Final = "tools/call"
_LIST: Final = "tools/list"
_PING: Final = "ping"
_LISTEN: Final = "subscriptions/listen"
_NOTIFICATIONS: Final = frozenset(
    {
        "notifications/cancelled", "notifications/initialized", "notifications/progress",
        "notifications/roots/list_changed",
    }
)  # fmt: skip
_write = msgspec.json.encode


@final
class Kernel:
    """Answers requests.

    Args:
        calls: Lists and calls tools.
        resources: Lists and reads resources.
        listening: Streams of the stateless era on which changes are told.
        info: What the service says about itself.
        spans: What traces requests, if anything does.
    """

    def __init__(
        self,
        calls: Calls,
        resources: Resources,
        listening: Listening,
        info: dict[str, Any],
        spans: Spans | None = None,
    ) -> None:
        self._spans = spans
        self._calls = calls
        self._resources = resources
        self._listening = listening
        self._info = info
        self._lists = Turns(LISTS_AT_ONCE)
        self._server = self._make_server()
        self._options = self._server.create_initialization_options(NotificationOptions(tools_changed=True))

    def runner(self) -> ServerRunner[Any]:
        """Make the SDK's kernel for one session of the handshake era."""
        connection = Connection.for_loop(_NOWHERE)
        return ServerRunner(self._server, connection, None, init_options=self._options)

    async def respond(self, asked: Asked) -> tuple[bytes, RpcError | None]:
        """Answer a request.

        Returns:
            The response message, raw JSON, and the error that it tells of, if any.

        Raises nothing but cancellation.
        """
        spans = self._spans
        if spans is None:
            return await self._respond(asked)
        spanned = spans.begin(asked, trio.current_time())
        failed: str | None = "cancelled"
        try:
            answer, error = await self._respond(asked)
            failed = asked.failed if error is None else str(error.code)
            return answer, error
        finally:
            spans.end(spanned, asked, trio.current_time(), failed)

    async def _respond(self, asked: Asked) -> tuple[bytes, RpcError | None]:
        try:
            return result_message(asked.message.id_raw, await self._result(asked)), None
        except RpcError as failure:
            error = failure
        except MCPError as failure:
            error = RpcError(failure.error.code, failure.error.message, failure.error.data)
        except ValidationError:
            error = RpcError(INVALID_PARAMS, "the parameters are not what the method takes; nothing was run")
        except IdentityMissing as failure:
            error = RpcError(REFUSED, failure.message, {"code": failure.code})
        except Exception as failure:  # noqa: BLE001 -- a fault of ours
            # what it says may hold anything, and so may a method's name
            kind, where = type(failure).__name__, place_of(failure.__traceback__)
            logger.error("a request failed inside of the service: %s (%s)", kind, where)  # noqa: TRY400 -- as above
            error = RpcError(INTERNAL_ERROR, "the service failed at this request; it may have run")
        return error_message(asked.message.id_raw, error), error

    async def _result(self, asked: Asked) -> bytes:
        method = asked.message.method
        modern = asked.version in MODERN_PROTOCOL_VERSIONS
        session = asked.session
        if (
            session is not None
            and method != "initialize"
            and not session.runner.connection.initialize_accepted
        ):
            raise RpcError(INVALID_REQUEST, "a session begins with `initialize`; nothing was run")
        if method == _CALL:
            return await self._calls.call(asked)
        if method == _LIST:
            async with self._lists.turn(asked.proven.identity):
                return await self._list(asked, modern=modern)
        if method == _PING and not modern:
            return b"{}"
        if method == _LISTEN and modern:
            return await self._listening.serve(asked, self._info)
        if session is None:
            capabilities = asked.capabilities
            connection = Connection.from_envelope(asked.version, None, capabilities)
            runner = ServerRunner(self._server, connection, None)
        else:
            runner = session.runner
        assert method is not None
        params = asked.message.params
        return _write(await runner.on_request(cast("Any", asked), method, params or None))

    async def notified(self, asked: Asked) -> None:
        """Take a notification of a session of the handshake era."""
        assert asked.session is not None
        assert asked.message.method is not None
        if asked.message.method not in _NOTIFICATIONS:
            return  # the SDK would log its name
        await asked.session.runner.on_notify(
            cast("Any", asked), asked.message.method, asked.message.params or None
        )

    # ------------------------------------------------------------------ lists

    async def _list(self, asked: Asked, *, modern: bool) -> bytes:
        try:
            offer = await self._calls.offer(asked, shown=True)
        except Exception as error:  # noqa: BLE001 -- what a listing ran into is told by its word
            problem = as_problem(error)
            raise RpcError(REFUSED, problem.message, {"code": problem.code}) from None
        meta = {SERVER_INFO_META_KEY: self._info} if modern else {}
        listed = await list_toolset(offer.toolset, version=asked.version)
        return listed.page(asked.message.params.get("cursor"), modern=modern, meta=meta)

    # ------------------------------------------------------------------ the SDK's server

    def _make_server(self) -> Server[Any]:
        async def lane(_: Any, __: Any) -> Any:
            raise NotImplementedError  # these have lanes of their own

        async def resources(ctx: Any, _: Any) -> Any:
            async with self._lists.turn(ctx.request.proven.identity):
                return await self._resources.list(ctx.request)

        async def templates(_: Any, __: Any) -> Any:
            return self._resources.templates()

        async def read(ctx: Any, _: Any) -> Any:
            async with self._calls.counted(ctx.request):
                return await self._resources.read(ctx.request)

        server: Server[Any] = Server(
            self._info["name"],
            version=self._info["version"],
            cache_hints={},
            on_list_tools=lane,
            on_call_tool=lane,
            on_list_resources=resources,
            on_list_resource_templates=templates,
            on_read_resource=read,
            on_subscriptions_listen=lane,
        )
        server.middleware.clear()  # spans are made where calls are recorded
        return server


class _Nowhere:
    """Where the SDK's kernel would speak to a client by itself: it does not."""

    async def send_raw_request(self, method: str, params: Any, opts: Any = None) -> dict[str, Any]:
        """Refuse."""
        raise NotImplementedError

    async def notify(self, method: str, params: Any, opts: Any = None) -> None:
        """Drop."""


_NOWHERE: Final = _Nowhere()


def server_info() -> dict[str, Any]:
    """What the service says about itself."""
    return {"name": NAME, "version": own_version()}

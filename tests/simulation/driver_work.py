"""What a story asks of the pool: lists, calls, operations on bound servers, subscriptions, operators' work.

Each runs in a task of its own and files how it began and how it ended. Whatever the pool raises that is no
`AfpoolError` is filed under a code of its own, which no check lets pass.
"""

from __future__ import annotations

import contextvars
import json
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

import afpool
from tests.simulation import steps as s
from tests.simulation.checks_lists import canonical
from tests.simulation.driver_look import looked_up
from tests.simulation.driver_steps import Skip
from tests.simulation.driver_watch import chain_of
from tests.simulation.ground import NOBODY, Began, Bound, Ended, Hung
from tests.simulation.ground_why import Drained, Draining

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from afpool import BoundServer, BoundTool
    from afpool.pool import Binding
    from tests.simulation.driver import Run
    from tests.simulation.driver_host import Caller

CALL: Final[contextvars.ContextVar[str | None]] = contextvars.ContextVar("simulated call", default=None)
"""The call whose task this is."""


@attrs.define(eq=False)
class Handle:
    """Tools of one server that were handed out; holding it keeps their key."""

    number: int
    tools: dict[str, BoundTool]


@attrs.define(eq=False)
class Hands:
    """What the people of a world hold: bound tools and bound servers, oldest first, by person and server."""

    handles: dict[tuple[str, str], list[Handle]] = attrs.field(factory=dict)
    servers: dict[tuple[str, str], list[BoundServer]] = attrs.field(factory=dict)
    numbers: int = 0

    def drop(self, who: str | None) -> None:
        """Forget what somebody holds, or everybody."""
        for held in (self.handles, self.servers):
            for pair in list(held):
                if who in {None, pair[0]}:
                    del held[pair]


def progress_of(how: str) -> Callable[[Any], None] | None:
    """A progress callback of the host's."""

    def progress(item: Any) -> None:
        if how == "raises":
            raise RuntimeError("the host's own")

    return None if how == "none" else progress


class Work:
    """Carries out the work of a story.

    Args:
        run: The run that it belongs to.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.hands = Hands()
        self.open: dict[str, Ended | None] = {}
        self.last_refusal = ""
        self._scopes: dict[str, trio.CancelScope] = {}
        self._canonical: dict[str, str] = {}

    async def do(self, step: s.Step) -> None:
        """Carry out one step of work."""
        match step:
            case s.ListTools():
                await self._list(step)
            case s.Call():
                await self._call(step)
            case s.AskServer():
                await self._ask(step)
            case s.Subscribe():
                await self._subscribe(step)
            case s.Warm():
                identity = self.run.identity(step.who)
                await self.ask("warm", lambda: self.run.pool.warm(identity, step.servers or None))
            case s.Refresh():
                await self._listed(step.who, step.server, refresh=True, what="refresh")
            case s.DrainKey():
                await self._drain(step)
            case _:
                await self.run.at_door(step)

    # ------------------------------------------------------------------ lists

    async def _list(self, step: s.ListTools) -> None:
        with trio.CancelScope() as scope:
            if step.cancel_after is not None:
                scope.deadline = trio.current_time() + step.cancel_after
            await self._listed(
                step.who, step.server, refresh=step.refresh, deadline=step.deadline, live=step.live
            )

    async def _listed(
        self,
        who: str,
        server: str | None,
        *,
        refresh: bool = False,
        deadline: float | None = None,
        what: str = "list",
        live: bool = False,
    ) -> bool:
        """List tools and keep them; whether it came to that."""
        run = self.run
        before = len(run.ground.facts) - 1
        until = None if deadline is None else trio.current_time() + deadline

        async def ask() -> Any:
            pool, identity = run.pool, run.host.caller(who) if live else run.identity(who)
            if refresh:
                return await pool.refresh(identity, server, deadline=until)
            return await pool.tools(identity, server, deadline=until)

        gone, changes = server in run.configuration.gone, run.configuration.changes
        toolset = await self.ask(what, ask)
        if gone and changes == run.configuration.changes and self.last_refusal != "no such server":
            run.failures.append(f"E4 {server} is not configured, and was listed ({self.last_refusal})")
        if toolset is None or (live and not run.host.caller(who).is_who):
            return False  # none, or those of whoever the live identity named instead
        run.failures += [f"E5 {what}" for what in looked_up(toolset)]
        for name, error in toolset.problems.items():
            run.counts[f"listing:{error.code}"] += 1
            run.shown.append(f"problem of {name}: {error!r} {error}")
        by_server: dict[str, dict[str, BoundTool]] = {}
        for tool in toolset.values():
            by_server.setdefault(tool.source, {})[tool.name] = tool
        for name, tools in by_server.items():
            self._bound(who, name, tools, before)
        return True

    def _bound(self, who: str, server: str, tools: dict[str, BoundTool], before: int) -> None:
        run, hands = self.run, self.hands
        hands.numbers += 1
        binding = next(iter(tools.values())).binding
        run.ground.file(
            Bound(
                tools=hands.numbers,
                key=run.key(who, server),
                context=binding.context,
                name=binding.authorization,
                shared=binding.shared,
                epoch_from=before,
                definitions={name: self.text_of(server, tool.binding) for name, tool in tools.items()},
            )
        )
        hands.handles.setdefault((who, server), []).append(Handle(hands.numbers, tools))

    def text_of(self, server: str, binding: Binding) -> str:
        """The canonical text of what is bound."""
        definition = binding.definition
        text = self._canonical.get(definition.digest)
        if text is None:
            without = self.run.story.world.server(server).compare_without
            text = canonical(json.loads(bytes(definition.raw)), without)
            self._canonical[definition.digest] = text
        return text

    async def ask(self, what: str, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Ask the pool for what is no call; None where it refuses."""
        run = self.run
        try:
            return await ask()
        except afpool.AfpoolError as error:
            run.counts[f"{what}:{error.code}"] += 1
            run.counts[f"outcome:{error.code}"] += 1
            run.sim.note(f"{what}: {error.code} {error.delivery}")
            self.last_refusal = error.code
            self._show(error)
        except LookupError as error:
            if not run.configuration.gone:
                run.failed(what, error)
            run.counts[f"{what}:no such server"] += 1
            self.last_refusal = "no such server"
        except Exception as error:
            run.failed(what, error)
        return None

    def _show(self, error: BaseException) -> None:
        self.run.shown += chain_of(error)

    # ------------------------------------------------------------------ calls

    async def _tool(self, step: s.Call) -> tuple[Handle, BoundTool] | None:
        pair = (step.who, step.server)
        held = self.hands.handles.get(pair, [])
        if step.binding == "listed" or not held:
            if not await self._listed(step.who, step.server):
                self.run.counts["no call: not listed"] += 1
                return None
            held = self.hands.handles.get(pair, [])
        if not held:
            self.run.counts["no call: nothing listed"] += 1
            return None
        at = {"first": 0, "previous": -2}.get(step.binding, -1)
        handle = held[max(at, -len(held))]
        tool = handle.tools.get(step.tool)
        return None if tool is None else (handle, tool)

    async def _call(self, step: s.Call) -> None:
        run = self.run
        found = await self._tool(step)
        if found is None:
            run.counts["skipped:call"] += 1
            return
        handle, tool = found
        caller, label, whose = self._caller(step.caller or step.who, step.server, live=step.live)
        deadline = None if step.deadline is None else trio.current_time() + step.deadline
        args: Any = {"region": "eu", **step.args, "mark": f"mark-of-{step.id}."}
        if step.bad_args:
            args = ["no", "object"]

        async def ask() -> Any:
            result = await tool.call(
                args,
                identity=caller,
                deadline=deadline,
                call_id=step.id,
                on_progress=progress_of(step.progress),
                chain=run.tickets(step.inside),
            )
            return result.raise_for_error() if step.raise_for_error else result

        began = Began(
            call=step.id,
            tools=handle.number,
            key=run.key(step.who, step.server),
            tool=step.tool,
            caller=label,
            who=whose,
            deadline=trio.current_time() + run.limit("deadline") if deadline is None else deadline,
            mark=f"mark-of-{step.id}.",
            repeats=run.story.world.server(step.server).repeat == "recognised",
        )
        await self._operate(began, ask, step.cancel_after)

    def _caller(self, name: str, server: str, *, live: bool) -> tuple[Any, str | None, str | None]:
        """A caller identity, its label where it is a live one, and the key of one that is not."""
        run = self.run
        if name == "nobody":
            return None, None, NOBODY
        if live:
            caller: Caller = run.host.caller(name)
            return caller, name, None
        return run.identity(name), None, run.key(name, server)

    async def _operate(
        self, began: Began, ask: Callable[[], Awaitable[Any]], cancel_after: float | None
    ) -> Any:
        """Make a call, and file how it began and ended."""
        run, call = self.run, began.call
        token = CALL.set(call)
        run.ground.file(began)
        self.open[call] = None
        with trio.CancelScope() as scope:
            self._scopes[call] = scope
            if cancel_after is not None:
                run.sim.nursery.start_soon(self._hang_up, call, cancel_after)
            try:
                return await self._ended(call, ask)
            finally:
                CALL.reset(token)
        return None

    async def _ended(self, call: str, ask: Callable[[], Awaitable[Any]]) -> Any:
        run = self.run
        text: str | None = None
        try:
            result = await ask()
            run.whys.answered(call)
            if isinstance(result, afpool.ToolResult):
                text = result.text  # decoded when it is read
        except afpool.AfpoolError as error:
            self._file_end(
                Ended(
                    call=call,
                    code=error.code,
                    delivery=error.delivery,
                    error=type(error).__name__,
                    status=error.http_status,
                    retry_after=error.retry_after,
                    error_code=getattr(error, "error_code", None),
                )
            )
            self._show(error)
        except trio.Cancelled:
            self._file_end(Ended(call=call, code="caller-cancelled", delivery=None))
            raise
        except Exception as error:
            self._file_end(Ended(call=call, code=f"raised {type(error).__name__}", delivery=None))
            run.failed(f"call {call}", error)
        else:
            code = "tool-error" if text is not None and result.is_error else "ok"
            self._file_end(Ended(call=call, code=code, delivery="answered", text=text))
            return result
        return None

    def _file_end(self, ended: Ended) -> None:
        self.open[ended.call] = self.run.ground.file(ended)
        self.run.whys.ended(ended.call, ended.code)
        counts = self.run.counts
        counts["calls"] += 1
        counts[f"outcome:{ended.code}"] += 1
        counts[f"verdict:{ended.delivery}"] += 1

    async def _hang_up(self, call: str, after: float) -> None:
        await trio.sleep(after)
        if self.open.get(call) is None:
            self.run.ground.file(Hung(call=call))
            self._scopes[call].cancel()

    # ------------------------------------------------------------------ bound servers

    async def _server(
        self, who: str, server: str, binding: str, deadline: float | None
    ) -> BoundServer | None:
        held = self.hands.servers.setdefault((who, server), [])
        if binding == "listed" or not held:
            until = None if deadline is None else trio.current_time() + deadline
            run = self.run
            found = await self.ask("bind", lambda: run.pool.bind(run.identity(who), server, deadline=until))
            if found is None:
                return None
            held = self.hands.servers.setdefault((who, server), [])
            held.append(found)
        bound: BoundServer = held[0 if binding == "first" else -1]
        return bound

    async def _ask(self, step: s.AskServer) -> None:
        run = self.run
        bound = await self._server(step.who, step.server, step.binding, step.deadline)
        if bound is None:
            run.counts["skipped:ask"] += 1
            return
        caller, label, whose = self._caller(step.caller or step.who, step.server, live=step.live)
        deadline = None if step.deadline is None else trio.current_time() + step.deadline
        how: dict[str, Any] = {
            "identity": caller,
            "deadline": deadline,
            "call_id": step.id,
            "on_progress": progress_of(step.progress),
        }
        name: Any = 7 if step.careless else step.name
        ref: Any = {"type": "ref/prompt", "name": step.name}
        so_far: Any = ("what", "v")
        if step.careless:
            ref, so_far = [("no ref", so_far), (ref, "what"), (ref, ("what", 7))][len(run.ground.facts) % 3]
        asked: Mapping[str, Callable[[], Awaitable[Any]]] = {
            "resources": lambda: bound.resources(**how),
            "templates": lambda: bound.resource_templates(**how),
            "read": lambda: bound.read_resource(name, **how),
            "prompts": lambda: bound.prompts(**how),
            "prompt": lambda: bound.get_prompt(step.name, {"what": name if step.careless else "it"}, **how),
            "complete": lambda: bound.complete(ref, so_far, **how),
            "log-level": lambda: bound.set_log_level(name or "info", **how),
        }
        began = self._began(step.id, step.who, step.server, step.what, label, whose, deadline)
        await self._operate(began, asked[step.what], step.cancel_after)

    def _began(
        self,
        call: str,
        who: str,
        server: str,
        what: str,
        label: str | None,
        whose: str | None,
        deadline: float | None,
    ) -> Began:
        run = self.run
        return Began(
            call=call,
            tools=-1,
            key=run.key(who, server),
            tool=what,
            caller=label,
            who=whose,
            deadline=trio.current_time() + run.limit("deadline") if deadline is None else deadline,
        )

    async def _subscribe(self, step: s.Subscribe) -> None:
        bound = await self._server(step.who, step.server, "latest", None)
        if bound is None:
            self.run.counts["skipped:subscribe"] += 1
            return
        caller, label, whose = self._caller(step.who, step.server, live=step.live)
        began = self._began(step.id, step.who, step.server, "subscribe", label, whose, None)
        subscription = await self._operate(
            began, lambda: bound.subscribe(step.uri, identity=caller, call_id=step.id), None
        )
        if subscription is None:
            return
        self.run.subscriptions[subscription] = None
        with trio.CancelScope() as scope:
            if step.close_after is not None:
                scope.deadline = trio.current_time() + step.close_after
            await self.ask("updates", lambda: self._read(subscription, step))
        if scope.cancelled_caught and step.how == "unsubscribe":
            ended = self._began(f"{step.id}.end", step.who, step.server, "unsubscribe", label, whose, None)
            how = {"identity": caller, "call_id": f"{step.id}.end"}
            await self._operate(ended, lambda: bound.unsubscribe(step.uri, **how), None)
        if scope.cancelled_caught:
            subscription.close()  # whoever was refused to unsubscribe lets go of it all the same
        self.run.subscriptions.pop(subscription, None)

    async def _read(self, subscription: Any, step: s.Subscribe) -> None:
        if step.how == "block":
            async with subscription:
                async for update in subscription:
                    self.run.updated(step, update)
        async for update in subscription:
            self.run.updated(step, update)

    # ------------------------------------------------------------------ operators

    async def _drain(self, step: s.DrainKey) -> None:
        run = self.run
        key = run.key(step.who, step.server)
        try:
            pool_key = run.pool_key(step.who, step.server)
            run.ground.file(Draining(key=key))
            await run.pool.drain(pool_key)
            run.ground.file(Drained(key=key))
        except (LookupError, Skip):
            run.counts["skipped:drain"] += 1
            return
        except afpool.AfpoolError as error:
            run.counts[f"drain:{error.code}"] += 1
            return
        await trio.sleep(step.resume_after)

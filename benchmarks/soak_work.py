"""What fifty identities do: calls of every kind, through every door, given up at random times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs
import trio
from soak_server import ON_STREAMS, SCRIPTED
from soak_world import KEYED_ON, WARY, spelled

from afpool import AfpoolError, ToolContext, open_runtime
from afpool.artifacts import NewArtifact
from afpool.tools import define_tool

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from soak_books import Asked, Books
    from soak_world import World

    from afpool import Identity, Runtime

PLAIN: Final = ("quick",) * 12 + ("slow",) * 5 + ("progress", "progress", "big", "error", "raise")
THINKS: Final = 0.6
"""Seconds that somebody thinks between two things, at most."""


@attrs.define(eq=False)
class Hold:
    """Holds everybody who acts, while a quiet moment is looked at."""

    quiet: bool = False
    over: bool = False
    _event: trio.Event = attrs.field(factory=trio.Event)

    def begin(self) -> None:
        self.quiet = True
        self._event = trio.Event()

    def end(self) -> None:
        self.quiet = False
        self._event.set()

    async def passed(self) -> bool:
        """Wait until it may go on; gives whether there is anything to go on with."""
        await trio.lowlevel.checkpoint()
        while self.quiet and not self.over:
            await self._event.wait()
        return not self.over


class Work:
    """Whoever calls.

    Attributes:
        runtime: What they call through; the toolsets that they hold are dropped at quiet moments.
        held: Toolsets that somebody holds.
        opened: How many runtimes of one identity alone are open.
    """

    def __init__(self, world: World, books: Books, hold: Hold, chance: random.Random) -> None:
        self.world = world
        self.books = books
        self.hold = hold
        self._chance = chance
        self.runtime: Runtime | None = None
        self.held: dict[Identity, Any] = {}
        self.opened = 0

    # ------------------------------------------------------------------ the callers

    async def live(self, who: Identity) -> None:
        """Do one thing after another until it is over."""
        assert self.runtime is not None
        await trio.sleep(self._chance.random() * THINKS)
        while await self.hold.passed():
            await self._something(self.runtime, who)
            await trio.sleep(self._chance.random() ** 2 * THINKS)

    async def _something(self, runtime: Runtime, who: Identity) -> None:
        chance = self._chance
        draw = chance.random()
        if draw < 0.06:
            await self._list(runtime, who, refresh=chance.random() < 0.4)
        elif draw < 0.09:
            self.held.pop(who, None)
        elif draw < 0.16:
            async with trio.open_nursery() as several:
                for _ in range(chance.randint(2, 6)):
                    several.start_soon(self.one_call, runtime, who)
        elif draw < 0.22:
            await self._nested(runtime, who)
        else:
            await self.one_call(runtime, who)

    async def _list(self, runtime: Runtime, who: Identity, *, refresh: bool) -> None:
        with trio.move_on_after(self._chance.choice((WARY, WARY, 0.01, 0.1))):
            try:
                if self._chance.random() < 0.5:
                    toolset = await runtime.toolset(who, refresh=refresh)
                    if self._chance.random() < 0.5:
                        self.held[who] = toolset
                else:
                    await runtime.pool.tools(who, self._chance.choice(tuple(KEYED_ON)), refresh=refresh)
            except AfpoolError as error:
                self.books.heard[f"list: {error.code}"] += 1

    # ------------------------------------------------------------------ calls

    def how(self, server: str) -> str:
        """What a call shall meet."""
        if self._chance.random() < 0.82:
            return self._chance.choice(PLAIN)
        return self._chance.choice(ON_STREAMS if server in {"wire", "desk"} else tuple(SCRIPTED))

    def arguments(self, asked: Asked) -> dict[str, Any]:
        """What a call carries."""
        more: dict[str, Any] = {}
        if asked.how == "slow":
            more["seconds"] = round(self._chance.random() * 0.8, 3)
        elif asked.how == "big":
            more["size"] = self._chance.choice((20_000, 100_000, 200_000, 400_000))
        return {"n": asked.number, "who": spelled(asked.who), "how": asked.how, **more}

    async def one_call(self, runtime: Runtime, who: Identity, servers: tuple[str, ...] = ()) -> None:
        """Make a call, through one of the doors; given up by its caller now and then."""
        chance = self._chance
        server = chance.choice(servers or tuple(KEYED_ON))
        asked = self.books.ask(who, server, self.how(server))
        tool = chance.choice(("do", "same", "same"))
        deadline = trio.current_time() + chance.choice((5.0, 5.0, 5.0, 1.0, 0.3, 0.05))
        patience = chance.random() * 0.3 if chance.random() < 0.15 else WARY
        told: Callable[[Any], object] | None = None
        if asked.how == "progress":
            told = self._progress(asked)
        heard: tuple[str, str | None, str | None] = ("left", None, None)
        with trio.move_on_after(patience) as scope:
            if chance.random() < 0.5:
                heard = await self._dispatched(runtime, asked, f"{server}__{tool}", deadline, told)
            else:
                heard = await self._bound(runtime, asked, tool, deadline, told)
        if scope.cancelled_caught and patience == WARY:
            self.books.broken(f"call {asked.number} ({asked.how} at {server}) was not answered in {WARY} s")
        self.books.end(asked, *heard)

    async def _dispatched(
        self, runtime: Runtime, asked: Asked, name: str, deadline: float, told: Any
    ) -> tuple[str, str | None, str | None]:
        toolset = self.held.get(asked.who)
        options: dict[str, Any] = {
            "call_id": str(asked.number), "deadline": deadline, "on_progress": told
        }  # fmt: skip
        if toolset is not None and runtime is self.runtime and name in toolset:
            result = await toolset.call(name, self.arguments(asked), **options)
        else:
            result = await runtime.dispatch(asked.who, name, self.arguments(asked), **options)
        return heard_of(result)

    async def _bound(
        self, runtime: Runtime, asked: Asked, tool: str, deadline: float, told: Any
    ) -> tuple[str, str | None, str | None]:
        try:
            tools = await runtime.pool.tools(asked.who, asked.server, deadline=deadline)
        except AfpoolError as error:
            # nothing was called: there is neither a use nor a verdict of a call
            asked.uses.append(("not-sent", 0))
            return f"list: {error.code}", "not-sent", None
        try:
            result = await tools[tool].call(
                self.arguments(asked),
                identity=asked.who,
                call_id=str(asked.number),
                deadline=deadline,
                on_progress=told,
            )
        except AfpoolError as error:
            return error.code, error.delivery, None
        return heard_of(result)

    def _progress(self, asked: Asked) -> Callable[[Any], object]:
        def told(step: Any) -> None:
            if step.message not in {None, f"call {asked.number}"}:
                self.books.broken(f"call {asked.number} was told of the progress of {step.message!r}")

        return told

    async def _nested(self, runtime: Runtime, who: Identity) -> None:
        """Call the host's own tool, which calls two servers' from inside, and stores what they said."""
        servers = self._chance.sample(tuple(KEYED_ON), 2)
        with trio.move_on_after(self._chance.choice((WARY, WARY, 0.2))):
            result = await runtime.dispatch(who, "relay", {"servers": servers, "whose": spelled(who)})
            self.books.heard[f"relay: {heard_of(result)[0]}"] += 1

    def relay(self) -> Any:
        """The host's own tool."""

        @define_tool
        async def relay(servers: list[str], whose: str, ctx: ToolContext) -> str:
            """Calls servers one after the other, and keeps what they answered."""
            who = next(each for each in self.world.people if spelled(each) == whose)
            texts = []
            for server in servers:
                asked = self.books.ask(who, server, self.how(server), inner=True)
                heard: tuple[str, str | None, str | None] = ("left", None, None)
                try:
                    result = await ctx.tools.call(f"{server}__same", self.arguments(asked))
                    asked.uses.append((result.delivery, 9))  # its use has an id of its own
                    heard = heard_of(result)
                    texts.append(result.text)
                finally:
                    self.books.end(asked, *heard)
            await ctx.artifacts.put(NewArtifact(kind="note", media_type="text/plain", data="\n".join(texts)))
            return "relayed"

        return relay

    # ------------------------------------------------------------------ one identity's own runtime

    async def come_and_go(self, who: Identity) -> None:
        """Open a runtime for one identity alone, call, and leave while calls run; again and again."""
        while await self.hold.passed():
            config = {
                "servers": [each for each in self.world.servers() if each.name in {"files", "wire"}],
                "plan": self.world.plan,
                "credentials": self.world.vault,
                "on_use": self.books.use,
                "qualify": "always",
                "pool": {"close_timeout": 2.0, "open_timeout": 5.0, "settle_timeout": 2.0},
            }
            self.opened += 1
            async with trio.open_nursery() as callers, open_runtime(**config) as runtime:
                for _ in range(4):
                    callers.start_soon(self._calls_until_closed, runtime, who)
                await trio.sleep(self._chance.random() * 2)
            self.opened -= 1
            await trio.sleep(self._chance.random())

    async def _calls_until_closed(self, runtime: Runtime, who: Identity) -> None:
        while not runtime.closed and not self.hold.quiet:
            await self.one_call(runtime, who, ("files", "wire"))


def heard_of(result: Any) -> tuple[str, str | None, str | None]:
    """What a result says: how it ended, the verdict, the text."""
    if result.error is not None:
        return result.error.code, result.delivery, None
    if result.is_error:
        return "tool-error", result.delivery, None
    return "ok", result.delivery, result.text

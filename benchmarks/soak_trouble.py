"""What befalls servers, keys and credentials in the soak, and who looks in from outside."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import attrs
import trio
from soak_world import KEYED_ON, NETWORK, WARY, owner
from trio_websocket import ConnectionClosed, wrap_client_stream

from afpool import AfpoolError

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from soak_books import Books
    from soak_work import Hold
    from soak_world import World

    from afpool import Runtime

SPELLINGS = ("404", "404-text", "400-json", "400-text")
LOOKS = (
    ["show", "overview"], ["show", "actors"], ["show", "servers"], ["show", "recent"], ["show", "events"],
    ["check"], ["show", "clients"],
)  # fmt: skip


class Trouble:
    """Chooses what happens next, and does it.

    Attributes:
        runtime: Whose.
        done: What was done how often.
        killed: Servers that were killed and have not come back; they do before a quiet moment.
    """

    def __init__(self, world: World, books: Books, hold: Hold, chance: random.Random) -> None:
        self.world = world
        self.books = books
        self.hold = hold
        self._chance = chance
        self.runtime: Runtime | None = None
        self.away: set[str] = set()
        self.done: dict[str, int] = {}
        self.busy = 0
        # each with its weight
        self._kinds: tuple[tuple[int, Callable[[], Awaitable[object]]], ...] = (
            (3, self.restart), (4, self.child), (6, self.forget), (6, self.change_list),
            (4, self.end_streams), (5, self.cut), (4, self.mood), (5, self.refuse), (6, self.rotate),
            (6, self.invalidate),
            (5, self.evict), (5, self.kill), (4, self.drain), (4, self.pause), (3, self.reconfigure),
            (4, self.withdraw), (4, self.console),
        )  # fmt: skip

    async def run(self, nursery: trio.Nursery) -> None:
        """One trouble after the other."""
        weights = [weight for weight, _ in self._kinds]
        kinds = [kind for _, kind in self._kinds]
        while await self.hold.passed():
            nursery.start_soon(self._one, self._chance.choices(kinds, weights)[0])
            await trio.sleep(self._chance.random() * 0.5)

    async def _one(self, kind: Callable[[], Awaitable[object]]) -> None:
        name = getattr(kind, "__name__", "?")
        self.busy += 1
        try:
            with trio.move_on_after(WARY) as scope:
                said = await kind()
            if scope.cancelled_caught:
                self.books.broken(f"{name} was not done in {WARY} s")
        except (AfpoolError, LookupError) as error:
            said = f"{type(error).__name__}: {error}"
        finally:
            self.busy -= 1
        self.done[name] = self.done.get(name, 0) + 1
        self.books.note(f"{name} {'' if said is None else said}")

    @property
    def _pool(self) -> Any:
        assert self.runtime is not None
        return self.runtime.pool

    def _key(self) -> Any:
        """One of the keys that are there."""
        keys = [actor.key for actor in self._pool.kept]
        if not keys:
            raise LookupError("there are no keys now")
        return self._chance.choice(keys)

    # ------------------------------------------------------------------ servers

    async def restart(self) -> str:
        """SIGKILL, and back after a while."""
        name = self._chance.choice(NETWORK)
        if name in self.away:
            return f"{name} is away"
        self.away.add(name)
        process = self.world.processes[name]
        process.kill()
        self.books.note(f"killed {name}")
        await trio.sleep(self._chance.random() * 1.5)
        await process.start()
        self.away.discard(name)
        return f"{name} is back"

    async def child(self) -> str:
        await trio.lowlevel.checkpoint()
        return "killed one" if self.world.end_a_child() else "there is none"

    async def forget(self) -> str:
        await trio.lowlevel.checkpoint()
        name, spelling = self._chance.choice(("files", "feed")), self._chance.choice(SPELLINGS)
        self.world.processes[name].tell(do="forget", spelling=spelling)
        return f"{name} {spelling}"

    async def change_list(self) -> str:
        await trio.lowlevel.checkpoint()
        name = self._chance.choice(NETWORK)
        self.world.processes[name].change_list()
        return name

    async def end_streams(self) -> str:
        await trio.lowlevel.checkpoint()
        name = self._chance.choice(("files", "feed", "open"))
        self.world.processes[name].tell(do="end-streams", graceful=self._chance.random() < 0.5)
        return name

    async def cut(self) -> str:
        await trio.lowlevel.checkpoint()
        name = self._chance.choice(NETWORK)
        if self._chance.random() < 0.5:
            self.world.processes[name].tell(do="cut", reset=self._chance.random() < 0.5)
        else:
            self.world.processes[name].tell(do="cut-idle")
        return name

    async def mood(self) -> str:
        await trio.lowlevel.checkpoint()
        name, status = self._chance.choice(NETWORK), self._chance.choice((401, 429, 429, 500))
        self.world.processes[name].tell(do="mood", status=status, seconds=self._chance.random())
        return f"{name} {status}"

    # ------------------------------------------------------------------ credentials

    async def refuse(self) -> str:
        """A server refuses a credential that is in use, from now on."""
        await trio.lowlevel.checkpoint()
        name = self._chance.choice(NETWORK)
        whose = owner(name, self._chance.choice(self.world.people))
        self.world.processes[name].tell(do="refuse", credential=f"Bearer {self.world.vault.spell(whose)}")
        return "/".join(whose)

    async def rotate(self) -> str:
        await trio.lowlevel.checkpoint()
        whose = owner(self._chance.choice(tuple(KEYED_ON)), self._chance.choice(self.world.people))
        self.world.vault.rotate(whose)
        return "/".join(whose)

    # ------------------------------------------------------------------ keys

    async def invalidate(self) -> str:
        await trio.lowlevel.checkpoint()
        who = self._chance.choice(self.world.people)
        draw = self._chance.random()
        if draw < 0.1:
            name = self._chance.choice(tuple(KEYED_ON))
            return f"{name}: {self._pool.invalidate(server=name)}"
        if draw < 0.5:
            return f"a key: {self._pool.invalidate(key=self._key())}"
        part = attrs.evolve(who, conversation_id=None) if draw < 0.7 else who
        return f"somebody: {self._pool.invalidate(identity=part)}"

    async def evict(self) -> str:
        await trio.lowlevel.checkpoint()
        return str(self._pool.evict(self._key()))

    async def kill(self) -> str:
        await trio.lowlevel.checkpoint()
        clients = list(self._pool.openings.clients)
        return str(bool(clients) and self._pool.kill(self._chance.choice(clients)))

    async def drain(self) -> None:
        key = self._key()
        try:
            await self._pool.drain(key)
        finally:
            self._resume(key)

    async def pause(self) -> str:
        if self._chance.random() < 0.3:
            name = self._chance.choice(tuple(KEYED_ON))
            self._pool.pause_server(name)
            await trio.sleep(self._chance.random() * 0.5)
            self._pool.resume_server(name)
            return name
        key = self._key()
        self._pool.pause(key)
        try:
            await trio.sleep(self._chance.random())
        finally:
            self._resume(key)
        return "a key"

    def _resume(self, key: Any) -> None:
        actor = self._pool.actor_of(key)
        if actor is not None:
            self._pool.resume(key)

    async def withdraw(self) -> str:
        """Withdraw a call that is under way, from outside."""
        await trio.lowlevel.checkpoint()
        calls = [call.use.call_id for call in self._pool.running.values()]
        return str(bool(calls) and self._pool.cancel(self._chance.choice(calls)))

    async def reconfigure(self) -> str:
        """Another configuration: other rules for lists, another plan for one server, other limits."""
        await trio.lowlevel.checkpoint()
        assert self.runtime is not None
        self.world.revision += 1
        pool = {**self.runtime.config.pool, "idle_timeout": self._chance.choice((1.0, 1.5, 2.5))}
        done = self.runtime.reconfigure(servers=self.world.servers(), pool=pool, replan=("files",))
        return f"changed {done.changed}"

    # ------------------------------------------------------------------ the console

    async def console(self) -> str:
        """Attach, look around, follow, act on something, and leave; or be gone in the middle."""
        assert self.runtime is not None
        assert self.runtime.console is not None
        path = self.runtime.console.path
        said: list[str] = []
        async with await trio.open_unix_socket(str(path)) as stream, trio.open_nursery() as nursery:
            socket = await wrap_client_stream(
                nursery, stream, "localhost", "/console", subprotocols=["afpool.console.1"]
            )
            orders = [["tail"], *self._chance.sample(LOOKS, 3)]
            actors = self._pool.statistics().actors
            clients = list(self._pool.openings.clients)
            if actors:
                key = self._chance.choice(actors).key
                orders += [["pause", key], ["resume", key]]
                orders.append(self._chance.choice((["evict", key], ["invalidate", key], ["refresh", key])))
            if clients:
                orders.append(["kill", str(self._chance.choice(clients))])
            with trio.move_on_after(3), contextlib.suppress(ConnectionClosed):
                for number, order in enumerate(orders):
                    await socket.send_message(json.dumps({"id": number, "do": order}))
                answered = 0
                while answered < len(orders):
                    frame = json.loads(await socket.get_message())
                    if "id" in frame:
                        answered += 1
                        said.append(frame["error"]["code"] if "error" in frame else "ok")
            nursery.cancel_scope.cancel()
        return " ".join(said)

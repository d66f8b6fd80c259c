"""Runs a service beside a story: its runtime and servers on the world's network, its door driven without
sockets, and its clients.

What is driven is the ASGI application of the service (`Service.app`) on the simulated kernel; what hypercorn
and the kernel's sockets make of it is not part of it. Facts are filed on a ground of its own, whose wires are
those of the service's runtime. The file of tokens is a real one in a folder of its own: what stands in it is
the seed's, when it was written is not, and nothing depends on that.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio

from afpool import AfpoolError, Identity, Server
from afpool._base.errors import PoolClosed
from tests.simulation import steps as s
from tests.simulation.driver_host import SECRET, Host
from tests.simulation.driver_places import Place
from tests.simulation.driver_service_client import Clients
from tests.simulation.driver_steps import Skip
from tests.simulation.driver_watch import SeenWires, texts_of
from tests.simulation.ground import Ground
from tests.simulation.ground_service import Draining, Left, Served, TokenBack, TokenEnds
from tests.simulation.oracle_wire import CALL_ID, Wires
from tests.simulation.world import Person, ServerSpec, ToolSpec, World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from afpool.config import ServeConfig
    from afpool.runtime import RuntimeConfig
    from afpool.serve import Service
    from tests.simulation.driver import Run
    from tests.simulation.world_service import ServiceSpec

TOLD: Final = 0.6
"""Seconds within which a service knows of a token that was revoked in its file: a look each half second."""

OUT: Final = 90.0
"""Seconds after which every request must have been answered."""


SERVICE: Final = (s.Northbound, s.RevokeToken, s.ReloadService, s.ChangeBehind, s.CutBehind, s.DrainService)
"""Kinds of steps that are the service's."""


class ServiceRun:
    """See the module.

    Args:
        run: The run of the story.
        spec: The service.
    """

    def __init__(self, run: Run, spec: ServiceSpec) -> None:
        self.run, self.spec = run, spec
        self.sim = run.sim
        self.shown: list[str] = []
        self.texts: dict[str, str] = {}
        self.ids: dict[str, str] = {}
        self.gone: set[str] = set()
        self.others = False
        self.few = False
        self.draining = False
        self.pending = 0
        self.service: Service | None = None
        self._leave = trio.Event()
        self._left = trio.Event()
        self._ground_of(spec)
        self.clients = Clients(self)

    def _ground_of(self, spec: ServiceSpec) -> None:
        sim = self.sim
        self.ground = Ground(sim.clock.current_time, sim.trace.append)
        people = tuple(Person(name=who, tenant=spec.tenant(who), principal=who) for who in spec.people)
        servers = tuple(
            ServerSpec(
                name=each.name,
                kind=each.kind,
                era=each.era,
                keyed_on=each.keyed_on,
                tools=tuple(ToolSpec(name=kind, kind=kind) for kind in each.tools),
            )
            for each in spec.behind
        )
        self.world = World(people=people, servers=servers, weather=self.run.story.world.weather)
        self.places = {each.name: [Place(sim, self.ground, each, 0)] for each in servers}
        self.wires = Wires(self.ground)
        SeenWires(sim, self.wires, self.place_of)
        self.host = Host(sim, self.ground, self.world, self.places)

    def place_of(self, name: str) -> Place | None:
        """The place of a host's name, if it is behind the service."""
        return next((place for (place,) in self.places.values() if place.door.name == name), None)

    # ------------------------------------------------------------------ the service

    async def open(self, *, task_status: Any) -> None:
        """Open it, and leave it when that is wanted."""
        for (place,) in self.places.values():
            await place.start()
        folder = Path(tempfile.mkdtemp(prefix="simulated-service-"))
        try:
            self._write_tokens(folder)
            await self._serve(folder, task_status)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    async def _serve(self, folder: Path, task_status: Any) -> None:
        from afpool.serve import open_service

        self.folder = folder
        async with open_service(self.runtime_config(), self.serve_config(), listen=False) as service:
            self.service = service
            self._ends()
            self.ground.file(Served(servers=frozenset(self.places)))
            task_status.started()
            await self._leave.wait()
            records = service.runtime.pool.records
            self.shown += [text for use in records.uses for text in texts_of(use)]
            self.shown += [repr(each) for each in (service, service.runtime, service.health.report())]
        self.ground.file(Left(what={"sessions": service.sessions, "calls": service.calls}))
        self._left.set()

    def runtime_config(self) -> RuntimeConfig:
        """What its runtime is opened with now."""
        from afpool.runtime import RuntimeConfig

        if not hasattr(self, "_plan"):
            self._plan = self.host.plan  # one object: a reload compares
        return RuntimeConfig(
            servers=[
                Server(name=each.name, keyed_on=each.keyed_on, call_id_key=CALL_ID)
                for each in self.world.servers
                if each.name not in self.gone
            ],
            plan=self._plan,
            secret=SECRET,
            on_use=None,
            pool=self.spec.pool,
            seams=self.sim.seams,
        )

    def serve_config(self) -> ServeConfig:
        """How it stands at its door now."""
        from afpool.config import IdentityConfig, ServeConfig, ServeLimits, TokensConfig

        limits = ServeLimits(**{**self.spec.limits, **({"calls_per_principal": 1} if self.few else {})})
        file = self.folder / ("few" if self.others else "tokens")
        return ServeConfig(
            bind="127.0.0.1:8765",
            identity=IdentityConfig(tokens=TokensConfig(file=str(file))),
            limits=limits,
        )

    # ------------------------------------------------------------------ tokens

    def _write_tokens(self, folder: Path) -> None:
        from afpool.serve import TokenFile

        self.files = {
            name: TokenFile(folder / name, now=self.sim.seams.unix_now)
            for name in ("tokens", "few", "elsewhere")
        }
        first = self.spec.people[0]
        self.files["few"].new(self.identity(first), "nobody's")
        self.files["tokens"].new(self.identity(first), "nobody's")
        for token in self.spec.tokens:
            expires = None if token.expires is None else self.sim.seams.unix_now() + token.expires
            file = self.files["elsewhere" if token.strange == "other-file" else "tokens"]
            made = file.new(self.identity(token.who), token.name, expires)
            text = made.token.reveal()
            self.ids[token.name] = made.entry.id
            self.texts[token.name] = {
                "half": text[: len(text) // 2],
                "invented": text[:-12] + "A" * 12,
                "none": "",
            }.get(token.strange, text)

    def _ends(self) -> None:
        """File when tokens will end by themselves."""
        for token in self.spec.tokens:
            if token.expires is not None and not token.strange:
                self.sim.nursery.start_soon(self._expires, token.name, token.expires)

    async def _expires(self, name: str, seconds: float) -> None:
        await trio.sleep(seconds)
        self.ground.file(TokenEnds(token=name, known=trio.current_time()))

    def identity(self, who: str) -> Identity:
        """The identity of a person."""
        return self.world.person(who).identity

    # ------------------------------------------------------------------ steps

    async def do(self, step: s.Step) -> None:
        """Carry out one step. Raises Skip."""
        if self._leave.is_set():
            raise Skip
        match step:
            case s.Northbound():
                await self.clients.do(step)
            case s.RevokeToken():
                self._revoke(step)
            case s.ReloadService():
                await self._reload(step)
            case s.ChangeBehind():
                place = self._place(step.server)
                change = s.ChangeTools(at=step.at, server=step.server, tool=step.tool)
                place.change_tools(change, None)
                place.announce()
            case s.CutBehind():
                place = self._place(step.server)
                for link in self.sim.network.links_to(place.door.name):
                    link.cut(reset=True, towards="both", after=0)
            case s.DrainService():
                await self._drain(step.seconds)
            case _:
                raise Skip

    def _place(self, server: str) -> Place:
        if server not in self.places:
            raise Skip
        return self.places[server][0]

    def _revoke(self, step: s.RevokeToken) -> None:
        token = self.spec.token(step.token)
        if token is None or token.strange:
            raise Skip
        self.files["tokens"].revoke(self.ids[token.name])
        self.ground.file(TokenEnds(token=token.name, known=trio.current_time() + TOLD))

    async def _reload(self, step: s.ReloadService) -> None:
        assert self.service is not None
        how = step.how
        if how in {"remove", "add"}:
            if step.server not in self.places or (step.server in self.gone) != (how == "add"):
                raise Skip
            (self.gone.add if how == "remove" else self.gone.discard)(step.server)
        elif how in {"limits", "limits-back"}:
            self.few = how == "limits"
        elif how in {"tokens", "tokens-back"}:
            if self.others == (how == "tokens"):
                raise Skip
            self.others = how == "tokens"
        try:
            await self.service.reload(self.runtime_config(), serve=self.serve_config())
        except PoolClosed:
            return
        if how in {"remove", "add"}:
            self.ground.file(Served(servers=frozenset(self.places) - self.gone))
        for token in self.spec.tokens if how in {"tokens", "tokens-back"} else ():
            if how == "tokens":
                self.ground.file(TokenEnds(token=token.name, known=trio.current_time(), for_good=False))
            else:
                self.ground.file(TokenBack(token=token.name))

    async def _drain(self, seconds: float) -> None:
        assert self.service is not None
        if self.draining:
            raise Skip
        self.draining = True
        self.ground.file(Draining())
        with contextlib.suppress(AfpoolError):
            await self.service.drain(trio.current_time() + seconds)
        self._leave.set()

    # ------------------------------------------------------------------ the end

    async def come(self) -> None:
        """Wait until all is answered, leave the service, and judge what it did."""
        from tests.simulation.checks_service import judge_service

        run = self.run
        with trio.move_on_after(OUT):
            while self.pending and not self._leave.is_set():
                await run.next_end()
        self._leave.set()
        with trio.move_on_after(OUT) as scope:
            await self._left.wait()
        if scope.cancelled_caught:
            run.failures.append("N6 the service is not left")
        with trio.move_on_after(OUT):
            while self.pending:
                await run.next_end()
        run.failures += [str(each) for each in judge_service(self.ground.facts, self.spec, self.world)]
        run.failures += list(self._secrets())
        for (place,) in self.places.values():
            said = [each for each in place.fake.violations if not each.endswith("notifications/initialized")]
            run.failures += [f"V1 {place.name} says: {each}" for each in said]

    def _secrets(self) -> Iterator[str]:
        """N8: a token, or a name of a session, stands where it may not."""
        texts = [*self.shown, *self.run.logs.texts]
        for what, words in (("token", self.texts.values()), ("session", self.clients.sessions())):
            for word in words:
                if len(word) > 8 and any(word in text for text in texts):
                    yield f"N8 a {what} is shown: {word[:6]}…"

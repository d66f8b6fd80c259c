"""Ways to a place that are not direct: a proxy, a Unix socket, a user's own httpx transport.

A proxy is a `FakeProxy` on the simulated network. What it passes on goes to the place without the network, so
that the one link which is watched and befallen by faults is the pool's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

import trio
import trio.testing

from afpool import Proxy, TlsConfig, basic
from afpool.testing import FakeProxy
from afpool.transports import HttpxAdapter

if TYPE_CHECKING:
    from afpool import Seams
    from tests.simulation.driver_places import Place
    from tests.simulation.kernel import Sim
    from tests.simulation.network import Listening

PORT: Final = 3128
PASSWORD: Final = "canary-of-the-proxy"


class SimHttpx(HttpxAdapter):
    """A user's own httpx transport: what afpool offers as one, on the simulated network."""

    seams: ClassVar[Seams | None] = None  # of the run; a class is one factory in every run

    def __init__(self) -> None:
        super().__init__(seams=self.seams)


class Door:
    """Where clients of a place connect to.

    Attributes:
        name: In the network.
        proxy: What stands there, where it is a proxy.
    """

    def __init__(self, sim: Sim, place: Place) -> None:
        self._sim = sim
        self._place = place
        self._over = place.spec.way.over
        SimHttpx.seams = sim.seams
        self.proxy: FakeProxy | None = None
        self.name = place.host
        if self._over == "unix":
            self.name = f"/run/sim/{place.name}.sock"
        elif self._over.startswith("proxy"):
            self.name = f"proxy-{place.name}.sim"
            credential = None if self._over == "proxy" else "Basic c2ltOmNhbmFyeS1vZi10aGUtcHJveHk="
            self.proxy = FakeProxy(
                credential=credential, memory=True, host=self.name, port=PORT, connect=self._connect
            )

    @property
    def members(self) -> dict[str, Any]:
        """What the plans that lead here say of the way."""
        if self._over == "unix":
            return {"uds": self.name}
        if self._over == "insecure":
            return {"tls": TlsConfig(insecure=True)}
        if self._over == "httpx":
            return {"httpx_transport": SimHttpx}
        if self.proxy is None:
            return {}
        if self._over == "proxy":
            return {"proxy": self.proxy.url}
        unverified = TlsConfig(insecure=True)  # means nothing to a proxy that is spoken to without TLS
        return {"proxy": Proxy(url=self.proxy.url, credential=basic("sim", PASSWORD), tls=unverified)}

    async def open(self) -> Listening:
        """Begin to listen."""
        network = self._sim.network
        if self.proxy is not None:
            await self._sim.nursery.start(self.proxy.run)
            return network.listen(self.name, self.proxy.serve_stream, port=PORT)
        port = 0 if self._over == "unix" else 80
        return network.listen(self.name, self._place.fake.serve_stream, port=port)

    async def _connect(self, host: str, port: int) -> trio.abc.Stream:
        if (host, port) != (self._place.host, 80):
            raise ConnectionRefusedError(f"nobody at {host}:{port}")
        ours, theirs = trio.testing.memory_stream_pair()
        self._place.fake.serve_stream(theirs)
        await trio.lowlevel.checkpoint()
        return ours

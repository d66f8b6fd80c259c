"""What is watched beside the calls: links, crashes that a story wants, logs, tasks, and every text that is
shown.

The links' hooks stand below the pool: they see bytes as the network takes and gives them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import trio

from afpool.pool import _messages as m
from afpool.pool._machine import KeyMachine
from tests.simulation.driver_secrets import AppFault
from tests.simulation.ground import Crashed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.simulation import steps as s
    from tests.simulation.driver import Run
    from tests.simulation.driver_places import Place
    from tests.simulation.kernel import Sim
    from tests.simulation.oracle_wire import Wires
    from tests.simulation.pipe import Link

ENDS: Final = ("client closes", "client reads the end", "broken to-client")


class SeenWires:
    """Gives what happens on the network's links to the taps of the oracle."""

    def __init__(self, sim: Sim, wires: Wires, place_of: Callable[[str], Place | None]) -> None:
        self._wires = wires
        self._place_of = place_of
        self._network = sim.network
        self._log = sim.network.log
        sim.network.observers.append(self._bytes)
        sim.network.log = self._logged  # type: ignore[method-assign]

    def _bytes(self, link: Link, towards: str, data: bytes, now: float) -> None:
        tap = self._wires.taps.get(link.number)
        if tap is None:
            return
        if towards == "to-server":
            tap.sent(data)
        else:
            tap.took(data)

    def _logged(self, link: Link, what: str) -> None:
        self._log(link, what)
        if what.startswith("opens") and not self._wires.ground.muted:
            place = self._place_of(link.name)
            if place is not None:
                kind = "lines" if link.kernel else "http"
                marks = getattr(link, "marks", None)
                self._wires.open(link.number, place.spec.name, place.name, kind, marks)
                place.opened(link)
        elif what.startswith(ENDS):
            tap = self._wires.taps.get(link.number)
            if tap is not None:
                tap.ended(_by(link, what))


def _by(link: Link, what: str) -> str:
    if link.broken["to-client"]:
        return "network"
    if what.startswith("client") and link.to_client.ended and not link.to_client.arrived:
        return "server"
    return "client"


class Crash(Exception):
    """A turn that raises because the story says so."""


class Crashes:
    """Makes turns of key actors raise. A context manager for the time of a run.

    Attributes:
        happened: How many did.
    """

    def __init__(self, run: Run) -> None:
        self.happened = 0
        self._run = run
        self._due: list[list[Any]] = []
        self._turn: Any = None

    def arm(self, pool_key: Any, step: s.CrashActor, key: str) -> None:
        """The next turn that fits raises."""
        kind = None if step.turn == "any" else getattr(m, step.turn)
        self._due.append([pool_key, kind, step.after, step.times, key])

    def disarm(self) -> None:
        """No further turn raises."""
        self._due.clear()

    def __enter__(self) -> None:
        turn = self._turn = KeyMachine.turn
        crashes = self

        def broken(self: KeyMachine, message: Any, reply: Any, /) -> Any:
            due = crashes._fitting(self, message) if crashes._due else None
            if due is None:
                return turn(self, message, reply)
            if due[2]:
                turn(self, message, reply)
            self.torn = message
            crashes.happened += 1
            crashes._run.ground.file(Crashed(key=due[4]))
            raise Crash

        KeyMachine.turn = broken  # type: ignore[method-assign]

    def __exit__(self, *_: object) -> None:
        KeyMachine.turn = self._turn  # type: ignore[method-assign]

    def _fitting(self, machine: KeyMachine, message: Any) -> list[Any] | None:
        pool = self._run.pool
        for due in self._due:
            pool_key, kind, _, times, _ = due
            actor = pool._actors.get(pool_key)
            if (
                actor is None
                or actor.machine is not machine
                or (kind is not None and type(message) is not kind)
            ):
                continue
            due[3] = times - 1
            if due[3] <= 0:
                self._due.remove(due)
            return due
        return None


class Logs(logging.Handler):
    """Takes in everything that is logged, at every level. A context manager for the time of a run.

    Attributes:
        texts: As a handler would write them, tracebacks included.
        failures: What was logged as an error.
    """

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.texts: list[str] = []
        self.failures: list[str] = []
        self._before: list[tuple[logging.Logger, int, bool]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one record."""
        text = self.format(record)
        self.texts.append(text)
        raised = record.exc_info[1] if record.exc_info else None
        if record.levelno >= logging.ERROR and raised is not None and not isinstance(raised, AppFault):
            self.failures.append(text[-3000:])

    def __enter__(self) -> None:
        for name in ("afpool", "actors", "trio-websocket", "httpx", "httpcore"):
            logger = logging.getLogger(name)
            self._before.append((logger, logger.level, logger.propagate))
            logger.addHandler(self)
            logger.setLevel(logging.DEBUG)
            logger.propagate = False

    def __exit__(self, *_: object) -> None:
        for logger, level, propagate in self._before:
            logger.removeHandler(self)
            logger.setLevel(level)
            logger.propagate = propagate


def count_tasks() -> Iterator[str]:
    """The tasks of the pool that still run: those whose code is afpool's own, less the fake servers'."""
    root = trio.lowlevel.current_root_task()
    waiting = [] if root is None else [root]
    while waiting:
        task = waiting.pop()
        module = getattr(task.coro.cr_frame, "f_globals", {}).get("__name__", "") if task.coro else ""
        if module.startswith(("afpool.pool", "afpool.client", "afpool.transports", "actors")):
            yield task.name
        for nursery in task.child_nurseries:
            waiting += nursery.child_tasks


def texts_of(use: Any) -> list[str]:
    """Everything that a use shows."""
    return [repr(use), repr({name: getattr(use, name) for name in use.__slots__ if name != "key"})]


def chain_of(error: BaseException | None) -> list[str]:
    """What an exception says, and all that it comes from; a traceback adds nothing but lines of code."""
    texts: list[str] = []
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        each = waiting.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            texts += [str(each), repr(each), *getattr(each, "__notes__", ())]
            waiting += [each.__cause__, each.__context__]
    return texts

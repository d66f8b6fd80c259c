"""Faults of the soak's own making, so that each of its checks is seen to fail: `--plant NAME,NAME` or `all`.

They are planted at the end of the first quiet moment, which says what there was before. From then on they are
looked for at one moment after the other, until each was found or until `SOUGHT` seconds are over: how many
calls fall between two moments is the machine's, whether a fault is found must not be. What was not found is a
violation by itself.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from soak_books import Books
    from soak_world import World

    from afpool import Runtime


SOUGHT: Final = 60.0
"""Seconds that what is planted is looked for."""


class Plants:
    """Plants, looks whether it was found, and takes away what would outlive the run.

    Attributes:
        planted: The names of what was planted.
    """

    def __init__(self, world: World, books: Books, runtime: Runtime) -> None:
        self._world = world
        self._books = books
        self._runtime = runtime
        self._kept: list[Any] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._over = threading.Event()
        self._scope = trio.CancelScope()
        self.planted: list[str] = []

    def plant(self, name: str) -> None:
        """Plant one."""
        PLANTS[name].make(self)
        self.planted.append(name)

    def missing(self) -> list[str]:
        """What was planted and is not among the violations, each with the words that nobody said."""
        said = "\n".join(self._books.violations)
        return [
            f"{name}: {words}"
            for name in self.planted
            for words in PLANTS[name].found
            if re.search(words, said) is None
        ]

    def grow(self) -> None:
        """What leaks goes on leaking, from one moment to the next."""
        if "memory" in self.planted:
            self.memory()

    def clear(self) -> None:
        """Take away what is of the process and not of the runtime."""
        self._over.set()
        self._scope.cancel()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        for each in self._kept:
            if isinstance(each, int):
                os.close(each)
        self._kept.clear()

    def credential(self) -> None:
        """Somebody else's credential, now and then."""
        self._world.vault.wrong = 5

    def descriptor(self) -> None:
        """An open file that nobody closes."""
        self._kept.append(os.open("/dev/null", os.O_RDONLY))

    def place(self) -> None:
        """A place that is taken and never given back."""
        self._runtime.pool.admission.try_enter("files", "t0", "nobody's")

    def task(self) -> None:
        """A task that does not end."""

        async def stays() -> None:
            with self._scope:
                await trio.sleep_forever()

        trio.lowlevel.spawn_system_task(stays, name="planted")

    def thread(self) -> None:
        """A thread that does not end."""
        threading.Thread(target=self._over.wait, name="planted", daemon=True).start()

    def child(self) -> None:
        """A process that does not end."""
        self._process = subprocess.Popen(["sleep", "300"])

    def memory(self) -> None:
        """Objects that nobody lets go."""
        self._kept.append([[number] for number in range(40_000)])

    def twice(self) -> None:
        """A log that says of some runs that they were two."""
        read = self._books.ran

        def ran(server: str, entry: dict[str, Any]) -> None:
            read(server, entry)
            if entry["run"] % 3 == 0:
                read(server, entry)

        self._books.ran = ran  # type: ignore[method-assign]

    def verdict(self) -> None:
        """Callers that are told that nothing was sent."""
        end = self._books.end

        def told(asked: Any, heard: str, delivery: str | None, text: str | None = None) -> None:
            if heard == "ok" and asked.number % 3 == 0:
                end(asked, "connection-lost", "not-sent")
            else:
                end(asked, heard, delivery, text)

        self._books.end = told  # type: ignore[method-assign]

    def answer(self) -> None:
        """Answers of other calls."""
        end = self._books.end

        def told(asked: Any, heard: str, delivery: str | None, text: str | None = None) -> None:
            end(asked, heard, delivery, None if text is None else text.replace("call ", "call 9"))

        self._books.end = told  # type: ignore[method-assign]


@attrs.frozen
class Plant:
    """A fault that is planted.

    Attributes:
        make: Plants it.
        found: What violations say when it was found; each of these.
    """

    make: Callable[[Plants], None]
    found: tuple[str, ...]


PLANTS: Final[Mapping[str, Plant]] = {
    "credential": Plant(
        Plants.credential, ("with a credential of", "a session of .* carried credentials of")
    ),
    "descriptor": Plant(Plants.descriptor, ("descriptors: ",)),
    "place": Plant(
        Plants.place, ("in flight, and .* known to be inside", "places at a quiet moment: 1 in flight")
    ),
    "task": Plant(Plants.task, ("tasks: ",)),
    "thread": Plant(Plants.thread, ("threads: ",)),
    "child": Plant(Plants.child, ("children: ",)),
    "memory": Plant(Plants.memory, ("objects: ",)),
    "twice": Plant(Plants.twice, ("ran 2 times",)),
    "verdict": Plant(Plants.verdict, ("told `not-sent`", "its use says answered")),
    "answer": Plant(Plants.answer, ("the answer was another one's",)),
}

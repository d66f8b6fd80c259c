"""Faults of the soak's own making, so that each of its checks is seen to fail: `--plant NAME,NAME` or `all`.

They are planted after the first quiet moment, which says what there was before, and have to be found by the
next one.
"""

from __future__ import annotations

import os
import subprocess
import threading
from typing import TYPE_CHECKING, Any, Final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from soak_books import Books
    from soak_world import World

    from afpool import Runtime


class Plants:
    """Plants, and takes away what would outlive the run."""

    def __init__(self, world: World, books: Books, runtime: Runtime) -> None:
        self._world = world
        self._books = books
        self._runtime = runtime
        self._kept: list[Any] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._over = threading.Event()
        self._scope = trio.CancelScope()

    def plant(self, name: str) -> None:
        """Plant one."""
        PLANTS[name](self)

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
        self._process = subprocess.Popen(["sleep", "60"])

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


PLANTS: Final[Mapping[str, Callable[[Plants], None]]] = {
    name: getattr(Plants, name)
    for name in (
        "credential", "descriptor", "place", "task", "thread", "child", "memory", "twice", "verdict",
        "answer",
    )
}  # fmt: skip

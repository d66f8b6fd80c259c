"""A program that forks while everything of it is open, and whose child ends in order.

`python -m tests.realfaults.local.forking FOLDER`. The child lets go of all that it has a copy of: the parent
must not notice. Prints `well` when it has not.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from pathlib import Path

import trio

import afpool
from afpool import Server
from afpool.artifacts import NewArtifact, SqliteArtifacts
from afpool.console import ConsoleSettings, open_console
from afpool.record import JsonlSettings, RecordSettings
from tests.realfaults.local.local_kit import ALICE, child_plan, noted


async def main(folder: Path) -> None:
    """Fork in the middle."""
    log = folder / "log"
    new = NewArtifact(kind="note", media_type="text/plain", data="text")
    record = RecordSettings(jsonl=JsonlSettings(path=folder / "calls.jsonl"))
    console = ConsoleSettings(name="here", directory=folder)
    async with (
        SqliteArtifacts(folder / "a.db", readers=1) as store,
        afpool.open_runtime(servers=[Server(name="files", plan=child_plan(log))], record=record) as runtime,
        open_console(runtime.pool, settings=console),
    ):
        toolset = await runtime.toolset(ALICE)
        assert (await toolset.call("do", {"n": 1})).text == "1"
        first = await store.put(ALICE, new)
        assert await store.get(ALICE, first.ref) is not None
        await trio.sleep(0.3)
        assert store._writer is not None
        child = os.fork()
        if child == 0:
            # what `multiprocessing` does at the end of a worker, and what a finalizer may do of itself
            gc.collect()
            for connection in (*store._idle, store._writer._connection):
                connection.close()
            atexit._run_exitfuncs()
            os._exit(0)
        _, status = await trio.to_thread.run_sync(os.waitpid, child, 0)
        assert status == 0, status
        assert (await toolset.call("do", {"n": 2})).text == "2"
        second = await store.put(ALICE, new)
        for meta in (first, second):
            assert await store.get(ALICE, meta.ref) is not None
        assert (folder / f"{os.getpid()}-here.sock").is_socket()
        assert len(noted(log).started) == 1
    async with SqliteArtifacts(folder / "a.db") as store:
        assert len((await store.list(ALICE)).items) == 2
    lines = (folder / "calls.jsonl").read_text(encoding="utf-8").count('"kind":"call"')
    assert lines == 2, lines


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]))
    print("well")

"""One run with secrets everywhere: none is found in anything that leaves, but where the pages say so."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from afpool.artifacts import MemoryArtifacts, SqliteArtifacts
from tests.canary.collecting import Collected
from tests.canary.forms import Finder, Found
from tests.canary.tour import everything, local_tools
from tests.canary.town import everything_logged, town

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

FINDER = Finder()


@contextlib.asynccontextmanager
async def stored(kind: str, folder: Path) -> AsyncIterator[Any]:
    if kind == "memory":
        yield MemoryArtifacts()
    else:
        async with SqliteArtifacts(folder / "artifacts.db") as store:
            yield store


async def toured(kind: str, folder: Path) -> tuple[Collected, set[str]]:
    collected = Collected()
    for place in ("secrets", "store"):
        (folder / place).mkdir()
    with everything_logged() as logged:
        async with stored(kind, folder / "store") as store:
            async with town(
                folder / "secrets", store, local=local_tools(collected), collected=collected
            ) as here:
                await everything(here)
            collected.files("while open", folder / "store")
        collected.files("file", folder / "store")
    for where, text in logged.texts:
        collected.text(where, text)
    return collected, logged.loggers


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_nothing_is_found(kind: str, tmp_path: Path, capfd: Any) -> None:
    collected, loggers = await toured(kind, tmp_path)
    out, err = capfd.readouterr()
    collected.text("stdout", out)
    collected.text("stderr", err)
    found = collected.found(FINDER)
    import collections
    c = collections.Counter((f.name, f.form, f.place.split(":")[0] if "log" not in f.place else f.place) for f in found)
    for k, v in sorted(c.items(), key=lambda x: x[0][2]):
        print(k, v)
    print(len(collected.texts), loggers)
    assert not found

"""Try real MCP servers on each of their transports, and keep `docs/real-servers.md` true.

    make servers [ARGS="--quick | --only TEXT ... | --accept"]

Each row of `servers.toml` is opened through a pool for two identities, listed, called, killed and started
again, and opened with each protocol version pinned. A whole run writes the tables of the page. With `--quick`
(the short run) or `--only` (rows whose name holds a text) nothing is written, and the rows are only held
against the page. Where something worked on the page and does not any more, nothing is written either, unless
`--accept` says so.

Exit code 0: nothing got worse. 1: something did. 2: a server could not be tried. 3: something is missing here
that `make` cannot bring; the rows that need it stay as they were.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import trio

from tests.interop import catalogue, page
from tests.interop.examining import Facts, examine
from tests.interop.running import NotStartedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.interop.catalogue import Row
    from tests.interop.page import Key

WORSE, UNTRIED, MISSING = 1, 2, 3
AT_ONCE = 2  # rows; a server and a client each keep a core busy while they start


def node_version() -> int:
    """The major version of the Node.js on PATH; 0 where there is none."""
    try:
        shown = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False, timeout=30)
    except FileNotFoundError:
        return 0
    found = re.match(r"v(\d+)\.", shown.stdout)
    return 0 if found is None else int(found[1])


async def examine_all(rows: Sequence[Row]) -> tuple[dict[Key, Facts], dict[Key, str]]:
    """Try the rows, some at once; return the facts in the order of the rows, and why others have none."""
    facts: dict[Key, Facts] = {}
    untried: dict[Key, str] = {}
    limit = trio.CapacityLimiter(AT_ONCE)

    async def one(row: Row, scratch: Path) -> None:
        async with limit:
            began = time.monotonic()
            try:
                facts[row.key] = await examine(row, scratch)
            except* NotStartedError as errors:
                untried[row.key] = str(errors.exceptions[0])
        if row.key in facts:
            found = facts[row.key]
            came_to = f"{found.negotiated}, {found.called}, after a restart {found.restart}"
            print(f"{' over '.join(row.key)}: {came_to} ({time.monotonic() - began:.1f} s)", flush=True)

    with tempfile.TemporaryDirectory(prefix="afpool-servers-") as scratch:
        async with trio.open_nursery() as nursery:
            for row in rows:
                nursery.start_soon(one, row, Path(scratch))
    return {row.key: facts[row.key] for row in rows if row.key in facts}, untried


def chosen(rows: Sequence[Row], *, quick: bool, only: Sequence[str]) -> list[Row]:
    """The rows that are asked for."""
    wanted = [row for row in rows if row.quick or not quick]
    return [row for row in wanted if not only or any(text in " over ".join(row.key) for text in only)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="the short run, held against the page")
    parser.add_argument(
        "--only", action="append", default=[], metavar="TEXT", help="rows whose name holds it"
    )
    parser.add_argument("--accept", action="store_true", help="write the page though something got worse")
    options = parser.parse_args(arguments)
    everything = catalogue.read()
    rows = chosen(everything, quick=options.quick, only=options.only)
    if not rows:
        parser.error("no row has such a name")
    node = node_version()
    possible = [row for row in rows if row.entry.node <= node]
    began = time.monotonic()
    now, untried = trio.run(examine_all, possible)
    print(f"{len(now)} rows in {time.monotonic() - began:.0f} s")
    was = page.read()
    found = page.differences(was, now)
    for difference in found:
        print(f"{'worse' if difference.worse else 'differs'}: {difference}")
    for key, reason in untried.items():
        print(f"not tried: {' over '.join(key)}: {reason}")
    for row in rows:
        if row not in possible:
            print(f"left out: {' over '.join(row.key)} needs Node.js {row.entry.node}, and this is {node}")
    worse = any(difference.worse for difference in found)
    if len(rows) == len(everything) and not untried and (options.accept or not worse):
        page.write({row.key: now.get(row.key) or was[row.key] for row in rows if row.key in {*now, *was}})
        print(f"wrote {page.PAGE.relative_to(catalogue.ROOT)}")
    elif found and not worse:
        print("the page is behind: `make servers` writes it")
    if untried:
        return UNTRIED
    if worse and not options.accept:
        return WORSE
    return MISSING if len(possible) < len(rows) else 0


if __name__ == "__main__":
    sys.exit(main())

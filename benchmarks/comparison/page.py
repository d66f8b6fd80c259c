"""Writes the page from the cells. Every sentence about a library is a cell of the run, or a name found in
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lab import Cell, Row

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GROUPS: Final = {
    "faults": "Faults of the server",
    "isolation": "Users beside each other",
    "service": "Running for long, and ending",
    "costs": "Costs",
}
HEAD: Final = """\
# Beside other MCP clients

The same faults and the same users, with afpool and with {count} other libraries. This page is written by

```sh
make comparison
```

It installs each library, at the version that stands here, in an environment of its own, and plays every
scenario at the same scripted server, afpool's own (`afpool.testing.FakeServer`, the protocol of 2025-11-25
with sessions) over loopback. `ARGS="--only NAME"` plays one library and only prints. What a cell says was
seen in the server's log or by the caller. A row is one run for all libraries, each played once; rows may be
of different runs (`--scenario`). The machine has {cores} cores, and its load average was {low:.0f} to
{high:.0f} during the runs: with more load than cores, times tell orders of magnitude, and smaller differences
are noise, also those under "loses". A call ends `ok`, in an `error` (an exception, or an error in place of a
result), or `hangs`: no end in the time that the scenario gives. `ran 1x` counts runs of the tool at the
server.

Each library is used as its documentation tells a host with many users to:

"""

# Each adapter shows it: those of the others run in the loop of their caller.
LOOP: Final = (
    "* all of them run in the asyncio loop of their caller; afpool runs on trio, and for asyncio in a thread "
    "of its own ([asyncio.md](asyncio.md))"
)


def worse(row: Row, mine: Cell, other: Cell) -> bool:
    """Whether the other one's cell is better than mine, beyond what the row calls the same."""
    if mine.score is None or other.score is None:
        return False
    return mine.score > max(other.score * (1 + row.slack), other.score + row.least)


def table(rows: Sequence[Row], found: Mapping[str, Mapping[str, Cell]]) -> list[str]:
    """One group as a table."""
    names = list(found)
    lines = [f"| | {' | '.join(names)} |", f"| --- |{' --- |' * len(names)}"]
    for row in rows:
        cells = (found[name].get(row.key, Cell("not played")).text for name in names)
        lines.append(f"| {row.title} | {' | '.join(cells)} |")
    return lines


def losses(rows: Sequence[Row], found: Mapping[str, Mapping[str, Cell]]) -> list[str]:
    """Where another library's cell is better than afpool's."""
    lines = []
    for row in rows:
        mine = found["afpool"].get(row.key)
        if mine is None:
            continue
        better = {
            name: cells[row.key].text
            for name, cells in found.items()
            if name != "afpool" and row.key in cells and worse(row, mine, cells[row.key])
        }
        if better:
            said = ", ".join(f"{name} {text}" for name, text in better.items())
            lines.append(f"* {row.title}: afpool {mine.text}; {said}")
    return lines


def text(
    rows: Sequence[Row],
    found: Mapping[str, Mapping[str, Cell] | str],
    *,
    versions: Mapping[str, str],
    ways: Mapping[str, str],
    features: Mapping[str, Sequence[str]],
    cores: int,
    load: tuple[float, float],
) -> str:
    """The page.

    Args:
        rows: In order.
        found: By library: its cells, or why it was not played.
        versions: By library.
        ways: By library: how its adapter uses it.
        features: By library: what it has that afpool does not.
        cores: Of the machine.
        load: Its least and greatest load average in the runs.
    """
    played = {name: cells for name, cells in found.items() if not isinstance(cells, str)}
    lines = HEAD.format(count=len(found) - 1, cores=cores, low=load[0], high=load[1]).splitlines()
    lines += [f"* **{name} {versions[name]}**: {ways[name].partition(': ')[2]}" for name in found]
    lines += [f"\n{name} was not played: {why}." for name, why in found.items() if isinstance(why, str)]
    for group, title in GROUPS.items():
        lines += ["", f"## {title}", "", *table([row for row in rows if row.group == group], played)]
    lines += ["", "## Where afpool loses", ""]
    if "afpool" in played:
        lines += losses(rows, played)
    lines += ["", "What others have, and it has not:", ""]
    lines += [f"* {name}: {', '.join(words)}" for name, words in features.items() if words]
    lines.append(LOOP)
    return "\n".join(lines) + "\n"

"""The same faults and the same users, with this project and with other MCP clients.

    make comparison [ARGS="--only mcp --scenario dropped"]

Each library runs in an environment of its own, behind an adapter that uses it as its documentation tells
a host with many users to. All play the same scenarios at the same scripted server over loopback. Writes
`docs/comparison.md`, unless only some of it is asked for: that is only printed.

Exit code 0: all were played. 1: this project could not be.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import faults
import features
import isolation
import page
import service
import trio
from child import ChildGoneError
from costs import ROWS as COSTS
from costs import imported, measured
from lab import Cell
from peers import ENVIRONMENTS, PEERS, ROOT, Peer
from playing import play

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lab import Scenario

Found: TypeAlias = "dict[str, Cell] | str"  # the cells of a library, or why it was not played
LOAD = ENVIRONMENTS / "load.json"
RESULTS = ENVIRONMENTS / "results.json"
PAGE = ROOT / "docs" / "comparison.md"
SCENARIOS: tuple[Scenario, ...] = (*faults.SCENARIOS, *isolation.SCENARIOS, *service.SCENARIOS)


def of(
    peer: Peer, scenarios: tuple[Scenario, ...], folder: Path, *, costs: str, here: bool, loads: list[float]
) -> Found:
    """What was found with one library."""

    def told(line: str) -> None:
        print(f"  {line}", flush=True)

    print(f"{peer.name} {peer.version}", flush=True)
    loads.append(os.getloadavg()[0])
    interpreter = Path(sys.executable) if here else peer.python
    if not interpreter.exists():
        why = "it is not installed; `make comparison` installs it"
        told(why)
        return why
    log = folder / f"{peer.name}.log"
    try:
        cells = trio.run(lambda: play(scenarios, peer.adapter, str(interpreter), log, told=told))
        if costs == "all":
            cells.update(measured(peer))
        elif costs:
            cells.update(imported(peer))
    except (ChildGoneError, subprocess.SubprocessError) as error:
        told(str(error))
        return str(error)
    return cells


def keep(found: Mapping[str, Found]) -> None:
    """Keep what a whole run found, so that the page can be written again."""
    plain = {
        name: cells
        if isinstance(cells, str)
        else {key: [cell.text, cell.score] for key, cell in cells.items()}
        for name, cells in found.items()
    }
    RESULTS.write_text(json.dumps(plain, indent=1), encoding="utf-8")


def kept() -> dict[str, Found]:
    """What the last whole run found."""
    plain = json.loads(RESULTS.read_text(encoding="utf-8"))
    return {
        name: cells if isinstance(cells, str) else {key: Cell(*cell) for key, cell in cells.items()}
        for name, cells in plain.items()
    }


def merged(before: Mapping[str, Found], now: Mapping[str, Found]) -> dict[str, Found]:
    """What was found before, with the rows of now in place of its own."""
    found: dict[str, Found] = {}
    for name, cells in before.items():
        fresh = now[name]
        found[name] = cells if isinstance(cells, str) or isinstance(fresh, str) else {**cells, **fresh}
    return found


def written(found: Mapping[str, Found]) -> str:
    """The page."""
    load = json.loads(LOAD.read_text(encoding="utf-8"))
    return page.text(
        [row for scenario in SCENARIOS for row in scenario.rows] + list(COSTS),
        found,
        versions={peer.name: peer.version for peer in PEERS},
        ways={peer.name: peer.way for peer in PEERS},
        features={peer.name: features.found(peer) for peer in PEERS if not isinstance(found[peer.name], str)},
        cores=os.cpu_count() or 1,
        load=(min(load), max(load)),
    )


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Other MCP clients, and this one.")
    parser.add_argument("--only", choices=[peer.name for peer in PEERS], help="only this library")
    parser.add_argument(
        "--scenario",
        choices=[*(each.name for each in SCENARIOS), "import"],
        action="append",
        help="only these",
    )
    parser.add_argument("--here", action="store_true", help="with the interpreter that runs this")
    parser.add_argument("--render", action="store_true", help="play nothing: the page of the last whole run")
    options = parser.parse_args()
    whole = not (options.only or options.here)
    began = time.monotonic()
    loads: list[float] = []  # of the machine, as each library begins
    if options.render:
        found = kept()
    else:
        costs = "all" if not options.scenario else "import" if "import" in options.scenario else ""
        scenarios = tuple(each for each in SCENARIOS if not options.scenario or each.name in options.scenario)
        chosen = [peer for peer in PEERS if options.only in (None, peer.name)]
        with tempfile.TemporaryDirectory(prefix="afpool-comparison-") as folder:
            found = {
                peer.name: of(peer, scenarios, Path(folder), costs=costs, here=options.here, loads=loads)
                for peer in chosen
            }
        if whole:
            if options.scenario:
                loads += json.loads(LOAD.read_text(encoding="utf-8"))
            LOAD.write_text(json.dumps([min(loads), max(loads)]), encoding="utf-8")
            if options.scenario:  # these rows anew, for everybody; the others stay as they were
                found = merged(kept(), found)
            keep(found)
    if whole:
        PAGE.write_text(written(found), encoding="utf-8")
        print(f"{time.monotonic() - began:.0f} s; wrote {PAGE.relative_to(ROOT)}")
    return 1 if isinstance(found.get("afpool"), str) else 0


if __name__ == "__main__":
    sys.exit(main())

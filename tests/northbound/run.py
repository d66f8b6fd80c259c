"""Real MCP clients through `afpool serve`, each as two tenants at once.

    make northbound [ARGS="--client 'MCP Python SDK 1'"]

Each lists, calls, gets progress, takes a call back and hears of a changed list at two real servers. What a
client reports and what the servers have logged decide (`judging.py`). A client that is not installed fails.

Exit code 0: all hold. 1: one does not. 2: the service or a server could not be started.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import attrs

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.conformance.service import ROOT, NotReadyError
from tests.northbound.judging import faults_of_logs, faults_of_report, read_log
from tests.northbound.place import HERE, PEERS, Place, python_of, running

RESULTS: Final = ROOT / ".cache" / "northbound"
WITHIN: Final = 40.0  # seconds for one client
SETTLED_WITHIN: Final = 5.0  # seconds in which what a client took back has reached the servers


@attrs.frozen
class Played:
    """One client in one era.

    Attributes:
        name: For people.
        command: What runs it, before its argument.
        mode: How it connects, where it has a choice.
        folder: Where it runs.
    """

    name: str
    command: tuple[str, ...]
    mode: str | None = None
    folder: Path = HERE


def clients() -> list[Played]:
    """All that are played."""
    folder = HERE / "clients"
    node = PEERS / "node"
    found = [
        Played("MCP Python SDK 1", (python_of("mcp1"), str(folder / "mcp1_client.py"))),
        Played("MCP TypeScript SDK 1", ("node", str(folder / "ts_client.mjs")), folder=node),
    ]
    for name, environment, script in (
        ("MCP Python SDK 2", "mcp2", "mcp2_client.py"),
        ("FastMCP 4", "fastmcp4", "fastmcp_client.py"),
    ):
        for mode, era in (("legacy", "handshake"), ("auto", "2026-07-28")):
            command = (python_of(environment), str(folder / script))
            found.append(Played(f"{name}, {era}", command, mode))
    return found


def tenants_of(number: int) -> tuple[str, str]:
    """The two tenants of a client: its own, as a pool asks ever more rarely for a list that changes often."""
    return f"acme{number}", f"globex{number}"


def play(one: Played, place: Place, tenants: tuple[str, str]) -> list[str]:
    """Run a client; gives what is wrong, nothing where all of it is right."""
    tokens = {who: place.tokens[who] for who in tenants}
    before = {name: len(read_log(path)) for name, path in place.logs.items()}
    given = json.dumps({"url": place.url, "tenants": tokens, "mode": one.mode})
    try:
        done = subprocess.run(
            [*one.command, given],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WITHIN,
            check=False,
            cwd=one.folder,
            env={**os.environ, "FASTMCP_CHECK_FOR_UPDATES": "off", "PYTHONUTF8": "1"},
        )
    except FileNotFoundError as error:
        return [f"it is not installed ({error.filename}): `make northbound` installs it"]
    except subprocess.TimeoutExpired:
        return [f"it did not end within {WITHIN:.0f} s"]
    if done.returncode:
        end = "\n".join(f"    {line}" for line in done.stderr.splitlines()[-25:])
        return [f"it ended with {done.returncode}:\n{end}"]
    try:
        report = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return [f"its report cannot be read: {done.stdout[-200:]!r}"]
    return faults_of_report(report, tenants) + settled(place, before, tenants)


def settled(place: Place, before: dict[str, int], tenants: tuple[str, str]) -> list[str]:
    """What is wrong by the servers' logs, once what the client took back has had time to get there."""
    ends = time.monotonic() + SETTLED_WITHIN
    while True:
        logs = {name: read_log(path, before[name]) for name, path in place.logs.items()}
        faults = faults_of_logs(logs, tenants, place.tokens)
        if not faults or time.monotonic() > ends:
            return faults
        time.sleep(0.05)


def main() -> int:
    """Run from the command line."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    known = clients()
    parser = argparse.ArgumentParser(description="Real MCP clients through `afpool serve`.")
    parser.add_argument("--client", choices=[one.name for one in known], help="only this client")
    options = parser.parse_args()
    chosen = [one for one in known if options.client in (None, one.name)]
    shutil.rmtree(RESULTS, ignore_errors=True)
    RESULTS.mkdir(parents=True)
    failed = 0
    try:
        with running(RESULTS, [who for number in range(len(chosen)) for who in tenants_of(number)]) as place:
            for number, one in enumerate(chosen):
                began = time.monotonic()
                faults = play(one, place, tenants_of(number))
                failed += bool(faults)
                verdict = "does not hold" if faults else "holds"
                print(f"{one.name:32} {verdict} ({time.monotonic() - began:.1f} s)", flush=True)
                for fault in faults:
                    print(f"    {fault}", flush=True)
    except NotReadyError as error:
        print(f"northbound: {error}", file=sys.stderr)
        return 2
    print("northbound:", f"{failed} of {len(chosen)} do not hold" if failed else f"all {len(chosen)} hold")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

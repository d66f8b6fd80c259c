"""Run both sides of the official MCP conformance suite against afpool.

    make conformance [ARGS="--side client --set 2026-07-28 --scenario tools_call"]

The client side: the suite's servers and a driver that uses the pool, in a network namespace with loopback
alone. The server side: the suite's client before `afpool serve` and a server behind it (`service.py`). Each
plays both requirement sets, reads what the suite filed, and fails unless every required scenario reaches
`bar.toml` or `bar-server.toml`. With `--scenario` only this one is run, and what the driver printed is shown
where it does not hold. `--write-docs` writes the tables in `docs/conformance.md` anew.

Exit code 0: all required scenarios hold. 1: one does not. 2: the suite could not be run. 3: something is
missing here that `make` cannot bring.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.conformance import docs_table, service, slots
from tests.conformance.loopback import NO_NAMESPACE
from tests.conformance.reading import (
    BAR,
    SERVER_BAR,
    SERVER_PREFIX,
    Row,
    UnreadableError,
    judge,
    read_bars,
    read_outcomes,
    table,
)

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = ROOT / ".cache" / "conformance"
SUITE = INSTALLED / "node_modules/@modelcontextprotocol/conformance/dist/index.js"
RESULTS = INSTALLED / "results"
SLOTS = INSTALLED / "slots"
SIDES = {"client": BAR, "server": SERVER_BAR}
AT_ONCE = 4  # drivers
CLIENT_MILLISECONDS = 120_000
WITHIN = 300.0  # seconds for one requirement set
SHOWN = 40  # lines of what a driver printed


class SuiteError(Exception):
    """The suite could not be run; the message says why."""

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message)
        self.code = code


def node() -> str:
    """The Node.js that was installed for the suite, else the system's, which then is new enough."""
    own = INSTALLED / "node_modules/.bin/node"
    return str(own) if own.exists() else "node"


def driver_command() -> str:
    """The command of the driver; the suite gives it to a shell."""
    return shlex.join([sys.executable, str(Path(__file__).with_name("driver.py"))])


def chosen(revision: str, scenario: str | None) -> list[str]:
    """How the suite is told what to play."""
    if scenario is None:
        return ["--requirements", revision]
    return ["--scenario", scenario, "--spec-version", revision, "--force"]


def server_command(revision: str, results: Path, scenario: str | None, url: str) -> list[str]:
    """The command of one run of the server side."""
    command = [node(), str(SUITE), "server", "--url", url, *chosen(revision, scenario)]
    return [*command, "--output-dir", str(results)]


def suite_command(revision: str, results: Path, scenario: str | None, *, all_interfaces: bool) -> list[str]:
    """The command of one run of the client side."""
    command = [node(), str(SUITE), "client", "--command", driver_command(), *chosen(revision, scenario)]
    command += ["--timeout", str(CLIENT_MILLISECONDS), "--output-dir", str(results)]
    if all_interfaces:
        return command
    return [sys.executable, str(Path(__file__).with_name("loopback.py")), *command]


def run_suite(revision: str, scenario: str | None, *, all_interfaces: bool) -> Path:
    """Run one requirement set, or one scenario of it; return the folder with what was filed.

    Raises:
        SuiteError: It did not run to its end.
    """
    results, log = place(revision)
    slots.make(SLOTS, AT_ONCE)
    command = suite_command(revision, results, scenario, all_interfaces=all_interfaces)
    code = run_command(revision, command, log)
    if code == NO_NAMESPACE and not all_interfaces:
        raise SuiteError(
            f"{tail(log, 1).strip()}\n"
            "The suite's servers listen on every interface of the machine. Run as root, let users make "
            'namespaces, or accept that for the time of the run: ARGS="--all-interfaces".',
            NO_NAMESPACE,
        )
    checked(revision, code, log)
    return results


def run_server_suite(revision: str, scenario: str | None) -> Path:
    """Run one requirement set of the server side, or one scenario of it; as `run_suite`.

    Raises:
        SuiteError: It did not run to its end.
    """
    results, log = place(f"{SERVER_PREFIX}{revision}")
    try:
        with service.running(results) as url:
            code = run_command(revision, server_command(revision, results, scenario, url), log)
    except service.NotReadyError as error:
        raise SuiteError(f"{revision}: {error}") from None
    checked(revision, code, log)
    return results


def place(name: str) -> tuple[Path, Path]:
    """Make the empty folder for what the suite files; gives it, and the file for what it prints.

    Raises:
        SuiteError: The suite is not installed.
    """
    if not SUITE.exists():
        raise SuiteError(f"the suite is not installed ({SUITE}): `make conformance` installs it")
    results = RESULTS / name
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)
    return results, RESULTS / f"{name}.log"


def run_command(revision: str, command: list[str], log: Path) -> int:
    """Run the suite; gives its exit code.

    Raises:
        SuiteError: It could not be started, or did not end.
    """
    with log.open("wb") as out:
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUTF8": "1", slots.FOLDER: str(SLOTS)},
                timeout=WITHIN,
                check=False,
                cwd=ROOT,
            )
        except subprocess.TimeoutExpired:
            raise SuiteError(f"{revision}: the suite did not end within {WITHIN:.0f} s; see {log}") from None
        except OSError as error:
            raise SuiteError(f"{revision}: {command[0]} could not be started: {error}") from error
    return done.returncode


def checked(revision: str, code: int, log: Path) -> None:
    """See that the suite came to a verdict.

    Raises:
        SuiteError: It did not.
    """
    # 1 is the suite's own verdict. Ours is stricter and decides.
    if code not in {0, 1}:
        raise SuiteError(f"{revision}: the suite ended with {code}:\n{tail(log, SHOWN)}")


def tail(file: Path, lines: int) -> str:
    """The last lines of a file, indented; nothing where there is no such file."""
    if not file.exists():
        return ""
    return "\n".join(f"    {line}" for line in file.read_text(errors="replace").splitlines()[-lines:])


def explain(row: Row) -> None:
    """Print why a scenario does not hold: its failed checks, and what the driver printed."""
    print(f"\n{row.scenario}: {'; '.join(row.reasons)}")
    if row.outcome is None:
        return
    for fault in row.outcome.faults:
        print(f"    {fault}")
    for name in ("stdout.txt", "stderr.txt"):
        said = tail(row.outcome.folder / name, SHOWN)
        if said.strip():
            print(f"  {name}:\n{said}")


def play(side: str, revision: str, options: argparse.Namespace) -> list[Row]:
    """Run and read one requirement set, and print it."""
    started = time.monotonic()
    if side == "client":
        results = run_suite(revision, options.scenario, all_interfaces=options.all_interfaces)
        outcomes = read_outcomes(results)
    else:
        results = run_server_suite(revision, options.scenario)
        outcomes = read_outcomes(results, prefix=SERVER_PREFIX, driven=False)
    only = None if options.scenario is None else [options.scenario]
    rows = judge(read_bars(SIDES[side])[revision], outcomes, only)
    for row in rows:
        if not row.holds and (row.required or options.scenario):
            explain(row)
    print(f"\n{table(f'{side} {revision}', rows)}\n({time.monotonic() - started:.1f} s)", flush=True)
    return rows


def main() -> int:
    """Run from the command line."""
    # what is started here is ended when this is
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    bars = {side: read_bars(path) for side, path in SIDES.items()}
    revisions = list(bars["client"])
    parser = argparse.ArgumentParser(description="Both sides of the official MCP conformance suite.")
    parser.add_argument("--side", choices=list(SIDES), help="only this side")
    parser.add_argument("--set", choices=revisions, help="only this requirement set")
    parser.add_argument("--scenario", help="only this scenario")
    parser.add_argument(
        "--all-interfaces",
        action="store_true",
        help="run without a network namespace: the suite's servers are reachable from outside meanwhile",
    )
    parser.add_argument(
        "--write-docs", action="store_true", help="write the tables in docs/conformance.md anew"
    )
    options = parser.parse_args()
    played: dict[str, dict[str, list[Row]]] = {}
    try:
        for side in [options.side] if options.side else SIDES:
            for revision in [options.set] if options.set else revisions:
                bar = bars[side][revision]
                known = (None, *bar.required, *bar.apart, *bar.listed)
                if options.scenario in known or (options.set and options.side):
                    played.setdefault(side, {})[revision] = play(side, revision, options)
    except (SuiteError, UnreadableError) as error:
        print(f"conformance: {error}", file=sys.stderr)
        return error.code if isinstance(error, SuiteError) else 2
    if not played:
        print(
            f"conformance: no requirement set has {options.scenario}; name one with --side and --set",
            file=sys.stderr,
        )
        return 2
    if options.write_docs:
        for side, begin in (("client", docs_table.BEGIN), ("server", docs_table.SERVER_BEGIN)):
            if side in played:
                docs_table.write(played[side], begin=begin)
    all_rows = [row for sets in played.values() for rows in sets.values() for row in rows]
    wanting = [row for row in all_rows if row.required and not row.holds]
    print("conformance:", f"{len(wanting)} required scenarios do not hold" if wanting else "all hold")
    return 1 if wanting else 0


if __name__ == "__main__":
    sys.exit(main())

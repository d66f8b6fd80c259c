"""What a run of a client has shown: by its own report, and by the logs of the servers behind the service.

Rules:

* A report holds what was asked for, nothing more and nothing else's: both tenants list the same, and each was
  answered with their own words.
* Whose a request is, the servers say: by the header that the configuration gives each identity, by the
  connection that it came on, and by what its client put into its arguments. On no connection are there two
  tenants, and no tenant's words came under another's header.
* A call that was taken back was taken back at its server: by the notification (handshake era), or because its
  request was let go of (2026-07-28).
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

SERVERS: Final = ("one", "two")
TOOLS: Final = frozenset(
    {"set_extra", *(f"{one}__{tool}" for one in SERVERS for tool in ("echo", "steps", "linger"))}
)
STEPS: Final = [[1.0, 3.0], [2.0, 3.0], [3.0, 3.0]]

Line = dict[str, Any]


def read_log(path: Path, after: int = 0) -> list[Line]:
    """Read a server's log, without its first lines."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines[after:]]


def faults_of_report(report: Mapping[str, Any], tenants: Iterable[str]) -> list[str]:
    """Say what is wrong with what a client saw; nothing where all of it is right."""
    found = []
    if report.keys() != set(tenants):
        return [f"the report is of {sorted(report)}"]
    for who, seen in report.items():
        right: list[tuple[str, Any, Any]] = [
            ("listed", frozenset(seen["tools"]), TOOLS),
            ("listed twice", len(seen["tools"]), len(TOOLS)),
            ("the list with the new tool", frozenset(seen["lists"][0]), TOOLS | {"extra"}),
            ("the list without it", frozenset(seen["lists"][1]), TOOLS),
        ]
        for server in SERVERS:
            right += [
                (f"echo of {server}", seen["echo"].get(server), f"{server}: {who}"),
                (
                    f"echo of {server} after the cancelled call",
                    seen["after"].get(server),
                    f"{server}: {who} again",
                ),
                (
                    f"progress of {server}",
                    seen["progress"].get(server),
                    {"text": f"{server}: 3 steps", "steps": STEPS},
                ),
                (f"cancelled call of {server}", seen["cancelled"].get(server), "given up"),
            ]
        found += [f"{who}: {what}: {given}" for what, given, wanted in right if given != wanted]
        if seen["heard"] < 2:
            found.append(f"{who}: heard of {seen['heard']} changes, not of two")
    return found


def faults_of_logs(
    logs: Mapping[str, list[Line]], tenants: Iterable[str], others: Iterable[str] = ()
) -> list[str]:
    """Say what is wrong with what reached the servers; nothing where all of it is right.

    Args:
        logs: Server to the lines of this run.
        tenants: Who called.
        others: Who called before, and may still have connections.
    """
    known = set(tenants), set(others)
    return [f"{server}: {fault}" for server in SERVERS for fault in _faults(logs[server], *known)]


def _faults(lines: list[Line], tenants: set[str], others: set[str]) -> Iterable[str]:
    on: dict[int, set[str]] = defaultdict(set)
    calls: dict[str, list[Line]] = defaultdict(list)
    taken_back: dict[str, int] = defaultdict(int)
    for line in lines:
        who = line["tenant"]
        if who not in tenants | others:
            yield f"{line['method']} came without a header that says whose it is"
            continue
        on[line["connection"]].add(who)
        if line["event"] == "gone":
            taken_back[who] += line.get("tool") == "linger"
            continue
        if line["method"] == "notifications/cancelled":
            taken_back[who] += 1
        elif line["method"] == "tools/call":
            calls[who].append(line)
            said = str((line["arguments"] or {}).get("text", (line["arguments"] or {}).get("who", who)))
            if said.split(maxsplit=1)[0] != who:
                yield f"words of {said.split(maxsplit=1)[0]} came under the header of {who}"
    for connection, whose in on.items():
        if len(whose) > 1:
            yield f"connection {connection} carried {sorted(whose)}"
    for who in sorted(tenants):
        ran = [line["tool"] for line in calls[who] if line["tool"] != "set_extra"]
        if ran != ["echo", "steps", "linger", "echo"]:
            yield f"{who} called {ran}"
        if taken_back[who] != 1:
            yield f"{who} took back {taken_back[who]} calls, not one"

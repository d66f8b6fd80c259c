"""What the stand-in answers when it is asked: one actor, one call explained, tables, checks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stand_in_world import World

COLUMNS = {
    "key": "key", "server": "text", "state": "text", "in_flight": "count", "max": "count",
    "waiting": "count", "client": "id", "generation": "count",
}  # fmt: skip
SERVER_COLUMNS = {
    "server": "text", "state": "text", "actors": "count", "clients": "count", "in_flight": "count",
    "waiting": "count", "rate": "rate", "p99": "seconds",
}  # fmt: skip
WAITS = ("server", "credential", "connect", "list")
POINTER = "/inputSchema/properties/limit/maximum"


class Refusal(Exception):
    """An answer that says no."""

    def __init__(self, code: str, message: str, *tries: str) -> None:
        super().__init__(message)
        self.code, self.tries = code, tries


def described(columns: dict[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "kind": kind} for name, kind in columns.items()]


def table(name: str, columns: dict[str, str], rows: list[list[Any]], total: int) -> dict[str, Any]:
    described_columns = described(columns)
    return {"kind": "table", "table": name, "columns": described_columns, "rows": rows, "total": total}


def servers(world: World) -> dict[str, Any]:
    rows = [[one[name] for name in SERVER_COLUMNS] for one in world.overview()["servers"]]
    return table("servers", SERVER_COLUMNS, rows, len(rows))


def actors(world: World, name: str, options: dict[str, str]) -> dict[str, Any]:
    rows = list(world.actors.values())
    if sort := options.get("sort"):
        at = list(COLUMNS).index(sort.removeprefix("-"))
        rows = sorted(rows, key=lambda row: (row[at] is not None, row[at]), reverse=sort[0] == "-")
    return table(name, COLUMNS, rows[: int(options.get("limit", 100))], len(rows))


def actor(world: World, key: str) -> dict[str, Any]:
    row = world.actors.get(key)
    if row is None:
        raise Refusal("unknown-id", f"there is no actor {key[:60]!r}", "show actors")
    now = time.time()
    refused = [one for one in world.recent.values() if one["key"] == key and one["outcome"] == "refused"]
    running = [
        {"call_id": f"call-{900_000 + i}", "tool": "lookup", "waits_for": WAITS[i % 4], "since": 0.2 + i}
        for i in range(row[3])
    ]
    queue = [{"call_id": f"call-{910_000 + i}", "tool": "search", "waited": 0.4 + i} for i in range(row[5])]
    turns = [
        {"at": now - 3 * i, "message": ("Acquire", "Release", "Opened")[i % 3], "took": 2e-5 * (1 + i % 5)}
        for i in reversed(range(20))
    ]
    return {
        "kind": "actor", "key": key, "server": row[1], "state": row[2], "client": row[6],
        "generation": row[7], "epoch": 0, "in_flight": row[3], "max": row[4], "waiting": row[5],
        "running": running, "queue": queue, "turns": turns, "events": [],
        "last_refusal": refused[-1] if refused else None,
    }  # fmt: skip


def why(world: World, call_id: str) -> dict[str, Any]:
    use = world.recent.get(call_id)
    if use is None:
        raise Refusal("unknown-id", f"there is no call {call_id[:60]!r}; it may have left the ring", "tail")
    stages = dict(use["stages"])
    late = stages.get("credential", use["took"])

    def clause(at: float | None, text: str, source: str, **facts: Any) -> dict[str, Any]:
        return {"at": at, "text": text, "facts": facts, "source": source}

    clauses = [
        clause(0.0, "The call began; its tool was listed as generation 3.", "use", generation=3),
        clause(late * 0.8, "The server announced a changed tool list.", "event", event=812, was=3, became=4),
        clause(late, f"The definition of {use['tool']} differs.", "definition", pointers=[POINTER]),
        clause(None, "The place was held by another call.", "sibling", held_by=[call_id]),
    ]
    headline = f"{use['outcome']} {use['code'] or ''}: the list changed while a credential was being fetched"
    return {"kind": "explanation", "headline": headline, "clauses": clauses, "use": use}


def check() -> dict[str, Any]:
    found = [
        ("ok", "The loop is on time", "The longest delay of the last minute was 13 ms.", None),
        ("warn", "A waiter is 4.2 s old", "call-81 waits for a place on crm.", "show waiting sort=-waited"),
        ("bad", "A client flaps", "k:12ab was opened 9 times within a minute.", "show actor k:12ab"),
    ]
    names = ("level", "what", "detail", "try")
    return {"kind": "checks", "found": [dict(zip(names, one, strict=True)) for one in found]}

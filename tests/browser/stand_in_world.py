"""A process that is none: actors, calls and events for the page's tests, at any size and rate.

Everything follows from a seed. What is made here has the form that the console's protocol gives it.
"""

from __future__ import annotations

import random
import time
from typing import Any

SERVERS = ("desk", "crm", "search", "files", "billing")
HOSTILE = "<img src=x onerror=\"document.title='owned'\">\u202e" + "x" * 300
CODES = ("stale-tools", "overloaded", "deadline-exceeded", "binding-changed", "open-backoff", "denied")
FAILURES = ("server-error", "connection-lost", "in-doubt")
TOOLS = ("lookup", "create_ticket", "search", "export_report", "update_contact")
STAGES = ("start", "admission", "leased", "credential", "connect", "sent", "answered")
MOST = 4


class World:
    """Actors that change `rate` times a second, and the calls and events that go with it."""

    def __init__(self, keys: int, rate: float, *, hostile: bool = False, seed: int = 7) -> None:
        self.random = random.Random(seed)
        self.rate = rate
        self.hostile = hostile
        self.servers = (*SERVERS[:4], HOSTILE) if hostile else SERVERS
        self.paused: set[str] = set()
        self.actors: dict[str, list[Any]] = {}
        for number in range(keys):
            self._add(number)
        self.keys = list(self.actors)
        self.number = keys
        self.began = time.time()
        self.events = 0
        self.calls = 0
        self.opened = self.evicted = 0
        self.outcomes = {"ok": 41_200, "refused": 310, "failed": 24, "cancelled": 3}
        self.codes = dict.fromkeys(CODES, 0)
        self.recent: dict[str, dict[str, Any]] = {}
        self.asked: list[list[str]] = []

    def _add(self, number: int) -> list[Any]:
        key = f"k:{self.random.getrandbits(48):012x}"
        server = self.servers[number % len(self.servers) if number % 3 else 0]
        client = number + 1 if self.random.random() < 0.7 else None
        row = [key, server, "open" if client else "idle", 0, MOST, 0, client, 1]
        if self.random.random() < 0.01:
            row[2] = self.random.choice(("backoff", "draining", "opening"))
        self.actors[key] = row
        return row

    def step(self, seconds: float) -> tuple[list[list[Any]], list[str], list[dict[str, Any]]]:
        """Let time pass: the rows that changed, the keys that went, and what happened."""
        some, changed, gone, happened = self.random, {}, [], []
        whole = self.rate * seconds
        for _ in range(int(whole) + (some.random() < whole % 1)):
            key = some.choice(self.keys)
            row = self.actors.get(key)
            if row is None:
                continue
            if some.random() < 0.01 and row[3] == 0:
                del self.actors[key]
                gone.append(key)
                changed.pop(key, None)
                self.number += 1
                fresh = self._add(self.number)
                self.keys[self.keys.index(key)] = fresh[0]
                changed[fresh[0]] = fresh
                self.evicted += 1
                happened.append(self.event("evicted", key, row[1], why="room was needed"))
                continue
            held = row[1] in self.paused or key in self.paused
            row[3] = max(0, min(MOST, row[3] + some.choice((-2, -1, -1, 1, 1, 2)) * (not held)))
            row[5] = max(0, row[5] + some.choice((-1, 1))) if held or row[3] == MOST else 0
            if row[6] is None and row[3]:
                row[6] = self.number = self.number + 1
                self.opened += 1
                happened.append(self.event("opened", key, row[1], client=row[6], took=0.042))
            row[2] = "paused" if held else "busy" if row[3] else "open" if row[6] else "idle"
            changed[key] = row
            happened.append(self.call(key, row[1]))
        return [list(row) for row in changed.values()], gone, happened

    def event(self, kind: str, key: str | None, server: str, **facts: Any) -> dict[str, Any]:
        self.events += 1
        return {"at": time.time(), "n": self.events, "kind": kind, "key": key, "server": server, **facts}

    def call(
        self, key: str, server: str, outcome: str | None = None, code: str | None = None
    ) -> dict[str, Any]:
        some = self.random
        self.calls += 1
        roll = some.random()
        outcome = outcome or ("ok" if roll > 0.06 else "refused" if roll > 0.01 else "failed")
        if outcome == "refused":
            code = code or some.choice(CODES)
            self.codes[code] = self.codes.get(code, 0) + 1
        elif outcome == "failed":
            code = code or some.choice(FAILURES)
        self.outcomes[outcome] += 1
        stages: list[list[Any]] = []
        at = 0.0
        for stage in STAGES if outcome == "ok" else STAGES[:5] if outcome == "refused" else STAGES[:6]:
            slow = stage in ("admission", "credential", "connect", "answered")
            at += some.expovariate(1 / 0.08) if slow else some.random() * 0.0002
            stages.append([stage, at])
        use = {
            "kind": "call", "at": time.time(), "began": time.time() - at, "took": at + 0.0001,
            "call_id": f"call-{self.calls}", "server": server,
            "tool": HOSTILE if self.hostile and some.random() < 0.3 else some.choice(TOOLS),
            "method": "tools/call", "outcome": outcome, "code": code,
            "delivery": {"ok": "answered", "refused": "not-sent", "failed": "in-doubt"}[outcome],
            "key": key, "who": "w:7a31c0ffee12", "stages": stages, "client": 17, "list": 4, "generation": 3,
            "attempts": 1, "bytes_out": 412, "bytes_in": 18_233,
            "arguments": {"query": HOSTILE if self.hostile else "overdue invoices", "limit": 20},
        }  # fmt: skip
        self.recent[use["call_id"]] = use
        if len(self.recent) > 5000:
            del self.recent[next(iter(self.recent))]
        return use

    def overview(self) -> dict[str, Any]:
        rows = self.actors.values()
        servers = []
        for name in self.servers:
            mine = [row for row in rows if row[1] == name]
            servers.append({
                "server": name, "state": "paused" if name in self.paused else "open", "actors": len(mine),
                "clients": sum(row[6] is not None for row in mine), "in_flight": sum(row[3] for row in mine),
                "waiting": sum(row[5] for row in mine), "calls": self.calls,
                "rate": self.rate * len(mine) / max(1, len(rows)), "maxwait": None, "errors": 0.1,
                "p50": 0.084, "p95": 0.31, "p99": 0.92,
            })  # fmt: skip
        waiting = sum(one["waiting"] for one in servers)
        wave = 1 + 0.2 * self.random.random()
        stages = [
            ("admission", 2.1e-5, 0.04, 0.31), ("list", 0.011, 0.09, 0.22), ("credential", 0.02, 0.21, 0.4),
            ("connect", 0.0008, 0.03, 0.1), ("server", 0.083, 0.3, 0.91), ("whole", 0.09, 0.36, 1.2),
        ]  # fmt: skip
        return {
            "kind": "overview", "now": time.time(), "uptime": time.time() - self.began,
            "calls": self.rate * wave, "opens": self.rate / 300 * wave, "opened": self.opened,
            "in_flight": sum(one["in_flight"] for one in servers), "waiting": waiting,
            "oldest_wait": 0.3 + 0.4 * self.random.random() if waiting else None,
            "clients": sum(one["clients"] for one in servers), "actors": len(rows), "evictions": self.evicted,
            "lag": {"now": 0.0006 * wave, "max": 0.0131},
            "refusals": [{"code": code, "total": n, "rate": n / 60} for code, n in self.codes.items() if n],
            "outcomes": dict(self.outcomes),
            "stages": [
                {"stage": s, "count": 4000, "p50": a * wave, "p95": b, "p99": c} for s, a, b, c in stages
            ],
            "servers": servers, "sinks": [{"name": "jsonl", "dropped": 0}],
        }  # fmt: skip

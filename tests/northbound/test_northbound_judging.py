"""What a client's run has to show: each fault that its report or a server's log can hold is found."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.northbound import run
from tests.northbound.judging import SERVERS, STEPS, TOOLS, faults_of_logs, faults_of_report, read_log
from tests.northbound.place import Place

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TENANTS = ("acme", "globex")


def report() -> dict[str, Any]:
    """What a client sees that gets everything."""
    return {
        who: {
            "tools": sorted(TOOLS),
            "echo": {server: f"{server}: {who}" for server in SERVERS},
            "progress": {server: {"text": f"{server}: 3 steps", "steps": STEPS} for server in SERVERS},
            "cancelled": dict.fromkeys(SERVERS, "given up"),
            "after": {server: f"{server}: {who} again" for server in SERVERS},
            "lists": [sorted({*TOOLS, "extra"}), sorted(TOOLS)],
            "heard": 2,
        }
        for who in TENANTS
    }


def request(who: str, method: str, **more: Any) -> dict[str, Any]:
    """A line of a log; each tenant has a connection."""
    line = {"event": "request", "connection": 5000 + TENANTS.index(who), "tenant": who, "method": method}
    return {**line, "tool": None, "arguments": None, **more}


def call(who: str, tool: str, /, **arguments: Any) -> dict[str, Any]:
    return request(who, "tools/call", tool=tool, arguments=arguments)


def log(server: str) -> list[dict[str, Any]]:
    """What a server sees of it: the notification of one era, and the letting go of the other."""
    lines = []
    for who in TENANTS:
        lines += [
            request(who, "tools/list"),
            call(who, "echo", text=who),
            call(who, "steps", number=3),
            call(who, "linger", who=who),
            request(who, "notifications/cancelled")
            if server == "one"
            else request(who, "tools/call", tool="linger", event="gone"),
            call(who, "echo", text=f"{who} again"),
        ]
    return [*lines, call("acme", "set_extra", present=True)]


def logs() -> dict[str, list[dict[str, Any]]]:
    return {server: log(server) for server in SERVERS}


def test_a_client_that_gets_everything_is_right() -> None:
    assert faults_of_report(report(), TENANTS) == []
    assert faults_of_logs(logs(), TENANTS) == []


def changed(*path: Any, to: Any) -> dict[str, Any]:
    """The report of a client that gets something else in one place, as `globex`."""
    seen = copy.deepcopy(report())
    at: Any = seen["globex"]
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = to
    return seen


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (changed("tools", to=sorted(TOOLS)[1:]), "listed"),
        (changed("tools", to=[*sorted(TOOLS), "set_extra"]), "listed twice: 8"),
        (changed("echo", "one", to="one: acme"), "echo of one: one: acme"),
        (changed("after", "two", to=None), "echo of two after the cancelled call"),
        (changed("progress", "two", "steps", to=STEPS[1:]), "progress of two"),
        (changed("progress", "one", "text", to=""), "progress of one"),
        (changed("cancelled", "one", to="one: it was long"), "cancelled call of one: one: it was long"),
        (changed("lists", to=[sorted(TOOLS), sorted(TOOLS)]), "the list with the new tool"),
        (changed("lists", to=[[*TOOLS, "extra"], [*TOOLS, "extra"]]), "the list without it"),
        (changed("heard", to=1), "heard of 1 changes, not of two"),
    ],
)
def test_a_client_that_misses_something_is_not(wrong: dict[str, Any], said: str) -> None:
    faults = faults_of_report(wrong, TENANTS)
    assert faults
    assert all(fault.startswith("globex: ") for fault in faults)
    assert any(said in fault for fault in faults)


def test_a_report_of_one_tenant_is_none_of_two() -> None:
    assert faults_of_report({"acme": report()["acme"]}, TENANTS) == ["the report is of ['acme']"]


def on_anothers_connection(lines: list[dict[str, Any]]) -> None:
    for line in lines:
        line["connection"] = 5000


def under_anothers_header(lines: list[dict[str, Any]]) -> None:
    for line in lines:
        if (line["arguments"] or {}).get("text") == "globex again":
            line["tenant"], line["connection"] = "acme", 5000


def under_no_header(lines: list[dict[str, Any]]) -> None:
    lines[0]["tenant"] = None


def twice(lines: list[dict[str, Any]]) -> None:
    lines.append(call("globex", "echo", text="globex"))


def never_taken_back(lines: list[dict[str, Any]]) -> None:
    lines[:] = [
        line for line in lines if line["event"] != "gone" and line["method"] != "notifications/cancelled"
    ]


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (on_anothers_connection, "connection 5000 carried ['acme', 'globex']"),
        (under_anothers_header, "words of globex came under the header of acme"),
        (under_no_header, "tools/list came without a header that says whose it is"),
        (twice, "globex called ['echo', 'steps', 'linger', 'echo', 'echo']"),
        (never_taken_back, "acme took back 0 calls, not one"),
    ],
)
def test_what_must_not_reach_a_server_is_found_in_its_log(
    server: str, spoil: Callable[[list[dict[str, Any]]], None], said: str
) -> None:
    spoiled = logs()
    spoil(spoiled[server])
    assert f"{server}: {said}" in faults_of_logs(spoiled, TENANTS)


def test_clients_from_before_may_be_there_and_share_no_connection() -> None:
    filed = logs()
    before = {**request("acme", "tools/list"), "tenant": "earlier", "connection": 7}
    filed["one"].append(before)
    assert faults_of_logs(filed, TENANTS, ["earlier"]) == []
    before["connection"] = 5000
    assert faults_of_logs(filed, TENANTS, ["earlier"]) == ["one: connection 5000 carried ['acme', 'earlier']"]


def test_a_log_is_read_from_where_a_client_began(tmp_path: Path) -> None:
    path = tmp_path / "one.log"
    assert read_log(path) == []
    path.write_text("".join(json.dumps(line) + "\n" for line in log("one")))
    assert read_log(path, 1) == log("one")[1:]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("/no/such/client",), "it is not installed"),
        (("sh", "-c", "echo why >&2; exit 3"), "it ended with 3:\n    why"),
        (("sh", "-c", "echo no report"), "its report cannot be read"),
    ],
)
def test_a_client_that_does_not_come_to_its_end_fails(
    tmp_path: Path, command: tuple[str, ...], said: str
) -> None:
    place = Place("http://127.0.0.1:9/mcp", dict.fromkeys(TENANTS, "token"), {})
    (fault,) = run.play(run.Played("x", command, folder=tmp_path), place, TENANTS)
    assert fault.startswith(said)


def test_a_client_that_is_there_is_judged_by_report_and_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "SETTLED_WITHIN", 0.0)
    place = Place("http://127.0.0.1:9/mcp", dict.fromkeys(TENANTS, "token"), {})
    for server in SERVERS:
        place.logs[server] = tmp_path / f"{server}.log"
        (tmp_path / f"{server}.new").write_text("".join(json.dumps(line) + "\n" for line in log(server)))
    (tmp_path / "report").write_text(json.dumps(report()))
    script = "for server in one two; do cat $server.new >> $server.log; done; cat report"
    one = run.Played("x", ("sh", "-c", script), folder=tmp_path)
    assert run.play(one, place, TENANTS) == []
    (tmp_path / "two.new").write_text("")
    assert "two: acme called []" in run.play(one, place, TENANTS)


def test_every_client_is_played_in_each_era_that_it_speaks() -> None:
    assert [(one.name, one.mode) for one in run.clients()] == [
        ("MCP Python SDK 1", None),
        ("MCP TypeScript SDK 1", None),
        ("MCP Python SDK 2, handshake", "legacy"),
        ("MCP Python SDK 2, 2026-07-28", "auto"),
        ("FastMCP 4, handshake", "legacy"),
        ("FastMCP 4, 2026-07-28", "auto"),
    ]

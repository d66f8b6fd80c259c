"""How the suite is run: apart from the network, or not at all; what is required has a player."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import tomllib
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conformance import driver, fixture, run, service, slots
from tests.conformance.loopback import NO_NAMESPACE, NOT_STARTED
from tests.conformance.reading import DONE, SERVER_BAR, read_bars

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).resolve().parent
WITHIN = 30.0

# Loopback works, and no other address has a way to it. 192.0.2.1 is documentation's (RFC 5737).
ALONE = """
import errno, socket
with socket.create_server(("127.0.0.1", 0)) as server:
    socket.create_connection(server.getsockname()[:2], 5).close()
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outward:
    print("alone" if outward.connect_ex(("192.0.2.1", 9)) == errno.ENETUNREACH else "not alone")
"""


def test_a_command_has_loopback_and_nothing_else_or_is_not_started() -> None:
    done = subprocess.run(
        [sys.executable, HERE / "loopback.py", sys.executable, "-c", ALONE],
        capture_output=True, text=True, timeout=WITHIN, check=False,
    )  # fmt: skip
    if done.returncode == NO_NAMESPACE:
        assert "no network namespace can be made here" in done.stderr
        assert not done.stdout
    else:
        assert (done.returncode, done.stdout) == (0, "alone\n"), done.stderr


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Replace the suite's command by a Python program that gets the results folder as its argument."""
    monkeypatch.setattr(run, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(run, "SLOTS", tmp_path / "slots")
    monkeypatch.setattr(run, "SUITE", Path(__file__))

    def program(text: str) -> None:
        def command(revision: str, results: Path, *_: object, **__: object) -> list[str]:
            return [sys.executable, "-c", text, str(results)]

        monkeypatch.setattr(run, "suite_command", command)

    return program


FILES = f"""
import json, pathlib, sys
for name, passed in SCENARIOS.items():
    place = pathlib.Path(sys.argv[1], name + "-2026-11-30T03-52-11-123Z")
    place.mkdir(parents=True)
    (place / "checks.json").write_text(json.dumps([{{"id": "x", "status": "SUCCESS"}}] * passed))
    (place / "stdout.txt").write_text("{DONE}")
"""


def main_with(monkeypatch: pytest.MonkeyPatch, *arguments: str, side: str = "client") -> int:
    monkeypatch.setattr(sys, "argv", ["run.py", "--side", side, *arguments])
    monkeypatch.setattr(run.signal, "signal", lambda *_: None)
    return run.main()


def filing(scenarios: dict[str, int]) -> str:
    return f"SCENARIOS = {json.dumps(scenarios)}\n{FILES}"


OLD = dict(read_bars()["2025-11-25"].required)


def test_all_that_is_required_holds(
    pretend: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(filing(OLD))
    assert main_with(monkeypatch, "--set", "2025-11-25") == 0
    assert capsys.readouterr().out.endswith("conformance: all hold\n")


@pytest.mark.parametrize("missing", ["initialize", "tools_call"])
def test_a_vacuous_pass_and_a_missing_scenario_fail_the_run(
    pretend: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    missing: str,
) -> None:
    pretend(filing({**OLD, missing: 0}))
    assert main_with(monkeypatch, "--set", "2025-11-25") == 1
    assert f"{missing}: 0 checks passed" in capsys.readouterr().out
    pretend(filing({name: passed for name, passed in OLD.items() if name != missing}))
    assert main_with(monkeypatch, "--set", "2025-11-25") == 1
    assert f"{missing}: it was not run" in capsys.readouterr().out


def test_results_of_the_run_before_do_not_count(
    pretend: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(filing(OLD))
    assert main_with(monkeypatch, "--set", "2025-11-25") == 0
    pretend("pass")
    assert main_with(monkeypatch, "--set", "2025-11-25") == 1


SERVED = read_bars(SERVER_BAR)["2025-11-25"]


@pytest.fixture
def pretend_server(pretend: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """As `pretend`, of the server side: with a service that is nothing but an address."""

    @contextlib.contextmanager
    def running(folder: Path) -> Iterator[str]:
        assert folder.is_dir()
        yield "http://127.0.0.1:9/mcp"

    monkeypatch.setattr(run.service, "running", running)

    def program(text: str) -> None:
        def command(revision: str, results: Path, scenario: str | None, url: str) -> list[str]:
            return [sys.executable, "-c", text, str(results), url]

        monkeypatch.setattr(run, "server_command", command)

    return program


def served(**changed: int) -> str:
    """A program that files every scenario of the server side, those apart with a failure."""
    numbers = {**SERVED.required, **{name: one.checks for name, one in SERVED.apart.items()}, **changed}
    filed = {f"server-{name}": number for name, number in numbers.items()}
    apart = [f"server-{name}" for name in SERVED.apart]
    return f"""
import json, pathlib, sys
for name, passed in {filed!r}.items():
    place = pathlib.Path(sys.argv[1], name + "-2026-11-30T03-52-11-123Z")
    place.mkdir(parents=True)
    words = ["SUCCESS"] * passed + ["FAILURE"] * (name in {apart!r})
    (place / "checks.json").write_text(json.dumps([{{"id": "x", "status": word}} for word in words]))
"""


def test_the_server_side_holds_by_a_table_of_its_own(
    pretend_server: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pretend_server(served())
    assert main_with(monkeypatch, "--set", "2025-11-25", side="server") == 0
    assert capsys.readouterr().out.endswith("conformance: all hold\n")
    for scenario in ("ping", "prompts-list"):
        pretend_server(served(**{scenario: 0}))
        assert main_with(monkeypatch, "--set", "2025-11-25", side="server") == 1
        assert f"{scenario}: 0 checks passed, fewer than" in capsys.readouterr().out


def test_a_service_that_does_not_start_is_no_verdict(
    pretend_server: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def running(folder: Path) -> contextlib.AbstractContextManager[str]:
        raise service.NotReadyError("afpool serve did not get ready")

    monkeypatch.setattr(run.service, "running", running)
    assert main_with(monkeypatch, "--set", "2025-11-25", side="server") == 2
    assert "did not get ready" in capsys.readouterr().err


def test_the_service_stands_before_its_server_and_ends_with_the_block(tmp_path: Path) -> None:
    with service.running(tmp_path) as url:
        ready = url.replace("/mcp", "/readyz")
        with urllib.request.urlopen(ready, timeout=WITHIN) as answer:  # the port is the service's own
            assert answer.status == 200
        upstream = tomllib.loads((tmp_path / "afpool.toml").read_text())["servers"]["fixture"]["url"]
    for gone in (url, upstream):
        port = int(gone.split(":")[2].partition("/")[0])
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 5)


def test_the_fixture_offers_each_tool_once() -> None:
    names = [tool.name for tool in fixture.tools()]
    assert len(names) == len(set(names)) > 20


def test_where_no_namespace_can_be_made_it_says_what_to_do(
    pretend: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(f"print('loopback: no network namespace'); raise SystemExit({NO_NAMESPACE})")
    assert main_with(monkeypatch, "--set", "2025-11-25") == NO_NAMESPACE
    assert "--all-interfaces" in capsys.readouterr().err


def test_a_suite_that_breaks_is_no_verdict(
    pretend: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend("raise SystemExit(7)")
    assert main_with(monkeypatch, "--set", "2025-11-25") == 2
    assert "ended with 7" in capsys.readouterr().err


def test_a_suite_that_is_not_there_is_no_verdict(
    pretend: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pretend(filing(OLD))
    monkeypatch.setattr(run, "SUITE", tmp_path / "index.js")
    assert main_with(monkeypatch, "--set", "2025-11-25") == 2
    assert "not installed" in capsys.readouterr().err


def test_a_command_that_is_not_there_is_said_to_be_missing() -> None:
    done = subprocess.run(
        [sys.executable, HERE / "loopback.py", "/no/such/command"],
        capture_output=True, text=True, timeout=WITHIN, check=False,
    )  # fmt: skip
    assert done.returncode in {NO_NAMESPACE, NOT_STARTED}
    assert done.stderr.startswith("loopback: ")


def test_a_scenario_that_no_set_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert main_with(monkeypatch, "--scenario", "no-such-scenario") == 2


def test_only_an_explicit_override_leaves_the_namespace() -> None:
    for scenario in (None, "tools_call"):
        shut = run.suite_command("2026-07-28", Path("r"), scenario, all_interfaces=False)
        wide = run.suite_command("2026-07-28", Path("r"), scenario, all_interfaces=True)
        assert shut[1].endswith("loopback.py")
        assert shut[2:] == wide


@pytest.mark.parametrize("revision", list(read_bars()))
def test_the_driver_plays_every_required_scenario(revision: str) -> None:
    assert not [name for name in read_bars()[revision].required if driver.player_of(name) is None]


def test_what_nobody_plays_is_not_played_by_somebody() -> None:
    assert driver.player_of("no-such-scenario") is None


HOLDER = """
import sys
from tests.conformance import slots
slots.take()
print("mine", flush=True)
sys.stdin.read()
"""


def test_a_driver_waits_until_another_has_ended(tmp_path: Path) -> None:
    slots.make(tmp_path, 2)

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", HOLDER],
            cwd=run.ROOT, env={**os.environ, slots.FOLDER: str(tmp_path)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    with contextlib.ExitStack() as stack:
        holders = [stack.enter_context(start()) for _ in range(2)]
        for holder in holders:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "mine\n"
        third = stack.enter_context(start())
        for process in (*holders, third):
            stack.callback(process.kill)
        assert third.stdout is not None
        assert not select.select([third.stdout], [], [], 0.5)[0]
        holders[0].communicate(timeout=WITHIN)
        assert select.select([third.stdout], [], [], WITHIN)[0]
        assert third.stdout.readline() == "mine\n"


def test_without_slots_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(slots.FOLDER, raising=False)
    slots.take()

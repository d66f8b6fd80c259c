"""The catalogue of real servers is data that can be believed: rows, placeholders, versions, lock files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.interop import catalogue
from tests.interop.catalogue import ROOT, Entry, Row, filled, places

HERE = Path(__file__).resolve().parent
ROWS = catalogue.read()
ENTRY: dict[str, Any] = {"name": "some", "package": "some", "installed": "there", "over": {"stdio": ["some"]}}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(row.key))
def test_a_row_can_be_started(row: Row, tmp_path: Path) -> None:
    where = places(tmp_path, 1)
    command = filled(row.entry.over[row.transport], where)
    filled([dict(row.entry.env), row.entry.setup, dict(row.entry.arguments)], where)
    scripts = [Path(word) for word in command if str(HERE) in word or "/tests/peers/" in word]
    assert all(script.is_file() for script in scripts)
    listens = row.transport != "stdio"
    on_node = command[0] == "node"
    assert (where["preload"] in command) == (on_node and listens), "Node.js listens on loopback"
    if listens:
        assert "1" in [*command, *filled(list(row.entry.env.values()), where)], "it is told its port"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(row.key))
def test_a_row_has_its_package_locked(row: Row) -> None:
    component, name = row.entry.installed.split("/")
    packages = HERE / "packages" if component == "interop" else ROOT / "tests" / "peers" / "servers"
    manifest = packages / name / "package.json" if component == "interop" else packages / "package.json"
    lock = packages / f"{name}.txt"
    if lock.exists():
        assert f"\n{row.entry.package}==" in f"\n{lock.read_text()}"
    else:
        assert row.entry.package in json.loads(manifest.read_text())["dependencies"]
        assert f"node_modules/{row.entry.package}" in manifest.with_name("package-lock.json").read_text()
        wanted = json.loads(manifest.read_text()).get("engines", {}).get("node", ">=0")
        assert wanted == f">={row.entry.node}"


def test_the_short_run_has_every_transport() -> None:
    assert {row.transport for row in ROWS if row.quick} == set(catalogue.TRANSPORTS)


@pytest.mark.parametrize(
    "wrong",
    [
        {"over": {"pigeon": ["some"]}},
        {"quick": ["http"]},
        {"tool": "echo"},
        {"answer": "hello"},
    ],
    ids=str,
)
def test_an_entry_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="some: "):
        Entry(**{**ENTRY, **wrong})


def test_two_rows_of_one_name_are_refused(tmp_path: Path) -> None:
    one = '[[server]]\nname="a"\npackage="p"\ninstalled="i"\nover={stdio=["x"]}\n'
    (tmp_path / "twice.toml").write_text(one * 2)
    with pytest.raises(ValueError, match="twice"):
        catalogue.read(tmp_path / "twice.toml")


def test_the_version_is_that_of_what_is_installed(tmp_path: Path) -> None:
    python = Entry(**{**ENTRY, "package": "some-server"})
    assert python.version(tmp_path) is None
    (tmp_path / "there/lib/python3.11/site-packages/some_server-1.2.3.dist-info").mkdir(parents=True)
    (tmp_path / "there/lib/python3.11/site-packages/some_server_more-9.dist-info").mkdir()
    assert python.version(tmp_path) == "1.2.3"
    node = Entry(**{**ENTRY, "package": "@scope/some", "installed": "node"})
    place = tmp_path / "node/node_modules/@scope/some"
    place.mkdir(parents=True)
    (place / "package.json").write_text('{"version": "4.5.6"}')
    assert node.version(tmp_path) == "4.5.6"


def test_placeholders_are_filled_everywhere_and_an_unknown_one_is_noticed() -> None:
    assert filled({"a": ["{x}-{y}", 3, {"b": "{y}"}]}, {"x": "1", "y": "2"}) == {"a": ["1-2", 3, {"b": "2"}]}
    with pytest.raises(KeyError):
        filled("{z}", {"x": "1"})

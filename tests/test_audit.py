"""What is locked, and what may be installed, is held against what is known; no index is asked here."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit", ROOT / "scripts" / "audit.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["audit"] = module
    spec.loader.exec_module(module)
    return module


def test_what_is_locked_and_what_is_admitted_is_known_to_be_sound(audit, capsys):
    assert audit.main(["--offline"]) == 0
    assert "held against" in capsys.readouterr().out


def test_a_lock_that_is_affected_and_a_range_that_admits_it_are_found(audit):
    advisory = audit.Advisory("starlette", "X-1", SpecifierSet("<1.3.1"), "too old")
    locked = audit.Pin("starlette", Version("1.3.0"), ("requirements/run.txt",))
    mended = audit.Pin("starlette", Version("1.3.1"), ("requirements/run.txt",))
    other = audit.Pin("httpx", Version("0.1"), ("requirements/run.txt",))
    assert audit.known([locked, mended, other], [advisory]) == [(locked, advisory)]


def test_the_lowest_version_of_each_range(audit, tmp_path):
    page = tmp_path / "pyproject.toml"
    page.write_text(
        '[project]\ndependencies = ["Foo_Bar>=1.2,<2", "free"]\n'
        '[project.optional-dependencies]\nmore = ["exact==3.1", "near~=2.4"]\n'
    )
    assert {pin.package: str(pin.version) for pin in audit.floors(page)} == {
        "foo-bar": "1.2",
        "free": "0",
        "exact": "3.1",
        "near": "2.4",
    }


def test_old_servers_are_told_and_fail_nothing(audit, tmp_path):
    for name in ("requirements/run.txt", "tests/interop/packages/old.txt", ".cache/x.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text(f"thing=={len(name)}.0 \\\n    --hash=sha256:00\n")
    ours, old = sorted(audit.locked(tmp_path), key=lambda pin: not pin.ours)
    assert (ours.ours, ours.files) == (True, ("requirements/run.txt",))
    assert (old.ours, old.files) == (False, ("tests/interop/packages/old.txt",))


def index(answers: dict[str, object]) -> httpx.Client:
    def answer(request: httpx.Request) -> httpx.Response:
        for end, given in answers.items():
            if request.url.path.endswith(end):
                return httpx.Response(200, content=json.dumps(given))
        return httpx.Response(404)

    return httpx.Client(transport=httpx.MockTransport(answer))


def test_what_an_index_says(audit):
    pin = audit.Pin("foo-bar", Version("1.2"), ("requirements/run.txt",))
    files = [
        {"filename": "foo_bar-1.2-py3-none-any.whl", "yanked": "broken"},
        {"filename": "foo-bar-1.2.tar.gz", "yanked": True},
        {"filename": "foo_bar-1.3-py3-none-any.whl", "yanked": False},
        {"filename": "strange", "yanked": False},
    ]
    listing = {"/foo-bar/": {"files": files}}
    with index(listing) as client:
        assert audit.ask(client, pin) == audit.Heard(yanked=True, told=False, vulnerable=())
    files[1]["yanked"] = False  # one file is still offered
    told = {
        "vulnerabilities": [
            {"id": "P-1", "aliases": ["CVE-1"]},
            {"id": "P-2", "withdrawn": "2026-01-01"},
            {"id": "P-3", "aliases": []},
        ]
    }
    with index(listing | {"/foo-bar/1.2/json": told}) as client:
        heard = audit.ask(client, pin)
    assert heard == audit.Heard(yanked=False, told=True, vulnerable=("P-1 (CVE-1)", "P-3"))


def test_an_index_that_cannot_be_asked_fails_the_run(audit, monkeypatch, capsys):
    def refuse(_client, _pin):
        raise httpx.ConnectError("no")

    monkeypatch.setattr(audit, "ask", refuse)
    assert audit.main([]) == audit.UNREACHED
    assert "could not be asked" in capsys.readouterr().out


def test_what_an_index_says_against_a_version_fails_the_run(audit, monkeypatch, capsys):
    monkeypatch.setattr(
        audit, "ask", lambda _client, pin: audit.Heard(pin.package == "trio", told=True, vulnerable=())
    )
    assert audit.main([]) == 1
    assert re.search(r"FOUND: trio \S+ was withdrawn", capsys.readouterr().out)


def test_every_pin_has_a_hash(audit):
    paths = {file for pin in audit.locked() for file in pin.files}
    assert "requirements/run.txt" in paths
    for file in sorted(paths):
        for block in re.split(r"\n(?=[A-Za-z0-9])", (ROOT / file).read_text()):
            if audit.PIN.match(block):
                assert "--hash=sha256:" in block, (file, block.splitlines()[0])

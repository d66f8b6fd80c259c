"""What providers say that they hold: names and times, for whom, and never a credential."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
import trio

from afpool import CredentialFailed, Identity, Issued, ScriptedCredentials, bearer
from afpool._base.held import HeldCredential, held_by
from afpool.config import load_config
from afpool.config._components import open_components
from afpool.console import Asker, build_registry
from afpool.credentials import RetryingCredentials
from afpool.pool import open_pool
from tests.credentials.oauth_kit import RESOURCE, desk
from tests.credentials.test_cache import ALICE, SECRET, cached, numbered

SHOWN = "k3pt-s3cret"


async def test_a_cache_says_what_it_holds_until_when() -> None:
    c = cached(numbered(1_500.0))
    await c.get(scopes=("write", "read"), mode="user", resource="https://crm.example/mcp")
    await c.get(service="mail", identity=Identity())
    crm, mail = c.cache.held()
    assert crm == HeldCredential(
        service="crm", mode="user", scopes=("read", "write"), resource="https://crm.example/mcp", who=ALICE,
        state="held", expires_at=1_500.0, renew_at=1_440.0, until=1_500.0,
    )  # fmt: skip
    assert (mail.service, mail.who) == ("mail", None)
    c.cache.drop(service="crm", identity=ALICE)
    assert [held.service for held in c.cache.held()] == ["mail"]


async def test_what_is_asked_for_and_what_was_refused_is_told_apart() -> None:
    hold = trio.Event()
    c = cached(numbered(1_500.0), hold=hold)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(c.get)
        await trio.testing.wait_all_tasks_blocked()
        assert [held.state for held in c.cache.held()] == ["asking"]
        hold.set()
    c.clock.now += 450
    assert [held.state for held in c.cache.held()] == ["held"]
    refused = cached(lambda _: CredentialFailed(f"no such {SECRET}"))
    with pytest.raises(CredentialFailed):
        await refused.get()
    (held,) = refused.cache.held()
    assert (held.state, held.expires_at, held.until) == ("refused", None, 1_010.0)
    assert SECRET not in repr(held)


async def test_a_provider_that_says_nothing_holds_nothing_and_one_in_front_of_another_passes_it_on() -> None:
    plain = ScriptedCredentials(numbered())
    assert list(held_by(plain)) == []
    assert list(held_by(None)) == []
    c = cached(numbered(1_500.0))
    await c.get()
    assert [held.service for held in held_by(RetryingCredentials(c.cache))] == ["crm"]
    assert list(held_by(RetryingCredentials(plain))) == []


async def test_oauth_says_what_it_holds_and_who_has_to_consent() -> None:
    async with desk() as d:
        await d.token()
        await d.ask("challenge", mode="user")
        held = {one.mode: one for one in d.oauth.held()}
        machine, user = held["machine"], held["user"]
        assert (machine.service, machine.resource, machine.state) == ("files", RESOURCE, "held")
        assert machine.expires_at is not None
        assert machine.until is not None
        assert machine.until < machine.expires_at
        assert (user.state, user.who) == ("consent", Identity("acme", "alice"))
        assert user.until is not None
        assert user.until > d.clock.unix_now()
        token = (await d.ask(mode="machine")).credential.token
        assert token not in repr(list(d.oauth.held()))


async def test_a_grant_that_fails_says_how_long_it_is_left_alone() -> None:
    async with desk() as d:
        d.server.on("/token", httpx.Response(500))
        error = await d.fails("challenge")
        (held,) = d.oauth.held()
        assert held.state == "failing"
        assert held.until is not None
        assert error.retry_after is not None
        assert held.until == pytest.approx(d.clock.unix_now() + error.retry_after, abs=0.5)


async def test_what_a_configuration_names_is_held(tmp_path: Any) -> None:
    path = tmp_path / "afpool.toml"
    path.write_text('[credentials.crm]\ntype = "static"\ntoken = "${CRM_TOKEN}"\n', encoding="utf-8")
    config = load_config(path, env={"CRM_TOKEN": SHOWN})
    async with open_components(config) as (provider, _), open_pool([], credentials=provider) as pool:
        registry = build_registry(pool=pool)
        result = await registry.run("show credentials", Asker("read", "x"))
        assert isinstance(result, dict)
        (row,) = result["rows"]
        assert row[:3] == ("crm", "machine", "held")
        assert SHOWN not in repr(result)


async def test_the_table_shows_whose_they_are_by_digest_and_the_server_as_an_origin() -> None:
    c = cached(numbered(1e12))
    await c.get(mode="user", resource=f"https://user:{SHOWN}@crm.example:8443/mcp?key={SHOWN}")
    async with open_pool([], credentials=c.cache) as pool:
        registry = build_registry(pool=pool)
        result = await registry.run("show credentials", Asker("read", "x"))
        assert isinstance(result, dict)
        names = [column["name"] for column in result["columns"]]
        (row,) = [dict(zip(names, row, strict=True)) for row in result["rows"]]
        assert row["resource"] == "https://crm.example:8443"
        assert row["who"].startswith("w:")
        assert SHOWN not in repr(result)
        assert "alice" not in repr(result)
        shown = await registry.run("show credentials --reveal", Asker("operate", "x"))
        assert isinstance(shown, dict)
        assert shown["rows"][0][-3:] == ("acme", "alice", None)


def test_issued_is_what_is_never_shown() -> None:
    assert SECRET not in repr(HeldCredential(service="x", mode="machine", who=Identity(SECRET)))
    assert SECRET not in repr(Issued(bearer(SECRET)))

"""What an app, its configuration and its servers can get wrong: one typed error each; the pool serves on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import trio

import afpool
from afpool import (
    CredentialRequirement,
    HttpTransport,
    Identity,
    Plan,
    Server,
)
from afpool.testing import FakeServer
from tests.pool.kit import ALICE, BOB, quiet, raises, refused, world

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

SECRET = "s3cr3t-value"


# ---------------------------------------------------------------------------- names and identities


async def test_names_that_do_not_exist():
    async with world() as w:
        for ask in (
            lambda: w.pool.tools(ALICE, "no-such"),
            lambda: w.pool.refresh(ALICE, "no-such"),
            lambda: w.pool.warm(ALICE, ["files", "no-such"]),
        ):
            with pytest.raises(LookupError, match=r"no-such.*files"):
                await ask()
        assert w.server.log == []
        tools = await w.pool.tools(ALICE, "files")
        with pytest.raises(KeyError, match="no-such-tool"):
            tools["no-such-tool"]
        with pytest.raises(LookupError, match="no-such"):
            w.pool.key_of(ALICE, "no-such")
        with pytest.raises(LookupError):
            w.pool.pause(w.pool.key_of(BOB, "files"))
        await tools["echo"].call(identity=ALICE)
        quiet(w.pool)


@pytest.mark.parametrize(
    "who",
    [
        None,
        Identity(),
        Identity(tenant=""),
        lambda: None,
        raises(ValueError(SECRET)),
        lambda: "alice",
        "alice",
        7,
    ],
    ids=[
        "none",
        "nobody",
        "empty",
        "asked: none",
        "asked: raises",
        "asked: a string",
        "a string",
        "a number",
    ],
)
async def test_identities_that_are_none(who: Any):
    async with world() as w:
        for ask in (w.pool.tools, w.pool.refresh, w.pool.warm):
            error = await refused(ask(who), "identity-missing")
            assert SECRET not in str(error)
        assert w.server.log == []
        assert not w.pool.actors()
        await (await w.tool()).call(identity=ALICE)


# ---------------------------------------------------------------------------- arguments


BAD = {
    "a list": ["a"],
    "a string": "a",
    "a number": 7,
    "NaN": {"n": math.nan},
    "infinity": {"n": [1, {"m": -math.inf}]},
    "a set": {"n": {1, 2}},
    "bytes": {"n": b"bytes"},
    "an object": {"n": object()},
    "a key that is no string": {7: "n"},
    "a key that is none": {None: "n"},
    "a lone surrogate": {"n": "\ud800"},
    "a lone surrogate as a key": {"\udfff": 1},
    "a complex number": {"n": 1j},
    "itself": None,
    "very deep": None,
}


def bad(name: str) -> Any:
    value = BAD[name]
    if name == "itself":
        value = {"n": SECRET}
        value["self"] = value
    elif name == "very deep":
        value = {}
        for _ in range(100_000):
            value = {"n": value}
    return value


@pytest.mark.parametrize("name", BAD)
async def test_arguments_that_are_no_json_object(name: str):
    async with world() as w:
        tool = await w.tool()
        await tool.call({"n": 1}, identity=ALICE)
        before = w.sent()
        error = await refused(tool.call(bad(name), identity=ALICE, call_id="c"), "invalid-arguments")
        assert error.call_id == "c"
        assert SECRET not in str(error)
        assert w.sent() == before
        await tool.call({"n": 2}, identity=ALICE)
        quiet(w.pool)


async def test_a_value_that_is_refused_is_not_shown():
    async with world() as w:
        tool = await w.tool()
        for value in (
            {"deep": [{"n": {SECRET}}]},
            {"n": SECRET.encode()},
            {"n": [SECRET, math.nan]},
            SECRET,
            [SECRET],
        ):
            error = await refused(tool.call(value, identity=ALICE), "invalid-arguments")
            assert SECRET not in str(error)
            assert SECRET not in repr(error.__cause__)
            assert SECRET not in repr(w.pool.records.uses[-1])


# ---------------------------------------------------------------------------- the app's own code


def http(server: FakeServer, **options: Any) -> Plan:
    return Plan(transport=HttpTransport(url=server.url), **options)


async def slowly_none(server: str, who: Identity) -> Any:
    await trio.lowlevel.checkpoint()


PLANS: dict[str, Callable[..., Any]] = {
    "raises": lambda server, who: raises(ValueError(SECRET))(),
    "gives nothing": lambda server, who: None,
    "gives nothing slowly": slowly_none,
    "gives a mapping": lambda server, who: {"url": SECRET},
    "gives no transport": lambda server, who: Plan(transport=None),  # type: ignore[arg-type]
    "gives another transport": lambda server, who: Plan(transport="https://example.invalid"),  # type: ignore[arg-type]
    "gives no url": lambda server, who: Plan(transport=HttpTransport(url="not a url " + SECRET)),
    "takes too few arguments": lambda server: None,
    "gives a credential per user to a server for everybody": lambda server, who: Plan(
        transport=HttpTransport(url="http://127.0.0.1:1/"), credential=CredentialRequirement("s", mode="user")
    ),
}


@pytest.mark.parametrize("name", PLANS)
async def test_plans_that_are_none(name: str):
    async with FakeServer.http() as fake:

        def plan(server: str, who: Identity) -> Any:
            return http(fake) if who.tenant == "globex" else PLANS[name](server, who)

        async with afpool.open_pool([Server(name="files", keyed_on=("tenant",))], plan=plan) as pool:
            for _ in range(2):
                error = await refused(pool.tools(ALICE), "plan-failed")
                assert SECRET not in str(error)
                assert "nothing was sent" in str(error)
            other = Identity(tenant="globex")
            await (await pool.tools(other))["echo"].call(identity=other)
            quiet(pool)


async def test_a_plan_that_begins_to_fail_costs_no_call_on_a_living_client():
    async with world() as w:
        tool = await w.tool()

        def fails(server: str, who: Identity) -> Plan:
            raise ValueError(SECRET)

        w.pool.plan = fails
        await tool.call(identity=ALICE)
        await refused(w.pool.refresh(ALICE), "plan-failed")
        await w.evict()
        await refused(tool.call(identity=ALICE), "plan-failed")
        assert w.sent() == 1
        quiet(w.pool)


@pytest.mark.parametrize("answer", [raises(ValueError(SECRET)), lambda: 7, lambda: b"name", lambda: ["a"]])
async def test_a_share_that_is_none(answer: Callable[[], Any]):
    async with world() as w:
        tool, bobs = await w.tool(), await w.tool(BOB)
        w.host.names["alice"] = answer
        error = await refused(tool.call(identity=ALICE), "share-failed")
        assert SECRET not in str(error)
        await refused(w.pool.tools(ALICE), "share-failed")
        await bobs.call(identity=BOB)
        del w.host.names["alice"]
        await tool.call(identity=ALICE)
        assert w.sent() == 2
        quiet(w.pool)


# ---------------------------------------------------------------------------- configuration


def configurations() -> Iterator[tuple[Mapping[str, Any], str]]:
    yield {"max_operations": 0}, "max_operations"
    yield {"deadline": -1.0}, "deadline"
    yield {"close_timeout": 0}, "close_timeout"


@pytest.mark.parametrize(("limits", "word"), list(configurations()))
async def test_limits_that_are_none(limits: Mapping[str, Any], word: str):
    with pytest.raises(ValueError, match=word):
        async with afpool.open_pool([Server(name="files")], plan=lambda server, who: None, **limits):
            pass


async def test_servers_that_are_none():
    async with afpool.open_pool([]) as pool:  # some may be configured later
        assert len(await pool.tools(ALICE)) == 0
        with pytest.raises(LookupError, match="no server 'files'"):
            await pool.tools(ALICE, "files")
    with pytest.raises(TypeError, match="takes Server objects, not str"):
        async with afpool.open_pool(["files"]):  # type: ignore[list-item]
            pass
    with pytest.raises(ValueError, match="needs a name"):
        Server(name="")
    with pytest.raises(ValueError, match="must be keyed on 'principal'"):
        Server(
            name="files",
            keyed_on=("tenant",),
            plan=Plan(
                transport=HttpTransport(url="http://127.0.0.1:1/"),
                credential=CredentialRequirement("s", mode="user"),
            ),
        )


@pytest.mark.parametrize("pointer", ["x", "_meta", 3, None, " /x"])
def test_what_lists_are_compared_without_are_pointers(pointer):
    with pytest.raises(ValueError, match="compare_without takes JSON pointers"):
        Server(name="files", compare_without=(pointer,))
    assert Server(name="files", compare_without=["/_meta", "/a~1b"]).compare_without == ("/_meta", "/a~1b")

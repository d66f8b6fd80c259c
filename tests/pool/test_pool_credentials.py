"""Credentials are vended for each attempt, pass every gate, and are found nowhere afterwards."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

import afpool
from afpool import (
    CredentialRequirement,
    Identity,
    NeedsAuthorization,
    Plan,
    ScriptedCredentials,
    Server,
    StaticCredentials,
    bearer,
)
from afpool.testing import Status
from tests.pool.kit import ALICE, BOB, Hold, memory_world, quiet, refused, start, until, world

if TYPE_CHECKING:
    from collections.abc import Iterator

    from afpool import CredentialRequest

CANARY = "canary-5f1d"
URL = f"https://login.example/consent?state={CANARY}"


def tokens(w: Any) -> list[str]:
    return [arrival.headers.get("authorization", "") for arrival in w.server.arrivals("tools/call")]


def texts(thing: Any, seen: set[int] | None = None) -> Iterator[str]:
    """Everything that is written in an object and in what it refers to, as it may be shown."""
    seen = set() if seen is None else seen
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, BaseException):
        yield from (str(thing), repr(thing), repr(thing.args), repr(vars(thing)))
        yield from texts(thing.__cause__, seen)
        yield from texts(thing.__context__, seen)
    elif isinstance(thing, afpool.Use):
        for name in thing.__slots__:
            yield repr(getattr(thing, name))
    elif thing is not None:
        yield repr(thing)


def clean(pool: afpool.Pool, *things: Any) -> None:
    """The canary is in none of these, nor in what the pool has filed."""
    for thing in (*things, *pool.records.uses, *pool.records.events, pool.statistics()):
        for text in texts(thing):
            assert CANARY not in text, text


async def test_each_attempt_has_a_credential_of_its_own():
    async with world(credential=True) as w:
        tool = await w.tool()
        w.host.asked.clear()
        for number in range(3):
            w.host.token = f"token-{number}"
            await tool.call(identity=ALICE)
        assert tokens(w) == [f"Bearer token-{number}" for number in range(3)]
        assert [(asked.reason, asked.rejected, asked.service) for asked in w.host.asked] == [
            ("call", False, "files")
        ] * 3


async def test_it_is_asked_for_the_projection_only():
    requirement = CredentialRequirement("files", scopes=("read",), mode="user")
    async with world(credential=requirement) as w:
        who = Identity(tenant="acme", principal="alice", conversation_id="c-1")
        await (await w.tool(who)).call(identity=who)
        asked = w.host.asked[-1]
        assert asked.identity == Identity(tenant="acme", principal="alice")
        assert (asked.mode, asked.scopes) == ("user", ("read",))


async def test_two_people_never_see_each_others_credential():
    class Provider:
        async def get(self, request: CredentialRequest) -> afpool.Issued:
            await trio.lowlevel.checkpoint()
            return afpool.Issued(bearer(f"of-{request.identity.principal}"))

    requirement = CredentialRequirement("files", mode="user")
    async with (
        world(credential=requirement, pool={"credentials": Provider()}) as w,
        trio.open_nursery() as nursery,
    ):
        tools = {who: await w.tool(who) for who in (ALICE, BOB)}
        for number in range(40):
            who = (ALICE, BOB)[number % 2]
            nursery.start_soon(lambda who=who: tools[who].call({"who": who.principal}, identity=who))
        await until(lambda: w.sent() == 40)
        for arrival in w.server.arrivals("tools/call"):
            assert arrival.headers["authorization"] == f"Bearer of-{arrival.arguments['who']}"
        for arrival in w.server.log:
            assert "authorization" in arrival.headers


async def test_a_rotated_credential_changes_no_binding():
    async with world(credential=True) as w:
        tool = await w.tool()
        w.host.token = "another"
        await tool.call(identity=ALICE)
        assert (await w.tool()).binding.context == tool.binding.context


# ---------------------------------------------------------------------------- after a refusal of the server


async def test_a_rejected_credential_is_asked_for_once_more():
    async with world(credential=True) as w:
        tool = await w.tool()
        w.host.asked.clear()
        w.server.on("tools/call", Status(401), times=1)
        await tool.call(identity=ALICE)
        assert [(asked.reason, asked.rejected) for asked in w.host.asked] == [
            ("call", False),
            ("refresh", True),
        ]
        use = w.pool.records.uses[-1]
        assert (use.outcome, use.attempts) == ("ok", 2)
        assert w.server.executions["echo"] == 1


async def test_a_credential_that_stays_rejected_ends_the_call():
    async with world(credential=True) as w:
        tool = await w.tool()
        w.server.on("tools/call", Status(401, headers={"www-authenticate": 'Bearer realm="files"'}))
        error = await refused(tool.call(identity=ALICE), "authorization-required", "refused")
        assert error.http_status == 401
        assert error.www_authenticate == 'Bearer realm="files"'
        assert w.sent() == 2


async def test_a_401_without_a_requirement_is_the_answer():
    async with world() as w:
        tool = await w.tool()
        w.server.on("tools/call", Status(401))
        await refused(tool.call(identity=ALICE), "authorization-required", "refused")
        assert w.sent() == 1


@pytest.mark.parametrize("change", ["share", "revoke", "caller"])
async def test_the_second_attempt_passes_every_gate_again(change):
    async with world(credential=True, signer=True) as w, trio.open_nursery() as nursery:
        tool = await w.tool()
        w.server.on("tools/call", Status(401), times=1)
        hold = Hold()

        async def get(request: CredentialRequest) -> afpool.Issued:
            if request.rejected:
                await hold.wait()
            return afpool.Issued(bearer("token"))

        w.host.get = get  # type: ignore[method-assign]
        call = start(nursery, lambda: tool.call(identity=w.host.who))
        await hold.reached.wait()
        if change == "share":
            w.host.names["alice"] = "team"
        elif change == "revoke":
            w.pool.invalidate(identity=ALICE)
        else:
            w.host.caller = None
        hold.let_go.set()
        await call.refusal("identity-mismatch" if change == "caller" else "binding-changed")
        assert w.sent() == 1
        quiet(w.pool)


async def test_a_challenge_for_scopes_steps_up():
    async with world(credential=CredentialRequirement("files", scopes=("read",))) as w:
        tool = await w.tool()
        w.host.asked.clear()
        challenge = {"www-authenticate": 'Bearer error="insufficient_scope", scope="write"'}
        w.server.on("tools/call", Status(403, headers=challenge), times=1)
        await tool.call(identity=ALICE)
        assert [(asked.reason, asked.scopes) for asked in w.host.asked] == [
            ("call", ("read",)),
            ("step-up", ("read", "write")),
        ]
        w.server.on("tools/call", Status(403, headers=challenge))
        w.host.asked.clear()
        error = await refused(tool.call(identity=ALICE), "authorization-required", "refused")
        assert error.http_status == 403
        assert len(w.host.asked) == 2, "scopes that have not grown are not asked for again"


async def test_scopes_that_keep_growing_are_followed_twice():
    async with world(credential=True) as w:
        tool = await w.tool()
        w.host.asked.clear()
        for number in range(5):
            challenge = {"www-authenticate": f'Bearer error="insufficient_scope", scope="s{number}"'}
            w.server.on("tools/call", Status(403, headers=challenge), times=1)
        await refused(tool.call(identity=ALICE), "authorization-required", "refused")
        assert [asked.scopes for asked in w.host.asked] == [(), ("s0",), ("s0", "s1")]


async def test_throttled_calls_wait_as_long_as_they_are_told(autojump_clock):
    with trio.fail_after(100):
        async with world(credential=True) as w:
            tool = await w.tool()
            w.server.on("tools/call", Status(429, headers={"retry-after": "3"}), times=2)
            w.host.asked.clear()
            await tool.call(identity=ALICE)
            times = [arrival.time for arrival in w.server.arrivals("tools/call")]
            assert [round(time - times[0]) for time in times] == [0, 3, 6]
            assert len(w.host.asked) == 3, "each attempt asks again"


@pytest.mark.parametrize(("retry_after", "attempts"), [("4", 3), ("6", 2), ("11", 1)])
async def test_throttled_calls_end(retry_after, attempts, autojump_clock):
    """Three attempts, ten seconds of waiting in all."""
    with trio.fail_after(100):
        async with world() as w:
            tool = await w.tool()
            w.server.on("tools/call", Status(429, headers={"retry-after": retry_after}))
            error = await refused(tool.call(identity=ALICE), "server-refused", "refused", within=50)
            assert (error.http_status, error.retry_after) == (429, float(retry_after))
            assert w.sent() == attempts
            quiet(w.pool)


@pytest.mark.parametrize("end", ["deadline", "withdrawn", "cancelled"])
async def test_what_ends_a_call_while_it_is_throttled_says_that_nothing_is_under_way(end, autojump_clock):
    """The attempt before was refused, so nothing is in doubt."""
    with trio.fail_after(100):
        async with world() as w, trio.open_nursery() as nursery:
            tool = await w.tool()
            w.server.on("tools/call", Status(429, headers={"retry-after": "5"}))
            scope = trio.CancelScope()

            async def run() -> Any:
                with scope:
                    return await tool.call(identity=ALICE, call_id="c", deadline=trio.current_time() + 2)

            call = start(nursery, run)
            await w.server.wait_for("tools/call")
            await trio.sleep(1)
            if end == "withdrawn":
                w.pool.cancel("c")
                await call.refusal("cancelled")
            elif end == "deadline":
                await call.refusal("deadline-exceeded")
            else:
                scope.cancel()
                await call.done.wait()
            use = w.pool.records.uses[-1]
            assert use.delivery == "not-sent"
            assert w.sent() == 1
            quiet(w.pool)


async def test_a_deadline_that_passes_between_two_attempts_leaves_nothing_in_doubt():
    """The answer of the first attempt and the deadline come in one instant: the second gate is late."""
    ahead = 0.0
    seams = afpool.Seams(now=lambda: trio.current_time() + ahead)
    async with world(pool={"seams": seams}) as w:
        tool = await w.tool()
        location = {"location": f"{w.server.path}?again"}

        def redirected(arrival: Any) -> bool:
            nonlocal ahead
            ahead = 100.0
            return True

        w.server.on("tools/call", Status(307, headers=location), when=redirected)
        await refused(tool.call(identity=ALICE), "deadline-exceeded")
        assert w.sent() == 1


async def test_a_closed_gate_ends_the_wait_of_a_throttled_call_at_once(autojump_clock):
    with trio.fail_after(100):
        async with world() as w, trio.open_nursery() as nursery:
            tool = await w.tool()
            w.server.on("tools/call", Status(429, headers={"retry-after": "5"}))
            call = start(nursery, lambda: tool.call(identity=ALICE))
            await w.server.wait_for("tools/call")
            await trio.sleep(1)
            before = trio.current_time()
            w.pool.invalidate(identity=ALICE)
            await call.refusal("binding-changed")
            assert trio.current_time() - before < 0.1
            assert w.sent() == 1


async def test_a_credential_rejected_while_opening_is_asked_for_once_more():
    async with world(credential=True) as w:
        w.server.on("initialize", Status(401), times=1)
        await (await w.tool()).call(identity=ALICE)
        assert [asked.rejected for asked in w.host.asked].count(True) >= 1


async def test_an_opening_that_wants_what_there_is_not():
    async with world() as w:
        w.server.on("*", Status(401, headers={"www-authenticate": "Bearer"}))
        error = await refused(w.pool.tools(ALICE), "authorization-required")
        assert error.http_status == 401


# ---------------------------------------------------------------------------- providers that fail


async def _hang(request: CredentialRequest) -> Any:
    await trio.sleep_forever()


async def _none(request: CredentialRequest) -> Any:
    await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("answer", [RuntimeError(f"vault says {CANARY}"), _none], ids=["raises", "none"])
async def test_a_provider_that_fails(answer):
    async with world(credential=True) as w:
        tool = await w.tool()

        async def get(request: CredentialRequest) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return await answer(request)

        w.host.get = get  # type: ignore[method-assign]
        error = await refused(tool.call(identity=ALICE), "credential-failed")
        assert CANARY not in str(error)
        assert w.sent() == 0
        await refused(w.pool.refresh(ALICE), "credential-failed")


async def test_a_provider_that_hangs_meets_the_deadline(autojump_clock):
    with trio.fail_after(100):
        async with world(credential=True) as w:
            tool = await w.tool()
            w.host.get = _hang  # type: ignore[method-assign]
            await refused(tool.call(identity=ALICE, deadline=trio.current_time() + 3), "deadline-exceeded")
            assert w.sent() == 0
            quiet(w.pool)


async def test_no_provider_at_all():
    async with world(credential=True, pool={"credentials": None}) as w:
        error = await refused(w.pool.tools(ALICE), "credential-failed")
        assert "no credential provider" in str(error)


@pytest.mark.parametrize("callback", ["takes", "raises", "none"])
async def test_somebody_has_to_authorize_first(callback, caplog):
    told: list[Any] = []

    def on_authorization(server: str, who: Identity, needs: NeedsAuthorization) -> None:
        told.append((server, who, needs.authorization_url, needs.session_id))
        if callback == "raises":
            raise RuntimeError(needs.authorization_url)

    options = {} if callback == "none" else {"on_authorization": on_authorization}
    caplog.set_level(logging.DEBUG)
    async with world(credential=True, pool=options) as w:
        tool = await w.tool()

        async def get(request: CredentialRequest) -> NeedsAuthorization:
            await trio.lowlevel.checkpoint()
            return NeedsAuthorization(URL, "session-1")

        w.host.get = get  # type: ignore[method-assign]
        error = await refused(tool.call(identity=ALICE), "authorization-required")
        assert told == ([] if callback == "none" else [("files", ALICE, URL, "session-1")])
        assert w.sent() == 0
        clean(w.pool, error, tool, tool.binding)
        assert CANARY not in caplog.text


async def test_a_signer_that_raises():
    class Signer:
        broken = False

        def sign(self, request: Any) -> dict[str, str]:
            if self.broken:
                raise RuntimeError(CANARY)
            return {"x-signed": request.headers["authorization"]}

    signer = Signer()
    async with world(credential=True, pool={"signer": signer}) as w:
        tool = await w.tool()
        await tool.call(identity=ALICE)
        assert w.server.arrivals("tools/call")[0].headers["x-signed"] == "Bearer token", "last of all"
        signer.broken = True
        error = await refused(tool.call(identity=ALICE), "credential-failed")
        assert CANARY not in str(error)


@pytest.mark.parametrize("bad", ["line\nbreak", "not latin \u20ac"])
async def test_a_credential_that_is_no_header(bad):
    async with world(credential=True) as w:
        tool = await w.tool()

        async def get(request: CredentialRequest) -> Any:
            await trio.lowlevel.checkpoint()
            return afpool.Issued(afpool.header_map({"authorization": f"{CANARY} {bad}"}))

        w.host.get = get  # type: ignore[method-assign]
        error = await refused(tool.call(identity=ALICE), "credential-failed")
        assert w.sent() == 0
        assert CANARY not in str(error)
        assert CANARY not in repr(error)


# ---------------------------------------------------------------------------- nowhere afterwards


async def test_no_secret_is_found_in_what_is_shown_or_filed(caplog):
    caplog.set_level(logging.DEBUG)
    uses: list[afpool.Use] = []
    async with world(credential=True, signer=True, pool={"on_use": uses.append}) as w:
        w.host.token = CANARY
        w.host.variant = CANARY  # static headers of a plan may be secrets too
        tool = await w.tool()
        result = await tool.call({"n": 1}, identity=ALICE)
        assert tokens(w) == [f"Bearer {CANARY}"]
        errors = []
        for status in (401, 403, 404, 429, 500):
            rule = w.server.on("tools/call", Status(status, headers={"retry-after": "60"}))
            try:
                await tool.call(identity=ALICE)
            except afpool.AfpoolError as error:
                errors.append(error)
            w.server.remove(rule)
        assert len(errors) == 5
        client = next(iter(w.pool.openings.clients.values()))
        plan = await w.host.plan("files", ALICE)
        clean(w.pool, result, tool, tool.binding, client, client.plan, plan, w.pool, *errors, *uses)
        for actor in w.pool.actors():
            clean(w.pool, actor, actor.info(), actor.machine.snapshot())
        assert CANARY not in caplog.text


async def test_a_static_provider():
    credentials = StaticCredentials({"files": "fixed"})
    async with world(credential=True, pool={"credentials": credentials}) as w:
        await (await w.tool()).call(identity=ALICE)
        assert tokens(w) == ["Bearer fixed"]


async def test_a_stream_carries_no_headers_and_asks_nobody():
    credentials = ScriptedCredentials([])
    async with memory_world(pool={"credentials": credentials}) as (_, host, pool):
        host.credential = CredentialRequirement("files")
        await (await pool.tools(ALICE))["echo"].call(identity=ALICE)
        assert not credentials.requests


async def test_the_requirement_is_part_of_the_context():
    plan = Plan(transport=afpool.HttpTransport(url="http://127.0.0.1:9/"))
    contexts = {
        attrs.evolve(plan, credential=requirement).context(b"secret")
        for requirement in (
            None,
            CredentialRequirement("a"),
            CredentialRequirement("b"),
            CredentialRequirement("a", scopes=("x",)),
            CredentialRequirement("a", mode="user"),
        )
    }
    assert len(contexts) == 5
    assert Server(name="files").keyed_on == ("tenant", "principal", "conversation_id")

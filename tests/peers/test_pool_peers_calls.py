"""The pool as an app uses it, against every peer over every transport: open, list, call, cancel, close."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from afpool import (
    CredentialRequirement,
    DeadlineExceeded,
    HttpTransport,
    Plan,
    Progress,
    Server,
    ServerError,
    ServerRefused,
    StaticCredentials,
    open_pool,
)
from afpool._base.definition import build_definition
from afpool.client import Client, Rpc
from afpool.pool import BoundTool
from afpool.protocol import METHOD, Era, meta_params
from tests.peers.pool_peer_kit import (
    ALICE,
    BOB,
    HTTP,
    LEGACY,
    MODERN,
    STDIO,
    TARGETS,
    Target,
    add,
    alive,
    echo,
    environ,
    only_client,
    open_files,
    pool_of,
    proxied,
    server_of,
    sleep,
    stdio_of,
    steps,
    transport_of,
    until,
    url_of,
)

if TYPE_CHECKING:
    from afpool import Identity


@pytest.fixture(params=TARGETS, ids=str)
def target(request: pytest.FixtureRequest) -> Target:
    found: Target = request.param
    return found


@pytest.fixture
def server(request: pytest.FixtureRequest, target: Target) -> Server:
    return server_of(target, transport_of(request, target))


async def test_opens_in_the_expected_era_calls_and_tells_of_progress(server: Server, target: Target) -> None:
    async with pool_of(server) as pool:
        tools = await pool.tools(ALICE)
        client = only_client(pool)
        assert client.negotiated is not None
        assert client.negotiated.era is (Era.STATELESS if target.stateless else Era.HANDSHAKE)
        assert client.negotiated.version == (MODERN if target.stateless else LEGACY)
        assert client.listening
        assert tools.quarantined == {}
        for work in (echo(target, "grüße, 世界"), add(target, 40, 2)):
            assert await work.by(tools) == work.answer
        schema = tools[echo(target, "").tool].input_schema
        assert schema["type"] == "object"
        assert set(echo(target, "").args) <= set(schema["properties"])
        told: list[tuple[Progress, trio.lowlevel.Task]] = []
        work = steps(target, 3)
        answer = await work.by(
            tools, on_progress=lambda progress: told.append((progress, trio.lowlevel.current_task()))
        )
        assert answer == work.answer
        assert [progress.progress for progress, _ in told] == [1, 2, 3]
        assert {progress.total for progress, _ in told} == {3}
        assert {task for _, task in told} == {trio.lowlevel.current_task()}


async def test_what_fails_and_what_the_server_does_not_know_ends_no_session(
    server: Server, target: Target
) -> None:
    async with pool_of(server) as pool:
        tools = await pool.tools(ALICE)
        client = only_client(pool)
        name, args = ("fail", {"message": "on purpose"}) if target.python else ("get-sum", {"a": "x"})
        failed = await tools[name].call(args, identity=ALICE)
        assert failed.is_error
        assert failed.delivery == "answered"
        assert ("on purpose" if target.python else "Invalid") in failed.text
        (use,) = pool.records.uses
        assert (use.outcome, use.attempts) == ("ok", 1)
        binding = tools[echo(target, "").tool].binding
        unknown = build_definition(b'{"name":"no-such-tool","inputSchema":{"type":"object"}}')
        result = await BoundTool(attrs.evolve(binding, definition=unknown)).call(identity=ALICE)
        assert result.is_error
        assert "no-such-tool" in result.text
        headers = [(METHOD, b"no/such")] if target.stateless else []
        # over HTTP the newest era answers 404, the status of a lost session
        with pytest.raises((ServerRefused, ServerError)) as caught:
            await client.control(Rpc("no/such", meta_params(client.meta), headers), 10)
        assert caught.value.delivery in {"answered", "refused"}
        work = echo(target, "afterwards")
        assert await work.by(tools) == work.answer
        assert only_client(pool) is client


async def test_cancelled_or_late_the_caller_is_back_at_once_and_the_client_lives_on(
    server: Server, target: Target
) -> None:
    async with pool_of(server, cancel_grace=0.5, settle_timeout=1.0) as pool:
        tools = await pool.tools(ALICE)
        client = only_client(pool).id
        work = sleep(target, 20)
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(work.by, tools)
                await until(lambda: any(call.begun for call in pool.running.values()))
                asked = trio.current_time()
                scope.cancel()
        assert scope.cancelled_caught
        assert trio.current_time() - asked < 0.5
        # a sibling is served while the place of the cancelled call settles
        sibling = echo(target, "sibling")
        assert await sibling.by(tools) == sibling.answer
        await until(lambda: pool.statistics().actors[0].in_flight == 0)
        assert (pool.settling, pool.statistics().in_flight) == (0, 0)
        assert await sibling.by(tools) == sibling.answer
        assert only_client(pool).id == client
        (use,) = [use for use in pool.records.uses if use.outcome == "cancelled"]
        assert use.delivery == "in-doubt"
        # the same by a deadline
        deadline = trio.current_time() + 0.3
        with pytest.raises(DeadlineExceeded) as caught:
            await work.by(tools, deadline=deadline)
        assert caught.value.delivery == "in-doubt"
        assert trio.current_time() - deadline < 0.5
        assert await sibling.by(tools) == sibling.answer


async def test_sixty_four_at_once(server: Server, target: Target) -> None:
    async with pool_of(server) as pool:
        tools = await pool.tools(ALICE)
        most = 0
        answers: dict[int, str] = {}

        async def one(number: int) -> None:
            nonlocal most
            work = echo(target, f"number {number}")
            answers[number] = await work.by(tools)
            most = max(most, pool.statistics().actors[0].in_flight)
            assert answers[number] == work.answer

        async with trio.open_nursery() as nursery:
            for number in range(64):
                nursery.start_soon(one, number)
        assert len(answers) == 64
        assert 1 < most <= pool.limits.max_operations
        stats = pool.statistics()
        assert (stats.in_flight, stats.waiting, stats.opened) == (0, 0, 1)


@pytest.mark.parametrize("target", HTTP, ids=str)
async def test_no_connection_and_no_session_carries_two_identities(
    request: pytest.FixtureRequest, target: Target
) -> None:
    async with proxied(url_of(request, target)) as proxy:

        def plan(_: str, identity: Identity) -> Plan:
            transport = HttpTransport(url=proxy.url, headers={"x-who": identity.principal or ""})
            return Plan(transport=transport, protocol_version=target.version)

        async with pool_of(Server(name="peer"), plan=plan) as pool:
            tools = {who: await pool.tools(who) for who in (ALICE, BOB)}

            async def one(who: Identity, number: int) -> None:
                if target.python:
                    result = await tools[who]["header"].call({"name": "x-who"}, identity=who)
                    assert result.text == who.principal
                else:
                    work = echo(target, f"{number}")
                    assert await work.by(tools[who], who) == work.answer

            async with trio.open_nursery() as nursery:
                for number in range(12):
                    nursery.start_soon(one, ALICE, number)
                    nursery.start_soon(one, BOB, number)
        who = proxy.header_values("x-who")
        sessions = proxy.header_values("mcp-session-id")
    assert all(len(values) == 1 for values in who), who
    assert {value for values in who for value in values} == {"alice", "bob"}
    if target.stateless:
        assert not any(sessions)
    else:
        owners: dict[str, set[str]] = {}
        for names, ids in zip(who, sessions, strict=True):
            for session in ids:
                owners.setdefault(session, set()).update(names)
        assert sorted(map(len, owners.values())) == [1, 1], owners


@pytest.mark.parametrize("target", STDIO, ids=str)
async def test_no_process_serves_two_identities(target: Target) -> None:
    def plan(_: str, identity: Identity) -> Plan:
        return Plan(transport=stdio_of(target, identity.principal), protocol_version=target.version)

    async with pool_of(Server(name="peer"), plan=plan) as pool:
        for who in (ALICE, BOB):
            work = echo(target, "hers")
            assert await work.by(await pool.tools(who), who) == work.answer
        served = {}
        for client in pool.openings.clients.values():
            assert client.process is not None
            served[client.projection.principal] = client.process.pid
        assert len(set(served.values())) == 2
        for name, pid in served.items():
            assert environ(pid)["AFPOOL_TEST_WHO"] == name
    assert not any(map(alive, served.values()))


@pytest.mark.parametrize("target", HTTP, ids=str)
async def test_leaving_ends_the_session_and_leaves_nothing(
    request: pytest.FixtureRequest, target: Target
) -> None:
    async with proxied(url_of(request, target)) as proxy:
        before = open_files()
        async with pool_of(server_of(target, HttpTransport(url=proxy.url))) as pool:
            work = echo(target, "once")
            assert await work.by(await pool.tools(ALICE)) == work.answer
        report = await pool.aclose()
        assert (report.closed, report.killed, report.abandoned, report.calls_left) == (1, 0, 0, 0)
        await until(lambda: not any(tunnel.open for tunnel in proxy.tunnels))
        assert open_files() == before
        statuses = proxy.statuses_of("DELETE")
    assert statuses == [] if target.stateless else statuses in ([200], [204])


@pytest.mark.parametrize("target", STDIO, ids=str)
async def test_leaving_ends_the_child_and_leaves_nothing(target: Target) -> None:
    before = open_files()
    async with pool_of(server_of(target, stdio_of(target))) as pool:
        work = echo(target, "once")
        assert await work.by(await pool.tools(ALICE)) == work.answer
        process = only_client(pool).process
        assert process is not None
        assert alive(process.pid)
    assert not alive(process.pid)
    report = await pool.aclose()
    assert (report.closed, report.killed, report.abandoned, report.calls_left) == (1, 0, 0, 0)
    assert open_files() == before


@pytest.mark.parametrize("version", [None, LEGACY])
async def test_a_vended_credential_arrives_and_is_shown_nowhere(
    request: pytest.FixtureRequest, version: str | None
) -> None:
    url = url_of(request, Target("mcp2", "http"))
    plan = Plan(
        transport=HttpTransport(url=url), credential=CredentialRequirement("crm"), protocol_version=version
    )
    provider = StaticCredentials({"crm": "s3cret-of-the-test"})
    async with pool_of(Server(name="peer", plan=plan), credentials=provider) as pool:
        tools = await pool.tools(ALICE)
        result = await tools["header"].call({"name": "authorization"}, identity=ALICE)
        assert result.text == "Bearer s3cret-of-the-test"
        (use,) = pool.records.uses
        shown: list[Any] = [
            use,
            use.marks,
            use.facts,
            tools["header"],
            pool.statistics(),
            *pool.records.events,
        ]
        assert "s3cret" not in "".join(map(repr, shown))


async def test_several_servers_in_one_pool(request: pytest.FixtureRequest) -> None:
    modern, legacy, everything = (
        Target("mcp2", "http"),
        Target("mcp1", "stdio"),
        Target("everything", "stdio"),
    )
    servers = [
        attrs.evolve(server_of(target, transport_of(request, target)), name=name)
        for name, target in (("modern", modern), ("legacy", legacy), ("all", everything))
    ]
    gone = Server(name="gone", plan=Plan(transport=HttpTransport(url="http://127.0.0.1:9/mcp")))
    with trio.fail_after(60):
        async with open_pool([*servers, gone]) as pool:
            tools = await pool.tools(ALICE)
            assert list(tools.problems) == ["gone"]
            assert tools.problems["gone"].code == "open-failed"
            assert tools["modern__add"].source == "modern"
            assert "echo" not in tools
            for name, target in (("modern", modern), ("legacy", legacy), ("all", everything)):
                work = echo(target, name)
                assert await attrs.evolve(work, tool=f"{name}__echo").by(tools) == work.answer
            assert await add(everything, 1, 2).by(tools) == add(everything, 1, 2).answer
            assert {client.server for client in pool.openings.clients.values()} == {"modern", "legacy", "all"}


async def test_a_time_to_live_of_zero_does_not_make_every_call_list(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target("mcp2", "http")
    ttls: list[float | None] = []
    list_tools = Client.list_tools

    async def watched(client: Client, deadline: float) -> Any:
        answer = await list_tools(client, deadline)
        ttls.append(answer.ttl)
        return answer

    monkeypatch.setattr(Client, "list_tools", watched)
    async with (
        proxied(url_of(request, target)) as proxy,
        pool_of(server_of(target, HttpTransport(url=proxy.url))) as pool,
    ):
        for number in range(100):
            work = echo(target, f"{number}")
            assert await work.by(await pool.tools(ALICE)) == work.answer
        assert proxy.count("tools/call") == 100
        assert proxy.count("tools/list") == 1
        assert proxy.count("server/discover") == 1
        assert proxy.peak <= 3  # a call's, the client's own, the stream
    assert ttls == [0.0]  # what the server says

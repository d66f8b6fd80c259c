"""How the service begins, goes on under another configuration, and ends; and what of it survives what."""

from __future__ import annotations

import logging
import signal

import attrs
import pytest
import trio

from afpool import (
    CredentialRequirement,
    HttpTransport,
    Issued,
    Plan,
    Server,
    bearer,
    open_runtime,
)
from afpool.config import IdentityConfig, ServeConfig, TokensConfig, load_config
from afpool.runtime import RuntimeConfig
from afpool.serve import Bridge, TokenFile, open_service, serve
from afpool.serve._health import Health
from afpool.testing import FakeServer, FakeTool, Progress, ask_tool, echo_tool
from tests.serve.serve_kit import ALICE, BOB, Caller, place, until


def held(gate):
    async def hold(arguments, arrival):
        yield Progress(1)
        await gate.wait()
        yield "done"

    return FakeTool("hold", hold)


async def test_draining_refuses_what_is_new_and_lets_what_runs_end(tmp_path):
    gate = trio.Event()
    async with place(tmp_path, servers={"desk": [held(gate)]}) as here:
        client = await here.opened()
        probe = Caller(here.service.app, None, here.nursery)
        assert (await probe.ask("GET", "/readyz")).json == {"ready": True, "state": "ready"}
        running = client.begin(message=client.request("tools/call", {"name": "hold"}))
        with trio.fail_after(5):
            await here.server.wait_for("tools/call", 1)
        drained = []

        async def drain():
            drained.append(await here.service.drain(trio.current_time() + 30))

        here.nursery.start_soon(drain)
        await until(lambda: here.service.health.draining)
        refused = await client.ask(message=client.request("tools/call", {"name": "hold"}))
        assert refused.status == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert (await probe.ask("GET", "/readyz")).status == 503
        assert (await probe.ask("GET", "/healthz")).status == 200
        assert drained == []
        gate.set()
        with trio.fail_after(5):
            await running.ended.wait()
        assert running.json["result"]["content"][0]["text"] == "done"
        await until(lambda: drained)
        assert drained[0].left == 0
        assert here.server.executions == {"hold": 1}


FORM = {
    "message": "Really?",
    "requestedSchema": {"type": "object", "properties": {"sure": {"type": "boolean"}}},
}


async def test_while_it_drains_what_runs_can_still_be_answered_and_withdrawn(tmp_path):
    tools = [ask_tool(), held(trio.Event())]
    async with place(tmp_path, servers={"desk": tools}, http={"era": "handshake"}) as here:
        can = {"elicitation": {}}
        client = await here.opened(capabilities=can)
        params = {"name": "ask", "arguments": {"params": FORM}}
        asking = client.begin(message=client.request("tools/call", params))
        question = await asking.event("elicitation/create")
        waiting = await client.modern_rpc("tools/call", params, capabilities=can)
        state = waiting.json["result"]["requestState"]
        request = client.request("tools/call", {"name": "hold"})
        holding = client.begin(message=request)
        with trio.fail_after(5):
            await here.server.wait_for("tools/call", 3)
        drained = []

        async def drain():
            drained.append(await here.service.drain(trio.current_time() + 30))

        here.nursery.start_soon(drain)
        await until(lambda: here.service.health.draining)
        answer = {
            "jsonrpc": "2.0",
            "id": question["id"],
            "result": {"action": "accept", "content": {"sure": True}},
        }
        assert (await client.ask(message=answer)).status == 202
        with trio.fail_after(5):
            await asking.ended.wait()
        assert '"sure": true' in asking.json["result"]["content"][0]["text"]
        more = {"requestState": state, "inputResponses": {"question": {"action": "decline"}}}
        done = await client.modern_rpc("tools/call", params | more, capabilities=can)
        assert '"action": "decline"' in done.json["result"]["content"][0]["text"]
        assert drained == []
        told = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request["id"]}}
        assert (await client.ask(message=told)).status == 202
        with trio.fail_after(5):
            await holding.ended.wait()
        await until(lambda: drained)
        assert drained[0].left == 0


async def test_a_drain_ends_at_its_deadline(tmp_path):
    async with place(tmp_path, servers={"desk": [held(trio.Event())]}) as here:
        client = await here.opened()
        running = client.begin(message=client.request("tools/call", {"name": "hold"}))
        with trio.fail_after(5):
            await here.server.wait_for("tools/call", 1)
            drained = await here.service.drain(trio.current_time() + 0.1)
        assert drained.left == 1
        assert not running.ended.is_set()


class Vault:
    """Gives a token once it is let."""

    def __init__(self):
        self.asked = trio.Event()
        self.open = trio.Event()

    async def get(self, request):
        self.asked.set()
        await self.open.wait()
        return Issued(bearer("upstream-secret"))


async def test_a_token_that_is_revoked_while_its_call_waits_is_refused_at_the_gate(tmp_path):
    path = tmp_path / "tokens"
    tokens = TokenFile(path)
    made = tokens.new(ALICE, "alice")
    vault = Vault()
    async with FakeServer.http(era="both", tools=[echo_tool()]) as server:
        plan = Plan(
            transport=HttpTransport(url=server.url),
            credential=CredentialRequirement("desk", mode="user"),
        )
        config = RuntimeConfig(servers=[Server(name="desk", plan=plan)], credentials=vault)
        door = ServeConfig(identity=IdentityConfig(tokens=TokensConfig(file=str(path))))
        async with open_service(config, door, listen=False) as service, trio.open_nursery() as nursery:
            client = Caller(service.app, made.token.reveal(), nursery)
            vault.open.set()
            await client.open()
            await client.tools()
            vault.asked, vault.open = trio.Event(), trio.Event()
            bytes_before = len(server.log)
            answer = client.begin(message=client.request("tools/call", {"name": "echo", "arguments": {}}))
            with trio.fail_after(5):
                await vault.asked.wait()
            tokens.revoke(made.entry.id)
            await service.refresh()
            vault.open.set()
            with trio.fail_after(5):
                await answer.ended.wait()
            if "result" in answer.json:
                assert answer.json["result"]["_meta"]["afpool/delivery"] == "not-sent"
            assert server.arrivals("tools/call") == []
            assert [each.name for each in server.log[bytes_before:] if each.name == "tools/call"] == []
            assert (await client.ask(message=client.request("ping"))).status == 401


async def test_streams_end_with_the_token_that_opened_them(tmp_path, autojump_clock):
    del autojump_clock  # the sweep is due every two seconds
    path = tmp_path / "tokens"
    tokens = TokenFile(path)
    made = {who: tokens.new(who, who.principal) for who in (ALICE, BOB)}
    door = ServeConfig(identity=IdentityConfig(tokens=TokensConfig(file=str(path))))
    async with open_service(RuntimeConfig(), door, listen=False) as service, trio.open_nursery() as nursery:
        alice, bob = (Caller(service.app, made[who].token.reveal(), nursery) for who in (ALICE, BOB))
        await alice.open()
        await bob.open()
        streams = [alice.begin("GET"), bob.begin("GET")]
        modern = alice.modern("subscriptions/listen", {"notifications": {}})
        await modern.event("notifications/subscriptions/acknowledged")
        tokens.revoke(made[ALICE].entry.id)
        await service.refresh()
        with trio.fail_after(10):
            await streams[0].ended.wait()
            await modern.ended.wait()
        assert not streams[1].ended.is_set()
        nursery.cancel_scope.cancel()


async def test_idle_sessions_are_forgotten_and_quiet_streams_kept_alive(tmp_path, autojump_clock):
    del autojump_clock
    path = tmp_path / "tokens"
    token = TokenFile(path).new(ALICE, "alice").token.reveal()
    door = ServeConfig(identity=IdentityConfig(tokens=TokensConfig(file=str(path))))
    door = attrs.evolve(door, limits=attrs.evolve(door.limits, idle_session=60))
    async with open_service(RuntimeConfig(), door, listen=False) as service, trio.open_nursery() as nursery:
        idle, listening = (Caller(service.app, token, nursery) for _ in range(2))
        await idle.open()
        await listening.open()
        stream = listening.begin("GET")
        await trio.sleep(100)
        assert service.sessions == 1
        assert (await idle.ask(message=idle.request("ping"))).status == 404
        assert 3 <= stream.body.count(b": ping") <= 7
        assert (await listening.rpc("ping"))["result"] == {}
        nursery.cancel_scope.cancel()


async def test_a_part_that_crashes_is_seen_and_started_again(autojump_clock, caplog):
    del autojump_clock
    health, runs = Health(), []
    health.state = "ready"

    async def part():
        runs.append(trio.current_time())
        if len(runs) < 3:
            raise ValueError("secret")
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(health.keep, "clock", part)
        await trio.sleep(0.1)
        assert health.report() == {"ready": False, "state": "ready", "broken": {"clock": "ValueError"}}
        await trio.sleep(5)
        assert health.report() == {"ready": True, "state": "ready"}
        assert len(runs) == 3
        nursery.cancel_scope.cancel()
    health.note("configuration", "words")
    assert health.report()["problems"] == {"configuration": 1}
    assert "crashed" in caplog.text


async def test_a_runtime_of_the_hosts_own_is_served_too(tmp_path):
    bridge = Bridge()
    async with FakeServer.http(era="both", tools=[echo_tool()]) as server:
        config = RuntimeConfig(
            servers=[Server(name="desk", plan=Plan(transport=HttpTransport(url=server.url)))]
        )
        heard = []
        config = attrs.evolve(config, pool={"on_tools": lambda *told: heard.append(told)})
        door = ServeConfig(identity=IdentityConfig(anonymous=ALICE))
        async with (
            open_runtime(bridge.wire(config)) as runtime,
            open_service(runtime, door, bridge=bridge, listen=False) as service,
            trio.open_nursery() as nursery,
        ):
            client = Caller(service.app, None, nursery)
            await client.open()
            await client.tools()
            stream = client.begin("GET")
            await until(lambda: server.streams == 1)
            server.set_tools([echo_tool("other")])
            await stream.event("notifications/tools/list_changed")
            assert heard
            nursery.cancel_scope.cancel()


# ---------------------------------------------------------------------- from a file


def write_config(folder, url, *, name="desk", more=""):
    path = folder / "afpool.toml"
    path.write_text(
        f"""
[servers.{name}]
url = "{url}"
{more}
[serve]
bind = "127.0.0.1:0"
drain = 5
[serve.identity]
anonymous = {{ tenant = "acme", principal = "alice" }}
"""
    )
    return path


class Running:
    """`serve` in a task, and what it says."""

    def __init__(self, path, nursery):
        self.path = path
        self.nursery = nursery
        self.said = []
        self.code = None
        self.service = None
        self.ended = trio.Event()

    async def start(self, **options):
        async def run(*, task_status):
            load = lambda: load_config(self.path, env={})  # noqa: E731
            self.code = await serve(
                load(), load=load, announce=self.said.append, task_status=task_status, **options
            )
            self.ended.set()

        with trio.fail_after(20):
            self.service = await self.nursery.start(run)
        return self

    async def end(self):
        with trio.fail_after(10):
            await self.ended.wait()
        return self.code


async def test_a_signal_ends_it_when_what_runs_has_ended(tmp_path):
    gate = trio.Event()
    async with FakeServer.http(era="both", tools=[held(gate)]) as server, trio.open_nursery() as nursery:
        running = await Running(write_config(tmp_path, server.url), nursery).start()
        assert running.said == [f"serving {running.service.addresses[0]}"]
        client = Caller(running.service.app, None, nursery)
        await client.open()
        answer = client.begin(message=client.request("tools/call", {"name": "hold"}))
        with trio.fail_after(5):
            await server.wait_for("tools/call", 1)
        signal.raise_signal(signal.SIGTERM)
        await until(lambda: running.service.health.draining)
        gate.set()
        assert await running.end() == 0
        assert "result" in answer.json, answer.json
        assert answer.json["result"]["content"][0]["text"] == "done"


@pytest.mark.parametrize(("signals", "code"), [(("SIGINT",), 130), (("SIGTERM", "SIGTERM"), 130)])
async def test_a_second_signal_ends_it_at_once(tmp_path, signals, code):
    async with (
        FakeServer.http(era="both", tools=[held(trio.Event())]) as server,
        trio.open_nursery() as nursery,
    ):
        running = await Running(write_config(tmp_path, server.url), nursery).start()
        client = Caller(running.service.app, None, nursery)
        await client.open()
        if len(signals) > 1:
            client.begin(message=client.request("tools/call", {"name": "hold"}))
            with trio.fail_after(5):
                await server.wait_for("tools/call", 1)
        for name in signals:
            signal.raise_signal(signal.Signals[name])
            await trio.sleep(0.1)
        assert await running.end() == code
        nursery.cancel_scope.cancel()


async def test_calls_that_are_cut_off_at_the_deadline_are_no_clean_end(tmp_path):
    async with (
        FakeServer.http(era="both", tools=[held(trio.Event())]) as server,
        trio.open_nursery() as nursery,
    ):
        path = write_config(tmp_path, server.url)
        path.write_text(path.read_text().replace("drain = 5", "drain = 0.2"))
        running = await Running(path, nursery).start()
        client = Caller(running.service.app, None, nursery)
        await client.open()
        client.begin(message=client.request("tools/call", {"name": "hold"}))
        with trio.fail_after(5):
            await server.wait_for("tools/call", 1)
        signal.raise_signal(signal.SIGTERM)
        assert await running.end() == 1
        nursery.cancel_scope.cancel()


async def test_what_cannot_be_used_is_exit_code_2_and_what_cannot_be_had_1(tmp_path, caplog):
    async with FakeServer.http(era="both") as server:
        config = load_config(write_config(tmp_path, server.url), env={})
        tokens = IdentityConfig(tokens=TokensConfig(file=str(tmp_path)))
        broken = attrs.evolve(config, serve=attrs.evolve(config.serve, identity=tokens))
        assert await serve(broken, announce=lambda _: None) == 2
        nobody = IdentityConfig(anonymous=ALICE)
        async with open_service(RuntimeConfig(), ServeConfig(bind="127.0.0.1:0", identity=nobody)) as other:
            bind = other.addresses[0].removeprefix("http://").removesuffix("/mcp")
            taken = attrs.evolve(config, serve=attrs.evolve(config.serve, bind=bind))
            assert await serve(taken, announce=lambda _: None) == 1
        assert "taken" in caplog.text


async def test_a_reload_keeps_what_did_not_change_and_ends_what_did(tmp_path):
    async with (
        FakeServer.http(era="both", tools=[echo_tool("keeps")]) as kept,
        FakeServer.http(era="both", tools=[echo_tool("goes")]) as gone,
        FakeServer.http(era="both", tools=[echo_tool("comes")]) as new,
        trio.open_nursery() as nursery,
    ):
        more = f'[servers.old]\nurl = "{gone.url}"'
        path = write_config(tmp_path, kept.url, more=more)
        running = await Running(path, nursery).start()
        client = Caller(running.service.app, None, nursery)
        await client.open()
        assert {tool["name"] for tool in await client.tools()} == {"keeps", "goes"}
        assert "_meta" not in await client.call("keeps")
        opened = len(kept.arrivals("initialize")) + len(kept.arrivals("server/discover"))
        stream = client.begin("GET")
        path.write_text(path.read_text().replace("servers.old", "servers.new").replace(gone.url, new.url))
        signal.raise_signal(signal.SIGHUP)
        await stream.event("notifications/tools/list_changed")
        refused = await client.call("goes")
        assert refused["_meta"]["afpool/code"] == "binding-changed"
        assert "_meta" not in await client.call("keeps")
        assert {tool["name"] for tool in await client.tools()} == {"keeps", "comes"}
        assert "_meta" not in await client.call("comes")
        assert len(kept.arrivals("initialize")) + len(kept.arrivals("server/discover")) == opened
        assert gone.executions == {}
        signal.raise_signal(signal.SIGTERM)
        assert await running.end() == 0
        nursery.cancel_scope.cancel()


async def test_a_server_that_differs_by_identity_keeps_its_clients_too(tmp_path):
    async with (
        FakeServer.http(era="both", tools=[echo_tool("keeps")]) as kept,
        FakeServer.http(era="both", tools=[echo_tool("turns")]) as turned,
        trio.open_nursery() as nursery,
    ):
        headers = 'headers = { x-principal = "${identity.principal}" }'
        more = f'{headers}\n[servers.turns]\nurl = "{turned.url}"\n{headers}'
        path = write_config(tmp_path, kept.url, more=more)
        running = await Running(path, nursery).start()
        client = Caller(running.service.app, None, nursery)
        await client.open()
        await client.tools()
        for name in ("keeps", "turns"):
            assert "_meta" not in await client.call(name)
        opened = len(kept.arrivals("initialize")) + len(kept.arrivals("server/discover"))
        stream = client.begin("GET")
        ours, theirs = path.read_text().split("[servers.turns]")
        path.write_text(f"{ours}[servers.turns]{theirs.replace('x-principal', 'x-user')}")
        signal.raise_signal(signal.SIGHUP)
        await stream.event("notifications/tools/list_changed")
        assert (await client.call("turns"))["_meta"]["afpool/code"] == "binding-changed"
        assert "_meta" not in await client.call("keeps")
        await client.tools()
        assert "_meta" not in await client.call("turns")
        assert turned.arrivals("tools/call")[-1].headers["x-user"] == "alice"
        assert len(kept.arrivals("initialize")) + len(kept.arrivals("server/discover")) == opened
        signal.raise_signal(signal.SIGTERM)
        assert await running.end() == 0
        nursery.cancel_scope.cancel()


async def test_a_file_that_cannot_be_used_changes_nothing_and_is_seen(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    async with FakeServer.http(era="both", tools=[echo_tool()]) as server, trio.open_nursery() as nursery:
        path = write_config(tmp_path, server.url)
        whole = path.read_text()
        running = await Running(path, nursery).start()
        client = Caller(running.service.app, None, nursery)
        await client.open()
        path.write_text(whole + "\nnonsense = [")
        signal.raise_signal(signal.SIGHUP)
        probe = Caller(running.service.app, None, nursery)
        await until(lambda: "was not reloaded" in caplog.text)
        report = (await probe.ask("GET", "/readyz")).json
        assert report["ready"] is True
        assert report["problems"] == {"configuration": 1}
        assert "_meta" not in await client.call("echo")
        path.write_text(whole + "\n")
        await until(lambda: "problems" not in running.service.health.report(), seconds=8)
        signal.raise_signal(signal.SIGTERM)
        assert await running.end() == 0
        nursery.cancel_scope.cancel()


async def test_the_demo_is_followed_to_the_letter(tmp_path):
    async with trio.open_nursery() as nursery:
        running = Running(write_config(tmp_path, "http://127.0.0.1:1/mcp"), nursery)
        await running.start(demo=True)
        words = [line.rpartition("Bearer ")[2] for line in running.said if line.startswith("tenant")]
        assert len(words) == 2
        seen = []
        for token in words:
            client = Caller(running.service.app, token, nursery)
            await client.open()
            assert {"echo", "count_down", "whoami", "note"} <= {tool["name"] for tool in await client.tools()}
            seen.append((await client.call("whoami"))["content"][0]["text"])
            kept = (await client.call("note", {"text": "mine"}))["content"][0]["text"]
            uri = kept.rpartition(" ")[2]
            assert (await client.rpc("resources/read", {"uri": uri}))["result"]["contents"][0][
                "text"
            ] == "mine"
        assert "acme" in seen[0]
        assert "globex" in seen[1]
        other = Caller(running.service.app, words[0], nursery)
        await other.open()
        assert "error" in await other.rpc("resources/read", {"uri": uri})
        signal.raise_signal(signal.SIGTERM)
        assert await running.end() == 0
        nursery.cancel_scope.cancel()

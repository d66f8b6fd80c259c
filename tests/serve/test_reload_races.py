"""Reloads that meet: each other, a file that changes meanwhile, a fault that nobody foresaw."""

from __future__ import annotations

import logging
import signal

import attrs
import pytest
import trio

from afpool.config import IdentityConfig, ServeConfig, load_config
from afpool.runtime import RuntimeConfig, open_runtime
from afpool.serve import UnsafeDoor, open_service, serve
from afpool.testing import FakeServer, echo_tool
from tests.serve.serve_kit import ALICE, Caller, until
from tests.serve.test_life import Running, write_config


async def test_reloads_at_once_come_one_after_the_other(tmp_path):
    config = load_config(write_config(tmp_path, "http://127.0.0.1:1/mcp"), env={})
    async with open_service(config, listen=False) as service:
        async with trio.open_nursery() as nursery:
            for count in (3, 5, 7):
                limits = attrs.evolve(config.serve.limits, calls_per_principal=count)
                fresh = attrs.evolve(config, serve=attrs.evolve(config.serve, limits=limits))
                nursery.start_soon(service.reload, fresh)
        # none of them has raised, and one of them is in force as a whole
        count = service.config.limits.calls_per_principal
        assert count in (3, 5, 7)
        assert service._limits._limits.calls_per_principal == count
        assert service._said.serve.limits.calls_per_principal == count


async def test_a_fault_that_nobody_foresaw_leaves_what_is_in_force_and_is_seen(tmp_path, caplog):
    told = []
    async with FakeServer.http(era="both", tools=[echo_tool()]) as server, trio.open_nursery() as nursery:
        path = write_config(tmp_path, server.url)
        config = load_config(path, env={})

        def load():
            raise RuntimeError("sk-secret")

        codes = []

        async def run(*, task_status):
            codes.append(
                await serve(config, load=load, announce=str, notify=told.append, task_status=task_status)
            )

        with trio.fail_after(20):
            service = await nursery.start(run)
        signal.raise_signal(signal.SIGHUP)
        await until(lambda: told.count("ready") == 2)
        report = service.health.report()
        assert report == {"ready": True, "state": "ready", "problems": {"configuration": 1}}
        assert "RuntimeError" in caplog.text
        assert "sk-secret" not in caplog.text
        assert "_meta" not in await _called(service, nursery)
        signal.raise_signal(signal.SIGTERM)
        with trio.fail_after(10):
            await until(lambda: codes == [0])
        nursery.cancel_scope.cancel()


async def _called(service, nursery):
    client = Caller(service.app, None, nursery)
    await client.open()
    return await client.call("echo")


async def test_a_file_that_changes_while_it_is_put_into_force_is_read_again(tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    async with FakeServer.http(era="both", tools=[echo_tool()]) as server, trio.open_nursery() as nursery:
        path = write_config(tmp_path, server.url)
        whole = path.read_text()
        running = await Running(path, nursery).start()
        before = running.service.reload
        again = []

        async def reload(config, **kwargs):
            if not again:
                again.append(True)
                path.write_text(whole.replace("drain = 5", "drain = 7"))
            return await before(config, **kwargs)

        monkeypatch.setattr(running.service, "reload", reload)
        path.write_text(whole.replace("drain = 5", "drain = 6"))
        signal.raise_signal(signal.SIGHUP)
        await until(lambda: running.service.config.drain == 7, seconds=8)
        signal.raise_signal(signal.SIGTERM)
        assert await running.end() == 0
        nursery.cancel_scope.cancel()


async def test_whether_files_are_watched_is_reloaded_too(tmp_path):
    async with FakeServer.http(era="both", tools=[echo_tool()]) as server, trio.open_nursery() as nursery:
        path = write_config(tmp_path, server.url)
        whole = path.read_text().replace("drain = 5", "drain = 5\nreload = false")
        path.write_text(whole)
        running = await Running(path, nursery).start()
        path.write_text(whole.replace("reload = false", "reload = true"))
        signal.raise_signal(signal.SIGHUP)
        await until(lambda: running.service.config.reload)
        path.write_text(whole.replace("reload = false", "reload = true").replace("drain = 5", "drain = 6"))
        await until(lambda: running.service.config.drain == 6, seconds=8)
        signal.raise_signal(signal.SIGTERM)
        assert await running.end() == 0
        nursery.cancel_scope.cancel()


async def test_a_door_that_is_unsafe_is_refused_as_itself_before_a_runtime_too():
    config = ServeConfig(identity=IdentityConfig(anonymous=ALICE), allowed_hosts=("*",))
    async with open_runtime(RuntimeConfig(servers=[])) as runtime:
        with pytest.raises(UnsafeDoor):
            async with open_service(runtime, config, listen=False):
                pass


async def test_a_credential_that_is_another_one_reaches_its_server_with_the_next_call(tmp_path):
    async with FakeServer.http(era="both", tools=[echo_tool()]) as server, trio.open_nursery() as nursery:
        path = write_config(
            tmp_path,
            server.url,
            more='credential = "desk"\n[credentials.desk]\ntype = "static"\ntoken = "first-token"',
        )
        running = await Running(path, nursery).start()
        client = Caller(running.service.app, None, nursery)
        await client.open()
        assert "_meta" not in await client.call("echo")
        assert server.arrivals("tools/call")[-1].headers["authorization"] == "Bearer first-token"
        path.write_text(path.read_text().replace("first-token", "second-token"))
        signal.raise_signal(signal.SIGHUP)
        await until(lambda: running.service._said.credentials["desk"].token.reveal() == "second-token")
        await client.tools()
        assert "_meta" not in await client.call("echo")
        assert server.arrivals("tools/call")[-1].headers["authorization"] == "Bearer second-token"
        signal.raise_signal(signal.SIGTERM)
        assert await running.end() == 0
        nursery.cancel_scope.cancel()

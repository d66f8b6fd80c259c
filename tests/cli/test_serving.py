"""`afpool serve` and `afpool demo` as people run them, the printed words followed to the letter."""

from __future__ import annotations

import json
import shlex
import signal
import socket
import subprocess
import threading

import httpx2
import pytest
import trio
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.cli.cli_kit import AFPOOL, Running, document, run, surroundings, with_server

# on trio the SDK's client leaves the generators of its streams to the collector
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")
WHO = ("--tenant", "acme", "--principal", "alice")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


async def as_client(configuration):
    """What any client does with an entry of `mcpServers`: list, and call two tools."""
    (entry,) = configuration["mcpServers"].values()
    assert entry["type"] == "http"
    async with (
        httpx2.AsyncClient(headers=entry["headers"], timeout=20) as http,
        Client(streamable_http_client(entry["url"], http_client=http)) as client,
    ):
        names = {tool.name for tool in (await client.list_tools()).tools}
        echoed = await client.call_tool("echo", {"text": "hello"})
        who = await client.call_tool("whoami", {})
        return names, echoed.content[0].text, who.content[0].text


async def in_thread(fn, *args):
    with trio.fail_after(90):
        return await trio.to_thread.run_sync(fn, *args)


async def test_what_the_demo_prints_works_to_the_letter(tmp_path):
    port = free_port()
    done = await in_thread(run, tmp_path, "demo", "--bind", f"127.0.0.1:{port}")
    assert done.returncode == 0, done.stderr
    printed = done.stdout.partition("everything happened as announced")[2]
    (command,) = [line.strip() for line in printed.splitlines() if " serve --demo" in line]
    (client,) = [json.loads(line) for line in printed.splitlines() if line.strip().startswith("{")]
    for _ in range(2):  # it still works when the service is started again
        with Running(tmp_path, command=shlex.split(command)) as running:
            await in_thread(running.line, lambda line: line.startswith("serving "))
            names, echoed, who = await as_client(client)
            assert {"echo", "count_down", "whoami", "note"} <= names
            assert json.loads(echoed) == {"text": "hello"}
            assert "acme" in who
            # the tokens that the service itself prints work as well
            found = await in_thread(running.line, lambda line: line.startswith("{"))
            assert "acme" in (await as_client(json.loads(found)))[2]
            assert await in_thread(running.end, signal.SIGTERM) == 0


async def test_what_is_printed_of_the_console_works_to_the_letter(tmp_path):
    port = free_port()
    done = await in_thread(run, tmp_path, "demo", "--bind", f"127.0.0.1:{port}")
    assert done.returncode == 0, done.stderr
    printed = done.stdout.partition("everything happened as announced")[2]
    lines = [line.strip() for line in printed.splitlines()]
    [command] = [line for line in lines if " serve --demo" in line]
    after = lines[lines.index(command) :]
    inside = [line for line in after if " console demo" in line or " show actors " in line]
    assert len(inside) == 2
    with Running(tmp_path, command=shlex.split(command)) as running:
        await in_thread(running.line, lambda line: line.startswith("look inside"))
        inside.append((await in_thread(running.line, lambda line: " console " in line)).strip())
        inside.append((await in_thread(running.line, lambda line: " show actors " in line)).strip())
        assert len(set(inside)) == 4  # by name in the demo, by number in the service
        for line in inside:
            shown = await in_thread(followed, tmp_path, line)
            assert shown.returncode == 0, (line, shown.stderr)
            assert "generation" in shown.stdout, line
        assert await in_thread(running.end, signal.SIGTERM) == 0
    # it went with its service, and nothing of it is left
    gone = await in_thread(followed, tmp_path, inside[0])
    assert gone.returncode == 1
    assert "no process with a console" in gone.stderr
    assert list((tmp_path / "c").iterdir()) == []


def followed(folder, line):
    """What a line shows that was printed to be copied; a prompt is asked one thing, and left."""
    return subprocess.run(
        shlex.split(line),
        cwd=folder, env=surroundings(folder), input="show actors\nquit\n", capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip


async def test_the_demo_can_be_looked_into_while_it_plays(tmp_path):
    with Running(tmp_path, "demo") as running:
        line = await in_thread(running.line, lambda line: line.endswith(" console demo-play"))
        shown = await in_thread(followed, tmp_path, f"{line.strip()} -c 'show servers'")
        assert shown.returncode == 0, shown.stderr
        assert "crm" in shown.stdout
        assert await in_thread(running.process.wait, 60) == 0


async def test_a_console_that_cannot_listen_keeps_no_service_from_serving(tmp_path):
    (tmp_path / "x").mkdir(mode=0o755)
    words = ["serve", "--demo", "--bind", "127.0.0.1:0"]
    env = {"AFPOOL_CONSOLE_DIRECTORY": None, "XDG_RUNTIME_DIR": str(tmp_path / "x")}
    (tmp_path / "x" / "afpool").mkdir(mode=0o755)
    with Running(tmp_path, *words, **env) as running:
        await in_thread(running.line, lambda line: line.startswith("serving "))
        assert await in_thread(running.end, signal.SIGTERM) == 0
    assert "others may use it" in "".join(filter(None, running.errors))
    assert not any("look inside" in line for line in running.said if line)
    # where it was asked for, it is
    with Running(tmp_path, *words, AFPOOL_CONSOLE_ENABLED="true", **env) as running:
        assert await in_thread(running.process.wait, 60) == 1
    assert "others may use it" in "".join(filter(None, running.errors))


async def test_a_service_without_a_console_says_nothing_of_one(tmp_path):
    with Running(
        tmp_path, "serve", "--demo", "--bind", "127.0.0.1:0", AFPOOL_CONSOLE_ENABLED="no"
    ) as running:
        await in_thread(running.line, lambda line: line.startswith("serving "))
        assert await in_thread(running.end, signal.SIGTERM) == 0
    assert not any("look inside" in line for line in running.said if line)
    assert not (tmp_path / "c").exists()


async def test_the_printed_configuration_is_one_for_afpool_itself(tmp_path):
    port = free_port()
    told = document(await in_thread(run, tmp_path, "demo", "--json", "--bind", f"127.0.0.1:{port}"))
    (tmp_path / "client.json").write_text(json.dumps(told["client"]))
    with Running(tmp_path, command=shlex.split(told["serve"])) as running:
        await in_thread(running.line, lambda line: line.startswith("serving "))
        words = ["call", "--mcp-config", "client.json", "afpool", "echo", '{"n": 1}', *WHO]
        assert (await in_thread(run, tmp_path, *words)).stdout == '{"n": 1}\n'
        assert await in_thread(running.end, signal.SIGTERM) == 0


def test_a_service_says_where_it_is_as_documents(tmp_path):
    with_server(tmp_path)
    made = run(tmp_path, "token", "new", "x", *WHO, "--file", "tokens.json")
    assert made.returncode == 0
    words = ["serve", "--bind", "127.0.0.1:0", "--tokens", "tokens.json", "--json", "--log-format", "json"]
    with Running(tmp_path, *words) as running:
        told = json.loads(running.line(lambda line: "ready" in line))
        assert told["event"] == "ready"
        assert told["addresses"][0].startswith("http://127.0.0.1:")
        [console] = told["console"]
        assert console.startswith(f"unix:{tmp_path}/c/")
        assert running.end(signal.SIGTERM) == 0
    assert json.loads(running.said[-2]) == {"event": "ended", "code": 0}
    for line in running.errors[:-1]:
        assert {"time", "level", "logger", "message"} <= set(json.loads(line))


def test_a_service_does_not_end_with_who_reads_its_words(tmp_path):
    run(tmp_path, "token", "new", "x", *WHO, "--file", "tokens.json")
    words = ["serve", "--bind", "127.0.0.1:0", "--tokens", "tokens.json", "--json"]
    with subprocess.Popen(
        [*AFPOOL, *words],
        cwd=tmp_path, env=surroundings(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert json.loads(process.stdout.readline())["event"] == "ready"
        process.stdout.close()
        process.terminate()
        assert process.wait(60) == 0
        assert "Broken" not in process.stderr.read()


def test_flags_are_read_again_with_the_files(tmp_path):
    path = with_server(tmp_path)
    run(tmp_path, "token", "new", "x", *WHO, "--file", "tokens.json")
    with Running(
        tmp_path, "serve", "--bind", "127.0.0.1:0", "--tokens", "tokens.json", "--no-reload"
    ) as running:
        running.line(lambda line: line.startswith("serving "))
        path.write_text(path.read_text() + '[servers.more]\nurl = "http://127.0.0.1:1/mcp"\n')
        running.process.send_signal(signal.SIGHUP)
        said = running.line(lambda line: "reloaded" in line, errors=True)
        assert "added ['more']" in said
        assert running.end(signal.SIGTERM) == 0


class Listener:
    """What systemd would hear."""

    def __init__(self, address):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.settimeout(60)

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.socket.close()

    def hear(self):
        return dict(line.split("=", 1) for line in self.socket.recv(4096).decode().splitlines())


@pytest.mark.parametrize("abstract", [False, True])
def test_a_supervisor_hears_of_ready_reloading_and_stopping(tmp_path, abstract):
    with_server(tmp_path)
    run(tmp_path, "token", "new", "x", *WHO, "--file", "tokens.json")
    name = f"afpool-test-{threading.get_native_id()}-{free_port()}"
    address = f"\0{name}" if abstract else str(tmp_path / "notify")
    words = ("serve", "--bind", "127.0.0.1:0", "--tokens", "tokens.json", "--no-reload")
    with (
        Listener(address) as systemd,
        Running(tmp_path, *words, NOTIFY_SOCKET=f"@{name}" if abstract else address) as running,
    ):
        assert systemd.hear() == {"READY": "1", "MAINPID": str(running.process.pid)}
        running.process.send_signal(signal.SIGHUP)
        told = systemd.hear()
        assert told["RELOADING"] == "1"
        assert int(told["MONOTONIC_USEC"]) > 0
        assert systemd.hear()["READY"] == "1"
        running.process.send_signal(signal.SIGTERM)
        assert systemd.hear() == {"STOPPING": "1"}
        assert running.end() == 0


def test_a_supervisor_that_is_gone_ends_nothing(tmp_path):
    run(tmp_path, "token", "new", "x", *WHO, "--file", "tokens.json")
    words = ("serve", "--bind", "127.0.0.1:0", "--tokens", "tokens.json")
    with Running(tmp_path, *words, NOTIFY_SOCKET=str(tmp_path / "nobody")) as running:
        running.line(lambda line: line.startswith("serving "))
        assert running.end(signal.SIGTERM) == 0


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ((), 2, "nobody could call"),
        (("--demo", "--config", "x"), 2, "--demo brings servers of its own"),
        (("--traffic",), 2, "--traffic is the demo's: add --demo"),
        (("--tokens", "tokens.json", "--bind", "nowhere"), 2, "flag: serve.bind"),
        (("--tokens", "nothing.json"), 2, "nothing.json"),
        (("--tokens", "tokens.json", "--tls-certificate", "no.pem"), 2, "serve.tls.certificate"),
    ],
)
def test_a_service_that_cannot_be_says_why(tmp_path, words, code, says):
    run(tmp_path, "token", "new", "x", *WHO, "--file", "tokens.json")
    done = run(tmp_path, "serve", *words)
    assert done.returncode == code, done.stderr
    assert says in done.stderr

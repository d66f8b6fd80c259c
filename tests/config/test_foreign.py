"""What other MCP clients keep their servers in is taken as it is."""

from __future__ import annotations

import json
import tomllib

import pytest

from afpool.config import load_config
from tests.config.config_kit import CANARY, ENV, problems, read, write


def told(config) -> list[str]:
    return [f"{problem.key}: {problem.what}" for problem in config.warnings]


CLAUDE = {
    "mcpServers": {
        "files": {
            "command": "npx",
            "args": ["-y", "@scope/server", "${HOME}/docs"],
            "env": {"KEY": "${TOKEN}", "LEVEL": 3, "FLAG": True, "GONE": None},
        },
        "wiki": {
            "type": "http",
            "url": "https://wiki.example/mcp",
            "headers": {"Authorization": "Bearer ${TOKEN:-none}"},
            "timeout": 60000,
            "autoApprove": ["search"],
        },
        "old": {"type": "sse", "url": "https://old.example/sse", "autoApprove": [], "env": {"A": "b"}},
    },
    "globalShortcut": "Ctrl+Space",
}


def test_claude(tmp_path) -> None:
    config = read(tmp_path, json.dumps(CLAUDE, indent=1), "claude.json")
    files, wiki, old = config.servers.values()
    assert files.command == "npx"
    assert [text.reveal() for text in files.args] == ["-y", "@scope/server", "/home/nobody/docs"]
    assert {name: text.reveal() for name, text in files.env.items()} == {
        "KEY": CANARY, "LEVEL": "3", "FLAG": "true",
    }  # fmt: skip
    assert wiki.headers["Authorization"].reveal() == f"Bearer {CANARY}"
    assert (old.type, old.transport, old.env) == ("sse", "http", {})
    assert told(config) == [
        "mcpServers.wiki.timeout: a server has no time limit of its own here; runtime.deadline bounds calls",
        "mcpServers.wiki.autoApprove: it is not understood here and passed over",
        "mcpServers.old.env: it says nothing of a server that has a url, and is passed over",
        "globalShortcut: it is not understood here and passed over",
    ], "a key that is not understood is told once"
    assert config.shown["servers.files.env.KEY"] == "[hidden]"
    assert str(config.origins["servers.wiki.url"]).endswith("claude.json:19")


def test_beside_a_file_of_ours_and_in_it(tmp_path) -> None:
    ours = write(tmp_path, "[servers.a]\ncommand = 'a'\n[mcpServers.b]\ncommand = 'b'\nfancy = 1\n")
    theirs = write(tmp_path, '{"mcpServers": {"c": {"command": "c"}}}', ".mcp.json")
    config = load_config(ours, mcp_config=theirs, env={})
    assert list(config.servers) == ["a", "b", "c"]
    assert config.source == (ours, theirs)
    assert told(config) == ["mcpServers.b.fancy: it is not understood here and passed over"]
    assert load_config(ours, mcp_config=[str(theirs)], env={}) == config
    twice = write(tmp_path, '{"mcpServers": {\n"a": {"command": "c"}}}', "twice.json")
    (said,) = problems(tmp_path, ours.read_text(), mcp_config=[twice])
    assert said == "twice.json:2: servers.a: another file has a server of this name"
    (said,) = problems(tmp_path, "[servers.a]\ncommand = 'a'\n[mcpServers.a]\ncommand = 'b'\n")
    assert "servers has one of this name, too" in said


def test_vs_code(tmp_path) -> None:
    folder = tmp_path / "project" / ".vscode"
    folder.mkdir(parents=True)
    (folder / "vars.env").write_text(
        "# comment\nA=1\nexport B='two words' # no\nC=\"x\\ny\"\nD= bare # c\n", "utf-8"
    )
    file = write(
        folder,
        json.dumps({
            "inputs": [{"id": "api-key", "type": "promptString", "password": True}],
            "servers": {
                "one": {
                    "type": "stdio",
                    "command": "${workspaceFolder}/bin/server",
                    "args": ["${userHome}", "${workspaceFolderBasename}", "${env:TOKEN}"],
                    "envFile": "${workspaceFolder}/.vscode/vars.env",
                    "env": {"KEY": "${input:api-key}", "A": "over"},
                    "cwd": "${workspaceFolder}",
                },
            },
        }),
        "mcp.json",
    )  # fmt: skip
    config = load_config(file, env={**ENV, "AFPOOL_INPUT_API_KEY": "asked"})
    (one,) = config.servers.values()
    assert one.command == f"{tmp_path}/project/bin/server"
    assert [text.reveal() for text in one.args] == ["/home/nobody", "project", CANARY]
    assert {name: text.reveal() for name, text in one.env.items()} == {
        "A": "over", "B": "two words", "C": "x\ny", "D": "bare", "KEY": "asked",
    }  # fmt: skip
    assert one.cwd is not None
    assert one.cwd.reveal() == f"{tmp_path}/project"
    assert config.source == (file, folder / "vars.env"), "both are worth watching"
    assert told(config) == []
    (folder / "vars.env").write_text("A=2\n", "utf-8")
    assert load_config(file, env={**ENV, "AFPOOL_INPUT_API_KEY": "asked"}) != config


def test_what_an_editor_would_ask(tmp_path) -> None:
    text = '{"servers": {"x": {"command": "c", "env": {"A": "${input:k}",\n"B": "${command:pick}"}}}}'
    one, other = problems(tmp_path, text, "mcp.json")
    assert one.startswith("mcp.json:1: servers.x.env.A: an editor would ask for this input")
    assert one.endswith("set AFPOOL_INPUT_K")
    assert other.startswith("mcp.json:2: servers.x.env.B: ${command:…} is asked of an editor")


def test_what_only_afpool_knows_stands_under_its_own_key(tmp_path) -> None:
    config = read(
        tmp_path,
        json.dumps({
            "mcpServers": {
                "wiki": {
                    "url": "https://wiki.example/${identity.tenant}",
                    "afpool": {"keyed_on": ["tenant"], "redact": {"keys": ["q"]}},
                }
            }
        }),
        "mcp.json",
    )  # fmt: skip
    wiki = config.servers["wiki"]
    assert wiki.keyed_on == ("tenant",)
    assert wiki.redact is not None
    assert config.origins["servers.wiki.keyed_on"].line == 1
    (said,) = problems(
        tmp_path, '{"mcpServers": {"x": {"command": "c", "afpool": {\n"keyed_onn": []}}}}', "mcp.json"
    )
    assert (
        said
        == "mcp.json:2: mcpServers.x.afpool.keyed_onn: there is no such setting; did you mean 'keyed_on'?"
    )
    (said,) = problems(tmp_path, '{"mcpServers": {"x": {"command": "c", "afpool": 3}}}', "mcp.json")
    assert "afpool: expected a table, not an integer" in said


@pytest.mark.parametrize(
    ("server", "what"),
    [
        ({"transportType": "sse", "url": "https://a.example"}, {"type": "sse"}),
        ({"serverUrl": "https://a.example"}, {"transport": "http"}),
        ({"httpUrl": "https://a.example"}, {"transport": "http"}),
        ({"type": "streamableHttp", "url": "https://a.example"}, {"type": "streamableHttp"}),
        ({"type": "ws", "url": "ws://a.example"}, {"transport": "websocket"}),
        ({"command": "c", "disabled": True}, {"disabled": True}),
    ],
)
def test_spellings_of_single_clients(tmp_path, server, what) -> None:
    read_one = read(tmp_path, json.dumps({"mcpServers": {"x": server}}), "mcp.json").servers["x"]
    assert {name: getattr(read_one, name) for name in what} == what


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "expected an object, not a list"),
        ("3", "expected an object, not an integer"),
        ("{}", "it holds neither mcpServers nor servers"),
        ('{"mcpServers": []}', "expected a table"),
        ('{"mcpServers": {"x": 3}}', "expected a server as other clients write it, not an integer"),
        ('{"mcpServers": {"x": {}}}', "one of command, url is missing"),
        ('{"mcpServers": {"x": {"command": "c", "url": "http://a"}}}', "cannot stand together"),
        (
            '{"mcpServers": {"x": {"command": "c"}},\n"servers": {"x": {"command": "c"}}}',
            "mcpServers has a server x",
        ),
        ('{"mcpServers": {"x": {"command": "c", "envFile": "none"}}}', "envFile: there is no such file"),
        ('{"mcpServers": {"x": {"command": 3}}}', "expected a program, not an integer"),
    ],
)
def test_what_is_wrong_with_such_a_file(tmp_path, text, said) -> None:
    assert any(said in one for one in problems(tmp_path, text, "mcp.json"))


@pytest.mark.parametrize("line", ["novalue", "=x", "A='open", 'A="b" c', "1A=2"])
def test_a_file_of_variables_that_is_none(tmp_path, line) -> None:
    write(tmp_path, f"OK=1\n{line}\n", "vars.env")
    (said,) = problems(tmp_path, "[servers.x]\ncommand = 'c'\nenv_file = 'vars.env'\n")
    assert said.startswith("afpool.toml:3: servers.x.env_file: the file of variables: line 2: ")


def test_the_same_object_says_the_same_in_toml(tmp_path) -> None:
    text = """
    [mcpServers.files]
    command = "npx"
    args = ["-y", "@scope/server", "${HOME}/docs"]
    env = { KEY = "${TOKEN}", LEVEL = 3, FLAG = true }
    """
    theirs = read(tmp_path, json.dumps({"mcpServers": tomllib.loads(text)["mcpServers"]}), "mcp.json")
    assert read(tmp_path, text).servers == theirs.servers

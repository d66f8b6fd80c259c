"""Flag before variable before file before default, and each value knows where it came from."""

from __future__ import annotations

import pytest

from afpool.config import ConfigError, Origin, load_config
from afpool.config._layers import leaves, variable_of
from afpool.config._load import TABLES
from tests.config.config_kit import CANARY, problems, read, write

SECONDS = "expected a number of seconds of at least 0, or a string such as '90s'"
BYTES = "expected a whole number of bytes of at least 1, or a string such as '16MiB'"
FILE = "[serve]\nbind = 'file:1'\n[runtime.limits]\nmax_clients = 1\n"


@pytest.mark.parametrize("file", [True, False])
@pytest.mark.parametrize("variable", [True, False])
@pytest.mark.parametrize("flag", [True, False])
def test_every_combination(tmp_path, monkeypatch, file, variable, flag) -> None:
    monkeypatch.chdir(tmp_path)
    if file:
        write(tmp_path, FILE)
    env = {"AFPOOL_SERVE_BIND": "variable:2", "AFPOOL_RUNTIME_LIMITS_MAX_CLIENTS": "2"} if variable else {}
    overrides = {"serve.bind": "flag:3", "runtime.limits.max_clients": 3} if flag else None
    config = load_config(env=env, overrides=overrides)
    expected = ("flag:3", 3) if flag else ("variable:2", 2) if variable else ("file:1", 1)
    kind = "flag" if flag else "environment" if variable else "file"
    if not (file or variable or flag):
        expected, kind = ("127.0.0.1:8765", 1000), "default"
    assert (config.serve.bind, config.runtime.limits.max_clients) == expected
    assert config.origins["serve.bind"].kind == kind
    assert config.shown["serve.bind"] == expected[0]


def test_variables_have_names_of_their_own() -> None:
    names = [variable_of(key) for key, _ in leaves(TABLES)]
    assert len(set(names)) == len(names) > 70
    assert {"AFPOOL_SERVE_BIND", "AFPOOL_SERVE_LIMITS_BODY", "AFPOOL_ARTIFACTS_BACKEND"} <= set(names)


def test_what_variables_can_say(tmp_path) -> None:
    env = {
        "AFPOOL_SERVE_ALLOWED_HOSTS": "a.example, b.example",
        "AFPOOL_SERVE_RELOAD": "no",
        "AFPOOL_SERVE_DRAIN": "1m",
        "AFPOOL_SERVE_WEBSOCKET_PATH": "",
        "AFPOOL_SERVE_IDENTITY_TOKENS_FILE": "/t.json",
        "AFPOOL_SERVE_IDENTITY_ANONYMOUS_TENANT": "public",
        "AFPOOL_RUNTIME_SECRET": f"{CANARY}-long-enough",
        "AFPOOL_ARTIFACTS_BACKEND": "redis",
        "AFPOOL_ARTIFACTS_URL": f"redis://:{CANARY}@r:6379/0",
        "AFPOOL_ARTIFACTS_PASSWORD": "${NOT_EXPANDED}",
    }
    config = read(tmp_path, "[serve]\ndrain = 3\n", env=env)
    assert config.serve.allowed_hosts == ("a.example", "b.example")
    assert (config.serve.reload, config.serve.drain, config.serve.websocket_path) == (False, 60.0, None)
    assert config.serve.identity.tokens is not None
    assert config.serve.identity.tokens.file == "/t.json"
    assert config.serve.identity.anonymous is not None
    assert config.serve.identity.anonymous.tenant == "public"
    assert config.artifacts.password is not None
    assert config.artifacts.password.reveal() == "${NOT_EXPANDED}"
    assert config.origins["artifacts.url"] == Origin("environment", variables=("AFPOOL_ARTIFACTS_URL",))
    assert config.shown["artifacts.url"] == "[hidden]"
    assert CANARY not in repr(config)
    assert CANARY not in repr(config.shown)


def test_what_is_wrong_is_told_by_the_variable_or_the_flag(tmp_path) -> None:
    env = {"AFPOOL_SERVE_DRAIN": CANARY, "AFPOOL_ARTIFACTS_BACKEND": "sqlite"}
    told = problems(tmp_path, FILE, env=env, overrides={"serve.limits.body": CANARY, "serve.bimd": "x"})
    assert sorted(told) == [
        'afpool.toml: artifacts: backend = "sqlite" needs path',
        f"environment: AFPOOL_SERVE_DRAIN: {SECONDS}",
        "flag: serve.bimd: there is no such setting; did you mean 'serve.bind'?",
        f"flag: serve.limits.body: {BYTES}",
    ]


def test_a_variable_that_says_nothing_is_told_and_passed_over(tmp_path) -> None:
    env = {
        "AFPOOL_SERVE_BNID": "a",  # misspelled
        "AFPOOL_SERVE_PORT": "tcp://10.0.0.1:8765",  # what a cluster sets for a service called afpool-serve
        "AFPOOL_INPUT_KEY": "b",
        "AFPOOL_OTHER": "c",
    }
    config = read(tmp_path, FILE, env=env)
    assert [(one.key, one.nearest) for one in config.warnings] == [
        ("AFPOOL_SERVE_BNID", "AFPOOL_SERVE_BIND"),
        ("AFPOOL_SERVE_PORT", "AFPOOL_SERVE_PATH"),
    ]


def test_servers_are_said_in_files_only(tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"servers\.x\.url"):
        read(tmp_path, FILE, overrides={"servers.x.url": "http://a"})

"""The `[console]` table."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pytest

from afpool.config import ConfigError, ConsoleConfig, load_config

if TYPE_CHECKING:
    from pathlib import Path

READ = "read-token-0123456789"
OPERATE = "operate-token-0123456789"


def read(folder: Path, *lines: str, **env: str) -> ConsoleConfig:
    path = folder / "afpool.toml"
    path.write_text("\n".join(["[console]", *lines]) + "\n", encoding="utf-8")
    return load_config(path, env=env).console


def test_nothing_is_said(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert found == ConsoleConfig()
    assert found.settings() is None
    by_default = found.settings(default=True, name="serve")
    assert by_default is not None
    assert (by_default.name, by_default.required, by_default.bind) == ("serve", False, None)


def test_everything_is_said(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "enabled = true",
        'name = "tools"',
        'directory = "inside"',
        'bind = "0.0.0.0:8790"',
        'read_token = "${READ}"',
        f'operate_token = "sha256:{hashlib.sha256(OPERATE.encode()).hexdigest()}"',
        'allowed_hosts = ["ops.example.com"]',
        'allowed_origins = ["https://dash.example.com"]',
        "watchdog = false",
        READ=READ,
    )
    settings = found.settings(name="serve")
    assert settings is not None
    assert settings.name == "tools"
    assert settings.directory == tmp_path / "inside"
    assert settings.host_and_port == ("0.0.0.0", 8790)
    assert settings.read_token is not None
    assert settings.read_token.reveal() == READ
    assert settings.allowed_hosts == ("ops.example.com",)
    assert settings.allowed_origins == ("https://dash.example.com",)
    assert settings.required
    assert not settings.watchdog


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    assert read(tmp_path, "enabled = false").settings(default=True) is None
    assert read(tmp_path, AFPOOL_CONSOLE_ENABLED="off").settings(default=True) is None


@pytest.mark.parametrize(
    ("lines", "key", "words"),
    [
        (['name = "../x"'], "console.name", "letters, digits"),
        (['bind = "127.0.0.1:8790"'], "console", "read_token or operate_token"),
        (['bind = "0.0.0.0:8790"', f'read_token = "{READ}"'], "console.bind", "allowed_hosts"),
        (['bind = "unix:/x"', f'read_token = "{READ}"'], "console.bind", "host:port"),
        (['bind = "a:70000"', f'read_token = "{READ}"'], "console.bind", "no such port"),
        (['bind = "a b:70"', f'read_token = "{READ}"'], "console.bind", "host"),
        (['read_token = "short"'], "console.read_token", "16 visible ASCII"),
        (['read_token = "sha256:abcdefghijklm"'], "console.read_token", "digest"),
        ([f'read_token = "{READ}"', f'operate_token = "{READ}"'], "console.operate_token", "the same"),
        (["unix = false"], "console.unix", "listens nowhere"),
        (['allowed_origins = ["null"]'], "console.allowed_origins", "origin"),
        (["enable = true"], "console.enable", "no such setting"),
        (['enabled = "maybe"'], "console.enabled", "true or false"),
    ],
)
def test_what_cannot_be_is_told_without_a_token(
    tmp_path: Path, lines: list[str], key: str, words: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, *lines)
    told = str(refused.value)
    assert key in told
    assert words in told
    assert READ not in told


def test_what_a_file_says_can_always_be_made(tmp_path: Path) -> None:
    # what passes here passes there: no configuration that was checked is refused when it is opened
    for bind in ("127.0.0.1:0", "localhost:1", "[::1]:8790", "127.8.8.8:65535"):
        found = read(tmp_path, f'bind = "{bind}"', f'read_token = "{READ}"', "enabled = true")
        assert found.settings() is not None


def test_tokens_are_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "afpool.toml"
    path.write_text(f'[console]\nread_token = "{READ}"\noperate_token = "{OPERATE}"\n', encoding="utf-8")
    found: Any = load_config(path, env={})
    for text in (repr(found), repr(found.console), repr(dict(found.shown))):
        assert READ not in text
        assert OPERATE not in text
    assert found.shown["console.read_token"] == "[hidden]"
    assert found.console == load_config(path, env={}).console

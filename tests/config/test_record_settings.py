"""The tables `[record]` and `[serve.metrics]`: from a file to what runtime and service are opened with."""

from __future__ import annotations

import hashlib
import importlib.util
from typing import TYPE_CHECKING, Any

import pytest

from afpool.config import Config, ConfigError, load_config
from afpool.record import JsonlSettings, OpenTelemetry, RecordSettings

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = "metrics-token-of-the-operator"


def read(folder: Path, text: str, **env: str) -> Config:
    path = folder / "afpool.toml"
    path.write_text(text)
    return load_config(path, env=env)


def wrong(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as raised:
        read(folder, text)
    return str(raised.value)


def test_nothing_said_is_nothing_made(tmp_path) -> None:
    config = read(tmp_path, "[record]")
    assert config.runtime_config().record is None
    assert config.serve.metrics.enabled
    assert config.serve.metrics.token is None


def test_a_path_alone_and_everything(tmp_path) -> None:
    short = read(tmp_path, '[record]\njsonl = "calls.jsonl"').runtime_config().record
    assert short == RecordSettings(jsonl=JsonlSettings(path=tmp_path / "calls.jsonl"))
    whole = read(
        tmp_path,
        """
        [record.jsonl]
        path = "/var/log/calls.jsonl"
        max_bytes = "1MiB"
        keep = 0
        fsync = "always"
        queue = 10
        [record.labels]
        tools = 20
        tenants = 30
        [runtime.limits]
        records = 0
        record_bytes = "1MiB"
        """,
    ).runtime_config()
    assert whole.record == RecordSettings(
        jsonl=JsonlSettings(path="/var/log/calls.jsonl", max_bytes=2**20, keep=0, fsync="always", queue=10),
        tools=20,
        tenants=30,
    )
    assert (whole.pool["records"], whole.pool["record_bytes"]) == (0, 2**20)


def test_defaults_are_those_of_the_settings(tmp_path) -> None:
    made = read(tmp_path, '[record]\njsonl = "x"').runtime_config().record
    assert made is not None
    assert made.jsonl == JsonlSettings(path=tmp_path / "x")


def test_opentelemetry_by_the_providers_of_the_process(tmp_path) -> None:
    made = read(tmp_path, "[record]\notel = true").runtime_config().record
    assert made is not None
    assert isinstance(made.tracing, OpenTelemetry)


def test_an_sdk_that_is_not_there_is_a_problem_of_the_file(tmp_path, monkeypatch) -> None:
    def none(name: str) -> Any:
        if name.startswith("opentelemetry"):
            raise ModuleNotFoundError(name)
        raise AssertionError(name)

    monkeypatch.setattr(importlib.util, "find_spec", none)
    assert "afpool.toml:2: record.otel: OpenTelemetry's SDK is not installed" in wrong(
        tmp_path, "[record]\notel = true"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[record]\njsonl = 5", "record.jsonl"),
        ("[record.jsonl]\nkeep = 5", "path is missing"),
        ("[record.jsonl]\npath = 'x'\nmax_bytes = 10", "record.jsonl.max_bytes"),
        ("[record.jsonl]\npath = 'x'\nfsync = 'sometimes'", "record.jsonl.fsync"),
        ("[record.labels]\ntenants = -1", "record.labels.tenants"),
        ("[record]\njsnol = 'x'", "did you mean 'jsonl'?"),
        ("[serve.metrics]\ntoken = 'short'", "serve.metrics.token"),
        ("[serve.metrics]\ntoken = 'sha256:nothing-of-the-kind'", "serve.metrics.token"),
        ("[serve]\npath = '/metrics'", "something else of the service answers there"),
    ],
)
def test_what_cannot_be(tmp_path, text: str, said: str) -> None:
    assert said in wrong(tmp_path, text)


def test_a_token_is_a_secret_and_may_be_a_digest(tmp_path) -> None:
    config = read(tmp_path, '[serve.metrics]\ntoken = "${METRICS}"', METRICS=TOKEN)
    assert config.serve.metrics.token is not None
    assert config.serve.metrics.token.reveal() == TOKEN
    assert config.shown["serve.metrics.token"] == "[hidden]"
    assert TOKEN not in repr(config)
    digest = "sha256:" + hashlib.sha256(TOKEN.encode()).hexdigest()
    assert read(tmp_path, f'[serve.metrics]\ntoken = "{digest}"').serve.metrics.token is not None


def test_a_variable_says_it_too(tmp_path) -> None:
    said = {"AFPOOL_RECORD_JSONL_PATH": "/var/log/x.jsonl", "AFPOOL_SERVE_METRICS_ENABLED": "false"}
    config = read(tmp_path, "[record]", **said)
    assert config.record.jsonl is not None
    assert config.record.jsonl.path == "/var/log/x.jsonl"
    assert not config.serve.metrics.enabled


def test_another_file_of_records_is_a_change(tmp_path) -> None:
    one, other = read(tmp_path, '[record]\njsonl = "a"'), read(tmp_path, '[record]\njsonl = "b"')
    changes = one.changed_servers(other)
    assert changes.record
    assert bool(changes)
    assert not one.changed_servers(one).record

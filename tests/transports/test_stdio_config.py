"""What a configuration of a child refuses and what it shows."""

from __future__ import annotations

from typing import Any

import pytest

from afpool.transports._stdio import StdioConfig


def test_a_configuration_shows_no_values() -> None:
    config = StdioConfig(["serve", "--key=s3cret"], env={"TOKEN": "s3cret"}, cwd="/home/s3cret")
    assert "s3cret" not in repr(config)
    assert "serve" in repr(config)
    assert "TOKEN" in repr(config)
    assert config == StdioConfig(("serve", "--key=s3cret"), env={"TOKEN": "s3cret"}, cwd="/home/s3cret")
    assert hash(config) == hash(StdioConfig(("serve", "--key=s3cret"), cwd="/home/s3cret"))


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ({"command": "cat -n"}, TypeError),
        ({"command": []}, ValueError),
        ({"command": [""]}, ValueError),
        ({"command": ["a\0b"]}, ValueError),
        ({"command": ["cat"], "env": {"A=B": "c"}}, ValueError),
        ({"command": ["cat"], "env": {"A": "\0"}}, ValueError),
        ({"command": ["cat"], "env": {"A": 1}}, TypeError),
        ({"command": ["cat"], "cwd": ""}, ValueError),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(bad: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        StdioConfig(**bad)

"""Server objects of the official SDK, in one process with the pool, over `MemoryTransport.of_server`.

The SDK is not installed beside the tests, so each line is tried by an interpreter that has it.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import trio

from tests.peers.conftest import SERVERS, command_of
from tests.peers.pool_peer_kit import LEGACY, MODERN

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("peer", "version"), [("mcp1", LEGACY), ("mcp2", MODERN)])
def test_a_server_object_is_opened_called_cancelled_heard_and_left(peer: str, version: str) -> None:
    python = command_of(peer, "stdio").argv[0]
    packages = Path(trio.__file__).parents[1]
    done = subprocess.run(
        [python, "-W", "ignore", str(SERVERS / "in_memory.py"), str(ROOT), str(packages)],
        capture_output=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    facts = json.loads(done.stdout.decode().splitlines()[-1])
    for way, spoken in (("background", version), ("nursery", LEGACY)):
        found = facts[way]
        leaked, left = found.pop("rivals")
        assert leaked == 0, "nothing is handed over behind a closed gate"
        assert 0 < left < 200, "the rival came first in some of the trials and not in others"
        assert found == {
            "version": spoken,
            "echo": "ä\u2028",
            "count": "counted 3",
            "progress": [1, 2, 3],
            "big": 300_000,
            "cancelled": ["sleep"],
            "at once": 200,
            "clients": 2,
            "extra": "extra",
        }
    assert (facts["stable"], facts["others"]) == (True, True)

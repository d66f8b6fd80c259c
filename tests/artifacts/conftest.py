"""A Redis for the tests that need one; where there is none they are skipped, as those with peers are."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.artifacts.store_kit import RedisServer, memory_harness, redis_harness, sqlite_harness

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BACKENDS = ["memory", "sqlite", pytest.param("redis", marks=pytest.mark.peer)]


def require_redis() -> None:
    if shutil.which("redis-server") is None:
        message = "redis-server is not installed: run `make test` as root, or install Debian's redis-server"
        if os.environ.get("AFPOOL_REQUIRE_PEERS") == "1":
            pytest.fail(message, pytrace=False)
        pytest.skip(message)


@pytest.fixture(scope="session")
def _shared_redis() -> Iterator[RedisServer]:
    require_redis()
    server = RedisServer()
    yield server
    server.stop()


@pytest.fixture
def redis(_shared_redis: RedisServer) -> RedisServer:
    """A Redis that other tests use as well: under prefixes of their own."""
    return _shared_redis


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A Redis that the test may stop, fill and restart."""
    require_redis()
    server = RedisServer()
    yield server
    server.resume()
    server.stop()


@pytest.fixture(params=BACKENDS)
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """The harness of each store."""
    if request.param == "memory":
        return memory_harness()
    if request.param == "sqlite":
        return sqlite_harness(tmp_path)
    return redis_harness(request.getfixturevalue("redis").url)

"""A folder whose path is short: that of a Unix socket has 107 bytes, wherever pytest keeps its own."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="afc-", dir="/tmp") as folder:
        yield Path(folder)

"""Services of these tests have consoles of their own, in a folder where nobody else looks."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True, scope="session")
def consoles() -> Iterator[None]:
    with (
        tempfile.TemporaryDirectory(prefix="afc-", dir="/tmp") as folder,
        pytest.MonkeyPatch.context() as patched,
    ):
        patched.setenv("XDG_RUNTIME_DIR", folder)
        yield

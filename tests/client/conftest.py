"""A clock that jumps: loopback answers come within the threshold, everything else is a wait."""

from __future__ import annotations

import pytest
from trio.testing import MockClock


@pytest.fixture
def jumping():
    return MockClock(autojump_threshold=0.01)

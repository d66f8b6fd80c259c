"""Which places are outside of the process, and what may be found where."""

from __future__ import annotations

from typing import Final

from tests.canary.forms import IDENTITIES, Found

OUTSIDE: Final = (
    "client ", "console ", "event as JSON", "event of the pool: as JSON", "explanation of ", "log of ",
    "metric",
    "page ", "prometheus", "record ", "refusal of the service", "span", "stacks", "stderr", "stdout",
    "traceparent", "use as JSON",
)  # fmt: skip
"""Beginnings of places that somebody else than the host's own code reads."""

REVEALED: Final = ("console revealed", "client revealed")
"""Where whoever may operate has asked for identities to be shown."""

OWN: Final = ("console own answer", "client own output", "page own view")
"""Where whoever has typed something may read it again."""

OF_NOBODY: Final = ("log of ", "metric", "prometheus", "span", "stacks", "stderr", "stdout", "traceparent")
"""Where a name that a model or a caller made up is not either: elsewhere a call is known by it."""


MIRRORED: Final = "use of bearer/mirrored"
"""A use that refers to a definition, which is as its server wrote it: with what the server was sent."""


def is_a_leak(one: Found) -> bool | None:
    """Whether a canary may not be where it was found; `None` where that is for others to say."""
    if one.name in IDENTITIES:
        outside = one.place.startswith(OUTSIDE) or one.place.endswith(": as JSON")
        return outside and not one.place.startswith(REVEALED)
    if one.place.startswith(MIRRORED) and not one.place.endswith(": as JSON"):
        return False
    if one.name == "made up":
        return one.place.startswith(OF_NOBODY)
    if one.name == "typed":
        return not one.place.startswith(OWN)
    if one.place.startswith(OUTSIDE) and not one.place.startswith("log of httpcore"):
        return True
    return None

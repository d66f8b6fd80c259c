"""Survivors that are explained: read from `survivors.toml`, and held against the code of today.

An entry says why no test can see the change, or why none should. One that names a change which can't be
made any more is an error: the code has moved on and the reason with it.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.mutation.changes import Change

LIST = Path(__file__).with_name("survivors.toml")


class Survivor(NamedTuple):
    file: str
    scope: str
    was: str
    becomes: str
    why: str
    nth: int = 0


def load(path: Path = LIST) -> list[Survivor]:
    with path.open("rb") as source:
        return [Survivor(**entry) for entry in tomllib.load(source).get("survivor", [])]


def explained(survivors: Iterable[Survivor], changes: Iterable[Change]) -> tuple[dict[str, str], list[str]]:
    """The reasons by name of the change, and what is wrong with the list."""
    by_place = {
        (change.file, change.scope, change.was, change.becomes, change.nth): change for change in changes
    }
    reasons: dict[str, str] = {}
    wrong = []
    for entry in survivors:
        change = by_place.get((entry.file, entry.scope, entry.was, entry.becomes, entry.nth))
        said = f"{entry.file} {entry.scope}: {entry.becomes}"
        if change is None:
            wrong.append(f"no such change any more: {said}")
        elif change.name in reasons:
            wrong.append(f"twice in the list: {said}")
        elif not entry.why.strip():
            wrong.append(f"no reason: {said}")
        else:
            reasons[change.name] = entry.why
    return reasons, wrong

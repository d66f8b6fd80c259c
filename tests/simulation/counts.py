"""What happened in many runs, counted; and what should have happened and never did.

What there is to happen is read from the code: every code of an error class of afpool, every kind of step. A
new class is therefore missed from the first long run on, until the generator provokes it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import afpool
import afpool.pool
from tests.simulation.steps import FAULTS, KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ELSEWHERE: Final = frozenset({"not-owner", "unknown-tool", "denied", "tool-failed", "lease-returned-twice"})
"""Codes that no pool of one process answers with: of several processes, of the door around its tools, and of
a fault of the pool itself."""

ENGINE: Final = ("_base", "protocol", "transports", "client", "pool")
"""Packages whose codes count: what else has been imported changes nothing."""

VERDICTS: Final = ("not-sent", "refused", "in-doubt", "answered")


def _below(kind: type[afpool.AfpoolError]) -> Iterable[type[afpool.AfpoolError]]:
    for one in kind.__subclasses__():
        if one.__module__.startswith("afpool."):
            yield one
            yield from _below(one)


def all_codes() -> tuple[str, ...]:
    """Every code that a call of a pool can end with."""
    codes = {kind.code for kind in _below(afpool.AfpoolError) if kind.__module__.split(".")[1] in ENGINE}
    return tuple(sorted(codes - ELSEWHERE))


def wanted() -> tuple[str, ...]:
    """The names of everything that a long run has to have seen at least once."""
    return (
        "calls",
        "outcome:ok",
        *(f"outcome:{code}" for code in all_codes()),
        *(f"verdict:{verdict}" for verdict in VERDICTS),
        *(f"fault:{name}" for name in FAULTS),
        *(f"step:{name}" for name in KINDS if name not in FAULTS),
    )


ASKING: Final = (
    "outcome",
    "list",
    "listing",
    "refresh",
    "warm",
    "bind",
    "updates",
    "unsubscribe",
    "strangers",
    "drain",
)
"""Families of what was asked of the pool: a code counts as seen wherever it was answered."""


def missing(counts: Mapping[str, int]) -> list[str]:
    """What was never seen."""
    return [name for name in wanted() if not _seen(counts, name)]


def _seen(counts: Mapping[str, int], name: str) -> bool:
    family, _, member = name.partition(":")
    families = ASKING if family == "outcome" else (family,)
    return any(counts.get(f"{each}:{member}" if member else each) for each in families)


def table(counts: Mapping[str, int]) -> str:
    """The counts as text, by family, the most frequent first."""
    families: dict[str, Counter[str]] = {}
    for name, count in counts.items():
        family, _, member = name.partition(":")
        families.setdefault(family if member else "", Counter())[member or family] += count
    lines: list[str] = []
    for family in sorted(families):
        members = families[family]
        if family:
            lines.append(f"{family} ({sum(members.values())}):")
        ordered = sorted(members.items(), key=lambda item: (-item[1], item[0]))
        lines += _columns([f"{count:>8} {name}" for name, count in ordered])
    return "\n".join(lines)


def _columns(cells: list[str], columns: int = 4, width: int = 30) -> list[str]:
    rows = -(-len(cells) // columns)
    return ["".join(cell.ljust(width) for cell in cells[row::rows]).rstrip() for row in range(rows)]

"""What happened in many runs, counted; and what should have happened and never did.

What there is to happen is read from the code: every code of an error class of afpool, every kind of step. A
new class is therefore missed from the first long run on, until the generator provokes it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import afpool
import afpool.artifacts
import afpool.pool
import afpool.tools
from tests.simulation.steps import FAULTS, KINDS, Work

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ELSEWHERE: Final = frozenset({"not-owner", "unknown-tool", "denied", "tool-failed", "lease-returned-twice"})
"""Codes that no pool of one process answers with: of several processes, of the door around its tools, and of
a fault of the pool itself."""

DOOR: Final = ("tools", "artifacts")
"""Packages whose codes a door answers with, tells of a tool that it does not offer, or passes on of a put."""

NOT_AT_DOORS: Final = frozenset({"ERR_ARTIFACT", "ERR_UNREADABLE_ARTIFACT", "ERR_UNREADABLE_ARTIFACT_STORE"})
"""The root of a family, and codes of stores that outlive their process."""

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


def door_codes() -> tuple[str, ...]:
    """Every code that comes of the door around calls, and of nothing below it."""
    for module in (afpool.tools, afpool.artifacts):
        for name in module.__all__:
            getattr(module, name)  # they are loaded when they are touched
    codes = {kind.code for kind in _below(afpool.AfpoolError) if kind.__module__.split(".")[1] in DOOR}
    codes |= {"unknown-tool", "denied", "tool-failed", "fill-undeclared", "ok"}
    return tuple(sorted(codes - NOT_AT_DOORS))


def wanted() -> tuple[str, ...]:
    """The names of everything that a long run has to have seen at least once."""
    return (
        "calls",
        "outcome:ok",
        *(f"outcome:{code}" for code in all_codes()),
        *(f"verdict:{verdict}" for verdict in VERDICTS),
        *(f"door:{code}" for code in door_codes()),
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


MET: Final = "met"
"""Family of what happened while calls waited: a stage of a call, and the kind of a step."""


def apart(counts: Mapping[str, int]) -> tuple[int, list[str]]:
    """How many pairs there are of what calls waited for and what happened, and those that never met."""
    met = {tuple(name.partition(":")[2].split()) for name in counts if name.partition(":")[0] == MET}
    stages = sorted({stage for stage, _ in met})
    kinds = [name for name, kind in KINDS.items() if not issubclass(kind, Work)]
    pairs = [(stage, kind) for stage in stages for kind in kinds]
    return len(pairs), [f"{stage}+{kind}" for stage, kind in pairs if (stage, kind) not in met]


def table(counts: Mapping[str, int]) -> str:
    """The counts as text, by family, the most frequent first."""
    families: dict[str, Counter[str]] = {}
    for name, count in counts.items():
        family, _, member = name.partition(":")
        if family == MET:
            continue
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

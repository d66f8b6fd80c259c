"""How a Redis store's keys are called, and what its scripts take and give."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import attrs

from ._minting import BORN_EXPIRED, Ticket, stored_ticket
from ._naming import checked_ref, scope_path
from ._types import (
    ArtifactStoreError,
    InvalidArtifactError,
    Swept,
    UnknownParentRefError,
    UnreadableArtifactError,
)

if TYPE_CHECKING:
    from ._types import ArtifactScope, SweepReason

Answer: TypeAlias = list[Any]


@attrs.frozen
class Keys:
    """The keys of one scope.

    Attributes:
        base: What they all begin with.
        all: What every script is given.
    """

    base: str
    all: list[str]

    def payload(self, ref: str) -> str:
        """Give the key of a payload."""
        return f"{self.base}p:{ref}"

    def staged(self, ref: str) -> str:
        """Give the key of a payload that is not whole yet."""
        return f"{self.base}x:{ref}"


def keys_of(prefix: str, scope: ArtifactScope) -> Keys:
    """Give a scope's keys. Its fields are spelled so that no brace is in them: the hash tag is the scope."""
    base = f"{prefix}:{{{scope_path(scope)}}}:"
    return Keys(base, [base + name for name in ("t", "a", "k", "u", "e", "s", "p:")])


def or_empty(number: int | None) -> int | str:
    """Give an argument that may be missing."""
    return "" if number is None else number


def parents_of(ticket: Ticket) -> list[str]:
    """Give the parents as the scripts take them; what is no ref is an empty string, which is not there."""
    return [checked_ref(ref) or "" for ref in ticket.parents]


def judge(answer: Answer, ticket: Ticket) -> Answer:
    """Give an answer on, or raise what it says.

    Raises:
        InvalidArtifactError: The artifact would be born expired.
        UnknownParentRefError: A parent is not there.
        ArtifactStoreError: What was staged is gone.
    """
    word = bytes(answer[0])
    if word == b"born-expired":
        raise InvalidArtifactError(BORN_EXPIRED)
    if word == b"unknown-parent":
        raise UnknownParentRefError([ticket.parents[int(at)] for at in answer[1:]])
    if word == b"lost":
        raise ArtifactStoreError(
            "Redis lost what was staged of the payload: it came too slowly, or Redis had no room; "
            "nothing was stored; put it again"
        )
    return answer


def read_put(answer: Answer, ticket: Ticket) -> tuple[int, int, list[Swept]]:
    """Read what a put answered: creation, expiry (0 for none), what it gave up. Raises as `judge` does."""
    _, created, expires, *gone = judge(answer, ticket)
    swept: list[Swept] = []
    for at in range(0, len(gone), 4):
        ref, reason, kind, size = (bytes(word).decode() for word in gone[at : at + 4])
        swept.append(Swept(ref, cast("SweepReason", reason), kind, int(size)))
    return int(created), int(expires), swept


def rest_of(ticket: Ticket) -> str:
    """Give what a ticket says beside what the scripts read."""
    facts = {
        "media_type": ticket.media_type, "shape": ticket.shape, "label": ticket.label,
        "digest": ticket.digest, "run_id": ticket.run_id, "call_id": ticket.call_id,
        "parents": ticket.parents or None,
    }  # fmt: skip
    return json.dumps({name: fact for name, fact in facts.items() if fact is not None}, separators=(",", ":"))


def stamped(ticket: Ticket, created: int, expires: int) -> Ticket:
    """Give the ticket of the moment of writing."""
    return attrs.evolve(ticket, created=created, expires=expires or None)


def ticket_of(ref: str, raw: bytes) -> Ticket:
    """Read a ticket as the scripts write it.

    Raises:
        UnreadableArtifactError: It is none.
    """
    try:
        created, expires, size, length, rest = raw.split(b" ", 4)
        kind, facts = rest[: int(length)].decode(), json.loads(rest[int(length) :])
        return stored_ticket(
            ref,
            **{**facts, "parents": tuple(facts.get("parents", ()))},
            ref=ref,
            kind=kind,
            bytes=int(size),
            created=int(created),
            expires=int(expires) or None,
        )
    except (ValueError, TypeError, AttributeError):
        raise UnreadableArtifactError(ref) from None

"""What a store answered, held to its form before anybody reads it: a store may be anybody's.

Rules:

* A ticket that is none, or whose facts are of other kinds than the port says, is a failure of its store. It
  is neither an artifact nor the absence of one.
* Nothing of it is quoted.
"""

from __future__ import annotations

from typing import Any, Final, TypeGuard

from .._base.errors import IN_DOUBT, NOT_SENT, Delivery
from ._types import Artifact, ArtifactMeta, ArtifactPage, ArtifactStoreError, Origin

_TEXTS: Final = ("ref", "kind", "media_type")
_TEXTS_OR_NONE: Final = ("label", "digest")


def is_ticket(meta: object) -> TypeGuard[ArtifactMeta]:
    """Say whether something is a ticket as the port describes it."""
    return (
        isinstance(meta, ArtifactMeta)
        and all(isinstance(getattr(meta, name), str) for name in _TEXTS)
        and all(isinstance(getattr(meta, name), str | None) for name in _TEXTS_OR_NONE)
        and type(meta.bytes) is int
        and _is_time(meta.created_at)
        and (meta.expires_at is None or _is_time(meta.expires_at))
        and isinstance(meta.origin, Origin | None)
        and isinstance(meta.parent_refs, tuple)
        and all(isinstance(ref, str) for ref in meta.parent_refs)
    )


def ticket(meta: Any, verb: str, delivery: Delivery = NOT_SENT) -> ArtifactMeta:
    """Give a ticket as it is.

    Raises:
        ArtifactStoreError: It is none.
    """
    if not is_ticket(meta):
        raise _unsound(verb, "a ticket", meta, delivery)
    return meta


def ticket_or_none(meta: Any, verb: str) -> ArtifactMeta | None:
    """Give a ticket, or `None`, as it is; raises as `ticket`."""
    return None if meta is None else ticket(meta, verb)


def artifact_or_none(found: Any) -> Artifact | None:
    """Give an artifact, or `None`, as it is; raises as `ticket`."""
    if found is None:
        return None
    if not isinstance(found, Artifact) or not is_ticket(found.meta):
        raise _unsound("get", "an artifact", found, NOT_SENT)
    return found


def page(found: Any) -> ArtifactPage:
    """Give a page as it is; raises as `ticket`."""
    if (
        not isinstance(found, ArtifactPage)
        or not isinstance(found.items, tuple)
        or not all(map(is_ticket, found.items))
        or not isinstance(found.cursor, str | None)
    ):
        raise _unsound("list", "a page", found, NOT_SENT)
    return found


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) < float("inf")


def _unsound(verb: str, what: str, given: object, delivery: Delivery) -> ArtifactStoreError:
    done = "it may have been stored" if delivery == IN_DOUBT else "nothing was done with it"
    return ArtifactStoreError(
        f"the artifact store answered {verb} with what is not {what} ({type(given).__name__}); {done}; this "
        "is a fault of the store",
        delivery=delivery,
    )

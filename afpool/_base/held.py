"""What a credential provider holds, as an operator may see it: times and names, never a credential."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .identity import Identity

HeldState: TypeAlias = Literal["held", "renewing", "asking", "refused", "failing", "consent"]


@attrs.frozen(kw_only=True)
class HeldCredential:
    """One credential that a provider holds, or asks for. A provider may give these by a method `held`.

    Attributes:
        service: Of which service.
        mode: `machine` or `user`.
        scopes: What it was asked for.
        resource: The server that it is for, where it is for one; shown as an origin.
        who: Whose it is; shown by digest, except to who may operate. `None` where it is everybody's.
        state: `held`; `renewing`, a good one is asked for anew; `asking`, there is none yet; `refused`, which
            is remembered; `failing`, not asked for again before `until`; `consent`, somebody has to give it.
        expires_at: When it ends, in seconds since 1970; `None` where nobody says.
        renew_at: When it is asked for anew, likewise.
        until: How long a refusal, a failure or a consent is remembered, likewise.
    """

    service: str
    mode: str
    scopes: tuple[str, ...] = ()
    resource: str = ""
    who: Identity | None = attrs.field(default=None, repr=False)
    state: HeldState = "held"
    expires_at: float | None = None
    renew_at: float | None = None
    until: float | None = None


def held_by(provider: object) -> Iterable[HeldCredential]:
    """What a provider says that it holds; nothing where it does not say."""
    held: Any = getattr(provider, "held", None)
    return () if held is None else held()

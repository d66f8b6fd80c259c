"""Whom a set of claims or headers is for, as the configuration says, and never more than that.

Rules:

* Nothing is defaulted and nothing is converted: a value is a text as it stands, or the caller is refused. A
  number, a list, `null` and an empty text are no values; a tenant `7` and a tenant `"7"` would be one.
* Two texts are the same when their characters are. Nothing is folded, normalized or trimmed: what looks like
  a tenant's name and is not it is another tenant.
* Words say which field of the identity is at fault, never what stood there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .._base.identity import Identity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..config import Claim

MAX_VALUE: Final = 512
_ABSENT: Final = object()


def identity_of(claims: Mapping[str, Any], wanted: Mapping[str, Claim]) -> Identity | str:
    """Read an identity out of claims that were proven, or say what is wrong with them."""
    fields: dict[str, str] = {}
    for field, claim in wanted.items():
        if claim.value is not None:
            fields[field] = claim.value
            continue
        found = _look(claims, claim.steps)
        if found is not _ABSENT:
            if not is_value(found):
                return f"the token's claim for `{field}` is not one text"
            fields[field] = found
        elif claim.required:
            return f"the token has no claim for `{field}`"
    return identity_from(fields) or "the token names neither a tenant nor a principal"


def identity_from(fields: Mapping[str, str]) -> Identity | None:
    """Make an identity of fields that were judged; `None` where they name nobody."""
    if "tenant" not in fields and "principal" not in fields:
        return None
    return Identity(**fields)


def _look(claims: Mapping[str, Any], steps: tuple[str, ...]) -> Any:
    found: Any = claims
    for step in steps:
        if not isinstance(found, dict) or step not in found:
            return _ABSENT
        found = found[step]
    return found


def is_value(raw: Any) -> bool:
    """Whether something may stand in an identity: a printable text, not empty, of bounded length."""
    return isinstance(raw, str) and 0 < len(raw) <= MAX_VALUE and raw.isprintable()

"""What is done to the tools of a server: `[servers.NAME.fill]`, `.redact`, `.ceilings`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping  # noqa: TC003  (attrs resolves the annotations)
from types import MappingProxyType
from typing import ClassVar, Final, Literal

import attrs

from .._base.identity import FIELDS
from ._checks import paths_problem, pattern_problem, patterns_fit
from ._kinds import Boolean, Choice, Text
from ._kinds_of_many import Listing, Named
from ._numbers import count
from ._tables import Needs, OneOf, Rule, setting

_NONE: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType({})


@attrs.frozen(kw_only=True)
class FillConfig:
    """Where an argument comes from that the host fills.

    Attributes:
        credential: The credential whose token or key it is.
        identity: The identity's field that it is.
        scopes: Scopes that the credential must carry.
        mode: Whose credential: `machine` or `user`.
    """

    credential: str | None = attrs.field(
        default=None,
        metadata=setting(
            Text(expects="the name of a credential"), "The credential whose token or key it is."
        ),
    )
    identity: Literal["tenant", "principal", "conversation_id"] | None = attrs.field(
        default=None, metadata=setting(Choice(*FIELDS), "The field of the caller's identity that it is.")
    )
    scopes: tuple[str, ...] = attrs.field(
        default=(),
        metadata=setting(Listing(Text(pattern=r"^\S+$", expects="a scope")), "Scopes it must carry."),
    )
    mode: Literal["machine", "user"] = attrs.field(
        default="machine", metadata=setting(Choice("machine", "user"), "Whose credential.")
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        OneOf(("credential", "identity")),
        Needs("scopes", ("credential",)),
        Needs("mode", ("credential",)),
    )


@attrs.frozen(kw_only=True)
class RedactConfig:
    """What records of arguments hide. See `afpool.tools.RedactionPolicy`."""

    keys: tuple[str, ...] = attrs.field(
        default=(), metadata=setting(Listing(Text(least=0)), "Exact names, or dotted paths.")
    )
    patterns: tuple[str, ...] = attrs.field(
        default=(),
        metadata=setting(
            Listing(Text(expects="a regular expression", check=pattern_problem)),
            "Regular expressions for names, matched in linear time.",
        ),
    )
    fields: Mapping[str, tuple[str, ...]] = attrs.field(
        default=_NONE,
        metadata=setting(
            Named(Listing(Text(expects="a dotted path", least=0, check=paths_problem))),
            "Key to dotted paths inside its value.",
        ),
    )
    deep: bool = attrs.field(default=False, metadata=setting(Boolean(), "Look at every depth."))

    def wrong(self) -> Iterator[tuple[str, str]]:
        """Give what cannot be: a setting and why."""
        if not patterns_fit(self.patterns):
            yield "patterns", "all together they are too large to be matched in linear time"


@attrs.frozen(kw_only=True)
class CeilingConfig:
    """The most that a tool's result may be.

    Attributes:
        max_chars: Characters that a model would be given.
        narrow_by: Arguments that make the result smaller.
    """

    max_chars: int = attrs.field(metadata=setting(count(), "Characters that a model would be given."))
    narrow_by: tuple[str, ...] = attrs.field(
        default=(),
        metadata=setting(
            Listing(Text(pattern=r"\S", expects="an argument's name")), "Arguments that make it smaller."
        ),
    )

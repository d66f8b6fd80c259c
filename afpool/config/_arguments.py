"""Arguments of a command: shown, save what may be a secret.

None belongs there, since every user of the machine can read them. But files of the ecosystem are taken as
they are, and many of them say `--api-key …`; showing a configuration must not be what spreads it.
"""

from __future__ import annotations

import re
from typing import Any, Final, final

from ._kinds import HIDDEN
from ._kinds_of_many import Listing, Phrase
from ._templates import argument_judge

_TELLING: Final = re.compile(
    r"(?i)token|secret|passw|passphrase|passwd|api.?key|access.?key|private.?key|auth|credential|cookie|bearer|header"
)
_NAMED: Final = re.compile(r"(-{0,2}[A-Za-z0-9_.-]+[=:])(.+)", re.DOTALL)
_PLACEHOLDERS: Final = re.compile(r"(?:\$\{[^}]*\})+")
_USER: Final = re.compile(r"(?<=://)[^/@\s]+(?=@)")


@final
class Arguments(Listing):
    """A list of arguments."""

    def __init__(self) -> None:
        super().__init__(Phrase(argument_judge))

    def shown(self, value: Any, raw: Any) -> Any:
        """See `Kind.shown`."""
        found = super().shown(value, raw)
        if found is None:
            return None
        return [_shown(text, follows) for text, follows in zip(found, ["", *found], strict=False)]


def _shown(text: str, follows: str) -> str:
    if _PLACEHOLDERS.fullmatch(text) is not None:
        return text
    if follows.startswith("-") and "=" not in follows and _TELLING.search(follows) and text[:1] != "-":
        return HIDDEN
    named = _NAMED.fullmatch(text)
    if named is not None and _TELLING.search(named[1]) and _PLACEHOLDERS.fullmatch(named[2]) is None:
        return named[1] + HIDDEN
    if named is None and re.match(r"(?i)(?:bearer|basic) ", text):
        return HIDDEN
    return _USER.sub(HIDDEN, text)

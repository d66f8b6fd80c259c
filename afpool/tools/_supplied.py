"""What a call brings for arguments that the host fills, however it spells them.

A key names a filled argument when it is its name, or is equal to it once compatibility forms, case, hyphens
and underscores are taken off: a server may mind none of these. A spelling that the shown schema declares is
another argument. The value is of no interest, `null` is one as well.

Names come from a model. Normalizing one takes time that grows with the square of the accents in it, so one is
normalized only where it is short enough to become the name of a filled argument.
"""

from __future__ import annotations

import re
import unicodedata
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

import attrs

from ._derive import fact
from ._filled_arguments import HOST_FILLED_PLACEHOLDER
from ._fills import HostFilledArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._base.model import JsonObject, Tool
    from ._fills import HostFill

FILLS: Final = "host-fills"
"""The key of the fact that holds what `host_filled` fills on a tool."""

Fills: TypeAlias = "Mapping[str, HostFill]"

# A normal form is at most four times shorter (one character of it decomposes into at most four), and there
# are two of them on the way.
_SHRINKS: Final = 16
_JOINERS: Final = re.compile("[-_]")
_JOINERS_OF_ANY_FORM: Final = re.compile("[-_\uff0d\ufe63\uff3f\ufe33\ufe34\ufe4d\ufe4e\ufe4f]")


@final
@attrs.frozen
class HostFilledArguments:
    """What the host fills on a tool: names, never values.

    Attributes:
        identity: Argument to the identity field that it is filled from.
        credential: The arguments that are filled from the call's credential.
    """

    identity: Mapping[str, str]
    credential: tuple[str, ...]


def refuse_supplied(tool: Tool, args: JsonObject, call_id: str | None = None) -> None:
    """Refuse arguments that bring a value for one that the host fills, before anything is fetched.

    Raises:
        HostFilledArgumentError: They do.
    """
    filled = fact(tool, FILLS)
    if isinstance(filled, Filled) and filled.supplied(args):
        try:
            filled.refuse(tool.name, args)
        except HostFilledArgumentError as error:
            error.call_id = call_id
            raise


def is_filled(tool: Tool) -> bool:
    """Say whether the host fills an argument of a tool."""
    return fact(tool, FILLS) is not None


@final
class Filled:
    """What is filled on a tool, through any number of decorations.

    Attributes:
        fills: By argument name.
    """

    __slots__ = ("_folded", "_longest", "_shown", "fills")

    def __init__(self, fills: Fills, shown: frozenset[str]) -> None:
        self.fills = MappingProxyType(dict(fills))
        self._shown = shown
        self._folded = {fold(name): name for name in fills}
        self._longest = max(map(len, self._folded), default=0)

    def supplied(self, args: Mapping[Any, Any]) -> dict[Any, str]:
        """Give the keys of `args` that name a filled argument, each with the argument."""
        if args.keys() <= self._shown:
            return {}
        found: dict[Any, str] = {}
        for key in args:
            if key in self._shown or not isinstance(key, str):
                continue
            name = key if key in self.fills else self._folded.get(fold(key, self._longest))
            if name is not None:
                found[key] = name
        return found

    def refuse(self, tool_name: str, args: Mapping[Any, Any]) -> None:
        """Refuse arguments that name a filled one.

        Raises:
            HostFilledArgumentError: They do.
        """
        supplied = self.supplied(args)
        if supplied:
            fields = [name for name in self.fills if name in supplied.values()]
            raise HostFilledArgumentError(
                tool_name, fields, spellings={name: key for key, name in supplied.items()}
            )

    def masked(self, args: JsonObject) -> JsonObject:
        """Give arguments as a record may show them: what a model sent for a filled one is not its value."""
        supplied = self.supplied(args)
        if not supplied:
            return args
        return {key: HOST_FILLED_PLACEHOLDER if key in supplied else value for key, value in args.items()}


def fold(name: str, longest: int | None = None) -> str:
    """Give a name as it reads to a server that minds neither case nor hyphens nor compatibility forms.

    Args:
        name: The name.
        longest: How long a fold is at most that is of interest. A name that cannot become one is given back
            as it is, unread.
    """
    if name.isascii():
        return _JOINERS.sub("", name.lower())
    bare = _JOINERS_OF_ANY_FORM.sub("", name)
    if longest is not None and len(bare) > longest * _SHRINKS:
        return name
    form = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", bare).casefold())
    return _JOINERS.sub("", form.lower())

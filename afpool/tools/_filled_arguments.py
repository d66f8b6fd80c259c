"""Arguments of which the host has filled some: a dictionary that does not show those."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex, final

from .._base.spellings import PLACEHOLDER

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

HOST_FILLED_PLACEHOLDER = PLACEHOLDER


@final
class FilledArguments(dict[str, Any]):
    """Arguments, with values of the host's among them.

    A tool reads, changes and encodes it as the dictionary that it is. It is shown without the host's values
    (in a traceback with locals, for one), and copies of it are so, too; it cannot be pickled. `dict(args)`
    is a plain one.
    """

    __slots__ = ("_hidden",)

    def __init__(self, args: Mapping[str, Any], hidden: Container[str]) -> None:
        dict.__init__(self, args)
        self._hidden = hidden

    def __repr__(self) -> str:
        shown = {
            key: HOST_FILLED_PLACEHOLDER if key in self._hidden else value for key, value in self.items()
        }
        return repr(shown)

    def copy(self) -> FilledArguments:
        """Give another one of the same values."""
        return FilledArguments(self, self._hidden)

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> FilledArguments:
        from copy import deepcopy

        return FilledArguments({key: deepcopy(value, memo) for key, value in self.items()}, self._hidden)

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> NoReturn:
        raise TypeError("arguments that the host has filled hold secrets and are not pickled; use dict(args)")

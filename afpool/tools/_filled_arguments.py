"""The arguments of a call: that they are an object, and those of which the host has filled some."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex, final

from .._base.errors import InvalidArguments
from .._base.spellings import PLACEHOLDER

if TYPE_CHECKING:
    from collections.abc import Container

    from .._base.model import JsonObject

HOST_FILLED_PLACEHOLDER = PLACEHOLDER


def as_object(name: str, args: object, call_id: str | None) -> JsonObject:
    """Give the arguments of a tool that is executed directly: what stands around it reads them by name.

    Raises:
        InvalidArguments: They are no JSON object. Nothing ran.
    """
    if type(args) is dict or isinstance(args, Mapping):
        return args
    error = InvalidArguments(
        f"the arguments of {name} are a JSON object, not {type(args).__name__}; the tool was not run"
    )
    error.call_id = call_id
    raise error


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

"""What is hidden in a call: secrets that are in nothing that leaves it.

Rules:

* Whatever is fetched for a call, or filled in, is added as soon as it is known. From then on it is in no
  result, no report and no failure, whoever looks them through.
* A result is looked through once. What stands around a tool may do so, for whoever stands between; a door
  does it again only where that is not the very result that it is given, or a secret has been added since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from .._base.model import ToolResult
from ._scrub import Scrubber

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .._base.secret import Secret


@final
class Hiding:
    """The secrets of one call, and what takes them out.

    Args:
        secrets: What the calls around this one have fetched.

    Attributes:
        secrets: All of them.
    """

    __slots__ = ("_clean", "_raw", "_scrubber", "secrets")

    def __init__(self, secrets: tuple[Secret, ...] = ()) -> None:
        self.secrets = secrets
        self._scrubber: Scrubber | None = None
        self._clean: ToolResult | None = None
        self._raw = b""

    def add(self, secrets: Iterable[Secret]) -> None:
        """Hide these as well."""
        for one in secrets:
            if not self._holds(one):
                self.secrets = (*self.secrets, one)
                self._scrubber = self._clean = None

    def _holds(self, one: Secret) -> bool:
        return any(known is one or known.reveal() == one.reveal() for known in self.secrets)

    @property
    def scrubber(self) -> Scrubber | None:
        """What takes out all that is hidden now; `None` where nothing is."""
        if self._scrubber is None and self.secrets:
            self._scrubber = Scrubber(self.secrets)
        return self._scrubber

    async def result(self, result: Any) -> Any:
        """Give what a tool returned without the secrets; at once where that has been done.

        See `Scrubber.result`.
        """
        scrubber, left = self.scrubber, self._clean
        if scrubber is None or (left is not None and left is result and left.raw is self._raw):
            return result
        clean = await scrubber.result(result)
        if isinstance(clean, ToolResult) and scrubber is self._scrubber:
            self._clean, self._raw = clean, clean.raw
        return clean

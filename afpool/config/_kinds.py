"""The kinds of a setting's value: how one is read, and what its JSON Schema is. One place for both.

Rules:

* A value of a file is judged by its shape first (`fits`), which is what the schema says; what is wrong there
  is a structural problem. What only a program can judge (`check`) comes after.
* Wherever a kind is no text, a text with `${…}` in it may stand for it, and is read as it would be said by a
  variable of the environment: `"8765"` is a number there, `"true"` a boolean.
* `hidden` kinds are never shown, whatever they hold. `telling` kinds can hold no secret (numbers, choices,
  addresses), so that they are shown as they came out; all others are shown as they were written.
* What is read can be compared and cannot be changed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, Final

from .._base.secret import Secret
from ._expand import MARK
from ._problems import nearest

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._place import Place
    from ._written import Written

INVALID: Final[Any] = object()
"""Stands for a value that could not be read; its problem was told."""

EXPANDED: Final = {"type": "string", "pattern": r"\$\{"}
"""A text with a placeholder in it, as JSON Schema says it."""

HIDDEN: Final = "[hidden]"
"""What is shown of a secret."""


class Unfit(Exception):
    """Why a value does not fit; holds none."""

    def __init__(self, what: str, nearest: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.nearest = nearest


def named(value: object) -> str:
    """Say what kind of value stands there."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    for kinds, words in (
        ((str,), "a string"),
        ((int,), "an integer"),
        ((float,), "a number"),
        ((list,), "a list"),
        ((dict,), "a table"),
    ):
        if isinstance(value, kinds):
            return words
    return "a date or time"


class Kind:
    """One kind of value."""

    hidden: bool = False
    telling: ClassVar[bool] = False
    expects: str = "a value"

    def read(self, raw: Any, place: Place) -> Any:
        """Read a value of a file; `INVALID` where it does not fit, which was told to `place`."""
        if isinstance(raw, str) and MARK in raw:
            written = place.expand(raw)
            return INVALID if written is None else self.from_written(written, place)
        try:
            value = self.fits(raw)
        except Unfit as unfit:
            return place.refuse(unfit.what, unfit.nearest, structural=True)
        return self._checked(value, place)

    def from_written(self, written: Written, place: Place) -> Any:
        """Read what an expanded text says."""
        if written.fields:
            return place.refuse(
                f"${{identity.{written.fields[0]}}} cannot stand here: it is for headers, arguments, the "
                "environment, the folder, and path or query of the URL of a server"
            )
        return self.from_text(written.reveal(), place)

    def from_text(self, text: str, place: Place) -> Any:
        """Read a value that came as text: expanded, from a variable of the environment, or from a flag."""
        try:
            value = self.parse(text)
        except Unfit as unfit:
            return place.refuse(unfit.what, unfit.nearest)
        return self._checked(value, place)

    def _checked(self, value: Any, place: Place) -> Any:
        try:
            return self.check(value, place)
        except Unfit as unfit:
            return place.refuse(unfit.what, unfit.nearest)

    def fits(self, raw: Any) -> Any:
        """Judge the shape of a value of a file and give what it stands for.

        Raises:
            Unfit: The shape is wrong.
        """
        raise NotImplementedError

    def parse(self, text: str) -> Any:
        """Read the value from text.

        Raises:
            Unfit: It says no such value.
        """
        raise NotImplementedError

    def check(self, value: Any, place: Place) -> Any:  # noqa: ARG002 -- for kinds that look at the place
        """Judge what the shape does not say, and give the value as it is kept.

        Raises:
            Unfit: It cannot be.
        """
        return value

    def schema(self) -> dict[str, Any]:
        """Give the JSON Schema of the shape."""
        raise NotImplementedError

    def shown(self, value: Any, raw: Any) -> Any:
        """Give what may be shown of a value; `raw` is what stands in the file, or `None`."""
        if self.hidden:
            return HIDDEN if value is not None else None
        return raw if isinstance(raw, str) and MARK in raw and not self.telling else value


def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern that JSON Schema reads as well, where a dollar sign is the very end of the text."""
    return re.compile(re.sub(r"(?<!\\)\$(?=\||\Z)", r"\\Z", pattern))


class Text(Kind):
    """A string.

    Args:
        pattern: What it looks like; anchored by itself where it has to be.
        expects: In words.
        least: Characters at least.
        check: Judges what the shape does not say: gives what is wrong, or `None`.
        hidden: It is a secret, and is kept in a `Secret`.
    """

    def __init__(
        self,
        *,
        pattern: str | None = None,
        expects: str = "a string",
        least: int = 1,
        check: Callable[[str], str | None] | None = None,
        hidden: bool = False,
    ) -> None:
        self._pattern = pattern
        self._look = None if pattern is None else compiled(pattern)
        self._least = least
        self._check = check
        self.expects = expects
        self.hidden = hidden

    def fits(self, raw: Any) -> str:
        """See `Kind.fits`."""
        if not isinstance(raw, str):
            raise Unfit(f"expected {self.expects}, not {named(raw)}")
        return self.parse(raw)

    def parse(self, text: str) -> str:
        """See `Kind.parse`."""
        if len(text) < self._least:
            raise Unfit(f"expected {self.expects}, and it is empty")
        if self._look is not None and not self._look.search(text):
            raise Unfit(f"expected {self.expects}")
        return text

    def check(self, value: str, place: Place) -> Any:
        """See `Kind.check`."""
        if "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
            raise Unfit("it holds a character that is no text")
        problem = None if self._check is None else self._check(value)
        if problem is not None:
            raise Unfit(problem)
        return Secret(value) if self.hidden else self.kept(value, place)

    def kept(self, value: str, place: Place) -> str:  # noqa: ARG002 -- paths look at the place
        """Give the value as it is kept."""
        return value

    def schema(self) -> dict[str, Any]:
        """See `Kind.schema`."""
        schema: dict[str, Any] = {"type": "string"}
        if self._least:
            schema["minLength"] = self._least
        if self._pattern is not None:
            schema["pattern"] = rf"{self._pattern}|\$\{{"
        return schema


class Choice(Kind):
    """One of a few words.

    Args:
        words: Those that may stand there.
        literal: It decides what else is read, so that no variable can stand for it.
    """

    telling = True

    def __init__(self, *words: str, literal: bool = False) -> None:
        self.words = words
        self._literal = literal
        self.expects = "one of " + ", ".join(words)

    def read(self, raw: Any, place: Place) -> Any:
        """See `Kind.read`."""
        if self._literal and isinstance(raw, str) and MARK in raw:
            return place.refuse(f"expected {self.expects}; no variable can stand for it", structural=True)
        return super().read(raw, place)

    def fits(self, raw: Any) -> str:
        """See `Kind.fits`."""
        if not isinstance(raw, str):
            raise Unfit(f"expected {self.expects}, not {named(raw)}")
        return self.parse(raw)

    def parse(self, text: str) -> str:
        """See `Kind.parse`."""
        if text not in self.words:
            raise Unfit(f"expected {self.expects}", nearest(text, self.words))
        return text

    def schema(self) -> dict[str, Any]:
        """See `Kind.schema`."""
        words = {"enum": list(self.words)}
        return words if self._literal else {"anyOf": [words, EXPANDED]}


class Boolean(Kind):
    """True or false."""

    telling = True
    expects = "true or false"

    def fits(self, raw: Any) -> bool:
        """See `Kind.fits`."""
        if not isinstance(raw, bool):
            raise Unfit(f"expected true or false, not {named(raw)}")
        return raw

    def parse(self, text: str) -> bool:
        """See `Kind.parse`."""
        folded = text.strip().casefold()
        if folded in {"true", "1", "yes", "on"}:
            return True
        if folded in {"false", "0", "no", "off"}:
            return False
        raise Unfit("expected true or false")

    def schema(self) -> dict[str, Any]:
        """See `Kind.schema`."""
        return {"anyOf": [{"type": "boolean"}, EXPANDED]}

"""Kinds that hold several values, and texts that may differ from identity to identity."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import attrs

from .._base.secret import Secret
from ._checks import trusted_url_problem
from ._kinds import HIDDEN, INVALID, Kind, Text, Unfit, compiled, named
from ._problems import shown_name
from ._tables import note
from ._templates import argument_judge, url_judge
from ._written import Written

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._place import Place

MOST: Final = 10_000
"""Members of one list or table of free names."""


class Listing(Kind):
    """A list of values of one kind, kept as a tuple.

    Args:
        of: The kind.
        least: So many at least.
        single: A bare value stands for a list of one.
    """

    def __init__(self, of: Kind, *, least: int = 0, single: bool = False) -> None:
        self.of = of
        self._least = least
        self._single = single
        self.hidden = of.hidden
        self.expects = f"a list ({of.expects} each)" + (", which cannot be empty" if least else "")

    def read(self, raw: Any, place: Place) -> Any:
        """See `Kind.read`."""
        if self._single and isinstance(raw, str):
            raw = [raw]
        if not isinstance(raw, list):
            return place.refuse(f"expected {self.expects}, not {named(raw)}", structural=True)
        if not self._least <= len(raw) <= MOST:
            return place.refuse(f"expected {self.expects}; it has {len(raw)} members", structural=True)
        read = [self.of.read(each, place.child(index)) for index, each in enumerate(raw)]
        return INVALID if any(each is INVALID for each in read) else tuple(read)

    def from_text(self, text: str, place: Place) -> Any:
        """See `Kind.from_text`: the members, parted by commas."""
        parts = [part.strip() for part in text.split(",") if part.strip()]
        if not self._least <= len(parts) <= MOST:
            return place.refuse(f"expected {self.expects}, parted by commas")
        read = [self.of.from_text(part, place) for part in parts]
        return INVALID if any(each is INVALID for each in read) else tuple(read)

    def schema(self) -> dict[str, Any]:
        """See `Kind.schema`."""
        many: dict[str, Any] = {"type": "array", "items": self.of.schema(), "maxItems": MOST}
        if self._least:
            many["minItems"] = self._least
        return {"anyOf": [many, self.of.schema()]} if self._single else many

    def shown(self, value: Any, raw: Any) -> Any:
        """See `Kind.shown`."""
        if value is None:
            return None
        each = raw if isinstance(raw, list) and len(raw) == len(value) else [raw] * len(value)
        return [self.of.shown(one, said) for one, said in zip(value, each, strict=True)]


class Named(Kind):
    """A table of free names, kept as a mapping that cannot be changed.

    Args:
        of: The kind of each value.
        name: What a name looks like.
        names: The same in words.
        least: So many at least.
        each: Told of every value, where each has an origin of its own.
    """

    def __init__(
        self, of: Kind, *, name: str = r"^[^\x00-\x1f]{1,256}$", names: str = "a name", least: int = 0
    ) -> None:
        self.of = of
        self._name = name
        self._look = compiled(name)
        self._names = names
        self._least = least
        self.hidden = of.hidden
        self.expects = f"a table ({of.expects} each)"

    def read(self, raw: Any, place: Place) -> Any:
        """See `Kind.read`."""
        if not isinstance(raw, dict):
            return place.refuse(f"expected {self.expects}, not {named(raw)}", structural=True)
        if not self._least <= len(raw) <= MOST:
            return place.refuse(f"expected {self.expects}; it has {len(raw)} members", structural=True)
        read: dict[str, Any] = {}
        for name, each in raw.items():
            child = place.child(name)
            if self._look.search(name) is None:
                child.refuse(f"{shown_name(name)!r} is not {self._names}", structural=True)
                read[name] = INVALID
                continue
            value = read[name] = self.of.read(each, child)
            if value is not INVALID and not hasattr(self.of, "table"):
                note(self.of, value, each, child)
        return INVALID if any(each is INVALID for each in read.values()) else MappingProxyType(read)

    def parse(self, text: str) -> Any:  # noqa: ARG002 -- as the port says
        """See `Kind.parse`."""
        raise Unfit(f"expected {self.expects}, which one text cannot say")

    def schema(self) -> dict[str, Any]:
        """See `Kind.schema`."""
        table: dict[str, Any] = {
            "type": "object",
            "propertyNames": {"pattern": self._name},
            "additionalProperties": self.of.schema(),
            "maxProperties": MOST,
        }
        if self._least:
            table["minProperties"] = self._least
        return table

    def shown(self, value: Any, raw: Any) -> Any:
        """See `Kind.shown`."""
        if value is None:
            return None
        said = raw if isinstance(raw, dict) else {}
        return {name: self.of.shown(each, said.get(name)) for name, each in value.items()}


class FilePath(Text):
    """The path of a file or folder. `~` is the home folder; relative to the folder of the file it stands in.

    Args:
        there: Whether it has to be there now: `file`, `folder`, or no such demand.
    """

    telling = True

    def __init__(self, *, there: str | None = None, expects: str = "a path") -> None:
        super().__init__(expects=expects)
        self._there = there

    def kept(self, value: str, place: Place) -> str:
        """See `Text.kept`."""
        path = Path(value)
        if value == "~" or value.startswith("~/"):
            home = place.reading.env.get("HOME")
            if not home:
                raise Unfit("it begins with ~, and the variable HOME is not set")
            path = Path(home + value[1:])
        path = place.source.folder / path
        try:
            if self._there == "file" and not path.is_file():
                raise Unfit("there is no such file")
            if self._there == "folder" and not path.is_dir():
                raise Unfit("there is no such folder")
        except OSError as error:  # a name that is too long, a folder that cannot be entered
            raise Unfit(f"it cannot be looked at: {error.strerror}") from None
        return str(path)


class AddressOrFile(FilePath):
    """An address that is trusted (https, or http on loopback), or the path of a file."""

    def __init__(self) -> None:
        super().__init__(expects="an https address, or the path of a file")

    def kept(self, value: str, place: Place) -> str:
        """See `Text.kept`."""
        if "://" not in value:
            return super().kept(value, place)
        problem = trusted_url_problem(value)
        if problem is not None:
            raise Unfit(f"the address {problem}")
        return value


class Phrase(Kind):
    """A text that may differ from identity to identity, kept as `Written`.

    Args:
        judge: Told the text: says what is wrong with it, or with where fields stand in it.
        expects: In words.
        hidden: It is never shown.
        least: Characters at least.
    """

    def __init__(
        self,
        judge: Callable[[Written], str | None],
        *,
        expects: str = "a string",
        hidden: bool = False,
        pattern: str | None = None,
        least: int = 0,
    ) -> None:
        self._judge = judge
        self.expects = expects
        self.hidden = hidden
        self._text = Text(pattern=pattern, expects=expects, least=least)

    def from_written(self, written: Written, place: Place) -> Any:
        """See `Kind.from_written`."""
        return self._checked(written, place)

    def fits(self, raw: Any) -> Written:
        """See `Kind.fits`."""
        return Written.plain(self._text.fits(raw))

    def parse(self, text: str) -> Written:
        """See `Kind.parse`."""
        return Written.plain(text)

    def check(self, value: Written, place: Place) -> Written:  # noqa: ARG002 -- as the port says
        """See `Kind.check`."""
        for piece in value.pieces:
            text = piece.reveal() if isinstance(piece, Secret) else ""
            if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
                raise Unfit("it holds a character that is no text")
        problem = self._judge(value)
        if problem is not None:
            raise Unfit(problem)
        return value

    def schema(self) -> dict[str, Any]:
        """See `Kind.schema`."""
        return self._text.schema()

    def shown(self, value: Any, raw: Any) -> Any:  # noqa: ARG002 -- it is always shown as written
        """See `Kind.shown`."""
        if value is None:
            return None
        return HIDDEN if self.hidden else value.written.reveal()


class UrlPhrase(Phrase):
    """The URL of a server; what stands behind a question mark is never shown."""

    def __init__(self) -> None:
        super().__init__(url_judge, pattern=r"^(?:https?|wss?)://", expects="a URL (http, https, ws, wss)")

    def shown(self, value: Any, raw: Any) -> Any:  # noqa: ARG002 -- it is always shown as written
        """See `Kind.shown`."""
        if value is None:
            return None
        url, mark, _ = value.written.reveal().partition("?")
        return f"{url}?{HIDDEN}" if mark else url


class FolderPhrase(Phrase):
    """The path of a folder, in which a field of the identity may be the name of one."""

    def __init__(self) -> None:
        super().__init__(argument_judge, expects="the path of a folder", least=1)
        self._path = FilePath(there="folder", expects="the path of a folder")

    def check(self, value: Written, place: Place) -> Written:
        """See `Kind.check`."""
        value = super().check(value, place)
        if not value.fields:
            path = self._path.check(self._path.parse(value.reveal()), place)
            return attrs.evolve(value, pieces=(Secret(path),))
        first = value.pieces[0]
        if not isinstance(first, Secret) or not first.reveal().startswith("/"):
            raise Unfit("where a field of an identity stands in it, it has to begin with / and a folder")
        return value

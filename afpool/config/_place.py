"""Where a value stands while it is read: file, key, line; what may be read for it; where its problems go."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import attrs

from ._expand import BadText, expand
from ._kinds import INVALID
from ._problems import Problem, dotted

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ._written import Written

MOST_PROBLEMS: Final = 1000
"""Problems that are collected; a file with more is not read any further with care."""


@attrs.frozen
class Origin:
    """Where the value of a setting came from.

    Attributes:
        kind: `flag`, `environment`, `file` or `default`.
        file: The file, where it was one.
        line: The line of the key there.
        variables: The variable that gave it, or those that were read for `${…}` in it.
    """

    kind: str
    file: str | None = None
    line: int | None = None
    variables: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.kind == "file":
            where = f"{self.file}:{self.line}" if self.line is not None else f"{self.file}"
            return f"{where} ({', '.join(self.variables)})" if self.variables else where
        return f"{self.kind} {', '.join(self.variables)}" if self.variables else self.kind


DEFAULT: Final = Origin("default")


@attrs.frozen(eq=False)
class Source:
    """One file that is read, or what is said beside files.

    Attributes:
        name: As it was named, for messages.
        folder: Relative paths in it start here.
        workspace: What `${workspaceFolder}` means in it.
        lines: Path of a key to its line.
        foreign: It is a file of another client's, so that unknown keys are told and passed over.
    """

    name: str
    folder: Path
    workspace: Path
    lines: Mapping[tuple[str | int, ...], int] = attrs.field(factory=dict, repr=False)
    foreign: bool = False


@attrs.define(eq=False)
class Reading:
    """What one reading collects, whatever files it goes through."""

    env: Mapping[str, str] = attrs.field(repr=False)
    problems: list[Problem] = attrs.field(factory=list)
    warnings: list[Problem] = attrs.field(factory=list)
    origins: dict[str, Origin] = attrs.field(factory=dict)
    shown: dict[str, Any] = attrs.field(factory=dict)
    files: list[Path] = attrs.field(factory=list)
    warned: set[tuple[object, ...]] = attrs.field(factory=set)

    def refuse_at(self, key: str, what: str, near: str | None = None) -> None:
        """Note a problem of a setting by its key, where that was read."""
        origin = self.origins.get(key, DEFAULT)
        self.problems.append(Problem(origin.file or origin.kind, origin.line, key, what, near))


@attrs.frozen(eq=False)
class Place:
    """A key in a source.

    Attributes:
        reading: What collects problems and origins.
        source: Where it stands.
        path: The way to it there.
        key: The setting's own dotted path, which is another one in files of other clients.
    """

    reading: Reading
    source: Source
    path: tuple[str | int, ...]
    key: str

    def child(self, name: str | int, *, key: str | None = None) -> Place:
        """Go to a member."""
        if key is None:
            step = dotted((name,))
            key = f"{self.key}{step}" if isinstance(name, int) or not self.key else f"{self.key}.{step}"
        return Place(self.reading, self.source, (*self.path, name), key)

    @property
    def line(self) -> int | None:
        """The line of the key, or of the nearest table around it that has one."""
        lines, path = self.source.lines, self.path
        for end in range(len(path), 0, -1):
            line = lines.get(path[:end])
            if line is not None:
                return line
        return None

    def origin(self, variables: tuple[str, ...] = ()) -> Origin:
        """Say where a value that stands here came from."""
        return Origin("file", self.source.name, self.line, variables)

    def _problem(self, what: str, near: str | None, structural: bool) -> Problem:
        return Problem(
            self.source.name, self.line, dotted(self.path) or self.key, what, near, structural=structural
        )

    def refuse(self, what: str, near: str | None = None, *, structural: bool = False) -> Any:
        """Note a problem; gives `INVALID`."""
        if len(self.reading.problems) < MOST_PROBLEMS:
            self.reading.problems.append(self._problem(what, near, structural))
        return INVALID

    def warn(self, what: str, near: str | None = None) -> None:
        """Note something that is passed over: the first time that a file has a key of this name."""
        said = (self.source.name, self.path[-1] if self.path else "", what)
        if said not in self.reading.warned and len(self.reading.warnings) < MOST_PROBLEMS:
            self.reading.warned.add(said)
            self.reading.warnings.append(self._problem(what, near, structural=False))

    def expand(self, text: str) -> Written | None:
        """Expand a text; `None` where it cannot be, which was noted."""
        try:
            return expand(text, self.reading.env, self._special)
        except BadText as bad:
            self.refuse(bad.what, bad.nearest)
            return None

    def _special(self, name: str) -> tuple[str, str] | None:
        """Give what VS Code calls by names of its own."""
        if not self.source.foreign:
            return None
        if name == "workspaceFolder":
            return str(self.source.workspace), ""
        if name == "workspaceFolderBasename":
            return self.source.workspace.name, ""
        if name == "userHome":
            return self.reading.env.get("HOME", ""), "HOME"
        if name == "pathSeparator":
            return "/", ""
        kind, _, rest = name.partition(":")
        if kind == "input" and rest:
            return self._input(rest)
        if kind in {"command", "config"}:
            raise BadText(
                f"${{{kind}:…}} is asked of an editor, and there is none here; give the value itself"
            )
        return None

    def _input(self, name: str) -> tuple[str, str]:
        variable = input_variable(name)
        value = self.reading.env.get(variable)
        if value is None:
            raise BadText(f"an editor would ask for this input, and there is none here; set {variable}")
        return value, variable


def input_variable(name: str) -> str:
    """The variable that stands for an input of a VS Code file."""
    return "AFPOOL_INPUT_" + re.sub(r"[^A-Z0-9]+", "_", name.upper())

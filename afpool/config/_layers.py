"""What is said beside the file: flags first, then variables of the environment.

A variable is `AFPOOL_` and the key, in capitals, with `_` for the dots: `AFPOOL_SERVE_LIMITS_BODY`. Only
`serve`, `runtime`, `artifacts`, `console` and `record` are said so; servers and credentials have names that
are anybody's.

A variable with such a beginning that means nothing is told and passed over, not refused: a cluster sets
`AFPOOL_SERVE_PORT` and its like by itself for a service that is called so.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from ._kinds import INVALID, Kind
from ._kinds_of_many import Named
from ._place import Origin, Place, Reading, Source
from ._problems import Problem, nearest, shown_name
from ._tables import Record, fields_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PREFIX: Final = "AFPOOL_"


@attrs.frozen(eq=False)
class Said:
    """One value that stands beside the file."""

    value: Any
    origin: Origin
    reading: Reading

    def read(self, kind: Kind, place: Place) -> Any:
        """Read it as a kind."""
        source = Source(self.origin.kind, Path.cwd(), Path.cwd())
        key = self.origin.variables[0] if self.origin.kind == "environment" else place.key
        at = Place(self.reading, source, (), key)
        text = isinstance(self.value, str) and not isinstance(kind, Record | Named)
        value = kind.from_text(self.value, at) if text else kind.read(self.value, at)
        if value is not INVALID:
            self.reading.origins[place.key] = self.origin
            self.reading.shown[place.key] = kind.shown(value, None)
        return value


def leaves(tables: Mapping[str, type]) -> Iterator[tuple[str, Kind]]:
    """Give the key and kind of every setting that has a fixed key."""
    for name, table in tables.items():
        yield from _leaves_of(table, name)


def _leaves_of(table: type, prefix: str) -> Iterator[tuple[str, Kind]]:
    for field in fields_of(table):
        key = f"{prefix}.{field.name}"
        if isinstance(field.kind, Record):
            yield from _leaves_of(field.kind.table, key)
        else:
            yield key, field.kind


def variable_of(key: str) -> str:
    """The variable that says a setting."""
    return PREFIX + key.upper().replace(".", "_")


class Layers:
    """What flags and variables say; each is taken once.

    Args:
        reading: Where problems go.
        overrides: Key to value, of flags.
        tables: The tables whose settings a variable may say.
    """

    def __init__(self, reading: Reading, overrides: Mapping[str, Any], tables: Mapping[str, type]) -> None:
        self._reading = reading
        self._known = [key for key, _ in leaves(tables)]
        self._said: dict[str, Said] = {}
        variables = {variable_of(key): key for key, kind in leaves(tables) if not _is_table(kind)}
        for variable, key in variables.items():
            if variable in reading.env:
                self._said[key] = Said(
                    reading.env[variable], Origin("environment", variables=(variable,)), reading
                )
        for key, value in overrides.items():
            self._said[key] = Said(value, Origin("flag"), reading)
        beginnings = tuple(f"{PREFIX}{name.upper()}_" for name in tables)
        for name in reading.env:
            if name.startswith(beginnings) and name not in variables:
                reading.warnings.append(
                    Problem(
                        "environment", None, shown_name(name), "no setting is said so; it is passed over",
                        nearest(name, variables),
                    )
                )  # fmt: skip

    def take(self, key: str) -> Said | None:
        """Give what is said of a setting."""
        return self._said.pop(key, None)

    def beneath(self, key: str) -> bool:
        """Whether something is said of a setting inside a table."""
        return any(said.startswith(f"{key}.") for said in self._said)

    def left(self) -> None:
        """Tell of flags that no setting has taken."""
        for key, said in self._said.items():
            if said.origin.kind == "flag":
                self._reading.problems.append(
                    Problem(
                        "flag", None, shown_name(key), "there is no such setting", nearest(key, self._known)
                    )
                )


def _is_table(kind: Kind) -> bool:
    return isinstance(kind, Named) or hasattr(getattr(kind, "of", None), "table")

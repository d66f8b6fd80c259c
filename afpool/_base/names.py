"""What a tool is called where tools of several servers stand side by side.

Rules:

* A name means one tool, and every tool has one name. Which tool it is says a map; nothing is ever guessed by
  taking a name apart.
* A server's tool is called `server__tool` where its plain name would collide with another one, or would read
  as if it were qualified already (`files__read`, listed by whomever): so no server can list a name that looks
  like another server's, nor push a tool of another one out of its name.
* A tool of the host's own keeps its name. A server's gives way.
* What model providers do not take as a name (other characters, more than 64 of them) is written in the
  characters they take, and ends in a digest of server and name: the same in every process and beside every
  neighbour.
"""

from __future__ import annotations

import hashlib
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MAX_NAME: Final = 64
SEPARATOR: Final = "__"
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_OTHER = re.compile(r"[^a-zA-Z0-9_-]")
_DIGESTS: Final = (8, 16, 32)  # hexadecimal digits; more where fewer still collide

Place: TypeAlias = tuple[str | None, str]
"""Server, or `None` for the host itself; name as listed there."""


@attrs.frozen(eq=False)
class ToolNames:
    """Which tool every name means.

    Attributes:
        places: Shown name to server (`None` for the host's own) and listed name, in listed order.
        renamed: The same for those only whose shown name is not the listed one.
    """

    places: Mapping[str, Place] = attrs.field(repr=False)
    renamed: Mapping[str, Place]


def is_valid_tool_name(name: object) -> bool:
    """Say whether all model providers take this as a tool's name: `^[a-zA-Z0-9_-]{1,64}$`."""
    return isinstance(name, str) and _NAME.match(name) is not None


def assert_valid_tool_name(name: object) -> None:
    """Refuse a name that a model provider would refuse.

    Raises:
        ValueError: No string, empty, longer than 64, or other characters; says which, and what to do.
    """
    if is_valid_tool_name(name):
        return
    if not isinstance(name, str):
        # the value is what is wrong; and one kind of error is enough for a name
        raise ValueError(f"a tool's name is a string, not {type(name).__name__}")  # noqa: TRY004
    why = "is empty"
    if len(name) > MAX_NAME:
        why = f"has {len(name)} characters, and at most {MAX_NAME} are taken"
    elif name:
        found = sorted(set(_OTHER.findall(name)))
        why = f"holds {', '.join(map(repr, found[:8]))}; letters, digits, '_' and '-' are taken"
    raise ValueError(
        f"the tool name {name[:MAX_NAME]!r} {why}. Model providers refuse a whole request for one such name, "
        "and every tool with it. Put '_' in the place of other characters"
    )


def name_tools(
    listed: Iterable[tuple[str | None, Iterable[str]]],
    *,
    servers: Iterable[str] = (),
    always: bool = False,
    portable: bool = True,
) -> ToolNames:
    """Give every listed tool a name of its own.

    Args:
        listed: Server (`None` for the host itself) and the names that it lists, each once.
        servers: Further servers whose qualified names nobody else may seem to have: those that could not be
            listed.
        always: Qualify every server's tool, whether its name collides or not.
        portable: Write names in the characters that model providers take.

    The same names whatever the order of `listed`. Pure.
    """
    offers = [(server, tuple(names)) for server, names in listed]
    counts: dict[str, int] = {}
    for _, names in offers:
        for name in names:
            counts[name] = counts.get(name, 0) + 1
    prefixes = tuple(
        {f"{server}{SEPARATOR}" for server in (*servers, *(one for one, _ in offers)) if server is not None}
    )
    ordered: dict[str, Place] = {}
    clashing: dict[str, list[Place]] = {}
    for server, names in offers:
        for name in names:
            shown = name
            if server is not None and (always or counts[name] > 1 or name.startswith(prefixes)):
                shown = f"{server}{SEPARATOR}{name}"
            if portable and not is_valid_tool_name(shown):
                shown = _with_digest(shown, (server, name), _DIGESTS[0])
            other = ordered.setdefault(shown, place := (server, name))
            if other is not place:
                clashing.setdefault(shown, [other]).append(place)
    if clashing:
        ordered = _told_apart(offers, ordered, clashing)
    renamed = {shown: place for shown, place in ordered.items() if shown != place[1]}
    return ToolNames(MappingProxyType(ordered), MappingProxyType(renamed))


def _told_apart(
    offers: list[tuple[str | None, tuple[str, ...]]],
    wanted: dict[str, Place],
    clashing: dict[str, list[Place]],
) -> dict[str, Place]:
    """Give what is left a name of its own, where several tools want the same one."""
    places = {shown: place for shown, place in wanted.items() if shown not in clashing}
    for shown, those in sorted(clashing.items()):
        _tell_apart(places, shown, sorted(those, key=lambda place: (place[0] is not None, place)))
    shown_at = {place: shown for shown, place in places.items()}
    return {shown_at[server, name]: (server, name) for server, names in offers for name in names}


def _tell_apart(places: dict[str, Place], shown: str, those: list[Place]) -> None:
    """Name those that would all be called `shown`; the host's own keeps it."""
    for place in those:
        if place[0] is None and shown not in places:
            places[shown] = place
            continue
        name = next(
            (
                candidate
                for digits in _DIGESTS
                if (candidate := _with_digest(shown, place, digits)) not in places
            ),
            None,
        )
        assert name is not None, "a digest of 128 bits does not collide"
        places[name] = place


def _with_digest(shown: str, place: Place, digits: int) -> str:
    server, name = place
    whole = f"{'' if server is None else server}\0{name}".encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(whole).hexdigest()[:digits]
    return f"{_OTHER.sub('_', shown)[: MAX_NAME - 1 - digits]}_{digest}"

"""The servers of `servers.toml`, each with the transports that it is tried on."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

ROOT: Final = Path(__file__).resolve().parents[2]
CACHE: Final = ROOT / ".cache"
HERE: Final = Path(__file__).resolve().parent
PEER_SERVERS: Final = ROOT / "tests" / "peers" / "servers"
CATALOGUE: Final = HERE / "servers.toml"

# As the page names the transports, in its order.
TRANSPORTS: Final = {"stdio": "stdio", "http": "HTTP", "sse": "HTTP+SSE", "ws": "WebSocket"}


@attrs.frozen(kw_only=True)
class Entry:
    """One server; the fields are those of `servers.toml`."""

    name: str
    package: str
    installed: str
    over: Mapping[str, list[str]]
    tool: str | None = None
    arguments: Mapping[str, Any] = attrs.field(factory=dict)
    answer: str = ""
    env: Mapping[str, str] = attrs.field(factory=dict)
    setup: list[str] = attrs.field(factory=list)
    quick: list[str] = attrs.field(factory=list)
    node: int = 0
    fragile: bool = False

    def __attrs_post_init__(self) -> None:
        unknown = {*self.over, *self.quick} - TRANSPORTS.keys()
        if unknown or not set(self.quick) <= set(self.over):
            raise ValueError(f"{self.name}: there are {', '.join(TRANSPORTS)}; `quick` names some of `over`")
        if (self.tool is None) != (self.answer == ""):
            raise ValueError(f"{self.name}: a tool has an answer that is known, and nothing else has one")

    def version(self, cache: Path = CACHE) -> str | None:
        """The version of the package that is installed; `None` where there is none."""
        place = cache / self.installed
        manifest = place / "node_modules" / self.package / "package.json"
        if manifest.exists():
            return str(json.loads(manifest.read_text(encoding="utf-8"))["version"])
        name = re.sub(r"[-_.]+", "_", self.package)
        found = sorted(place.glob(f"lib/python3.*/site-packages/{name}-*.dist-info"))
        return found[0].name.removesuffix(".dist-info").rpartition("-")[2] if found else None


@attrs.frozen
class Row:
    """One server on one transport: one row of the page."""

    entry: Entry
    transport: str

    @property
    def key(self) -> tuple[str, str]:
        """What the page calls it."""
        return self.entry.name, TRANSPORTS[self.transport]

    @property
    def quick(self) -> bool:
        """Whether it belongs to the short run."""
        return self.transport in self.entry.quick


def filled(value: Any, places: Mapping[str, str]) -> Any:
    """Put what the placeholders stand for into every string of a value."""
    if isinstance(value, str):
        return re.sub(r"\{(\w+)\}", lambda found: places[found[1]], value)
    if isinstance(value, Mapping):
        return {name: filled(each, places) for name, each in value.items()}
    if isinstance(value, list):
        return [filled(each, places) for each in value]
    return value


def places(folder: Path, port: int, cache: Path = CACHE) -> dict[str, str]:
    """What each placeholder stands for."""
    return {
        "cache": str(cache),
        "peers": str(PEER_SERVERS),
        "here": str(HERE / "servers"),
        "preload": str(PEER_SERVERS / "loopback_only.cjs"),
        "folder": str(folder),
        "port": str(port),
    }


def read(path: Path = CATALOGUE) -> list[Row]:
    """Read the catalogue, in its order.

    Raises:
        ValueError: Two rows of one name, or an entry that cannot be.
        TypeError: An entry that lacks a field, or has one that there is not.
    """
    with path.open("rb") as source:
        entries = [Entry(**each) for each in tomllib.load(source)["server"]]
    rows = [Row(entry, transport) for entry in entries for transport in TRANSPORTS if transport in entry.over]
    if len({row.key for row in rows}) < len(rows):
        raise ValueError(f"{path.name} names a server twice")
    return rows

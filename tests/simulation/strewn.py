"""Independent faults, strewn over a story: any kind, anywhere, with members by chance.

Members are drawn by their types, so that a new kind of fault is strewn as soon as it exists.
"""

from __future__ import annotations

import functools
import typing
from typing import TYPE_CHECKING, Any, Final

import attrs

from tests.simulation.steps import FAULTS, KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.simulation.motifs import Scene
    from tests.simulation.steps import Step
    from tests.simulation.world import ServerSpec

# What is drawn for a member of that name, where its type alone says too little.
_CHOICES: Final[Mapping[str, Sequence[Any]]] = {
    "times": (1, 1, 1, 2, 5),
    "after": (0, 0, 1, 30, 200, 900),
    "seconds": (0.01, 0.3, 3.0, 40.0),
    "down": (0.0, 0.0, 1.0, 8.0),
    "status": (
        200, 202, 204, 301, 307, 308, 400, 401, 403, 404, 405, 406, 413, 415, 421, 429, 500, 502, 503, 504,
    ),
    "code": (1, 0, -32700, -32600, -32601, -32602, -32603, -32000, -32002, -32020, -32021, -32022, -32042),
    "retry_after": (None, None, 0.0, 2.0, 40.0),
    "withdraw_after": (None, None, 0.05),
    "lines": (2, 100),
    "retry": (None, 5, 500),
    "ends": (0, 1, 4),
    "split": (None, 1, 7),
    "noise": (0, 0, 5),
    "garbage": (0, 0, 2),
    "method": (
        "tools/call", "tools/call", "tools/call", "tools/list", "initialize", "server/discover", "GET",
        "DELETE", "ping", "subscriptions/listen", "notifications/initialized", "notifications/cancelled",
        "response",
        "resources/read", "resources/subscribe", "prompts/list", "*",
    ),
}  # fmt: skip
_CODES: Final[Mapping[str, Sequence[Any]]] = {
    "CloseFrameNext": (1000, 1001, 1008, 1011, 4000),
    "KillChild": (0, 1, 137),
}


def strewn(scene: Scene, count: int) -> list[Step]:
    """So many faults of the kinds that this world has at all."""
    swarm = scene.swarm
    known = [name for name in FAULTS if swarm.has(f"fault {name}", 0.35)]
    if not known:
        return []
    return [_one(scene, KINDS[swarm.pick(known)]) for _ in range(count)]


def _one(scene: Scene, kind: type[Step]) -> Step:
    who, server = scene.some_pair()
    members: dict[str, Any] = {"at": scene.when(), "server": server.name}
    for name, hint in _members(kind).items():
        members[name] = _drawn(scene, kind, name, hint, who, server)
    return kind(**members)


@functools.cache
def _members(kind: type[Step]) -> Mapping[str, Any]:
    hints = typing.get_type_hints(kind)
    return {
        field.name: hints[field.name] for field in attrs.fields(kind) if field.name not in {"at", "server"}
    }


def _drawn(scene: Scene, kind: type[Step], name: str, hint: Any, who: str, server: ServerSpec) -> Any:
    swarm = scene.swarm
    special: Mapping[str, Callable[[], Any]] = {
        "who": lambda: who if swarm.chance(0.3) else None,
        "only_for": lambda: who if swarm.chance(0.15) else None,
        "place": lambda: scene.place(server),
        "tool": lambda: scene.tool(server) if hint is str or swarm.chance(0.3) else None,
        "name": lambda: swarm.pick(server.manners.resources or ("doc://a",)),
    }
    if name in special:
        return special[name]()
    if name == "code" and kind.__name__ in _CODES:
        return swarm.pick(_CODES[kind.__name__])
    if hint is bool:
        return swarm.chance(0.3)
    if typing.get_origin(hint) is typing.Literal:
        return swarm.pick(typing.get_args(hint))
    return swarm.pick(_CHOICES[name])

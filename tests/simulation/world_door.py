"""What a simulated world has where its pool stands inside a runtime: tools of the host's own, rules for the
tools of its servers, hooks, an artifact store, and how they are called.

Data only, as the rest of a world (`world.py`); what it becomes is in `driver_door_*.py`. Rules:

* A local tool is told by its kind what it does; the driver files every run of it.
* What the host fills is told by where the value comes from: a field of the caller's identity, or the
  credential of a service whose name begins with `door-`.
* Hooks, providers and the store have moods, which steps change (`host_door.py`).
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 -- read at run time, when a file is read
from typing import Final, Literal, TypeAlias

import attrs

LocalKind: TypeAlias = Literal[
    "says",  # answers its arguments and its mark
    "typed",  # a function with named arguments of several types
    "at-once",  # not asynchronous
    "slow",  # waits `seconds` first, and reports
    "raises",  # an exception of its own, with its mark
    "refuses",  # an error of afpool's own classes
    "odd",  # returns what is no result
    "structured",  # promises an output schema, and keeps the promise unless told `bad`
    "large",  # a text of `size` characters
    "blocks",  # a result of blocks of every kind
    "needs",  # a credential, which it says aloud
    "asks",  # for a credential by itself, and says it aloud
    "takes",  # an artifact of the kind `doc`
    "puts",  # an artifact, and gives its reference
    "shelf",  # looks at artifacts through its context: `verb`, `ref`
    "calls",  # other tools, one after another: `calls`
    "filled",  # with arguments that the host fills, an identity's and a credential's
    "presents",  # an artifact to the user
    "own-class",  # a tool of a class of the host's own, which refuses by itself
    "wide",  # takes arguments of a large or crooked schema (`door_wide.py`): `wide` is their seed
]
Fill: TypeAlias = Literal["principal", "tenant", "conversation_id", "credential", "machine"]
HookMood: TypeAlias = Literal[
    "passes", "denies", "raises", "rubbish", "replaces", "slow", "hangs", "puts-filled", "not-json",
    "denies-after", "raises-after", "replaces-after", "rubbish-after", "hangs-after",
]  # fmt: skip

DEEP: Final = "door-deep"
"""The service of credentials that tools of the host's own need."""


@attrs.frozen(kw_only=True)
class LocalSpec:
    """A tool of the host's own; `seed` is that of the schema of a wide one."""

    name: str
    kind: LocalKind = "says"
    seed: int = 0


@attrs.frozen(kw_only=True)
class RulesSpec:
    """What is done to the tools of one server.

    Attributes:
        fill: Argument to where its value comes from.
        wants: Argument to artifact kind.
        redact: Names of arguments that records hide; one that begins with `^` is a pattern, one with a dot a
            path inside an argument.
        deep: They are looked for at every depth.
        ceiling: Characters that a result may have; 0 for no ceiling.
    """

    fill: Mapping[str, Fill] = attrs.field(factory=dict)
    wants: Mapping[str, str] = attrs.field(factory=dict)
    redact: tuple[str, ...] = ()
    deep: bool = False
    ceiling: int = 0


@attrs.frozen(kw_only=True)
class DoorSpec:
    """A runtime around the pool.

    Attributes:
        tools: The host's own.
        rules: By server.
        hooks: Moods of the hooks, the outermost first, as they are in the beginning.
        store: There is an artifact store.
        ttl: Seconds that an artifact lives; None for as long as there is room.
        shelf: Artifacts of one scope.
        room: Bytes of one scope.
        qualify: Names of servers' tools are always qualified.
        again: `repeat="when-nothing-ran"`.
        patience: See `RuntimeConfig.list_patience`.
        inline: See `ResultLimits.max_inline_chars`; 0 for none.
        cut: See `ResultLimits.max_chars`; 0 for none.
        events: Somebody listens to events; `raises` raises.
        fields: What a credential is: a bearer, or headers of which none is the value.
    """

    tools: tuple[LocalSpec, ...] = ()
    rules: Mapping[str, RulesSpec] = attrs.field(factory=dict)
    hooks: tuple[HookMood, ...] = ()
    store: bool = True
    ttl: float | None = None
    shelf: int = 16
    room: int = 1_000_000
    qualify: bool = False
    again: bool = False
    patience: float = 5.0
    inline: int = 0
    cut: int = 0
    events: Literal["none", "takes", "raises"] = "takes"
    fields: Literal["bearer", "api-key", "basic", "headers"] = "bearer"

    def local(self, name: str) -> LocalSpec | None:
        """The host's own tool of a name."""
        return next((tool for tool in self.tools if tool.name == name), None)

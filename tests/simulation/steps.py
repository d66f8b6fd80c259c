"""What happens in a story, and when: steps of the workload, of the host, and faults at every boundary.

A step is data: at a time of the simulated clock, measured from when the pool is open, one thing happens. The
driver carries it out; steps that cannot be carried out any more (a server that was taken out of the world, no
tool bound yet) do nothing and are counted as `skipped`, so that a story can be shrunk by leaving things out.

Rules:

* Steps of equal time happen in the order in which they stand.
* A class belongs to one of three families, by its base: `Work` asks something of the pool, `Host` is what the
  app does or changes, `Fault` is done by a server or by the network. `count` tells each of them by its name.
* `Scripted` faults wait at a server for the next arrivals that match, and then decide the answer.
* `place=None` means all places of the server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import attrs

from tests.simulation.faults import (
    Announce,
    AskClient,
    AtServer,
    ChangeTools,
    ChildManners,
    CloseIdle,
    CutLink,
    EndStreams,
    ExpireSession,
    KillChild,
    RefuseConnections,
    RestartServer,
    StallLink,
)
from tests.simulation.faulty_answers import (
    BreakOffNext,
    CloseFrameNext,
    DelayNext,
    DropNext,
    FloodNotices,
    GarbageNext,
    HangNext,
    HoldStreamNext,
    InputNext,
    OddStreamNext,
    RpcErrorNext,
    Scripted,
    StatusNext,
    TruncateAnswer,
)
from tests.simulation.host import (
    CancelCall,
    ChangePlan,
    ChangeShare,
    ClosePool,
    CrashActor,
    DropTools,
    EvictKey,
    EvictPressure,
    HoldServer,
    Invalidate,
    KillKey,
    Look,
    PauseKey,
    Reconfigure,
    ResumeKey,
    RotateCredential,
    WithdrawCaller,
)
from tests.simulation.host_door import (
    ChangeHook,
    ChangeSchema,
    ChangeShelf,
    ChangeVault,
    ReconfigureDoor,
)
from tests.simulation.plain import default_of, from_plain, to_plain
from tests.simulation.step import (
    Fault,
    Host,
    Step,
    Work,
)
from tests.simulation.work import (
    AskServer,
    Call,
    DrainKey,
    ListTools,
    Refresh,
    Subscribe,
    Warm,
)
from tests.simulation.work_door import (
    Acknowledge,
    BeginRun,
    DoorCall,
    DoorList,
    EndRun,
    PutArtifact,
    ResumeRun,
    UseTools,
)
from tests.simulation.work_service import (
    ChangeBehind,
    CutBehind,
    DrainService,
    Northbound,
    ReloadService,
    RevokeToken,
    ServeAsk,
    ServeEnd,
    ServeHear,
    ServeOpen,
)
from tests.simulation.world import World

__all__ = [
    "FAULTS",
    "KINDS",
    "Acknowledge",
    "Announce",
    "AskClient",
    "AskServer",
    "AtServer",
    "BeginRun",
    "BreakOffNext",
    "Call",
    "CancelCall",
    "ChangeBehind",
    "ChangeHook",
    "ChangePlan",
    "ChangeSchema",
    "ChangeShare",
    "ChangeShelf",
    "ChangeTools",
    "ChangeVault",
    "ChildManners",
    "CloseFrameNext",
    "CloseIdle",
    "ClosePool",
    "CrashActor",
    "CutBehind",
    "CutLink",
    "DelayNext",
    "DoorCall",
    "DoorList",
    "DrainKey",
    "DrainService",
    "DropNext",
    "DropTools",
    "EndRun",
    "EndStreams",
    "EvictKey",
    "EvictPressure",
    "ExpireSession",
    "Fault",
    "FloodNotices",
    "GarbageNext",
    "HangNext",
    "HoldServer",
    "HoldStreamNext",
    "Host",
    "InputNext",
    "Invalidate",
    "KillChild",
    "KillKey",
    "ListTools",
    "Look",
    "Northbound",
    "OddStreamNext",
    "PauseKey",
    "PutArtifact",
    "Reconfigure",
    "ReconfigureDoor",
    "Refresh",
    "RefuseConnections",
    "ReloadService",
    "RestartServer",
    "ResumeKey",
    "ResumeRun",
    "RevokeToken",
    "RotateCredential",
    "RpcErrorNext",
    "Scripted",
    "ServeAsk",
    "ServeEnd",
    "ServeHear",
    "ServeOpen",
    "StallLink",
    "StatusNext",
    "Step",
    "Story",
    "Subscribe",
    "TruncateAnswer",
    "UseTools",
    "Warm",
    "WithdrawCaller",
    "Work",
    "describe",
    "step_from_json",
    "step_to_json",
]


def _kinds() -> Iterable[tuple[str, type[Step]]]:
    # Not by `__subclasses__`, which until the next garbage collection holds what attrs made its classes from.
    known = [kind for kind in globals().values() if isinstance(kind, type) and issubclass(kind, Step)]
    bases = {base for kind in known for base in kind.__mro__[1:]}
    return ((kind.__name__, kind) for kind in known if kind not in bases)


KINDS: Mapping[str, type[Step]] = dict(_kinds())
"""Every kind of step by its name."""

FAULTS: tuple[str, ...] = tuple(name for name, kind in KINDS.items() if issubclass(kind, Fault))
"""The names of all kinds of faults."""


def step_to_json(step: Step) -> dict[str, Any]:
    """As plain JSON: the kind's name under `do`."""
    return {"do": type(step).__name__, **to_plain(step)}


def step_from_json(plain: Mapping[str, Any]) -> Step:
    """The inverse of `step_to_json`. Raises ValueError."""
    members = dict(plain)
    name = members.pop("do", None)
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ValueError(f"there is no step {name!r}")
    return from_plain(kind, members)


def describe(step: Step) -> str:
    """One line: when, what, and what is not as by default."""
    words = [
        f"{field.name}={_word(getattr(step, field.name))}"
        for field in attrs.fields(type(step))
        if field.name != "at" and getattr(step, field.name) != default_of(field)
    ]
    return " ".join([f"{step.at:9.3f}", type(step).__name__, *words])


def _word(value: Any) -> str:
    if isinstance(value, str):
        return value if value and value.isprintable() and " " not in value else repr(value)
    if isinstance(value, tuple):
        return ",".join(_word(member) for member in value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{name}:{_word(member)}" for name, member in value.items()) + "}"
    return f"{value:g}" if isinstance(value, float) else str(value)


@attrs.frozen
class Story:
    """A world and what happens in it; `seed` decides everything else that is left to chance.

    Attributes:
        world: The world.
        steps: In the order of their times.
        seed: Of network, scheduler and jitter.
        note: What it shows, for people.
    """

    FORMAT: ClassVar[int] = 1

    world: World
    steps: tuple[Step, ...]
    seed: int = 0
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "format": self.FORMAT,
            "note": self.note,
            "seed": self.seed,
            "world": self.world.to_json(),
            "steps": [step_to_json(step) for step in self.steps],
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Story:
        """The inverse of `to_json`.

        Raises:
            ValueError: It is none of this format.
        """
        if plain.get("format") != cls.FORMAT:
            raise ValueError(f"a story of format {plain.get('format')!r}, not {cls.FORMAT}")
        steps = tuple(step_from_json(step) for step in plain["steps"])
        return cls(World.from_json(plain["world"]), steps, plain["seed"], plain.get("note", ""))

    def __str__(self) -> str:
        world = to_plain(self.world)
        people = ", ".join(
            f"{one.name} ({one.tenant or '-'}/{one.principal or '-'}/{one.conversation or '-'})"
            for one in self.world.people
        )
        lines = [f"seed {self.seed}", f"people {people}"]
        lines += [f"server {_members(server)}" for server in world["servers"]]
        if self.note:
            lines.insert(0, self.note)
        for name in ("limits", "weather", "signer", "app"):
            if name in world:
                lines.append(
                    f"{name} {_members(world[name]) if isinstance(world[name], dict) else world[name]}"
                )
        return "\n".join(lines + [describe(step) for step in self.steps])


def _members(plain: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={_plain_word(value)}" for name, value in plain.items())


def _plain_word(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_plain_word(member)}" for name, member in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_plain_word(member) for member in value) + "]"
    return str(value)

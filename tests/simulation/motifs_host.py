"""Motifs of the app and its operators: what changes under calls that wait or are on their way."""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.host import Turn
from tests.simulation.motifs import flat
from tests.simulation.steps import (
    ChangePlan,
    ChangeShare,
    ClosePool,
    CrashActor,
    DelayNext,
    DrainKey,
    EvictKey,
    EvictPressure,
    HoldServer,
    Invalidate,
    KillKey,
    ListTools,
    Look,
    PauseKey,
    Reconfigure,
    ResumeKey,
    RotateCredential,
    Step,
    WithdrawCaller,
)

if TYPE_CHECKING:
    from tests.simulation.motifs import Motif, Scene
    from tests.simulation.world import ServerSpec


def _slowed(scene: Scene, at: float, server: ServerSpec) -> list[Step]:
    """Something that makes calls wait while the rest of a motif happens."""
    method = scene.swarm.pick(["tools/call", "tools/list", "initialize", "server/discover", "*"])
    if scene.swarm.chance(0.5):
        return []
    return [
        DelayNext(at=at, server=server.name, method=method, seconds=scene.swarm.pick([0.05, 0.5]), times=2)
    ]


def plan_changes(scene: Scene) -> list[Step]:
    """A plan leads elsewhere, says something else, fails or takes its time, under calls."""
    who, server = scene.some_pair()
    at = scene.when()
    how: Any = scene.swarm.weighted(
        {"place": 4, "context": 5, "raises": 2, "rubbish": 2, "nowhere": 2, "slow": 2, "hangs": 1}
    )
    change = ChangePlan(
        at=scene.after(at, 0.5),
        who=who,
        server=server.name,
        how=how,
        place=scene.swarm.random.randrange(server.places),
        invalidate=scene.swarm.chance(0.3),
    )
    asked = scene.after(change.at, 0.5)
    # A plan is asked at openings and at lists that go to the wire.
    again: Step = (
        ListTools(at=asked, who=who, server=server.name, refresh=True)
        if scene.swarm.chance(0.6)
        else KillKey(at=asked, who=who, server=server.name)
    )
    back: list[Step] = []
    if scene.swarm.chance(0.7):
        back = [ChangePlan(at=asked + scene.swarm.pick([0.2, 3.0]), who=who, server=server.name, how="good")]
    return flat(
        _slowed(scene, at, server),
        scene.calls(at, who, server, 2),
        change,
        again,
        scene.calls(asked, who, server, 2),
        back,
        scene.calls(asked + 3.5, who, server, 1),
    )


def share_changes(scene: Scene) -> list[Step]:
    """An authorization name changes, goes, comes, or `share` fails, under calls."""
    who, server = scene.some_pair()
    at = scene.when()
    how: Any = scene.swarm.weighted({"name": 4, "raises": 2, "rubbish": 1})
    name = scene.swarm.pick(["role-a", "role-b", "rôle-c", None])
    change = ChangeShare(at=scene.after(at), who=who, server=server.name, name=name, how=how)
    back = ChangeShare(at=change.at + 2.0, who=who, server=server.name, name=server.share.get(who))
    return flat(
        _slowed(scene, at, server),
        scene.calls(at, who, server, 2),
        change,
        scene.calls(scene.after(change.at), who, server, 2),
        back if scene.swarm.chance(0.7) else [],
        scene.calls(at + 2.2, who, server, 1),
    )


def credential_changes(scene: Scene) -> list[Step]:
    """Secrets are rotated, revoked, or cannot be had."""
    pair = scene.pair(lambda server: server.way.credential != "none")
    if pair is None:
        return invalidates(scene)
    who, server = pair
    at = scene.when()
    how: Any = scene.swarm.weighted(
        {
            "new": 3, "revoked": 4, "stale": 4, "raises": 3, "bad-header": 2, "needs-consent": 3,
            "anonymous": 2, "hangs": 1, "slow": 2, "rubbish": 1,
        }
    )  # fmt: skip
    whose = None if scene.swarm.chance(0.3) else who
    change = RotateCredential(at=scene.after(at), who=whose, server=server.name, how=how)
    back = RotateCredential(at=change.at + 2.0, who=whose, server=server.name, how="good")
    kill: list[Step] = []
    if scene.swarm.chance(0.3):
        kill = [KillKey(at=scene.after(change.at), who=who, server=server.name)]
    return flat(
        scene.calls(at, who, server, 1),
        change,
        kill,
        scene.calls(scene.after(change.at), who, server, 2),
        back if scene.swarm.chance(0.8) else [],
        scene.calls(at + 2.5, who, server, 1),
    )


def caller_withdrawn(scene: Scene) -> list[Step]:
    """Whoever a run acts for is withdrawn while its call waits."""
    who, server = scene.some_pair()
    at = scene.when()
    how: Any = scene.swarm.pick(["none", "none", "raises", "other"])
    gone = WithdrawCaller(at=scene.after(at, 0.3), who=who, how=how)
    return flat(
        _slowed(scene, at, server),
        [scene.call(scene.after(at, 0.3), who, server, "sleep", "echo", live=True) for _ in range(3)],
        ListTools(at=scene.after(at, 0.3), who=who, refresh=True, live=True)
        if scene.swarm.chance(0.4)
        else [],
        gone,
        WithdrawCaller(at=gone.at + 1.0, who=who, how="back"),
    )


def invalidates(scene: Scene) -> list[Step]:
    """The app revokes an identity, a server or a key, under calls."""
    who, server = scene.some_pair()
    at = scene.when()
    exact = scene.swarm.chance(0.2)
    whose = who if exact or scene.swarm.chance(0.7) else None
    which = server.name if exact or whose is None or scene.swarm.chance(0.5) else None
    wide = scene.swarm.chance(0.4)
    revoke = Invalidate(at=scene.after(at, 0.4), who=whose, server=which, exact=exact, wide=wide)
    return flat(
        _slowed(scene, at, server),
        scene.calls(at, who, server, 3),
        revoke,
        scene.calls(scene.after(revoke.at), who, server, 2),
    )


def reconfigures(scene: Scene) -> list[Step]:
    """Another configuration comes into force under calls; a server goes, and may come back at once."""
    who, server = scene.some_pair()
    at = scene.when()
    how: Any = scene.swarm.weighted(
        {
            "bindings": 3, "named": 2, "clients": 4, "remove": 5, "plan": 2, "replan": 2, "share": 2,
            "credentials": 2, "limits": 1, "nothing": 1, "wrong": 1,
        }
    )  # fmt: skip
    change = Reconfigure(at=scene.after(at, 0.4), server=server.name, how=how)
    crashes: list[Step] = []
    if scene.swarm.chance(0.1):
        after = scene.swarm.chance(0.5)
        crashes = [CrashActor(at=at, who=who, server=server.name, turn="Reconfigure", after=after)]
    back: list[Step] = []
    if how == "remove" and scene.swarm.chance(0.8):
        back = [Reconfigure(at=scene.after(change.at, 3.0), server=server.name, how="add")]
    return flat(
        _slowed(scene, at, server),
        crashes,
        scene.calls(at, who, server, 3),
        change,
        scene.calls(scene.after(change.at), who, server, 2),
        back,
        *(scene.calls(scene.after(each.at), who, server, 2) for each in back),
    )


def operator(scene: Scene) -> list[Step]:
    """An operator pauses, drains, kills, evicts, and looks."""
    who, server = scene.some_pair()
    at = scene.when()
    then = scene.after(at, 0.5)
    what = scene.swarm.random.randrange(6)
    steps: list[Step]
    if what == 0:
        until = then + scene.swarm.pick([0.05, 1.0, 10.0])
        steps = [
            PauseKey(at=then, who=who, server=server.name),
            ResumeKey(at=until, who=who, server=server.name),
        ]
    elif what == 1:
        steps = [
            DrainKey(at=then, who=who, server=server.name, resume_after=scene.swarm.pick([0.0, 0.1, 2.0]))
        ]
    elif what == 2:
        steps = [KillKey(at=then, who=who, server=server.name)]
    elif what == 3:
        steps = [HoldServer(at=then, server=server.name, seconds=scene.swarm.pick([0.05, 1.0, 10.0]))]
    elif what == 4:
        steps = [Look(at=then, call=f"c{scene.swarm.random.randint(1, 9)}")]
    else:
        steps = [EvictKey(at=then, who=who, server=server.name)]
    return flat(
        _slowed(scene, at, server),
        scene.calls(at, who, server, 3),
        steps,
        scene.calls(scene.after(then), who, server, 2),
    )


def pressure(scene: Scene) -> list[Step]:
    """Strangers want clients, where there may be few."""
    who, server = scene.some_pair()
    at = scene.when()
    return flat(
        scene.calls(at, who, server, 2),
        EvictPressure(at=scene.after(at), server=server.name, strangers=scene.swarm.random.randint(1, 5)),
        scene.calls(scene.after(at), who, server, 2),
    )


_TURNS: Final = typing.get_args(Turn)


def crash(scene: Scene) -> list[Step]:
    """A turn of the pool's own raises, once or again soon."""
    who, server = scene.some_pair()
    at = scene.when()
    then = scene.after(at, 0.4)
    steps: list[Step] = [
        CrashActor(
            at=then,
            who=who,
            server=server.name,
            turn=scene.swarm.pick(_TURNS),
            after=scene.swarm.chance(0.5),
            times=scene.swarm.pick([1, 1, 1, 2, 5]),
        )
    ]
    if scene.swarm.chance(0.3):
        steps.append(KillKey(at=scene.after(then), who=who, server=server.name))
    return flat(
        _slowed(scene, at, server),
        scene.calls(at, who, server, 3),
        steps,
        scene.calls(scene.after(then), who, server, 3),
        scene.calls(then + 4.0, who, server, 1),
    )


def closes(scene: Scene) -> list[Step]:
    """The pool is left while calls wait and run."""
    who, server = scene.some_pair()
    at = max(scene.when(), scene.span * 0.7)
    running = [
        scene.call(
            scene.after(at, 0.2), who, server, "sleep", args={"seconds": scene.swarm.pick([0.5, 20.0])}
        )
        for _ in range(scene.swarm.random.randint(1, 4))
    ]
    how: Any = scene.swarm.pick(["aclose", "cancelled"])
    return flat(
        _slowed(scene, at, server),
        *running,
        ClosePool(at=scene.after(at, 0.4), how=how),
        scene.calls(scene.after(at, 0.6), who, server, 1),
    )


HOST_MOTIFS: Final[tuple[Motif, ...]] = (
    plan_changes, share_changes, credential_changes, caller_withdrawn, invalidates, reconfigures, operator,
    pressure, crash, closes,
)  # fmt: skip

"""Motifs in which features meet that other motifs keep apart.

Something makes calls wait, and meanwhile two or three things change that have nothing to do with it, or with
each other; calls are made from inside of others until no place is left; plans go back and forth.
"""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.host import Reconfiguring, Turn
from tests.simulation.motifs import flat
from tests.simulation.steps import (
    Announce,
    Call,
    CancelCall,
    ChangePlan,
    ChangeShare,
    ChangeTools,
    ClosePool,
    CrashActor,
    CutLink,
    DelayNext,
    DrainKey,
    DropNext,
    EndStreams,
    EvictKey,
    EvictPressure,
    ExpireSession,
    HangNext,
    HoldServer,
    Invalidate,
    KillKey,
    ListTools,
    Look,
    PauseKey,
    Reconfigure,
    Refresh,
    RefuseConnections,
    RestartServer,
    ResumeKey,
    RotateCredential,
    RpcErrorNext,
    StallLink,
    StatusNext,
    Step,
    Subscribe,
    WithdrawCaller,
)

if TYPE_CHECKING:
    from tests.simulation.motifs import Motif, Scene
    from tests.simulation.world import ServerSpec


def _waits(scene: Scene, at: float, who: str, server: ServerSpec) -> list[Step]:
    """What makes the calls of a key wait from that time on, for half a second or for some."""
    swarm, name = scene.swarm, server.name
    seconds = swarm.pick([0.5, 2.0, 6.0])
    kill = KillKey(at=at, who=who, server=name)
    slow: dict[str, Any] = {"at": at, "server": name, "seconds": seconds, "times": 2}
    away: Any = swarm.pick(["refuse", "delay", "hang"])
    opening = swarm.pick(["initialize", "server/discover"])
    ways: list[list[Step]] = [
        [
            PauseKey(at=at, who=who, server=name),
            ResumeKey(at=round(at + seconds, 4), who=who, server=name),
        ],
        [HoldServer(at=at, server=name, seconds=seconds)],
        [DrainKey(at=at, who=who, server=name, resume_after=seconds)],
        [scene.call(at, who, server, "sleep", args={"seconds": seconds}) for _ in range(5)],
        [kill, ChangePlan(at=at, who=who, server=name, how="slow")],
        [kill, ChangePlan(at=at, who=who, server=name, how="hangs")],
        [kill, RefuseConnections(at=at, server=name, how=away, seconds=seconds)],
        [kill, DelayNext(**slow, method=opening)],
        [kill, DelayNext(**slow, method="tools/list")],
        [kill, HangNext(at=at, server=name, method=swarm.pick([opening, "tools/list"]))],
        [kill, StatusNext(at=at, server=name, method="initialize", status=503, retry_after=2.0, times=2)],
        [ChangeTools(at=at, server=name, tool=scene.tool(server)), DelayNext(**slow, method="tools/list")],
        [StatusNext(at=at, server=name, status=429, retry_after=seconds, times=2)],
        [StatusNext(at=at, server=name, status=401, challenge="bearer", times=2)],
        [RotateCredential(at=at, who=who, server=name, how="slow")],
        [RotateCredential(at=at, who=who, server=name, how="hangs")],
        [StallLink(at=at, server=name, direction="to-server", seconds=seconds)],
        [DelayNext(**slow)],
        [RpcErrorNext(at=at, server=name, code=-32022, status=400)],
        [EvictPressure(at=at, server=name, strangers=4)],
        [DropNext(at=at, server=name, executed=True, times=3)],
    ]  # fmt: skip
    return swarm.pick(ways)


def _changes(scene: Scene, at: float, who: str, server: ServerSpec, calls: list[Step]) -> list[Step]:
    """Something that is said, told or done around that time."""
    swarm, name = scene.swarm, server.name
    then = scene.after(at, 0.6)
    key: dict[str, Any] = {"at": then, "who": who, "server": name}
    somebody = swarm.pick(scene.world.people).name
    crash = swarm.pick(["any", "Admit", "Settle", "Opened", "Listed", "ClientLost", "Revoke", "Reconfigure"])
    how: Any = swarm.pick([each for each in typing.get_args(Reconfiguring) if each != "add"])
    again = scene.after(then + 0.2, 0.4)
    mended = ChangePlan(at=again, who=who, server=name, how="good")
    vault = RotateCredential(at=again, who=who, server=name, how="good")
    ways: list[list[Step]] = [
        [Reconfigure(at=then, server=name, how=how), Reconfigure(at=again, server=name, how="add")],
        [ChangeShare(**key, name=swarm.pick(["role-a", "role-b", None]))],
        [ChangeShare(**key, how="raises"), ChangeShare(at=then + 0.4, who=who, server=name, name="role-a")],
        [Invalidate(**key)],
        [Invalidate(at=then, who=who, wide=True)],
        [Invalidate(at=then, server=name)],
        [KillKey(**key)],
        [KillKey(at=then, who=somebody, server=name)],
        [EvictKey(**key)],
        [DrainKey(**key, resume_after=0.1)],
        [PauseKey(**key), ResumeKey(at=then + 0.3, who=who, server=name)],
        [HoldServer(at=then, server=name, seconds=0.3)],
        [ChangePlan(**key, how="context", invalidate=swarm.chance(0.3)), mended],
        [ChangePlan(**key, how="place", place=1), ListTools(at=then, who=who, server=name, refresh=True)],
        [ChangePlan(**key, how="raises"), mended],
        [ChangeTools(at=then, server=name, tool=scene.tool(server), notify=swarm.chance(0.8))],
        [ChangeTools(at=then, server=name, tool=scene.tool(server), only_for=who)],
        [CrashActor(**key, turn=crash, after=swarm.chance(0.5), times=swarm.pick([1, 1, 2]))],
        [RotateCredential(at=then, who=who, server=name, how=swarm.pick(["new", "revoked", "stale"]))],
        [RotateCredential(at=then, who=who, server=name, how="needs-consent"), vault],
        [WithdrawCaller(at=then, who=who), WithdrawCaller(at=then + 0.5, who=who, how="back")],
        [CancelCall(at=then, call=each.id) for each in calls if isinstance(each, Call)],
        [ExpireSession(at=then, server=name)],
        [EndStreams(at=then, server=name, graceful=swarm.chance(0.5))],
        [RestartServer(at=then, server=name, down=swarm.pick([0.0, 0.3]))],
        [CutLink(at=then, server=name, which="all")],
        [Refresh(at=then, who=who, server=name)],
        [ListTools(at=then, who=somebody, server=name, refresh=True)],
        [StatusNext(at=then, server=name, method="tools/list", status=401, challenge="bearer")],
        [EvictPressure(at=then, server=name, strangers=3)],
        [Look(at=then, call="c1")],
    ]  # fmt: skip
    return swarm.pick(ways)


def meets(scene: Scene) -> list[Step]:
    """Calls wait for one thing, and two or three others change meanwhile."""
    who, server = scene.some_pair()
    at = scene.when()
    before = scene.calls(at, who, server, 1)
    at = round(at + scene.swarm.pick([0.1, 0.8]), 4)
    calls: list[Step] = [
        scene.call(
            scene.after(at, 0.3), who, server, binding=scene.binding(), live=scene.swarm.chance(0.3),
            deadline=scene.swarm.pick([None, None, None, 1.2]),
            cancel_after=scene.swarm.pick([None, None, None, 0.4]),
        )
        for _ in range(3)
    ]  # fmt: skip
    uris = server.manners.resources
    if uris and scene.swarm.chance(0.5):
        calls += [
            Subscribe(
                id=f"s{scene.number()}",
                at=scene.after(at - 0.05, 0.3),
                who=who,
                server=server.name,
                uri=uri,
                live=scene.swarm.chance(0.3),
            )
            for uri in uris[:2]
        ]
        calls.append(Announce(at=at + 0.4, server=server.name, what="update", name=uris[0], times=3))
    others = scene.others(who)
    if others and scene.swarm.chance(0.5):
        calls.append(scene.call(scene.after(at, 0.3), scene.swarm.pick(others), server))
    return flat(
        before,
        _waits(scene, at, who, server),
        calls,
        *(_changes(scene, at + 0.05, who, server, calls) for _ in range(scene.swarm.random.randint(2, 3))),
        _mended(scene, at + 4.0, who, server),
        scene.calls(at + 4.5, who, server, 2),
    )


def _mended(scene: Scene, at: float, who: str, server: ServerSpec) -> list[Step]:
    if scene.swarm.chance(0.3):
        return []
    return [
        ChangePlan(at=at, who=who, server=server.name, how="good"),
        RotateCredential(at=at, who=who, server=server.name, how="good"),
    ]


def torn(scene: Scene) -> list[Step]:
    """The turn of a message raises just when the message comes, with calls at work and waiting."""
    who, server = scene.some_pair()
    swarm, name = scene.swarm, server.name
    at = scene.when()
    then = round(at + swarm.pick([0.05, 0.4]), 4)
    key: dict[str, Any] = {"at": then, "who": who, "server": name}
    running = scene.call(at, who, server, "sleep", args={"seconds": 1.0})
    late = scene.call(at, who, server, "sleep", args={"seconds": 9.0}, cancel_after=0.3)
    kill = KillKey(**key)
    causes: dict[Turn, list[Step]] = {
        "Admit": [scene.call(then, who, server)],
        "PlanChanged": [ChangePlan(**key, how="context"), ListTools(**key, refresh=True)],
        "Opened": [kill, scene.call(then, who, server)],
        "OpenFailed": [kill, RefuseConnections(at=then, server=name), scene.call(then, who, server)],
        "Listed": [ListTools(**key, refresh=True)],
        "ListChanged": [ChangeTools(at=then, server=name, tool=scene.tool(server))],
        "Settle": [],
        "Abandon": [HangNext(at=at, server=name, times=2), CancelCall(at=then, call=running.id)],
        "ClientLost": [RestartServer(at=then, server=name)],
        "Evict": [EvictKey(**key)],
        "Revoke": [Invalidate(**key, exact=swarm.chance(0.5))],
        "Reconfigure": [
            Reconfigure(at=then, server=name, how=swarm.pick(["remove", "bindings", "clients"])),
            Reconfigure(at=then + 1.0, server=name, how="add"),
        ],
        "Pause": [PauseKey(**key), ResumeKey(at=then + 0.5, who=who, server=name)],
        "Resume": [PauseKey(at=at, who=who, server=name), ResumeKey(**key)],
        "Limit": [HoldServer(at=then, server=name, seconds=0.5)],
        "Drain": [DrainKey(**key, resume_after=0.3)],
        "Close": [ClosePool(at=then)] if swarm.chance(0.5) else [],
    }
    turn = swarm.pick(list(causes))
    crash = CrashActor(
        at=round(then - 0.001, 4), who=who, server=name, turn=turn, after=swarm.chance(0.5),
        times=swarm.pick([1, 1, 2]),
    )  # fmt: skip
    return flat(
        scene.calls(at, who, server, 2),
        [running, late] if turn == "Abandon" or swarm.chance(0.7) else [],
        crash,
        causes[turn],
        scene.calls(scene.after(then), who, server, 3),
        scene.calls(then + 4.0, who, server, 1),
    )


def chains(scene: Scene) -> list[Step]:
    """Calls from inside running ones, and from inside those, of people and servers that have few places."""
    swarm = scene.swarm
    who, server = scene.some_pair()
    at = scene.when()
    steps: list[Step] = []
    outer: list[str] = []
    for depth in range(swarm.random.randint(2, 4)):
        for _ in range(swarm.pick([1, 2, 3])):
            if swarm.chance(0.5):
                who, server = swarm.pick(scene.world.people).name, swarm.pick(scene.world.servers)
            call = scene.call(
                scene.after(at + 0.3 * depth, 0.2), who, server, "sleep", args={"seconds": 3.0},
                inside=swarm.pick(outer) if outer and depth else None,
            )  # fmt: skip
            steps.append(call)
            outer.append(call.id)
        if swarm.chance(0.3):
            steps += _changes(scene, at + 0.3 * depth, who, server, steps)
    return steps


def flips(scene: Scene) -> list[Step]:
    """Plans of two keys go back and forth, faster than clients open."""
    who, server = scene.some_pair()
    swarm = scene.swarm
    at = scene.when()
    people = [who, *scene.others(who)[:1]]
    steps: list[Step] = []
    for turn in range(swarm.random.randint(3, 8)):
        then = round(at + turn * swarm.pick([0.0, 0.01, 0.2]), 4)
        whose = swarm.pick(people)
        how: Any = swarm.pick(["context", "place", "good", "good"])
        steps.append(
            ChangePlan(
                at=then, who=whose, server=server.name, how=how, place=turn % 2,
                invalidate=swarm.chance(0.15),
            )
        )  # fmt: skip
        steps.append(
            ListTools(
                at=scene.after(then, 0.1),
                who=swarm.pick(people),
                server=server.name,
                refresh=swarm.chance(0.7),
            )
        )
        steps += [
            scene.call(scene.after(then, 0.2), swarm.pick(people), server, binding=scene.binding())
            for _ in range(2)
        ]
    slow = DelayNext(
        at=at, server=server.name, method=swarm.pick(["tools/list", "initialize"]), seconds=0.3, times=3
    )
    return flat(slow if swarm.chance(0.4) else [], steps, scene.calls(at + 3.0, who, server, 1))


MEETING_MOTIFS: Final[tuple[Motif, ...]] = (meets, torn, chains, flips)

"""Motifs of servers and networks: lists that change, sessions that end, links that break at every byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.simulation.motifs import flat
from tests.simulation.steps import (
    ChangeTools,
    ChildManners,
    CloseIdle,
    CutLink,
    DelayNext,
    DropNext,
    EndStreams,
    ExpireSession,
    HangNext,
    KillChild,
    KillKey,
    ListTools,
    RefuseConnections,
    RestartServer,
    RpcErrorNext,
    StallLink,
    StatusNext,
    Step,
    TruncateAnswer,
)

if TYPE_CHECKING:
    from tests.simulation.motifs import Motif, Scene


def list_changes(scene: Scene) -> list[Step]:
    """The list changes before, under and after calls that hold tools of the one before."""
    who, server = scene.some_pair()
    at = scene.when()
    swarm = scene.swarm
    steps: list[Step] = [ListTools(at=at, who=who, server=server.name)]
    then = at + swarm.pick([0.2, 1.5])
    for _ in range(swarm.random.randint(1, 3)):
        how: Any = swarm.weighted(
            {
                "revise": 5, "none": 3, "remove": 1, "add": 2, "restore": 1, "reorder": 1,
                "request-scoped": 1, "strange": 0.5,
            }
        )  # fmt: skip
        steps.append(
            ChangeTools(
                at=scene.after(then, 0.5),
                server=server.name,
                place=scene.place(server),
                how=how,
                tool=scene.tool(server),
                notify=swarm.chance(0.75),
                only_for=who if swarm.chance(0.15) else None,
            )
        )
    steps += [
        scene.call(scene.after(then, 0.7), who, server, binding=swarm.pick(["first", "latest", "listed"]))
        for _ in range(3)
    ]
    if swarm.chance(0.5):
        again = scene.after(then, 0.7)
        steps.append(ListTools(at=again, who=who, server=server.name, refresh=swarm.chance(0.5)))
        steps.append(scene.call(scene.after(again), who, server, binding=swarm.pick(["first", "previous"])))
    if swarm.chance(0.3):
        steps.append(KillKey(at=scene.after(then, 0.7), who=who, server=server.name))
        steps.append(scene.call(scene.after(then + 0.7, 0.7), who, server, binding="first"))
    return steps


def busy_list(scene: Scene) -> list[Step]:
    """A list that changes again and again, also while it is asked for."""
    who, server = scene.some_pair()
    at = scene.when()
    gap = scene.swarm.pick([0.01, 0.1, 0.4])
    changes: list[Step] = [
        ChangeTools(at=at + gap * turn, server=server.name, how="revise", tool=scene.tool(server))
        for turn in range(scene.swarm.random.randint(3, 8))
    ]
    asked: list[Step] = [
        ListTools(at=scene.after(at, gap * 5), who=who, server=server.name, refresh=scene.swarm.chance(0.5))
        for _ in range(2)
    ]
    slow = DelayNext(at=at, server=server.name, method="tools/list", seconds=gap * 1.5, times=3)
    return flat(
        scene.calls(at, who, server, 1),
        slow if scene.swarm.chance(0.6) else [],
        changes,
        asked,
        scene.calls(at + gap * 3, who, server, 3, gap * 4),
    )


def session_ends(scene: Scene) -> list[Step]:
    """Sessions expire, servers restart, streams end, under calls."""
    who, server = scene.some_pair()
    at = scene.when()
    then = scene.after(at + 0.05, 0.6)
    place = scene.place(server)
    spelling: Any = scene.swarm.pick(["404", "404-text", "400-json", "400-text"])
    end: Step = scene.swarm.pick(
        [
            ExpireSession(at=then, server=server.name, place=place, spelling=spelling),
            ExpireSession(at=then, server=server.name, place=place, spelling=spelling),
            RestartServer(
                at=then, server=server.name, place=place, down=scene.swarm.pick([0.0, 0.0, 0.5, 5.0])
            ),
            EndStreams(at=then, server=server.name, place=place, graceful=scene.swarm.chance(0.5)),
            CloseIdle(at=then, server=server.name, place=place),
        ]
    )
    return flat(
        scene.calls(at, who, server, 2),
        end,
        scene.calls(scene.after(then), who, server, 2),
        ListTools(at=scene.after(then), who=who, refresh=True) if scene.swarm.chance(0.3) else [],
        scene.calls(then + 2.0, who, server, 1),
    )


def link_breaks(scene: Scene) -> list[Step]:
    """A link is cut after some bytes, or stands still, under calls."""
    who, server = scene.some_pair()
    at = scene.when()
    swarm = scene.swarm
    steps: list[Step] = []
    for _ in range(swarm.random.randint(1, 3)):
        then = scene.after(at, 0.5)
        which: Any = swarm.pick(["newest", "oldest", "all"])
        whose = who if swarm.chance(0.5) else None
        direction: Any = swarm.pick(["to-server", "to-client"])
        if swarm.chance(0.7):
            steps.append(
                CutLink(
                    at=then,
                    server=server.name,
                    which=which,
                    who=whose,
                    direction=direction,
                    after=swarm.pick([0, 0, 1, 20, 120, 300, 600, 2000]),
                    reset=swarm.chance(0.5),
                )
            )
        else:
            steps.append(
                StallLink(
                    at=then,
                    server=server.name,
                    which=which,
                    who=whose,
                    direction="both" if swarm.chance(0.3) else direction,
                    seconds=swarm.pick([0.05, 1.0, 40.0]),
                    blackhole=swarm.chance(0.3),
                )
            )
    return flat(
        scene.calls(at, who, server, 3),
        steps,
        scene.calls(scene.after(at + 0.5), who, server, 2),
        scene.calls(at + 3.0, who, server, 1),
    )


def cannot_connect(scene: Scene) -> list[Step]:
    """Nobody can connect for a while: openings fail and back off, new connections of open clients fail."""
    who, server = scene.some_pair()
    at = scene.when()
    swarm = scene.swarm
    how: Any = swarm.weighted({"refuse": 5, "hang": 2, "delay": 2, "unresolvable": 2})
    seconds = swarm.pick([0.3, 2.0, 40.0])
    steps: list[Step] = []
    if server.kind == "stdio":
        steps.append(
            ChildManners(
                at=at,
                server=server.name,
                start_fails=swarm.chance(0.5),
                dies_at_once=swarm.chance(0.5),
                ignores_eof=swarm.chance(0.3),
                ignores_term=swarm.chance(0.3),
                noise=swarm.pick([0, 3, 500]),
                garbage=swarm.pick([0, 2]),
            )
        )
        steps.append(ChildManners(at=at + seconds, server=server.name))
    else:
        steps.append(RefuseConnections(at=at, server=server.name, how=how, seconds=seconds))
    if swarm.chance(0.6):
        steps.append(KillKey(at=at, who=who, server=server.name))
    if swarm.chance(0.4):
        steps.append(ListTools(at=scene.after(at + 0.3, 1.0), who=who, server=server.name, refresh=True))
    return flat(
        steps,
        scene.calls(at, who, server, 2),
        scene.calls(scene.after(at + 0.1, 1.0), who, server, 3),
        scene.calls(at + seconds + 1.0, who, server, 1),
    )


def opening_fails(scene: Scene) -> list[Step]:
    """The server answers the requests of an opening, or of a list, with trouble."""
    who, server = scene.some_pair()
    at = scene.when()
    swarm = scene.swarm
    method = swarm.pick(
        [
            "initialize",
            "server/discover",
            "notifications/initialized",
            "tools/list",
            "GET",
            "subscriptions/listen",
        ]
    )
    if server.kind == "websocket" and swarm.chance(0.5):
        method = "GET"  # the upgrade
    common: dict[str, Any] = {
        "at": at,
        "server": server.name,
        "method": method,
        "times": swarm.pick([1, 2, 9]),
    }
    trouble: Step = swarm.pick(
        [
            StatusNext(**common, status=swarm.pick([400, 401, 403, 404, 405, 429, 500, 503, 307])),
            StatusNext(**common, status=swarm.pick([401, 403]), challenge=swarm.pick(["bearer", "scopes"])),
            RpcErrorNext(**common, code=swarm.pick([-32601, -32602, -32603, -32022, -32000])),
            HangNext(**common),
            DropNext(**common, reset=swarm.chance(0.5)),
            TruncateAnswer(**common, after=swarm.pick([None, 0, 10, 100])),
        ]
    )
    kill: list[Step] = []
    if swarm.chance(0.6):
        kill = [KillKey(at=at, who=who, server=server.name)]
    return flat(
        kill,
        trouble,
        scene.calls(at, who, server, 2),
        ListTools(at=scene.after(at), who=who, server=server.name, refresh=True),
        scene.calls(at + 3.0, who, server, 1),
    )


def children(scene: Scene) -> list[Step]:
    """Children end, or behave badly from the start."""
    pair = scene.pair(lambda server: server.kind == "stdio")
    if pair is None:
        return session_ends(scene)
    who, server = pair
    at = scene.when()
    swarm = scene.swarm
    whose = who if swarm.chance(0.5) else None
    then = scene.after(at + 0.1, 0.5)
    manners = ChildManners(
        at=at,
        server=server.name,
        ignores_eof=swarm.chance(0.4),
        ignores_term=swarm.chance(0.4),
        noise=swarm.pick([0, 2, 300]),
        garbage=swarm.pick([0, 0, 3]),
    )
    return flat(
        manners,
        scene.calls(at, who, server, 2),
        KillChild(
            at=then, server=server.name, who=whose, code=swarm.pick([0, 1, 3]), killed=swarm.chance(0.4)
        ),
        scene.calls(scene.after(then), who, server, 2),
    )


SERVER_MOTIFS: Final[tuple[Motif, ...]] = (
    list_changes,
    busy_list,
    session_ends,
    link_breaks,
    cannot_connect,
    opening_fails,
    children,
)

"""Motifs that aim deep: at streams of notifications, answers taken up again, doubts and their repeats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.simulation.motifs import flat
from tests.simulation.motifs_host import credential_changes
from tests.simulation.steps import (
    Announce,
    AskServer,
    BreakOffNext,
    CancelCall,
    ChangePlan,
    ChangeTools,
    ClosePool,
    CutLink,
    DelayNext,
    DropNext,
    EndStreams,
    EvictKey,
    GarbageNext,
    HangNext,
    Invalidate,
    KillKey,
    ListTools,
    RpcErrorNext,
    StatusNext,
    Step,
    Subscribe,
    WithdrawCaller,
)

if TYPE_CHECKING:
    from tests.simulation.motifs import Motif, Scene
    from tests.simulation.world import ServerSpec


def _mostly_http(scene: Scene) -> tuple[str, ServerSpec]:
    """Somebody and a server, rather one whose streams are requests of their own."""
    over = scene.pair(lambda server: server.over_http and server.kind != "sse")
    return over if over is not None and scene.swarm.chance(0.8) else scene.some_pair()


def streams(scene: Scene) -> list[Step]:
    """The stream of notifications is refused, ends, hangs or is slow, and is asked for again."""
    who, server = _mostly_http(scene)
    at = scene.when()
    swarm = scene.swarm
    common: dict[str, Any] = {
        "at": at,
        "server": server.name,
        "method": swarm.pick(["GET", "subscriptions/listen"]),
        "times": swarm.pick([1, 2, 8]),
    }
    trouble: list[Step] = [
        StatusNext(**common, status=swarm.pick([400, 401, 404, 405, 409, 429, 500, 503, 200])),
        StatusNext(**common, status=swarm.pick([307, 308]), location=swarm.pick(["same", "path", "bad"])),
        RpcErrorNext(**common, code=swarm.pick([-32601, -32602, -32603, -32022, -32000])),
        HangNext(**common),
        DropNext(**common),
        DelayNext(**common, seconds=swarm.pick([0.2, 2.0, 15.0])),
        GarbageNext(
            **common, what=swarm.pick(["ids-and-retry", "ids-and-retry", "half-event", "stray-answer"])
        ),
        GarbageNext(**common, what="ids-and-retry"),
        GarbageNext(**{**common, "method": "subscriptions/listen"}, what="bare-acknowledgement"),
    ]
    ends: list[Step] = [
        EndStreams(at=scene.after(at + 0.3, 4.0), server=server.name, graceful=swarm.chance(0.5))
        for _ in range(swarm.random.randint(1, 3))
    ]
    change = ChangeTools(at=scene.after(at + 1.0, 4.0), server=server.name, tool=scene.tool(server))
    return flat(
        scene.calls(at, who, server, 1),
        swarm.pick(trouble),
        KillKey(at=at, who=who, server=server.name) if swarm.chance(0.5) else [],
        ends,
        change if swarm.chance(0.6) else [],
        scene.calls(scene.after(at + 1.0), who, server, 2, 6.0),
        scene.calls(at + 35.0, who, server, 1),
    )


def subscribed(scene: Scene) -> list[Step]:
    """What a subscription stands on goes, while updates come."""
    pair = scene.pair(lambda server: bool(server.manners.resources))
    if pair is None:
        return streams(scene)
    who, server = pair
    at = scene.when()
    swarm = scene.swarm
    uris = server.manners.resources
    steps: list[Step] = [
        Subscribe(
            id=f"s{scene.number()}",
            at=scene.after(at, 0.3),
            who=who,
            server=server.name,
            uri=swarm.pick(uris),
            live=swarm.chance(0.4),
            close_after=swarm.pick([None, 3.0, 30.0]),
            how=swarm.pick(["close", "block", "unsubscribe"]),
        )
        for _ in range(swarm.random.randint(1, 4))
    ]
    steps += [
        Announce(
            at=scene.after(at + 0.2, 6.0),
            server=server.name,
            what="update",
            name=uri,
            times=swarm.pick([1, 90]),
        )
        for uri in uris
        for _ in range(2)
    ]
    then = scene.after(at + 0.5, 2.0)
    gone: list[Step] = [
        WithdrawCaller(at=then, who=who, how=swarm.pick(["none", "other"])),
        Invalidate(at=then, who=who, server=server.name),
        ChangePlan(at=then, who=who, server=server.name, how="context", invalidate=swarm.chance(0.3)),
        KillKey(at=then, who=who, server=server.name),
        EvictKey(at=then, who=who, server=server.name),
        EndStreams(at=then, server=server.name),
        CutLink(at=then, server=server.name, which="all"),
    ]
    method = swarm.pick(
        ["resources/subscribe", "resources/unsubscribe", "subscriptions/listen", "initialize"]
    )
    refusal: dict[str, Any] = {
        "at": then,
        "server": server.name,
        "method": method,
        "times": swarm.pick([1, 6]),
    }
    refused: list[Step] = [
        RpcErrorNext(**refusal, code=swarm.pick([-32602, -32603, -32601])),
        StatusNext(**refusal, status=swarm.pick([401, 429, 503])),
        HangNext(**refusal),
        GarbageNext(**{**refusal, "method": "subscriptions/listen"}, what="bare-acknowledgement"),
    ]
    return flat(
        steps,
        swarm.pick(gone),
        swarm.pick(refused) if swarm.chance(0.5) else [],
        ListTools(at=scene.after(then), who=who, server=server.name, refresh=True),
        WithdrawCaller(at=then + 4.0, who=who, how="back"),
        scene.calls(then + 5.0, who, server, 1),
    )


def logs(scene: Scene) -> list[Step]:
    """A log level is set and said again to each new client; logs come, few and many."""
    pair = scene.pair(lambda server: server.manners.logs)
    if pair is None:
        return streams(scene)
    who, server = pair
    at = scene.when()
    swarm = scene.swarm
    level = AskServer(
        id=f"a{scene.number()}",
        at=at,
        who=who,
        server=server.name,
        what="log-level",
        name=swarm.pick(["debug", "error"]),
    )
    trouble: list[Step] = []
    if swarm.chance(0.4):
        refusal: dict[str, Any] = {"at": at + 0.8, "server": server.name, "method": "logging/setLevel"}
        trouble = [
            swarm.pick([RpcErrorNext(**refusal), StatusNext(**refusal, status=500), DropNext(**refusal)])
        ]
    said = [
        Announce(at=scene.after(at + 0.5, 3.0), server=server.name, what="log", times=swarm.pick([1, 5, 600]))
        for _ in range(3)
    ]
    return flat(
        level,
        trouble,
        KillKey(at=at + 1.0, who=who, server=server.name),
        scene.calls(at + 1.2, who, server, 2),
        said,
    )


def doubts(scene: Scene) -> list[Step]:
    """Answers get lost; where calls are recognised they are asked for again, unless something intervenes."""
    pair = scene.pair(lambda server: server.repeat == "recognised") or scene.some_pair()
    who, server = pair
    at = scene.when()
    swarm = scene.swarm
    lost = DropNext(
        at=at,
        server=server.name,
        times=swarm.pick([1, 1, 2, 4]),
        executed=swarm.chance(0.7),
        reset=swarm.chance(0.3),
    )
    if server.over_http and swarm.chance(0.3):
        lost = StatusNext(at=at, server=server.name, times=swarm.pick([1, 3]), status=503)  # type: ignore[assignment]
    calls = [
        scene.call(scene.after(at, 0.2), who, server, "echo", "sleep", deadline=swarm.pick([None, None, 0.6]))
        for _ in range(3)
    ]
    then = scene.after(at + 0.05, 0.6)
    between: list[Step] = [
        *(CancelCall(at=scene.after(then, 0.3), call=call.id) for call in calls),
        Invalidate(at=then, who=who, server=server.name),
        ChangeTools(at=then, server=server.name, tool=calls[0].tool),
        RpcErrorNext(at=then, server=server.name, code=-32601, times=2),
    ]
    if swarm.chance(0.1):
        between.append(ClosePool(at=then))
    return flat(
        scene.calls(at, who, server, 1), lost, calls, between[: swarm.random.randint(0, len(between))]
    )


def wants_more(scene: Scene) -> list[Step]:
    """A server wants more scopes, or another credential, again and again."""
    pair = scene.pair(lambda server: server.over_http and server.way.credential != "none")
    if pair is None:
        return credential_changes(scene)
    who, server = pair
    at = scene.when()
    swarm = scene.swarm
    steps: list[Step] = [
        StatusNext(
            at=scene.after(at),
            server=server.name,
            method=swarm.pick(
                ["tools/call", "tools/call", "tools/list", "initialize", "GET", "response", "DELETE"]
            ),
            times=swarm.pick([1, 1, 2, 4]),
            status=swarm.pick([401, 403]),
            challenge=swarm.pick(["bearer", "scopes", "scopes", "nonce"]),
            body=swarm.pick(["none", "json-rpc"]),
        )
        for _ in range(swarm.random.randint(1, 3))
    ]
    return flat(scene.calls(at, who, server, 1), steps, scene.calls(scene.after(at), who, server, 4))


def taken_up_again(scene: Scene) -> list[Step]:
    """An answer breaks off, and asking for its rest meets trouble of its own."""
    pair = scene.pair_that_resumes()
    if pair is None:
        return doubts(scene)
    who, server = pair
    at = scene.when()
    swarm = scene.swarm
    broken = BreakOffNext(
        at=at,
        server=server.name,
        times=swarm.pick([2, 4, 4]),
        retry=swarm.pick([None, 1, 100, 2000]),
        ends=swarm.pick([0, 1, 2, 6, 12]),
        replay=swarm.chance(0.3),
        cut=swarm.chance(0.5),
    )
    rest: dict[str, Any] = {"at": at, "server": server.name, "method": "GET", "times": swarm.pick([1, 3, 9])}
    likely = [401] if server.way.credential != "none" else [404, 400]
    trouble: list[Step] = [
        StatusNext(**rest, status=swarm.pick([400, 401, 404, 405, 429, 500, 503, 200, 204])),
        StatusNext(**rest, status=swarm.pick(likely), challenge=swarm.pick(["none", "bearer"])),
        GarbageNext(**rest, what=swarm.pick(["large-event", "large-after", "no-http", "ids-and-retry"])),
        StatusNext(
            **rest, status=swarm.pick([307, 308]), location=swarm.pick(["same", "path", "other-place"])
        ),
        DropNext(**rest),
        HangNext(**rest),
        DelayNext(**rest, seconds=0.5),
        BreakOffNext(**rest),
    ]
    calls = [
        scene.call(
            scene.after(at), who, server, "echo", "progress", "chatty",
            progress=swarm.pick(["takes", "none"]),
            deadline=swarm.pick([None, None, 1.5]), cancel_after=swarm.pick([None, None, None, 0.2]),
            live=swarm.chance(0.4),
        )
        for _ in range(3)
    ]  # fmt: skip
    then = scene.after(at + 0.05, 0.6)
    gone: list[Step] = [
        CancelCall(at=then, call=calls[0].id),
        WithdrawCaller(at=then, who=who),
        Invalidate(at=then, who=who, server=server.name),
        KillKey(at=then, who=who, server=server.name),
    ]
    return flat(
        broken,
        swarm.pick(trouble) if swarm.chance(0.8) else [],
        calls,
        swarm.pick(gone) if swarm.chance(0.6) else [],
        WithdrawCaller(at=at + 3.0, who=who, how="back"),
    )


def sent_elsewhere(scene: Scene) -> list[Step]:
    """A server redirects, throttles, or both, whatever is asked."""
    pair = scene.pair(lambda server: server.over_http)
    if pair is None:
        return streams(scene)
    who, server = pair
    at = scene.when()
    swarm = scene.swarm
    steps: list[Step] = []
    for _ in range(swarm.random.randint(1, 3)):
        method = swarm.pick(
            ["tools/call", "tools/call", "tools/list", "initialize", "server/discover", "GET"]
        )
        common: dict[str, Any] = {
            "at": scene.after(at),
            "server": server.name,
            "method": method,
            "times": swarm.pick([1, 2, 5]),
        }
        if swarm.chance(0.6):
            location = swarm.pick(["same", "path", "path", "other-place"])
            steps.append(StatusNext(**common, status=swarm.pick([307, 308]), location=location))
        else:
            after = swarm.pick([None, 0.0, 0.2, 4.0, 20.0])
            steps.append(StatusNext(**common, status=429, retry_after=after, retry_at=swarm.chance(0.3)))
    return flat(
        KillKey(at=at, who=who, server=server.name) if swarm.chance(0.3) else [],
        steps,
        scene.calls(at, who, server, 4, 1.5),
        ListTools(at=scene.after(at), who=who, server=server.name, refresh=True),
    )


DEEP_MOTIFS: Final[tuple[Motif, ...]] = (
    streams,
    subscribed,
    logs,
    doubts,
    wants_more,
    taken_up_again,
    sent_elsewhere,
)

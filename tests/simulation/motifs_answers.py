"""Motifs of answers: refused, in doubt, unreadable, none at all, asked back, broken off."""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.faulty_answers import Garbage
from tests.simulation.motifs import flat
from tests.simulation.motifs_server import link_breaks
from tests.simulation.steps import (
    Announce,
    AskClient,
    BreakOffNext,
    DropNext,
    EvictKey,
    FloodNotices,
    GarbageNext,
    HangNext,
    InputNext,
    KillKey,
    ListTools,
    RpcErrorNext,
    StallLink,
    StatusNext,
    Step,
    TruncateAnswer,
)

if TYPE_CHECKING:
    from tests.simulation.motifs import Motif, Scene


def refused_answers(scene: Scene) -> list[Step]:
    """Answers that prove that nothing ran, and may be followed by another attempt."""
    who, server = scene.some_pair()
    at = scene.when()
    swarm = scene.swarm
    common: dict[str, Any] = {
        "at": at,
        "server": server.name,
        "place": scene.place(server),
        "who": who if swarm.chance(0.3) else None,
        "times": swarm.pick([1, 1, 2, 4]),
    }
    # A WebSocket's upgrade and a child know no status of a call.
    if server.shared_stream or swarm.chance(0.3):
        code = swarm.pick([-32700, -32600, -32601, -32020, -32022, -32042, -32603, -32000, 7])
        trouble: Step = RpcErrorNext(
            **common, code=code, status=swarm.pick([200, 200, 400]), quotes=swarm.chance(0.5)
        )
    else:
        status = swarm.pick([401, 401, 403, 429, 429, 307, 308, 405, 406, 413, 415, 421])
        trouble = StatusNext(
            **common,
            status=status,
            challenge=swarm.pick(["none", "bearer", "scopes", "nonce"]) if status in {401, 403} else "none",
            retry_after=swarm.pick([None, 0.0, 1.0, 30.0]) if status == 429 else None,
            retry_at=swarm.chance(0.2),
            location=swarm.pick(["same", "path", "other-place", "bad", "none"])
            if status in {307, 308}
            else "none",
            body=swarm.pick(["none", "text", "json-rpc"]),
        )
    return flat(scene.calls(at, who, server, 1), trouble, scene.calls(scene.after(at), who, server, 3))


def doubtful_answers(scene: Scene) -> list[Step]:
    """Answers, or their absence, that leave open what ran."""
    who, server = scene.some_pair()
    at = scene.when()
    swarm = scene.swarm
    common: dict[str, Any] = {
        "at": at,
        "server": server.name,
        "times": swarm.pick([1, 1, 2]),
        "executed": swarm.chance(0.6),
    }
    trouble: Step = swarm.pick(
        [
            DropNext(**common, reset=swarm.chance(0.5)),
            TruncateAnswer(**common, after=swarm.pick([None, 0, 5, 60, 200])),
            StatusNext(**common, status=swarm.pick([500, 502, 503, 504, 404, 400, 202, 204, 200])),
            HangNext(**common),
        ]
    )
    return flat(
        scene.calls(at, who, server, 1),
        trouble,
        [
            scene.call(scene.after(at), who, server, deadline=swarm.pick([None, 2.0]))
            for _ in range(2)
        ],
    )  # fmt: skip


def unreadable(scene: Scene) -> list[Step]:
    """Answers that cannot be read, or are read with trouble."""
    who, server = scene.some_pair()
    at = scene.when()
    swarm = scene.swarm
    kinds = typing.get_args(Garbage)
    trouble: list[Step] = [
        GarbageNext(
            at=scene.after(at),
            server=server.name,
            method=swarm.pick(["tools/call", "tools/call", "tools/call", "tools/list", "initialize"]),
            what=swarm.pick(kinds),
            times=swarm.pick([1, 1, 3]),
            executed=swarm.chance(0.3),
        )
        for _ in range(swarm.random.randint(1, 3))
    ]
    if swarm.chance(0.15):
        trouble.append(GarbageNext(at=at, server=server.name, method="tools/list", what="many-tools"))
    again = ListTools(at=scene.after(at), who=who, server=server.name, refresh=True)
    return flat(
        scene.calls(at, who, server, 1), trouble, again, scene.calls(scene.after(at), who, server, 4, 2.0)
    )


def silent_server(scene: Scene) -> list[Step]:
    """A server takes requests and answers none: deadlines in a row, or calls given up, make it suspect."""
    who, server = scene.some_pair()
    at = scene.when()
    swarm = scene.swarm
    silence: Step = (
        HangNext(
            at=at, server=server.name, method=swarm.pick(["tools/call", "*"]), times=swarm.pick([3, 6, 20])
        )
        if swarm.chance(0.5)
        else StallLink(at=at, server=server.name, direction="to-client", seconds=300.0, blackhole=True)
    )
    calls = [
        scene.call(
            scene.after(at + 0.2, 1.0), who, server, "echo",
            deadline=swarm.pick([0.5, 2.0]), cancel_after=swarm.pick([None, None, 1.0]),
        )
        for _ in range(4)
    ]  # fmt: skip
    return flat(scene.calls(at, who, server, 1), silence, calls, scene.calls(at + 12.0, who, server, 2))


def broken_off(scene: Scene) -> list[Step]:
    """Answers whose event stream ends early and can be taken up again, perhaps."""
    pair = scene.pair_that_resumes()
    if pair is None:
        return link_breaks(scene)
    who, server = pair
    at = scene.when()
    swarm = scene.swarm
    steps: list[Step] = [
        BreakOffNext(
            at=at,
            server=server.name,
            times=swarm.pick([1, 3]),
            method=swarm.pick(["tools/call", "tools/call", "tools/call", "tools/list"]),
            retry=swarm.pick([None, 1, 200, 3000]),
            ends=swarm.pick([0, 0, 1, 3, 8]),
            replay=swarm.chance(0.3),
            cut=swarm.chance(0.5),
        )
    ]
    trouble: dict[str, Any] = {"at": at, "server": server.name, "method": "GET"}
    if swarm.chance(0.3):
        steps.append(StatusNext(**trouble, status=swarm.pick([401, 404, 405, 500, 200])))
    elif swarm.chance(0.2):
        steps.append(DropNext(**trouble))
    calls = [
        scene.call(
            scene.after(at), who, server, "echo", "sleep", "progress",
            deadline=swarm.pick([None, 2.0]), cancel_after=swarm.pick([None, None, 0.1]),
        )
        for _ in range(3)
    ]  # fmt: skip
    return flat(steps, calls)


def asks_by_itself(scene: Scene) -> list[Step]:
    """A server asks its clients, and takes it back; it says things nobody asked for."""
    who, server = scene.some_pair()
    at = scene.when()
    swarm = scene.swarm
    methods = [
        "ping",
        "roots/list",
        "sampling/createMessage",
        "elicitation/create",
        "elicitation-url",
        "unknown",
        "bare",
    ]
    answered = {"roots": "roots/list", "sample": "sampling/createMessage", "url": "elicitation-url"}
    known = [answered.get(each, "elicitation/create") for each in server.way.answers]
    steps: list[Step] = [
        AskClient(
            at=scene.after(at + 0.3, 1.0),
            server=server.name,
            place=scene.place(server),
            method=swarm.pick(known if known and swarm.chance(0.6) else methods),
            withdraw_after=swarm.pick([None, None, 0.0, 0.2]),
            times=swarm.weighted({1: 8, 20: 1, 90: 1}),
        )
        for _ in range(swarm.random.randint(1, 4))
    ]
    said = ["resources", "prompts", "log", "elicitation-complete", "stray-progress", "unknown"]
    if "url" in server.way.answers:
        said += ["elicitation-complete"] * 4
    for _ in range(swarm.random.randint(0, 3)):
        what: Any = swarm.pick(said)
        steps.append(
            Announce(at=scene.after(at + 0.3), server=server.name, what=what, times=swarm.pick([1, 3, 400]))
        )
    return flat(scene.calls(at, who, server, 2), steps, scene.calls(scene.after(at + 0.3), who, server, 1))


def many_questions(scene: Scene) -> list[Step]:
    """More questions at once than a host answers at a time, and the client ends over them."""
    pair = scene.pair(lambda server: server.way.answering in {"slowly", "never"} and bool(server.way.answers))
    if pair is None:
        return asks_by_itself(scene)
    who, server = pair
    at = scene.when()
    swarm = scene.swarm
    then = round(at + 0.5, 4)
    named = {"roots": "roots/list", "sample": "sampling/createMessage", "url": "elicitation-url"}
    methods: list[Any] = [named.get(each, "elicitation/create") for each in server.way.answers]
    steps: list[Step] = [
        AskClient(
            at=then if swarm.chance(0.7) else scene.after(then),
            server=server.name,
            method=swarm.pick(methods),
            withdraw_after=swarm.pick([None, None, None, 0.1]),
        )
        for _ in range(swarm.random.randint(3, 8))
    ]
    over = swarm.pick([KillKey, EvictKey, None])
    if over is not None:
        steps.append(over(at=scene.after(then + 0.1), who=who, server=server.name))
    asking = scene.call(at + 0.4, who, server, "ask", "rounds", cancel_after=swarm.pick([None, 0.4]))
    return flat(scene.calls(at, who, server, 1), asking, steps, scene.calls(then + 3.0, who, server, 1))


def floods(scene: Scene) -> list[Step]:
    """Notifications by the hundred before an answer."""
    who, server = scene.some_pair()
    at = scene.when()
    what: Any = scene.swarm.pick(["progress", "odd-progress", "log", "list-changed", "comments"])
    lines = scene.swarm.pick([3, 40, 400])
    flood = FloodNotices(at=at, server=server.name, what=what, lines=lines, times=scene.swarm.pick([1, 2]))
    calls = [scene.call(scene.after(at), who, server, progress="takes") for _ in range(2)]
    return flat(scene.calls(at, who, server, 1), flood, calls)


def input_wanted(scene: Scene) -> list[Step]:
    """A stateless server answers with questions, also where it may not."""
    pair = scene.pair(lambda server: server.era != "handshake")
    if pair is None:
        return asks_by_itself(scene)
    who, server = pair
    at = scene.when()
    swarm = scene.swarm
    steps: list[Step] = [
        InputNext(
            at=at,
            server=server.name,
            method=swarm.pick(["tools/call", "tools/call", "tools/call", "tools/list", "prompts/get"]),
            ask=swarm.pick(["form", "url", "sample", "roots", "unknown", "nothing"]),
            state=swarm.chance(0.6),
            times=swarm.pick([1, 1, 2, 12]),
        )
        for _ in range(swarm.random.randint(1, 2))
    ]
    if swarm.chance(0.4):
        steps.append(StatusNext(at=at, server=server.name, status=swarm.pick([401, 429, 500]), times=1))
    return flat(steps, scene.calls(at, who, server, 3))


def other_version(scene: Scene) -> list[Step]:
    """A server speaks another version from now on: refused calls move to a new client."""
    who, server = scene.some_pair()
    at = scene.when()
    then = at + 0.5
    return flat(
        scene.calls(at, who, server, 1),
        RpcErrorNext(
            at=then,
            server=server.name,
            method=scene.swarm.pick(["tools/call", "tools/call", "*", "tools/list", "resources/list"]),
            code=-32022,
            status=scene.swarm.pick([200, 400]),
            times=scene.swarm.pick([1, 2, 6]),
        ),
        scene.calls(scene.after(then), who, server, 3),
    )


ANSWER_MOTIFS: Final[tuple[Motif, ...]] = (
    refused_answers,
    doubtful_answers,
    unreadable,
    silent_server,
    broken_off,
    asks_by_itself,
    many_questions,
    floods,
    input_wanted,
    other_version,
)

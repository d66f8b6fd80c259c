"""The plain workload, and motifs of those who ask: crowds, strangers, the late, the impatient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.simulation.motifs import flat
from tests.simulation.steps import (
    Announce,
    AskServer,
    Call,
    CancelCall,
    DropTools,
    KillKey,
    ListTools,
    Refresh,
    RestartServer,
    Step,
    Subscribe,
    Warm,
)

if TYPE_CHECKING:
    from tests.simulation.motifs import Motif, Scene
    from tests.simulation.world import ServerSpec


def workload(scene: Scene, count: int) -> list[Step]:
    """Calls and lists, spread over the story."""
    swarm = scene.swarm
    steps: list[Step] = []
    for _ in range(count):
        who, server = scene.some_pair()
        at = scene.when()
        if swarm.chance(0.15):
            several = None if swarm.chance(0.3) else server.name
            steps.append(ListTools(at=at, who=who, server=several, refresh=swarm.chance(0.3)))
        else:
            steps.append(scene.call(at, who, server, binding=scene.binding()))
    return steps


def crowd(scene: Scene) -> list[Step]:
    """More calls at once than there are places, and perhaps than may wait."""
    who, server = scene.some_pair()
    at = scene.when()
    limits = scene.world.limits
    enough = limits.get("max_operations", 4) + limits.get("max_waiting", 4) + 2
    several = scene.swarm.chance(0.4)
    return [
        scene.call(
            scene.after(at, 0.2),
            scene.swarm.pick(scene.world.people).name if several else who,
            server, "sleep", "echo",
            deadline=scene.swarm.pick([None, None, 1.5]),
        )
        for _ in range(min(enough, 12))
    ]  # fmt: skip


def inside(scene: Scene) -> list[Step]:
    """Calls that are made from inside a running one."""
    who, server = scene.some_pair()
    at = scene.when()
    outer = scene.call(at, who, server, "sleep", args={"seconds": 2.0})
    steps: list[Step] = [outer]
    count = scene.swarm.random.randint(1, 3)
    steps += [scene.call(scene.after(at + 0.3, 1.0), who, server, inside=outer.id) for _ in range(count)]
    return steps


def stranger(scene: Scene) -> list[Step]:
    """Somebody holds a tool that was listed for somebody else, or names nobody."""
    who, server = scene.some_pair()
    at = scene.when()
    others = [*scene.others(who), "nobody"]
    return [
        scene.call(
            scene.after(at), who, server, caller=scene.swarm.pick(others), live=scene.swarm.chance(0.5)
        )
        for _ in range(scene.swarm.random.randint(1, 2))
    ]


def vague(scene: Scene) -> list[Step]:
    """Whoever names least of an identity asks for tools of servers that are keyed on more."""
    names = [person.name for person in scene.world.people if not person.principal] or [
        scene.world.people[-1].name
    ]
    at = scene.when()
    who, server = scene.swarm.pick(names), scene.swarm.pick(scene.world.servers)
    return [ListTools(at=at, who=who), scene.call(scene.after(at), who, server, binding="listed")]


def late(scene: Scene) -> list[Step]:
    """Deadlines that have passed, or pass at some stage of the call."""
    who, server = scene.some_pair()
    at = scene.when()
    steps: list[Step] = []
    for _ in range(scene.swarm.random.randint(1, 4)):
        deadline = scene.swarm.pick([-1.0, 0.0, 0.0005, 0.01, 0.2, 1.0])
        seconds = {"seconds": scene.swarm.pick([0.1, 3.0])}
        steps.append(scene.call(scene.after(at), who, server, "sleep", args=seconds, deadline=deadline))
    if scene.swarm.chance(0.3):
        steps.append(ListTools(at=scene.after(at), who=who, refresh=True, deadline=0.002))
    return steps


def gives_up(scene: Scene) -> list[Step]:
    """Callers whose scope is cancelled at some stage of the call."""
    who, server = scene.some_pair()
    at = scene.when()
    steps: list[Step] = []
    for _ in range(scene.swarm.random.randint(1, 5)):
        after = scene.swarm.pick([0.0, 0.0003, 0.001, 0.002, 0.01, 0.3])
        steps.append(scene.call(scene.after(at), who, server, "sleep", cancel_after=after))
    if scene.swarm.chance(0.4):
        steps.append(ListTools(at=at, who=who, cancel_after=scene.swarm.pick([0.0, 0.001, 0.01])))
    return steps


def withdrawn_call(scene: Scene) -> list[Step]:
    """The host withdraws calls: some wait, some are on their way."""
    who, server = scene.some_pair()
    at = scene.when()
    steps: list[Step] = []
    for _ in range(scene.swarm.random.randint(1, 3)):
        call = scene.call(scene.after(at, 0.1), who, server, "sleep", args={"seconds": 1.0})
        steps += [call, CancelCall(at=scene.after(call.at, 0.5), call=call.id)]
    return steps


def careless(scene: Scene) -> list[Step]:
    """Arguments that are none, names that are not there, tools that fail."""
    who, server = scene.some_pair()
    at = scene.when()
    return [
        scene.call(at, who, server, bad_args=True),
        scene.call(scene.after(at), who, server, "fail", raise_for_error=True),
        scene.call(scene.after(at), who, server, "error", "address", "strange"),
        scene.call(scene.after(at), who, server, "structured", args={"bad": True}),
    ][scene.swarm.random.randrange(4) :]


def lists_again(scene: Scene) -> list[Step]:
    """Lists, refreshes and warm-ups at once, with calls between."""
    who, server = scene.some_pair()
    at = scene.when()
    steps: list[Step] = [
        ListTools(
            at=scene.after(at),
            who=who,
            server=server.name,
            refresh=scene.swarm.chance(0.5),
            live=scene.swarm.chance(0.3),
        )
        for _ in range(scene.swarm.random.randint(1, 3))
    ]
    if scene.swarm.chance(0.5):
        steps.append(
            Refresh(at=scene.after(at), who=who, server=server.name if scene.swarm.chance(0.5) else None)
        )
    if scene.swarm.chance(0.5):
        steps.append(
            Warm(at=scene.after(at), who=who, servers=(server.name,) if scene.swarm.chance(0.5) else ())
        )
    return flat(steps, scene.calls(at, who, server, 2))


def forgetful(scene: Scene) -> list[Step]:
    """Tools are dropped, so that keys are forgotten, and asked for anew."""
    who, server = scene.some_pair()
    at = scene.when()
    later = at + scene.swarm.pick([0.1, 5.0, 400.0])
    everybody = None if scene.swarm.chance(0.3) else who
    return flat(
        scene.calls(at, who, server, 1),
        DropTools(at=scene.after(at), who=everybody),
        scene.calls(later, who, server, 1),
    )


def _has_offers(server: ServerSpec) -> bool:
    return bool(server.manners.resources)


def _over_requests(server: ServerSpec) -> bool:
    return _has_offers(server) and server.era != "handshake" and server.over_http


_BESIDE: Final = ("resources", "templates", "read", "prompts", "prompt", "complete", "log-level")


def beside_tools(scene: Scene) -> list[Step]:
    """A bound server is asked for resources, prompts, completions; also one that has none."""
    pair = scene.pair(_over_requests) if scene.swarm.chance(0.3) else None
    pair = pair or (scene.pair(_has_offers) if scene.swarm.chance(0.9) else None)
    who, server = pair or scene.some_pair()
    at = scene.when()
    steps: list[Step] = []
    for _ in range(scene.swarm.random.randint(1, 5)):
        what: Any = scene.swarm.pick(_BESIDE)
        names = {
            "read": [*server.manners.resources, "doc://none"],
            "prompt": [*server.manners.prompts, "none"],
            "log-level": ["debug", "error", "shout"],
        }.get(what, [""])
        caller = scene.swarm.pick([*scene.others(who), "nobody"]) if scene.swarm.chance(0.08) else None
        steps.append(
            AskServer(
                id=f"a{scene.number()}",
                at=scene.after(at),
                who=who,
                server=server.name,
                what=what,
                name=scene.swarm.pick(names),
                binding=scene.swarm.weighted({"latest": 5, "first": 1, "listed": 2}),
                caller=caller,
                live=scene.swarm.chance(0.2),
                deadline=scene.swarm.pick([None, None, None, 0.05]),
                cancel_after=scene.swarm.pick([None, None, None, 0.002]),
                progress=scene.swarm.pick(["none", "none", "takes", "raises"]),
                careless=scene.swarm.chance(0.12),
            )
        )
    return steps


def subscriptions(scene: Scene) -> list[Step]:
    """Resources are subscribed to, change, and are left; clients end meanwhile."""
    pair = scene.pair(_has_offers)
    if pair is None:
        return beside_tools(scene)
    who, server = pair
    at = scene.when()
    steps: list[Step] = []
    uris = [*server.manners.resources]
    for _ in range(scene.swarm.random.randint(1, 3)):
        uri = scene.swarm.pick(uris)
        steps.append(
            Subscribe(
                id=f"s{scene.number()}",
                at=scene.after(at),
                who=who,
                server=server.name,
                uri="doc://none" if scene.swarm.chance(0.05) else uri,
                live=scene.swarm.chance(0.2),
                close_after=scene.swarm.pick([None, 0.01, 1.0, 20.0]),
                how=scene.swarm.pick(["close", "block", "unsubscribe"]),
            )
        )
        steps += [
            Announce(
                at=scene.after(at + 0.1, 3.0),
                server=server.name,
                what="update",
                name=uri,
                times=scene.swarm.pick([1, 1, 3, 100]),
            )
            for _ in range(scene.swarm.random.randint(1, 3))
        ]
    end = scene.after(at + 0.2, 2.0)
    if scene.swarm.chance(0.3):
        steps.append(KillKey(at=end, who=who, server=server.name))
    elif scene.swarm.chance(0.3):
        steps.append(RestartServer(at=end, server=server.name, down=scene.swarm.pick([0.0, 2.0])))
    return steps


def questions(scene: Scene) -> list[Step]:
    """Tools that ask their client, in the middle or in rounds."""
    pair = scene.pair(lambda server: any(tool.kind in {"ask", "rounds"} for tool in server.tools))
    if pair is None:
        return careless(scene)
    who, server = pair
    at = scene.when()
    steps: list[Step] = []
    for _ in range(scene.swarm.random.randint(1, 3)):
        call: Call = scene.call(scene.after(at), who, server, "ask", "rounds")
        steps.append(call)
        if scene.swarm.chance(0.2):
            steps.append(CancelCall(at=scene.after(call.at), call=call.id))
    return steps


WORK_MOTIFS: Final[tuple[Motif, ...]] = (
    crowd, inside, stranger, vague, late, gives_up, withdrawn_call, careless, lists_again, forgetful,
    beside_tools, subscriptions, questions,
)  # fmt: skip

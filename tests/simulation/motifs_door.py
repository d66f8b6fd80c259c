"""Motifs around the door of a world: fills, artifacts, hooks, runs, names, other configurations."""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.door_aloud import ALOUD
from tests.simulation.door_vault import HOWS
from tests.simulation.host_door import ChangeSchema as _ChangeSchema
from tests.simulation.host_door import ChangeShelf as _ChangeShelf
from tests.simulation.host_door import ChangeVault as _ChangeVault
from tests.simulation.host_door import ReconfigureDoor as _ReconfigureDoor
from tests.simulation.motifs import flat
from tests.simulation.steps import (
    Acknowledge,
    BeginRun,
    ChangeHook,
    ChangeSchema,
    ChangeShelf,
    ChangeTools,
    ChangeVault,
    ClosePool,
    DoorCall,
    DoorList,
    EndRun,
    ExpireSession,
    PutArtifact,
    ReconfigureDoor,
    RestartServer,
    ResumeRun,
    Step,
    UseTools,
    WithdrawCaller,
)
from tests.simulation.work_door import Spelling, Which
from tests.simulation.world_door import HookMood

if TYPE_CHECKING:
    from tests.simulation.motifs import Motif, Scene
    from tests.simulation.world import ServerSpec
    from tests.simulation.world_door import LocalSpec

MODELS: Final = ("messages", "openai-chat", "openai-responses", "gemini", "mcp", "plain")


def _variants(kind: type[Any], member: str) -> tuple[Any, ...]:
    return typing.get_args(typing.get_type_hints(kind)[member])


def door_workload(scene: Scene, count: int) -> list[Step]:
    """Calls through the door, spread over the story."""
    return [some_call(scene, scene.when()) for _ in range(count)]


# ------------------------------------------------------------------------------------------ calls


def some_call(scene: Scene, at: float, who: str | None = None, **members: Any) -> DoorCall:
    """A call of any tool."""
    swarm = scene.swarm
    share = swarm.random.random()
    if share < 0.4:
        return local_call(scene, at, who, **members)
    if share < 0.7 and _vaults(scene):
        return vault_call(scene, at, who, **members)
    person, server = scene.some_pair()
    tool = scene.tool(server)
    members.setdefault("args", scene.arguments(server, tool))
    return door_call(scene, at, who or person, server.name, tool, **members)


def door_call(scene: Scene, at: float, who: str, server: str | None, tool: str, **members: Any) -> DoorCall:
    """A call of a tool, in a way by chance."""
    swarm = scene.swarm
    if "way" not in members:
        members["way"] = swarm.weighted({"dispatch": 5, "toolset": 5, "execute": 0.7})
    if swarm.has("models", 0.5) and swarm.chance(0.4) and members["way"] != "execute":
        members.setdefault("model", swarm.pick(MODELS))
    if swarm.chance(0.05):
        members.setdefault("shape", swarm.pick(_variants(DoorCall, "shape")))
    if swarm.chance(0.1):
        members.setdefault("progress", swarm.pick(["takes", "raises"]))
    if "live" not in members and swarm.has("live at the door", 0.4):
        members["live"] = swarm.chance(0.4)
    if "deadline" not in members and swarm.chance(0.08):
        members["deadline"] = swarm.pick([-1.0, 0.0, 0.001, 0.05, 0.5])
    if "cancel_after" not in members and swarm.chance(0.08):
        members["cancel_after"] = swarm.pick([0.0, 0.001, 0.02, 0.3])
    return DoorCall(id=f"d{scene.number()}", at=at, who=who, server=server, tool=tool, **members)


def _vaults(scene: Scene) -> list[ServerSpec]:
    return [one for one in scene.world.servers if any(tool.kind == "vault" for tool in one.tools)]


def vault_call(scene: Scene, at: float, who: str | None = None, **members: Any) -> DoorCall:
    """A call of a tool whose arguments the host fills, wants and hides."""
    swarm = scene.swarm
    server = swarm.pick(_vaults(scene))
    args: dict[str, Any] = {"how": swarm.pick(HOWS)} if swarm.chance(0.8) else {}
    more: dict[str, Any] = {
        "secret": "s", "password": "p", "auth": {"key": "k", "other": 1},
        "note": swarm.pick([1, "x", [{"0": 1}]]),
        "count": swarm.pick([1, 3, 9, "x"]), "word": swarm.pick(["abc", "A", "toolongforit"]),
        "list": swarm.pick([[1], [], [1, "x"], [1, 2, 3, 4]]), "size": swarm.pick([1, -1, 1.5]), "strange": 1,
    }  # fmt: skip
    args |= {name: value for name, value in more.items() if swarm.chance(0.06)}
    if swarm.chance(0.3):
        members.setdefault("ref", swarm.pick(typing.get_args(Which)))
    if swarm.chance(0.12):
        members.setdefault("sets", swarm.pick(["account", "token"]))
        members.setdefault("spelled", swarm.pick(typing.get_args(Spelling)))
    members.setdefault("args", args)
    vague = [one.name for one in scene.world.people if not one.principal or not one.tenant]
    if who is None and swarm.chance(0.15):
        who = swarm.pick([*vague, "nobody"])
    who = who or swarm.pick(scene.world.people).name
    vaults = [tool.name for tool in server.tools if tool.kind == "vault"]
    tool = "vault" if swarm.chance(0.5) else swarm.pick(vaults)
    return door_call(scene, at, who, server.name, tool, **members)


def local_call(
    scene: Scene, at: float, who: str | None = None, kind: str | None = None, **members: Any
) -> DoorCall:
    """A call of a tool of the host's own."""
    swarm = scene.swarm
    assert scene.world.door is not None
    tools = [tool for tool in scene.world.door.tools if kind in {None, tool.kind}]
    tool = swarm.pick(tools or scene.world.door.tools)
    members.setdefault("args", _local_arguments(scene, tool))
    if tool.kind in {"takes", "shelf", "presents"}:
        members.setdefault("ref", swarm.pick(typing.get_args(Which)))
    if tool.kind == "filled" and swarm.chance(0.2):
        members.setdefault("sets", swarm.pick(["account", "token"]))
        members.setdefault("spelled", swarm.pick(typing.get_args(Spelling)))
    if "args" not in members and tool.kind in {"says", "slow", "raises", "structured", "blocks", "needs"}:
        padding = swarm.random.choices((0, 1, 40, 900), (20, 1, 1, 1))[0]
        members["args"] = {**_local_arguments(scene, tool), **({"padding": padding} if padding else {})}
    who = who or (swarm.pick(scene.world.people).name if swarm.chance(0.9) else "nobody")
    return door_call(scene, at, who, None, tool.name, **members)


def _a_kind(scene: Scene, *kinds: str) -> str | None:
    """One of these kinds of tools of the host's own that this world has; None where it has none."""
    assert scene.world.door is not None
    there = [tool.kind for tool in scene.world.door.tools if tool.kind in kinds]
    return scene.swarm.pick(there) if there else None


def _local_arguments(scene: Scene, tool: LocalSpec) -> dict[str, Any]:
    swarm = scene.swarm
    pick = swarm.pick
    match tool.kind:
        case "slow":
            return {"seconds": pick([0.01, 0.5, 3.0]), "steps": pick([1, 3, 70]), "odd": swarm.chance(0.3)}
        case "typed":
            return pick((
                {}, {"count": 3, "colour": "blue", "where": {"name": "here"}}, {"count": 99}, {"colour": "x"},
                {"where": {"height": 1}}, {"many": [1, 2.5]}, {"way": "down", "where": None}, {"many": ["x"]},
                {"unheard": 1}, {"count": "1"},
            ))  # fmt: skip
        case "raises":
            return {"size": pick([0, 20_000])}
        case "refuses":
            return pick([{}, {"how": "invalid"}])
        case "odd":
            hows = (
                "none", "object", "set", "nan", "bytes", "list", "number", "struct", "result", "no-json",
                "legacy", "other-call",
            )  # fmt: skip
            return {"how": pick(hows)}
        case "structured":
            return pick([{}, {"bad": True}, {"none": True}])
        case "large":
            return pick([
                {"size": 10}, {"size": 6000}, {"size": 90_000}, {"size": 60, "rows": 200}, {"fails": 1},
                {"size": 3000, "of": '"'}, {"size": 40_000, "of": "ä"},
            ])  # fmt: skip
        case "needs" | "asks" | "filled":
            aloud = ("text", "raises", "refuses", "key", "puts", "calls", "blocks", "escaped")
            return {"how": pick(aloud) if swarm.chance(0.5) else pick(ALOUD)}
        case "puts":
            return pick([
                {}, {"size": 9000}, {"digest": True}, {"kind": " "}, {"kind": "note"}, {"parent": "art_x"},
                {"size": 3_000_000},
            ])  # fmt: skip
        case "shelf":
            return {"verb": pick(["get", "head", "delete", "list"])}
        case "calls":
            calls: dict[str, Any] = {"calls": _inner_calls(scene), "at_once": swarm.chance(0.3)}
            return {**calls, "strict": True} if swarm.chance(0.3) else calls
        case "presents":
            label: dict[str, Any] = {"label": "of chance"} if swarm.chance(0.3) else {}
            return {"ref": "art_" + "A" * 22, "as": pick(["table", "chart", "poem"]), **label}
        case "own-class":
            return {"how": pick(["", "refuses", "raises", "rubbish"])}
        case "wide":
            return {"wide": swarm.random.randrange(10**6)}
        case "at-once":
            return pick([{}, {"later": True}, {"object": True}])
    return {}


def _inner_calls(scene: Scene) -> list[dict[str, Any]]:
    swarm = scene.swarm
    assert scene.world.door is not None
    calls: list[dict[str, Any]] = []
    for _ in range(swarm.random.randint(1, 3)):
        if swarm.chance(0.5):
            _, server = scene.some_pair()
            tool = scene.tool(server)
            calls.append({"server": server.name, "tool": tool, "args": scene.arguments(server, tool)})
        else:
            local = swarm.pick(scene.world.door.tools)
            args = {} if local.kind == "calls" else _local_arguments(scene, local)
            if local.kind == "calls" and swarm.chance(0.7):
                args = {"calls": [{"tool": local.name}]}
            calls.append({"tool": local.name, "args": args})
    return calls


# ------------------------------------------------------------------------------------------ motifs


def fills_of_others(scene: Scene) -> list[Step]:
    """Several people call the filled tool at once, while credentials and identities change."""
    if not _vaults(scene):
        return []
    swarm = scene.swarm
    at = scene.when()
    steps: list[Step] = []
    for _ in range(swarm.random.randint(2, 5)):
        who = swarm.pick(scene.world.people).name
        live = swarm.chance(0.6)
        steps.append(vault_call(scene, scene.after(at, 0.3), who, live=live, sets="", ref="none"))
        if live and swarm.chance(0.5):
            how: Any = swarm.pick(["other", "none", "raises", "other"])
            steps.append(WithdrawCaller(at=scene.after(at, 0.3), who=who, how=how))
            steps.append(WithdrawCaller(at=scene.after(at + 0.3, 0.5), who=who, how="back"))
    if swarm.chance(0.6):
        steps.append(ChangeVault(at=scene.after(at, 0.3), who=None, how="new"))
    return steps


def vault_moods(scene: Scene) -> list[Step]:
    """Whoever vends credentials has a mood while somebody needs one."""
    swarm = scene.swarm
    at = scene.when()
    who = swarm.pick(scene.world.people).name
    mood = swarm.pick(_variants(_ChangeVault, "how")) if swarm.chance(0.8) else "several"
    calls: list[Step] = [
        local_call(scene, scene.after(at, 0.4), who, kind=_a_kind(scene, "needs", "asks", "filled"))
        for _ in range(2)
    ]
    if _vaults(scene):
        calls.append(vault_call(scene, scene.after(at, 0.4), who))
    return flat(
        ChangeVault(at=at, who=who if swarm.chance(0.6) else None, how=mood),
        calls,
        ChangeVault(at=scene.after(at + 0.5, 2.0), who=None, how="good"),
    )


def sets_filled(scene: Scene) -> list[Step]:
    """A model gives values for what the host fills, in every spelling."""
    if not _vaults(scene):
        return []
    swarm = scene.swarm
    at = scene.when()
    return [
        vault_call(
            scene, scene.after(at), None, sets=swarm.pick(["account", "token"]),
            spelled=swarm.pick(typing.get_args(Spelling)),
        )
        for _ in range(3)
    ]  # fmt: skip


def schema_changes(scene: Scene) -> list[Step]:
    """A server changes what its filled tool declares, between calls."""
    if not _vaults(scene):
        return []
    swarm = scene.swarm
    server = swarm.pick(_vaults(scene))
    at = scene.when()
    who = swarm.pick(scene.world.people).name
    how = swarm.pick(_variants(_ChangeSchema, "how"))
    steps: list[Step] = [
        DoorList(at=at, who=who),
        vault_call(scene, scene.after(at, 0.2), who),
        ChangeSchema(
            at=scene.after(at + 0.2, 0.5), server=server.name, how=how, notify=swarm.chance(0.7),
            seed=swarm.random.randrange(1000),
        ),
        vault_call(scene, scene.after(at + 0.5, 0.5), who, sets=swarm.pick(["", "token"])),
        DoorList(at=scene.after(at + 1.5, 1.0), who=who, refresh=True),
        vault_call(scene, scene.after(at + 3.0, 0.5), who, sets=swarm.pick(["", "account"])),
    ]  # fmt: skip
    if swarm.chance(0.5):
        argument = swarm.pick([None, "token", "unfilled"])
        steps.append(Acknowledge(at=scene.after(at + 3.5, 0.5), server=server.name, argument=argument))
        steps.append(DoorList(at=scene.after(at + 4.2, 0.3), who=who, refresh=True))
        steps.append(vault_call(scene, scene.after(at + 6.0, 0.3), who, sets="account"))
    if swarm.chance(0.5):
        steps.append(ChangeSchema(at=scene.after(at + 6.5, 1.0), server=server.name, how="restore"))
        steps.append(vault_call(scene, scene.after(at + 9.0, 1.0), who))
    return steps


def artifacts_change_hands(scene: Scene) -> list[Step]:
    """Artifacts are put by one, and their references are passed by him and by others."""
    swarm = scene.swarm
    at = scene.when()
    who = swarm.pick(scene.world.people).name
    steps: list[Step] = [
        PutArtifact(
            at=scene.after(at, 0.05), who=who, kind=swarm.weighted({"doc": 6, "note": 2, " ": 0.5}),
            size=swarm.pick([0, 100, 5000, 70_000]), digest=swarm.chance(0.4),
            parent=swarm.pick([None, None, who, *scene.others(who)]),
            lives=swarm.pick([None, None, 0.5, -1.0, 20.0]), read_after=swarm.pick([None, 0.1, 1.0]),
        ),
        local_call(scene, scene.after(at, 0.1), who, kind="puts"),
        local_call(scene, scene.after(at, 0.1), who, kind="large"),
    ]  # fmt: skip
    for _ in range(swarm.random.randint(2, 5)):
        caller = who if swarm.chance(0.5) else swarm.pick(scene.world.people).name
        ref = swarm.pick(typing.get_args(Which))
        when = scene.after(at + 0.2, swarm.pick([0.5, 3.0]))
        if swarm.chance(0.5) and _vaults(scene):
            steps.append(vault_call(scene, when, caller, ref=ref))
        else:
            kind = swarm.pick(["takes", "shelf", "presents", "takes"])
            steps.append(local_call(scene, when, caller, kind=kind, ref=ref))
    return steps


def shelf_moods(scene: Scene) -> list[Step]:
    """The store of artifacts has a mood while somebody puts and passes some."""
    swarm = scene.swarm
    at = scene.when()
    who = swarm.pick(scene.world.people).name
    mood = swarm.pick((*_variants(_ChangeShelf, "how"), "damaged"))
    again = swarm.pick([None, 0.2])
    steps: list[Step] = [
        PutArtifact(at=at, who=name, read_after=again) for name in (who, *scene.others(who)[:1])
    ]
    steps.append(ChangeShelf(at=round(at + 0.05, 4), how=mood))
    refs = ("own", "foreign", "unknown", "malformed")
    for kind in ("takes", "puts", "shelf", "large", "presents"):
        when = scene.after(at + 0.06, 0.4)
        steps.append(local_call(scene, when, who, kind=kind, ref=swarm.pick(refs)))
    if _vaults(scene):
        steps.append(vault_call(scene, scene.after(at + 0.06, 0.4), who, ref=swarm.pick(refs)))
    if mood == "damaged":
        plain: dict[str, Any] = {"shape": "object", "deadline": None, "cancel_after": None, "live": False}
        steps.append(
            local_call(
                scene, round(at + 0.07, 4), who, kind="shelf", args={"verb": "get"}, ref="own",
                way="dispatch", model="", **plain,
            )
        )  # fmt: skip
    steps.append(ChangeShelf(at=scene.after(at + 0.6, 1.0), how="good"))
    return steps


def hook_moods(scene: Scene) -> list[Step]:
    """A hook has a mood while calls go through."""
    swarm = scene.swarm
    at = scene.when()
    number = swarm.random.randrange(4)
    calls: list[Step] = [some_call(scene, scene.after(at, 0.4)) for _ in range(3)]
    return flat(
        ChangeHook(at=at, hook=number, how=swarm.pick(typing.get_args(HookMood))),
        calls,
        ChangeHook(at=scene.after(at + 0.5, 2.0), hook=number, how="passes"),
    )


def _of_run(scene: Scene, at: float, who: str, run: str) -> list[Step]:
    return [
        some_call(scene, scene.after(at, 0.5), who, way="run", run=run, live=False)
        for _ in range(scene.swarm.random.randint(1, 3))
    ]


def runs_pause(scene: Scene) -> list[Step]:
    """A run calls, is paused, and goes on, perhaps for somebody else, perhaps from a changed checkpoint."""
    swarm = scene.swarm
    at = scene.when()
    run = f"run-{scene.number()}"
    who = swarm.pick(scene.world.people).name if swarm.chance(0.8) else "nobody"
    live = swarm.chance(0.3) and who != "nobody"
    steps: list[Step] = [BeginRun(at=at, run=run, who=who, live=live)]
    if swarm.chance(0.6):
        steps.append(DoorList(at=scene.after(at, 0.1), who=who, run=run))
    steps += _of_run(scene, at + 0.1, who, run)
    if swarm.chance(0.5):
        _, server = scene.some_pair()
        steps.append(ChangeTools(at=scene.after(at + 0.6, 0.2), server=server.name, tool="echo"))
    whom = swarm.pick([None, None, *scene.others(who)])
    steps.append(
        ResumeRun(
            at=scene.after(at + 0.8, 0.2), run=run, who=whom, how=swarm.pick(_variants(ResumeRun, "how"))
        )
    )
    steps += _of_run(scene, at + 1.0, who, run)
    if swarm.chance(0.5):
        steps.append(EndRun(at=scene.after(at + 1.2, 0.4), run=run))
    return steps


def odd_names(scene: Scene) -> list[Step]:
    """Names that mean nothing, that read as if they were qualified, that are not strings of any use."""
    swarm = scene.swarm
    at = scene.when()
    who, server = scene.some_pair()
    names = (
        "nothing-here", f"{server.name}__echo", f"{server.name}__own-says", "own-says__echo", "ECHO", " echo",
        "x" * 300, "echo\u0000", "wiki__files__echo", f"{server.name}__", "vaut",
    )  # fmt: skip
    return [
        door_call(
            scene, scene.after(at), who, server.name, "echo", name=swarm.pick(names),
            way=swarm.pick(["dispatch", "toolset"]),
        )
        for _ in range(3)
    ]  # fmt: skip


def nested(scene: Scene) -> list[Step]:
    """Tools that call tools, where places are few, and with credentials at hand."""
    at = scene.when()
    return [local_call(scene, scene.after(at, 0.3), None, kind="calls") for _ in range(3)]


def lost_sessions(scene: Scene) -> list[Step]:
    """What proves not to have run is perhaps called a second time: sessions, lists, connections go."""
    swarm = scene.swarm
    who, server = scene.some_pair()
    at = scene.when()
    what = swarm.pick(["session", "list", "restart", "list"])
    call: dict[str, Any] = {"args": {}, "shape": "object", "deadline": None, "cancel_after": None}
    steps: list[Step] = [
        DoorList(at=at, who=who),
        door_call(scene, round(at + 0.5, 4), who, server.name, "echo", way="toolset", **call),
    ]
    for number in range(swarm.random.randint(1, 2)):
        gone = round(at + 1.0 + number, 4)
        if what == "session":
            steps.append(ExpireSession(at=gone, server=server.name))
        elif what == "list":
            steps.append(ChangeTools(at=gone, server=server.name, tool="sleep", notify=swarm.chance(0.7)))
        else:
            steps.append(RestartServer(at=gone, server=server.name, down=swarm.pick([0.0, 0.2])))
        way = swarm.pick(["toolset", "dispatch"])
        steps.append(door_call(scene, scene.after(gone, 0.1), who, server.name, "echo", way=way, **call))
    return steps


def other_configurations(scene: Scene) -> list[Step]:
    """The runtime is configured otherwise between calls, and under them."""
    swarm = scene.swarm
    _, server = scene.some_pair()
    at = scene.when()
    hows = _variants(_ReconfigureDoor, "how")
    steps: list[Step] = [some_call(scene, scene.after(at, 0.3)) for _ in range(3)]
    steps += [
        ReconfigureDoor(at=scene.after(at, 0.5), server=server.name, how=swarm.pick(hows))
        for _ in range(swarm.random.randint(1, 3))
    ]
    steps += [some_call(scene, scene.after(at + 0.5, 0.5)) for _ in range(2)]
    return steps


def lists_together(scene: Scene) -> list[Step]:
    """Several list at once, for themselves and live, and some give up."""
    swarm = scene.swarm
    at = scene.when()
    steps: list[Step] = []
    for _ in range(swarm.random.randint(2, 4)):
        who = swarm.pick([*(one.name for one in scene.world.people), "nobody"])
        live = swarm.chance(0.4) and who != "nobody"
        deadline = swarm.pick([None, None, 0.01, 1.0])
        steps.append(
            DoorList(
                at=scene.after(at, 0.2), who=who, live=live, refresh=swarm.chance(0.4), deadline=deadline
            )
        )
        if live and swarm.chance(0.4):
            steps.append(WithdrawCaller(at=scene.after(at, 0.2), who=who, how="other"))
            steps.append(WithdrawCaller(at=scene.after(at + 0.4, 0.5), who=who, how="back"))
    return steps


def uses_tools(scene: Scene) -> list[Step]:
    """The host uses the tools package by itself."""
    swarm = scene.swarm
    whats = [*_variants(UseTools, "what"), "cuts", "cuts", "direct"]
    who = swarm.pick(scene.world.people).name
    return [
        UseTools(at=scene.when(), what=swarm.pick(whats), seed=swarm.random.randrange(10**6), who=who)
        for _ in range(swarm.random.randint(1, 3))
    ]


def said_aloud(scene: Scene) -> list[Step]:
    """Tools say a credential aloud, in every way there is."""
    swarm = scene.swarm
    return [
        local_call(
            scene, scene.when(), None, kind=_a_kind(scene, "needs", "asks", "filled"),
            args={"how": swarm.pick(ALOUD)},
        )
        for _ in range(4)
    ]  # fmt: skip


def wide_calls(scene: Scene) -> list[Step]:
    """Arguments by chance for a tool with a large or crooked schema."""
    at = scene.when()
    return [local_call(scene, scene.after(at), None, kind="wide") for _ in range(4)]


def closes_under_calls(scene: Scene) -> list[Step]:
    """The runtime is left while calls are under way through it."""
    swarm = scene.swarm
    if not swarm.chance(0.3):
        return []
    at = round(scene.span * 0.8, 3)
    steps: list[Step] = [some_call(scene, scene.after(at, 0.1)) for _ in range(3)]
    steps.append(ClosePool(at=round(at + 0.05, 4), how=swarm.pick(["aclose", "cancelled"])))
    return steps


DOOR_MOTIFS: Final[tuple[Motif, ...]] = (
    fills_of_others, vault_moods, sets_filled, schema_changes, artifacts_change_hands, shelf_moods,
    hook_moods, runs_pause, odd_names, nested, lost_sessions, other_configurations, lists_together,
    uses_tools, said_aloud, wide_calls, closes_under_calls,
)  # fmt: skip

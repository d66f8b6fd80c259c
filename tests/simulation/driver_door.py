"""The runtime of a run: opened around its pool, called by name, configured otherwise.

It files who asked for what, what was told, and how each call is meant: where a call is certain to mean a
server's tool, `Began` and `Ended` are filed of it as of a call of the pool, and whatever holds of those holds
of it.
"""

from __future__ import annotations

import base64
import contextlib
import json
import random
import re
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

import afpool
from afpool import Identity, ToolContext, ToolResult, open_runtime
from afpool.artifacts import ArtifactError, NewArtifact
from afpool.pool import Limits
from afpool.runtime import RuntimeConfig, ServerRules
from afpool.tools import (
    RedactionPolicy,
    ResultCeiling,
    ResultLimits,
    answer_calls,
    binding_of,
    from_credential,
    from_identity,
    host_fills_of,
)
from tests.simulation import steps as s
from tests.simulation.door_direct import LATER
from tests.simulation.door_models import FORMATS, answers_to, names_told, written
from tests.simulation.door_use import USES
from tests.simulation.door_wide import wide_arguments, wide_schema
from tests.simulation.driver_door_host import Hooks, Shelf, Vault, plain, value_of
from tests.simulation.driver_door_tools import OWNED, LocalTools
from tests.simulation.driver_steps import Skip
from tests.simulation.driver_watch import chain_of, texts_of
from tests.simulation.driver_work import CALL, progress_of
from tests.simulation.ground import Began, Bound, Ended, Hung
from tests.simulation.ground_door import (
    ANY,
    Acknowledged,
    Asked,
    DoorChanged,
    Refilled,
    SchemaChanged,
    Told,
    scope_of,
)
from tests.simulation.world_door import DEEP

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from afpool.runtime import Run as AgentRun
    from afpool.runtime import Runtime, RuntimeToolset
    from tests.simulation.driver import Run
    from tests.simulation.world_door import DoorSpec, RulesSpec

NOWHERE: Final = "nobody"
BASE64: Final = re.compile(r'"(?:data|blob)"\s*:\s*"([A-Za-z0-9+/=\\]+)"')
LISTS: Final = 60.0
"""Seconds for which a listing goes on at most; see `runtime/_listing.py`."""
KNOWN_LIMITS: Final = frozenset(field.name for field in attrs.fields(Limits))


@attrs.define(eq=False)
class Held:
    """A toolset that somebody holds, and the numbers of what it stands on, by server."""

    toolset: RuntimeToolset
    numbers: Mapping[str, int]
    caller: str | None


@attrs.define(eq=False)
class HeldRun:
    """A run that somebody holds."""

    run: AgentRun
    who: str
    live: bool
    held: Held | None = None


class Door:
    """See the module.

    Args:
        run: The run that it belongs to; its world has a door.

    Attributes:
        spec: The world's.
        hidden: Values of redacted arguments: they are in nothing that is recorded.
        recorded: Whatever was recorded of arguments.
    """

    def __init__(self, run: Run) -> None:
        spec = run.story.world.door
        assert spec is not None
        self.run = run
        self.spec: DoorSpec = spec
        self.vault = Vault(run, spec.fields)
        self.hooks = Hooks(run, spec)
        self.shelf = Shelf(run, spec) if spec.store else None
        self.local = LocalTools(self)
        self.hidden: list[str] = []
        self.recorded: list[str] = []
        self.runtime: Runtime = None  # type: ignore[assignment]
        self.held: dict[str, list[Held]] = {}
        self.runs: dict[str, HeldRun] = {}
        self.revision = 0
        self.dropped: frozenset[str] = frozenset()
        self.rules: dict[str, RulesSpec] = {
            name: rules
            for name, rules in spec.rules.items()
            if any(server.name == name for server in run.story.world.servers)
        }
        self._inner: dict[str, int] = {}
        self._over: set[str] = set()
        self._filling: set[Any] = set()  # servers that have been listed since their fills were said
        self._qualify = spec.qualify

    # ------------------------------------------------------------------ opening

    @contextlib.asynccontextmanager
    async def open(self, servers: list[Any], options: dict[str, Any]) -> AsyncIterator[Any]:
        """Open a runtime in place of a pool; gives its pool."""
        for server, rules in self.rules.items():
            self.run.ground.file(Refilled(server=server, fill=dict(rules.fill)))
        async with open_runtime(self._config(servers, options)) as runtime:
            self.runtime = runtime
            yield runtime.pool

    def _config(self, servers: list[Any], options: dict[str, Any]) -> RuntimeConfig:
        own = {"plan", "share", "signer", "secret", "on_use", "on_authorization", "seams"}
        given = {name: value for name, value in options.items() if name in own}
        pool = {name: value for name, value in options.items() if name not in own and name != "credentials"}
        return RuntimeConfig(
            servers=servers,
            tools=self._tools(),
            rules={name: self._rules(rules) for name, rules in self.rules.items()},
            credentials=self.vault,
            artifacts=self.shelf,
            hooks=self.hooks.made(),
            results=self._results(),
            qualify="always" if self._qualify else "when-needed",
            repeat="when-nothing-ran" if self.spec.again else "never",
            deadline=self.run.limit("deadline"),
            list_patience=self.spec.patience,
            on_event=None if self.spec.events == "none" else self._event,
            pool=pool,
            **given,
        )

    def _tools(self) -> list[Any]:
        kept = tuple(tool for tool in self.spec.tools if tool.name not in self.dropped)
        return self.local.made(kept, self.revision)

    def _results(self) -> ResultLimits:
        return ResultLimits(
            max_inline_chars=(self.spec.inline or None) if self.spec.store else None,
            max_chars=self.spec.cut or None,
        )

    def _rules(self, rules: RulesSpec) -> ServerRules:
        fill = {
            argument: from_credential(
                DEEP,
                mode="user" if source == "credential" else "machine",
                read=value_of if self.spec.fields in {"basic", "headers"} else None,
            )
            if source in {"credential", "machine"}
            else from_identity(source)  # type: ignore[arg-type]
            for argument, source in rules.fill.items()
        }
        keys = [name for name in rules.redact if not name.startswith(("^", "."))]
        patterns = [name for name in rules.redact if name.startswith("^")]
        fields = {"auth": [name[1:] for name in rules.redact if name.startswith(".")]}
        policy = None
        if rules.redact:
            policy = RedactionPolicy(keys, patterns, fields if fields["auth"] else {}, deep=rules.deep)
        return ServerRules(
            fill=fill,
            wants=dict(rules.wants) if self.spec.store else {},
            redact=policy,
            ceilings={"*": ResultCeiling(rules.ceiling, ("size",))} if rules.ceiling else {},
        )

    def _event(self, event: Any) -> None:
        text = f"{event!r} {json.dumps(event.payload, default=repr, ensure_ascii=False)}"
        self.run.shown.append(text)
        self.run.counts[f"event:{event.kind}"] += 1
        if event.kind not in {"tool_end", "tool_progress"}:
            self.recorded.append(text)
        if self.spec.events == "raises":
            raise RuntimeError("the sink is full")

    # ------------------------------------------------------------------ steps

    async def do(self, step: s.Step) -> None:
        """Carry out one step of work. Raises Skip."""
        match step:
            case s.DoorList():
                await self._list(step)
            case s.DoorCall():
                await self._call(step)
            case s.BeginRun():
                identity = self._identity(step.who, live=step.live)
                held = HeldRun(self.runtime.run(identity), step.who, step.live)
                self.runs[step.run] = held
            case s.ResumeRun():
                self._resume(step)
            case s.EndRun():
                if self.runs.pop(step.run, None) is None:
                    raise Skip
            case s.PutArtifact():
                await self._put(step)
            case s.Acknowledge():
                self._acknowledge(step)
            case s.UseTools():
                await self._use(step)

    async def _use(self, step: s.UseTools) -> None:
        """Have the host use the tools package by itself."""
        chance = random.Random(step.seed)
        if step.what in USES:
            await trio.lowlevel.checkpoint()
            found = list(USES[step.what](chance))
        else:
            people = self.run.story.world.people
            who = next((one for one in people if one.name == step.who), people[0]).identity
            found = await LATER[step.what](chance, self.shelf, who, f"{OWNED}{scope_of(who)};")
        self.run.failures += [f"D8 {step.what}: {wrong}" for wrong in found]

    def change(self, step: s.Step) -> None:
        """Carry out what the host or a server does. Raises Skip."""
        match step:
            case s.ChangeHook():
                if not self.hooks.moods:
                    raise Skip
                self.hooks.moods[step.hook % len(self.hooks.moods)] = step.how
            case s.ChangeShelf():
                if self.shelf is None:
                    raise Skip
                if step.how == "closed":
                    self.run.start("shelf", self.shelf.store.aclose)  # type: ignore[attr-defined]
                else:
                    self.shelf.mood = step.how
            case s.ChangeVault():
                self.vault.change(step)
            case s.ChangeSchema():
                changed = sum(place.change_schema(step) for place in self.run.places[step.server])
                if not changed:
                    raise Skip
                self.run.ground.file(SchemaChanged(server=step.server, how=step.how))
                if step.notify:
                    for place in self.run.places[step.server]:
                        place.announce()
            case s.ReconfigureDoor():
                self._reconfigure(step)

    def heal(self) -> None:
        """Everything of the host's is in order again."""
        self.vault.heal()
        self.hooks.heal()
        if self.shelf is not None:
            self.shelf.mood = "good"

    def drop(self) -> None:
        """Nothing is held any more."""
        self.held.clear()
        self.runs.clear()

    def hidden_shown(self, texts: list[str]) -> Iterator[str]:
        """I6: where the value of a redacted argument stands in what is recorded, or in these."""
        run = self.run
        texts = [*texts, *self.recorded, *(repr(event) for event in run.pool.records.events)]
        texts += [text for use in run.pool.records.uses for text in texts_of(use)]
        for value in self.hidden:
            for text in texts:
                if value in text:
                    at = text.index(value)
                    yield f"I6 {value!r}, which is redacted, is shown: …{text[max(0, at - 300) : at + 200]}…"
                    break

    async def landed(self) -> None:
        """Wait for listings that go on though nobody waits for them any more: they have their own time."""
        with trio.move_on_after(LISTS + 1):
            for flight in list(self.runtime._offers.lister._flights.values()):
                await flight.done.wait()

    def rest(self) -> dict[str, Any]:
        """What of the door is under way."""
        return {"calls at the door": len(self.runtime.running)}

    # ------------------------------------------------------------------ who

    def _identity(self, who: str, *, live: bool) -> Any:
        if who == NOWHERE:
            return None
        return self.run.host.caller(who) if live else self.run.identity(who)

    def _label(self, who: str, *, live: bool) -> str | None:
        return who if live and who != NOWHERE else None

    # ------------------------------------------------------------------ lists

    async def _list(self, step: s.DoorList) -> None:
        run = self.run
        before = len(run.ground.facts) - 1
        until = None if step.deadline is None else trio.current_time() + step.deadline
        agent: HeldRun | None = None
        who, live = step.who, step.live
        if step.run is not None:
            agent = self.runs.get(step.run)
            if agent is None:
                raise Skip
            who, live = agent.who, agent.live

        async def ask() -> Any:
            try:
                if agent is not None:
                    toolset = await agent.run.toolset(deadline=until, refresh=step.refresh)
                else:
                    identity = self._identity(who, live=live)
                    toolset = await self.runtime.toolset(identity, deadline=until, refresh=step.refresh)
            except TypeError as error:
                # at the first listing: it had been changed, or could not be read, before anybody had seen it
                if " declares " not in str(error):
                    raise
                run.counts["toolset:undeclared"] += 1
                for server in self._filling:
                    if f"the server {server!r} " in str(error) and "host is to fill" in str(error):
                        run.failures.append(f"D8 a later listing is taken for the first one: {error}")
                return None
            self._filling |= {toolset.place_of(name)[0] for name in toolset} & self.rules.keys()
            return toolset

        toolset = await run.work.ask("toolset", ask)
        if toolset is None or (live and who != NOWHERE and not run.host.caller(who).is_who):
            return
        for name, error in toolset.problems.items():
            run.counts[f"listing:{error.code}"] += 1
            run.shown.append(f"problem of {name}: {error!r} {error}")
        for name, why in (*toolset.withheld.items(), *toolset.quarantined.items()):
            run.counts[f"door:{why.partition(':')[0]}"] += 1
            run.sim.note(f"withheld {name}")
        run.shown += [f"{name}: {why}" for name, why in toolset.quarantined.items()]
        held = Held(toolset, self._bound(who, toolset, before), self._label(who, live=live))
        for model, written_as in FORMATS.items():
            listed = written_as.tools(toolset)
            names = names_told(model, listed)
            if model != "gemini" and names != list(toolset):
                run.failures.append(f"D9 the format {model} lists {names}, not {list(toolset)}")
            run.shown.append(json.dumps(listed, default=repr))
        if agent is not None:
            agent.held = held
        else:
            self.held.setdefault(who, []).append(held)

    def _bound(self, who: str, toolset: RuntimeToolset, before: int) -> dict[str, int]:
        """File what is handed out, server by server."""
        run, hands = self.run, self.run.work.hands
        if who == NOWHERE:
            return {}
        by_server: dict[str, dict[str, Any]] = {}
        for shown in toolset:
            server, listed = toolset.place_of(shown)
            if server is not None:
                by_server.setdefault(server, {})[listed] = toolset[shown]
        numbers: dict[str, int] = {}
        for server, tools in by_server.items():
            hands.numbers += 1
            bindings = {name: binding_of(tool) for name, tool in tools.items()}
            first = next(iter(bindings.values()))
            assert first is not None
            run.ground.file(
                Bound(
                    tools=hands.numbers,
                    key=run.key(who, server),
                    context=first.context,
                    name=first.authorization,
                    shared=first.shared,
                    epoch_from=before,
                    definitions={
                        name: run.work.text_of(server, binding)
                        for name, binding in bindings.items()
                        if binding is not None
                    },
                )
            )
            numbers[server] = hands.numbers
        return numbers

    # ------------------------------------------------------------------ names

    def _name(self, server: str | None, tool: str, toolset: RuntimeToolset | None) -> tuple[str, bool]:
        """What a tool is called, and whether that is certain."""
        if toolset is not None:
            for shown in toolset:
                if toolset.place_of(shown) == (server, tool):
                    return shown, True
        if server is None:
            return tool, True
        if self._qualify:
            return f"{server}__{tool}", True
        servers = self.run.story.world.servers
        taken = any(local.name == tool for local in self.spec.tools)
        offered = sum(any(one.name == tool for one in other.tools) for other in servers)
        if taken or offered > 1:
            return f"{server}__{tool}", True
        return tool, offered == 1 and toolset is None

    # ------------------------------------------------------------------ calls

    async def _call(self, step: s.DoorCall) -> None:
        run = self.run
        agent = None if step.run is None else self.runs.get(step.run)
        if step.way == "run" and agent is None:
            raise Skip
        who, live = (step.who, step.live) if agent is None or step.way != "run" else (agent.who, agent.live)
        held: Held | None = None
        if step.way in {"toolset", "execute"}:
            if not self.held.get(who):
                await self._list(s.DoorList(at=step.at, who=who, live=live))
            if not self.held.get(who):
                raise Skip
            held = self.held[who][-1]
            live = held.caller is not None
        elif step.way == "run" and agent is not None:
            held = agent.held
        name, certain = self._name(step.server, step.tool, None if held is None else held.toolset)
        if step.name:
            name, certain = step.name, False
        if step.way == "execute" and (held is None or name not in held.toolset or step.server is None):
            raise Skip  # what is the host's own has nobody else who would bound it
        caller = self._identity(who, live=live)
        args, shape, sets = self._arguments(step, who)
        deadline = None if step.deadline is None else trio.current_time() + step.deadline
        asked = Asked(
            call=step.id,
            scope=self._scope(caller, agent if step.way == "run" else None),
            caller=self._label(who, live=live),
            run=agent.run.run_id if agent is not None and step.way == "run" else None,
            server=step.server,
            tool=step.tool,
            said=name,
            intended=certain,
            args=args if isinstance(args, dict) else {},
            shape=shape,
            sets=sets,
            ref=args.get("doc") if isinstance(args, dict) else None,
            deadline=trio.current_time() + run.limit("deadline") if deadline is None else deadline,
            way=step.way,
        )
        numbers = {} if held is None else held.numbers
        began = self._began(asked, who, numbers, live=live) if certain else None

        async def ask() -> ToolResult:
            how: dict[str, Any] = {
                "call_id": step.id,
                "deadline": deadline,
                "on_progress": progress_of(step.progress),
            }
            if step.way == "execute":
                assert held is not None
                return await self._execute(held, name, args, caller, step, asked.deadline)
            if step.model and shape in {"object", "none", "list"}:
                return await self._by_model(step, held, agent, name, args, caller, deadline)
            if step.way == "run" and agent is not None:
                return await agent.run.call(name, args, **how)
            if held is not None:
                return await held.toolset.call(name, args, **how)
            return await self.runtime.dispatch(caller, name, args, **how)

        await self._operate(asked, began, ask, step.cancel_after)

    def _scope(self, caller: Any, agent: HeldRun | None) -> str | None:
        if caller is None:
            return scope_of(Identity(conversation_id=agent.run.run_id)) if agent is not None else "-/-/-"
        who = plain(caller)
        return None if who is None else scope_of(who)

    def _began(self, asked: Asked, who: str, numbers: Mapping[str, int], *, live: bool) -> Began | None:
        """What holds of a call of a server's tool."""
        run, server = self.run, asked.server
        if server is None or who == NOWHERE or (live and not run.host.caller(who).is_who):
            return None
        key = run.key(who, server)
        return Began(
            call=asked.call,
            tools=numbers.get(server, ANY),
            key=key,
            tool=asked.tool,
            caller=who if live else None,
            who=None if live else key,
            deadline=asked.deadline,
            mark=f"mark-of-{asked.call}.",
            repeats=run.story.world.server(server).repeat == "recognised",
        )

    def _arguments(self, step: s.DoorCall, who: str) -> tuple[Any, str, tuple[str, ...]]:
        """What the model sends; what shape it is; which filled arguments it names."""
        mark = f"mark-of-{step.id}."
        args: dict[Any, Any] = dict(step.args)
        local = self.spec.local(step.tool) if step.server is None else None
        if local is not None and "wide" in args:
            args = wide_arguments(wide_schema(local.seed), args["wide"])
        if local is not None and "padding" in args:
            args |= _padding(args.pop("padding"))
        if local is None or local.kind != "presents":  # which takes what it names, and no more
            args["mark"] = mark
        rules = self.rules.get(step.server or "")
        hides = () if rules is None else rules.redact
        for name, hidden_by in (("secret", "secret"), ("password", "^pass")):
            if name in args:
                args[name] = f"hidden-{step.id}-{name}"
                self.hidden += [args[name]] if hidden_by in hides else []
        if isinstance(args.get("auth"), dict):
            args["auth"] = {**args["auth"], "key": f"hidden-{step.id}-key"}
            self.hidden += [f"hidden-{step.id}-key"] if ".key" in hides else []
        ref = self._ref(step, who)
        if ref is not ...:
            args["ref" if "ref" in args else "doc"] = ref
        sets: list[str] = []
        if step.sets:
            for spelled in _spellings(step.sets, step.spelled):
                args[spelled] = None if step.spelled == "null" else f"model-value-{step.id}."
                sets.append(spelled)
        match step.shape:
            case "none":
                return None, "none", ()
            case "list":
                return ["no", "object"], "list", ()
            case "text":
                return "{no object", "text", ()
            case "not-json":
                return {**args, "note": {1}}, "not-json", tuple(sets)
            case "keys":
                return {**args, 7: "x"}, "not-json", tuple(sets)
        return args, "object", tuple(sets)

    def _ref(self, step: s.DoorCall, who: str) -> Any:
        refs = {} if self.shelf is None else self.shelf.refs
        whose = "-/-/-" if who == NOWHERE else scope_of(self.run.identity(who))
        match step.ref:
            case "none":
                return ...
            case "own" | "other-kind" | "expired":
                found = refs.get(whose, ())
                return found[-1] if found else "art_" + "0" * 22
            case "own-old":
                found = refs.get(whose, ())
                return found[0] if found else "art_" + "1" * 22
            case "foreign":
                others = [each for name, each in refs.items() if name != whose]
                return others[-1][-1] if others else "art_" + "2" * 22
            case "unknown":
                return "art_" + "A" * 22
            case "malformed":
                return "art_../../" + "x" * 200
            case "null":
                return None
        return 7

    async def _by_model(
        self,
        step: s.DoorCall,
        held: Held | None,
        agent: HeldRun | None,
        name: str,
        args: Any,
        caller: Any,
        deadline: float | None,
    ) -> ToolResult:
        """Have a model write the call, and read what it is told."""
        model = FORMATS[step.model]
        got: list[Any] = []
        results: list[ToolResult] = []
        door = self

        class Callee:
            async def call(self, said: str, given: Any = None, *, deadline: float | None = None) -> Any:
                got.append((said, given))
                how: dict[str, Any] = {"call_id": step.id, "deadline": deadline}
                if step.way == "run" and agent is not None:
                    result = await agent.run.call(said, given, **how)
                elif held is not None:
                    result = await held.toolset.call(said, given, **how)
                else:
                    result = await door.runtime.dispatch(caller, said, given, **how)
                results.append(result)
                return result

        number = sum(map(ord, step.id))
        message = written(step.model, step.id, name, args, number)
        told = await answer_calls(Callee(), message, model, deadline=deadline, at_once=1 + number % 2)
        if got != [(name, args)] and step.shape == "object":
            self.run.failures.append(f"D9 {step.model} reads {got!r} of a call of {name} with {args!r}")
        ids = answers_to(step.model, told)
        if [str(one) for one in ids] != [str(each) for each in ids if str(each).strip("c") in step.id]:
            self.run.failures.append(f"D9 {step.model} answers {ids}, not {step.id}")
        self.run.shown.append(json.dumps(told, default=repr))
        return results[0]

    async def _execute(
        self, held: Held, name: str, args: Any, caller: Any, step: s.DoorCall, deadline: float
    ) -> ToolResult:
        """Execute a tool without a door."""
        tool = held.toolset[name]
        credential = None
        if host_fills_of(tool) is not None and tool.needs is not None and step.spelled != "upper":
            owner = plain(caller)
            if owner is not None:
                value = self.vault.value(self.vault.owner(owner, tool.needs.mode))
                credential = self.vault.made(value)
        ctx = ToolContext(
            identity=caller,
            call_id=step.id,
            deadline=deadline,
            credential=credential,
            on_progress=progress_of(step.progress),
            progress=lambda report: self.run.shown.append(repr(report)),
        )
        return await tool.execute(args, ctx)

    async def inner(self, ctx: ToolContext, one: Mapping[str, Any], texts: list[Any]) -> ToolResult | None:
        """Call a tool from inside of a tool of the host's own; what it gave."""
        outer = ctx.call_id or ""
        server, tool = one.get("server"), str(one.get("tool", "says"))
        if ctx.tools is None:
            return None
        number = self._inner[outer] = self._inner.get(outer, 0) + 1
        call = f"{outer}:inner:{number}"
        name, certain = self._name(server, tool, None)
        ctx.tools.has(name)
        who = plain(ctx.identity)
        args = {**one.get("args", {}), "mark": f"mark-of-{call}."}
        asked = Asked(
            call=call,
            outer=outer,
            scope=scope_of(who) if who is not None else None,
            run=ctx.run_id,
            server=server,
            tool=tool,
            said=name,
            intended=certain,
            args=args,
            ref=args.get("doc"),
            deadline=ctx.deadline or 0.0,
        )
        began = None
        label = next((one.name for one in self.run.story.world.people if one.identity == who), None)
        if certain and server is not None and label is not None:
            began = self._began(asked, label, {}, live=False)

        async def ask() -> ToolResult:
            result: ToolResult = await ctx.tools.call(name, args)
            texts.append(result.text)
            got.append(result)
            return result

        got: list[ToolResult] = []
        await self._operate(asked, began, ask, None)
        return got[0] if got else None

    # ------------------------------------------------------------------ how a call ends

    async def _operate(self, asked: Asked, began: Began | None, ask: Any, cancel_after: float | None) -> None:
        run = self.run
        token = CALL.set(asked.call)
        run.ground.file(asked)
        if began is not None:
            run.ground.file(began)
        run.counts["door calls"] += 1
        with trio.CancelScope() as scope:
            if cancel_after is not None:
                run.sim.nursery.start_soon(self._hang_up, asked.call, scope, cancel_after)
            try:
                await self._ended(asked, began, ask)
            finally:
                CALL.reset(token)

    async def _hang_up(self, call: str, scope: trio.CancelScope, after: float) -> None:
        await trio.sleep(after)
        if not scope.cancel_called and call not in self._over:
            self.run.ground.file(Hung(call=call))
            scope.cancel()

    async def _ended(self, asked: Asked, began: Began | None, ask: Any) -> None:
        run = self.run
        try:
            result = await ask()
        except afpool.AfpoolError as error:
            if not asked.bare:
                run.failed(f"the door raised for {asked.call}", error)
            run.shown += chain_of(error)
            self._file(asked, began, error.code, error.delivery, str(error), error=error)
        except trio.Cancelled:
            self._file(asked, began, "caller-cancelled", None, "")
            raise
        except BaseExceptionGroup:
            self._file(asked, began, "caller-cancelled", None, "")
            raise
        except Exception as error:
            self._file(asked, began, f"raised {type(error).__name__}", None, "")
            run.failed(f"call {asked.call} at the door", error)
        else:
            self._result(asked, began, result)

    def _result(self, asked: Asked, began: Began | None, result: Any) -> None:
        run = self.run
        if not isinstance(result, ToolResult):
            run.failures.append(f"D9 the call {asked.call} gave {result!r}")
            self._file(asked, began, "rubbish", None, "")
            return
        if result.call_id != asked.call:
            run.failures.append(f"D3 the result of {asked.call} says that it is of {result.call_id}")
        text = result.raw.decode("utf-8", "replace")
        run.shown += [text, repr(result), *map(_decoded, BASE64.findall(text))]
        error = result.error
        if error is not None:
            run.shown += chain_of(error)
            if (result.code, result.delivery) != (error.code, error.delivery):
                run.failures.append(f"D9 {asked.call} has {result.code}, its error {error.code}")
        code = result.code if error is not None else "tool-error" if result.is_error else "ok"
        self._file(asked, began, code, result.delivery, text, error=error, is_error=result.is_error)

    def _file(
        self,
        asked: Asked,
        began: Began | None,
        code: str,
        delivery: str | None,
        text: str,
        *,
        error: Any = None,
        is_error: bool = False,
    ) -> None:
        run = self.run
        self._over.add(asked.call)
        run.ground.file(Told(call=asked.call, code=code, delivery=delivery, text=text, is_error=is_error))
        run.counts[f"door:{code}"] += 1
        run.counts[f"verdict:{delivery}"] += 1
        if error is not None and code in {"invalid-arguments", "unknown-tool", "denied"}:
            self.recorded.append(text)
        if began is None:
            return
        run.ground.file(
            Ended(
                call=asked.call,
                code=code,
                delivery=delivery,
                error=type(error).__name__ if error is not None else None,
                status=getattr(error, "http_status", None),
                retry_after=getattr(error, "retry_after", None),
                error_code=getattr(error, "error_code", None),
            )
        )

    # ------------------------------------------------------------------ runs and artifacts

    def _resume(self, step: s.ResumeRun) -> None:
        agent = self.runs.get(step.run)
        if agent is None:
            raise Skip
        run = self.run
        try:
            saved: Any = agent.run.checkpoint()
        except afpool.IdentityMissing:
            run.counts["door:no checkpoint"] += 1
            return
        run.shown.append(json.dumps(saved))
        bad = step.how in {"changed", "other-version", "rubbish"}
        if step.how == "changed":
            saved = {**saved, "identity": {"tenant": "acme", "principal": "mallory"}}
        elif step.how == "other-version":
            saved = {**saved, "afpool_run": 0}
        elif step.how == "rubbish":
            saved = "[1, 2"
        elif step.how == "text":
            saved = json.dumps(saved)
        identity = None if step.who is None else self._identity(step.who, live=False)
        try:
            resumed = self.runtime.resume(saved, identity)
        except ValueError:
            run.counts["door:no such checkpoint"] += 1
            if not bad:
                run.failures.append(f"D8 the checkpoint of {step.run} is not taken back")
            return
        if bad:
            run.failures.append(f"D8 a checkpoint that somebody has changed ({step.how}) is taken")
        if resumed.run_id != agent.run.run_id:
            run.failures.append(f"D8 {step.run} goes on under another id")
        self.runs[step.run] = HeldRun(resumed, step.who or agent.who, live=False)

    async def _put(self, step: s.PutArtifact) -> None:
        run = self.run
        agent = self.runtime.run(self._identity(step.who, live=False))
        shelf = agent.artifacts
        if shelf is None or self.shelf is None:
            raise Skip
        whose = scope_of(run.identity(step.who))
        parents: tuple[str, ...] = ()
        if step.parent is not None:
            parents = tuple(self.shelf.refs.get(scope_of(run.identity(step.parent)), ())[-1:])
        seams = run.sim.seams
        new = NewArtifact(
            kind=step.kind,
            media_type="text/plain",
            data=f"{OWNED}{whose}; {'x' * step.size}",
            digest="sha-256" if step.digest else None,
            parent_refs=parents,
            expires_at=None if step.lives is None else seams.unix_now() + step.lives,
        )
        try:
            with trio.move_on_after(60):
                meta = await shelf.put(new)
                if step.read_after is not None:
                    await trio.sleep(step.read_after)
                    found = await shelf.get(meta.ref)
                    if found is not None and found.data != new.data:
                        run.failures.append(f"D2 {meta.ref} of {whose} is read as {str(found.data)[:200]}")
        except ArtifactError as error:
            run.counts[f"door:{error.code}"] += 1
            run.shown += chain_of(error)
        except Exception as error:
            run.counts[f"put:{type(error).__name__}"] += 1

    def _acknowledge(self, step: s.Acknowledge) -> None:
        try:
            self.runtime.acknowledge(step.server, *([step.argument] if step.argument else []))
        except (LookupError, ValueError):
            raise Skip from None
        self.run.ground.file(Acknowledged(server=step.server))

    # ------------------------------------------------------------------ another configuration

    def reconfigured(self, servers: list[Any], *, plan: Any, share: Any) -> Any:
        """Have the runtime take other servers, or functions of the app."""
        config = self.runtime.config
        names = {server.name for server in servers}
        self._filling &= names
        return self.runtime.reconfigure(
            servers=servers,
            plan=config.plan if plan is ... else plan,
            share=config.share if share is ... else share,
            rules={name: self._rules(rules) for name, rules in self.rules.items() if name in names},
        )

    def _reconfigure(self, step: s.ReconfigureDoor) -> None:
        run, how, server = self.run, step.how, step.server
        if run.closing or server in run.configuration.gone:
            raise Skip
        rules = self.rules.get(server)
        before = rules
        fields: dict[str, Any] = {}
        if how in {"unfill", "refill", "wants", "redact"}:
            if rules is None:
                raise Skip
            if how == "unfill":
                rules = attrs.evolve(rules, fill=dict(list(rules.fill.items())[1:]))
            elif how == "refill":
                rules = attrs.evolve(rules, fill=self.spec.rules[server].fill)
            elif how == "wants":
                rules = attrs.evolve(rules, wants={} if rules.wants else self.spec.rules[server].wants)
            else:
                rules = attrs.evolve(rules, redact=self.spec.rules[server].redact, deep=not rules.deep)
            self.rules[server] = rules
        elif how == "tools":
            self.revision += 1
        elif how == "fewer-tools":
            names = {tool.name for one in run.story.world.servers for tool in one.tools}
            self.dropped = frozenset(
                tool.name for tool in self.spec.tools[1::2] if tool.name not in names
            ) - (self.dropped or frozenset())
        elif how == "hooks":
            fields["hooks"] = () if self.runtime.config.hooks else self.hooks.made()
        elif how == "results":
            now = self.runtime.config.results
            fields["results"] = self._results() if now == ResultLimits() else ResultLimits()
        elif how == "qualify":
            self._qualify = not self._qualify
        elif how in {"wrong", "fixed"}:
            self._wrong(how)
            return
        if how in {"tools", "fewer-tools"}:
            fields["tools"] = self._tools()
        fields["rules"] = {
            name: self._rules(one) for name, one in self.rules.items() if name not in run.configuration.gone
        }
        fields["qualify"] = "always" if self._qualify else "when-needed"
        run.ground.file(DoorChanged(how=how, server=server))
        refilled = before is not None and rules is not None and before.fill != rules.fill
        if refilled and rules is not None:
            run.ground.file(Refilled(server=server, fill=dict(rules.fill)))
            self._filling.discard(server)
        run.configuration.rebound(server if refilled else None)
        self.runtime.reconfigure(**fields)

    def _wrong(self, how: str) -> None:
        before = self.runtime.config
        try:
            if how == "wrong":
                self.runtime.reconfigure(rules={"no-such-server": ServerRules()})
            else:
                self.runtime.reconfigure(secret=b"another secret of digests")
        except ValueError:
            if self.runtime.config is before:
                return
        self.run.failures.append("E4 a configuration that is wrong was taken by the runtime")


def _decoded(text: str) -> str:
    """What binary contents hold."""
    try:
        return base64.b64decode(text.replace("\\/", "/"), validate=True).decode("utf-8", "replace")
    except ValueError:
        return ""


def _padding(count: int) -> dict[str, Any]:
    """Arguments that are many, or long."""
    if count == 1:
        return {"pad": "x" * 20_000}
    return {f"member-{number}": "ä" * (number % 400) for number in range(count)}


def _spellings(name: str, how: str) -> list[str]:
    """How a model may spell a name."""
    wide = "".join(chr(ord(char) + 0xFEE0) if "!" <= char <= "~" else char for char in name)
    return {
        "upper": [name.upper()],
        "dashed": [f"{name[:2]}-{name[2:]}_"],
        "wide": [wide],
        "two": [name, name.upper()],
    }.get(how, [name])

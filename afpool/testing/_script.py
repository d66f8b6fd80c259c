"""Scripts of servers in another process: plain JSON, checked in full before anything runs."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import attrs
import msgspec

from ._actions import action_from_json
from ._asking import ask_tool, input_tool
from ._engine import Engine, Eras
from ._envelope import Dialect, Message
from ._exchange import Advertise
from ._ledger import Arrival
from ._offers import FakePrompt, FakeResource
from ._rules import Rule
from ._tools import (
    FakeTool,
    Handler,
    big_tool,
    counter_tool,
    echo_tool,
    fail_tool,
    progress_tool,
    sleep_tool,
    whoami_tool,
)

_BUILTINS: Final[Mapping[str, Callable[..., FakeTool]]] = {
    "ask": ask_tool,
    "big": big_tool,
    "counter": counter_tool,
    "echo": echo_tool,
    "fail": fail_tool,
    "input": input_tool,
    "progress": progress_tool,
    "sleep": sleep_tool,
    "whoami": whoami_tool,
}


class ToolSpec(msgspec.Struct, forbid_unknown_fields=True):
    """One tool of a script.

    Attributes:
        name: As listed.
        builtin: `ask`, `big`, `counter`, `echo`, `fail`, `input`, `progress`, `sleep`, `whoami`,
            `change_list` or `update_resource`.
        result: A fixed text or result object, instead of a builtin.
        delay: Seconds.
        cancellable: See `FakeTool`.
        description: Replaces the builtin's.
        input_schema: Replaces the builtin's.
        members: Further members of the listed object.
    """

    name: str
    builtin: str = "echo"
    result: str | dict[str, Any] | None = None
    delay: float = 0.0
    cancellable: bool = True
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    members: dict[str, Any] = {}


class RuleSpec(msgspec.Struct, forbid_unknown_fields=True):
    """One rule of a script; `action` is `{"do": <class name>, <argument>: <value>, ...}`."""

    method: str
    action: dict[str, Any]
    tool: str | None = None
    times: int | None = None


class Script(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What a server in another process is and does.

    Attributes:
        era: `handshake`, `stateless` or `both`.
        dialect: See `FakeServer.http`.
        tools: Names of builtins, or `ToolSpec` objects.
        rules: The rules, in order.
        advertise: Members of `Advertise`.
        answer_cancelled: Whether a request that a notice cancelled is still answered, with an error.
        resources: URI to text.
        prompts: Name to template, see `FakePrompt`.
        logging: Whether the log level can be set.
        call_id_key: Recognise repeats by this member of `_meta`; see `FakeServer.recognise_repeats`.
    """

    era: Eras = "handshake"
    dialect: Dialect = "python"
    tools: list[str | ToolSpec] = msgspec.field(default_factory=lambda: ["echo"])
    rules: list[RuleSpec] = []
    advertise: dict[str, Any] = {}
    answer_cancelled: bool = True
    resources: dict[str, str] = {}
    prompts: dict[str, str] = {}
    logging: bool = False
    call_id_key: str | None = None


class StdioScript(Script, forbid_unknown_fields=True, kw_only=True):
    """A `Script` with what only a child process can do wrong.

    Attributes:
        garbage: Lines that are no JSON-RPC, written to stdout at the start.
        big_line: Length in bytes of a notification that follows the answer that opens the session.
        stderr_flood: Bytes written to stderr at the start; they block if nobody reads them.
        silent_probe: `server/discover` is never answered.
        exit_on_probe: `server/discover` ends the child: true at once, `"next"` at the next line, as servers
            of 2025 do.
        exit_after: The child exits as soon as it has written that many answers.
        exit_code: What it exits with then.
        ignore_eof: The end of stdin does not end it. It still ends when its parent has died.
        ignore_sigterm: SIGTERM does not end it.
        fork_child: It starts a process of its own that inherits stdout and sleeps for a minute.
    """

    garbage: list[str] = []
    big_line: int = 0
    stderr_flood: int = 0
    silent_probe: bool = False
    exit_on_probe: bool | Literal["next"] = False
    exit_after: int | None = None
    exit_code: int = 0
    ignore_eof: bool = False
    ignore_sigterm: bool = False
    fork_child: bool = False


ScriptT = TypeVar("ScriptT", bound=Script)


def load_script(text: str | None, kind: type[ScriptT], era: Eras | None = None) -> ScriptT:
    """Read a script from JSON text or, after `@`, from a file.

    Raises:
        ValueError: It is no JSON, or does not fit `kind`.
        OSError: The file cannot be read.
    """
    if text is not None and text.startswith("@"):
        text = Path(text[1:]).read_text(encoding="utf-8")
    raw: Any = {} if text is None else json.loads(text)
    if isinstance(raw, dict) and era is not None:
        raw.setdefault("era", era)
    return msgspec.convert(raw, kind)


def build_engine(script: Script) -> Engine:
    """The engine that a script describes. Raises ValueError where its parts name what does not exist."""
    try:
        advertise = Advertise(**script.advertise)
    except TypeError as error:
        raise ValueError(f"advertise: {error}") from None
    engine = Engine(script.era, [], dialect=script.dialect, advertise=advertise)
    engine.answer_cancelled = script.answer_cancelled
    engine.offers.resources = [FakeResource(uri, text) for uri, text in script.resources.items()]
    engine.offers.prompts = [FakePrompt(name, template) for name, template in script.prompts.items()]
    engine.offers.logging = script.logging
    engine.repeats.key = script.call_id_key
    engine.tools = [build_tool(spec, engine) for spec in script.tools]
    for rule in script.rules:
        engine.rules.add(build_rule(rule))
    return engine


def change_advertise(engine: Engine, members: Mapping[str, Any]) -> None:
    """Change members of `Advertise`. Raises ValueError for one that does not exist."""
    known = {field.name for field in attrs.fields(Advertise)}
    for name, value in members.items():
        if name not in known:
            raise ValueError(f"advertise has no member {name!r}")
        setattr(engine.advertise, name, value)


def build_rule(spec: RuleSpec) -> Rule:
    """A rule from its script form."""
    return Rule(spec.method, action_from_json(spec.action), spec.tool, spec.times)


def build_tools(specs: Sequence[Any], engine: Engine) -> list[FakeTool]:
    """Tools from decoded JSON: names of builtins, or members of `ToolSpec`."""
    return [build_tool(spec, engine) for spec in msgspec.convert(specs, list[str | ToolSpec])]


def build_tool(spec: str | ToolSpec, engine: Engine) -> FakeTool:
    """One tool from its script form."""
    if isinstance(spec, str):
        spec = ToolSpec(name=spec, builtin=spec)
    if spec.result is not None:
        tool = FakeTool(spec.name, _constant(spec.result))
    elif spec.builtin == "change_list":
        tool = change_list_tool(engine, spec.name)
    elif spec.builtin == "update_resource":
        tool = update_resource_tool(engine, spec.name)
    elif spec.builtin in _BUILTINS:
        tool = _BUILTINS[spec.builtin](spec.name)
    else:
        known = ", ".join(("change_list", "update_resource", *_BUILTINS))
        raise ValueError(f"unknown tool {spec.builtin!r}; there are {known}")
    listed = tool.listed
    return FakeTool(
        spec.name,
        tool.handler,
        listed["description"] if spec.description is None else spec.description,
        tool.input_schema if spec.input_schema is None else spec.input_schema,
        spec.delay,
        cancellable=spec.cancellable,
        **spec.members,
    )


def _constant(result: str | Message) -> Handler:
    def handler(arguments: Mapping[str, Any], arrival: Arrival) -> str | Message:
        del arguments, arrival
        return result

    return handler


def change_list_tool(engine: Engine, name: str = "change_list") -> FakeTool:
    """A tool that replaces the list of its own server and announces it; it stays in the list itself.

    Arguments of a call: `tools`, as in a script, and `notify`, true by default.
    """

    def handler(arguments: Mapping[str, Any], arrival: Arrival) -> str | Message:
        del arrival
        tools = build_tools(arguments.get("tools", []), engine)
        itself = [tool for tool in engine.tools if tool.name == name]
        engine.set_tools([*tools, *itself], notify=bool(arguments.get("notify", True)))
        return f"{len(engine.tools)} tools"

    return FakeTool(name, handler, "Replaces the list of tools.")


def update_resource_tool(engine: Engine, name: str = "update_resource") -> FakeTool:
    """A tool that changes a resource of its own server and tells who is subscribed to it.

    Arguments of a call: `uri` and `contents`.
    """

    def handler(arguments: Mapping[str, Any], arrival: Arrival) -> str | Message:
        del arrival
        return f"told {engine.update_resource(str(arguments.get('uri')), str(arguments.get('contents')))}"

    return FakeTool(name, handler, "Changes a resource.")

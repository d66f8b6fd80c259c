"""A tool made from another one: what is given differs, everything else stays, the binding included.

Rules:

* A derived tool is a new object; its base is never changed and goes on working as before.
* What rides along privately are *facts*: a view of the arguments, the names of host-filled arguments. The
  nearest derivation's word counts. They are in no repr and in no listing, and no equality looks at them.
* The binding is found through any number of derivations, so that a decorated bound tool still is one.
* A schema is shared by everybody who holds the tool. What `input_schema` gives is therefore a copy of the
  reader's own, made at every touch; `held_input_schema` gives the object itself to code that only reads.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias, final

from .._base.credential import CredentialRequirement
from .._base.definition import Definition
from .._base.errors import AfpoolError
from .._base.model import JsonObject, Tool, ToolContext, ToolResult
from ..pool import Binding, BoundTool

Execute: TypeAlias = Callable[[JsonObject, ToolContext], Awaitable[ToolResult]]
Around: TypeAlias = Callable[[JsonObject, ToolContext, Execute], Awaitable[ToolResult]]


class _Same:
    """What stands for an argument that was not given: `None` says something."""

    def __repr__(self) -> str:
        return "SAME"


SAME: Final = _Same()
_NO_FACTS: Final[Mapping[str, object]] = MappingProxyType({})
_BEGUN: Final = "_begun_in_the_hosts_own"


class HoldsSchemas(Tool):
    """A tool that holds its schemas as objects which nobody changes; either may be `SAME`: the base's."""

    __slots__ = ("_input_schema", "_output_schema")

    _input_schema: Any
    _output_schema: Any


@final
class DerivedTool(HoldsSchemas):
    """What `derive` gives."""

    __slots__ = (
        "__weakref__",
        "_around",
        "_base",
        "_description",
        "_facts",
        "_name",
        "_needs",
        "_run",
        "_wants",
    )

    def __init__(
        self,
        base: Tool,
        name: str | _Same,
        description: str | _Same,
        input_schema: JsonObject | _Same,
        output_schema: JsonObject | _Same | None,
        needs: CredentialRequirement | _Same | None,
        wants: Mapping[str, str] | _Same | None,
        around: Around | None,
        facts: Mapping[str, object],
    ) -> None:
        self._base = base
        self._name = name
        self._description = description
        self._input_schema = input_schema
        self._output_schema = output_schema
        self._needs = needs
        self._wants = wants
        self._around = around
        self._facts = facts
        # a derivation that does not touch the run adds nothing to its way
        self._run: Execute = (
            base._run if isinstance(base, DerivedTool) and base._around is None else run_of(base)
        )

    @property
    def name(self) -> str:
        """Its own, or the base's."""
        return self._base.name if isinstance(self._name, _Same) else self._name

    @property
    def description(self) -> str:
        """Its own, or the base's."""
        return self._base.description if isinstance(self._description, _Same) else self._description

    @property
    def input_schema(self) -> JsonObject:
        """Its own, or the base's; the reader's own to change."""
        held = self._input_schema
        schema: JsonObject = self._base.input_schema if isinstance(held, _Same) else copy_json(held)
        return schema

    @property
    def output_schema(self) -> JsonObject | None:
        """Its own, or the base's; the reader's own to change."""
        held = self._output_schema
        schema: JsonObject | None = self._base.output_schema if isinstance(held, _Same) else copy_json(held)
        return schema

    @property
    def annotations(self) -> JsonObject | None:
        """The base's."""
        return self._base.annotations

    @property
    def source(self) -> str | None:
        """The base's."""
        return self._base.source

    @property
    def needs(self) -> CredentialRequirement | None:
        """Its own, or the base's."""
        return self._base.needs if isinstance(self._needs, _Same) else self._needs

    @property
    def wants(self) -> Mapping[str, str] | None:
        """Its own, or the base's."""
        return self._base.wants if isinstance(self._wants, _Same) else self._wants

    def execute(self, args: JsonObject, ctx: ToolContext) -> Awaitable[ToolResult]:
        """Run the base, through what was given to stand around it."""
        around = self._around
        return self._run(args, ctx) if around is None else around(args, ctx, self._run)

    def __repr__(self) -> str:
        return f"<DerivedTool {self.name!r} of {self._base!r}>"


def run_of(tool: Tool) -> Execute:
    """Give what runs a tool; it marks what a class of the host's own raises once it has begun.

    What is derived from such a tool refuses by itself, and then it has not begun; see `has_begun`.
    """
    if isinstance(tool, HoldsSchemas | BoundTool):
        return tool.execute

    async def run(args: JsonObject, ctx: ToolContext) -> ToolResult:
        try:
            return await tool.execute(args, ctx)
        except AfpoolError as error:
            error.__dict__[_BEGUN] = True
            raise

    return run


def has_begun(error: AfpoolError) -> bool:
    """Whether an error is what a tool of a class of the host's own has raised: it has run, up to there."""
    return _BEGUN in error.__dict__


def derive(
    tool: Tool,
    *,
    name: str | _Same = SAME,
    description: str | _Same = SAME,
    input_schema: JsonObject | _Same = SAME,
    output_schema: JsonObject | _Same | None = SAME,
    needs: CredentialRequirement | _Same | None = SAME,
    wants: Mapping[str, str] | _Same | None = SAME,
    execute: Around | None = None,
    facts: Mapping[str, object] = _NO_FACTS,
) -> Tool:
    """Make a copy of a tool that differs in what is given.

    Args:
        tool: The base, which stays as it is.
        name: What a model calls the copy by.
        description: What a model reads about it.
        input_schema: JSON Schema of the arguments that a model may send. It is held as it is: nobody may
            change it afterwards.
        output_schema: JSON Schema of the structured result; `None` for none.
        needs: The credential that is fetched before the tool runs; `None` for none.
        wants: Argument name to artifact kind; `None` for none. The mapping is copied.
        execute: `execute(args, ctx, base_execute)` runs instead of the base's, and calls it as it sees fit.
        facts: What rides along privately, by key; a key given again covers the base's.

    Raises:
        TypeError: Something is not of its kind.
    """
    if not isinstance(tool, Tool):
        raise TypeError(f"only a tool can be derived from, not {type(tool).__name__}")
    _must_be(name, str, "name")
    _must_be(description, str, "description")
    _must_be(input_schema, Mapping, "input_schema")
    _must_be(output_schema, (Mapping, type(None)), "output_schema")
    _must_be(needs, (CredentialRequirement, type(None)), "needs")
    _must_be(wants, (Mapping, type(None)), "wants")
    kept: Mapping[str, str] | _Same | None = (
        MappingProxyType(dict(wants)) if isinstance(wants, Mapping) else wants
    )
    before: Mapping[str, object] = tool._facts if isinstance(tool, DerivedTool) else _NO_FACTS
    return DerivedTool(
        tool,
        name,
        description,
        input_schema,
        output_schema,
        needs,
        kept,
        execute,
        {**before, **facts} if facts else before,
    )


def _must_be(value: object, kind: type | tuple[type, ...], what: str) -> None:
    if value is not SAME and not isinstance(value, kind):
        raise TypeError(f"{what} of a derived tool cannot be {type(value).__name__}")


def fact(tool: object, key: str) -> object | None:
    """Give what rides on a tool under a key, the nearest derivation's first; `None` where nothing does."""
    return tool._facts.get(key) if isinstance(tool, DerivedTool) else None


def base_of(tool: Tool) -> Tool:
    """Give what a tool was derived from in the end: a bound tool, a defined one, the tool itself."""
    while isinstance(tool, DerivedTool):
        tool = tool._base
    return tool


def binding_of(tool: Tool) -> Binding | None:
    """Give what a tool is bound to, through any number of derivations; `None` for the host's own tools."""
    base = base_of(tool)
    return base.binding if isinstance(base, BoundTool) else None


def schema_holder(tool: Tool) -> Any:
    """Give the object that a tool's input schema belongs to, and lives as long as.

    A derivation that gives a schema of its own, else what it was derived from; of a bound tool its
    definition, which all who were listed the same tool share.
    """
    while isinstance(tool, DerivedTool) and tool._input_schema is SAME:
        tool = tool._base
    return tool.binding.definition if isinstance(tool, BoundTool) else tool


def output_holder(tool: Tool) -> Any:
    """Give the object that a tool's output schema belongs to; as `schema_holder`."""
    while isinstance(tool, DerivedTool) and tool._output_schema is SAME:
        tool = tool._base
    return tool.binding.definition if isinstance(tool, BoundTool) else tool


def held_input_schema(tool: Tool) -> JsonObject:
    """Give a tool's input schema for reading only: it may be the very object that others hold."""
    holder = schema_holder(tool)
    held: JsonObject | None = (
        holder._input_schema if isinstance(holder, HoldsSchemas) else holder.input_schema
    )
    return {} if held is None else held


def held_output_schema(tool: Tool) -> JsonObject | None:
    """Give a tool's output schema for reading only; `None` where there is none."""
    holder = output_holder(tool)
    if isinstance(holder, Definition) and b'"outputSchema"' not in holder.raw:
        return None  # most have none, and to find that out takes no decoding
    held: JsonObject | None = (
        holder._output_schema if isinstance(holder, HoldsSchemas) else holder.output_schema
    )
    return held


def copy_json(value: Any) -> Any:
    """Copy a JSON value in depth: containers anew, as dicts and lists; what cannot change is shared."""
    if isinstance(value, Mapping):
        return {key: copy_json(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [copy_json(member) for member in value]
    return value

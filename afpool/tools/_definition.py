"""Tools of the host's own: `define_tool`, for a function that takes named arguments or the whole object.

What is wrong with a definition is refused when it is made, and the refusal names the tool: a name that model
providers do not take, a schema that does not compile, a kind that is none. What is not declared is absent.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Unpack, final, overload

import trio

from .._base.credential import CredentialRequirement
from .._base.names import assert_valid_tool_name
from ._derive import HoldsSchemas, copy_json
from ._limits import ResultCeiling
from ._results import failed, json_of, value_result
from ._signature import Signature, read_signature
from ._validation import check_schema
from ._wants import assert_tool_wants
from ._with_wants import execute_wanting

if TYPE_CHECKING:
    from .._base.model import JsonObject, ToolContext, ToolResult
    from ._derive import Execute

Function: TypeAlias = Callable[..., Any]
Whole: TypeAlias = "Callable[[JsonObject, ToolContext], Awaitable[Any] | Any]"


@final
class LocalTool(HoldsSchemas):
    """A tool of the host's own; made by `define_tool`. What it is never changes."""

    __slots__ = (
        "__weakref__",
        "_annotations",
        "_description",
        "_name",
        "_needs",
        "_run",
        "_wants",
        "result_ceiling",
        "result_kind",
    )

    def __init__(
        self,
        run: Execute,
        name: str,
        description: str,
        input_schema: JsonObject,
        output_schema: JsonObject | None,
        annotations: JsonObject | None,
        needs: CredentialRequirement | None,
        wants: Mapping[str, str] | None,
        result_ceiling: ResultCeiling | None,
        result_kind: str | None,
    ) -> None:
        self._run = run
        self._name = name
        self._description = description
        self._input_schema = input_schema
        self._output_schema = output_schema
        self._annotations = annotations
        self._needs = needs
        self._wants = wants
        self.result_ceiling = result_ceiling
        self.result_kind = result_kind

    @property
    def name(self) -> str:
        """The name that a model calls it by."""
        return self._name

    @property
    def description(self) -> str:
        """What a model reads about it."""
        return self._description

    @property
    def input_schema(self) -> JsonObject:
        """JSON Schema of the arguments; the reader's own to change."""
        schema: JsonObject = copy_json(self._input_schema)
        return schema

    @property
    def output_schema(self) -> JsonObject | None:
        """JSON Schema of the structured result, where there is one; the reader's own to change."""
        schema: JsonObject | None = copy_json(self._output_schema)
        return schema

    @property
    def annotations(self) -> JsonObject | None:
        """The hints that were given."""
        hints: JsonObject | None = copy_json(self._annotations)
        return hints

    @property
    def needs(self) -> CredentialRequirement | None:
        """The credential that is fetched before the tool runs."""
        return self._needs

    @property
    def wants(self) -> Mapping[str, str] | None:
        """Argument name to artifact kind."""
        return self._wants

    def execute(self, args: JsonObject, ctx: ToolContext) -> Awaitable[ToolResult]:
        """Run the function. The arguments are taken as they are: whoever dispatches validates them.

        Raises:
            InvalidArguments: An argument cannot be read as what it is annotated as; the function did not run.
            WantsRefusedError: A reference did not resolve, where no door resolved it before.
            ToolFailed: The function raised, which is the error's cause, or returned what is not JSON.

        At least one checkpoint where the function is not asynchronous or has one itself.
        """
        return self._run(args, ctx)

    def __repr__(self) -> str:
        return f"<LocalTool {self._name!r}>"


class Declared(TypedDict, total=False):
    """What a tool may be declared with; see `define_tool`."""

    name: str | None
    description: str | None
    input_schema: JsonObject | None
    output_schema: JsonObject | None
    annotations: JsonObject | None
    needs: CredentialRequirement | str | None
    wants: Mapping[str, str] | None
    result_ceiling: ResultCeiling | None
    result_kind: str | None


@overload
def define_tool(function: Function, /, **declared: Unpack[Declared]) -> LocalTool: ...


@overload
def define_tool(*, execute: Whole, **declared: Unpack[Declared]) -> LocalTool: ...


@overload
def define_tool(**declared: Unpack[Declared]) -> Callable[[Function], LocalTool]: ...


def define_tool(
    function: Function | None = None,
    /,
    *,
    execute: Whole | None = None,
    name: str | None = None,
    description: str | None = None,
    input_schema: JsonObject | None = None,
    output_schema: JsonObject | None = None,
    annotations: JsonObject | None = None,
    needs: CredentialRequirement | str | None = None,
    wants: Mapping[str, str] | None = None,
    result_ceiling: ResultCeiling | None = None,
    result_kind: str | None = None,
) -> LocalTool | Callable[[Function], LocalTool]:
    """Make a tool of a function; also a decorator, with or without arguments.

    A function that is given itself takes named arguments: its schema is read from its signature and its
    description from its docstring (the part before the sections; what `Args:` says goes to the arguments). A
    parameter annotated `ToolContext`, or named `ctx` without an annotation, is given the context. `execute`
    takes the whole arguments object and the context instead, and needs a name.

    Either may be asynchronous or not; one that is not runs on the loop and must be quick. It may return a
    string, anything that JSON holds or that `msgspec` turns into it, or a `ToolResult`.

    Args:
        function: Called with named arguments.
        execute: Called with the arguments object and the context.
        name: The function's when absent.
        description: The docstring's when absent.
        input_schema: The signature's when absent; for `execute` an object without arguments.
        output_schema: JSON Schema of the structured result; each result is validated against it.
        annotations: Hints, as MCP names them (`readOnlyHint`, ...).
        needs: The credential to fetch before each run; a string names the service.
        wants: Argument name to the kind of the artifact that stands there when the function runs; the model
            passes its reference.
        result_ceiling: A result larger than this is replaced by a sentence.
        result_kind: The kind under which a result that is stored as an artifact is stored.

    Raises:
        TypeError: Something is not of its kind, or the signature has no schema.
        ValueError: A name that model providers refuse, a schema that does not compile, a `wants` or a kind
            that can never be met.
    """
    if function is None and execute is None:
        declared = {key: value for key, value in locals().items() if key not in ("function", "execute")}
        return functools.partial(define_tool, **declared)
    if function is not None and execute is not None:
        raise TypeError("a tool has a function or an execute, not both")
    called = execute if function is None else function
    if not callable(called):
        raise TypeError(f"a tool needs something to call, not {type(called).__name__}")
    if name is None:
        if execute is not None:
            raise TypeError("a tool defined by execute needs a name")
        name = str(getattr(called, "__name__", type(called).__name__))
    assert_valid_tool_name(name)
    signature = None
    if function is not None:
        signature = read_signature(function, name, wants if isinstance(wants, Mapping) else None)
        description = signature.description if description is None else description
        input_schema = signature.schema if input_schema is None else input_schema
    elif input_schema is None:
        input_schema = {"type": "object", "properties": {}}
    if description is None:
        description = inspect.getdoc(called) or ""
    assert input_schema is not None
    if isinstance(needs, str):
        needs = CredentialRequirement(needs)
    _check(name, description, needs, result_ceiling, result_kind)
    held_input = _held_schema(name, "input_schema", input_schema)
    run = _runner(called, signature, name)
    held_wants = None
    if wants is not None:
        assert_tool_wants(name, wants, held_input)
        held_wants = MappingProxyType(dict(wants))
        run = _wanting(run, name, held_wants, held_input)
    return LocalTool(
        run,
        name,
        description,
        held_input,
        None if output_schema is None else _held_schema(name, "output_schema", output_schema),
        None if annotations is None else _held(name, "annotations", annotations),
        needs,
        held_wants,
        result_ceiling,
        result_kind,
    )


def _check(name: str, description: object, needs: object, ceiling: object, kind: object) -> None:
    if not isinstance(description, str):
        raise TypeError(f"tool {name!r}: a description is a string, not {type(description).__name__}")
    if not isinstance(needs, CredentialRequirement | None):
        raise TypeError(f"tool {name!r}: needs is a CredentialRequirement or the name of a service")
    if not isinstance(ceiling, ResultCeiling | None):
        raise TypeError(f"tool {name!r}: result_ceiling is a ResultCeiling; leave it out for none")
    if kind is not None and (not isinstance(kind, str) or not kind.strip()):
        raise ValueError(f"tool {name!r}: a result_kind is a string that is not blank; leave it out for none")


def _held(name: str, what: str, given: object) -> JsonObject:
    """Take a copy that nobody else holds."""
    if not isinstance(given, Mapping):
        raise TypeError(f"tool {name!r}: {what} is a mapping, not {type(given).__name__}")
    try:
        json_of(given)
    except TypeError as error:
        raise TypeError(f"tool {name!r}: {what}: {error}") from None
    held: JsonObject = copy_json(given)
    return held


def _held_schema(name: str, what: str, given: object) -> JsonObject:
    schema = _held(name, what, given)
    problem = check_schema(schema)
    if problem is not None:
        raise ValueError(f"tool {name!r}: the {what} does not compile: {problem}")
    return schema


def _wanting(run: Execute, name: str, wants: Mapping[str, str], schema: JsonObject) -> Execute:
    """Redeem for direct callers what a door redeems before it executes."""

    async def execute(args: JsonObject, ctx: ToolContext) -> ToolResult:
        return await execute_wanting(name, wants, schema, args, ctx, run)

    return execute


def _runner(called: Callable[..., Any], signature: Signature | None, name: str) -> Execute:
    """Give what `LocalTool.execute` calls; decided once what kind of function it is."""
    if inspect.iscoroutinefunction(called) or inspect.iscoroutinefunction(getattr(called, "__call__", None)):  # noqa: B004 -- of an object that is called

        async def waiting(args: JsonObject, ctx: ToolContext) -> ToolResult:
            given = None if signature is None else signature.arguments(args, ctx)
            try:
                value = await (called(args, ctx) if given is None else called(**given))
                return value_result(value, ctx.call_id or "")
            except Exception as error:
                raise failed(name, error) from error

        return waiting

    async def plain(args: JsonObject, ctx: ToolContext) -> ToolResult:
        await trio.lowlevel.checkpoint()
        given = None if signature is None else signature.arguments(args, ctx)
        try:
            value = called(args, ctx) if given is None else called(**given)
            if inspect.isawaitable(value):
                value = await value
            return value_result(value, ctx.call_id or "")
        except Exception as error:
            raise failed(name, error) from error

    return plain

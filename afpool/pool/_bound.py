"""A bound tool: a tool and what it was listed under. Its `execute` runs the five steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, final

import attrs

from .._base.model import JsonObject, ProgressCallback, Tool, ToolContext, ToolResult
from .._base.names import name_tools
from ._again import execute_recognised
from ._operation import execute

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from .._base.definition import Catalog, Definition
    from .._base.errors import AfpoolError
    from .._base.identity import CallerIdentity
    from ._actor import KeyActor
    from ._lists import ListState


@final
@attrs.frozen(eq=False, repr=False)
class Binding:
    """What a tool was listed under. Nothing in it changes.

    Attributes:
        actor: The actor of the key that it was listed for.
        epoch: The key's epoch then.
        keyed_on: The identity fields that the server was keyed on then.
        context: The plan context, `pc:...`.
        authorization: The name that `share` gave; never shown.
        list: The list that it came from: an incarnation's own, or a shared entry's.
        generation: That list's generation then.
        client_id: The incarnation that it was listed from; `None` under sharing.
        definition: The listed tool object.
    """

    actor: KeyActor
    epoch: int
    keyed_on: tuple[str, ...]
    context: str
    authorization: str | None
    list: ListState
    generation: int
    client_id: int | None
    definition: Definition

    @property
    def shared(self) -> bool:
        """Whether the list is a shared entry's."""
        return self.list.shared

    def __repr__(self) -> str:
        return f"<Binding of {self.definition.name!r} list {self.list.id} generation {self.generation}>"


@final
class BoundTool(Tool):
    """A tool that refuses for anyone else, on a stale list, or under a changed authorization."""

    __slots__ = ("__weakref__", "binding")

    def __init__(self, binding: Binding) -> None:
        self.binding = binding

    @property
    def name(self) -> str:
        """The server's name for it."""
        return self.binding.definition.name

    @property
    def description(self) -> str:
        """The server's description, or a fallback that names the tool."""
        return self.binding.definition.description or f"MCP tool: {self.name}"

    @property
    def input_schema(self) -> JsonObject:
        """As listed."""
        return self.binding.definition.input_schema or {}

    @property
    def output_schema(self) -> JsonObject | None:
        """As listed."""
        return self.binding.definition.output_schema

    @property
    def annotations(self) -> JsonObject | None:
        """As listed."""
        return self.binding.definition.annotations

    @property
    def source(self) -> str:
        """The name of the server."""
        return self.binding.actor.server.name

    def execute(self, args: JsonObject, ctx: ToolContext) -> Awaitable[ToolResult]:
        """Run the five steps for the run that `ctx` describes.

        Args:
            args: Arguments of the call, a JSON object.
            ctx: Who calls, until when, and whose progress callback.

        Returns:
            The server's answer; `is_error` results are returned, not raised.

        Raises:
            AfpoolError: One of its subclasses: a refusal or a failure, with `code` and `delivery`.
            trio.Cancelled: The caller was cancelled; back within 50 ms, its place settles behind it.

        Passes at least one checkpoint, refusals too.
        """
        binding = self.binding
        server = binding.actor.server
        check = self.validate_output if server.validate_output else None
        if check is None and server.repeat == "never":
            return execute(binding, args, ctx)
        return execute_recognised(binding, args, ctx, check)

    async def validate_output(self, result: ToolResult) -> ToolResult:
        """Validate the structured content of a result against the tool's listed output schema.

        A tool without such a schema, a result with `is_error`, and a schema that cannot be compiled (said
        once, as a warning) are let through. Nothing is fetched for a reference in a schema.

        Returns:
            The same result.

        Raises:
            InvalidOutput: It is not what the schema allows; `result` of the error is the answer.

        Validating what is large happens in a thread; only then it is a checkpoint.
        """
        actor = self.binding.actor
        await actor.pool.outputs.check(
            self.source, self.binding.definition, result, actor.projection.tenant, actor.key
        )
        return result

    async def call(
        self,
        args: JsonObject | None = None,
        *,
        identity: CallerIdentity,
        deadline: float | None = None,
        call_id: str | None = None,
        on_progress: ProgressCallback | None = None,
        chain: tuple[int, ...] = (),
    ) -> ToolResult:
        """Build the context and `execute`.

        Args:
            args: Arguments of the call; none are an empty object.
            identity: Who the run acts for: an `Identity`, or a callable that returns one or `None`.
            deadline: Absolute, seconds on trio's clock; the pool's default from now when absent.
            call_id: Stable across attempts; made up when absent.
            on_progress: Called in this task with each `Progress`.
            chain: Tickets of the calls that this one is made from inside of.

        Raises:
            AfpoolError: As `execute`.
        """
        ctx = ToolContext(
            identity=identity, deadline=deadline, call_id=call_id, on_progress=on_progress, chain=chain
        )
        return await self.execute({} if args is None else args, ctx)

    def __repr__(self) -> str:
        return f"<BoundTool {self.source}/{self.name}>"


@final
class Toolset(Mapping[str, BoundTool]):
    """The tools of one identity: a view of one or several lists. Bound tools are made when touched.

    A name that two servers list is offered as `server__tool` only, and so is one that would read as such.

    Attributes:
        problems: Server name to the error that its listing ended with.
        unsettled: Servers whose list kept changing while it was asked for.
        quarantined: Server and tool name (or position) to the reason why it is not offered.
    """

    __slots__ = ("_index", "_listings", "problems")

    def __init__(self, listings: list[Listing], problems: Mapping[str, AfpoolError]) -> None:
        self._listings = listings
        self.problems = problems
        self._index: dict[str, tuple[Listing, str]] | None = None
        if len(listings) + len(problems) > 1:
            by_server = {listing.actor.server.name: listing for listing in listings}
            named = name_tools(
                [(server, listing.catalog.names) for server, listing in by_server.items()],
                servers=problems,
                portable=False,
            )
            self._index = {
                shown: (by_server[server], name)
                for shown, (server, name) in named.places.items()
                if server is not None
            }

    def __getitem__(self, name: str) -> BoundTool:
        if self._index is None:
            if not self._listings:
                raise KeyError(name)
            return self._listings[0].bind(name)
        listing, plain = self._index[name]
        return listing.bind(plain)

    def __contains__(self, name: object) -> bool:
        # without making the tool, as a mapping would by itself
        if self._index is not None:
            return name in self._index
        return bool(self._listings) and name in self._listings[0].catalog

    def __iter__(self) -> Iterator[str]:
        if self._index is not None:
            return iter(self._index)
        return iter(self._listings[0].catalog.names if self._listings else ())

    def __len__(self) -> int:
        if self._index is not None:
            return len(self._index)
        return len(self._listings[0].catalog) if self._listings else 0

    @property
    def catalogs(self) -> dict[str, Catalog]:
        """Server to the list that its tools are of."""
        return {listing.actor.server.name: listing.catalog for listing in self._listings}

    @property
    def unsettled(self) -> tuple[str, ...]:
        """Servers whose list kept changing while it was asked for."""
        return tuple(listing.actor.server.name for listing in self._listings if listing.list.noticed)

    @property
    def quarantined(self) -> dict[str, str]:
        """`server/tool` to why it is not offered."""
        return {
            f"{listing.actor.server.name}/{name}": reason
            for listing in self._listings
            for name, reason in listing.catalog.quarantined
        }

    def __repr__(self) -> str:
        return f"<Toolset of {len(self)} tools>"


@final
class Listing:
    """One list as one identity received it; makes bound tools of it."""

    __slots__ = (
        "actor", "authorization", "catalog", "client_id", "context", "epoch", "generation", "keyed_on",
        "list",
    )  # fmt: skip

    def __init__(
        self,
        actor: KeyActor,
        context: str,
        authorization: str | None,
        state: ListState,
        client_id: int | None,
    ) -> None:
        assert state.catalog is not None
        self.actor = actor
        self.epoch = actor.machine.epoch
        self.keyed_on = actor.server.keyed_on
        self.context = context
        self.authorization = authorization
        self.list = state
        self.generation = state.generation
        self.client_id = client_id
        self.catalog: Catalog = state.catalog

    def bind(self, name: str) -> BoundTool:
        """Make the bound tool of a listed name.

        Raises:
            KeyError: The list has no such tool.
        """
        definition = self.catalog.get(name)
        if definition is None:
            raise KeyError(name)
        return BoundTool(
            Binding(
                self.actor,
                self.epoch,
                self.keyed_on,
                self.context,
                self.authorization,
                self.list,
                self.generation,
                self.client_id,
                definition,
            )
        )

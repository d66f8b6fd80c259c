"""Tools, their context and their results, as every part of afpool passes them on."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, final

import attrs
import msgspec

from .answers import ResourceContents
from .errors import ANSWERED, AfpoolError, Delivery, ProtocolError, ToolError

if TYPE_CHECKING:
    from .credential import Credential, CredentialProvider, CredentialRequirement
    from .identity import CallerIdentity
    from .use import Use

JsonObject: TypeAlias = Mapping[str, Any]
ProgressCallback: TypeAlias = Callable[["Progress"], object]


@attrs.frozen
class Progress:
    """One progress notification of a running call.

    Attributes:
        progress: How far; grows with every notification.
        total: The end of the scale, where the server knows it.
        message: A sentence for people, where the server sends one.
    """

    progress: float
    total: float | None = None
    message: str | None = None


@attrs.frozen
class UrlElicitation:
    """An address that a server wants its user to visit. It is shown in full; afpool never opens it.

    Attributes:
        url: `http` or `https`. It may hold what nobody else should see, so it is in no repr.
        message: The server's words for the user.
        elicitation_id: The server's name for it, where it has one.
    """

    url: str = attrs.field(repr=False)
    message: str
    elicitation_id: str | None = None


@attrs.define(eq=False, kw_only=True)
class ToolContext:
    """What a tool is told about the run that calls it. Absent facts are `None`.

    Attributes:
        identity: Who the run acts for, as its caller named them: an `Identity`, or a synchronous callable
            that returns one or `None` and is asked again at every recheck.
        call_id: Stable over all attempts of the call; made up when absent.
        run_id: The run that the call belongs to.
        deadline: Absolute, seconds on trio's clock, over queue, plan, credential, connect, write, answer.
        on_progress: Called in the caller's own task and context with each `Progress`.
        chain: Tickets of the calls that this call is made from inside of.
        credential: What the tool's `needs` was answered with: the live object, never recorded.
        credentials: Whom a tool may ask for a credential that it did not declare; `None` where nobody vends.
        artifacts: The artifact store as the run sees it: five verbs without a scope. Without a store each of
            them refuses (`NoArtifacts`); `None` only where no door made the context.
        wanted: Argument name to the metadata of the artifact that stands in it now, for the tool's `wants`;
            `None` where nothing was resolved.
        progress: What a tool reports its own progress to: takes a `Progress`, or any JSON; never raises and
            is never awaited. `None` where nobody listens.
        tools: What a tool calls other tools with, at the same door. `None` where there is no such door.
        on_credential: Told, synchronously and before it leaves, of each credential that a request of the call
            carries to a server. For whoever shows its answer to others; `None` where nobody does.
        door: What runs the call and looks through whatever leaves it, for decorations of tools that would
            otherwise do so themselves. `None` where a tool is called directly.
        use: The facts of the call, where whoever dispatches it files them; the first bound tool that it
            reaches writes into them. `None` where a tool is called directly.
    """

    identity: CallerIdentity = None
    call_id: str | None = None
    run_id: str | None = None
    deadline: float | None = None
    on_progress: ProgressCallback | None = None
    chain: tuple[int, ...] = ()
    credential: Credential | None = attrs.field(default=None, repr=False)
    credentials: CredentialProvider | None = attrs.field(default=None, repr=False)
    # Of parts that lie above this one; their own types stand there.
    artifacts: Any = attrs.field(default=None, repr=False)
    wanted: Mapping[str, Any] | None = attrs.field(default=None, repr=False)
    progress: Callable[[Any], None] | None = attrs.field(default=None, repr=False)
    tools: Any = attrs.field(default=None, repr=False)
    on_credential: Callable[[Credential], object] | None = attrs.field(default=None, repr=False)
    door: Any = attrs.field(default=None, repr=False)
    use: Use | None = attrs.field(default=None, repr=False)


class Tool:
    """A callable tool. Bound tools of a pool are one kind of it.

    Subclasses provide `name`, `description`, `input_schema` and `execute`; the rest where there is any.
    """

    __slots__ = ()

    @property
    def name(self) -> str:
        """The name that a model calls it by."""
        raise NotImplementedError

    @property
    def description(self) -> str:
        """What a model reads about it."""
        raise NotImplementedError

    @property
    def input_schema(self) -> JsonObject:
        """JSON Schema of the arguments, verbatim as its server listed it."""
        raise NotImplementedError

    @property
    def output_schema(self) -> JsonObject | None:
        """JSON Schema of the structured result, where there is one."""
        return None

    @property
    def annotations(self) -> JsonObject | None:
        """The listed hints; they are the server's word and nothing more."""
        return None

    @property
    def source(self) -> str | None:
        """The server that listed it; `None` for a tool of the host's own."""
        return None

    @property
    def needs(self) -> CredentialRequirement | None:
        """The credential that is fetched before the tool runs; no model ever sees it."""
        return None

    @property
    def wants(self) -> Mapping[str, str] | None:
        """Argument name to the kind of the artifact that the reference passed there must name."""
        return None

    def execute(self, args: JsonObject, ctx: ToolContext) -> Awaitable[ToolResult]:
        """Run the tool for the run that `ctx` describes."""
        raise NotImplementedError


class _ResultHead(msgspec.Struct):
    # `isError` is a boolean by the specification; anything else is read by its truth.
    is_error: Any = msgspec.field(name="isError", default=None)
    # What makes it a result; not decoded before somebody reads it.
    content: msgspec.Raw = msgspec.Raw(b"")
    structured: msgspec.Raw = msgspec.field(name="structuredContent", default=msgspec.Raw(b""))
    legacy: msgspec.Raw = msgspec.field(name="toolResult", default=msgspec.Raw(b""))


_decode_head = msgspec.json.Decoder(_ResultHead).decode
_decode_any = msgspec.json.Decoder().decode


def _no_constant(_: str) -> NoReturn:
    raise ValueError  # NaN and Infinity are no JSON


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError
    return value


@final
class ToolResult:
    """The answer of a tool, kept as the bytes that came and decoded once, when read.

    A bound tool gives the server's answers only: a failure without one raises. A door that promises a result
    for everything gives refusals and failures as results, too.

    Args:
        raw: The JSON of the result object.
        call_id: Of the call that it answers.
        code: What it is for programs, where that is neither `ok` nor `tool-error`.
        delivery: What is known about the call having run.
        error: The refusal or failure that it tells of.

    Attributes:
        raw: The JSON of the result object.
        call_id: Of the call that it answers.
        delivery: The verdict on the call; `answered` for what a server sent.
        error: The refusal or failure that it tells of; `None` for an answer.
    """

    __slots__ = ("_code", "_document", "_has_form", "_is_error", "call_id", "delivery", "error", "raw")

    def __init__(
        self,
        raw: bytes,
        call_id: str,
        *,
        code: str | None = None,
        delivery: Delivery = ANSWERED,
        error: AfpoolError | None = None,
    ) -> None:
        self.raw = raw
        self.call_id = call_id
        self.delivery: Delivery = delivery
        self.error = error
        self._code = code
        self._document: dict[str, Any] | None = None
        self._is_error: bool | None = None
        self._has_form = False

    @classmethod
    def made(
        cls,
        raw: bytes,
        call_id: str,
        *,
        is_error: bool = False,
        code: str | None = None,
        delivery: Delivery = ANSWERED,
        error: AfpoolError | None = None,
    ) -> ToolResult:
        """Make a result whose maker knows its form, so that nobody has to look for it."""
        result = cls(raw, call_id)
        result._code = code
        result.delivery = delivery
        result.error = error
        result._is_error = is_error
        result._has_form = True
        return result

    @property
    def is_error(self) -> bool:
        """Whether the tool says that it failed."""
        if self._is_error is None:
            self._look()
        assert self._is_error is not None
        return self._is_error

    @property
    def has_form(self) -> bool:
        """Whether it is a result at all: with content, structured content, or the `toolResult` of old.

        Raises:
            ProtocolError: It is no readable JSON object.
        """
        if self._is_error is None:
            self._look()
        return self._has_form

    def _look(self) -> None:
        if not self.raw.isascii():
            try:
                self.raw.decode()  # msgspec does not look into what it skips
            except UnicodeDecodeError:
                raise self._unreadable() from None
        try:
            head = _decode_head(self.raw)
        except (msgspec.DecodeError, RecursionError):
            document = self.document
            self._is_error = bool(document.get("isError"))
            self._has_form = isinstance(document.get("content"), list) or not document.keys().isdisjoint(
                ("structuredContent", "toolResult")
            )
        else:
            self._is_error = bool(head.is_error)
            self._has_form = (
                bytes(head.content).startswith(b"[") or bool(head.structured) or bool(head.legacy)
            )

    @property
    def code(self) -> str:
        """`ok`, `tool-error` where the tool answered `isError`, or the word of a refusal or a failure."""
        if self._code is not None:
            return self._code
        return "tool-error" if self.is_error else "ok"

    @property
    def document(self) -> dict[str, Any]:
        """The whole result object.

        Raises:
            ProtocolError: It is no JSON object, or one that nobody can read (NaN, nested too deeply).
        """
        if self._document is None:
            try:
                document = _decode_any(self.raw)
            except (msgspec.DecodeError, RecursionError):
                # Lone surrogates are JSON, and msgspec does not read them.
                try:
                    document = json.loads(self.raw, parse_constant=_no_constant, parse_float=_finite)
                except (ValueError, RecursionError):
                    raise self._unreadable() from None
            if not isinstance(document, dict):
                raise self._unreadable()
            self._document = document
        return self._document

    @property
    def content(self) -> list[dict[str, Any]]:
        """The content blocks; an absent list is an empty one."""
        content = self.document.get("content")
        return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []

    @property
    def structured(self) -> Any:
        """`structuredContent`, or `None` where there is none."""
        return self.document.get("structuredContent")

    @property
    def has_structured(self) -> bool:
        """Whether there is a `structuredContent`; from 2026-07-28 on it may be `null`."""
        return "structuredContent" in self.document

    @property
    def resource_links(self) -> list[dict[str, Any]]:
        """The `resource_link` blocks, each with a `uri` to read; they need not be in any list."""
        return [block for block in self.content if block.get("type") == "resource_link"]

    @property
    def resources(self) -> list[ResourceContents]:
        """What the embedded `resource` blocks hold."""
        return [
            ResourceContents(block["resource"])
            for block in self.content
            if block.get("type") == "resource" and isinstance(block.get("resource"), dict)
        ]

    @property
    def text(self) -> str:
        """The text blocks joined by newlines; another block reads as its type in brackets."""
        parts = []
        for block in self.content:
            text = block.get("text")
            if block.get("type") == "text" and isinstance(text, str):
                parts.append(text)
            else:
                parts.append(f"[{block.get('type', 'unknown')}]")
        return "\n".join(parts)

    def raise_for_error(self) -> ToolResult:
        """Return self, or raise.

        Raises:
            ToolError: The tool answered `isError`; the message holds its own text, at most 8,192 characters.
            AfpoolError: The refusal or failure that the result tells of.
        """
        if self.error is not None:
            raise self.error
        if self.is_error:
            error = ToolError(self.text[:8192] or "the tool says that it failed, without a text")
            error.call_id = self.call_id
            raise error
        return self

    def _unreadable(self) -> ProtocolError:
        error = ProtocolError(
            f"the result is no readable JSON object ({len(self.raw)} bytes); the tool may have run"
        )
        error.call_id = self.call_id
        return error

    def __repr__(self) -> str:
        return f"<ToolResult of call {self.call_id}: {len(self.raw)} bytes>"

"""What a fake server has beside its tools: resources, prompts, completions, a log level.

Nothing is offered that is empty: a server without resources says nothing of them in its capabilities and
answers -32601, as real ones do. Everything may be changed at any time.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from ._envelope import INVALID_PARAMS, Message, RpcError

UPDATED: Final = "notifications/resources/updated"

Completer: TypeAlias = Callable[[Mapping[str, Any]], Sequence[str]]


@attrs.define(eq=False)
class FakeResource:
    """One resource.

    Args:
        uri: As listed and read.
        contents: A text, or bytes.
        name: As listed.
        mime_type: As listed and read.
        members: Further members of the listed object.
    """

    uri: str
    contents: str | bytes = ""
    name: str = ""
    mime_type: str = "text/plain"
    members: Mapping[str, Any] = attrs.field(factory=dict)

    @property
    def listed(self) -> Message:
        """As it stands in `resources/list`."""
        return {"uri": self.uri, "name": self.name or self.uri, "mimeType": self.mime_type, **self.members}

    @property
    def read(self) -> Message:
        """As `resources/read` answers it."""
        part: Message = {"uri": self.uri, "mimeType": self.mime_type}
        if isinstance(self.contents, bytes):
            part["blob"] = base64.b64encode(self.contents).decode()
        else:
            part["text"] = self.contents
        return {"contents": [part]}


@attrs.define(eq=False)
class FakePrompt:
    """One prompt.

    Args:
        name: As listed and got.
        template: The text of its one message, a format string over its arguments.
        arguments: Names of its arguments, as listed.
    """

    name: str
    template: str = ""
    arguments: Sequence[str] = ()

    @property
    def listed(self) -> Message:
        """As it stands in `prompts/list`."""
        return {"name": self.name, "arguments": [{"name": name} for name in self.arguments]}

    def filled(self, arguments: Mapping[str, Any]) -> Message:
        """As `prompts/get` answers it. Raises RpcError for an argument that is missing."""
        try:
            text = self.template.format_map(arguments)
        except KeyError as error:
            raise RpcError(INVALID_PARAMS, f"Missing argument: {error.args[0]}") from None
        return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}


@attrs.define(eq=False)
class Offers:
    """What there is beside tools.

    Attributes:
        resources: Of `resources/list` and `resources/read`.
        templates: The objects of `resources/templates/list`.
        subscribable: Whether resources can be subscribed to.
        prompts: Of `prompts/list` and `prompts/get`.
        complete: Answers `completion/complete`: given its parameters, the values.
        logging: Whether the log level can be set.
    """

    resources: list[FakeResource] = attrs.field(factory=list)
    templates: list[Message] = attrs.field(factory=list)
    subscribable: bool = True
    prompts: list[FakePrompt] = attrs.field(factory=list)
    complete: Completer | None = None
    logging: bool = False

    @property
    def subscribable_uris(self) -> frozenset[str] | None:
        """What can be subscribed to now; None where there is no such thing."""
        if not self.resources or not self.subscribable:
            return None
        return frozenset(resource.uri for resource in self.resources)

    def rewrite(self, uri: str, contents: str | bytes) -> None:
        """Change what a resource holds; tells nobody.

        Raises:
            LookupError: There is no such resource.
        """
        for resource in self.resources:
            if resource.uri == uri:
                resource.contents = contents
                return
        raise LookupError(f"there is no resource {uri!r}")

    @property
    def capabilities(self) -> Message:
        """The capabilities that go with it."""
        found: Message = {}
        if self.resources or self.templates:
            found["resources"] = {"listChanged": True, "subscribe": self.subscribable}
        if self.prompts:
            found["prompts"] = {"listChanged": True}
        if self.complete is not None:
            found["completions"] = {}
        if self.logging:
            found["logging"] = {}
        return found

    def listing(self, method: str) -> tuple[str, list[Message]] | None:
        """The member and the items of a list; None for a method that lists nothing here."""
        if method in ("resources/list", "resources/templates/list") and "resources" in self.capabilities:
            if method == "resources/list":
                return "resources", [resource.listed for resource in self.resources]
            return "resourceTemplates", list(self.templates)
        if method == "prompts/list" and self.prompts:
            return "prompts", [prompt.listed for prompt in self.prompts]
        return None

    def answer(self, method: str, params: Mapping[str, Any]) -> Message | None:
        """The answer to what is no list; None for a method that is not offered. Raises RpcError."""
        if method == "resources/read" and self.resources:
            return self.find(params.get("uri")).read
        if method == "prompts/get" and self.prompts:
            arguments = params.get("arguments")
            for prompt in self.prompts:
                if prompt.name == params.get("name"):
                    return prompt.filled(arguments if isinstance(arguments, Mapping) else {})
            raise RpcError(INVALID_PARAMS, "Unknown prompt")
        if method == "completion/complete" and self.complete is not None:
            values = list(self.complete(params))
            return {
                "completion": {"values": values[:100], "total": len(values), "hasMore": len(values) > 100}
            }
        return None

    def find(self, uri: object) -> FakeResource:
        """The resource of a URI. Raises RpcError where there is none."""
        for resource in self.resources:
            if resource.uri == uri:
                return resource
        raise RpcError(INVALID_PARAMS, "Resource not found")

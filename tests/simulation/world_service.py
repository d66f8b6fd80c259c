"""What a simulated world has where a service stands beside its pool: people with bearer tokens, servers
behind the door, limits of the door.

Data only, as the rest of a world (`world.py`). The service has a runtime and servers of its own on the
network of the world, so that what is judged of the pool stays as it is. Rules:

* A token belongs to a person. Where it `expires`, it does so many seconds after the service is open.
* `strange` tokens are none: the first half of a true one, one that nobody made, one of another file.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 -- read at run time, when a file is read
from typing import Any, Literal, TypeAlias

import attrs

Strange: TypeAlias = Literal["", "half", "invented", "other-file", "none"]


@attrs.frozen(kw_only=True)
class TokenSpec:
    """A bearer token.

    Attributes:
        name: The label that steps use.
        who: Whose it is.
        expires: Seconds after the service is open; None for never.
        strange: It proves nothing, and why.
    """

    name: str
    who: str
    expires: float | None = None
    strange: Strange = ""


@attrs.frozen(kw_only=True)
class BehindSpec:
    """A server behind the service.

    Attributes:
        name: As the runtime knows it.
        kind: The transport, as `ServerSpec.kind`.
        era: What it speaks.
        keyed_on: See `Server.keyed_on`.
        tools: Kinds of its tools, by which they are called as well.
    """

    name: str
    kind: Literal["http", "http-sse-answers", "websocket", "stdio"] = "http"
    era: Literal["handshake", "stateless", "both"] = "both"
    keyed_on: tuple[Literal["tenant", "principal"], ...] = ("tenant", "principal")
    tools: tuple[Literal["echo", "sleep", "progress", "chatty", "fail", "ask", "big"], ...] = (
        "echo",
        "sleep",
    )


@attrs.frozen(kw_only=True)
class ServiceSpec:
    """A service.

    Attributes:
        people: Their names; each is a principal, the tenant is `north` or `south`, by turns.
        tokens: Who may call, and who may not.
        behind: What it serves.
        limits: Fields of `ServeLimits`.
        pool: Fields of `Limits` of its runtime's pool.
    """

    people: tuple[str, ...] = ("ann", "ben")
    tokens: tuple[TokenSpec, ...] = ()
    behind: tuple[BehindSpec, ...] = (BehindSpec(name="desk"),)
    limits: Mapping[str, Any] = attrs.field(factory=dict)
    pool: Mapping[str, Any] = attrs.field(factory=dict)

    def token(self, name: str) -> TokenSpec | None:
        """The token of a label."""
        return next((token for token in self.tokens if token.name == name), None)

    def tenant(self, who: str) -> str:
        """The tenant of a person."""
        return ("north", "south")[self.people.index(who) % 2]

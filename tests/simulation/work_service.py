"""Steps of clients of a service, and of whoever runs it. See `steps.py` and `world_service.py`.

A *client* is a label: it has a token, speaks one era, and in the handshake era has a session once it has
opened one. A step of a client that is not there does nothing.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 -- read at run time, when a file is read
from typing import Any, Literal

import attrs

from tests.simulation.step import Host, Work


@attrs.frozen(kw_only=True)
class Northbound(Work):
    """Root of what a client of the service does.

    Args:
        client: Who.
    """

    client: str


@attrs.frozen(kw_only=True)
class ServeOpen(Northbound):
    """A client comes to be; in the handshake era it opens a session.

    Args:
        token: What it carries.
        era: Which it speaks.
        answers: It says that it can be asked, and answers.
    """

    token: str
    era: Literal["handshake", "stateless"] = "handshake"
    answers: bool = False


@attrs.frozen(kw_only=True)
class ServeAsk(Northbound):
    """A client asks for something.

    Args:
        id: The label of the request.
        what: A tool call, a list, a ping, the resources.
        tool: Of a call: its kind; `server` is where it stands.
        server: See `tool`.
        args: Arguments beside the mark.
        token: Another token than the client's own.
        session_of: The session id of another client is named.
        withdraw_after: Seconds until the client says that it does not want the answer (handshake), or goes.
        gone_after: Seconds until the client is gone without a word.
        slow: Seconds that it takes to read each piece of the answer.
    """

    id: str
    what: Literal["call", "list", "ping", "resources"] = "call"
    tool: str = "echo"
    server: str = "desk"
    args: Mapping[str, Any] = attrs.field(factory=dict)
    token: str | None = None
    session_of: str | None = None
    withdraw_after: float | None = None
    gone_after: float | None = None
    slow: float = 0.0


@attrs.frozen(kw_only=True)
class ServeHear(Northbound):
    """A client listens to what belongs to no request, for so many seconds.

    Args:
        id: The label of the stream.
        seconds: How long.
        session_of: The session id of another client is named.
    """

    id: str
    seconds: float = 5.0
    session_of: str | None = None


@attrs.frozen(kw_only=True)
class ServeEnd(Northbound):
    """A client ends its session."""


@attrs.frozen(kw_only=True)
class RevokeToken(Host):
    """A token is revoked in its file."""

    token: str


@attrs.frozen(kw_only=True)
class ReloadService(Host):
    """The service goes on under another configuration.

    Args:
        how: `nothing`; `remove`, `add`: a server goes or comes back; `limits`: one call at once of a
            principal; `limits-back`; `tokens`: another file, which holds only the tokens of the first person;
            `tokens-back`.
        server: Which.
    """

    how: Literal["nothing", "remove", "add", "limits", "limits-back", "tokens", "tokens-back"] = "nothing"
    server: str = "desk"


@attrs.frozen(kw_only=True)
class ChangeBehind(Host):
    """The tools of a server behind the service become others, and it says so.

    Args:
        server: Which.
        tool: Whose definition changes.
    """

    server: str = "desk"
    tool: str = "echo"


@attrs.frozen(kw_only=True)
class CutBehind(Host):
    """Every connection of the service's runtime to a server breaks."""

    server: str = "desk"


@attrs.frozen(kw_only=True)
class DrainService(Host):
    """The service takes nothing new; after so many seconds it is left."""

    seconds: float = 2.0

"""Facts of a service, filed beside those of its servers on a ground of its own. See `ground.py`."""

from __future__ import annotations

from typing import Any

import attrs

from tests.simulation.ground import Fact


@attrs.define(eq=False, kw_only=True)
class Presented(Fact):
    """A request, or a stream, came to the service's door.

    Attributes:
        request: Its label.
        client: Who sent it.
        what: What for: `open`, `call`, `list`, `ping`, `resources`, `hear`, `end`, `notice`, `answer`.
        token: The label of the token that it carried.
        who: Whom that proves, where it is one; None where it proves nobody.
        session: The label of the client whose session it named; None for none.
        tool: Of a call: its kind.
        rpc: Its JSON-RPC id.
        slow: Seconds that its client takes to read each piece.
    """

    request: str
    client: str
    what: str
    token: str
    who: str | None
    session: str | None = None
    tool: str = ""
    server: str = ""
    rpc: Any = None
    slow: float = 0.0


@attrs.define(eq=False, kw_only=True)
class Piece(Fact):
    """The service gave a piece of an answer: a status first, then bytes."""

    request: str
    status: int | None = None
    body: bytes = b""
    last: bool = False


@attrs.define(eq=False, kw_only=True)
class Over(Fact):
    """The application is done with a request."""

    request: str


@attrs.define(eq=False, kw_only=True)
class WentAway(Fact):
    """A client has gone from a request, or said that it does not want the answer (`told`)."""

    request: str
    told: bool = False


@attrs.define(eq=False, kw_only=True)
class TokenEnds(Fact):
    """From now on a token proves nobody; the service knows at the latest at `known`.

    It is so until it is `TokenBack`, or for good.
    """

    token: str
    known: float
    for_good: bool = True


@attrs.define(eq=False, kw_only=True)
class TokenBack(Fact):
    """From now on a token proves again whom it proved."""

    token: str


@attrs.define(eq=False, kw_only=True)
class Served(Fact):
    """The servers that the service offers, from now on."""

    servers: frozenset[str]


@attrs.define(eq=False, kw_only=True)
class Draining(Fact):
    """The service takes nothing new."""


@attrs.define(eq=False, kw_only=True)
class Left(Fact):
    """The service was left; what remains of it: names to numbers."""

    what: Any = None

"""Steps of servers and networks: what befalls the pool from outside. See `steps.py`."""

from __future__ import annotations

from typing import Literal

import attrs

from tests.simulation.step import Fault


@attrs.frozen(kw_only=True)
class AtServer(Fault):
    """Root of the faults of one server."""

    server: str
    place: int | None = None


@attrs.frozen(kw_only=True)
class ChangeTools(AtServer):
    """The list of tools becomes another one.

    Args:
        how: `revise`: the definition of `tool` changes; `restore`: it is as in the beginning; `remove`;
            `add`; `reorder`: the same definitions in another order; `none`: nothing changes, it is announced
            only; `request-scoped`: a member under `/_meta` changes; `strange`: `tool` gets a definition that
            cannot be read.
        tool: Which one.
        notify: Whether it is announced.
        only_for: One person sees the change, the others the list as it was.
    """

    how: Literal["revise", "restore", "remove", "add", "reorder", "none", "request-scoped", "strange"] = (
        "revise"
    )
    tool: str = "echo"
    notify: bool = True
    only_for: str | None = None


@attrs.frozen(kw_only=True)
class ExpireSession(AtServer):
    """Sessions are unknown from now on (Streamable HTTP, handshake)."""

    spelling: Literal["404", "404-text", "400-json", "400-text"] = "404"


@attrs.frozen(kw_only=True)
class RestartServer(AtServer):
    """The process dies and comes back after `down` seconds: connections and sessions end."""

    down: float = 0.0


@attrs.frozen(kw_only=True)
class EndStreams(AtServer):
    """Notification streams end, orderly or not."""

    graceful: bool = True


@attrs.frozen(kw_only=True)
class AskClient(AtServer):
    """A server asks its clients something on their notification stream, or on the shared one.

    Args:
        method: What it asks.
        withdraw_after: Seconds until it takes it back; never when absent.
        times: How often, at once.
    """

    method: Literal[
        "ping", "roots/list", "sampling/createMessage", "elicitation/create", "elicitation-url", "unknown",
        "bare",
    ]  # fmt: skip
    withdraw_after: float | None = None
    times: int = 1


@attrs.frozen(kw_only=True)
class Announce(AtServer):
    """A server says something by itself.

    Args:
        what: A list of resources or prompts that changed, a log message, an update of the resource `name`, an
            elicitation that is complete, progress for a token that nobody has, or an unknown notification.
        name: URI.
        times: How often, at once.
    """

    what: Literal[
        "resources", "prompts", "log", "update", "elicitation-complete", "stray-progress", "unknown"
    ]
    name: str = ""
    times: int = 1


@attrs.frozen(kw_only=True)
class CloseIdle(AtServer):
    """The server closes the connections that carry no request now."""


@attrs.frozen(kw_only=True)
class RefuseConnections(AtServer):
    """For so many seconds connections to a place are refused, never made, slow, or its name is unknown."""

    how: Literal["refuse", "hang", "delay", "unresolvable"] = "refuse"
    seconds: float = 1.0


@attrs.frozen(kw_only=True)
class CutLink(AtServer):
    """Links to a place end.

    Args:
        which: The newest one, the oldest one, or all.
        who: Only links of that person.
        direction: Counts the bytes of that direction.
        after: Bytes of it that still come through.
        reset: By a reset, instead of an orderly end.
    """

    which: Literal["newest", "oldest", "all"] = "newest"
    who: str | None = None
    direction: Literal["to-server", "to-client"] = "to-client"
    after: int = 0
    reset: bool = False


@attrs.frozen(kw_only=True)
class StallLink(AtServer):
    """For so many seconds bytes of links to a place stay where they are; `blackhole` loses them for ever."""

    which: Literal["newest", "oldest", "all"] = "all"
    who: str | None = None
    direction: Literal["to-server", "to-client", "both"] = "to-client"
    seconds: float = 1.0
    blackhole: bool = False


@attrs.frozen(kw_only=True)
class KillChild(AtServer):
    """Children of a stdio server end: those of `who`, or all; by exiting with a code, or killed."""

    who: str | None = None
    code: int = 1
    killed: bool = False


@attrs.frozen(kw_only=True)
class ChildManners(AtServer):
    """How the next children of a stdio server behave.

    Args:
        ignores_eof: It does not end when its input ends.
        ignores_term: Nor when it is asked to.
        noise: Lines that it writes to stderr when it starts.
        garbage: Lines on stdout that are no messages, before anything else.
        start_fails: The command cannot be started at all.
        dies_at_once: It exits before it has read anything.
    """

    ignores_eof: bool = False
    ignores_term: bool = False
    noise: int = 0
    garbage: int = 0
    start_fails: bool = False
    dies_at_once: bool = False

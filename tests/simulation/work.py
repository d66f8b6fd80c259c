"""Steps of the workload: what is asked of the pool. See `steps.py`."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 -- read at run time, when a file is read
from typing import Any, Literal

import attrs

from tests.simulation.step import Work


@attrs.frozen(kw_only=True)
class ListTools(Work):
    """`pool.tools`; what it gives is kept as the newest binding of `who`.

    Args:
        who: For whom.
        server: One server, or all.
        refresh: Whatever is known.
        deadline: Seconds from now; the pool's default when absent.
        cancel_after: Seconds until the asker's scope is cancelled.
        live: As of a call.
    """

    who: str
    server: str | None = None
    refresh: bool = False
    deadline: float | None = None
    cancel_after: float | None = None
    live: bool = False


@attrs.frozen(kw_only=True)
class Call(Work):
    """A bound tool is called. Where nothing was bound yet, the tools are listed first.

    Args:
        id: The call's id, unique in the story.
        who: Whose bound tool.
        server: Of which server.
        tool: Its name.
        args: Arguments beside the marks that the driver puts in; `pad` is a number of bytes of padding.
        caller: Who calls; `who` when absent, `nobody` for a caller identity that is `None`.
        live: The caller identity is a callable, so that it can be withdrawn while the call waits.
        binding: `latest`: the newest list; `first`: the first one that is still held; `previous`: the one
            before the newest; `listed`: list now, then call.
        deadline: Seconds from now; negative ones have passed. The pool's default when absent.
        cancel_after: Seconds until the caller's scope is cancelled.
        progress: What the progress callback does: there is none; takes; raises.
        inside: The id of a running call that this one is made from inside of.
        bad_args: Arguments that are no JSON object are given instead.
        raise_for_error: A result with `isError` is raised.
    """

    id: str
    who: str
    server: str
    tool: str
    args: Mapping[str, Any] = attrs.field(factory=dict)
    caller: str | None = None
    live: bool = False
    binding: Literal["latest", "first", "previous", "listed"] = "latest"
    deadline: float | None = None
    cancel_after: float | None = None
    progress: Literal["none", "takes", "raises"] = "none"
    inside: str | None = None
    bad_args: bool = False
    raise_for_error: bool = False


@attrs.frozen(kw_only=True)
class AskServer(Work):
    """A bound server is asked for what is no tool. Where none is bound yet, it is bound first.

    Args:
        id: The operation's id, of the same space as those of calls.
        who: Whose bound server.
        server: Which.
        what: The operation.
        name: URI, name of a prompt or log level, as fits.
        binding: As of a call.
        caller: As of a call.
        live: As of a call.
        deadline: As of a call.
        cancel_after: As of a call.
        progress: As of a call.
        careless: What is given is not of its type.
    """

    id: str
    who: str
    server: str
    what: Literal["resources", "templates", "read", "prompts", "prompt", "complete", "log-level"]
    name: str = ""
    binding: Literal["latest", "first", "listed"] = "latest"
    caller: str | None = None
    live: bool = False
    deadline: float | None = None
    cancel_after: float | None = None
    progress: Literal["none", "takes", "raises"] = "none"
    careless: bool = False


@attrs.frozen(kw_only=True)
class Subscribe(Work):
    """A resource is subscribed to and its updates are read.

    Args:
        id: Its id.
        who: Whose bound server.
        server: Which.
        uri: Of the resource.
        live: As of a call.
        close_after: Seconds until it is left; never when absent.
        how: Left by `close`, by the end of its block, or by `unsubscribe`.
    """

    id: str
    who: str
    server: str
    uri: str
    live: bool = False
    close_after: float | None = None
    how: Literal["close", "block", "unsubscribe"] = "block"


@attrs.frozen(kw_only=True)
class Warm(Work):
    """`pool.warm`, for all servers or for some."""

    who: str
    servers: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Refresh(Work):
    """`pool.refresh`."""

    who: str
    server: str | None = None


@attrs.frozen(kw_only=True)
class DrainKey(Work):
    """`pool.drain`, and `resume` so many seconds after it is done."""

    who: str
    server: str
    resume_after: float = 0.5

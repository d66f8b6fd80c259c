"""Steps that ask something of a runtime: toolsets, calls through the door, runs, artifacts. See `steps.py`.

They mean nothing in a world without a door, and are skipped there.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 -- read at run time, when a file is read
from typing import Any, Literal, TypeAlias

import attrs

from tests.simulation.step import Work

Which: TypeAlias = Literal[
    "none", "own", "own-old", "foreign", "other-kind", "expired", "unknown", "malformed", "no-string", "null",
]  # fmt: skip
Spelling: TypeAlias = Literal["exact", "upper", "dashed", "wide", "null", "two"]


@attrs.frozen(kw_only=True)
class DoorList(Work):
    """`runtime.toolset`, or that of a run; what it gives is kept as the newest toolset of `who`.

    Args:
        who: For whom; `nobody` for nobody.
        live: The identity is a callable.
        refresh: Whatever is known.
        deadline: Seconds from now.
        run: The run that asks, if one does.
    """

    who: str
    live: bool = False
    refresh: bool = False
    deadline: float | None = None
    run: str | None = None


@attrs.frozen(kw_only=True)
class DoorCall(Work):
    """A tool is called by name.

    Args:
        id: The call's id, of the same space as those of other calls.
        who: Who calls; `nobody` for nobody.
        server: Whose tool; None for one of the host's own.
        tool: The tool's name as it is listed.
        name: What is said in place of its shown name, where not empty.
        args: Arguments beside the mark.
        way: `dispatch`; through the toolset in hand; through the run `run`; or the tool itself is executed.
        run: Which run.
        live: The caller identity is a callable.
        model: How the call is written and read back: as it is, or in a vendor's format.
        shape: What the arguments are, where they are no object.
        ref: Which reference stands in the argument `doc`.
        of: Whose, of a foreign one.
        sets: The model gives the filled argument of this name a value.
        spelled: How it spells the name.
        deadline: Seconds from now; negative ones have passed.
        cancel_after: Seconds until the caller's scope is cancelled.
        progress: As of a call of the pool.
    """

    id: str
    who: str
    server: str | None = None
    tool: str
    name: str = ""
    args: Mapping[str, Any] = attrs.field(factory=dict)
    way: Literal["dispatch", "toolset", "run", "execute"] = "dispatch"
    run: str | None = None
    live: bool = False
    model: Literal["", "messages", "openai-chat", "openai-responses", "gemini", "mcp", "plain"] = ""
    shape: Literal["object", "none", "list", "text", "not-json", "keys"] = "object"
    ref: Which = "none"
    of: str = ""
    sets: str = ""
    spelled: Spelling = "exact"
    deadline: float | None = None
    cancel_after: float | None = None
    progress: Literal["none", "takes", "raises"] = "none"


@attrs.frozen(kw_only=True)
class BeginRun(Work):
    """A run begins, for somebody or for nobody."""

    run: str
    who: str
    live: bool = False


@attrs.frozen(kw_only=True)
class ResumeRun(Work):
    """A run is paused and gone on with.

    Args:
        run: Which.
        who: Whom it acts for from now on; the same as before when absent.
        how: From its checkpoint, as an object or as text; or from one that somebody has changed.
    """

    run: str
    who: str | None = None
    how: Literal["object", "text", "changed", "other-version", "rubbish"] = "object"


@attrs.frozen(kw_only=True)
class EndRun(Work):
    """Nobody holds a run any more; calls of it may be under way."""

    run: str


@attrs.frozen(kw_only=True)
class PutArtifact(Work):
    """The host puts an artifact for somebody, through a run of theirs.

    Args:
        who: Whose.
        kind: Of the artifact.
        size: Bytes of padding.
        digest: It is checked when it is read.
        parent: The newest artifact of this person's is its parent.
        lives: Seconds until it expires; None for as long as the store has it.
        read_after: Seconds until it is read again; never when absent.
    """

    who: str
    kind: Literal["doc", "note", " "] = "doc"
    size: int = 0
    digest: bool = False
    parent: str | None = None
    lives: float | None = None
    read_after: float | None = None


@attrs.frozen(kw_only=True)
class UseTools(Work):
    """The host uses the tools package by itself: makes mistakes, redacts, reads results, speaks formats.

    Args:
        what: What it does; see `door_use.py`, `door_cuts.py`, `door_signatures.py`, `door_direct.py`.
        seed: Of what is by chance in it.
        who: For whom it redeems references.
    """

    what: Literal[
        "mistakes", "patterns", "redaction", "formats", "results", "cuts", "signatures", "views", "wants",
        "direct",
    ]  # fmt: skip
    seed: int = 0
    who: str = ""


@attrs.frozen(kw_only=True)
class Acknowledge(Work):
    """The host has looked at a server whose tools were withheld."""

    server: str
    argument: str | None = None

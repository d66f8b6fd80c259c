"""A tool with which a model shows the user a stored artifact whose data it never reads.

Rules:

* What the model passes is a reference, and what it gets back is the ticket: never the payload. The host
  learns of it by the record (`artifacts.presented`) and shows the artifact, from its own store.
* A reference that names nothing in the run's scope presents nothing, and says which ones there were.
* Nothing is stored, kept longer or copied: it is shown as long as it is there.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, Final

import trio

from ..artifacts import ArtifactPresented, NoArtifactStoreError
from . import _wants_words as words
from ._definition import LocalTool, define_tool
from ._live_refs import live_refs
from ._results import content_result

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .._base.model import ToolContext

_PATIENCE: Final = 2.0
_MAX_WAY: Final = 64
_MAX_LABEL: Final = 200


def present_tool(name: str = "present", *, ways: Iterable[str] | None = None) -> LocalTool:
    """Make a tool with which a model shows the user a stored artifact.

    Its arguments are `ref`, `as` (how to show it: a chart, a table, a download) and, if it likes, `label`. It
    answers with `presented`, `ref`, `as`, the `label` that counts (the call's, else the artifact's own) and
    `snapshot`, the artifact's ticket. A reference that names nothing is answered as an error with at most ten
    that do.

    Args:
        name: What a model calls it by.
        ways: What `as` may be; any short word where absent.

    Raises:
        TypeError: A way is no string.
        ValueError: There is none, or one is blank or longer than 64 characters; or the name is none that
            model providers take.
    """
    way: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": _MAX_WAY}
    if ways is not None:
        way["enum"] = _checked(tuple(ways))
    return define_tool(
        execute=lambda args, ctx: _present(name, args, ctx),
        name=name,
        description=(
            "Show the user a stored artifact. Pass its reference: the user is shown the data, which you "
            "neither need nor get."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "ref": {"type": "string", "description": "The artifact's reference (art_...)."},
                "as": {**way, "description": "How it is to be shown."},
                "label": {
                    "type": "string",
                    "maxLength": _MAX_LABEL,
                    "description": "What to write above it; the artifact's own label where left out.",
                },
            },
            "required": ["ref", "as"],
            "additionalProperties": False,
        },
        annotations={"readOnlyHint": True},
    )


def _checked(ways: tuple[object, ...]) -> list[str]:
    checked: list[str] = []
    for way in ways:
        if not isinstance(way, str):
            raise TypeError(f"a way to present an artifact is a string, not {type(way).__name__}")
        if not way.strip() or len(way) > _MAX_WAY:
            raise ValueError(
                f"a way to present an artifact is not blank and has at most {_MAX_WAY} characters"
            )
        checked.append(way)
    if not checked:
        raise ValueError("there is no way to present an artifact; leave ways out for any")
    return checked


async def _present(name: str, args: Any, ctx: ToolContext) -> Any:
    artifacts = ctx.artifacts
    if artifacts is None or not getattr(artifacts, "configured", True):
        error = NoArtifactStoreError(
            f"The tool {words.told_name(name)} showed nothing: no artifact store is attached here. That is "
            "the host's configuration and nothing that another try would change."
        )
        error.call_id = ctx.call_id
        raise error
    ref, way = args["ref"], args["as"]
    meta = await artifacts.head(ref)
    if meta is None:
        quiet = getattr(artifacts, "unrecorded", None)
        until = min(trio.current_time() + _PATIENCE, inf if ctx.deadline is None else ctx.deadline)
        found = await live_refs(artifacts if quiet is None else quiet(), None, until)
        text = f"Nothing was shown. {words.gone('ref', ref)} {words.there_were(None, found)}"
        return content_result([{"type": "text", "text": text}], is_error=True, call_id=ctx.call_id or "")
    label = args.get("label") or meta.label
    if ctx.door is not None:
        ctx.door.fact(ArtifactPresented(meta, way, label))
    shown: dict[str, Any] = {"presented": True, "ref": meta.ref, "as": way}
    if label is not None:
        shown["label"] = label
    return {**shown, "snapshot": meta.as_json()}

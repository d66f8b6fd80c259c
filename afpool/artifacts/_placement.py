"""Results too large for a model's context: stored, with a ticket in their place.

Rules:

* What is placed is exactly what the model would have read: the text, or the JSON of it.
* The substitute is the same on every channel that would have carried the result.
* Whether a result may be placed at all (it ran, it is no error, nobody refused it) its dispatcher knows.
* A store that fails costs the placement, not the result: it goes on inline.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Literal

import attrs

from .._base.errors import AfpoolError
from ._retention import check_count
from ._types import NewArtifact

if TYPE_CHECKING:
    from ._capability import Artifacts
    from ._types import ArtifactMeta

logger = logging.getLogger("afpool")


@attrs.frozen
class Placement:
    """When results are placed.

    Attributes:
        max_inline_chars: A text that is longer than this is placed.

    Raises:
        TypeError: It is no whole number.
        ValueError: It is not positive.
    """

    max_inline_chars: int

    def __attrs_post_init__(self) -> None:
        if self.max_inline_chars is None:
            raise TypeError("max_inline_chars must be a whole number; leave the placement out for none")
        check_count("max_inline_chars", self.max_inline_chars)

    def places(self, text: str) -> bool:
        """Say whether a result that reads as `text` is placed."""
        return len(text) > self.max_inline_chars


@attrs.frozen(kw_only=True)
class Placed:
    """The ticket that stands in a result's place.

    Attributes:
        ref: Of the artifact.
        kind: Of the artifact.
        media_type: Of the artifact.
        bytes: Of the artifact.
        reason: Why it was placed, for the model.
    """

    ref: str
    kind: str
    media_type: str
    bytes: int
    reason: str

    def as_json(self) -> dict[str, Any]:
        """Give the substitute: `placed`, which is true, and the attributes."""
        return {"placed": True, **attrs.asdict(self)}


def placed_artifact(
    tool: str, data: Any, *, kind: str | None = None, digest: Literal["sha-256"] | None = "sha-256"
) -> NewArtifact:
    """Give what is put for a result.

    Args:
        tool: The tool's name.
        data: The text, or the JSON value, of the result.
        kind: What the tool's author calls its results; `tool-result/NAME` by default.
        digest: Kept by default: a result that changed must not be taken for what the tool said.
    """
    return NewArtifact(
        kind=kind or f"tool-result/{tool}",
        media_type="text/plain" if isinstance(data, str) else "application/json",
        data=data,
        label=f"{tool} result",
        digest=digest,
    )


def placed(meta: ArtifactMeta, placement: Placement, text: str) -> Placed:
    """Give the ticket for a result that was stored; `text` is what the model would have read."""
    reason = (
        f"the result has {len(text)} characters and at most {placement.max_inline_chars} are shown here; "
        "it is stored whole under this ref: pass the ref to a tool that takes one of this kind"
    )
    return Placed(ref=meta.ref, kind=meta.kind, media_type=meta.media_type, bytes=meta.bytes, reason=reason)


async def place(
    artifacts: Artifacts,
    placement: Placement,
    tool: str,
    text: str,
    *,
    data: Any = None,
    kind: str | None = None,
) -> Placed | None:
    """Store a result if it is longer than the placement allows.

    Args:
        artifacts: Of the run.
        placement: The threshold.
        tool: The tool's name.
        text: What the model would read.
        data: The JSON value that `text` is the writing of, where the result is no plain text.
        kind: What the tool's author calls its results.

    Returns:
        The ticket that takes its place; `None` where the result stays as it is, because it is short enough or
        because the store failed. A checkpoint only where it is placed.
    """
    if not placement.places(text):
        return None
    try:
        meta = await artifacts.put(placed_artifact(tool, text if data is None else data, kind=kind))
    except Exception as error:  # noqa: BLE001 -- the store may be anybody's; the tool has run all the same
        why = error.code if isinstance(error, AfpoolError) else type(error).__name__
        logger.warning("a result of %s was not placed (%s) and stays inline", tool, why)
        return None
    return placed(meta, placement, text)

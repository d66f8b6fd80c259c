"""What a model reads when a reference did not become data: what was wrong, what there was, what to do.

A result is read again later, so every sentence speaks of the moment of the call. Of what a model passed, only
what looks like a ref is repeated: a text in its place may be the very data that was not to be passed around.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..artifacts._types import ArtifactMeta

_LIKE_A_REF: Final = re.compile(r"art_[A-Za-z0-9_-]{1,60}")
_MAX_KIND: Final = 100
_MAX_LABEL: Final = 60
_MAX_NAME: Final = 64


def like_a_ref(spoken: str) -> str | None:
    """Give what a model passed if it may be repeated, else `None`."""
    return spoken if len(spoken) <= 64 and _LIKE_A_REF.fullmatch(spoken) else None


def _quoted(text: str, most: int) -> str:
    # one line, marked as somebody's words, whatever they hold
    return json.dumps(text if len(text) <= most else f"{text[: most - 1]}…", ensure_ascii=False)


def told_name(name: str) -> str:
    """Write an argument's or a tool's name."""
    return _quoted(name, _MAX_NAME)


def told_kind(kind: str) -> str:
    """Write an artifact's kind."""
    return _quoted(kind, _MAX_KIND)


def not_given(arg: str, kind: str) -> str:
    """Say that a required argument was left out."""
    return (
        f"{told_name(arg)} is required and was left out: it takes the ref of a stored artifact of kind "
        f"{told_kind(kind)}, whose data is put in its place before the tool runs. Pass the ref."
    )


def no_string(arg: str, kind: str, given: Any) -> str:
    """Say that something else than a ref was passed."""
    return (
        f"{told_name(arg)} was {_what(given)}, but it takes a ref: a string that names a stored artifact of "
        f"kind {told_kind(kind)}. Pass the ref itself, never the data that it stands for."
    )


def _what(given: Any) -> str:
    if given is None:
        return "null"
    if isinstance(given, str):
        return "an empty string" if not given else "a blank string"
    if isinstance(given, bool):
        return "a boolean"
    if isinstance(given, int | float):
        return "a number"
    if isinstance(given, list | tuple):
        return "an array"
    return "an object" if hasattr(given, "keys") else "no string"


def damaged(arg: str, ref: str) -> str:
    """Say that what is stored is no longer what was stored."""
    return (
        f"The artifact {_spoken(ref)}, given as {told_name(arg)}, was withheld: what is stored there is no "
        "longer what was put there. Make it again and pass the ref of the new one."
    )


def gone(arg: str, ref: str) -> str:
    """Say that a ref named nothing."""
    return (
        f"{_spoken(ref)}, given as {told_name(arg)}, named nothing that was stored for this conversation at "
        "the time of the call: it had expired, was swept, or never was a ref from here."
    )


def other_kind(arg: str, ref: str, kind: str, actual: str) -> str:
    """Say that a ref named something else."""
    return (
        f"{_spoken(ref)}, given as {told_name(arg)}, named an artifact of kind {told_kind(actual)}; this "
        f"argument takes kind {told_kind(kind)}."
    )


def _spoken(ref: str) -> str:
    told = like_a_ref(ref)
    return told if told is not None else f"A text of {len(ref)} characters that is no ref"


def there_were(kind: str | None, found: Sequence[ArtifactMeta] | None) -> str:
    """Say what could have been passed."""
    of_kind = "" if kind is None else f" of kind {told_kind(kind)}"
    if found is None:
        return f"Which artifacts{of_kind} there were could not be found out."
    if not found:
        return f"No artifact{of_kind} was stored then; produce one first."
    there = "There were" if kind is None else f"Of kind {told_kind(kind)} there were"
    return f"{there}, newest first: {', '.join(map(_ticket, found))}."


def _ticket(meta: ArtifactMeta) -> str:
    label = "" if meta.label is None else f"{_quoted(meta.label, _MAX_LABEL)}, "
    return f"{meta.ref} ({label}{meta.bytes} bytes)"


def refused(tool_name: str, details: Sequence[str]) -> str:
    """Join what was wrong with each argument."""
    what = "an artifact argument" if len(details) == 1 else f"{len(details)} artifact arguments"
    return f"The tool {told_name(tool_name)} was not run: {what} did not resolve. {' '.join(details)}"


def needs_store(tool_name: str, wants: Mapping[str, str]) -> str:
    """Say that there is nowhere to look a ref up."""
    takes = ", ".join(f"{told_name(arg)} (kind {told_kind(kind)})" for arg, kind in wants.items())
    return (
        f"The tool {told_name(tool_name)} was not run: it takes stored artifacts as {takes}, and no artifact "
        "store is attached here. That is the host's configuration and nothing that another try would change: "
        "open the runtime with an artifact store, or offer the tool without its wants."
    )

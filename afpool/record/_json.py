"""The one plain form of a use and of an event: what files, consoles and pages show of them.

Rules:

* Names are stable: one that is there is never renamed and never changes its meaning.
* A key, a tenant and whoever a run acts for stand there by digest only.
* What stands always and what only where there is something to say, `use_as_json` says.
* Instants are Unix seconds, times are seconds, both floats.
* Made in bounded time of one use: whatever a stranger named is cut.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Protocol, final

from .._base.identity import identity_namespace

if TYPE_CHECKING:
    from .._base.identity import KeyDigest
    from .._base.seams import Seams
    from .._base.use import Use

MOST_CHARS: Final = 256
"""Characters of a name; of the rest stands an ellipsis."""
_DIGESTS_KEPT: Final = 4096
_DEFINITION: Final = 12
_OF_EVENT: Final = frozenset({"kind", "at", "n", "key", "server"})


class Shows(Protocol):
    """Gives the digest that stands for a text, as `KeyDigest` does."""

    def show(self, key: str, prefix: str = "k") -> str:
        """Give `prefix:` and the digest."""
        ...


@final
class Digests:
    """A `KeyDigest` that remembers what it gave for the last thousands of texts. Of one thread.

    Args:
        digest: The pool's.
    """

    __slots__ = ("_digest", "_known")

    def __init__(self, digest: KeyDigest) -> None:
        self._digest = digest
        self._known: dict[tuple[str, str], str] = {}

    def show(self, key: str, prefix: str = "k") -> str:
        """Give what `KeyDigest.show` gives."""
        known = self._known
        shown = known.get((key, prefix))
        if shown is None:
            if len(known) >= _DIGESTS_KEPT:
                known.clear()
            shown = known[key, prefix] = self._digest.show(key, prefix)
        return shown


def unix_offset(seams: Seams) -> float:
    """Give what is to be added to the runtime's clock for Unix time. The wall clock may be set meanwhile."""
    return seams.unix_now() - seams.now()


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARS else text[: MOST_CHARS - 1] + "…"


def use_as_json(use: Use, *, digest: Shows, unix: float) -> dict[str, Any]:
    """Give a call's facts as plain data, for JSON.

    Args:
        use: Of an ended call, or of one that still runs.
        digest: Makes the digests that stand for keys and identities: `Pool.digest`, or `Digests` of it.
        unix: Seconds to add to the runtime's clock for Unix time, as `unix_offset` gives them.

    Returns:
        Always: `kind` (`call`), `at` (when it ended; while it runs, when it began), `began`, `took` (`None`
        while it runs), `call_id`, `server` and `method` (both empty for a tool of the host's own), `tool`,
        `outcome`, `code`, `delivery`, `key`, `who`, `stages` (pairs of a stage and seconds since it began).

        Only where there is something to say: `tenant`, `name`, `run_id`, `parent`, `repeated_of`, `repeat`,
        `waits_for`, `held_by`, `opening`, `cause`, `happened`, `was`, `became`, `client`, `list`,
        `generation`, `epoch`, `context`, `attempts`, `bytes_out`, `bytes_in`, `reports`, `reported`,
        `arguments` (as they may be shown), `changed`, `minted`, `taken`, `tool_error`, `trace`, `facts`
        (stage, word, seconds since it began).

    Synchronous; no identity in clear is in it.
    """
    began, ended, who, key = use.began_at, use.ended_at, use.who, use.key
    plain: dict[str, Any] = {
        "kind": "call",
        "at": (began if ended is None else ended) + unix,
        "began": began + unix,
        "took": None if ended is None else round(ended - began, 6),
        "call_id": _cut(use.call_id),
        "server": use.server,
        "tool": _cut(use.tool),
        "method": use.method,
        "outcome": use.outcome,
        "code": use.code,
        "delivery": use.delivery,
        "key": digest.show(key) if isinstance(key, str) else None,
        "who": None if who is None else digest.show(identity_namespace(who), "w"),
        "stages": _stages(use),
    }
    if who is not None and who.tenant is not None:
        plain["tenant"] = digest.show(who.tenant, "t")
    if use.name != use.tool:
        plain["name"] = _cut(use.name)
    for name, value in (
        ("run_id", use.run_id),
        ("parent", use.parent),
        ("repeated_of", use.repeated_of),
        ("waits_for", use.waits_for),
        ("opening", use.opening),
        ("cause", use.cause),
        ("client", use.client_id),
        ("list", use.list_id),
        ("generation", use.generation),
        ("context", use.context),
        ("reported", use.reported),
        ("trace", use.trace),
    ):
        if value is not None:
            plain[name] = value
    for name, number in (
        ("repeat", use.repeat),
        ("epoch", use.epoch),
        ("attempts", use.attempts),
        ("bytes_out", use.bytes_out),
        ("bytes_in", use.bytes_in),
        ("reports", use.reports),
    ):
        if number:
            plain[name] = number
    if use.shown is not None:
        plain["arguments"] = _read(use.shown)
    if use.tool_error:
        plain["tool_error"] = True
    for name, words in (
        ("held_by", use.held_by),
        ("changed", use.changed),
        ("minted", use.minted),
        ("taken", use.took),
    ):
        if words:
            plain[name] = list(words)
    if use.was is not None:
        plain["was"] = use.was.digest[:_DEFINITION]
        plain["became"] = None if use.became is None else use.became.digest[:_DEFINITION]
    if use.facts:
        plain["facts"] = [[stage, word, round(at - began, 6)] for stage, word, at in use.facts]
    if use.happened is not None:
        plain["happened"] = event_as_json(use.happened, unix=unix)
    return plain


def _stages(use: Use) -> list[list[Any]]:
    began = use.began_at
    marks = iter(use.marks)
    return [[stage, round(at - began, 6)] for stage, at in zip(marks, marks, strict=True)]  # type: ignore[operator]


def _read(shown: bytes) -> Any:
    try:
        return json.loads(shown)
    except ValueError:
        return None


def event_as_json(event: Any, *, unix: float) -> dict[str, Any]:
    """Give an event of the pool as plain data, for JSON.

    Args:
        event: An `Event`.
        unix: Seconds to add to the runtime's clock for Unix time, as `unix_offset` gives them.

    Returns:
        `kind`, `at`, `n` (its number), `key` (`None` where it is about the whole pool), `server` where it
        tells one, and its facts under their own names; one that is named like these, as `fact_NAME`.
    """
    plain: dict[str, Any] = {
        "kind": event.kind,
        "at": event.at + unix,
        "n": event.number,
        "key": event.key or None,
    }
    server = getattr(event, "server", None)
    if server:
        plain["server"] = server
    for name, value in event.facts.items():
        plain[f"fact_{name}" if name in _OF_EVENT else name] = value
    return plain

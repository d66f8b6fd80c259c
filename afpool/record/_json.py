"""The one plain form of a use and of an event: what files, consoles and pages show of them.

Rules:

* Names are stable: one that is there is never renamed and never changes its meaning.
* A key, a tenant and whoever a run acts for stand there by digest only.
* Instants are Unix seconds, times are seconds, both floats. What was named by a stranger is cut.
* A use becomes a `CallLine`, of C speed, since a file gets one for each call; plain data is made of that.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Protocol, final

import msgspec

from .._base.identity import identity_namespace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._base.identity import Identity
    from .._base.seams import Seams
    from .._base.use import Use

MOST_CHARS: Final = 256
"""Characters of a name; the last is an ellipsis where it was longer."""
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
    """A `KeyDigest` that remembers what it gave for the last thousands of keys and identities.

    Args:
        digest: The pool's.

    Belongs to one thread.
    """

    __slots__ = ("_digest", "_keys", "_people")

    def __init__(self, digest: Shows) -> None:
        self._digest = digest
        self._keys: dict[str, str] = {}
        self._people: dict[int, tuple[Identity, str, str | None]] = {}  # by `id`: hashing one costs more

    def show(self, key: str, prefix: str = "k") -> str:
        """Give what `KeyDigest.show` gives."""
        if prefix != "k":
            return self._digest.show(key, prefix)
        shown = self._keys.get(key)
        if shown is None:
            if len(self._keys) >= _DIGESTS_KEPT:
                self._keys.clear()
            shown = self._keys[key] = self._digest.show(key)
        return shown

    def person(self, who: Identity) -> tuple[Identity, str, str | None]:
        """Give it and the digests `w:…` of an identity, `t:…` of its tenant, `None` where it has none."""
        known = self._people.get(id(who))
        if known is None or known[0] is not who:
            if len(self._people) >= _DIGESTS_KEPT:
                self._people.clear()
            tenant = None if who.tenant is None else self._digest.show(who.tenant, "t")
            known = (who, self._digest.show(identity_namespace(who), "w"), tenant)
            self._people[id(who)] = known
        return known


def unix_offset(seams: Seams) -> float:
    """Give what is to be added to the runtime's clock for Unix time, to a millisecond.

    The wall clock may be set meanwhile; as long as it is not, what happened at one instant is told as one.
    """
    return round(seams.unix_now() - seams.now(), 3)


class CallLine(msgspec.Struct, omit_defaults=True, tag_field="kind", tag="call", gc=False):
    """A call's facts, as they are written. What has a default stands there only where it differs from it."""

    at: float
    began: float
    took: float | None
    call_id: str
    server: str
    tool: str
    method: str
    outcome: str | None
    code: str | None
    delivery: str | None
    key: str | None
    who: str | None
    stages: list[tuple[str, float]]
    tenant: str | None = None
    name: str | None = None
    run_id: str | None = None
    parent: str | None = None
    repeated_of: str | None = None
    repeat: int = 0
    waits_for: str | None = None
    held_by: tuple[str, ...] = ()
    opening: int | None = None
    cause: int | None = None
    happened: dict[str, Any] | None = None
    was: str | None = None
    became: str | None = None
    client: int | None = None
    list: int | None = None
    generation: int | None = None
    epoch: int = 0
    context: str | None = None
    attempts: int = 0
    bytes_out: int = 0
    bytes_in: int = 0
    reports: int = 0
    reported: tuple[float, float | None] | None = None
    arguments: msgspec.Raw | None = None
    changed: tuple[str, ...] = ()
    minted: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()
    tool_error: bool = False
    trace: str | None = None
    facts: tuple[tuple[str, str, float], ...] = ()


_NOBODY: Final = (None, None, None)


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARS else text[: MOST_CHARS - 1] + "…"


def call_line(use: Use, digests: Digests, unix: float) -> CallLine:
    """Make what is written of a call; arguments as `use_as_json`."""
    began, ended, key, who, happened = use.began_at, use.ended_at, use.key, use.who, use.happened
    marks: Any = use.marks
    call_id, name, tool, shown, facts, was = use.call_id, use.name, use.tool, use.shown, use.facts, use.was
    _, person, tenant = _NOBODY if who is None else digests.person(who)
    return CallLine(
        (began if ended is None else ended) + unix,
        began + unix,
        None if ended is None else ended - began,
        call_id if len(call_id) <= MOST_CHARS else _cut(call_id),
        use.server,
        tool if len(tool) <= MOST_CHARS else _cut(tool),
        use.method,
        use.outcome,
        use.code,
        use.delivery,
        digests.show(key) if isinstance(key, str) else None,
        person,
        list(zip(marks[::2], [at - began for at in marks[1::2]])),  # noqa: B905 -- pairs by their making
        tenant,
        None if name == tool else _cut(name),
        use.run_id,
        use.parent,
        use.repeated_of,
        use.repeat,
        use.waits_for,
        use.held_by,
        use.opening,
        use.cause,
        None if happened is None else event_as_json(happened, unix=unix),
        None if was is None else was.digest[:_DEFINITION],
        None if use.became is None else use.became.digest[:_DEFINITION],
        use.client_id,
        use.list_id,
        use.generation,
        use.epoch,
        use.context,
        use.attempts,
        use.bytes_out,
        use.bytes_in,
        use.reports,
        use.reported,
        None if shown is None else msgspec.Raw(shown),
        use.changed,
        tuple(use.minted) if use.minted else (),
        tuple(use.took) if use.took else (),
        use.tool_error,
        use.trace,
        tuple([(stage, word, at - began) for stage, word, at in facts]) if facts else (),
    )


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
    return _plain(call_line(use, digest if isinstance(digest, Digests) else Digests(digest), unix))


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


_encoder: Final = msgspec.json.Encoder()
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


def as_lines(plain: Sequence[CallLine | dict[str, Any]]) -> bytes:
    r"""Encode each object as one line, `\n` included. Whatever is in it, it is one line and it is written."""
    try:
        lines = _encoder.encode_lines(plain)
    except (TypeError, ValueError, OverflowError):
        lines = b""
    return lines if lines.count(b"\n") == len(plain) else b"".join(map(_slowly, plain))


def _slowly(plain: CallLine | dict[str, Any]) -> bytes:
    """The rare case: a lone surrogate in a name, an object in a fact, arguments of several lines."""
    if isinstance(plain, CallLine):
        plain = _plain(plain)
    return json.dumps(plain, separators=(",", ":"), default=_kind_of, skipkeys=True).encode() + b"\n"


def _plain(line: CallLine) -> dict[str, Any]:
    shown, line.arguments = line.arguments, None
    plain: dict[str, Any]
    try:
        plain = _decode(_encoder.encode(line))
    except (TypeError, ValueError):
        plain = msgspec.to_builtins(line)
    if shown is not None:
        try:
            plain["arguments"] = json.loads(bytes(shown))
        except ValueError:
            plain["arguments"] = None
    return plain


def as_plain(records: Sequence[CallLine | dict[str, Any]]) -> list[dict[str, Any]]:
    """Give each as plain data."""
    return [_plain(one) if isinstance(one, CallLine) else one for one in records]


def _kind_of(value: object) -> str:
    return f"<{type(value).__name__}>"

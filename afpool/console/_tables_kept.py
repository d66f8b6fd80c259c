"""Tables of what is kept for callers: `credentials`, `artifacts`. No secret and no payload is in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from .._base.held import held_by
from .._base.identity import Identity
from ._spec import Column, Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._ask import Ask
    from ._registry import Registry
    from ._sources import Sources


def register(registry: Registry, sources: Sources) -> None:
    """Add the tables."""
    registry.table(credentials(sources))
    registry.table(artifacts(sources))


def credentials(sources: Sources) -> Table:
    """What the provider says that it holds, and since when it is bad."""

    def rows(ask: Ask) -> Iterator[tuple[Any, ...]]:
        for held in held_by(sources.pool.client_settings.credentials):
            who = held.who
            yield (
                held.service,
                held.mode,
                held.state,
                " ".join(held.scopes) or None,
                origin_shown(held.resource),
                sources.who(who),
                None if held.expires_at is None else held.expires_at - ask.unix,
                None if held.renew_at is None else held.renew_at - ask.unix,
                None if held.until is None else held.until - ask.unix,
                who,
            )

    return Table(
        name="credentials",
        help="credentials that are held or asked for; never themselves",
        columns=(
            Column("service", "text"),
            Column("mode", "text", "machine or user"),
            Column("state", "text", "held renewing asking refused failing consent"),
            Column("scopes", "text"),
            Column("resource", "text", "the server that it is for, as an origin"),
            Column("who", "key", "digest of whose it is; empty where it is everybody's"),
            Column("expires_in", "seconds"),
            Column("renews_in", "seconds"),
            Column("until", "seconds", "for how long that is remembered"),
        ),
        rows=rows,
        identities=True,
    )


def origin_shown(resource: str) -> str | None:
    """The origin of a server's URI, without user, path and query."""
    if not resource:
        return None
    try:
        parts = urlsplit(resource)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "?"
    if not host:
        return "?"
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}" + (f":{port}" if port is not None else "")


def artifacts(sources: Sources) -> Table:
    """What calls have put last, as far as it is remembered."""

    def rows(ask: Ask) -> Iterator[tuple[Any, ...]]:
        record = sources.record
        for minted in () if record is None else record.minted:
            meta = minted.meta
            yield (
                meta.ref,
                meta.kind,
                meta.bytes,
                meta.created_at,
                max(0.0, ask.unix - meta.created_at),
                None if meta.expires_at is None else meta.expires_at - ask.unix,
                minted.server or None,
                minted.tool or None,
                minted.call_id,
                minted.run_id,
                len(meta.parent_refs),
                len(minted.took),
                sources.who(minted.who),
                minted.who if minted.who is not None else _scope(minted.scope),
            )

    return Table(
        name="artifacts",
        help="artifacts that were put last, and by which call; `why REF` walks back",
        columns=(
            Column("ref", "id"),
            Column("kind", "text"),
            Column("bytes", "bytes"),
            Column("at", "unix"),
            Column("age", "seconds"),
            Column("expires_in", "seconds"),
            Column("server", "text"),
            Column("tool", "text"),
            Column("call", "id", "that put it"),
            Column("run", "id"),
            Column("parents", "count", "artifacts that it was made from"),
            Column("took", "count", "artifacts that the call was given"),
            Column("who", "key", "digest of whom the run acted for"),
        ),
        rows=rows,
        identities=True,
        older="age",
    )


def _scope(scope: Any) -> Identity | None:
    return scope if isinstance(scope, Identity) else None

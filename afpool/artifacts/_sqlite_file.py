"""The file of a SQLite store: made, recognised, or refused untouched.

A file is ours if its application id says so and its tables are those below. One that is there already is
looked at first, without a right to write: what is not ours, or of a later version, stays as it is.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ._types import UnreadableArtifactStoreError

if TYPE_CHECKING:
    from ._types import StoreProblem

APPLICATION_ID: Final = 0x41465041
SCHEMA_VERSION: Final = 1
LOG_PAGES: Final = 4000
"""Pages of the write-ahead log, about, at which it is copied into the file: 16 MB."""
TABLES: Final = {
    "scopes": ("id", "name", "count", "bytes", "soonest"),
    "artifacts": (
        "id", "scope", "ref", "kind", "media_type", "bytes", "shape", "created", "expires", "label", "digest",
        "run_id", "call_id", "parents", "data",
    ),
    "uses": ("id", "scope", "used"),
}  # fmt: skip

# What a put costs is the pages that it changes. So rows are added at the end, with the payload in the last
# column, which is read only by who wants it; and what only limits need is kept by who has limits: where
# `count` and `bytes` of a scope are known, each of its rows has one in `uses`. No two rows of a scope have
# one `created`, so it orders them by itself. `soonest` is no later than the earliest expiry.
_SCHEMA: Final = f"""
CREATE TABLE scopes (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, count INTEGER, bytes INTEGER, soonest INTEGER
);
CREATE INDEX scopes_by_expiry ON scopes (soonest) WHERE soonest IS NOT NULL;
CREATE TABLE artifacts (
    id INTEGER PRIMARY KEY, scope INTEGER NOT NULL, ref TEXT NOT NULL, kind TEXT NOT NULL,
    media_type TEXT NOT NULL, bytes INTEGER NOT NULL, shape TEXT NOT NULL, created INTEGER NOT NULL,
    expires INTEGER, label TEXT, digest TEXT, run_id TEXT, call_id TEXT, parents TEXT, data BLOB NOT NULL
);
CREATE UNIQUE INDEX artifacts_by_ref ON artifacts (scope, ref);
CREATE UNIQUE INDEX artifacts_by_age ON artifacts (scope, created);
CREATE INDEX artifacts_by_kind ON artifacts (scope, kind, created);
CREATE INDEX artifacts_by_expiry ON artifacts (scope, expires) WHERE expires IS NOT NULL;
CREATE TABLE uses (id INTEGER PRIMARY KEY, scope INTEGER NOT NULL, used INTEGER NOT NULL);
CREATE INDEX uses_by_age ON uses (scope, used);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""


def checked_path(file: object) -> Path:
    """Give the path of a store's file; nothing is opened.

    Raises:
        TypeError: `file` is no path.
        ValueError: It is blank, or names a database that is no file.
    """
    if not isinstance(file, str | os.PathLike):
        raise TypeError(f"the file of a SQLite store must be a path, not {type(file).__name__}")
    text = os.fspath(file)
    if isinstance(text, bytes) or not text.strip() or "\0" in text:
        raise ValueError("the file of a SQLite store must be a path that is not blank")
    if text.startswith((":memory:", "file:")):
        raise ValueError(
            "a SQLite store is a file that outlives the process; for one that does not, use MemoryArtifacts"
        )
    return Path(text)


def open_to_write(path: Path, *, busy_timeout: float) -> sqlite3.Connection:
    """Open the file for the writer, and make it where there is none. Blocking.

    Raises:
        UnreadableArtifactStoreError: It cannot be used as a store. Nothing in it was changed.
    """
    try:
        if path.is_dir():
            raise _refusal(path, "cannot-open", "it is a directory; name a file in it")
        _look(path)
        # readable by its owner alone; SQLite gives its other files the same rights
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        connection = _connect(path, busy_timeout)
        try:
            _prepare(connection, path)
        except BaseException:
            connection.close()
            raise
    except OSError as error:
        advice = f"{error.strerror}; its directory must exist, and both must be writable"
        refusal = _refusal(path, "cannot-open", advice)
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        refusal = _refusal(path, "cannot-open", f"SQLite says {name}; mend that, or name another file")
    else:
        return connection
    raise refusal


def open_to_read(path: Path, *, busy_timeout: float) -> sqlite3.Connection:
    """Open the file for a reader; the writer has it open. Blocking.

    Raises:
        sqlite3.Error: It cannot be opened.
    """
    connection = _connect(path, busy_timeout, mode="rw")  # what is not there is not made
    try:
        connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(path: Path, busy_timeout: float, mode: str = "rwc") -> sqlite3.Connection:
    # An absolute path, since the process may change its directory before the next connection is made.
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=busy_timeout,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=64,
    )


def _refusal(path: Path, problem: StoreProblem, advice: str) -> UnreadableArtifactStoreError:
    return UnreadableArtifactStoreError(str(path), problem, advice)


def _look(path: Path) -> None:
    """Refuse what is there and not ours, without changing it, or the files beside it."""
    if not path.exists() or not path.stat().st_size:
        return
    log = path.with_name(path.name + "-wal")
    way = "mode=ro" if log.exists() else "mode=ro&immutable=1"
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{way}", uri=True)) as connection:
        if not _is_new(connection):
            _check(connection, path)


def _check(connection: sqlite3.Connection, path: Path) -> None:
    version = _pragma(connection, "user_version")
    if _pragma(connection, "application_id") != APPLICATION_ID:
        raise _refusal(
            path, "not-our-schema", "it belongs to something else and was left as it is; name another file"
        )
    if version > SCHEMA_VERSION:
        raise _refusal(
            path,
            "newer-schema",
            f"its version is {version} and this afpool knows {SCHEMA_VERSION}; it was left as it is; "
            "use the afpool that made it, or name another file",
        )
    if not _is_ours(connection):
        raise _refusal(
            path, "not-our-schema", "its tables are not a store's; it was left as it is; name another file"
        )


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("PRAGMA trusted_schema = OFF")
    mode = str(connection.execute("PRAGMA journal_mode = WAL").fetchone()[0])
    if mode != "wal":
        raise _refusal(
            path, "cannot-open", f"its journal mode is {mode}; a write-ahead log needs a local file system"
        )
    connection.execute("PRAGMA synchronous = FULL")
    # most pages of the log are the same few, written again: the longer it is, the less is copied in the end
    connection.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
    connection.execute(f"PRAGMA journal_size_limit = {4 * LOG_PAGES * 4096}")
    connection.execute("PRAGMA secure_delete = FAST")
    connection.execute("BEGIN IMMEDIATE")
    if _is_new(connection):  # and not made by another process meanwhile
        for statement in _SCHEMA.split(";"):
            connection.execute(statement)
    connection.execute("COMMIT")
    _check(connection, path)


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _is_new(connection: sqlite3.Connection) -> bool:
    found = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    return (
        found == (0,)
        and not _pragma(connection, "application_id")
        and not _pragma(connection, "user_version")
    )


def _is_ours(connection: sqlite3.Connection) -> bool:
    return all(
        {row[1] for row in connection.execute(f"PRAGMA table_info({table})")} >= set(columns)
        for table, columns in TABLES.items()
    )

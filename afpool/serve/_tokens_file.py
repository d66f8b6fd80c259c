"""The file of tokens on its disk: who may read it, how it is read, how it is replaced. Blocking.

Rules:

* Nobody but its owner may read or write it (0600 or less), and the owner is us or root. Else it is not read:
  whoever can write it can give himself a token.
* The look at its owner, at its mode and the reading go through one descriptor, so that nothing can be put in
  between. What is no regular file is not read, and waits for nobody.
* It is replaced as a whole: a new file, flushed, renamed over the old one, the folder flushed. A crash leaves
  the old one or the new one. Writers hold a lock beside it, so that none loses what another has written.
* No error quotes what stands in it.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import json
import os
import re
import stat
import tempfile
from typing import TYPE_CHECKING, Any, Final

import attrs

from .._base.canonical import ContentError, parse_strict
from .._base.errors import AfpoolError
from .._base.identity import FIELDS, Identity
from ._tokens_text import is_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

VERSION: Final = 1
MAX_FILE: Final = 16 * 1024 * 1024
MAX_NAME: Final = 200
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_MEMBERS: Final = frozenset({"id", "name", "sha256", "created", "expires", "revoked", *FIELDS})
# A file written this shortly before it was read may be written again without its times moving on.
_UNSETTLED: Final = 2.0

Stamp = tuple[int, ...]


class TokenFileError(AfpoolError):
    """The file of tokens cannot be used, or does not hold what was asked for."""

    code = "token-file"
    deliveries = ("not-sent",)


@attrs.frozen
class TokenEntry:
    """What is known of a token; the token itself is not.

    Attributes:
        id: Ten characters, which also stand in the token.
        name: What it was made for, as its maker said.
        identity: Whom it proves.
        created: Seconds since 1970.
        expires: Seconds since 1970, or `None` for never.
        revoked: When it was revoked, or `None`.
    """

    id: str
    name: str
    identity: Identity
    created: float
    expires: float | None = None
    revoked: float | None = None
    digest: str | None = attrs.field(default=None, repr=False, kw_only=True)

    def is_good(self, now: float) -> bool:
        """Whether it proves anything at a moment (seconds since 1970)."""
        return self.revoked is None and (self.expires is None or now < self.expires)


def check_name(name: str) -> str:
    """Give a token's name back.

    Raises:
        TokenFileError: It is empty, too long, or holds what cannot be printed.
    """
    if not 0 < len(name) <= MAX_NAME or not name.isprintable():
        raise TokenFileError(f"a token's name is 1 to {MAX_NAME} printable characters; nothing was written")
    return name


def read_entries(
    path: Path, known: Stamp | None = None, *, now: float
) -> tuple[Stamp | None, tuple[TokenEntry, ...]] | None:
    """Read the file if it is another than `known`; `None` where it is the same.

    Returns:
        Its stamp (`None` while it is too young to be told by it) and its entries.

    Raises:
        FileNotFoundError: There is none.
        TokenFileError: It may be read by others, or does not hold what such a file holds.
    """
    raw, found = b"", None
    try:
        # Not blocking: a pipe by that name would be waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:  # noqa: PTH123 -- one descriptor for the look and the reading
            found = os.fstat(file.fileno())
            problem = _not_private(found)
            if problem is None and stamp_of(found) == known:
                return None
            if problem is None:
                raw = file.read(MAX_FILE + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        problem = f"cannot be read ({error.strerror or type(error).__name__})"
    if problem is None and len(raw) > MAX_FILE:
        problem = f"is larger than {MAX_FILE} bytes"
    if problem is not None or found is None:
        raise TokenFileError(f"the token file {path} {problem}")
    entries = _entries(raw)
    del raw  # what is raised must not have it in its frame
    if isinstance(entries, str):
        raise TokenFileError(
            f"the token file {path} is none that `afpool token` writes: {entries}; mend it or make a new one"
        )
    settled = found.st_mtime + _UNSETTLED < now and found.st_ctime + _UNSETTLED < now
    return (stamp_of(found) if settled else None), entries


def stamp_of(found: os.stat_result) -> Stamp:
    """What tells one state of a file from another; a change of its mode counts."""
    return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)


def _not_private(found: os.stat_result) -> str | None:
    if not stat.S_ISREG(found.st_mode):
        return "is no regular file"
    if found.st_uid not in {0, os.geteuid()}:
        return "belongs to another user; make it the service's own"
    if found.st_mode & 0o077:
        return f"can be read or written by others (mode {stat.S_IMODE(found.st_mode):04o}); `chmod 600` it"
    return None


def _entries(raw: bytes) -> tuple[TokenEntry, ...] | str:
    """What the file says, or what is wrong with it: nothing is raised where its values are in sight."""
    try:
        document = parse_strict(raw)
    except ContentError as error:
        return error.reason
    if (
        not isinstance(document, dict)
        or document.keys() != {"version", "tokens"}
        or document["version"] != VERSION
        or not isinstance(document["tokens"], list)
    ):
        return f"no object of `version` {VERSION} and `tokens`"
    entries: list[TokenEntry] = []
    for number, raw_entry in enumerate(document["tokens"], 1):
        entry = _entry(raw_entry)
        if entry is None:
            return f"its entry {number} is not one of a token"
        entries.append(entry)
    if len({entry.id for entry in entries}) != len(entries):
        return "an id stands twice"
    return tuple(entries)


def _entry(raw: Any) -> TokenEntry | None:
    if not isinstance(raw, dict) or not raw.keys() <= _MEMBERS:
        return None
    number, name, digest = raw.get("id"), raw.get("name"), raw.get("sha256")
    times = {key: _moment(raw.get(key)) for key in ("created", "expires", "revoked")}
    fields = [raw.get(key) for key in FIELDS]
    created, revoked = times["created"], times["revoked"]
    if (
        not (isinstance(number, str) and is_id(number))
        or not isinstance(name, str)
        or not (isinstance(digest, str) and _DIGEST.fullmatch(digest) if revoked is None else digest is None)
        or created is None
        # A date that cannot be read must never be no date: the token would live for ever.
        or any(raw.get(key) is not None and times[key] is None for key in times)
        or any(field is not None and (not isinstance(field, str) or not field) for field in fields)
    ):
        return None
    try:
        identity = Identity(*fields)
    except ValueError:
        return None
    return TokenEntry(number, name, identity, created, times["expires"], revoked, digest=digest)


def _moment(text: object) -> float | None:
    if not isinstance(text, str):
        return None
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if found.tzinfo is None else found.timestamp()


def _stated(moment: float) -> str:
    return dt.datetime.fromtimestamp(moment, dt.UTC).isoformat().replace("+00:00", "Z")


def _written(entry: TokenEntry) -> Mapping[str, Any]:
    stated: dict[str, Any] = {"id": entry.id, "name": entry.name}
    stated |= {key: value for key in FIELDS if (value := getattr(entry.identity, key)) is not None}
    if entry.digest is not None:
        stated["sha256"] = entry.digest
    moments = {"created": entry.created, "expires": entry.expires, "revoked": entry.revoked}
    return stated | {key: _stated(moment) for key, moment in moments.items() if moment is not None}


def write_entries(path: Path, entries: tuple[TokenEntry, ...]) -> None:
    """Replace the file.

    Raises:
        OSError: It could not be written; the old one is as it was.
    """
    document = {"version": VERSION, "tokens": [_written(entry) for entry in entries]}
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    descriptor, fresh = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # 0600 by its contract
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 -- the descriptor that was just made
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)  # noqa: PTH105 -- a rename over the old one
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(fresh)  # noqa: PTH108 -- as above
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Hold the lock of those who write the file; gives the file that a link by that name leads to.

    Raises:
        OSError: The folder is not there, or cannot be written.
    """
    real = path.resolve()  # a link stays a link: what it leads to is replaced
    lock = os.open(real.with_name(f".{real.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield real
    finally:
        os.close(lock)  # the lock file stays: one that is removed locks nobody out

r"""Records in a file, one JSON object a line; files that grew too long are kept beside it, numbered.

Rules:

* The file is a regular one that only its owner reads (0600), no link, and written by one process at a time
  (`flock`). Anything else in its place is trouble, and is looked at again later.
* `path` is the newest, `path.1` the one before, up to `path.keep`. None is longer than `max_bytes`, unless a
  single record is.
* A file ends with a whole line: what was written in part is cut off again. Where that cannot be done, or
  where a process was killed in the middle of a line, the next line begins with `\n`: one line is lost.
* A file that was moved away, or whose directory was, is noticed before the next write.
* Everything here runs in the sink's thread and may block. The child of a fork has the file and not the
  thread: it closes its copy, which would keep the lock for as long as it lives.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import weakref
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, final

from ._queue import Block, Written

if TYPE_CHECKING:
    from collections.abc import Sequence

_FLAGS: Final = (
    os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
)
_MODE: Final = 0o600
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


_files: weakref.WeakSet[JsonlFile] = weakref.WeakSet()


def _after_fork() -> None:
    for file in list(_files):
        file.forget()


os.register_at_fork(after_in_child=_after_fork)


class _NotUsable(OSError):
    """What stands at the path is no file for records."""


@final
class JsonlFile:
    """Writes lines to a file and its predecessors.

    Args:
        path: The file; its directory has to be there.
        max_bytes: A file is not made longer than this.
        keep: How many older files are kept.
        fsync: When it is made sure that the disk has it: `never`, `rotate` (when a file is full, and at the
            end), `always` (after every write).
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_bytes: int,
        keep: int,
        fsync: Literal["never", "rotate", "always"],
    ) -> None:
        self.path = Path(path)
        self._max = max_bytes
        self._keep = keep
        self._fsync = fsync
        self._fd = -1
        self._size = 0
        self._torn = False
        _files.add(self)

    def forget(self) -> None:
        """Close the child's copy of the file, and leave it to the parent."""
        self._let_go()

    def write(self, batch: list[Block]) -> Written:
        """Write blocks of lines, as many as can be; each line ends in a newline and holds no other."""
        blocks = deque(batch)
        try:
            self._ready()
            while blocks:
                block = blocks[0]
                if self._size + len(block.data) > self._max:
                    if block.records > 1:
                        blocks.popleft()
                        blocks.extendleft(reversed(_lines(block)))
                        continue
                    if self._size:
                        self._rotate()
                        continue
                together = self._that_fit(blocks)
                lines, failed = self._append([each.data for each in together])
                if failed is not None:
                    left = [line for each in together for line in _lines(each)][lines:]
                    blocks = deque([*left, *list(blocks)[len(together) :]])
                    raise failed
                for _ in together:
                    blocks.popleft()
            if self._fsync == "always":
                os.fsync(self._fd)
        except OSError as error:
            if error.errno not in _FULL:
                self._let_go()  # what is there next time is looked at anew
            return Written(list(blocks), trouble=_word(error))
        return Written()

    def _that_fit(self, blocks: deque[Block]) -> list[Block]:
        """Give the blocks that the file has room for, the first in any case."""
        size = self._size
        fit: list[Block] = []
        for block in blocks:
            size += len(block.data)
            if fit and size > self._max:
                break
            fit.append(block)
        return fit

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0 and self._fsync != "never":
            with contextlib.suppress(OSError):
                os.fsync(self._fd)
        self._let_go()

    # ------------------------------------------------------------------ the file

    def _ready(self) -> None:
        """Have the file open that stands at the path now."""
        if self._fd >= 0:
            if self._is_there():
                return
            self._let_go()
        fd = os.open(self.path, _FLAGS, _MODE)
        try:
            size, torn = _taken(fd)
        except BaseException:
            os.close(fd)
            raise
        self._fd, self._size, self._torn = fd, size, torn
        if not self._is_there():
            self._let_go()
            raise _NotUsable(errno.ESTALE, "the file was moved away while it was opened")

    def _is_there(self) -> bool:
        try:
            there, ours = self.path.lstat(), os.fstat(self._fd)
        except OSError:
            return False
        return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)

    def _let_go(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.close(fd)

    # ------------------------------------------------------------------ lines

    def _append(self, lines: Sequence[bytes]) -> tuple[int, OSError | None]:
        """Write them one after the other; give how many lines stand there whole if something stopped it."""
        data = memoryview(b"".join((b"\n", *lines) if self._torn else lines))
        written = 0
        try:
            while written < len(data):
                written += os.write(self._fd, data[written:])
        except OSError as error:
            return self._mend(bytes(data[:written])), error
        self._size += written
        self._torn = False
        return 0, None

    def _mend(self, written: bytes) -> int:
        """Cut off what was written of a line, and give how many stand there whole."""
        whole = written.rfind(b"\n") + 1
        lines = written.count(b"\n") - (1 if self._torn and whole else 0)
        if whole:
            self._torn = False
        self._size += whole
        if whole < len(written):
            try:
                os.ftruncate(self._fd, self._size)
            except OSError:
                self._size += len(written) - whole
                self._torn = True
        return lines

    def _rotate(self) -> None:
        """Put the file beside, and begin another one."""
        if self._fsync != "never":
            os.fsync(self._fd)
        if self._keep == 0:
            os.ftruncate(self._fd, 0)
            self._size, self._torn = 0, False
            return
        # Up to the first one that is missing, which has room for those before it: a file that cannot be put
        # beside is tried again, and each try would push an older one out.
        free = 1
        while free < self._keep and os.path.lexists(self._numbered(free)):
            free += 1
        for number in range(free - 1, 0, -1):
            self._numbered(number).replace(self._numbered(number + 1))
        self.path.replace(self._numbered(1))
        self._let_go()
        self._ready()
        if self._fsync != "never":
            _sync_directory(self.path.parent)

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")


def _lines(block: Block) -> list[Block]:
    each = block.data.split(b"\n")[:-1]
    return [Block(line + b"\n", min(1, block.records)) for line in each]


def _taken(fd: int) -> tuple[int, bool]:
    """Take a file for ourselves; give its size, and whether it ends within a line."""
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        raise _NotUsable(errno.EINVAL, "what stands at its path is no regular file")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _NotUsable(errno.EAGAIN, "another process writes this file") from None
    if stat.S_IMODE(found.st_mode) != _MODE:
        os.fchmod(fd, _MODE)
    size = os.fstat(fd).st_size
    return size, size > 0 and os.pread(fd, 1, size - 1) != b"\n"


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _word(error: OSError) -> str:
    """Say what it was, without the path."""
    if isinstance(error, _NotUsable):
        return str(error.strerror)
    number = error.errno or 0
    return f"{errno.errorcode.get(number, 'OSError')}: {os.strerror(number)}"

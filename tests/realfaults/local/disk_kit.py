"""Small disks of the tests' own: a tmpfs where one may be mounted, else a bound on the size of files.

A container may forbid mounts to root; there the same tests run against `RLIMIT_FSIZE` and permissions, so
that none is left out.
"""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
from pathlib import Path  # noqa: TC003 -- attrs
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterator


@attrs.frozen
class Disk:
    """A disk that can be filled, and made free again.

    Attributes:
        path: Where it is.
        size: Bytes that it has room for.
        mounted: Whether it is a file system of its own.
    """

    path: Path
    size: int
    mounted: bool

    def fill(self, leave: int) -> None:
        """Take all room but so much."""
        if self.mounted:
            found = os.statvfs(self.path)
            room = found.f_bavail * found.f_bsize - leave
            with (self.path / "ballast").open("wb") as file:
                file.write(b"x" * room)
        else:
            largest = max([file.stat().st_size for file in self.path.iterdir()], default=0)
            limit(largest + leave)

    def free(self) -> None:
        """Give it back."""
        if self.mounted:
            (self.path / "ballast").unlink()
        else:
            limit(resource.RLIM_INFINITY)

    @contextlib.contextmanager
    def read_only(self) -> Iterator[None]:
        """Let nothing be written to it; where it is no mount, root writes all the same."""
        if self.mounted:
            subprocess.run(["mount", "-o", "remount,ro", self.path], check=True)
            try:
                yield
            finally:
                subprocess.run(["mount", "-o", "remount,rw", self.path], check=True)
            return
        self.path.chmod(0o500)
        try:
            yield
        finally:
            self.path.chmod(0o700)


def limit(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


@contextlib.contextmanager
def small_disk(folder: Path, size: int = 2**20, inodes: int = 64) -> Iterator[Disk]:
    """Have a disk of so many bytes and files in place of a folder."""
    folder.mkdir()
    options = f"size={size},nr_inodes={inodes},mode=0700"
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode == 0:
        try:
            yield Disk(folder, size, mounted=True)
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)
        return
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit(size)
    try:
        yield Disk(folder, size, mounted=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

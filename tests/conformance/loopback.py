"""Run a command where there is no network but loopback: `python3 loopback.py COMMAND [ARGUMENT ...]`.

The servers of the conformance suite listen on every interface and cannot be told otherwise. In a network
namespace of their own nobody else reaches them, and they reach nobody. Root makes one at once; everybody else
makes a user namespace with it, where the kernel lets them. Exit code 3, and nothing started, where neither
can be made; 127 where the command cannot be started.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys

NO_NAMESPACE = 3
NOT_STARTED = 127
# <linux/sched.h>, <linux/sockios.h> and <linux/if.h>; `os.unshare` came with Python 3.12.
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
SIOCSIFFLAGS = 0x8914
IFF_UP = 0x1


def _unshare(flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(ctypes.c_int(flags)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:  # noqa: PTH123 -- one write(2), as /proc wants it
        file.write(text)


def _keep_ids(uid: int, gid: int) -> None:
    """Be the same user inside; no group but the own one can be kept without privileges."""
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {uid} 1")
    _write("/proc/self/gid_map", f"{gid} {gid} 1")


def enter() -> None:
    """Move this process into a network namespace with loopback alone. For a process of one thread.

    Raises:
        OSError: The kernel does not let it.
    """
    uid, gid = os.getuid(), os.getgid()
    try:
        _unshare(CLONE_NEWNET)
    except PermissionError:
        _unshare(CLONE_NEWUSER | CLONE_NEWNET)
        _keep_ids(uid, gid)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        fcntl.ioctl(handle, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))


def main() -> int:
    """Enter and become the command."""
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        enter()
    except OSError as error:
        print(f"loopback: no network namespace can be made here: {error}", file=sys.stderr)
        return NO_NAMESPACE
    try:
        return os.execvp(sys.argv[1], sys.argv[1:])
    except OSError as error:
        print(f"loopback: {sys.argv[1]} could not be started: {error}", file=sys.stderr)
        return NOT_STARTED


if __name__ == "__main__":
    sys.exit(main())

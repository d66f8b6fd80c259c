"""Bytes that wait for what follows them, however many come and however finely they are cut.

They lie in blocks, each of which stops growing at `BLOCK` bytes: one buffer that grows to 16 MB is copied as
a whole whenever something else lies behind it, and each such copy holds the loop for milliseconds.
"""

from __future__ import annotations

from typing import Final, final

BLOCK: Final = 64 * 1024


@final
class Pieces:
    """An unfinished line.

    Attributes:
        size: How many bytes it has.
    """

    __slots__ = ("_blocks", "size")

    def __init__(self) -> None:
        self._blocks: list[bytearray] = []
        self.size = 0

    def add(self, data: bytes) -> None:
        """Append bytes."""
        if self._blocks and len(self._blocks[-1]) < BLOCK:
            self._blocks[-1] += data
        else:
            self._blocks.append(bytearray(data))
        self.size += len(data)

    def head(self, size: int) -> bytes:
        """The first bytes, at most `BLOCK` of them."""
        return bytes(self._blocks[0][:size]) if self._blocks else b""

    def clear(self) -> None:
        """Forget them."""
        self._blocks.clear()
        self.size = 0

    def take(self) -> bytes:
        """All of them, which are then forgotten."""
        whole = b"".join(self._blocks)
        self.clear()
        return whole

"""Payloads: three shapes, one canonical spelling of each, and the digest over it.

* `text` is UTF-8, `binary` the bytes themselves, `json` compact JSON in the order given. `bytes` counts these
  and the digest is over these.
* A payload is encoded once, at the put, and decoded anew at every `get`: nobody's later change shows.
* What is small is encoded on the spot, before anything is waited for. What is large goes to a thread, and
  whoever puts it must not change it until the put is over.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

import attrs
import trio

from .._base.canonical import ContentError
from . import _slices, _slices_read
from ._types import ArtifactIntegrityError, InvalidArtifactError, UnreadableArtifactError

if TYPE_CHECKING:
    from .._base.seams import Seams

Shape: TypeAlias = Literal["text", "binary", "json"]

SHAPES: Final = ("text", "binary", "json")
LARGE: Final = _slices.SLICE
"""Bytes from which on a payload is handled in a thread."""


@attrs.frozen
class Payload:
    """A payload as it is stored.

    Attributes:
        shape: How it reads back.
        data: Its canonical bytes.
        digest: Of `data`, where asked for.
    """

    shape: Shape
    data: bytes = attrs.field(repr=False)
    digest: str | None = None


def digest_of(data: bytes) -> str:
    """Give `sha-256:` and 64 lowercase hexadecimal digits; other threads run while large data is read."""
    return f"sha-256:{hashlib.sha256(data).hexdigest()}"


def _refusal(error: ContentError) -> InvalidArtifactError:
    return InvalidArtifactError(f"{error.reason}; nothing was stored; an artifact holds text, bytes or JSON")


def _is_small(data: Any) -> bool:
    if isinstance(data, str):
        return len(data) <= LARGE
    if isinstance(data, bytes):
        return True  # stored as it is
    return _slices.weigh(data, LARGE) <= LARGE


def _encode(data: Any, digest: bool) -> Payload:
    shape: Shape
    if isinstance(data, str):
        shape, written = "text", _slices.encode_text(data)
    elif isinstance(data, bytes):
        shape, written = "binary", bytes(data)
    elif _slices.weigh(data, LARGE) <= LARGE:
        shape, written = "json", _slices.write_small(data)
    else:
        shape, written = "json", _slices.write(data)
    return Payload(shape, written, digest_of(written) if digest else None)


class Work:
    """Where payloads that are large are encoded, checked and decoded: in threads of the store's own number.

    Args:
        seams: Threads.
        at_once: How many.
    """

    __slots__ = ("_payload_threads", "_seams")

    def __init__(self, seams: Seams, at_once: int = 2) -> None:
        self._seams = seams
        self._payload_threads = trio.CapacityLimiter(at_once)

    async def encode(self, data: Any, *, digest: bool) -> Payload:
        """Encode for a put. A checkpoint only where the data is large.

        Raises:
            InvalidArtifactError: It is not storable. Nothing of it is quoted.
        """
        if isinstance(data, bytearray | memoryview):
            data = bytes(data)
        try:
            if _is_small(data) and not (digest and isinstance(data, bytes) and len(data) > LARGE):
                return _encode(data, digest)
            encoded = await self._seams.in_thread(lambda: _encode(data, digest), self._payload_threads)
        except ContentError as error:
            refusal = _refusal(error)
        else:
            return cast("Payload", encoded)
        raise refusal

    async def decode(self, ref: str, size: int, payload: Payload) -> Any:
        """Check and decode what was stored. A checkpoint only where it is large.

        Args:
            ref: For the error.
            size: The length that the ticket states.
            payload: What was read, with the digest that the ticket states.

        Raises:
            ArtifactIntegrityError: It is not what its digest says.
            UnreadableArtifactError: It is nothing that a put writes.
        """
        if len(payload.data) <= LARGE or (payload.shape == "binary" and payload.digest is None):
            return open_payload(ref, size, payload)
        return await self._seams.in_thread(lambda: open_payload(ref, size, payload), self._payload_threads)


def open_payload(ref: str, size: int, payload: Payload) -> Any:
    """Do what `Work.decode` says, on the spot; for whoever is in a thread already."""
    data = payload.data
    if payload.digest is not None:
        actual = digest_of(data)
        if actual != payload.digest:
            raise ArtifactIntegrityError(ref, payload.digest, actual)
    if len(data) == size:
        if payload.shape == "binary":
            return data
        try:
            if payload.shape == "text":
                return _slices_read.decode_text(data)
            return _slices_read.read_small(data) if size <= LARGE else _slices_read.read(data)
        except (ValueError, RecursionError):
            pass
    raise UnreadableArtifactError(ref)

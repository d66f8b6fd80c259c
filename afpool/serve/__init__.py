"""The runtime as a service: one MCP endpoint, at which everybody gets exactly their own tools.

Public names are loaded when they are first touched. What needs the packages of the extra `serve` says so
where they are missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .._lazy import lazy_exports

if TYPE_CHECKING:
    from ._bridge import Bridge as Bridge
    from ._door_limits import DoorLimits as DoorLimits
    from ._door_limits import DoorStatistics as DoorStatistics
    from ._guard import Guard as Guard
    from ._guard import guard as guard
    from ._life import serve as serve
    from ._proof import Proof as Proof
    from ._proof import open_proof as open_proof
    from ._proof_types import Proven as Proven
    from ._proof_types import Refused as Refused
    from ._proof_types import RequestHead as RequestHead
    from ._proof_types import UnsafeDoor as UnsafeDoor
    from ._service import Drained as Drained
    from ._service import Service as Service
    from ._service import open_service as open_service
    from ._sockets import BadCertificate as BadCertificate
    from ._sockets import CannotListen as CannotListen
    from ._tokens import NewToken as NewToken
    from ._tokens import TokenFile as TokenFile
    from ._tokens_file import TokenEntry as TokenEntry
    from ._tokens_file import TokenFileError as TokenFileError

_HOMES = {
    "_bridge": ("Bridge",),
    "_door_limits": ("DoorLimits", "DoorStatistics"),
    "_guard": ("Guard", "guard"),
    "_life": ("serve",),
    "_proof": ("Proof", "open_proof"),
    "_proof_types": ("Proven", "Refused", "RequestHead", "UnsafeDoor"),
    "_service": ("Drained", "Service", "open_service"),
    "_sockets": ("BadCertificate", "CannotListen"),
    "_tokens": ("NewToken", "TokenFile"),
    "_tokens_file": ("TokenEntry", "TokenFileError"),
}  # fmt: skip

__all__ = [
    "BadCertificate", "Bridge", "CannotListen", "DoorLimits", "DoorStatistics", "Drained", "Guard",
    "NewToken", "Proof", "Proven", "Refused", "RequestHead", "Service", "TokenEntry", "TokenFile",
    "TokenFileError", "UnsafeDoor", "guard", "open_proof", "open_service", "serve",
]  # fmt: skip

_EXTRA: Final = frozenset({"hypercorn", "joserfc", "mcp", "mcp_types", "pydantic", "starlette", "wsproto"})
_load, __dir__ = lazy_exports(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    try:
        return _load(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _EXTRA:
            raise
        raise ImportError(
            f"afpool.serve.{name} needs {error.name}, which is not installed: pip install 'afpool[serve]'"
        ) from error

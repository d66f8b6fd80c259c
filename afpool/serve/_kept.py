"""Resources: the artifacts of the caller, and what the results of its calls have linked to.

Rules:

* An artifact is found in the scope of whoever asks, and nowhere else. Another's, one that has expired and one
  that never was are the same answer.
* A caller without any name has no artifacts: what belongs to nobody would belong to everybody.
* What is linked to is read from its server, as the caller, through the same gates as a call.
"""

from __future__ import annotations

import base64
import logging
from typing import TYPE_CHECKING, Any, Final, final

from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from .._base.errors import AfpoolError
from .._base.identity import Identity
from ..artifacts import ArtifactError
from ..protocol import encode_json
from ._links import ARTIFACT_PREFIX
from ._rpc import INTERNAL_ERROR, INVALID_PARAMS, REFUSED, RESOURCE_NOT_FOUND, RpcError

if TYPE_CHECKING:
    from ..artifacts import ArtifactMeta, ArtifactStore
    from ..runtime import Runtime
    from ._asked import Asked
    from ._links import Links

logger = logging.getLogger("afpool.serve")

PAGE: Final = 100
_NOBODY: Final = Identity()
# what 2026-07-28 wants of each of these results; the SDK leaves it out for older clients
_FORM: Final = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


@final
class Resources:
    """What `resources/*` is answered with.

    Args:
        runtime: Whose artifacts and servers.
        links: Names of linked resources.
    """

    def __init__(self, runtime: Runtime, links: Links) -> None:
        self._runtime = runtime
        self._links = links

    @property
    def _store(self) -> ArtifactStore | None:
        return self._runtime.config.artifacts

    async def list(self, asked: Asked) -> dict[str, Any]:
        """Answer `resources/list`: the caller's artifacts, newest first.

        Raises:
            RpcError: The cursor is none, or the store failed.
        """
        cursor = asked.message.params.get("cursor")
        if cursor is not None and not isinstance(cursor, str):
            raise RpcError(INVALID_PARAMS, "a cursor is a string")
        store, identity = self._store, asked.proven.caller()
        if store is None or identity == _NOBODY:
            return {"resources": [], **_FORM}
        try:
            page = await store.list(identity, cursor=cursor, limit=PAGE)
        except ArtifactError as error:
            raise _failed(error) from None
        result: dict[str, Any] = {"resources": [_described(meta) for meta in page.items], **_FORM}
        if page.cursor is not None:
            result["nextCursor"] = page.cursor
        return result

    @staticmethod
    def templates() -> dict[str, Any]:
        """Answer `resources/templates/list`."""
        template = {
            "uriTemplate": f"{ARTIFACT_PREFIX}{{ref}}",
            "name": "artifact",
            "description": "An artifact of the caller's, by the reference that a tool's result gave.",
        }
        return {"resourceTemplates": [template], **_FORM}

    async def read(self, asked: Asked) -> dict[str, Any]:
        """Answer `resources/read`.

        Raises:
            RpcError: There is no such resource for this caller, or it could not be read.
        """
        uri = asked.message.params.get("uri")
        if not isinstance(uri, str):
            raise RpcError(INVALID_PARAMS, "a resource is named by a URI")
        identity = asked.proven.caller()
        if uri.startswith(ARTIFACT_PREFIX):
            return await self._artifact(asked, identity, uri)
        linked = self._links.read(identity, uri)
        if linked is None or self._runtime.pool is None:
            raise _missing(asked)
        return await self._linked(asked, uri, *linked)

    async def _artifact(self, asked: Asked, identity: Identity, uri: str) -> dict[str, Any]:
        store = self._store
        if store is None or identity == _NOBODY:
            raise _missing(asked)
        try:
            artifact = await store.get(identity, uri.removeprefix(ARTIFACT_PREFIX))
        except ArtifactError as error:
            raise _failed(error) from None
        if artifact is None or not asked.proven.still_holds():
            raise _missing(asked)
        content: dict[str, Any] = {"uri": uri, "mimeType": artifact.meta.media_type}
        data = artifact.data
        if isinstance(data, bytes):
            content["blob"] = base64.b64encode(data).decode()
        else:
            content["text"] = data if isinstance(data, str) else encode_json(data).decode()
        return {"contents": [content], **_FORM}

    async def _linked(self, asked: Asked, name: str, server: str, uri: str) -> dict[str, Any]:
        pool = self._runtime.pool
        assert pool is not None
        try:
            bound = await pool.bind(asked.proven.caller, server)
            read = await bound.read_resource(uri, identity=asked.proven.caller)
        except LookupError:
            raise _missing(asked) from None
        except AfpoolError as error:
            raise RpcError(
                REFUSED, f"the server's resource could not be read ({error.code})", {"code": error.code}
            ) from None
        contents = [dict(part.block) for part in read.contents]
        for part in contents:
            # of what was read its client knows the name that it was given
            inner = part.get("uri")
            part["uri"] = (
                name if inner in (None, uri) else self._links.make(asked.proven.caller(), server, str(inner))
            )
        return {"contents": contents, **_FORM}


def _described(meta: ArtifactMeta) -> dict[str, Any]:
    told: dict[str, Any] = {
        "uri": f"{ARTIFACT_PREFIX}{meta.ref}",
        "name": meta.label or meta.ref,
        "description": f"{meta.kind}, {meta.bytes} bytes",
        "mimeType": meta.media_type,
        "size": meta.bytes,
    }
    return told


def _missing(asked: Asked) -> RpcError:
    modern = asked.version in MODERN_PROTOCOL_VERSIONS
    return RpcError(
        INVALID_PARAMS if modern else RESOURCE_NOT_FOUND,
        "there is no such resource here, or not any more",
        {"uri": asked.message.params.get("uri")},
    )


def _failed(error: ArtifactError) -> RpcError:
    logger.warning("artifacts could not be read (%s)", error.code)
    return RpcError(INTERNAL_ERROR, f"the store of artifacts failed ({error.code})", {"code": error.code})

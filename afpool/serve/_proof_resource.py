"""The document that says where tokens for this service come from (RFC 9728), and where it stands."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from ..config import IdentityConfig

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"


def metadata_path(resource: str) -> str:
    """The path of the document of a resource: the well-known one with the resource's path behind it."""
    path = urlsplit(resource).path
    return WELL_KNOWN + ("" if path == "/" else path)


def metadata_url(resource: str | None) -> str | None:
    """Its URL, for `WWW-Authenticate`; `None` where the service's own URL is not configured."""
    if resource is None:
        return None
    parts = urlsplit(resource)
    return f"{parts.scheme}://{parts.netloc}{metadata_path(resource)}"


def metadata(config: IdentityConfig) -> tuple[str, bytes] | None:
    """The path and the body of the document; `None` where there is none to serve.

    It is for everybody: it names the issuers and nothing else of the configuration.
    """
    if config.resource is None:
        return None
    document: dict[str, object] = {"resource": config.resource, "bearer_methods_supported": ["header"]}
    if config.jwt:
        document["authorization_servers"] = [issuer.issuer for issuer in config.jwt]
    return metadata_path(config.resource), json.dumps(document).encode()

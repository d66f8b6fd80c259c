"""Who vends a secret: OAuth 2.1 as MCP says it, the environment, files; how tokens are held and renewed.

Their port, `CredentialProvider`, and the simplest provider, `StaticCredentials`, are in `afpool`.
"""

from __future__ import annotations

from ._cache import CachedCredentials
from ._oauth import OAuth
from ._settings import OAuthClient, OAuthSettings
from ._simple import EnvironmentCredentials, FileCredentials, RetryingCredentials
from ._store import GrantKey, MemoryTokenStore, StoredGrant, TokenStore

__all__ = [
    "CachedCredentials",
    "EnvironmentCredentials",
    "FileCredentials",
    "GrantKey",
    "MemoryTokenStore",
    "OAuth",
    "OAuthClient",
    "OAuthSettings",
    "RetryingCredentials",
    "StoredGrant",
    "TokenStore",
]

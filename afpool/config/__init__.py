"""What a file says about a runtime and its service: read, checked, and told where it came from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_exports

if TYPE_CHECKING:
    from ._place import Origin as Origin
    from ._problems import ConfigError as ConfigError
    from ._problems import Problem as Problem
    from ._serve_settings import Claim as Claim
    from ._serve_settings import IdentityConfig as IdentityConfig
    from ._serve_settings import JwtConfig as JwtConfig
    from ._serve_settings import ProxyConfig as ProxyConfig
    from ._serve_settings import ServeConfig as ServeConfig
    from ._serve_settings import ServeLimits as ServeLimits
    from ._serve_settings import TlsFiles as TlsFiles
    from ._serve_settings import TokensConfig as TokensConfig

_HOMES = {
    "_place": ("Origin",),
    "_problems": ("ConfigError", "Problem"),
    "_serve_settings": (
        "Claim", "IdentityConfig", "JwtConfig", "ProxyConfig", "ServeConfig", "ServeLimits", "TlsFiles",
        "TokensConfig",
    ),
}  # fmt: skip

__all__ = [
    "Claim", "ConfigError", "IdentityConfig", "JwtConfig", "Origin", "Problem", "ProxyConfig", "ServeConfig",
    "ServeLimits", "TlsFiles", "TokensConfig",
]  # fmt: skip

__getattr__, __dir__ = lazy_exports(__name__, _HOMES)

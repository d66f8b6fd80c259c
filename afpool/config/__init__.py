"""What a file says about a runtime and its service: read, checked, and told where it came from.

Reading needs neither trio nor a network, and loads neither; what is made of it (`Config.runtime_config`,
`open_components`) does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_exports

if TYPE_CHECKING:
    from ._components import ConfiguredCredentials as ConfiguredCredentials
    from ._components import open_components as open_components
    from ._config import Changes as Changes
    from ._config import Config as Config
    from ._console_settings import ConsoleConfig as ConsoleConfig
    from ._identity_settings import Claim as Claim
    from ._identity_settings import IdentityConfig as IdentityConfig
    from ._identity_settings import JwtConfig as JwtConfig
    from ._identity_settings import ProxyConfig as ProxyConfig
    from ._identity_settings import TokensConfig as TokensConfig
    from ._load import load_config as load_config
    from ._place import Origin as Origin
    from ._problems import ConfigError as ConfigError
    from ._problems import Problem as Problem
    from ._record_settings import JsonlConfig as JsonlConfig
    from ._record_settings import LabelsConfig as LabelsConfig
    from ._record_settings import MetricsConfig as MetricsConfig
    from ._record_settings import RecordConfig as RecordConfig
    from ._runtime_settings import ArtifactsConfig as ArtifactsConfig
    from ._runtime_settings import CredentialConfig as CredentialConfig
    from ._runtime_settings import PoolLimits as PoolLimits
    from ._runtime_settings import ResultSettings as ResultSettings
    from ._runtime_settings import RuntimeSettings as RuntimeSettings
    from ._schema import config_schema as config_schema
    from ._serve_settings import ServeConfig as ServeConfig
    from ._serve_settings import ServeLimits as ServeLimits
    from ._serve_settings import TlsFiles as TlsFiles
    from ._server_settings import ServerConfig as ServerConfig

_HOMES = {
    "_components": ("ConfiguredCredentials", "open_components"),
    "_config": ("Changes", "Config"),
    "_console_settings": ("ConsoleConfig",),
    "_load": ("load_config",),
    "_place": ("Origin",),
    "_problems": ("ConfigError", "Problem"),
    "_record_settings": ("JsonlConfig", "LabelsConfig", "MetricsConfig", "RecordConfig"),
    "_runtime_settings": (
        "ArtifactsConfig", "CredentialConfig", "PoolLimits", "ResultSettings", "RuntimeSettings",
    ),
    "_schema": ("config_schema",),
    "_identity_settings": ("Claim", "IdentityConfig", "JwtConfig", "ProxyConfig", "TokensConfig"),
    "_serve_settings": ("ServeConfig", "ServeLimits", "TlsFiles"),
    "_server_settings": ("ServerConfig",),
}  # fmt: skip

__all__ = [
    "ArtifactsConfig", "Changes", "Claim", "Config", "ConfigError", "ConfiguredCredentials",
    "ConsoleConfig", "CredentialConfig", "IdentityConfig", "JsonlConfig", "JwtConfig", "LabelsConfig",
    "MetricsConfig", "Origin", "PoolLimits", "Problem", "ProxyConfig", "RecordConfig", "ResultSettings",
    "RuntimeSettings", "ServeConfig", "ServeLimits", "ServerConfig", "TlsFiles", "TokensConfig",
    "config_schema", "load_config", "open_components",
]  # fmt: skip

__getattr__, __dir__ = lazy_exports(__name__, _HOMES)

"""The tool runtime of a multi-tenant agent: one actor per (server, identity), bound tools that recheck.

Public names are loaded when they are first touched, so that `import afpool` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._base.credential import (
        Credential as Credential,
        CredentialProvider as CredentialProvider,
        CredentialRequest as CredentialRequest,
        CredentialRequirement as CredentialRequirement,
        Issued as Issued,
        NeedsAuthorization as NeedsAuthorization,
        ScriptedCredentials as ScriptedCredentials,
        Secret as Secret,
        Signer as Signer,
        StaticCredentials as StaticCredentials,
        api_key as api_key,
        basic as basic,
        bearer as bearer,
        header_map as header_map,
    )
    from ._base.definition import Catalog as Catalog, Definition as Definition
    from ._base.errors import (
        ActorCrashed as ActorCrashed,
        AfpoolError as AfpoolError,
        AuthorizationRequired as AuthorizationRequired,
        BindingChanged as BindingChanged,
        CallCancelled as CallCancelled,
        ClientClosed as ClientClosed,
        ConnectionLost as ConnectionLost,
        CredentialFailed as CredentialFailed,
        DeadlineExceeded as DeadlineExceeded,
        Delivery as Delivery,
        IdentityMismatch as IdentityMismatch,
        IdentityMissing as IdentityMissing,
        InvalidArguments as InvalidArguments,
        LocalSessionHandleLostError as LocalSessionHandleLostError,
        NotApproved as NotApproved,
        NotOwner as NotOwner,
        OpenBackoff as OpenBackoff,
        OpenFailed as OpenFailed,
        Overloaded as Overloaded,
        PlanFailed as PlanFailed,
        PoolClosed as PoolClosed,
        ProtocolError as ProtocolError,
        ServerError as ServerError,
        ServerFailed as ServerFailed,
        ServerRefused as ServerRefused,
        SessionExpiredError as SessionExpiredError,
        ShareFailed as ShareFailed,
        StaleTools as StaleTools,
        ToolError as ToolError,
        TooLarge as TooLarge,
    )
    from ._base.identity import CallerIdentity as CallerIdentity, Identity as Identity, PoolKey as PoolKey
    from ._base.model import (
        Progress as Progress,
        Tool as Tool,
        ToolContext as ToolContext,
        ToolResult as ToolResult,
    )
    from ._base.seams import Seams as Seams
    from ._base.use import Use as Use
    from .client import (
        HttpTransport as HttpTransport,
        MemoryTransport as MemoryTransport,
        Plan as Plan,
        StdioTransport as StdioTransport,
    )
    from .pool import (
        Binding as Binding,
        BoundTool as BoundTool,
        CloseReport as CloseReport,
        Event as Event,
        KeyStatistics as KeyStatistics,
        Limits as Limits,
        Pool as Pool,
        PoolStatistics as PoolStatistics,
        Server as Server,
        Toolset as Toolset,
        open_pool as open_pool,
        run_pool as run_pool,
    )
    from .transports import StdioConfig as StdioConfig, TlsConfig as TlsConfig

_HOMES = {
    "_base.credential": (
        "Credential", "CredentialProvider", "CredentialRequest", "CredentialRequirement", "Issued",
        "NeedsAuthorization", "ScriptedCredentials", "Secret", "Signer", "StaticCredentials", "api_key", "basic",
        "bearer", "header_map",
    ),
    "_base.definition": ("Catalog", "Definition"),
    "_base.errors": (
        "ActorCrashed", "AfpoolError", "AuthorizationRequired", "BindingChanged", "CallCancelled", "ClientClosed",
        "ConnectionLost", "CredentialFailed", "DeadlineExceeded", "Delivery", "IdentityMismatch",
        "IdentityMissing", "InvalidArguments", "LocalSessionHandleLostError", "NotApproved", "NotOwner",
        "OpenBackoff", "OpenFailed", "Overloaded", "PlanFailed", "PoolClosed", "ProtocolError", "ServerError",
        "ServerFailed", "ServerRefused", "SessionExpiredError", "ShareFailed", "StaleTools", "ToolError",
        "TooLarge",
    ),
    "_base.identity": ("CallerIdentity", "Identity", "PoolKey"),
    "_base.model": ("Progress", "Tool", "ToolContext", "ToolResult"),
    "_base.seams": ("Seams",),
    "_base.use": ("Use",),
    "client": ("HttpTransport", "MemoryTransport", "Plan", "StdioTransport"),
    "pool": (
        "Binding", "BoundTool", "CloseReport", "Event", "KeyStatistics", "Limits", "Pool", "PoolStatistics",
        "Server", "Toolset", "open_pool", "run_pool",
    ),
    "transports": ("StdioConfig", "TlsConfig"),
}  # fmt: skip
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605 -- a list of strings, made from the table above


def __getattr__(name: str) -> Any:
    module = _HOME_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]

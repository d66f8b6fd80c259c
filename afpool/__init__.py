"""The tool runtime of a multi-tenant agent: one actor per (server, identity), bound tools that recheck.

Public names are loaded when they are first touched, so that `import afpool` costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._lazy import lazy_exports

if TYPE_CHECKING:
    from ._base.answers import (
        Completion as Completion,
    )
    from ._base.answers import (
        Items as Items,
    )
    from ._base.answers import (
        PromptResult as PromptResult,
    )
    from ._base.answers import (
        ResourceContents as ResourceContents,
    )
    from ._base.answers import (
        ResourceResult as ResourceResult,
    )
    from ._base.credential import (
        Anonymous as Anonymous,
    )
    from ._base.credential import (
        Credential as Credential,
    )
    from ._base.credential import (
        CredentialProvider as CredentialProvider,
    )
    from ._base.credential import (
        CredentialRequest as CredentialRequest,
    )
    from ._base.credential import (
        CredentialRequirement as CredentialRequirement,
    )
    from ._base.credential import (
        Issued as Issued,
    )
    from ._base.credential import (
        NeedsAuthorization as NeedsAuthorization,
    )
    from ._base.credential import (
        ScriptedCredentials as ScriptedCredentials,
    )
    from ._base.credential import (
        Secret as Secret,
    )
    from ._base.credential import (
        Signer as Signer,
    )
    from ._base.credential import (
        StaticCredentials as StaticCredentials,
    )
    from ._base.credential import (
        api_key as api_key,
    )
    from ._base.credential import (
        basic as basic,
    )
    from ._base.credential import (
        bearer as bearer,
    )
    from ._base.credential import (
        header_map as header_map,
    )
    from ._base.definition import Catalog as Catalog
    from ._base.definition import Definition as Definition
    from ._base.errors import (
        ActorCrashed as ActorCrashed,
    )
    from ._base.errors import (
        AfpoolError as AfpoolError,
    )
    from ._base.errors import (
        AuthorizationRequired as AuthorizationRequired,
    )
    from ._base.errors import (
        BindingChanged as BindingChanged,
    )
    from ._base.errors import (
        CallCancelled as CallCancelled,
    )
    from ._base.errors import (
        CallDenied as CallDenied,
    )
    from ._base.errors import (
        ClientClosed as ClientClosed,
    )
    from ._base.errors import (
        ConnectionLost as ConnectionLost,
    )
    from ._base.errors import (
        CredentialFailed as CredentialFailed,
    )
    from ._base.errors import (
        DeadlineExceeded as DeadlineExceeded,
    )
    from ._base.errors import (
        Delivery as Delivery,
    )
    from ._base.errors import (
        ElicitationRequired as ElicitationRequired,
    )
    from ._base.errors import (
        IdentityMismatch as IdentityMismatch,
    )
    from ._base.errors import (
        IdentityMissing as IdentityMissing,
    )
    from ._base.errors import (
        InputRequired as InputRequired,
    )
    from ._base.errors import (
        InvalidArguments as InvalidArguments,
    )
    from ._base.errors import (
        InvalidOutput as InvalidOutput,
    )
    from ._base.errors import (
        LocalSessionHandleLostError as LocalSessionHandleLostError,
    )
    from ._base.errors import (
        NotApproved as NotApproved,
    )
    from ._base.errors import (
        NotOffered as NotOffered,
    )
    from ._base.errors import (
        NotOwner as NotOwner,
    )
    from ._base.errors import (
        OpenBackoff as OpenBackoff,
    )
    from ._base.errors import (
        OpenFailed as OpenFailed,
    )
    from ._base.errors import (
        Overloaded as Overloaded,
    )
    from ._base.errors import (
        PlanFailed as PlanFailed,
    )
    from ._base.errors import (
        PoolClosed as PoolClosed,
    )
    from ._base.errors import (
        ProtocolError as ProtocolError,
    )
    from ._base.errors import (
        ServerError as ServerError,
    )
    from ._base.errors import (
        ServerFailed as ServerFailed,
    )
    from ._base.errors import (
        ServerRefused as ServerRefused,
    )
    from ._base.errors import (
        SessionExpiredError as SessionExpiredError,
    )
    from ._base.errors import (
        ShareFailed as ShareFailed,
    )
    from ._base.errors import (
        StaleTools as StaleTools,
    )
    from ._base.errors import (
        TooLarge as TooLarge,
    )
    from ._base.errors import (
        ToolError as ToolError,
    )
    from ._base.errors import (
        ToolFailed as ToolFailed,
    )
    from ._base.errors import (
        UnknownTool as UnknownTool,
    )
    from ._base.identity import CallerIdentity as CallerIdentity
    from ._base.identity import Identity as Identity
    from ._base.identity import PoolKey as PoolKey
    from ._base.model import (
        Progress as Progress,
    )
    from ._base.model import (
        Tool as Tool,
    )
    from ._base.model import (
        ToolContext as ToolContext,
    )
    from ._base.model import (
        ToolResult as ToolResult,
    )
    from ._base.model import (
        UrlElicitation as UrlElicitation,
    )
    from ._base.seams import Seams as Seams
    from ._base.use import Use as Use
    from ._base.use import note_refusal as note_refusal
    from .client import (
        ElicitAnswer as ElicitAnswer,
    )
    from .client import (
        ElicitRequest as ElicitRequest,
    )
    from .client import (
        HttpTransport as HttpTransport,
    )
    from .client import (
        HttpxAuth as HttpxAuth,
    )
    from .client import (
        MemoryTransport as MemoryTransport,
    )
    from .client import (
        Operation as Operation,
    )
    from .client import (
        Plan as Plan,
    )
    from .client import (
        Root as Root,
    )
    from .client import (
        SampleAnswer as SampleAnswer,
    )
    from .client import (
        SampleRequest as SampleRequest,
    )
    from .client import (
        ServerRequest as ServerRequest,
    )
    from .client import (
        ServerRequests as ServerRequests,
    )
    from .client import (
        StdioTransport as StdioTransport,
    )
    from .client import (
        WebSocketTransport as WebSocketTransport,
    )
    from .pool import (
        Binding as Binding,
    )
    from .pool import (
        BoundServer as BoundServer,
    )
    from .pool import (
        BoundTool as BoundTool,
    )
    from .pool import (
        CloseReport as CloseReport,
    )
    from .pool import (
        Event as Event,
    )
    from .pool import (
        KeyStatistics as KeyStatistics,
    )
    from .pool import (
        Limits as Limits,
    )
    from .pool import (
        LogMessage as LogMessage,
    )
    from .pool import (
        Pool as Pool,
    )
    from .pool import (
        PoolStatistics as PoolStatistics,
    )
    from .pool import (
        Reconfigured as Reconfigured,
    )
    from .pool import (
        ResourceUpdate as ResourceUpdate,
    )
    from .pool import (
        Server as Server,
    )
    from .pool import (
        ServerBinding as ServerBinding,
    )
    from .pool import (
        Subscription as Subscription,
    )
    from .pool import (
        Toolset as Toolset,
    )
    from .pool import (
        open_pool as open_pool,
    )
    from .pool import (
        run_pool as run_pool,
    )
    from .runtime import Run as Run
    from .runtime import Runtime as Runtime
    from .runtime import RuntimeConfig as RuntimeConfig
    from .runtime import ServerRules as ServerRules
    from .runtime import open_runtime as open_runtime
    from .runtime import run_runtime as run_runtime
    from .tools import define_tool as define_tool
    from .transports import HttpxAdapter as HttpxAdapter
    from .transports import Proxy as Proxy
    from .transports import StdioConfig as StdioConfig
    from .transports import TlsConfig as TlsConfig

_HOMES = {
    "_base.answers": ("Completion", "Items", "PromptResult", "ResourceContents", "ResourceResult"),
    "_base.credential": (
        "Anonymous", "Credential", "CredentialProvider", "CredentialRequest", "CredentialRequirement",
        "Issued", "NeedsAuthorization", "ScriptedCredentials", "Secret", "Signer", "StaticCredentials",
        "api_key", "basic", "bearer", "header_map",
    ),
    "_base.definition": ("Catalog", "Definition"),
    "_base.errors": (
        "ActorCrashed", "AfpoolError", "AuthorizationRequired", "BindingChanged", "CallCancelled",
        "CallDenied", "ClientClosed", "ConnectionLost", "CredentialFailed", "DeadlineExceeded", "Delivery",
        "ElicitationRequired", "IdentityMismatch", "IdentityMissing", "InputRequired", "InvalidArguments",
        "InvalidOutput", "LocalSessionHandleLostError", "NotApproved", "NotOffered", "NotOwner",
        "OpenBackoff", "OpenFailed", "Overloaded", "PlanFailed", "PoolClosed", "ProtocolError",
        "ServerError", "ServerFailed", "ServerRefused", "SessionExpiredError", "ShareFailed", "StaleTools",
        "TooLarge", "ToolError", "ToolFailed", "UnknownTool",
    ),
    "_base.identity": ("CallerIdentity", "Identity", "PoolKey"),
    "_base.model": ("Progress", "Tool", "ToolContext", "ToolResult", "UrlElicitation"),
    "_base.seams": ("Seams",),
    "_base.use": ("Use", "note_refusal"),
    "client": (
    "ElicitAnswer", "ElicitRequest", "HttpTransport", "HttpxAuth", "MemoryTransport", "Operation", "Plan",
    "Root", "SampleAnswer", "SampleRequest", "ServerRequest", "ServerRequests", "StdioTransport",
    "WebSocketTransport",
    ),
    "pool": (
        "Binding", "BoundServer", "BoundTool", "CloseReport", "Event", "KeyStatistics", "Limits",
        "LogMessage", "Pool", "PoolStatistics", "Reconfigured", "ResourceUpdate", "Server", "ServerBinding",
        "Subscription", "Toolset", "open_pool", "run_pool",
    ),
    "transports": ("HttpxAdapter", "Proxy", "StdioConfig", "TlsConfig"),
    "runtime": ("Run", "Runtime", "RuntimeConfig", "ServerRules", "open_runtime", "run_runtime"),
    "tools": ("define_tool",),
}  # fmt: skip

__all__ = [
    "ActorCrashed", "AfpoolError", "Anonymous", "AuthorizationRequired", "Binding", "BindingChanged",
    "BoundServer", "BoundTool", "CallCancelled", "CallDenied", "CallerIdentity", "Catalog", "ClientClosed",
    "CloseReport", "Completion", "ConnectionLost", "Credential", "CredentialFailed", "CredentialProvider",
    "CredentialRequest", "CredentialRequirement", "DeadlineExceeded", "Definition", "Delivery",
    "ElicitAnswer", "ElicitRequest", "ElicitationRequired", "Event", "HttpTransport", "HttpxAdapter",
    "HttpxAuth", "Identity", "IdentityMismatch", "IdentityMissing", "InputRequired", "InvalidArguments",
    "InvalidOutput", "Issued", "Items", "KeyStatistics", "Limits", "LocalSessionHandleLostError",
    "LogMessage", "MemoryTransport", "NeedsAuthorization", "NotApproved", "NotOffered", "NotOwner",
    "OpenBackoff", "OpenFailed", "Operation", "Overloaded", "Plan", "PlanFailed", "Pool", "PoolClosed",
    "PoolKey", "PoolStatistics", "Progress", "PromptResult", "ProtocolError", "Proxy", "Reconfigured",
    "ResourceContents", "ResourceResult", "ResourceUpdate", "Root", "Run", "Runtime", "RuntimeConfig",
    "SampleAnswer", "SampleRequest", "ScriptedCredentials", "Seams", "Secret", "Server", "ServerBinding",
    "ServerError", "ServerFailed", "ServerRefused", "ServerRequest", "ServerRequests", "ServerRules",
    "SessionExpiredError", "ShareFailed", "Signer", "StaleTools", "StaticCredentials", "StdioConfig",
    "StdioTransport", "Subscription", "TlsConfig", "TooLarge", "Tool", "ToolContext", "ToolError",
    "ToolFailed", "ToolResult", "Toolset", "UnknownTool", "UrlElicitation", "Use", "WebSocketTransport",
    "api_key", "basic", "bearer", "define_tool", "header_map", "note_refusal", "open_pool", "open_runtime",
    "run_pool", "run_runtime",
]  # fmt: skip

__getattr__, __dir__ = lazy_exports(__name__, _HOMES)

"""The public surface, frozen: a name that comes or goes is a decision, noted here and in CHANGELOG.md."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

AFPOOL = [
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
ACTORS = [
    "Actor", "ActorCrashed", "ActorError", "ActorInfo", "ActorStopped", "Answer", "Counts",
    "DeadlinePassed", "Effect", "Machine", "MailboxFull", "Refusal", "Refuse", "Reply", "Request",
    "Restart", "TurnTrace", "Undelivered",
]  # fmt: skip
ACTORS_TESTING = ["Turn", "assert_quiescent", "run_turns"]
AFPOOL_TESTING = [
    "Action", "Advertise", "Arrival", "Ask", "Body", "BreakOff", "ChildLog", "CloseFrame", "Delay", "Drop",
    "Execution", "FakeAuthorizationServer", "FakePrompt", "FakeProxy", "FakeResource", "FakeServer",
    "FakeTool", "Flood", "Hang", "Hold", "HoldStream", "JsonRpcError", "Notice", "OAuthArrival", "Offers",
    "Progress", "REQUEST_ID", "RawBytes", "Result", "Rule", "RuleSpec", "SAME_ID", "Script", "Sse",
    "Status", "StdioScript", "ToolSpec", "Truncate", "Tunnel", "WebSocketManners", "ask_tool", "big_tool",
    "counter_tool", "echo_tool", "fail_tool", "in_memory", "input_required", "input_tool", "progress_tool",
    "sleep_tool", "text_result", "whoami_tool",
]  # fmt: skip
AFPOOL_CREDENTIALS = [
    "CachedCredentials", "EnvironmentCredentials", "FileCredentials", "GrantKey", "MemoryTokenStore", "OAuth",
    "OAuthClient", "OAuthSettings", "RetryingCredentials", "StoredGrant", "TokenStore",
]  # fmt: skip
AFPOOL_CREDENTIALS_TESTING = [
    "Bench", "CASES", "Case", "CaseFailed", "CaseResult", "ConformanceReport", "ProviderHarness", "run_case",
    "run_provider_conformance",
]  # fmt: skip
AFPOOL_TOOLS = [
    "ANTHROPIC", "CannotHideArgumentError", "Deny", "GEMINI", "HOST_FILLED_PLACEHOLDER", "Hook",
    "HookCall", "HostFilledArgumentError", "HostFilledArguments", "HostFilledValueMissingError",
    "LocalTool", "MCP", "ModelCall", "OPENAI_CHAT", "OPENAI_RESPONSES", "PLAIN", "REDACTED",
    "RedactionPolicy", "RedactionReport", "RedactionRule", "RedactionVerdict", "Replace", "ResultCeiling",
    "ResultLimits", "ToolEvent", "ToolFormat", "WantsRefusal", "WantsRefused", "WantsRefusedError",
    "WantsResolution", "WantsResolved", "answer_calls", "args_redacted_by", "assert_tool_wants",
    "binding_of", "carries_argument_view", "changed_arg_keys", "content_result", "define_tool", "derive",
    "from_credential", "from_identity", "host_filled", "host_fills_of", "present_tool", "read_structured",
    "read_text", "redacted", "resolve_wants", "shown_args_of", "wants_needs_store_refusal",
    "with_argument_view", "with_result_ceiling", "with_wants",
]  # fmt: skip
AFPOOL_RECORD = [
    "Clause", "Digests", "Explanation", "JsonlSettings", "Lag", "LoopLag", "Numbers", "OpenTelemetry",
    "PoolCollector", "Record", "RecordSettings", "Sink", "SinkState", "Sinks", "event_as_json",
    "open_sinks", "prometheus_text", "unix_offset", "use_as_json",
]  # fmt: skip
AFPOOL_RUNTIME = [
    "InnerTools", "OpenRun", "Run", "Runtime", "RuntimeConfig", "RuntimeToolset", "ServerRules",
    "open_runtime", "run_runtime",
]  # fmt: skip
AFPOOL_CONFIG = [
    "ArtifactsConfig", "Changes", "Claim", "Config", "ConfigError", "ConfiguredCredentials",
    "ConsoleConfig", "CredentialConfig", "IdentityConfig", "JsonlConfig", "JwtConfig", "LabelsConfig",
    "MetricsConfig", "Origin", "PoolLimits", "Problem", "ProxyConfig", "RecordConfig", "ResultSettings",
    "RuntimeSettings", "ServeConfig", "ServeLimits", "ServerConfig", "TlsFiles", "TokensConfig",
    "config_schema", "load_config", "open_components",
]  # fmt: skip
AFPOOL_SERVE = [
    "BadCertificate", "Bridge", "CannotListen", "DoorLimits", "DoorStatistics", "Drained", "Guard",
    "NewToken", "Proof", "Proven", "Refused", "RequestHead", "Service", "TokenEntry", "TokenFile",
    "TokenFileError", "UnsafeDoor", "guard", "open_proof", "open_service", "serve",
]  # fmt: skip
AFPOOL_ADAPTERS = [
    "TooManyRounds", "langchain_tools", "message_loop", "openai_agents_tools", "pydantic_ai_toolset",
]  # fmt: skip
AFPOOL_AIO = [
    "AsyncArtifacts", "AsyncRun", "AsyncRuntime", "AsyncTool", "AsyncToolset", "BlockingArtifacts",
    "BlockingRun", "BlockingRuntime", "BlockingTool", "BlockingToolset", "from_asyncio", "open_runtime",
    "open_runtime_sync", "told_in_asyncio",
]  # fmt: skip
AFPOOL_ARTIFACTS = [
    "Artifact", "ArtifactError", "ArtifactExpired", "ArtifactFact", "ArtifactIntegrityError", "ArtifactMeta",
    "ArtifactMinted", "ArtifactPage", "ArtifactPresented", "ArtifactRefused", "ArtifactResolved",
    "ArtifactScope", "ArtifactStore", "ArtifactStoreClosedError", "ArtifactStoreError", "ArtifactStream",
    "Artifacts", "BoundArtifacts", "BoundStreamingArtifacts", "InvalidArtifactError", "MemoryArtifacts",
    "NewArtifact", "NewStream", "NoArtifactStoreError", "NoArtifacts", "Origin", "Placed", "Placement",
    "RedisArtifacts", "Retention", "SqliteArtifacts", "StreamingArtifactStore", "Swept",
    "UnknownParentRefError", "UnreadableArtifactError", "UnreadableArtifactStoreError", "bind_artifacts",
    "is_artifact_ref", "place", "placed", "placed_artifact", "scope_path",
]  # fmt: skip
AFPOOL_ARTIFACTS_TESTING = [
    "BadStore", "CASES", "Case", "CaseFailed", "CaseResult", "ConformanceReport", "StoreHarness", "run_case",
    "run_store_conformance",
]  # fmt: skip
AFPOOL_CONSOLE = [
    "Ask", "Asker", "CannotOpenConsole", "Column", "Command", "CommandError", "Console", "ConsoleLimits",
    "ConsoleSettings", "Queued", "Registry", "Stream", "Table", "build_registry", "open_console",
]  # fmt: skip
# What a Pool offers; its other attributes are for the package itself.
POOL = [
    "aclose", "actor_of", "actor_shown", "bind", "cancel", "closed", "closing", "drain", "event", "evict",
    "invalidate", "key_of", "kill", "limits", "pause", "pause_server", "reconfigure", "records", "refresh",
    "resume", "resume_server", "server", "statistics", "tools", "warm",
]  # fmt: skip


def public(name: str) -> list[str]:
    """The names that a package exports: its `__all__`, or those it imports `as` themselves."""
    module = importlib.import_module(name)
    exported = getattr(module, "__all__", None)
    if exported is None:
        source = Path(module.__file__ or "").read_text(encoding="utf-8")
        exported = re.findall(r"^from \.\w+ import (\w+) as \1$", source, re.MULTILINE)
        stray = {found for found, value in vars(module).items() if not found.startswith("_")}
        assert {found for found in stray - set(exported) if not inspect.ismodule(getattr(module, found))} <= {
            "annotations"
        }
    return sorted(exported)


@pytest.mark.parametrize(
    ("module", "frozen"),
    [
        ("afpool", AFPOOL),
        ("actors", ACTORS),
        ("afpool.artifacts", AFPOOL_ARTIFACTS),
        ("afpool.artifacts.testing", AFPOOL_ARTIFACTS_TESTING),
        ("afpool.config", AFPOOL_CONFIG),
        ("afpool.console", AFPOOL_CONSOLE),
        ("afpool.credentials", AFPOOL_CREDENTIALS),
        ("afpool.credentials.testing", AFPOOL_CREDENTIALS_TESTING),
        ("afpool.testing", AFPOOL_TESTING),
        ("afpool.tools", AFPOOL_TOOLS),
        ("afpool.record", AFPOOL_RECORD),
        ("afpool.runtime", AFPOOL_RUNTIME),
        ("afpool.serve", AFPOOL_SERVE),
        ("afpool.adapters", AFPOOL_ADAPTERS),
        ("afpool.aio", AFPOOL_AIO),
    ],
)
def test_the_public_names(module: str, frozen: list[str]) -> None:
    assert public(module) == sorted(frozen)
    for name in frozen:
        assert getattr(importlib.import_module(module), name) is not None


def test_the_test_helpers_of_the_toolkit() -> None:
    module = importlib.import_module("actors.testing")
    own = sorted(
        name for name, value in vars(module).items() if getattr(value, "__module__", "") == "actors.testing"
    )
    assert own == ACTORS_TESTING


def test_what_a_pool_offers() -> None:
    import afpool

    with_attributes = set(dir(afpool.Pool)) | {"limits", "closing", "records", "closed"}
    assert set(POOL) <= with_attributes
    for name in POOL:
        if callable(getattr(afpool.Pool, name, None)):
            assert getattr(afpool.Pool, name).__doc__, name


def test_every_public_name_is_typed_where_it_is_loaded_lazily() -> None:
    # type checkers read the imports under TYPE_CHECKING, the interpreter the table of homes
    for module, names in (("afpool", AFPOOL), ("afpool.artifacts", AFPOOL_ARTIFACTS)):
        source = Path(importlib.import_module(module).__file__ or "").read_text(encoding="utf-8")
        static = re.findall(r"^\s+(?:from [\w.]+ import )?(\w+) as \1,?$", source, re.MULTILINE)
        assert sorted(static) == sorted(names)


def test_every_public_class_and_function_says_what_it_is() -> None:
    packages = (
        "adapters", "aio", "artifacts", "artifacts.testing", "console", "credentials", "credentials.testing",
        "record", "runtime", "serve", "testing", "tools",
    )  # fmt: skip
    for module in ("afpool", "actors", *(f"afpool.{package}" for package in packages)):
        loaded = importlib.import_module(module)
        for name in public(module):
            value = getattr(loaded, name)
            if isinstance(value, type) or inspect.isfunction(value):
                assert value.__doc__, f"{module}.{name}"


def test_importing_costs_next_to_nothing_until_a_name_is_touched() -> None:
    program = (
        "import sys, afpool; assert 'trio' not in sys.modules; afpool.Identity; print(len(afpool.__all__))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{len(AFPOOL)}\n", "")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'NoSuchName'"):
        importlib.import_module("afpool").NoSuchName  # noqa: B018 -- touching it is the test


def test_a_child_that_plays_a_server_loads_nothing_of_a_client():
    code = (
        "import sys, afpool.testing.__main__; "
        "print(sorted({'httpx', 'trio_websocket', 'afpool.transports', 'jsonschema_rs'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"

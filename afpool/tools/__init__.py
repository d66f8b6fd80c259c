"""What stands around a call: definitions, validation, arguments the host fills, one door for all of it.

Public names are loaded when they are first touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_exports

if TYPE_CHECKING:
    from ._definition import LocalTool as LocalTool
    from ._definition import define_tool as define_tool
    from ._derive import binding_of as binding_of
    from ._derive import derive as derive
    from ._filled_arguments import HOST_FILLED_PLACEHOLDER as HOST_FILLED_PLACEHOLDER
    from ._fills import CannotHideArgumentError as CannotHideArgumentError
    from ._fills import HostFilledArgumentError as HostFilledArgumentError
    from ._fills import HostFilledValueMissingError as HostFilledValueMissingError
    from ._fills import from_credential as from_credential
    from ._fills import from_identity as from_identity
    from ._formats import ModelCall as ModelCall
    from ._formats import ToolFormat as ToolFormat
    from ._formats import answer_calls as answer_calls
    from ._formats_vendors import ANTHROPIC as ANTHROPIC
    from ._formats_vendors import GEMINI as GEMINI
    from ._formats_vendors import MCP as MCP
    from ._formats_vendors import OPENAI_CHAT as OPENAI_CHAT
    from ._formats_vendors import OPENAI_RESPONSES as OPENAI_RESPONSES
    from ._formats_vendors import PLAIN as PLAIN
    from ._hooks import Deny as Deny
    from ._hooks import Hook as Hook
    from ._hooks import HookCall as HookCall
    from ._hooks import Replace as Replace
    from ._host_filled import host_filled as host_filled
    from ._host_filled import host_fills_of as host_fills_of
    from ._limits import ResultCeiling as ResultCeiling
    from ._limits import ResultLimits as ResultLimits
    from ._limits import with_result_ceiling as with_result_ceiling
    from ._present import present_tool as present_tool
    from ._reading import read_structured as read_structured
    from ._reading import read_text as read_text
    from ._redaction import REDACTED as REDACTED
    from ._redaction import RedactionPolicy as RedactionPolicy
    from ._redaction import RedactionReport as RedactionReport
    from ._redaction import RedactionRule as RedactionRule
    from ._redaction import RedactionVerdict as RedactionVerdict
    from ._results import content_result as content_result
    from ._shown import args_redacted_by as args_redacted_by
    from ._shown import carries_argument_view as carries_argument_view
    from ._shown import changed_arg_keys as changed_arg_keys
    from ._shown import redacted as redacted
    from ._shown import shown_args_of as shown_args_of
    from ._shown import with_argument_view as with_argument_view
    from ._supplied import HostFilledArguments as HostFilledArguments
    from ._tool_event import ToolEvent as ToolEvent
    from ._wants import WantsRefusal as WantsRefusal
    from ._wants import WantsRefused as WantsRefused
    from ._wants import WantsRefusedError as WantsRefusedError
    from ._wants import WantsResolution as WantsResolution
    from ._wants import WantsResolved as WantsResolved
    from ._wants import assert_tool_wants as assert_tool_wants
    from ._wants import resolve_wants as resolve_wants
    from ._wants import wants_needs_store_refusal as wants_needs_store_refusal
    from ._with_wants import with_wants as with_wants

_HOMES = {
    "_definition": ("LocalTool", "define_tool"),
    "_derive": ("binding_of", "derive"),
    "_filled_arguments": ("HOST_FILLED_PLACEHOLDER",),
    "_fills": (
        "CannotHideArgumentError", "HostFilledArgumentError", "HostFilledValueMissingError",
        "from_credential", "from_identity",
    ),
    "_formats": ("ModelCall", "ToolFormat", "answer_calls"),
    "_formats_vendors": ("ANTHROPIC", "GEMINI", "MCP", "OPENAI_CHAT", "OPENAI_RESPONSES", "PLAIN"),
    "_hooks": ("Deny", "Hook", "HookCall", "Replace"),
    "_host_filled": ("host_filled", "host_fills_of"),
    "_limits": ("ResultCeiling", "ResultLimits", "with_result_ceiling"),
    "_present": ("present_tool",),
    "_reading": ("read_structured", "read_text"),
    "_tool_event": ("ToolEvent",),
    "_redaction": ("REDACTED", "RedactionPolicy", "RedactionReport", "RedactionRule", "RedactionVerdict"),
    "_results": ("content_result",),
    "_shown": (
        "args_redacted_by", "carries_argument_view", "changed_arg_keys", "redacted", "shown_args_of",
        "with_argument_view",
    ),
    "_supplied": ("HostFilledArguments",),
    "_wants": (
        "WantsRefusal", "WantsRefused", "WantsRefusedError", "WantsResolution", "WantsResolved",
        "assert_tool_wants", "resolve_wants", "wants_needs_store_refusal",
    ),
    "_with_wants": ("with_wants",),
}  # fmt: skip

__all__ = [
    "ANTHROPIC",
    "GEMINI",
    "HOST_FILLED_PLACEHOLDER",
    "MCP",
    "OPENAI_CHAT",
    "OPENAI_RESPONSES",
    "PLAIN",
    "REDACTED",
    "CannotHideArgumentError",
    "Deny",
    "Hook",
    "HookCall",
    "HostFilledArgumentError",
    "HostFilledArguments",
    "HostFilledValueMissingError",
    "LocalTool",
    "ModelCall",
    "RedactionPolicy",
    "RedactionReport",
    "RedactionRule",
    "RedactionVerdict",
    "Replace",
    "ResultCeiling",
    "ResultLimits",
    "ToolEvent",
    "ToolFormat",
    "WantsRefusal",
    "WantsRefused",
    "WantsRefusedError",
    "WantsResolution",
    "WantsResolved",
    "answer_calls",
    "args_redacted_by",
    "assert_tool_wants",
    "binding_of",
    "carries_argument_view",
    "changed_arg_keys",
    "content_result",
    "define_tool",
    "derive",
    "from_credential",
    "from_identity",
    "host_filled",
    "host_fills_of",
    "present_tool",
    "read_structured",
    "read_text",
    "redacted",
    "resolve_wants",
    "shown_args_of",
    "wants_needs_store_refusal",
    "with_argument_view",
    "with_result_ceiling",
    "with_wants",
]  # fmt: skip

__getattr__, __dir__ = lazy_exports(__name__, _HOMES)

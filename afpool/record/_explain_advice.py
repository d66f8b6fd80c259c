"""What may be done now: by the code where it says more, else by the verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ._explain_words import size

if TYPE_CHECKING:
    from .._base.use import Use

_BY_VERDICT: Final[dict[str, str]] = {
    "not-sent": "the call may be made again",
    "refused": "the call may be made again",
    "in-doubt": "think first: the tool may have run, and running it twice may be worse than not at all",
    "answered": "believe the answer; the tool has run, or may have",
}
_BY_CODE: Final[dict[str, str]] = {
    "identity-mismatch": "list the tools for this caller; if it should not happen, look for tools kept "
    "across users",
    "identity-missing": "name one of the fields, or make it a server for everybody (`keyed_on=()`)",
    "stale-tools": "list the tools again and decide anew",
    "binding-changed": "list the tools again and decide anew",
    "share-failed": "mend the app's `share`",
    "not-approved": "have somebody approve the new definition",
    "invalid-arguments": "mend the arguments",
    "unknown-tool": "call one of the tools that there are",
    "not-offered": "do without, or ask another server",
    "overloaded": "wait, or raise the limit",
    "plan-failed": "mend the app's `plan`",
    "open-failed": "look at the server; then the call may be made again",
    "open-backoff": "wait until the next opening is due, or refresh the list, which tries at once",
    "credential-failed": "look at the credential provider; then the call may be made again",
    "authorization-required": "ask the user: the address went to `on_authorization`",
    "not-owner": "ask the process that owns the key",
    "wants-refused": "pass references of stored artifacts, as the message says",
    "ERR_HOST_FILLED_ARGUMENT": "leave that argument out",
    "ERR_HOST_FILLED_VALUE_MISSING": "give the host a value for it",
    "ERR_INVALID_ARTIFACT": "mend what is put",
    "ERR_UNKNOWN_PARENT_REF": "store each parent first, or leave it out",
    "ERR_NO_ARTIFACT_STORE": "give the runtime an artifact store",
    "ERR_ARTIFACT_STORE_CLOSED": "open the store for as long as the runtime lives",
    "ERR_UNREADABLE_ARTIFACT_STORE": "look at the place that was given as a store",
    "elicitation-required": "show the address to the user, then decide about another call",
    "too-large": "ask for less; the tool may have run",
    "protocol-error": "the tool may have run; tell the makers of the server",
    "invalid-output": "the tool has run; its answer stands in the error's `result`",
}
_RUN_BY_CODE: Final = frozenset({"elicitation-required", "too-large", "protocol-error", "invalid-output"})


def verdict(use: Use, *, sent: bool) -> str:
    """Say what was sent, and what that proves.

    Args:
        use: The call.
        sent: Whether the first byte of an attempt left.
    """
    local = not use.server
    delivery = use.delivery
    if delivery == "not-sent":
        if local or not use.attempts:
            return "the tool was not run" if local else "nothing was sent: its request was never begun"
        if sent:
            return "nothing of the last attempt was sent; what was sent before was answered that nothing ran"
        return "nothing was sent: no byte of its request left"
    if delivery == "refused":
        return f"{_sent(use)}, and what was answered proves that nothing ran"
    if delivery == "in-doubt":
        if local:
            return "the tool had begun, and nothing proves how far it got"
        return f"{_sent(use)}, and nothing proves what became of it"
    if delivery == "answered":
        if local:
            return "the tool was run"
        answer = f", and {size(use.bytes_in)} of an answer came" if use.bytes_in else ", and it was answered"
        return f"{_sent(use)}{answer}"
    return "no verdict was filed"


def _sent(use: Use) -> str:
    what = f"a request of {size(use.bytes_out)}" if use.bytes_out else "its request"
    return f"{what} was sent" + (f", the last of {use.attempts} attempts" if use.attempts > 1 else "")


def advice(use: Use) -> str:
    """Say what whoever called may do now; empty where nothing is to be decided."""
    if use.outcome == "ok" and not use.code:
        return "the tool says that it failed: read what it answered" if use.tool_error else ""
    code, delivery = use.code or "", use.delivery or ""
    of_code = _BY_CODE.get(code, "")
    if code == "denied":
        return "ask who set the hook" if delivery == "not-sent" else "the tool has run; ask who set the hook"
    if delivery == "in-doubt" or (delivery == "answered" and code not in _RUN_BY_CODE):
        return _BY_VERDICT[delivery]
    if code == "deadline-exceeded":
        return "the call may be made again, with more time"
    return of_code or _BY_VERDICT.get(delivery, "")

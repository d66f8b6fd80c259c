"""What a code means, where no event caused it: the cause in words, out of what the call itself has filed.

One entry for each code that a call may end with; a test holds this table and the error classes equal.
`{tool}`, `{server}` and `{key}` are put in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ._explain_words import listed, plain, quoted

if TYPE_CHECKING:
    from .._base.use import Use

_CAUSES: Final[dict[str, str]] = {
    "identity-mismatch": "who called does not encode to {key}, which it was listed for, or named nobody",
    "identity-missing": "the identity names none of the fields that {server} is keyed on",
    "stale-tools": "the list that the tool was listed from is not known to be true any more",
    "binding-changed": "plan, authorization name or epoch of the key are not those of the listing any more",
    "share-failed": "the app's `share` raised, or gave something else than a string or `None`",
    "not-approved": "the definition of {tool} is not the one that was pinned for {server}",
    "invalid-arguments": "the arguments are not what {tool} takes",
    "not-offered": "what {server} negotiated does not hold what {method} needs",
    "unknown-tool": "whoever called is offered no tool of this name",
    "denied": "a hook of the host's said no",
    "overloaded": "a limit was reached",
    "plan-failed": "the app's `plan` raised, or gave no usable plan",
    "open-failed": "no client of {server} could be opened",
    "open-backoff": "an opening under the same plan had failed, and the next one was not due",
    "credential-failed": "the credential provider or the signer gave nothing that can be sent",
    "authorization-required": "somebody has to authorize first",
    "deadline-exceeded": "its deadline passed",
    "cancelled": "it was given up from outside",
    "pool-closed": "the pool was closing",
    "client-closed": "its client was closed under it",
    "session-expired": "{server} does not know the session any more",
    "session-handle-lost": "its client ended on this side of the wire",
    "connection-lost": "the connection broke, and the session lives on",
    "server-refused": "{server} answered that it ran nothing",
    "server-failed": "{server} gave an HTTP status without an answer to the request",
    "server-error": "{server} answered with a JSON-RPC error",
    "elicitation-required": "{server} wants its user to visit an address first",
    "input-required": "{server} asked something, and the call did not get past its question",
    "protocol-error": "an answer came that could not be read",
    "too-large": "the answer is larger than what is taken",
    "tool-error": "the tool answered that it failed",
    "tool-failed": "the host's own tool raised, or gave what is no result",
    "invalid-output": "the structured content is not what the tool's output schema allows",
    "actor-crashed": "a fault of afpool's own befell the actor of the key",
    "not-owner": "another process owns the key",
    "wants-refused": "an argument that is to name a stored artifact did not",
    "cannot-hide-argument": "an argument cannot be cut out of the tool's schema",
    "lease-returned-twice": "a place was given back twice, a fault of afpool's own",
    "ERR_HOST_FILLED_ARGUMENT": "the arguments hold a value for an argument that the host fills",
    "ERR_HOST_FILLED_VALUE_MISSING": "the host had no value for an argument that it fills",
    "ERR_ARTIFACT": "an artifact store refused",
    "ERR_INVALID_ARTIFACT": "an artifact that was put is malformed, or larger than its scope may hold",
    "ERR_UNKNOWN_PARENT_REF": "an artifact that was put names parents that are not in its scope",
    "ERR_ARTIFACT_INTEGRITY": "a stored artifact is not what its digest says",
    "ERR_UNREADABLE_ARTIFACT": "a stored artifact is damaged, or of a later version",
    "ERR_UNREADABLE_ARTIFACT_STORE": "what was to be opened as an artifact store is none",
    "ERR_ARTIFACT_STORE": "the artifact store failed",
    "ERR_ARTIFACT_STORE_CLOSED": "the artifact store was closed",
    "ERR_NO_ARTIFACT_STORE": "there is no artifact store",
}

CODES: Final = frozenset(_CAUSES)

_NOTES: Final[dict[str, str]] = {
    "answer": "the answer was {words}",
    "limit": "the limit is {words}",
    "hook": "the hook is {words}",
    "missing": "the tools of these servers were missing from what was listed: {words}",
    "arguments": "what is wrong with them: {words}",
    "run": "it raised {words}",
    "store": "the store said {words}",
    "plan": "the plan gave {words}",
    "share": "`share` raised {words}",
    "credential": "fetching the credential gave {words}",
    "sign": "the signer raised {words}",
    "input": "its question ended with {words}",
    "opening": "an opening of its client was under way, at {words}",
    "connect": "{words}",
    "write": "{words}",
    "list": "asking for the list gave {words}",
    "admission": "waiting for a place gave {words}",
    "runtime-admission": "waiting for a place of the runtime gave {words}",
    "renegotiation": "the first client ended with {words}",
    "repeat": "a repeat of it ended with {words}",
    "progress": "the caller's progress callback raised {words}",
    "server-request": "the server asked: {words}",
    "generation": "the list that came later is of generation {words}",
    "definition": "a definition {words}",
    "quarantined": "so many tools of that list cannot be offered: {words}",
    "answered": "when the answer came, this had changed: {words}",
}
_BESIDE: Final = frozenset(
    {"progress", "server-request", "answered", "generation", "definition", "quarantined"}
)
"""Notes that never are the cause of how a call ended."""


def meaning(use: Use, key: str) -> str:
    """Say what the code of a call means, as part of a sentence."""
    code = use.code or ""
    template = _CAUSES.get(code)
    if template is None:
        return f"it raised {quoted(code)}" if code else "nothing was filed of its cause"
    if code == "cancelled" and use.outcome == "cancelled":
        return "its caller was cancelled"
    if code == "cancelled":
        return "its host withdrew it"
    if code == "denied" and use.delivery == "answered":
        return "a hook of the host's withheld the result of the tool, which has run"
    if code == "tool-failed" and use.delivery == "not-sent":
        return "a fault on the way to the tool ended it, and the tool was not run"
    return template.format(
        tool=quoted(use.tool or use.name),
        server=quoted(use.server) if use.server else "the server",
        method=quoted(use.method),
        key=key or "the key",
    )


def notes(use: Use) -> str:
    """Say what was noted beside the code, as part of a sentence; empty where nothing was."""
    words: dict[str, list[str]] = {}
    for stage, word, _at in use.facts or ():
        if stage not in _BESIDE and word != use.code:
            words.setdefault(stage, []).append(quoted(word))
    told = [_noted(stage, listed(each, 3)) for stage, each in words.items()]
    return "; ".join(told[:4])


def note_words(stage: str, word: str) -> str:
    """Say one note in words."""
    return _noted(stage, quoted(word))


def _noted(stage: str, words: str) -> str:
    template = _NOTES.get(stage)
    return f"{plain(stage)}: {words}" if template is None else template.replace("{words}", words)

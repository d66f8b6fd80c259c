"""The list of failures is a promise: codes and what each may say about delivery."""

from __future__ import annotations

import inspect

import pytest

from afpool._base import errors

N, R, D, A = "not-sent", "refused", "in-doubt", "answered"

PROMISED = {
    "IdentityMismatch": ("identity-mismatch", (N,)),
    "IdentityMissing": ("identity-missing", (N,)),
    "StaleTools": ("stale-tools", (N,)),
    "BindingChanged": ("binding-changed", (N,)),
    "ShareFailed": ("share-failed", (N,)),
    "InvalidArguments": ("invalid-arguments", (N,)),
    "NotApproved": ("not-approved", (N,)),
    "Overloaded": ("overloaded", (N,)),
    "PlanFailed": ("plan-failed", (N,)),
    "OpenFailed": ("open-failed", (N,)),
    "OpenBackoff": ("open-backoff", (N,)),
    "CredentialFailed": ("credential-failed", (N,)),
    "AuthorizationRequired": ("authorization-required", (N, R)),
    "DeadlineExceeded": ("deadline-exceeded", (N, D)),
    "CallCancelled": ("cancelled", (N, D)),
    "PoolClosed": ("pool-closed", (N, D)),
    "ClientClosed": ("client-closed", (N, D)),
    "SessionExpiredError": ("session-expired", (R,)),
    "LocalSessionHandleLostError": ("session-handle-lost", (N, D)),
    "ConnectionLost": ("connection-lost", (N, D)),
    "ServerRefused": ("server-refused", (R,)),
    "ServerFailed": ("server-failed", (D,)),
    "ServerError": ("server-error", (A,)),
    "ProtocolError": ("protocol-error", (A,)),
    "TooLarge": ("too-large", (A,)),
    "ToolError": ("tool-error", (A,)),
    "ActorCrashed": ("actor-crashed", (N, D)),
    "NotOwner": ("not-owner", (N,)),
    "NotOffered": ("not-offered", (N,)),
    "InputRequired": ("input-required", (A, D)),
    "ElicitationRequired": ("elicitation-required", (A,)),
    "InvalidOutput": ("invalid-output", (A,)),
    "UnknownTool": ("unknown-tool", (N,)),
    "CallDenied": ("denied", (N, A)),
    "ToolFailed": ("tool-failed", (A, N)),
}


def test_the_classes_are_the_list():
    built = {
        name: (cls.code, cls.deliveries)
        for name, cls in inspect.getmembers(errors, inspect.isclass)
        if issubclass(cls, errors.AfpoolError) and cls is not errors.AfpoolError
    }
    assert built == PROMISED
    assert len({code for code, _ in PROMISED.values()}) == len(PROMISED)


@pytest.mark.parametrize("name", PROMISED)
def test_each_holds_to_its_deliveries(name):
    cls = getattr(errors, name)
    code, allowed = PROMISED[name]
    assert cls("why").delivery == allowed[0]
    for delivery in (N, R, D, A):
        if delivery in allowed:
            error = cls("why", delivery=delivery, retry_after=1.5, http_status=429)
            assert str(error) == f"{code} ({delivery}): why"
            assert (error.retry_after, error.http_status, error.call_id) == (1.5, 429, None)
        else:
            with pytest.raises(ValueError, match=name):
                cls("why", delivery=delivery)

"""Providers that misbehave, through the whole door: the call is refused, unsent; nothing of theirs told."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import pytest
import trio

from afpool import Anonymous, Credential, CredentialFailed, Issued, NeedsAuthorization, bearer
from afpool.credentials import CachedCredentials, RetryingCredentials
from afpool.tools import from_credential, host_filled
from tests.runtime.bad_input_kit import FILLED, spotless
from tests.runtime.odd_things import Provider, Unspoken, called
from tests.runtime.runtime_kit import ALICE, runtime
from tests.tools.door_kit import SECRET, Ran

# ---------------------------------------------------------------------------- providers


def odd(secrets: Any, kind: Any = "odd") -> Credential:
    """Give a credential of a kind that says oddly what its secrets are."""

    class Odd(Credential):
        def to_headers(self) -> list[tuple[str, str]]:
            return [("authorization", SECRET)]

        def secrets(self) -> Any:
            if isinstance(secrets, Exception):
                raise secrets
            return secrets

    Odd.kind = kind
    return Odd()


FAILED = "credential-failed"
PROVIDERS: dict[str, tuple[Any, str, str]] = {
    "ended long ago": (lambda: Issued(bearer(SECRET), 1.0), "ok", "[host-filled]"),
    "ends in the year 30 million": (lambda: Issued(bearer(SECRET), 1e15), "ok", "[host-filled]"),
    "ends beyond all numbers": (lambda: Issued(bearer(SECRET), 10**400), "ok", "[host-filled]"),
    "ends never": (lambda: Issued(bearer(SECRET), float("inf")), "ok", "[host-filled]"),
    "ended always": (lambda: Issued(bearer(SECRET), float("-inf")), "ok", "[host-filled]"),
    "ends at no number": (lambda: Issued(bearer(SECRET), float("nan")), "ok", "[host-filled]"),
    "ends at a word": (lambda: Issued(bearer(SECRET), f"soon {SECRET}"), FAILED, "(TypeError)"),
    "ends at an object": (lambda: Issued(bearer(SECRET), object()), FAILED, "(TypeError)"),
    "raises with the secret": (RuntimeError(f"401 for {SECRET}"), FAILED, "(RuntimeError)"),
    "raises several": (ExceptionGroup(SECRET, [ValueError(SECRET)]), FAILED, "(ExceptionGroup)"),
    "raises what cannot be shown": (Unspoken(), FAILED, "(Unspoken)"),
    "gives up": (trio.TooSlowError(SECRET), FAILED, "(TooSlowError)"),
    "gives the secret itself": (SECRET, FAILED, "(str)"),
    "gives nothing": (None, FAILED, "(NoneType)"),
    "issues the secret itself": (lambda: Issued(SECRET), FAILED, "(TypeError)"),
    "issues nothing": (lambda: Issued(None), FAILED, "(TypeError)"),
    "lets it go without": (Anonymous(), FAILED, "(Anonymous)"),
    "asks for consent nowhere": (lambda: NeedsAuthorization(None, "s"), FAILED, "(TypeError)"),
    "asks for consent oddly": (lambda: NeedsAuthorization("https://x", object()), FAILED, "(TypeError)"),
    "asks for consent": (NeedsAuthorization(f"https://x/{SECRET}", "s"), "authorization-required", "first"),
    "a kind that fails": (lambda: Issued(odd(RuntimeError(SECRET))), FAILED, "secrets() raised RuntimeError"),
    "a kind of one string": (lambda: Issued(odd(SECRET)), FAILED, "gives no sequence of strings"),
    "a kind of bytes": (lambda: Issued(odd([SECRET.encode()])), FAILED, "gives no sequence of strings"),
    "a kind of nothing": (lambda: Issued(odd(None)), FAILED, "gives no sequence of strings"),
    "a kind without a name": (lambda: Issued(odd((SECRET,), kind=3)), "ok", "[host-filled]"),
}


@pytest.mark.parametrize("wrapped", [None, CachedCredentials, RetryingCredentials])
@pytest.mark.parametrize("which", PROVIDERS)
async def test_a_provider_that_misbehaves_refuses_the_call_and_tells_nothing(
    which: str, wrapped: Any, caplog: pytest.LogCaptureFixture
) -> None:
    answer, code, says = PROVIDERS[which]
    provider: Any = Provider(answer)
    work = Ran(lambda args, ctx: f"got {ctx.credential.to_headers()}", needs="crm")
    filled = Ran(lambda args, ctx: f"got {args['token']}", name="filled", input_schema=FILLED)
    tools = [
        work.tool,
        host_filled(
            filled.tool, {"token": from_credential("crm", read=lambda given: given.to_headers()[0][1])}
        ),
    ]
    with caplog.at_level(logging.DEBUG, "afpool"):
        async with runtime(
            tools=tools, credentials=provider if wrapped is None else wrapped(provider)
        ) as here:
            for name, args in (("work", None), ("filled", {"q": "x"})):
                result = await called(here, name, args)
                assert result.code == code, result.text
                assert says in result.text, result.text
                assert result.delivery == ("answered" if code == "ok" else "not-sent")
                # a provider's own exception stays its own; everything that is made of it says its class only
                error = result.error
                if error is not None:
                    assert not work.calls
                    error.__cause__ = error.__context__ = None
                spotless(result, list(here.events), hidden=(SECRET,))
                assert pickle.dumps([event.payload for event in here.events]).find(SECRET.encode()) < 0
    assert SECRET not in caplog.text


@pytest.mark.parametrize("wrapped", [None, CachedCredentials, RetryingCredentials])
async def test_a_provider_that_hangs_is_waited_for_until_the_deadline(
    wrapped: Any, autojump_clock: trio.testing.MockClock
) -> None:
    class Hangs:
        async def get(self, request: Any) -> Any:
            await trio.sleep_forever()

    work = Ran(needs="crm")
    provider: Any = Hangs() if wrapped is None else wrapped(Hangs())
    async with runtime(tools=[work.tool], credentials=provider, deadline=7.0) as here:
        begun = trio.current_time()
        result = await here.runtime.dispatch(ALICE, "work")
        assert (result.code, result.delivery) == ("deadline-exceeded", "not-sent")
        assert trio.current_time() == begun + 7.0
        assert not work.calls


async def test_what_a_provider_says_on_purpose_is_told() -> None:
    words = CredentialFailed("the vault is sealed; nothing was sent")
    async with runtime(tools=[Ran(needs="crm").tool], credentials=Provider(words)) as here:
        assert (await called(here)).text == words.message

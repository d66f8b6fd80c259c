"""What wrappers pass on as it is: missing consent, the credential itself, a failure, a cancellation."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import trio
import trio.testing

import afpool
from afpool import (
    Anonymous,
    CredentialRequest,
    Identity,
    Issued,
    NeedsAuthorization,
    ScriptedCredentials,
    StaticCredentials,
    ToolContext,
    bearer,
)
from afpool.credentials import CachedCredentials, RetryingCredentials
from afpool.tools import define_tool
from tests.tools.door_kit import Ran, door

ALICE = Identity(tenant="acme", principal="alice")
ASK = CredentialRequest("files", identity=ALICE)
WRAPPERS = [RetryingCredentials, CachedCredentials]


async def test_consent_is_asked_for_once_and_given_back_as_it_is(
    autojump_clock: trio.testing.MockClock,
) -> None:
    needs = NeedsAuthorization("https://login.example/a?state=x", "session-1")
    inner = ScriptedCredentials([needs, bearer("never")])
    assert await RetryingCredentials(inner, passing=lambda error: True).get(ASK) is needs
    assert len(inner.requests) == 1
    assert trio.current_time() == 0, "nobody waited"


async def test_going_without_is_no_failure_either() -> None:
    without = Anonymous()
    inner = ScriptedCredentials([without, bearer("never")])
    assert await RetryingCredentials(inner).get(ASK) is without
    assert len(inner.requests) == 1


async def test_a_cancelled_attempt_is_not_tried_again(autojump_clock: trio.testing.MockClock) -> None:
    inner = ScriptedCredentials([bearer("never")] * 3, hold=trio.Event())
    with trio.move_on_after(1) as scope:
        await RetryingCredentials(inner, passing=lambda error: True).get(ASK)
    assert scope.cancelled_caught
    assert (len(inner.requests), trio.current_time()) == (1, 1)


@pytest.mark.parametrize("passing", [True, False])
async def test_the_last_failure_is_raised_as_the_very_object(
    passing: bool, autojump_clock: trio.testing.MockClock
) -> None:
    failures = [OSError("one"), OSError("two"), OSError("three")]
    inner = ScriptedCredentials(failures)
    with pytest.raises(OSError, match=r"three|one") as caught:
        await RetryingCredentials(inner, attempts=3, passing=lambda error: passing).get(ASK)
    assert caught.value is failures[2 if passing else 0]
    assert caught.value.__cause__ is None
    assert len(inner.requests) == (3 if passing else 1)


async def test_waits_double_up_to_the_longest_one(autojump_clock: trio.testing.MockClock) -> None:
    asked: list[float] = []

    class Failing:
        async def get(self, request: CredentialRequest) -> Issued:
            asked.append(trio.current_time())
            await trio.lowlevel.checkpoint()
            raise OSError("down")

    with pytest.raises(OSError, match="down"):
        await RetryingCredentials(Failing(), attempts=6, delay=1.0, max_delay=4.0).get(ASK)
    waits = [later - before for before, later in pairwise(asked)]
    for wait, ceiling in zip(waits, [1.0, 2.0, 4.0, 4.0, 4.0], strict=True):
        assert ceiling / 2 <= wait <= ceiling


@pytest.mark.parametrize(
    ("status", "again"), [(400, False), (401, False), (403, False), (404, False), (429, True), (503, True)]
)
async def test_only_a_failure_that_says_when_to_come_back_is_one_in_passing(
    status: int, again: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """A provider of one's own says so by `retry_after`, whatever it was told by."""
    error = afpool.CredentialFailed(f"the vault answered {status}", retry_after=1.0 if again else None)
    inner = ScriptedCredentials([error, bearer("t")])
    if again:
        given: Any = await RetryingCredentials(inner).get(ASK)
        assert given.credential.token == "t"
    else:
        with pytest.raises(afpool.CredentialFailed) as caught:
            await RetryingCredentials(inner).get(ASK)
        assert caught.value is error
    assert len(inner.requests) == (2 if again else 1)


# ---------------------------------------------------------------------------- the object itself


async def test_the_credential_is_passed_on_by_reference() -> None:
    credential = bearer("t")
    for wrap in WRAPPERS:
        provider = wrap(StaticCredentials({"files": credential}))
        given = await provider.get(ASK)
        assert isinstance(given, Issued)
        assert given.credential is credential
    # through the door to the tool, both ways
    seen: list[Any] = []

    async def pull(args: Any, ctx: ToolContext) -> str:
        assert ctx.credentials is not None
        seen.append((await ctx.credentials.get(CredentialRequest("files"))).credential)  # type: ignore[union-attr]
        return "done"

    through, work = door(credentials=StaticCredentials({"files": credential})), Ran(needs="files")
    assert (await through(work.tool)).code == "ok"
    assert work.ctx.credential is credential
    assert (await through(define_tool(execute=pull, name="pull"))).code == "ok"
    assert seen == [credential]
    assert seen[0] is credential


async def test_what_fails_is_on_the_record_once_and_told_to_the_model_once() -> None:
    through = door(credentials=ScriptedCredentials([OSError("down")]))
    result = await through(Ran(needs="files").tool)
    assert (result.code, result.delivery) == ("credential-failed", "not-sent")
    assert through.events.kinds == [
        "tool_start", "credential_requested", "credential_failed", "tool_end",
    ]  # fmt: skip
    assert through.events.of("credential_failed") == {"service": "files", "error_class": "OSError"}
    assert result.text.count("files") == 1

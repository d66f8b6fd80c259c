"""An error in a result is a value: its frames, which hold the arguments, do not come with it."""

from __future__ import annotations

import traceback
from typing import Any

import pytest

from afpool import CredentialFailed, CredentialRequirement, ScriptedCredentials, bearer
from afpool.tools import Hook, RedactionPolicy, define_tool, redacted
from tests.tools.door_kit import Ran, door, refused

CARD = "4111-1111-1111"
POLICY = RedactionPolicy(keys=["card"])


def shown(error: Any) -> str:
    return "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())


def charge(card: str, amount: int) -> str:
    if amount > 9:
        raise LookupError("too much")
    return "charged"


async def test_what_a_tool_raises_keeps_its_frames_where_nothing_is_hidden() -> None:
    error = refused(
        await door()(define_tool(charge), {"card": CARD, "amount": 10}), "tool-failed", "answered"
    )
    assert error.__traceback__ is None
    assert "in charge" in shown(error)


@pytest.mark.parametrize(
    "args", [{"card": CARD, "amount": 10}, {"card": CARD, "amount": "x"}, {"card": CARD}]
)
async def test_where_an_argument_is_hidden_it_is_in_no_frame(args: Any) -> None:
    result = await door()(redacted(define_tool(charge), POLICY), args)
    assert result.error is not None
    assert CARD not in shown(result.error)
    cause = result.error.__cause__
    if cause is not None:
        assert [note.startswith("raised at ") for note in cause.__notes__] == [True]
        assert " in charge" in cause.__notes__[0]


async def test_the_frames_of_a_hook_go_too() -> None:
    def before(call: Any) -> None:
        raise LookupError(f"of {len(call.args['card'])} characters")

    result = await door(hooks=[Hook("h", before=before)])(
        redacted(define_tool(charge), POLICY), {"card": CARD, "amount": 1}
    )
    assert CARD not in shown(refused(result, "denied"))


@pytest.mark.parametrize("own", [False, True])
async def test_of_a_provider_that_fails_its_words_alone_are_told_where_they_are_ours(own: bool) -> None:
    secret = "s3cr3t-of-the-vault"

    def failing(_: Any) -> BaseException:
        inner = LookupError(secret)
        error: Exception = CredentialFailed("the vault is sealed") if own else RuntimeError(secret)
        error.__cause__ = inner
        return error

    ran = Ran(needs=CredentialRequirement("crm"))
    error = refused(await door(credentials=ScriptedCredentials(failing))(ran.tool, {}), "credential-failed")
    assert error.__cause__ is error.__context__ is None
    assert secret not in shown(error) + "".join(getattr(error, "__notes__", ()))
    assert ("sealed" in error.message) == own
    if not own:
        (note,) = error.__notes__
        assert note.startswith("RuntimeError raised at ")
    assert ran.calls == []


async def test_a_credential_that_a_call_carries_is_hidden_from_then_on() -> None:
    held = bearer("s3cr3t-of-the-connection")

    def answers(_: Any, ctx: Any) -> str:
        ctx.on_credential(held)
        ctx.on_credential(held)
        ctx.progress({"with": held.token})
        return f"sent with {held.token}"

    through = door()
    result = await through(Ran(answers).tool, {})
    assert result.text == "sent with [host-filled]"
    assert through.events.of("tool_progress")["payload"] == {"with": "[host-filled]"}
    assert held.token not in through.events.text

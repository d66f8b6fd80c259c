"""Credentials at the door, also those a tool asks for by itself: whose they are, and where they do not go."""

from __future__ import annotations

import json
import traceback
from typing import Any

import attrs
import pytest

from afpool import (
    Credential,
    CredentialFailed,
    CredentialRequest,
    CredentialRequirement,
    Identity,
    NeedsAuthorization,
    Progress,
    ScriptedCredentials,
    ToolContext,
    bearer,
)
from afpool.tools import define_tool
from tests.tools.door_kit import ALICE, SECRET, Ran, door, refused

WHERE = "https://idp.example/authorize?state=st4te-of-alice"
NEEDS = CredentialRequirement("crm")
USERS = CredentialRequest("crm", (), "user", ALICE)


async def pulled(ctx: ToolContext) -> Any:
    assert ctx.credentials is not None
    return await ctx.credentials.get(USERS)


def gives(args: Any, ctx: ToolContext, token: str) -> Any:
    return {"token": token, "under": {token: [f"Bearer {token}"]}}


def reports(args: Any, ctx: ToolContext, token: str) -> Any:
    assert ctx.progress is not None
    ctx.progress(Progress(progress=1.0, message=f"with {token}"))
    ctx.progress({"raw": token})
    return "done"


def raises(args: Any, ctx: ToolContext, token: str) -> Any:
    raise RuntimeError(f"401 for Bearer {token}") from KeyError(token)


@pytest.mark.parametrize("then", [gives, reports, raises])
async def test_a_credential_that_a_tool_asked_for_itself_goes_no_further(then: Any) -> None:
    through = door(credentials=ScriptedCredentials([bearer(SECRET)]))

    async def run(args: Any, ctx: ToolContext) -> Any:
        issued = await pulled(ctx)
        return then(args, ctx, issued.credential.token)

    told: list[Any] = []
    result = await through(define_tool(execute=run, name="ask"), on_progress=told.append)
    assert SECRET not in result.raw.decode()
    assert SECRET not in through.events.text
    assert SECRET not in repr([attrs.asdict(one) for one in told])
    assert "[host-filled]" in result.raw.decode() + through.events.text
    error: BaseException | None = result.error
    while error is not None:
        assert SECRET not in f"{error!r} {error}"
        error = error.__cause__ or error.__context__


async def test_both_credentials_of_a_call_are_taken_out() -> None:
    other = "an0ther-t0ken-value"
    through = door(credentials=ScriptedCredentials([bearer(other), bearer(SECRET)]))

    async def run(args: Any, ctx: ToolContext) -> Any:
        issued = await pulled(ctx)
        return [ctx.credential.token, issued.credential.token]  # type: ignore[union-attr]

    result = await through(define_tool(execute=run, name="ask", needs="mail"))
    assert json.loads(result.text) == ["[host-filled]", "[host-filled]"]


async def test_where_to_authorize_goes_to_the_host_also_where_a_tool_asked_itself() -> None:
    asked: list[Any] = []
    through = door(
        credentials=ScriptedCredentials([NeedsAuthorization(WHERE, "s-1")]),
        on_authorization=lambda *what: asked.append(what),
    )

    async def run(args: Any, ctx: ToolContext) -> Any:
        return f"not yet: {await pulled(ctx)}"

    result = await through(define_tool(execute=run, name="ask"))
    ((service, who, needs),) = asked
    assert (service, who, needs.authorization_url) == ("crm", ALICE, WHERE)
    assert through.events.of("credential_authorization_required") == {"service": "crm", "session_id": "s-1"}
    for text in (result.text, through.events.text, repr(result.error)):
        assert "st4te" not in text


@pytest.mark.parametrize(
    "who", [None, Identity(), Identity(tenant="acme"), Identity(tenant="acme", conversation_id="c")]
)
async def test_a_users_credential_is_asked_for_no_nobody(who: Identity | None) -> None:
    provider = ScriptedCredentials(lambda request: bearer(SECRET))
    through, work = door(credentials=provider), Ran(needs=attrs.evolve(NEEDS, mode="user"))
    error = refused(await through(work.tool, identity=who), "credential-failed")
    assert "for no principal" in error.message
    assert (work.calls, provider.requests) == ([], [])
    assert through.events.of("credential_failed") == {"service": "crm", "error_class": "CredentialFailed"}
    assert (await through(work.tool)).code == "ok"
    machine = Ran(needs=NEEDS)
    assert (await through(machine.tool, identity=who)).code == "ok"


async def test_a_credential_of_a_kind_without_a_name_is_told_as_one_of_the_hosts_own() -> None:
    class Nameless(Credential):
        def to_headers(self) -> list[tuple[str, str]]:
            return []

        def secrets(self) -> tuple[str, ...]:
            return (SECRET,)

    for credential, kind in ((Nameless(), "custom"), (bearer(SECRET), "bearer")):
        through = door(credentials=ScriptedCredentials([credential]))
        assert (await through(Ran(needs=NEEDS).tool)).code == "ok"
        assert through.events.of("credential_acquired") == {"service": "crm", "kind": kind}


@pytest.mark.parametrize("caught", [False, True])
async def test_what_a_provider_raises_goes_no_further_where_a_tool_asked_itself(caught: bool) -> None:
    def broken(request: Any) -> Any:
        raise ValueError(f"no such token: {SECRET}") from KeyError(SECRET)

    through = door(credentials=ScriptedCredentials(broken))

    async def run(args: Any, ctx: ToolContext) -> Any:
        try:
            return await pulled(ctx)
        except CredentialFailed as error:
            if not caught:
                raise
            return f"{error} {error.__cause__!r} {error.__context__!r}"

    result = await through(define_tool(execute=run, name="ask"))
    assert "could not be had (ValueError)" in result.text
    assert result.code == ("ok" if caught else "tool-failed")
    assert SECRET not in result.text + through.events.text
    if result.error is not None:
        assert SECRET not in "".join(traceback.format_exception(result.error))
    assert through.events.of("credential_failed") == {"service": "crm", "error_class": "ValueError"}

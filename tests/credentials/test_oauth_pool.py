"""OAuth through the pool: a 401 leads to a token and one attempt more, at opening and at a call."""

from __future__ import annotations

import pytest
import trio

import afpool
from afpool import Anonymous, CredentialRequirement, ScriptedCredentials, bearer
from afpool.testing import Status
from tests.credentials.oauth_kit import ALICE, BOB, authorization_server, town
from tests.pool.kit import quiet, refused, world


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_a_token_of_the_hosts_own_is_come_by_without_anybody(era):
    with trio.fail_after(20):
        async with town(http={"era": era}) as t:
            tool = (await t.pool.tools(ALICE))["echo"]
            await tool.call({"text": "x"}, identity=ALICE)
            assert t.tokens()[0].startswith("Bearer token-")
            assert len(t.login.asked("/token")) == 1
            form = t.login.asked("/token")[0].form
            assert form == {"grant_type": "client_credentials", "resource": t.mcp.url}
            use = t.pool.records.uses[-1]
            assert (use.outcome, use.attempts) == ("ok", 1)
            assert t.mcp.executions["echo"] == 1
            quiet(t.pool)


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_a_user_consents_and_the_next_call_succeeds(era):
    with trio.fail_after(20):
        async with town(mode="user", http={"era": era}) as t:
            error = await refused(t.pool.tools(ALICE), "authorization-required")
            assert error.http_status is None
            await refused(t.pool.tools(ALICE), "authorization-required")
            assert t.needs[0] == t.needs[1], "who has been asked is not asked anew"
            await t.consent()
            tool = (await t.pool.tools(ALICE))["echo"]
            await tool.call(identity=ALICE)
            assert t.mcp.executions["echo"] == 1


async def test_a_call_meets_the_first_challenge():
    """All but the call is open to everybody: the bare call is refused, and sent once more with a token."""
    open_to_all = ("server/discover", "initialize", "notifications/initialized", "tools/list", "GET")
    with trio.fail_after(20):
        async with town(protect={"anonymous": open_to_all}, http={"era": "handshake"}) as t:
            tool = (await t.pool.tools(ALICE))["echo"]
            await tool.call(identity=ALICE)
            first, second = t.tokens()
            assert (first, second[:7]) == ("", "Bearer ")
            use = t.pool.records.uses[-1]
            assert (use.outcome, use.attempts) == ("ok", 2)
            assert t.mcp.executions["echo"] == 1


async def test_two_users_never_share_a_token_or_a_consent():
    with trio.fail_after(20):
        async with town(mode="user") as t:
            await refused(t.pool.tools(ALICE), "authorization-required")
            asked_of_alice = t.needs.pop()
            url = t.login.consent(asked_of_alice.authorization_url)
            with pytest.raises(afpool.CredentialFailed, match="asked of somebody else"):
                await t.oauth.complete_redirect(url, identity=BOB)
            await t.oauth.complete_redirect(url, identity=ALICE)
            await refused(t.pool.tools(BOB), "authorization-required")
            await t.consent(BOB)
            for who in (ALICE, BOB):
                await (await t.pool.tools(who))["echo"].call(identity=who)
            first, second = t.tokens()
            assert first != second


async def test_a_token_that_is_revoked_is_renewed_within_the_call():
    with trio.fail_after(20):
        async with town(mode="user") as t:
            await refused(t.pool.tools(ALICE), "authorization-required")
            await t.consent()
            tool = (await t.pool.tools(ALICE))["echo"]
            t.login.revoke()
            await tool.call(identity=ALICE)
            assert [arrival.form["grant_type"] for arrival in t.login.asked("/token")] == [
                "authorization_code",
                "refresh_token",
            ]
            use = t.pool.records.uses[-1]
            assert (use.outcome, use.attempts) == ("ok", 2)


@pytest.mark.parametrize("named", ["identity", "key", "server"])
async def test_after_invalidate_no_token_from_before_is_sent(named):
    with trio.fail_after(20):
        async with town(mode="user") as t:
            for who in (ALICE, BOB):
                await refused(t.pool.tools(who), "authorization-required")
                await t.consent(who)
                await (await t.pool.tools(who))["echo"].call(identity=who)
            before = set(t.tokens())
            named_by = {
                "identity": {"identity": ALICE},
                "key": {"key": t.pool.key_of(ALICE, "files")},
                "server": {"server": "files"},
            }
            t.pool.invalidate(**named_by[named])
            for who in (ALICE, BOB):
                await (await t.pool.tools(who))["echo"].call(identity=who)
            old = [token for token in t.tokens()[2:] if token in before]
            assert len(old) == (0 if named == "server" else 1), "whoever was not named keeps the token"
            assert t.needs == [], "a consent stays"


async def test_a_provider_that_raises_costs_nobody_the_revocation(caplog):
    class Vault(ScriptedCredentials):
        def drop(self, **_):
            raise RuntimeError("the canary-value is kept here")

    plan = {"credential": CredentialRequirement("files")}
    with trio.fail_after(20):
        async with world(pool={"credentials": Vault(lambda _: bearer("x"))}, **plan) as w:
            tool = await w.tool()
            assert w.pool.invalidate(identity=ALICE) == 1
            await refused(tool.call(identity=ALICE), "binding-changed")
    assert "drop of the credential provider raised RuntimeError" in caplog.text
    assert "canary-value" not in caplog.text


async def test_a_grant_that_is_over_asks_for_consent_again():
    with trio.fail_after(20):
        async with town(mode="user") as t:
            await refused(t.pool.tools(ALICE), "authorization-required")
            await t.consent()
            tool = (await t.pool.tools(ALICE))["echo"]
            t.login.revoke(refresh=True)
            await refused(tool.call(identity=ALICE), "authorization-required")
            assert len(t.needs) == 1
            await t.consent()
            await tool.call(identity=ALICE)


async def test_a_server_that_refuses_every_token_ends_the_call_after_two():
    with trio.fail_after(20):
        async with town() as t:
            tool = (await t.pool.tools(ALICE))["echo"]
            t.mcp.clear_rules()
            t.mcp.on("tools/call", Status(401, headers={"www-authenticate": "Bearer"}))
            error = await refused(tool.call(identity=ALICE), "authorization-required", "refused")
            assert error.http_status == 401
            first, second = t.tokens()
            assert first != second


async def test_a_step_up_brings_the_union_of_scopes():
    with trio.fail_after(20):
        async with town(protect={"scope": "read"}) as t:
            tool = (await t.pool.tools(ALICE))["echo"]
            more = {"www-authenticate": 'Bearer error="insufficient_scope", scope="write"'}
            t.mcp.on("tools/call", Status(403, headers=more), times=1)
            await tool.call(identity=ALICE)
            assert [arrival.form.get("scope") for arrival in t.login.asked("/token")] == [
                "read",
                "read write",
            ]
            await tool.call(identity=ALICE)
            assert len(t.login.asked("/token")) == 2, "the grown grant is used from then on"


async def test_a_step_up_that_would_bring_nothing_new_ends_the_call():
    with trio.fail_after(20):
        async with town(protect={"scope": "admin"}) as t:
            tool = (await t.pool.tools(ALICE))["echo"]
            more = {"www-authenticate": 'Bearer error="insufficient_scope", scope="admin"'}
            t.mcp.on("tools/call", Status(403, headers=more))
            error = await refused(tool.call(identity=ALICE), "authorization-required")
            assert error.http_status == 403
            assert len(t.tokens()) == 1
            assert len(t.login.asked("/token")) == 1


async def test_a_users_step_up_asks_for_consent_and_leaves_the_old_token_in_use():
    with trio.fail_after(20):
        async with town(mode="user", protect={"scope": "read"}) as t:
            await refused(t.pool.tools(ALICE), "authorization-required")
            await t.consent()
            tool = (await t.pool.tools(ALICE))["echo"]
            more = {"www-authenticate": 'Bearer error="insufficient_scope", scope="write"'}
            t.mcp.on("tools/call", Status(403, headers=more), times=1)
            await refused(tool.call(identity=ALICE), "authorization-required")
            await tool.call(identity=ALICE)  # what needs no more than before still works
            await t.consent()
            await tool.call(identity=ALICE)
            assert t.login.scopes[t.tokens()[-1].removeprefix("Bearer ")] == "read write"


async def test_the_authorization_server_is_down_and_says_when_to_come_again():
    login = authorization_server()
    import httpx

    login.on("/token", httpx.Response(503, headers={"retry-after": "7"}), times=99)
    with trio.fail_after(20):
        async with town(login=login) as t:
            error = await refused(t.pool.tools(ALICE), "credential-failed")
            assert 6 < error.retry_after <= 30


# ---------------------------------------------------------------------------- the port itself


async def test_a_provider_that_has_none_yet_is_asked_again_with_the_challenge():
    challenge = 'Bearer resource_metadata="https://x.example/m", scope="a"'
    answers = ScriptedCredentials([Anonymous(), bearer("t"), *[bearer("t")] * 20])
    async with world(
        credential=CredentialRequirement("files", scopes=("s",)), pool={"credentials": answers}
    ) as w:
        w.server.on("*", Status(401, headers={"www-authenticate": challenge}), times=1)
        await (await w.tool()).call(identity=ALICE)
        first, second, *rest = answers.requests
        assert (first.reason, first.challenge, first.rejected) == ("call", None, False)
        assert (second.reason, second.challenge, second.rejected) == ("challenge", challenge, False)
        assert second.resource == w.server.url
        assert second.required == ("s",)
        assert {asked.reason for asked in rest} == {"call"}
        assert challenge not in repr(second)


async def test_a_provider_that_still_has_none_ends_the_request():
    answers = ScriptedCredentials([Anonymous(), Anonymous()])
    async with world(credential=True, pool={"credentials": answers}) as w:
        w.server.on("*", Status(401))
        error = await refused(w.pool.tools(ALICE), "authorization-required")
        assert "has none" in str(error)
        assert len(w.server.log) == 1


async def test_the_refused_credential_is_shown_to_the_provider():
    old, new = bearer("old"), bearer("new")

    def choose(request):
        return new if request.rejected else old

    answers = ScriptedCredentials(choose)
    async with world(credential=True, pool={"credentials": answers}) as w:
        tool = await w.tool()
        answers.requests.clear()
        w.server.on("tools/call", Status(401), times=1)
        await tool.call(identity=ALICE)
        first, second = answers.requests
        assert first.refused is None
        assert second.refused is old


async def test_a_401_before_a_step_up_is_not_told_twice():
    """A credential that the server took, but found too small, is not reported as rejected."""
    answers = ScriptedCredentials(lambda request: bearer(f"t-{request.reason}"))
    async with world(credential=True, pool={"credentials": answers}) as w:
        tool = await w.tool()
        answers.requests.clear()
        more = {"www-authenticate": 'Bearer error="insufficient_scope", scope="write"'}
        w.server.on("tools/call", Status(401), times=1)
        w.server.on("tools/call", Status(403, headers=more), times=1)
        await tool.call(identity=ALICE)
        assert [(asked.reason, asked.rejected) for asked in answers.requests] == [
            ("call", False),
            ("refresh", True),
            ("step-up", False),
        ]


async def test_several_challenges_in_several_fields_are_all_shown():
    answers = ScriptedCredentials(lambda request: Anonymous() if request.reason == "call" else bearer("t"))
    async with world(credential=True, pool={"credentials": answers}) as w:
        w.server.on(
            "*", Status(401, headers={"www-authenticate": 'Basic realm="x", Bearer scope="a"'}), times=1
        )
        await w.tool()
        assert answers.requests[1].challenge == 'Basic realm="x", Bearer scope="a"'


def test_what_a_server_is_known_by_holds_no_secret_of_its_url_and_no_way_to_it():
    transport = afpool.HttpTransport(url="https://MCP.example:443/mcp?key=canary", uds="/run/x.sock")
    assert transport.resource == "https://mcp.example/mcp"

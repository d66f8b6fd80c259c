"""The provider by itself: what is held, for whom, how long; one flight; failures, passing and final."""

from __future__ import annotations

import httpx
import pytest
import trio

import afpool
from afpool import Anonymous, CredentialRequest, Issued, NeedsAuthorization
from afpool.credentials import MemoryTokenStore, OAuth, OAuthClient, OAuthSettings
from tests.credentials.oauth_kit import ALICE, BACK, BOB, HOST, RESOURCE, authorization_server, desk

CAROL = afpool.Identity(tenant="globex", principal="alice")


def held(token_request_count: int, d) -> bool:
    return len(d.server.asked("/token")) == token_request_count


# ---------------------------------------------------------------------------- what is held


async def test_nothing_is_asked_before_the_server_demands_it():
    async with desk() as d:
        assert await d.ask() == Anonymous()
        assert d.server.arrivals == []


async def test_a_token_is_kept_for_the_next_call():
    async with desk() as d:
        first = await d.token()
        second = await d.ask()
        assert second.credential is first.credential
        assert first.expires_at == pytest.approx(d.clock.unix_now() + 3600, abs=5)
        assert held(1, d)


@pytest.mark.parametrize(
    "other",
    [
        {"who": BOB},
        {"who": CAROL},
        {"required": ("read",)},
        {"service": "mail"},
        {"resource": "https://mcp.example/other"},
    ],
    ids=["principal", "tenant", "scopes", "service", "resource"],
)
async def test_a_grant_serves_its_own_key_only(other):
    async with desk() as d:
        d.server.describe("https://mcp.example/other")
        first = await d.token()
        assert await d.ask(**other) == Anonymous()
        second = await d.token(**other)
        assert second.credential is not first.credential
        assert (await d.ask()).credential is first.credential


@pytest.mark.parametrize(
    ("per", "shared"), [("principal", [False, False]), ("tenant", [True, False]), ("host", [True, True])]
)
async def test_who_shares_a_token_of_the_hosts_own(per, shared):
    async with desk(machine_grant_per=per) as d:
        first = await d.token()
        answers = [await d.ask(who=BOB), await d.ask(who=CAROL)]
        assert [answer == Issued(first.credential, first.expires_at) for answer in answers] == shared


async def test_a_users_token_is_never_shared_whatever_is_said_of_the_hosts():
    async with desk(machine_grant_per="host") as d:
        await d.consented()
        assert await d.ask(who=BOB, mode="user") == Anonymous()


async def test_the_one_that_was_asked_for_longest_ago_goes():
    async with desk(max_grants=2) as d:
        await d.token()
        await d.token(who=BOB)
        await d.ask()
        await d.token(who=CAROL)
        assert isinstance(await d.ask(), Issued)
        assert await d.ask(who=BOB) == Anonymous()


# ---------------------------------------------------------------------------- one flight


async def test_a_hundred_that_ask_at_once_are_one_request():
    async with desk() as d:
        got = []

        async def ask():
            got.append((await d.token()).credential)

        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(ask)
        assert len({id(credential) for credential in got}) == 1
        assert held(1, d)
        assert len(d.server.asked("oauth-protected-resource/mcp")) == 1


async def test_users_that_ask_at_once_share_discovery_and_registration():
    async with desk(clients=()) as d:
        people = [afpool.Identity(tenant="acme", principal=f"u{number}") for number in range(20)]
        async with trio.open_nursery() as nursery:
            for who in people:
                nursery.start_soon(lambda who=who: d.ask("challenge", who=who, mode="user"))
        assert len(d.server.asked("/register")) == 1
        assert len(d.server.asked("oauth-protected-resource/mcp")) == 1
        assert len(d.server.asked("oauth-authorization-server")) == 1


async def test_a_waiter_that_is_cancelled_ends_nothing():
    held_back = trio.Event()

    async def slow(arrival):
        await held_back.wait()
        return d.server._answer(arrival)

    async with desk() as d:
        d.server.on("/token", slow)
        got = []
        scope = trio.CancelScope()

        async def first():
            with scope:
                await d.token()

        async def second():
            got.append(await d.token())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(first)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(second)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
            await trio.testing.wait_all_tasks_blocked()
            held_back.set()
        assert isinstance(got[0], Issued)
        assert held(1, d)


async def test_a_flight_nobody_waits_for_any_more_still_serves_the_next():
    held_back = trio.Event()

    async def slow(arrival):
        await held_back.wait()
        return d.server._answer(arrival)

    async with desk() as d:
        d.server.on("/token", slow)
        with trio.move_on_after(0) as scope:
            scope.deadline = float("inf")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(d.token)
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
        held_back.set()
        await trio.testing.wait_all_tasks_blocked()
        assert isinstance(await d.ask(), Issued)
        assert held(1, d)


async def test_leaving_lets_a_refresh_end_and_bounds_it(autojump_clock):
    async def slow(arrival):
        await trio.sleep(2)
        return server._answer(arrival)

    async def never(arrival):
        await trio.sleep_forever()

    for answer, within in ((slow, 2.5), (never, 5.5)):
        server = authorization_server()
        store = MemoryTokenStore()
        async with desk(server, store=store) as d:
            server.on("/token", answer)
            with trio.move_on_after(1):
                await d.token()
            before = trio.current_time()
        assert trio.current_time() - before <= within
        assert len(store) == (answer is slow)


async def test_the_block_s_own_exception_leaves_as_itself():
    with pytest.raises(LookupError, match="mine"):
        async with OAuth():
            raise LookupError("mine")


async def test_a_provider_that_is_not_open_says_so():
    with pytest.raises(RuntimeError, match="async with"):
        await OAuth().get(CredentialRequest("files", resource=RESOURCE))


async def test_work_runs_in_the_context_that_the_provider_was_opened_in():
    import contextvars

    whose = contextvars.ContextVar("whose", default="nobody")
    seen = []

    async def look(arrival):
        seen.append(whose.get())
        await trio.lowlevel.checkpoint()
        return d.server._answer(arrival)

    whose.set("the host")
    async with desk() as d:
        d.server.on("/token", look)
        whose.set("alice")
        await d.token()
    assert seen == ["the host"]


# ---------------------------------------------------------------------------- renewal


async def test_a_token_is_renewed_in_the_background_before_it_ends():
    async with desk() as d:
        first = await d.token()
        d.clock.ahead = 3600 - 50
        second = await d.ask()
        assert second.credential is first.credential, "the call does not wait"
        await trio.testing.wait_all_tasks_blocked()
        assert (await d.ask()).credential is not first.credential
        assert held(2, d)


async def test_a_token_is_not_renewed_long_before_it_ends():
    async with desk() as d:
        await d.token()
        d.clock.ahead = 3600 - 95
        await d.ask()
        await trio.testing.wait_all_tasks_blocked()
        assert held(1, d)


async def test_renewals_of_many_are_spread():
    async with desk() as d:
        people = [afpool.Identity(tenant="acme", principal=f"u{number}") for number in range(30)]
        for who in people:
            await d.token(who=who)
        d.clock.ahead = 3600 - 75
        for who in people:
            await d.ask(who=who)
        await trio.testing.wait_all_tasks_blocked()
        renewed = len(d.server.asked("/token")) - 30
        assert 0 < renewed < 30


async def test_a_token_that_has_ended_is_waited_for():
    async with desk() as d:
        first = await d.token()
        d.clock.ahead = 3600
        assert (await d.ask()).credential is not first.credential


async def test_a_user_s_token_is_renewed_by_its_refresh_token():
    async with desk() as d:
        await d.consented()
        for _ in range(3):
            d.clock.ahead += 4000
            assert isinstance(await d.ask(mode="user"), Issued)
        assert [a.form["grant_type"] for a in d.server.asked("/token")] == [
            "authorization_code",
            *["refresh_token"] * 3,
        ]
        assert all(arrival.form["resource"] == RESOURCE for arrival in d.server.asked("/token"))


async def test_a_refused_token_is_not_given_again():
    async with desk() as d:
        first = await d.token()
        second = await d.ask("refresh", refused=first.credential)
        assert second.credential is not first.credential
        assert held(2, d)


async def test_a_straggler_s_refusal_of_an_old_token_does_not_end_the_new_one():
    async with desk() as d:
        first = await d.token()
        second = await d.ask("refresh", refused=first.credential)
        for _ in range(5):
            late = await d.ask("refresh", refused=first.credential)
            assert late.credential is second.credential
        assert held(2, d)


# ---------------------------------------------------------------------------- failures


async def test_a_passing_failure_keeps_the_token_that_is_still_good():
    async with desk() as d:
        first = await d.token()
        d.clock.ahead = 3600 - 50
        d.server.on("/token", httpx.Response(503), times=1)
        for _ in range(5):
            assert (await d.ask()).credential is first.credential
            await trio.testing.wait_all_tasks_blocked()
        assert held(2, d), "it backs off"
        d.clock.ahead += 2
        await d.ask()
        await trio.testing.wait_all_tasks_blocked()
        assert (await d.ask()).credential is not first.credential


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(500),
        httpx.Response(429, headers={"retry-after": "3"}),
        httpx.Response(400, json={"error": "temporarily_unavailable"}),
        httpx.Response(403, text="a proxy says no"),
        httpx.Response(200, text="not JSON"),
        httpx.Response(200, json={"token_type": "Bearer"}),
        httpx.ConnectError("down"),
        httpx.ReadTimeout("slow"),
    ],
    ids=["500", "429", "later", "proxy", "malformed", "empty", "down", "timeout"],
)
async def test_what_passes_costs_no_refresh_token(answer):
    async with desk() as d:
        await d.consented()
        d.clock.ahead = 4000
        d.server.on("/token", answer)
        error = await d.fails(mode="user")
        assert error.retry_after > 0
        again = await d.fails(mode="user")
        assert 0 < again.retry_after <= error.retry_after
        assert held(2, d), "nobody is asked before the time"
        d.clock.ahead += error.retry_after
        assert isinstance(await d.ask(mode="user"), Issued)


async def test_a_definitive_refusal_asks_for_consent_again():
    async with desk() as d:
        await d.consented()
        d.clock.ahead = 4000
        d.server.revoke(refresh=True)
        assert isinstance(await d.ask(mode="user"), NeedsAuthorization)


async def test_the_hosts_client_that_is_refused_costs_no_user_its_grant():
    async with desk() as d:
        await d.consented()
        d.clock.ahead = 4000
        d.server.on("/token", httpx.Response(401, json={"error": "invalid_client"}))
        error = await d.fails(mode="user")
        assert "invalid_client" in str(error)
        d.clock.ahead += error.retry_after
        assert isinstance(await d.ask(mode="user"), Issued)


async def test_a_registered_client_that_was_forgotten_is_registered_anew():
    async with desk(clients=()) as d:
        await d.consented()
        d.server.forget_clients()
        d.clock.ahead = 4000
        assert isinstance(await d.ask(mode="user"), NeedsAuthorization)
        assert len(d.server.asked("/register")) == 2


async def test_failures_back_off_up_to_a_ceiling():
    async with desk(backoff_max=8) as d:
        d.server.on("/token", httpx.Response(500), times=99)
        waits = []
        for _ in range(8):
            error = await d.fails("challenge")
            waits.append(error.retry_after)
            d.clock.ahead += error.retry_after
        for number, wait in enumerate(waits):
            ceiling = min(2.0**number, 8)
            assert ceiling / 2 - 0.2 <= wait <= ceiling


async def test_a_server_that_never_answers_is_waited_for_within_bounds(autojump_clock):
    async def never(arrival):
        await trio.sleep_forever()

    async with desk(request_timeout=3) as d:
        d.server.on("/token", never)
        before = trio.current_time()
        error = await d.fails("challenge")
        assert trio.current_time() - before == pytest.approx(3, abs=0.1)
        assert "within 3 s" in str(error)


async def test_an_error_description_is_quoted_by_nobody():
    async with desk(clients=(OAuthClient(client_id="host", client_secret="wrong", issuer=HOST.issuer),)) as d:
        error = await d.fails("challenge")
        assert "invalid_client" in str(error)
        assert "quoted" not in str(error)


async def test_an_unknown_error_code_is_not_quoted_either():
    async with desk() as d:
        d.server.on("/token", httpx.Response(400, json={"error": "canary-code"}))
        error = await d.fails("challenge")
        assert "canary" not in str(error)


# ---------------------------------------------------------------------------- another authorization server


async def test_a_server_that_moves_to_another_authorization_server_takes_nothing_along():
    first = authorization_server()
    second = authorization_server("https://other.example")

    async def both(request):
        side = second if second.issuer in str(request.url) else first
        return await side._handle(request)

    clock_free = OAuthSettings(redirect_uri=BACK)
    async with OAuth(clock_free, transport=httpx.MockTransport(both)) as oauth:

        async def ask(reason="call", refused=None):
            challenge = None if reason == "call" else "Bearer"
            return await oauth.get(
                CredentialRequest(
                    "files", (), "user", ALICE, reason, reason == "refresh",
                    resource=RESOURCE, challenge=challenge, refused=refused,
                )
            )  # fmt: skip

        needs = await ask("challenge")
        await oauth.complete_redirect(first.consent(needs.authorization_url))
        old = (await ask()).credential
        first.resources[first.describe_url(RESOURCE)]["authorization_servers"] = [second.issuer]
        needs = await ask("refresh", refused=old)
        assert needs.authorization_url.startswith("https://other.example/authorize?")
        await oauth.complete_redirect(second.consent(needs.authorization_url))
        assert isinstance(await ask(), Issued)
        assert len(second.asked("/register")) == 1
        refresh = [arrival.form.get("refresh_token") for arrival in second.arrivals]
        assert refresh == [None] * len(refresh), "the old one's refresh token stays with the old one"
        assert len(first.asked("/token")) == 1


async def test_a_client_without_an_issuer_belongs_to_the_first_that_it_meets():
    server = authorization_server()
    async with desk(server, clients=(OAuthClient(client_id="host", client_secret="host-secret"),)) as d:
        first = await d.token()
        other = authorization_server("https://evil.example")
        server.resources[server.describe_url(RESOURCE)]["authorization_servers"] = [other.issuer]

        async def evil(arrival):
            return other._answer(arrival)

        server.on("/.well-known/oauth-authorization-server", evil, times=9)
        error = await d.fails("refresh", refused=first.credential)
        assert "no client is configured" in str(error)
        assert [arrival for arrival in server.arrivals if "evil.example/token" in arrival.url] == []


# ---------------------------------------------------------------------------- a store


async def test_a_grant_survives_a_restart():
    server, store = authorization_server(), MemoryTokenStore()
    async with desk(server, store=store) as d:
        await d.consented()
        before = (await d.ask(mode="user")).credential.token
    async with desk(server, store=store) as d:
        given = await d.ask(mode="user")
        assert given.credential.token == before
        d.clock.ahead = 4000
        assert isinstance(await d.ask(mode="user"), Issued)
        assert isinstance(await d.ask(mode="user", who=BOB), Anonymous)
    assert [arrival.form["grant_type"] for arrival in server.asked("/token")] == [
        "authorization_code",
        "refresh_token",
    ]


async def test_a_dynamic_client_survives_a_restart():
    server, store = authorization_server(), MemoryTokenStore()
    async with desk(server, store=store, clients=()) as d:
        await d.consented()
    async with desk(server, store=store, clients=()) as d:
        d.clock.ahead = 4000
        assert isinstance(await d.ask(mode="user"), Issued)
    assert len(server.asked("/register")) == 1


async def test_a_grant_that_is_over_leaves_the_store():
    store = MemoryTokenStore()
    async with desk(store=store) as d:
        await d.consented()
        assert len(store) == 1
        d.server.revoke(refresh=True)
        d.clock.ahead = 4000
        await d.ask(mode="user")
        assert len(store) == 0


class BrokenStore:
    def __init__(self) -> None:
        self.load_fails = True

    async def load(self, key):
        await trio.lowlevel.checkpoint()
        if self.load_fails:
            raise OSError("canary-path")

    async def save(self, key, grant):
        await trio.lowlevel.checkpoint()
        raise OSError("canary-path")

    async def delete(self, key):
        await trio.lowlevel.checkpoint()
        raise OSError("canary-path")


async def test_a_store_that_fails_costs_no_token_and_is_not_quoted(caplog):
    store = BrokenStore()
    async with desk(store=store) as d:
        error = await d.fails("challenge")
        assert "OSError" in str(error)
        assert error.retry_after > 0
        store.load_fails = False
        d.clock.ahead += error.retry_after
        await d.token()
        assert await d.oauth.forget() == 1
        assert "canary" not in caplog.text + str(error)
        assert caplog.text.count("OSError") == 2


async def test_what_is_forgotten_is_gone_also_from_what_is_under_way():
    held_back = trio.Event()
    store = MemoryTokenStore()

    async def slow(arrival):
        await held_back.wait()
        return d.server._answer(arrival)

    async with desk(store=store) as d:
        await d.token()
        await d.token(who=BOB)
        d.clock.ahead = 3600
        d.server.on("/token", slow)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(d.fails)
            await trio.testing.wait_all_tasks_blocked()
            assert await d.oauth.forget(identity=ALICE) == 1
            held_back.set()
        assert [key.principal for key in store._grants] == ["bob"]
        assert await d.ask() == Anonymous()


async def test_forgetting_one_service():
    async with desk() as d:
        await d.token()
        await d.token(service="mail")
        assert await d.oauth.forget(service="mail", identity=ALICE) == 1
        assert isinstance(await d.ask(), Issued)
        assert await d.ask(service="mail") == Anonymous()


async def test_a_server_without_a_url_has_no_oauth():
    async with desk() as d:
        error = await d.fails(resource="")
        assert "no URL" in str(error)


async def test_a_token_that_lasts_a_moment_is_used_for_a_moment():
    async with desk(authorization_server(lifetime=2)) as d:
        first = await d.token()
        assert (await d.ask()).credential is first.credential
        assert held(1, d)


async def test_a_client_is_bound_only_where_it_is_used():
    general = OAuthClient(client_id="general", client_secret="general-secret")
    server = authorization_server()
    async with desk(server, clients=(HOST, general)) as d:
        first = await d.token()
        other = authorization_server("https://other.example")
        other._clients["general"] = "general-secret"
        server.resources[server.describe_url(RESOURCE)]["authorization_servers"] = [other.issuer]

        async def moved(arrival):
            return other._answer(arrival)

        for path in ("/.well-known/oauth-authorization-server", "/token"):
            server.on(path, moved, times=9)
        given = await d.ask("refresh", refused=first.credential)
        assert isinstance(given, Issued)

"""Consent: what the address holds, whose answer is taken, what is asked where, which client is used."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
import trio

import afpool
from afpool import Issued, NeedsAuthorization
from afpool.credentials import OAuthClient, OAuthSettings
from tests.credentials.oauth_kit import ALICE, BACK, BOB, HOST, RESOURCE, authorization_server, desk


def query(needs: NeedsAuthorization) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(needs.authorization_url).query))


def parts(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


async def refused(taking, text: str) -> afpool.CredentialFailed:
    with pytest.raises(afpool.CredentialFailed, match=text) as caught:
        await taking
    return caught.value


async def test_the_address_holds_what_it_must():
    async with desk() as d:
        needs = await d.ask("challenge", mode="user", scope="read")
        asked = query(needs)
        assert asked.pop("state")
        assert len(asked.pop("code_challenge")) == 43
        assert asked == {
            "response_type": "code",
            "client_id": "host",
            "redirect_uri": BACK,
            "code_challenge_method": "S256",
            "resource": RESOURCE,
            "scope": "read",
        }
        assert needs.authorization_url not in repr(needs)


async def test_each_consent_has_secrets_of_its_own():
    async with desk() as d:
        one, other = [query(await d.ask("challenge", mode="user", who=who)) for who in (ALICE, BOB)]
        assert one["state"] != other["state"]
        assert one["code_challenge"] != other["code_challenge"]


async def test_an_endpoint_with_a_query_keeps_it():
    server = authorization_server()
    server.metadata["authorization_endpoint"] += "?tenant=a"
    async with desk(server) as d:
        needs = await d.ask("challenge", mode="user")
        assert query(needs)["tenant"] == "a"
        assert needs.authorization_url.count("?") == 1


async def test_complete_by_parts():
    async with desk() as d:
        needs = await d.ask("challenge", mode="user")
        back = parts(d.server.consent(needs.authorization_url))
        key = await d.oauth.complete(session_id=needs.session_id, identity=ALICE, **back)
        assert (key.service, key.principal) == ("files", "alice")
        assert "alice" not in repr(key)
        assert isinstance(await d.ask(mode="user"), Issued)


@pytest.mark.parametrize("wrong", ["state", "session_id"])
async def test_an_answer_of_another_session_ends_none(wrong):
    async with desk() as d:
        needs = await d.ask("challenge", mode="user")
        back = {"session_id": needs.session_id, **parts(d.server.consent(needs.authorization_url))}
        await refused(d.oauth.complete(**{**back, wrong: "guess"}), "no authorization of this session")
        assert not d.server.asked("/token")
        await d.oauth.complete(**back)


async def test_one_users_state_does_not_answer_anothers_session():
    async with desk() as d:
        alices = await d.ask("challenge", mode="user")
        bobs = await d.ask("challenge", mode="user", who=BOB)
        back = parts(d.server.consent(bobs.authorization_url))
        await refused(d.oauth.complete(session_id=alices.session_id, **back), "no authorization")
        assert await d.ask(mode="user") == alices


async def test_an_answer_is_taken_once():
    async with desk() as d:
        url = d.server.consent((await d.ask("challenge", mode="user")).authorization_url)
        await d.oauth.complete_redirect(url)
        await refused(d.oauth.complete_redirect(url), "no authorization of this session")
        assert len(d.server.asked("/token")) == 1


async def test_consents_end_by_time():
    async with desk(consent_timeout=60) as d:
        old = await d.ask("challenge", mode="user")
        d.clock.ahead = 61
        await refused(d.oauth.complete_redirect(d.server.consent(old.authorization_url)), "no authorization")
        new = await d.ask(mode="user")
        assert new.session_id != old.session_id


async def test_consents_are_bounded():
    async with desk(max_consents=2) as d:
        people = [afpool.Identity(principal=name) for name in "abc"]
        asked = [await d.ask("challenge", mode="user", who=who) for who in people]
        await refused(
            d.oauth.complete_redirect(d.server.consent(asked[0].authorization_url)), "no authorization"
        )
        await d.oauth.complete_redirect(d.server.consent(asked[2].authorization_url))
        assert repr(d.oauth) == "<OAuth grants=3 consents=1>"


async def test_a_consent_for_more_replaces_the_one_for_less():
    async with desk() as d:
        small = await d.ask("challenge", mode="user", scope="read")
        assert await d.ask(mode="user") == small
        large = await d.ask("challenge", mode="user", scope="write")
        assert query(large)["scope"] == "read write"
        await refused(
            d.oauth.complete_redirect(d.server.consent(small.authorization_url)), "no authorization"
        )


async def test_a_refusal_of_the_user_is_told():
    async with desk() as d:
        needs = await d.ask("challenge", mode="user")
        d.server.denies = True
        url = d.server.consent(needs.authorization_url)
        await refused(d.oauth.complete_redirect(url), "refused .access_denied")
        assert (await d.ask(mode="user")).session_id != needs.session_id


@pytest.mark.parametrize(
    ("advertised", "iss", "taken"),
    [
        (True, "https://login.example", True),
        (True, None, False),
        (True, "https://login.example/", False),
        (True, "https://evil.example", False),
        (False, None, True),
        (False, "https://login.example", True),
        (False, "https://evil.example", False),
    ],
)
async def test_who_gave_the_answer(advertised, iss, taken):
    server = authorization_server()
    server.metadata["authorization_response_iss_parameter_supported"] = advertised
    async with desk(server) as d:
        needs = await d.ask("challenge", mode="user")
        back = {**parts(server.consent(needs.authorization_url)), "iss": iss}
        taking = d.oauth.complete(session_id=needs.session_id, **back)
        if taken:
            await taking
        else:
            await refused(taking, "answer")
            assert not server.asked("/token"), "the code goes to nobody"


async def test_a_code_that_is_refused_is_told_and_the_next_call_asks_anew():
    async with desk() as d:
        needs = await d.ask("challenge", mode="user")
        d.server.on("/token", httpx.Response(400, json={"error": "invalid_grant"}))
        url = d.server.consent(needs.authorization_url)
        await refused(d.oauth.complete_redirect(url), "invalid_grant")
        assert (await d.ask(mode="user")).session_id != needs.session_id


async def test_a_trade_outlives_whoever_brought_the_code():
    held_back = trio.Event()

    async def slow(arrival):
        await held_back.wait()
        return d.server._answer(arrival)

    async with desk() as d:
        needs = await d.ask("challenge", mode="user")
        d.server.on("/token", slow)
        url = d.server.consent(needs.authorization_url)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(d.oauth.complete_redirect, url)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        held_back.set()
        await trio.testing.wait_all_tasks_blocked()
        assert isinstance(await d.ask(mode="user"), Issued)


async def test_a_slow_refresh_does_not_overwrite_a_newer_consent():
    held_back = trio.Event()

    async def slow(arrival):
        await held_back.wait()
        return d.server._answer(arrival)

    async with desk() as d:
        first = await d.consented()
        d.clock.ahead = 3600 - 50
        needs = await d.ask("step-up", mode="user", scopes=("write",), refused=first.credential)
        d.server.on("/token", slow)
        await d.ask(mode="user")
        await trio.testing.wait_all_tasks_blocked()
        await d.oauth.complete_redirect(d.server.consent(needs.authorization_url))
        newer = (await d.ask(mode="user")).credential
        held_back.set()
        await trio.testing.wait_all_tasks_blocked()
        assert (await d.ask(mode="user")).credential is newer


# ---------------------------------------------------------------------------- scopes


@pytest.mark.parametrize(
    ("scope", "supported", "required", "offline", "asked"),
    [
        ("read", ["x"], (), False, "read"),
        ("", ["x", "y"], (), False, "x y"),
        ("", [], (), False, None),
        ("read", ["x"], ("mine",), False, "mine read"),
        ("read", [], (), True, "read offline_access"),
    ],
)
async def test_which_scopes_are_asked_for(scope, supported, required, offline, asked):
    server = authorization_server()
    server.describe(RESOURCE, scopes_supported=supported)
    if offline:
        server.metadata["scopes_supported"] = ["offline_access"]
    async with desk(server) as d:
        needs = await d.ask("challenge", mode="user", scope=scope, required=required)
        assert query(needs).get("scope") == asked


async def test_no_offline_access_where_it_is_not_wanted():
    server = authorization_server()
    server.metadata["scopes_supported"] = ["offline_access"]
    async with desk(server, offline_access=False) as d:
        needs = await d.ask("challenge", mode="user", scope="read")
        assert query(needs)["scope"] == "read"


# ---------------------------------------------------------------------------- which client


async def test_the_document_of_the_client_goes_before_registration():
    server = authorization_server()
    server.metadata["client_id_metadata_document_supported"] = True
    url = "https://app.example/client.json"
    async with desk(server, clients=(), client_metadata_url=url) as d:
        await d.consented()
        assert server.asked("/token")[0].form["client_id"] == url
        assert not server.asked("/register")


async def test_a_client_that_is_registered_beforehand_goes_before_all():
    server = authorization_server()
    server.metadata["client_id_metadata_document_supported"] = True
    async with desk(server, client_metadata_url="https://app.example/client.json") as d:
        assert query(await d.ask("challenge", mode="user"))["client_id"] == "host"


@pytest.mark.parametrize("back", [BACK, "https://app.example/back", "com.example.app:/back"])
async def test_a_registration_says_what_it_must(back):
    async with desk(clients=(), redirect_uri=back) as d:
        await d.consented()
        (asked,) = d.server.asked("/register")
        assert asked.form == {
            "client_name": "afpool",
            "redirect_uris": [back],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "client_secret_basic",
            "application_type": "web" if back.startswith("https:") else "native",
        }


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post", "none"])
@pytest.mark.parametrize("registered", [False, True])
async def test_how_the_client_authenticates(method, registered):
    server = authorization_server()
    server.metadata["token_endpoint_auth_methods_supported"] = [method]
    clients = ()
    if registered:
        secret = None if method == "none" else "host-secret"
        clients = (OAuthClient(client_id="host", client_secret=secret),)
        server._clients["host"] = secret
    async with desk(server, clients=clients) as d:
        await d.consented()
        (asked,) = server.asked("/token")
        assert asked.headers.get("authorization", "").startswith("Basic ") == (
            method == "client_secret_basic"
        )
        assert ("client_secret" in asked.form) == (method == "client_secret_post")
        assert ("client_id" in asked.form) == (method != "client_secret_basic")


async def test_a_way_to_authenticate_that_is_not_spoken():
    server = authorization_server()
    server.metadata["token_endpoint_auth_methods_supported"] = ["private_key_jwt"]
    async with desk(server) as d:
        assert "no way to authenticate" in str(await d.fails("challenge"))


@pytest.mark.parametrize(
    ("settings", "mode", "text"),
    [
        ({"clients": ()}, "machine", "no client is configured"),
        ({"clients": (), "register": False}, "user", "no client is configured"),
        ({"redirect_uri": None}, "user", "redirect_uri"),
        ({"clients": (), "redirect_uri": None}, "user", "redirect_uri"),
    ],
)
async def test_what_is_missing_is_named(settings, mode, text):
    async with desk(**settings) as d:
        error = await d.fails("challenge", mode=mode)
        assert text in str(error)


async def test_the_client_of_a_service_goes_before_that_of_all():
    other = OAuthClient(client_id="mail-client", client_secret="s", service="mail")
    server = authorization_server()
    server._clients["mail-client"] = "s"
    async with desk(server, clients=(HOST, other)) as d:
        assert query(await d.ask("challenge", mode="user"))["client_id"] == "host"
        assert query(await d.ask("challenge", mode="user", service="mail"))["client_id"] == "host", (
            "the one that names its issuer goes first"
        )


@pytest.mark.parametrize(
    "wrong",
    [
        {"redirect_uri": "http://app.example/back"},
        {"redirect_uri": "/back"},
        {"redirect_uri": "https://app.example/#x"},
        {"client_metadata_url": "http://app.example/c.json"},
        {"client_metadata_url": "https://app.example/"},
        {"grant": "password"},
        {"request_timeout": 0},
        {"machine_grant_per": "all"},
    ],
)
def test_settings_that_cannot_be(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        OAuthSettings(**wrong)


def test_a_client_without_the_secret_that_it_needs():
    with pytest.raises(ValueError, match="no secret"):
        OAuthClient(client_id="a", auth_method="client_secret_post")

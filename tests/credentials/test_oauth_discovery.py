"""Discovery: in which order documents are asked for, which of them are believed, what is refused."""

from __future__ import annotations

import httpx
import pytest
import trio

import afpool
from afpool import CredentialRequest, Issued
from afpool.credentials import OAuth, OAuthClient, OAuthSettings
from tests.credentials.oauth_kit import ALICE

CLIENT = OAuthClient(client_id="c", client_secret="s")
PRM = "/.well-known/oauth-protected-resource"
AS = "/.well-known/oauth-authorization-server"
OIDC = "/.well-known/openid-configuration"


class Peers:
    """Documents by URL; everything else is 404."""

    def __init__(self, documents):
        self.documents = documents
        self.asked = []

    async def __call__(self, request):
        await trio.lowlevel.checkpoint()
        url = str(request.url)
        self.asked.append(url)
        found = self.documents.get(url)
        if isinstance(found, httpx.Response):
            return httpx.Response(found.status_code, headers=found.headers, content=found.content)
        if found is not None:
            return httpx.Response(200, json=found)
        if url.endswith("/token"):
            return httpx.Response(200, json={"access_token": "t", "token_type": "bearer"})
        return httpx.Response(404)


def metadata(issuer, /, **members):
    return {
        "issuer": issuer,
        "token_endpoint": f"{issuer}/token",
        "authorization_endpoint": f"{issuer}/authorize",
        "code_challenge_methods_supported": ["S256"],
        **members,
    }


async def get(peers, resource="https://mcp.example/mcp", *, hint=None, mode="machine", who=ALICE, **settings):
    named = "" if hint is None else f' resource_metadata="{hint}"'
    options = {"clients": (CLIENT,), "redirect_uri": "http://127.0.0.1/back", **settings}
    async with OAuth(OAuthSettings(**options), transport=httpx.MockTransport(peers)) as oauth:
        return await oauth.get(
            CredentialRequest(
                "files", (), mode, who, "challenge", resource=resource, challenge=f"Bearer{named}"
            )
        )


async def fails(*args, **options):
    with pytest.raises(afpool.CredentialFailed) as caught:
        await get(*args, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    "place", [f"https://mcp.example{PRM}/mcp", f"https://mcp.example{PRM}", "https://docs.example/prm"]
)
async def test_where_the_resource_s_metadata_may_stand(place):
    issuer = "https://login.example"
    peers = Peers(
        {
            place: {"resource": "https://mcp.example/mcp", "authorization_servers": [issuer]},
            f"{issuer}{AS}": metadata(issuer),
        }
    )
    hint = place if "docs" in place else None
    assert isinstance(await get(peers, hint=hint), Issued)
    order = ["https://docs.example/prm", f"https://mcp.example{PRM}/mcp", f"https://mcp.example{PRM}"]
    if hint is None:
        del order[0]
    assert peers.asked[: order.index(place) + 1] == order[: order.index(place) + 1]


@pytest.mark.parametrize(
    ("issuer", "places"),
    [
        ("https://login.example", [f"https://login.example{AS}", f"https://login.example{OIDC}"]),
        (
            "https://login.example/t1",
            [
                f"https://login.example{AS}/t1",
                f"https://login.example{OIDC}/t1",
                f"https://login.example/t1{OIDC}",
            ],
        ),
    ],
)
async def test_where_the_server_s_metadata_may_stand(issuer, places):
    for number, place in enumerate(places):
        peers = Peers(
            {
                f"https://mcp.example{PRM}/mcp": {
                    "resource": "https://mcp.example/mcp",
                    "authorization_servers": [issuer],
                },
                place: metadata(issuer),
            }
        )
        assert isinstance(await get(peers), Issued)
        assert peers.asked[1 : number + 2] == places[: number + 1]


@pytest.mark.parametrize(
    ("named", "taken"),
    [
        ("https://mcp.example/mcp", True),
        ("https://mcp.example", True),
        ("https://mcp.example/", True),
        ("https://MCP.example:443/mcp", True),
        ("https://mcp.example/mc", False),
        ("https://mcp.example/mcp/more", False),
        ("https://mcp.example/mcp?x=1", False),
        ("https://evil.example/mcp", False),
        ("http://mcp.example/mcp", False),
        ("https://mcp.example:8443/mcp", False),
        ("https://mcp.example@evil.example/mcp", False),
        ("", False),
        (None, False),
        (7, False),
    ],
)
async def test_metadata_must_speak_of_this_server(named, taken):
    issuer = "https://login.example"
    peers = Peers(
        {
            f"https://mcp.example{PRM}/mcp": {"resource": named, "authorization_servers": [issuer]},
            f"{issuer}{AS}": metadata(issuer),
        }
    )
    if taken:
        assert isinstance(await get(peers), Issued)
    else:
        assert "another resource" in await fails(peers)
        assert len(peers.asked) == 1, "nor does the next place speak for it"


@pytest.mark.parametrize(
    "claimed", ["https://login.example/", "https://LOGIN.example", "https://evil.example", None]
)
async def test_the_issuer_is_compared_byte_for_byte(claimed):
    issuer = "https://login.example"
    peers = Peers(
        {
            f"https://mcp.example{PRM}/mcp": {
                "resource": "https://mcp.example/mcp",
                "authorization_servers": [issuer],
            },
            f"{issuer}{AS}": metadata(issuer, issuer=claimed),
            f"{issuer}{OIDC}": metadata(issuer),
        }
    )
    assert "another issuer" in await fails(peers)
    assert len(peers.asked) == 2


def world(issuer="https://login.example", resource="https://mcp.example/mcp", **members):
    origin = resource.rpartition("/")[0]
    return {
        f"{origin}{PRM}/mcp": {"resource": resource, "authorization_servers": [issuer]},
        f"{issuer}{AS}": metadata(issuer, **members),
    }


@pytest.mark.parametrize("who", [afpool.Identity(), afpool.Identity(tenant="acme")])
async def test_a_users_grant_is_a_principals(who):
    peers = Peers(world())
    assert "the call is for none" in await fails(peers, mode="user", who=who)
    assert peers.asked == []
    assert isinstance(await get(Peers(world()), who=who), Issued)


@pytest.mark.parametrize("methods", [None, [], ["plain"], "S256"])
async def test_no_s256_no_consent(methods):
    peers = Peers(world(code_challenge_methods_supported=methods))
    assert "S256" in await fails(peers, mode="user")
    assert isinstance(await get(Peers(world(code_challenge_methods_supported=methods))), Issued)


@pytest.mark.parametrize("member", ["token_endpoint", "authorization_endpoint", "registration_endpoint"])
@pytest.mark.parametrize(
    "url", ["http://login.example/x", "ftp://login.example/x", "https://u:p@login.example/x"]
)
async def test_endpoints_are_https(member, url):
    peers = Peers(world(**{member: url}))
    text = await fails(peers)
    assert "https" in text or "not one that can be used" in text
    assert url not in text


async def test_an_authorization_server_is_https():
    peers = Peers(world("http://login.example"))
    assert "https" in await fails(peers)
    assert len(peers.asked) == 1


async def test_loopback_may_be_http_where_the_server_is_there():
    peers = Peers(world("http://127.0.0.1:9000", "http://127.0.0.1:8000/mcp"))
    assert isinstance(await get(peers, "http://127.0.0.1:8000/mcp"), Issued)


@pytest.mark.parametrize(
    ("host", "server", "allowed"),
    [
        ("10.0.0.1", "https://mcp.example", False),
        ("192.168.1.1", "https://mcp.example", False),
        ("100.64.0.1", "https://mcp.example", False),
        ("127.0.0.1", "https://mcp.example", False),
        ("169.254.169.254", "https://mcp.example", False),
        ("[::1]", "https://mcp.example", False),
        ("[fd00::1]", "https://mcp.example", False),
        ("[::ffff:10.0.0.1]", "https://mcp.example", False),
        ("[64:ff9b::a00:1]", "https://mcp.example", False),
        ("10.0.0.1", "https://10.9.9.9", True),
        ("127.0.0.1", "https://10.9.9.9", False),
        ("10.0.0.1", "http://127.0.0.1:8000", True),
        ("127.0.0.1", "http://127.0.0.1:8000", True),
        ("169.254.169.254", "http://127.0.0.1:8000", False),
        ("93.184.216.34", "https://mcp.example", True),
    ],
)
async def test_which_addresses_may_be_led_to(host, server, allowed):
    issuer = f"https://{host}"
    peers = Peers(world(issuer, f"{server}/mcp"))
    if allowed:
        assert isinstance(await get(peers, f"{server}/mcp"), Issued)
    else:
        assert "is not asked" in await fails(peers, f"{server}/mcp")
        assert [url for url in peers.asked if host in url] == []
        if host != "169.254.169.254":
            assert isinstance(await get(peers, f"{server}/mcp", allow_private=True), Issued)


async def test_a_hint_to_a_private_address_is_not_followed():
    peers = Peers(world())
    assert "not asked" in await fails(peers, hint="http://169.254.169.254/latest") or not peers.asked
    assert "must be reached over https" in await fails(peers, hint="http://evil.example/x")


@pytest.mark.parametrize("where", ["resource", "server"])
@pytest.mark.parametrize("status", [500, 503, 429])
async def test_a_document_that_cannot_be_had_now_ends_the_search(where, status):
    documents = world()
    url = next(url for url in documents if (PRM in url) == (where == "resource"))
    documents[url] = httpx.Response(status, headers={"retry-after": "9"})
    peers = Peers(documents)
    assert f"HTTP {status}" in await fails(peers)
    assert peers.asked[-1] == url


@pytest.mark.parametrize("body", [b"[]", b"\xff", b"{", b"[" * 100_000, b'"x"', b"null"])
async def test_documents_that_are_none(body):
    documents = world()
    documents[f"https://mcp.example{PRM}/mcp"] = httpx.Response(200, content=body)
    assert "no JSON object" in await fails(Peers(documents))


async def test_the_server_whose_client_is_configured_is_chosen():
    documents = world()
    documents[f"https://mcp.example{PRM}/mcp"]["authorization_servers"] = [
        "https://first.example",
        "https://login.example",
    ]
    mine = OAuthClient(client_id="c", client_secret="s", issuer="https://login.example")
    assert isinstance(await get(Peers(documents), clients=(mine,)), Issued)


# ---------------------------------------------------------------------------- 2025-03-26


async def test_without_metadata_the_server_is_its_own_authorization_server():
    peers = Peers({})
    needs = await get(peers, mode="user")
    assert needs.authorization_url.startswith("https://mcp.example/authorize?")
    assert peers.asked == [
        f"https://mcp.example{PRM}/mcp",
        f"https://mcp.example{PRM}",
        f"https://mcp.example{AS}",
        f"https://mcp.example{OIDC}",
    ]


async def test_without_metadata_of_the_resource_that_of_its_origin_is_held_to_the_same():
    peers = Peers({f"https://mcp.example{AS}": metadata("https://mcp.example")})
    assert isinstance(await get(peers), Issued)
    peers = Peers({f"https://mcp.example{AS}": metadata("https://evil.example")})
    assert "another issuer" in await fails(peers)


async def test_the_old_way_can_be_switched_off():
    assert "no resource metadata" in await fails(Peers({}), legacy_endpoints=False)


async def test_the_old_way_over_http_is_for_loopback_only():
    assert "https" in await fails(Peers({}), "http://mcp.example/mcp")


async def test_a_named_authorization_server_is_never_assumed():
    documents = world()
    del documents[f"https://login.example{AS}"]
    assert "publishes no metadata" in await fails(Peers(documents))

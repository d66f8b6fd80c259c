"""Reading what peers say: whatever comes is read as one thing, or refused as `Trouble`."""

from __future__ import annotations

import contextlib
import ipaddress
import json
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afpool.credentials import _documents as documents
from afpool.credentials import _urls as urls
from afpool.credentials._trouble import KNOWN_CODES, Trouble
from afpool.protocol import parse_challenges

CANARY = "canary-77"
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
MEMBERS = st.sampled_from(
    [
        "issuer", "resource", "authorization_servers", "token_endpoint", "authorization_endpoint",
        "registration_endpoint", "scopes_supported", "code_challenge_methods_supported", "access_token",
        "refresh_token", "token_type", "expires_in", "scope", "client_id", "client_secret", "error",
        "client_secret_expires_at", "token_endpoint_auth_method", "token_endpoint_auth_methods_supported",
    ]
)  # fmt: skip
LIKELY = st.sampled_from(
    [
        "https://a.example",
        "http://a.example",
        "bearer",
        "Bearer",
        "none",
        "3600",
        -1,
        1e308,
        ["S256"],
        "a b",
        "é",
    ]
)
BODIES = st.one_of(
    st.binary(max_size=200),
    JSON.map(lambda value: json.dumps(value).encode()),
    st.dictionaries(MEMBERS, LIKELY | JSON, max_size=8).map(lambda value: json.dumps(value).encode()),
)


@given(BODIES)
def test_every_document_is_read_or_refused(body):
    for read in (
        lambda: documents.read_resource(body, "https://a.example/mcp"),
        lambda: documents.read_server(body, "https://a.example"),
        lambda: documents.read_tokens(body),
        lambda: documents.read_registration(body, "https://a.example", "none", 0.0),
    ):
        with contextlib.suppress(Trouble):
            read()
    trouble = documents.read_error(400, body, "it", None)
    assert trouble.error_code is None or trouble.error_code in KNOWN_CODES | {"unknown"}


@given(BODIES, st.integers(100, 599))
def test_a_grant_is_only_dropped_for_an_oauth_error(body, status):
    trouble = documents.read_error(status, body, "it", None)
    if not trouble.passing:
        assert isinstance(json.loads(body)["error"], str)
        assert status < 500
        assert status not in (408, 429)


@given(st.text(max_size=200))
def test_every_challenge_is_read(field):
    hint = documents.read_challenge(field)
    for scope in hint.scopes:
        assert scope
        assert " " not in scope


@given(
    st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters='"\\'), min_size=1),
    st.lists(
        st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters='"\\'), min_size=1),
        unique=True,
    ),
    st.sampled_from(["", 'Basic realm="x", ', "Negotiate abc=, ", 'DPoP algs="ES256", ']),
)
def test_what_a_server_says_is_found_among_other_challenges(url, scopes, before):
    field = f'{before}Bearer resource_metadata="{url}", scope="{" ".join(scopes)}", error="x"'
    assert documents.read_challenge(field) == documents.Hint(url, tuple(scopes))
    assert parse_challenges(field)[-1].scheme == "bearer"


@pytest.mark.parametrize(
    ("field", "hint"),
    [
        (None, documents.Hint()),
        ("", documents.Hint()),
        ("Bearer", documents.Hint()),
        ('Basic resource_metadata="https://x.example"', documents.Hint()),
        ("bearer scope=read", documents.Hint(None, ("read",))),
        ('Bearer realm="a", Bearer scope="b"', documents.Hint(None, ("b",))),
        (f'Bearer resource_metadata="https://x.example/{"a" * 3000}"', documents.Hint()),
        ('Bearer scope="a a  b"', documents.Hint(None, ("a", "b"))),
    ],
)
def test_challenges(field, hint):
    assert documents.read_challenge(field) == hint


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"access_token": CANARY, "token_type": "mac"}, "kind of token"),
        ({"access_token": CANARY}, "kind of token"),
        ({"access_token": f"{CANARY}\n", "token_type": "Bearer"}, "cannot stand in a header"),
        ({"access_token": "", "token_type": "Bearer"}, "cannot stand in a header"),
        ({"access_token": 7, "token_type": "Bearer"}, "no access token"),
    ],
)
def test_tokens_that_cannot_be_used(answer, text):
    with pytest.raises(Trouble, match=text) as caught:
        documents.read_tokens(json.dumps(answer).encode())
    assert CANARY not in caught.value.text


@pytest.mark.parametrize(
    ("given_", "lifetime"),
    [
        (3600, 3600.0),
        ("3600", 3600.0),
        (0, None),
        (-5, None),
        (1e14, 3.1536e8),
        (True, None),
        ("x", None),
        (None, None),
    ],
)
def test_how_long_a_token_lasts(given_, lifetime):
    body = json.dumps({"access_token": "t", "token_type": "Bearer", "expires_in": given_}).encode()
    assert documents.read_tokens(body).lifetime == lifetime


@given(st.text(max_size=60) | st.from_regex(r"https?://[a-z0-9.:@\[\]/?#%\\]{0,40}", fullmatch=True))
def test_every_url_is_taken_apart_or_refused(url):
    taken = None
    with contextlib.suppress(Trouble):
        taken = urls.parts_of(url, "it")
    if taken is None:
        return
    scheme, host, port, _ = taken
    assert scheme in ("http", "https")
    assert host
    assert 0 <= port < 65536
    assert "@" not in urlsplit(url).netloc
    assert urls.origin_of(urls.origin_of(url, "it"), "it") == urls.origin_of(url, "it")


SEGMENTS = st.lists(st.text("abc", min_size=1, max_size=3), max_size=4)


@given(SEGMENTS, SEGMENTS, st.booleans())
def test_a_resource_covers_what_is_below_it(above, below, slash):
    base = "https://x.example" + "".join(f"/{part}" for part in above)
    named = base + ("/" if slash else "")
    assert urls.covers(named, base + "".join(f"/{part}" for part in below))
    assert not urls.covers(named, f"{base}x/{'/'.join(below)}") or not above
    assert not urls.covers(named.replace("x.example", "y.example"), base)


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("https://X.example:443/mcp?key=secret#f", "https://x.example/mcp"),
        ("https://x.example/", "https://x.example"),
        ("https://x.example/mcp/", "https://x.example/mcp/"),
        ("http://[::1]:80/mcp", "http://[::1]/mcp"),
        ("http://x.example:8080", "http://x.example:8080"),
    ],
)
def test_the_canonical_uri(url, canonical):
    assert urls.canonical_resource(url) == canonical


@given(st.ip_addresses())
def test_every_address_has_a_kind_and_only_public_ones_are_open_to_all(address):
    kind = urls.kind_of(address)
    assert urls.admitted(kind, "public", allow_private=False) == (kind == "public")
    assert not urls.admitted("other", kind, allow_private=True)
    if kind == "public":
        assert address.is_global or isinstance(address, ipaddress.IPv6Address)


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("8.8.8.8", "public"), ("2606:4700::1", "public"), ("10.1.2.3", "private"),
        ("172.16.0.1", "private"), ("192.168.0.1", "private"), ("100.64.0.1", "private"),
        ("fd00::1", "private"), ("127.9.9.9", "loopback"), ("::1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"), ("169.254.169.254", "other"), ("fe80::1", "other"),
        ("0.0.0.0", "other"), ("::", "other"), ("224.0.0.1", "other"), ("255.255.255.255", "other"),
        ("64:ff9b::7f00:1", "loopback"), ("2002:a00:1::1", "private"),
    ],
)  # fmt: skip
def test_kinds(address, kind):
    assert urls.kind_of(ipaddress.ip_address(address)) == kind

"""Headers of a proxy: believed from its address alone, once, in one spelling, as they stand."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afpool import Identity
from afpool._base.identity import KeyDigest
from afpool.config import ProxyConfig
from afpool.serve._proof_answers import Challenges
from afpool.serve._proof_types import Proven, Refused, RequestHead, UnsafeDoor
from afpool.serve._trusted_proxy import TrustedProxy
from tests.serve.proof.proof_kit import (
    bearing,
    config,
    head,
    is_refused,
    proving,
    proxy_config,
    signed,
)

ANSWERS = Challenges()
NGINX = "10.0.0.9"
NAMED = (("x-tenant", "acme"), ("x-user", "alice"))


def judged(
    *headers: tuple[str, str | bytes], peer: str | None = NGINX, **more: Any
) -> Proven | Refused | None:
    return TrustedProxy(proxy_config(**more), KeyDigest()).prove(head(*headers, peer=peer), ANSWERS)


def test_the_proxy_says_who_calls() -> None:
    found = judged(*NAMED, ("accept", "*/*"))
    assert isinstance(found, Proven)
    assert found.identity == Identity("acme", "alice")
    assert found.expires_at is None
    assert found.subject.startswith("proxy:")
    found = judged(*NAMED, ("x-conversation", "c/1 ü"))
    assert isinstance(found, Proven)
    assert found.identity == Identity("acme", "alice", "c/1 ü")
    assert judged(("accept", "*/*")) is None


@pytest.mark.parametrize(
    "peer", ["10.0.0.1", "10.0.0.255", "::1", "::ffff:10.0.0.7", "0:0:0:0:0:0:0:1", "::1%lo"]
)
def test_its_address_in_any_spelling(peer: str) -> None:
    assert isinstance(judged(*NAMED, peer=peer), Proven)


STRANGERS = [
    "10.0.1.0",
    "9.255.255.255",
    "127.0.0.1",
    "::2",
    "::ffff:10.0.1.7",
    "unix",
    None,
    "",
    "nginx",
    "10.0.0.1:80",
]


@pytest.mark.parametrize("peer", STRANGERS)
@pytest.mark.parametrize("name", ["x-tenant", "X-User", "x-conversation", "x_tenant", "X_User"])
def test_from_anybody_else_each_of_its_headers_is_refused(peer: str | None, name: str) -> None:
    found = is_refused(judged((name, "acme"), peer=peer), 403, "not the proxy's")
    assert found.code == "identity-header-refused"


def test_a_socket_is_trusted_where_it_is_named() -> None:
    assert isinstance(judged(*NAMED, peer="unix", trusted=("unix",)), Proven)
    is_refused(judged(*NAMED, peer=NGINX, trusted=("unix",)), 403)


@pytest.mark.parametrize(
    "claim",
    [("x-forwarded-for", "10.0.0.9"), ("forwarded", "for=10.0.0.9"), ("x-real-ip", "10.0.0.9"),
     ("x-forwarded-host", "10.0.0.9"), ("via", "1.1 nginx"), ("cf-connecting-ip", "10.0.0.9")],
)  # fmt: skip
def test_no_header_says_who_is_connected(claim: tuple[str, str]) -> None:
    is_refused(judged(*NAMED, claim, peer="192.0.2.7"), 403)


@pytest.mark.parametrize(
    "extra",
    [("x-tenant", "globex"), ("X-Tenant", "acme"), ("x_tenant", "globex"), ("X_TENANT", "acme"), ("x_user",
        "bob"),
     ("x_conversation", "c")],
)  # fmt: skip
def test_a_second_one_is_refused_from_the_proxy_too(extra: tuple[str, str]) -> None:
    for headers in ((extra, *NAMED), (*NAMED, extra)):
        is_refused(judged(*headers), 400, "twice, or in a second spelling")


@pytest.mark.parametrize(
    "value",
    [
        b"ac\xffme",
        b"a\nb",
        b"a\r\n b",
        b"a\0",
        b"a\tb",
        " acme",
        "acme ",
        "x" * 513,
        "ac\u200bme",
        b"\xc3",
        "\u00a0",
    ],
)
def test_a_value_that_is_no_name_is_refused(value: str | bytes) -> None:
    is_refused(judged(("x-tenant", value), ("x-user", "alice")), 400, "cannot be a name")


def test_what_has_to_be_there_is_not_made_up() -> None:
    for headers, words in (
        ((("x-tenant", "acme"),), "`principal`"),
        ((("x-user", "alice"),), "`tenant`"),
        ((("x-tenant", ""), ("x-user", "alice")), "`tenant`"),
        ((("x-conversation", "c"),), "`tenant`"),
    ):
        is_refused(judged(*headers), 401, words)
    found = judged(*NAMED, ("x-conversation", ""))
    assert isinstance(found, Proven)
    assert found.identity.conversation_id is None
    only = {"required": ("conversation_id",)}
    is_refused(judged(("x-conversation", "c"), **only), 401, "neither a tenant nor a principal")
    is_refused(judged(*NAMED, required=None), 401, "`conversation_id`")


@pytest.mark.parametrize(
    "name", ["\u0430cme", "Acme", "acm\u00e9", "acme,globex", "acme;q=1", '"acme"', "%61cme"]
)
def test_a_value_stands_for_itself(name: str) -> None:
    found = judged(("x-tenant", name), ("x-user", "alice"))
    assert isinstance(found, Proven)
    assert found.identity.tenant == name != "acme"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["x-tenant", "X-Tenant", "x_tenant", "x-user", "x_user", "x-conversation", "accept", "host"]
            ),
            st.sampled_from(["acme", "globex", "", " ", "alice"]) | st.binary(max_size=4),
        ),
        max_size=6,
    ),
    st.sampled_from([NGINX, "::1", *STRANGERS]),
)
def test_whatever_is_sent_only_the_proxys_own_words_prove(
    headers: list[tuple[str, str | bytes]], peer: str | None
) -> None:
    found = judged(*headers, peer=peer)
    ours = [(name, value) for name, value in headers if name.lower().replace("_", "-").startswith("x-")]
    if not ours:
        assert found is None
    elif peer not in {NGINX, "::1"}:
        assert isinstance(found, Refused)
        assert found.status == 403
    elif isinstance(found, Proven):
        assert len({name.lower() for name, _ in ours}) == len(ours)
        said = {name.lower(): value for name, value in ours}
        assert "_" not in "".join(said)
        for name, field in (
            ("x-tenant", "tenant"),
            ("x-user", "principal"),
            ("x-conversation", "conversation_id"),
        ):
            value = said.get(name) or None
            text = value.decode() if isinstance(value, bytes) else value
            assert getattr(found.identity, field) == text


@pytest.mark.parametrize(
    "more",
    [{"trusted": ()}, {"trusted": ("0.0.0.0/0",)}, {"trusted": ("::/0",)}, {"trusted": ("nginx",)},
     {"trusted": ("10.0.0.1/24",)}, {"headers": {}, "required": ()}, {"required": ("tenant",
     "conversation_id"),
     "headers": {"tenant": "x-t"}}, {"headers": {"tenant": "x-t", "principal": "x_t"},
     "required": ("tenant",)}],
)  # fmt: skip
def test_a_proxy_that_would_be_everybody_or_nobody_is_none(more: Any) -> None:
    with pytest.raises(UnsafeDoor):
        TrustedProxy(proxy_config(**more), KeyDigest())


# ------------------------------------------------------------------ beside the other ways


async def test_one_thing_counts_and_a_failed_proof_is_not_anonymous() -> None:
    everything = config(proxy=proxy_config(), anonymous=Identity("public"))
    async with proving(everything) as proof:

        async def asked(*headers: tuple[str, str], peer: str = "192.0.2.7") -> Proven | Refused:
            return await proof.prove(head(*headers, peer=peer))

        token = ("authorization", f"Bearer {signed()}")
        wrong = ("authorization", "Bearer a.b.c")
        other = ("authorization", "Basic YTpi")
        tenants: dict[Any, Any] = {
            (): "public",
            (token,): "acme",
            (wrong,): 401,
            (other,): 401,
            NAMED: 403,
            (*NAMED, token): 403,
            (("x-user", ""),): 403,
            (token, token): 400,
        }
        for headers, outcome in tenants.items():
            found = await asked(*headers)
            assert (found.status if isinstance(found, Refused) else found.identity.tenant) == outcome
        # From the proxy, which may hand on what the client sent it.
        for headers in (NAMED, (*NAMED, token), (*NAMED, wrong), (*NAMED, other)):
            found = await asked(("x-tenant", "globex"), *headers[1:], peer=NGINX)
            assert isinstance(found, Proven)
            assert found.identity == Identity("globex", "alice")
        assert isinstance(await asked(token, peer=NGINX), Proven)
        anonymous = await asked(peer=NGINX)
        assert isinstance(anonymous, Proven)
        assert anonymous.subject == "anonymous"
        assert repr(anonymous) == "<Proven by anonymous>"
        assert anonymous.still_holds()
        await proof.reconfigure(config(proxy=proxy_config()))
        assert not anonymous.still_holds()


def test_a_head_puts_names_in_lower_case_and_shows_no_value() -> None:
    made = RequestHead("POST", "/mcp", ((b"X-Tenant", b"canary"),), "192.0.2.7")
    assert made.all(b"x-tenant") == [b"canary"]
    assert repr(made) == "<RequestHead 1 headers>"


async def test_a_configuration_that_lets_nobody_call_is_refused() -> None:
    for jwt in ((), *itertools.repeat((), 1)):
        with pytest.raises(UnsafeDoor, match="nobody could call"):
            async with proving(config(jwt=jwt)):
                pass
    async with proving(config(jwt=(), anonymous=Identity("public"))) as proof:
        is_refused(await proof.prove(bearing(signed())), 401, "no kind")
    assert ProxyConfig.__name__ == "ProxyConfig"

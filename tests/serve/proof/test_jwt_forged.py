"""Tokens that were made by somebody who is not the issuer, or not for us: none of them proves anybody."""

from __future__ import annotations

import base64
import hmac
import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jws
from joserfc.jwk import ECKey

from afpool._base.secret import Secret
from afpool.serve._jwks_keys import KeySet, read_key_set
from afpool.serve._jwt import _is_signed, _judge, _Pinned
from afpool.serve._jwt_text import Unproven, take_apart
from afpool.serve._proof import open_proof
from afpool.serve._proof_types import Proven
from tests.serve.proof.proof_kit import (
    AUDIENCE,
    EC,
    ED,
    ISSUER,
    NOW,
    RSA,
    RSA2,
    Issuer,
    bearing,
    claims,
    config,
    header_of,
    is_refused,
    jwt_config,
    part,
    proven,
    public,
    signed,
    world,
)

GOOD = signed()
BOBS = signed(claims(sub="bob"))
OTHERS = ECKey.generate_key("P-256", {"kid": "ec-1"})
P384 = ECKey.generate_key("P-384", {"kid": "ec-384"})


def unsigned(header: dict[str, Any], payload: Any = None, signature: bytes = b"") -> str:
    return f"{part(header)}.{part(claims() if payload is None else payload)}.{part(signature)}"


def hmac_with(secret: bytes, algorithm: str = "HS256") -> str:
    """The classic: the issuer's public key, which everybody has, as the secret of an HMAC."""
    text = f"{part({'alg': algorithm, 'kid': 'rsa-1'})}.{part(claims())}"
    return f"{text}.{part(hmac.digest(secret, text.encode(), 'sha' + algorithm[2:]))}"


def altered(token: str, **more: Any) -> str:
    """The same signature over other claims."""
    top, _, signature = token.split(".")
    return f"{top}.{part(claims(**more))}.{signature}"


async def test_a_true_token_proves_who_it_says_until_it_expires() -> None:
    for token in (GOOD, signed(key=EC, algorithm="ES256"), signed(key=ED, algorithm="EdDSA")):
        found = await proven(token)
        assert isinstance(found, Proven)
        assert (found.identity.tenant, found.identity.principal) == ("acme", "alice")
        assert found.identity.conversation_id is None
        assert found.expires_at == int(NOW) + 630
        assert found.caller() is found.identity
        assert found.subject.startswith("jwt:")


FORGED = {
    "alg none": unsigned({"alg": "none", "typ": "JWT"}),
    "alg none with a signature": unsigned({"alg": "none"}, signature=b"x"),
    "alg None": unsigned({"alg": "None"}, signature=b"x"),
    "alg nOnE": unsigned({"alg": "nOnE"}, signature=b"x"),
    "alg missing": unsigned({"typ": "JWT"}, signature=b"x"),
    "alg null": unsigned({"alg": None}, signature=b"x"),
    "alg a list": unsigned({"alg": ["RS256"]}, signature=b"x"),
    "alg empty": unsigned({"alg": ""}, signature=b"x"),
    "no signature": unsigned({"alg": "RS256", "kid": "rsa-1"}),
    "signature of nothing": unsigned({"alg": "RS256", "kid": "rsa-1"}, signature=b"\0" * 256),
    "hmac with the public PEM": hmac_with(RSA.as_pem(private=False)),
    "hmac with the public DER": hmac_with(RSA.as_der(private=False)),
    "hmac with the modulus": hmac_with(RSA.as_dict(private=False)["n"].encode()),
    "hmac with an empty secret": hmac_with(b""),
    "hmac of 512 bits": hmac_with(RSA.as_pem(private=False), "HS512"),
    "another key under its name": signed(key=RSA2, header={"kid": "rsa-1"}),
    "another curve key under its name": signed(key=OTHERS, algorithm="ES256"),
    "a key of another type under its name": signed(key=EC, algorithm="ES256", header={"kid": "rsa-1"}),
    "a key of another curve": signed(key=P384, algorithm="ES384"),
    "an algorithm that is not configured": signed(algorithm="RS512"),
    "another padding": signed(algorithm="PS256"),
    "an unknown key": signed(key=RSA2),
    "a key by a path": signed(key=RSA2, header={"kid": "../../../dev/null"}),
    "a key by a URL": signed(key=RSA2, header={"kid": "https://evil.example/key"}),
    "a key by SQL": signed(key=RSA2, header={"kid": "' UNION SELECT 'key"}),
    "a key that is no name": signed(header={"kid": ["rsa-1"]}),
    "a key that is a number": signed(header={"kid": 1}),
    "a key of a long name": signed(header={"kid": "k" * 257}),
    "brings its own key": signed(key=RSA2, header={"jwk": RSA2.as_dict(private=False), "kid": "rsa-1"}),
    "says where its key is": signed(key=RSA2, header={"jku": "https://evil.example/keys", "kid": "rsa-1"}),
    "brings a certificate": signed(key=RSA2, header={"x5c": ["MIIB"], "kid": "rsa-1"}),
    "says where a certificate is": signed(key=RSA2, header={"x5u": "https://evil.example", "kid": "rsa-1"}),
    "demands an extension": signed(header={"crit": ["exp"], "exp": 1}),
    "demands nothing": signed(header={"crit": []}),
    "is not encoded": signed(header={"b64": False}),
    "is an ID token by its own word": signed(header={"typ": "id_token+jwt"}),
    "is a logout token": signed(header={"typ": "logout+jwt"}),
    "is a DPoP proof": signed(header={"typ": "dpop+jwt"}),
    "is of no named type": signed(header={"typ": None}),
    "is encrypted": f"{GOOD}.a.b",
    "has two parts": GOOD.rpartition(".")[0],
    "has four parts": f"{GOOD}.x",
    "is empty": "..",
    "other claims under the signature": altered(GOOD, sub="mallory"),
    "another tenant under the signature": altered(GOOD, org={"id": "globex"}),
    "another header under the signature": f"{part({'alg': 'RS256', 'kid': 'rsa-1', 'x': 1})}"
    f".{GOOD.partition('.')[2]}",
    "a signature of another token": f"{GOOD.rpartition('.')[0]}.{BOBS.rpartition('.')[2]}",
    "junk behind the signature": f"{GOOD}A",
    "padding": f"{GOOD}=",
}


ALGORITHM, KEY, WRONG = "by an algorithm", "names no signing key", "signature is wrong"
EXTENSION, TYPE, SHAPE = "demands an extension", "no access token", "not a well-formed JWT"
# Why each is refused, where it is not its algorithm, its key or its signature by the way that it is named.
REASONS = {
    "alg none": SHAPE, "alg missing": "names no algorithm", "alg null": "names no algorithm",
    "alg a list": "names no algorithm", "no signature": SHAPE, "signature of nothing": WRONG,
    "another key under its name": WRONG, "another curve key under its name": WRONG,
    "a key of another type under its name": KEY, "a key of another curve": ALGORITHM,
    "an algorithm that is not configured": ALGORITHM, "another padding": ALGORITHM, "an unknown key": KEY,
    "a key by a path": KEY, "a key by a URL": KEY, "a key by SQL": KEY,
    "a key that is no name": "is no name", "a key that is a number": "is no name",
    "a key of a long name": "is no name", "brings its own key": WRONG,
    "says where its key is": WRONG, "brings a certificate": WRONG, "says where a certificate is": WRONG,
    "demands an extension": EXTENSION, "demands nothing": EXTENSION, "is not encoded": EXTENSION,
    "is an ID token by its own word": TYPE, "is a logout token": TYPE, "is a DPoP proof": TYPE,
    "is of no named type": TYPE, "is encrypted": "is encrypted", "has two parts": "no kind",
    "has four parts": "no kind", "other claims under the signature": WRONG,
    "another tenant under the signature": WRONG, "another header under the signature": WRONG,
    "a signature of another token": WRONG, "junk behind the signature": WRONG, "padding": SHAPE,
}  # fmt: skip


@pytest.mark.parametrize("kind", FORGED)
async def test_a_forged_token_proves_nobody(kind: str) -> None:
    if kind == "is empty":
        is_refused(await proven(FORGED[kind]), 401, SHAPE)
        return
    found = is_refused(await proven(FORGED[kind]), 401, REASONS.get(kind, ALGORITHM))
    assert found.code == "invalid-token"
    challenge = header_of(found, b"www-authenticate")
    assert challenge is not None
    assert challenge.startswith('Bearer realm="afpool", error="invalid_token", error_description="')


def test_each_is_forged_in_the_way_that_it_says() -> None:
    """A forgery that is merely broken would be refused for the wrong reason: most parts can be read."""
    broken = {"is encrypted", "has two parts", "has four parts", "is empty", "padding"}
    for kind, token in FORGED.items():
        if kind not in broken:
            top, body, _ = token.split(".")
            for piece in (top, body):
                assert isinstance(json.loads(base64.urlsafe_b64decode(piece + "==")), dict), kind


NOT_FOR_US: dict[str, tuple[dict[str, Any], str]] = {
    "expired": ({"exp": int(NOW) - 30}, "has expired"),
    "expired long ago": ({"exp": 0}, "has expired"),
    "no end": ({"exp": ...}, "does not say when it expires"),
    "an end in words": ({"exp": str(int(NOW) + 600)}, "does not say when it expires"),
    "an end that is true": ({"exp": True}, "does not say when it expires"),
    "an end that is null": ({"exp": None}, "does not say when it expires"),
    "an end before all": ({"exp": -1}, "does not say when it expires"),
    "an end in milliseconds": ({"exp": int(NOW) * 1000}, "does not say when it expires"),
    "an end beyond all numbers": ({"exp": 10**400}, "does not say when it expires"),
    "not yet": ({"nbf": NOW + 30.5}, "not good yet"),
    "a beginning that is none": ({"nbf": "now"}, "a date that is none"),
    "a beginning that is null": ({"nbf": None}, "a date that is none"),
    "issued in the future": ({"iat": NOW + 31}, "not good yet"),
    "issued at no date": ({"iat": []}, "a date that is none"),
    "another audience": ({"aud": "https://other.example"}, "another audience"),
    "other audiences": ({"aud": ["a", "b"]}, "another audience"),
    "an audience that begins as ours": ({"aud": AUDIENCE + "/"}, "another audience"),
    "an audience in capitals": ({"aud": AUDIENCE.upper()}, "another audience"),
    "no audience": ({"aud": ...}, "names no audience"),
    "no audience at all": ({"aud": []}, "another audience"),
    "an audience that is a number": ({"aud": 7}, "names no audience"),
    "an audience among numbers": ({"aud": [AUDIENCE, 7]}, "names no audience"),
    "an audience in an audience": ({"aud": [[AUDIENCE]]}, "names no audience"),
    "more audiences than anybody has": ({"aud": [AUDIENCE] * 101}, "names no audience"),
    "another issuer": ({"iss": "https://evil.example"}, "another issuer"),
    "an issuer with a slash": ({"iss": ISSUER + "/"}, "another issuer"),
    "an issuer in a list": ({"iss": [ISSUER]}, "another issuer"),
    "no issuer": ({"iss": ...}, "another issuer"),
    "bound to a key": ({"cnf": {"jkt": "x"}}, "bound to a key of its sender"),
    "bound to nothing": ({"cnf": None}, "bound to a key of its sender"),
}


@pytest.mark.parametrize("kind", NOT_FOR_US)
async def test_a_true_token_that_is_not_for_us_proves_nobody(kind: str) -> None:
    more, words = NOT_FOR_US[kind]
    is_refused(await proven(signed(claims(**more))), 401, words)


async def test_clocks_may_differ_by_the_leeway_and_no_more() -> None:
    for more in ({"exp": NOW - 29}, {"nbf": NOW + 30}, {"iat": NOW + 30}, {"aud": ["x", AUDIENCE]}):
        assert isinstance(await proven(signed(claims(**more))), Proven)
    is_refused(await proven(signed(claims(exp=NOW)), leeway=0.0), 401, "has expired")


PAYLOADS = {
    "a claim twice": b'{"sub":"alice","sub":"mallory"}',
    "a nested claim twice": b'{"org":{"id":"acme","id":"globex"}}',
    "no object": b'["alice"]',
    "a number that is none": b'{"exp":NaN}',
    "an endless number": b'{"exp":1e999}',
    "no UTF-8": b'{"sub":"\xff"}',
    "a mark in front": b'\xef\xbb\xbf{"sub":"alice"}',
    "something behind": b'{"sub":"alice"} {}',
    "nested beyond use": b'{"a":' + b"[" * 900 + b"]" * 900 + b"}",
    "nothing": b"",
}


@pytest.mark.parametrize("kind", PAYLOADS)
async def test_what_two_readers_could_read_differently_is_read_by_none(kind: str) -> None:
    raw = PAYLOADS[kind]
    if raw.startswith(b'{"') and kind not in {"an endless number", "no UTF-8"}:
        # With everything else that a good token has, so that only this is wrong with it.
        raw = json.dumps(claims())[:-1].encode() + b"," + raw[1:]
    is_refused(await proven(signed(raw)), 401, "not a well-formed JWT")
    header = b'{"alg":"RS256","kid":"rsa-1","kid":"rsa-1"}'
    text = f"{part(header)}.{part(claims())}"
    signature = part(jws.JWSRegistry.algorithms["RS256"].sign(text.encode(), RSA))
    is_refused(await proven(f"{text}.{signature}"), 401, "not a well-formed JWT")


async def test_a_token_has_one_spelling() -> None:
    """The last character of a part holds bits that mean nothing; they have to be zero."""
    top, body, signature = signed(claims(pad="")).split(".")
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    lengths = set()
    for extra in range(3):
        top, body, signature = signed(claims(pad="x" * extra)).split(".")
        lengths.add(len(body) % 4)
        if len(body) % 4 in {2, 3}:
            other = body[:-1] + alphabet[alphabet.index(body[-1]) | 1]
            assert other != body
            is_refused(await proven(f"{top}.{other}.{signature}"), 401, "not a well-formed JWT")
        # and the signature's: 256 bytes leave 2 characters in the last group
        other = signature[:-1] + alphabet[alphabet.index(signature[-1]) | 1]
        is_refused(await proven(f"{top}.{body}.{other}"), 401, "signature is wrong")
    assert lengths & {2, 3}


async def test_a_token_larger_than_any_is_not_read() -> None:
    found = is_refused(await proven(signed(claims(pad="x" * 20_000))), 400, "longer than any")
    assert found.code == "invalid-request"
    assert isinstance(await proven(signed(claims(pad="x" * 8_000))), Proven)


@given(st.binary(max_size=64), st.integers(0, 200), st.sampled_from([1, 2, 4, 8, 16, 32, 64, 128]))
def test_one_bit_of_the_signature_or_of_what_is_signed_is_enough(junk: bytes, at: int, bit: int) -> None:
    keys = read_key_set(json.dumps(public(RSA)).encode())
    assert isinstance(keys, KeySet)
    key = keys.find("rsa-1", "RS256")
    assert key is not None
    good = take_apart(Secret(GOOD))
    assert isinstance(good, Unproven)
    assert _is_signed(good, key, _Pinned("RS256"))
    top, body, signature = GOOD.split(".")
    raw = bytearray(base64.urlsafe_b64decode(signature + "=="))
    raw[at] ^= bit
    for token in (f"{top}.{body}.{part(bytes(raw))}", f"{top}.{part(junk)}.{signature}"):
        made = Unproven("RS256", "rsa-1", good.claims, Secret(token))
        assert not _is_signed(made, key, _Pinned("RS256"))


@given(
    st.text(max_size=200)
    | st.lists(st.binary(max_size=60), min_size=3, max_size=3).map(
        lambda parts: ".".join(part(piece) for piece in parts)
    )
)
def test_any_text_is_taken_apart_or_refused_and_never_raises(text: str) -> None:
    found = take_apart(Secret(text))
    assert isinstance(found, str | Unproven)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["iss", "aud", "exp", "nbf", "iat", "cnf"]), VALUES))
def test_whatever_a_signed_token_claims_is_judged_and_never_raises(odd: dict[str, Any]) -> None:
    found = _judge(claims() | odd, jwt_config(), NOW)
    if not isinstance(found, str):
        merged = claims() | odd
        assert merged["iss"] == ISSUER
        assert AUDIENCE in (merged["aud"] if isinstance(merged["aud"], list) else [merged["aud"]])
        assert "cnf" not in odd
        assert found == merged["exp"] + 30.0 > NOW
        assert merged.get("nbf", 0) <= NOW + 30
        assert merged["iat"] <= NOW + 30


async def test_the_issuers_keys_judge_its_tokens_alone() -> None:
    """Two issuers, each honest about its own: neither can make a token of the other's."""
    other = jwt_config(issuer="https://other.example", jwks="https://other.example/keys")
    issuer = Issuer(document=public(RSA))

    async def answer(request: httpx.Request) -> httpx.Response:
        if str(request.url).startswith("https://other"):
            return httpx.Response(200, json=public(RSA2))
        return await issuer.answer(request)

    both = config(jwt=(jwt_config(), other))
    async with open_proof(both, seams=world(), transport=httpx.MockTransport(answer)) as proof:
        mine, theirs = signed(), signed(claims(iss="https://other.example"), key=RSA2)
        assert isinstance(await proof.prove(bearing(mine)), Proven)
        assert isinstance(await proof.prove(bearing(theirs)), Proven)
        for token in (signed(key=RSA2), signed(claims(iss="https://other.example"))):
            is_refused(await proof.prove(bearing(token)), 401)
        for key, iss in ((RSA2, ISSUER), (RSA, "https://other.example")):
            token = signed(claims(iss=iss), key=key, header={"kid": ...})
            is_refused(await proof.prove(bearing(token)), 401, "signature is wrong")

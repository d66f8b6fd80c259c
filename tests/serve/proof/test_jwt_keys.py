"""What an issuer publishes, and what of it may verify which signature."""

from __future__ import annotations

import json
from typing import Any

import pytest
from joserfc.jwk import ECKey

from afpool.serve._jwks_keys import KeySet, read_key_set
from afpool.serve._proof_types import UnsafeDoor
from tests.serve.proof.proof_kit import EC, ED, RSA, RSA2, config, jwt_config, part, proving, public

P384 = ECKey.generate_key("P-384", {"kid": "ec-384"})


def key_set(document: Any) -> KeySet:
    found = read_key_set(json.dumps(document).encode())
    assert isinstance(found, KeySet)
    return found


def test_a_key_verifies_what_its_type_its_curve_and_its_own_word_allow() -> None:
    rsa = {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}
    for key, more, algorithms in (
        (RSA, {}, rsa),
        (RSA, {"alg": "RS256"}, {"RS256"}),
        (RSA, {"alg": "PS512", "use": "sig", "key_ops": ["verify"]}, {"PS512"}),
        (EC, {}, {"ES256"}),
        (P384, {"alg": "ES384"}, {"ES384"}),
        (ED, {}, {"EdDSA", "Ed25519"}),
        (ED, {"alg": "EdDSA"}, {"EdDSA", "Ed25519"}),
        (ED, {"alg": "Ed25519"}, {"EdDSA", "Ed25519"}),
    ):
        (found,) = key_set(public(key, **more)).keys
        assert found.algorithms == algorithms


WEAK = {"kty": "RSA", "n": part(b"\xff" * 128), "e": "AQAB"}
USELESS: dict[str, Any] = {
    "a secret": {"kty": "oct", "k": part(b"s" * 32), "kid": "rsa-1"},
    "a private key": RSA.as_dict(private=True),
    "for encryption": {**RSA.as_dict(private=False), "use": "enc"},
    "for signing only": {**RSA.as_dict(private=False), "key_ops": ["sign"]},
    "operations that are none": {**RSA.as_dict(private=False), "key_ops": "verify"},
    "for an HMAC": {**RSA.as_dict(private=False), "alg": "HS256"},
    "for nothing": {**RSA.as_dict(private=False), "alg": "none"},
    "for another type": {**RSA.as_dict(private=False), "alg": "ES256"},
    "for many": {**RSA.as_dict(private=False), "alg": ["RS256"]},
    "of 1024 bits": WEAK,
    "of a giant's size": {**WEAK, "n": part(b"\xff" * 2048)},
    "of no size": {**WEAK, "n": ""},
    "without an exponent": {"kty": "RSA", "n": part(b"\xff" * 256)},
    "of an unknown curve": {"kty": "EC", "crv": "P-255", "x": "AA", "y": "AA"},
    "beside its curve": {**EC.as_dict(private=False), "x": part(b"\1" * 32)},
    "of a curve for secrets": {"kty": "OKP", "crv": "X25519", "x": part(b"\1" * 32)},
    "of an unknown type": {"kty": "AKP"},
    "of no type": {},
    "of a type that is none": {"kty": ["RSA"], "crv": {}},
    "of a name that is none": {**RSA.as_dict(private=False), "kid": 7},
    "no object": "key",
}


@pytest.mark.parametrize("kind", USELESS)
def test_a_key_of_no_use_is_passed_over_and_costs_no_other(kind: str) -> None:
    found = key_set({"keys": [USELESS[kind], EC.as_dict(private=False)]})
    assert [key.kid for key in found.keys] == ["ec-1"]
    assert found.passed_over == 1


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b"{}", b'{"keys":{}}', b'{"keys":[],"keys":[]}', b"\xff", b"<html>"]
)
def test_what_is_no_key_set_is_none(raw: bytes) -> None:
    assert isinstance(read_key_set(raw), str)
    assert isinstance(read_key_set(json.dumps({"keys": [{}] * 101}).encode()), str)


def test_a_token_means_one_key_or_none() -> None:
    keys = key_set(public(RSA, RSA2, EC))
    assert keys.find("rsa-2", "RS256") is keys.keys[1]
    assert keys.find("rsa-1", "ES256") is None
    assert keys.find(None, "RS256") is None, "two may be meant"
    assert keys.find(None, "ES256") is keys.keys[2]
    twice = key_set({"keys": [RSA.as_dict(private=False), {**RSA2.as_dict(private=False), "kid": "rsa-1"}]})
    assert twice.find("rsa-1", "RS256") is None


async def test_a_symmetric_algorithm_cannot_be_configured() -> None:
    for algorithms in (("HS256",), ("RS256", "none"), ("RS256", "dir"), ()):
        with pytest.raises(UnsafeDoor, match="algorithms"):
            async with proving(config(jwt=(jwt_config(algorithms=algorithms),))):
                pass
    with pytest.raises(UnsafeDoor, match="audience"):
        async with proving(config(jwt=(jwt_config(audience=()),))):
            pass

"""The public keys of an issuer, out of a document (RFC 7517), and what each may be used for.

Rules:

* Which algorithm a key may verify is said by the key: its type, its curve, its `alg` where it has one. A
  token's `alg` is only looked up there. So an RSA key is never used as the secret of an HMAC, and a secret
  is no key: what is symmetric is passed over, whoever publishes it.
* A key that is weak (RSA below 2048 bits), not for signatures, or published with its private part is passed
  over and counted. One that cannot be read does not cost the others.
"""

from __future__ import annotations

import base64
import binascii
import warnings
from typing import Any, Final, final

import attrs
from joserfc.jwk import ECKey, JWKRegistry, OKPKey, RSAKey

from .._base.canonical import ContentError, parse_strict
from ._jwt_text import MAX_KID

PublicKey = RSAKey | ECKey | OKPKey
MAX_KEYS: Final = 100
MIN_RSA_BITS: Final = 2048
MAX_RSA_BITS: Final = 8192
_RSA: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_BY_CURVE: Final = {
    ("EC", "P-256"): frozenset({"ES256"}),
    ("EC", "P-384"): frozenset({"ES384"}),
    ("EC", "P-521"): frozenset({"ES512"}),
    # The one algorithm under its old name and its new one (RFC 9864).
    ("OKP", "Ed25519"): frozenset({"EdDSA", "Ed25519"}),
}
ALGORITHMS: Final = _RSA.union(*_BY_CURVE.values())
_PRIVATE: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})


@attrs.frozen(eq=False)
class VerifyingKey:
    """A key and what it may verify; `thumbprint` (RFC 7638) tells it from all others."""

    kid: str | None
    algorithms: frozenset[str]
    thumbprint: str
    key: PublicKey = attrs.field(repr=False)


@final
class KeySet:
    """The usable keys of one document.

    Attributes:
        keys: Usable ones.
        passed_over: How many others there were.
    """

    __slots__ = ("_kids", "_thumbprints", "keys", "passed_over")

    def __init__(self, keys: tuple[VerifyingKey, ...], passed_over: int = 0) -> None:
        self.keys = keys
        self.passed_over = passed_over
        self._kids = {key.kid for key in keys}
        self._thumbprints = {key.thumbprint for key in keys}

    def knows(self, kid: str | None) -> bool:
        """Whether a key of that name is there; a token that names none may mean any that is."""
        return bool(self.keys) if kid is None else kid in self._kids

    def holds(self, thumbprint: str) -> bool:
        """Whether a key is still published."""
        return thumbprint in self._thumbprints

    def find(self, kid: str | None, algorithm: str) -> VerifyingKey | None:
        """The one key that a token means; `None` where there is none, or more than one."""
        found = [key for key in self.keys if algorithm in key.algorithms and (kid is None or key.kid == kid)]
        return found[0] if len(found) == 1 else None


def read_key_set(raw: bytes) -> KeySet | str:
    """Read a document, or say what is wrong with it as a whole."""
    try:
        document = parse_strict(raw)
    except ContentError as error:
        return f"is not a key set: {error.reason}"
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        return "is not a key set: it has no list of keys"
    if len(listed) > MAX_KEYS:
        return f"holds more than {MAX_KEYS} keys"
    keys = [key for one in listed if (key := _key(one)) is not None]
    return KeySet(tuple(keys), len(listed) - len(keys))


def _key(raw: Any) -> VerifyingKey | None:
    if not isinstance(raw, dict) or not raw.keys().isdisjoint(_PRIVATE):
        return None
    kid, algorithm, operations = raw.get("kid"), raw.get("alg"), raw.get("key_ops", ["verify"])
    algorithms = _algorithms(raw)
    if algorithm is not None and algorithms != _BY_CURVE["OKP", "Ed25519"]:
        algorithms = frozenset(name for name in algorithms if name == algorithm)
    elif algorithm is not None and algorithm not in list(algorithms):  # a value of any kind
        algorithms = frozenset()
    if (
        not algorithms
        or raw.get("use", "sig") != "sig"
        or not (isinstance(operations, list) and "verify" in operations)
        or not (kid is None or (isinstance(kid, str) and len(kid) <= MAX_KID))
    ):
        return None
    # Only what the key is made of: joserfc would judge the rest again, by rules of its own.
    bare = {name: raw[name] for name in ("kty", "crv", "x", "y", "n", "e") if name in raw}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            key = JWKRegistry.import_key(bare)
    except Exception:  # noqa: BLE001 -- whatever is wrong with it, it is no key of ours
        return None
    if not isinstance(key, RSAKey | ECKey | OKPKey):
        return None
    return VerifyingKey(kid, algorithms, key.thumbprint(), key)


def _algorithms(raw: dict[str, Any]) -> frozenset[str]:
    kind, curve = raw.get("kty"), raw.get("crv")
    if kind == "RSA":
        return _RSA if MIN_RSA_BITS <= _bits(raw.get("n")) <= MAX_RSA_BITS else frozenset()
    if isinstance(kind, str) and isinstance(curve, str):
        return _BY_CURVE.get((kind, curve), frozenset())
    return frozenset()


def _bits(modulus: Any) -> int:
    if not isinstance(modulus, str) or len(modulus) > MAX_RSA_BITS:
        return 0
    try:
        raw = base64.b64decode(modulus + "=" * (-len(modulus) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return 0
    return int.from_bytes(raw, "big").bit_length()

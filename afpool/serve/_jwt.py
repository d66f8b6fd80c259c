"""JSON Web Tokens of one issuer, proven (RFC 7519, RFC 8725, RFC 9068).

Rules:

* Issuer, audience and algorithms are those that the configuration names, compared exactly. An algorithm must
  be named there *and* fit the key; symmetric ones can be neither.
* The signature is judged before any claim is believed; the issuer that a token names only chooses whose keys
  judge it.
* A token expires: one without `exp` is refused. Clocks may differ by `leeway`, at both ends.
* A token that is bound to a key of its sender (`cnf`) is refused: that binding cannot be checked here, and
  taking it as a bearer token would be what it was bound against.
* What is proven holds until it expires, as long as the key that proved it is published and the issuer is
  configured.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, final

import attrs
from joserfc import jws
from joserfc.errors import UnsupportedAlgorithmError

from ._jwks_keys import ALGORITHMS, KeySet
from ._proof_bearer import MAX_TOKEN
from ._proof_claims import identity_of
from ._proof_types import Proven, UnsafeDoor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._base.identity import KeyDigest
    from .._base.seams import Seams
    from ..config import JwtConfig
    from ._jwks import KeySource
    from ._jwks_keys import VerifyingKey
    from ._jwt_text import Unproven

MAX_AUDIENCES: Final = 100
# The year 5138: beyond it a date is a mistake, such as milliseconds.
MAX_DATE: Final = 1e11


@attrs.frozen
class NotNow:
    """The issuer's keys are not known, through no fault of the caller's."""

    retry_after: float


class _Pinned(jws.JWSRegistry):
    """Knows one algorithm."""

    max_header_length = MAX_TOKEN
    max_payload_length = MAX_TOKEN
    max_signature_length = MAX_TOKEN

    def __init__(self, algorithm: str) -> None:
        super().__init__(algorithms=[algorithm], strict_check_header=False)
        self._only = algorithm

    def get_alg(self, name: str) -> Any:
        if name != self._only:
            raise UnsupportedAlgorithmError
        return self.algorithms[name]


@final
class Jwt:
    """Proves callers by the tokens of one issuer.

    Args:
        config: The issuer.
        source: Its keys.
        seams: Clock.
        digest: Shows subjects.

    Attributes:
        withdrawn: Nothing that these tokens have proven holds any more.

    Raises:
        UnsafeDoor: An algorithm is not one that proves anything here.
    """

    def __init__(self, config: JwtConfig, source: KeySource, seams: Seams, digest: KeyDigest) -> None:
        unfit = sorted(set(config.algorithms) - ALGORITHMS)
        if unfit or not config.algorithms:
            raise UnsafeDoor(
                f"`algorithms` holds {', '.join(unfit) or 'nothing'}: a token is proven by a signature that "
                f"only its issuer can make; name one or more of {', '.join(sorted(ALGORITHMS))}"
            )
        if not config.audience:
            raise UnsafeDoor("`audience` is empty: tokens for every service of the issuer would be taken")
        self.config = config
        self.source = source
        self.withdrawn = False
        self._seams = seams
        self._digest = digest
        self._registries = {name: _Pinned(name) for name in config.algorithms}

    async def prove(self, token: Unproven) -> Proven | NotNow | str:
        """Prove who sent a token, or say why it proves nobody. Waits for keys that nobody has fetched yet."""
        registry = self._registries.get(token.algorithm)
        if registry is None:
            return "the token is signed by an algorithm that this service does not take"
        keys = await self.source.keys(token.kid)
        if not isinstance(keys, KeySet):
            return NotNow(keys)
        key = keys.find(token.kid, token.algorithm)
        if key is None:
            return "the token names no signing key of its issuer"
        if not _is_signed(token, key, registry):
            return "the token's signature is wrong"
        return self._believe(token.claims, key.thumbprint)

    def _believe(self, claims: Mapping[str, Any], thumbprint: str) -> Proven | str:
        until = _judge(claims, self.config, self._seams.unix_now())
        if isinstance(until, str):
            return until
        identity = identity_of(claims, self.config.claims)
        if isinstance(identity, str):
            return identity
        who = json.dumps([self.config.issuer, claims.get("sub"), *attrs.astuple(identity)])

        def still_holds() -> bool:
            return not self.withdrawn and self._seams.unix_now() < until and self.source.holds(thumbprint)

        return Proven(identity, self._digest.show(who, "jwt"), until, still_holds)


def _is_signed(token: Unproven, key: VerifyingKey, registry: _Pinned) -> bool:
    try:
        jws.deserialize_compact(token.token.reveal(), key.key, registry=registry)
    except Exception:  # noqa: BLE001 -- whatever it does not like, nothing is proven
        return False
    return True


def _judge(claims: Mapping[str, Any], config: JwtConfig, now: float) -> float | str:
    """Judge what a signed token says of itself; gives until when it is good."""
    if claims.get("iss") != config.issuer:
        return "the token is of another issuer"
    audience = claims.get("aud")
    listed = audience if isinstance(audience, list) else [audience]
    if len(listed) > MAX_AUDIENCES or not all(isinstance(one, str) for one in listed):
        return "the token names no audience"
    if not any(one in config.audience for one in listed):
        return "the token is for another audience"
    if "cnf" in claims:
        return "the token is bound to a key of its sender, which cannot be checked here"
    expires, begins, issued = (_date(claims.get(name)) for name in ("exp", "nbf", "iat"))
    if expires is None:
        return "the token does not say when it expires"
    if (begins is None and "nbf" in claims) or (issued is None and "iat" in claims):
        return "the token holds a date that is none"
    if now >= expires + config.leeway:
        return "the token has expired"
    if (begins is not None and begins > now + config.leeway) or (
        issued is not None and issued > now + config.leeway
    ):
        return "the token is not good yet"
    return expires + config.leeway


def _date(raw: Any) -> float | None:
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not 0 <= raw < MAX_DATE:
        return None
    return float(raw) if isfinite(raw) else None

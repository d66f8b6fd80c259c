"""What the tests of proofs share: keys, tokens made and forged, heads, a world without threads."""

from __future__ import annotations

import base64
import contextlib
import json
import random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import attrs
import httpx
import trio
from joserfc import jws
from joserfc.jwk import ECKey, OKPKey, RSAKey

from afpool._base.seams import Seams
from afpool.config import Claim, IdentityConfig, JwtConfig, ProxyConfig, ServeConfig
from afpool.serve._proof import Proof, open_proof
from afpool.serve._proof_types import Proven, Refused, RequestHead

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

ISSUER = "https://login.example"
JWKS = "https://login.example/keys"
AUDIENCE = "https://tools.example/mcp"
NOW = 1_900_000_000.0
RSA = RSAKey.generate_key(2048, {"kid": "rsa-1"})
RSA2 = RSAKey.generate_key(2048, {"kid": "rsa-2"})
EC = ECKey.generate_key("P-256", {"kid": "ec-1"})
ED = OKPKey.generate_key("Ed25519", {"kid": "ed-1"})
CLAIMS = MappingProxyType({"tenant": Claim(name="org.id"), "principal": Claim(name="sub")})


@attrs.define
class Wall:
    """The date of the world."""

    now: float = NOW


async def inline(work: Callable[[], Any], limiter: trio.CapacityLimiter) -> Any:
    await trio.lowlevel.checkpoint()
    return work()


def world(wall: Wall | None = None) -> Seams:
    """Seams without threads, on a date that a test sets."""
    date = Wall() if wall is None else wall
    return Seams(unix_now=lambda: date.now, in_thread=inline, random=random.Random(1))


def public(*keys: Any, **more: Any) -> dict[str, Any]:
    return {"keys": [{**key.as_dict(private=False), **more} for key in keys]}


@attrs.define(eq=False, slots=False)
class Issuer:
    """An issuer's key set, as it stands at its address now."""

    document: Any = attrs.field(factory=lambda: public(RSA, EC, ED))
    status: int = 200
    headers: dict[str, str] = attrs.field(factory=dict)
    asked: int = 0
    hold: trio.Event | None = None

    async def answer(self, request: httpx.Request) -> httpx.Response:
        self.asked += 1
        assert str(request.url) == JWKS
        if self.hold is not None:
            await self.hold.wait()
        body = self.document if isinstance(self.document, bytes) else json.dumps(self.document).encode()
        return httpx.Response(self.status, content=body, headers=self.headers)

    @property
    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self.answer)


def jwt_config(**more: Any) -> JwtConfig:
    plain = {
        "issuer": ISSUER, "audience": (AUDIENCE,), "jwks": JWKS, "leeway": 30.0, "claims": CLAIMS,
        "algorithms": ("RS256", "ES256", "EdDSA"),
    }  # fmt: skip
    return JwtConfig(**(plain | more))


def config(**more: Any) -> IdentityConfig:
    return IdentityConfig(**({"jwt": (jwt_config(),)} | more))


def proxy_config(**more: Any) -> ProxyConfig:
    headers = {"tenant": "x-tenant", "principal": "x-user", "conversation_id": "x-conversation"}
    plain = {"trusted": ("10.0.0.0/24", "::1"), "headers": headers, "required": ("tenant", "principal")}
    return ProxyConfig(**(plain | more))


def serve_config(**more: Any) -> ServeConfig:
    return ServeConfig(**more)


def claims(**more: Any) -> dict[str, Any]:
    """The claims of a good token; a member that is given as `...` is left out."""
    plain = {
        "iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "org": {"id": "acme"}, "exp": int(NOW) + 600,
        "iat": int(NOW) - 5,
    }  # fmt: skip
    return {name: value for name, value in (plain | more).items() if value is not ...}


def part(value: Any) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def signed(
    payload: Any = None, key: Any = RSA, algorithm: str = "RS256", header: dict[str, Any] | None = None
) -> str:
    """A token with a true signature over whatever it holds; a header's member given as `...` is left out."""
    head = {"alg": algorithm, "typ": "JWT", "kid": key.kid} | (header or {})
    head = {name: value for name, value in head.items() if value is not ...}
    text = f"{part(head)}.{part(claims() if payload is None else payload)}"
    made = jws.JWSRegistry.algorithms[algorithm].sign(text.encode(), key)
    return f"{text}.{part(made)}"


def head(*headers: tuple[str, str | bytes], peer: str | None = "192.0.2.7", **more: Any) -> RequestHead:
    pairs = tuple(
        (name.encode("latin-1"), value if isinstance(value, bytes) else value.encode())
        for name, value in headers
    )
    return RequestHead(**({"method": "POST", "path": "/mcp", "headers": pairs, "peer": peer} | more))


def bearing(token: str, **more: Any) -> RequestHead:
    return head(("authorization", f"Bearer {token}"), **more)


@contextlib.asynccontextmanager
async def proving(
    identity: IdentityConfig, issuer: Issuer | None = None, wall: Wall | None = None
) -> AsyncIterator[Proof]:
    """A proof in a world of its own."""
    with trio.fail_after(10**7):  # on a mock clock; on the real one pytest's own limit ends a test
        async with open_proof(
            identity,
            seams=world(wall),
            transport=Issuer().transport if issuer is None else issuer.transport,
        ) as proof:
            yield proof


async def proven(token: str, **more: Any) -> Proven | Refused:
    """What one issuer, configured in this way, proves by a token."""
    async with proving(config(jwt=(jwt_config(**more),))) as proof:
        return await proof.prove(bearing(token))


def header_of(refused: Refused, name: bytes) -> str | None:
    found = [value.decode() for key, value in refused.headers if key == name]
    assert len(found) < 2
    return found[0] if found else None


def is_refused(found: Proven | Refused | None, status: int, words: str = "") -> Refused:
    """Hold that something was refused in this way, in the form that every refusal has."""
    assert isinstance(found, Refused), "it was let through"
    assert found.status == status, found
    assert words in found.message, found
    body = json.loads(found.body)
    assert body["jsonrpc"] == "2.0"
    assert body["id"] is None
    assert body["error"]["data"]["code"] == found.code
    assert header_of(found, b"content-type") == "application/json"
    assert header_of(found, b"cache-control") == "no-store"
    challenge = header_of(found, b"www-authenticate")
    assert (challenge is not None) == (status == 401 or found.code == "invalid-request")
    return found

"""A scripted authorization server, to test against what OAuth does to an agent.

It has no socket: `transport` answers what an OAuth provider asks, and `protect` makes a `FakeServer` demand
its tokens. It is strict about what a client must send (PKCE, `state`, `resource`, the redirect it registered,
each code once), so that a client which leaves something out gets no token.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qsl, unquote_plus, urlencode, urlsplit

import attrs
import httpx
import trio

from ._actions import Status

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ._ledger import Arrival
    from ._server import FakeServer

Scripted: TypeAlias = "httpx.Response | Exception | Callable[[OAuthArrival], Awaitable[httpx.Response]]"


@attrs.frozen(eq=False)
class OAuthArrival:
    """One request that reached the authorization server, secrets included.

    Attributes:
        method: `GET` or `POST`.
        url: As it came.
        path: Its path.
        headers: Lower-case names.
        form: The fields of a form, or the members of a JSON body.
    """

    method: str
    url: str
    path: str
    headers: Mapping[str, str]
    form: Mapping[str, Any]


@attrs.define(eq=False)
class _Code:
    client_id: str
    redirect_uri: str
    challenge: str
    scope: str
    used: bool = False


@attrs.define(eq=False)
class _Rule:
    path: str
    answer: Scripted
    left: float


class FakeAuthorizationServer:
    """One authorization server and the metadata of the servers that it protects.

    Args:
        issuer: Its issuer identifier; may have a path.
        clients: Client id to secret (`None` for a public client) of those that are registered beforehand.
        lifetime: Seconds that an access token lasts; `None` says nothing of it.
        rotate: Whether each refresh gives a new refresh token and ends the old one.
        secret: Part of every token, code and client secret that it gives out, to look for afterwards.

    Attributes:
        arrivals: What came, oldest first.
        metadata: Its own document; change it, or set a member to `None` to leave it out.
        resources: The documents of the servers that it protects, by URL of the document; the same.
        scopes: The scopes of each living access token.
        denies: Whether who is asked for consent refuses.
        grants_only: Scopes that are ever granted; `None` grants what is asked for.
    """

    def __init__(
        self,
        issuer: str = "https://login.example",
        *,
        clients: Mapping[str, str | None] | None = None,
        lifetime: float | None = 3600.0,
        rotate: bool = True,
        secret: str = "secret",  # noqa: S107 -- a word to look for, not one to keep
    ) -> None:
        self.issuer = issuer
        self.lifetime = lifetime
        self.rotate = rotate
        self.secret = secret
        self.arrivals: list[OAuthArrival] = []
        self.resources: dict[str, dict[str, Any]] = {}
        self.scopes: dict[str, str] = {}
        self.denies = False
        self.grants_only: set[str] | None = None
        self.metadata: dict[str, Any] = {
            "issuer": issuer,
            "authorization_endpoint": f"{issuer}/authorize",
            "token_endpoint": f"{issuer}/token",
            "registration_endpoint": f"{issuer}/register",
            "scopes_supported": ["read", "write"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post", "none"],
            "authorization_response_iss_parameter_supported": True,
        }
        self._clients: dict[str, str | None] = dict(clients or {})
        self._codes: dict[str, _Code] = {}
        self._refresh: dict[str, str] = {}
        self._rules: list[_Rule] = []
        self._numbers = itertools.count(1)

    # ------------------------------------------------------------------ for tests

    @property
    def transport(self) -> httpx.AsyncBaseTransport:
        """What an OAuth provider connects through to reach it."""
        return httpx.MockTransport(self._handle)

    def protect(
        self, server: FakeServer, *, scope: str | None = None, anonymous: tuple[str, ...] = ()
    ) -> None:
        """Have an MCP server demand tokens of this authorization server.

        Args:
            server: Which.
            scope: Named in its challenge.
            anonymous: JSON-RPC methods that are answered without a token.
        """
        url = self.describe(server.url)
        named = "" if scope is None else f', scope="{scope}"'
        challenge = {"www-authenticate": f'Bearer resource_metadata="{url}"{named}'}

        def without_token(arrival: Arrival) -> bool:
            kind, _, token = arrival.headers.get("authorization", "").partition(" ")
            return arrival.name not in anonymous and not (kind == "Bearer" and token in self.scopes)

        server.on("*", Status(401, headers=challenge), when=without_token)

    def describe(self, resource: str, **members: Any) -> str:
        """Publish the metadata of a resource at its well-known place and return where that is."""
        url = self.describe_url(resource)
        self.resources[url] = {"resource": resource, "authorization_servers": [self.issuer], **members}
        return url

    @staticmethod
    def describe_url(resource: str) -> str:
        """Where the metadata of a resource has its well-known place."""
        parts = urlsplit(resource)
        return f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{parts.path.rstrip('/')}"

    def on(self, path: str, answer: Scripted, *, times: float = 1) -> None:
        """Script the next answers of a path that ends so; an exception is raised instead of an answer."""
        self._rules.append(_Rule(path, answer, times))

    def consent(self, url: str) -> str:
        """Play the user and the browser: open an authorization URL and return where it is sent back to.

        Raises:
            AssertionError: The request lacks something that a client must send.
        """
        asked = dict(parse_qsl(urlsplit(url).query))
        assert asked["response_type"] == "code"
        assert asked["code_challenge_method"] == "S256"
        assert asked["state"]
        assert asked["resource"] in {document["resource"] for document in self.resources.values()}
        back = {"state": asked["state"], "iss": self.issuer}
        if self.denies:
            back["error"] = "access_denied"
        else:
            code = self._new("code")
            self._codes[code] = _Code(
                asked["client_id"], asked["redirect_uri"], asked["code_challenge"], asked.get("scope", "")
            )
            back["code"] = code
        return f"{asked['redirect_uri']}?{urlencode(back)}"

    def revoke(self, *, refresh: bool = False) -> None:
        """End every access token, and every refresh token too."""
        self.scopes.clear()
        if refresh:
            self._refresh.clear()

    def asked(self, path: str) -> list[OAuthArrival]:
        """What came to a path that ends so."""
        return [arrival for arrival in self.arrivals if arrival.path.endswith(path)]

    def clients(self) -> list[str]:
        """The ids of the registered clients."""
        return list(self._clients)

    def forget_clients(self) -> None:
        """Drop every registered client."""
        self._clients.clear()

    # ------------------------------------------------------------------ as a server

    async def _handle(self, request: httpx.Request) -> httpx.Response:
        body = await request.aread()
        form: Mapping[str, Any] = {}
        if body:
            is_json = request.headers.get("content-type", "").startswith("application/json")
            form = json.loads(body) if is_json else dict(parse_qsl(body.decode()))
        arrival = OAuthArrival(
            request.method, str(request.url), request.url.path, dict(request.headers), form
        )
        self.arrivals.append(arrival)
        await trio.lowlevel.checkpoint()
        for rule in self._rules:
            if arrival.path.endswith(rule.path) and rule.left > 0:
                rule.left -= 1
                return await _scripted(rule.answer, arrival)
        return self._answer(arrival)

    def _answer(self, arrival: OAuthArrival) -> httpx.Response:
        document = self.resources.get(arrival.url)
        if document is not None:
            return _document(document)
        if arrival.url in self._places():
            return _document(self.metadata)
        if arrival.url == self.metadata["token_endpoint"] and arrival.method == "POST":
            return self._token(arrival)
        if arrival.url == self.metadata["registration_endpoint"] and arrival.method == "POST":
            return self._register(arrival)
        return httpx.Response(404)

    def _places(self) -> tuple[str, ...]:
        parts = urlsplit(self.issuer)
        return (f"{parts.scheme}://{parts.netloc}/.well-known/oauth-authorization-server{parts.path}",)

    def _register(self, arrival: OAuthArrival) -> httpx.Response:
        asked = arrival.form
        if asked.get("application_type") not in ("native", "web") or not asked.get("redirect_uris"):
            return _error("invalid_client_metadata")
        client_id = self._new("client").replace(self.secret, "id")
        method = asked.get("token_endpoint_auth_method", "client_secret_basic")
        secret = None if method == "none" else self._new("client-secret")
        self._clients[client_id] = secret
        answer = {"client_id": client_id, "token_endpoint_auth_method": method}
        if secret is not None:
            answer["client_secret"] = secret
        return httpx.Response(201, json=answer)

    def _token(self, arrival: OAuthArrival) -> httpx.Response:
        form = arrival.form
        client = self._client(arrival)
        if client is None:
            return _error("invalid_client", 401)
        if not form.get("resource"):
            return _error("invalid_target")
        kind = form.get("grant_type")
        if kind == "client_credentials":
            return self._grant(form.get("scope", ""), refresh=False)
        if kind == "refresh_token":
            scope = self._refresh.get(form.get("refresh_token", ""))
            if scope is None:
                return _error("invalid_grant")
            if self.rotate:
                del self._refresh[form["refresh_token"]]
            return self._grant(scope, refresh=self.rotate)
        if kind != "authorization_code":
            return _error("unsupported_grant_type")
        code = self._codes.get(form.get("code", ""))
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if (
            code is None
            or code.used
            or (code.client_id, code.redirect_uri) != (client, form.get("redirect_uri"))
            or base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != code.challenge
        ):
            return _error("invalid_grant")
        code.used = True
        return self._grant(code.scope, refresh=True)

    def _client(self, arrival: OAuthArrival) -> str | None:
        kind, _, pair = arrival.headers.get("authorization", "").partition(" ")
        client_id, secret = arrival.form.get("client_id"), arrival.form.get("client_secret")
        if kind == "Basic":
            raw_id, _, raw_secret = base64.b64decode(pair).decode().partition(":")
            client_id, secret = unquote_plus(raw_id), unquote_plus(raw_secret)
        if client_id is not None and client_id.startswith("https://"):
            return str(client_id)  # a client id metadata document
        if client_id not in self._clients or self._clients[client_id] != secret:
            return None
        return str(client_id)

    def _grant(self, scope: str, *, refresh: bool) -> httpx.Response:
        granted = scope.split()
        if self.grants_only is not None:
            granted = [word for word in granted if word in self.grants_only]
        token = self._new("token")
        self.scopes[token] = " ".join(granted)
        answer: dict[str, Any] = {"access_token": token, "token_type": "Bearer", "scope": " ".join(granted)}
        if self.lifetime is not None:
            answer["expires_in"] = self.lifetime
        if refresh:
            answer["refresh_token"] = self._new("refresh")
            self._refresh[answer["refresh_token"]] = scope
        return httpx.Response(200, json=answer)

    def _new(self, what: str) -> str:
        return f"{what}-{self.secret}-{next(self._numbers)}"


async def _scripted(answer: Scripted, arrival: OAuthArrival) -> httpx.Response:
    if isinstance(answer, Exception):
        raise answer
    if isinstance(answer, httpx.Response):
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)
    return await answer(arrival)


def _document(document: Mapping[str, Any]) -> httpx.Response:
    return httpx.Response(200, json={name: value for name, value in document.items() if value is not None})


def _error(code: str, status: int = 400) -> httpx.Response:
    return httpx.Response(status, json={"error": code, "error_description": "quoted by nobody"})

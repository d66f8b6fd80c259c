"""Every way to authenticate a request, and every failure of it: the secret is found nowhere.

Nowhere is: what is shown, filed, raised or logged, locals of our frames included. On the wire it is in the
request that it was meant for and in no other.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import httpx
import pytest
import trio

import afpool
from afpool import Identity, StaticCredentials, api_key, basic, bearer, header_map
from afpool.credentials import EnvironmentCredentials, FileCredentials, OAuth, OAuthClient, OAuthSettings
from afpool.testing import FakeAuthorizationServer, FakeServer, Status, echo_tool
from tests.credentials.oauth_kit import ALICE, BACK
from tests.pool.kit import Host, http_transport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CANARY = "canary-7d41b0"
OURS = Path(afpool.__file__).parent  # a checkout may be named as the package is
# What base64 makes of it behind any prefix, without the edges that depend on its neighbours.
ENCODED = [base64.b64encode(b"x" * number + CANARY.encode()).decode()[4:-4] for number in range(3)]
ISSUER = "https://login.example"


def shown(thing: Any, seen: set[int] | None = None, depth: int = 0) -> Iterator[str]:
    """All that is written in an object, in what it refers to, and in how it was raised, locals included."""
    seen = set() if seen is None else seen
    if id(thing) in seen or depth > 6 or thing is None:
        return
    seen.add(id(thing))
    yield repr(thing)
    if isinstance(thing, BaseException):
        yield str(thing)
        yield repr(vars(thing))
        yield "".join(traceback.format_exception(thing))
        own = traceback.TracebackException.from_exception(thing, capture_locals=True)
        for one in _chain(own):
            for frame in one.stack:
                if Path(frame.filename).is_relative_to(OURS):
                    yield f"{frame.name}: {frame.locals}"
        for next_one in (thing.__cause__, thing.__context__):
            yield from shown(next_one, seen, depth + 1)
        return
    if isinstance(thing, str | bytes | int | float):
        return
    if isinstance(thing, dict):
        for key, value in thing.items():
            yield from shown(key, seen, depth + 1)
            yield from shown(value, seen, depth + 1)
    elif isinstance(thing, list | tuple | set | frozenset):
        for value in thing:
            yield from shown(value, seen, depth + 1)
    elif attrs.has(type(thing)) and type(thing).__module__.startswith("afpool"):
        for field in attrs.fields(type(thing)):
            yield from shown(getattr(thing, field.name, None), seen, depth + 1)


def _chain(one: Any) -> Iterator[Any]:
    while one is not None:
        yield one
        one = one.__cause__ or one.__context__


def test_what_looks_for_it_would_find_it():
    def fail(secret: str) -> None:
        raise LookupError("words")

    def chained() -> None:
        try:
            fail(CANARY)
        except LookupError as inner:
            inner.add_note(CANARY)
            raise ValueError("outer") from inner

    for thing in (CANARY, [CANARY], {"a": CANARY}, LookupError(CANARY), attrs.make_class("A", ["x"])(CANARY)):
        assert any(CANARY in text for text in shown(thing))
    with pytest.raises(ValueError, match="outer") as caught:
        chained()
    assert any(CANARY in text for text in shown(caught.value))


@attrs.define(eq=False)
class Scene:
    mcp: FakeServer
    pool: afpool.Pool
    provider: Any
    login: FakeAuthorizationServer | None
    needs: list[Any]
    things: list[Any] = attrs.field(factory=list)

    async def attempt(self, doing: Callable[[], Any]) -> None:
        """Do something that may fail, and keep what came of it."""
        try:
            self.things.append(await doing())
        except afpool.AfpoolError as error:
            self.things.append(error)

    async def use(self) -> None:
        """List and call."""

        async def both() -> Any:
            tool = (await self.pool.tools(ALICE))["echo"]
            self.things += [tool, tool.binding]
            return await tool.call({"text": "x"}, identity=ALICE, deadline=trio.current_time() + 10)

        await self.attempt(both)

    async def consent(self) -> None:
        assert self.login is not None
        url = self.login.consent(self.needs.pop().authorization_url)
        await self.attempt(lambda: self.provider.complete_redirect(url, identity=ALICE))


class Signer:
    fails = False

    def sign(self, request: httpx.Request) -> dict[str, str]:
        if self.fails:
            raise RuntimeError(f"signing {CANARY}")
        return {"x-signature": f"signed-{CANARY}"}


@contextlib.asynccontextmanager
async def scene(provider: Any = None, *, login: Any = None, signer: Any = None, mode: str = "machine"):
    needs: list[Any] = []
    async with (
        FakeServer.http(tools=[echo_tool()], era="stateless") as mcp,
        contextlib.AsyncExitStack() as stack,
    ):
        if login is not None:
            login.protect(mcp, scope="read")
            settings = OAuthSettings(
                clients=(OAuthClient(client_id="host", client_secret=f"client-{CANARY}", issuer=ISSUER),),
                redirect_uri=BACK,
                backoff=0.001,
                backoff_max=0.002,
            )
            provider = await stack.enter_async_context(OAuth(settings, transport=login.transport))
        host = Host(http_transport(mcp))
        host.credential = afpool.CredentialRequirement("files", mode=mode)
        pool = await stack.enter_async_context(
            afpool.open_pool(
                [afpool.Server(name="files")],
                plan=host.plan,
                credentials=provider,
                signer=signer,
                on_authorization=lambda server, who, need: needs.append(need),
                backoff=0.001,
                backoff_max=0.002,
            )
        )
        s = Scene(mcp, pool, provider, login, needs)
        with trio.fail_after(20):
            yield s
        s.things += [
            pool, pool.statistics(), *pool.records.uses, *pool.records.events, provider, signer, mcp.url,
            host.credential,
        ]  # fmt: skip
        await pool.aclose()
        s.things += [*pool.records.uses, *pool.records.events]


def clean(s: Scene, caplog: Any) -> None:
    for text in (*(text for thing in s.things for text in shown(thing)), caplog.text):
        assert CANARY not in text, text[:2000]
        assert not any(encoded in text for encoded in ENCODED), text[:2000]
    for record in caplog.records:
        assert CANARY not in repr(record.__dict__)


@pytest.fixture(autouse=True)
def everything_is_logged(caplog):
    caplog.set_level(logging.DEBUG)


# ---------------------------------------------------------------------------- fixed credentials

FIXED = {
    "bearer": (bearer(CANARY), ("authorization", f"Bearer {CANARY}")),
    "api-key": (api_key(CANARY, "x-key"), ("x-key", CANARY)),
    "basic": (basic("u", CANARY), ("authorization", None)),
    "headers": (header_map({"x-one": CANARY, "x-two": f"{CANARY}-2"}), ("x-one", CANARY)),
}


@pytest.mark.parametrize("kind", FIXED)
@pytest.mark.parametrize("failure", ["none", "401", "403", "500", "redirect", "drop"])
async def test_fixed_credentials(kind, failure, caplog):
    credential, (header, value) = FIXED[kind]
    async with scene(StaticCredentials({"files": credential})) as s:
        await s.use()
        carried = [arrival for arrival in s.mcp.log if header in arrival.headers]
        assert len(carried) == len(s.mcp.log)
        if value is not None:
            assert all(arrival.headers[header] == value for arrival in carried)
        if failure == "401":
            s.mcp.on("tools/call", Status(401, headers={"www-authenticate": "Bearer"}))
        elif failure == "403":
            s.mcp.on("tools/call", Status(403, headers={"www-authenticate": 'Bearer scope="more"'}))
        elif failure == "500":
            s.mcp.on("tools/call", Status(500))
        elif failure == "drop":
            s.mcp.on("tools/call", afpool.testing.Drop())
        async with FakeServer.http(tools=[echo_tool()]) as other:
            if failure == "redirect":
                s.mcp.on("tools/call", Status(307, headers={"location": other.url}))
            await s.use()
            assert other.log == [], "never carried across origins"
        assert isinstance(s.things[-1], afpool.AfpoolError) == (failure != "none")
    clean(s, caplog)


@pytest.mark.parametrize("kind", ["environment", "file", "provider"])
@pytest.mark.parametrize("broken", [False, True])
async def test_other_providers(kind, broken, monkeypatch, tmp_path, caplog):
    value = f"{CANARY}\n\nx" if broken else CANARY
    provider: Any
    if kind == "environment":
        monkeypatch.setenv("T", value)
        provider = EnvironmentCredentials({"files": "T"})
    elif kind == "file":
        (tmp_path / "t").write_text(value)
        provider = FileCredentials({"files": tmp_path / "t"})
    else:

        class Own:
            async def get(self, request: Any) -> Any:
                await trio.lowlevel.checkpoint()
                return afpool.Issued(bearer(value))  # raises where it is broken

        provider = Own()
    async with scene(provider) as s:
        await s.use()
        assert isinstance(s.things[-1], afpool.CredentialFailed) == broken
    clean(s, caplog)


@pytest.mark.parametrize("broken", [False, True])
async def test_signers(broken, caplog):
    signer = Signer()
    async with scene(StaticCredentials({"files": CANARY}), signer=signer) as s:
        await s.use()
        assert s.mcp.arrivals("tools/call")[0].headers["x-signature"] == f"signed-{CANARY}"
        signer.fails = broken
        await s.use()
        failed = isinstance(s.things[-1], afpool.CredentialFailed)
        assert failed == broken
        if failed:
            # the signer's own words are its author's: told is what was raised, and where
            assert s.things[-1].__cause__ is s.things[-1].__context__ is None
            (note,) = s.things[-1].__notes__
            assert note.startswith("RuntimeError raised at ")
            assert "test_secrets_nowhere.py" in note
    clean(s, caplog)


# ---------------------------------------------------------------------------- OAuth


def login_server() -> FakeAuthorizationServer:
    return FakeAuthorizationServer(ISSUER, clients={"host": f"client-{CANARY}"}, secret=CANARY)


async def hang(arrival: Any) -> httpx.Response:
    await trio.sleep_forever()
    raise AssertionError


TOKEN_FAILURES: dict[str, Any] = {
    "down": httpx.ConnectError(f"connect {CANARY}"),
    "tls": httpx.ConnectError(f"[SSL: CERTIFICATE_VERIFY_FAILED] {CANARY}"),
    "timeout": httpx.ReadTimeout(CANARY),
    "503": httpx.Response(503, text=CANARY),
    "malformed": httpx.Response(200, text=f'{{"access_token": "{CANARY}"'),
    "not-bearer": httpx.Response(200, json={"access_token": CANARY, "token_type": CANARY}),
    "not-a-header": httpx.Response(200, json={"access_token": f"{CANARY}\n", "token_type": "Bearer"}),
    "number": httpx.Response(200, json={"access_token": {"x": CANARY}, "refresh_token": CANARY}),
    "invalid-grant": httpx.Response(400, json={"error": "invalid_grant", "error_description": CANARY}),
    "invalid-client": httpx.Response(401, json={"error": "invalid_client", "error_uri": CANARY}),
    "own-code": httpx.Response(400, json={"error": CANARY}),
    "redirect": httpx.Response(307, headers={"location": f"https://evil.example/?c={CANARY}"}),
    "large": httpx.Response(200, content=CANARY.encode() * 50_000),
    "compressed": httpx.Response(200, headers={"content-encoding": "br"}, content=CANARY.encode()),
}
DOCUMENT_FAILURES: dict[str, Any] = {
    "wrong-issuer": httpx.Response(200, json={"issuer": CANARY, "token_endpoint": CANARY}),
    "no-document": httpx.Response(200, text=CANARY),
    "redirected": httpx.Response(302, headers={"location": f"https://evil.example/{CANARY}"}),
    "gone": httpx.Response(500, text=CANARY),
}


def meant_for(login: FakeAuthorizationServer) -> None:
    """What the authorization server was sent is what it must be sent, and went to its token endpoint."""
    for arrival in login.arrivals:
        sent = json.dumps([arrival.url, dict(arrival.headers), dict(arrival.form)])
        if CANARY in sent or "Basic" in sent:
            assert arrival.url == f"{ISSUER}/token"
            assert arrival.method == "POST"
            assert CANARY not in arrival.url


@pytest.mark.parametrize("failure", ["none", *TOKEN_FAILURES, "hang"])
@pytest.mark.parametrize("mode", ["machine", "user"])
async def test_tokens_and_their_failures(mode, failure, caplog):
    """The first token fails, then the refresh; in between all is well."""
    login = login_server()

    def fail() -> None:
        if failure == "hang":
            login.on("/token", hang)
        elif failure != "none":
            login.on("/token", TOKEN_FAILURES[failure])

    async with scene(login=login, mode=mode) as s:
        if failure == "hang":
            s.provider._worker._network._timeout = 0.05
        for _ in range(2):
            fail()
            await s.use()
            if mode == "user" and s.needs:
                s.things += s.needs
                await s.consent()  # fails, where the code is what is refused
                await s.use()
            for _ in range(3):
                await trio.sleep(0.01)
                await s.use()
                if s.needs:
                    await s.consent()
            assert isinstance(s.things[-1], afpool.ToolResult), s.things[-1]
            login.revoke()
        meant_for(login)
    clean(s, caplog)


@pytest.mark.parametrize("failure", DOCUMENT_FAILURES)
async def test_documents_that_fail(failure, caplog):
    login = login_server()
    login.on("/.well-known/oauth-authorization-server", DOCUMENT_FAILURES[failure], times=9)
    async with scene(login=login) as s:
        await s.use()
        assert isinstance(s.things[-1], afpool.CredentialFailed)
        assert not login.asked("/token")
    clean(s, caplog)


async def test_a_step_up_and_tokens_that_are_refused(caplog):
    login = login_server()
    async with scene(login=login) as s:
        await s.use()
        more = {"www-authenticate": 'Bearer error="insufficient_scope", scope="write"'}
        s.mcp.on("tools/call", Status(403, headers=more), times=1)
        await s.use()
        s.mcp.clear_rules()
        s.mcp.on("tools/call", Status(401, headers={"www-authenticate": "Bearer"}))
        await s.use()
        assert isinstance(s.things[-1], afpool.AuthorizationRequired)
        meant_for(login)
    clean(s, caplog)


@pytest.mark.parametrize("wrong", ["state", "code", "iss", "denied", "nothing"])
async def test_answers_of_a_browser_that_are_refused(wrong, caplog):
    login = login_server()
    async with scene(login=login, mode="user") as s:
        await s.use()
        needs = s.needs.pop()
        login.denies = wrong == "denied"
        url = login.consent(needs.authorization_url)
        if wrong == "state":
            url = url.replace("state=", f"state={CANARY}")
        elif wrong == "code":
            url = url.replace("code=", f"code={CANARY}")
        elif wrong == "iss":
            url = url.replace("iss=", f"iss={CANARY}")
        elif wrong == "nothing":
            url = f"{BACK}?code={CANARY}"
        s.things.append(needs)
        await s.attempt(lambda: s.provider.complete_redirect(url))
        assert isinstance(s.things[-1], afpool.CredentialFailed)
        for text in shown(s.things[-1]):
            if "complete_redirect" not in text:  # the frame of whoever brought it
                assert needs.authorization_url not in text
    # what the browser brought is in the frame of the host that passes it on, and only there
    for thing in s.things:
        if isinstance(thing, BaseException):
            thing.__traceback__ = None
    clean(s, caplog)


def test_what_a_store_holds_is_not_shown():
    from afpool.credentials import StoredGrant
    from afpool.credentials._store import GrantKey

    grant = StoredGrant(
        issuer=ISSUER, resource="r", client_id="c", auth_method="none",
        access_token=afpool.Secret(CANARY), refresh_token=afpool.Secret(CANARY),
        client_secret=afpool.Secret(CANARY),
    )  # fmt: skip
    key = GrantKey("files", "r", (), "user", "acme", Identity(principal="alice").principal)
    for text in shown([grant, key, OAuthClient(client_id="c", client_secret=CANARY)]):
        assert CANARY not in text
        assert "alice" not in text or text == "'alice'"

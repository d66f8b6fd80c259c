"""Credentials and signatures of a simulated world: in which form they go out, and who signs how."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import httpx
import trio

from afpool import HttpxAuth, api_key, basic, bearer, header_map

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Mapping

    from afpool import Credential


class AppFault(Exception):
    """What the app's own code raises."""


def credential(form: str, value: str) -> Credential:
    """A credential of that form."""
    match form:
        case "basic":
            return basic("sim", value)
        case "api-key":
            return api_key(value, "x-sim-key")
        case "headers":
            return header_map({"x-sim-account": "sim", "x-sim-token": value})
    return bearer(value)


def bad_credential(form: str, value: str) -> Credential:
    """One that cannot be sent: its value holds a line break, or its header is not its own to say."""
    match form:
        case "api-key":
            return api_key(value, "content-length")
        case "headers":
            return header_map({"mcp-session-id": value})
        case "basic":
            return basic("a:b", value)
    return bearer(f"{value}\r\nx-evil: 1")


def carried(form: str, headers: Mapping[str, str]) -> str | None:
    """The value of a credential of that form in a request's headers; None where there is none."""
    match form:
        case "basic":
            text = headers.get("authorization", "").removeprefix("Basic ")
            return base64.b64decode(text).decode().partition(":")[2] or None
        case "api-key":
            return headers.get("x-sim-key")
        case "headers":
            return headers.get("x-sim-token") if headers.get("x-sim-account") == "sim" else None
    return headers.get("authorization", "").removeprefix("Bearer ") or None


# ------------------------------------------------------------------------------------------ signatures


def make_signer(how: str, value: Callable[[], str]) -> Any:
    """What signs, by the word that a world has for it.

    Args:
        how: See `Signing`.
        value: Gives a new secret, for each signature.
    """
    if how == "none":
        return None
    if how == "httpx-auth":
        return HttpxAuth(_Flow(value))
    if how == "httpx-challenged":
        return HttpxAuth(_Challenged(value))
    if how == "httpx-meddles":
        return HttpxAuth(_Meddling(value))
    return _SignsAgain(how, value) if how == "signs-again" else _Signer(how, value)


class _Signer:
    def __init__(self, how: str, value: Callable[[], str]) -> None:
        self._how = how
        self._value = value
        self._turn = 0

    @staticmethod
    def _bad(turn: int, value: str) -> Any:
        """Headers that cannot be sent, or are not its own to say; now and then good ones."""
        return [
            {"x-signature": value},
            {"mcp-method": value},
            {"x signature": value},
            {"x-signature": f"{value}\n"},
            {"x-signature": f"{value} \u20ac"},
            {"x-signature": f" {value}"},
            {"x-signature": value * 2000},
            {"x-signature": 7},
            {"x-signature": value, "X-Signature": value},
        ][turn % 9]

    def sign(self, request: httpx.Request) -> Any:
        """See `Signer`."""
        if self._how == "rubbish":
            return 7
        if self._how == "bad-header":
            self._turn += 1
            return self._bad(self._turn, self._value())
        if self._how == "at-once":
            return {"x-signature": self._value(), "cookie": self._value()}
        return self._later()

    async def _later(self) -> Mapping[str, str]:
        await trio.sleep(0.02 if self._how == "waits" else 0.0)
        if self._how == "raises":
            raise AppFault("no key to sign with")
        return {"x-signature": self._value()}


class _SignsAgain(_Signer):
    async def sign_again(self, request: httpx.Request, response: httpx.Response) -> Mapping[str, str]:
        """See `Signer`."""
        assert response.status_code == 401
        return await self._later()


class _Flow(httpx.Auth):
    def __init__(self, value: Callable[[], str]) -> None:
        self.value = value

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        request.headers["x-signature"] = self.value()
        yield request


class _Challenged(_Flow):
    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        response = yield request
        if response.status_code == 401:
            request.headers["x-signature"] = self.value()
            yield request


class _Meddling(_Flow):
    _turn = 0

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        await trio.lowlevel.checkpoint()
        self._turn += 1
        url = request.url if self._turn % 2 else "http://tokens.sim/token"
        yield httpx.Request("POST", url, content=self.value())

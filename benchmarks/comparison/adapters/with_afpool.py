"""afpool: one pool for all users, a key for each by tenant and principal, and a credential provider that
vends the token of whoever the request is for; timeouts by the `deadline` of the call. It runs on trio.
"""

from __future__ import annotations

import contextvars
import json
import os
import sys
import time
from typing import Any

import trio
from adapting import Host, Lacking, carried_out, described, learned, quiet, say

import afpool
from afpool import (
    CredentialRequest,
    CredentialRequirement,
    HttpTransport,
    Identity,
    Issued,
    Plan,
    Server,
    StdioTransport,
    bearer,
)

who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


class PoolHost(Host):
    """Also the credential provider of its pool."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.tokens: dict[str, str] = {}
        self.where: dict[str, dict[str, Any]] = {}
        self.tools: dict[str, Any] = {}
        self.pool: Any = None
        self.ready = trio.Lock()
        self.reads_ambient = False

    async def get(self, request: CredentialRequest) -> Issued:
        await trio.lowlevel.checkpoint()
        return Issued(
            bearer(who.get() if self.reads_ambient else self.tokens[str(request.identity.principal)])
        )

    def plan(self, _: str, identity: Identity) -> Plan:
        where = self.where[str(identity.principal)]
        if "command" in where:
            return Plan(transport=StdioTransport.of(*where["command"]))
        return Plan(
            transport=HttpTransport(url=where["url"]), credential=CredentialRequirement("lab", mode="user")
        )

    def identity(self, user: str) -> Identity:
        return Identity(tenant="acme", principal=user)

    async def open(self, user: str, **where: Any) -> None:
        self.where[user] = where
        self.tokens[user] = where.get("token", "")
        async with self.ready:
            if self.pool is None:
                options = {"idle_timeout": where["idle"]} if "idle" in where else {}
                servers = [Server(name="lab", keyed_on=("tenant", "principal"))]
                self.pool = await self.nursery.start(
                    afpool.run_pool, servers, {"plan": self.plan, "credentials": self, **options}
                )
        await self.list(user)

    async def list(self, user: str) -> list[dict[str, Any]]:
        self.tools[user] = await self.pool.tools(self.identity(user))
        if self.tools[user].problems:
            raise next(iter(self.tools[user].problems.values()))
        return [described(name, tool.description) for name, tool in self.tools[user].items()]

    async def call(self, user: str, tool: str, args: dict[str, Any], timeout: float) -> str:
        result = await self.tools[user][tool].call(
            args, identity=self.identity(user), deadline=trio.current_time() + timeout
        )
        return str(result.text)

    async def rotate(self, user: str, token: str) -> None:
        await trio.lowlevel.checkpoint()
        self.tokens[user] = token

    async def close(self, user: str) -> None:
        await trio.lowlevel.checkpoint()
        self.pool.invalidate(identity=self.identity(user), reason="the user has gone")
        self.tools.pop(user, None)

    async def shutdown(self) -> None:
        if self.pool is not None:
            await self.pool.aclose()

    async def ambient(self, url: str) -> None:
        who.set("opener")
        self.reads_ambient = True
        await self.open("ambient", url=url, token="")

    async def ambient_call(self, token: str, args: dict[str, Any]) -> str:
        who.set(token)
        return await self.call("ambient", "echo", args, 30.0)


class TrioRunner:
    """The child, on trio; see `adapting.Runner`."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.host = PoolHost(nursery)
        self.scopes: dict[int, trio.CancelScope] = {}
        self.asked: dict[int, float] = {}

    async def one(self, told: dict[str, Any], scope: trio.CancelScope) -> None:
        began = time.perf_counter()
        number = told["id"]
        answer: dict[str, Any] = {"id": number, "ended": "cancelled"}
        with scope:
            try:
                answer.update(await carried_out(self.host, told))
                answer["ended"] = "ok"
            except Lacking:
                answer["ended"] = "lacking"
            except Exception as error:  # noqa: BLE001 - whatever a library raises is what is reported
                answer["ended"] = "error"
                answer["learned"] = learned(error)
        answer["seconds"] = time.perf_counter() - began
        if number in self.asked:
            answer["back"] = time.perf_counter() - self.asked[number]
        say(answer)
        self.scopes.pop(number, None)

    def take(self, told: dict[str, Any]) -> None:
        if told["do"] == "cancel":
            scope = self.scopes.get(told["of"])
            if scope is not None:
                self.asked[told["of"]] = time.perf_counter()
                scope.cancel()
        elif told["do"] == "renew":
            self.host = PoolHost(self.nursery)
            say({"id": told["id"], "ended": "ok", "seconds": 0.0})
        else:
            scope = self.scopes[told["id"]] = trio.CancelScope()
            self.nursery.start_soon(self.one, told, scope)


async def run() -> None:
    async with trio.open_nursery() as nursery:
        runner = TrioRunner(nursery)
        say({"ready": True})
        buffer = b""
        stdin = trio.lowlevel.FdStream(os.dup(sys.stdin.fileno()))
        async for chunk in stdin:
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                runner.take(json.loads(line))
        os._exit(0)


if __name__ == "__main__":
    quiet()
    trio.run(run)

"""What a client's requests carry is not quoted in errors, and is told to whoever shows answers to others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from afpool import (
    AfpoolError,
    AuthorizationRequired,
    CredentialRequirement,
    HttpTransport,
    Identity,
    Plan,
    ScriptedCredentials,
    Server,
    ServerError,
    StaticCredentials,
    ToolContext,
    api_key,
    basic,
    bearer,
    open_pool,
)
from afpool.client._carried import Carried
from afpool.testing import FakeServer, JsonRpcError, Status, echo_tool, whoami_tool
from tests.canary.forms import canary

TOKEN = canary("a token")
ALICE = Identity(tenant="acme", principal="alice")
GONE = "[host-filled]"


def test_nothing_carried_changes_nothing() -> None:
    carried = Carried({"accept-language": "de"}.items())
    error = ServerError("denied de")
    assert not carried
    assert list(carried) == []
    assert carried.clean(error) is error
    assert error.message == carried.text("denied de") == "denied de"


def test_errors_are_cleaned_of_what_was_carried() -> None:
    carried = Carried()
    carried.note(bearer(TOKEN))
    error = ServerError(f"denied {TOKEN}", www_authenticate=f'Bearer error="{TOKEN}"')
    error.data = {"sent": [json.dumps({"token": TOKEN})]}
    assert carried.clean(error) is error
    assert (error.message, error.args, error.data) == (f"denied {GONE}", (f"denied {GONE}",), GONE)
    assert error.www_authenticate == f'Bearer error="{GONE}"'
    assert str(error) == f"server-error (answered): denied {GONE}"
    other = ServerError("denied")
    other.data = {"sent": [1]}
    assert carried.clean(other).data == {"sent": [1]}  # type: ignore[attr-defined]
    assert TOKEN not in repr(carried)


def test_of_plans_and_signers_count_the_headers_that_authenticate() -> None:
    carried = Carried({"X-Api-Key": TOKEN, "x-trace": "abcdefgh"}.items())
    carried.note_headers([(b"authorization", b"Own s3cr3t-pair"), (b"x-date", b"20261130")])
    assert carried.text(f"{TOKEN} abcdefgh s3cr3t-pair 20261130") == f"{GONE} abcdefgh {GONE} 20261130"


def test_whatever_may_go_out_as_a_header_may_be_noted() -> None:
    carried = Carried(
        [("cookie", "one=s3cr3t\tand more"), ("cookie", ""), ("Cookie", "two=0ther"), ("te", "x")]
    )
    assert carried.text("one=s3cr3t\tand more, two=0ther, x") == f"{GONE}, {GONE}, x"
    assert [name for one in carried for name, _ in one.to_headers()] == ["cookie", "cookie"]


def test_only_the_last_few_are_kept() -> None:
    carried = Carried()
    held = [api_key(f"number-{number:04}") for number in range(9)]
    for one in (*held, held[-1], held[-2], held[5]):
        carried.note(one)
    assert list(carried) == [held[6], held[8], held[7], held[5]]
    assert carried.text("number-0001 number-0007") == f"number-0001 {GONE}"


@pytest.mark.parametrize("way", ["a credential", "a static header", "a signer"])
async def test_a_server_that_repeats_it_is_not_quoted(way: str) -> None:
    class Signer:
        def sign(self, request: Any) -> dict[str, str]:
            return {"authorization": f"Own {TOKEN}"}

    needs = CredentialRequirement("crm") if way == "a credential" else None
    headers = {"authorization": f"Bearer {TOKEN}"} if way == "a static header" else {}
    told: list[Any] = []
    async with FakeServer.http(tools=[echo_tool()]) as server:
        plan = Plan(transport=HttpTransport(url=server.url, headers=headers), credential=needs)
        async with open_pool(
            [Server(name="crm", plan=plan)],
            credentials=StaticCredentials({"crm": TOKEN}),
            signer=Signer() if way == "a signer" else None,
        ) as pool:
            tool = (await pool.tools(ALICE))["echo"]
            server.on("tools/call", JsonRpcError(-32000, f"denied {TOKEN}", {"with": TOKEN}), times=1)
            with pytest.raises(ServerError, match=r"denied \[host-filled\]") as caught:
                await tool.execute({}, ToolContext(identity=ALICE, on_credential=told.append))
            assert caught.value.data == GONE
            assert any(TOKEN in secret for one in told for secret in one.secrets())
            refusal = {"www-authenticate": f'Bearer error="{TOKEN}"'}
            server.on("tools/call", Status(401, headers=refusal))
            with pytest.raises(AuthorizationRequired) as refused:
                await tool.call({}, identity=ALICE)
            assert refused.value.www_authenticate == f'Bearer error="{GONE}"'
            server.clear_rules()
            pool.invalidate(server="crm")
            server.on("*", JsonRpcError(-32000, f"no {TOKEN}"))
            with pytest.raises(AfpoolError, match=r"no \[host-filled\]"):
                await pool.bind(ALICE, "crm")


async def test_a_call_tells_each_credential_before_its_answer_comes_and_the_answer_stays_as_it_came() -> None:
    first, second = basic("u", TOKEN), bearer("another-one")
    told: list[Any] = []
    async with FakeServer.http(tools=[whoami_tool(headers=["authorization"])]) as server:
        plan = Plan(transport=HttpTransport(url=server.url), credential=CredentialRequirement("crm"))
        script = ScriptedCredentials(lambda request: second if request.rejected else first)
        async with open_pool([Server(name="crm", plan=plan)], credentials=script) as pool:
            tool = (await pool.tools(ALICE))["whoami"]
            server.on("tools/call", Status(401), times=1)
            result = await tool.execute({}, ToolContext(identity=ALICE, on_credential=told.append))
            assert {id(one) for one in told} == {id(first), id(second)}
            assert told[0] is first
            assert "Bearer another-one" in result.text

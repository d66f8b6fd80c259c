"""Another configuration again and again, under load: servers have seen what callers were told, no more."""

from __future__ import annotations

import functools
from collections import Counter
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from afpool import AfpoolError, CredentialRequest, CredentialRequirement, Identity, Issued, bearer
from afpool.testing import sleep_tool, whoami_tool
from tests.pool.kit import ALICE, person, quiet, refused, until
from tests.pool.reload_kit import several

if TYPE_CHECKING:
    from tests.pool.reload_kit import Several

PEOPLE = 12
CALLS = 40


async def _calls(here: Several, who: Identity, ended: dict[str, str]) -> None:
    """Calls of one identity, on tools that are listed anew when they are refused, and not before."""
    tools: dict[str, Any] = {}
    for number in range(CALLS):
        server = ("files", "mail", "web")[number % 3]
        call_id = f"{who.principal}-{number}"
        try:
            if server not in tools:
                tools[server] = await here.tool(server, "sleep", who)
            call = tools[server].call({"seconds": 0.001, "id": call_id}, identity=who, call_id=call_id)
            await call
        except LookupError:
            ended[call_id] = "gone"
        except AfpoolError as error:
            ended[call_id] = f"{error.code} {error.delivery}"
            tools.pop(server, None)
        else:
            ended[call_id] = "ok"


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "shared"])
async def test_no_call_is_lost_or_runs_twice_while_servers_change_come_and_go(shared, autojump_clock):
    fakes = ("files", "mail", "web")
    share = (lambda server, who: "team") if shared else None
    ended: dict[str, str] = {}
    people = [person(number) for number in range(PEOPLE)]
    with trio.fail_after(600):
        async with several(fakes=fakes, tools=[sleep_tool("sleep")], share=share, max_operations=2) as here:
            async with trio.open_nursery() as nursery:
                for who in people:
                    nursery.start_soon(_calls, here, who, ended)
                for number in range(40):
                    mail = here.server("mail", mark=str(number // 2), validate_output=bool(number % 2))
                    web = ["web"] if number % 4 else []
                    here.configure("files", mail, *web)
                    await trio.sleep(0.01)
            here.configure("files", here.server("mail", mark="20"), "web")
            await until(lambda: not here.pool.settling)
            quiet(here.pool)
            ran: Counter[str] = Counter(
                arrival.arguments["id"]
                for fake in here.fakes.values()
                for arrival in fake.arrivals("tools/call")
            )
            counts = Counter(ended.values())
            assert set(counts) <= {"ok", "gone", "binding-changed not-sent"}, counts
            assert min(counts["ok"], counts["binding-changed not-sent"]) > 20, counts
            assert set(ran.values()) == {1}, "I3: no call ran twice"
            assert {call for call, how in ended.items() if how == "ok"} == set(ran), "I10"
            assert here.fakes["files"].count("initialize") == PEOPLE, "it stayed as it was"
            await until(lambda: len(here.pool.openings.clients) <= 3 * PEOPLE)
            here.configure("files")
            await here.alone("files")
            assert not here.fakes["mail"].sessions
            assert not here.fakes["web"].sessions


class Vault:
    """Gives each user a token that says which vault it is of."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    async def get(self, request: CredentialRequest) -> Issued:
        await trio.lowlevel.checkpoint()
        return Issued(bearer(f"{self.mark}-{request.identity.principal}"))


async def test_another_provider_of_credentials_changes_those_that_may_need_one():
    tools = [whoami_tool(headers=["authorization"])]
    async with several(tools=tools, credentials=Vault("old")) as here:
        files = functools.partial(here.plan, "files", credential=CredentialRequirement("files", mode="user"))

        def configure(**how: Any) -> Any:
            server = here.server("files")
            return here.configure(attrs.evolve(server, plan=files()), "mail", **how)

        configure()
        tool, other = await here.tool("files", "whoami"), await here.tool("mail", "whoami")
        assert "old-alice" in (await tool.call(identity=ALICE)).text
        done = configure(credentials=Vault("new"))
        assert (done.changed, done.unchanged) == (("files",), ("mail",))
        await refused(tool.call(identity=ALICE), "binding-changed")
        fresh = await here.tool("files", "whoami")
        assert "new-alice" in (await fresh.call(identity=ALICE)).text
        await other.call(identity=ALICE)
        assert here.fakes["mail"].count("initialize") == 1

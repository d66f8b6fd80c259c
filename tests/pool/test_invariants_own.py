"""I1 and I12: a request leaves on its own key's client, and no connection or session carries two people.

Read from the server's side: who called is in the arguments and in the credential, and the ledger knows the
connection and the session of each arrival.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import pytest
import trio

import afpool
from afpool import CredentialRequirement
from tests.pool.kit import person, quiet, start, world

if TYPE_CHECKING:
    from afpool import CredentialRequest, Identity
    from tests.pool.kit import World

PEOPLE = [person(number) for number in range(12)]


class Provider:
    """Everybody has a token of their own."""

    async def get(self, request: CredentialRequest) -> afpool.Issued:
        await trio.lowlevel.checkpoint()
        return afpool.Issued(afpool.bearer(f"of-{request.identity.principal}"))


async def everybody_calls(w: World, *, disturbed: bool) -> None:
    async def use(who: Identity) -> None:
        tool = await w.tool(who)
        for number in range(6):
            await tool.call({"who": who.principal}, identity=who)
            if disturbed and number % 2:
                w.pool.evict(w.pool.key_of(who, "files"))

    async with trio.open_nursery() as nursery:
        calls = [start(nursery, lambda who=who: use(who)) for who in PEOPLE]
        for call in calls:
            await call.answer()


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "shared"])
@pytest.mark.parametrize("disturbed", [False, True], ids=["calm", "evicted"])
@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_no_connection_and_no_session_carries_two_people(era, disturbed, shared):
    requirement = CredentialRequirement("files", mode="user")
    with trio.fail_after(30):
        async with world(credential=requirement, http={"era": era}, pool={"credentials": Provider()}) as w:
            if shared:
                w.host.names = {who.principal: "team" for who in PEOPLE}
            await everybody_calls(w, disturbed=disturbed)
            by_connection: dict[int, set[str]] = defaultdict(set)
            by_session: dict[str, set[str]] = defaultdict(set)
            for arrival in w.server.log:
                by_connection[arrival.connection].add(arrival.headers["authorization"])
                if arrival.session_id is not None:
                    by_session[arrival.session_id].add(arrival.headers["authorization"])
            assert all(len(people) == 1 for people in by_connection.values()), by_connection
            assert all(len(people) == 1 for people in by_session.values()), by_session
            calls = w.server.arrivals("tools/call")
            assert len(calls) == 6 * len(PEOPLE)
            for arrival in calls:
                assert arrival.headers["authorization"] == f"Bearer of-{arrival.arguments['who']}"
            if era == "handshake":
                assert len(by_session) >= len(PEOPLE)
            quiet(w.pool)

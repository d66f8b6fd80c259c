"""What is asked of a bound server, against the reference server, which has all of it."""

from __future__ import annotations

import pytest
import trio

import afpool
from tests.peers.pool_peer_kit import ALICE, Target, server_of, transport_of

pytestmark = pytest.mark.peer


@pytest.mark.parametrize("kind", ["http", "stdio"])
async def test_the_reference_server_answers_all_of_it(kind, request):
    target = Target("everything", kind)
    server_settings = server_of(target, transport_of(request, target))
    with trio.fail_after(30):
        async with afpool.open_pool([server_settings]) as pool:
            server = await pool.bind(ALICE, "peer")
            resources = await server.resources(identity=ALICE)
            uri = resources[0]["uri"]
            assert (await server.read_resource(uri, identity=ALICE)).contents[0].uri == uri
            assert len(await server.resource_templates(identity=ALICE)) > 0
            prompts = await server.prompts(identity=ALICE)
            plain = next(item for item in prompts if not item.get("arguments"))
            assert (await server.get_prompt(plain["name"], identity=ALICE)).messages
            await server.set_log_level("error", identity=ALICE)
            async with await server.subscribe(uri, identity=ALICE) as changes:
                assert changes.open
            uses = list(pool.records.uses)
            assert [use.delivery for use in uses] == ["answered"] * 7

"""Artifacts and linked resources, read by their owner alone; results in the words of each revision."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afpool import Identity, ToolResult
from afpool.artifacts import MemoryArtifacts, NewArtifact
from afpool.serve._kept import PAGE
from afpool.serve._links import Links
from afpool.serve._results import write_result
from afpool.testing import FakeResource, FakeTool
from tests.serve.serve_kit import ALICE, BOB, STATELESS, place

INFO = {"name": "afpool", "version": "1"}
IDENTITIES = st.builds(Identity, *[st.none() | st.text(max_size=3)] * 3)


async def test_artifacts_are_listed_and_read_by_their_owner_only(tmp_path):
    store = MemoryArtifacts()
    async with place(tmp_path, runtime={"artifacts": store}) as here:
        made = {}
        for kind, data in [("text", "hello"), ("binary", b"\x00\xff"), ("json", {"n": [1]})]:
            new = NewArtifact(kind=kind, media_type=f"x/{kind}", data=data, label=f"the {kind}")
            made[kind] = (await store.put(ALICE, new)).ref
        alice, bob = await here.opened(ALICE), await here.opened(BOB)
        listed = (await alice.rpc("resources/list"))["result"]["resources"]
        assert {each["uri"] for each in listed} == {f"afpool://artifact/{ref}" for ref in made.values()}
        assert {each["name"] for each in listed} == {"the text", "the binary", "the json"}
        contents = {}
        for kind, ref in made.items():
            read = (await alice.rpc("resources/read", {"uri": f"afpool://artifact/{ref}"}))["result"]
            (contents[kind],) = read["contents"]
        assert contents["text"]["text"] == "hello"
        assert base64.b64decode(contents["binary"]["blob"]) == b"\x00\xff"
        assert json.loads(contents["json"]["text"]) == {"n": [1]}
        assert contents["json"]["mimeType"] == "x/json"
        # another's, one that never was, and what is no reference are one answer
        assert (await bob.rpc("resources/list"))["result"]["resources"] == []
        for uri in (
            f"afpool://artifact/{made['text']}",
            f"afpool://artifact/art_{'x' * 22}",
            "file:///etc/passwd",
        ):
            assert (await bob.rpc("resources/read", {"uri": uri}))["error"] == {
                "code": -32002,
                "message": "there is no such resource here, or not any more",
                "data": {"uri": uri},
            }
        templates = (await alice.rpc("resources/templates/list"))["result"]["resourceTemplates"]
        assert templates[0]["uriTemplate"] == "afpool://artifact/{ref}"


async def test_many_artifacts_come_in_pages(tmp_path):
    store = MemoryArtifacts(max_count_per_scope=PAGE * 3)
    async with place(tmp_path, runtime={"artifacts": store}) as here:
        for number in range(PAGE + 5):
            await store.put(ALICE, NewArtifact(kind="n", media_type="text/plain", data=str(number)))
        client, found, cursor = here.client(ALICE), [], None
        while True:
            answer = await client.modern_rpc("resources/list", {} if cursor is None else {"cursor": cursor})
            result = answer.json["result"]
            found += [each["uri"] for each in result["resources"]]
            cursor = result.get("nextCursor")
            if cursor is None:
                break
        assert len(found) == len(set(found)) == PAGE + 5


async def test_what_a_result_links_to_is_read_from_its_server_by_whom_it_was_given_to(tmp_path):
    link = {"type": "resource_link", "uri": "note://one", "name": "one"}
    tool = FakeTool("find", lambda *_: {"content": [link]})
    async with place(tmp_path, servers={"desk": [tool]}) as here:
        here.server.offers.resources.append(FakeResource("note://one", "the note"))
        alice, bob = await here.opened(ALICE), await here.opened(BOB)
        (block,) = (await alice.call("find"))["content"]
        assert block["uri"].startswith("afpool://resource/desk/")
        read = (await alice.rpc("resources/read", {"uri": block["uri"]}))["result"]["contents"]
        assert [(part["uri"], part["text"]) for part in read] == [(block["uri"], "the note")]
        for uri in (block["uri"], "note://one", block["uri"][:-1]):
            client = bob if uri == block["uri"] else alice
            assert (await client.rpc("resources/read", {"uri": uri}))["error"]["code"] == -32002
        modern = (await here.client(ALICE).modern_rpc("tools/call", {"name": "find", "arguments": {}})).json
        uri = modern["result"]["content"][0]["uri"]
        assert (await here.client(ALICE).modern_rpc("resources/read", {"uri": uri})).json["result"][
            "contents"
        ]


async def test_without_a_store_there_are_no_artifacts_and_no_errors(tmp_path):
    async with place(tmp_path) as here:
        client = await here.opened()
        assert (await client.rpc("resources/list"))["result"]["resources"] == []
        assert (await client.rpc("resources/read", {"uri": "afpool://artifact/x"}))["error"]["code"] == -32002


@given(IDENTITIES, IDENTITIES, st.text(min_size=1, max_size=5), st.text(min_size=1, max_size=20))
def test_a_links_name_opens_for_its_owner_and_for_nobody_else(owner, other, server, uri):
    links = Links(b"s" * 32)
    name = links.make(owner, server, uri)
    assert links.read(owner, name) == (server, uri)
    if other != owner:
        assert links.read(other, name) is None
    assert Links(b"t" * 32).read(owner, name) is None


@given(st.text(max_size=60))
def test_what_is_no_name_of_ours_is_none(text):
    assert Links(b"s" * 32).read(ALICE, "afpool://resource/" + text) is None


def written(document, version, link=None):
    raw = document if isinstance(document, bytes) else json.dumps(document).encode()
    return json.loads(write_result(ToolResult(raw, "c"), version, INFO, link))


def test_a_result_goes_out_as_it_came():
    raw = b'{ "content":[{"type":"text","text":"\\u00e9"}] , "odd":1e5}'
    assert write_result(ToolResult(raw, "c"), "2025-06-18", INFO, None) is raw


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26"])
def test_older_clients_are_told_in_text_what_they_have_no_words_for(version):
    document = {
        "content": [
            {"type": "resource_link", "uri": "u:1", "name": "n"},
            {"type": "audio", "data": "AA==", "mimeType": "audio/wav"},
        ],
        "structuredContent": {"a": 1},
    }
    told = written(document, version)
    assert "structuredContent" not in told
    assert told["content"][0] == {"type": "text", "text": "n: u:1"}
    assert told["content"][1]["type"] == ("audio" if version == "2025-03-26" else "text")
    only = written({"content": [], "structuredContent": {"a": 1}}, version)
    assert only["content"] == [{"type": "text", "text": '{"a":1}'}]


@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", STATELESS])
def test_results_of_old_forms_get_a_content(version):
    assert written({"toolResult": "x"}, version)["content"] == [{"type": "text", "text": "x"}]
    assert written({"structuredContent": {"content": [1]}}, version)["content"][0]["type"] == "text"
    assert written({}, version)["content"] == []


def test_in_the_stateless_era_a_result_says_who_serves_it_whatever_its_server_said():
    meta = {"io.modelcontextprotocol/serverInfo": {"name": "theirs"}, "own": 1}
    told = written({"content": [], "_meta": meta, "resultType": "other"}, STATELESS)
    assert told["_meta"] == {"io.modelcontextprotocol/serverInfo": INFO, "own": 1}
    assert told["resultType"] == "complete"

"""Parameters beside tool calls, and the notices about their things."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afpool.protocol import (
    LOG_LEVELS,
    Era,
    MalformedMessage,
    NotJson,
    PageGuard,
    completion_members,
    honoured_uris,
    level_members,
    prompt_members,
    read_cache_hint,
    read_items_page,
    read_log,
    read_updated,
    request_params,
    subscription_id,
    uri_members,
)

TEXT = st.text(st.characters(exclude_categories=("Cs",)))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(
    uri=TEXT,
    cursor=st.none() | TEXT,
    token=st.none() | st.integers(0, 2**31),
    call_id=TEXT,
    meta=st.sampled_from([b"", b'"a":1']),
)
def test_what_is_built_says_what_was_given(uri, cursor, token, call_id, meta):
    built = request_params(
        uri_members(uri),
        meta=meta,
        cursor=cursor,
        progress_token=token,
        call_id_key="k/id",
        call_id=call_id,
        input_responses=b'{"r":1}',
        request_state=b'"s"',
    )
    assert built is not None
    assert b"\n" not in built
    wanted = {"uri": uri, "inputResponses": {"r": 1}, "requestState": "s"}
    if cursor is not None:
        wanted["cursor"] = cursor
    inside = {"k/id": call_id}
    if meta:
        inside["a"] = 1
    if token is not None:
        inside["progressToken"] = token
    assert json.loads(built) == {**wanted, "_meta": inside}


def test_nothing_is_built_of_nothing():
    assert request_params() is None
    assert request_params(call_id="x") is None
    assert json.loads(request_params(cursor="")) == {"cursor": ""}


def test_members():
    def of(members):
        return json.loads(request_params(members))

    assert of(prompt_members("p", None)) == {"name": "p"}
    assert of(prompt_members("p", {"a": "b"})) == {"name": "p", "arguments": {"a": "b"}}
    assert of(level_members("info")) == {"level": "info"}
    assert of(completion_members({"type": "ref/prompt"}, {"name": "n", "value": "v"}, {"x": "y"})) == {
        "ref": {"type": "ref/prompt"},
        "argument": {"name": "n", "value": "v"},
        "context": {"arguments": {"x": "y"}},
    }
    with pytest.raises(NotJson):
        uri_members("\ud800")


@given(st.none() | JSON)
def test_readers_never_raise_on_any_json(value):
    raw = None if value is None else json.dumps(value).encode()
    for reader in (read_log, read_updated, honoured_uris, subscription_id):
        reader(raw)
    assert read_cache_hint(raw or b"") == (0, "private") or isinstance(value, dict)


@given(st.binary(max_size=40))
def test_readers_never_raise_on_any_bytes(raw):
    for reader in (read_log, read_updated, honoured_uris, subscription_id, read_cache_hint):
        reader(raw)


@given(level=st.sampled_from(LOG_LEVELS), data=JSON, logger=st.none() | TEXT)
def test_a_log_message_is_read_as_it_was_sent(level, data, logger):
    notice = read_log(json.dumps({"level": level, "data": data, "logger": logger}).encode())
    assert notice is not None
    assert (notice.level, json.loads(notice.data), notice.logger) == (level, data, logger)


def test_what_is_no_log_message():
    for junk in (b"7", b"{", b'{"level":"loud"}', b'{"level":7}', b'{"data":1}', b""):
        assert read_log(junk) is None


def test_what_an_acknowledgement_grants():
    assert honoured_uris(b'{"notifications":{"resourceSubscriptions":["a",7]}}') == {"a"}
    assert honoured_uris(b'{"notifications":{}}') is None
    assert honoured_uris(b"[]") is None
    assert subscription_id(b'{"_meta":{"io.modelcontextprotocol/subscriptionId":4}}') == 4
    assert subscription_id(b'{"_meta":7}') is None
    assert read_updated(b'{"uri":"a"}') == "a"
    assert read_updated(b'{"uri":7}') is None


@pytest.mark.parametrize("member", ["resources", "resourceTemplates", "prompts"])
def test_a_page(member):
    raw = json.dumps({member: [{"a": 1}, 7], "nextCursor": "", "ttlMs": 5, "cacheScope": "public"}).encode()
    page = read_items_page(raw, member)
    assert [json.loads(bytes(item)) for item in page.items] == [{"a": 1}, 7]
    assert page[1:] == ("", 5, "public")
    guard = PageGuard()
    assert guard.follow(page) == ""
    with pytest.raises(MalformedMessage):
        guard.follow(page)
    for junk in (b"{}", b"[]", b'{"%b":7}' % member.encode(), b'{"%b":[],"nextCursor":7}' % member.encode()):
        with pytest.raises(MalformedMessage):
            read_items_page(junk, member)
    asks = b'{"%b":[],"resultType":"input_required"}' % member.encode()
    with pytest.raises(MalformedMessage):
        read_items_page(asks, member)
    assert read_items_page(asks, member, Era.HANDSHAKE).items == []

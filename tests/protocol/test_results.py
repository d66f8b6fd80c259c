import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afpool.protocol import (
    Era,
    ListPage,
    MalformedMessage,
    PageGuard,
    read_call_result,
    read_discovered,
    read_initialized,
    read_list_page,
    read_supported,
)


def test_a_page():
    page = read_list_page(
        b'{"tools":[{"name": "a"}, {"n":1.50}],"nextCursor":"c","ttlMs":5000,"cacheScope":"public"}'
    )
    assert [bytes(tool) for tool in page.tools] == [b'{"name": "a"}', b'{"n":1.50}']
    assert page[1:] == ("c", 5000, "public")


@pytest.mark.parametrize(
    ("members", "cursor"),
    [
        ("", None),
        (',"nextCursor":null', None),
        (',"nextCursor":""', ""),
        (',"nextCursor":"\\ud800"', "\ud800"),
    ],
)
def test_the_cursor_ends_where_it_is_absent(members, cursor):
    assert read_list_page(f'{{"tools":[]{members}}}'.encode()).next_cursor == cursor


@pytest.mark.parametrize(
    ("ttl", "expected"),
    [
        ("-5", 0),
        ("0", 0),
        ("1.9", 1),
        ("true", 0),
        ('"5"', 0),
        ("null", 0),
        ("1e999", 0),
        ("86400000", 86400000),
    ],
)
def test_ttl_is_never_negative(ttl, expected):
    assert read_list_page(f'{{"tools":[],"ttlMs":{ttl}}}'.encode()).ttl_ms == expected


@pytest.mark.parametrize("scope", ['"private"', '"PUBLIC"', "5", "null", "[]"])
def test_every_scope_but_public_is_private(scope):
    assert read_list_page(f'{{"tools":[],"cacheScope":{scope}}}'.encode()).cache_scope == "private"


def test_one_tool_that_is_no_json_spoils_only_itself():
    page = read_list_page(b'{"x":"\\ud800","tools":[{"name":"a"}, {"max":NaN}],"nextCursor":"c"}')
    assert [bytes(tool) for tool in page.tools] == [b'{"name":"a"}', b'{"max":NaN}']
    assert page.next_cursor == "c"


@pytest.mark.parametrize(
    "raw",
    [
        b"null",
        b"[]",
        b"{}",
        b'{"tools":null}',
        b'{"tools":{}}',
        b'{"tools":[],"nextCursor":5}',
        b'{"tools":[],"resultType":"input_required"}',
        b'{"tools":[],"resultType":"s3cret"}',
        b'{"tools":[],"resultType":5}',
        b'{"tools":["\\ud800"}',
        b'{"tools":{"a":"\\ud800"}}',
    ],
)
def test_pages_that_mean_nothing(raw):
    with pytest.raises(MalformedMessage) as caught:
        read_list_page(raw)
    assert "s3cret" not in str(caught.value)


def test_an_older_server_may_use_result_type_for_itself():
    assert read_list_page(b'{"tools":[],"resultType":"x"}', Era.HANDSHAKE).tools == []
    result = read_call_result(b'{"content":[],"resultType":"input_required"}', Era.HANDSHAKE)
    assert not result.input_required


@pytest.mark.parametrize(
    ("members", "is_error"),
    [
        ('"content":[]', False),
        ('"content":[],"isError":true', True),
        ('"isError":false', False),
        ('"isError":"true"', False),
        ('"isError":1', False),
        ('"isError":null,"resultType":"complete"', False),
        ('"resultType":null', False),
        ('"content":[{"type":"text","text":"\\ud800"}],"isError":true', True),
    ],
)
def test_results(members, is_error):
    raw = f"{{{members}}}".encode()
    result = read_call_result(raw)
    assert result == (is_error, False, None, None, raw)


def test_a_result_that_asks_for_input():
    raw = b'{"resultType":"input_required","inputRequests":{"k":{"method": "m"}},"requestState":"a\\u00e9"}'
    result = read_call_result(raw)
    assert result.input_required
    assert result.input_requests == b'{"k":{"method": "m"}}'
    assert result.request_state == b'"a\\u00e9"'
    bare = read_call_result(b'{"resultType":"input_required","inputRequests":null}')
    assert (bare.input_required, bare.input_requests, bare.request_state) == (True, None, None)


@pytest.mark.parametrize("raw", [b"null", b"[]", b'"x"', b'{"resultType":"task"}', b'{"resultType":1}', b"{"])
def test_results_that_mean_nothing(raw):
    with pytest.raises(MalformedMessage):
        read_call_result(raw)


@pytest.mark.parametrize("info", ["_meta", "serverInfo"])
def test_a_description(info):
    server = {"name": "n", "version": "1"}
    raw = {
        "supportedVersions": ["2026-07-28", 5],
        "capabilities": {"tools": {}},
        "instructions": "i",
        "ttlMs": -1,
    }
    raw[info] = {"io.modelcontextprotocol/serverInfo": server} if info == "_meta" else server
    found = read_discovered(json.dumps(raw).encode())
    assert found == (("2026-07-28",), "n", "1", {"tools": {}}, "i", 0, "private")


def test_descriptions_with_odd_members():
    found = read_discovered(
        b'{"supportedVersions":[],"capabilities":[],"instructions":5,"_meta":5,"serverInfo":{"name":1}}'
    )
    assert found == ((), None, None, {}, None, 0, "private")
    for raw in (
        b"{}",
        b'{"supportedVersions":"x"}',
        b'{"supportedVersions":[],"resultType":"input_required"}',
    ):
        with pytest.raises(MalformedMessage):
            read_discovered(raw)


def test_initialize():
    raw = b'{"protocolVersion":"2025-06-18","capabilities":{"tools":{"x":true}},"serverInfo":{"name":"n"}}'
    assert read_initialized(raw) == ("2025-06-18", "n", None, {"tools": {"x": True}}, None)
    for bad in (b"{}", b'{"protocolVersion":5}', b"[]"):
        with pytest.raises(MalformedMessage):
            read_initialized(bad)


@pytest.mark.parametrize(
    ("data", "versions"),
    [
        (b'{"supported":["a","b",1],"requested":"c"}', ("a", "b")),
        (b'{"supported":[]}', ()),
        (b'{"supported":"a"}', None),
        (b"[]", None),
        (b"NaN", None),
        (None, None),
        (b"", None),
    ],
)
def test_supported_versions(data, versions):
    assert read_supported(data) == versions


def page(cursor):
    return ListPage([], cursor, 0, "private")


@given(st.lists(st.sampled_from(["", "a", "b", "c", "d", None])), st.integers(1, 6))
def test_a_walk_ends(cursors, cap):
    guard = PageGuard(cap)
    seen = []
    try:
        for cursor in cursors:
            assert guard.pages == len(seen)
            seen.append(cursor)
            assert guard.follow(page(cursor)) == cursor
            if cursor is None:
                return
    except MalformedMessage:
        assert seen.count(seen[-1]) == 2 or len(seen) == cap
    else:
        assert len(seen) == len(set(seen))
        assert len(seen) < cap or not seen


def test_a_walk_of_exactly_the_cap_is_read():
    guard = PageGuard(2)
    assert guard.follow(page("a")) == "a"
    assert guard.follow(page(None)) is None
    guard = PageGuard(2)
    guard.follow(page("a"))
    with pytest.raises(MalformedMessage, match="more than 2 pages"):
        guard.follow(page("b"))
    guard = PageGuard()
    guard.follow(page("a"))
    with pytest.raises(MalformedMessage, match="comes again"):
        guard.follow(page("a"))

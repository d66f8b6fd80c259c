import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afpool.protocol import (
    CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    HANDSHAKE_VERSIONS,
    STATELESS_VERSIONS,
    VERSION_KEY,
    Era,
    Negotiated,
    call_params,
    cancelled_params,
    era_of,
    initialize_params,
    join_meta,
    list_params,
    listen_params,
    meta_member,
    meta_params,
    stateless_meta,
)

TEXT = st.text(st.characters(exclude_categories=("Cs",)))
META = stateless_meta("2026-07-28", "afpool", "0.1", b'{"sampling":{}}')
META_VALUE = {
    VERSION_KEY: "2026-07-28",
    CAPABILITIES_KEY: {"sampling": {}},
    CLIENT_INFO_KEY: {"name": "afpool", "version": "0.1"},
}


def test_versions():
    assert HANDSHAKE_VERSIONS == ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
    assert STATELESS_VERSIONS == ("2026-07-28",)
    assert {era_of(v) for v in HANDSHAKE_VERSIONS} == {Era.HANDSHAKE}
    assert era_of("2026-07-28") is Era.STATELESS
    assert era_of("1999-01-01") is None


def test_a_session_id_is_not_shown():
    assert "s3cret" not in repr(Negotiated(Era.HANDSHAKE, "2025-11-25", session_id="s3cret"))


def test_initialize():
    assert json.loads(initialize_params("a", "1", b'{"roots":{}}')) == {
        "protocolVersion": "2025-11-25",
        "capabilities": {"roots": {}},
        "clientInfo": {"name": "a", "version": "1"},
    }
    assert json.loads(initialize_params("a", "1", version="2024-11-05"))["protocolVersion"] == "2024-11-05"


def test_parameters_with_nothing_in_them():
    assert meta_params() is None
    assert json.loads(meta_params(META)) == {"_meta": META_VALUE}
    assert list_params() is None
    assert json.loads(list_params(None, META)) == {"_meta": META_VALUE}
    assert list_params("") == b'{"cursor":""}'
    assert json.loads(list_params('a"b', META)) == {"cursor": 'a"b', "_meta": META_VALUE}


@given(
    TEXT,
    st.none() | st.dictionaries(TEXT, st.integers()),
    st.booleans(),
    st.none() | st.integers() | TEXT,
    st.none() | TEXT,
    st.none() | TEXT,
    st.booleans(),
)
def test_calls(name, arguments, stateless, token, call_id, state, responses):
    params = json.loads(
        call_params(
            name,
            None if arguments is None else json.dumps(arguments).encode(),
            meta=META if stateless else b"",
            progress_token=token,
            call_id_key="example.com/call",
            call_id=call_id,
            input_responses=b'{"k":{}}' if responses else None,
            request_state=None if state is None else json.dumps(state).encode(),
        )
    )
    meta = dict(META_VALUE) if stateless else {}
    if token is not None:
        meta["progressToken"] = token
    if call_id is not None:
        meta["example.com/call"] = call_id
    expected = {"name": name}
    if arguments is not None:
        expected["arguments"] = arguments
    if responses:
        expected["inputResponses"] = {"k": {}}
    if state is not None:
        expected["requestState"] = state
    if meta:
        expected["_meta"] = meta
    assert params == expected


def test_a_call_id_goes_nowhere_without_a_key():
    assert call_params("a", b"{}", call_id="c1") == b'{"name":"a","arguments":{}}'


def test_request_state_is_echoed_byte_for_byte():
    assert b'"requestState":"a\\u00e9\\/"' in call_params("a", None, request_state=b'"a\\u00e9\\/"')


@pytest.mark.parametrize("reason", [None, "deadline"])
def test_cancelled(reason):
    bare = {"requestId": 7} | ({"reason": reason} if reason else {})
    assert json.loads(cancelled_params(7, reason)) == bare
    assert json.loads(cancelled_params(7, reason, META)) == bare | {"_meta": META_VALUE}


def test_listen():
    assert json.loads(listen_params(META)) == {
        "notifications": {"toolsListChanged": True},
        "_meta": META_VALUE,
    }
    params = json.loads(listen_params(META, tools=False, prompts=True, resources=True, resource_uris=["a:b"]))
    assert params["notifications"] == {
        "promptsListChanged": True,
        "resourcesListChanged": True,
        "resourceSubscriptions": ["a:b"],
    }


def test_meta_members_join():
    assert join_meta(b"", meta_member("a", 1), b"", meta_member("b", "x")) == b'"a":1,"b":"x"'
    assert join_meta() == b""
